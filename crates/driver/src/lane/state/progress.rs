//! Steps: a lane receives packets for a thread, and does what follows from them.

use std::time::Instant;

use engine::{Completion, CompletionQueue};

use super::LaneState;
use crate::capture_and_faults::CaptureAndFaults;
use crate::clock::earliest;
use crate::fabric::PollScope;
use crate::lane::Awaited;
use crate::waiting::deferred_wakeups::{self, Wake};

/// How many steps one call makes. More would keep other threads waiting for the lock.
const MAX_STEPS: usize = 4;

/// How many steps one call makes until nothing arrives. It is limited, because others may send, too.
const MAX_STEPS_TO_EMPTY: usize = 16;

/// How many looks before a wait may bring a completion after a queue was armed.
const MAX_LOOKS_PER_ARMING: u32 = 8;

/// A receive that returns this many packets has probably left some.
const MANY: usize = 64;

/// For whom a step receives packets. It decides which sockets are read, and when the responses leave.
#[derive(Clone, Copy)]
pub(crate) enum Intent<'a> {
    /// The lane's thread serves the sockets.
    Serve,
    /// The lane's thread looks for more packets, which often come through shared memory.
    Look,
    /// A program polls a queue.
    Poll(&'a CompletionQueue),
    /// A program whose poll found nothing looks once more, because it waits at a descriptor next.
    PollAgain(&'a CompletionQueue),
    /// A thread looks before it sleeps.
    BeforeSleep(&'a Awaited<'a>),
    /// A thread that slept on the sockets is awake.
    Woken(&'a Awaited<'a>),
    /// A program takes a notification. A packet may have woken it at its descriptor.
    AtDescriptor(&'a Awaited<'a>),
    /// The same program waits at its descriptor again, and something has arrived meanwhile.
    BeforeDescriptor(&'a Awaited<'a>),
    /// A thread looks for the rest of a message.
    RestOfMessage(&'a Awaited<'a>),
    /// It has looked long enough. Nothing is received.
    EndOfLook(&'a Awaited<'a>),
    /// A program waits for packets that its device has sent to itself.
    OwnPackets,
    /// What has arrived comes before what the caller does next, which also sends the responses.
    Before,
}

/// What a step has brought.
pub(crate) struct Outcome {
    /// How many packets have arrived.
    pub(crate) arrived: usize,
    pub(crate) found: Found,
}

/// What is there of what the caller of a step wants.
#[derive(Debug, PartialEq)]
pub(crate) enum Found {
    Nothing,
    /// A part of a message whose end may complete what the thread waits for. No response has left.
    Part,
    /// What a thread waits for, or a notification for a program that waits outside of the library.
    Ready,
    Completion(Completion),
}

impl Found {
    pub(crate) fn completion(self) -> Option<Completion> {
        match self {
            Self::Completion(completion) => Some(completion),
            Self::Nothing | Self::Part | Self::Ready => None,
        }
    }
}

/// Whether the responses of the device have left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Responses {
    Sent,
    /// They leave with the program's next post, or at the second poll that finds nothing.
    Deferred,
    /// As before, at the next poll that finds nothing.
    DeferredOnce,
    /// They wait, as all packets do, for records in the log of the check.
    Unpublished,
}

/// Whether a program polls after it has armed a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Armed {
    /// It has not polled yet.
    NotPolled,
    /// It has. So many looks before a wait at a descriptor have brought a completion.
    Polled { looks: u32 },
}

/// How much of the last message has arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Message {
    Whole,
    /// The first packets, and not the last.
    Part,
}

/// What threads that sleep on the sockets know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sleep {
    /// The next packet wakes them.
    Prepared,
    /// Packets were polled for, which may have taken their wake-up.
    Disturbed,
}

/// Packets that the device has sent to itself through sockets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OwnPackets {
    Received,
    OnTheirWay,
}

