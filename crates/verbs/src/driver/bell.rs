//! Notifications: which queues or ids have something, in order.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use net::poll::{PollSet, Signal};

use super::deferred::{self, Wake};
use super::wait_set::WaitSet;

/// Notifications in order, the threads and tasks that wait for them, and a descriptor that is readable
/// while there are any.
///
/// A notification that is added under the driver's lock wakes them when the lock is released.
#[derive(Debug)]
pub struct Bell {
    descriptor: Arc<Descriptor>,
    waiting: Arc<WaitSet>,
}

/// Notifications, and the descriptor for them.
///
/// It costs system calls, so it is only touched once a program has got it.
#[derive(Debug)]
pub(super) struct Descriptor {
    signal: Option<Signal>,
    rang: Mutex<Rang>,
}

#[derive(Debug, Default)]
struct Rang {
    whom: VecDeque<u64>,
    /// Whether a program has the descriptor.
    exposed: bool,
    /// Whether the descriptor is readable.
    raised: bool,
    /// Whether a thread has slept in the library since the last notification was taken.
    slept: bool,
    /// Whether the last notification was taken by a thread that had not: it waits at the descriptor.
    waited_outside: bool,
    /// Whether the descriptor is readable while packets wait, too.
    has_packets: bool,
    /// Whether a program that finds the descriptor readable must get a notification: it may take anything
    /// else for an error.
    promised: bool,
    /// Whether packets were taken while a thread looked for some: it must get a notification.
    owed: bool,
    /// Whether the oldest notification is an extra one, for packets that brought none.
    extra: bool,
    /// Whether packets were offered with that promise before.
    was_promised: bool,
    /// What the last notification was about.
    last: Option<u64>,
    /// How many threads look for packets to take a notification: the descriptor is not raised for what
    /// they take at once.
    takers: u32,
    /// How often in a row a look for packets brought no notification.
    looks_in_vain: u32,
}

impl Bell {
    /// One without notifications.
    pub fn new() -> io::Result<Self> {
        Ok(Self::with(Some(Signal::new()?)))
    }

    /// One without a descriptor, for where there may be thousands.
    pub(crate) fn without_descriptor() -> Self {
        Self::with(None)
    }

    fn with(signal: Option<Signal>) -> Self {
        Self {
            descriptor: Arc::new(Descriptor {
                signal,
                rang: Mutex::default(),
            }),
            waiting: Arc::default(),
        }
    }

    /// Adds a notification and wakes all that wait, when this thread holds no lock that they may need.
    pub fn ring(&self, whom: u64) {
        let mut rang = self.lock();
        rang.whom.push_back(whom);
        rang.last = Some(whom);
        let exposed = rang.exposed;
        drop(rang);
        if exposed {
            deferred::wake(Wake::Descriptor(Arc::clone(&self.descriptor)));
        }
        self.waiting.wake_all_later();
    }

    /// The threads and tasks that wait for a notification.
    pub(crate) fn waiting(&self) -> &WaitSet {
        &self.waiting
    }

    /// Whether there is a notification.
    pub(crate) fn has_rung(&self) -> bool {
        !self.lock().whom.is_empty()
    }

