//! Buffers that several threads and the device may read and write at the same time.
//!
//! Every byte is always accessed with the same size, because the memory model of Rust, like that of
//! C++, does not define racing atomic accesses of different sizes. A buffer consists of aligned 8-byte
//! words and, if it does not begin or end at such an address, of up to seven single bytes before
//! and after them. Every access is a relaxed atomic access to a word or to one of these bytes, in
//! the copies here as well as in remote atomics. A partial write of a word is a compare-and-swap
//! that keeps the other bytes. So two concurrent copies of the same bytes are not a data race: each
//! word has the value of one of them.
//!
//! Compilers do not vectorise atomic accesses. Runs of words are therefore copied by a few
//! instructions of inline assembly ([`wire::shared_bytes`]), at about the speed of `memcpy`.

mod copy;

pub(in crate::memory) use copy::{Source, Target};

use std::any::Any;
use std::fmt;
use std::mem::MaybeUninit;
use std::ptr::{self, NonNull};
use std::slice;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering, fence};

const WORD: usize = size_of::<u64>();

/// Memory that can be registered by value and taken back: `Vec<u8>`, `Box<[u8]>`, or a type of the
/// application, such as a memory map.
///
/// # Safety
/// `memory` must return the same bytes every time, initialised and valid for reads and writes. They must be outside of the
/// value itself, and stay valid and in place until the value is dropped, wherever the value is moved. Nobody else may access
/// them, except by relaxed atomic accesses of the sizes that [`Buffer`] describes.
pub unsafe trait OwnedMemory: Send + Sync + 'static {
    /// The memory. It is a pointer, because a reference would claim that nobody else accesses the bytes.
    fn memory(&mut self) -> NonNull<[u8]>;
}

// SAFETY: a vector that nobody changes owns its heap memory until it is dropped. Its pointer is valid for all of its length.
unsafe impl OwnedMemory for Vec<u8> {
    fn memory(&mut self) -> NonNull<[u8]> {
        NonNull::from(self.as_mut_slice())
    }
}

// SAFETY: as for a vector.
unsafe impl OwnedMemory for Box<[u8]> {
    fn memory(&mut self) -> NonNull<[u8]> {
        NonNull::from(&mut **self)
    }
}

/// Memory that something else owns, by its address.
#[derive(Debug)]
pub struct RawMemory {
    start: NonNull<u8>,
    length: usize,
}

impl RawMemory {
    /// Memory at an address.
    ///
    /// # Safety
    /// The bytes must be initialised and valid for reads and writes until the value is dropped, or
    /// the region that it is registered for. Meanwhile nobody else may access them, except by
    /// relaxed atomic accesses of the sizes that [`Buffer`] describes.
    #[must_use]
    pub unsafe fn new(start: NonNull<u8>, length: usize) -> Self {
        Self { start, length }
    }
}

// SAFETY: it is an address range, and the contract of `new` covers every thread.
unsafe impl Send for RawMemory {}

// SAFETY: as for `Send`.
unsafe impl Sync for RawMemory {}

// SAFETY: the contract of `new`.
unsafe impl OwnedMemory for RawMemory {
    fn memory(&mut self) -> NonNull<[u8]> {
        NonNull::slice_from_raw_parts(self.start, self.length)
    }
}

/// Bytes that several threads and the device may read and write. The safe kind of memory to
/// register.
///
/// All access is by copy, because a remote peer can write at any time. Concurrent copies by two
/// threads are allowed: each aligned 8-byte word then has the value of one of them. Bytes that were
/// written by an earlier copy are visible to any thread that sees a word of a later one. To see the words of
/// one copy together, the threads must synchronise by other means, such as a completion or a lock.
pub struct Buffer {
    start: NonNull<u8>,
    length: usize,
    /// How many bytes precede the first word.
    head: usize,
    /// Keeps the bytes alive. It is not used while this exists.
    owner: Owner,
}

/// The owner of the bytes of a buffer.
enum Owner {
    /// The buffer itself.
    Buffer { _words: Vec<AtomicU64> },
    /// The caller, who gets them back.
    Caller(Box<dyn Any + Send + Sync>),
}

