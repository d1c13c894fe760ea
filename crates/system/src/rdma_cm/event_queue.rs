//! The queued events of one id, and the threads and tasks that wait for them.

use std::collections::VecDeque;
use std::mem;
use std::net::SocketAddr;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::task::Waker;
use std::time::Instant;

use super::event::Event;
use crate::verbs::QueuePair;

/// The events of an id, and what the dispatcher needs of the id.
#[derive(Debug, Default)]
pub(super) struct EventQueue {
    inner: Mutex<Inner>,
    arrived: Condvar,
}

#[derive(Debug, Default)]
struct Inner {
    events: VecDeque<Event>,
    wakers: Vec<Waker>,
    queue_pair: Weak<QueuePair>,
    binding: Binding,
}

/// Where an id is, once it is bound or its address is resolved. The structure of C is read only while nobody writes it, and copied
/// to here.
#[derive(Clone, Debug, Default)]
pub(super) struct Binding {
    pub(super) device: Option<String>,
    pub(super) local: Option<SocketAddr>,
    pub(super) peer: Option<SocketAddr>,
}

impl EventQueue {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds an event, and wakes all threads and tasks that wait.
    pub(super) fn push(&self, event: Event) {
        let wakers = {
            let mut inner = self.lock();
            inner.events.push_back(event);
            mem::take(&mut inner.wakers)
        };
        self.arrived.notify_all();
        for waker in wakers {
            waker.wake();
        }
    }

    pub(super) fn poll(&self) -> Option<Event> {
        self.lock().events.pop_front()
    }

    /// The next event. Waits for it until the deadline, if there is one.
    pub(super) fn wait_until(&self, deadline: Option<Instant>) -> Option<Event> {
        let mut inner = self.lock();
        loop {
            if let Some(event) = inner.events.pop_front() {
                return Some(event);
            }
            inner = match deadline {
                None => {
                    let waited = self.arrived.wait(inner);
                    waited.unwrap_or_else(PoisonError::into_inner)
                }
                Some(deadline) => {
                    let left = deadline.saturating_duration_since(Instant::now());
                    if left.is_zero() {
                        return None;
                    }
                    let waited = self.arrived.wait_timeout(inner, left);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
    }

    /// The next event. Without one, the task is woken when there is one.
    pub(super) fn poll_task(&self, waker: &Waker) -> Option<Event> {
        // Cloned before the lock is taken, because that runs code of the executor.
        let waker = waker.clone();
        let mut inner = self.lock();
        let event = inner.events.pop_front();
        if event.is_none() && !inner.wakers.iter().any(|it| it.will_wake(&waker)) {
            inner.wakers.push(waker);
        }
        event
    }

    /// Sets the queue pair of the connection.
    pub(super) fn set_queue_pair(&self, queue_pair: Weak<QueuePair>) {
        self.lock().queue_pair = queue_pair;
    }

    /// Moves the queue pair of the connection to the error state, if both exist.
    pub(super) fn fail_queue_pair(&self) {
        let queue_pair = self.lock().queue_pair.upgrade();
        if let Some(queue_pair) = queue_pair {
            // A device that refuses is gone, or the queue pair has failed before.
            let _ = queue_pair.move_to_error();
        }
    }

    pub(super) fn binding(&self) -> Binding {
        self.lock().binding.clone()
    }

    pub(super) fn set_binding(&self, binding: Binding) {
        self.lock().binding = binding;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::task::Wake;
    use std::thread;
    use std::time::Duration;

    use super::*;

    #[derive(Default)]
    struct Count(AtomicU32);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn an_event_wakes_threads_and_tasks() {
        let queue = EventQueue::default();
        let count = Arc::new(Count::default());
        let waker = Waker::from(Arc::clone(&count));
        assert!(queue.poll_task(&waker).is_none());
        assert!(queue.poll_task(&waker).is_none());
        thread::scope(|scope| {
            let waits = scope.spawn(|| queue.wait_until(None));
            queue.push(Event::Established);
            assert!(matches!(waits.join(), Ok(Some(Event::Established))));
        });
        assert_eq!(count.0.load(Ordering::Relaxed), 1);
        assert!(queue.poll().is_none());
    }

    #[test]
    fn a_wait_ends_at_its_deadline() {
        let deadline = Instant::now() + Duration::from_millis(5);
        assert!(EventQueue::default().wait_until(Some(deadline)).is_none());
        assert!(Instant::now() >= deadline);
    }
}
