//! Waits for sockets, for a time, and for another thread.

use std::io;
use std::marker::PhantomData;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::time::Duration;

use crate::fork::Guard;
use crate::sys;

/// Which of so many descriptors are ready, a [`wait`] tells. Of further ones it tells how many.
pub const MAX_DESCRIPTORS: usize = 64;

/// What to wait for.
#[derive(Debug, Clone, Copy)]
pub struct Interest<'f> {
    descriptor: RawFd,
    events: libc::c_short,
    lifetime: PhantomData<BorrowedFd<'f>>,
}

impl<'f> Interest<'f> {
    /// Waits until there is something to read.
    pub fn readable(descriptor: BorrowedFd<'f>) -> Self {
        Self::of(descriptor.as_raw_fd(), libc::POLLIN)
    }

    /// Waits until there is room to write.
    pub fn writable(descriptor: BorrowedFd<'f>) -> Self {
        Self::of(descriptor.as_raw_fd(), libc::POLLOUT)
    }

    /// Waits for these events of `poll` at a descriptor of the program, which may close it at any time.
    pub fn of(descriptor: RawFd, events: libc::c_short) -> Self {
        Self {
            descriptor,
            events,
            lifetime: PhantomData,
        }
    }
}

/// Which of the interests are ready.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Ready {
    indices: u64,
    count: usize,
    interrupted: bool,
}

impl Ready {
    /// Whether a signal ended the wait.
    pub fn was_interrupted(self) -> bool {
        self.interrupted
    }

    /// Whether none is ready: the timeout ended, or a signal arrived.
    pub fn is_empty(self) -> bool {
        self.count == 0
    }

    /// How many are ready.
    pub fn count(self) -> usize {
        self.count
    }

    /// How many of the first `end` interests are ready, for at most [`MAX_DESCRIPTORS`].
    pub fn count_below(self, end: usize) -> usize {
        (0..end).filter(|index| self.contains(*index)).count()
    }

    /// Whether the interest at this index is ready. An error counts as ready: the next call on the
    /// descriptor reports it.
    pub fn contains(self, index: usize) -> bool {
        index < MAX_DESCRIPTORS && self.indices >> index & 1 == 1
    }
}

/// Waits until one of the interests is ready or the timeout ends; without a timeout, forever.
///
/// The timeout is exact to the nanosecond, up to the thread's timer slack, which is usually 50 µs. A signal ends the wait with nothing ready. A descriptor that is
/// closed is an error (`EBADF`): it would end every wait at once.
pub fn wait(interests: &[Interest<'_>], timeout: Option<Duration>) -> io::Result<Ready> {
    const EMPTY: libc::pollfd = libc::pollfd {
        fd: -1,
        events: 0,
        revents: 0,
    };
    let mut few = [EMPTY; MAX_DESCRIPTORS];
    let mut many = Vec::new();
    let set = match few.get_mut(..interests.len()) {
        Some(set) => set,
        None => {
            many.resize(interests.len(), EMPTY);
            &mut many[..]
        }
    };
    for (entry, interest) in set.iter_mut().zip(interests) {
        entry.fd = interest.descriptor;
        entry.events = interest.events;
    }
    match sys::poll::poll(set, timeout) {
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::Interrupted => {
            return Ok(Ready {
                interrupted: true,
                ..Ready::default()
            });
        }
        Err(error) => return Err(error),
    }
    let ready = |entry: &&libc::pollfd| entry.revents != 0;
    let first = set.iter().take(MAX_DESCRIPTORS).enumerate();
    let first = first.filter(|(_, entry)| ready(entry));
    Ok(Ready {
        indices: first.fold(0, |bits, (index, _)| bits | 1 << index),
        count: set.iter().filter(ready).count(),
        interrupted: false,
    })
}

/// The error of [`wait`] for a descriptor that is closed.
pub fn closed_error() -> io::Error {
    io::Error::from_raw_os_error(libc::EBADF)
}

/// Whether a call on a socket failed because its descriptor is closed or has become that of another file. Waiting for
/// such a descriptor fails, or ends at once, always.
pub fn is_socket_lost(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EBADF | libc::ENOTSOCK))
}

