//! Maps network interfaces to devices, without any configuration.
//!
//! Every interface that is up and has an address is a device. Its name is `roci_` and the name of
//! the interface, its addresses are its GIDs, and its path MTU is the largest that fits. Loopback
//! is listed only if packets can't leave the machine from any other interface: a program that
//! chooses by itself would take it and wait for peers that can't reach it. Loopback is still
//! [`reachable`] by its name and its addresses.
//!
//! `ROCI_DEVICES` replaces the automatic devices by a list:
//!
//! ```text
//! eth0                            one device, roci_eth0
//! rxe0=eth0,lo                    two: rxe0 and roci_lo
//! mlx5_0=127.0.0.2,b=127.0.0.3    two hosts on one machine
//! a=127.0.0.4+::1                 one device with two addresses
//! ```
//!
//! An entry is an interface, or addresses joined by `+`, with an optional device name and `=`
//! before it. All of 127.0.0.0/8 exists on every machine, so one machine can simulate many hosts.
//! The word `software` stands for the automatic devices. `system` and `system:NAME` are RDMA devices of
//! the system, which this crate does not know: see [`Choice`].
//!
//! [`Links`] are named devices that a user has added permanently. They are listed before the
//! automatic devices, which do not get their addresses.

mod choice;
mod device;
mod device_list;
mod error;
mod gid;
mod link;
mod link_file;
mod loopback_use;
mod monitor;
mod neighbour;
mod netlink;
mod path_mtu;
mod select_devices;

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

use socket2::{Domain, Protocol, Socket, Type};

use crate::restrictions::{self, Restriction};
use crate::sys;

pub use choice::{Choice, SoftwareChoice, SystemChoice};
pub use device::{Device, DeviceKind, LinkState};
pub use error::DeviceError;
pub use gid::{GidEntry, InterfaceId};
pub use link::Link;
pub use link_file::Links;
pub use loopback_use::{LoopbackUse, loopback_use};
pub use monitor::Monitor;
pub use neighbour::{Neighbour, neighbour};
pub use path_mtu::path_mtu;
pub use select_devices::{select, select_reachable};

/// The environment variable that lists the devices.
pub const DEVICES_VARIABLE: &str = "ROCI_DEVICES";

/// A network interface as the kernel describes it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Interface {
    /// Its name.
    pub name: String,
    /// Its index, which is also the scope of its link-local IPv6 addresses.
    pub index: u32,
    /// The length in bytes of the longest IP packet that it carries.
    pub mtu: u32,
    /// Whether it is administratively up.
    pub up: bool,
    /// Whether it has a carrier.
    pub carrier: bool,
    /// Whether it is the loopback interface.
    pub loopback: bool,
    /// Its Ethernet address, if it has one.
    pub mac: Option<[u8; 6]>,
    /// Its usable addresses, in the kernel's order.
    pub addresses: Vec<Address>,
}

/// An address of an interface.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Address {
    /// The address.
    pub ip: IpAddr,
    /// The length of its network prefix in bits.
    pub prefix: u8,
}

/// The interfaces of this machine, in the kernel's order. IPv6 addresses are left out if [no IPv6
/// socket can be opened](ipv6_is_forbidden).
pub fn interfaces() -> Result<Vec<Interface>, DeviceError> {
    let listed = netlink::interfaces().map_err(|error| DeviceError::Unknown { error });
    let mut interfaces = listed?;
    if has_ipv6(&interfaces) && ipv6_is_forbidden() {
        restrictions::report(Restriction::Ipv6);
        for interface in &mut interfaces {
            interface.addresses.retain(|address| address.ip.is_ipv4());
        }
    }
    Ok(interfaces)
}

/// Whether IPv6 addresses are left out.
pub(crate) fn drops_ipv6_addresses() -> bool {
    netlink::interfaces().is_ok_and(|interfaces| has_ipv6(&interfaces)) && ipv6_is_forbidden()
}

fn has_ipv6(interfaces: &[Interface]) -> bool {
    let mut addresses = interfaces.iter().flat_map(|interface| &interface.addresses);
    addresses.any(|address| address.ip.is_ipv6())
}

