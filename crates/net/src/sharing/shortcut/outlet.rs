//! A ring that this process writes, and what becomes of it when its reader is slow, gone or needs it no longer.

use std::os::fd::AsRawFd;
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use super::super::mailbox::{Mailbox, RingOffer};
use super::super::number_block::NumberBlock;
use super::super::process_identity::Identity;
use super::super::registry::Registry;
use super::super::registry_table::{Entry, Table};
use super::ring::{State, Writer};
use crate::restrictions::{self, Restriction};
use crate::times::SCHEDULED;

/// How long a ring may be full before packets to its reader are dropped: a reader that is scheduled reads sooner.
const FULL_RING_TIMEOUT: Duration = SCHEDULED;

/// After how many maintenance rounds an unused ring is removed: some seconds.
pub(super) const REMOVE_UNUSED_AFTER: u32 = 16;

/// What became of packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) enum Outcome {
    /// They are in the ring.
    Sent,
    /// The ring was full for so long that they were dropped, as a network drops them.
    Dropped,
    /// The ring is full. Offer the same packets again, before any later ones to this destination.
    Full,
    /// They must go over the socket.
    NoRing,
}

/// A ring to another process.
#[derive(Debug)]
pub(super) struct Outlet {
    pub(super) writer: Writer,
    pub(super) block: NumberBlock,
    pub(super) reader: Identity,
    mailbox: PathBuf,
    /// Sends wake-ups to the mailbox. `None` if the process has no descriptor left.
    wake_ups: Option<UnixDatagram>,
    /// The reader's position at the last maintenance.
    unread: Option<u64>,
    /// How many bytes were written until the last maintenance, and for how many rounds none were added.
    written: u64,
    unused_rounds: u32,
    /// Since when packets do not fit.
    full_since: Option<Instant>,
}

impl Outlet {
    /// `mailbox` is that of the reader.
    pub(super) fn new(
        writer: Writer,
        block: NumberBlock,
        reader: Identity,
        mailbox: PathBuf,
    ) -> Self {
        Self {
            writer,
            block,
            reader,
            wake_ups: Mailbox::connect(&mailbox).ok(),
            mailbox,
            unread: None,
            written: 0,
            unused_rounds: 0,
            full_since: None,
        }
    }

    /// Offers a ring to the owner of queue pairs, if it is a process of the same user.
    pub(super) fn offer(
        us: Identity,
        owner: &Entry,
        registry: &Registry,
        mailbox: &Mailbox,
    ) -> Option<Self> {
        let (block, reader) = (owner.block, owner.process);
        if !reader.is_alive() {
            return None;
        }
        let writer = Writer::create()
            .inspect_err(|error| restrictions::report_if_forbidden(Restriction::MemoryFiles, error))
            .ok()?;
        let offer = RingOffer {
            from: us,
            descriptor: writer.file()?.as_raw_fd(),
        };
        let outlet = Self::new(writer, block, reader, registry.mailbox(block));
        mailbox.send(&outlet.mailbox, &offer.encode()).ok()?;
        Some(outlet)
    }

    /// Whether the reader still owns the numbers.
    pub(super) fn is_in(&self, table: &Table) -> bool {
        let owner = table.member(self.block).filter(|it| !it.withdrawn);
        owner.is_some_and(|owner| owner.process == self.reader)
    }

    pub(super) fn send(
        &mut self,
        header: &[u8],
        packets: &[u8],
        mailbox: &Mailbox,
        now: Option<Instant>,
    ) -> Outcome {
        if self.writer.state() != State::Open {
            return Outcome::NoRing;
        }
        if !self.writer.write(header, packets) {
            return self.note_full(now);
        }
        self.wake_reader(mailbox);
        Outcome::Sent
    }

    /// Wakes the reader if it sleeps, after a message was written.
    pub(super) fn wake_reader(&mut self, mailbox: &Mailbox) {
        self.full_since = None;
        if self.writer.reader_sleeps() {
            // If this fails, the reader is dead, has unread messages, or wakes up by its own timer.
            let _ = match &self.wake_ups {
                Some(socket) => socket.send(&[]).map(drop),
                None => mailbox.send(&self.mailbox, &[]),
            };
        }
    }

    /// A packet that does not fit waits for a while, and is then dropped: over the socket it would overtake the
    /// others.
    fn note_full(&mut self, now: Option<Instant>) -> Outcome {
        let Some(now) = now else {
            return Outcome::Full;
        };
        let since = *self.full_since.get_or_insert(now);
        if now.saturating_duration_since(since) < FULL_RING_TIMEOUT {
            Outcome::Full
        } else {
            Outcome::Dropped
        }
    }

    /// Whether everything is read, and nothing was written for a while.
    pub(super) fn is_unused(&mut self) -> bool {
        let written = self.writer.written();
        let unused = written == self.written && self.writer.unread().is_none();
        self.written = written;
        self.unused_rounds = if unused { self.unused_rounds + 1 } else { 0 };
        self.unused_rounds >= REMOVE_UNUSED_AFTER
    }

    /// Whether the reader has not read since the last check, although there is something to read.
    pub(super) fn is_stuck(&mut self) -> bool {
        let unread = self.writer.unread();
        let before = std::mem::replace(&mut self.unread, unread);
        unread.is_some() && unread == before
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::net::Ipv4Addr;

    use super::super::super::mailbox::MAX_MESSAGE;
    use super::super::ring::Reader;
    use super::*;
    use crate::sharing::RuntimeDirectory;

    #[test]
    fn a_full_ring_keeps_packets_waiting_and_drops_them_if_nothing_is_read() {
        let path = std::env::temp_dir().join(format!("roci-full-{}", std::process::id()));
        let directory = RuntimeDirectory::at(&path).unwrap();
        let block = NumberBlock::new(0x1000, 12).unwrap();
        let registry = Registry::new(directory.path(), Ipv4Addr::LOCALHOST.into());
        let mailbox = Mailbox::open(registry.mailbox(block)).unwrap();
        let writer = Writer::create().unwrap();
        let mut reader = Reader::open(writer.file().unwrap()).unwrap();
        let mut outlet = Outlet::new(writer, block, Identity::current(), PathBuf::new());
        let packet = [7; 60_000];
        let start = Instant::now();
        let mut send = |after| outlet.send(&[], &packet, &mailbox, Some(start + after));
        while send(Duration::ZERO) == Outcome::Sent {}
        assert_eq!(send(FULL_RING_TIMEOUT / 2), Outcome::Full);
        assert_eq!(send(FULL_RING_TIMEOUT), Outcome::Dropped);
        let mut buffer = vec![0; MAX_MESSAGE];
        for _ in 0..2 {
            reader.read(&mut buffer).unwrap().unwrap();
        }
        assert_eq!(send(FULL_RING_TIMEOUT), Outcome::Sent, "there is room");
        let waits = (0..3).any(|_| send(FULL_RING_TIMEOUT) == Outcome::Full);
        assert!(waits, "the time begins again");
        drop(mailbox);
        fs::remove_dir_all(path).unwrap();
    }
}
