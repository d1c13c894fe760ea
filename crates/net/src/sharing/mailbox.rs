//! Mailboxes: Unix sockets at which members receive forwarded packets.
//!
//! Each message carries a batch of packets after a header of 44 bytes with its route. The kernel queues
//! only about ten datagrams for a receiver (`net.unix.max_dgram_qlen`), so a message carries a whole batch.
//! There are three other messages: the offer of a ring, a single byte that reports a change of the registry,
//! and an empty one that wakes the receiver.

use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsFd, BorrowedFd, RawFd};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};

use socket2::SockRef;
use wire::{Flow, Route};

use super::long_socket_path::with_short_path;
use super::process_identity::Identity;
use crate::socket::Batch;

/// The length of the header in bytes.
pub(super) const HEADER_LENGTH: usize = 44;

/// The maximum length of a message in bytes.
pub(super) const MAX_MESSAGE: usize = HEADER_LENGTH + (1 << 16);

/// The first byte of an offer, where packets have the version of IP.
const OFFER: u8 = b's';

const OFFER_LENGTH: usize = 17;

/// Makes the receiver read the registry.
pub(super) const INSPECT: [u8; 1] = *b"i";

/// A message in a mailbox.
pub(super) enum MailboxMessage<'m> {
    Packets(Batch<'m>),
    RingOffer(RingOffer),
    /// Wakes the receiver.
    WakeUp,
    /// The registry has changed for the receiver.
    Inspect,
}

/// A ring that another process has created for the receiver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RingOffer {
    pub(super) from: Identity,
    /// The other process's descriptor of the memory.
    pub(super) descriptor: RawFd,
}

impl RingOffer {
    pub(super) fn encode(&self) -> [u8; OFFER_LENGTH] {
        let mut message = [OFFER; OFFER_LENGTH];
        message[1..5].copy_from_slice(&self.from.pid.to_ne_bytes());
        message[5..9].copy_from_slice(&self.descriptor.to_ne_bytes());
        message[9..].copy_from_slice(&self.from.start.to_ne_bytes());
        message
    }

    fn parse(message: &[u8]) -> Option<Self> {
        let &[first, ref numbers @ ..]: &[u8; OFFER_LENGTH] = message.try_into().ok()?;
        let (&[p0, p1, p2, p3, d0, d1, d2, d3], start) = numbers.split_first_chunk()?;
        let offer = Self {
            from: Identity {
                pid: u32::from_ne_bytes([p0, p1, p2, p3]),
                start: u64::from_ne_bytes(*start.first_chunk()?),
            },
            descriptor: RawFd::from_ne_bytes([d0, d1, d2, d3]),
        };
        (first == OFFER).then_some(offer)
    }
}

/// A member's Unix socket, to which others forward its packets.
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
        let socket = bind_unseen(&path)?;
        set_nonblocking(&socket)?;
        Ok(Self {
            socket,
            path,
            owner: Identity::current(),
            buffer: vec![0; MAX_MESSAGE].into(),
        })
    }

    /// Sends a message to the mailbox at `path`.
    pub(super) fn send(&self, path: &Path, message: &[u8]) -> io::Result<()> {
        with_short_path(path, |path| self.socket.send_to(message, path)).map(drop)
    }

    /// A socket whose messages go to the mailbox at `path`. It sends in half the time of [`send`](Self::send), which
    /// looks up the path.
    pub(super) fn connect(path: &Path) -> io::Result<UnixDatagram> {
        let socket = UnixDatagram::unbound()?;
        set_nonblocking(&socket)?;
        with_short_path(path, |path| socket.connect(path))?;
        Ok(socket)
    }

    /// The next received message.
    pub(super) fn next(&mut self) -> io::Result<Option<MailboxMessage<'_>>> {
        let length = match self.socket.recv(&mut self.buffer) {
            Ok(length) => length,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
            Err(error) => return Err(error),
        };
        let message = &self.buffer[..length];
        if message.is_empty() {
            return Ok(Some(MailboxMessage::WakeUp));
        }
        if message == INSPECT {
            return Ok(Some(MailboxMessage::Inspect));
        }
        let read = match RingOffer::parse(message) {
            Some(offer) => Some(MailboxMessage::RingOffer(offer)),
            None => decode(message).map(MailboxMessage::Packets),
        };
        read.map(Some).ok_or(io::ErrorKind::InvalidData.into())
    }
}

