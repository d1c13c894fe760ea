//! What happened to ids, on its way from the drivers to an event channel.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, Weak};

use cm::EventKind;

use crate::context::Open;
use crate::driver::{Bell, Deferral};

/// A name for an id that no other id of this process gets.
pub(crate) fn next_token() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// Something that happened to an id.
#[derive(Debug)]
pub(crate) struct Notice {
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

impl Notice {
    /// Whether it belongs to an id, or to one that it listened for.
    fn is_of(&self, token: u64) -> bool {
        self.token == token || self.listener == Some(token)
    }
}

/// Notices in order, and the bell that rings for them.
#[derive(Debug)]
pub(crate) struct EventQueue {
    bell: Bell,
    /// Whether an id whose peer says good-bye agrees at once, without asking the application.
    parts_at_once: bool,
    waiting: Mutex<Waiting>,
}

#[derive(Debug, Default)]
struct Waiting {
    notices: VecDeque<Notice>,
    /// How many there are of each id: most ids that end have none, and thousands may wait.
    of_ids: HashMap<u64, usize>,
}

impl Waiting {
    fn push(&mut self, notice: Notice) {
        for token in [Some(notice.token), notice.listener].into_iter().flatten() {
            *self.of_ids.entry(token).or_default() += 1;
        }
        self.notices.push_back(notice);
    }

    fn pop(&mut self) -> Option<Notice> {
        let notice = self.notices.pop_front()?;
        self.forget(&notice);
        Some(notice)
    }

    fn forget(&mut self, notice: &Notice) {
        for token in [Some(notice.token), notice.listener].into_iter().flatten() {
            if let Entry::Occupied(mut count) = self.of_ids.entry(token) {
                *count.get_mut() -= 1;
                if *count.get() == 0 {
                    count.remove();
                }
            }
        }
    }

    fn take_of(&mut self, token: u64) -> Vec<Notice> {
        if !self.of_ids.contains_key(&token) {
            return Vec::new();
        }
        let all = std::mem::take(&mut self.notices);
        let (its, others): (Vec<_>, Vec<_>) = all.into_iter().partition(|it| it.is_of(token));
        self.notices = others.into();
        for notice in &its {
            self.forget(notice);
        }
        its
    }
}

impl EventQueue {
    pub(crate) fn new(bell: Bell, parts_at_once: bool) -> Self {
        Self {
            bell,
            parts_at_once,
            waiting: Mutex::default(),
        }
    }

    pub(crate) fn bell(&self) -> &Bell {
        &self.bell
    }

    pub(crate) fn parts_at_once(&self) -> bool {
        self.parts_at_once
    }

    pub(crate) fn push(&self, notice: Notice) {
        let token = notice.token;
        let _deferral = Deferral::begin();
        // Under the lock: a notification without its notice would never be taken.
        let mut waiting = self.lock();
        waiting.push(notice);
        self.bell.ring(token);
    }

    pub(crate) fn pop(&self) -> Option<Notice> {
        let mut waiting = self.lock();
        let notice = waiting.pop()?;
        self.bell.answer();
        Some(notice)
    }

    /// Takes out what happened to one id, or to those that it listened for, in order.
    pub(crate) fn take_of(&self, token: u64) -> Vec<Notice> {
        let mut waiting = self.lock();
        let its = waiting.take_of(token);
        for _ in &its {
            self.bell.answer();
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

    fn notice(token: u64) -> Notice {
        Notice {
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
        let queue = EventQueue::new(Bell::without_descriptor(), false);
        std::thread::scope(|scope| {
            scope.spawn(|| (0..ROUNDS).for_each(|round| queue.push(notice(round))));
            let mut taken = 0;
            while taken < ROUNDS {
                taken += u64::from(queue.pop().is_some());
            }
        });
        assert!(!queue.bell().has_rung(), "nothing is left to take");
    }
}
