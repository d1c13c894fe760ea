//! `ibv_alloc_buf` and `ibv_alloc_dmah`: buffers that the library allocates, and handles for bus hints.
//!
//! A driver may have memory that suits its NIC better than ordinary memory. Here all memory is equal, so a
//! buffer is pages of this process, and a hint has no effect.

use std::ffi::{c_int, c_void};
use std::os::fd::RawFd;
use std::ptr::NonNull;
use std::sync::Arc;

use super::context::Context;
use super::protection_domain::Pd;
use crate::abi;
use crate::entry::{Input, MinusOne, Output, entry};
use crate::errno::Errno;
use crate::object::{Object, from_pointer};

/// A buffer.
pub(crate) type Buffer = Object<abi::ibv_buf, Pages>;

from_pointer!(abi::ibv_buf => Buffer);

/// A handle for bus hints.
pub(crate) type DmaHandle = Object<abi::ibv_dmah, Hints>;

from_pointer!(abi::ibv_dmah => DmaHandle);

/// Each region with these hints holds a clone.
pub(crate) struct Hints(pub(crate) Arc<()>);

/// Pages of this process, unmapped when it is dropped.
pub(crate) struct Pages {
    start: NonNull<c_void>,
    length: usize,
}

impl Pages {
    fn map(length: usize) -> Result<Self, Errno> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        Self::map_with(length, libc::PROT_READ | libc::PROT_WRITE, flags, (-1, 0))
    }

    /// Maps a part of a file, from a page boundary on.
    pub(super) fn of_file(
        file: RawFd,
        offset: i64,
        length: usize,
        writable: bool,
    ) -> Result<Self, Errno> {
        let writing = if writable { libc::PROT_WRITE } else { 0 };
        Self::map_with(
            length,
            libc::PROT_READ | writing,
            libc::MAP_SHARED,
            (file, offset),
        )
    }

    fn map_with(
        length: usize,
        protection: c_int,
        flags: c_int,
        (file, offset): (RawFd, i64),
    ) -> Result<Self, Errno> {
        let anywhere = std::ptr::null_mut();
        // SAFETY: a new mapping at an address that the kernel chooses.
        let start = unsafe { libc::mmap(anywhere, length, protection, flags, file, offset) };
        if start == libc::MAP_FAILED {
            return Err(Errno::last());
        }
        let start = NonNull::new(start).ok_or(Errno::NO_MEMORY)?;
        Ok(Self { start, length })
    }

    /// Their address.
    pub(super) fn start(&self) -> *mut c_void {
        self.start.as_ptr()
    }

    /// Whether it contains this range.
    fn contains(&self, address: *mut c_void, length: usize) -> bool {
        let offset = address.addr().checked_sub(self.start.addr().get());
        let end = offset.and_then(|offset| offset.checked_add(length));
        end.is_some_and(|end| end <= self.length)
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: mapped by `map`. There are no Rust references to it, and registered memory is copied by
        // functions that detect unmapped pages.
        unsafe { libc::munmap(self.start.as_ptr(), self.length) };
    }
}

entry! {
    export fn ibv_alloc_buf(
        domain: &Pd,
        length: usize,
        buffer: Output<*mut abi::ibv_buf>,
    ) -> *mut c_void {
        let mut buffer = buffer;
        let pages = Pages::map(length)?;
        let start = pages.start.as_ptr();
        buffer.put(Buffer::new_pointer(abi::ibv_buf { pd: domain.c() }, pages));
        Ok(start)
    }

    export fn ibv_free_buf(buffer: Option<&Buffer>) {
        if let Some(buffer) = buffer {
            buffer.destroy();
        }
        Ok(())
    }

    export fn ibv_export_buf_dmabuf_fd(buffer: &Buffer) -> MinusOne {
        let _ = buffer;
        // Ordinary memory is not a DMA-buf.
        Err(Errno::NO_DATA)
    }

    export fn ibv_alloc_dmah(
        context: &Context,
        init: Input<abi::ibv_dmah_init_attr>,
    ) -> *mut abi::ibv_dmah {
        check_hints(&init.0)?;
        let c_part = abi::ibv_dmah { context: context.pointer() };
        Ok(DmaHandle::new_pointer(c_part, Hints(Arc::new(()))))
    }

    export fn ibv_dealloc_dmah(handle: &DmaHandle) -> c_int {
        if Arc::strong_count(&handle.0) > 1 {
            return Err(Errno::BUSY);
        }
        handle.destroy();
        Ok(0)
    }
}

/// Checks that the hints are valid.
fn check_hints(init: &abi::ibv_dmah_init_attr) -> Result<(), Errno> {
    /// A processing hint has two bits.
    const LARGEST_HINT: u8 = 3;
    let asks = |mask| init.comp_mask & mask != 0;
    let known = abi::IBV_DMAH_INIT_ATTR_MASK_CPU_ID
        | abi::IBV_DMAH_INIT_ATTR_MASK_PH
        | abi::IBV_DMAH_INIT_ATTR_MASK_TPH_MEM_TYPE;
    // SAFETY: takes no pointers.
    let processors = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_CONF) };
    let no_processor = u64::from(init.cpu_id) >= u64::try_from(processors).unwrap_or(1);
    let is_wrong = asks(!known)
        || asks(abi::IBV_DMAH_INIT_ATTR_MASK_CPU_ID) && no_processor
        || asks(abi::IBV_DMAH_INIT_ATTR_MASK_PH) && init.ph > LARGEST_HINT
        || asks(abi::IBV_DMAH_INIT_ATTR_MASK_TPH_MEM_TYPE)
            && init.tph_mem_type > abi::IBV_TPH_MEM_TYPE_PM;
    if is_wrong {
        Err(Errno::INVALID)
    } else {
        Ok(())
    }
}

impl Buffer {
    /// Checks that this part of it may be registered in this domain.
    pub(super) fn check(
        &self,
        domain: &Pd,
        address: *mut c_void,
        length: usize,
    ) -> Result<(), Errno> {
        if self.read().pd != domain.c() || !self.contains(address, length) {
            return Err(Errno::INVALID);
        }
        Ok(())
    }
}
