//! The socket that receives packets.

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};

use socket2::Socket;
use wire::{Flow, Route};

use super::SocketError;
use super::control::{Incoming, integer};
use super::socket_address::{interface_of, open, parse, socket_address};
use crate::restrictions::{self, Restriction};
use crate::sys::is_forbidden;
use crate::sys::option::{self, UDP_GRO, UDP_NO_CHECK6_RX};
use crate::sys::receive::{MAX_SLOTS, Slot, receive, receive_beginning};

/// The requested size of the receive buffer in bytes. The kernel reports twice the size that it
/// grants.
const BUFFER: usize = 4 << 20;

/// The smallest sufficient size in bytes, granted and doubled. In a smaller buffer, a full window
/// of one peer may not fit.
const ENOUGH: usize = 2 << 20;

/// Receives packets, many at a time.
#[derive(Debug)]
pub struct Receiver {
    socket: Socket,
    local: SocketAddr,
    buffer: usize,
    /// The multicast group that it has joined, and the address of the interface.
    group: Option<(IpAddr, IpAddr)>,
}

/// How a socket shares its port with others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sharing {
    /// It does not share the port.
    Alone,
    /// The kernel steers each packet to one of several sockets of this user.
    Steered,
    /// All sockets get each packet: multicast.
    Copied,
}

impl Receiver {
    /// A receiver that has its address and port alone. The address may be unspecified: then each
    /// packet's route contains its destination.
    pub fn bind(local: SocketAddr) -> Result<Self, SocketError> {
        Self::bind_with(local, Sharing::Alone)
    }

    /// A receiver for packets to a multicast group on the interface that has the given address.
    /// Each receiver of a group, in any process of any user, gets every packet.
    pub fn join_group(group: IpAddr, port: u16, interface: IpAddr) -> Result<Self, SocketError> {
        let mut receiver = Self::bind_on(SocketAddr::new(group, port), Sharing::Copied, interface)?;
        let joined = match (group, interface) {
            (IpAddr::V4(group), IpAddr::V4(interface)) => {
                receiver.socket.join_multicast_v4(&group, &interface)
            }
            (IpAddr::V6(group), _) => receiver
                .socket
                .join_multicast_v6(&group, interface_of(interface)),
            _ => Err(io::ErrorKind::InvalidInput.into()),
        };
        joined.map_err(|error| SocketError::new(group, port, error))?;
        receiver.group = Some((group, interface));
        Ok(receiver)
    }

    /// Leaves its multicast group at once. When it is dropped, the kernel still receives the group until all copies of
    /// the descriptor are closed.
    pub fn leave_group(&mut self) {
        // It fails only if the interface is gone, and the membership with it.
        let _ = match self.group.take() {
            Some((IpAddr::V4(group), IpAddr::V4(interface))) => {
                self.socket.leave_multicast_v4(&group, &interface)
            }
            Some((IpAddr::V6(group), interface)) => self
                .socket
                .leave_multicast_v6(&group, interface_of(interface)),
            _ => Ok(()),
        };
    }

    pub(crate) fn bind_with(local: SocketAddr, sharing: Sharing) -> Result<Self, SocketError> {
        Self::bind_on(local, sharing, local.ip())
    }

    fn bind_on(
        local: SocketAddr,
        sharing: Sharing,
        interface: IpAddr,
    ) -> Result<Self, SocketError> {
        Self::try_bind(local, sharing, interface)
            .map_err(|error| SocketError::new(local.ip(), local.port(), error))
    }

    fn try_bind(local: SocketAddr, sharing: Sharing, interface: IpAddr) -> io::Result<Self> {
        let socket = open(local.ip())?;
        match sharing {
            Sharing::Alone => {}
            // Never SO_REUSEADDR for steered packets: another user could receive them. If sharing
            // is forbidden, the first process has the port alone.
            Sharing::Steered => match socket.set_reuse_port(true) {
                Err(error) if is_forbidden(&error) => {
                    restrictions::report(Restriction::SharedPorts);
                }
                result => result?,
            },
            Sharing::Copied => socket.set_reuse_address(true)?,
        }
        match local {
            SocketAddr::V4(_) => prepare_v4(&socket, local.ip().is_unspecified())?,
            SocketAddr::V6(_) => prepare_v6(&socket, local.ip().is_unspecified())?,
        }
        // Old kernels don't join datagrams: then each arrives alone.
        let _ = option::set(socket.as_fd(), UDP_GRO, 1);
        // Without it, a program that packets wake may rarely find none.
        let _ = option::verify_checksums_early(socket.as_fd());
        enlarge(&socket)?;
        let buffer = socket.recv_buffer_size()?;
        socket.bind(&socket_address(
            local.ip(),
            local.port(),
            interface_of(interface),
        ))?;
        Ok(Self {
            local: socket.local_addr()?.as_socket().unwrap_or(local),
            socket,
            buffer,
            group: None,
        })
    }

