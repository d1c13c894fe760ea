//! The states of a queue pair, and which attributes each transition takes: as one table.

use super::Kind;
use super::attributes::{Attribute, Attributes};
use Kind::{Management, Rc, Uc, Ud, XrcInitiator, XrcTarget};
use State::{
    Error, Initialized, ReadyToReceive, ReadyToSend, Reset, SendQueueDrain, SendQueueError,
};

/// The state of a queue pair.
///
/// The values are those of `enum ibv_qp_state`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum State {
    /// As created: it takes nothing.
    Reset = 0,
    /// It takes receives, but no packets yet.
    Initialized = 1,
    /// It answers its peer (RTR).
    ReadyToReceive = 2,
    /// It also sends (RTS).
    ReadyToSend = 3,
    /// It finishes what was begun and begins nothing new (SQD).
    SendQueueDrain = 4,
    /// An unreliable send failed; receiving goes on (SQE).
    SendQueueError = 5,
    /// It is broken, and all requests are flushed.
    Error = 6,
}

impl State {
    /// Whether packets of a peer are looked at.
    #[must_use]
    pub const fn receives(self) -> bool {
        matches!(
            self,
            ReadyToReceive | ReadyToSend | SendQueueDrain | SendQueueError
        )
    }

    /// Whether the send queue takes requests; in error only to flush them.
    #[must_use]
    pub const fn takes_sends(self) -> bool {
        matches!(self, ReadyToSend | SendQueueDrain | SendQueueError | Error)
    }

    /// Whether requests go out and their responses are looked at.
    #[must_use]
    pub const fn transmits(self) -> bool {
        matches!(self, ReadyToSend | SendQueueDrain)
    }
}

/// Why a queue pair could not be modified.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ModifyError {
    /// No such queue pair.
    #[error("no such queue pair: it was destroyed or belongs to another device")]
    Unknown,
    /// The device was opened by the parent process.
    #[error("the device was opened before a fork and stays with the parent: open it again")]
    Abandoned,
    /// There is no way from one state to the other.
    #[error("a {kind:?} queue pair can't go from {from:?} to {to:?}")]
    IllegalTransition {
        /// The kind of queue pair.
        kind: Kind,
        /// Its state.
        from: State,
        /// The state that was asked for.
        to: State,
    },
    /// The caller believes it to be in another state.
    #[error("the queue pair is in state {0:?}, not in the one given as current")]
    OtherState(State),
    /// Something is missing.
    #[error("going from {from:?} to {to:?} needs {missing:?}")]
    Missing {
        /// Its state.
        from: State,
        /// The state that was asked for.
        to: State,
        /// What must be given too.
        missing: Attribute,
    },
    /// Something may not be changed now.
    #[error("going from {from:?} to {to:?} can't change {surplus:?}")]
    NotAllowed {
        /// Its state.
        from: State,
        /// The state that was asked for.
        to: State,
        /// What must not be given.
        surplus: Attribute,
    },
    /// The path can't be used.
    #[error("the path can't be used: {0}")]
    Path(#[from] crate::AddressError),
    /// A value is out of range.
    #[error("{attribute:?} is out of range")]
    OutOfRange {
        /// Which one.
        attribute: Attribute,
    },
}

/// One row: a legal transition and what it takes.
struct Transition {
    kinds: &'static [Kind],
    from: State,
    to: State,
    required: Attribute,
    optional: Attribute,
}

const ALL: &[Kind] = &[Rc, Uc, Ud, XrcInitiator, XrcTarget, Management];
const CONNECTED: &[Kind] = &[Rc, Uc, XrcInitiator, XrcTarget];
const DATAGRAM: &[Kind] = &[Ud, Management];
const UNRELIABLE: &[Kind] = &[Uc, Ud, Management];

const NONE: Attribute = Attribute::empty();
const ALWAYS: Attribute = Attribute::STATE.union(Attribute::CURRENT_STATE);
const PORT: Attribute = Attribute::PORT.union(Attribute::PARTITION);
const ACCESS: Attribute = Attribute::ACCESS;
const QUEUE_KEY: Attribute = Attribute::QUEUE_KEY;
const PEER: Attribute = Attribute::PATH
    .union(Attribute::PATH_MTU)
    .union(Attribute::DESTINATION)
    .union(Attribute::RECEIVE_PSN);
