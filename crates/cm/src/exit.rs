//! Exit notices: the message that each id would send if its process died now.
//!
//! When a process dies on Linux, the kernel destroys its ids, and the peers are told. A process
//! that is its own connection manager can't do that after a SIGKILL. So the driver hands the
//! messages, ready-made, to another process, which sends them in its stead.

use wire::cm::{
    CommunicationId, Message, PrivateData, RefusedMessage, RejectReason, ServiceReply,
    ServiceStatus,
};
use wire::mad;

use crate::id::{Id, Phase};
use crate::link::{self, Link};
use crate::manager::Transmit;

/// From now on, this is to be sent if the process dies. It replaces the notice of the same id that
/// came before it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExitNotice {
    /// The id. It may be destroyed already, and then this is its last notice.
    pub id: Id,
    /// The message; none if the peer need not be told anything any more.
    pub transmit: Option<Transmit>,
}

/// An exit notice, reduced to what can change.
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
    /// REJ "timeout" with our GUID, because the peer may not know our identifier.
    RejectTimeout,
    /// REJ "consumer".
    RejectConsumer(RefusedMessage),
    DisconnectRequest,
    DisconnectReply,
    ServiceReject,
}

impl ExitMessage {
    /// None if the peer waits for nothing.
    pub(crate) fn of(link: &Link) -> Option<ExitMessage> {
        let kind = match link.phase {
            Phase::RequestSent | Phase::RequestDelayed => ExitMessageKind::RejectTimeout,
            Phase::RequestReceived
            | Phase::ReplyReceived
            | Phase::ReplySent
            | Phase::ReplyDelayed => ExitMessageKind::RejectConsumer(link.refused_message()),
            // Linux sends nothing more after a DREQ. But the DREQ may be lost, and a dead process
            // does not repeat it. A second DREQ does no harm.
            Phase::Established | Phase::DisconnectSent => ExitMessageKind::DisconnectRequest,
            Phase::DisconnectReceived => ExitMessageKind::DisconnectReply,
            Phase::ServiceRequestReceived => ExitMessageKind::ServiceReject,
            Phase::TimeWait | Phase::ServiceRequestSent => return None,
        };
        let transaction = match kind {
            ExitMessageKind::DisconnectRequest => link::own_transaction(link.local_id),
            _ => link.transaction,
        };
        Some(ExitMessage {
            kind,
            local_id: link.local_id,
            remote_id: link.remote_id,
            transaction,
        })
    }

    /// The complete datagram.
    pub(crate) fn emit(self, link: &Link, guid: u64) -> [u8; mad::LENGTH] {
        let nothing = PrivateData::default();
        let message: Message = match self.kind {
            ExitMessageKind::RejectTimeout => link.give_up(guid).into(),
            ExitMessageKind::RejectConsumer(_) => {
                link.refusal(RejectReason::Consumer, nothing).into()
            }
            ExitMessageKind::DisconnectRequest => link.part().into(),
            ExitMessageKind::DisconnectReply => link.parted().into(),
            ExitMessageKind::ServiceReject => ServiceReply {
                request_id: link.remote_id,
                service_id: link.service,
                status: ServiceStatus::Rejected,
                ..ServiceReply::default()
            }
            .into(),
        };
        message.emit(self.transaction)
    }
}
