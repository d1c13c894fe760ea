//! What happened to ids, on its way from the drivers to an event channel.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, Weak};

use cm::EventKind;

use crate::context::Open;
use crate::driver::{Deferral, Notifier};

/// A name for an id that no other id of this process gets.
pub(crate) fn next_token() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// Something that happened to an id.
#[derive(Debug)]
pub(crate) struct QueuedEvent {
    /// Whom it happened to.
    pub(crate) token: u64,
    /// Who was listening, if it is a request: the id is a new one then.
    pub(crate) listener: Option<u64>,
    /// What its manager calls it.
    pub(crate) id: Option<cm::Id>,
    /// The device it is at.
    pub(crate) context: Weak<Open>,
    pub(crate) kind: EventKind,
}

impl QueuedEvent {
    /// Whether it belongs to an id, or to one that it listened for.
    fn is_of(&self, token: u64) -> bool {
        self.token == token || self.listener == Some(token)
    }
}

/// Notices in order, and the notifier that rings for them.
#[derive(Debug)]
pub(crate) struct EventQueue {
    notifier: Notifier,
    /// Whether an id whose peer says good-bye agrees at once, without asking the application.
    disconnects_at_once: bool,
    waiting: Mutex<Waiting>,
}

#[derive(Debug, Default)]
struct Waiting {
    events: VecDeque<QueuedEvent>,
    /// How many there are of each id: most ids that end have none, and thousands may wait.
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
        let _deferral = Deferral::begin();
        // Under the lock: a notification without its event would never be taken.
        let mut waiting = self.lock();
        waiting.push(event);
        self.notifier.notify(token);
    }

    pub(crate) fn pop(&self) -> Option<QueuedEvent> {
        let mut waiting = self.lock();
        let event = waiting.pop()?;
        self.notifier.take();
        Some(event)
    }

    /// Takes out what happened to one id, or to those that it listened for, in order.
    pub(crate) fn take_of(&self, token: u64) -> Vec<QueuedEvent> {
        let mut waiting = self.lock();
        let its = waiting.take_of(token);
        for _ in &its {
            self.notifier.take();
        }
        its
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
            context: Weak::new(),
            kind: EventKind::AddressResolved,
        }
    }

    #[test]
    fn notifications_and_notices_stay_as_many() {
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
}
