//! Copies between ordinary bytes and words that others may access at the same time.

use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use super::WORD;

/// Bytes to copy from.
pub(in crate::memory) trait Source: Copy {
    fn length(self) -> usize;
    fn split_at(self, at: usize) -> (Self, Self);
    /// A copy of at most eight bytes. The others are zero.
    fn short(self) -> [u8; WORD];
    fn start(self) -> *const u8;
}

/// Bytes to copy to. All of them are written.
pub(in crate::memory) trait Target: Sized {
    fn length(&self) -> usize;
    fn split_at(self, at: usize) -> (Self, Self);
    /// Copies few bytes.
    fn put(self, bytes: &[u8]);
    fn start(&mut self) -> *mut u8;
}

pub(super) use words::{load as load_words, store as store_words};

/// Writes bytes into words, starting at byte `offset` of them.
#[inline]
pub(super) fn store(words: &[AtomicU64], offset: usize, from: impl Source) {
    let (head, rest) = from.split_at(head_length(offset, from.length()));
    let mut words = &words[offset / WORD..];
    if let ([first, behind @ ..], 1..) = (words, head.length()) {
        merge(first, offset % WORD, &head.short()[..head.length()]);
        words = behind;
    }
    let count = rest.length() / WORD;
    let (body, tail) = rest.split_at(count * WORD);
    let (whole, last) = words.split_at(count);
    words::store(whole, body);
    if let ([last, ..], 1..) = (last, tail.length()) {
        merge(last, 0, &tail.short()[..tail.length()]);
    }
}

/// Reads bytes of words, starting at byte `offset` of them.
#[inline]
pub(super) fn load(words: &[AtomicU64], offset: usize, into: impl Target) {
    let head = head_length(offset, into.length());
    let (head, rest) = into.split_at(head);
    let mut words = &words[offset / WORD..];
    if let ([first, behind @ ..], 1..) = (words, head.length()) {
        extract(first, offset % WORD, head);
        words = behind;
    }
    let count = rest.length() / WORD;
    let (body, tail) = rest.split_at(count * WORD);
    let (whole, last) = words.split_at(count);
    words::load(whole, body);
    if let ([last, ..], 1..) = (last, tail.length()) {
        extract(last, 0, tail);
    }
}

/// Writes bytes that belong to no word.
#[inline]
pub(super) fn store_bytes(to: &[AtomicU8], from: impl Source) {
    let bytes = from.short();
    for (to, from) in to.iter().zip(&bytes[..from.length()]) {
        to.store(*from, Ordering::Relaxed);
    }
}

/// Reads bytes that belong to no word.
#[inline]
pub(super) fn load_bytes(from: &[AtomicU8], into: impl Target) {
    let mut bytes = [0; WORD];
    for (from, into) in from.iter().zip(&mut bytes[..into.length()]) {
        *into = from.load(Ordering::Relaxed);
    }
    let length = into.length();
    into.put(&bytes[..length]);
}

impl Source for &[u8] {
    #[inline]
    fn length(self) -> usize {
        self.len()
    }

    #[inline]
    fn split_at(self, at: usize) -> (Self, Self) {
        self.split_at(at)
    }

    #[inline]
    fn short(self) -> [u8; WORD] {
        let mut bytes = [0; WORD];
        bytes[..self.len()].copy_from_slice(self);
        bytes
    }

    #[inline]
    fn start(self) -> *const u8 {
        self.as_ptr()
    }
}

/// Bytes that another process may change meanwhile.
impl Source for &[AtomicU8] {
    #[inline]
    fn length(self) -> usize {
        self.len()
    }

    #[inline]
    fn split_at(self, at: usize) -> (Self, Self) {
        self.split_at(at)
    }

    #[inline]
    fn short(self) -> [u8; WORD] {
        let mut bytes = [0; WORD];
        for (to, from) in bytes[..self.len()].iter_mut().zip(self) {
            *to = from.load(Ordering::Relaxed);
        }
        bytes
    }

    #[inline]
    fn start(self) -> *const u8 {
        self.as_ptr().cast()
    }
}

impl Target for &mut [MaybeUninit<u8>] {
    #[inline]
    fn length(&self) -> usize {
        self.len()
    }

    #[inline]
    fn split_at(self, at: usize) -> (Self, Self) {
        self.split_at_mut(at)
    }

    #[inline]
    fn put(self, bytes: &[u8]) {
        for (to, from) in self.iter_mut().zip(bytes) {
            to.write(*from);
        }
    }

    #[inline]
    fn start(&mut self) -> *mut u8 {
        self.as_mut_ptr().cast()
    }
}

/// Bytes that another process may read or change meanwhile.
impl Target for &[AtomicU8] {
    #[inline]
    fn length(&self) -> usize {
        self.len()
    }

    #[inline]
    fn split_at(self, at: usize) -> (Self, Self) {
        self.split_at(at)
    }

    #[inline]
    fn put(self, bytes: &[u8]) {
        for (to, from) in self.iter().zip(bytes) {
            to.store(*from, Ordering::Relaxed);
        }
    }

    #[inline]
    fn start(&mut self) -> *mut u8 {
        self.as_ptr() as *mut u8
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
fn extract(word: &AtomicU64, skip: usize, into: impl Target) {
    let bytes = word.load(Ordering::Relaxed).to_ne_bytes();
    let length = into.length();
    into.put(&bytes[skip..skip + length]);
}

/// Copies of whole words.
mod words {
    use std::sync::atomic::{AtomicU64, Ordering};

    use wire::shared_bytes::copy_words;

    use super::{Source, Target, WORD};

    /// `from` has as many bytes as the words.
    #[inline]
    pub(in super::super) fn store(to: &[AtomicU64], from: impl Source) {
        let words = to.len().min(from.length() / WORD);
        // SAFETY: both have this many words. `to` may be written through a shared reference, because it consists of atomics. The
        // bytes of `from` are either borrowed, so that nobody writes them, or atomics.
        let done = unsafe { copy_words(to.as_ptr() as *mut u8, from.start(), words) };
        let (_, mut rest) = from.split_at(done * WORD);
        for word in &to[done..] {
            let (bytes, behind) = rest.split_at(WORD);
            word.store(u64::from_ne_bytes(bytes.short()), Ordering::Relaxed);
            rest = behind;
        }
    }

    /// `to` has as many bytes as the words.
    #[inline]
    pub(in super::super) fn load(from: &[AtomicU64], mut to: impl Target) {
        let words = from.len().min(to.length() / WORD);
        // SAFETY: both have this many words. The bytes of `to` are either borrowed exclusively, or atomics, which may be written
        // through a shared reference.
        let done = unsafe { copy_words(to.start(), from.as_ptr().cast(), words) };
        let (_, mut rest) = to.split_at(done * WORD);
        for word in &from[done..] {
            let (bytes, behind) = rest.split_at(WORD);
            bytes.put(&word.load(Ordering::Relaxed).to_ne_bytes());
            rest = behind;
        }
    }
}