// SAFETY: the owner is `Send`, and its bytes are only accessed by atomics.
unsafe impl Send for Buffer {}

// SAFETY: as for `Send`.
unsafe impl Sync for Buffer {}

impl Buffer {
    /// A buffer of `length` zero bytes.
    #[must_use]
    pub fn zeroed(length: usize) -> Arc<Self> {
        let words = (0..length.div_ceil(WORD)).map(|_| AtomicU64::new(0));
        Arc::new(Self::of_words(words.collect(), length))
    }

    /// A buffer of `length` zero bytes, or `None` if there is not enough memory.
    #[must_use]
    pub fn try_zeroed(length: usize) -> Option<Arc<Self>> {
        let count = length.div_ceil(WORD);
        let mut words = Vec::new();
        words.try_reserve_exact(count).ok()?;
        words.resize_with(count, || AtomicU64::new(0));
        Some(Arc::new(Self::of_words(words, length)))
    }

    fn of_words(mut words: Vec<AtomicU64>, length: usize) -> Self {
        // A vector that is moved does not claim its bytes for itself, as a box does.
        let start = NonNull::from(words.as_mut_slice()).cast();
        Self::new(start, length, Owner::Buffer { _words: words })
    }

    /// A buffer with a copy of `bytes`.
    #[must_use]
    pub fn copy_of(bytes: &[u8]) -> Arc<Self> {
        let buffer = Self::zeroed(bytes.len());
        buffer.write(0, bytes);
        buffer
    }

    /// A buffer in memory of the caller. [`into_owner`](Self::into_owner) gives it back.
    #[must_use]
    pub fn owning<M: OwnedMemory>(memory: M) -> Arc<Self> {
        // Boxed, the value stays where it is.
        let mut owner = Box::new(memory);
        let memory = owner.memory();
        Arc::new(Self::new(memory.cast(), memory.len(), Owner::Caller(owner)))
    }

    fn new(start: NonNull<u8>, length: usize, owner: Owner) -> Self {
        Self {
            start,
            length,
            head: start.align_offset(WORD).min(length),
            owner,
        }
    }

    /// The memory of the caller, or `None` if it is of another type.
    #[must_use]
    pub fn into_owner<M: OwnedMemory>(self) -> Option<M> {
        match self.owner {
            Owner::Buffer { .. } => None,
            Owner::Caller(owner) => owner.downcast().ok().map(|owner| *owner),
        }
    }

    /// All its bytes, for a thread that has the only reference to the buffer; `None` for memory of a caller, which others may
    /// access.
    #[must_use]
    pub fn as_mut_slice(&mut self) -> Option<&mut [u8]> {
        if let Owner::Caller(_) = self.owner {
            return None;
        }
        // SAFETY: the words are `length` initialised bytes at `start`. The exclusive reference to the buffer is the
        // only way to them, because nobody else owns them.
        Some(unsafe { slice::from_raw_parts_mut(self.start.as_ptr(), self.length) })
    }

