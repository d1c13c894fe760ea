//! The objects of asynchronous events, and the counts of their unacknowledged events.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use driver::{BlockedCall, Situation};

/// The object of an event: its address in C, and its count of unacknowledged events.
#[derive(Clone)]
pub(crate) struct EventTarget {
    pub(super) element: usize,
    pub(super) unacknowledged: Arc<UnacknowledgedEvents>,
}

/// Counts the events of an object that a program has got and not acknowledged. Destroying the object waits
/// until there are none.
#[derive(Default)]
pub(crate) struct UnacknowledgedEvents {
    outstanding: Mutex<u64>,
    acknowledged: Condvar,
}

/// Which events an object has.
#[derive(Clone, Copy)]
pub(crate) enum EventKind {
    /// Those of `ibv_get_cq_event`, and asynchronous ones.
    Completion,
    /// Those of `ibv_get_async_event`.
    Async,
    /// Those of `rdma_get_cm_event`.
    Connection,
}

impl EventKind {
    /// That of a call which waits until all events are acknowledged.
    fn situation(self, outstanding: u64) -> Situation {
        let facts = match outstanding {
            0 => return Situation::without_problem("All events are acknowledged."),
            1 => "1 event of the object is not acknowledged.".to_owned(),
            _ => format!("{outstanding} events of the object are not acknowledged."),
        };
        let problem = match self {
            Self::Completion => {
                "The call returns when the program has acknowledged each event that it got for this queue: call \
                 ibv_ack_cq_events for those of ibv_get_cq_event, and ibv_ack_async_event for asynchronous ones."
            }
            Self::Async => {
                "The call returns when the program has called ibv_ack_async_event for each of them."
            }
            Self::Connection => {
                "The call returns when the program has called rdma_ack_cm_event for each of them."
            }
        };
        Situation {
            facts,
            problem: Some(problem.to_owned()),
        }
    }
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

    /// Waits until all are acknowledged: then no thread of the program handles one. `call` waits because of events of
    /// this kind.
    pub(crate) fn wait(self: &Arc<Self>, call: &'static str, kind: EventKind) {
        if *self.lock() == 0 {
            return;
        }
        let events = Arc::clone(self);
        let _listed = BlockedCall::begin(call, || move || kind.situation(*events.lock()));
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