impl Intent<'_> {
    /// Whether nothing follows from a step without packets.
    fn is_look(self) -> bool {
        matches!(
            self,
            Self::Look | Self::PollAgain(_) | Self::BeforeSleep(_) | Self::OwnPackets
        )
    }
}

impl LaneState {
    /// The only way to receive packets. Runs the timers and delivers the events, looks for what the caller wants, and transmits, unless
    /// the responses can leave with the program's next post.
    pub(crate) fn step(&mut self, now: Instant, intent: Intent<'_>) -> Outcome {
        let promised = self.packet_wakeups.has_promise_open();
        let reads = promised.then(|| self.sockets.descriptor_reads());
        let arrived = self.receive(now, intent);
        // Packets that this device drops may have woken a program, too, that must get a notification then. After packets through
        // shared memory the descriptor may still be readable: the wake-up is then read by the program.
        let has_woken = reads.is_some_and(|reads| reads != self.sockets.descriptor_reads());
        let mut is_notified = has_woken && self.dispatch_events();
        if has_woken {
            self.packet_wakeups.note_taken();
        }
        if matches!(intent, Intent::Before) {
            let found = Found::Nothing;
            return Outcome { arrived, found };
        }
        if arrived > 0 || !intent.is_look() {
            self.serve_timers(now);
            is_notified |= self.dispatch_events();
        }
        let mut found = self.find(intent, is_notified);
        match (intent, &found) {
            (_, Found::Completion(_)) => self.defer_responses(),
            (_, Found::Part) => {}
            _ if arrived == 0 && intent.is_look() => {}
            // A program that polls until nothing is left posts its reply after this poll.
            (Intent::Poll(_), _) if arrived == 0 && self.responses == Responses::Deferred => {
                self.responses = Responses::DeferredOnce;
            }
            // The program's next call sends these responses. Older ones are sent now.
            (Intent::Serve, Found::Ready) if self.has_unsent() => self.transmit(now),
            (_, Found::Ready) if !self.has_cm_output() => self.defer_responses(),
            (Intent::Poll(queue) | Intent::PollAgain(queue), _) => {
                // So that the next post need not.
                self.update_shortcut(&now.into());
                if self.has_output() {
                    self.transmit(now);
                    found = self.find_completion(queue);
                }
            }
            _ => self.transmit(now),
        }
        Outcome { arrived, found }
    }

    fn receive(&mut self, now: Instant, intent: Intent<'_>) -> usize {
        use PollScope::{AllSockets, LastActive};
        match intent {
            Intent::EndOfLook(_) => 0,
            Intent::Poll(queue) if self.may_leave_packets(queue) => 0,
            Intent::Poll(_)
            | Intent::PollAgain(_)
            | Intent::Look
            | Intent::BeforeSleep(_)
            | Intent::RestOfMessage(_) => self.take_packets(now, LastActive),
            // Usually one packet has arrived, at the same socket as the last one.
            Intent::Woken(_) | Intent::BeforeDescriptor(_) => {
                match self.take_packets(now, LastActive) {
                    0 => self.take_packets(now, AllSockets),
                    arrived => arrived,
                }
            }
            Intent::AtDescriptor(_) => {
                let reads = self.sockets.descriptor_reads();
                let arrived = self.take_packets(now, LastActive);
                if self.sockets.descriptor_reads() != reads {
                    return arrived;
                }
                // Another socket woke the program, or a wake-up for packets that were received before.
                self.sockets.poll_mailboxes();
                arrived + self.take_packets(now, AllSockets)
            }
            Intent::Serve | Intent::Before => self.take_packets(now, AllSockets),
            Intent::OwnPackets => {
                let arrived = self.take_packets(now, AllSockets);
                // A full receive may have left some.
                if (1..MANY).contains(&arrived) {
                    self.stop_delivery_to_self();
                }
                arrived
            }
        }
    }

