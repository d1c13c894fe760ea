//! The socket that sends packets.

use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use socket2::{SockAddr, Socket};
use wire::{Flow, Route};

use super::control::Outgoing;
use super::socket_address::{interface_of, open, print, socket_address};
use super::{SocketError, reseal};
use crate::sys::option::{self, UDP_SEGMENT};
use crate::sys::send::{send, send_each};

/// The requested size of the send buffer in bytes, for packets that wait for a slow network card.
const BUFFER: usize = 4 << 20;

/// Why packets were not sent.
#[derive(Debug, thiserror::Error)]
pub enum SendError {
    /// The kernel's buffer is full.
    #[error(
        "the send buffer is full: when the socket is writable again, send what follows the first \
         {sent} bytes"
    )]
    Full {
        /// How many bytes were sent, a multiple of the segment size.
        sent: usize,
    },
    /// The ring to the process of the receiver is full.
    #[error("the memory that is shared with the receiver is full: send the same later")]
    RingFull,
    /// A packet is too long for the path.
    #[error(
        "packets of {length} bytes are too long for the way to {destination}: choose a smaller \
         path MTU"
    )]
    TooLong {
        /// Its length, with its ICRC but without IP and UDP headers.
        length: usize,
        /// The destination.
        destination: IpAddr,
    },
    /// Any other error.
    #[error("the kernel does not send to {destination}: {source}")]
    Refused {
        /// The destination.
        destination: IpAddr,
        /// The error of the kernel.
        source: io::Error,
    },
}

/// Sends packets, many at a time.
///
/// It may be used from several threads at once.
#[derive(Debug)]
pub struct Sender {
    socket: Socket,
    address: IpAddr,
    port: u16,
    scope: u32,
    segmentation: AtomicBool,
}

impl Sender {
    /// A sender with its own port at an address of this machine.
    pub fn bind(address: IpAddr) -> Result<Self, SocketError> {
        Self::try_bind(address).map_err(|error| SocketError::new(address, 0, error))
    }

    fn try_bind(address: IpAddr) -> io::Result<Self> {
        let socket = open(address)?;
        let scope = interface_of(address);
        match address {
            IpAddr::V4(address) => prepare_v4(&socket, address)?,
            IpAddr::V6(_) => prepare_v6(&socket, scope)?,
        }
        // As much as the system allows; the window stays within the granted size.
        socket.set_send_buffer_size(BUFFER)?;
        socket.bind(&socket_address(address, 0, scope))?;
        let local = socket.local_addr()?.as_socket();
        Ok(Self {
            port: local.expect("a UDP socket has an IP address").port(),
            segmentation: AtomicBool::new(can_segment(&socket)),
            socket,
            address,
            scope,
        })
    }

    /// The source address of packets.
    pub fn address(&self) -> IpAddr {
        self.address
    }

    /// The UDP source port of packets.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The flow of packets from here to a peer's RoCE port.
    pub fn flow_to(&self, destination: IpAddr) -> Flow {
        Flow {
            source: self.address,
            destination,
            source_port: self.port,
            destination_port: wire::ROCE_PORT,
        }
    }

    /// Whether the kernel segments a batch into packets. If not, a batch of several packets is
    /// still sent in one system call, but each packet's ICRC is computed twice and each passes
    /// through the kernel by itself: some four times the cost for packets of 4 KB, thirty times for
    /// small ones.
    pub fn segmentation(&self) -> bool {
        self.segmentation.load(Ordering::Relaxed)
    }

    /// Turns segmentation by the kernel on or off. The next rejection turns it off again.
    pub fn set_segmentation(&self, on: bool) {
        self.segmentation.store(on, Ordering::Relaxed);
    }

    /// Sends packets of `segment_size` bytes each, the last perhaps shorter, all to one peer.
    ///
    /// Over IPv4, packet *i* must be sealed for the identification *i*, which segmentation gives
    /// it. If the kernel does not segment, each packet is resealed for the identification 0 and
    /// sent alone; from then on [`segmentation`](Self::segmentation) is false.
    ///
    /// # Panics
    /// If `segment_size` is 0.
    pub fn send(
        &self,
        route: &Route,
        segment_size: usize,
        bytes: &mut [u8],
    ) -> Result<(), SendError> {
        debug_assert_eq!(route.flow.source_port, self.port, "sealed for another port");
        let flow = &route.flow;
        let to = socket_address(flow.destination, flow.destination_port, self.scope);
        if bytes.len() <= segment_size {
            let sent = send(self.socket.as_fd(), &to, headers(route).bytes(), bytes);
            return sent.map_err(|error| failure(error, route, bytes.len(), 0));
        }
        let mut rejected = false;
        if self.segmentation() {
            match self.send_segmented(&to, route, segment_size, bytes) {
                Ok(()) => return Ok(()),
                Err(error) if suggests_no_segmentation(&error) => rejected = true,
                Err(error) => return Err(failure(error, route, segment_size, 0)),
            }
        }
        let sent = self.send_singly(&to, route, segment_size, bytes);
        if rejected
            && !matches!(
                sent,
                Err(SendError::TooLong { .. } | SendError::Refused { .. })
            )
        {
            // The packets were sent alone, so the kernel had rejected the segmentation.
            self.set_segmentation(false);
        }
        sent
    }

    /// What the kernel needs to send one packet from this socket: the destination, as [`print()`]
    /// writes it, and the control messages.
    pub(crate) fn addressing(&self, route: &Route) -> ([u8; 28], Outgoing) {
        let flow = &route.flow;
        let to = print(flow.destination, flow.destination_port, self.scope);
        (to, headers(route))
    }

