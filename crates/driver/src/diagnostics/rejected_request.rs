//! Rejected requests and dropped packets of peers.

use std::net::IpAddr;

use engine::AccessError;
use engine::incident::{KeyRange, Peer, ReceiveFault, RejectedRequest, RequestFault, Target};
use errors::{Cause, CodeKind, cause};
use wire::{NakCode, Qpn, QueueKey};

use super::{Diagnostic, failed_send, names};

/// The first syndrome of a NAK.
const FIRST_NAK_SYNDROME: u32 = 0x60;

pub(super) fn request(rejected: &RejectedRequest) -> Diagnostic {
    let about = names::queue_pair(rejected.queue_pair);
    let work = names::with_article(rejected.operation.request_name().unwrap_or("request"));
    let from = match rejected.peer {
        Some(peer) => format!(" from {}", names::peer(peer)),
        None => String::new(),
    };
    let target = rejected.target.map(named).unwrap_or_default();
    let (verb, answer) = match rejected.nak {
        Some(nak) => (
            "rejected",
            format!(" with NAK {:#04x}", FIRST_NAK_SYNDROME + code(nak)),
        ),
        None => ("dropped", String::new()),
    };
    let (wrong, cause) = wrong_with(rejected);
    let what = format!("{about} {verb} {work}{from}{target}{answer}: {wrong}");
    let diagnostic = Diagnostic::new(about, what, cause);
    match rejected.nak {
        Some(nak) => diagnostic.code(CodeKind::Nak, FIRST_NAK_SYNDROME + code(nak)),
        None => diagnostic,
    }
}

const fn code(nak: NakCode) -> u32 {
    match nak {
        NakCode::SequenceError => 0,
        NakCode::InvalidRequest => 1,
        NakCode::RemoteAccess => 2,
        NakCode::RemoteOperational => 3,
        NakCode::InvalidRdRequest => 4,
    }
}

fn named(target: Target) -> String {
    let length = names::bytes(target.length.into());
    let Target { key, address, .. } = target;
    format!(" ({length} at {address:#x}, rkey {key})")
}

fn wrong_with(rejected: &RejectedRequest) -> (String, &'static Cause) {
    match rejected.fault {
        RequestFault::NotGranted(missing) => (
            format!(
                "qp_access_flags of this queue pair lack {}.",
                names::rights(missing)
            ),
            &cause::QUEUE_PAIR_FORBIDS,
        ),
        RequestFault::Memory { error, key_range } => memory(error, key_range),
        RequestFault::Invalidate { key, error } => (
            format!("rkey {key} can't be invalidated: {error}."),
            &cause::BAD_INVALIDATE,
        ),
        RequestFault::Unaligned => (
            "the address is not a multiple of 8.".to_owned(),
            &cause::UNALIGNED_ATOMIC,
        ),
        RequestFault::TooManyReads { limit } => (
            format!("max_dest_rd_atomic of this queue pair is {limit}."),
            &cause::TOO_MANY_READS,
        ),
        RequestFault::PacketLength { length, mtu } => (
            format!("a packet carries {length} bytes, but the path MTU here is {mtu}."),
            &cause::MALFORMED_REQUEST,
        ),
        RequestFault::Receive(fault) => receive(fault),
        RequestFault::Malformed => (
            "its packets are inconsistent.".to_owned(),
            &cause::MALFORMED_REQUEST,
        ),
    }
}