    /// What is there. `is_notified`: a program that waits outside of the library.
    fn find(&mut self, intent: Intent<'_>, is_notified: bool) -> Found {
        let ready = |is_ready| {
            if is_ready {
                Found::Ready
            } else {
                Found::Nothing
            }
        };
        match intent {
            Intent::Serve => ready(is_notified),
            Intent::Look | Intent::OwnPackets | Intent::Before => Found::Nothing,
            Intent::Poll(queue) | Intent::PollAgain(queue) => self.find_completion(queue),
            Intent::BeforeSleep(awaited) | Intent::BeforeDescriptor(awaited) => {
                ready(awaited.is_ready(self))
            }
            Intent::Woken(awaited)
            | Intent::AtDescriptor(awaited)
            | Intent::RestOfMessage(awaited) => match awaited.is_ready(self) {
                false if self.message == Message::Part => Found::Part,
                is_ready => ready(is_ready),
            },
            Intent::EndOfLook(awaited) => {
                self.message = Message::Whole;
                ready(awaited.is_ready(self))
            }
        }
    }

    fn find_completion(&mut self, queue: &CompletionQueue) -> Found {
        let completion = self.poll_completion(queue);
        completion.map_or(Found::Nothing, Found::Completion)
    }

    /// Steps for the lane's thread, or for a program that asks for asynchronous events. Returns how many packets arrived.
    pub(crate) fn serve(&mut self, now: Instant) -> usize {
        let mut all = 0;
        for _ in 0..MAX_STEPS {
            let Outcome { arrived, found } = self.step(now, Intent::Serve);
            all += arrived;
            if arrived < MANY || found == Found::Ready && self.has_unsent() {
                break;
            }
        }
        all
    }

    /// Receives packets that the device sent to itself, responds, and receives the responses. So a program
    /// that posts to its own device and then polls finds its completions. Returns false if the kernel has
    /// not delivered all of them yet.
    pub(crate) fn deliver_to_self(&mut self, now: Instant) -> bool {
        for _ in 0..MAX_STEPS_TO_EMPTY {
            if !self.has_sent_to_self() {
                return true;
            }
            if self.step(now, Intent::OwnPackets).arrived == 0 {
                return false;
            }
        }
        self.stop_delivery_to_self();
        true
    }

    /// Receives what the sockets have.
    pub(crate) fn empty_sockets(&mut self, now: Instant) {
        for _ in 0..MAX_STEPS_TO_EMPTY {
            if self.step(now, Intent::Before).arrived == 0 {
                break;
            }
        }
    }

    /// For a program that waits at a descriptor next: from now on packets through shared memory raise it. Makes steps while some
    /// have arrived before that.
    pub(crate) fn prepare_descriptor(&mut self, now: Instant, intent: Intent<'_>) -> Found {
        let mut found = Found::Nothing;
        for _ in 0..MAX_STEPS {
            if found != Found::Nothing || !self.sockets.prepare_sleep() {
                break;
            }
            // This may take the wake-up, so the sleep is prepared again.
            found = self.step(now, intent).found;
        }
        found
    }

    /// Whether the program has closed a socket of the device. Waiting for packets would fail, or would return at once.
    pub(crate) fn has_lost_socket(&self) -> bool {
        self.sockets.has_lost_socket()
    }

    pub(crate) fn has_sent_to_self(&self) -> bool {
        self.own_packets == OwnPackets::OnTheirWay
    }

    /// Stops waiting for packets that the device sent to itself.
    pub(crate) fn stop_delivery_to_self(&mut self) {
        self.own_packets = OwnPackets::Received;
    }

    /// How many packets have arrived since the device was opened.
    pub(crate) fn arrivals(&self) -> u64 {
        self.arrivals
    }

