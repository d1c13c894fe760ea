//! Making progress: for a thread that polls, a thread that sleeps, and the lane's thread.

use std::time::Instant;

use engine::{Completion, CompletionQueue};

use super::LaneState;
use crate::capture_and_faults::CaptureAndFaults;
use crate::clock::earliest;
use crate::lane::Awaited;
use crate::sockets::PollScope;
use crate::waiting::deferred_wakeups::{self, Wake};

/// How often one call receives packets. More would keep other threads waiting for the lock.
const MAX_RECEIVES: usize = 4;

/// How often one post receives packets that it sent to its own device.
const MAX_OWN_RECEIVES: usize = 16;

/// How many looks before a wait may bring a completion after a queue was armed.
const MAX_LOOKS_PER_ARMING: u32 = 8;

/// A receive that returns this many packets has probably left some.
const MANY: usize = 64;

impl LaneState {
    /// Receives packets, runs timers and transmits the results. Returns how many packets arrived.
    pub(crate) fn progress(&mut self, now: Instant) -> usize {
        let mut all = 0;
        for _ in 0..MAX_RECEIVES {
            self.notified_outside = false;
            let arrived = self.receive(now, PollScope::AllSockets);
            self.serve_timers(now);
            self.dispatch_events();
            all += arrived;
            if self.notified_outside && !self.unsent && !self.has_cm_output() {
                // The program's next call sends these responses. Older ones are sent now.
                self.defer_responses();
                break;
            }
            self.transmit(now);
            if arrived < MANY {
                break;
            }
        }
        all
    }

    /// Receives packets that the device sent to itself, responds, and receives the responses. So a program
    /// that posts to its own device and then polls finds its completions. Returns false if the kernel has
    /// not delivered all of them yet.
    pub(crate) fn deliver_to_self(&mut self, now: Instant) -> bool {
        for _ in 0..MAX_OWN_RECEIVES {
            if !std::mem::take(&mut self.sent_to_self) {
                return true;
            }
            let arrived = self.receive(now, PollScope::AllSockets);
            if arrived == 0 {
                self.sent_to_self = true;
                return false;
            }
            // A full receive may have left some.
            self.sent_to_self = arrived >= MANY;
            self.transmit(now);
        }
        self.sent_to_self = false;
        true
    }

    /// Receives what the sockets have. The number of receives is limited, because others may send, too.
    pub(crate) fn empty_sockets(&mut self, now: Instant) {
        for _ in 0..MAX_OWN_RECEIVES {
            if self.receive(now, PollScope::AllSockets) == 0 {
                break;
            }
        }
    }

    /// Whether the program has closed a socket of the device. Waiting for packets would fail, or would return at once.
    pub(crate) fn has_lost_socket(&self) -> bool {
        self.sockets.has_lost_socket()
    }

    pub(crate) fn has_sent_to_self(&self) -> bool {
        self.sent_to_self
    }

    /// Stops waiting for packets that the device sent to itself.
    pub(crate) fn stop_delivery_to_self(&mut self) {
        self.sent_to_self = false;
    }

    /// How many packets have arrived since the device was opened.
    pub(crate) fn arrivals(&self) -> u64 {
        self.arrivals
    }

    /// Makes progress until there is a completion.
    ///
    /// If there is one, responses are deferred: the application's next post sends them together with its own
    /// packets, or the second poll that finds nothing sends them.
    pub(crate) fn progress_for(
        &mut self,
        now: Instant,
        queue: &CompletionQueue,
    ) -> Option<Completion> {
        let arrived = if self.may_leave_packets(queue) {
            0
        } else {
            self.receive(now, PollScope::LastActive)
        };
        self.serve_timers(now);
        if let Some(completion) = self.poll_completion(queue) {
            self.defer_responses();
            return Some(completion);
        }
        // A program that polls until nothing is left posts its reply after this poll.
        if arrived == 0 && std::mem::take(&mut self.may_wait_once) && self.unsent {
            return None;
        }
        // So that the next post need not.
        self.update_shortcut(&now.into());
        self.transmit(now);
        self.poll_completion(queue)
    }

