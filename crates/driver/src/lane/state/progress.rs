//! Steps: a lane receives packets for a thread, and does what follows from them.

use std::sync::Arc;
use std::time::Instant;

use engine::{Completion, CompletionQueue};

use super::LaneState;
use crate::capture_and_faults::CaptureAndFaults;
use crate::clock::earliest;
use crate::fabric::PollScope;
use crate::lane::Awaited;
use crate::waiting::deferred_wakeups::{self, Wake};
use crate::waiting::notifier::Notifier;

/// How many steps one call makes. More would keep other threads waiting for the lock.
const MAX_STEPS: usize = 4;

/// How many steps one call makes until nothing arrives. It is limited, because others may send, too.
const MAX_STEPS_TO_EMPTY: usize = 16;

/// How many looks before a wait may bring a completion after a queue was armed.
const MAX_LOOKS_PER_ARMING: u32 = 8;

/// A receive that returns this many packets has probably left some.
pub(crate) const MANY: usize = 64;

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
    /// An executor receives packets that have woken it, for its tasks.
    #[cfg(feature = "async")]
    ForTasks,
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

/// Whom the events of a step wake, if they call next: their calls send the responses.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Notified {
    /// A program that waits outside of the library for a notification.
    pub(super) program: bool,
    pub(super) tasks: bool,
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
    /// It has found the queue empty, and has not replied to all messages: it posts, and then waits at a descriptor.
    Emptied,
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
        let mut notified = Notified::default();
        if has_woken {
            notified = self.dispatch_events();
            self.packet_wakeups.note_taken();
        }
        if matches!(intent, Intent::Before) {
            let found = Found::Nothing;
            return Outcome { arrived, found };
        }
        if arrived > 0 || !intent.is_look() {
            self.serve_timers(now);
            let more = self.dispatch_events();
            notified.program |= more.program;
            notified.tasks |= more.tasks;
        }
        let mut found = self.find(intent, notified);
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
            #[cfg(feature = "async")]
            Intent::ForTasks => self.receive_at_descriptor(now),
            Intent::AtDescriptor(_) => self.receive_at_descriptor(now),
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

    /// Receives packets that have made a descriptor readable.
    fn receive_at_descriptor(&mut self, now: Instant) -> usize {
        let reads = self.sockets.descriptor_reads();
        let arrived = self.take_packets(now, PollScope::LastActive);
        if self.sockets.descriptor_reads() != reads {
            return arrived;
        }
        // Another socket woke the program, or a wake-up for packets that were received before.
        self.sockets.poll_mailboxes();
        arrived + self.take_packets(now, PollScope::AllSockets)
    }

    /// What is there.
    fn find(&mut self, intent: Intent<'_>, notified: Notified) -> Found {
        let ready = |is_ready| {
            if is_ready {
                Found::Ready
            } else {
                Found::Nothing
            }
        };
        match intent {
            Intent::Serve => ready(notified.program),
            #[cfg(feature = "async")]
            Intent::ForTasks => ready(notified.tasks),
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

    /// Whether to look for packets before a program waits at a descriptor. A program that arms a queue for solicited
    /// completions finds others by each look, and must wait at some time, too.
    pub(crate) fn may_look_before_wait(&self) -> bool {
        match self.armed {
            Armed::NotPolled => true,
            Armed::Polled { looks } => looks < MAX_LOOKS_PER_ARMING,
            Armed::Emptied => false,
        }
    }

    /// Notes that a program has found its queue empty, and replies before it waits at a descriptor.
    pub(crate) fn note_emptied(&mut self) {
        self.armed = Armed::Emptied;
    }

    /// The channel at whose descriptor a program waits that has posted its last reply; once.
    pub(crate) fn waits_after_replies(&mut self) -> Option<Arc<Notifier>> {
        if self.armed != Armed::Emptied {
            return None;
        }
        self.armed = Armed::Polled { looks: 0 };
        self.packet_wakeups.notifier()
    }

    /// Begins a look that follows [`prepare_descriptor`](Self::prepare_descriptor): until it ends, packets need not raise the
    /// descriptor.
    pub(crate) fn begin_look(&mut self) {
        self.sockets.stay_awake();
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
mod tests;
