//! Process identity that survives PID reuse.

use std::fs;
use std::process;

/// A process: its id, and when it started, in the kernel's ticks since boot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Identity {
    pub(super) pid: u32,
    pub(super) start: u64,
}

impl Identity {
    /// This process. Without `/proc` the start is unknown, and every process counts as dead.
    pub(super) fn current() -> Self {
        let pid = process::id();
        let start = Status::read(pid).map_or(0, |status| status.start);
        Self { pid, start }
    }

    /// The process that has this id now.
    #[cfg(test)]
    pub(super) fn of(pid: u32) -> Option<Self> {
        let start = Status::read(pid)?.start;
        Some(Self { pid, start })
    }

    /// Whether it still runs.
    pub(super) fn is_alive(self) -> bool {
        Status::read(self.pid)
            .is_some_and(|status| status.start == self.start && !status.is_finished())
    }

    /// Whether this is the current process, and not the parent that it was forked from.
    pub(super) fn is_current(self) -> bool {
        self.pid == process::id()
    }
}

/// The fields of `/proc/PID/stat` that are used.
#[derive(Debug, PartialEq, Eq)]
struct Status {
    state: u8,
    threads: u64,
    start: u64,
}

impl Status {
    fn read(pid: u32) -> Option<Self> {
        Self::parse(&fs::read(format!("/proc/{pid}/stat")).ok()?)
    }

    fn parse(text: &[u8]) -> Option<Self> {
        // The second field is the program's name in parentheses and may contain any character.
        let name_end = text.iter().rposition(|byte| *byte == b')')?;
        let text = str::from_utf8(&text[name_end + 1..]).ok()?;
        let mut fields = text.split_ascii_whitespace();
        // The manual counts from 1: state is 3, num_threads 20, starttime 22.
        Some(Self {
            state: *fields.next()?.as_bytes().first()?,
            threads: fields.nth(16)?.parse().ok()?,
            start: fields.nth(1)?.parse().ok()?,
        })
    }

    /// Whether it has closed its sockets and only waits for its parent to read its exit status.
    /// While it has other threads, only its first thread has ended.
    fn is_finished(&self) -> bool {
        matches!(self.state, b'Z' | b'X') && self.threads <= 1
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn a_process_name_with_parentheses_is_parsed() {
        let text = b"42 (a) Z 7 (b) S 1 42 42 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 3 0 9876 0 0";
        let expected = Status {
            state: b'S',
            threads: 3,
            start: 9876,
        };
        assert_eq!(Status::parse(text), Some(expected));
        assert_eq!(Status::parse(b"42 (a"), None);
        assert_eq!(Status::parse(b"42 (a) S 1"), None);
    }

    #[test]
    fn a_zombie_or_a_reused_pid_is_not_alive() {
        let current = Identity::current();
        assert!(current.is_alive() && current.is_current());
        let reborn = Identity {
            start: current.start + 1,
            ..current
        };
        assert!(!reborn.is_alive());
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let identity = Identity {
            pid: child.id(),
            start: Status::read(child.id()).unwrap().start,
        };
        assert!(identity.is_alive() && !identity.is_current());
        child.kill().unwrap();
        while identity.is_alive() {
            std::thread::yield_now();
        }
        assert_eq!(Status::read(child.id()).unwrap().state, b'Z');
        child.wait().unwrap();
        assert!(!identity.is_alive());
    }
}