    /// Whether a poll need not look for packets. A program that armed a queue and finds it empty waits at a descriptor
    /// next, which is readable if a packet has arrived. This saves a system call for each message. Only the first poll
    /// leaves packets there, because a program may also arm its queue and then only poll.
    fn may_leave_packets(&mut self, queue: &CompletionQueue) -> bool {
        std::mem::take(&mut self.armed)
            && !self.dense
            && self.packet_wakeups.are_used()
            && queue.is_armed()
            && !self.sockets.has_shortcuts()
    }

    /// Whether a program whose queue is empty waits at a descriptor next, and packets wake it there.
    pub(crate) fn waits_outside_next(&self, queue: &CompletionQueue) -> bool {
        self.packet_wakeups.are_used() && queue.is_armed() && self.sockets.simulated().is_none()
    }

    /// Whether to look for packets before a program waits at a descriptor. A program that has taken a message and posted
    /// nothing since probably replies next, and a look would delay the reply. A program that arms a queue for solicited
    /// completions finds others by each look, and must wait at some time, too.
    pub(crate) fn may_look_before_wait(&self) -> bool {
        !self.unsent && self.successful_looks < MAX_LOOKS_PER_ARMING
    }

    /// Receives packets. Returns a completion if they bring one.
    pub(crate) fn poll_once_more(
        &mut self,
        now: Instant,
        queue: &CompletionQueue,
    ) -> Option<Completion> {
        if self.receive(now, PollScope::LastActive) == 0 {
            return None;
        }
        let completion = self.progress_for(now, queue);
        self.successful_looks += u32::from(completion.is_some());
        completion
    }

    /// For a program that [waits outside next](Self::waits_outside_next). From now on packets through shared memory raise its
    /// descriptor. Returns a completion if one arrived before that.
    pub(crate) fn poll_before_sleep(
        &mut self,
        now: Instant,
        queue: &CompletionQueue,
    ) -> Option<Completion> {
        if !self.sockets.has_shortcuts() {
            return None;
        }
        for _ in 0..MAX_RECEIVES {
            if !self.sockets.prepare_sleep() {
                break;
            }
            // This may take the wake-up, so the sleep is prepared again.
            let completion = self.progress_for(now, queue);
            if completion.is_some() {
                return completion;
            }
        }
        None
    }

    /// Receives packets for a program that was woken at the descriptor of a channel, perhaps by a packet.
    pub(crate) fn receive_outside(&mut self, now: Instant) {
        let reads = self.sockets.descriptor_reads();
        self.receive(now, PollScope::LastActive);
        if self.sockets.descriptor_reads() == reads {
            // Another socket woke the program, or a wake-up for packets that were received before.
            self.sockets.poll_mailboxes();
            self.receive(now, PollScope::AllSockets);
        }
        self.serve_timers(now);
        self.dispatch_events();
    }

    /// Whether a message is arriving whose end may complete what a thread waits for.
    pub(crate) fn is_in_message(&mut self, awaited: &Awaited<'_>) -> bool {
        self.in_message && !awaited.is_ready(self)
    }

    /// Stops waiting for the rest of a message.
    pub(crate) fn end_message(&mut self) {
        self.in_message = false;
    }

    /// Receives more of a message that is arriving. Returns how many packets arrived.
    pub(crate) fn receive_more(&mut self, now: Instant) -> usize {
        let arrived = self.receive(now, PollScope::LastActive);
        if arrived > 0 {
            self.dispatch_events();
        }
        arrived
    }

    /// Ends the progress for a program that waits on a descriptor again if there is no notification.
    pub(crate) fn finish_outside(&mut self, now: Instant, awaited: &Awaited<'_>) {
        self.finish_until(now, awaited);
        for _ in 0..MAX_RECEIVES {
            if awaited.is_ready(self) || !self.sockets.prepare_sleep() {
                break;
            }
            self.receive_until(now);
            self.finish_until(now, awaited);
        }
    }

