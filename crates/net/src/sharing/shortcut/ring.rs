//! A ring of messages from one process to another, in shared memory.
//!
//! There is one writer and one reader. A message is a length and its bytes, contiguous and padded to a
//! cache line. One that does not fit before the end of the ring starts at its beginning. `tail` counts the bytes
//! that were ever written, `head` those that were read.
//!
//! The reader validates everything. A writer that writes invalid data only loses its messages.

use std::fs::File;
use std::io;
use std::sync::atomic::AtomicU8;

use crate::sync::{AtomicU64, Ordering, fence};
#[cfg(not(all(test, loom)))]
use crate::sys::shared_memory::SharedMemory;
#[cfg(all(test, loom))]
use model_checks::SharedMemory;

/// The capacity in bytes: the windows of several queue pairs. The model checks fill a ring of three lines.
const CAPACITY: u64 = if cfg!(all(test, loom)) {
    3 * LINE
} else {
    8 << 20
};

/// While the reader keeps up, only this many bytes are used, so that they stay in the CPU caches.
const CACHED_CAPACITY: u64 = if cfg!(all(test, loom)) {
    2 * LINE
} else {
    256 << 10
};

/// A reader that is less than this many bytes behind keeps up.
const MAX_BACKLOG: u64 = CACHED_CAPACITY / 2;

/// The offset of the messages. The control words are before them.
const DATA_OFFSET: usize = 4096;

/// The length of a ring's memory in bytes.
pub(super) const LENGTH: usize = DATA_OFFSET + CAPACITY as usize;

/// The alignment of messages: a cache line.
const LINE: u64 = 64;

/// The maximum number of messages in a ring.
pub(super) const MAX_MESSAGES: usize = (CAPACITY / LINE) as usize;

/// Instead of a length: the next message is at the start of the ring.
const WRAP_MARKER: u64 = u64::MAX;

/// The offsets of the control words, each in its own cache line.
const TAIL: usize = 0;
const HEAD: usize = 128;
const ASLEEP: usize = 256;
const STATE: usize = 384;

/// The state of a ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    /// The reader has not opened it yet.
    Offered,
    /// Messages may be written.
    Open,
    /// The reader or the writer has closed it.
    Closed,
}

/// The memory contains invalid data.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct InvalidRing;

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

    /// Opens the ring, unless its writer has closed it meanwhile.
    fn open(&self) {
        let (offered, open) = (State::Offered as u64, State::Open as u64);
        let (success, failure) = (Ordering::AcqRel, Ordering::Relaxed);
        // A failure means that it is not offered any more.
        let _ = (self.0.word(STATE)).compare_exchange(offered, open, success, failure);
    }

    fn set_state(&self, state: State) {
        self.0.word(STATE).store(state as u64, Ordering::Release);
    }
}

/// The writing side of a ring.
#[derive(Debug)]
pub(super) struct Writer {
    ring: Ring,
    /// The file from which the reader opens the ring; `None` when it has.
    file: Option<File>,
    tail: u64,
    /// The last known position of the reader.
    head: u64,
    /// How many bytes the message that was [reserved](Self::reserve) skips.
    reserved: Option<u64>,
}

impl Writer {
    /// Creates a ring.
    pub(super) fn create() -> io::Result<Self> {
        let (memory, file) = SharedMemory::create(LENGTH)?;
        Ok(Self::over(memory, Some(file)))
    }

    fn over(memory: SharedMemory, file: Option<File>) -> Self {
        Self {
            ring: Ring(memory),
            file,
            tail: 0,
            head: 0,
            reserved: None,
        }
    }

    pub(super) fn file(&self) -> Option<&File> {
        self.file.as_ref()
    }

    /// The state. The file is closed when the reader has opened the ring.
    pub(super) fn state(&mut self) -> State {
        let state = self.ring.state();
        if state != State::Offered {
            self.file = None;
        }
        state
    }

    /// How many bytes were ever written.
    pub(super) fn written(&self) -> u64 {
        self.tail
    }

    /// The reader's position; `None` if everything is read.
    pub(super) fn unread(&self) -> Option<u64> {
        let head = self.ring.head().load(Ordering::Acquire);
        (head != self.tail).then_some(head)
    }

    /// Writes a message in two parts. Returns whether there was room.
    pub(super) fn write(&mut self, header: &[u8], body: &[u8]) -> bool {
        let Some(skipped) = self.find_room(header.len() + body.len()) else {
            return false;
        };
        let at = start_of(self.tail + skipped) + header.len();
        self.ring.0.write(at, body);
        self.publish(skipped, header, body.len());
        true
    }