    /// The address and port it is bound to.
    pub fn local(&self) -> SocketAddr {
        self.local
    }

    /// The size of the receive buffer as the kernel counts it, with the overhead of each packet: 8
    /// MiB hold about 2,000 packets of 4 KB.
    pub fn buffer(&self) -> usize {
        self.buffer
    }

    /// The message for the user if the receive buffer is far too small.
    pub fn shortage(&self) -> Option<Shortage> {
        (self.buffer < ENOUGH).then_some(Shortage {
            granted: self.buffer,
        })
    }

    /// How many times the kernel dropped something because the receive buffer was full. A batch
    /// that arrived in one piece counts once.
    pub fn dropped(&self) -> io::Result<u32> {
        option::drops(self.socket.as_fd())
    }

    /// Copies the beginning of the first packet without receiving it. Returns how many bytes were copied.
    pub(crate) fn peek(&self, into: &mut [u8]) -> io::Result<usize> {
        receive_beginning(self.socket.as_fd(), into, libc::MSG_PEEK)
    }

    /// Receives the first packet and drops it.
    pub(crate) fn discard(&self) -> io::Result<()> {
        receive_beginning(self.socket.as_fd(), &mut [], 0).map(drop)
    }

    /// Receives packets, up to the inbox's size. Never waits, so there may be none.
    pub fn receive<'i>(&self, inbox: &'i mut Inbox) -> io::Result<Batches<'i>> {
        let count = match self.receive_into(&mut inbox.slots) {
            Ok(count) => count,
            Err(error) if is_nothing(&error) => 0,
            Err(error) => return Err(error),
        };
        Ok(Batches {
            slots: inbox.slots[..count].iter(),
            local: self.local,
        })
    }

    /// Fills slots, or only the first where `recvmmsg` is forbidden.
    fn receive_into(&self, slots: &mut [Slot]) -> io::Result<usize> {
        let fd = self.socket.as_fd();
        match receive(fd, slots) {
            Err(error) if slots.len() > 1 && is_forbidden(&error) => {
                restrictions::report(Restriction::ReceiveBatches);
                receive(fd, &mut slots[..1])
            }
            result => result,
        }
    }
}

impl AsFd for Receiver {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Enlarges the receive buffer to `BUFFER` bytes. Without CAP_NET_ADMIN, the system's limit
/// (`net.core.rmem_max`) applies.
fn enlarge(socket: &Socket) -> io::Result<()> {
    const FORCE: (i32, i32) = (libc::SOL_SOCKET, libc::SO_RCVBUFFORCE);
    option::set(socket.as_fd(), FORCE, BUFFER as i32)
        .or_else(|_| socket.set_recv_buffer_size(BUFFER))
}

fn is_nothing(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
    )
}

fn prepare_v4(socket: &Socket, any_address: bool) -> io::Result<()> {
    let fd = socket.as_fd();
    option::set(fd, (libc::IPPROTO_IP, libc::IP_RECVTOS), 1)?;
    option::set(fd, (libc::IPPROTO_IP, libc::IP_RECVTTL), 1)?;
    if any_address {
        option::set(fd, (libc::IPPROTO_IP, libc::IP_PKTINFO), 1)?;
    }
    Ok(())
}

fn prepare_v6(socket: &Socket, any_address: bool) -> io::Result<()> {
    let fd = socket.as_fd();
    option::set(fd, (libc::IPPROTO_IPV6, libc::IPV6_RECVTCLASS), 1)?;
    option::set(fd, (libc::IPPROTO_IPV6, libc::IPV6_RECVHOPLIMIT), 1)?;
    // Other implementations send without a UDP checksum. The ICRC is stronger.
    option::set(fd, UDP_NO_CHECK6_RX, 1)?;
    if any_address {
        option::set(fd, (libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO), 1)?;
    }
    Ok(())
}

/// The receive buffer is so small that packets will be lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shortage {
    granted: usize,
}

