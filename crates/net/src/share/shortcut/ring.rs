//! Letters from one process to another through memory that both have.
//!
//! One writes, one reads. A letter is a length and its bytes, in one piece and padded to a cache
//! line; one that does not fit before the end of the ring begins at its start. `tail` counts the bytes
//! that were ever written, `head` those that were read.
//!
//! The reader believes nothing: whoever writes nonsense only loses his letters.

use std::fs::File;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering, fence};

use crate::sys::shared_memory::SharedMemory;

/// How much fits: the windows of several queue pairs.
const CAPACITY: u64 = 8 << 20;

/// While the reader keeps up, no more than this is used, so that it stays in the processors' caches.
const WARM: u64 = 256 << 10;

/// Where the letters begin; before that are the words.
const LETTERS: usize = 4096;

/// How long the memory of a ring is.
pub(super) const LENGTH: usize = LETTERS + CAPACITY as usize;

/// Letters begin at multiples of this.
const LINE: u64 = 64;

/// In the place of a length: the next letter is at the start of the ring.
const AT_THE_START: u64 = u64::MAX;

/// Each in a cache line of its own.
const TAIL: usize = 0;
const HEAD: usize = 128;
const ASLEEP: usize = 256;
const STATE: usize = 384;

/// What has become of a ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    /// The reader has not taken it yet.
    Offered,
    /// Letters may be written.
    Open,
    /// One of the two has gone.
    Closed,
}

/// What is in the memory cannot have been written by our kind.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Nonsense;

#[derive(Debug)]
struct Ring(SharedMemory);

impl Ring {
    fn tail(&self) -> &AtomicU64 {
        self.0.word(TAIL)
    }

    fn head(&self) -> &AtomicU64 {
        self.0.word(HEAD)
    }

    fn asleep(&self) -> &AtomicU64 {
        self.0.word(ASLEEP)
    }

    fn state(&self) -> State {
        match self.0.word(STATE).load(Ordering::Acquire) {
            0 => State::Offered,
            1 => State::Open,
            _ => State::Closed,
        }
    }

    fn set_state(&self, state: State) {
        self.0.word(STATE).store(state as u64, Ordering::Release);
    }
}

/// The end that letters are written to.
#[derive(Debug)]
pub(super) struct Writer {
    ring: Ring,
    file: File,
    tail: u64,
    /// How far the reader was when we last looked.
    head: u64,
}

impl Writer {
    /// A new ring.
    pub(super) fn create() -> io::Result<Self> {
        let (memory, file) = SharedMemory::create(LENGTH)?;
        Ok(Self {
            ring: Ring(memory),
            file,
            tail: 0,
            head: 0,
        })
    }

    pub(super) fn file(&self) -> &File {
        &self.file
    }

    pub(super) fn state(&self) -> State {
        self.ring.state()
    }

    /// How far the reader is, unless he has read everything.
    pub(super) fn unread(&self) -> Option<u64> {
        let head = self.ring.head().load(Ordering::Acquire);
        (head != self.tail).then_some(head)
    }

    /// Writes a letter in two parts; whether it fitted.
    pub(super) fn write(&mut self, heading: &[u8], body: &[u8]) -> bool {
        let length = heading.len() + body.len();
        let needed = occupied(length as u64);
        let skipped = self.to_be_skipped(needed);
        if !self.has_room(skipped + needed) {
            return false;
        }
        if skipped > 0 {
            self.write_length(AT_THE_START);
            self.tail += skipped;
        }
        self.write_length(length as u64);
        let at = place(self.tail) + size_of::<u64>();
        self.ring.0.write(at, heading);
        self.ring.0.write(at + heading.len(), body);
        self.tail += needed;
        self.ring.tail().store(self.tail, Ordering::Release);
        true
    }

    /// How much to leave out, to begin at the start again: because a letter does not fit before the end,
    /// or because everything is read.
    fn to_be_skipped(&self, needed: u64) -> u64 {
        let used = self.tail % CAPACITY;
        let to_the_end = CAPACITY - used;
        let from_the_start = needed > to_the_end || used >= WARM && self.unread().is_none();
        if from_the_start { to_the_end } else { 0 }
    }

    fn has_room(&mut self, needed: u64) -> bool {
        if self.tail + needed - self.head <= CAPACITY {
            return true;
        }
        let head = self.ring.head().load(Ordering::Acquire);
        // A reader who claims to have read what was never written gets nothing more.
        if head > self.tail || head < self.head {
            self.ring.set_state(State::Closed);
            return false;
        }
        self.head = head;
        self.tail + needed - head <= CAPACITY
    }

