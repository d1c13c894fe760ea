//! Copies of bytes that others may change meanwhile: packets in memory that two processes share, and registered memory.
//!
//! A byte that another process or thread may change is an atomic, and is accessed by relaxed atomic accesses only. Compilers do not
//! join such accesses, so runs of words are copied by a few instructions of inline assembly, at about the speed of `memcpy`. To the
//! compiler these instructions are a loop of relaxed atomic accesses: to words of eight bytes where the memory consists of such
//! words, and to single bytes elsewhere. Their accesses to aligned words, and the halves of their 16-byte accesses that are aligned to
//! eight bytes, are single-copy atomic: AArch64 guarantees that, and x86-64 splits an access only at cache lines or quadwords.

use std::sync::atomic::{AtomicU8, Ordering};

const WORD: usize = size_of::<u64>();

/// Copies shared bytes to a place of one's own.
///
/// # Panics
/// If the lengths differ.
#[inline]
pub fn load(from: &[AtomicU8], into: &mut [u8]) {
    assert_eq!(from.len(), into.len(), "a copy is as long as the original");
    // SAFETY: both have this length. `into` is exclusive, so they do not overlap; `from` consists of atomics.
    let copied = unsafe { copy_bytes(into.as_mut_ptr(), from.as_ptr().cast(), from.len()) };
    for (into, from) in into[copied..].iter_mut().zip(&from[copied..]) {
        *into = from.load(Ordering::Relaxed);
    }
}

/// Copies bytes of one's own to a shared place.
///
/// # Panics
/// If the lengths differ.
#[inline]
pub fn store(to: &[AtomicU8], from: &[u8]) {
    assert_eq!(to.len(), from.len(), "a copy is as long as the original");
    let start = to.as_ptr() as *mut u8;
    // SAFETY: both have this length, and atomics may be written through a shared reference. A reference to ordinary bytes and one
    // to atomics do not overlap.
    let copied = unsafe { copy_bytes(start, from.as_ptr(), from.len()) };
    for (to, from) in to[copied..].iter().zip(&from[copied..]) {
        to.store(*from, Ordering::Relaxed);
    }
}

/// Copies `length` bytes and returns how many: all of them, or none if they are too few or there are no instructions for it.
///
/// # Safety
/// As for [`copy_words`], with bytes.
#[inline]
unsafe fn copy_bytes(to: *mut u8, from: *const u8, length: usize) -> usize {
    let words = length / WORD;
    // SAFETY: the caller's contract.
    if words == 0 || unsafe { copy_words(to, from, words) } == 0 {
        return 0;
    }
    if !length.is_multiple_of(WORD) {
        let last = length - WORD;
        // SAFETY: the caller's contract: this word ends where the bytes end. Single bytes may be copied twice.
        unsafe { copy_words(to.wrapping_add(last), from.wrapping_add(last), 1) };
    }
    length
}

/// Copies the first of `words` words of eight bytes, upwards, and returns how many: all of them, or none where there are no
/// instructions for it.
///
/// # Safety
/// Both pointers must have this many words, which do not overlap and need not be aligned. Others may access them meanwhile only by
/// atomics, and only if they consist of atomics: of aligned words, or of bytes.
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[inline]
pub unsafe fn copy_words(to: *mut u8, from: *const u8, words: usize) -> usize {
    // SAFETY: accesses only the words of the caller's contract, and no stack.
    unsafe {
        std::arch::asm!(
            "test {blocks}, {blocks}",
            "jz 3f",
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
            "dec {blocks}",
            "jnz 2b",
            "3:",
            "test {rest}, {rest}",
            "jz 5f",
            "4:",
            "mov {word}, [{from}]",
            "mov [{to}], {word}",
            "add {from}, 8",
            "add {to}, 8",
            "dec {rest}",
            "jnz 4b",
            "5:",
            to = inout(reg) to => _,
            from = inout(reg) from => _,
            blocks = inout(reg) words / BLOCK => _,
            rest = inout(reg) words % BLOCK => _,
            word = out(reg) _,
            a = out(xmm_reg) _, b = out(xmm_reg) _, c = out(xmm_reg) _, d = out(xmm_reg) _,
            options(nostack),
        );
    }
    words
}

