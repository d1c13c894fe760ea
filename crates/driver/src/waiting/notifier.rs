//! Notifiers: the queue of notifications of a channel, and the waiters that it wakes.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, OnceLock, PoisonError};

use net::poll::PollSet;

use crate::sync::{Mutex, MutexGuard, Signal};
use crate::waiting::deferred_wakeups::{self, Awaited, Wake};
use crate::waiting::wait_set::WaitSet;

/// A queue of notifications, the threads and tasks that wait for them, and a descriptor that is readable
/// while the queue is not empty.
///
/// A notification that is added under the lane's lock wakes the waiters when the lock is released.
#[derive(Debug)]
pub struct Notifier {
    descriptor: Arc<Descriptor>,
    waiting: Arc<WaitSet>,
    /// The group of the first completion queue of this channel that has one: a thread that waits for the channel sleeps on
    /// the sockets of its lane.
    group: OnceLock<usize>,
}

/// The notifications and their descriptor.
///
/// Raising and lowering the descriptor are system calls, so this starts when a program asks for the
/// descriptor.
#[derive(Debug)]
pub(crate) struct Descriptor {
    signal: Option<Signal>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The token of each notification, oldest first.
    tokens: VecDeque<u64>,
    /// Whether a program has the descriptor.
    exposed: bool,
    /// Whether the descriptor is readable.
    raised: bool,
    /// Whether a notification was ever taken.
    taken: bool,
    /// Whether a thread has slept in the library since the last notification was taken.
    slept: bool,
    /// Whether the last notification was taken by a thread that had not slept: it waits on the descriptor.
    waited_outside: bool,
    /// Whether the descriptor is also readable while packets wait.
    has_packets: bool,
    /// Whether a program that finds the descriptor readable must get a notification, because it may treat
    /// EAGAIN as an error.
    promised: bool,
    /// Whether packets were received while another thread polled for them: that thread must get a
    /// notification.
    owed: bool,
    /// Whether the oldest notification is an extra one, for packets that caused none.
    extra: bool,
    /// Whether packets alone have made the descriptor readable, or could have, without a promise.
    unpromised: bool,
    /// Whether the program has blocked after that. From then on a readable descriptor always means a notification.
    blocks: bool,
    /// Whether packet wake-ups with `promised` were enabled before.
    was_promised: bool,
    /// The token of the last notification.
    last: Option<u64>,
    /// How many threads poll for packets and then take a notification. The descriptor is not raised for
    /// notifications that they take.
    takers: u32,
    /// How many polls for packets in a row brought no notification.
    empty_polls: u32,
}

impl Notifier {
    /// A notifier without notifications.
    pub fn new() -> io::Result<Self> {
        Ok(Self::with(Some(Signal::new()?)))
    }

    /// A notifier without a descriptor, because there may be thousands of them.
    pub fn without_descriptor() -> Self {
        Self::with(None)
    }

    fn with(signal: Option<Signal>) -> Self {
        Self {
            descriptor: Arc::new(Descriptor {
                signal,
                state: Mutex::default(),
            }),
            waiting: Arc::default(),
            group: OnceLock::new(),
        }
    }

    pub(crate) fn group(&self) -> Option<usize> {
        self.group.get().copied()
    }

    /// Sets the group. Returns false if the channel has one.
    pub(crate) fn set_group(&self, index: usize) -> bool {
        self.group.set(index).is_ok()
    }

    /// Adds a notification and wakes all waiters as soon as this thread holds no lane's lock.
    pub fn notify(&self, token: u64) {
        let mut state = self.lock();
        state.tokens.push_back(token);
        state.last = Some(token);
        let exposed = state.exposed;
        drop(state);
        if exposed {
            let descriptor = Arc::clone(&self.descriptor);
            deferred_wakeups::wake(Wake::Waiting(descriptor));
        }
        let _ = self.waiting.wake_all_later();
    }

    /// The threads and tasks that wait for a notification.
    pub fn waiting(&self) -> &WaitSet {
        &self.waiting
    }

    /// Whether there is a notification.
    pub fn has_notification(&self) -> bool {
        !self.lock().tokens.is_empty()
    }