    /// Whether other processes send to this one through shared memory. Polling the rings costs little.
    pub(crate) fn has_shortcuts(&self) -> bool {
        self.sockets.has_shortcuts()
    }

    /// Handles packets that have arrived in the rings. Returns how many.
    pub(crate) fn progress_by_rings(&mut self, now: Instant) -> usize {
        let arrived = self.receive(now, PollScope::LastActive);
        if arrived > 0 {
            self.serve_timers(now);
            self.transmit(now);
        }
        arrived
    }

    /// Makes progress for a thread that is about to sleep. Returns whether the awaited object is ready.
    pub(crate) fn poll_shortcuts(&mut self, now: Instant, awaited: &Awaited<'_>) -> bool {
        if self.receive(now, PollScope::LastActive) > 0 {
            self.finish_until(now, awaited);
        }
        awaited.is_ready(self)
    }

    /// Receives packets for a thread that sleeps until something is ready.
    pub(crate) fn receive_until(&mut self, now: Instant) {
        // Usually one packet has arrived, at the same socket as the last one.
        if self.receive(now, PollScope::LastActive) == 0 {
            self.receive(now, PollScope::AllSockets);
        }
        self.serve_timers(now);
        self.dispatch_events();
    }

    /// Ends the progress for a thread that sleeps until something is ready.
    ///
    /// When it is, responses are deferred to the thread's next call, as in
    /// [`progress_for`](Self::progress_for).
    pub(crate) fn finish_until(&mut self, now: Instant, awaited: &Awaited<'_>) {
        self.dispatch_events();
        if awaited.is_ready(self) && !self.has_cm_output() {
            self.defer_responses();
        } else {
            self.transmit(now);
        }
    }

    /// Defers responses to the program's next call.
    fn defer_responses(&mut self) {
        self.unsent = true;
        self.may_wait_once = true;
    }

    fn serve_timers(&mut self, now: Instant) {
        self.publish_statistics(&now.into());
        self.shortcut.expire(now);
        self.cm_events.release_due(now);
        self.host.handle_timeout(now);
        self.check_unanswered(now);
        self.cm_events.check_neighbours(now, self.host.manager());
        let due = self.task_timers.take_due(now);
        if !due.is_empty() {
            deferred_wakeups::wake(Wake::Tasks(due));
        }
    }

    /// Sends deferred responses before a thread sleeps. Returns until when it may sleep.
    pub(crate) fn before_sleep(&mut self, now: Instant) -> Option<Instant> {
        self.send_waiting(now);
        self.sleep_deadline(now)
    }

    /// Notes that a thread has prepared its sleep after all polls for packets.
    pub(crate) fn note_sleep_prepared(&mut self) {
        self.polled_sockets = false;
    }

    /// Whether packets were polled for, no sleep was prepared since, and a thread that sleeps on the poll sources would
    /// sleep on when the next packet arrives through shared memory. True once.
    pub(crate) fn took_wakeup(&mut self) -> bool {
        std::mem::take(&mut self.polled_sockets) && !self.sockets.may_sleep()
    }

    /// Whether a thread may sleep on the poll sources: the next packet wakes it.
    pub(crate) fn may_sleep(&mut self) -> bool {
        self.sockets.may_sleep()
    }

    /// Until when a thread may sleep on the poll sources.
    pub(crate) fn sleep_deadline(&mut self, now: Instant) -> Option<Instant> {
        if self.sockets.prepare_sleep() {
            Some(now)
        } else {
            self.next_deadline()
        }
    }

    /// Sends deferred responses.
    pub(crate) fn send_waiting(&mut self, now: Instant) {
        if self.unsent {
            self.transmit(now);
        }
    }

    /// Whether responses are deferred.
    pub(crate) fn has_unsent(&self) -> bool {
        self.unsent
    }

