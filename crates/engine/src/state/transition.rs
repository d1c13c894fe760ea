//! The legal transitions, and the attributes that each of them takes.

use super::{Attribute, Attributes, QueuePairType, State};
use crate::address::AddressError;
use crate::system_refusal::SystemRefusal;
use QueuePairType::{Management, Rc, Uc, Ud, XrcInitiator, XrcTarget};
use State::{
    Error, Initialized, ReadyToReceive, ReadyToSend, Reset, SendQueueDrain, SendQueueError,
};

/// Why a queue pair could not be modified.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ModifyError {
    /// The queue pair does not exist.
    #[error("no such queue pair: it was destroyed or belongs to another device")]
    Unknown,
    /// The parent process opened the device.
    #[error("the device was opened before a fork and stays with the parent: open it again")]
    OpenedBeforeFork,
    /// The transition is illegal.
    #[error("a queue pair of type {kind} cannot go from {from} to {to}")]
    IllegalTransition {
        /// The queue pair type.
        kind: QueuePairType,
        /// The present state.
        from: State,
        /// The requested state.
        to: State,
    },
    /// The queue pair is not in the state that the caller expects.
    #[error("the queue pair is in state {0}, not in the given current state")]
    OtherState(State),
    /// A required attribute is missing.
    #[error("going from {from} to {to} needs {missing}")]
    Missing {
        /// The present state.
        from: State,
        /// The requested state.
        to: State,
        /// The missing attribute.
        missing: Attribute,
    },
    /// The transition does not allow an attribute.
    #[error("going from {from} to {to} cannot change {surplus}")]
    NotAllowed {
        /// The present state.
        from: State,
        /// The requested state.
        to: State,
        /// The attribute that is not allowed.
        surplus: Attribute,
    },
    /// The path cannot be used.
    #[error("the path cannot be used: {0}")]
    Path(#[from] AddressError),
    /// A value is out of range.
    #[error("{attribute} is out of range")]
    OutOfRange {
        /// The attribute.
        attribute: Attribute,
    },
    /// A device of the system refused it.
    #[error(transparent)]
    System(#[from] SystemRefusal),
}

/// A row of the table: a legal transition and its attributes.
struct Transition {
    kinds: &'static [QueuePairType],
    from: State,
    to: State,
    required: Attribute,
    optional: Attribute,
}

const ALL: &[QueuePairType] = &[Rc, Uc, Ud, XrcInitiator, XrcTarget, Management];
const CONNECTED: &[QueuePairType] = &[Rc, Uc, XrcInitiator, XrcTarget];
const DATAGRAM: &[QueuePairType] = &[Ud, Management];
const RELIABLE: &[QueuePairType] = &[Rc, XrcInitiator, XrcTarget];

const NONE: Attribute = Attribute::empty();
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
const OPTIONAL_IN_RTR: Attribute = ACCESS.union(Attribute::PARTITION);
const OPTIONAL_WHEN_CONNECTED: Attribute = ACCESS.union(Attribute::MIGRATION);
const OPTIONAL_IN_RTS: Attribute = OPTIONAL_WHEN_CONNECTED.union(Attribute::CURRENT_STATE);
const RELIABLE_IN_RTS: Attribute = OPTIONAL_IN_RTS.union(Attribute::RNR_TIMER);
const OPTIONAL_IN_SQD: Attribute = OPTIONAL_WHEN_CONNECTED
    .union(Attribute::PARTITION)
    .union(Attribute::PATH);
const RELIABLE_IN_SQD: Attribute = OPTIONAL_IN_SQD
    .union(PORT)
    .union(REQUESTER)
    .union(RESPONDER);

const fn row(
    kinds: &'static [QueuePairType],
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

/// IBA 11.2.4.2: a transition is legal for some queue pair types, and has required and optional
/// attributes. The sections cited in the table define the state that a row leads to. Where the
/// attributes of devices differ, the table agrees with Linux (`ib_modify_qp_is_ok`).
///
/// In addition, every state may go to Reset, and every state except Reset to Error, without
/// attributes.
#[rustfmt::skip]
static TRANSITIONS: &[Transition] = &[
    // To INIT.
    row(CONNECTED,       Reset,          Initialized,    PORT.union(ACCESS),          NONE),
    row(DATAGRAM,        Reset,          Initialized,    PORT.union(QUEUE_KEY),       NONE),
    row(CONNECTED,       Initialized,    Initialized,    NONE,                        PORT.union(ACCESS)),
    row(DATAGRAM,        Initialized,    Initialized,    NONE,                        PORT.union(QUEUE_KEY)),

    // To RTR.
    row(&[Rc, XrcTarget], Initialized,   ReadyToReceive, PEER.union(RESPONDER),       OPTIONAL_IN_RTR),
    row(&[Uc],           Initialized,    ReadyToReceive, PEER,                        OPTIONAL_IN_RTR),
    // Annex A14: an XRC initiator has no responder and an XRC target no requester. Both accept the
    // attributes of the other one, because perftest sets the same on both.
    row(&[XrcInitiator], Initialized,    ReadyToReceive, PEER,                        OPTIONAL_IN_RTR.union(RESPONDER)),
    row(DATAGRAM,        Initialized,    ReadyToReceive, NONE,                        Attribute::PARTITION.union(QUEUE_KEY)),

    // To RTS.
    row(&[Rc, XrcInitiator], ReadyToReceive, ReadyToSend, REQUESTER.union(SEND_PSN),  RELIABLE_IN_RTS),
    row(&[XrcTarget],    ReadyToReceive, ReadyToSend,    Attribute::ACK_TIMEOUT.union(SEND_PSN), RELIABLE_IN_RTS.union(REQUESTER)),
    row(&[Uc],           ReadyToReceive, ReadyToSend,    SEND_PSN,                    OPTIONAL_IN_RTS),
    row(DATAGRAM,        ReadyToReceive, ReadyToSend,    SEND_PSN,                    QUEUE_KEY.union(Attribute::CURRENT_STATE)),

    row(RELIABLE,        ReadyToSend,    ReadyToSend,    NONE,                        RELIABLE_IN_RTS),
    row(&[Uc],           ReadyToSend,    ReadyToSend,    NONE,                        OPTIONAL_IN_RTS),
    row(DATAGRAM,        ReadyToSend,    ReadyToSend,    NONE,                        QUEUE_KEY.union(Attribute::CURRENT_STATE)),
    // To SQD, and back.
    row(ALL,             ReadyToSend,    SendQueueDrain, NONE,                        Attribute::DRAIN_EVENT),
    row(RELIABLE,        SendQueueDrain, ReadyToSend,    NONE,                        RELIABLE_IN_RTS),
    row(&[Uc],           SendQueueDrain, ReadyToSend,    NONE,                        OPTIONAL_IN_RTS),
    row(DATAGRAM,        SendQueueDrain, ReadyToSend,    NONE,                        QUEUE_KEY.union(Attribute::CURRENT_STATE)),
    row(RELIABLE,        SendQueueDrain, SendQueueDrain, NONE,                        RELIABLE_IN_SQD),
    row(&[Uc],           SendQueueDrain, SendQueueDrain, NONE,                        OPTIONAL_IN_SQD),
    row(DATAGRAM,        SendQueueDrain, SendQueueDrain, NONE,                        QUEUE_KEY.union(Attribute::PARTITION)),
    // From SQE.
    row(&[Uc],           SendQueueError, ReadyToSend,    NONE,                        ACCESS.union(Attribute::CURRENT_STATE)),
    row(DATAGRAM,        SendQueueError, ReadyToSend,    NONE,                        QUEUE_KEY.union(Attribute::CURRENT_STATE)),
];

/// The required and the optional attributes of a transition.
fn transition_attributes(
    kind: QueuePairType,
    from: State,
    to: State,
) -> Option<(Attribute, Attribute)> {
    match (from, to) {
        (_, Reset) => Some((NONE, NONE)),
        // Linux (`ib_modify_qp_is_ok`) and its devices do not go from Reset to Error.
        (from, Error) if from != Reset => Some((NONE, NONE)),
        _ => TRANSITIONS
            .iter()
            .find(|row| row.kinds.contains(&kind) && row.from == from && row.to == to)
            .map(|row| (row.required, row.optional)),
    }
}

/// All attributes that a transition needs and `attributes` lacks, and all of `attributes` that it
/// does not allow.
pub(crate) fn missing_and_surplus(
    kind: QueuePairType,
    from: State,
    attributes: &Attributes,
) -> (Attribute, Attribute) {
    let given = attributes.given();
    let to = attributes.state.unwrap_or(from);
    match transition_attributes(kind, from, to) {
        Some((required, optional)) => (
            required.difference(given),
            given.difference(required | optional | Attribute::STATE),
        ),
        None => (NONE, NONE),
    }
}

/// Checks `attributes` against the table. Returns the state that they lead to.
pub(crate) fn check(
    kind: QueuePairType,
    from: State,
    attributes: &Attributes,
) -> Result<State, ModifyError> {
    let given = attributes.given();
    if attributes.current_state.is_some_and(|state| state != from) {
        return Err(ModifyError::OtherState(from));
    }
    let to = attributes.state.unwrap_or(from);
    let (required, optional) = transition_attributes(kind, from, to)
        .ok_or(ModifyError::IllegalTransition { kind, from, to })?;
    let missing = required.difference(given);
    if let Some(missing) = missing.iter().next() {
        return Err(ModifyError::Missing { from, to, missing });
    }
    let allowed = required | optional | Attribute::STATE;
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
    fn table_has_at_most_one_row_per_type_and_transition() {
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

    // IBA 11.2.4.2
    /// The legal transitions of RC: `.` illegal, `+` legal; rows are the present state, columns the
    /// new one.
    #[test]
    fn rc_transitions_match_the_specification() {
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
            writeln!(map).expect("writing to a string does not fail");
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
    fn reset_does_not_go_to_error() {
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
    fn error_names_the_missing_attribute() {
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
        let words = "going from RESET to INIT needs ACCESS";
        assert_eq!(error.to_string(), words);
    }

    // IBA 11.2.4.2
    #[test]
    fn each_type_has_its_own_optional_attributes() {
        let to = |state| Attributes {
            state: Some(state),
            ..Attributes::default()
        };
        let started = |mut attributes: Attributes| {
            attributes.send_psn = Some(wire::Psn::new(0));
            attributes
        };
        let timed = |mut attributes: Attributes| {
            attributes.rnr_timer = wire::RnrTimer::new(1);
            attributes
        };
        let keyed = |mut attributes: Attributes| {
            attributes.queue_key = Some(wire::QueueKey::new(1));
            attributes
        };
        let open = |mut attributes: Attributes| {
            attributes.access = Some(crate::memory::Access::REMOTE_READ);
            attributes
        };
        let expected = |mut attributes: Attributes| {
            attributes.current_state = Some(SendQueueDrain);
            attributes
        };
        let on_a_port = |mut attributes: Attributes| {
            attributes.port = Some(1);
            attributes
        };
        let cases = [
            (Rc, ReadyToSend, timed(to(ReadyToSend)), true),
            (Uc, ReadyToSend, timed(to(ReadyToSend)), false),
            (Uc, ReadyToReceive, started(to(ReadyToSend)), true),
            (Uc, ReadyToReceive, timed(started(to(ReadyToSend))), false),
            (Rc, SendQueueDrain, timed(to(ReadyToSend)), true),
            (Uc, SendQueueDrain, timed(to(ReadyToSend)), false),
            (Rc, SendQueueDrain, expected(to(ReadyToSend)), true),
            (Rc, SendQueueDrain, expected(to(SendQueueDrain)), false),
            (Rc, SendQueueDrain, on_a_port(to(SendQueueDrain)), true),
            (Uc, SendQueueDrain, on_a_port(to(SendQueueDrain)), false),
            (Uc, SendQueueError, open(to(ReadyToSend)), true),
            (Uc, SendQueueError, keyed(to(ReadyToSend)), false),
            (Ud, SendQueueError, keyed(to(ReadyToSend)), true),
            (Ud, SendQueueError, open(to(ReadyToSend)), false),
        ];
        for (kind, from, attributes, is_legal) in cases {
            let outcome = check(kind, from, &attributes);
            assert_eq!(
                outcome.is_ok(),
                is_legal,
                "{kind} in {from}: {attributes:?}"
            );
        }
    }

    // IBA 11.2.4.2
    #[test]
    fn attribute_that_a_transition_does_not_allow_is_rejected() {
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
