//! Asynchronous events.

use std::ffi::c_void;
use std::os::fd::AsRawFd;

use driver::Situation;
use engine::AsyncEvent;

use super::completion_queue::Cq;
use super::context::{Context, OpenDevice, is_nonblocking};
use super::query::PORT;
use super::queue_pair::Qp;
use super::shared_receive_queue::Srq;
use crate::abi;
use crate::blocking::Waited;
use crate::entry::{Input, MinusOne, Output, entry};
use crate::errno::Errno;
use crate::object::object_at;

entry! {
    wait fn ibv_get_async_event(
        context: &Context,
        event: Output<abi::ibv_async_event>,
    ) -> MinusOne {
        let mut event = event;
        let Some(happened) = next(context)? else {
            return Ok(None);
        };
        event.put(happened);
        Ok(Some(MinusOne::DONE))
    }

    export fn ibv_ack_async_event(event: Input<abi::ibv_async_event>) {
        let element = event.0.element;
        match event.0.event_type {
            abi::IBV_EVENT_CQ_ERR => {
                let queue: &Cq = object_at(element.cast())?;
                queue.change(|c| c.async_events_completed += 1);
                queue.unacknowledged.acknowledge(1);
            }
            abi::IBV_EVENT_QP_FATAL..=abi::IBV_EVENT_PATH_MIG_ERR
            | abi::IBV_EVENT_QP_LAST_WQE_REACHED => {
                let queue_pair: &Qp = object_at(element.cast())?;
                queue_pair.change(|c| c.qp_base.events_completed += 1);
                queue_pair.unacknowledged.acknowledge(1);
            }
            abi::IBV_EVENT_SRQ_ERR | abi::IBV_EVENT_SRQ_LIMIT_REACHED => {
                let queue: &Srq = object_at(element.cast())?;
                queue.change(|c| c.events_completed += 1);
                queue.unacknowledged.acknowledge(1);
            }
            _ => {}
        }
        Ok(())
    }
}

impl Waited for OpenDevice {
    fn describe(&self) -> Box<dyn Fn() -> Situation + Send + Sync> {
        Box::new(|| Situation::without_problem("The device has no asynchronous event."))
    }
}

/// The next event; `None` after a while without one, so that the thread can be cancelled.
fn next(open: &OpenDevice) -> Result<Option<abi::ibv_async_event>, Errno> {
    open.check_not_inherited()?;
    while let Some(event) = open.driver.poll_event() {
        if let Some(event) = open.explain(event) {
            return Ok(Some(event));
        }
    }
    if is_nonblocking(open.event_notifier.expose().as_raw_fd())? {
        return Err(Errno::TRY_AGAIN);
    }
    open.sleep(&open.event_notifier)?;
    Ok(None)
}

impl OpenDevice {
    /// The event for C; `None` if its object is destroyed.
    fn explain(&self, event: AsyncEvent) -> Option<abi::ibv_async_event> {
        let event_type = event.code();
        let objects = self.objects();
        let subject = match event {
            AsyncEvent::CompletionQueueError(id) => objects.completion_queues.get(&id),
            AsyncEvent::SharedReceiveLimit(id) => objects.receive_queues.get(&id),
            AsyncEvent::PortError | AsyncEvent::PortActive | AsyncEvent::Other(_) => {
                return Some(abi::ibv_async_event {
                    element: std::ptr::without_provenance_mut(usize::from(PORT)),
                    event_type,
                });
            }
            of_pair => (of_pair.queue_pair()).and_then(|number| objects.queue_pairs.get(&number)),
        };
        let subject = subject?;
        subject.unacknowledged.add();
        Some(abi::ibv_async_event {
            element: std::ptr::with_exposed_provenance_mut::<c_void>(subject.element),
            event_type,
        })
    }
}
