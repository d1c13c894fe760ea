//! Peers that don't answer, and packets that don't leave.

use std::io;
use std::net::{IpAddr, UdpSocket};
use std::time::Duration;

use engine::State;
use engine::incident::{FailedSend, Peer, PeerResponses, SendFault};
use errors::{Cause, Topic, cause};
use net::interface::Device;
use net::socket::SendError;
use wire::{Qpn, ROCE_PORT};

use super::{Neighbour, Tale, change, words};

/// `EMSGSIZE`.
const TOO_LONG: u32 = 90;

/// How long a refusal may take to come back.
const PATIENCE: Duration = Duration::from_millis(50);

/// Why a peer may not have answered.
pub(super) fn explain(
    device: &Device,
    failed: &FailedSend,
    neighbour: Neighbour,
) -> (String, &'static Cause) {
    let (Some((source, peer)), SendFault::NoAnswer { responses, .. }) = (failed.path, failed.fault)
    else {
        return ("no answer came.".to_owned(), &cause::SILENCE);
    };
    let tried = tried(failed);
    match (neighbour, responses) {
        (Neighbour::Missing, _) => (
            format!("{tried}, and there is no QP {} here.", peer.queue_pair),
            &cause::UNKNOWN_QUEUE_PAIR,
        ),
        (Neighbour::Here(State::Reset | State::Initialized), _) => (
            format!("{tried}, and {} is not in RTR yet.", words::peer(peer)),
            &cause::PEER_NOT_READY,
        ),
        (Neighbour::Here(State::Error), _) => (
            format!("{tried}, and {} is in the error state.", words::peer(peer)),
            &cause::PEER_BROKEN,
        ),
        (_, PeerResponses::WrongPsn { expected, started }) => (
            format!(
                "{tried}: the peer expects PSN {:#x}, and we began with {:#x}.",
                expected.value(),
                started.value()
            ),
            &cause::WRONG_PSN,
        ),
        (_, responses) => silence(device, &tried, source, peer, responses),
    }
}

/// Nobody could answer.
pub(super) fn not_sent(failed: &FailedSend) -> String {
    format!("{}: its packets were not sent.", tried(failed))
}

fn silence(
    device: &Device,
    tried: &str,
    source: IpAddr,
    peer: Peer,
    responses: PeerResponses,
) -> (String, &'static Cause) {
    let address = peer.address;
    match (knock(source, address), responses) {
        (Some(Door::Closed), _) => (
            format!("{tried}: nobody serves UDP port {ROCE_PORT} at {address}."),
            &cause::NOBODY_THERE,
        ),
        (Some(Door::NoHouse(error)), _) => (
            format!("{tried}: {address} can't be reached ({error})."),
            &cause::NO_ROUTE,
        ),
        (None, PeerResponses::ToEarlierRequests) => (
            format!("{tried}, though it answered earlier requests."),
            &cause::NOT_THERE_NOW,
        ),
        (None, _) => {
            let name = &device.name;
            let wrong = format!("{tried}: nothing ever came back to {source} ({name}).");
            (wrong, &cause::SILENCE)
        }
    }
}

fn tried(failed: &FailedSend) -> String {
    let SendFault::NoAnswer {
        retries, timeout, ..
    } = failed.fault
    else {
        return String::new();
    };
    let each = timeout.and_then(wire::AckTimeout::interval);
    match each {
        Some(each) => format!("no answer, after {retries} retries of {each:.1?} each"),
        None => format!("no answer, after {retries} retries"),
    }
}

/// What is found by knocking.
enum Door {
    /// The machine is there, and refuses.
    Closed,
    /// There is no such machine, or no way to it.
    NoHouse(io::Error),
}

/// Whether nobody serves the RoCE port of an address; nothing when nobody says so. An empty datagram
/// is no packet, and whoever serves the port drops it.
fn knock(source: IpAddr, address: IpAddr) -> Option<Door> {
    let asked = UdpSocket::bind((source, 0)).and_then(|socket| {
        socket.connect((address, ROCE_PORT))?;
        socket.set_read_timeout(Some(PATIENCE))?;
        socket.send(&[])?;
        socket.recv(&mut [0])
    });
    let error = asked.err()?;
    match error.kind() {
        io::ErrorKind::ConnectionRefused => Some(Door::Closed),
        io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable => {
            Some(Door::NoHouse(error))
        }
        _ => None,
    }
}

/// The kernel did not send packets.
pub(super) fn unsent(
    device: &Device,
    queue_pair: Qpn,
    source: IpAddr,
    error: &SendError,
) -> Option<Tale> {
    let about = words::queue_pair(queue_pair);
    match error {
        SendError::Full { .. } => None,
        SendError::TooLong {
            length,
            destination,
        } => {
            let what = format!(
                "{about} sends packets of {} (UDP payload) to {destination}, and the way from {source} \
                 carries less.",
                words::bytes(*length as u64)
            );
            let tale = Tale::new(about, what, &cause::TOO_LONG_FOR_LINK);
            Some(tale.code(Topic::Errno, TOO_LONG))
        }
        SendError::Refused {
            destination,
            source: reason,
        } => {
            let better = change::better_row(device, Some(*destination));
            let what = format!(
                "{about} can't send from {source} to {destination}: the kernel says \"{reason}\".{better}"
            );
            Some(Tale::new(about, what, &cause::NOT_SENT).code(Topic::Completion, 12))
        }
    }
}
