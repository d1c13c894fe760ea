//! Queue pairs of ids on their way through the states.

use engine::{Attributes, Kind};

use super::id::Id;
use crate::errno::Errno;
use crate::object::behind;
use crate::verbs::modify;
use crate::verbs::queue_pair::Qp;

/// How many reads and atomics each side may have outstanding, if the program has a say.
#[derive(Clone, Copy)]
pub(super) struct Depths {
    pub(super) responder_resources: u8,
    pub(super) initiator_depth: u8,
}

/// A new queue pair can be given receives before there is a peer; one for datagrams is ready at once.
pub(super) fn initialize(id: &Id, queue_pair: &Qp) -> Result<(), Errno> {
    let identifier = id.identifier()?;
    modify::apply(queue_pair, &identifier.init_attributes()?)?;
    if queue_pair.kind == Kind::Ud {
        modify::apply(queue_pair, &identifier.receive_attributes()?)?;
        modify::apply(queue_pair, &identifier.send_attributes()?)?;
    }
    Ok(())
}

/// Takes the queue pair of an id to where it can talk to the peer. Without one there is nothing to do.
pub(super) fn make_ready(id: &Id, depths: Option<Depths>) -> Result<(), Errno> {
    let Ok(queue_pair) = behind::<&Qp, _>(id.read().qp) else {
        return Ok(());
    };
    let identifier = id.identifier()?;
    // What the peer may do is only known now.
    modify::apply(queue_pair, &identifier.init_attributes()?)?;
    let mut receive = identifier.receive_attributes()?;
    let mut send = identifier.send_attributes()?;
    if let Some(depths) = depths {
        receive.responder_resources = receive
            .responder_resources
            .map(|_| depths.responder_resources);
        send.initiator_depth = send.initiator_depth.map(|_| depths.initiator_depth);
    }
    modify::apply(queue_pair, &receive_part(queue_pair.kind, receive))?;
    modify::apply(queue_pair, &send_part(queue_pair.kind, send))
}

/// A connection is over: work that is not done is told so.
pub(super) fn break_queue_pair(id: &Id) {
    if let Ok(queue_pair) = behind::<&Qp, _>(id.read().qp) {
        modify::break_off(queue_pair);
    }
}

/// An XRC initiator serves nobody.
fn receive_part(kind: Kind, told: Attributes) -> Attributes {
    match kind {
        Kind::XrcInitiator => Attributes {
            responder_resources: None,
            rnr_timer: None,
            ..told
        },
        _ => told,
    }
}

/// An XRC target asks for nothing.
fn send_part(kind: Kind, told: Attributes) -> Attributes {
    match kind {
        Kind::XrcTarget => Attributes {
            retry_count: None,
            rnr_retry: None,
            initiator_depth: None,
            ..told
        },
        _ => told,
    }
}
