//! A queue pair on its way to a connection.

use engine::{Attributes, Kind, PostError, Segment, State};

use super::ConnectError;
use crate::context::Context;
use crate::queue_pair::{Builder, Endpoint, Handle, QueuePair, SetupError, Terms};
use crate::rdma_cm::{Identifier, Parameters};

/// A queue pair that takes receives, and the terms on which it will be connected.
pub(super) struct Candidate {
    handle: Handle,
    terms: Terms,
}

impl Candidate {
    pub(super) fn new(context: &Context, builder: Builder) -> Result<Self, ConnectError> {
        if !builder.is_at(context) {
            return Err(ConnectError::OtherDevice);
        }
        let (handle, terms) = builder.kind(Kind::Rc).create().map_err(SetupError::from)?;
        let init = Attributes {
            state: Some(State::Initialized),
            port: Some(1),
            partition_index: Some(0),
            access: Some(terms.access),
            ..Attributes::default()
        };
        handle.modify(&init).map_err(SetupError::from)?;
        Ok(Self { handle, terms })
    }

    pub(super) fn post_receive(
        &self,
        id: u64,
        segments: impl IntoIterator<Item = Segment>,
    ) -> Result<(), PostError> {
        self.handle.post_receive(id, segments)
    }

    /// What the peer is told.
    pub(super) fn parameters<'d>(&self, private_data: &'d [u8]) -> Parameters<'d> {
        Parameters {
            private_data,
            responder_resources: self.terms.reads,
            initiator_depth: self.terms.reads,
            retry_count: self.terms.retry_count,
            rnr_retry_count: self.terms.rnr_retry,
            shared_receive_queue: self.handle.has_shared_receive(),
            ..Parameters::new(self.handle.number)
        }
    }

    /// Makes the queue pair ready to receive and to send.
    pub(super) fn bring_up(self, id: &Identifier) -> Result<QueuePair, ConnectError> {
        let receive = Attributes {
            rnr_timer: Some(self.terms.rnr_timer),
            ..id.receive_attributes()?
        };
        let send = Attributes {
            ack_timeout: Some(self.terms.ack_timeout),
            ..id.send_attributes()?
        };
        for attributes in [&receive, &send] {
            self.handle.modify(attributes).map_err(SetupError::from)?;
        }
        let peer = Endpoint {
            gid: receive
                .path
                .map(|path| path.destination)
                .unwrap_or_default(),
            queue_pair: receive.destination.unwrap_or_default(),
            psn: receive.receive_psn.unwrap_or_default(),
        };
        Ok(QueuePair::connected(self.handle, peer))
    }
}
