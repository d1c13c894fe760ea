//! Which process a message is for, when several processes share an address.

use wire::cm::{CommunicationId, Message, RejectReason, ServiceId};

/// The process that a message is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Recipient {
    /// The process whose range contains this communication id: see
    /// [`IdRange::contains`](crate::IdRange::contains).
    CommunicationId(CommunicationId),
    /// The process that listens on this service.
    Listener(ServiceId),
    /// The process that knows the sender's communication id. A requester that times out before a
    /// response does not know our id. Linux then sends 0 and names its own device instead. Deliver such
    /// a message to every process; a process that does not know the connection ignores it.
    Everyone,
}

/// Which process a message is for.
/// [`Manager::handle_message`](crate::Manager::handle_message) takes the same parsed message, so it is
/// parsed only once.
pub const fn owner_of(message: &Message) -> Recipient {
    let id = match message {
        Message::ConnectRequest(request) => return Recipient::Listener(request.service_id),
        Message::ServiceRequest(request) => return Recipient::Listener(request.service_id),
        Message::Reject(reject) => match (reject.reason, reject.remote_id.value()) {
            (RejectReason::Timeout, 0) => return Recipient::Everyone,
            _ => reject.remote_id,
        },
        Message::ReceiptAcknowledge(receipt) => receipt.remote_id,
        Message::ConnectReply(reply) => reply.remote_id,
        Message::ReadyToUse(ready) => ready.remote_id,
        Message::DisconnectRequest(request) => request.remote_id,
        Message::DisconnectReply(reply) => reply.remote_id,
        Message::ServiceReply(reply) => reply.request_id,
        Message::LoadAlternatePath(load) => load.remote_id,
        Message::AlternatePathResponse(response) => response.remote_id,
    };
    Recipient::CommunicationId(id)
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::cm::{ConnectRequest, PortSpace, ReadyToUse, Reject, ServiceReply};

    #[test]
    fn requests_go_to_the_listener() {
        let service_id = ServiceId::of_port(PortSpace::Tcp, 7174);
        let request = ConnectRequest {
            service_id,
            ..ConnectRequest::default()
        };
        assert_eq!(owner_of(&request.into()), Recipient::Listener(service_id));
    }

    #[test]
    fn responses_go_to_the_owner_of_the_communication_id() {
        let id = CommunicationId::new(0x1234);
        let ready = ReadyToUse {
            remote_id: id,
            ..ReadyToUse::default()
        };
        assert_eq!(owner_of(&ready.into()), Recipient::CommunicationId(id));
        let found = ServiceReply {
            request_id: id,
            ..ServiceReply::default()
        };
        assert_eq!(owner_of(&found.into()), Recipient::CommunicationId(id));
    }

    #[test]
    fn a_timeout_reject_without_our_id_goes_to_everyone() {
        let mut reject = Reject {
            reason: RejectReason::Timeout,
            local_id: CommunicationId::new(1),
            ..Reject::default()
        };
        assert_eq!(owner_of(&reject.into()), Recipient::Everyone);
        reject.remote_id = CommunicationId::new(2);
        let known = Recipient::CommunicationId(reject.remote_id);
        assert_eq!(owner_of(&reject.into()), known);
    }
}
