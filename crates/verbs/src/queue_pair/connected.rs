//! A queue pair that has a peer.

use std::fmt;

use engine::{Attributes, ModifyError, PostError, Segment, State};
use wire::Qpn;

use super::{Endpoint, Handle};
use crate::request::Request;

/// A connected queue pair.
pub struct QueuePair {
    pub(super) handle: Handle,
    pub(super) peer: Endpoint,
}

impl QueuePair {
    /// Its number.
    #[must_use]
    pub fn number(&self) -> Qpn {
        self.handle.number
    }

    /// The other end.
    #[must_use]
    pub fn peer(&self) -> Endpoint {
        self.peer
    }

    /// Asks for something to be done. It is sent on this thread, before this returns.
    pub fn post(&self, request: Request) -> Result<(), PostError> {
        self.handle.post_send(request)
    }

    /// Asks for several things at once, which saves sends: small messages share one.
    ///
    /// If one is refused, those before it are under way.
    pub fn post_many(&self, requests: impl IntoIterator<Item = Request>) -> Result<(), PostError> {
        self.handle.post_sends(requests)
    }

    /// Gives it room for a message.
    pub fn post_receive(
        &self,
        id: u64,
        segments: impl IntoIterator<Item = Segment>,
    ) -> Result<(), PostError> {
        self.handle.post_receive(id, segments)
    }

    /// Its state: [`State::ReadyToSend`] unless something broke it.
    #[must_use]
    pub fn state(&self) -> State {
        self.handle.state()
    }

    /// Changes attributes by hand, for what the other methods don't cover.
    pub fn modify(&self, attributes: &Attributes) -> Result<(), ModifyError> {
        self.handle.modify(attributes)
    }

    /// Breaks it: everything outstanding is flushed.
    pub fn break_off(&self) -> Result<(), ModifyError> {
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
