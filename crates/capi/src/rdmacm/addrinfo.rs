//! `rdma_getaddrinfo`: names of hosts and services.
//!
//! Everything here is allocated with `malloc`, because programs add parts of their own to the list before
//! they free it.

use std::ffi::{c_char, c_int, c_void};
use std::ptr;

use libc::{addrinfo, sockaddr, socklen_t};

use crate::abi;
use crate::entry::{MinusOne, Output, Pointer, entry};
use crate::errno::Errno;

type Found = Result<*mut abi::rdma_addrinfo, LookUpError>;

/// Why a lookup failed.
pub(super) enum LookUpError {
    /// The C library's `getaddrinfo` failed, with this `EAI_` code.
    Resolver(c_int),
    /// Anything else.
    Errno(Errno),
}

impl From<Errno> for LookUpError {
    fn from(errno: Errno) -> Self {
        Self::Errno(errno)
    }
}

entry! {
    export fn rdma_getaddrinfo(
        node: Pointer<c_char>,
        service: Pointer<c_char>,
        hints: Pointer<abi::rdma_addrinfo>,
        found: Output<*mut abi::rdma_addrinfo>,
    ) -> MinusOne {
        let mut found = found;
        check_administrator(node.0, service.0, hints.0)?;
        match look_up(node.0, service.0, hints.0) {
            Ok(list) => found.put(list),
            // Programs pass the result to `gai_strerror`.
            Err(LookUpError::Resolver(code)) => return Ok(MinusOne(code)),
            Err(LookUpError::Errno(errno)) => return Err(errno),
        }
        Ok(MinusOne::DONE)
    }

    export fn rdma_freeaddrinfo(list: Pointer<abi::rdma_addrinfo>) {
        free_list(list.0);
        Ok(())
    }
}

/// The result for `rdma_query_addrinfo`.
#[derive(Default)]
pub(super) struct ResolvedList(Option<AddrinfoList>);

struct AddrinfoList(*mut abi::rdma_addrinfo);

// SAFETY: a list has one owner, on any thread.
unsafe impl Send for AddrinfoList {}

impl ResolvedList {
    pub(super) fn is_some(&self) -> bool {
        self.0.is_some()
    }

    pub(super) fn replace(&mut self, list: *mut abi::rdma_addrinfo) {
        self.0 = Some(AddrinfoList(list));
    }

    pub(super) fn take(&mut self) -> Option<*mut abi::rdma_addrinfo> {
        let owned = self.0.take()?;
        let list = owned.0;
        std::mem::forget(owned);
        Some(list)
    }
}

impl Drop for AddrinfoList {
    fn drop(&mut self) {
        free_list(self.0);
    }
}

/// Fails for a question to the subnet administrator: Ethernet has none, so it knows no services.
fn check_administrator(
    node: *const c_char,
    service: *const c_char,
    hints: *const abi::rdma_addrinfo,
) -> Result<(), Errno> {
    // SAFETY: null, or by the header's promise a live structure.
    let flags = unsafe { hints.as_ref() }.map_or(0, |hints| hints.ai_flags);
    if flags & abi::RAI_SA == 0 {
        Ok(())
    } else if !node.is_null() || flags & abi::RAI_DNS != 0 {
        Err(Errno::UNSUPPORTED)
    } else if service.is_null() {
        Err(Errno::INVALID)
    } else {
        Err(Errno::NO_ENTRY)
    }
}

pub(super) fn look_up(
    node: *const c_char,
    service: *const c_char,
    hints: *const abi::rdma_addrinfo,
) -> Found {
    if node.is_null() && service.is_null() && hints.is_null() {
        return Err(Errno::INVALID.into());
    }
    // SAFETY: null, or by the header's promise a live structure.
    let hints = unsafe { hints.as_ref() };
    let list: *mut abi::rdma_addrinfo = allocate(size_of::<abi::rdma_addrinfo>())?.cast();
    // SAFETY: just allocated, zeroed, and not shared.
    let entry = unsafe { &mut *list };
    let filled = if node.is_null() && service.is_null() {
        repeat(entry, hints).map_err(LookUpError::from)
    } else {
        resolve(entry, node, service, hints)
    };
    let filled = filled.and_then(|()| Ok(add_source(entry, hints)?));
    filled.inspect_err(|_| free_list(list))?;
    Ok(list)
}

/// Without a name, the result is a copy of the hints.
fn repeat(entry: &mut abi::rdma_addrinfo, hints: Option<&abi::rdma_addrinfo>) -> Result<(), Errno> {
    let Some(hints) = hints else { return Ok(()) };
    entry.ai_flags = hints.ai_flags;
    entry.ai_family = hints.ai_family;
    entry.ai_qp_type = hints.ai_qp_type;
    entry.ai_port_space = hints.ai_port_space;
    if hints.ai_dst_len > 0 {
        entry.ai_dst_addr = copy(hints.ai_dst_addr, hints.ai_dst_len)?;
        entry.ai_dst_len = hints.ai_dst_len;
    }
    Ok(())
}

fn add_source(
    entry: &mut abi::rdma_addrinfo,
    hints: Option<&abi::rdma_addrinfo>,
) -> Result<(), Errno> {
    if let Some(hints) = hints.filter(|hints| hints.ai_src_len > 0)
        && entry.ai_src_len == 0
    {
        entry.ai_src_addr = copy(hints.ai_src_addr, hints.ai_src_len)?;
        entry.ai_src_len = hints.ai_src_len;
    }
    Ok(())
}

