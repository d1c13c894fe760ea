//! Memory of the program's, touched so that it may vanish at any moment.
//!
//! A NIC pins the pages it was given. We can't: a program may unmap, protect or truncate memory while
//! it is registered. So every copy is made by a few instructions of our own, and the handler in
//! [`faults`](super::faults) turns a fault among them into an answer: the memory is not there.
//! Copies go upwards, so that who watches the last bytes sees them change last.

use engine::ForeignAccess;

use super::pages;

/// Memory that the program promised to keep.
pub(super) static PINNED: ForeignAccess = ForeignAccess {
    load: copy::load,
    store: copy::store,
    compare_swap: copy::compare_swap,
};

/// Memory on demand, which may have holes from the beginning. It is looked for before each use, which
/// also holds for programs and threads in which the handler is not called.
pub(super) static ON_DEMAND: ForeignAccess = ForeignAccess {
    load: load_if_present,
    store: store_if_present,
    compare_swap: compare_swap_if_present,
};

unsafe fn load_if_present(to: *mut u8, from: *const u8, length: usize) -> bool {
    // SAFETY: the caller's promises are those of `load`.
    pages::are_present(from.addr(), length, false) && unsafe { copy::load(to, from, length) }
}

unsafe fn store_if_present(to: *mut u8, from: *const u8, length: usize) -> bool {
    // SAFETY: the caller's promises are those of `store`.
    pages::are_present(to.addr(), length, true) && unsafe { copy::store(to, from, length) }
}

unsafe fn compare_swap_if_present(word: *mut u64, expected: u64, new: u64) -> Option<u64> {
    if !pages::are_present(word.addr(), size_of::<u64>(), true) {
        return None;
    }
    // SAFETY: the caller's promises are those of `compare_swap`.
    unsafe { copy::compare_swap(word, expected, new) }
}

/// Instructions of our own. `roci_foreign_begin` and `roci_foreign_end` enclose all that may fault;
/// they use no stack, so that `roci_foreign_absent` can return in their place.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod copy {
    use std::ffi::{c_int, c_void};

    #[cfg(target_arch = "x86_64")]
    std::arch::global_asm!(include_str!("foreign/x86_64.s"));
    #[cfg(target_arch = "aarch64")]
    std::arch::global_asm!(include_str!("foreign/aarch64.s"));

    unsafe extern "C" {
        fn roci_foreign_copy(to: *mut u8, from: *const u8, length: usize) -> c_int;
        fn roci_foreign_compare_swap(
            word: *mut u64,
            expected: u64,
            new: u64,
            found: *mut u64,
        ) -> c_int;
        fn roci_foreign_begin();
        fn roci_foreign_end();
        fn roci_foreign_absent();
    }

    pub(super) unsafe fn load(to: *mut u8, from: *const u8, length: usize) -> bool {
        // SAFETY: it writes `length` bytes at `to`, for which the caller has room; what is wrong with
        // `from` it says.
        unsafe { roci_foreign_copy(to, from, length) != 0 }
    }

    pub(super) unsafe fn store(to: *mut u8, from: *const u8, length: usize) -> bool {
        // SAFETY: it reads `length` bytes at `from`, which the caller has; `to` belongs to the program,
        // which registered it for that. What is wrong with it, it says.
        unsafe { roci_foreign_copy(to, from, length) != 0 }
    }

    pub(super) unsafe fn compare_swap(word: *mut u64, expected: u64, new: u64) -> Option<u64> {
        let mut found = 0;
        // SAFETY: `word` is aligned and belongs to the program, which registered it for that; the
        // result goes to a live variable.
        let there = unsafe { roci_foreign_compare_swap(word, expected, new, &raw mut found) } != 0;
        there.then_some(found)
    }

    /// If the interrupted instruction is one of these, goes on behind them with the answer that the
    /// memory is not there.
    ///
    /// # Safety
    /// `context` must be what a signal handler got.
    pub(in crate::verbs) unsafe fn recover(context: *mut c_void) -> bool {
        // SAFETY: the kernel gives handlers a `ucontext_t` of the interrupted thread.
        let instruction = unsafe { instruction_of(context.cast()) };
        let begin = (roci_foreign_begin as *const ()).addr() as u64;
        let end = (roci_foreign_end as *const ()).addr() as u64;
        // SAFETY: the place is in that context.
        let current = unsafe { *instruction };
        let ours = (begin..end).contains(&current);
        if ours {
            // SAFETY: as above. The instructions have no stack frame, so what is at `absent` returns
            // to their caller.
            unsafe { *instruction = (roci_foreign_absent as *const ()).addr() as u64 };
        }
        ours
    }

    #[cfg(target_arch = "x86_64")]
    unsafe fn instruction_of(context: *mut libc::ucontext_t) -> *mut u64 {
        // SAFETY: the caller's promise; a place, nothing is read.
        let registers = unsafe { &raw mut (*context).uc_mcontext.gregs };
        registers.cast::<u64>().wrapping_add(libc::REG_RIP as usize)
    }

    #[cfg(target_arch = "aarch64")]
    unsafe fn instruction_of(context: *mut libc::ucontext_t) -> *mut u64 {
        // SAFETY: the caller's promise; a place, nothing is read.
        unsafe { &raw mut (*context).uc_mcontext.pc }
    }
}

