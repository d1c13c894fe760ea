//! The events of every application, in order.

use std::collections::BTreeMap;
use std::time::Duration;

use cm::EventKind;
use engine::Status;
use wire::cm::RejectReason;
use wire::{Psn, Qpn};

use super::process_config::Service;
use super::script::Side;
use crate::CheckError;

/// An id of one incarnation of one process.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct IdKey {
    pub(super) host: usize,
    pub(super) incarnation: u32,
    pub(super) id: cm::Id,
}

/// The kind of an event, as far as the order of events depends on it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Step {
    Resolved,
    Failed,
    Request,
    Response,
    Established,
    Found,
    Rejected,
    Unreachable,
    Disconnected,
    TimewaitExit,
}

impl Step {
    pub(super) fn of(kind: &EventKind) -> Result<Step, CheckError> {
        Ok(match kind {
            EventKind::AddressResolved | EventKind::RouteResolved => Step::Resolved,
            EventKind::ConnectRequest { .. } => Step::Request,
            EventKind::ConnectResponse(_) => Step::Response,
            EventKind::ServiceFound(_) => Step::Found,
            EventKind::Unreachable(_) => Step::Unreachable,
            EventKind::Rejected { .. } => Step::Rejected,
            EventKind::Established => Step::Established,
            EventKind::Disconnected { .. } => Step::Disconnected,
            EventKind::TimewaitExit => Step::TimewaitExit,
            EventKind::AddressError(_) | EventKind::RouteError(_) | EventKind::ConnectError(_) => {
                Step::Failed
            }
            EventKind::DeviceRemoval
            | EventKind::MulticastJoin(_)
            | EventKind::MulticastError { .. }
            | EventKind::AddressChange
            | EventKind::Application { .. } => {
                return Err(CheckError::new(format!("unexpected event {kind:?}")));
            }
        })
    }

    /// Whether it may follow `before`.
    fn may_follow(self, before: Option<Step>, side: Side) -> bool {
        let client = side == Side::Client;
        match self {
            Step::Request => before.is_none() && !client,
            Step::Resolved => client && matches!(before, None | Some(Step::Resolved)),
            Step::Response | Step::Found => client && before == Some(Step::Resolved),
            Step::Failed => {
                client && matches!(before, None | Some(Step::Resolved | Step::Response))
            }
            Step::Established => !client && before == Some(Step::Request),
            Step::Unreachable => matches!(before, Some(Step::Resolved | Step::Request)),
            Step::Rejected => matches!(
                before,
                Some(Step::Resolved | Step::Request | Step::Response | Step::Established)
            ),
            Step::Disconnected => matches!(
                before,
                Some(Step::Response | Step::Request | Step::Established)
            ),
            Step::TimewaitExit => before == Some(Step::Disconnected),
        }
    }
}

/// The queue pair numbers and PSNs of a connection, as one side knows them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Ends {
    pub(super) local_qpn: Qpn,
    pub(super) remote_qpn: Qpn,
    pub(super) send_psn: Psn,
    pub(super) receive_psn: Psn,
}

impl Ends {
    pub(super) fn reversed(self) -> Ends {
        Ends {
            local_qpn: self.remote_qpn,
            remote_qpn: self.local_qpn,
            send_psn: self.receive_psn,
            receive_psn: self.send_psn,
        }
    }
}

/// The history of one id.
#[derive(Clone, Debug)]
pub(super) struct Record {
    pub(super) number: u32,
    pub(super) side: Side,
    pub(super) service: Service,
    /// The process that a client connects to; for a server, its own.
    pub(super) server: usize,
    pub(super) steps: Vec<Step>,
    /// Set when the application established (client) or accepted (server) the connection.
    pub(super) ends: Option<Ends>,
    /// The application rejected the connection, or destroyed its id early.
    pub(super) gave_up: bool,
    /// The application stays connected until all messages are exchanged.
    pub(super) stays: bool,
    /// How many of its messages are acknowledged, and how many it received.
    pub(super) sent: usize,
    pub(super) received: usize,
    /// The status of the failed request, if the transport failed.
    pub(super) broken: Option<Status>,
    /// The peer never answered our DREQ.
    pub(super) unanswered: bool,
    /// When the connection ended.
    pub(super) over: Option<Duration>,
    /// The reason of the peer's REJ.
    pub(super) reject_reason: Option<RejectReason>,
}

impl Record {
    pub(super) fn new(number: u32, side: Side, service: Service, server: usize) -> Self {
        Record {
            number,
            side,
            service,
            server,
            steps: Vec::new(),
            ends: None,
            gave_up: false,
            stays: false,
            sent: 0,
            received: 0,
            broken: None,
            unanswered: false,
            over: None,
            reject_reason: None,
        }
    }

    pub(super) fn has(&self, step: Step) -> bool {
        self.steps.contains(&step)
    }

    /// The peer rejected the connection as stale. It ends the old connection and sends its request
    /// again, so this one does not count.
    pub(super) fn is_stale(&self) -> bool {
        self.reject_reason == Some(RejectReason::StaleConnection)
    }
}

/// All ids of a run.
#[derive(Default, Debug)]
pub(super) struct EventLog {
    pub(super) records: BTreeMap<IdKey, Record>,
}

impl EventLog {
    pub(super) fn open(&mut self, key: IdKey, record: Record) -> Result<(), CheckError> {
        match self.records.insert(key, record) {
            None => Ok(()),
            Some(_) => Err(CheckError::new(format!("{key:?} was created twice"))),
        }
    }

    pub(super) fn record(&mut self, key: IdKey) -> &mut Record {
        self.records.get_mut(&key).expect("the id is in the log")
    }

    /// Records an event. It must be possible after the previous one.
    pub(super) fn note(&mut self, key: IdKey, kind: &EventKind) -> Result<Step, CheckError> {
        let step = Step::of(kind)?;
        let Some(record) = self.records.get_mut(&key) else {
            return Err(CheckError::new(format!("{kind:?} for an unknown {key:?}")));
        };
        if let EventKind::Rejected { reason, .. } = kind {
            record.reject_reason = Some(*reason);
        }
        record.unanswered |= *kind == (EventKind::Disconnected { timed_out: true });
        if !step.may_follow(record.steps.last().copied(), record.side) {
            return Err(CheckError::new(format!(
                "{step:?} of {key:?} does not fit {record:?}"
            )));
        }
        record.steps.push(step);
        Ok(step)
    }
}
