//! What happened to ids, on its way from the drivers to an event channel.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, Weak};

use cm::EventKind;

use crate::context::Open;
use crate::driver::Bell;

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

/// Notices in order, and the bell that rings for them.
#[derive(Debug)]
pub(crate) struct EventQueue {
    bell: Bell,
    notices: Mutex<VecDeque<Notice>>,
}

impl EventQueue {
    pub(crate) fn new(bell: Bell) -> Self {
        Self {
            bell,
            notices: Mutex::default(),
        }
    }

    pub(crate) fn bell(&self) -> &Bell {
        &self.bell
    }

    pub(crate) fn push(&self, notice: Notice) {
        let token = notice.token;
        self.lock().push_back(notice);
        self.bell.ring(token);
    }

    pub(crate) fn pop(&self) -> Option<Notice> {
        let notice = self.lock().pop_front()?;
        self.bell.answer();
        Some(notice)
    }

    /// Takes out what happened to one id, or to those that it listened for, in order.
    pub(crate) fn take_of(&self, token: u64) -> Vec<Notice> {
        let mut notices = self.lock();
        let (its, others) = notices
            .drain(..)
            .partition(|it| it.token == token || it.listener == Some(token));
        *notices = others;
        drop(notices);
        let its: VecDeque<Notice> = its;
        for _ in &its {
            self.bell.answer();
        }
        its.into()
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Notice>> {
        self.notices.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
