//! Memory regions.

use std::ffi::{c_int, c_void};
use std::ptr::NonNull;
use std::sync::{Arc, OnceLock};

use driver::{Driver, Misuse};
use engine::{Access, Extent, Registration};
use wire::Key;

use super::alloc_buf::{Buffer, DmaHandle, Pages};
use super::context::OpenDevice;
use super::protection_domain::Pd;
use super::{dma_buf, fault_handler, gpu_memory, mapped_pages, program_memory};
use crate::abi;
use crate::entry::{Output, Pointer, entry};
use crate::errno::Errno;
use crate::object::{Object, from_pointer, object_at};

/// A memory region.
pub(crate) type Mr = Object<abi::ibv_mr, Region>;

from_pointer!(abi::ibv_mr => Mr);

pub(crate) struct Region {
    pub(crate) open: Arc<OpenDevice>,
    pub(crate) registration: Registration,
    kind: RegionKind,
    /// Keeps the hints that it was registered with.
    hints: OnceLock<Arc<()>>,
    /// The pages of a DMA-buf.
    mapping: OnceLock<Pages>,
}

/// What a region stands for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum RegionKind {
    /// Memory that can be exchanged (`ibv_rereg_mr`).
    Memory,
    /// Device memory.
    Device,
    /// No memory at all.
    Null,
    /// A region of another handle.
    Imported,
}