impl fmt::Display for Shortage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the system allows a receive buffer of only {} KiB, so packets will be lost under load: \
             let an administrator run `sysctl -w net.core.rmem_max={BUFFER}`",
            // The kernel reports twice the size that it was asked for.
            self.granted / 2 / 1024
        )
    }
}

/// The buffers for received packets.
pub struct Inbox {
    slots: Vec<Slot>,
}

impl Inbox {
    /// Buffers for this many batches of up to 64 KB each, from 1 to 16.
    #[must_use]
    pub fn new(batches: usize) -> Self {
        Self {
            slots: (0..batches.clamp(1, MAX_SLOTS))
                .map(|_| Slot::new())
                .collect(),
        }
    }
}

impl Default for Inbox {
    /// Half a megabyte: a larger inbox does not fit into the CPU cache.
    fn default() -> Self {
        Self::new(8)
    }
}

impl fmt::Debug for Inbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inbox")
            .field("batches", &self.slots.len())
            .finish()
    }
}

/// The received batches.
pub struct Batches<'i> {
    slots: std::slice::Iter<'i, Slot>,
    local: SocketAddr,
}

impl Batches<'_> {
    /// How many reads they stand for, including those of datagrams without a usable source address.
    pub fn reads(&self) -> usize {
        self.slots.len()
    }
}

impl<'i> Iterator for Batches<'i> {
    type Item = Batch<'i>;

    fn next(&mut self) -> Option<Batch<'i>> {
        self.slots.find_map(|slot| Batch::read(slot, self.local))
    }
}

/// Packets of one flow that arrived together.
#[derive(Debug, Clone, Copy)]
pub struct Batch<'i> {
    /// The route of all its packets.
    pub route: Route,
    /// The length of every packet, except perhaps the last.
    pub segment_size: usize,
    /// Whether the packets have an ICRC. Those that have not left the machine's memory have none.
    pub has_icrc: bool,
    /// The packets, one after the other.
    pub bytes: &'i [u8],
}

impl<'i> Batch<'i> {
    /// The packets one by one.
    pub fn packets(&self) -> impl Iterator<Item = &'i [u8]> + use<'i> {
        self.bytes.chunks(self.segment_size)
    }

    /// The packets one by one, but an acknowledgement before the requests that it was sent behind.
    pub(crate) fn packets_to_handle(&self) -> impl Iterator<Item = &'i [u8]> + use<'i> {
        let split = self.split_acknowledgement();
        let [first, rest] = split.unwrap_or([
            Self {
                bytes: &[],
                ..*self
            },
            *self,
        ]);
        first.packets().chain(rest.packets())
    }

    /// The acknowledgement at its end, which is to be handled first, and the requests before it; `None` if it has others.
    pub(crate) fn split_acknowledgement(&self) -> Option<[Self; 2]> {
        let split = wire::split_acknowledgement(self.bytes, self.segment_size, |byte| *byte);
        let (first, rest) = split?;
        Some([first, rest].map(|bytes| Self { bytes, ..*self }))
    }

    fn read(slot: &'i Slot, local: SocketAddr) -> Option<Self> {
        let (source, source_port) = parse(slot.name())?;
        let bytes = slot.data();
        let mut batch = Self {
            route: Route::new(Flow {
                source,
                destination: local.ip(),
                source_port,
                destination_port: local.port(),
            }),
            // An empty datagram has no packets, but a chunk length must not be 0.
            segment_size: bytes.len().max(1),
            has_icrc: true,
            bytes,
        };
        for (kind, data) in Incoming::new(slot.control()) {
            batch.note(kind, data);
        }
        Some(batch)
    }