    /// Room in the ring for the body of a message, at most `body` bytes; `None` if there is not enough.
    /// [`commit`](Self::commit) completes the message. Without that, the next message takes the same place.
    pub(super) fn reserve(&mut self, header: usize, body: usize) -> Option<&[AtomicU8]> {
        let skipped = self.find_room(header + body)?;
        self.reserved = Some(skipped);
        let at = start_of(self.tail + skipped) + header;
        Some(self.ring.0.bytes(at, body))
    }

    /// Completes the message whose body is in the reserved room. It may be shorter than that.
    pub(super) fn commit(&mut self, header: &[u8], body: usize) {
        if let Some(skipped) = self.reserved.take() {
            self.publish(skipped, header, body);
        }
    }

    /// How many bytes to skip before a message of this length; `None` if there is no room.
    fn find_room(&mut self, length: usize) -> Option<u64> {
        let needed = occupied(length as u64);
        let skipped = self.bytes_to_skip(needed);
        self.has_room(skipped + needed).then_some(skipped)
    }

    /// Adds a message whose body is in its place.
    fn publish(&mut self, skipped: u64, header: &[u8], body: usize) {
        self.reserved = None;
        if skipped > 0 {
            self.write_length(WRAP_MARKER);
            self.tail += skipped;
        }
        let length = (header.len() + body) as u64;
        self.write_length(length);
        self.ring.0.write(start_of(self.tail), header);
        self.tail += occupied(length);
        self.ring.tail().store(self.tail, Ordering::Release);
    }

    /// How many bytes to skip to continue at the start, because a message does not fit before the end, or because
    /// the reader keeps up.
    fn bytes_to_skip(&mut self, needed: u64) -> u64 {
        let used = self.tail % CAPACITY;
        let to_the_end = CAPACITY - used;
        if needed > to_the_end
            || used >= CACHED_CAPACITY
                && self.is_read_up_to(MAX_BACKLOG)
                && self.has_room(to_the_end + needed)
        {
            to_the_end
        } else {
            0
        }
    }

    /// Whether at most this many bytes are unread.
    fn is_read_up_to(&mut self, backlog: u64) -> bool {
        if self.tail - self.head <= backlog {
            return true;
        }
        self.update_head() && self.tail - self.head <= backlog
    }

    fn has_room(&mut self, needed: u64) -> bool {
        if self.tail + needed - self.head <= CAPACITY {
            return true;
        }
        self.update_head() && self.tail + needed - self.head <= CAPACITY
    }

    /// Reads the reader's position. One beyond the writer's is invalid: nothing more is written then, and this
    /// returns false.
    fn update_head(&mut self) -> bool {
        let head = self.ring.head().load(Ordering::Acquire);
        if head > self.tail || head < self.head {
            self.ring.set_state(State::Closed);
            return false;
        }
        self.head = head;
        true
    }

    fn write_length(&self, length: u64) {
        let word = self.ring.0.word(offset_of(self.tail));
        word.store(length, Ordering::Relaxed);
    }

