//! The wire format of RoCEv2: parses bytes into typed values and writes them back.
//!
//! A packet is parsed once. After [`Packet::parse`] no code checks a length again:
//!
//! ```
//! use wire::{IcrcChecker, Flow, Key, Opcode, Packet, PacketHead, Psn, Qpn, ROCE_PORT, Reth, icrc};
//!
//! let flow = Flow {
//!     source: "10.0.0.1".parse()?,
//!     destination: "10.0.0.2".parse()?,
//!     source_port: 0xc000,
//!     destination_port: ROCE_PORT,
//! };
//!
//! // Send: the headers on the stack, the payload, the checksum.
//! let head = PacketHead::new(Opcode::RcWriteOnly, Qpn::new(0x11), Psn::new(1234))
//!     .acknowledge(true)
//!     .push(&Reth::new(0x7f00_0000, Key::new(0x2a), 8));
//! let mut datagram = [head.bytes(), b"8 bytes!"].concat();
//! datagram.extend(icrc::checksum(&flow, 0, &datagram));
//!
//! // Receive: verify, then parse.
//! IcrcChecker::new().check(&flow, &datagram)?;
//! let packet = Packet::parse(&datagram)?;
//! assert_eq!(packet.payload.to_vec(), b"8 bytes!");
//! assert_eq!(packet.reth().map(Reth::remote_key), Some(Key::new(0x2a)));
//! assert_eq!(
//!     packet.to_string(),
//!     "RC WRITE_ONLY qp 0x000011 psn 1234 ack va 0x7f000000 rkey 0x0000002a dma 8 len 8"
//! );
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The modules, from the lowest layer up:
//! - [`ip`]: Ethernet, IP and UDP, as far as captures need them;
//! - [`number`]: sequence numbers, queue pair numbers, keys, addresses;
//! - [`opcode`]: the table of opcodes. All properties of an opcode follow from its row;
//! - [`header`] and [`packet`]: the headers, and packets made of them;
//! - [`icrc`]: the invariant CRC, and how a program with a UDP socket verifies it;
//! - [`shared_bytes`]: copies of packets in memory that another process may change;
//! - [`grh`]: the 40 bytes before every received datagram;
//! - [`held`]: a list at the end of acknowledgements, and [`extension`], how two peers agree on it;
//! - [`mad`] and [`cm`]: management datagrams, and the connection manager's messages in them.
//!
//! This crate does no I/O and reads no clock. Bytes from the network never cause a panic.

pub mod cm;
mod describe;
pub mod extension;
mod flow;
pub mod grh;
pub mod header;
pub mod held;
pub mod icrc;
pub mod ip;
pub mod mad;
pub mod number;
pub mod opcode;
pub mod packet;
#[allow(
    unsafe_code,
    reason = "bytes that others change are copied by assembly"
)]
pub mod shared_bytes;

pub use flow::{Flow, Fragmentation, ROCE_PORT, Route};
pub use header::{
    Aeth, AtomicAckEth, AtomicEth, Bth, Deth, Extension, ExtensionHeader, Feth, FlushPlacement,
    FlushRange, Ieth, Immediate, NakCode, Reth, Syndrome, Xrceth,
};
pub use held::{BadHeldPackets, HeldPackets};
pub use icrc::{ICRC_LENGTH, IcrcChecker, IcrcError, IcrcGenerator};
pub use ip::{Datagram, DatagramError};
pub use number::{
    AckTimeout, Gid, GidParseError, Key, PartitionKey, PathMtu, Psn, Qpn, QueueKey, RnrTimer, Srqn,
};
pub use opcode::{Modifier, Opcode, Operation, Position, Transport};
pub use packet::{
    Layer, Packet, PacketHead, ParseError, PayloadBytes, destination_queue_pair, opcode_of,
    position, split_acknowledgement,
};

/// Compiles and runs the example of the front page in the registry.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
