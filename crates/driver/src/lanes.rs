//! Lanes: the engines of one open device.
//!
//! A lane is an engine with its own lock, sockets, queue pair numbers and thread, so threads that use different lanes do
//! not wait for each other. The lanes of a device share its objects ([`engine::SharedObjects`]) and what is in [`Common`].
//! The first lane also has the connection manager, and watches the interfaces.
//!
//! Completion queues and the queue pairs that use them form groups, and each group has a part of the device's queue pair
//! numbers. The first lane serves all groups, until threads use several of them alternately: then these groups move
//! to lanes of their own ([`Uses`]). It does not matter which thread created what, and a program with one thread has no other
//! lane.

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use engine::{AsyncEvent, CompletionQueue, Device, Id, SharedObjects};
use net::sharing::NumberBlock;
use parking_lot::{Mutex, RwLock};
use wire::Qpn;

use crate::fabric::numbers_of;
use crate::waiting::deferred_wakeups;
use crate::waiting::notifier::Notifier;
use crate::waiting::wait_set::WaitSet;

/// After how many uses a group of queues gets a lane of its own, if another thread had used another group before each. A lane
/// costs some milliseconds and a thread. A thread that runs alone never alternates.
const OWN_LANE_AFTER: u32 = 64;

/// What the lanes of a device share, apart from the engine's objects.
pub(crate) struct Common {
    /// Which of the open devices of this process it is.
    number: u32,
    /// Asynchronous events, oldest first.
    events: Mutex<VecDeque<AsyncEvent>>,
    event_notifier: Arc<Notifier>,
    /// The waiters of each completion queue.
    waiters: RwLock<HashMap<Id<CompletionQueue>, Waiters>>,
    /// Completion queues with a notification since their last poll.
    unpolled: Mutex<HashSet<Id<CompletionQueue>>>,
    has_unpolled: AtomicBool,
    /// Whether there is more than one lane.
    has_lanes: AtomicBool,
}

/// What another lane takes from the first.
pub(crate) struct FirstLane {
    /// Which lane the other one is.
    pub(crate) other: usize,
    /// Its part of the numbers.
    pub(crate) part: NumberBlock,
    pub(crate) common: Arc<Common>,
    pub(crate) objects: Arc<SharedObjects>,
}

/// The threads, tasks and programs that wait for a completion queue.
#[derive(Default, Clone)]
struct Waiters {
    /// The notifier of its channel, and its token there.
    channel: Option<(Arc<Notifier>, u64)>,
    /// The threads and tasks that wait for a completion.
    set: Option<Arc<WaitSet>>,
}

/// What a lane tells others, after it has released its lock.
#[derive(Debug, Clone, Copy)]
pub(crate) enum LaneMessage {
    /// To the lane of the queue pair: the connection has ended.
    MoveToError(Qpn),
    /// To all lanes: a connection has ended, and its last message may have arrived.
    Disconnecting,
    /// To the connection manager: the first packet of the peer has arrived.
    Established(Qpn),
    /// To the connection manager: all completions that a disconnection waits for were polled.
    Polled,
}