impl AsFd for Mailbox {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// By `fcntl`. The standard library calls `ioctl`, which a container may forbid.
fn set_nonblocking(socket: &UnixDatagram) -> io::Result<()> {
    SockRef::from(socket).set_nonblocking(true)
}

/// Every user may read the name that a socket was bound to (`/proc/net/unix`), and that of a mailbox says
/// which numbers its process has. So it is bound to another name, and gets its own afterwards.
fn bind_unseen(path: &Path) -> io::Result<UnixDatagram> {
    let unseen = path.with_file_name(format!(".{:x}", getrandom::u64()?));
    let socket = with_short_path(&unseen, |path| UnixDatagram::bind(path))?;
    fs::rename(&unseen, path)?;
    Ok(socket)
}

impl Drop for Mailbox {
    fn drop(&mut self) {
        // The copy in a forked child must not remove it from the parent.
        if self.owner.is_current() {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Decodes the batch of a message.
pub(super) fn decode(message: &[u8]) -> Option<Batch<'_>> {
    let (header, bytes) = message.split_first_chunk::<HEADER_LENGTH>()?;
    let header = parse(header);
    Some(Batch {
        route: header.route,
        segment_size: header.segment_size,
        has_icrc: header.has_icrc,
        bytes,
    })
}

/// Encodes a batch as a message.
pub(super) fn encode(batch: &Batch<'_>) -> Vec<u8> {
    let mut message = Vec::with_capacity(HEADER_LENGTH + batch.bytes.len());
    message.extend(Header::of(batch).encode());
    message.extend(batch.bytes);
    message
}

/// What a message tells about its packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) route: Route,
    /// The length of every packet, except perhaps the last.
    pub(super) segment_size: usize,
    pub(super) has_icrc: bool,
}

impl Header {
    fn of(batch: &Batch<'_>) -> Self {
        Self {
            route: batch.route,
            segment_size: batch.segment_size,
            has_icrc: batch.has_icrc,
        }
    }

