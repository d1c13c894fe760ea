//! Asynchronous events.

use std::ffi::c_void;
use std::os::fd::AsRawFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use engine::{AsyncEvent, CompletionQueue, Id, SharedReceiveQueue};
use wire::Qpn;

use super::completion_queue::Cq;
use super::context::{Context, OpenDevice, is_nonblocking};
use super::queue_pair::Qp;
use super::shared_receive_queue::Srq;
use crate::abi;
use crate::entry::{Input, MinusOne, Output, entry};
use crate::errno::Errno;
use crate::object::object_at;

/// The object of an event: its address in C, and its count of unacknowledged events.
#[derive(Clone)]
pub(crate) struct EventTarget {
    element: usize,
    unacknowledged: Arc<UnacknowledgedEvents>,
}

/// Counts the events of an object that a program has got and not acknowledged. Destroying the object waits
/// until there are none.
#[derive(Default)]
pub(crate) struct UnacknowledgedEvents {
    outstanding: Mutex<u64>,
    acknowledged: Condvar,
}

impl EventTarget {
    pub(crate) fn new<T>(element: *mut T, unacknowledged: &Arc<UnacknowledgedEvents>) -> Self {
        Self {
            element: element.expose_provenance(),
            unacknowledged: Arc::clone(unacknowledged),
        }
    }
}

impl UnacknowledgedEvents {
    /// One more event was delivered.
    pub(crate) fn add(&self) {
        *self.lock() += 1;
    }

    /// This many were acknowledged.
    pub(crate) fn acknowledge(&self, count: u64) {
        let mut outstanding = self.lock();
        *outstanding = outstanding.saturating_sub(count);
        self.acknowledged.notify_all();
    }

    /// Waits until all are acknowledged: then no thread of the program handles one.
    pub(crate) fn wait(&self) {
        let mut outstanding = self.lock();
        while *outstanding > 0 {
            outstanding = self
                .acknowledged
                .wait(outstanding)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn lock(&self) -> MutexGuard<'_, u64> {
        self.outstanding
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

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

/// The next event; `None` after a while without one, so that the thread can be cancelled.
fn next(open: &OpenDevice) -> Result<Option<abi::ibv_async_event>, Errno> {
    open.check_not_inherited()?;
    while let Some(event) = open.raw().poll_event() {
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

/// The queue pair of an event.
fn queue_pair_of(event: &AsyncEvent) -> Option<Qpn> {
    match *event {
        AsyncEvent::QueuePairFatal(number)
        | AsyncEvent::RequestError(number)
        | AsyncEvent::AccessError(number)
        | AsyncEvent::CommunicationEstablished(number)
        | AsyncEvent::SendQueueDrained(number)
        | AsyncEvent::LastReceiveReached(number) => Some(number),
        AsyncEvent::CompletionQueueError(_) | AsyncEvent::SharedReceiveLimit(_) => None,
    }
}

impl OpenDevice {
    /// Drops the events of a destroyed queue pair.
    pub(super) fn forget_queue_pair(&self, number: Qpn) {
        self.objects().queue_pairs.remove(&number);
        let gone = |event: &AsyncEvent| queue_pair_of(event) == Some(number);
        self.raw().forget_events(gone);
    }

    /// Drops the events of a destroyed completion queue.
    pub(super) fn forget_completion_queue(&self, id: Id<CompletionQueue>) {
        self.objects().completion_queues.remove(&id);
        let gone = |event: &AsyncEvent| *event == AsyncEvent::CompletionQueueError(id);
        self.raw().forget_events(gone);
    }

    /// Drops the events of a destroyed shared receive queue.
    pub(super) fn forget_receive_queue(&self, id: Id<SharedReceiveQueue>) {
        self.objects().receive_queues.remove(&id);
        let gone = |event: &AsyncEvent| *event == AsyncEvent::SharedReceiveLimit(id);
        self.raw().forget_events(gone);
    }

    /// The event for C; `None` if its object is destroyed.
    fn explain(&self, event: AsyncEvent) -> Option<abi::ibv_async_event> {
        let objects = self.objects();
        let of_pair = |number| objects.queue_pairs.get(number);
        let (subject, event_type) = match &event {
            AsyncEvent::CompletionQueueError(id) => {
                (objects.completion_queues.get(id), abi::IBV_EVENT_CQ_ERR)
            }
            AsyncEvent::QueuePairFatal(number) => (of_pair(number), abi::IBV_EVENT_QP_FATAL),
            AsyncEvent::RequestError(number) => (of_pair(number), abi::IBV_EVENT_QP_REQ_ERR),
            AsyncEvent::AccessError(number) => (of_pair(number), abi::IBV_EVENT_QP_ACCESS_ERR),
            AsyncEvent::CommunicationEstablished(number) => {
                (of_pair(number), abi::IBV_EVENT_COMM_EST)
            }
            AsyncEvent::SendQueueDrained(number) => (of_pair(number), abi::IBV_EVENT_SQ_DRAINED),
            AsyncEvent::LastReceiveReached(number) => {
                (of_pair(number), abi::IBV_EVENT_QP_LAST_WQE_REACHED)
            }
            AsyncEvent::SharedReceiveLimit(id) => (
                objects.receive_queues.get(id),
                abi::IBV_EVENT_SRQ_LIMIT_REACHED,
            ),
        };
        let subject = subject?;
        subject.unacknowledged.add();
        Some(abi::ibv_async_event {
            element: std::ptr::with_exposed_provenance_mut::<c_void>(subject.element),
            event_type,
        })
    }
}