/// Ends another thread's [`wait`].
///
/// The waiting thread has it among its interests, as readable, and calls [`clear`](Self::clear)
/// *before* it checks what it was woken for, so that no wake-up is lost.
#[derive(Debug)]
pub struct Waker {
    counter: OwnedFd,
}

impl Waker {
    /// A waker without wake-ups.
    pub fn new() -> io::Result<Self> {
        Ok(Self {
            counter: sys::poll::event_counter()?,
        })
    }

    /// Ends the current wait, or else the next one.
    pub fn wake(&self) {
        sys::poll::event_add(self.counter.as_fd());
    }

    /// Clears the wake-ups so far.
    pub fn clear(&self) {
        sys::poll::event_clear(self.counter.as_fd());
    }
}

impl AsFd for Waker {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.counter.as_fd()
    }
}

/// A descriptor for a program to wait for: readable while it is raised, and never writable.
///
/// It is an epoll descriptor over a counter. A counter itself is writable all the time, and an event
/// loop that registers for both directions would spin. A program may make it non-blocking, which
/// changes nothing here.
///
/// A forked child shares neither the counter nor the epoll descriptor with its parent: there it is readable, and has hung up.
#[derive(Debug)]
pub struct Signal {
    /// Declared before the descriptors, so that it ends first.
    _guard: Guard,
    epoll: OwnedFd,
    counter: Waker,
}

impl Signal {
    /// A descriptor that is not raised.
    pub fn new() -> io::Result<Self> {
        let counter = Waker::new()?;
        let epoll = sys::poll::epoll()?;
        sys::poll::epoll_add(epoll.as_fd(), counter.as_fd())?;
        Ok(Self {
            _guard: Guard::for_awaited(epoll.as_fd(), counter.as_fd()),
            epoll,
            counter,
        })
    }

    /// Makes it also readable while a descriptor of the set is.
    pub fn include(&self, set: &PollSet) -> io::Result<()> {
        let mut descriptors = set.0.iter();
        let included =
            descriptors.try_for_each(|it| sys::poll::epoll_add(self.epoll.as_fd(), it.as_fd()));
        included.inspect_err(|_| self.exclude(set))
    }

    /// Ends the effect of [`include`](Self::include).
    pub fn exclude(&self, set: &PollSet) {
        for descriptor in &set.0 {
            // Removing one that was not included has no effect.
            let _ = sys::poll::epoll_remove(self.epoll.as_fd(), descriptor.as_fd());
        }
    }

    /// Makes it readable. Each call is an edge for a program that waits for edges (`EPOLLET`).
    pub fn raise(&self) {
        self.counter.wake();
    }

    /// Makes it unreadable.
    pub fn lower(&self) {
        self.counter.clear();
    }
}

impl AsFd for Signal {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}

/// Descriptors that a [`Signal`] can include.
///
/// It has its own copies of them. A signal lists a descriptor until it is removed under the same number, or until every
/// copy of it is closed: by its own copies, the set can always remove itself. An epoll descriptor over them could be
/// included as one, but each packet would wake its program 1 µs later.
#[derive(Debug)]
pub struct PollSet(Vec<OwnedFd>);