    fn note(&mut self, kind: (i32, i32), data: &[u8]) -> Option<()> {
        match kind {
            UDP_GRO => {
                let size = usize::try_from(integer(data)?).ok()?;
                self.segment_size = size.max(1);
            }
            (libc::IPPROTO_IP, libc::IP_TOS) | (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) => {
                self.route.traffic_class = integer(data)? as u8;
            }
            (libc::IPPROTO_IP, libc::IP_TTL) | (libc::IPPROTO_IPV6, libc::IPV6_HOPLIMIT) => {
                self.route.hop_limit = integer(data)? as u8;
            }
            // struct in_pktinfo: interface, local address, destination in the header.
            (libc::IPPROTO_IP, libc::IP_PKTINFO) => {
                let destination = data.get(8..)?.first_chunk::<4>()?;
                self.route.flow.destination = Ipv4Addr::from(*destination).into();
            }
            // struct in6_pktinfo: destination, interface.
            (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) => {
                let destination = data.first_chunk::<16>()?;
                self.route.flow.destination = Ipv6Addr::from(*destination).into();
            }
            _ => {}
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;

    use socket2::{Domain, Type};
    use wire::{Aeth, Opcode, PacketHead, Psn, Qpn, Syndrome};

    use super::*;
    use crate::socket::Sender;
    use crate::sys::process::replace_with_null;
    use crate::sys::seccomp::{Forbidden, forbid};

    fn steered() -> Receiver {
        let local = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        Receiver::bind_with(local, Sharing::Steered).unwrap()
    }

    #[test]
    fn a_socket_that_reuses_the_address_gets_no_steered_packets() {
        let receiver = steered();
        let thief = Socket::new(Domain::IPV4, Type::DGRAM, None).unwrap();
        thief.set_reuse_address(true).unwrap();
        thief.bind(&receiver.local().into()).unwrap_err();
        let member = Socket::new(Domain::IPV4, Type::DGRAM, None).unwrap();
        member.set_reuse_port(true).unwrap();
        member.bind(&receiver.local().into()).unwrap();
    }

    #[test]
    fn an_empty_datagram_has_no_packets() {
        let receiver = steered();
        let peer = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        peer.send_to(&[], receiver.local()).unwrap();
        let mut inbox = Inbox::new(1);
        let mut batches = receiver.receive(&mut inbox).unwrap();
        let mut batch = batches.next().expect("loopback delivers at once");
        assert_eq!(batch.packets().count(), 0);
        // No kernel reports this, but a length of zero would cut nothing.
        batch.note(UDP_GRO, &0_i32.to_ne_bytes());
        assert_eq!(batch.segment_size, 1);
    }

    #[test]
    fn where_batches_are_forbidden_packets_are_received_one_by_one() {
        let receives = || {
            forbid(Forbidden {
                call: libc::SYS_recvmmsg,
                // The flags.
                argument: 3,
                value: libc::MSG_DONTWAIT,
                errno: libc::EPERM,
            });
            let receiver = steered();
            let peer = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
            for packet in [b"first", b"other"] {
                peer.send_to(packet, receiver.local()).unwrap();
            }
            let mut inbox = Inbox::default();
            [(); 3].map(|()| receiver.receive(&mut inbox).unwrap().reads())
        };
        let reads = std::thread::spawn(receives).join().unwrap();
        assert_eq!(reads, [1, 1, 0]);
        assert!(restrictions::was_reported(Restriction::ReceiveBatches));
    }

    #[test]
    fn a_descriptor_that_is_no_socket_any_more_is_an_error() {
        let receiver = steered();
        replace_with_null(receiver.as_fd()).unwrap();
        let mut inbox = Inbox::new(1);
        let error = receiver.receive(&mut inbox).err().unwrap();
        assert_eq!(error.raw_os_error(), Some(libc::ENOTSOCK));
    }

    #[test]
    fn an_acknowledgement_behind_a_request_is_handled_first() {
        let head = |opcode| PacketHead::new(opcode, Qpn::new(0x11), Psn::new(1));
        let request = [head(Opcode::RcSendOnly).bytes(), &[0; 12]].concat();
        let aeth = Aeth::new(Syndrome::UNLIMITED, 1);
        let acknowledgement = head(Opcode::RcAcknowledge).push(&aeth);
        let acknowledgement = [acknowledgement.bytes(), &[0; 4]].concat();
        let sender = Sender::bind(Ipv4Addr::LOCALHOST.into()).unwrap();
        let bytes = [&request[..], &acknowledgement].concat();
        let batch = Batch {
            route: Route::new(sender.flow_to(Ipv4Addr::LOCALHOST.into())),
            segment_size: request.len(),
            has_icrc: false,
            bytes: &bytes,
        };
        assert!(batch.packets().eq([&request[..], &acknowledgement]));
        let handled = batch.packets_to_handle();
        assert!(handled.eq([&acknowledgement[..], &request]));
        let alone = Batch {
            bytes: &request,
            ..batch
        };
        assert!(alone.packets_to_handle().eq([&request[..]]));
    }

    #[test]
    fn an_inbox_has_a_bounded_number_of_places() {
        let places = [0, 1, 5, 1000].map(|batches| Inbox::new(batches).slots.len());
        assert_eq!(places, [1, 1, 5, MAX_SLOTS]);
    }
}
