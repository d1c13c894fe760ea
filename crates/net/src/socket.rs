//! UDP sockets that send and receive many packets in one system call.
//!
//! RoCEv2 needs two sockets. The [`Receiver`] is bound to port 4791 and never sends; the [`Sender`]
//! is bound to a port of its own, the source port of every sent packet, and never receives. Neither
//! is ever connected: a connected socket numbers its packets with a counter, and the packet's ICRC
//! covers that number.
//!
//! What the kernel does, measured on Linux 6.18 (the tests repeat it):
//! - An unconnected socket with `IP_PMTUDISC_PROBE` sends IPv4 packets that may not be fragmented
//!   with the identification 0. Segmentation (`UDP_SEGMENT`) gives the packets of one send the
//!   identifications 0, 1, 2…; with `sendmmsg` each gets 0 again.
//! - A segmented send is delivered whole or not at all, and arrives at a `UDP_GRO` socket of the same
//!   machine in one piece, with the segment size beside it.
//! - A packet over the interface's MTU is rejected with `EMSGSIZE`, segmented or not; the rejection is
//!   no reason to stop segmenting.
//! - `SO_RCVBUF` is granted up to `net.core.rmem_max` and reported doubled.

mod control;
pub mod interface;
pub(crate) mod receiver;
mod sender;
mod socket_address;

use std::io;
use std::net::IpAddr;

use wire::{Flow, ICRC_LENGTH, icrc};

pub use receiver::{Batch, Batches, Inbox, Receiver, Shortage};
pub use sender::{SendError, Sender};

/// Gives a packet the ICRC that it needs when it is sent alone, with the IPv4 identification 0.
///
/// # Panics
/// If the addresses of the flow are of two families, or the packet has no room for a BTH and an ICRC.
pub fn reseal(flow: &Flow, packet: &mut [u8]) {
    let (body, seal) = packet
        .split_last_chunk_mut::<ICRC_LENGTH>()
        .expect("a packet ends with its ICRC");
    *seal = icrc::checksum(flow, 0, body);
}

/// Why a socket can't be opened.
#[derive(Debug, thiserror::Error)]
pub enum SocketError {
    /// Another socket has the port.
    #[error(
        "UDP port {port} of {address} is taken by a process that does not share it: of another user, in \
         another container or with another XDG_RUNTIME_DIR, or by the kernel's rdma_rxe; `ss -ulnp \
         sport = :{port}` shows which"
    )]
    PortTaken {
        /// The requested address.
        address: IpAddr,
        /// The port.
        port: u16,
    },
    /// The address belongs to another machine, or to none.
    #[error("no interface of this machine has the address {0}: choose one that `ip address` shows")]
    NotLocal(IpAddr),
    /// Any other error.
    #[error("the kernel rejects a UDP socket on {address}: {source}")]
    Refused {
        /// The requested address.
        address: IpAddr,
        /// The error of the kernel.
        source: io::Error,
    },
}

impl SocketError {
    fn new(address: IpAddr, port: u16, source: io::Error) -> Self {
        match source.kind() {
            io::ErrorKind::AddrInUse => Self::PortTaken { address, port },
            io::ErrorKind::AddrNotAvailable => Self::NotLocal(address),
            _ => Self::Refused { address, source },
        }
    }
}
