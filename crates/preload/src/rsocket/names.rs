//! Addresses of sockets, as the program's family of sockets has them.

use std::ffi::c_int;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::ptr;

use libc::{sockaddr, sockaddr_in, sockaddr_in6, sockaddr_storage, socklen_t};

/// An address with its length.
pub(super) struct Name {
    storage: sockaddr_storage,
    pub(super) length: socklen_t,
}

impl Name {
    pub(super) fn empty() -> Self {
        Self {
            // SAFETY: numbers, for which zero is a value.
            storage: unsafe { std::mem::zeroed() },
            length: size_of::<sockaddr_storage>() as socklen_t,
        }
    }

    pub(super) fn of(address: SocketAddr) -> Self {
        let mut name = Self::empty();
        let start = &raw mut name.storage;
        match address {
            SocketAddr::V4(address) => {
                let known = sockaddr_in {
                    sin_family: libc::AF_INET as libc::sa_family_t,
                    sin_port: address.port().to_be(),
                    sin_addr: libc::in_addr {
                        s_addr: u32::from_ne_bytes(address.ip().octets()),
                    },
                    sin_zero: [0; 8],
                };
                // SAFETY: a storage is large enough and aligned for every address.
                unsafe { start.cast::<sockaddr_in>().write(known) };
                name.length = size_of::<sockaddr_in>() as socklen_t;
            }
            SocketAddr::V6(address) => {
                let known = sockaddr_in6 {
                    sin6_family: libc::AF_INET6 as libc::sa_family_t,
                    sin6_port: address.port().to_be(),
                    sin6_flowinfo: address.flowinfo(),
                    sin6_addr: libc::in6_addr {
                        s6_addr: address.ip().octets(),
                    },
                    sin6_scope_id: address.scope_id(),
                };
                // SAFETY: as above.
                unsafe { start.cast::<sockaddr_in6>().write(known) };
                name.length = size_of::<sockaddr_in6>() as socklen_t;
            }
        }
        name
    }

    /// The address that a program gives.
    ///
    /// # Safety
    /// The pointer is null, or that many bytes can be read there.
    pub(super) unsafe fn given(address: *const sockaddr, length: socklen_t) -> Self {
        let mut name = Self::empty();
        name.length = length.min(name.length);
        if !address.is_null() {
            let into = (&raw mut name.storage).cast::<u8>();
            // SAFETY: the caller's promise, and no more than a storage holds.
            unsafe { ptr::copy_nonoverlapping(address.cast(), into, name.length as usize) };
        }
        name
    }

    /// The address of IPv4 or IPv6.
    pub(super) fn address(&self) -> Option<SocketAddr> {
        let start = &raw const self.storage;
        match c_int::from(self.storage.ss_family) {
            libc::AF_INET if self.length as usize >= size_of::<sockaddr_in>() => {
                // SAFETY: a storage is large enough and aligned for every address.
                let known = unsafe { start.cast::<sockaddr_in>().read() };
                let ip = Ipv4Addr::from(known.sin_addr.s_addr.to_ne_bytes());
                Some(SocketAddrV4::new(ip, u16::from_be(known.sin_port)).into())
            }
            libc::AF_INET6 if self.length as usize >= size_of::<sockaddr_in6>() => {
                // SAFETY: as above.
                let known = unsafe { start.cast::<sockaddr_in6>().read() };
                let ip = Ipv6Addr::from(known.sin6_addr.s6_addr);
                let port = u16::from_be(known.sin6_port);
                Some(SocketAddrV6::new(ip, port, known.sin6_flowinfo, known.sin6_scope_id).into())
            }
            _ => None,
        }
    }

    pub(super) fn pointer(&self) -> *const sockaddr {
        (&raw const self.storage).cast()
    }

    pub(super) fn pointer_mut(&mut self) -> *mut sockaddr {
        (&raw mut self.storage).cast()
    }

    /// Writes the address as far as it fits, and its whole length, as `accept` does.
    ///
    /// # Safety
    /// The pointers are null, or those of a length and of that many bytes.
    pub(super) unsafe fn put(&self, output: *mut sockaddr, length: *mut socklen_t) {
        if output.is_null() || length.is_null() {
            return;
        }
        // SAFETY: the caller's promise.
        let room = unsafe { length.read() }.min(self.length);
        // SAFETY: as above, and no more than the address has.
        unsafe {
            ptr::copy_nonoverlapping(self.pointer().cast(), output.cast::<u8>(), room as usize);
        };
        // SAFETY: as above.
        unsafe { length.write(self.length) };
    }
}

/// The address as an rsocket takes it: an IPv4 address in IPv6 notation becomes IPv4.
pub(super) fn to_rdma(address: SocketAddr) -> SocketAddr {
    match address.ip() {
        IpAddr::V6(ip) => match ip.to_ipv4_mapped() {
            Some(ip) => SocketAddr::new(ip.into(), address.port()),
            None => address,
        },
        IpAddr::V4(_) => address,
    }
}

/// The address as a socket of this family has it.
pub(super) fn to_family(address: SocketAddr, family: c_int) -> SocketAddr {
    match address.ip() {
        IpAddr::V4(ip) if family == libc::AF_INET6 => {
            let ip = if ip.is_unspecified() {
                Ipv6Addr::UNSPECIFIED
            } else {
                ip.to_ipv6_mapped()
            };
            SocketAddr::new(ip.into(), address.port())
        }
        _ => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_read_as_it_was_written() {
        for text in ["127.0.0.2:80", "[fe80::1%3]:443", "[::]:0"] {
            let address: SocketAddr = text.parse().expect("an address");
            assert_eq!(Name::of(address).address(), Some(address));
        }
        assert_eq!(Name::empty().address(), None);
    }

    #[test]
    fn a_socket_of_ipv6_sees_ipv4_in_ipv6_notation() {
        let (plain, mapped): (SocketAddr, SocketAddr) = (
            "10.0.0.7:80".parse().expect("an address"),
            "[::ffff:10.0.0.7]:80".parse().expect("an address"),
        );
        assert_eq!(to_rdma(mapped), plain);
        assert_eq!(to_family(plain, libc::AF_INET6), mapped);
        assert_eq!(to_family(plain, libc::AF_INET), plain);
    }
}
