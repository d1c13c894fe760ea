//! Polling for completions, and sleeping until something is ready.

use std::io;
use std::sync::Arc;
use std::time::Instant;

use engine::{Completion, CompletionQueue, Id};
use net::poll::Interest;

use super::Driver;
use crate::clock::now;
use crate::fabric::here;
use crate::lane::state::LaneState;
use crate::lane::{Awaited, Lane, Polled, Watch};
use crate::times::{RECHECK, STANDBY};
use crate::turn::Next;

/// A completion queue, for a thread that polls it.
#[derive(Debug, Clone)]
pub struct PolledQueue {
    pub(super) queue: Arc<CompletionQueue>,
    /// Whether a completion can be taken without the lane's lock: nothing observes that.
    direct: bool,
}

impl PolledQueue {
    /// Its number in the engine.
    pub fn id(&self) -> Id<CompletionQueue> {
        self.queue.id()
    }
}

impl Driver {
    /// The oldest completion. If there is none, receives packets first. If there is still none, gives up the CPU from
    /// time to time.
    #[inline]
    pub fn poll(&self, queue: &PolledQueue) -> Option<Completion> {
        match self.take_directly(queue) {
            None => self.poll_empty(queue),
            found => found,
        }
    }

    /// Polls a queue that was empty.
    fn poll_empty(&self, queue: &PolledQueue) -> Option<Completion> {
        let completion = self.poll_lane(queue);
        if completion.is_none() {
            here(|machine| machine.note_idle_poll());
            self.rest_after_empty_poll(queue.id());
        }
        completion
    }

    /// Gives up the CPU from time to time, because a peer on this machine may need it.
    fn rest_after_empty_poll(&self, queue: Id<CompletionQueue>) {
        let lane = self.lane();
        let since_open = |at| lane.turn.since_open(at);
        match lane.yielding.note_empty_poll(|| since_open(now())) {
            Next::Poll => {}
            Next::Yield => lane.yielding.yield_now(since_open),
            Next::Sleep => self.sleep_in_poll(queue),
        }
    }

    /// Sleeps until there is a completion, or for as long as the lane's thread leaves the sockets to the poller. The program may have
    /// more to do than to poll this queue.
    fn sleep_in_poll(&self, queue: Id<CompletionQueue>) {
        let until = Some(now() + STANDBY);
        let waiting = if self.is_inherited() {
            None
        } else {
            self.opened.lane.common.wait_set(queue)
        };
        // A queue that no thread can wait for has no wait set; then a packet wakes this thread.
        let waiting = waiting.unwrap_or_default();
        let awaited = Awaited::Completion(queue, &waiting);
        if self.try_sleep(&awaited, until).is_err() {
            let lane = self.lane();
            lane.yielding.yield_now(|at| lane.turn.since_open(at));
        }
    }

    /// As [`poll`](Self::poll), for a thread that sleeps next if there is no completion.
    pub fn poll_without_yield(&self, queue: &PolledQueue) -> Option<Completion> {
        match self.take_directly(queue) {
            None => self.poll_lane(queue),
            found => found,
        }
    }

    /// Takes the oldest completion in a step of the lane, which receives packets if there is none.
    fn poll_lane(&self, queue: &PolledQueue) -> Option<Completion> {
        let (lane, next, polled) = self.step_to_poll(queue, |lane, state| {
            state.note_polled(queue.id());
            match state.poll_completion(&queue.queue) {
                None => (lane, None, lane.poll_for(state, &queue.queue)),
                found => (lane, state.statistics_deadline(), Polled::Result(found)),
            }
        })?;
        lane.wake_thread_before(next);
        let completion = match polled {
            Polled::Result(completion) => completion,
            Polled::LookAgain(begin) => lane.look_before_wait(&queue.queue, begin),
        };
        completion
            .iter()
            .for_each(|it| lane.unanswered.note_taken(it));
        completion
    }

