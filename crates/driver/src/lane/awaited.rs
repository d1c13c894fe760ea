//! What a thread waits for.

use engine::{CompletionQueue, Id};

use super::state::LaneState;
use super::watch::Watch;
use crate::waiting::notifier::Notifier;
use crate::waiting::wait_set::{Sleeper, WaitSet};

/// What a thread waits for.
pub enum Awaited<'a> {
    /// A notification.
    Notification(&'a Notifier),
    /// A completion in a queue.
    Completion(Id<CompletionQueue>, &'a WaitSet),
    /// What a thread watches.
    Watched(&'a Watch),
}

impl<'a> Awaited<'a> {
    pub(super) fn begin_sleep(&self) -> Sleeper<'a> {
        match self {
            Self::Notification(notifier) => notifier.waiting().enter(),
            Self::Completion(_, waiting) => waiting.enter(),
            Self::Watched(watch) => watch.begin_sleep(),
        }
    }

    pub(super) fn note_sleep(&self) {
        if let Self::Notification(notifier) = self {
            notifier.note_sleep();
        }
    }

    pub(crate) fn is_ready(&self, state: &mut LaneState) -> bool {
        match self {
            Self::Notification(notifier) => notifier.has_notification(),
            Self::Completion(id, _) => {
                let queue = state.device_mut().completion_queue(*id);
                queue.is_some_and(|queue| !queue.is_empty())
            }
            Self::Watched(watch) => watch.is_ready(),
        }
    }

    /// As [`is_ready`](Self::is_ready). If it is not ready, the next completion wakes the wait set.
    pub(super) fn is_ready_or_watched(&self, state: &mut LaneState) -> bool {
        match self {
            // The queues are watched since the thread entered their sets.
            Self::Notification(_) | Self::Watched(_) => self.is_ready(state),
            Self::Completion(id, _) => !state.device_mut().watch_completions(*id),
        }
    }
}
