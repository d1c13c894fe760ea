//! Failed connections.

use std::net::{IpAddr, SocketAddr};

use cm::{EventKind, Failure, MtuLimit, Unreachable};
use errors::{Cause, CodeKind, cause};
use net::socket::interface::Device;
use wire::ROCE_PORT;
use wire::cm::RejectReason;

use super::port_probe::PortState;
use super::{Diagnostic, Explained, Reporter, is_enabled, names, report_once};
use crate::narrow_path::NarrowPath;

/// An event that reports a failure, and the addresses of the connection.
#[derive(Debug)]
pub(crate) struct ConnectionFailure {
    pub(crate) kind: EventKind,
    pub(crate) local: Option<SocketAddr>,
    pub(crate) peer: Option<SocketAddr>,
    /// Whether the peer requested the connection.
    pub(crate) is_child: bool,
}

impl ConnectionFailure {
    /// Whether an event reports a failure.
    pub(crate) fn is_failure(kind: &EventKind) -> bool {
        matches!(
            kind,
            EventKind::AddressError(_)
                | EventKind::RouteError(_)
                | EventKind::ConnectError(_)
                | EventKind::Unreachable(_)
                | EventKind::Rejected { .. }
                | EventKind::MulticastError { .. }
        )
    }
}

/// A connection request that was retransmitted, because no response came.
#[derive(Debug)]
pub(crate) struct UnansweredRequest {
    pub(crate) local: Option<SocketAddr>,
    pub(crate) peer: Option<SocketAddr>,
}

/// What a probe of the peer's port says about a request without an answer.
pub(super) fn unanswered(reporter: &Reporter, request: &UnansweredRequest) -> Option<Diagnostic> {
    let (local, peer) = (request.local?, request.peer?);
    let address = peer.ip();
    let (wrong, cause) = match reporter.probe.port_state(local.ip(), address) {
        Some(PortState::Closed) => (
            format!("no process serves UDP port {ROCE_PORT} at {address}."),
            &cause::NO_PROCESS_AT_ADDRESS,
        ),
        Some(PortState::Unreachable(error)) => (
            format!(
                "{address} is unreachable ({}).",
                std::io::Error::from_raw_os_error(error)
            ),
            &cause::NO_ROUTE,
        ),
        None => (
            format!("{address} may be reachable, but does not answer."),
            &cause::PEER_SILENT,
        ),
    };
    let about = name(&reporter.device, Some(local), Some(peer));
    let what = format!("{about} has no answer yet, and the request is sent again: {wrong}");
    Some(Diagnostic::new(about, what, cause))
}

/// One line for all peers: a job with many of them is not to fill the screen.
pub(super) fn silent(local: IpAddr, peer: IpAddr) -> Diagnostic {
    let what = format!(
        "{peer} is silent: connection requests from {local}, and probes of UDP port {ROCE_PORT} there, got neither an \
         answer nor an error. A firewall may drop them, or the machine is down; the requests are sent again until they \
         time out. `roci doctor` checks this machine, and `roci run --explain` says more."
    );
    Diagnostic::new("silent peers".to_owned(), what, &cause::PEER_SILENT).ordinary()
}

/// A connection request was rejected, because its path MTU is larger than the port of the peer or ours allows.
pub(super) fn smaller_mtu(device: &Device, limit: &MtuLimit) -> Diagnostic {
    let (requested, allowed) = (limit.requested.bytes(), limit.allowed.bytes());
    if limit.is_ours {
        let about = name(device, limit.local, limit.peer);
        let what = format!(
            "{about} uses a path MTU of {allowed}, not {requested}: the peer's port allows no more."
        );
        return Diagnostic::new(about, what, &cause::MTUS_DIFFER);
    }
    let at = limit.local.map_or(String::new(), |it| format!(" at {it}"));
    let from = limit
        .peer
        .map_or("a peer".to_owned(), |it| it.ip().to_string());
    let about = format!("Connection requests{at}");
    let what = format!(
        "The connection request of {from}{at} asks for a path MTU of {requested}, but this port allows {allowed}. It was \
         rejected with that number; clients of this library repeat it with {allowed}, others may give up."
    );
    Diagnostic::new(about, what, &cause::MTUS_DIFFER)
}

/// A connection uses a smaller path MTU than its port has.
pub(super) fn narrow_path(device: &Device, path: &NarrowPath) -> Diagnostic {
    let what = format!(
        "Connections to {} use a path MTU of {}, not {}: the path from {} carries packets of at most {}, the interface \
         of {} bytes.",
        path.peer,
        path.mtu.bytes(),
        device.active_mtu.bytes(),
        path.source,
        names::bytes(path.carries.into()),
        device.mtu
    );
    let about = format!("the path to {}", path.peer);
    Diagnostic::new(about, what, &cause::NARROW_PATH)
}

