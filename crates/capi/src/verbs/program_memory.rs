//! Access to registered memory of the program, which may be unmapped at any time.
//!
//! A NIC pins registered pages. We can't: a program may unmap, protect or truncate memory while it is
//! registered. So every copy is made by a few instructions of our own, and the handler in
//! [`fault_handler`](super::fault_handler) turns a fault in them into an error. Copies go upwards, so a
//! program that polls the last byte sees it change last.

use engine::ProgramMemoryAccess;

use super::{changed_mappings, mapped_pages};

/// Memory that the program promised to keep mapped.
pub(super) static PINNED: ProgramMemoryAccess = ProgramMemoryAccess {
    load: copy::load,
    store: copy::store,
    compare_swap: copy::compare_swap,
    changed_mapping: changed_mappings::changed,
};

/// On-demand memory, which may have unmapped pages at registration. Pages are checked before each access,
/// which also works in programs and threads in which the handler is not called.
pub(super) static ON_DEMAND: ProgramMemoryAccess = ProgramMemoryAccess {
    load: load_if_present,
    store: store_if_present,
    compare_swap: compare_swap_if_present,
    // The program may map and unmap it as it likes.
    changed_mapping: |_, _, _| None,
};

unsafe fn load_if_present(to: *mut u8, from: *const u8, length: usize) -> bool {
    // SAFETY: the caller's promises are those of `load`.
    mapped_pages::are_present(from.addr(), length, false) && unsafe { copy::load(to, from, length) }
}

unsafe fn store_if_present(to: *mut u8, from: *const u8, length: usize) -> bool {
    // SAFETY: the caller's promises are those of `store`.
    mapped_pages::are_present(to.addr(), length, true) && unsafe { copy::store(to, from, length) }
}

unsafe fn compare_swap_if_present(word: *mut u64, expected: u64, new: u64) -> Option<u64> {
    if !mapped_pages::are_present(word.addr(), size_of::<u64>(), true) {
        return None;
    }
    // SAFETY: the caller's promises are those of `compare_swap`.
    unsafe { copy::compare_swap(word, expected, new) }
}

/// Our own copy instructions. `roci_program_memory_begin` and `roci_program_memory_end` enclose all that may fault; they
/// use no stack, so that `roci_program_memory_absent` can return for them.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod copy {
    use std::ffi::{c_int, c_void};

    #[cfg(target_arch = "x86_64")]
    std::arch::global_asm!(include_str!("program_memory/x86_64.s"));
    #[cfg(target_arch = "aarch64")]
    std::arch::global_asm!(include_str!("program_memory/aarch64.s"));

    unsafe extern "C" {
        fn roci_program_memory_copy(to: *mut u8, from: *const u8, length: usize) -> c_int;
        fn roci_program_memory_compare_swap(
            word: *mut u64,
            expected: u64,
            new: u64,
            found: *mut u64,
        ) -> c_int;
        fn roci_program_memory_begin();
        fn roci_program_memory_end();
        fn roci_program_memory_absent();
    }

    pub(super) unsafe fn load(to: *mut u8, from: *const u8, length: usize) -> bool {
        // SAFETY: it writes `length` bytes at `to`, which the caller owns, and returns 0 if `from` can't be
        // read.
        unsafe { roci_program_memory_copy(to, from, length) != 0 }
    }

    pub(super) unsafe fn store(to: *mut u8, from: *const u8, length: usize) -> bool {
        // SAFETY: it reads `length` bytes at `from`, which the caller owns; `to` belongs to the program,
        // which registered it. It returns 0 if `to` can't be written.
        unsafe { roci_program_memory_copy(to, from, length) != 0 }
    }

    pub(super) unsafe fn compare_swap(word: *mut u64, expected: u64, new: u64) -> Option<u64> {
        let mut found = 0;
        // SAFETY: `word` is aligned and belongs to the program, which registered it; the result goes to a
        // live variable.
        let there =
            unsafe { roci_program_memory_compare_swap(word, expected, new, &raw mut found) } != 0;
        there.then_some(found)
    }

    /// If the interrupted instruction is one of these, continues after them with the result that the memory
    /// is not present.
    ///
    /// # Safety
    /// `context` must be the argument of a signal handler.
    pub(in crate::verbs) unsafe fn recover(context: *mut c_void) -> bool {
        // SAFETY: the kernel passes a `ucontext_t` of the interrupted thread to handlers.
        let instruction = unsafe { instruction_of(context.cast()) };
        let begin = (roci_program_memory_begin as *const ()).addr() as u64;
        let end = (roci_program_memory_end as *const ()).addr() as u64;
        // SAFETY: the pointer is into that context.
        let current = unsafe { *instruction };
        let ours = (begin..end).contains(&current);
        if ours {
            // SAFETY: as above. The instructions have no stack frame, so the code at `absent` returns to
            // their caller.
            unsafe { *instruction = (roci_program_memory_absent as *const ()).addr() as u64 };
        }
        ours
    }

    #[cfg(target_arch = "x86_64")]
    unsafe fn instruction_of(context: *mut libc::ucontext_t) -> *mut u64 {
        // SAFETY: the caller's promise; it only takes an address.
        let registers = unsafe { &raw mut (*context).uc_mcontext.gregs };
        registers.cast::<u64>().wrapping_add(libc::REG_RIP as usize)
    }

    #[cfg(target_arch = "aarch64")]
    unsafe fn instruction_of(context: *mut libc::ucontext_t) -> *mut u64 {
        // SAFETY: the caller's promise; it only takes an address.
        unsafe { &raw mut (*context).uc_mcontext.pc }
    }
}

/// Other architectures check the pages before each access. A program that unmaps them between the check and
/// the copy crashes.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
mod copy {
    use std::ffi::c_void;
    use std::ptr;
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::super::mapped_pages;

    pub(super) unsafe fn load(to: *mut u8, from: *const u8, length: usize) -> bool {
        let there = mapped_pages::are_present(from.addr(), length, false);
        if there {
            // SAFETY: the source is present; the caller owns the destination.
            unsafe { ptr::copy_nonoverlapping(from, to, length) };
        }
        there
    }

    pub(super) unsafe fn store(to: *mut u8, from: *const u8, length: usize) -> bool {
        let there = mapped_pages::are_present(to.addr(), length, true);
        if there {
            // SAFETY: the destination is present; the caller owns the source.
            unsafe { ptr::copy_nonoverlapping(from, to, length) };
        }
        there
    }

    pub(super) unsafe fn compare_swap(word: *mut u64, expected: u64, new: u64) -> Option<u64> {
        if !mapped_pages::are_present(word.addr(), size_of::<u64>(), true) {
            return None;
        }
        // SAFETY: it is present, and aligned by the caller's promise.
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
                // SAFETY: both are long enough.
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
