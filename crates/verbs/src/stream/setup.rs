//! Making a stream: both sides say in the private data of the connection what they speak, and which buffers they have.

use std::collections::VecDeque;
use std::fmt::Debug;
use std::net::{SocketAddr, ToSocketAddrs};

use engine::{Access, Segment};

use super::Stream;
use super::flow::{Flow, HEADER, UNPAID};
use super::transport::{Receive, Transport};
use crate::connection::{Connection, ConnectionRequest, Connector};
use crate::error::{ConnectError, SetupError};
use crate::memory::MemoryRegion;
use crate::protection_domain::ProtectionDomain;
use crate::queue_pair::ConnectOptions;
use crate::requests::{Outstanding, Received, Requests, RequestsBuilder};

/// What private data of a stream begins with.
const MAGIC: [u8; 4] = *b"rstm";

/// The version of the protocol that this library speaks.
const VERSION: u16 = 1;

/// What a client that wants no stream is told.
const REFUSAL: &[u8] = b"only streams of rocinante, version 1";

/// The size of the smallest buffers.
const MIN_BUFFER_SIZE: u32 = 64;

/// The buffers of a [`Stream`] at this side. Each message of the peer takes one of them, until the program has read it.
#[derive(Debug, Clone, Copy)]
pub struct StreamOptions {
    buffers: u16,
    buffer_size: u32,
}

impl Default for StreamOptions {
    /// 32 buffers of 32 KiB for each direction. Memory that no data has reached takes none of the machine.
    fn default() -> Self {
        Self {
            buffers: 32,
            buffer_size: 32 << 10,
        }
    }
}

impl StreamOptions {
    /// Sets how many buffers there are for each direction, at least one, and their size in bytes, at least 64. A header takes eight bytes of each.
    #[must_use]
    pub fn buffers(mut self, count: u16, size: u32) -> Self {
        self.buffers = count.max(1);
        self.buffer_size = size.max(MIN_BUFFER_SIZE);
        self
    }

    /// Connects to a server over a resolved route, and waits for its response.
    ///
    /// # Errors
    /// Also if the server accepts connections, but no streams ([`ConnectError::NotStream`]).
    pub fn connect(self, connector: Connector) -> Result<Stream, ConnectError> {
        let (side, builder) = Side::new(self, connector.context().allocate_protection_domain()?)?;
        let prepared = connector.prepare(builder)?;
        let receives = side.receives(|into| prepared.receive(into))?;
        let connection = prepared.connect(&side.offer().to_bytes())?;
        side.finish(connection, receives)
    }

    /// As [`connect`](Self::connect), for tasks.
    pub async fn connect_async(self, connector: Connector) -> Result<Stream, ConnectError> {
        let (side, builder) = Side::new(self, connector.context().allocate_protection_domain()?)?;
        let prepared = connector.prepare(builder)?;
        let receives = side.receives(|into| prepared.receive(into))?;
        let connection = prepared.connect_async(&side.offer().to_bytes()).await?;
        side.finish(connection, receives)
    }

    /// Accepts a client, and waits until it confirms the connection.
    ///
    /// # Errors
    /// Also if the client wants no stream ([`ConnectError::NotStream`]): it is rejected. Continue with the next client then.
    pub fn accept(self, request: ConnectionRequest) -> Result<Stream, ConnectError> {
        let request = only_streams(request)?;
        let domain = request.context().allocate_protection_domain()?;
        let (side, builder) = Side::new(self, domain)?;
        let prepared = request.prepare(builder)?;
        let receives = side.receives(|into| prepared.receive(into))?;
        let connection = prepared.accept(&side.offer().to_bytes())?;
        side.finish(connection, receives)
    }

    /// As [`accept`](Self::accept), for tasks.
    pub async fn accept_async(self, request: ConnectionRequest) -> Result<Stream, ConnectError> {
        let request = only_streams(request)?;
        let domain = request.context().allocate_protection_domain()?;
        let (side, builder) = Side::new(self, domain)?;
        let prepared = request.prepare(builder)?;
        let receives = side.receives(|into| prepared.receive(into))?;
        let connection = prepared.accept_async(&side.offer().to_bytes()).await?;
        side.finish(connection, receives)
    }
}

impl Stream {
    /// Connects to a server, given by name or address, with the default [`StreamOptions`].
    pub fn connect(peer: impl ToSocketAddrs + Debug) -> Result<Self, ConnectError> {
        StreamOptions::default().connect(Connector::resolve(peer)?)
    }

    /// As [`connect`](Self::connect), for tasks. It takes an address, because looking up a name blocks.
    pub async fn connect_async(peer: SocketAddr) -> Result<Self, ConnectError> {
        let connector = Connector::resolve_async(peer).await?;
        StreamOptions::default().connect_async(connector).await
    }

    /// Accepts a client, with the default [`StreamOptions`].
    pub fn accept(request: ConnectionRequest) -> Result<Self, ConnectError> {
        StreamOptions::default().accept(request)
    }

    /// As [`accept`](Self::accept), for tasks.
    pub async fn accept_async(request: ConnectionRequest) -> Result<Self, ConnectError> {
        StreamOptions::default().accept_async(request).await
    }
}

/// Rejects a client that speaks something else.
fn only_streams(request: ConnectionRequest) -> Result<ConnectionRequest, ConnectError> {
    match Offer::parse(request.private_data(), request.peer_address()) {
        Ok(_) => Ok(request),
        Err(error) => {
            request.reject(REFUSAL)?;
            Err(error)
        }
    }
}