    /// Takes the oldest completion without the lane's lock, if that is possible.
    #[inline]
    pub(super) fn take_directly(&self, queue: &PolledQueue) -> Option<Completion> {
        if !queue.direct || self.is_inherited() || self.opened.lane.common.has_unpolled() {
            return None;
        }
        let completion = queue.queue.pop();
        if let Some(completion) = &completion {
            let lane = self.lane();
            lane.note_change_without_lock();
            lane.unanswered.note_taken(completion);
            #[cfg(feature = "tracing")]
            crate::trace::completion(completion);
        }
        completion
    }

    /// Runs a step for a poll, unless the queue is empty and another thread has the lock: that thread makes
    /// progress.
    ///
    /// If the queue is armed, a poll waits for the lock: the program sleeps next and must not miss a completion.
    fn step_to_poll<'s, R>(
        &'s self,
        queue: &PolledQueue,
        work: impl FnOnce(&'s Arc<Lane>, &mut LaneState) -> R,
    ) -> Option<R> {
        if self.is_inherited() {
            return None;
        }
        let mut work = Some(work);
        let mut run =
            |lane, state: &mut LaneState| (work.take().expect("it runs once"))(lane, state);
        match self.try_step(&mut run) {
            None if queue.queue.is_idle() => None,
            None => Some(self.step(run)),
            done => done,
        }
    }

    /// The handle for polling a completion queue; `None` if there is no such queue.
    pub fn polled_queue(&self, id: Id<CompletionQueue>) -> Option<PolledQueue> {
        self.call_without_transmit(|device| {
            Some(PolledQueue {
                queue: device.completion_queue(id)?,
                direct: !device.records_observations(),
            })
        })
    }

    /// Passes at most `limit` completions to `take` and returns how many. If there is none, receives packets
    /// first. `take` may use the device: no lock is held meanwhile.
    pub fn poll_many(
        &self,
        queue: &PolledQueue,
        limit: usize,
        mut take: impl FnMut(Completion),
    ) -> usize {
        if limit == 0 {
            return 0;
        }
        let count = self.take_many_directly(queue, limit, &mut take);
        if count > 0 {
            return count;
        }
        let Some(first) = self.poll_empty(queue) else {
            return 0;
        };
        take(first);
        1 + self.take_rest(queue, limit - 1, &mut take)
    }

    /// Passes the completions that are there to `take`, and receives no packets. Returns how many. `take` may use the device: no lock is
    /// held meanwhile.
    pub fn take_many(&self, queue: &PolledQueue, mut take: impl FnMut(Completion)) -> usize {
        if self.is_inherited() {
            return 0;
        }
        self.take_rest(queue, usize::MAX, &mut take)
    }

    fn take_many_directly(
        &self,
        queue: &PolledQueue,
        limit: usize,
        take: &mut impl FnMut(Completion),
    ) -> usize {
        let waiting = std::iter::from_fn(|| self.take_directly(queue));
        waiting.take(limit).map(take).count()
    }

    /// Takes what is there, for example together with a completion that was found.
    fn take_rest(
        &self,
        queue: &PolledQueue,
        limit: usize,
        take: &mut impl FnMut(Completion),
    ) -> usize {
        let count = self.take_many_directly(queue, limit, take);
        if count > 0 || limit == 0 || queue.queue.is_idle() {
            return count;
        }
        let mut rest = Vec::new();
        let lane = self.lane();
        lane.step(|state| state.poll_completions(&queue.queue, limit, |it| rest.push(it)));
        let count = rest.len();
        for completion in rest {
            lane.unanswered.note_taken(&completion);
            take(completion);
        }
        count
    }

    /// Sleeps until the awaited object is ready, the deadline passes or a signal arrives, and serves the
    /// device meanwhile. Returns whether a signal arrived. Wake-ups may be spurious: the caller checks again.
    ///
    /// The thread sleeps on the sockets, so that a packet wakes it directly, unless enough other threads do.
    ///
    /// # Panics
    /// In a forked child without a deadline, because nothing could end the sleep, and in a simulation.
    pub fn sleep(&self, awaited: &Awaited<'_>, until: Option<Instant>) -> bool {
        self.try_sleep(awaited, until).unwrap_or_else(|_| {
            std::thread::sleep(RECHECK);
            false
        })
    }