fn memory(error: AccessError, key_range: Option<KeyRange>) -> (String, &'static Cause) {
    let range = key_range.map_or(String::new(), |key_range| {
        let length = names::bytes(key_range.length);
        format!(" The key covers {length} at {:#x}.", key_range.address)
    });
    match error {
        AccessError::UnknownKey => (
            "no memory has that rkey.".to_owned(),
            &cause::UNKNOWN_REMOTE_KEY,
        ),
        AccessError::OtherDomain => (
            "the memory is in another protection domain than this queue pair.".to_owned(),
            &cause::OTHER_REMOTE_DOMAIN,
        ),
        AccessError::OtherQueuePair => (
            "the memory window is bound through another queue pair.".to_owned(),
            &cause::OTHER_WINDOW_OWNER,
        ),
        AccessError::Forbidden(missing) => {
            let granted = key_range.map_or(String::new(), |key_range| {
                format!(" (but with {})", names::rights(key_range.access))
            });
            let missing = names::rights(missing);
            let wrong = format!("the memory was registered without {missing}{granted}.");
            (wrong, &cause::MEMORY_FORBIDS)
        }
        AccessError::OutOfRange => (
            format!("the range exceeds the registered memory.{range}"),
            &cause::REMOTE_BOUNDS,
        ),
        AccessError::NotMapped => (
            "the memory is registered, but can't be accessed: the program has unmapped, protected or freed it."
                .to_owned(),
            &cause::REMOTE_BOUNDS,
        ),
    }
}

fn receive(fault: ReceiveFault) -> (String, &'static Cause) {
    match fault {
        ReceiveFault::TooSmall {
            id,
            capacity,
            needed,
        } => (
            format!(
                "the receive (wr_id {id}) has room for {}, but the message has {} or more.",
                names::bytes(capacity),
                names::bytes(needed)
            ),
            &cause::RECEIVE_TOO_SMALL,
        ),
        ReceiveFault::Unusable { id, fault } => match fault {
            Some(fault) => {
                let (wrong, cause) = failed_send::segment(&fault);
                (format!("in the receive (wr_id {id}), {wrong}"), cause)
            }
            None => (
                format!("the receive (wr_id {id}) is not writable."),
                &cause::RECEIVE_UNUSABLE,
            ),
        },
    }
}

pub(super) fn datagram(queue_pair: Qpn, sender: Peer, fault: ReceiveFault) -> Diagnostic {
    let about = names::queue_pair(queue_pair);
    let (wrong, cause) = receive(fault);
    let sender = names::peer(sender);
    if matches!(fault, ReceiveFault::TooSmall { .. }) {
        let what = format!("A datagram from {sender} to {about} was dropped: {wrong}");
        return Diagnostic::new(about, what, cause);
    }
    let what = format!("A datagram from {sender} moved {about} to the error state: {wrong}");
    Diagnostic::new(about, what, cause).code(CodeKind::Event, 1)
}

pub(super) fn queue_key(
    queue_pair: Qpn,
    sender: Peer,
    given: QueueKey,
    wanted: QueueKey,
) -> Diagnostic {
    let about = names::queue_pair(queue_pair);
    let sender = names::peer(sender);
    let what = format!(
        "A datagram from {sender} to {about} was dropped: its Q_Key is {given}, but the queue pair's is \
         {wanted}."
    );
    Diagnostic::new(about, what, &cause::WRONG_QUEUE_KEY)
}

pub(super) fn unknown(number: Qpn, from: IpAddr) -> Diagnostic {
    let about = names::queue_pair(number);
    let what = format!("{from} sends requests to {about}, but this queue pair never existed.");
    Diagnostic::new(about, what, &cause::UNKNOWN_QUEUE_PAIR).code(CodeKind::Completion, 12)
}

pub(super) fn wrong_peer(queue_pair: Qpn, from: IpAddr, peer: Peer) -> Diagnostic {
    let about = names::queue_pair(queue_pair);
    let peer = names::peer(peer);
    let what = format!("{from} sends requests to {about}, which is connected to {peer}.");
    Diagnostic::new(about, what, &cause::WRONG_PEER).code(CodeKind::Completion, 12)
}

pub(super) fn overrun(queue: u32, capacity: u32, queue_pair: Qpn) -> Diagnostic {
    let about = format!("Completion queue {queue}");
    let completions = if capacity == 1 {
        "completion"
    } else {
        "completions"
    };
    let what = format!(
        "{about} is full ({capacity} {completions}), and {} completed another request: that completion is \
         lost, and every queue pair of this queue is in the error state.",
        names::queue_pair(queue_pair)
    );
    Diagnostic::new(about, what, &cause::COMPLETIONS_OVERRAN).code(CodeKind::Event, 0)
}
