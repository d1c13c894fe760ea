//! Conversion of socket addresses between C and Rust.

use std::ffi::c_void;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};

use libc::{AF_INET, AF_INET6, sockaddr, sockaddr_in, sockaddr_in6, sockaddr_storage};

use crate::errno::Errno;

/// The address that C points to; `None` for a null pointer.
pub(crate) fn optional(pointer: *const sockaddr) -> Result<Option<SocketAddr>, Errno> {
    if pointer.is_null() {
        Ok(None)
    } else {
        given(pointer).map(Some)
    }
}

/// The address that C points to. InfiniBand addresses (`AF_IB`) do not exist on Ethernet.
pub(crate) fn given(pointer: *const sockaddr) -> Result<SocketAddr, Errno> {
    if pointer.is_null() {
        return Err(Errno::INVALID);
    }
    // SAFETY: every address begins with its family, in two bytes.
    let family = unsafe { pointer.cast::<libc::sa_family_t>().read_unaligned() };
    match i32::from(family) {
        AF_INET => {
            // SAFETY: the family says that it is an address of this type.
            let it = unsafe { pointer.cast::<sockaddr_in>().read_unaligned() };
            let ip = Ipv4Addr::from(u32::from_be(it.sin_addr.s_addr));
            Ok(SocketAddr::new(ip.into(), u16::from_be(it.sin_port)))
        }
        AF_INET6 => {
            // SAFETY: as above.
            let it = unsafe { pointer.cast::<sockaddr_in6>().read_unaligned() };
            let ip = Ipv6Addr::from(it.sin6_addr.s6_addr);
            let port = u16::from_be(it.sin6_port);
            let flow = u32::from_be(it.sin6_flowinfo);
            Ok(SocketAddrV6::new(ip, port, flow, it.sin6_scope_id).into())
        }
        _ => Err(Errno::INVALID),
    }
}

/// Converts an address to a `sockaddr_storage`.
pub(crate) fn stored(address: SocketAddr) -> sockaddr_storage {
    // SAFETY: it consists of integers, for which zero is valid.
    let mut storage: sockaddr_storage = unsafe { std::mem::zeroed() };
    let start = &raw mut storage;
    match address {
        SocketAddr::V4(v4) => {
            // SAFETY: as above.
            let mut it: sockaddr_in = unsafe { std::mem::zeroed() };
            it.sin_family = AF_INET as u16;
            it.sin_port = v4.port().to_be();
            it.sin_addr.s_addr = u32::from(*v4.ip()).to_be();
            // SAFETY: the storage has size and alignment for every type of address.
            unsafe { start.cast::<sockaddr_in>().write(it) };
        }
        SocketAddr::V6(v6) => {
            // SAFETY: as above.
            let mut it: sockaddr_in6 = unsafe { std::mem::zeroed() };
            it.sin6_family = AF_INET6 as u16;
            it.sin6_port = v6.port().to_be();
            it.sin6_flowinfo = v6.flowinfo().to_be();
            it.sin6_addr.s6_addr = v6.ip().octets();
            it.sin6_scope_id = v6.scope_id();
            // SAFETY: as above.
            unsafe { start.cast::<sockaddr_in6>().write(it) };
        }
    }
    storage
}

/// The length of the C structure of an address.
pub(crate) fn length(address: &SocketAddr) -> usize {
    match address {
        SocketAddr::V4(_) => size_of::<sockaddr_in>(),
        SocketAddr::V6(_) => size_of::<sockaddr_in6>(),
    }
}

/// The address in a storage; `None` if there is none.
pub(crate) fn found(storage: &sockaddr_storage) -> Option<SocketAddr> {
    given(std::ptr::from_ref(storage).cast()).ok()
}

/// The address without its port.
pub(crate) fn ip_of(pointer: *const sockaddr) -> Result<IpAddr, Errno> {
    Ok(given(pointer)?.ip())
}

/// A copy of the bytes that C names by start and length.
pub(crate) fn bytes_at(start: *const c_void, length: usize) -> Vec<u8> {
    if start.is_null() || length == 0 {
        return Vec::new();
    }
    // SAFETY: the program says that it has `length` bytes there.
    unsafe { std::slice::from_raw_parts(start.cast::<u8>(), length) }.to_vec()
}
