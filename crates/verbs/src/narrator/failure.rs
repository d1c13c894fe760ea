//! Send requests that ended in an error.

use engine::incident::{FailedSend, SegmentFault, SendFault};
use engine::{AccessError, Status};
use errors::{Cause, Topic, cause};
use net::interface::Device;

use super::{Neighbour, Tale, silence, words};

const REFUSED: &str = "the peer refused it, and knows why.";

/// `unsent` is why packets of the queue pair were not sent, if they were not.
pub(super) fn send(
    device: &Device,
    failed: &FailedSend,
    neighbour: Neighbour,
    unsent: Option<&'static Cause>,
) -> Option<Tale> {
    let code = u32::from(failed.status as u8);
    let asked = asked(failed);
    let (wrong, cause) = match failed.fault {
        SendFault::Segment(fault) => segment(&fault),
        SendFault::NoAnswer { .. } => match unsent {
            Some(cause) => (silence::not_sent(failed), cause),
            None => silence::explain(device, failed, neighbour),
        },
        SendFault::NotReady { retries } => (
            format!(
                "the peer had no receive posted, as often as it was tried (rnr_retry is {retries})."
            ),
            &cause::NO_RECEIVE,
        ),
        SendFault::NoReads => ("max_rd_atomic is 0.".to_owned(), &cause::NO_READS_ALLOWED),
        SendFault::TooLong { max } => (
            format!("a datagram has room for {}.", words::bytes(max.into())),
            &cause::DATAGRAM_TOO_LONG,
        ),
        SendFault::Other => match failed.status {
            Status::RemoteAccess => (REFUSED.to_owned(), &cause::ASK_ABOUT_MEMORY),
            Status::RemoteInvalidRequest => (REFUSED.to_owned(), &cause::ASK_ABOUT_REQUEST),
            Status::RemoteOperation => (REFUSED.to_owned(), &cause::ASK_ABOUT_RECEIVE),
            Status::BadResponse => (
                "the peer's answer does not fit.".to_owned(),
                &cause::BAD_ANSWER,
            ),
            Status::WindowBind | Status::LocalOperation => (
                "the queue pair can't do it.".to_owned(),
                &cause::WINDOW_REFUSED,
            ),
            _ => return None,
        },
    };
    let about = words::queue_pair(failed.queue_pair);
    Some(Tale::new(about, format!("{asked}: {wrong}"), cause).code(Topic::Completion, code))
}

/// Which request it was, where it went and how it ended.
fn asked(failed: &FailedSend) -> String {
    let work = words::completed(failed.work.kind());
    let length = words::bytes(failed.length.into());
    let remote = match words::remote(&failed.work) {
        Some(remote) => format!(
            ", remote address {:#x}, rkey {}",
            remote.address, remote.key
        ),
        None => String::new(),
    };
    let whither = match failed.path {
        Some((_, peer)) => format!(" to {}", words::peer(peer)),
        None => String::new(),
    };
    let code = u32::from(failed.status as u8);
    let status = errors::entry(Topic::Completion, code).map_or("an error", |entry| entry.c_name);
    format!(
        "{work} (wr_id {}, {length}{remote}) of {}{whither} ended with {status}",
        failed.id,
        words::queue_pair(failed.queue_pair)
    )
}

/// What is wrong with a segment of one's own.
pub(super) fn segment(fault: &SegmentFault) -> (String, &'static Cause) {
    let segment = &fault.segment;
    let named = format!(
        "the segment of {} at {:#x} with lkey {}",
        words::bytes(segment.length.into()),
        segment.address,
        segment.key
    );
    let key_range = fault.key_range.map_or(String::new(), |key_range| {
        let length = words::bytes(key_range.length);
        format!(" (that key opens {length} at {:#x})", key_range.address)
    });
    match fault.error {
        AccessError::UnknownKey | AccessError::OtherQueuePair => (
            format!("{named} names no registered memory."),
            &cause::UNKNOWN_LOCAL_KEY,
        ),
        AccessError::OtherDomain => (
            format!("{named} names memory of another protection domain."),
            &cause::OTHER_LOCAL_DOMAIN,
        ),
        AccessError::OutOfRange => (
            format!("{named} reaches outside of its memory{key_range}."),
            &cause::LOCAL_BOUNDS,
        ),
        AccessError::NotMapped => (
            format!("{named} is registered, but the program has unmapped or protected the memory."),
            &cause::LOCAL_BOUNDS,
        ),
        AccessError::Forbidden(_) => (
            format!("{named} is to be written, and was registered without IBV_ACCESS_LOCAL_WRITE."),
            &cause::NOT_WRITABLE_HERE,
        ),
    }
}