/// Whether the system rejects IPv6 sockets, as a container's system call filter may.
pub fn ipv6_is_forbidden() -> bool {
    let socket = Socket::new(Domain::IPV6, Type::DGRAM.cloexec(), Some(Protocol::UDP));
    socket.is_err_and(|error| sys::is_forbidden(&error))
}

/// The devices of this machine: those that `spec` lists, or the user's links and every usable
/// interface. The syntax of `spec` is described [above](self).
pub fn devices(spec: Option<&str>) -> Result<Vec<Device>, DeviceError> {
    chosen(Choice::parse(spec)?, select)
}

/// The devices that the environment asks for. If it lists none and loopback was left out, loopback
/// follows them: no program chooses it, but its name and its addresses can be used.
pub fn reachable() -> Result<Vec<Device>, DeviceError> {
    chosen(Choice::from_env()?, select_reachable)
}

/// How devices are selected from interfaces, links and a list.
type Select = fn(&[Interface], &[Link], Option<&str>) -> Result<Vec<Device>, DeviceError>;

fn chosen(choice: Choice, select: Select) -> Result<Vec<Device>, DeviceError> {
    match choice.software {
        SoftwareChoice::Automatic => {
            let links = Links::of_user().map_or_else(|| Ok(Vec::new()), |links| links.list())?;
            select(&interfaces()?, &links, None)
        }
        SoftwareChoice::Listed(list) => select(&interfaces()?, &[], Some(&list)),
        SoftwareChoice::None => Ok(Vec::new()),
    }
}

/// The devices that the environment asks for, see [`DEVICES_VARIABLE`].
pub fn from_env() -> Result<Vec<Device>, DeviceError> {
    chosen(Choice::from_env()?, select)
}

/// The list of devices in the environment; `None` if there is none, or if it asks for the automatic devices.
pub fn listed_by_env() -> Option<String> {
    let spec = choice::spec_of_env()?;
    match Choice::parse(Some(&spec)) {
        Ok(choice) if choice.software == SoftwareChoice::Automatic => None,
        _ => Some(spec),
    }
}

/// The local address from which the kernel would send to a peer.
pub fn source_towards(peer: SocketAddr) -> io::Result<IpAddr> {
    let any: IpAddr = match peer {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    // Connecting a datagram socket sends nothing, but selects a route.
    let socket = UdpSocket::bind((any, 0))?;
    socket.connect(peer)?;
    Ok(socket.local_addr()?.ip())
}

/// Whether packets from a local address can go to a peer. From a loopback address they can't leave this machine.
#[must_use]
pub fn can_reach(own: IpAddr, peer: SocketAddr) -> bool {
    // As above: the kernel refuses a route that its packets could not take.
    let has_route = || UdpSocket::bind((own, 0)).and_then(|socket| socket.connect(peer));
    !own.is_loopback() || peer.ip().is_loopback() || has_route().is_ok()
}

/// Whether this machine has an address, on whatever interface.
#[must_use]
pub fn is_own(address: IpAddr) -> bool {
    UdpSocket::bind((address, 0)).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::seccomp::{Forbidden, forbid};

    #[test]
    fn without_ipv6_sockets_there_are_no_ipv6_addresses() {
        let lists = std::thread::spawn(|| {
            let before = ipv6_is_forbidden();
            forbid(Forbidden {
                call: libc::SYS_socket,
                argument: 0,
                value: libc::AF_INET6,
                errno: libc::EAFNOSUPPORT,
            });
            (before, ipv6_is_forbidden(), interfaces().expect("a list"))
        });
        let (before, after, interfaces) = lists.join().expect("no panic");
        assert!(after);
        let addresses = || interfaces.iter().flat_map(|interface| &interface.addresses);
        assert!(addresses().any(|address| address.ip.is_ipv4()));
        assert!(addresses().all(|address| address.ip.is_ipv4()), "{before}");
        let listed = netlink::interfaces().expect("a list");
        assert_eq!(
            restrictions::was_reported(Restriction::Ipv6),
            has_ipv6(&listed)
        );
    }
}
