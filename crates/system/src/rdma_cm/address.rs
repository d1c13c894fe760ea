//! Socket addresses as C has them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};

use libc::{sockaddr, sockaddr_in, sockaddr_in6, sockaddr_storage};

/// An address for a call of C.
#[derive(Clone, Copy)]
pub(super) enum CAddress {
    V4(sockaddr_in),
    V6(sockaddr_in6),
}

impl CAddress {
    pub(super) fn new(address: SocketAddr) -> Self {
        match address {
            SocketAddr::V4(address) => Self::V4(sockaddr_in {
                sin_family: libc::AF_INET as libc::sa_family_t,
                sin_port: address.port().to_be(),
                sin_addr: libc::in_addr {
                    s_addr: u32::from_ne_bytes(address.ip().octets()),
                },
                sin_zero: [0; 8],
            }),
            SocketAddr::V6(address) => Self::V6(sockaddr_in6 {
                sin6_family: libc::AF_INET6 as libc::sa_family_t,
                sin6_port: address.port().to_be(),
                sin6_flowinfo: address.flowinfo().to_be(),
                sin6_addr: libc::in6_addr {
                    s6_addr: address.ip().octets(),
                },
                sin6_scope_id: address.scope_id(),
            }),
        }
    }

    /// Its first byte. The family at its beginning says how long it is.
    pub(super) fn as_mut_ptr(&mut self) -> *mut sockaddr {
        match self {
            Self::V4(address) => (&raw mut *address).cast(),
            Self::V6(address) => (&raw mut *address).cast(),
        }
    }
}

/// The address in a storage; `None` if it has none, or one of another family.
pub(super) fn address_in(storage: &sockaddr_storage) -> Option<SocketAddr> {
    const _: () = assert!(size_of::<sockaddr_in6>() <= size_of::<sockaddr_storage>());
    let start = &raw const *storage;
    match i32::from(storage.ss_family) {
        libc::AF_INET => {
            // SAFETY: the storage is larger than this structure, aligned for it, and initialised; the structure consists of integers.
            let found = unsafe { start.cast::<sockaddr_in>().read() };
            let ip = Ipv4Addr::from(found.sin_addr.s_addr.to_ne_bytes());
            Some((IpAddr::V4(ip), u16::from_be(found.sin_port)).into())
        }
        libc::AF_INET6 => {
            // SAFETY: as for IPv4.
            let found = unsafe { start.cast::<sockaddr_in6>().read() };
            let (ip, port) = (
                Ipv6Addr::from(found.sin6_addr.s6_addr),
                u16::from_be(found.sin6_port),
            );
            let scope = found.sin6_scope_id;
            Some(SocketAddrV6::new(ip, port, u32::from_be(found.sin6_flowinfo), scope).into())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::mem;

    use super::*;

    #[test]
    fn addresses_survive_the_way_to_c_and_back() {
        for text in ["10.1.2.3:7174", "[fd00:211::2]:80", "[fe80::1%3]:9"] {
            let address: SocketAddr = text.parse().expect("an address");
            // SAFETY: a storage consists of integers.
            let mut storage: sockaddr_storage = unsafe { mem::zeroed() };
            match CAddress::new(address) {
                // SAFETY: the storage is larger than each of the structures, and aligned for them.
                CAddress::V4(found) => unsafe {
                    (&raw mut storage).cast::<sockaddr_in>().write(found);
                },
                // SAFETY: as above.
                CAddress::V6(found) => unsafe {
                    (&raw mut storage).cast::<sockaddr_in6>().write(found);
                },
            }
            assert_eq!(address_in(&storage), Some(address));
        }
        // SAFETY: a storage consists of integers.
        assert_eq!(address_in(&unsafe { mem::zeroed() }), None);
    }
}
