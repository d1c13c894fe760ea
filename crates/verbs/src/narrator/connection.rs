//! Connections that did not come about.

use std::net::SocketAddr;

use cm::{EventKind, Failure, Unreachable};
use errors::{Cause, Topic, cause};
use net::interface::Device;

use super::{Tale, is_wanted, told};
use crate::rdma_cm::ConnectionError;

/// An event that tells a failure, and between which addresses.
#[derive(Debug)]
pub(crate) struct Setback {
    pub(crate) kind: EventKind,
    pub(crate) local: Option<SocketAddr>,
    pub(crate) peer: Option<SocketAddr>,
}

impl Setback {
    /// Whether an event is one.
    pub(crate) fn is(kind: &EventKind) -> bool {
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

pub(super) fn setback(device: &Device, setback: &Setback) -> Option<Tale> {
    let status = setback.kind.status();
    let (number, wrong, cause) = match &setback.kind {
        EventKind::AddressError(failure) => (1, failed(*failure), &cause::NO_ROUTE),
        EventKind::RouteError(failure) => (3, failed(*failure), &cause::NO_ROUTE),
        EventKind::ConnectError(failure) => (6, failed(*failure), &cause::INCONSISTENT),
        EventKind::Unreachable(Unreachable::TimedOut) => {
            (7, "no answer came.".to_owned(), &cause::PEER_SILENT)
        }
        EventKind::Unreachable(Unreachable::Rejected(reason)) => {
            (7, format!("{reason}."), &cause::NOBODY_LISTENS)
        }
        EventKind::Rejected { reason, .. } => {
            let code = u32::from(reason.code());
            let wrong = format!("the peer rejected it, with reason {code}: {reason}.");
            return Some(tale(device, setback, &wrong, of_reason(code)?).code(Topic::Reject, code));
        }
        EventKind::MulticastError { group, failure } => {
            let wrong = format!("joining {group} failed: {}", failed(*failure));
            (13, wrong, &cause::NO_DEVICE)
        }
        _ => return None,
    };
    let wrong = format!("{wrong} (status {status})");
    Some(tale(device, setback, &wrong, cause).code(Topic::Connection, number))
}

fn of_reason(code: u32) -> Option<&'static Cause> {
    let entry = errors::entry(Topic::Reject, code)?;
    entry.causes.first().copied()
}

fn tale(device: &Device, setback: &Setback, wrong: &str, cause: &'static Cause) -> Tale {
    let peer = setback
        .peer
        .map_or("a peer".to_owned(), |peer| peer.to_string());
    let local = setback.local.map_or(String::new(), |local| {
        let row = device.gid_of(local.ip());
        let interface = row.map_or(&device.name, |row| &row.interface.name);
        format!(" from {} ({interface})", local.ip())
    });
    let about = format!("The connection{local} to {peer}");
    Tale::new(about.clone(), format!("{about} failed: {wrong}"), cause)
}

fn failed(failure: Failure) -> String {
    match failure {
        Failure::TimedOut => "it took too long.".to_owned(),
        Failure::QueueKeyMismatch => "its Q_Key is another one.".to_owned(),
        Failure::Os(number) => {
            let error = std::io::Error::from_raw_os_error(number);
            format!("{error}.")
        }
    }
}

/// No device leads to a peer, so no narrator of a device can tell it.
pub(crate) fn tell_unresolved(
    source: Option<SocketAddr>,
    peer: SocketAddr,
    status: i32,
    error: &ConnectionError,
) {
    if !is_wanted() {
        return;
    }
    let (wrong, cause) = match error {
        ConnectionError::NoDevice(address) => (
            format!("no RDMA device has the address {address}"),
            &cause::NO_DEVICE,
        ),
        ConnectionError::NoRoute { .. } => (error.to_string(), &cause::NO_ROUTE),
        _ => (error.to_string(), &cause::CANNOT_OPEN),
    };
    let from = source.map_or(String::new(), |source| format!(" from {}", source.ip()));
    let about = format!("The address {peer}");
    let what = format!("{about} can't be resolved{from} (status {status}): {wrong}.");
    let tale = Tale::new(about, what, cause).code(Topic::Connection, 1);
    told::tell(None, &tale);
}