    pub(super) fn encode(&self) -> [u8; HEADER_LENGTH] {
        let route = &self.route;
        let flow = &route.flow;
        let mut header = [0; HEADER_LENGTH];
        header[0] = if flow.source.is_ipv4() { 4 } else { 6 };
        header[1] = route.traffic_class;
        header[2] = route.hop_limit;
        header[3] = u8::from(!self.has_icrc);
        header[4..6].copy_from_slice(&flow.source_port.to_be_bytes());
        header[6..8].copy_from_slice(&flow.destination_port.to_be_bytes());
        header[8..24].copy_from_slice(&wide(flow.source).octets());
        header[24..40].copy_from_slice(&wide(flow.destination).octets());
        // At most 64 KB.
        header[40..].copy_from_slice(&(self.segment_size as u32).to_be_bytes());
        header
    }
}

pub(super) fn parse(header: &[u8; HEADER_LENGTH]) -> Header {
    let [
        family,
        traffic_class,
        hop_limit,
        without_icrc,
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
    let route = Route {
        flow: Flow {
            source,
            destination,
            source_port: u16::from_be_bytes([*s0, *s1]),
            destination_port: u16::from_be_bytes([*d0, *d1]),
        },
        traffic_class: *traffic_class,
        hop_limit: *hop_limit,
    };
    Header {
        route,
        segment_size: (u32::from_be_bytes(*size) as usize).max(1),
        has_icrc: *without_icrc == 0,
    }
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
    use crate::sys;

    #[test]
    fn a_header_is_decoded_as_it_was_encoded() {
        for (source, destination) in [("10.0.0.1", "10.0.0.2"), ("fe80::1", "::ffff:1.2.3.4")] {
            let route = Route {
                flow: Flow {
                    source: source.parse().unwrap(),
                    destination: destination.parse().unwrap(),
                    source_port: 55410,
                    destination_port: 4791,
                },
                traffic_class: 0x68,
                hop_limit: 3,
            };
            for has_icrc in [false, true] {
                let header = Header {
                    route,
                    segment_size: 4096,
                    has_icrc,
                };
                assert_eq!(parse(&header.encode()), header);
            }
        }
    }

    #[test]
    fn other_users_do_not_see_the_name_of_a_mailbox() {
        let name = format!("roci-unseen-{}", std::process::id());
        let path = std::env::temp_dir().join(&name);
        let mut mailbox = Mailbox::open(path.clone()).unwrap();
        let sockets = fs::read_to_string("/proc/net/unix").unwrap();
        assert!(!sockets.contains(&name));
        mailbox.send(&path, b"").unwrap();
        assert!(matches!(mailbox.next(), Ok(Some(MailboxMessage::WakeUp))));
        drop(mailbox);
        assert!(!path.exists());
    }

    #[test]
    fn the_path_of_a_mailbox_may_have_any_length() {
        let base = scratch("long");
        let directory = base.join("x".repeat(100)).join("y".repeat(200));
        fs::create_dir_all(&directory).unwrap();
        let path = directory.join("mailbox");
        let mut mailbox = Mailbox::open(path.clone()).unwrap();
        mailbox.send(&path, b"").unwrap();
        assert!(matches!(mailbox.next(), Ok(Some(MailboxMessage::WakeUp))));
        let missing = mailbox.send(&directory.join("missing"), b"").unwrap_err();
        assert_eq!(missing.kind(), io::ErrorKind::NotFound);
        drop(mailbox);
        assert!(!path.exists());
        fs::remove_dir_all(&base).unwrap();
    }

    #[test]
    fn an_offer_is_no_packet() {
        let offer = RingOffer {
            from: Identity {
                pid: 42,
                start: 1 << 40,
            },
            descriptor: 7,
        };
        assert_eq!(RingOffer::parse(&offer.encode()), Some(offer));
        assert_eq!(RingOffer::parse(&offer.encode()[..16]), None);
        let packets = Batch {
            route: Route::new(Flow {
                source: [127, 0, 0, 1].into(),
                destination: [127, 0, 0, 2].into(),
                source_port: 1,
                destination_port: 2,
            }),
            segment_size: 20,
            has_icrc: true,
            bytes: &[OFFER; 20],
        };
        assert_eq!(RingOffer::parse(&encode(&packets)), None);
    }

    fn scratch(name: &str) -> PathBuf {
        std::env::temp_dir().join(format!("roci-mailbox-{name}-{}", std::process::id()))
    }

    #[test]
    fn a_header_without_a_length_has_packets_of_one_byte() {
        let route = Route::new(Flow {
            source: [127, 0, 0, 1].into(),
            destination: [127, 0, 0, 2].into(),
            source_port: 1,
            destination_port: 2,
        });
        let header = Header {
            route,
            segment_size: 0,
            has_icrc: true,
        };
        assert_eq!(parse(&header.encode()).segment_size, 1);
    }

    #[test]
    fn an_invalid_message_is_an_error() {
        let mut mailbox = Mailbox::open(scratch("garbage")).unwrap();
        for garbage in [
            &b"?"[..],
            &[OFFER; OFFER_LENGTH + 1],
            &[4; HEADER_LENGTH - 1],
        ] {
            mailbox.send(&mailbox.path, garbage).unwrap();
            let error = mailbox.next().err().expect("an error");
            assert_eq!(error.kind(), io::ErrorKind::InvalidData);
        }
        assert!(mailbox.next().unwrap().is_none());
    }

    #[test]
    fn a_forked_child_leaves_the_mailbox_to_its_parent() {
        let path = scratch("forked");
        let mut mailbox = Some(Mailbox::open(path.clone()).unwrap());
        let (mut ours, mut theirs) = std::os::unix::net::UnixStream::pair().unwrap();
        let child = sys::process::fork(|| {
            drop(mailbox.take());
            // If this fails, the parent reads nothing, and the test fails.
            let _ = io::Write::write_all(&mut theirs, &[1]);
        });
        drop(theirs);
        io::Read::read_exact(&mut ours, &mut [0]).unwrap();
        sys::process::end(child);
        assert!(path.exists());
        drop(mailbox);
        assert!(!path.exists());
    }
}