    /// Whether a poll need not look for packets. A program that armed a queue and finds it empty waits at a descriptor
    /// next, which is readable if a packet has arrived. This saves a system call for each message. Only the first poll
    /// leaves packets there, because a program may also arm its queue and then only poll.
    fn may_leave_packets(&mut self, queue: &CompletionQueue) -> bool {
        if self.armed != Armed::NotPolled {
            return false;
        }
        self.armed = Armed::Polled { looks: 0 };
        !self.sockets.is_dense()
            && self.packet_wakeups.are_used()
            && queue.is_armed()
            && !self.sockets.has_shortcuts()
    }

    /// Whether a program whose queue is empty waits at a descriptor next, and packets wake it there.
    pub(crate) fn waits_outside_next(&self, queue: &CompletionQueue) -> bool {
        self.packet_wakeups.are_used() && queue.is_armed() && self.sockets.is_real()
    }

    /// Whether to look for packets before a program waits at a descriptor. A program that has taken a message and posted
    /// nothing since probably replies next, and a look would delay the reply. A program that arms a queue for solicited
    /// completions finds others by each look, and must wait at some time, too.
    pub(crate) fn may_look_before_wait(&self) -> bool {
        let looks = match self.armed {
            Armed::NotPolled => 0,
            Armed::Polled { looks } => looks,
        };
        !self.has_unsent() && looks < MAX_LOOKS_PER_ARMING
    }

    /// Notes that a look before a wait at a descriptor has brought a completion.
    pub(crate) fn note_successful_look(&mut self) {
        if let Armed::Polled { looks } = &mut self.armed {
            *looks += 1;
        }
    }

    /// Whether other processes send to this one through shared memory. Polling the rings costs little.
    pub(crate) fn has_shortcuts(&self) -> bool {
        self.sockets.has_shortcuts()
    }

    /// Defers responses to the program's next call.
    fn defer_responses(&mut self) {
        if self.responses != Responses::Unpublished {
            self.responses = Responses::Deferred;
        }
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
        self.sleep = Sleep::Prepared;
    }

    /// Whether packets were polled for, no sleep was prepared since, and a thread that sleeps on the poll sources would
    /// sleep on when the next packet arrives through shared memory. True once.
    pub(crate) fn took_wakeup(&mut self) -> bool {
        std::mem::replace(&mut self.sleep, Sleep::Prepared) == Sleep::Disturbed
            && !self.sockets.may_sleep()
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
        if self.has_unsent() {
            self.transmit(now);
        }
    }

    /// Whether [`transmit`](Self::transmit) may have something to do.
    fn has_output(&mut self) -> bool {
        !self.is_quiet()
            || self.has_cm_output()
            || self.sockets.retry_at().is_some()
            || self.capture_and_faults.is_some()
    }

    /// Whether responses are deferred.
    pub(crate) fn has_unsent(&self) -> bool {
        self.responses != Responses::Sent
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
    use std::sync::atomic::Ordering;
    use std::time::Duration;

    use engine::{Device, Now, ReceiveRequest, RemoteMemory, SendRequest, Work};
    use statistics::PacketPath;
    use wire::Key;

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
        let poll = |state: &mut LaneState| state.step(now(), Intent::Poll(&queue)).found;
        while poll(&mut state) == Found::Nothing {}
        assert!(state.has_unsent(), "the program may reply at once");
        assert_eq!(poll(&mut state), Found::Nothing);
        assert!(state.has_unsent(), "or after one empty poll");
        assert_eq!(poll(&mut state), Found::Nothing);
        assert!(!state.has_unsent(), "the second empty poll sends them");
    }

    #[test]
    fn packets_that_are_received_from_the_rings_are_acknowledged() {
        let (here, there) = (End::open("127.58.91.3"), End::without_thread("127.58.91.4"));
        here.connect(&there);
        there.connect(&here);
        here.send_to(&there);
        let look =
            |mut state: std::sync::MutexGuard<'_, LaneState>| state.step(now(), Intent::Look);
        while look(there.driver.lane().lock()).arrived == 0 {}
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
            let found = state.prepare_descriptor(now(), Intent::Poll(queue));
            assert_eq!(found, Found::Nothing);
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
        assert!(now() >= begin + crate::times::LOOK);
        assert!(!looks.is_worthwhile(), "that one found nothing");
    }