    /// The next deadline of a timer.
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        let held_back = self
            .capture_and_faults
            .as_ref()
            .and_then(CaptureAndFaults::next_due);
        let due = earliest(self.host.poll_timeout(), held_back);
        let due = earliest(due, self.deliver_more_at);
        let due = earliest(due, self.next_release());
        let due = earliest(due, self.task_timers.next());
        let due = earliest(due, self.sockets.retry_at());
        let due = earliest(due, self.statistics_deadline());
        let due = earliest(due, self.shortcut.deadline());
        let due = earliest(due, self.unanswered.deadline());
        let due = earliest(due, self.cm_events.neighbours_deadline());
        earliest(due, self.sockets.maintenance_at())
    }

    /// When a disconnection that waits for a poll is reported at the latest.
    pub(crate) fn next_release(&self) -> Option<Instant> {
        self.cm_events.next_deadline()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use engine::{Now, ReceiveRequest, SendRequest, Work};
    use statistics::PacketPath;

    use super::*;
    use crate::clock::now;
    use crate::driver::connected_end::End;
    use crate::{Driver, OpenOptions, Shortcut};

    #[test]
    fn responses_are_deferred_until_the_second_empty_poll() {
        let (here, there) = (End::open("127.58.91.1"), End::without_thread("127.58.91.2"));
        here.connect(&there);
        there.connect(&here);
        here.send_to(&there);

        let mut state = there.driver.lane().lock();
        let queue = state.device_mut().completion_queue(there.completions);
        let queue = queue.expect("it exists");
        while state.progress_for(now(), &queue).is_none() {}
        assert!(state.has_unsent(), "the program may reply at once");
        assert!(state.progress_for(now(), &queue).is_none());
        assert!(state.has_unsent(), "or after one empty poll");
        assert!(state.progress_for(now(), &queue).is_none());
        assert!(!state.has_unsent(), "the second empty poll sends them");
    }

    #[test]
    fn packets_that_are_received_from_the_rings_are_acknowledged() {
        let (here, there) = (End::open("127.58.91.3"), End::without_thread("127.58.91.4"));
        here.connect(&there);
        there.connect(&here);
        here.send_to(&there);
        while there.driver.lane().lock().progress_by_rings(now()) == 0 {}
        let timeout = now() + Duration::from_secs(20);
        let queue = here.driver.polled_queue(here.completions);
        let queue = queue.expect("it exists");
        while here.driver.poll(&queue).is_none() {
            assert!(now() < timeout, "no acknowledgement arrives");
        }
    }

    /// The program sleeps at the descriptor next. Before that, `poll` finds more packets than it receives at once, and none
    /// of them completes anything.
    fn leaves_no_packet_in_the_rings(
        addresses: [&str; 2],
        poll: impl Fn(&mut LaneState, &CompletionQueue, &Awaited<'_>),
    ) {
        let (here, there) = End::pair_with_rings(addresses);
        let channel = there.channel();
        there.driver.offer_packet_wakeups(&channel);
        there.driver.arm(there.completions, engine::Notify::Any);
        there.empty_sockets();
        (0..16).for_each(|_| here.write_nothing());
        let mut state = there.driver.lane().lock();
        let queue = state.device_mut().completion_queue(there.completions);
        let queue = queue.expect("it exists");
        poll(&mut state, &queue, &Awaited::Notification(&channel));
        let may_sleep = state.may_sleep();
        drop(state);
        // A packet that has just arrived makes the descriptor readable.
        assert!(may_sleep || there.has_readable_socket(Duration::from_secs(20)));
    }

    #[test]
    fn a_poll_before_a_sleep_leaves_no_packet_in_the_rings() {
        leaves_no_packet_in_the_rings(["127.58.91.40", "127.58.91.41"], |state, queue, _| {
            assert!(state.poll_before_sleep(now(), queue).is_none());
        });
    }

    #[test]
    fn a_poll_before_a_wait_at_the_descriptor_looks() {
        let (_here, there) = End::pair_with_rings(["127.58.91.46", "127.58.91.47"]);
        let channel = there.channel();
        there.driver.offer_packet_wakeups(&channel);
        there.empty_sockets();
        let queue = there.driver.polled_queue(there.completions);
        let queue = queue.expect("it exists");
        let looks = &there.driver.lane().looks.outside;
        assert!(there.driver.poll_without_yield(&queue).is_none());
        assert!(looks.is_worthwhile(), "no poll of an unarmed queue looks");
        there.driver.arm(there.completions, engine::Notify::Any);
        let begin = now();
        assert!(there.driver.poll_without_yield(&queue).is_none());
        assert!(now() >= begin + crate::turn::LOOK);
        assert!(!looks.is_worthwhile(), "that one found nothing");
    }

    #[test]
    fn a_poll_for_notifications_leaves_no_packet_in_the_rings() {
        leaves_no_packet_in_the_rings(["127.58.91.42", "127.58.91.43"], |state, _, awaited| {
            state.finish_outside(now(), awaited);
        });
    }

    #[test]
    fn only_the_first_poll_after_arming_leaves_a_packet_to_the_descriptor() {
        let (here, there) = End::pair_without_rings(["127.58.91.44", "127.58.91.45"]);
        let channel = there.channel();
        there.driver.offer_packet_wakeups(&channel);
        there.empty_sockets();
        let queue = there.driver.polled_queue(there.completions);
        let queue = queue.expect("it exists");
        let poll = || there.driver.poll_without_yield(&queue);
        let timeout = Duration::from_secs(20);
        there.driver.arm(there.completions, engine::Notify::Any);
        here.send_to(&there);
        assert!(there.has_readable_socket(timeout), "the packet arrives");
        // A poll that spins before the wait would find it.
        there.driver.lane().looks.outside.note(false);
        assert!(poll().is_none() && there.has_readable_socket(Duration::ZERO));
        assert!(poll().is_some(), "the program goes on polling");
        here.send_to(&there);
        assert!(there.has_readable_socket(timeout), "the packet arrives");
        assert!(poll().is_some(), "the queue is not armed any more");
    }

    /// A full socket or ring would otherwise block its destination forever.
    #[test]
    fn packets_that_wait_are_sent_with_the_next_ones() {
        let end = End::without_thread("127.58.91.5");
        let mut state = end.driver.lane().lock();
        state.sockets.stall(now());
        let retry_at = state.next_deadline().expect("a retry");
        state.transmit(retry_at);
        assert_eq!(state.sockets.retry_at(), None);
    }

    #[test]
    fn counters_are_published_when_they_are_due() {
        let end = End::without_thread("127.58.91.6");
        let mut state = end.driver.lane().lock();
        let later = now() + Duration::from_secs(1);
        assert!(state.statistics.is_due(&later.into()));
        state.publish_statistics(&later.into());
        assert!(!state.statistics.is_due(&later.into()));
    }

    /// Two connected ends of one device that have sent before.
    fn ends_of_one_device(address: &str, shortcut: Shortcut) -> (End, End) {
        let options = OpenOptions {
            shortcut,
            ..OpenOptions::default()
        };
        let driver = Driver::open(address, &options).expect("a loopback address");
        let (here, there) = (End::of(Arc::clone(&driver)), End::of(driver));
        here.connect(&there);
        there.connect(&here);
        // The first packet goes through a socket. Then the device knows that it sends to itself.
        (0..2).for_each(|_| here.send_to(&there));
        (here, there)
    }

    #[test]
    fn a_post_within_the_device_does_not_read_the_clock() {
        let (here, there) = ends_of_one_device("127.58.91.9", Shortcut::Always);
        let mut state = here.driver.lane().lock();
        let receive = ReceiveRequest::new(1, []);
        let posted = state.device_mut().post_receive(there.number, receive);
        posted.expect("room");
        let send = SendRequest::new(2, Work::Send);
        let posted = state.device_mut().post_send(here.number, send);
        posted.expect("room");
        let before = state.device_mut().counters().delivered_to_self;
        let now = Now::read_by(now);
        state.transmit_at(&now);
        assert_eq!(now.known(), None);
        let delivered = state.device_mut().counters().delivered_to_self - before;
        assert_eq!(delivered, 2, "the message and its acknowledgement");
    }

    #[test]
    fn a_device_that_no_longer_sends_is_not_woken_to_check_the_loopback_interface() {
        let (here, _there) = ends_of_one_device("127.58.91.10", Shortcut::Auto);
        let mut state = here.driver.lane().lock();
        state.progress(now() + Duration::from_secs(1));
        assert_eq!(state.shortcut.deadline(), None);
    }

    #[test]
    fn a_link_that_goes_down_is_published() {
        let end = End::without_thread("127.58.91.7");
        let mut state = end.driver.lane().lock();
        state.publish_statistics(&(now() + Duration::from_secs(1)).into());
        assert_eq!(state.statistics_deadline(), None, "all is published");
        state.update_interfaces(&[]);
        assert!(state.statistics_deadline().is_some());
    }

    /// The check costs a tenth of a millisecond, and a device that does nothing must cost nothing.
    #[test]
    fn a_device_with_nothing_to_send_does_not_check_who_uses_loopback() {
        let (here, there) = (
            End::without_thread("127.58.91.11"),
            End::without_thread("127.58.91.12"),
        );
        here.connect(&there);
        there.connect(&here);
        let mut state = here.driver.lane().lock();
        state.shortcut.note_needed();
        state.progress(now());
        assert!(
            state.shortcut.is_due(&now().into()),
            "it has nothing to send"
        );
        drop(state);
        here.send_to(&there);
        let state = here.driver.lane().lock();
        assert!(
            !state.shortcut.is_due(&now().into()),
            "a post has checked it"
        );
    }

    #[test]
    fn a_poll_checks_who_uses_loopback_for_the_next_post() {
        let end = End::without_thread("127.58.91.13");
        let mut state = end.driver.lane().lock();
        let queue = state.device_mut().completion_queue(end.completions);
        let queue = queue.expect("it exists");
        state.shortcut.note_needed();
        assert!(state.progress_for(now(), &queue).is_none());
        assert!(!state.shortcut.is_due(&now().into()));
    }

    #[test]
    fn a_device_without_segmentation_sends_its_packets_one_by_one() {
        let options = OpenOptions {
            segmentation: false,
            ..OpenOptions::default()
        };
        let driver = Driver::open("127.58.91.8", &options).expect("a loopback address");
        let state = driver.lane().lock();
        assert!(!state.sockets.segmentation() && !state.segmentation);
    }

    #[test]
    fn statistics_tell_that_packets_pass_through_shared_memory() {
        let options = OpenOptions {
            shortcut: Shortcut::Always,
            ..OpenOptions::default()
        };
        let open = |address| Driver::open(address, &options).expect("a loopback address");
        let (here, there) = (End::of(open("127.58.91.9")), End::of(open("127.58.91.10")));
        here.connect(&there);
        there.connect(&here);
        let address = "127.58.91.10".parse().expect("an address");
        let path = || {
            let state = here.driver.lane().lock();
            state.sockets.packet_path(address, there.number)
        };
        assert_eq!(path(), PacketPath::Sockets, "nothing was sent");
        let timeout = now() + Duration::from_secs(20);
        while path() != PacketPath::SharedMemory {
            here.send_to(&there);
            for end in [&here, &there] {
                let queue = end.driver.polled_queue(end.completions);
                let queue = queue.expect("it exists");
                while end.driver.poll(&queue).is_none() {
                    assert!(now() < timeout, "the message is lost");
                }
            }
            assert!(now() < timeout, "its packets go through sockets");
        }
    }
}