    fn write_length(&self, length: u64) {
        let word = self.ring.0.word(place(self.tail));
        word.store(length, Ordering::Relaxed);
    }

    /// Whether the reader sleeps and must be woken. He is told only once.
    pub(super) fn reader_sleeps(&self) -> bool {
        // Between our tail and his sleep: one of us sees the other.
        fence(Ordering::SeqCst);
        let asleep = self.ring.asleep();
        asleep.load(Ordering::Relaxed) != 0 && asleep.swap(0, Ordering::AcqRel) != 0
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.ring.set_state(State::Closed);
    }
}

/// The end that letters are read from.
#[derive(Debug)]
pub(super) struct Reader {
    ring: Ring,
    head: u64,
    /// How far the writer was when we last looked.
    tail: u64,
    /// Whether we have said that we sleep.
    sleeps: bool,
}

impl Reader {
    /// The ring that a writer has made.
    pub(super) fn open(file: &File) -> io::Result<Self> {
        let ring = Ring(SharedMemory::open(file, LENGTH)?);
        ring.set_state(State::Open);
        Ok(Self {
            ring,
            head: 0,
            tail: 0,
            sleeps: false,
        })
    }

    /// Whether there is something to read.
    #[inline]
    pub(super) fn has_letters(&mut self) -> bool {
        if self.tail == self.head {
            self.tail = self.ring.tail().load(Ordering::Acquire);
        }
        self.tail != self.head
    }

    /// Whether nothing more will come.
    pub(super) fn is_over(&mut self) -> bool {
        self.ring.state() == State::Closed && !self.has_letters()
    }

    /// Whether nothing was ever read.
    pub(super) fn is_new(&self) -> bool {
        self.head == 0
    }

    /// Copies the next letter into a buffer; its length.
    pub(super) fn read(&mut self, buffer: &mut [u8]) -> Result<Option<usize>, Nonsense> {
        if !self.has_letters() {
            return Ok(None);
        }
        let mut length = self.next_length()?;
        if length == AT_THE_START {
            self.head += CAPACITY - self.head % CAPACITY;
            length = self.next_length()?;
        }
        let to_the_end = CAPACITY - self.head % CAPACITY;
        let end = self.head.checked_add(occupied(length)).ok_or(Nonsense)?;
        if length > buffer.len() as u64 || occupied(length) > to_the_end || end > self.tail {
            return Err(Nonsense);
        }
        let at = place(self.head) + size_of::<u64>();
        self.ring.0.read(at, &mut buffer[..length as usize]);
        self.head = end;
        self.ring.head().store(end, Ordering::Release);
        Ok(Some(length as usize))
    }

    fn next_length(&self) -> Result<u64, Nonsense> {
        let unread = self.tail.wrapping_sub(self.head);
        if unread == 0 || unread > CAPACITY {
            return Err(Nonsense);
        }
        let length = self.ring.0.word(place(self.head)).load(Ordering::Relaxed);
        match length {
            AT_THE_START => Ok(length),
            _ if length > CAPACITY => Err(Nonsense),
            _ => Ok(length),
        }
    }

    /// Tells the writer to wake us; whether there is something to read after all.
    pub(super) fn prepare_sleep(&mut self) -> bool {
        self.sleeps = true;
        self.ring.asleep().store(1, Ordering::Relaxed);
        // As in `reader_sleeps`.
        fence(Ordering::SeqCst);
        self.has_letters()
    }

    /// Whether the writer has woken us since we prepared to sleep; true once.
    pub(super) fn was_woken(&mut self) -> bool {
        let woken = self.sleeps && self.ring.asleep().load(Ordering::Relaxed) == 0;
        if woken {
            self.sleeps = false;
        }
        woken
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.ring.set_state(State::Closed);
    }
}

/// How much of the ring a letter takes, its length included.
const fn occupied(length: u64) -> u64 {
    (length.saturating_add(size_of::<u64>() as u64)).next_multiple_of(LINE)
}

