//! Connections: a server listens, a client connects, and both get a connected queue pair.
//!
//! Each side needs two steps, because a queue pair needs a protection domain, and that needs the device.
//! First, [`Listener`] or [`Connector`] determine the device. Then the application prepares the queue pair,
//! posts its first receives, and connects or accepts.

mod connection_id;
mod connector;
mod listener;
mod shutdown;

use std::fmt;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use wire::cm::RejectReason;

pub use connector::{Connector, PreparedConnect};
pub use listener::{ConnectionRequest, Listener, PreparedAccept};
pub use shutdown::ShutdownError;

use crate::context::Context;
use crate::error::ConnectError;
use crate::queue_pair::{PreparedQueuePair, QueuePair, QueuePairBuilder};
use crate::rdma_cm::{CmError, EventKind, Failure};
use connection_id::{ConnectionId, Event};

/// A connection with its queue pair, ready to post.
///
/// When the peer disconnects, the queue pair enters the error state and outstanding requests are flushed, so
/// a thread that waits for a completion gets one. Dropping it disconnects at once, and the peer may miss messages that it has not acknowledged:
/// wait for their completions before, or call [`shutdown`](Self::shutdown).
///
/// A shared receive queue keeps its receives when one of its connections ends, so no completion says so. A server with a pool of connections
/// asks each of them from time to time ([`wait_disconnected`](Self::wait_disconnected) with a timeout of zero), or has a task for each that
/// awaits `disconnected`. A send that fails says it, too.
#[must_use = "dropping it disconnects"]
pub struct Connection {
    // Dropped first: the peer gets the disconnect before the queue pair stops responding.
    id: ConnectionId,
    queue_pair: QueuePair,
    private_data: Vec<u8>,
    /// Either side has disconnected, and a thread has seen the event.
    has_ended: AtomicBool,
}

impl Connection {
    /// The peer's private data of its request or reply, padded with zeros.
    #[must_use]
    pub fn private_data(&self) -> &[u8] {
        &self.private_data
    }

    /// The local address.
    #[must_use]
    pub fn local_address(&self) -> Option<SocketAddr> {
        self.id.local_address()
    }

    /// The peer's address.
    #[must_use]
    pub fn peer_address(&self) -> Option<SocketAddr> {
        self.id.peer_address()
    }

    /// Disconnects at once. Outstanding requests are flushed; [`shutdown`](Self::shutdown) waits for them.
    pub fn disconnect(&self) -> Result<(), CmError> {
        self.id.disconnect()
    }

    /// Waits until either side has disconnected, at most `timeout`. Returns whether it has. Any number of threads may wait for it.
    pub fn wait_disconnected(&self, timeout: Duration) -> bool {
        let deadline = driver::clock::deadline(timeout);
        while !self.has_ended.load(Ordering::Relaxed) {
            let Some(event) = self.id.wait_until(deadline) else {
                return self.has_ended.load(Ordering::Relaxed);
            };
            self.note(event);
        }
        true
    }

    /// Completes when either side has disconnected. Any number of tasks may wait for it.
    #[cfg(feature = "async")]
    pub async fn disconnected(&self) {
        while !self.has_ended.load(Ordering::Relaxed) {
            self.note(self.id.next().await);
        }
    }

    /// Remembers the end of the connection, if this event is the end.
    fn note(&self, event: Event) {
        if let Event::Other(end @ (EventKind::Disconnected { .. } | EventKind::DeviceRemoval)) =
            event
        {
            self.has_ended.store(true, Ordering::Relaxed);
            // Other threads and tasks may wait for it, too. It wakes them, and the next one puts it back again.
            self.id.put_back(end);
        }
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection")
            .field("local_address", &self.local_address())
            .field("peer_address", &self.peer_address())
            .field("queue_pair", &self.queue_pair)
            .field("has_ended", &self.has_ended)
            .finish_non_exhaustive()
    }
}

impl Deref for Connection {
    type Target = QueuePair;

    fn deref(&self) -> &QueuePair {
        &self.queue_pair
    }
}

/// Prepares a queue pair for a connection over this device.
fn prepare(
    context: &Context,
    queue_pair: QueuePairBuilder,
) -> Result<PreparedQueuePair, ConnectError> {
    let prepared = queue_pair.create_reliable()?;
    if prepared.is_at(context) {
        Ok(prepared)
    } else {
        Err(ConnectError::OtherDevice)
    }
}

/// The error of a failure event; `None` for other events.
fn failure(peer: SocketAddr, kind: EventKind) -> Option<ConnectError> {
    match kind {
        EventKind::Rejected {
            reason: RejectReason::InvalidServiceId,
            ..
        } => Some(ConnectError::NoListener(peer)),
        EventKind::Rejected {
            reason,
            private_data,
        } => Some(ConnectError::Rejected {
            peer,
            reason,
            private_data,
        }),
        EventKind::Unreachable(_) | EventKind::AddressError(Failure::TimedOut) => {
            Some(ConnectError::Unreachable(peer))
        }
        EventKind::Disconnected { .. } | EventKind::DeviceRemoval | EventKind::ConnectError(_) => {
            Some(ConnectError::Gone)
        }
        EventKind::AddressError(failure) | EventKind::RouteError(failure) => {
            let source = match failure {
                Failure::TimedOut => ErrorKind::TimedOut.into(),
                Failure::QueueKeyMismatch => ErrorKind::InvalidInput.into(),
                Failure::NoDevice => ErrorKind::AddrNotAvailable.into(),
                Failure::Os(number) => io::Error::from_raw_os_error(number),
            };
            let peer = peer.ip();
            Some(CmError::NoRoute { peer, source }.into())
        }
        _ => None,
    }
}