pub(super) fn describe(reporter: &Reporter, failure: &ConnectionFailure) -> Option<Diagnostic> {
    let device = &reporter.device;
    let (number, wrong, cause) = match &failure.kind {
        EventKind::AddressError(Failure::TimedOut) => (
            1,
            "no machine on the network has answered for its address, or for that of the gateway."
                .to_owned(),
            &cause::NO_NEIGHBOUR,
        ),
        EventKind::AddressError(failure) => (1, reason(*failure), &cause::NO_ROUTE),
        EventKind::RouteError(failure) => (3, reason(*failure), &cause::NO_ROUTE),
        EventKind::ConnectError(failure) => (6, reason(*failure), &cause::INCONSISTENT),
        EventKind::Unreachable(Unreachable::TimedOut) if failure.is_child => (
            7,
            "the client did not confirm it.".to_owned(),
            &cause::CLIENT_SILENT,
        ),
        EventKind::Unreachable(Unreachable::TimedOut) => {
            (7, "no response arrived.".to_owned(), &cause::PEER_SILENT)
        }
        EventKind::Unreachable(Unreachable::Rejected { status, .. }) => {
            (7, format!("{status}."), &cause::NO_LISTENER)
        }
        EventKind::Rejected {
            reason: RejectReason::Timeout,
            ..
        } if failure.is_child => {
            let wrong = "the client ended, or gave up, before it was established.";
            let code = u32::from(RejectReason::Timeout.code());
            let diagnostic = diagnostic(device, failure, wrong, &cause::CLIENT_GONE);
            return Some(diagnostic.code(CodeKind::Reject, code));
        }
        EventKind::Rejected { reason, .. } => {
            let code = u32::from(reason.code());
            let (wrong, cause) = match unserved_address(reporter, failure, *reason) {
                Some(address) => (
                    format!(
                        "no process serves UDP port {ROCE_PORT} at {address}. The program is told so by a rejection \
                         with reason {code}: {reason}."
                    ),
                    &cause::NO_PROCESS_AT_ADDRESS,
                ),
                None => (
                    format!("it was rejected, with reason {code}: {reason}."),
                    of_reason(code)?,
                ),
            };
            let diagnostic = diagnostic(device, failure, &wrong, cause);
            return Some(diagnostic.code(CodeKind::Reject, code));
        }
        EventKind::MulticastError { group, failure } => {
            let wrong = format!("joining {group} failed: {}", reason(*failure));
            (13, wrong, &cause::NO_DEVICE)
        }
        _ => return None,
    };
    Some(diagnostic(device, failure, &wrong, cause).code(CodeKind::Connection, number))
}

/// The address of a peer where nobody can have rejected the request: no process serves its port, and the device itself told the program
/// that there is no listener.
fn unserved_address(
    reporter: &Reporter,
    failure: &ConnectionFailure,
    reason: RejectReason,
) -> Option<IpAddr> {
    if failure.is_child || reason != RejectReason::InvalidServiceId {
        return None;
    }
    let (local, peer) = (failure.local?.ip(), failure.peer?.ip());
    let state = reporter.probe.port_state(local, peer);
    (state == Some(PortState::Closed)).then_some(peer)
}

fn of_reason(code: u32) -> Option<&'static Cause> {
    let entry = errors::entry(CodeKind::Reject, code)?;
    entry.causes.first().copied()
}

fn diagnostic(
    device: &Device,
    failure: &ConnectionFailure,
    wrong: &str,
    cause: &'static Cause,
) -> Diagnostic {
    let about = name(device, failure.local, failure.peer);
    Diagnostic::new(about.clone(), format!("{about} failed: {wrong}"), cause)
}

/// Names a connection by its addresses.
fn name(device: &Device, local: Option<SocketAddr>, peer: Option<SocketAddr>) -> String {
    let peer = peer.map_or("a peer".to_owned(), |peer| peer.to_string());
    let local = local.map_or(String::new(), |local| {
        let row = device.gid_of(local.ip());
        let interface = row.map_or(&device.name, |row| &row.interface.name);
        format!(" from {} ({interface})", local.ip())
    });
    format!("The connection{local} to {peer}")
}

fn reason(failure: Failure) -> String {
    match failure {
        Failure::TimedOut => "it timed out.".to_owned(),
        Failure::QueueKeyMismatch => "its Q_Key differs.".to_owned(),
        Failure::NoDevice => "no device leads there.".to_owned(),
        Failure::Os(number) => {
            let error = std::io::Error::from_raw_os_error(number);
            format!("{error}.")
        }
    }
}

/// Reports that no device leads to a peer. No device's reporter can do that. Returns what it explained for the first time.
pub(crate) fn report_unresolved(
    source: Option<SocketAddr>,
    peer: SocketAddr,
    (wrong, cause): (String, &'static Cause),
) -> Option<Explained> {
    if !is_enabled() {
        return None;
    }
    let from = source.map_or(String::new(), |source| format!(" from {}", source.ip()));
    let about = format!("The address {peer}");
    let what = format!("{about} can't be resolved{from}: {wrong}.");
    let diagnostic = Diagnostic::new(about, what, cause).code(CodeKind::Connection, 1);
    report_once::report(None, &diagnostic).then(|| diagnostic.explained(false))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnostics::Reported;

    #[test]
    fn each_failure_refers_to_the_entry_of_its_event() {
        let devices = net::socket::interface::devices(Some("device=127.58.94.16"));
        let device = &devices.expect("a loopback address")[0];
        let reporter = Reporter::new(device, Reported::Everything, None);
        let reporter = reporter.expect("something to report");
        let group = IpAddr::from([224, 0, 0, 7]);
        let failure = Failure::NoDevice;
        for (kind, event) in [
            (
                EventKind::AddressError(Failure::TimedOut),
                "RDMA_CM_EVENT_ADDR_ERROR",
            ),
            (EventKind::AddressError(failure), "RDMA_CM_EVENT_ADDR_ERROR"),
            (EventKind::RouteError(failure), "RDMA_CM_EVENT_ROUTE_ERROR"),
            (
                EventKind::ConnectError(failure),
                "RDMA_CM_EVENT_CONNECT_ERROR",
            ),
            (
                EventKind::Unreachable(Unreachable::TimedOut),
                "RDMA_CM_EVENT_UNREACHABLE",
            ),
            (
                EventKind::MulticastError { group, failure },
                "RDMA_CM_EVENT_MULTICAST_ERROR",
            ),
        ] {
            let failure = ConnectionFailure {
                kind,
                local: None,
                peer: None,
                is_child: false,
            };
            let described = describe(&reporter, &failure).expect("a failure");
            assert_eq!(described.entry.expect("an entry").c_name, event);
        }
    }
}