const fn place(count: u64) -> usize {
    LETTERS + (count % CAPACITY) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair() -> (Writer, Reader) {
        let writer = Writer::create().unwrap();
        assert_eq!(writer.state(), State::Offered);
        let reader = Reader::open(writer.file()).unwrap();
        assert_eq!(writer.state(), State::Open);
        (writer, reader)
    }

    #[test]
    fn letters_come_whole_and_in_order_round_and_round() {
        let (mut writer, mut reader) = pair();
        let mut buffer = vec![0; 1 << 16];
        let body: Vec<u8> = (0..60_000_u32).map(|it| it as u8).collect();
        for turn in 0..200_usize {
            let length = turn * 7919 % body.len();
            assert!(writer.write(&turn.to_ne_bytes(), &body[..length]));
            let read = reader.read(&mut buffer).unwrap().unwrap();
            assert_eq!(read, 8 + length);
            assert_eq!(buffer[..8], turn.to_ne_bytes());
            assert_eq!(buffer[8..read], body[..length]);
        }
        assert_eq!(reader.read(&mut buffer), Ok(None));
        assert_eq!(writer.unread(), None);
    }

    #[test]
    fn a_full_ring_takes_nothing_until_something_is_read() {
        let (mut writer, mut reader) = pair();
        let letter = [7; 65_000];
        let mut written = 0_u64;
        while writer.write(&[], &letter) {
            written += 1;
        }
        assert_eq!(written, CAPACITY / occupied(letter.len() as u64));
        let mut buffer = vec![0; 1 << 16];
        assert_eq!(reader.read(&mut buffer), Ok(Some(letter.len())));
        // The first place is free, but the end of the ring lies before it.
        assert!(writer.write(&[], &letter));
        assert!(!writer.write(&[], &letter));
        let mut read = 0;
        while reader.read(&mut buffer).unwrap().is_some() {
            read += 1;
        }
        assert_eq!(read, written);
    }

    #[test]
    fn a_reader_who_keeps_up_sees_only_the_first_part() {
        let (mut writer, mut reader) = pair();
        let mut buffer = vec![0; 1 << 16];
        for _ in 0..1000 {
            assert!(writer.write(&[], &[7; 60_000]));
            reader.read(&mut buffer).unwrap().unwrap();
            assert!(reader.head % CAPACITY < WARM + (1 << 16));
        }
    }

    #[test]
    fn who_sleeps_is_woken_once() {
        let (mut writer, mut reader) = pair();
        assert!(!writer.reader_sleeps() && !reader.was_woken());
        assert!(!reader.prepare_sleep());
        assert!(writer.write(b"wake up", &[]));
        assert!(writer.reader_sleeps() && !writer.reader_sleeps());
        assert!(reader.was_woken() && !reader.was_woken());
        assert!(reader.prepare_sleep(), "there is a letter");
    }

    #[test]
    fn who_leaves_closes() {
        let (writer, mut reader) = pair();
        assert!(!reader.is_over());
        drop(writer);
        assert!(reader.is_over());
        let (mut writer, reader) = pair();
        drop(reader);
        assert_eq!(writer.state(), State::Closed);
        assert!(writer.write(b"into the void", &[]));
    }

    #[test]
    fn nonsense_is_seen_through() {
        let lie = |offset: usize, value: u64| {
            let (mut writer, mut reader) = pair();
            assert!(writer.write(b"truth", &[]));
            writer.ring.0.word(offset).store(value, Ordering::Release);
            reader.read(&mut [0; 1024])
        };
        assert_eq!(lie(TAIL, 64), Ok(Some(5)));
        for tail in [1, 63, CAPACITY + 64, u64::MAX] {
            assert_eq!(lie(TAIL, tail), Err(Nonsense), "{tail}");
        }
        for length in [57, 1025, CAPACITY, CAPACITY + 1, u64::MAX - 1, AT_THE_START] {
            assert_eq!(lie(LETTERS, length), Err(Nonsense), "{length}");
        }
        let (mut writer, _reader) = pair();
        writer.ring.head().store(1 << 40, Ordering::Release);
        while writer.write(&[0; 60_000], &[]) {}
        assert_eq!(writer.state(), State::Closed);
    }

    #[test]
    fn a_letter_that_reaches_over_the_end_is_nonsense() {
        const NEAR_THE_END: u64 = CAPACITY - LINE;
        let (mut writer, mut reader) = pair();
        (reader.head, reader.tail, writer.tail) = (NEAR_THE_END, NEAR_THE_END, NEAR_THE_END);
        writer.write_length(2 * LINE);
        writer
            .ring
            .tail()
            .store(CAPACITY + 4 * LINE, Ordering::Release);
        assert_eq!(reader.read(&mut [0; 1024]), Err(Nonsense));
    }
}
