//! Notices at once when the processes of other members end.
//!
//! Each process watches the next two in the order of the table, so a stopped process does not keep an end from being noticed. Without
//! process descriptors, the check of every quarter of a second notices it.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::cached_registry::KnownTable;
use super::mailbox::INSPECT;
use super::member::Member;
use super::process_identity::Identity;
use super::repair::is_locked;
use crate::poll::{Interest, wait};
use crate::sys;

/// A descriptor that is readable when a process that a member watches has ended. Several members can share it.
#[derive(Debug)]
pub struct ExitWatch(OwnedFd);

impl ExitWatch {
    /// A descriptor for the members of a device.
    pub fn new() -> io::Result<Self> {
        sys::poll::epoll().map(Self)
    }
}

impl AsFd for ExitWatch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// The processes that a member watches.
#[derive(Debug)]
pub(super) struct WatchedProcesses {
    watch: Arc<ExitWatch>,
    processes: Vec<(Identity, OwnedFd)>,
    /// This process. The copy in a forked child leaves the descriptors to the parent.
    owner: Identity,
}

impl WatchedProcesses {
    /// Watches exactly these processes. One that has ended, or that the system does not let us watch, is left out.
    fn set(&mut self, wanted: &[Identity]) {
        let (kept, unwanted): (Vec<_>, Vec<_>) = std::mem::take(&mut self.processes)
            .into_iter()
            .partition(|(process, _)| wanted.contains(process));
        self.processes = kept;
        self.stop(&unwanted);
        for process in wanted {
            let is_watched = self.processes.iter().any(|(it, _)| it == process);
            if is_watched {
                continue;
            }
            if let Ok(descriptor) = sys::process::descriptor(process.pid)
                // The id may belong to another process since.
                && process.is_alive()
                && sys::poll::epoll_add(self.watch.as_fd(), descriptor.as_fd()).is_ok()
            {
                self.processes.push((*process, descriptor));
            }
        }
    }

    /// Stops watching processes that have ended. Returns whether there were any.
    fn take_ended(&mut self) -> bool {
        let has_ended = |descriptor: &OwnedFd| {
            let ready = wait(
                &[Interest::readable(descriptor.as_fd())],
                Some(Duration::ZERO),
            );
            ready.is_ok_and(|ready| !ready.is_empty())
        };
        let (ended, running): (Vec<_>, Vec<_>) = std::mem::take(&mut self.processes)
            .into_iter()
            .partition(|(_, descriptor)| has_ended(descriptor));
        self.processes = running;
        let found = !ended.is_empty();
        self.stop(&ended);
        found
    }

    /// A forked child may hold copies of the descriptors, so closing them is not enough.
    fn stop(&self, processes: &[(Identity, OwnedFd)]) {
        if self.owner.is_current() {
            for (_, descriptor) in processes {
                let _ = sys::poll::epoll_remove(self.watch.as_fd(), descriptor.as_fd());
            }
        }
    }
}

impl Drop for WatchedProcesses {
    fn drop(&mut self) {
        self.stop(&self.processes);
    }
}

impl Member {
    /// Makes the descriptor readable when a process of another member ends. Call
    /// [`handle_exits`](Self::handle_exits) then.
    pub fn watch_exits(&mut self, watch: &Arc<ExitWatch>) {
        self.exits = Some(WatchedProcesses {
            watch: Arc::clone(watch),
            processes: Vec::new(),
            owner: self.process,
        });
        let Ok(table) = self.registry.current() else {
            return;
        };
        self.update_watched_processes(&table);
        // Others check this process only later. Until they do, its end would be noticed late.
        for block in table.order.watchers(self.process) {
            let _ = self.mailbox.send(&self.registry.mailbox(block), &INSPECT);
        }
    }

    /// Repairs the group if a watched process has ended.
    pub fn handle_exits(&mut self) {
        if self.repair.withdrawn
            || !self
                .exits
                .as_mut()
                .is_some_and(WatchedProcesses::take_ended)
        {
            return;
        }
        self.repair.someone_died = true;
        // If this fails, the next check repeats it.
        if (self.remove_dead_members()).is_err_and(|error| is_locked(&error)) {
            self.repair.try_again_soon(Instant::now());
        }
        if let Ok(table) = self.registry.current() {
            self.update_watched_processes(&table);
        }
    }

    /// One member of a process is enough.
    pub(super) fn update_watched_processes(&mut self, table: &KnownTable) {
        if let Some(exits) = &mut self.exits {
            exits.set(&table.order.watched_for_exit(self.block, self.process));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;
    use std::process::{Child, Command};

    use super::*;
    use crate::sys::process::{end, fork};

    fn is_readable(watch: &ExitWatch) -> bool {
        let ready = wait(&[Interest::readable(watch.as_fd())], Some(Duration::ZERO));
        !ready.unwrap().is_empty()
    }

    /// A process, and what watches it.
    fn watched() -> (Child, Arc<ExitWatch>, WatchedProcesses) {
        let process = Command::new("sleep").arg("60").spawn().unwrap();
        let watch = Arc::new(ExitWatch::new().unwrap());
        let mut processes = WatchedProcesses {
            watch: Arc::clone(&watch),
            processes: Vec::new(),
            owner: Identity::current(),
        };
        let identity = Identity::of(process.id()).unwrap();
        let start = identity.start + 1;
        processes.set(&[identity, Identity { start, ..identity }]);
        assert_eq!(processes.processes.len(), 1, "the other has ended");
        processes.set(&[identity]);
        assert!(!processes.take_ended() && !is_readable(&watch));
        (process, watch, processes)
    }

    fn kill(mut process: Child) {
        process.kill().unwrap();
        process.wait().unwrap();
    }

    #[test]
    fn the_end_of_a_process_is_reported_once() {
        let (process, watch, mut processes) = watched();
        let copies = fork(|| {});
        kill(process);
        assert!(is_readable(&watch) && processes.take_ended());
        assert!(!is_readable(&watch) && !processes.take_ended());
        end(copies);
    }

    #[test]
    fn a_process_that_is_not_watched_any_more_is_not_reported() {
        let (process, watch, mut processes) = watched();
        let copies = fork(|| {});
        processes.set(&[]);
        kill(process);
        assert!(!is_readable(&watch));
        end(copies);
        let (process, watch, processes) = watched();
        let copies = fork(|| {});
        drop(processes);
        kill(process);
        assert!(!is_readable(&watch));
        end(copies);
    }

    #[test]
    fn a_forked_child_leaves_the_processes_to_its_parent() {
        let (process, watch, processes) = watched();
        let mut processes = Some(processes);
        let (mut ours, mut theirs) = UnixStream::pair().unwrap();
        let child = fork(|| {
            drop(processes.take());
            // If this fails, the parent reads nothing, and the test fails.
            let _ = theirs.write_all(&[1]);
        });
        drop(theirs);
        ours.read_exact(&mut [0]).unwrap();
        kill(process);
        assert!(is_readable(&watch));
        end(child);
    }
}
