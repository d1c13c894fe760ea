//! The queue of events between the drivers and an event channel.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError, Weak};

use cm::EventKind;

use crate::Driver;
use crate::fabric::here;
use crate::waiting::deferred_wakeups;
use crate::waiting::notifier::Notifier;

/// A token for an id, unique in this process or simulation.
pub(crate) fn next_token() -> u64 {
    here(|machine| machine.token())
}

/// An event of an id.
#[derive(Debug)]
pub(crate) struct QueuedEvent {
    /// The token of the id.
    pub(crate) token: u64,
    /// For a request: the token of the listener. The id is a new one then.
    pub(crate) listener: Option<u64>,
    /// The id in its manager.
    pub(crate) id: Option<cm::Id>,
    /// The device of the id.
    pub(crate) driver: Weak<Driver>,
    pub(crate) kind: EventKind,
}

impl QueuedEvent {
    /// Whether the event belongs to an id, or is a request to it as a listener.
    fn is_of(&self, token: u64) -> bool {
        self.token == token || self.listener == Some(token)
    }
}

/// Queued events, oldest first, and the notifier that announces them.
#[derive(Debug)]
pub(crate) struct EventQueue {
    notifier: Notifier,
    /// Whether an id disconnects at once when its peer disconnects, without asking the application.
    disconnects_at_once: bool,
    waiting: Mutex<Waiting>,
}

#[derive(Debug, Default)]
struct Waiting {
    events: VecDeque<QueuedEvent>,
    /// How many events each id has: most ids that end have none, and thousands of events may be
    /// queued.
    of_ids: HashMap<u64, usize>,
}

impl Waiting {
    fn push(&mut self, event: QueuedEvent) {
        for token in [Some(event.token), event.listener].into_iter().flatten() {
            *self.of_ids.entry(token).or_default() += 1;
        }
        self.events.push_back(event);
    }

    fn pop(&mut self) -> Option<QueuedEvent> {
        let event = self.events.pop_front()?;
        self.forget(&event);
        Some(event)
    }

    fn forget(&mut self, event: &QueuedEvent) {
        for token in [Some(event.token), event.listener].into_iter().flatten() {
            if let Entry::Occupied(mut count) = self.of_ids.entry(token) {
                *count.get_mut() -= 1;
                if *count.get() == 0 {
                    count.remove();
                }
            }
        }
    }

    fn take_of(&mut self, token: u64) -> Vec<QueuedEvent> {
        if !self.of_ids.contains_key(&token) {
            return Vec::new();
        }
        let all = std::mem::take(&mut self.events);
        let (its, others): (Vec<_>, Vec<_>) = all.into_iter().partition(|it| it.is_of(token));
        self.events = others.into();
        for event in &its {
            self.forget(event);
        }
        its
    }
}

impl EventQueue {
    pub(crate) fn new(notifier: Notifier, disconnects_at_once: bool) -> Self {
        Self {
            notifier,
            disconnects_at_once,
            waiting: Mutex::default(),
        }
    }

    pub(crate) fn notifier(&self) -> &Notifier {
        &self.notifier
    }

    pub(crate) fn disconnects_at_once(&self) -> bool {
        self.disconnects_at_once
    }

    pub(crate) fn push(&self, event: QueuedEvent) {
        let token = event.token;
        deferred_wakeups::deliver_after(|| {
            // Under the lock: a notification without its event would never be taken.
            let mut waiting = self.lock();
            waiting.push(event);
            self.notifier.notify(token);
        });
    }

    pub(crate) fn pop(&self) -> Option<QueuedEvent> {
        let mut waiting = self.lock();
        let event = waiting.pop()?;
        self.notifier.take();
        Some(event)
    }

    /// Takes the events of an id, and the requests to it as a listener, in order.
    pub(crate) fn take_of(&self, token: u64) -> Vec<QueuedEvent> {
        let mut waiting = self.lock();
        let its = waiting.take_of(token);
        for _ in &its {
            self.notifier.take();
        }
        its
    }

    /// Whether an event of this id waits.
    pub(crate) fn holds(&self, token: u64, wanted: impl Fn(&EventKind) -> bool) -> bool {
        let waiting = self.lock();
        let mut events = waiting.events.iter();
        events.any(|event| event.token == token && wanted(&event.kind))
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(token: u64) -> QueuedEvent {
        QueuedEvent {
            token,
            listener: None,
            id: None,
            driver: Weak::new(),
            kind: EventKind::AddressResolved,
        }
    }

    #[test]
    fn no_notification_remains_after_the_last_event() {
        const ROUNDS: u64 = 20_000;
        let queue = EventQueue::new(Notifier::without_descriptor(), false);
        std::thread::scope(|scope| {
            scope.spawn(|| (0..ROUNDS).for_each(|round| queue.push(event(round))));
            let mut taken = 0;
            while taken < ROUNDS {
                taken += u64::from(queue.pop().is_some());
            }
        });
        assert!(
            !queue.notifier().has_notification(),
            "nothing is left to take"
        );
    }

    /// Otherwise a program gets an event of an id that it has destroyed.
    #[test]
    fn an_id_takes_all_of_its_events_along_even_after_one_was_popped() {
        let queue = EventQueue::new(Notifier::without_descriptor(), false);
        for token in [7, 7, 8, 7] {
            queue.push(event(token));
        }
        assert_eq!(queue.pop().map(|it| it.token), Some(7));
        assert_eq!(queue.take_of(7).len(), 2);
        assert_eq!(queue.take_of(7).len(), 0);
        assert_eq!(queue.pop().map(|it| it.token), Some(8));
        assert!(queue.pop().is_none());
    }
}