    fn send_segmented(
        &self,
        to: &SockAddr,
        route: &Route,
        segment_size: usize,
        bytes: &[u8],
    ) -> io::Result<()> {
        // A size that does not fit into the kernel's field is too long for any packet, too.
        let size = u16::try_from(segment_size).map_err(|_| too_long())?;
        let mut control = headers(route);
        control.push(UDP_SEGMENT, &size.to_ne_bytes());
        send(self.socket.as_fd(), to, control.bytes(), bytes)
    }

    /// Sends each packet by itself.
    fn send_singly(
        &self,
        to: &SockAddr,
        route: &Route,
        segment_size: usize,
        bytes: &mut [u8],
    ) -> Result<(), SendError> {
        if route.flow.source.is_ipv4() {
            for packet in bytes.chunks_mut(segment_size) {
                reseal(&route.flow, packet);
            }
        }
        let control = headers(route);
        let mut sent = 0;
        while sent < bytes.len() {
            let packets = bytes[sent..].chunks(segment_size);
            let count = send_each(self.socket.as_fd(), to, control.bytes(), packets)
                .map_err(|error| failure(error, route, segment_size.min(bytes.len()), sent))?;
            sent += count * segment_size;
        }
        Ok(())
    }
}

impl AsFd for Sender {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

fn prepare_v4(socket: &Socket, address: Ipv4Addr) -> io::Result<()> {
    let hops = u32::from(Route::DEFAULT_HOP_LIMIT);
    let discovery = (libc::IPPROTO_IP, libc::IP_MTU_DISCOVER);
    // Packets are sealed for identification 0 and no fragments.
    option::set(socket.as_fd(), discovery, libc::IP_PMTUDISC_PROBE)?;
    socket.set_ttl_v4(hops)?;
    socket.set_multicast_ttl_v4(hops)?;
    socket.set_multicast_if_v4(&address)
}

fn prepare_v6(socket: &Socket, interface: u32) -> io::Result<()> {
    let hops = u32::from(Route::DEFAULT_HOP_LIMIT);
    let discovery = (libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER);
    option::set(socket.as_fd(), discovery, libc::IPV6_PMTUDISC_PROBE)?;
    socket.set_unicast_hops_v6(hops)?;
    socket.set_multicast_hops_v6(hops)?;
    socket.set_multicast_if_v6(interface)
}

/// Whether this kernel supports segmentation at all; 0 requests none.
fn can_segment(socket: &Socket) -> bool {
    option::set(socket.as_fd(), UDP_SEGMENT, 0).is_ok()
}

/// The control messages for header fields that differ from their defaults.
fn headers(route: &Route) -> Outgoing {
    let (traffic_class, hop_limit) = match route.flow.destination {
        IpAddr::V4(_) => (
            (libc::IPPROTO_IP, libc::IP_TOS),
            (libc::IPPROTO_IP, libc::IP_TTL),
        ),
        IpAddr::V6(_) => (
            (libc::IPPROTO_IPV6, libc::IPV6_TCLASS),
            (libc::IPPROTO_IPV6, libc::IPV6_HOPLIMIT),
        ),
    };
    let mut control = Outgoing::new();
    if route.traffic_class != 0 {
        control.push(traffic_class, &i32::from(route.traffic_class).to_ne_bytes());
    }
    if !matches!(route.hop_limit, 0 | Route::DEFAULT_HOP_LIMIT) {
        control.push(hop_limit, &i32::from(route.hop_limit).to_ne_bytes());
    }
    control
}

/// Whether an error may mean that the kernel or the network card can't segment. Some of these
/// errors have other causes, too, so packets are sent alone to make sure.
fn suggests_no_segmentation(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::EINVAL | libc::EIO | libc::EMSGSIZE | libc::EOPNOTSUPP | libc::ENOPROTOOPT)
    )
}

fn too_long() -> io::Error {
    io::Error::from_raw_os_error(libc::EMSGSIZE)
}

fn failure(error: io::Error, route: &Route, length: usize, sent: usize) -> SendError {
    let destination = route.flow.destination;
    match error.raw_os_error() {
        // ENOBUFS: the network card's queue, which comes after the socket's buffer, was full.
        Some(libc::EAGAIN | libc::ENOBUFS) => SendError::Full { sent },
        Some(libc::EMSGSIZE) => SendError::TooLong {
            length,
            destination,
        },
        _ => SendError::Refused {
            destination,
            source: error,
        },
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv6Addr;

    use super::*;

    #[test]
    fn a_full_queue_and_a_rejected_send_are_different_errors() {
        let address = Ipv4Addr::LOCALHOST.into();
        let flow = Sender::bind(address).unwrap().flow_to(address);
        let route = Route::new(flow);
        let error = |errno| failure(io::Error::from_raw_os_error(errno), &route, 100, 7);
        for errno in [libc::EAGAIN, libc::ENOBUFS] {
            assert!(matches!(error(errno), SendError::Full { sent: 7 }));
        }
        let too_long = error(libc::EMSGSIZE);
        assert!(matches!(too_long, SendError::TooLong { length: 100, .. }));
        assert!(matches!(error(libc::EPERM), SendError::Refused { .. }));
    }

    #[test]
    fn packets_are_never_cut_into_fragments() {
        let addresses = [Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()];
        let discovery = [
            (libc::IPPROTO_IP, libc::IP_MTU_DISCOVER),
            (libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER),
        ];
        let values = [libc::IP_PMTUDISC_PROBE, libc::IPV6_PMTUDISC_PROBE];
        for ((address, name), value) in addresses.into_iter().zip(discovery).zip(values) {
            let sender = Sender::bind(address).unwrap();
            assert_eq!(option::get(sender.as_fd(), name).unwrap(), value);
        }
    }
}
