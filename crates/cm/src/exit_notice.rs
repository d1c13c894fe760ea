//! Exit notices: for each id, the message to send if its process dies now.
//!
//! When a process dies on Linux, the kernel destroys its ids and informs the peers. A process that
//! contains its own connection manager can't do that after a SIGKILL. So the driver gives the
//! complete messages to another process, the watcher, which sends them instead.

use wire::cm::{
    CommunicationId, Message, PrivateData, RejectReason, RejectedMessage, ServiceReply,
    ServiceStatus,
};
use wire::mad;

use crate::exchange::{self, Exchange};
use crate::exchange_state::ExchangeState;
use crate::id::Id;
use crate::transmit::Transmit;

/// The message to send if the process dies. It replaces the previous notice of the same id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExitNotice {
    /// The id. If it is destroyed, this is its last notice.
    pub id: Id,
    /// The message; none if nothing is to be sent any more.
    pub transmit: Option<Transmit>,
}

/// The parts of an exit notice that can change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ExitMessage {
    kind: ExitMessageKind,
    local_id: CommunicationId,
    remote_id: CommunicationId,
    transaction: u64,
}

/// The message that `ib_destroy_cm_id` of Linux sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ExitMessageKind {
    /// REJ "timeout" with our GUID, because the peer may not know our communication id.
    RejectTimeout,
    /// REJ "consumer".
    RejectConsumer(RejectedMessage),
    DisconnectRequest,
    DisconnectReply,
    ServiceReject,
}

impl ExitMessage {
    /// The message for this phase; none if the peer does not wait for one.
    pub(crate) fn of(exchange: &Exchange) -> Option<ExitMessage> {
        let kind = match exchange.phase {
            ExchangeState::RequestSent | ExchangeState::RequestDelayed => {
                ExitMessageKind::RejectTimeout
            }
            ExchangeState::RequestReceived
            | ExchangeState::ReplyReceived
            | ExchangeState::ReplySent
            | ExchangeState::ReplyDelayed => {
                ExitMessageKind::RejectConsumer(exchange.rejected_message())
            }
            // Linux sends nothing after a DREQ. But the DREQ may be lost, and a dead process
            // does not retransmit it. A second DREQ is harmless.
            ExchangeState::Established | ExchangeState::DisconnectSent => {
                ExitMessageKind::DisconnectRequest
            }
            ExchangeState::DisconnectReceived => ExitMessageKind::DisconnectReply,
            ExchangeState::ServiceRequestReceived => ExitMessageKind::ServiceReject,
            ExchangeState::TimeWait | ExchangeState::ServiceRequestSent => return None,
        };
        let transaction = match kind {
            ExitMessageKind::DisconnectRequest => exchange::own_transaction(exchange.local_id),
            _ => exchange.transaction,
        };
        Some(ExitMessage {
            kind,
            local_id: exchange.local_id,
            remote_id: exchange.remote_id,
            transaction,
        })
    }

    /// The complete datagram.
    pub(crate) fn emit(self, exchange: &Exchange, guid: u64) -> [u8; mad::LENGTH] {
        let nothing = PrivateData::default();
        let message: Message = match self.kind {
            ExitMessageKind::RejectTimeout => exchange.reject_timeout(guid).into(),
            ExitMessageKind::RejectConsumer(_) => {
                exchange.reject(RejectReason::Consumer, nothing).into()
            }
            ExitMessageKind::DisconnectRequest => exchange.dreq().into(),
            ExitMessageKind::DisconnectReply => exchange.drep().into(),
            ExitMessageKind::ServiceReject => ServiceReply {
                request_id: exchange.remote_id,
                service_id: exchange.service,
                status: ServiceStatus::Rejected,
                ..ServiceReply::default()
            }
            .into(),
        };
        message.emit(self.transaction)
    }
}
