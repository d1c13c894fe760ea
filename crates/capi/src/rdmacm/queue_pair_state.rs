//! State transitions of the queue pairs of ids.

use engine::{Attributes, QueuePairType, State};

use super::id::Id;
use crate::abi;
use crate::errno::Errno;
use crate::object::object_at;
use crate::verbs::queue_pair::Qp;
use crate::verbs::queue_pair_attributes;

/// How many reads and atomics each side may have outstanding.
#[derive(Clone, Copy)]
pub(super) struct Depths {
    pub(super) responder_resources: u8,
    pub(super) initiator_depth: u8,
}

/// Initializes a new queue pair, so that receives can be posted. A UD queue pair becomes ready to send at
/// once.
pub(super) fn initialize(id: &Id, queue_pair: &Qp) -> Result<(), Errno> {
    let cm_id = id.cm_id()?;
    queue_pair_attributes::apply(queue_pair, &cm_id.init_attributes()?)?;
    if queue_pair.kind == QueuePairType::Ud {
        queue_pair_attributes::apply(queue_pair, &cm_id.receive_attributes()?)?;
        queue_pair_attributes::apply(queue_pair, &cm_id.send_attributes()?)?;
    }
    Ok(())
}

/// Takes the queue pair of an id to ready-to-send, if it has one.
pub(super) fn connect_queue_pair(id: &Id, depths: Option<Depths>) -> Result<(), Errno> {
    let Ok(queue_pair) = object_at::<&Qp, _>(id.read().qp) else {
        return Ok(());
    };
    let cm_id = id.cm_id()?;
    // The access rights of the peer are known only now.
    queue_pair_attributes::apply(queue_pair, &cm_id.init_attributes()?)?;
    let mut receive = cm_id.receive_attributes()?;
    let mut send = cm_id.send_attributes()?;
    if let Some(depths) = depths {
        receive.responder_resources = receive
            .responder_resources
            .map(|_| depths.responder_resources);
        send.initiator_depth = send.initiator_depth.map(|_| depths.initiator_depth);
    }
    queue_pair_attributes::apply(
        queue_pair,
        &receive_attributes_for(queue_pair.kind, receive),
    )?;
    queue_pair_attributes::apply(queue_pair, &send_attributes_for(queue_pair.kind, send))
}

/// The attributes that take a queue pair of the program to a state.
pub(super) fn needed_for(id: &Id, state: State) -> Result<Attributes, Errno> {
    let cm_id = id.cm_id()?;
    let kind = match id.read().qp_type {
        abi::IBV_QPT_XRC_SEND => QueuePairType::XrcInitiator,
        abi::IBV_QPT_XRC_RECV => QueuePairType::XrcTarget,
        // The others need all that the connection has.
        _ => QueuePairType::Rc,
    };
    match state {
        State::Initialized => Ok(cm_id.init_attributes()?),
        State::ReadyToReceive => Ok(receive_attributes_for(kind, cm_id.receive_attributes()?)),
        State::ReadyToSend => Ok(send_attributes_for(kind, cm_id.send_attributes()?)),
        _ => Err(Errno::INVALID),
    }
}

/// The connection has ended: flushes outstanding work requests.
pub(super) fn set_error_state(id: &Id) {
    if let Ok(queue_pair) = object_at::<&Qp, _>(id.read().qp) {
        queue_pair_attributes::set_error_state(queue_pair);
    }
}

/// An XRC initiator has no responder.
fn receive_attributes_for(kind: QueuePairType, attributes: Attributes) -> Attributes {
    match kind {
        QueuePairType::XrcInitiator => Attributes {
            responder_resources: None,
            rnr_timer: None,
            ..attributes
        },
        _ => attributes,
    }
}

/// An XRC target has no requester.
fn send_attributes_for(kind: QueuePairType, attributes: Attributes) -> Attributes {
    match kind {
        QueuePairType::XrcTarget => Attributes {
            retry_count: None,
            rnr_retry: None,
            initiator_depth: None,
            ..attributes
        },
        _ => attributes,
    }
}
