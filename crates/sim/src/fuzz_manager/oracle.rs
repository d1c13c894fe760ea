//! The response that the specification requires, as far as it follows from the message alone.

use cm::IdRange;
use wire::cm::{AlternatePathStatus, Message, RejectReason, ServiceStatus};

/// The required immediate response.
pub(super) enum Expected {
    /// No response.
    Silence,
    /// Exactly this response.
    One(fn(&Message, &Message) -> bool),
    /// This response. A DREQ for a stale connection may follow.
    First(fn(&Message, &Message) -> bool),
    /// It depends on previous messages.
    Anything,
}

/// The required response to a message. Communication ids outside of `id_range` belong to no exchange.
/// `is_listened` tells whether the service ever had a listener, `is_new` whether the peer uses this
/// communication id for the first time.
pub(super) fn expected(
    message: &Message,
    id_range: IdRange,
    is_listened: bool,
    is_new: bool,
) -> Expected {
    match message {
        Message::DisconnectRequest(m) if !id_range.contains(m.remote_id) => {
            Expected::One(is_drep_to)
        }
        Message::LoadAlternatePath(m) if !id_range.contains(m.remote_id) => {
            Expected::One(is_invalid_id_apr_to)
        }
        Message::ConnectRequest(_) if is_new && !is_listened => Expected::First(is_reject_of),
        Message::ServiceRequest(_) if is_new && !is_listened => {
            Expected::One(is_not_supported_sidr_to)
        }
        Message::ConnectReply(m) => silence_unless(id_range.contains(m.remote_id)),
        Message::ReadyToUse(m) => silence_unless(id_range.contains(m.remote_id)),
        Message::DisconnectReply(_)
        | Message::ServiceReply(_)
        | Message::ReceiptAcknowledge(_)
        | Message::Reject(_)
        | Message::AlternatePathResponse(_) => Expected::Silence,
        _ => Expected::Anything,
    }
}

fn silence_unless(is_ours: bool) -> Expected {
    if is_ours {
        Expected::Anything
    } else {
        Expected::Silence
    }
}

/// IBA 12.9.8.2: a DREQ for an unknown connection is answered with a DREP.
fn is_drep_to(asked: &Message, response: &Message) -> bool {
    let (Message::DisconnectRequest(asked), Message::DisconnectReply(response)) = (asked, response)
    else {
        return false;
    };
    (response.local_id, response.remote_id) == (asked.remote_id, asked.local_id)
}

fn is_invalid_id_apr_to(asked: &Message, response: &Message) -> bool {
    let (Message::LoadAlternatePath(asked), Message::AlternatePathResponse(response)) =
        (asked, response)
    else {
        return false;
    };
    response.remote_id == asked.local_id
        && response.status == AlternatePathStatus::InvalidCommunicationId
}

fn is_reject_of(asked: &Message, response: &Message) -> bool {
    let (Message::ConnectRequest(asked), Message::Reject(response)) = (asked, response) else {
        return false;
    };
    // A REQ of a connected queue pair is rejected as stale first.
    let reasons = [
        RejectReason::InvalidServiceId,
        RejectReason::StaleConnection,
    ];
    response.remote_id == asked.local_id && reasons.contains(&response.reason)
}

fn is_not_supported_sidr_to(asked: &Message, response: &Message) -> bool {
    let (Message::ServiceRequest(asked), Message::ServiceReply(response)) = (asked, response)
    else {
        return false;
    };
    response.request_id == asked.request_id && response.status == ServiceStatus::NotSupported
}