fn resolve(
    entry: &mut abi::rdma_addrinfo,
    node: *const c_char,
    service: *const c_char,
    hints: Option<&abi::rdma_addrinfo>,
) -> Result<(), LookUpError> {
    let native = hints.map(native_hints);
    let native = native.as_ref().map_or(ptr::null(), ptr::from_ref);
    let mut answer = ptr::null_mut();
    // SAFETY: strings or null as the program passed them, live hints or null, and a variable for the result.
    let rejected = unsafe { libc::getaddrinfo(node, service, native, &raw mut answer) };
    if rejected != 0 {
        return Err(LookUpError::Resolver(rejected));
    }
    // SAFETY: it succeeded, so there is at least one entry, alive until it is freed below.
    let filled = fill(entry, hints, unsafe { &*answer });
    // SAFETY: `getaddrinfo` gave it to us.
    unsafe { libc::freeaddrinfo(answer) };
    Ok(filled?)
}

fn native_hints(hints: &abi::rdma_addrinfo) -> addrinfo {
    // SAFETY: it consists of integers and pointers, for which zero is valid.
    let mut native: addrinfo = unsafe { std::mem::zeroed() };
    if hints.ai_flags & abi::RAI_PASSIVE != 0 {
        native.ai_flags |= libc::AI_PASSIVE;
    }
    if hints.ai_flags & abi::RAI_NUMERICHOST != 0 {
        native.ai_flags |= libc::AI_NUMERICHOST;
    }
    native.ai_family = hints.ai_family;
    let is_datagram = hints.ai_qp_type.cast_unsigned() == abi::IBV_QPT_UD;
    native.ai_socktype = match hints.ai_qp_type {
        0 => 0,
        _ if is_datagram => libc::SOCK_DGRAM,
        _ => libc::SOCK_STREAM,
    };
    native.ai_protocol = match hints.ai_port_space.cast_unsigned() {
        abi::RDMA_PS_TCP => libc::IPPROTO_TCP,
        abi::RDMA_PS_UDP => libc::IPPROTO_UDP,
        abi::RDMA_PS_IB if native.ai_socktype == libc::SOCK_STREAM => libc::IPPROTO_TCP,
        abi::RDMA_PS_IB if native.ai_socktype == libc::SOCK_DGRAM => libc::IPPROTO_UDP,
        _ => 0,
    };
    native
}

/// Uses the first result.
fn fill(
    entry: &mut abi::rdma_addrinfo,
    hints: Option<&abi::rdma_addrinfo>,
    answer: &addrinfo,
) -> Result<(), Errno> {
    let is_datagram = answer.ai_socktype == libc::SOCK_DGRAM;
    let (queue_pair, space) = if is_datagram {
        (abi::IBV_QPT_UD, abi::RDMA_PS_UDP)
    } else {
        (abi::IBV_QPT_RC, abi::RDMA_PS_TCP)
    };
    let or =
        |hint: Option<c_int>, usual: u32| hint.filter(|it| *it != 0).unwrap_or(usual.cast_signed());
    entry.ai_qp_type = or(hints.map(|it| it.ai_qp_type), queue_pair);
    entry.ai_port_space = or(hints.map(|it| it.ai_port_space), space);
    entry.ai_family = answer.ai_family;
    let address = copy(answer.ai_addr, answer.ai_addrlen)?;
    let name = copy_text(answer.ai_canonname);
    if hints.is_some_and(|hints| hints.ai_flags & abi::RAI_PASSIVE != 0) {
        entry.ai_flags = abi::RAI_PASSIVE;
        (entry.ai_src_addr, entry.ai_src_len) = (address, answer.ai_addrlen);
        entry.ai_src_canonname = name;
    } else {
        (entry.ai_dst_addr, entry.ai_dst_len) = (address, answer.ai_addrlen);
        entry.ai_dst_canonname = name;
    }
    Ok(())
}

fn copy(address: *const sockaddr, length: socklen_t) -> Result<*mut sockaddr, Errno> {
    let length = length as usize;
    let memory = allocate(length)?;
    if address.is_null() {
        return Ok(memory.cast());
    }
    // SAFETY: the address has this length, and the memory was just allocated with it.
    unsafe { ptr::copy_nonoverlapping(address.cast::<u8>(), memory.cast::<u8>(), length) };
    Ok(memory.cast())
}

fn copy_text(text: *const c_char) -> *mut c_char {
    if text.is_null() {
        ptr::null_mut()
    } else {
        // SAFETY: a string that ends with a zero.
        unsafe { libc::strdup(text) }
    }
}

fn allocate(length: usize) -> Result<*mut c_void, Errno> {
    // SAFETY: takes no pointers.
    let memory = unsafe { libc::calloc(1, length.max(1)) };
    if memory.is_null() {
        Err(Errno::NO_MEMORY)
    } else {
        Ok(memory)
    }
}

fn free_list(list: *mut abi::rdma_addrinfo) {
    let mut next = list;
    // SAFETY: null ends the list; before that, each entry was allocated by `look_up`, or by the program with
    // `malloc`.
    while let Some(entry) = unsafe { next.as_ref() } {
        let parts: [*mut c_void; 6] = [
            entry.ai_connect,
            entry.ai_route,
            entry.ai_src_canonname.cast(),
            entry.ai_dst_canonname.cast(),
            entry.ai_src_addr.cast(),
            entry.ai_dst_addr.cast(),
        ];
        let this = next;
        next = entry.ai_next;
        for part in parts {
            // SAFETY: null, or allocated with `malloc`.
            unsafe { libc::free(part) };
        }
        // SAFETY: as above; it is not used any more.
        unsafe { libc::free(this.cast()) };
    }
}
