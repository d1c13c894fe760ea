//! Whether memory is there, before somebody else finds out that it isn't.

use engine::Access;

use crate::errno::Errno;

/// Fails with EFAULT unless the memory can be read, and written if the access asks for it.
///
/// It faults the pages in, which is what pinning them for a NIC does too. Memory on demand is left
/// alone: it may come later.
pub(super) fn check(address: usize, length: usize, access: Access) -> Result<(), Errno> {
    let page = page_size();
    // Kernels count the pages: nothing inside of a page can be registered, nothing between two can't.
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
        // Kernels before 5.14 don't know the advice at all, not even for no memory.
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

/// Whether memory on demand is there now, for reading or for writing; faults it in.
pub(super) fn are_present(address: usize, length: usize, writing: bool) -> bool {
    let access = if writing {
        Access::LOCAL_WRITE
    } else {
        Access::empty()
    };
    length == 0 || check(address, length, access).is_ok()
}

fn page_size() -> usize {
    // SAFETY: takes no pointers.
    unsafe { libc::sysconf(libc::_SC_PAGESIZE) as usize }
}

fn populate(address: usize, length: usize, advice: i32) -> Result<(), i32> {
    loop {
        let pointer = std::ptr::with_exposed_provenance_mut(address);
        // SAFETY: the kernel looks at the range and at most makes pages present; it changes nothing
        // that a program could see.
        if unsafe { libc::madvise(pointer, length, advice) } == 0 {
            return Ok(());
        }
        match Errno::last().0 {
            libc::EAGAIN | libc::EINTR => {}
            other => return Err(other),
        }
    }
}

/// In parts: a program may name any number of pages.
fn is_mapped(address: usize, pages: usize) -> bool {
    let mut resident = [0; 1024];
    let mut page = 0;
    while page < pages {
        let count = resident.len().min(pages - page);
        let start = address.wrapping_add(page * page_size());
        let pointer = std::ptr::with_exposed_provenance_mut(start);
        // SAFETY: the kernel writes one byte for each page of the range, for which there is room.
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
    fn a_hole_in_many_pages_is_found() {
        let (pages, page) = (2500, page_size());
        let (protection, flags) = (libc::PROT_READ, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: asks for new memory.
        let memory =
            unsafe { libc::mmap(std::ptr::null_mut(), pages * page, protection, flags, -1, 0) };
        assert_ne!(memory, libc::MAP_FAILED);
        let address = memory.expose_provenance();
        assert!(is_mapped(address, pages));
        let last = memory.wrapping_byte_add((pages - 1) * page);
        // SAFETY: the last of the pages that were just mapped, which nobody uses.
        assert_eq!(unsafe { libc::munmap(last, page) }, 0);
        assert!(is_mapped(address, pages - 1));
        assert!(!is_mapped(address, pages));
        assert!(!is_mapped(address, usize::MAX / page));
        // SAFETY: as above, the rest of them.
        assert_eq!(unsafe { libc::munmap(memory, (pages - 1) * page) }, 0);
    }
}
