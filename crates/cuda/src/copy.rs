//! Copies of bytes that another process may access at the same time.

use std::sync::atomic::{AtomicU8, Ordering};

use wire::shared_bytes::copy_words;

/// Copies bytes.
///
/// # Safety
/// `from` must be valid for reads and `to` for writes of `length` bytes, which do not overlap. Others may access them meanwhile
/// only by atomics.
pub(crate) unsafe fn copy(to: *mut u8, from: *const u8, length: usize) {
    let words = length / size_of::<u64>();
    // SAFETY: both have so many words, which need not be aligned.
    let done = unsafe { copy_words(to, from, words) } * size_of::<u64>();
    for at in done..length {
        // SAFETY: inside of both ranges; a byte is always aligned.
        let from = unsafe { AtomicU8::from_ptr(from.wrapping_add(at).cast_mut()) };
        // SAFETY: as above.
        let to = unsafe { AtomicU8::from_ptr(to.wrapping_add(at)) };
        to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_length_is_copied_and_nothing_else() {
        let from: Vec<u8> = (0..100).map(|byte| byte | 1).collect();
        for length in 0..from.len() {
            let mut to = vec![0; from.len()];
            // SAFETY: both are long enough.
            unsafe { copy(to.as_mut_ptr(), from.as_ptr(), length) };
            assert_eq!(to[..length], from[..length]);
            assert!(to[length..].iter().all(|byte| *byte == 0));
        }
    }
}
