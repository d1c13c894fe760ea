//! Peers that do not respond, and packets that the kernel does not send.

use std::io;
use std::net::{IpAddr, UdpSocket};

use engine::incident::{FailedSend, Path, Peer, PeerResponses, SendFault};
use engine::{State, Work};
use errors::errno::EMSGSIZE;
use errors::{Cause, CodeKind, cause};
use net::sharing::list_members;
use net::socket::SendError;
use net::socket::interface::Device;
use wire::{Qpn, ROCE_PORT};

use super::port_probe::PortState;
use super::{Diagnostic, PeerLookup, Reporter, names, rejected_call};
use crate::narrow_path::NarrowPath;

/// A request without a response.
pub(super) struct Unanswered {
    pub(super) path: Option<Path>,
    pub(super) work: Work,
    pub(super) length: u32,
    pub(super) responses: PeerResponses,
    pub(super) lookup: PeerLookup,
}

impl Unanswered {
    /// The path, if it doesn't carry the longest packet that was sent.
    fn stopped_by(&self, path: &Path) -> Option<NarrowPath> {
        if self.work.has_response() {
            // Its data is the peer's.
            return None;
        }
        let payload = path.mtu.bytes().min(self.length as usize);
        let narrow = NarrowPath::find(path.source, path.peer.address, path.mtu);
        narrow.filter(|narrow| narrow.stops(payload))
    }
}

/// Why a peer may not have responded. `tried` says what was tried.
pub(super) fn explain(
    reporter: &Reporter,
    request: &Unanswered,
    tried: &str,
) -> (String, &'static Cause) {
    let Some(path) = request.path else {
        return (format!("{tried}."), &cause::SILENCE);
    };
    if let Some(narrow) = request.stopped_by(&path) {
        let (mtu, carries) = (path.mtu.bytes(), names::bytes(narrow.carries.into()));
        return (
            format!(
                "{tried}: its packets are too long for the path. It carries IP packets of {carries}, and the path MTU of \
                 the queue pair is {mtu}; {} fits.",
                narrow.mtu.bytes()
            ),
            &cause::TOO_LONG_FOR_LINK,
        );
    }
    let Path { source, peer, .. } = path;
    match (request.lookup, request.responses) {
        (PeerLookup::Missing, _) => (
            format!("{tried}: there is no QP {} here.", peer.queue_pair),
            &cause::UNKNOWN_QUEUE_PAIR,
        ),
        (PeerLookup::Found(State::Reset | State::Initialized), _) => (
            format!("{tried}: {} is not in RTR yet.", names::peer(peer)),
            &cause::PEER_NOT_READY,
        ),
        (PeerLookup::Found(State::Error), _) => (
            format!("{tried}: {} is in the error state.", names::peer(peer)),
            &cause::PEER_BROKEN,
        ),
        (PeerLookup::ConnectedTo(other), _) => (
            format!(
                "{tried}: {} is connected to {}, not to this one.",
                names::peer(peer),
                names::queue_pair(other)
            ),
            &cause::WRONG_PEER,
        ),
        (_, PeerResponses::WrongPsn { expected, started }) => (
            format!(
                "{tried}: the peer expects PSN {:#x}, but this side started with {:#x}.",
                expected.value(),
                started.value()
            ),
            &cause::WRONG_PSN,
        ),
        (_, responses) => no_packet(reporter, tried, source, peer, responses),
    }
}

/// The packets of a request were not sent.
pub(super) fn not_sent(failed: &FailedSend) -> String {
    format!("{}: its packets were not sent.", tried(&failed.fault))
}

fn no_packet(
    reporter: &Reporter,
    tried: &str,
    source: IpAddr,
    peer: Peer,
    responses: PeerResponses,
) -> (String, &'static Cause) {
    let address = peer.address;
    match (reporter.probe.port_state(source, address), responses) {
        (Some(PortState::Closed), PeerResponses::ToEarlierRequests) => (
            format!(
                "{tried}: its process has ended, nothing serves UDP port {ROCE_PORT} at {address} any more."
            ),
            &cause::PEER_ENDED,
        ),
        (Some(PortState::Closed), _) => (
            format!("{tried}: no process serves UDP port {ROCE_PORT} at {address}."),
            &cause::NO_PROCESS_AT_ADDRESS,
        ),
        (Some(PortState::Unreachable(error)), _) => (
            format!(
                "{tried}: {address} is unreachable ({}).",
                io::Error::from_raw_os_error(error)
            ),
            &cause::NO_ROUTE,
        ),
        (None, _) if has_no_owner(peer) => (
            format!(
                "{tried}: no process on this machine has {} any more.",
                names::peer(peer)
            ),
            &cause::PEER_ENDED,
        ),
        (None, PeerResponses::ToEarlierRequests) => (
            format!("{tried}, although the peer responded to earlier requests."),
            &cause::NOT_THERE_NOW,
        ),
        (None, _) => {
            let name = &reporter.device.name;
            let wrong =
                format!("{tried}: no packet from the peer ever arrived at {source} ({name}).");
            (wrong, &cause::SILENCE)
        }
    }
}

/// What was tried, for a request that failed.
pub(super) fn tried(fault: &SendFault) -> String {
    match fault {
        SendFault::NoResponse {
            retries, waited, ..
        } => format!("no response after {retries} retries within {waited:.1?}"),
        _ => "no response arrived".to_owned(),
    }
}

/// Whether a peer is on this machine, and no process of this user owns its queue pair number.
fn has_no_owner(peer: Peer) -> bool {
    let is_here = UdpSocket::bind((peer.address, 0)).is_ok();
    let members = list_members(peer.address).unwrap_or_default();
    // The port may belong to another user, about whose processes nothing is known.
    is_here && !members.is_empty() && !members.iter().any(|it| it.owns(peer.queue_pair))
}

/// Packets that the kernel did not send.
pub(super) fn unsent(
    device: &Device,
    queue_pair: Qpn,
    source: IpAddr,
    error: &SendError,
) -> Option<Diagnostic> {
    let about = names::queue_pair(queue_pair);
    match error {
        SendError::Full { .. } | SendError::RingFull => None,
        SendError::TooLong {
            length,
            destination,
        } => {
            let what = format!(
                "{about} sends packets of {} (UDP payload) to {destination}, but the path from {source} has \
                 a smaller MTU.",
                names::bytes(*length as u64)
            );
            let diagnostic = Diagnostic::new(about, what, &cause::TOO_LONG_FOR_LINK);
            Some(diagnostic.code(CodeKind::Errno, EMSGSIZE))
        }
        SendError::Refused {
            destination,
            source: reason,
        } => {
            let better = rejected_call::better_row(device, Some(*destination), Some(source));
            let what =
                format!("{about} cannot send from {source} to {destination}: {reason}.{better}");
            Some(Diagnostic::new(about, what, &cause::NOT_SENT).code(CodeKind::Completion, 12))
        }
    }
}
