//! Connected queue pairs.

use engine::{Attributes, ModifyError, PostError, Segment, State, SystemRefusal};
use std::fmt;
use wire::Qpn;

use super::{Endpoint, Handle};
#[cfg(feature = "async")]
use crate::context::Context;
use crate::request::Request;

/// A connected queue pair.
#[must_use = "dropping it destroys the queue pair"]
pub struct QueuePair {
    pub(super) handle: Handle,
    pub(super) peer: Endpoint,
}

impl QueuePair {
    /// The queue pair number.
    #[must_use]
    pub fn number(&self) -> Qpn {
        self.handle.number
    }

    /// The peer's endpoint.
    #[must_use]
    pub fn peer(&self) -> Endpoint {
        self.peer
    }

    /// Posts a send request. This thread transmits it before this returns.
    #[inline]
    pub fn post_send(&self, request: Request) -> Result<(), PostError> {
        self.handle.post_send(request)
    }

    /// Posts several send requests at once. Small messages then share one system call.
    ///
    /// If one is rejected, those before it are posted.
    pub fn post_send_many(
        &self,
        requests: impl IntoIterator<Item = Request>,
    ) -> Result<(), PostError> {
        self.handle.post_send_many(requests)
    }

    /// Posts a receive into a segment of registered memory, or into several, one after the other.
    pub fn post_receive(
        &self,
        id: u64,
        segments: impl IntoIterator<Item = Segment>,
    ) -> Result<(), PostError> {
        self.handle.post_receive(id, segments)
    }

    /// The state: [`State::ReadyToSend`] unless there was an error.
    #[must_use]
    pub fn state(&self) -> State {
        self.handle.state()
    }

    /// The state, and how many send requests are outstanding; in the error state, how many have failed.
    pub(crate) fn unacknowledged_sends(&self) -> Result<(State, usize), SystemRefusal> {
        self.handle.unacknowledged_sends()
    }

    /// The device.
    #[cfg(feature = "async")]
    pub(crate) fn context(&self) -> &Context {
        self.handle.domain.context()
    }

    /// Modifies attributes that the other methods do not cover.
    pub fn modify(&self, attributes: &Attributes) -> Result<(), ModifyError> {
        self.handle.modify(attributes)
    }

    /// Moves it to the error state. Outstanding requests are flushed.
    pub fn move_to_error(&self) -> Result<(), ModifyError> {
        self.handle.modify(&Attributes {
            state: Some(State::Error),
            ..Attributes::default()
        })
    }
}

impl fmt::Debug for QueuePair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QueuePair")
            .field("number", &self.handle.number)
            .field("peer", &self.peer)
            .finish_non_exhaustive()
    }
}
