//! Reads the kernel's interfaces and addresses through a netlink socket.
//!
//! `getifaddrs` does the same, but leaves out the MTU and does not say which addresses cannot be
//! used yet; `/sys` may show the interfaces of another network namespace.

use std::collections::HashMap;
use std::io::{self, Read};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use socket2::{Domain, Protocol, Socket, Type};
use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::{Address, Interface};
use crate::sys::process::close;

/// `struct nlmsghdr`: the beginning of every message.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
struct Header {
    length: u32,
    kind: u16,
    flags: u16,
    sequence: u32,
    port: u32,
}
const _: () = assert!(size_of::<Header>() == 16);

/// `struct ifinfomsg`: an interface.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
struct LinkHeader {
    family: u8,
    pad: u8,
    kind: u16,
    index: u32,
    flags: u32,
    change: u32,
}
const _: () = assert!(size_of::<LinkHeader>() == 16);

/// `struct ifaddrmsg`: an address of an interface.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
struct AddressHeader {
    family: u8,
    prefix: u8,
    flags: u8,
    scope: u8,
    index: u32,
}
const _: () = assert!(size_of::<AddressHeader>() == 8);

/// `struct tcmsg`: a queueing discipline of an interface.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
struct DisciplineHeader {
    family: u32,
    index: u32,
    handle: u32,
    parent: u32,
    info: u32,
}
const _: () = assert!(size_of::<DisciplineHeader>() == 20);

/// `struct rtmsg`: a route.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
struct RouteHeader {
    family: u8,
    destination_length: u8,
    source_length: u8,
    traffic_class: u8,
    table: u8,
    protocol: u8,
    scope: u8,
    kind: u8,
    flags: u32,
}
const _: () = assert!(size_of::<RouteHeader>() == 12);

/// `struct ndmsg`: an entry of the neighbour table.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
struct NeighbourHeader {
    family: u8,
    pad: [u8; 3],
    index: u32,
    state: u16,
    flags: u8,
    kind: u8,
}
const _: () = assert!(size_of::<NeighbourHeader>() == 12);

/// `struct rtattr`: a value after one of the above.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
struct AttributeHeader {
    length: u16,
    kind: u16,
}
const _: () = assert!(size_of::<AttributeHeader>() == 4);

/// The size of the receive buffer in bytes: longer than any datagram of a list.
const LONGEST_ANSWER: usize = 64 * 1024;

/// The same for the answer to a question about one route or neighbour.
const LONGEST_SINGLE_ANSWER: usize = 4 * 1024;

/// How often a list is requested: interfaces that are added or removed meanwhile make it invalid.
const ATTEMPTS: usize = 5;

/// A socket for questions to the kernel about interfaces and addresses.
pub(super) fn route_socket() -> io::Result<Socket> {
    Socket::new(
        Domain::from(libc::AF_NETLINK),
        Type::RAW,
        Some(Protocol::from(libc::NETLINK_ROUTE)),
    )
}

pub(super) fn interfaces() -> io::Result<Vec<Interface>> {
    let socket = route_socket()?;
    let links = list_links(&socket)?;
    let addresses = list(&socket, libc::RTM_GETADDR, &[0; size_of::<AddressHeader>()])?;
    Ok(joined(&links, &addresses))
}

pub(super) fn list_links(socket: &Socket) -> io::Result<Vec<Vec<u8>>> {
    list(socket, libc::RTM_GETLINK, &[0; size_of::<LinkHeader>()])
}

/// The index of the interface and the kind of every queueing discipline that is not built in.
pub(super) fn queueing_disciplines() -> io::Result<Vec<(u32, String)>> {
    let request = [0; size_of::<DisciplineHeader>()];
    let socket = route_socket()?;
    let messages = list(&socket, libc::RTM_GETQDISC, &request);
    close_socket(socket);
    Ok(messages?
        .iter()
        .filter_map(|message| discipline(message))
        .collect())
}

/// Closes the socket of a question that a thread of the device asks while the program runs. Programs may close
/// descriptors that are not their own.
pub(super) fn close_socket(socket: Socket) {
    close(socket.into());
}

/// A route to a peer on another machine.
pub(super) struct Route {
    pub(super) interface: u32,
    /// The bytes of the gateway's address.
    pub(super) gateway: Option<Vec<u8>>,
}

