//! Packets that one member hands to another.
//!
//! Each batch travels in a Unix datagram, after 44 bytes that hold its envelope. The kernel keeps only
//! about ten datagrams for a receiver (`net.unix.max_dgram_qlen`), so whole batches travel together.

use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};

use wire::Flow;

use super::process::Identity;
use crate::socket::{Batch, Envelope};

const HEADER: usize = 44;

/// No batch is longer.
const MAX_BATCH: usize = 1 << 16;

/// A member's Unix socket, where others bring its packets.
#[derive(Debug)]
pub(super) struct Mailbox {
    socket: UnixDatagram,
    path: PathBuf,
    owner: Identity,
    buffer: Box<[u8]>,
}

impl Mailbox {
    /// Opens the mailbox at a path. One that a dead process left there is replaced.
    pub(super) fn open(path: PathBuf) -> io::Result<Self> {
        match fs::remove_file(&path) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        let socket = UnixDatagram::bind(&path)?;
        socket.set_nonblocking(true)?;
        Ok(Self {
            socket,
            path,
            owner: Identity::current(),
            buffer: vec![0; HEADER + MAX_BATCH].into(),
        })
    }

    /// Brings a letter to the mailbox at `path`.
    pub(super) fn bring(&self, path: &Path, letter: &[u8]) -> io::Result<()> {
        self.socket.send_to(letter, path).map(drop)
    }

    /// The next packets that somebody brought.
    pub(super) fn next(&mut self) -> io::Result<Option<Batch<'_>>> {
        let length = match self.socket.recv(&mut self.buffer) {
            Ok(length) => length,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
            Err(error) => return Err(error),
        };
        let letter = &self.buffer[..length];
        let Some((header, bytes)) = letter.split_first_chunk::<HEADER>() else {
            return Err(io::ErrorKind::InvalidData.into());
        };
        let (envelope, segment_size) = parse(header);
        Ok(Some(Batch {
            envelope,
            segment_size,
            bytes,
        }))
    }
}

impl AsFd for Mailbox {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Drop for Mailbox {
    fn drop(&mut self) {
        // The copy that a fork made must not take it from the parent.
        if self.owner.is_current() {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// What is sent to a mailbox.
pub(super) fn letter(batch: &Batch<'_>) -> Vec<u8> {
    let mut letter = Vec::with_capacity(HEADER + batch.bytes.len());
    letter.extend(print(&batch.envelope, batch.segment_size));
    letter.extend(batch.bytes);
    letter
}

fn print(envelope: &Envelope, segment_size: usize) -> [u8; HEADER] {
    let flow = &envelope.flow;
    let mut header = [0; HEADER];
    header[0] = if flow.source.is_ipv4() { 4 } else { 6 };
    header[1] = envelope.traffic_class;
    header[2] = envelope.hop_limit;
    header[4..6].copy_from_slice(&flow.source_port.to_be_bytes());
    header[6..8].copy_from_slice(&flow.destination_port.to_be_bytes());
    header[8..24].copy_from_slice(&wide(flow.source).octets());
    header[24..40].copy_from_slice(&wide(flow.destination).octets());
    // At most 64 KB.
    header[40..].copy_from_slice(&(segment_size as u32).to_be_bytes());
    header
}

fn parse(header: &[u8; HEADER]) -> (Envelope, usize) {
    let [
        family,
        traffic_class,
        hop_limit,
        _,
        s0,
        s1,
        d0,
        d1,
        rest @ ..,
    ] = header;
    let [source, destination] = [&rest[..16], &rest[16..32]].map(|bytes| {
        let wide = Ipv6Addr::from(*bytes.first_chunk::<16>().expect("sixteen bytes"));
        narrow(wide, *family)
    });
    let size = rest.last_chunk::<4>().expect("four more bytes");
    let envelope = Envelope {
        flow: Flow {
            source,
            destination,
            source_port: u16::from_be_bytes([*s0, *s1]),
            destination_port: u16::from_be_bytes([*d0, *d1]),
        },
        traffic_class: *traffic_class,
        hop_limit: *hop_limit,
    };
    (envelope, (u32::from_be_bytes(*size) as usize).max(1))
}

fn wide(address: IpAddr) -> Ipv6Addr {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped(),
        IpAddr::V6(address) => address,
    }
}

fn narrow(address: Ipv6Addr, family: u8) -> IpAddr {
    match family {
        4 => IpAddr::V4(address.to_ipv4_mapped().unwrap_or(Ipv4Addr::UNSPECIFIED)),
        _ => IpAddr::V6(address),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_envelope_survives_the_journey() {
        for (source, destination) in [("10.0.0.1", "10.0.0.2"), ("fe80::1", "::ffff:1.2.3.4")] {
            let envelope = Envelope {
                flow: Flow {
                    source: source.parse().unwrap(),
                    destination: destination.parse().unwrap(),
                    source_port: 55410,
                    destination_port: 4791,
                },
                traffic_class: 0x68,
                hop_limit: 3,
            };
            assert_eq!(parse(&print(&envelope, 4096)), (envelope, 4096));
        }
    }
}