const RESPONDER: Attribute = Attribute::RESPONDER_RESOURCES.union(Attribute::RNR_TIMER);
const REQUESTER: Attribute = Attribute::ACK_TIMEOUT
    .union(Attribute::RETRY_COUNT)
    .union(Attribute::RNR_RETRY)
    .union(Attribute::INITIATOR_DEPTH);
const SEND_PSN: Attribute = Attribute::SEND_PSN;
const LATER: Attribute = Attribute::ALTERNATE_PATH
    .union(ACCESS)
    .union(Attribute::PARTITION);
const RUNNING: Attribute = Attribute::CURRENT_STATE
    .union(Attribute::ALTERNATE_PATH)
    .union(ACCESS)
    .union(Attribute::RNR_TIMER)
    .union(Attribute::MIGRATION);
const REPATH: Attribute = RUNNING
    .union(PORT)
    .union(Attribute::PATH)
    .union(REQUESTER)
    .union(Attribute::RESPONDER_RESOURCES);

const fn row(
    kinds: &'static [Kind],
    from: State,
    to: State,
    required: Attribute,
    optional: Attribute,
) -> Transition {
    Transition {
        kinds,
        from,
        to,
        required,
        optional,
    }
}

/// Every state may also go to Reset, and all but Reset to Error, which take nothing.
#[rustfmt::skip]
static TRANSITIONS: &[Transition] = &[
    row(CONNECTED,       Reset,          Initialized,    PORT.union(ACCESS),          NONE),
    row(DATAGRAM,        Reset,          Initialized,    PORT.union(QUEUE_KEY),       NONE),
    row(CONNECTED,       Initialized,    Initialized,    NONE,                        PORT.union(ACCESS)),
    row(DATAGRAM,        Initialized,    Initialized,    NONE,                        PORT.union(QUEUE_KEY)),

    row(&[Rc, XrcTarget], Initialized,   ReadyToReceive, PEER.union(RESPONDER),       LATER),
    row(&[Uc],           Initialized,    ReadyToReceive, PEER,                        LATER),
    // An XRC end may be told what only its other half needs: perftest tells both the same.
    row(&[XrcInitiator], Initialized,    ReadyToReceive, PEER,                        LATER.union(RESPONDER)),
    row(DATAGRAM,        Initialized,    ReadyToReceive, NONE,                        Attribute::PARTITION.union(QUEUE_KEY)),

    row(&[Rc, XrcInitiator], ReadyToReceive, ReadyToSend, REQUESTER.union(SEND_PSN),  RUNNING),
    row(&[XrcTarget],    ReadyToReceive, ReadyToSend,    Attribute::ACK_TIMEOUT.union(SEND_PSN), RUNNING.union(REQUESTER)),
    row(&[Uc],           ReadyToReceive, ReadyToSend,    SEND_PSN,                    RUNNING),
    row(DATAGRAM,        ReadyToReceive, ReadyToSend,    SEND_PSN,                    QUEUE_KEY.union(Attribute::CURRENT_STATE)),

    row(CONNECTED,       ReadyToSend,    ReadyToSend,    NONE,                        RUNNING),
    row(DATAGRAM,        ReadyToSend,    ReadyToSend,    NONE,                        QUEUE_KEY.union(Attribute::CURRENT_STATE)),
    row(ALL,             ReadyToSend,    SendQueueDrain, NONE,                        Attribute::DRAIN_EVENT),
    row(CONNECTED,       SendQueueDrain, ReadyToSend,    NONE,                        RUNNING),
    row(DATAGRAM,        SendQueueDrain, ReadyToSend,    NONE,                        QUEUE_KEY.union(Attribute::CURRENT_STATE)),
    row(CONNECTED,       SendQueueDrain, SendQueueDrain, NONE,                        REPATH),
    row(DATAGRAM,        SendQueueDrain, SendQueueDrain, NONE,                        QUEUE_KEY.union(Attribute::PARTITION)),
    row(UNRELIABLE,      SendQueueError, ReadyToSend,    NONE,                        QUEUE_KEY.union(ACCESS).union(Attribute::CURRENT_STATE)),
];