    /// A queue that is armed for solicited completions stays armed when a look finds others.
    #[test]
    fn a_program_waits_at_its_descriptor_after_some_looks_that_brought_completions() {
        let (here, there) = End::pair_with_rings(["127.58.91.48", "127.58.91.49"]);
        let lane = there.driver.lane();
        let queue = lane.lock().device_mut().completion_queue(there.completions);
        let queue = queue.expect("it exists");
        lane.lock().armed = Armed::Polled { looks: 0 };
        // A packet that is sent again arrives at any time. Its response, too, has to be sent before a look.
        let may_look = |state: &mut LaneState| {
            state.transmit(now());
            state.may_look_before_wait()
        };
        for _ in 0..MAX_LOOKS_PER_ARMING {
            assert!(lane.step(may_look));
            here.send_to(&there);
            let begin = now() + Duration::from_secs(20);
            let found = lane.look_before_wait(&queue, begin);
            found.expect("the message arrives");
        }
        assert!(!lane.step(may_look));
    }

    #[test]
    fn a_poll_for_notifications_leaves_no_packet_in_the_rings() {
        leaves_no_packet_in_the_rings(["127.58.91.42", "127.58.91.43"], |state, _, awaited| {
            _ = state.step(now(), Intent::EndOfLook(awaited));
            state.prepare_descriptor(now(), Intent::BeforeDescriptor(awaited));
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
        let own = "127.58.91.5".parse().expect("an address");
        state.sockets.stall(now(), (own, end.number), 16);
        let retry_at = state.next_deadline().expect("a retry");
        state.transmit(retry_at);
        assert_eq!(state.sockets.retry_at(), None);
    }

    /// A stopped process does not read its ring. Another one at the same address gets its packets all the same.
    #[test]
    fn a_full_ring_delays_no_other_process() {
        let addresses = ["127.58.91.52", "127.58.91.53"];
        let (here, stopped) = End::pair_with_rings(addresses);
        let (ours, other) = (End::of(&here.driver), End::without_thread(addresses[1]));
        ours.connect(&other);
        other.connect(&ours);
        let peer = addresses[1].parse().expect("an address");
        let timeout = Duration::from_secs(20);
        // Its deadline does not pass: the ring is full, and stays full.
        let start = now();
        let mut state = here.driver.lane().lock();
        for _ in 0..(12 << 20) / 60_000 {
            state.sockets.stall(start, (peer, stopped.number), 60_000);
            state.sockets.retry_backlog(&start.into());
        }
        assert!(state.sockets.retry_at().is_some(), "packets wait");
        for (sender, receiver) in [(&here, &stopped), (&ours, &other)] {
            let receive = ReceiveRequest::new(1, []);
            let posted = |device: &mut Device| device.post_receive(receiver.number, receive);
            (receiver.driver.call_without_transmit(posted)).expect("room");
            let send = SendRequest::new(2, Work::Send);
            (state.device_mut().post_send(sender.number, send)).expect("room");
        }
        state.transmit(start);
        let receives = |end: &End| {
            let queue = end.driver.polled_queue(end.completions);
            end.driver.poll_without_yield(&queue.expect("it exists"))
        };
        while receives(&other).is_none() {
            assert!(now() < start + timeout, "it waits behind the others");
        }
        assert!(state.sockets.retry_at().is_some(), "packets wait");
        // The process goes on.
        while receives(&stopped).is_none() {
            assert!(now() < start + timeout, "its packets stay behind");
            state.transmit(start);
        }
    }

    /// A stopped process does not read its ring, and more waits for it than may.
    #[test]
    fn requests_within_the_device_do_not_wait_for_others() {
        let addresses = ["127.58.91.54", "127.58.91.55"];
        let (here, stopped) = End::pair_with_rings(addresses);
        let (ours, other) = ends_of(&here.driver);
        let peer = addresses[1].parse().expect("an address");
        let (start, timeout) = (now(), Duration::from_secs(20));
        let mut state = here.driver.lane().lock();
        while !state.sockets.is_congested() {
            assert!(now() < start + timeout, "the ring is full");
            state.sockets.stall(start, (peer, stopped.number), 60_000);
            state.sockets.retry_backlog(&start.into());
        }
        let before = state.device_mut().counters().delivered_to_self;
        let receive = ReceiveRequest::new(1, []);
        let posted = state.device_mut().post_receive(other.number, receive);
        posted.expect("room");
        let nothing = RemoteMemory {
            address: 0,
            key: Key::new(0),
        };
        // Unlike a SEND, this is never executed without packets.
        let write = Work::WriteImmediate(nothing, [0; 4]);
        for (sender, work) in [(&here, Work::Send), (&ours, write)] {
            let send = SendRequest::new(2, work);
            let posted = state.device_mut().post_send(sender.number, send);
            posted.expect("room");
        }
        state.transmit(start);
        assert!(state.sockets.is_congested());
        let delivered = state.device_mut().counters().delivered_to_self - before;
        assert_eq!(delivered, 2, "the message and its acknowledgement");
    }

    /// The manager keeps it, and the call returns.
    #[test]
    fn a_message_of_the_manager_for_which_there_is_no_room_is_sent_later() {
        let addresses = ["127.58.91.50", "127.58.91.51"];
        let (here, there) = End::pair_with_rings(addresses);
        let [_, peer] = addresses.map(|it| it.parse().expect("an address"));
        let mut state = here.driver.lane().lock();
        let (start, timeout) = (now(), Duration::from_secs(20));
        while !state.sockets.is_congested() {
            assert!(now() < start + timeout, "the ring is full");
            state.sockets.stall(start, (peer, there.number), 60_000);
            state.sockets.retry_backlog(&start.into());
        }
        let space = wire::cm::PortSpace::Tcp;
        let kind = cm::ServiceType::of(space);
        let id = state.manager().create_id(space, kind).expect("room");
        let peer = (peer, 7183).into();
        let resolves = (state.manager()).resolve_address(start, id, None, peer, timeout);
        resolves.expect("a new id");
        state.transmit(start);
        let resolves = state.manager().resolve_route(start, id, timeout);
        resolves.expect("an address of this machine");
        state.transmit(start);
        let parameters = cm::Parameters::new(here.number);
        let connects = state.manager().connect(start, id, &parameters);
        connects.expect("the route is known");
        state.transmit(start);
        assert!(state.has_cm_output(), "there was no room");
        while state.has_cm_output() {
            assert!(now() < start + timeout, "it is sent");
            let mut reader = there.driver.lane().lock();
            _ = reader.step(now(), Intent::Serve);
            state.transmit(now());
        }
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
        ends_of(&Driver::open(address, &options).expect("a loopback address"))
    }

    fn ends_of(driver: &Arc<Driver>) -> (End, End) {
        let (here, there) = (End::of(driver), End::of(driver));
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
        let before = state.device_mut().counters().delivered_to_self;
        let send = SendRequest::new(2, Work::Send);
        let posted = state.device_mut().post_send(here.number, send);
        posted.expect("room");
        let now = Now::read_by(now);
        state.transmit_at(&now);
        assert_eq!(now.known(), None);
        let delivered = state.device_mut().counters().delivered_to_self - before;
        assert_eq!(delivered, 2, "the message and its acknowledgement");
    }

    /// Otherwise a capture that begins on loopback misses them.
    #[test]
    fn a_post_within_the_device_checks_who_uses_loopback_when_that_is_due() {
        let (here, there) = ends_of(&Driver::without_thread("127.58.91.14"));
        let lane = here.driver.lane();
        let is_due = || lane.lock().shortcut.is_due(&Now::read_by(now));
        lane.lock().serve(now() + Duration::from_secs(1));
        assert!(is_due());
        lane.note_change_without_lock();
        here.takes_wake_up();
        here.send_to(&there);
        assert!(!is_due());
        assert!(here.takes_wake_up(), "the thread ends the decision in time");
    }

    #[test]
    fn a_post_within_the_device_is_published_and_sends_deferred_responses() {
        let (here, _there) = ends_of(&Driver::without_thread("127.58.91.15"));
        let lane = here.driver.lane();
        lane.changed_without_lock.store(false, Ordering::Release);
        here.write_nothing();
        assert!(lane.changed_without_lock.load(Ordering::Acquire));
        lane.lock().defer_responses();
        here.write_nothing();
        assert!(!lane.lock().has_unsent());
    }

    /// Such polls look for no packets, and leave them to the lane's thread.
    #[test]
    fn packets_arrive_while_each_poll_finds_a_completion_of_the_device_itself() {
        let (left, right) = ends_of_one_device("127.58.91.16", Shortcut::Always);
        let (target, peer) = (End::of(&left.driver), End::without_thread("127.58.91.17"));
        target.connect(&peer);
        peer.connect(&target);
        let polled = |end: &End| end.driver.polled_queue(end.completions).expect("it exists");
        let [own, others, sent] = [&left, &right, &peer].map(polled);
        while left.driver.poll(&own).is_some() || right.driver.poll(&others).is_some() {}
        peer.send_to(&target);
        let timeout = now() + Duration::from_secs(20);
        while peer.driver.poll_without_yield(&sent).is_none() {
            assert!(now() < timeout, "the message is not acknowledged");
            left.send_to(&right);
            assert!(left.driver.poll(&own).is_some());
            assert!(right.driver.poll(&others).is_some());
        }
    }

    #[test]
    fn a_device_that_no_longer_sends_is_not_woken_to_check_the_loopback_interface() {
        let (here, _there) = ends_of_one_device("127.58.91.10", Shortcut::Auto);
        let mut state = here.driver.lane().lock();
        state.serve(now() + Duration::from_secs(1));
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
        state.serve(now());
        assert!(
            state.shortcut.is_due(&now().into()),
            "it has nothing to send"
        );
        drop(state);
        here.send_to(&there);
        let state = here.driver.lane().lock();
        // As a call that does not know the time: it may be late, and then the check is due again.
        let is_due = state.shortcut.is_due(&Now::read_by(now));
        assert!(!is_due, "a post has checked it");
    }

    #[test]
    fn a_poll_checks_who_uses_loopback_for_the_next_post() {
        let end = End::without_thread("127.58.91.13");
        let mut state = end.driver.lane().lock();
        let queue = state.device_mut().completion_queue(end.completions);
        let queue = queue.expect("it exists");
        state.shortcut.note_needed();
        assert_eq!(
            state.step(now(), Intent::Poll(&queue)).found,
            Found::Nothing
        );
        assert!(!state.shortcut.is_due(&Now::read_by(now)));
    }

    #[test]
    fn a_device_without_segmentation_sends_its_packets_one_by_one() {
        let options = OpenOptions {
            segmentation: false,
            ..OpenOptions::default()
        };
        let driver = Driver::open("127.58.91.8", &options).expect("a loopback address");
        let state = driver.lane().lock();
        assert!(!state.sockets.segmentation());
    }

    #[test]
    fn statistics_tell_that_packets_pass_through_shared_memory() {
        let options = OpenOptions {
            shortcut: Shortcut::Always,
            ..OpenOptions::default()
        };
        let open = |address| Driver::open(address, &options).expect("a loopback address");
        let (here, there) = (
            End::of(&open("127.58.91.9")),
            End::of(&open("127.58.91.10")),
        );
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