entry! {
    export fn ibv_reg_mr(
        domain: &Pd,
        address: *mut c_void,
        length: usize,
        access: c_int,
    ) -> *mut abi::ibv_mr {
        register(domain, address, length, address.addr() as u64, access.cast_unsigned())
    }

    export fn ibv_reg_mr_iova(
        domain: &Pd,
        address: *mut c_void,
        length: usize,
        iova: u64,
        access: c_int,
    ) -> *mut abi::ibv_mr {
        register(domain, address, length, iova, access.cast_unsigned())
    }

    export fn ibv_reg_mr_iova2(
        domain: &Pd,
        address: *mut c_void,
        length: usize,
        iova: u64,
        access: u32,
    ) -> *mut abi::ibv_mr {
        register(domain, address, length, iova, access)
    }

    export fn ibv_reg_mr_ex(domain: &Pd, init: Output<abi::ibv_mr_init_attr>) -> *mut abi::ibv_mr {
        let at = init.pointer();
        let init = init.get();
        let asks = |mask| init.comp_mask & mask != 0;
        if asks(!abi::IBV_REG_MR_MASK_ALL) {
            return Err(Errno::UNSUPPORTED);
        }
        if asks(abi::IBV_REG_MR_MASK_BUF) {
            if asks(abi::IBV_REG_MR_MASK_FD | abi::IBV_REG_MR_MASK_FD_OFFSET) {
                return Err(Errno::INVALID);
            }
            buffer_of(at)?.check(domain, init.addr, init.length)?;
        }
        let is_dma_buf = asks(abi::IBV_REG_MR_MASK_FD);
        if is_dma_buf == asks(abi::IBV_REG_MR_MASK_ADDR)
            || asks(abi::IBV_REG_MR_MASK_FD_OFFSET) && !is_dma_buf
        {
            return Err(Errno::INVALID);
        }
        let hints = if asks(abi::IBV_REG_MR_MASK_DMAH) {
            Some(object_at::<&DmaHandle, _>(init.dmah)?)
        } else {
            None
        };
        // As in the kernel: hints are for pinned memory.
        if hints.is_some() && access_of(init.access.cast_unsigned())?.contains(Access::ON_DEMAND) {
            return Err(Errno::UNSUPPORTED);
        }
        let iova = if asks(abi::IBV_REG_MR_MASK_IOVA) {
            init.iova
        } else {
            init.addr.addr() as u64
        };
        let access = init.access.cast_unsigned();
        let region = if is_dma_buf {
            let offset = if asks(abi::IBV_REG_MR_MASK_FD_OFFSET) { init.fd_offset } else { 0 };
            dma_buf::register(domain, offset, init.length, iova, init.fd, access)?
        } else {
            register(domain, init.addr, init.length, iova, access)?
        };
        if let Some(hints) = hints {
            region_at(region)?.hints.get_or_init(|| Arc::clone(&hints.0));
        }
        Ok(region)
    }

    export fn ibv_reg_buf_mr(
        domain: &Pd,
        buffer: &Buffer,
        address: *mut c_void,
        length: usize,
        access: c_int,
    ) -> *mut abi::ibv_mr {
        buffer.check(domain, address, length)?;
        register(domain, address, length, address.addr() as u64, access.cast_unsigned())
    }

    export fn ibv_rereg_mr(
        region: &Mr,
        flags: c_int,
        domain: Option<&Pd>,
        address: *mut c_void,
        length: usize,
        access: c_int,
    ) -> c_int {
        // Not an error number: it says whether the library or the device found the error.
        let sets_access = flags & abi::IBV_REREG_MR_CHANGE_ACCESS != 0;
        if region.kind != RegionKind::Memory
            || access != 0 && !sets_access
            || !is_valid_reregistration(flags, domain, address, length)
        {
            Errno::INVALID.set();
            return Ok(abi::IBV_REREG_MR_ERR_INPUT);
        }
        Ok(match reregister(region, flags, domain, address, length, access.cast_unsigned()) {
            Ok(()) => 0,
            Err(errno) => {
                errno.set();
                abi::IBV_REREG_MR_ERR_CMD
            }
        })
    }

    export fn ibv_dereg_mr(region: &Mr) -> c_int {
        region.check_handle()?;
        let key = region.registration.local_key;
        region.open.driver.call_without_transmit(|device| device.deregister(key))?;
        region.open.objects().regions.remove(&region.read().handle);
        region.destroy();
        Ok(0)
    }

    export fn ibv_import_mr(domain: &Pd, handle: u32) -> *mut abi::ibv_mr {
        domain.check_handle()?;
        let registration = domain.open.objects().regions.get(&handle).copied();
        let registration = registration.ok_or(Errno::NO_ENTRY)?;
        Ok(new_handle(domain, std::ptr::null_mut(), handle, registration, RegionKind::Imported))
    }

    export fn ibv_unimport_mr(region: &Mr) {
        if region.kind == RegionKind::Imported {
            region.destroy();
        }
        Ok(())
    }

    op fn alloc_null_mr(domain: &Pd) -> *mut abi::ibv_mr {
        let extent = Extent::discarding(u64::MAX);
        let kind = RegionKind::Null;
        add(domain, std::ptr::null_mut(), extent, 0, Access::LOCAL_WRITE, kind)
    }

    op fn advise_mr(
        domain: &Pd,
        advice: u32,
        flags: u32,
        segments: Pointer<abi::ibv_sge>,
        count: u32,
    ) -> c_int {
        if flags & !abi::IBV_ADVISE_MR_FLAG_FLUSH != 0 || count == 0 || segments.0.is_null() {
            return Err(Errno::INVALID);
        }
        if advice > abi::IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT {
            return Err(Errno::UNSUPPORTED);
        }
        // SAFETY: not null, so by the header's promise `count` segments.
        let segments = unsafe { std::slice::from_raw_parts(segments.0, count as usize) };
        advise(domain, advice, segments)
    }
}

/// The buffer of `ibv_reg_mr_ex`.
fn buffer_of<'a>(init: *mut abi::ibv_mr_init_attr) -> Result<&'a Buffer, Errno> {
    let init = init.cast::<abi::ibv_mr_init_attr_with_buf>();
    // SAFETY: a program that sets the bit for this field has a structure with the field.
    object_at(unsafe { (*init).buf })
}

pub(super) fn register(
    domain: &Pd,
    address: *mut c_void,
    length: usize,
    iova: u64,
    access: u32,
) -> Result<*mut abi::ibv_mr, Errno> {
    domain.open.check_not_inherited()?;
    let access = access_of(access)?;
    // As in the kernel: devices translate whole pages.
    let page = mapped_pages::page_size() as u64;
    if address.addr() as u64 % page != iova % page {
        return Err(Errno::INVALID);
    }
    let (extent, iova) = extent(&domain.open.driver, address, length, iova, access)?;
    add(domain, address, extent, iova, access, RegionKind::Memory)
}