    /// As [`sleep`](Self::sleep). Fails if the program has closed the device's descriptors.
    pub fn try_sleep(&self, awaited: &Awaited<'_>, until: Option<Instant>) -> io::Result<bool> {
        self.sleep_beside(awaited, &[], until)
    }

    /// Lets the next completion of a queue end the wait of a thread that has entered its wait set. Returns false if there is one already:
    /// the thread takes it, and calls again.
    pub fn watch(&self, queue: &PolledQueue, watch: &mut Watch) -> bool {
        if self.is_inherited() {
            return true;
        }
        let (lane, is_empty) = self.step(|lane, state| {
            let is_empty = state.device_mut().watch_completions(queue.id());
            (lane, is_empty)
        });
        if is_empty {
            watch.add_queue(&queue.queue, lane);
        }
        is_empty
    }

    /// Whether the same lane serves both.
    pub fn shares_lane_with(&self, other: &Self) -> bool {
        Arc::ptr_eq(self.lane(), other.lane())
    }

    /// Sleeps as [`try_sleep`](Self::try_sleep), until one of the watched queues has a completion, one of their sets is woken, or one of
    /// the program's own descriptors is ready. Fails also if one of those is closed.
    pub fn sleep_watching(
        &self,
        watch: &Watch,
        others: &[Interest<'_>],
        until: Instant,
    ) -> io::Result<bool> {
        if !self.is_inherited() {
            // The threads of the other lanes serve their sockets, also after a poll.
            let now = now();
            watch
                .lanes_beside(self.lane())
                .for_each(|lane| lane.end_standby(now));
        }
        self.sleep_beside(&Awaited::Watched(watch), others, Some(until))
    }

    fn sleep_beside(
        &self,
        awaited: &Awaited<'_>,
        others: &[Interest<'_>],
        until: Option<Instant>,
    ) -> io::Result<bool> {
        here(|machine| machine.note_block());
        if self.is_inherited() {
            let until = until.expect(
                "the device was opened before a fork and stays with the parent: open it again",
            );
            std::thread::sleep(until.saturating_duration_since(now()));
            return Ok(false);
        }
        // If the queue moves to another lane meanwhile, the thread of that lane serves its sockets.
        let lane = match awaited {
            Awaited::Notification(notifier) if notifier.group().is_some() => self.lane_of(notifier),
            Awaited::Notification(_) | Awaited::Completion(..) | Awaited::Watched(_) => self.lane(),
        };
        let serves_sockets = lane.turn.enter_sleepers();
        let interrupted = lane.sleep(awaited, others, until, serves_sockets);
        lane.turn.note_poll(now());
        if serves_sockets && lane.turn.leave_sleepers() {
            lane.waker.wake();
        }
        interrupted
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;
    use std::time::Duration;

    use engine::Notify;
    use net::poll::Waker;

    use super::*;
    use crate::check::CheckOptions;
    use crate::driver::connected_end::End;
    use crate::options::OpenOptions;
    use crate::turn::{Duty, MAX_SOCKET_SLEEPERS};
    use crate::waiting::deferred_wakeups;
    use crate::waiting::notifier::Notifier;
    use crate::waiting::wait_set::WaitSet;

    #[test]
    fn a_poller_beside_busy_threads_sleeps_in_one_of_its_polls() {
        const POLLS: usize = 32;
        let driver = Driver::open("127.58.93.3", &OpenOptions::default());
        let driver = driver.expect("a loopback address");
        let queue = driver.call(|device| device.create_completion_queue(1));
        let queue = driver.polled_queue(queue.expect("room"));
        let queue = queue.expect("it exists");
        let hour = Duration::from_secs(3600);
        driver.lane().yielding.note_yield(hour, hour);
        let start = now();
        assert!((0..POLLS).all(|_| driver.poll(&queue).is_none()));
        assert!(now() - start >= STANDBY);
    }

    /// A packet wakes every thread that serves the sockets.
    #[test]
    fn threads_beyond_the_first_few_sleep_without_serving_the_sockets() {
        let driver = Driver::open("127.58.93.5", &OpenOptions::default());
        let driver = driver.expect("a loopback address");
        let sleepers = || driver.lane().turn.sleepers();
        let timeout = now() + Duration::from_secs(20);
        let notifiers = [(); 3 * MAX_SOCKET_SLEEPERS].map(|()| Notifier::new().expect("room"));
        std::thread::scope(|scope| {
            let threads: Vec<_> = (notifiers.iter())
                .map(|notifier| {
                    scope.spawn(|| {
                        while !notifier.has_notification() {
                            assert!(now() < timeout, "no notification wakes it");
                            driver.sleep(&Awaited::Notification(notifier), Some(timeout));
                        }
                    })
                })
                .collect();
            while !notifiers.iter().all(|it| it.waiting().has_threads()) {
                assert!(now() < timeout, "not all threads sleep");
                std::thread::yield_now();
            }
            assert_eq!(sleepers(), MAX_SOCKET_SLEEPERS);
            // Those that do not serve the sockets are woken, too.
            for notifier in &notifiers {
                notifier.notify(0);
            }
            for thread in threads {
                thread.join().expect("it is woken in time");
            }
        });
        assert_eq!(sleepers(), 0);
    }

    fn poll_until_something_is_taken(end: &End) {
        let queue = end.driver.polled_queue(end.completions);
        let queue = queue.expect("it exists");
        let timeout = now() + Duration::from_secs(20);
        let take = |_| assert!(!deferred_wakeups::holds_lock(), "it may use the device");
        while end.driver.poll_many(&queue, 8, take) == 0 {
            assert!(now() < timeout, "nothing completes");
        }
    }

    #[test]
    fn a_completion_that_a_poll_receives_is_passed_on_when_the_lock_is_free() {
        let (here, there) = End::pair_without_rings(["127.58.93.7", "127.58.93.8"]);
        here.send_to(&there);
        poll_until_something_is_taken(&there);
    }

    #[test]
    fn observed_completions_are_passed_on_when_the_lock_is_free() {
        let options = OpenOptions {
            check: Some(CheckOptions::default()),
            ..OpenOptions::default()
        };
        let driver = Driver::open("127.58.93.9", &options).expect("a loopback address");
        let end = End::of(&driver);
        end.connect(&end);
        end.send_to(&end);
        end.send_to(&end);
        poll_until_something_is_taken(&end);
    }

    /// No later step would notify: the program waits.
    #[test]
    fn a_queue_that_has_a_completion_notifies_when_it_is_armed() {
        let driver = Driver::without_thread("127.58.94.14");
        let [here, there] = [End::of(&driver), End::of(&driver)];
        here.connect(&there);
        there.connect(&here);
        let channel = there.channel();
        here.send_to(&there);
        assert!(!channel.has_notification(), "nobody asked for it");
        driver.arm(there.completions, Notify::Any);
        assert_eq!(channel.take(), Some(7));
    }

    const FAR: Duration = Duration::from_secs(3600);

    /// A thread that watches the queue of an end.
    fn watching(end: &End) -> (PolledQueue, Watch) {
        let queue = end.driver.polled_queue(end.completions);
        let queue = queue.expect("it exists");
        let waiting = Arc::default();
        end.driver.set_wait_set(end.completions, &waiting);
        let mut watch = Watch::new();
        watch.enter(&waiting);
        assert!(end.driver.watch(&queue, &mut watch), "it is empty");
        (queue, watch)
    }

    #[test]
    fn a_packet_ends_the_wait_of_a_thread_that_watches_and_its_response_is_deferred() {
        let (here, there) = End::pair_without_rings(["127.58.96.1", "127.58.96.2"]);
        let (queue, watch) = watching(&there);
        here.send_to(&there);
        let slept = there.driver.sleep_watching(&watch, &[], now() + FAR);
        assert!(!slept.expect("the device has its sockets"));
        assert_eq!(there.driver.take_many(&queue, |_| ()), 1);
        let unsent = there.driver.lane().lock().has_unsent();
        assert!(unsent, "the acknowledgement leaves with the reply");
    }

    /// What it has waited for may be there afterwards.
    #[test]
    fn a_completion_that_another_thread_takes_before_the_sleep_ends_the_wait() {
        let (here, there) = End::pair_without_rings(["127.58.96.3", "127.58.96.4"]);
        let (_queue, watch) = watching(&there);
        here.send_to(&there);
        poll_until_something_is_taken(&there);
        assert!(watch.is_ready());
        let slept = there.driver.sleep_watching(&watch, &[], now() + FAR);
        assert!(!slept.expect("the device has its sockets"));
    }

    #[test]
    fn a_change_that_another_thread_makes_before_the_sleep_ends_the_wait() {
        let end = End::open("127.58.96.5");
        let mut watch = Watch::new();
        let sets = [(); 2].map(|()| Arc::default());
        sets.iter().for_each(|set| watch.enter(set));
        WaitSet::wake_all(&sets[1]);
        assert!(watch.is_ready());
        let slept = end.driver.sleep_watching(&watch, &[], now() + FAR);
        assert!(!slept.expect("the device has its sockets"));
        assert!(!watch.sleep(&[], None).expect("a descriptor"));
    }

    #[test]
    fn a_queue_with_a_completion_is_watched_when_it_is_taken() {
        let (here, there) = End::pair_without_rings(["127.58.96.6", "127.58.96.7"]);
        let queue = there.driver.polled_queue(there.completions);
        let queue = queue.expect("it exists");
        here.send_to(&there);
        let timeout = now() + Duration::from_secs(20);
        while queue.queue.is_empty() {
            assert!(now() < timeout, "nothing completes");
            let _ = there.driver.poll_event();
        }
        let mut watch = Watch::new();
        assert!(!there.driver.watch(&queue, &mut watch));
        assert!(!watch.is_ready(), "it does not watch the queue");
        assert_eq!(there.driver.take_many(&queue, |_| ()), 1);
        assert!(there.driver.watch(&queue, &mut watch));
    }

    #[test]
    fn a_descriptor_of_the_program_ends_the_wait_and_other_lanes_serve_themselves() {
        let (here, there) = (
            End::without_thread("127.58.96.8"),
            End::without_thread("127.58.96.9"),
        );
        let (_queue, watch) = watching(&there);
        there.takes_wake_up();
        let _ = there
            .driver
            .lane()
            .turn
            .fall_asleep(Duty::Standby(now()), now());
        let ready = Waker::new().expect("a descriptor");
        ready.wake();
        // One that is not, and more than a wait can tell apart.
        let quiet = Waker::new().expect("a descriptor");
        let mut others = vec![Interest::readable(quiet.as_fd()); 100];
        others.push(Interest::readable(ready.as_fd()));
        let slept = here.driver.sleep_watching(&watch, &others, now() + FAR);
        assert!(!slept.expect("the device has its sockets"));
        assert!(there.takes_wake_up(), "nobody else receives its packets");
        assert!(!watch.sleep(&others, None).expect("a descriptor"));
    }

    /// A disconnection waits until all queues with a notification are polled.
    #[test]
    fn every_kind_of_poll_counts_as_one() {
        let end = End::without_thread("127.58.94.11");
        let queue = end.driver.polled_queue(end.completions);
        let queue = queue.expect("it exists");
        let polls: [fn(&Driver, &PolledQueue) -> usize; 2] = [
            |driver, queue| driver.poll_many(queue, 4, |_| ()),
            |driver, queue| usize::from(driver.poll_without_yield(queue).is_some()),
        ];
        let common = &end.driver.lane().common;
        for poll in polls {
            common.note_notified(end.completions);
            assert_eq!(poll(&end.driver, &queue), 0);
            assert!(!common.has_unpolled());
        }
    }
}
