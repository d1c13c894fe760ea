//! Send requests that completed with an error.

use engine::incident::{FailedSend, SegmentFault, SendFault};
use engine::{AccessError, CompletedWork, Status};
use errors::{Cause, CodeKind, cause};

use super::no_response::Unanswered;
use super::{Diagnostic, PeerLookup, Reporter, names, no_response};

const REJECTED: &str = "the peer rejected it.";

/// Describes a failed send. `unsent` is why the kernel did not send packets of the queue pair, if it did not.
pub(super) fn send(
    reporter: &Reporter,
    failed: &FailedSend,
    lookup: PeerLookup,
    unsent: Option<&'static Cause>,
) -> Option<Diagnostic> {
    let code = u32::from(failed.status as u8);
    let asked = asked(failed);
    let (wrong, cause) = match failed.fault {
        SendFault::Segment(fault) => segment(&fault),
        SendFault::NoResponse { responses, .. } => match unsent {
            Some(cause) => (no_response::not_sent(failed), cause),
            None => {
                let tried = no_response::tried(&failed.fault);
                let request = Unanswered {
                    path: failed.path,
                    work: failed.work,
                    length: failed.length,
                    responses,
                    lookup,
                };
                no_response::explain(reporter, &request, &tried)
            }
        },
        SendFault::NotReady { retries } => (
            format!("the peer had no receive posted at any attempt (rnr_retry is {retries})."),
            &cause::NO_RECEIVE,
        ),
        SendFault::NoReads => ("max_rd_atomic is 0.".to_owned(), &cause::NO_READS_ALLOWED),
        SendFault::TooLong { max } => (
            format!("a datagram carries at most {}.", names::bytes(max.into())),
            &cause::DATAGRAM_TOO_LONG,
        ),
        SendFault::Other => match failed.status {
            Status::RemoteAccess => (REJECTED.to_owned(), &cause::ASK_ABOUT_MEMORY),
            Status::RemoteInvalidRequest => (REJECTED.to_owned(), ask_about(failed.work.kind())),
            Status::RemoteOperation => (REJECTED.to_owned(), &cause::ASK_ABOUT_RECEIVE),
            Status::BadResponse => (
                "the peer's response does not match the request.".to_owned(),
                &cause::BAD_ANSWER,
            ),
            Status::WindowBind | Status::LocalOperation => (
                "the queue pair cannot execute it.".to_owned(),
                &cause::WINDOW_REFUSED,
            ),
            _ => return None,
        },
    };
    let about = names::queue_pair(failed.queue_pair);
    Some(
        Diagnostic::new(about, format!("{asked}: {wrong}"), cause).code(CodeKind::Completion, code),
    )
}

/// What makes a responder reject a request of this kind as invalid, which only the responder knows.
const fn ask_about(work: CompletedWork) -> &'static Cause {
    match work {
        CompletedWork::Read => &cause::ASK_ABOUT_READ,
        CompletedWork::CompareSwap | CompletedWork::FetchAdd | CompletedWork::AtomicWrite => {
            &cause::ASK_ABOUT_ATOMIC
        }
        _ => &cause::ASK_ABOUT_REQUEST,
    }
}

/// The request, its destination and its status.
fn asked(failed: &FailedSend) -> String {
    let work = names::completed(failed.work.kind());
    let length = names::bytes(failed.length.into());
    let remote = match names::remote(&failed.work) {
        Some(remote) => format!(
            ", remote address {:#x}, rkey {}",
            remote.address, remote.key
        ),
        None => String::new(),
    };
    let destination = match failed.path {
        Some(path) => format!(" to {}", names::peer(path.peer)),
        None => String::new(),
    };
    let code = u32::from(failed.status as u8);
    let status = errors::entry(CodeKind::Completion, code).map_or("an error", |entry| entry.c_name);
    format!(
        "{work} (wr_id {}, {length}{remote}) of {}{destination} ended with {status}",
        failed.id,
        names::queue_pair(failed.queue_pair)
    )
}

/// Why a local segment cannot be used.
pub(super) fn segment(fault: &SegmentFault) -> (String, &'static Cause) {
    let segment = &fault.segment;
    let named = format!(
        "the segment of {} at {:#x} with lkey {}",
        names::bytes(segment.length.into()),
        segment.address,
        segment.key
    );
    let key_range = fault.key_range.map_or(String::new(), |key_range| {
        let length = names::bytes(key_range.length);
        format!(" (the key covers {length} at {:#x})", key_range.address)
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
            format!("{named} exceeds the registered memory{key_range}."),
            &cause::LOCAL_BOUNDS,
        ),
        AccessError::NotMapped => (
            format!("{named} is registered, but the program has unmapped or protected the memory."),
            &cause::LOCAL_BOUNDS,
        ),
        AccessError::Forbidden(_) => (
            format!("{named} must be writable, but was registered without IBV_ACCESS_LOCAL_WRITE."),
            &cause::NOT_WRITABLE_HERE,
        ),
    }
}
