//! Queue pairs without a peer.

use engine::{
    Address, Attributes, ModifyError, PostError, QueuePairType, Segment, State, SystemRefusal,
};

#[cfg(feature = "async")]
use super::Object;
use super::{ConnectOptions, Endpoint, Handle, QueuePair};
use crate::context::Context;
use crate::error::{ConnectError, SetupError};
use crate::rdma_cm::{CmId, Parameters};

/// A queue pair that has a number and takes receives, but is not connected yet.
///
/// It cannot send, so it has no method for it:
/// ```compile_fail
/// # fn demo(prepared: rocinante::PreparedQueuePair) {
/// prepared.post_send(rocinante::Request::send().inline(b"hello"));
/// # }
/// ```
#[derive(Debug)]
#[must_use = "dropping it destroys the queue pair"]
pub struct PreparedQueuePair {
    pub(super) handle: Handle,
    pub(super) kind: QueuePairType,
    pub(super) options: ConnectOptions,
    pub(super) endpoint: Endpoint,
}

impl PreparedQueuePair {
    /// The endpoint for the peer.
    #[must_use]
    pub fn endpoint(&self) -> Endpoint {
        self.endpoint
    }

    /// Posts a receive into one or several segments. If this is done before connecting, the first message of the peer need not be retried.
    pub fn post_receive(
        &self,
        id: u64,
        segments: impl IntoIterator<Item = Segment>,
    ) -> Result<(), PostError> {
        self.handle.post_receive(id, segments)
    }

    /// Connects it. The peer does the same with the local endpoint. iWARP devices can't: their connections are made by a
    /// [`Connector`](crate::Connector) and a [`Listener`](crate::Listener), or by ids of [`rdma_cm`](crate::rdma_cm).
    pub fn connect(self, peer: Endpoint) -> Result<QueuePair, ModifyError> {
        Ok(QueuePair {
            handle: self.bring_up(peer)?,
            peer,
        })
    }

    /// The parameters of a connection manager message to the peer. They do not promise more reads and atomics than
    /// the device supports.
    #[must_use]
    pub fn parameters<'d>(&self, private_data: &'d [u8]) -> Parameters<'d> {
        let reads = self.options.reads.min(self.handle.max_reads());
        Parameters {
            private_data,
            responder_resources: reads,
            initiator_depth: reads,
            retry_count: self.options.retry_count,
            rnr_retry_count: self.options.rnr_retry,
            shared_receive_queue: self.handle.shares_receives(),
            ..Parameters::new(self.handle.number)
        }
    }

    /// Connects it to the peer of an id: before a request is accepted, or after the response to one. A peer may offer
    /// more reads and atomics than the device supports; then the device's limit applies.
    pub fn connect_by(self, id: &CmId) -> Result<QueuePair, ConnectError> {
        if id.is_of_system() {
            self.move_to_port(&id.init_attributes()?)?;
        }
        let (receive, send) = (id.receive_attributes()?, id.send_attributes()?);
        Ok(self.connect_with(receive, send)?)
    }

    /// Connects it with the attributes for Ready to Receive and Ready to Send that the connection manager says.
    fn connect_with(self, receive: Attributes, send: Attributes) -> Result<QueuePair, SetupError> {
        let max_reads = self.handle.max_reads();
        let limited = |reads: Option<u8>| reads.map(|reads| reads.min(max_reads));
        let receive = Attributes {
            // The connections of iWARP have neither timer.
            rnr_timer: receive.rnr_timer.map(|_| self.options.rnr_timer),
            responder_resources: limited(receive.responder_resources),
            ..receive
        };
        let send = Attributes {
            ack_timeout: send.ack_timeout.map(|_| self.options.ack_timeout),
            initiator_depth: limited(send.initiator_depth),
            ..send
        };
        for attributes in [&receive, &send] {
            self.handle.modify(attributes)?;
        }
        let peer = Endpoint {
            gid: receive
                .path
                .map(|path| path.destination)
                .unwrap_or_default(),
            queue_pair: receive.destination.unwrap_or_default(),
            psn: receive.receive_psn.unwrap_or_default(),
        };
        Ok(QueuePair {
            handle: self.handle,
            peer,
        })
    }

    /// Moves it to the port and partition that the connection manager says.
    fn move_to_port(&self, init: &Attributes) -> Result<(), SetupError> {
        self.handle.modify(&Attributes {
            state: Some(State::Initialized),
            port: init.port,
            partition_index: init.partition_index,
            access: Some(self.options.access),
            ..Attributes::default()
        })?;
        Ok(())
    }

    /// The queue pair at its device.
    #[cfg(feature = "async")]
    pub(crate) fn object(&self) -> &Object {
        self.handle.object()
    }

    /// Whether it belongs to this device.
    pub(crate) fn is_at(&self, context: &Context) -> bool {
        self.handle.domain.context().is(context)
    }

    /// Moves it to Ready to Receive and Ready to Send, with the attributes of its type.
    pub(crate) fn bring_up(self, peer: Endpoint) -> Result<Handle, ModifyError> {
        if self.handle.domain.context().is_iwarp() {
            return Err(SystemRefusal::Lacks(
                "connections by endpoints, because it is an iWARP device: use a `Connector` and a `Listener`",
            )
            .into());
        }
        self.handle.modify(&self.receive_attributes(peer))?;
        self.handle.modify(&self.send_attributes())?;
        Ok(self.handle)
    }

    fn receive_attributes(&self, peer: Endpoint) -> Attributes {
        let is_responder = matches!(self.kind, QueuePairType::Rc | QueuePairType::XrcTarget);
        let options = &self.options;
        let context = self.handle.domain.context();
        Attributes {
            state: Some(State::ReadyToReceive),
            path: Some(Address {
                traffic_class: options.traffic_class,
                ..Address::new(peer.gid, self.handle.gid_index(options.gid_index))
            }),
            path_mtu: Some(options.path_mtu.unwrap_or(context.active_mtu())),
            destination: Some(peer.queue_pair),
            receive_psn: Some(peer.psn),
            responder_resources: is_responder.then_some(options.reads),
            rnr_timer: is_responder.then_some(options.rnr_timer),
            ..Attributes::default()
        }
    }

    fn send_attributes(&self) -> Attributes {
        let is_requester = matches!(self.kind, QueuePairType::Rc | QueuePairType::XrcInitiator);
        let waits = is_requester || self.kind == QueuePairType::XrcTarget;
        let options = &self.options;
        Attributes {
            state: Some(State::ReadyToSend),
            send_psn: Some(self.endpoint.psn),
            ack_timeout: waits.then_some(options.ack_timeout),
            retry_count: is_requester.then_some(options.retry_count),
            rnr_retry: is_requester.then_some(options.rnr_retry),
            initiator_depth: is_requester.then_some(options.reads),
            ..Attributes::default()
        }
    }
}
