//! `ibv_get_cq_event`, `ibv_ack_cq_events`: notifications of completion channels.

use std::ffi::c_void;

use super::completion_channel::Channel;
use super::completion_queue::Cq;
use crate::abi;
use crate::entry::{MinusOne, Output, entry};
use crate::object::object_at;

entry! {
    wait fn ibv_get_cq_event(
        channel: &Channel,
        queue: Output<*mut abi::ibv_cq>,
        queue_context: Output<*mut c_void>,
    ) -> MinusOne {
        let (mut queue, mut queue_context) = (queue, queue_context);
        let Some(queue_address) = channel.wait()? else {
            return Ok(None);
        };
        let pointer = std::ptr::with_exposed_provenance_mut::<abi::ibv_cq>(queue_address as usize);
        let found: &Cq = object_at(pointer)?;
        found.unacknowledged.add();
        queue.put(pointer);
        queue_context.put(found.read().cq_context);
        Ok(Some(MinusOne::DONE))
    }

    export fn ibv_ack_cq_events(queue: &Cq, count: u32) {
        queue.change(|c| c.comp_events_completed = c.comp_events_completed.wrapping_add(count));
        queue.unacknowledged.acknowledge(u64::from(count));
        Ok(())
    }
}
