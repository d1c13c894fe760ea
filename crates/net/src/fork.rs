//! Keeps descriptors of a process from its forked children.
//!
//! A socket that a forked child still holds keeps its index in the group of sockets that share an
//! address, even after the parent has ended: packets that are steered there are lost. So children
//! get `/dev/null` instead, at the moment of the fork. A descriptor that a program waits at is replaced by
//! an end of a stream: otherwise a child would wait for what only its parent is told.

use std::os::fd::BorrowedFd;

use crate::sys::fork::{self, Substitute};

/// How many forks lie between the first call of this and this process. An object with another
/// number was created by an ancestor.
#[must_use]
pub fn generation() -> u32 {
    fork::forks()
}

/// Keeps descriptors from forked children until it is dropped.
#[derive(Debug)]
pub struct Guard {
    slots: Vec<usize>,
    generation: u32,
}

impl Guard {
    /// Guards these descriptors. They must stay open until the guard is dropped: declare it before
    /// them.
    pub fn new<'f>(descriptors: impl IntoIterator<Item = BorrowedFd<'f>>) -> Self {
        Self {
            slots: descriptors
                .into_iter()
                .filter_map(|fd| fork::keep_from_children(fd, Substitute::Null))
                .collect(),
            generation: generation(),
        }
    }

    /// As [`new`](Self::new), but in children `awaited`, which a program waits at, is readable and has hung up.
    pub fn for_awaited(awaited: BorrowedFd<'_>, other: BorrowedFd<'_>) -> Self {
        let mut guard = Self::new([other]);
        let slot = fork::keep_from_children(awaited, Substitute::End);
        guard.slots.extend(slot);
        guard
    }

    /// Whether it guards a descriptor. There is room for a limited number.
    pub(crate) fn is_effective(&self) -> bool {
        !self.slots.is_empty()
    }

    /// Whether this is the copy in a forked child.
    #[must_use]
    pub fn is_inherited(&self) -> bool {
        self.generation != generation()
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        for slot in self.slots.drain(..) {
            fork::forget(slot);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    use super::*;
    use crate::sys::process;

    #[test]
    fn a_child_knows_that_it_is_one_without_any_descriptor() {
        let before = generation();
        let (mut ours, mut theirs) = UnixStream::pair().unwrap();
        let child = process::fork(|| {
            let differs = generation() != before;
            // If this fails, the parent reads nothing, and the test fails.
            let _ = theirs.write_all(&[u8::from(differs)]);
        });
        drop(theirs);
        let mut said = [0];
        ours.read_exact(&mut said).unwrap();
        process::end(child);
        assert_eq!((said, generation()), ([1], before));
    }

    #[test]
    fn a_child_does_not_keep_a_guarded_socket_open() {
        let (mut ours, theirs) = UnixStream::pair().unwrap();
        let guard = Guard::new([theirs.as_fd()]);
        assert!(!guard.is_inherited());
        let child = process::fork(|| {});
        drop((guard, theirs));
        // The stream ends only when no process holds the other side any more.
        let mut rest = Vec::new();
        assert_eq!(ours.read_to_end(&mut rest).unwrap(), 0);
        process::end(child);
    }
}