/// As above.
///
/// # Safety
/// As above.
#[cfg(all(target_arch = "aarch64", not(miri)))]
#[inline]
pub unsafe fn copy_words(to: *mut u8, from: *const u8, words: usize) -> usize {
    // SAFETY: accesses only the words of the caller's contract, and no stack.
    unsafe {
        std::arch::asm!(
            "cbz {blocks}, 3f",
            "2:",
            "ldp {a:q}, {b:q}, [{from}]",
            "ldp {c:q}, {d:q}, [{from}, #32]",
            "stp {a:q}, {b:q}, [{to}]",
            "stp {c:q}, {d:q}, [{to}, #32]",
            "add {from}, {from}, #64",
            "add {to}, {to}, #64",
            "subs {blocks}, {blocks}, #1",
            "b.ne 2b",
            "3:",
            "cbz {rest}, 5f",
            "4:",
            "ldr {word}, [{from}], #8",
            "str {word}, [{to}], #8",
            "subs {rest}, {rest}, #1",
            "b.ne 4b",
            "5:",
            to = inout(reg) to => _,
            from = inout(reg) from => _,
            blocks = inout(reg) words / BLOCK => _,
            rest = inout(reg) words % BLOCK => _,
            word = out(reg) _,
            a = out(vreg) _, b = out(vreg) _, c = out(vreg) _, d = out(vreg) _,
            options(nostack),
        );
    }
    words
}

/// Other architectures, and Miri, which must see every access: nothing is copied.
///
/// # Safety
/// None is needed.
#[cfg(not(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(miri))))]
#[inline]
pub unsafe fn copy_words(_: *mut u8, _: *const u8, _: usize) -> usize {
    0
}

/// How many words the assembly copies at once.
#[cfg(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(miri)))]
const BLOCK: usize = 8;

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    const SIZE: usize = if cfg!(miri) { 40 } else { 210 };

    fn shared(value: u8) -> Vec<AtomicU8> {
        (0..SIZE).map(|_| AtomicU8::new(value)).collect()
    }

    fn values(bytes: &[AtomicU8]) -> Vec<u8> {
        (bytes.iter())
            .map(|byte| byte.load(Ordering::Relaxed))
            .collect()
    }

    #[test]
    fn exactly_the_range_is_copied_for_every_offset_and_length() {
        let bytes: Vec<u8> = (0..SIZE).map(|byte| byte as u8 | 1).collect();
        for offset in 0..18 {
            for length in 0..SIZE - offset {
                let range = offset..offset + length;
                let target = shared(0);
                store(&target[range.clone()], &bytes[..length]);
                let mut expected = vec![0; SIZE];
                expected[range.clone()].copy_from_slice(&bytes[..length]);
                assert_eq!(values(&target), expected, "{length} bytes at {offset}");
                let mut copy = vec![0; SIZE];
                load(&target[range.clone()], &mut copy[range]);
                assert_eq!(copy, expected, "{length} bytes at {offset}");
            }
        }
    }

    /// Miri reports a copy that is not atomic here.
    #[test]
    fn bytes_that_another_thread_changes_are_copied() {
        let bytes = shared(1);
        let mut copy = vec![0; SIZE];
        thread::scope(|scope| {
            scope.spawn(|| store(&bytes, &[2; SIZE]));
            load(&bytes, &mut copy);
        });
        assert!(copy.iter().all(|byte| matches!(byte, 1 | 2)));
        assert_eq!(values(&bytes), [2; SIZE]);
    }

    #[test]
    #[should_panic = "a copy is as long as the original"]
    fn copy_of_another_length_panics() {
        load(&shared(0), &mut [0; 3]);
    }
}