/// What a transition takes: required and optional.
fn terms(kind: Kind, from: State, to: State) -> Option<(Attribute, Attribute)> {
    match (from, to) {
        (_, Reset) => Some((NONE, NONE)),
        // The specification has a way from Reset, too; Linux (`ib_modify_qp_is_ok`) and its devices don't.
        (from, Error) if from != Reset => Some((NONE, NONE)),
        _ => TRANSITIONS
            .iter()
            .find(|row| row.kinds.contains(&kind) && row.from == from && row.to == to)
            .map(|row| (row.required, row.optional)),
    }
}

/// All that a transition needs besides `attributes`, and all of them that it does not take.
pub(super) fn misfits(kind: Kind, from: State, attributes: &Attributes) -> (Attribute, Attribute) {
    let given = attributes.given();
    let to = attributes.state.unwrap_or(from);
    match terms(kind, from, to) {
        Some((required, optional)) => (
            required.difference(given),
            given.difference(required | optional | ALWAYS),
        ),
        None => (NONE, NONE),
    }
}

/// Checks `attributes` against the table and gives the state that they lead to.
pub(super) fn check(
    kind: Kind,
    from: State,
    attributes: &Attributes,
) -> Result<State, ModifyError> {
    let given = attributes.given();
    if attributes.current_state.is_some_and(|state| state != from) {
        return Err(ModifyError::OtherState(from));
    }
    let to = attributes.state.unwrap_or(from);
    let (required, optional) =
        terms(kind, from, to).ok_or(ModifyError::IllegalTransition { kind, from, to })?;
    let missing = required.difference(given);
    if let Some(missing) = missing.iter().next() {
        return Err(ModifyError::Missing { from, to, missing });
    }
    let allowed = required | optional | ALWAYS;
    if let Some(surplus) = given.difference(allowed).iter().next() {
        return Err(ModifyError::NotAllowed { from, to, surplus });
    }
    Ok(to)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fmt::Write;

    const STATES: [State; 7] = [
        Reset,
        Initialized,
        ReadyToReceive,
        ReadyToSend,
        SendQueueDrain,
        SendQueueError,
        Error,
    ];

    #[test]
    fn the_table_has_one_row_for_each_kind_and_transition() {
        for &kind in ALL {
            for from in STATES {
                for to in STATES {
                    let rows = TRANSITIONS
                        .iter()
                        .filter(|row| row.kinds.contains(&kind) && row.from == from && row.to == to)
                        .count();
                    assert!(rows <= 1, "{kind:?} {from:?} -> {to:?} has {rows} rows");
                }
            }
        }
    }

    /// The map of RC: `.` no way, `+` a way; rows are where from, columns where to.
    #[test]
    fn the_transitions_of_rc() {
        let mut map = String::new();
        for from in STATES {
            for to in STATES {
                let attributes = Attributes {
                    state: Some(to),
                    ..Attributes::default()
                };
                let legal = !matches!(
                    check(Rc, from, &attributes),
                    Err(ModifyError::IllegalTransition { .. })
                );
                map.push(if legal { '+' } else { '.' });
            }
            writeln!(map).expect("a string takes everything");
        }
        let expected = "\
++.....
+++...+
+..+..+
+..++.+
+..++.+
+.....+
+.....+
";
        assert_eq!(map, expected);
    }

    #[test]
    fn nothing_breaks_before_it_has_begun() {
        let broken = Attributes {
            state: Some(Error),
            ..Attributes::default()
        };
        for &kind in ALL {
            for from in STATES {
                assert_eq!(check(kind, from, &broken).is_ok(), from != Reset);
            }
        }
    }

    #[test]
    fn the_error_names_the_attribute_that_is_missing() {
        let attributes = Attributes {
            state: Some(Initialized),
            port: Some(1),
            partition_index: Some(0),
            ..Attributes::default()
        };
        let error = check(Rc, Reset, &attributes).expect_err("access is missing");
        assert_eq!(
            error,
            ModifyError::Missing {
                from: Reset,
                to: Initialized,
                missing: Attribute::ACCESS
            }
        );
    }

    #[test]
    fn an_attribute_out_of_turn_is_refused() {
        let attributes = Attributes {
            state: Some(Error),
            queue_key: Some(wire::QueueKey::new(1)),
            ..Attributes::default()
        };
        assert!(matches!(
            check(Ud, ReadyToSend, &attributes),
            Err(ModifyError::NotAllowed { .. })
        ));
    }
}
