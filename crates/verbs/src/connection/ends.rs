//! What a connection is made of: a queue pair, or one with a future for each request.
//!
//! The traits are public because they bound public types, and nobody outside can name them.

use crate::error::{ConnectError, SetupError};
use crate::queue_pair::{PreparedQueuePair, QueuePair, QueuePairBuilder};
#[cfg(feature = "async")]
use crate::requests::{PreparedRequests, Requests, RequestsBuilder};

/// Describes the end of a connection.
pub trait EndBuilder {
    type Prepared: PreparedEnd;

    fn create(self) -> Result<Self::Prepared, SetupError>;
}

/// The end of a connection, before it is connected.
pub trait PreparedEnd: Sized {
    type Connected: ConnectedEnd;

    fn queue_pair(&self) -> &PreparedQueuePair;

    fn connect_by(
        self,
        connect: impl FnOnce(PreparedQueuePair) -> Result<QueuePair, ConnectError>,
    ) -> Result<Self::Connected, ConnectError>;
}

/// The end of a connection.
pub trait ConnectedEnd {
    fn queue_pair(&self) -> &QueuePair;
}

impl EndBuilder for QueuePairBuilder {
    type Prepared = PreparedQueuePair;

    fn create(self) -> Result<PreparedQueuePair, SetupError> {
        self.create_reliable()
    }
}

impl PreparedEnd for PreparedQueuePair {
    type Connected = QueuePair;

    fn queue_pair(&self) -> &PreparedQueuePair {
        self
    }

    fn connect_by(
        self,
        connect: impl FnOnce(PreparedQueuePair) -> Result<QueuePair, ConnectError>,
    ) -> Result<QueuePair, ConnectError> {
        connect(self)
    }
}

impl ConnectedEnd for QueuePair {
    fn queue_pair(&self) -> &QueuePair {
        self
    }
}

#[cfg(feature = "async")]
impl EndBuilder for RequestsBuilder {
    type Prepared = PreparedRequests;

    fn create(self) -> Result<PreparedRequests, SetupError> {
        self.create_reliable()
    }
}

#[cfg(feature = "async")]
impl PreparedEnd for PreparedRequests {
    type Connected = Requests;

    fn queue_pair(&self) -> &PreparedQueuePair {
        self.prepared()
    }

    fn connect_by(
        self,
        connect: impl FnOnce(PreparedQueuePair) -> Result<QueuePair, ConnectError>,
    ) -> Result<Requests, ConnectError> {
        Self::connect_by(self, connect)
    }
}

#[cfg(feature = "async")]
impl ConnectedEnd for Requests {
    fn queue_pair(&self) -> &QueuePair {
        Self::queue_pair(self)
    }
}