impl Common {
    pub(crate) fn new(event_notifier: Notifier) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        Self {
            number: NEXT.fetch_add(1, Ordering::Relaxed),
            events: Mutex::default(),
            event_notifier: Arc::new(event_notifier),
            waiters: RwLock::default(),
            unpolled: Mutex::default(),
            has_unpolled: AtomicBool::new(false),
            has_lanes: AtomicBool::new(false),
        }
    }

    /// Which of the open devices of this process it is.
    pub(crate) fn number(&self) -> u32 {
        self.number
    }

    /// Notes that there is more than one lane.
    pub(crate) fn note_lanes(&self) {
        self.has_lanes.store(true, Ordering::Release);
    }

    /// Whether there is more than one lane.
    pub(crate) fn has_lanes(&self) -> bool {
        self.has_lanes.load(Ordering::Acquire)
    }

    pub(crate) fn event_notifier(&self) -> &Arc<Notifier> {
        &self.event_notifier
    }

    pub(crate) fn push_event(&self, event: AsyncEvent) {
        deferred_wakeups::deliver_after(|| {
            // Under the lock: a notification without its event would never be taken.
            let mut events = self.events.lock();
            events.push_back(event);
            self.event_notifier.notify(0);
        });
    }

    /// Takes an event with its notification.
    pub(crate) fn pop_event(&self) -> Option<AsyncEvent> {
        let mut events = self.events.lock();
        let event = events.pop_front()?;
        self.event_notifier.take();
        Some(event)
    }

    /// Removes the events of a destroyed object.
    pub(crate) fn forget_events(&self, gone: impl Fn(&AsyncEvent) -> bool) {
        let mut events = self.events.lock();
        let before = events.len();
        events.retain(|event| !gone(event));
        for _ in events.len()..before {
            self.event_notifier.take();
        }
    }

    pub(crate) fn set_channel(
        &self,
        queue: Id<CompletionQueue>,
        notifier: Arc<Notifier>,
        token: u64,
    ) {
        let mut waiters = self.waiters.write();
        waiters.entry(queue).or_default().channel = Some((notifier, token));
    }

    /// The notifier of a completion queue's channel, and its token there.
    pub(crate) fn channel(&self, queue: Id<CompletionQueue>) -> Option<(Arc<Notifier>, u64)> {
        self.waiters.read().get(&queue)?.channel.clone()
    }

    /// The completion queues of a channel.
    pub(crate) fn queues_of(&self, notifier: &Arc<Notifier>) -> Vec<Id<CompletionQueue>> {
        let waiters = self.waiters.read();
        let of_channel = waiters.iter().filter(|(_, it)| {
            let channel = it.channel.as_ref();
            channel.is_some_and(|(other, _)| Arc::ptr_eq(other, notifier))
        });
        of_channel.map(|(queue, _)| *queue).collect()
    }

    pub(crate) fn set_wait_set(&self, queue: Id<CompletionQueue>, waiting: Arc<WaitSet>) {
        let mut waiters = self.waiters.write();
        waiters.entry(queue).or_default().set = Some(waiting);
    }

    /// The threads and tasks that wait for a completion queue.
    pub(crate) fn wait_set(&self, queue: Id<CompletionQueue>) -> Option<Arc<WaitSet>> {
        self.waiters.read().get(&queue)?.set.clone()
    }

    /// Removes the waiters of a completion queue that is destroyed. Returns the notifier of its channel, and what the
    /// caller drops when it holds no lock: wakers of tasks run code of the executor.
    pub(crate) fn remove_waiters(
        &self,
        queue: Id<CompletionQueue>,
    ) -> (Option<Arc<Notifier>>, impl Sized + use<>) {
        let removed = self.waiters.write().remove(&queue).unwrap_or_default();
        let notifier = removed.channel.map(|(notifier, _)| notifier);
        (notifier, removed.set)
    }

    /// Notes that a completion queue has a notification.
    pub(crate) fn note_notified(&self, queue: Id<CompletionQueue>) {
        let mut unpolled = self.unpolled.lock();
        unpolled.insert(queue);
        // Under the lock: another lane may poll the queue at once and empty the set.
        self.has_unpolled.store(true, Ordering::Release);
    }

    /// Whether a completion queue has a notification since its last poll.
    pub(crate) fn has_unpolled(&self) -> bool {
        self.has_unpolled.load(Ordering::Acquire)
    }

    /// Notes that a program polls a completion queue. Returns whether no other queue has a notification any more.
    pub(crate) fn note_polled(&self, queue: Id<CompletionQueue>) -> bool {
        if !self.has_unpolled() {
            return false;
        }
        let mut unpolled = self.unpolled.lock();
        let was_last = unpolled.remove(&queue) && unpolled.is_empty();
        if was_last {
            self.has_unpolled.store(false, Ordering::Release);
        }
        was_last
    }
}

/// Who has used a lane that serves several groups of queues.
#[derive(Default)]
pub(crate) struct Uses {
    /// The last thread, and the group that it used.
    last: Option<(u64, usize)>,
    /// How often each group was used after another thread had used another group.
    alternations: Vec<u32>,
}

impl Uses {
    /// Notes that this thread uses a group. Returns whether the group should get a lane of its own.
    #[inline]
    pub(crate) fn note(&mut self, group: usize) -> bool {
        let thread = thread_number();
        self.last != Some((thread, group)) && self.note_other(thread, group)
    }

    fn note_other(&mut self, thread: u64, group: usize) -> bool {
        let alternates = self.last.is_some_and(|(other_thread, other_group)| {
            other_thread != thread && other_group != group
        });
        self.last = Some((thread, group));
        if !alternates {
            return false;
        }
        if self.alternations.len() <= group {
            self.alternations.resize(group + 1, 0);
        }
        self.alternations[group] += 1;
        self.alternations[group] == OWN_LANE_AFTER
    }
}

