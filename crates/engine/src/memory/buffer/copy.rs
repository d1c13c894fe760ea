//! Copies between ordinary bytes and words that others may access at the same time.

use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use super::WORD;

/// Writes bytes into words, starting at byte `offset` of them.
#[inline]
pub(super) fn store(words: &[AtomicU64], offset: usize, from: &[u8]) {
    let (head, rest) = from.split_at(head_length(offset, from.len()));
    let mut words = &words[offset / WORD..];
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

/// Reads bytes of words, starting at byte `offset` of them. Initialises all of `into`.
#[inline]
pub(super) fn load(words: &[AtomicU64], offset: usize, into: &mut [MaybeUninit<u8>]) {
    let (head, rest) = into.split_at_mut(head_length(offset, into.len()));
    let mut words = &words[offset / WORD..];
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

/// Writes bytes that belong to no word.
#[inline]
pub(super) fn store_bytes(to: &[AtomicU8], from: &[u8]) {
    for (to, from) in to.iter().zip(from) {
        to.store(*from, Ordering::Relaxed);
    }
}

/// Reads bytes that belong to no word.
#[inline]
pub(super) fn load_bytes(from: &[AtomicU8], into: &mut [MaybeUninit<u8>]) {
    for (from, into) in from.iter().zip(into) {
        into.write(from.load(Ordering::Relaxed));
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