    /// The descriptor, for a program to wait for at any time.
    ///
    /// # Panics
    /// If it was made without one.
    pub fn expose(&self) -> BorrowedFd<'_> {
        let mut rang = self.lock();
        let first = !std::mem::replace(&mut rang.exposed, true);
        if first && !rang.whom.is_empty() {
            self.descriptor.raise_for(&mut rang);
        }
        let signal = self.descriptor.signal.as_ref();
        signal.expect("it was made with a descriptor").as_fd()
    }

    /// Takes the oldest notification.
    pub fn answer(&self) -> Option<u64> {
        self.take(&mut self.lock())
    }

    fn take(&self, rang: &mut Rang) -> Option<u64> {
        let oldest = rang.whom.pop_front();
        if oldest.is_some() {
            if !std::mem::take(&mut rang.extra) {
                rang.looks_in_vain = 0;
            }
            rang.waited_outside = rang.exposed && !std::mem::take(&mut rang.slept);
        }
        self.descriptor.lower(rang);
        oldest
    }

    /// Takes the oldest notification after `look`, which may add some. If it is promised, packets without
    /// a notification are an extra one.
    pub(super) fn answer_after(&self, look: impl FnOnce()) -> Option<u64> {
        self.lock().takers += 1;
        look();
        let mut rang = self.lock();
        rang.takers -= 1;
        let oldest = self.take(&mut rang);
        rang.looks_in_vain += u32::from(oldest.is_none());
        let owed = std::mem::take(&mut rang.owed);
        let oldest = oldest.or(rang.last.filter(|_| owed));
        if rang.exposed && !rang.raised && !rang.whom.is_empty() {
            self.descriptor.raise_for(&mut rang);
        }
        oldest
    }

    /// Makes the descriptor readable while packets wait, too: a packet wakes the program directly.
    pub(super) fn include_packets(&self, packets: &PollSet, promised: bool) -> io::Result<()> {
        let mut rang = self.lock();
        if let Some(signal) = &self.descriptor.signal {
            signal.include(packets)?;
            rang.has_packets = true;
            rang.promised = promised;
        }
        Ok(())
    }

    /// Ends that.
    pub(super) fn exclude_packets(&self, packets: &PollSet) {
        if self.has_promise_open() && packets.is_ready() {
            self.keep_promise();
        }
        let mut rang = self.lock();
        if let Some(signal) = &self.descriptor.signal {
            signal.exclude(packets);
        }
        rang.has_packets = false;
        rang.promised = false;
    }

    /// The program has been told that there is no notification, and goes on.
    pub(super) fn end_promise(&self) {
        self.lock().promised = false;
    }

    /// Whether packets may wake the program with the promise of a notification: it waits at the
    /// descriptor, and this was not tried before.
    pub(super) fn may_promise(&self) -> bool {
        let rang = self.lock();
        rang.waited_outside && !rang.has_packets && !rang.was_promised
    }

    /// Packets were offered with the promise of a notification, or may be again.
    pub(super) fn note_promised(&self, promised: bool) {
        self.lock().was_promised = promised;
    }

    /// Whether a program that finds the descriptor readable must get a notification.
    pub(super) fn has_promise(&self) -> bool {
        self.lock().promised
    }

    /// Whether a program that finds the descriptor readable for packets would get no notification if they
    /// were taken now.
    pub(super) fn has_promise_open(&self) -> bool {
        let rang = self.lock();
        rang.promised && !rang.owed && (rang.takers > 0 || rang.whom.is_empty())
    }

    /// Packets were taken that may have woken the program: it gets an extra notification if they brought
    /// none. Programs know such extra ones: a completion that is polled before its notification leaves one.
    pub(super) fn keep_promise(&self) {
        let mut rang = self.lock();
        if rang.takers > 0 {
            rang.owed = true;
        } else if rang.whom.is_empty()
            && let Some(last) = rang.last
        {
            rang.looks_in_vain += 1;
            rang.extra = true;
            drop(rang);
            self.ring(last);
        }
    }

    /// How often in a row a look for packets brought no notification.
    pub(super) fn looks_in_vain(&self) -> u32 {
        self.lock().looks_in_vain
    }

    /// Whether the descriptor is readable while packets wait, too.
    pub(super) fn has_packets(&self) -> bool {
        self.lock().has_packets
    }

    /// Whether it is, and the program accepts that without a notification.
    pub(super) fn accepts_anything(&self) -> bool {
        let rang = self.lock();
        rang.has_packets && !rang.promised
    }

    /// A thread sleeps in the library for a notification, and serves the device meanwhile.
    pub(super) fn note_sleep(&self) {
        self.lock().slept = true;
    }

    /// Whether threads wait for notifications outside of the library, as far as is known.
    pub(super) fn is_waited_for_outside(&self) -> bool {
        self.lock().waited_outside
    }

    /// Whether they wait where no packet wakes them: nobody but the device's thread serves the sockets
    /// then.
    pub(super) fn needs_the_thread(&self) -> bool {
        let rang = self.lock();
        rang.waited_outside && !rang.has_packets
    }

    /// Removes the notifications of a queue that is destroyed.
    pub fn forget(&self, whom: u64) {
        let mut rang = self.lock();
        rang.whom.retain(|other| *other != whom);
        rang.last = rang.last.filter(|last| *last != whom);
        rang.extra &= !rang.whom.is_empty();
        self.descriptor.lower(&mut rang);
    }

    fn lock(&self) -> MutexGuard<'_, Rang> {
        self.descriptor.lock()
    }
}

