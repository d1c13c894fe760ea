//! Event loops that reply: they take messages until their queue is empty, post the replies, and wait at a descriptor.
//!
//! A look for packets pays before the wait, and only there. Before a reply it would delay it, so the messages and the replies are
//! counted, and the last reply looks.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use engine::Completion;

use super::state::{Found, Intent, LaneState};
use super::{Awaited, Lane};
use crate::clock::now;
use crate::times::LOOK;
use crate::waiting::notifier::Notifier;

/// How many messages the program has taken, since it took a notification, to which it has posted no reply.
///
/// Threads that take and post at the same time may miscount. Then a look comes early, or not at all.
#[derive(Debug, Default)]
pub(crate) struct Unanswered(AtomicU32);

impl Unanswered {
    /// The program takes a notification. It replies to messages that it takes afterwards.
    pub(crate) fn clear(&self) {
        self.set(0);
    }

    /// Counts a completion that the program has taken, if it is that of a message.
    #[inline]
    pub(crate) fn note_taken(&self, completion: &Completion) {
        if completion.work.is_receive() {
            self.set(self.get().saturating_add(1));
        }
    }

    /// Counts a post as a reply. Returns whether it was the last one.
    #[inline]
    fn note_post(&self) -> bool {
        let before = self.get();
        if before > 0 {
            self.set(before - 1);
        }
        before == 1
    }

    /// Whether replies are missing.
    pub(super) fn is_any(&self) -> bool {
        self.get() > 0
    }

    fn get(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }

    fn set(&self, count: u32) {
        self.0.store(count, Ordering::Relaxed);
    }
}

impl Lane {
    /// Counts a post. Returns the channel at whose descriptor the program waits next, if this was its last reply.
    #[inline]
    pub(crate) fn note_post(&self, state: &mut LaneState) -> Option<Arc<Notifier>> {
        if self.unanswered.note_post() {
            state.waits_after_replies()
        } else {
            None
        }
    }

    /// Looks for packets for a program that has posted its last reply and waits at the descriptor of this channel next. The lock
    /// is free between the attempts.
    pub(crate) fn look_after_replies(&self, notifier: &Notifier) {
        if !self.looks.reply.is_worthwhile() {
            return;
        }
        let awaited = Awaited::Notification(notifier);
        self.step(LaneState::begin_look);
        let begin = now();
        while !self.step(|state| {
            let now = now();
            let is_found = state.step(now, Intent::BeforeSleep(&awaited)).found == Found::Ready;
            if !is_found && now < begin + LOOK {
                return false;
            }
            self.looks.reply.note(is_found);
            if !is_found {
                state.prepare_descriptor(now, Intent::BeforeDescriptor(&awaited));
            }
            self.schedule_unsent(state, now);
            true
        }) {
            std::hint::spin_loop();
        }
    }
}