    /// The descriptor, for a program that waits for it.
    ///
    /// # Panics
    /// If the notifier was created without a descriptor.
    pub fn expose(&self) -> BorrowedFd<'_> {
        let mut state = self.lock();
        let first = !std::mem::replace(&mut state.exposed, true);
        if first && !state.tokens.is_empty() {
            self.descriptor.raise_for(&mut state);
        }
        let signal = self.descriptor.signal.as_ref();
        signal.expect("the notifier has a descriptor").as_fd()
    }

    /// Whether a notification was ever taken.
    pub fn was_taken(&self) -> bool {
        self.lock().taken
    }

    /// Takes the oldest notification.
    pub fn take(&self) -> Option<u64> {
        self.take_from(&mut self.lock())
    }

    fn take_from(&self, state: &mut State) -> Option<u64> {
        let oldest = state.tokens.pop_front();
        if oldest.is_some() {
            state.taken = true;
            if !std::mem::take(&mut state.extra) {
                state.empty_polls = 0;
            }
            state.waited_outside = state.exposed && !std::mem::take(&mut state.slept);
        }
        self.descriptor.lower(state);
        oldest
    }

    /// Takes the oldest notification after `poll`, which may add some. If a notification is promised,
    /// packets that cause none count as an extra one.
    pub(crate) fn take_after(&self, poll: impl FnOnce()) -> Option<u64> {
        self.lock().takers += 1;
        poll();
        let mut state = self.lock();
        state.takers -= 1;
        let oldest = self.take_from(&mut state);
        state.empty_polls += u32::from(oldest.is_none());
        let owed = std::mem::take(&mut state.owed);
        let oldest = oldest.or(state.last.filter(|_| owed));
        if state.exposed && !state.raised && !state.tokens.is_empty() {
            self.descriptor.raise_for(&mut state);
        }
        oldest
    }

    /// Makes the descriptor also readable while packets wait, so that a packet wakes the program directly.
    pub(crate) fn include_packets(&self, packets: &PollSet, promised: bool) -> io::Result<()> {
        let mut state = self.lock();
        if let Some(signal) = &self.descriptor.signal {
            signal.include(packets)?;
            state.has_packets = true;
            state.promised = promised;
            state.unpromised |= !promised;
        }
        Ok(())
    }

    /// Reverts [`include_packets`](Self::include_packets).
    pub(crate) fn exclude_packets(&self, packets: &PollSet) {
        if self.has_promise_open() && packets.is_ready() {
            self.keep_promise();
        }
        let mut state = self.lock();
        if let Some(signal) = &self.descriptor.signal {
            signal.exclude(packets);
        }
        state.has_packets = false;
        state.promised = false;
    }

    /// Reports that the program accepts a readable descriptor without a notification.
    pub(crate) fn end_promise(&self) {
        let mut state = self.lock();
        state.promised = false;
        state.unpromised |= state.has_packets;
    }

    /// Reports that the program is about to block until there is a notification. If it was non-blocking before, packets
    /// alone may have made its descriptor readable, and it must not block for that: it gets an extra notification, once.
    pub fn begin_blocking(&self) -> Option<u64> {
        let mut state = self.lock();
        let first = state.unpromised && !state.blocks;
        state.blocks |= first;
        state.last.filter(|_| first)
    }

    /// Whether to enable packet wake-ups with the promise of a notification: the program waits at the
    /// descriptor, and this was not tried before.
    pub(crate) fn may_promise(&self) -> bool {
        let state = self.lock();
        state.waited_outside && !state.has_packets && !state.was_promised
    }

    /// Sets whether packet wake-ups with a promised notification were tried.
    pub(crate) fn note_promised(&self, promised: bool) {
        self.lock().was_promised = promised;
    }

    /// Whether a program that finds the descriptor readable must get a notification.
    pub(crate) fn has_promise(&self) -> bool {
        self.lock().promised
    }

    /// Whether a program that finds the descriptor readable because of packets would get no notification
    /// if another thread received them now.
    pub(crate) fn has_promise_open(&self) -> bool {
        let state = self.lock();
        state.promised && !state.owed && (state.takers > 0 || state.tokens.is_empty())
    }

    /// Adds an extra notification if packets that may have woken the program caused none. Programs must
    /// handle extra notifications anyway: a completion that is polled before its notification leaves one.
    pub(crate) fn keep_promise(&self) {
        let mut state = self.lock();
        if state.takers > 0 {
            state.owed = true;
        } else if state.tokens.is_empty()
            && let Some(last) = state.last
        {
            state.empty_polls += 1;
            state.extra = true;
            drop(state);
            self.notify(last);
        }
    }

    /// How many polls for packets in a row brought no notification.
    pub(crate) fn empty_polls(&self) -> u32 {
        self.lock().empty_polls
    }

    /// Whether the descriptor is also readable while packets wait.
    pub(crate) fn has_packets(&self) -> bool {
        self.lock().has_packets
    }

    /// Whether to let packets alone make the descriptor readable: they do not yet, and the program does not block.
    pub(crate) fn may_accept_anything(&self) -> bool {
        let state = self.lock();
        let accepts_anything = state.has_packets && !state.promised;
        !accepts_anything && !state.blocks
    }

    /// Reports that a thread sleeps in the library for a notification, and serves the device meanwhile.
    pub(crate) fn note_sleep(&self) {
        self.lock().slept = true;
    }

    /// Whether threads wait for notifications outside of the library, as far as the last take shows.
    pub(crate) fn is_waited_for_outside(&self) -> bool {
        self.lock().waited_outside
    }

    /// Whether threads wait outside of the library where no packet wakes them. Then only the device's
    /// thread serves the sockets.
    pub(crate) fn needs_the_thread(&self) -> bool {
        let state = self.lock();
        state.waited_outside && !state.has_packets
    }

    /// Removes the notifications of a queue that is destroyed.
    pub fn forget(&self, token: u64) {
        let mut state = self.lock();
        state.tokens.retain(|other| *other != token);
        state.last = state.last.filter(|last| *last != token);
        state.extra &= !state.tokens.is_empty();
        self.descriptor.lower(&mut state);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.descriptor.lock()
    }
}

