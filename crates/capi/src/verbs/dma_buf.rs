//! `ibv_reg_dmabuf_mr`: memory of another device, by a descriptor.
//!
//! A DMA-buf that its exporter can map is mapped for as long as it is registered, and is then memory like any other. A GPU's
//! can't be mapped; programs name its address as that of the region (`iova`), and its bytes are copied from there.

use std::ffi::c_int;
use std::os::fd::RawFd;
use std::ptr::NonNull;

use engine::{Access, Extent};

use super::alloc_buf::Pages;
use super::memory_region::{self, RegionKind, region_at};
use super::protection_domain::Pd;
use super::{gpu_memory, mapped_pages};
use crate::abi;
use crate::entry::entry;
use crate::errno::Errno;

entry! {
    export fn ibv_reg_dmabuf_mr(
        domain: &Pd,
        offset: u64,
        length: usize,
        iova: u64,
        file: c_int,
        access: c_int,
    ) -> *mut abi::ibv_mr {
        register(domain, offset, length, iova, file, access.cast_unsigned())
    }
}

/// The rights that the kernel accepts here.
const POSSIBLE: Access = Access::LOCAL_WRITE
    .union(Access::REMOTE_WRITE)
    .union(Access::REMOTE_READ)
    .union(Access::REMOTE_ATOMIC)
    .union(Access::RELAXED_ORDERING);

pub(super) fn register(
    domain: &Pd,
    offset: u64,
    length: usize,
    iova: u64,
    file: RawFd,
    access: u32,
) -> Result<*mut abi::ibv_mr, Errno> {
    domain.open.check_not_inherited()?;
    let access = memory_region::access_of(access)?;
    let page = mapped_pages::page_size() as u64;
    if !POSSIBLE.contains(access) || offset % page != iova % page {
        return Err(Errno::INVALID);
    }
    let end = offset.checked_add(length as u64).ok_or(Errno::INVALID)?;
    let file = File::new(file)?;
    if length == 0 || end > file.size {
        return Err(Errno::INVALID);
    }
    // As rdma-core: the address of the region is the offset.
    let address = std::ptr::without_provenance_mut(offset as usize);
    match file.map(offset, length, access) {
        Ok((pages, extent)) => {
            let region =
                memory_region::add(domain, address, extent, iova, access, RegionKind::Memory)?;
            region_at(region)?.keep(pages);
            Ok(region)
        }
        Err(Errno::NO_MEMORY) => Err(Errno::NO_MEMORY),
        Err(errno) => {
            let there = (iova, length as u64);
            let memory = gpu_memory::extent_at(&domain.open.driver, there, access, Err(errno))?;
            let extent = memory.ok_or(Errno::UNSUPPORTED)?;
            memory_region::add(domain, address, extent, iova, access, RegionKind::Memory)
        }
    }
}

/// A DMA-buf. Shared memory of the system (`memfd_create`) is accepted as well: `udmabuf` makes DMA-bufs of it.
struct File {
    descriptor: RawFd,
    size: u64,
    /// The size of its pages, which may be huge ones.
    page: usize,
    is_dma_buf: bool,
}

impl File {
    fn new(descriptor: RawFd) -> Result<Self, Errno> {
        /// `DMA_BUF_MAGIC` of `linux/magic.h`.
        const DMA_BUF: u64 = 0x444d_4142;
        const SHARED: [u64; 2] = [libc::TMPFS_MAGIC as u64, libc::HUGETLBFS_MAGIC as u64];
        // SAFETY: a structure of numbers.
        let mut kind: libc::statfs = unsafe { std::mem::zeroed() };
        // SAFETY: the kernel writes the structure.
        if unsafe { libc::fstatfs(descriptor, &raw mut kind) } != 0 {
            return Err(Errno::last());
        }
        // The types differ between C libraries.
        let (page, kind) = (kind.f_bsize as usize, kind.f_type as u64);
        if kind == DMA_BUF {
            // SAFETY: takes no pointers. A DMA-buf has no position; the kernel answers with its size.
            let size = unsafe { libc::lseek(descriptor, 0, libc::SEEK_END) };
            let size = u64::try_from(size).map_err(|_| Errno::last())?;
            return Ok(Self {
                descriptor,
                size,
                page: mapped_pages::page_size(),
                is_dma_buf: true,
            });
        }
        if !SHARED.contains(&kind) {
            return Err(Errno::INVALID);
        }
        // SAFETY: a structure of numbers.
        let mut state: libc::stat = unsafe { std::mem::zeroed() };
        // SAFETY: the kernel writes the structure.
        if unsafe { libc::fstat(descriptor, &raw mut state) } != 0 {
            return Err(Errno::last());
        }
        let size = u64::try_from(state.st_size).map_err(|_| Errno::INVALID)?;
        Ok(Self {
            descriptor,
            size,
            page,
            is_dma_buf: false,
        })
    }

    /// Maps a part of it. The pages must outlive the use of the extent.
    fn map(&self, offset: u64, length: usize, access: Access) -> Result<(Pages, Extent), Errno> {
        let into_page = offset as usize % self.page;
        let first = i64::try_from(offset - into_page as u64).map_err(|_| Errno::INVALID)?;
        let writable = access.contains(Access::LOCAL_WRITE);
        let whole = (into_page + length).next_multiple_of(self.page);
        let pages = Pages::of_file(self.descriptor, first, whole, writable)?;
        let start = pages.start().wrapping_byte_add(into_page);
        // A DMA-buf has all its pages, and the kernel can't fault those in that are no memory of its own.
        if !self.is_dma_buf {
            mapped_pages::check(start.addr(), length, access)?;
        }
        let start = NonNull::new(start.cast()).ok_or(Errno::FAULT)?;
        let extent = memory_region::program_extent(start, length as u64, access);
        Ok((pages, extent))
    }
}
