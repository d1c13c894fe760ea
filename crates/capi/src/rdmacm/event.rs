//! The handle of a connection manager event.

use std::sync::Arc;

use super::id::Id;
use crate::abi;
use crate::entry::{MinusOne, entry};
use crate::object::{Object, from_pointer, object_at};
use crate::verbs::event_target::UnacknowledgedEvents;

/// An event.
pub(super) type Event = Object<abi::rdma_cm_event, EventContents>;

from_pointer!(abi::rdma_cm_event => Event);

/// What an event holds until it is acknowledged.
pub(super) struct EventContents {
    /// What waits until it is acknowledged: an id, and perhaps a multicast membership.
    pub(super) waiting: Vec<Arc<UnacknowledgedEvents>>,
    /// The event points to it.
    pub(super) _private_data: Vec<u8>,
}

entry! {
    export fn rdma_ack_cm_event(event: &Event) -> MinusOne {
        acknowledge(event);
        Ok(MinusOne::DONE)
    }
}

/// Acknowledges and frees an event.
pub(super) fn acknowledge(event: &Event) {
    for waiting in event.destroy().into_iter().flat_map(|it| it.waiting) {
        waiting.acknowledge(1);
    }
}

/// Acknowledges the event of the last call of an id without a channel.
pub(super) fn acknowledge_last(id: &Id) {
    if let Ok(event) = object_at::<&Event, _>(id.read().event) {
        id.change(|c| c.event = std::ptr::null_mut());
        acknowledge(event);
    }
}