/// The parts of a device's numbers that belong to its groups of queues.
#[derive(Default)]
pub(crate) struct Parts {
    parts: Vec<NumberBlock>,
    /// How many packets the queue pairs of each part had received.
    received: Vec<u64>,
}

impl Parts {
    pub(crate) fn new(parts: Vec<NumberBlock>) -> Self {
        let received = vec![0; parts.len()];
        Self { parts, received }
    }

    /// The parts that got packets since the last call and can move to another lane, busiest first, if several parts got
    /// packets. The first one stays.
    pub(crate) fn busiest(&mut self, device: &Device) -> Vec<usize> {
        let mut received = vec![0; self.parts.len()];
        for queue_pair in device.queue_pairs() {
            let number = queue_pair.number();
            let part = self.parts.iter().position(|part| part.contains(number));
            if let Some(part) = part {
                received[part] += queue_pair.counters().packets_received;
            }
        }
        let before = std::mem::replace(&mut self.received, received);
        let added = self.received.iter().zip(before);
        let added: Vec<u64> = added
            .map(|(now, before)| now.saturating_sub(before))
            .collect();
        if added.iter().filter(|count| **count > 0).count() < 2 {
            return Vec::new();
        }
        let mut movable: Vec<_> = (1..self.parts.len())
            .filter(|part| added[*part] > 0 && device.can_give(numbers_of(self.parts[*part])))
            .collect();
        movable.sort_by_key(|part| Reverse(added[*part]));
        movable
    }
}

/// A number that no other thread of this process has had.
fn thread_number() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    thread_local! {
        static NUMBER: u64 = NEXT.fetch_add(1, Ordering::Relaxed);
    }
    // A thread that ends has lost its number.
    NUMBER.try_with(|number| *number).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Driver;
    use crate::driver::connected_end::End;

    /// A leftover notification would keep the descriptor readable for ever.
    #[test]
    fn an_event_and_its_notification_come_and_go_together() {
        let end = End::without_thread("127.58.91.52");
        let common = &end.driver.lane().common;
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                (0..300_000).for_each(|_| common.push_event(AsyncEvent::PortActive));
                is_over.store(true, Ordering::Release);
            });
            while !is_over.load(Ordering::Acquire) {
                common.pop_event();
            }
        });
        while common.pop_event().is_some() {}
        assert_eq!(common.event_notifier().take(), None, "without an event");
    }

    #[test]
    fn a_group_gets_a_lane_when_threads_alternate_between_groups() {
        let mut uses = Uses::default();
        let mut elsewhere = |group| {
            std::thread::scope(|scope| {
                let other = scope.spawn(|| uses.note(group));
                other.join().expect("no panic")
            })
        };
        assert!(!elsewhere(2), "nobody was before");
        for _ in 1..OWN_LANE_AFTER {
            assert!(!elsewhere(1) && !elsewhere(2));
        }
        assert!(!elsewhere(2), "the same group again");
        assert!(elsewhere(1) && elsewhere(2));
        assert!(!elsewhere(1), "once is enough");
    }

    #[test]
    fn a_thread_that_is_alone_stays_in_one_lane() {
        let mut uses = Uses::default();
        assert!((0..1000).all(|turn| !uses.note(turn % 3)));
    }

    /// A disconnection waits for the poll.
    #[test]
    fn a_notified_queue_is_unpolled_until_the_program_polls_or_destroys_it() {
        let end = End::without_thread("127.58.93.26");
        let common = &end.driver.lane().common;
        common.note_notified(end.completions);
        assert!(common.has_unpolled());
        assert!(common.note_polled(end.completions));
        assert!(!common.has_unpolled());
        common.note_notified(end.completions);
        let mut state = end.driver.lane().lock();
        let _dropped_later = state.remove_notifier(end.completions);
        assert!(!common.has_unpolled());
        drop(state);
    }

    #[test]
    fn a_channel_has_its_own_queues() {
        let driver = Driver::without_thread("127.58.94.9");
        let ends = [(); 3].map(|()| End::of(&driver));
        let [first, second] = [&ends[0], &ends[1]].map(End::channel);
        driver.set_notifier(ends[2].completions, &second, 7);
        let common = &driver.lane().common;
        assert_eq!(common.queues_of(&first), [ends[0].completions]);
        let queues = common.queues_of(&second);
        assert_eq!(queues.len(), 2);
        assert!(!queues.contains(&ends[0].completions));
    }
}