/// Other machines look for the pages before each use. Who unmaps them between that and the copy ends
/// the process.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
mod copy {
    use std::ffi::c_void;
    use std::ptr;
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::super::pages;

    pub(super) unsafe fn load(to: *mut u8, from: *const u8, length: usize) -> bool {
        let there = pages::are_present(from.addr(), length, false);
        if there {
            // SAFETY: the source is there; the caller has room at the destination.
            unsafe { ptr::copy_nonoverlapping(from, to, length) };
        }
        there
    }

    pub(super) unsafe fn store(to: *mut u8, from: *const u8, length: usize) -> bool {
        let there = pages::are_present(to.addr(), length, true);
        if there {
            // SAFETY: the destination is there; the caller has the source.
            unsafe { ptr::copy_nonoverlapping(from, to, length) };
        }
        there
    }

    pub(super) unsafe fn compare_swap(word: *mut u64, expected: u64, new: u64) -> Option<u64> {
        if !pages::are_present(word.addr(), size_of::<u64>(), true) {
            return None;
        }
        // SAFETY: it is there, and aligned by the caller's promise.
        let word = unsafe { AtomicU64::from_ptr(word) };
        let swapped = word.compare_exchange(expected, new, Ordering::AcqRel, Ordering::Acquire);
        Some(swapped.unwrap_or_else(|found| found))
    }

    pub(in crate::verbs) unsafe fn recover(_context: *mut c_void) -> bool {
        false
    }
}

pub(super) use copy::recover;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_length_is_copied_and_nothing_else() {
        let from: Vec<u8> = (0..300).map(|byte| byte as u8 | 1).collect();
        for offset in 0..3 {
            for length in 0..from.len() - offset {
                let mut to = vec![0; from.len() + 1];
                // SAFETY: both have room for that.
                let done = unsafe {
                    (PINNED.store)(to[offset..].as_mut_ptr(), from[offset..].as_ptr(), length)
                };
                assert!(done);
                assert!(to[..offset].iter().all(|byte| *byte == 0));
                assert_eq!(to[offset..offset + length], from[offset..offset + length]);
                assert!(to[offset + length..].iter().all(|byte| *byte == 0));
            }
        }
    }

    #[test]
    fn a_word_is_exchanged_only_if_it_is_the_expected_one() {
        let mut word = 7;
        // SAFETY: the word is alive and aligned.
        let exchange = |word, expected, new| unsafe { (PINNED.compare_swap)(word, expected, new) };
        assert_eq!(exchange(&raw mut word, 6, 8), Some(7));
        assert_eq!(word, 7);
        assert_eq!(exchange(&raw mut word, 7, 8), Some(7));
        assert_eq!(word, 8);
    }
}