/// One side of a stream that is not connected yet.
struct Side {
    options: StreamOptions,
    domain: ProtectionDomain,
    slots: MemoryRegion,
}

impl Side {
    fn new(
        options: StreamOptions,
        domain: ProtectionDomain,
    ) -> Result<(Self, RequestsBuilder), ConnectError> {
        let depth = u32::from(options.buffers) + UNPAID;
        let connect_options = ConnectOptions {
            // The peer only sends.
            access: Access::empty(),
            ..ConnectOptions::default()
        };
        let builder = domain
            .requests_builder()
            .depth(depth, depth)
            .connect_options(connect_options);
        let length = usize::from(options.buffers).saturating_mul(options.buffer_size as usize);
        let slots = domain
            .allocate_memory(length, Access::LOCAL_WRITE)
            .map_err(SetupError::from)?;
        let side = Self {
            options,
            domain,
            slots,
        };
        Ok((side, builder))
    }

    /// Posts the receives, before the first message can arrive.
    fn receives(
        &self,
        receive: impl Fn(Segment) -> Outstanding<Received>,
    ) -> Result<VecDeque<Receive>, ConnectError> {
        let posted = || {
            let buffer = vec![0; self.options.buffer_size as usize];
            let registered = self.domain.register(buffer, Access::LOCAL_WRITE);
            let region = registered.map_err(|error| SetupError::from(error.reason))?;
            Ok(Receive {
                request: receive(region.all()),
                region,
            })
        };
        let count = u32::from(self.options.buffers) + UNPAID;
        (0..count).map(|_| posted()).collect()
    }

    fn offer(&self) -> Offer {
        Offer {
            buffers: self.options.buffers,
            buffer_size: self.options.buffer_size,
        }
    }

    fn finish(
        self,
        connection: Connection<Requests>,
        receives: VecDeque<Receive>,
    ) -> Result<Stream, ConnectError> {
        let peer = connection.peer_address().ok_or(ConnectError::Gone)?;
        let offer = Offer::parse(connection.private_data(), peer)?;
        let slot_size = self.options.buffer_size as usize;
        let longest = slot_size.min(offer.buffer_size as usize) - HEADER;
        let flow = Flow::new(self.options.buffers, offer.buffers);
        let slots = (self.slots, slot_size);
        let transport = Transport::new(connection, self.domain, slots, longest, flow, receives);
        Ok(Stream::new(transport))
    }
}

/// What a side has: the private data of its request or reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Offer {
    buffers: u16,
    buffer_size: u32,
}

impl Offer {
    fn to_bytes(self) -> [u8; 12] {
        let mut bytes = [0; 12];
        bytes[..4].copy_from_slice(&MAGIC);
        bytes[4..6].copy_from_slice(&VERSION.to_be_bytes());
        bytes[6..8].copy_from_slice(&self.buffers.to_be_bytes());
        bytes[8..].copy_from_slice(&self.buffer_size.to_be_bytes());
        bytes
    }

    fn parse(private_data: &[u8], peer: SocketAddr) -> Result<Self, ConnectError> {
        let not_stream = |version| ConnectError::NotStream { peer, version };
        let Some(&[m0, m1, m2, m3, v0, v1, b0, b1, s0, s1, s2, s3]) = private_data.first_chunk()
        else {
            return Err(not_stream(None));
        };
        if [m0, m1, m2, m3] != MAGIC {
            return Err(not_stream(None));
        }
        let version = u16::from_be_bytes([v0, v1]);
        let offer = Self {
            buffers: u16::from_be_bytes([b0, b1]),
            buffer_size: u32::from_be_bytes([s0, s1, s2, s3]),
        };
        if version != VERSION {
            return Err(not_stream(Some(version)));
        }
        if offer.buffers == 0 || offer.buffer_size < MIN_BUFFER_SIZE {
            return Err(not_stream(None));
        }
        Ok(offer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(bytes: &[u8]) -> Result<Offer, String> {
        let peer = ([127, 0, 0, 1], 7471).into();
        Offer::parse(bytes, peer).map_err(|error| error.to_string())
    }

    #[test]
    fn an_offer_comes_back_and_private_data_of_others_is_none() {
        let offer = Offer {
            buffers: 300,
            buffer_size: 70_000,
        };
        let mut padded = offer.to_bytes().to_vec();
        padded.resize(196, 0);
        assert_eq!(parse(&padded), Ok(offer));
        for other in [&b""[..], b"hello", &[0; 196], &offer.to_bytes()[..11]] {
            let error = parse(other).expect_err("no stream");
            assert!(error.contains("no stream protocol"), "{error}");
        }
    }

    #[test]
    fn another_version_is_named_and_buffers_that_nobody_can_use_are_no_stream() {
        let mut offer = Offer {
            buffers: 1,
            buffer_size: MIN_BUFFER_SIZE,
        };
        assert_eq!(parse(&offer.to_bytes()), Ok(offer));
        let mut newer = offer.to_bytes();
        newer[5] = 9;
        let error = parse(&newer).expect_err("another version");
        assert!(error.contains("version 9"), "{error}");
        offer.buffer_size -= 1;
        parse(&offer.to_bytes()).expect_err("too small");
        offer = Offer {
            buffers: 0,
            buffer_size: MIN_BUFFER_SIZE,
        };
        parse(&offer.to_bytes()).expect_err("none");
    }
}