    /// Whether the reader sleeps and must be woken. True once per sleep.
    pub(super) fn reader_sleeps(&self) -> bool {
        // The fence orders the tail before the flag, so that one side always sees the other's write.
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

/// The reading side of a ring.
#[derive(Debug)]
pub(super) struct Reader {
    ring: Ring,
    head: u64,
    /// The last known position of the writer.
    tail: u64,
    /// Whether the sleep flag is set.
    sleeps: bool,
}

impl Reader {
    /// Opens a ring that a writer has created.
    pub(super) fn open(file: &File) -> io::Result<Self> {
        Ok(Self::over(SharedMemory::open(file, LENGTH)?))
    }

    fn over(memory: SharedMemory) -> Self {
        let ring = Ring(memory);
        ring.open();
        Self {
            ring,
            head: 0,
            tail: 0,
            sleeps: false,
        }
    }

    /// Whether there is something to read.
    #[inline]
    pub(super) fn has_messages(&mut self) -> bool {
        if self.tail == self.head {
            self.tail = self.ring.tail().load(Ordering::Acquire);
        }
        self.tail != self.head
    }

    /// Whether the writer has closed it and everything is read.
    pub(super) fn is_over(&mut self) -> bool {
        self.ring.state() == State::Closed && !self.has_messages()
    }

    /// Whether nothing was ever read.
    pub(super) fn is_new(&self) -> bool {
        self.head == 0
    }

    /// Copies the next message into a buffer. Returns its length.
    pub(super) fn read(&mut self, buffer: &mut [u8]) -> Result<Option<usize>, InvalidRing> {
        let Some(length) = self.next_message(buffer.len())? else {
            return Ok(None);
        };
        let at = start_of(self.head);
        self.ring.0.read(at, &mut buffer[..length]);
        self.release(length);
        Ok(Some(length))
    }

    /// Passes the next message to `take` where it is. Its writer may change it meanwhile. Returns whether there was one.
    pub(super) fn read_in_place(
        &mut self,
        longest: usize,
        take: impl FnOnce(&[AtomicU8]),
    ) -> Result<bool, InvalidRing> {
        let Some(length) = self.next_message(longest)? else {
            return Ok(false);
        };
        take(self.ring.0.bytes(start_of(self.head), length));
        self.release(length);
        Ok(true)
    }

    /// Gives the room of a message that was read back to the writer.
    fn release(&mut self, length: usize) {
        self.head += occupied(length as u64);
        self.ring.head().store(self.head, Ordering::Release);
    }

    /// The length of the next message, which starts at `head`. One that is longer than `longest` is invalid.
    pub(super) fn next_message(&mut self, longest: usize) -> Result<Option<usize>, InvalidRing> {
        if !self.has_messages() {
            return Ok(None);
        }
        let mut length = self.next_length()?;
        if length == WRAP_MARKER {
            self.head += CAPACITY - self.head % CAPACITY;
            length = self.next_length()?;
        }
        // Before anything is computed with it: a second marker is the largest number.
        if length > longest as u64 {
            return Err(InvalidRing);
        }
        let to_the_end = CAPACITY - self.head % CAPACITY;
        let end = self.head.checked_add(occupied(length)).ok_or(InvalidRing)?;
        if occupied(length) > to_the_end || end > self.tail {
            return Err(InvalidRing);
        }
        Ok(Some(length as usize))
    }

    fn next_length(&self) -> Result<u64, InvalidRing> {
        let unread = self.tail.wrapping_sub(self.head);
        if unread == 0 || unread > CAPACITY {
            return Err(InvalidRing);
        }
        let length = self
            .ring
            .0
            .word(offset_of(self.head))
            .load(Ordering::Relaxed);
        match length {
            WRAP_MARKER => Ok(length),
            _ if length > CAPACITY => Err(InvalidRing),
            _ => Ok(length),
        }
    }

    /// Tells the writer to wake this reader. Returns whether there is already something to read.
    pub(super) fn prepare_sleep(&mut self) -> bool {
        self.sleeps = true;
        self.ring.asleep().store(1, Ordering::Relaxed);
        // As in `reader_sleeps`.
        fence(Ordering::SeqCst);
        self.has_messages()
    }

    /// The reader stays awake after all, so the next message need not wake it. A wake-up that is under way still counts.
    pub(super) fn stay_awake(&mut self) {
        if self.ring.asleep().swap(0, Ordering::AcqRel) != 0 {
            self.sleeps = false;
        }
    }

    /// Whether the reader may sleep: the next message wakes it, and none waits.
    pub(super) fn may_sleep(&mut self) -> bool {
        self.ring.asleep().load(Ordering::Relaxed) != 0 && !self.has_messages()
    }

    /// Whether the writer has woken this reader since it prepared to sleep; true once.
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

/// How many bytes of the ring a message takes, including its length.
const fn occupied(length: u64) -> u64 {
    (length.saturating_add(size_of::<u64>() as u64)).next_multiple_of(LINE)
}

/// The offset of the first byte of a message, behind its length.
const fn start_of(count: u64) -> usize {
    offset_of(count) + size_of::<u64>()
}

const fn offset_of(count: u64) -> usize {
    DATA_OFFSET + (count % CAPACITY) as usize
}

#[cfg(all(test, loom))]
mod model_checks;

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn pair() -> (Writer, Reader) {
        let mut writer = Writer::create().unwrap();
        assert_eq!(writer.state(), State::Offered);
        let reader = Reader::open(writer.file().unwrap()).unwrap();
        assert_eq!(writer.state(), State::Open);
        assert!(writer.file().is_none(), "a descriptor less");
        (writer, reader)
    }

    #[test]
    fn messages_arrive_complete_and_in_order_across_the_wrap() {
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
    fn a_message_is_built_and_read_in_the_ring_across_the_wrap() {
        let (mut writer, mut reader) = pair();
        for turn in 0..200_usize {
            let length = 1 + turn * 7919 % 60_000;
            let room = writer.reserve(2, 60_000).expect("it is empty");
            assert_eq!(room.len(), 60_000);
            let fill = |byte: &AtomicU8| byte.store(turn as u8, Ordering::Relaxed);
            room[..length].iter().for_each(fill);
            assert!(!reader.has_messages(), "it is not complete");
            writer.commit(b"ab", length);
            let mut read = Vec::new();
            let take = |message: &[AtomicU8]| {
                read.extend(message.iter().map(|byte| byte.load(Ordering::Relaxed)));
            };
            assert_eq!(reader.read_in_place(1 << 16, take), Ok(true));
            assert_eq!(
                read.split_at(2),
                (&b"ab"[..], &vec![turn as u8; length][..])
            );
        }
        assert_eq!(reader.read_in_place(1 << 16, |_| panic!()), Ok(false));
        assert_eq!(writer.unread(), None, "the room was given back");
    }

    #[test]
    fn room_that_was_reserved_and_not_used_is_used_by_the_next_message() {
        let (mut writer, mut reader) = pair();
        for _ in 0..1000 {
            assert!(writer.reserve(0, 60_000).is_some());
        }
        assert!(writer.write(b"the first", &[]));
        writer.commit(b"nothing was reserved", 0);
        let mut buffer = [0; 64];
        assert_eq!(reader.read(&mut buffer), Ok(Some(9)));
        assert_eq!(reader.read(&mut buffer), Ok(None));
    }

    #[test]
    fn a_full_ring_has_no_room_to_reserve() {
        let (mut writer, mut reader) = pair();
        while writer.write(&[7; 65_000], &[]) {}
        assert!(writer.reserve(0, 60_000).is_none());
        writer.commit(b"nothing was reserved", 0);
        let mut read = 0;
        while reader.read(&mut vec![0; 1 << 16]).unwrap().is_some() {
            read += 1;
        }
        assert_eq!(read, CAPACITY / occupied(65_000));
    }

    #[test]
    fn a_ring_that_is_full_to_its_last_byte_is_read() {
        let (mut writer, mut reader) = pair();
        let message = [7; (1 << 16) - 8];
        let mut written = 0_u64;
        while writer.write(&[], &message) {
            written += 1;
        }
        assert_eq!(written * (1 << 16), CAPACITY, "nothing is left");
        let mut buffer = vec![0; 1 << 16];
        for _ in 0..written {
            assert_eq!(reader.read(&mut buffer), Ok(Some(message.len())));
        }
        assert_eq!(reader.read(&mut buffer), Ok(None));
    }

    #[test]
    fn a_full_ring_accepts_nothing_until_a_message_is_read() {
        let (mut writer, mut reader) = pair();
        let message = [7; 65_000];
        let mut written = 0_u64;
        while writer.write(&[], &message) {
            written += 1;
        }
        assert_eq!(written, CAPACITY / occupied(message.len() as u64));
        let mut buffer = vec![0; 1 << 16];
        assert_eq!(reader.read(&mut buffer), Ok(Some(message.len())));
        // The first place is free, but the end of the ring lies before it.
        assert!(writer.write(&[], &message));
        assert!(!writer.write(&[], &message));
        let mut read = 0;
        while reader.read(&mut buffer).unwrap().is_some() {
            read += 1;
        }
        assert_eq!(read, written);
    }

    #[test]
    fn a_ring_that_is_read_promptly_uses_only_its_first_part() {
        let (mut writer, mut reader) = pair();
        let mut buffer = vec![0; 1 << 16];
        for _ in 0..1000 {
            assert!(writer.write(&[], &[7; 60_000]));
            reader.read(&mut buffer).unwrap().unwrap();
            assert!(reader.head % CAPACITY < CACHED_CAPACITY + (1 << 16));
        }
    }

    #[test]
    fn a_reader_that_is_a_little_behind_keeps_the_ring_short() {
        let (mut writer, mut reader) = pair();
        let mut buffer = vec![0; 1 << 16];
        let message = |turn: u32| [&turn.to_ne_bytes()[..], &[7; 60_000]].concat();
        assert!(writer.write(&message(0), &[]));
        for turn in 1..1000 {
            assert!(writer.write(&message(turn), &[]));
            let length = reader.read(&mut buffer).unwrap().unwrap();
            assert!(buffer[..length] == message(turn - 1));
            assert!(reader.head % CAPACITY < CACHED_CAPACITY + (2 << 16));
        }
    }

    #[test]
    fn a_sleeping_reader_is_woken_once() {
        let (mut writer, mut reader) = pair();
        assert!(!writer.reader_sleeps() && !reader.was_woken());
        assert!(!reader.prepare_sleep());
        assert!(writer.write(b"wake up", &[]));
        assert!(writer.reader_sleeps() && !writer.reader_sleeps());
        assert!(reader.was_woken() && !reader.was_woken());
        assert!(reader.prepare_sleep(), "there is a message");
    }

    #[test]
    fn a_reader_that_stays_awake_is_not_woken() {
        let (mut writer, mut reader) = pair();
        assert!(!reader.prepare_sleep());
        reader.stay_awake();
        assert!(writer.write(b"no wake-up", &[]) && !writer.reader_sleeps());
        assert!(!reader.was_woken());
        assert_eq!(reader.read(&mut [0; 64]), Ok(Some(10)));
        assert!(!reader.prepare_sleep());
        assert!(writer.reader_sleeps(), "it was on its way");
        reader.stay_awake();
        assert!(reader.was_woken());
    }

    #[test]
    fn a_reader_may_sleep_if_nothing_waits_and_the_next_message_wakes_it() {
        let (mut writer, mut reader) = pair();
        assert!(!reader.may_sleep(), "the writer would not wake it");
        assert!(!reader.prepare_sleep() && reader.may_sleep());
        assert!(writer.write(b"wake up", &[]));
        assert!(!reader.may_sleep(), "there is a message");
        assert_eq!(reader.read(&mut [0; 64]), Ok(Some(7)));
        assert!(reader.may_sleep(), "the writer has not woken it yet");
        assert!(writer.reader_sleeps() && !reader.may_sleep());
    }

    #[test]
    fn dropping_either_side_closes_the_ring() {
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
    fn a_ring_that_its_writer_has_closed_is_not_opened() {
        let writer = Writer::create().unwrap();
        let file = writer.file().unwrap().try_clone().unwrap();
        drop(writer);
        assert!(Reader::open(&file).unwrap().is_over());
    }

    #[test]
    fn invalid_positions_and_lengths_are_detected() {
        let read_with = |offset: usize, value: u64| {
            let (mut writer, mut reader) = pair();
            assert!(writer.write(b"truth", &[]));
            writer.ring.0.word(offset).store(value, Ordering::Release);
            reader.read(&mut [0; 1024])
        };
        assert_eq!(read_with(TAIL, 64), Ok(Some(5)));
        for tail in [1, 63, CAPACITY + 64, u64::MAX] {
            assert_eq!(read_with(TAIL, tail), Err(InvalidRing), "{tail}");
        }
        for length in [57, 1025, CAPACITY, CAPACITY + 1, u64::MAX - 1, WRAP_MARKER] {
            assert_eq!(read_with(DATA_OFFSET, length), Err(InvalidRing), "{length}");
        }
        let (mut writer, _reader) = pair();
        writer.ring.head().store(1 << 40, Ordering::Release);
        while writer.write(&[0; 60_000], &[]) {}
        assert_eq!(writer.state(), State::Closed);
    }

    #[test]
    fn a_second_marker_at_the_start_of_the_ring_is_invalid() {
        const NEAR_THE_END: u64 = CAPACITY - LINE;
        let (mut writer, mut reader) = pair();
        (reader.head, reader.tail) = (NEAR_THE_END, NEAR_THE_END);
        for at in [NEAR_THE_END, CAPACITY] {
            writer.tail = at;
            writer.write_length(WRAP_MARKER);
        }
        (writer.ring.tail()).store(CAPACITY + LINE, Ordering::Release);
        assert_eq!(reader.read(&mut [0; 1024]), Err(InvalidRing));
    }

    #[test]
    fn a_message_across_the_end_of_the_ring_is_invalid() {
        const NEAR_THE_END: u64 = CAPACITY - LINE;
        let (mut writer, mut reader) = pair();
        (reader.head, reader.tail, writer.tail) = (NEAR_THE_END, NEAR_THE_END, NEAR_THE_END);
        writer.write_length(2 * LINE);
        writer
            .ring
            .tail()
            .store(CAPACITY + 4 * LINE, Ordering::Release);
        assert_eq!(reader.read(&mut [0; 1024]), Err(InvalidRing));
    }
}
