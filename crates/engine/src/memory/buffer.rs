//! Buffers that several threads and the device may read and write at the same time.
//!
//! Every access is a relaxed atomic access to one 8-byte word, in the copies here as well as in
//! remote atomics. A partial write of a word is a compare-and-swap that keeps the other bytes. All
//! accesses have the same size, because the memory model of Rust, like that of C++, does not define
//! racing atomic accesses of different sizes. So two concurrent copies of the same bytes are not a
//! data race: each word has the value of one of them.
//!
//! Compilers do not vectorise atomic accesses. Long runs of words are therefore copied by a few
//! instructions of inline assembly ([`blocks`]), at about the speed of `memcpy`.

use std::mem::MaybeUninit;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

const WORD: usize = size_of::<u64>();

/// Bytes that several threads and the device may read and write. The safe kind of memory to
/// register.
///
/// All access is by copy, because a remote peer can write at any time. Concurrent copies by two
/// threads are allowed: each aligned 8-byte word then has the value of one of them. To see the
/// words of one copy together or in order, the threads must synchronise by other means, such as a
/// completion or a lock.
pub struct Buffer {
    words: Box<[AtomicU64]>,
    length: usize,
}

impl Buffer {
    /// A buffer of `length` zero bytes.
    #[must_use]
    pub fn zeroed(length: usize) -> Arc<Self> {
        let words = (0..length.div_ceil(WORD)).map(|_| AtomicU64::new(0));
        let words = words.collect();
        Arc::new(Self { words, length })
    }

    /// A buffer of `length` zero bytes, or `None` if there is not enough memory.
    #[must_use]
    pub fn try_zeroed(length: usize) -> Option<Arc<Self>> {
        let count = length.div_ceil(WORD);
        let mut words = Vec::new();
        words.try_reserve_exact(count).ok()?;
        words.resize_with(count, || AtomicU64::new(0));
        let words = words.into_boxed_slice();
        Some(Arc::new(Self { words, length }))
    }

