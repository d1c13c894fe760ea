//! What a queue pair must be told on its way to RTS, like `rdma_init_qp_attr`.

use wire::{AckTimeout, PartitionKey};

use crate::attributes::{
    Access, InitAttributes, ReceiveAttributes, ReliableReceive, ReliableSend, SendAttributes,
};
use crate::error::CallError;
use crate::id::{Endpoint, Id, Kind, Phase};
use crate::link::Link;
use crate::manager::Manager;
use crate::manager::datagram::settle_queue_key;
use crate::sabotage::Bug;

impl Manager {
    /// For the step to INIT. It is possible at any time, but the peer may only do something once
    /// there is a conversation: Linux lets librdmacm take the step a second time then.
    pub fn init_attributes(&mut self, id: Id) -> Result<InitAttributes, CallError> {
        let endpoint = self.endpoint_mut(id)?;
        if endpoint.kind == Kind::Datagram {
            let queue_key = settle_queue_key(endpoint, None)?;
            return Ok(InitAttributes {
                partition: PartitionKey::default(),
                access: Access::empty(),
                queue_key: Some(queue_key),
            });
        }
        let link = endpoint.link.as_ref();
        Ok(InitAttributes {
            partition: link.map(|link| link.partition).unwrap_or_default(),
            access: link.map_or(Access::empty(), |link| access(link)),
            queue_key: None,
        })
    }

    /// For the step to RTR: after a request or a response has come. A datagram queue pair needs
    /// nothing for this step.
    pub fn receive_attributes(&self, id: Id) -> Result<ReceiveAttributes, CallError> {
        let (endpoint, link) = self.connected(id)?;
        let reliable = ReliableReceive {
            responder_resources: link.responder_resources,
            min_rnr_timer: endpoint.options.min_rnr_timer.unwrap_or_default(),
        };
        let receive_psn = match self.sabotage.has(Bug::SequenceNumbersSwapped) {
            true => link.send_psn,
            false => link.receive_psn,
        };
        Ok(ReceiveAttributes {
            path: link.path_attributes(),
            mtu: link.mtu,
            remote_qpn: link.remote_qpn,
            receive_psn,
            reliable: is_reliable(endpoint).then_some(reliable),
        })
    }

    /// For the step to RTS: from the same moment on. A datagram queue pair starts with PSN 0 and
    /// needs nothing else.
    pub fn send_attributes(&self, id: Id) -> Result<SendAttributes, CallError> {
        let (endpoint, link) = self.connected(id)?;
        let timeout = AckTimeout::new(link.ack_timeout).expect("a code has five bits");
        let reliable = ReliableSend {
            ack_timeout: endpoint.options.ack_timeout.unwrap_or(timeout),
            retry_count: link.retry_count,
            rnr_retry_count: link.rnr_retry_count,
            initiator_depth: link.initiator_depth,
        };
        Ok(SendAttributes {
            send_psn: link.send_psn,
            reliable: is_reliable(endpoint).then_some(reliable),
        })
    }

    /// An id whose peer has said what it has.
    fn connected(&self, id: Id) -> Result<(&Endpoint, &Link), CallError> {
        let endpoint = self.endpoint(id)?;
        let Some(link) = &endpoint.link else {
            return Err(CallError::WrongState(endpoint.state));
        };
        match link.phase {
            Phase::RequestReceived
            | Phase::ReplySent
            | Phase::ReplyDelayed
            | Phase::ReplyReceived
            | Phase::Established => Ok((endpoint, link)),
            _ => Err(CallError::WrongPhase),
        }
    }
}

fn is_reliable(endpoint: &Endpoint) -> bool {
    matches!(
        endpoint.kind,
        Kind::ReliableConnection | Kind::ExtendedConnection
    )
}

fn access(link: &Link) -> Access {
    if link.responder_resources == 0 {
        return Access::REMOTE_WRITE;
    }
    Access::REMOTE_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC
}
