//! Connections: a server listens, a client connects, and both get a connected queue pair.
//!
//! Each side needs two steps, because a queue pair needs a protection domain, and that needs the device.
//! First, [`Listener`] or [`Connector`] determine the device. Then the application prepares the queue pair,
//! posts its first receives, and connects or accepts.

mod connection_id;
mod connector;
mod ends;
mod listener;
mod shutdown;

use std::fmt;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::ops::Deref;
use std::sync::OnceLock;
use std::time::Duration;

use wire::cm::RejectReason;

pub use connector::{Connector, PreparedConnect};
pub use listener::{ConnectionRequest, Listener, PreparedAccept};
pub use shutdown::ShutdownError;

use crate::context::Context;
use crate::error::ConnectError;
use crate::queue_pair::QueuePair;
use crate::rdma_cm::{CmError, EventKind, Failure};
use connection_id::{ConnectionId, Event};
use ends::{EndBuilder, PreparedEnd};

/// A connection with its queue pair, ready to post. With `Requests` instead of a [`QueuePair`], there is a future for each request.
///
/// When the peer disconnects, the queue pair enters the error state and outstanding requests are flushed, so
/// a thread that waits for a completion gets one. Dropping it disconnects at once, and the peer may miss messages that it has not acknowledged:
/// wait for their completions before, or call [`shutdown`](Self::shutdown).
///
/// A shared receive queue keeps its receives when one of its connections ends, so no completion says so. A server with a pool of connections
/// asks each of them from time to time ([`wait_disconnected`](Self::wait_disconnected) with a timeout of zero), or has a task for each that
/// awaits `disconnected`. A send that fails says it, too.
#[must_use = "dropping it disconnects"]
pub struct Connection<E = QueuePair> {
    // Dropped first: the peer gets the disconnect before the queue pair stops responding.
    id: ConnectionId,
    end: E,
    private_data: Vec<u8>,
    /// How it ended, once a thread has seen the event.
    ended: OnceLock<Ended>,
}

/// How a connection has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ended {
    /// Either side has disconnected, and the other one knows it.
    Agreed,
    /// This side has disconnected, and the peer never answered; or the device was removed.
    Unconfirmed,
}

impl<E> Connection<E> {
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
        while self.ended.get().is_none() {
            let Some(event) = self.id.wait_until(deadline) else {
                return self.ended.get().is_some();
            };
            self.note(event);
        }
        true
    }

    /// Completes when either side has disconnected. Any number of tasks may wait for it.
    #[cfg(feature = "async")]
    pub async fn disconnected(&self) {
        while self.ended.get().is_none() {
            self.note(self.id.next().await);
        }
    }

    /// Remembers the end of the connection, if this event is the end.
    fn note(&self, event: Event) {
        let Event::Other(kind) = event else { return };
        let ended = match kind {
            EventKind::Disconnected { timed_out: false } => Ended::Agreed,
            EventKind::Disconnected { timed_out: true } | EventKind::DeviceRemoval => {
                Ended::Unconfirmed
            }
            _ => return,
        };
        self.ended.get_or_init(|| ended);
        // Other threads and tasks may wait for it, too. It wakes them, and the next one puts it back again.
        self.id.put_back(kind);
    }
}

impl<E: fmt::Debug> fmt::Debug for Connection<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection")
            .field("local_address", &self.local_address())
            .field("peer_address", &self.peer_address())
            .field("end", &self.end)
            .field("ended", &self.ended.get())
            .finish_non_exhaustive()
    }
}

impl<E> Deref for Connection<E> {
    type Target = E;

    fn deref(&self) -> &E {
        &self.end
    }
}

/// Prepares a queue pair for a connection over this device.
fn prepare<B: EndBuilder>(context: &Context, queue_pair: B) -> Result<B::Prepared, ConnectError> {
    let prepared = queue_pair.create()?;
    if prepared.queue_pair().is_at(context) {
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
                Failure::NoDevice => return Some(CmError::NoDeviceTowards(peer.ip()).into()),
                Failure::Os(number) => io::Error::from_raw_os_error(number),
            };
            let peer = peer.ip();
            Some(CmError::NoRoute { peer, source }.into())
        }
        _ => None,
    }
}