    /// A buffer with a copy of `bytes`.
    #[must_use]
    pub fn copy_of(bytes: &[u8]) -> Arc<Self> {
        let buffer = Self::zeroed(bytes.len());
        buffer.write(0, bytes);
        buffer
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
        self.words.as_ptr() as u64
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
        self.check(offset, from.len());
        let (head, rest) = from.split_at(head_length(offset, from.len()));
        let mut words = &self.words[offset / WORD..];
        if let ([first, behind @ ..], [_, ..]) = (words, head) {
            merge(first, offset % WORD, head);
            words = behind;
        }
        let (body, tail) = rest.as_chunks::<WORD>();
        let (whole, last) = words.split_at(body.len());
        words::store(whole, body);
        if let ([last, ..], [_, ..]) = (last, tail) {
            merge(last, 0, tail);
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

    /// The word at `offset`, or `None` if `offset` is not a multiple of 8 or outside.
    #[inline]
    pub(super) fn word(&self, offset: usize) -> Option<&AtomicU64> {
        let whole = offset.is_multiple_of(WORD) && offset + WORD <= self.length;
        self.words.get(offset / WORD).filter(|_| whole)
    }

    /// Copies bytes out of the buffer and initialises all of `into`.
    #[inline]
    fn load(&self, offset: usize, into: &mut [MaybeUninit<u8>]) {
        self.check(offset, into.len());
        let (head, rest) = into.split_at_mut(head_length(offset, into.len()));
        let mut words = &self.words[offset / WORD..];
        if let ([first, behind @ ..], [_, ..]) = (words, &*head) {
            extract(first, offset % WORD, head);
            words = behind;
        }
        let (body, tail) = rest.as_chunks_mut::<WORD>();
        let (whole, last) = words.split_at(body.len());
        words::load(whole, body);
        if let ([last, ..], [_, ..]) = (last, &*tail) {
            extract(last, 0, tail);
        }
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
}

/// How many of `length` bytes at `offset` precede the first word that is written as a whole.
#[inline]
fn head_length(offset: usize, length: usize) -> usize {
    (offset.next_multiple_of(WORD) - offset).min(length)
}

/// Replaces the bytes of a word, starting at byte `skip`, and keeps the others, in one atomic step.
#[inline]
fn merge(word: &AtomicU64, skip: usize, bytes: &[u8]) {
    let (mut part, mut mask) = ([0; WORD], [0; WORD]);
    part[skip..skip + bytes.len()].copy_from_slice(bytes);
    mask[skip..skip + bytes.len()].fill(0xff);
    let (part, mask) = (u64::from_ne_bytes(part), u64::from_ne_bytes(mask));
    let mut old = word.load(Ordering::Relaxed);
    while let Err(found) = word.compare_exchange_weak(
        old,
        old & !mask | part,
        Ordering::Relaxed,
        Ordering::Relaxed,
    ) {
        old = found;
    }
}

/// Copies bytes of a word, starting at byte `skip`.
#[inline]
fn extract(word: &AtomicU64, skip: usize, into: &mut [MaybeUninit<u8>]) {
    let bytes = word.load(Ordering::Relaxed).to_ne_bytes();
    for (to, from) in into.iter_mut().zip(&bytes[skip..]) {
        to.write(*from);
    }
}

/// Copies of whole words, one by one.
mod words {
    use std::mem::MaybeUninit;
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::WORD;
    use super::blocks;

    #[inline]
    pub(super) fn store(to: &[AtomicU64], from: &[[u8; WORD]]) {
        let done = blocks::store(to, from);
        for (word, bytes) in to[done..].iter().zip(&from[done..]) {
            word.store(u64::from_ne_bytes(*bytes), Ordering::Relaxed);
        }
    }

    #[inline]
    pub(super) fn load(from: &[AtomicU64], to: &mut [[MaybeUninit<u8>; WORD]]) {
        let done = blocks::load(from, to);
        for (word, bytes) in from[done..].iter().zip(&mut to[done..]) {
            let value = word.load(Ordering::Relaxed).to_ne_bytes();
            *bytes = value.map(MaybeUninit::new);
        }
    }
}

/// Copies of blocks of eight words. Each function returns how many words it copied.
///
/// To the compiler these instructions are a loop of relaxed atomic accesses to words. The halves of
/// their 16-byte accesses are single-copy atomic, because they are aligned to 8 bytes: AArch64
/// guarantees that, and x86-64 splits an access only at cache lines or quadwords.
#[cfg(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(miri)))]
mod blocks {
    use std::arch::asm;
    use std::mem::MaybeUninit;
    use std::sync::atomic::AtomicU64;

    use super::WORD;

    const BLOCK: usize = 8;

    #[inline]
    pub(super) fn store(to: &[AtomicU64], from: &[[u8; WORD]]) -> usize {
        let count = to.len().min(from.len()) / BLOCK;
        // SAFETY: both slices have at least `count` blocks. `to` may be written through a shared
        // reference, because it consists of atomics; `from` can't overlap what others may write.
        unsafe { copy(to.as_ptr() as *mut u8, from.as_ptr().cast(), count) };
        count * BLOCK
    }

    #[inline]
    pub(super) fn load(from: &[AtomicU64], to: &mut [[MaybeUninit<u8>; WORD]]) -> usize {
        let count = to.len().min(from.len()) / BLOCK;
        // SAFETY: both slices have at least `count` blocks, and `to` is an exclusive reference.
        unsafe { copy(to.as_mut_ptr().cast(), from.as_ptr().cast(), count) };
        count * BLOCK
    }

    /// Copies `count` blocks of 64 bytes, upwards.
    ///
    /// # Safety
    /// Both pointers must have `count` blocks, and no other thread may access one of the two.
    #[inline]
    unsafe fn copy(to: *mut u8, from: *const u8, count: usize) {
        if count == 0 {
            return;
        }
        #[cfg(target_arch = "x86_64")]
        // SAFETY: accesses only the `count` blocks of the caller's contract, and no stack.
        unsafe {
            asm!(
                "2:",
                "movups {a}, [{from}]",
                "movups {b}, [{from} + 16]",
                "movups {c}, [{from} + 32]",
                "movups {d}, [{from} + 48]",
                "movups [{to}], {a}",
                "movups [{to} + 16], {b}",
                "movups [{to} + 32], {c}",
                "movups [{to} + 48], {d}",
                "add {from}, 64",
                "add {to}, 64",
                "dec {count}",
                "jnz 2b",
                to = inout(reg) to => _,
                from = inout(reg) from => _,
                count = inout(reg) count => _,
                a = out(xmm_reg) _, b = out(xmm_reg) _, c = out(xmm_reg) _, d = out(xmm_reg) _,
                options(nostack),
            );
        }
        #[cfg(target_arch = "aarch64")]
        // SAFETY: as above.
        unsafe {
            asm!(
                "2:",
                "ldp {a:q}, {b:q}, [{from}]",
                "ldp {c:q}, {d:q}, [{from}, #32]",
                "stp {a:q}, {b:q}, [{to}]",
                "stp {c:q}, {d:q}, [{to}, #32]",
                "add {from}, {from}, #64",
                "add {to}, {to}, #64",
                "subs {count}, {count}, #1",
                "b.ne 2b",
                to = inout(reg) to => _,
                from = inout(reg) from => _,
                count = inout(reg) count => _,
                a = out(vreg) _, b = out(vreg) _, c = out(vreg) _, d = out(vreg) _,
                options(nostack),
            );
        }
    }
}

/// Other architectures, and Miri, which must see every access.
#[cfg(not(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(miri))))]
mod blocks {
    use std::mem::MaybeUninit;
    use std::sync::atomic::AtomicU64;

    use super::WORD;

    pub(super) fn store(_: &[AtomicU64], _: &[[u8; WORD]]) -> usize {
        0
    }

    pub(super) fn load(_: &[AtomicU64], _: &mut [[MaybeUninit<u8>; WORD]]) -> usize {
        0
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

    #[test]
    fn word_must_be_aligned_and_inside() {
        let buffer = Buffer::zeroed(20);
        assert!(buffer.word(8).is_some());
        assert!(buffer.word(4).is_none());
        assert!(buffer.word(16).is_none());
        assert!(buffer.word(24).is_none());
    }
}