impl PollSet {
    /// A set of copies of these descriptors.
    pub fn over<'f>(descriptors: impl IntoIterator<Item = BorrowedFd<'f>>) -> io::Result<Self> {
        let copies = descriptors
            .into_iter()
            .map(|descriptor| descriptor.try_clone_to_owned());
        Ok(Self(copies.collect::<io::Result<_>>()?))
    }

    /// Whether one of them is readable now.
    pub fn is_ready(&self) -> bool {
        self.0.chunks(MAX_DESCRIPTORS).any(|some| {
            let interests = some.iter().map(|it| Interest::readable(it.as_fd()));
            let interests: Vec<_> = interests.collect();
            wait(&interests, Some(Duration::ZERO)).is_ok_and(|ready| !ready.is_empty())
        })
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;
    use std::thread;
    use std::time::Instant;

    use super::*;
    use crate::sys::process;

    #[test]
    fn a_wait_times_out() {
        let waker = Waker::new().unwrap();
        let begin = Instant::now();
        let interests = [Interest::readable(waker.as_fd())];
        let ready = wait(&interests, Some(Duration::from_micros(1500))).unwrap();
        let took = begin.elapsed();
        assert!(ready.is_empty());
        assert!(took >= Duration::from_micros(1500), "{took:?}");
        println!("asked for 1500 µs, took {} µs", took.as_micros());
    }

    fn events_of(descriptor: BorrowedFd<'_>, events: libc::c_short) -> libc::c_short {
        let mut set = [libc::pollfd {
            fd: descriptor.as_raw_fd(),
            events,
            revents: 0,
        }];
        sys::poll::poll(&mut set, Some(Duration::ZERO)).unwrap();
        set[0].revents
    }

    #[test]
    fn a_signal_is_readable_while_raised_and_never_writable() {
        let signal = Signal::new().unwrap();
        let both = libc::POLLIN | libc::POLLOUT;
        assert_eq!(events_of(signal.as_fd(), both), 0);
        signal.raise();
        signal.raise();
        assert_eq!(events_of(signal.as_fd(), both), libc::POLLIN);
        let copy = signal.as_fd().try_clone_to_owned().unwrap();
        assert_eq!(events_of(copy.as_fd(), both), libc::POLLIN);
        signal.lower();
        assert_eq!(events_of(copy.as_fd(), both), 0);
    }

    #[test]
    fn a_signal_is_readable_while_a_set_in_it_is() {
        let signal = Signal::new().unwrap();
        let waker = Waker::new().unwrap();
        let set = PollSet::over([waker.as_fd()]).unwrap();
        signal.include(&set).unwrap();
        assert!(!set.is_ready());
        assert_eq!(events_of(signal.as_fd(), libc::POLLIN), 0);
        waker.wake();
        assert!(set.is_ready());
        assert_eq!(events_of(signal.as_fd(), libc::POLLIN), libc::POLLIN);
        signal.lower();
        assert_eq!(events_of(signal.as_fd(), libc::POLLIN), libc::POLLIN);
        signal.exclude(&set);
        assert_eq!(events_of(signal.as_fd(), libc::POLLIN), 0);
    }

    /// It would wait for ever: what it waits for is told to its parent.
    #[test]
    fn a_forked_child_finds_a_signal_at_its_end_and_leaves_that_of_the_parent_alone() {
        let signal = Signal::new().unwrap();
        signal.raise();
        let (mut ours, mut theirs) = UnixStream::pair().unwrap();
        let child = process::fork(|| {
            signal.lower();
            let events = events_of(signal.as_fd(), libc::POLLIN | libc::POLLOUT);
            let _ = theirs.write_all(&events.to_ne_bytes());
        });
        drop(theirs);
        let mut said = [0; 2];
        ours.read_exact(&mut said).unwrap();
        process::end(child);
        assert_eq!(
            libc::c_short::from_ne_bytes(said),
            libc::POLLIN | libc::POLLHUP
        );
        assert_eq!(events_of(signal.as_fd(), libc::POLLIN), libc::POLLIN);
    }

    #[test]
    fn a_wake_is_kept_until_it_is_cleared() {
        let waker = Waker::new().unwrap();
        let interests = [Interest::readable(waker.as_fd())];
        thread::scope(|scope| {
            scope.spawn(|| waker.wake());
            let ready = wait(&interests, Some(Duration::from_secs(10))).unwrap();
            assert!(ready.contains(0) && !ready.contains(1) && !ready.contains(64));
        });
        waker.wake();
        assert!(!wait(&interests, None).unwrap().is_empty());
        waker.clear();
        assert!(wait(&interests, Some(Duration::ZERO)).unwrap().is_empty());
    }
}
