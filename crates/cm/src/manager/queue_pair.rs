//! The attributes for a queue pair's transitions, like `rdma_init_qp_attr`.

use wire::{AckTimeout, PartitionKey};

use crate::error::CallError;
use crate::exchange::Exchange;
use crate::exchange_state::ExchangeState;
use crate::id::{Id, IdEntry};
use crate::manager::Manager;
use crate::manager::sidr::settle_queue_key;
use crate::planted_bug::Bug;
use crate::qp_attributes::{
    Access, InitAttributes, ReceiveAttributes, ReliableReceive, ReliableSend, SendAttributes,
};
use crate::service_type::ServiceType;

impl Manager {
    /// For the transition to INIT. It is possible at any time, but the peer's access rights are empty
    /// before the exchange starts: librdmacm repeats the transition then.
    pub fn init_attributes(&mut self, id: Id) -> Result<InitAttributes, CallError> {
        let entry = self.entry_mut(id)?;
        if entry.kind == ServiceType::Datagram {
            let queue_key = settle_queue_key(entry, None)?;
            return Ok(InitAttributes {
                partition: PartitionKey::default(),
                access: Access::empty(),
                queue_key: Some(queue_key),
            });
        }
        let exchange = entry.exchange.as_ref();
        Ok(InitAttributes {
            partition: exchange
                .map(|exchange| exchange.partition)
                .unwrap_or_default(),
            access: exchange.map_or(Access::empty(), |exchange| access(exchange)),
            queue_key: None,
        })
    }

    /// For the transition to RTR: possible once a request or a response was received. A datagram queue
    /// pair needs no attributes.
    pub fn receive_attributes(&self, id: Id) -> Result<ReceiveAttributes, CallError> {
        let (entry, exchange) = self.connected(id)?;
        let reliable = ReliableReceive {
            responder_resources: exchange.responder_resources,
            min_rnr_timer: entry.options.min_rnr_timer.unwrap_or_default(),
        };
        let receive_psn = if self.planted.is(Bug::SequenceNumbersSwapped) {
            exchange.send_psn
        } else {
            exchange.receive_psn
        };
        Ok(ReceiveAttributes {
            path: exchange.path_attributes(),
            mtu: exchange.mtu,
            remote_qpn: exchange.remote_qpn,
            receive_psn,
            reliable: is_reliable(entry).then_some(reliable),
        })
    }

    /// For the transition to RTS: possible once a request or a response was received. A datagram queue
    /// pair needs only PSN 0.
    pub fn send_attributes(&self, id: Id) -> Result<SendAttributes, CallError> {
        let (entry, exchange) = self.connected(id)?;
        let timeout = AckTimeout::new(exchange.ack_timeout).expect("a code has five bits");
        let reliable = ReliableSend {
            ack_timeout: entry.options.ack_timeout.unwrap_or(timeout),
            retry_count: exchange.retry_count,
            rnr_retry_count: exchange.rnr_retry_count,
            initiator_depth: exchange.initiator_depth,
        };
        Ok(SendAttributes {
            send_psn: exchange.send_psn,
            reliable: is_reliable(entry).then_some(reliable),
        })
    }

    /// An id whose peer has sent its parameters.
    fn connected(&self, id: Id) -> Result<(&IdEntry, &Exchange), CallError> {
        let entry = self.entry(id)?;
        let Some(exchange) = &entry.exchange else {
            return Err(CallError::WrongState(entry.state));
        };
        match exchange.phase {
            ExchangeState::RequestReceived
            | ExchangeState::ReplySent
            | ExchangeState::ReplyDelayed
            | ExchangeState::ReplyReceived
            | ExchangeState::Established => Ok((entry, exchange)),
            _ => Err(CallError::WrongPhase),
        }
    }
}

fn is_reliable(entry: &IdEntry) -> bool {
    matches!(
        entry.kind,
        ServiceType::ReliableConnection | ServiceType::ExtendedConnection
    )
}

/// Remote reads and atomics are granted only if there are responder resources, as in Linux since 6.2.
fn access(exchange: &Exchange) -> Access {
    match exchange.responder_resources {
        0 => Access::REMOTE_WRITE,
        _ => Access::all(),
    }
}