impl Awaited for Descriptor {
    /// Makes the descriptor readable if a notification is still there. A thread that polls for packets
    /// takes it or raises the descriptor itself.
    fn wake(&self) {
        let mut state = self.lock();
        if !state.tokens.is_empty() && state.takers == 0 {
            self.raise_for(&mut state);
        }
    }
}

impl Descriptor {
    /// Called for each notification, because an edge-triggered program needs an edge for each. The caller
    /// holds the lock, so the descriptor is never readable without a notification.
    fn raise_for(&self, state: &mut State) {
        state.raised = true;
        if let Some(signal) = &self.signal {
            signal.raise();
        }
    }

    /// Makes the descriptor unreadable if no notification is left.
    fn lower(&self, state: &mut State) {
        if state.tokens.is_empty()
            && std::mem::take(&mut state.raised)
            && let Some(signal) = &self.signal
        {
            signal.lower();
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(all(test, loom))]
mod model_checks;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use net::poll::{Interest, wait};

    use super::*;

    pub(super) fn readable(descriptor: BorrowedFd<'_>) -> bool {
        let ready = wait(&[Interest::readable(descriptor)], Some(Duration::ZERO));
        !ready.expect("a descriptor").is_empty()
    }

    #[test]
    fn a_notification_wakes_a_sleeper_that_entered_before() {
        let notifier = Notifier::new().expect("a descriptor");
        let sleeper = notifier.waiting().enter();
        assert!(!notifier.has_notification() && !sleeper.was_woken());
        notifier.notify(7);
        assert!(notifier.has_notification() && sleeper.was_woken());
        assert_eq!(notifier.take(), Some(7));
        assert!(!notifier.has_notification());
        assert!(sleeper.was_woken(), "taking it does not reset the sleeper");
    }

    #[test]
    fn a_notification_after_a_poll_for_packets_raises_the_descriptor() {
        let notifier = Notifier::new().expect("a descriptor");
        let descriptor = notifier.expose();
        assert_eq!(notifier.take_after(|| ()), None);
        notifier.notify(7);
        assert!(readable(descriptor));
        assert_eq!(notifier.take_after(|| notifier.notify(8)), Some(7));
        assert!(readable(descriptor), "one is left");
        assert_eq!(notifier.take_after(|| ()), Some(8));
        assert!(!readable(descriptor));
    }

    #[test]
    fn a_notification_taken_without_sleep_means_the_program_waits_at_the_descriptor() {
        let notifier = Notifier::new().expect("a descriptor");
        notifier.notify(0);
        assert_eq!(notifier.take(), Some(0));
        assert!(
            !notifier.is_waited_for_outside(),
            "no program has the descriptor"
        );
        notifier.expose();
        notifier.note_sleep();
        notifier.notify(1);
        assert_eq!(notifier.take(), Some(1));
        assert!(!notifier.is_waited_for_outside());
        notifier.notify(2);
        assert_eq!(notifier.take(), Some(2));
        assert_eq!(notifier.take(), None);
        assert!(notifier.is_waited_for_outside());
    }

    #[test]
    fn notifications_left_by_take_after_raise_the_descriptor() {
        let notifier = Notifier::new().expect("a descriptor");
        notifier.expose();
        let taken = notifier.take_after(|| {
            notifier.notify(1);
            assert!(!readable(notifier.expose()), "the poller takes it");
        });
        assert_eq!(taken, Some(1));
        assert!(!readable(notifier.expose()));
        assert_eq!(
            notifier.take_after(|| [1, 2].into_iter().for_each(|it| notifier.notify(it))),
            Some(1)
        );
        assert!(readable(notifier.expose()));
        notifier.notify(3);
        assert_eq!([notifier.take(), notifier.take()], [Some(2), Some(3)]);
        assert!(!readable(notifier.expose()));
        assert_eq!(
            notifier.take_after(|| [4, 5].into_iter().for_each(|it| notifier.notify(it))),
            Some(4)
        );
        assert!(readable(notifier.expose()), "each time");
    }

    #[test]
    fn forget_removes_the_notifications_of_a_token() {
        let notifier = Notifier::new().expect("a descriptor");
        notifier.expose();
        notifier.notify(1);
        notifier.notify(2);
        notifier.forget(1);
        assert!(readable(notifier.expose()));
        notifier.forget(2);
        assert!(!readable(notifier.expose()));
        assert_eq!(notifier.take(), None);
    }

    /// In C the token is the address of the queue.
    #[test]
    fn an_extra_notification_never_names_a_queue_that_is_gone() {
        let notifier = Notifier::new().expect("a descriptor");
        notifier.notify(1);
        assert_eq!(notifier.take(), Some(1));
        notifier.keep_promise();
        assert_eq!(notifier.take(), Some(1), "an extra one for the last queue");
        notifier.forget(2);
        notifier.keep_promise();
        assert_eq!(notifier.take(), Some(1), "another one is gone");
        notifier.forget(1);
        notifier.keep_promise();
        assert_eq!(notifier.take(), None);
    }

    #[test]
    fn an_exposed_descriptor_is_readable_until_all_are_taken() {
        let notifier = Notifier::new().expect("a descriptor");
        notifier.notify(1);
        assert!(readable(notifier.expose()));
        notifier.notify(2);
        assert_eq!(notifier.take(), Some(1));
        assert!(readable(notifier.expose()));
        assert_eq!(notifier.take(), Some(2));
        assert!(!readable(notifier.expose()));
        notifier.notify(3);
        assert!(readable(notifier.expose()));
    }

    #[test]
    fn packet_wakeups_are_promised_once_to_a_program_that_waits_at_the_descriptor() {
        let notifier = Notifier::new().expect("a descriptor");
        notifier.notify(7);
        assert_eq!(notifier.take(), Some(7));
        assert!(!notifier.may_promise(), "the program has no descriptor");
        notifier.expose();
        notifier.notify(7);
        notifier.note_sleep();
        assert_eq!(notifier.take(), Some(7));
        assert!(!notifier.may_promise(), "it sleeps in the library");
        notifier.notify(7);
        assert_eq!(notifier.take(), Some(7));
        assert!(notifier.may_promise());
        notifier.note_promised(true);
        assert!(!notifier.may_promise(), "it was tried");
        notifier.note_promised(false);
        assert!(notifier.may_promise());
    }
}
