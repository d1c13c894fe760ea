//! Asynchronous events, and that nobody destroys what an event is still about.

use std::ffi::c_void;
use std::os::fd::AsRawFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use engine::{AsyncEvent, CompletionQueue, Id, SharedReceiveQueue};
use wire::Qpn;

use super::completion::Cq;
use super::context::{Context, Open, is_nonblocking};
use super::queue_pair::Qp;
use super::shared_receive::Srq;
use crate::abi;
use crate::entry::{Given, MinusOne, Place, entry};
use crate::errno::Errno;
use crate::object::behind;

/// What an event can be about: where C has it, and how it counts its events.
#[derive(Clone)]
pub(crate) struct Subject {
    element: usize,
    told: Arc<Told>,
}

/// Events that a program has got, and those that it has acknowledged.
#[derive(Default)]
pub(crate) struct Told {
    outstanding: Mutex<u64>,
    acknowledged: Condvar,
}

impl Subject {
    pub(crate) fn new<T>(element: *mut T, told: &Arc<Told>) -> Self {
        Self {
            element: element.expose_provenance(),
            told: Arc::clone(told),
        }
    }
}

impl Told {
    /// One more event was handed out.
    pub(crate) fn add(&self) {
        *self.lock() += 1;
    }

    /// So many were acknowledged.
    pub(crate) fn acknowledge(&self, count: u64) {
        let mut outstanding = self.lock();
        *outstanding = outstanding.saturating_sub(count);
        self.acknowledged.notify_all();
    }

    /// Waits until all are: afterwards no thread of the program works on one.
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
        event: Place<abi::ibv_async_event>,
    ) -> MinusOne {
        let mut event = event;
        let Some(happened) = next(context)? else {
            return Ok(None);
        };
        event.put(happened);
        Ok(Some(MinusOne::DONE))
    }

    export fn ibv_ack_async_event(event: Given<abi::ibv_async_event>) {
        let element = event.0.element;
        match event.0.event_type {
            abi::IBV_EVENT_CQ_ERR => {
                let queue: &Cq = behind(element.cast())?;
                queue.change(|c| c.async_events_completed += 1);
                queue.told.acknowledge(1);
            }
            abi::IBV_EVENT_QP_FATAL..=abi::IBV_EVENT_PATH_MIG_ERR
            | abi::IBV_EVENT_QP_LAST_WQE_REACHED => {
                let queue_pair: &Qp = behind(element.cast())?;
                queue_pair.change(|c| c.qp_base.events_completed += 1);
                queue_pair.told.acknowledge(1);
            }
            abi::IBV_EVENT_SRQ_ERR | abi::IBV_EVENT_SRQ_LIMIT_REACHED => {
                let queue: &Srq = behind(element.cast())?;
                queue.change(|c| c.events_completed += 1);
                queue.told.acknowledge(1);
            }
            _ => {}
        }
        Ok(())
    }
}

/// What happened; nothing if nothing did for a while.
fn next(open: &Open) -> Result<Option<abi::ibv_async_event>, Errno> {
    open.check_ours()?;
    while let Some(event) = open.raw().poll_event() {
        if let Some(event) = open.explain(event) {
            return Ok(Some(event));
        }
    }
    if is_nonblocking(open.event_bell.expose().as_raw_fd())? {
        return Err(Errno::TRY_AGAIN);
    }
    open.sleep(&open.event_bell)?;
    Ok(None)
}

/// The queue pair that an event is about.
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

impl Open {
    /// Nothing is told any more about a queue pair.
    pub(super) fn forget_queue_pair(&self, number: Qpn) {
        self.members().queue_pairs.remove(&number);
        let gone = |event: &AsyncEvent| queue_pair_of(event) == Some(number);
        self.raw().forget_events(gone);
    }

    /// Nothing is told any more about a completion queue.
    pub(super) fn forget_completion_queue(&self, id: Id<CompletionQueue>) {
        self.members().completion_queues.remove(&id);
        let gone = |event: &AsyncEvent| *event == AsyncEvent::CompletionQueueError(id);
        self.raw().forget_events(gone);
    }

    /// Nothing is told any more about a shared receive queue.
    pub(super) fn forget_receive_queue(&self, id: Id<SharedReceiveQueue>) {
        self.members().receive_queues.remove(&id);
        let gone = |event: &AsyncEvent| *event == AsyncEvent::SharedReceiveLimit(id);
        self.raw().forget_events(gone);
    }

    /// The event as C has it; nothing if its object is gone.
    fn explain(&self, event: AsyncEvent) -> Option<abi::ibv_async_event> {
        let members = self.members();
        let of_pair = |number| members.queue_pairs.get(number);
        let (subject, event_type) = match &event {
            AsyncEvent::CompletionQueueError(id) => {
                (members.completion_queues.get(id), abi::IBV_EVENT_CQ_ERR)
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
                members.receive_queues.get(id),
                abi::IBV_EVENT_SRQ_LIMIT_REACHED,
            ),
        };
        let subject = subject?;
        subject.told.add();
        Some(abi::ibv_async_event {
            element: std::ptr::with_exposed_provenance_mut::<c_void>(subject.element),
            event_type,
        })
    }
}
