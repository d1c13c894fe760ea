//! What peers asked for in vain, and what became of their packets.

use std::net::IpAddr;

use engine::AccessError;
use engine::incident::{KeyRange, Peer, ReceiveFault, RejectedRequest, RequestFault, Target};
use errors::{Cause, Topic, cause};
use wire::{NakCode, Qpn, QueueKey};

use super::{Tale, failure, words};

/// Syndromes of NAKs begin here.
const NEGATIVE: u32 = 0x60;

pub(super) fn request(refused: &RejectedRequest) -> Tale {
    let about = words::queue_pair(refused.queue_pair);
    let work = words::operation(refused.operation);
    let from = match refused.peer {
        Some(peer) => format!(" from {}", words::peer(peer)),
        None => String::new(),
    };
    let target = refused.target.map(named).unwrap_or_default();
    let (verb, answer) = match refused.nak {
        Some(nak) => (
            "refused",
            format!(" with NAK {:#04x}", NEGATIVE + code(nak)),
        ),
        None => ("dropped", String::new()),
    };
    let (wrong, cause) = wrong_with(refused);
    let what = format!("{about} {verb} {work}{from}{target}{answer}: {wrong}");
    let tale = Tale::new(about, what, cause);
    match refused.nak {
        Some(nak) => tale.code(Topic::Nak, NEGATIVE + code(nak)),
        None => tale,
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
    let length = words::bytes(target.length.into());
    let Target { key, address, .. } = target;
    format!(" ({length} at {address:#x}, rkey {key})")
}

fn wrong_with(refused: &RejectedRequest) -> (String, &'static Cause) {
    match refused.fault {
        RequestFault::NotGranted(missing) => (
            format!(
                "qp_access_flags of this queue pair lack {}.",
                words::rights(missing)
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
            format!("a packet carries {length} bytes, and the path MTU here is {mtu}."),
            &cause::MALFORMED_REQUEST,
        ),
        RequestFault::Receive(fault) => receive(fault),
        RequestFault::Malformed => (
            "its packets don't fit together.".to_owned(),
            &cause::MALFORMED_REQUEST,
        ),
    }
}

fn memory(error: AccessError, key_range: Option<KeyRange>) -> (String, &'static Cause) {
    let range = key_range.map_or(String::new(), |key_range| {
        let length = words::bytes(key_range.length);
        format!(" That key opens {length} at {:#x}.", key_range.address)
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
                format!(" (but with {})", words::rights(key_range.access))
            });
            let missing = words::rights(missing);
            let wrong = format!("the memory was registered without {missing}{granted}.");
            (wrong, &cause::MEMORY_FORBIDS)
        }
        AccessError::OutOfRange => (
            format!("the range reaches outside.{range}"),
            &cause::REMOTE_BOUNDS,
        ),
        AccessError::NotMapped => (
            "the memory is registered, but the program has unmapped or protected it.".to_owned(),
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
                "the receive (wr_id {id}) has room for {}, and {} or more came.",
                words::bytes(capacity),
                words::bytes(needed)
            ),
            &cause::RECEIVE_TOO_SMALL,
        ),
        ReceiveFault::Unusable { id, fault } => match fault {
            Some(fault) => {
                let (wrong, cause) = failure::segment(&fault);
                (format!("of the receive (wr_id {id}), {wrong}"), cause)
            }
            None => (
                format!("the receive (wr_id {id}) can't be written."),
                &cause::RECEIVE_UNUSABLE,
            ),
        },
    }
}

pub(super) fn datagram(queue_pair: Qpn, sender: Peer, fault: ReceiveFault) -> Tale {
    let about = words::queue_pair(queue_pair);
    let (wrong, cause) = receive(fault);
    let sender = words::peer(sender);
    if matches!(fault, ReceiveFault::TooSmall { .. }) {
        let what = format!("A datagram from {sender} to {about} was dropped: {wrong}");
        return Tale::new(about, what, cause);
    }
    let what = format!("A datagram from {sender} broke {about}: {wrong}");
    Tale::new(about, what, cause).code(Topic::Event, 1)
}

pub(super) fn queue_key(queue_pair: Qpn, sender: Peer, given: QueueKey, wanted: QueueKey) -> Tale {
    let about = words::queue_pair(queue_pair);
    let sender = words::peer(sender);
    let what = format!(
        "A datagram from {sender} to {about} was dropped: its Q_Key is {given}, and the queue pair's \
         {wanted}."
    );
    Tale::new(about, what, &cause::WRONG_QUEUE_KEY)
}

pub(super) fn unknown(number: Qpn, from: IpAddr) -> Tale {
    let about = words::queue_pair(number);
    let what = format!("{from} sends requests to {about}, and there never was such a queue pair.");
    Tale::new(about, what, &cause::UNKNOWN_QUEUE_PAIR).code(Topic::Completion, 12)
}

pub(super) fn stranger(queue_pair: Qpn, from: IpAddr, peer: Peer) -> Tale {
    let about = words::queue_pair(queue_pair);
    let peer = words::peer(peer);
    let what = format!("{from} sends requests to {about}, which is connected with {peer}.");
    Tale::new(about, what, &cause::WRONG_PEER).code(Topic::Completion, 12)
}

pub(super) fn overrun(queue: u32, capacity: u32, queue_pair: Qpn) -> Tale {
    let about = format!("Completion queue {queue}");
    let completions = if capacity == 1 {
        "completion"
    } else {
        "completions"
    };
    let what = format!(
        "{about} has room for {capacity} {completions}, all of it taken, and another one came, of {}: it \
         is lost, and every queue pair that completes there is in the error state.",
        words::queue_pair(queue_pair)
    );
    Tale::new(about, what, &cause::COMPLETIONS_OVERRAN).code(Topic::Event, 0)
}