impl Descriptor {
    /// Makes it readable after a notification was added, if none has taken that since then. A thread that
    /// looks for packets takes it or raises the descriptor itself.
    pub(super) fn raise(&self) {
        let mut rang = self.lock();
        if !rang.whom.is_empty() && rang.takers == 0 {
            self.raise_for(&mut rang);
        }
    }

    /// For each notification: a program that waits for edges gets one for each. Under the lock, so that
    /// it is never readable without a notification.
    fn raise_for(&self, rang: &mut Rang) {
        rang.raised = true;
        if let Some(signal) = &self.signal {
            signal.raise();
        }
    }

    /// Without notifications the descriptor is not readable.
    fn lower(&self, rang: &mut Rang) {
        if rang.whom.is_empty()
            && std::mem::take(&mut rang.raised)
            && let Some(signal) = &self.signal
        {
            signal.lower();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Rang> {
        self.rang.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use net::poll::{Interest, wait};

    use super::*;

    fn readable(descriptor: BorrowedFd<'_>) -> bool {
        let ready = wait(&[Interest::readable(descriptor)], Some(Duration::ZERO));
        !ready.expect("a descriptor").is_empty()
    }

    #[test]
    fn a_notification_wakes_a_sleeper_that_entered_before() {
        let bell = Bell::new().expect("a descriptor");
        let sleeper = bell.waiting().enter();
        assert!(!bell.has_rung() && !sleeper.was_woken());
        bell.ring(7);
        assert!(bell.has_rung() && sleeper.was_woken());
        assert_eq!(bell.answer(), Some(7));
        assert!(!bell.has_rung());
        assert!(sleeper.was_woken(), "taking it wakes nobody else up again");
    }

    #[test]
    fn a_notification_taken_without_sleep_shows_a_thread_at_the_descriptor() {
        let bell = Bell::new().expect("a descriptor");
        bell.ring(0);
        assert_eq!(bell.answer(), Some(0));
        assert!(
            !bell.is_waited_for_outside(),
            "no program has the descriptor"
        );
        bell.expose();
        bell.note_sleep();
        bell.ring(1);
        assert_eq!(bell.answer(), Some(1));
        assert!(!bell.is_waited_for_outside());
        bell.ring(2);
        assert_eq!(bell.answer(), Some(2));
        assert_eq!(bell.answer(), None);
        assert!(bell.is_waited_for_outside());
    }

    #[test]
    fn what_a_taker_leaves_raises_the_descriptor() {
        let bell = Bell::new().expect("a descriptor");
        bell.expose();
        let taken = bell.answer_after(|| {
            bell.ring(1);
            assert!(!readable(bell.expose()), "it is taken at once");
        });
        assert_eq!(taken, Some(1));
        assert!(!readable(bell.expose()));
        assert_eq!(
            bell.answer_after(|| [1, 2].into_iter().for_each(|it| bell.ring(it))),
            Some(1)
        );
        assert!(readable(bell.expose()));
        bell.ring(3);
        assert_eq!([bell.answer(), bell.answer()], [Some(2), Some(3)]);
        assert!(!readable(bell.expose()));
    }

    #[test]
    fn nobody_hears_of_who_is_gone() {
        let bell = Bell::new().expect("a descriptor");
        bell.expose();
        bell.ring(1);
        bell.ring(2);
        bell.forget(1);
        assert!(readable(bell.expose()));
        bell.forget(2);
        assert!(!readable(bell.expose()));
        assert_eq!(bell.answer(), None);
    }

    #[test]
    fn a_descriptor_that_was_given_away_tells_every_ring() {
        let bell = Bell::new().expect("a descriptor");
        bell.ring(1);
        assert!(readable(bell.expose()));
        bell.ring(2);
        assert_eq!(bell.answer(), Some(1));
        assert!(readable(bell.expose()));
        assert_eq!(bell.answer(), Some(2));
        assert!(!readable(bell.expose()));
        bell.ring(3);
        assert!(readable(bell.expose()));
    }
}