/// The route from a local address to a peer, by an interface unless that is 0. `None` if no single machine is at its end,
/// or this one.
pub(super) fn route(
    socket: &Socket,
    source: IpAddr,
    peer: IpAddr,
    interface: u32,
) -> io::Result<Option<Route>> {
    let (peer, source) = (address_bytes(peer), address_bytes(source));
    let bits = (8 * peer.len()) as u8;
    let header = RouteHeader {
        family: family(&peer),
        destination_length: bits,
        source_length: bits,
        traffic_class: 0,
        table: 0,
        protocol: 0,
        scope: 0,
        kind: 0,
        flags: 0,
    };
    let mut request = header.as_bytes().to_vec();
    push_attribute(&mut request, libc::RTA_DST, &peer);
    push_attribute(&mut request, libc::RTA_SRC, &source);
    if interface != 0 {
        push_attribute(&mut request, libc::RTA_OIF, &interface.to_ne_bytes());
    }
    let answer = ask(socket, libc::RTM_GETROUTE, &request)?;
    let (header, rest) = RouteHeader::read_from_prefix(&answer).map_err(|_| incomplete())?;
    if header.kind != libc::RTN_UNICAST {
        return Ok(None);
    }
    let interface = attribute(rest, libc::RTA_OIF).and_then(|it| u32::read_from_bytes(it).ok());
    // The family, in two bytes, is before an address that may be of another family.
    let via = attribute(rest, RTA_VIA).and_then(|via| via.get(2..));
    let gateway = attribute(rest, libc::RTA_GATEWAY).or(via);
    Ok(Some(Route {
        interface: interface.ok_or_else(incomplete)?,
        gateway: gateway.map(<[u8]>::to_vec),
    }))
}

/// Absent from `libc`.
const RTA_VIA: u16 = 18;

/// The state of an entry of the neighbour table (`NUD_*`).
pub(super) fn neighbour_state(socket: &Socket, address: IpAddr, interface: u32) -> io::Result<u16> {
    let address = address_bytes(address);
    let header = NeighbourHeader {
        family: family(&address),
        pad: [0; 3],
        index: interface,
        state: 0,
        flags: 0,
        kind: 0,
    };
    let mut request = header.as_bytes().to_vec();
    push_attribute(&mut request, libc::NDA_DST, &address);
    let answer = ask(socket, libc::RTM_GETNEIGH, &request)?;
    let (header, _) = NeighbourHeader::read_from_prefix(&answer).map_err(|_| incomplete())?;
    Ok(header.state)
}

fn address_bytes(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    }
}

fn family(address: &[u8]) -> u8 {
    let family = if address.len() == 4 {
        libc::AF_INET
    } else {
        libc::AF_INET6
    };
    family as u8
}

fn push_attribute(message: &mut Vec<u8>, kind: u16, value: &[u8]) {
    let header = AttributeHeader {
        length: (size_of::<AttributeHeader>() + value.len()) as u16,
        kind,
    };
    message.extend_from_slice(header.as_bytes());
    message.extend_from_slice(value);
}

fn incomplete() -> io::Error {
    io::ErrorKind::InvalidData.into()
}

/// The body of the answer to a question that has one.
fn ask(mut socket: &Socket, kind: u16, body: &[u8]) -> io::Result<Vec<u8>> {
    socket.send(&request(kind, libc::NLM_F_REQUEST, body))?;
    let mut buffer = vec![0; LONGEST_SINGLE_ANSWER];
    let length = socket.read(&mut buffer)?;
    let (header, body) = split(&buffer[..length]).next().ok_or_else(incomplete)?;
    match i32::from(header.kind) {
        libc::NLMSG_ERROR => Err(rejection(body)),
        _ => Ok(body.to_vec()),
    }
}

fn request(kind: u16, flags: i32, body: &[u8]) -> Vec<u8> {
    let header = Header {
        length: (size_of::<Header>() + body.len()) as u32,
        kind,
        flags: flags as u16,
        sequence: 1,
        port: 0,
    };
    [header.as_bytes(), body].concat()
}

fn discipline(message: &[u8]) -> Option<(u32, String)> {
    let (header, rest) = DisciplineHeader::read_from_prefix(message).ok()?;
    let kind = attribute(rest, libc::TCA_KIND)?;
    let kind = kind.strip_suffix(&[0]).unwrap_or(kind);
    Some((header.index, String::from_utf8_lossy(kind).into_owned()))
}

/// The bodies of all messages of a list.
fn list(socket: &Socket, kind: u16, body: &[u8]) -> io::Result<Vec<Vec<u8>>> {
    for _ in 1..ATTEMPTS {
        if let List::Consistent(messages) = list_once(socket, kind, body)? {
            return Ok(messages);
        }
    }
    match list_once(socket, kind, body)? {
        List::Consistent(messages) | List::Interrupted(messages) => Ok(messages),
    }
}

enum List {
    Consistent(Vec<Vec<u8>>),
    /// Something changed while it was listed.
    Interrupted(Vec<Vec<u8>>),
}

fn list_once(mut socket: &Socket, kind: u16, body: &[u8]) -> io::Result<List> {
    socket.send(&request(kind, libc::NLM_F_REQUEST | libc::NLM_F_DUMP, body))?;
    let mut buffer = vec![0; LONGEST_ANSWER];
    let mut messages = Vec::new();
    let mut interrupted = false;
    loop {
        let length = socket.read(&mut buffer)?;
        for (header, body) in split(&buffer[..length]) {
            interrupted |= header.flags & libc::NLM_F_DUMP_INTR as u16 != 0;
            match i32::from(header.kind) {
                libc::NLMSG_DONE if interrupted => return Ok(List::Interrupted(messages)),
                libc::NLMSG_DONE => return Ok(List::Consistent(messages)),
                libc::NLMSG_ERROR => return Err(rejection(body)),
                _ => messages.push(body.to_vec()),
            }
        }
    }
}