/// Registers memory and creates its region for C.
pub(super) fn add(
    domain: &Pd,
    address: *mut c_void,
    extent: Extent,
    iova: u64,
    access: Access,
    kind: RegionKind,
) -> Result<*mut abi::ibv_mr, Errno> {
    domain.check_handle()?;
    let registration = domain
        .open
        .driver
        .call_without_transmit(|device| device.register(domain.id, extent, iova, access))?;
    let handle = domain.open.handle();
    domain.open.objects().regions.insert(handle, registration);
    Ok(new_handle(domain, address, handle, registration, kind))
}

fn new_handle(
    domain: &Pd,
    address: *mut c_void,
    handle: u32,
    registration: Registration,
    kind: RegionKind,
) -> *mut abi::ibv_mr {
    let c_part = abi::ibv_mr {
        context: domain.read().context,
        pd: domain.c(),
        addr: address,
        length: registration.length as usize,
        handle,
        lkey: registration.local_key.value(),
        rkey: registration.remote_key.value(),
    };
    let region = Region {
        open: Arc::clone(&domain.open),
        registration,
        kind,
        hints: OnceLock::new(),
        mapping: OnceLock::new(),
    };
    Mr::new_pointer(c_part, region)
}

/// Converts access flags. Unknown bits are ignored in the optional range.
pub(super) fn access_of(flags: u32) -> Result<Access, Errno> {
    let required = flags & !abi::IBV_ACCESS_OPTIONAL_RANGE;
    let known = Access::from_bits(required).ok_or(Errno::INVALID)?;
    Ok(known | Access::from_bits_truncate(flags))
}

/// The extent of the program's memory, and the address of its first byte in requests (IOVA).
pub(crate) fn extent(
    driver: &Driver,
    address: *mut c_void,
    length: usize,
    iova: u64,
    access: Access,
) -> Result<(Extent, u64), Errno> {
    let on_demand = access.contains(Access::ON_DEMAND);
    let everything = on_demand && address.is_null() && length == usize::MAX;
    // The whole address space from address 1 on; address 0 is never mapped.
    let (start, length, iova) = if everything {
        (NonNull::dangling(), u64::MAX - 1, 1)
    } else {
        let start = NonNull::new(address.cast::<u8>()).ok_or(Errno::FAULT)?;
        (start, length as u64, iova)
    };
    if !everything {
        let checked = mapped_pages::check(address.addr(), length as usize, access);
        let place = (address.addr() as u64, length);
        if let Some(extent) = gpu_memory::extent_at(driver, place, access, checked)? {
            return Ok((extent, iova));
        }
        checked.inspect_err(|&errno| {
            if errno == Errno::FAULT {
                let misuse = Misuse::UnmappedMemory {
                    address: address.addr(),
                    length: length as usize,
                    writing: access.contains(Access::LOCAL_WRITE),
                };
                driver.report_misuse(None, misuse);
            }
        })?;
    }
    Ok((program_extent(start, length, access), iova))
}

/// The extent of memory that the processor can access.
pub(super) fn program_extent(start: NonNull<u8>, length: u64, access: Access) -> Extent {
    fault_handler::install();
    let access = if access.contains(Access::ON_DEMAND) {
        &program_memory::ON_DEMAND
    } else {
        &program_memory::PINNED
    };
    // SAFETY: those functions detect unmapped memory. It is memory of C: there are no Rust references to it.
    unsafe { Extent::program_memory(start, length, access) }
}