    /// Its size in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.length
    }

    /// Whether its length is zero.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// The address of its first byte, as used in work requests.
    #[must_use]
    pub fn address(&self) -> u64 {
        self.start.as_ptr() as u64
    }

    /// Copies bytes out of it.
    ///
    /// # Panics
    /// If the range exceeds the buffer.
    pub fn read(&self, offset: usize, into: &mut [u8]) {
        // SAFETY: the same bytes, and `load` leaves all of them initialised.
        let into = unsafe { &mut *(ptr::from_mut(into) as *mut [MaybeUninit<u8>]) };
        self.load(offset, into);
    }

    /// Copies bytes into it.
    ///
    /// # Panics
    /// If the range exceeds the buffer.
    #[inline]
    pub fn write(&self, offset: usize, from: &[u8]) {
        self.store(offset, from);
    }

    /// Copies bytes into it, also from memory that another process may change.
    #[inline]
    pub(super) fn store(&self, offset: usize, from: impl Source) {
        self.check(offset, from.length());
        // A thread that reads one of these bytes also sees what was written before them.
        fence(Ordering::Release);
        if let Some(words) = self.whole_words(offset, from.length()) {
            copy::store_words(words, from);
        } else {
            self.store_parts(offset, from);
        }
    }

    /// Copies bytes that are not whole words.
    fn store_parts(&self, offset: usize, from: impl Source) {
        let (head, rest) = from.split_at(self.in_head(offset, from.length()));
        if head.length() > 0 {
            copy::store_bytes(&self.head()[offset..], head);
        }
        let offset = offset + head.length();
        let (body, tail) = rest.split_at(self.in_words(offset, rest.length()));
        if body.length() > 0 {
            copy::store(self.words(), offset - self.head, body);
        }
        if tail.length() > 0 {
            let at = offset + body.length() - self.tail_start();
            copy::store_bytes(&self.tail()[at..], tail);
        }
    }

    /// A copy of all its bytes.
    #[must_use]
    pub fn to_vec(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.append_to(&mut bytes, 0, self.length);
        bytes
    }

    /// Appends `length` bytes, starting at `offset`, to `out`.
    #[inline]
    pub(super) fn append_to(&self, out: &mut Vec<u8>, offset: usize, length: usize) {
        out.reserve(length);
        let end = out.len();
        self.load(offset, &mut out.spare_capacity_mut()[..length]);
        // SAFETY: `reserve` made room for `length` bytes after `end`, and `load` initialised them.
        unsafe { out.set_len(end + length) };
    }

    /// The word at `offset`, or `None` if its address is not a multiple of 8 or it is outside.
    #[inline]
    pub(super) fn word(&self, offset: usize) -> Option<&AtomicU64> {
        let offset = offset.checked_sub(self.head)?;
        let words = self.words();
        words
            .get(offset / WORD)
            .filter(|_| offset.is_multiple_of(WORD))
    }

    /// Copies bytes out of the buffer and initialises all of `into`.
    #[inline]
    pub(super) fn load(&self, offset: usize, into: impl Target) {
        self.check(offset, into.length());
        if let Some(words) = self.whole_words(offset, into.length()) {
            copy::load_words(words, into);
        } else {
            self.load_parts(offset, into);
        }
        // What was written before a byte that is seen here is seen from now on.
        fence(Ordering::Acquire);
    }

    /// Copies bytes that are not whole words.
    fn load_parts(&self, offset: usize, into: impl Target) {
        let head = self.in_head(offset, into.length());
        let (head, rest) = into.split_at(head);
        let offset_of_rest = offset + head.length();
        if head.length() > 0 {
            copy::load_bytes(&self.head()[offset..], head);
        }
        let body = self.in_words(offset_of_rest, rest.length());
        let (body, tail) = rest.split_at(body);
        let offset_of_tail = offset_of_rest + body.length();
        if body.length() > 0 {
            copy::load(self.words(), offset_of_rest - self.head, body);
        }
        if tail.length() > 0 {
            copy::load_bytes(&self.tail()[offset_of_tail - self.tail_start()..], tail);
        }
    }

    /// The words of `length` bytes at `offset`, if they are whole words.
    #[inline(always)]
    pub(super) fn whole_words(&self, offset: usize, length: usize) -> Option<&[AtomicU64]> {
        let offset = offset.checked_sub(self.head)?;
        if !(offset | length).is_multiple_of(WORD) {
            return None;
        }
        let first = offset / WORD;
        self.words().get(first..first + length / WORD)
    }

    #[inline]
    fn check(&self, offset: usize, length: usize) {
        let end = offset.checked_add(length);
        assert!(
            end.is_some_and(|end| end <= self.length),
            "{length} bytes at {offset} exceed a buffer of {}",
            self.length
        );
    }

    /// How many of `length` bytes at `offset` precede the words.
    #[inline]
    fn in_head(&self, offset: usize, length: usize) -> usize {
        self.head.saturating_sub(offset).min(length)
    }

    /// How many of `length` bytes at `offset`, which is not before the words, are in the words.
    #[inline]
    fn in_words(&self, offset: usize, length: usize) -> usize {
        self.tail_start().saturating_sub(offset).min(length)
    }

    /// Where the words end.
    #[inline]
    fn tail_start(&self) -> usize {
        self.head + (self.length - self.head) / WORD * WORD
    }

    #[inline]
    fn words(&self) -> &[AtomicU64] {
        let count = (self.length - self.head) / WORD;
        // SAFETY: `head` bytes after the start the address is aligned, or there are no words and the
        // pointer is replaced. The owner keeps the bytes alive, and all accesses to them are atomic
        // and of this size.
        unsafe { self.part(self.head, count) }
    }

    #[inline]
    fn head(&self) -> &[AtomicU8] {
        // SAFETY: as for the words; these bytes are in none.
        unsafe { self.part(0, self.head) }
    }

    #[inline]
    fn tail(&self) -> &[AtomicU8] {
        // SAFETY: as for the words; these bytes are in none.
        unsafe { self.part(self.tail_start(), self.length - self.tail_start()) }
    }

    /// A part of the buffer as atomics.
    ///
    /// # Safety
    /// `count` atomics at `offset` must be inside of the buffer, aligned, and always be accessed as
    /// this type.
    #[inline]
    unsafe fn part<T>(&self, offset: usize, count: usize) -> &[T] {
        if count == 0 {
            return &[];
        }
        let start = self.start.as_ptr().wrapping_add(offset);
        // SAFETY: the caller's contract. Atomics may be changed behind a shared reference.
        unsafe { slice::from_raw_parts(start.cast(), count) }
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Buffer")
            .field("address", &self.start)
            .field("length", &self.length)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffer_returns_what_was_written() {
        let buffer = Buffer::zeroed(13);
        buffer.write(3, b"rocinante!");
        assert_eq!(buffer.to_vec(), b"\0\0\0rocinante!");
    }

    #[test]
    #[should_panic = "4 bytes at 10 exceed a buffer of 13"]
    fn write_beyond_the_length_panics_even_inside_the_last_word() {
        Buffer::zeroed(13).write(10, b"four");
    }

    #[test]
    #[should_panic = "exceed a buffer"]
    fn read_beyond_the_end_panics() {
        Buffer::zeroed(13).read(10, &mut [0; 4]);
    }

    #[test]
    #[should_panic = "exceed a buffer"]
    fn write_at_an_overflowing_offset_panics() {
        Buffer::zeroed(13).write(usize::MAX, b"no");
    }

    #[test]
    fn copy_changes_exactly_its_range_for_every_offset_and_length() {
        const SIZE: usize = if cfg!(miri) { 40 } else { 210 };
        let bytes: Vec<u8> = (0..SIZE).map(|byte| byte as u8 | 1).collect();
        for offset in 0..18 {
            for length in 0..SIZE - offset {
                let buffer = Buffer::zeroed(SIZE);
                buffer.write(offset, &bytes[..length]);
                let mut expected = vec![0; SIZE];
                expected[offset..offset + length].copy_from_slice(&bytes[..length]);
                assert_eq!(buffer.to_vec(), expected, "{length} bytes at {offset}");
                let mut read = vec![0; length];
                buffer.read(offset, &mut read);
                assert_eq!(read, bytes[..length], "{length} bytes at {offset}");
            }
        }
    }

    /// Memory that begins at any address.
    struct Shifted(Vec<u8>, usize);

    // SAFETY: a part of a vector that nobody changes.
    unsafe impl OwnedMemory for Shifted {
        fn memory(&mut self) -> NonNull<[u8]> {
            NonNull::from(&mut self.0[self.1..])
        }
    }

    #[test]
    fn owned_memory_is_copied_at_every_alignment_offset_and_length() {
        const SIZE: usize = 41;
        for shift in 0..WORD {
            for offset in 0..SIZE {
                for length in 0..=SIZE - offset {
                    let buffer = Buffer::owning(Shifted(vec![7; shift + SIZE], shift));
                    let bytes: Vec<u8> = (100..).take(length).collect();
                    buffer.write(offset, &bytes);
                    let mut expected = vec![7; SIZE];
                    expected[offset..offset + length].copy_from_slice(&bytes);
                    assert_eq!(buffer.to_vec(), expected, "{length} bytes at {offset}");
                    let mut read = vec![0; length];
                    buffer.read(offset, &mut read);
                    assert_eq!(read, bytes, "{length} bytes at {offset}");
                }
            }
        }
    }

    #[test]
    fn words_are_where_their_addresses_are_aligned() {
        for shift in 0..WORD {
            let buffer = Buffer::owning(Shifted(vec![0; shift + 40], shift));
            for offset in 0..50 {
                let aligned = (buffer.address() as usize + offset).is_multiple_of(WORD);
                let word = buffer.word(offset);
                assert_eq!(word.is_some(), aligned && offset + WORD <= 40, "{offset}");
            }
        }
    }

    #[test]
    fn owner_gets_its_memory_back_with_what_was_written() {
        let mut memory = b"before".to_vec();
        memory.reserve_exact(100);
        let (start, capacity) = (memory.as_ptr(), memory.capacity());
        let buffer = Buffer::owning(memory);
        buffer.write(2, b"hind");
        let buffer = Arc::into_inner(buffer).expect("nobody else has it");
        let memory: Vec<u8> = buffer.into_owner().expect("it is a vector");
        assert_eq!(memory, b"behind");
        assert_eq!((memory.as_ptr(), memory.capacity()), (start, capacity));
    }

    #[test]
    fn owner_of_another_type_gets_nothing() {
        let buffer = Arc::into_inner(Buffer::zeroed(8)).expect("nobody else has it");
        assert!(buffer.into_owner::<Vec<u8>>().is_none());
    }

    #[test]
    fn exclusive_buffer_is_a_slice() {
        let mut buffer = Buffer::copy_of(b"rocinante");
        let bytes = Arc::get_mut(&mut buffer).expect("nobody else has it");
        let bytes = bytes.as_mut_slice().expect("memory of its own");
        bytes[..2].copy_from_slice(b"RO");
        assert_eq!(buffer.to_vec(), b"ROcinante");
    }

    #[test]
    fn empty_memory_has_no_words() {
        let buffer = Buffer::owning(Vec::new());
        assert!(buffer.is_empty() && buffer.word(0).is_none());
        buffer.write(0, b"");
        assert_eq!(buffer.to_vec(), b"");
    }

    #[test]
    fn raw_memory_is_used_in_place() {
        let mut memory = [0; 20];
        let start = NonNull::from(&mut memory).cast();
        // SAFETY: the array outlives the buffer and is not used before that is dropped.
        let raw = unsafe { RawMemory::new(start, 20) };
        Buffer::owning(raw).write(10, b"in place");
        assert_eq!(&memory[10..18], b"in place");
    }

    /// Miri reports a reference to the bytes here: the words borrow them all the time.
    #[test]
    fn raw_memory_is_shared_with_atomic_accesses_of_others() {
        let words: Box<[AtomicU64]> = (0..4).map(|_| AtomicU64::new(7)).collect();
        let start = NonNull::from(&*words).cast();
        // SAFETY: the words outlive the buffer, and all accesses to them here are relaxed and of whole words.
        let raw = unsafe { RawMemory::new(start, 32) };
        let mut buffer = Buffer::owning(raw);
        words[1].store(8, Ordering::Relaxed);
        buffer.write(16, &9_u64.to_ne_bytes());
        let found: Vec<_> = (words.iter())
            .map(|word| word.load(Ordering::Relaxed))
            .collect();
        assert_eq!(found, [7, 8, 9, 7]);
        assert_eq!(buffer.to_vec()[8..16], 8_u64.to_ne_bytes());
        let exclusive = Arc::get_mut(&mut buffer).expect("nobody else has it");
        assert!(exclusive.as_mut_slice().is_none());
        let exclusive = Arc::into_inner(buffer).expect("nobody else has it");
        assert!(exclusive.into_owner::<RawMemory>().is_some());
        assert_eq!(words[0].load(Ordering::Relaxed), 7);
    }

    #[test]
    fn word_must_be_aligned_and_inside() {
        let buffer = Buffer::zeroed(20);
        assert!(buffer.word(8).is_some());
        assert!(buffer.word(4).is_none());
        assert!(buffer.word(16).is_none());
        assert!(buffer.word(24).is_none());
    }
}