/// The messages in one datagram.
fn split(mut datagram: &[u8]) -> impl Iterator<Item = (Header, &[u8])> {
    std::iter::from_fn(move || {
        let (header, _) = Header::read_from_prefix(datagram).ok()?;
        let length = header.length as usize;
        let body = datagram.get(size_of::<Header>()..length)?;
        datagram = datagram.get(length.next_multiple_of(4)..).unwrap_or(&[]);
        Some((header, body))
    })
}

fn rejection(body: &[u8]) -> io::Error {
    let code = i32::read_from_prefix(body).map_or(libc::EPROTO, |(code, _)| -code);
    io::Error::from_raw_os_error(code)
}

fn joined(links: &[Vec<u8>], addresses: &[Vec<u8>]) -> Vec<Interface> {
    let mut of_interface: HashMap<u32, Vec<Address>> = HashMap::new();
    for (index, address) in addresses.iter().filter_map(|message| address(message)) {
        of_interface.entry(index).or_default().push(address);
    }
    let interfaces = links.iter().filter_map(|message| interface(message));
    interfaces
        .map(|interface| Interface {
            addresses: of_interface.remove(&interface.index).unwrap_or_default(),
            ..interface
        })
        .collect()
}

fn interface(message: &[u8]) -> Option<Interface> {
    let (header, rest) = LinkHeader::read_from_prefix(message).ok()?;
    let has = |flag: i32| header.flags & flag.cast_unsigned() != 0;
    let name = attribute(rest, libc::IFLA_IFNAME)?;
    let name = name.strip_suffix(&[0]).unwrap_or(name);
    let (mtu, _) = u32::read_from_prefix(attribute(rest, libc::IFLA_MTU)?).ok()?;
    let mac = attribute(rest, libc::IFLA_ADDRESS).and_then(|mac| <[u8; 6]>::try_from(mac).ok());
    Some(Interface {
        name: String::from_utf8_lossy(name).into_owned(),
        index: header.index,
        mtu,
        up: has(libc::IFF_UP),
        carrier: has(libc::IFF_LOWER_UP | libc::IFF_RUNNING),
        loopback: has(libc::IFF_LOOPBACK),
        mac: mac.filter(|mac| *mac != [0; 6]),
        addresses: Vec::new(),
    })
}

fn address(message: &[u8]) -> Option<(u32, Address)> {
    let (header, rest) = AddressHeader::read_from_prefix(message).ok()?;
    if !is_usable(header.flags.into()) {
        return None;
    }
    // On a point-to-point interface the other attribute is the peer's address.
    let bytes = attribute(rest, libc::IFA_LOCAL).or_else(|| attribute(rest, libc::IFA_ADDRESS))?;
    let ip = match i32::from(header.family) {
        libc::AF_INET => Ipv4Addr::from(<[u8; 4]>::try_from(bytes).ok()?).into(),
        libc::AF_INET6 => Ipv6Addr::from(<[u8; 16]>::try_from(bytes).ok()?).into(),
        _ => return None,
    };
    let prefix = header.prefix;
    Some((header.index, Address { ip, prefix }))
}

/// Whether a socket can be bound to it: not during duplicate address detection.
fn is_usable(flags: u32) -> bool {
    let tentative = flags & libc::IFA_F_TENTATIVE != 0 && flags & libc::IFA_F_OPTIMISTIC == 0;
    !tentative && flags & libc::IFA_F_DADFAILED == 0
}

fn attribute(mut bytes: &[u8], wanted: u16) -> Option<&[u8]> {
    loop {
        let (header, _) = AttributeHeader::read_from_prefix(bytes).ok()?;
        let length = usize::from(header.length);
        let value = bytes.get(size_of::<AttributeHeader>()..length)?;
        if header.kind == wanted {
            return Some(value);
        }
        bytes = bytes.get(length.next_multiple_of(4)..)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_in_question_is_not_usable() {
        assert!(is_usable(libc::IFA_F_PERMANENT));
        assert!(is_usable(libc::IFA_F_TENTATIVE | libc::IFA_F_OPTIMISTIC));
        assert!(!is_usable(libc::IFA_F_TENTATIVE));
        assert!(!is_usable(libc::IFA_F_PERMANENT | libc::IFA_F_DADFAILED));
    }

    #[test]
    fn attributes_are_found_and_cut_ones_are_not() {
        let length = |n: u16| n.to_ne_bytes();
        let first = [&length(5)[..], &length(1), &[0xaa, 0, 0, 0]].concat();
        let second = [&length(8)[..], &length(2), b"four"].concat();
        let both = [first, second].concat();
        assert_eq!(attribute(&both, 1), Some(&[0xaa][..]));
        assert_eq!(attribute(&both, 2), Some(&b"four"[..]));
        assert_eq!(attribute(&both, 3), None);
        assert_eq!(attribute(&both[..both.len() - 1], 2), None);
        assert_eq!(attribute(&[0; 8], 1), None, "a length of zero ends it");
    }
}
