//! Requests that are retried for long, at both sides.

use std::net::IpAddr;
use std::time::Duration;

use engine::State;
use engine::incident::{Peer, RetriedSend, RetryReason};
use errors::cause;
use wire::Qpn;

use super::no_response::Unanswered;
use super::{Diagnostic, PeerLookup, Reporter, names, no_response};

/// A request that is still retried.
pub(super) fn retried(
    reporter: &Reporter,
    retried: &RetriedSend,
    lookup: PeerLookup,
) -> Diagnostic {
    let about = names::queue_pair(retried.queue_pair);
    let work = names::completed(retried.work.kind());
    let length = names::bytes(retried.length.into());
    let to = match retried.path {
        Some(path) => format!(" to {}", names::peer(path.peer)),
        None => String::new(),
    };
    let asked = format!("{work} (wr_id {}, {length}) of {about}{to}", retried.id);
    let waited = retried.waited;
    match retried.reason {
        RetryReason::NoResponse {
            timeouts,
            responses,
        } => {
            let tried = format!("no response for {waited:.1?} ({timeouts} timeouts)");
            let request = Unanswered {
                path: retried.path,
                work: retried.work,
                length: retried.length,
                responses,
                lookup,
            };
            let (wrong, cause) = no_response::explain(reporter, &request, &tried);
            let what = format!("{asked} is still being retried: {wrong}");
            Diagnostic::new(about, what, cause)
        }
        RetryReason::NotReady { naks, endless } => {
            let (limit, cause) = if endless {
                (
                    " It is retried without a limit (rnr_retry is 7).",
                    &cause::NO_RECEIVE_YET,
                )
            } else {
                ("", &cause::NO_RECEIVE)
            };
            let what = format!(
                "{asked} waits for a receive: the peer has had none posted for {waited:.1?} ({naks} RNR \
                 NAKs).{limit}"
            );
            Diagnostic::new(about, what, cause)
        }
    }
}

/// Requests for a queue pair that is not ready.
pub(super) fn early_packet(queue_pair: Qpn, state: State, from: IpAddr) -> Diagnostic {
    let about = names::queue_pair(queue_pair);
    let what =
        format!("{from} sends requests to {about}, which is still in {state}: they are dropped.");
    Diagnostic::new(about, what, &cause::PEER_NOT_READY)
}

/// Messages that find no receive, at the side that should post some.
pub(super) fn no_receive(
    queue_pair: Qpn,
    peer: Option<Peer>,
    naks: u64,
    waited: Duration,
    is_shared: bool,
) -> Diagnostic {
    let about = names::queue_pair(queue_pair);
    let from = peer.map_or_else(String::new, |peer| format!(" from {}", names::peer(peer)));
    let queue = if is_shared {
        "its shared receive queue"
    } else {
        "it"
    };
    let what = format!(
        "{about} keeps a message{from} waiting: {queue} has had no receive posted for {waited:.1?} ({naks} RNR \
         NAKs sent)."
    );
    Diagnostic::new(about, what, &cause::NO_RECEIVE)
}
