//! Checks whether memory is mapped.

use std::sync::OnceLock;

use engine::Access;

use crate::errno::Errno;

/// Fails with EFAULT unless the memory can be read, and written if the access needs it.
///
/// It faults the pages in, as pinning for a NIC does. On-demand memory is not checked: it may be mapped
/// later.
pub(super) fn check(address: usize, length: usize, access: Access) -> Result<(), Errno> {
    let page = page_size();
    // As in the kernel, which counts pages: an empty range inside a page can be registered, one at a page
    // boundary can't.
    if length == 0 && address.is_multiple_of(page) {
        return Err(Errno::INVALID);
    }
    let end = address.checked_add(length).ok_or(Errno::INVALID)?;
    if access.contains(Access::ON_DEMAND) {
        return Ok(());
    }
    let first = address & !(page - 1);
    let last = end.checked_next_multiple_of(page).ok_or(Errno::INVALID)?;
    let advice = if access.contains(Access::LOCAL_WRITE) {
        libc::MADV_POPULATE_WRITE
    } else {
        libc::MADV_POPULATE_READ
    };
    match populate(first, last - first, advice) {
        Ok(()) => Ok(()),
        // Kernels before 5.14 reject the advice for any range, even an empty one.
        Err(libc::EINVAL) if populate(first, 0, advice).is_err() => {
            if is_mapped(first, (last - first) / page) {
                Ok(())
            } else {
                Err(Errno::FAULT)
            }
        }
        Err(_) => Err(Errno::FAULT),
    }
}

/// Whether on-demand memory is present now, for reading or for writing; faults it in.
pub(super) fn are_present(address: usize, length: usize, writing: bool) -> bool {
    let access = if writing {
        Access::LOCAL_WRITE
    } else {
        Access::empty()
    };
    length == 0 || check(address, length, access).is_ok()
}

/// Whether the system can fault pages in, so that all pages of registered memory were present once.
pub(super) fn can_populate() -> bool {
    static KNOWN: OnceLock<bool> = OnceLock::new();
    *KNOWN.get_or_init(|| populate(0, 0, libc::MADV_POPULATE_READ).is_ok())
}

pub(super) fn page_size() -> usize {
    // SAFETY: takes no pointers.
    unsafe { libc::sysconf(libc::_SC_PAGESIZE) as usize }
}

fn populate(address: usize, length: usize, advice: i32) -> Result<(), i32> {
    loop {
        let pointer = std::ptr::with_exposed_provenance_mut(address);
        // SAFETY: the kernel only makes pages present; it changes no content.
        if unsafe { libc::madvise(pointer, length, advice) } == 0 {
            return Ok(());
        }
        match Errno::last().0 {
            libc::EAGAIN | libc::EINTR => {}
            other => return Err(other),
        }
    }
}

/// In chunks, because a program may name any number of pages.
fn is_mapped(address: usize, pages: usize) -> bool {
    let mut resident = [0; 1024];
    let mut page = 0;
    while page < pages {
        let count = resident.len().min(pages - page);
        let start = address.wrapping_add(page * page_size());
        let pointer = std::ptr::with_exposed_provenance_mut(start);
        // SAFETY: the kernel writes one byte for each page of the range, and the array is long enough.
        let known = unsafe { libc::mincore(pointer, count * page_size(), resident.as_mut_ptr()) };
        if known != 0 {
            return false;
        }
        page += count;
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unmapped_page_among_many_is_found() {
        let (pages, page) = (2500, page_size());
        let (protection, flags) = (libc::PROT_READ, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: maps new memory.
        let memory =
            unsafe { libc::mmap(std::ptr::null_mut(), pages * page, protection, flags, -1, 0) };
        assert_ne!(memory, libc::MAP_FAILED);
        let address = memory.expose_provenance();
        assert!(is_mapped(address, pages));
        let last = memory.wrapping_byte_add((pages - 1) * page);
        // SAFETY: the last of the pages that were just mapped, which are not used.
        assert_eq!(unsafe { libc::munmap(last, page) }, 0);
        assert!(is_mapped(address, pages - 1));
        assert!(!is_mapped(address, pages));
        assert!(!is_mapped(address, usize::MAX / page));
        // SAFETY: as above, the rest of them.
        assert_eq!(unsafe { libc::munmap(memory, (pages - 1) * page) }, 0);
    }
}