/// Whether the arguments of a reregistration are valid.
fn is_valid_reregistration(
    flags: c_int,
    domain: Option<&Pd>,
    address: *mut c_void,
    length: usize,
) -> bool {
    const ALL: c_int = abi::IBV_REREG_MR_CHANGE_TRANSLATION
        | abi::IBV_REREG_MR_CHANGE_PD
        | abi::IBV_REREG_MR_CHANGE_ACCESS;
    let moves = flags & abi::IBV_REREG_MR_CHANGE_TRANSLATION != 0;
    let changes_domain = flags & abi::IBV_REREG_MR_CHANGE_PD != 0;
    flags & !ALL == 0
        && (!moves || (length != 0 && !address.is_null()))
        && (!changes_domain || domain.is_some())
}

fn reregister(
    region: &Mr,
    flags: c_int,
    domain: Option<&Pd>,
    address: *mut c_void,
    length: usize,
    access: u32,
) -> Result<(), Errno> {
    if flags == 0 {
        return Err(Errno::INVALID);
    }
    region.check_handle()?;
    let asks = |flag| flags & flag != 0;
    let access = if asks(abi::IBV_REREG_MR_CHANGE_ACCESS) {
        Some(access_of(access)?)
    } else {
        None
    };
    let domain = if asks(abi::IBV_REREG_MR_CHANGE_PD) {
        let domain = domain.ok_or(Errno::INVALID)?;
        domain.check_handle()?;
        Some(domain)
    } else {
        None
    };
    let driver = &region.open.driver;
    let key = region.registration.local_key;
    let translation = if asks(abi::IBV_REREG_MR_CHANGE_TRANSLATION) {
        let present = driver.call_without_transmit(|device| device.region(key));
        let present = present.ok_or(Errno::INVALID)?;
        // The new memory needs the rights that the region has from now on.
        let rights = access.unwrap_or(present.access);
        let iova = address.addr() as u64;
        Some(extent(driver, address, length, iova, rights)?)
    } else {
        None
    };
    let moved = translation.is_some();
    let into = domain.map(|domain| domain.id);
    driver.call_without_transmit(|device| device.reregister(key, into, translation, access))?;
    let handle = region.read().handle;
    if moved && let Some(known) = region.open.objects().regions.get_mut(&handle) {
        known.address = address.addr() as u64;
        known.length = length as u64;
    }
    region.change(|c| {
        if moved {
            c.addr = address;
            c.length = length;
        }
        if let Some(domain) = domain {
            c.pd = domain.c();
        }
    });
    Ok(())
}

impl Region {
    /// Keeps pages mapped until it is deregistered.
    pub(super) fn keep(&self, pages: Pages) {
        self.mapping.get_or_init(|| pages);
    }
}

/// Makes pages present, as asked; an access would do the same.
fn advise(domain: &Pd, advice: u32, segments: &[abi::ibv_sge]) -> Result<c_int, Errno> {
    for segment in segments {
        advise_segment(domain, advice, segment)?;
    }
    Ok(0)
}

/// Its errors are those of the kernel's mlx5 driver.
fn advise_segment(domain: &Pd, advice: u32, segment: &abi::ibv_sge) -> Result<(), Errno> {
    let key = Key::new(segment.lkey);
    let driver = &domain.open.driver;
    let region = driver.call_without_transmit(|device| device.region(key));
    let region = region.ok_or(Errno::NO_ENTRY)?;
    let writes = advice == abi::IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE;
    let may_write = region.access.contains(Access::LOCAL_WRITE);
    if region.domain != domain.id || writes && !may_write {
        return Err(Errno::NOT_PERMITTED);
    }
    let offset = segment.addr.checked_sub(region.address);
    let offset = offset.ok_or(Errno::FAULT)?;
    let end = offset.checked_add(u64::from(segment.length));
    if end.is_none_or(|end| end > region.length) {
        return Err(Errno::FAULT);
    }
    let length = segment.length as usize;
    match region.memory {
        Some(memory) if advice != abi::IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT => {
            let start = (memory + offset) as usize;
            mapped_pages::are_present(start, length, writes)
                .then_some(())
                .ok_or(Errno::FAULT)
        }
        _ => Ok(()),
    }
}

/// The region at a pointer.
pub(super) fn region_at<'a>(pointer: *mut abi::ibv_mr) -> Result<&'a Mr, Errno> {
    object_at(pointer)
}
