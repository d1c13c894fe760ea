//! Making progress, for whoever wants it: somebody who polls, somebody who sleeps, the device's thread.

use std::time::Instant;

use engine::{Completion, CompletionQueue, Id};

use super::super::deferred::{self, Wake};
use super::super::port::Look;
use super::super::shared::{Awaited, earliest};
use super::super::tap::Tap;
use super::Core;

/// So often may one turn look for packets: others wait for the lock.
const MAX_LOOKS: usize = 4;

/// How often one post looks for packets that it sent to its own device.
const MAX_OWN_LOOKS: usize = 16;

/// After so many packets at once there are probably more.
const MANY: usize = 64;

impl Core {
    /// Takes what has arrived, serves timers, sends what comes of it; how many packets there were.
    pub(in crate::driver) fn progress(&mut self, now: Instant) -> usize {
        let mut all = 0;
        for _ in 0..MAX_LOOKS {
            self.told_outside = false;
            let arrived = self.receive(now, Look::Everywhere);
            self.serve_timers(now);
            self.tell_events();
            all += arrived;
            if self.told_outside && !self.unsent && !self.host.manager().has_output() {
                // What the program does next carries the answers. Answers that wait already are sent.
                self.keep_answers();
                break;
            }
            self.transmit(now);
            if arrived < MANY {
                break;
            }
        }
        all
    }

    /// Takes packets that went to this device itself, answers them, and takes the answers: a program that
    /// posts to itself and polls right afterwards finds its completions. Whether all were there; if not,
    /// the kernel has yet to deliver some.
    pub(in crate::driver) fn deliver_to_self(&mut self, now: Instant) -> bool {
        for _ in 0..MAX_OWN_LOOKS {
            if !std::mem::take(&mut self.sent_to_self) {
                return true;
            }
            let arrived = self.receive(now, Look::Everywhere);
            if arrived == 0 {
                self.sent_to_self = true;
                return false;
            }
            // A full look may have left some.
            self.sent_to_self = arrived >= MANY;
            self.transmit(now);
        }
        self.sent_to_self = false;
        true
    }

    pub(in crate::driver) fn has_sent_to_self(&self) -> bool {
        self.sent_to_self
    }

    /// Ends the look for what went to this device itself.
    pub(in crate::driver) fn stop_delivery_to_self(&mut self) {
        self.sent_to_self = false;
    }

    /// How many packets have arrived since the device was opened.
    pub(in crate::driver) fn arrivals(&self) -> u64 {
        self.arrivals
    }

    /// Makes progress until there is a completion.
    ///
    /// Answers wait when there is one: what its owner does next, at the latest looking for another
    /// twice, sends them together with its own packets.
    pub(in crate::driver) fn progress_for(
        &mut self,
        now: Instant,
        queue: Id<CompletionQueue>,
    ) -> Option<Completion> {
        let arrived = self.receive(now, Look::Again);
        self.serve_timers(now);
        if let Some(completion) = self.host.device_mut().poll_completion(queue) {
            self.keep_answers();
            return Some(completion);
        }
        // A program that polls until nothing is left posts its reply after this poll.
        if arrived == 0 && std::mem::take(&mut self.may_wait_once) && self.unsent {
            return None;
        }
        self.transmit(now);
        self.host.device_mut().poll_completion(queue)
    }

    /// A program that armed a queue and finds it empty goes to wait at a descriptor. What comes through
    /// memory announces itself there from now on; a completion, if something came before.
    pub(in crate::driver) fn look_before_sleep(
        &mut self,
        now: Instant,
        queue: Id<CompletionQueue>,
    ) -> Option<Completion> {
        if !self.packet_wakeups.are_used() || !self.ports.has_shortcuts() {
            return None;
        }
        let armed = self.host.device_mut().completion_queue(queue);
        if armed.is_some_and(CompletionQueue::is_armed) && self.ports.prepare_sleep() {
            return self.progress_for(now, queue);
        }
        None
    }

    /// Makes progress for a program that was woken at the descriptor of a channel, perhaps by a packet,
    /// and waits there again if there is no notification.
    pub(in crate::driver) fn progress_outside(&mut self, now: Instant, awaited: &Awaited<'_>) {
        if self.receive(now, Look::Again) == 0 {
            self.ports.look_into_mailboxes();
            self.receive(now, Look::Everywhere);
        }
        self.serve_timers(now);
        self.finish_until(now, awaited);
        if !awaited.is_there(self) && self.ports.prepare_sleep() {
            self.progress_until(now, awaited);
        }
    }

    /// Whether others send to us past the kernel: looking for that costs hardly anything.
    pub(in crate::driver) fn has_shortcuts(&self) -> bool {
        self.ports.has_shortcuts()
    }

    /// Makes progress for a thread that is about to sleep; whether what it awaits is there.
    pub(in crate::driver) fn glance(&mut self, now: Instant, awaited: &Awaited<'_>) -> bool {
        if self.receive(now, Look::Again) > 0 {
            self.finish_until(now, awaited);
        }
        awaited.is_there(self)
    }

    /// Makes progress for a thread that sleeps until something is there.
    ///
    /// When it is, answers wait for what the thread does next, as in
    /// [`progress_for`](Self::progress_for).
    pub(in crate::driver) fn progress_until(&mut self, now: Instant, awaited: &Awaited<'_>) {
        // Mostly one packet has come, and where the last one came.
        if self.receive(now, Look::Again) == 0 {
            self.receive(now, Look::Everywhere);
        }
        self.serve_timers(now);
        self.finish_until(now, awaited);
    }

    fn finish_until(&mut self, now: Instant, awaited: &Awaited<'_>) {
        self.tell_events();
        if awaited.is_there(self) && !self.host.manager().has_output() {
            self.keep_answers();
        } else {
            self.transmit(now);
        }
    }

    /// Answers wait for what the program does next.
    fn keep_answers(&mut self) {
        self.unsent = true;
        self.may_wait_once = true;
    }

    fn serve_timers(&mut self, now: Instant) {
        self.connections.release_due(now);
        self.host.handle_timeout(now);
        let due = self.alarms.take_due(now);
        if !due.is_empty() {
            deferred::wake(Wake::Tasks(due));
        }
    }

    /// Nobody sleeps on unsent answers; until when one may sleep.
    pub(in crate::driver) fn before_sleep(&mut self, now: Instant) -> Option<Instant> {
        self.send_waiting(now);
        self.sleep_at_doors_until(now)
    }

    /// Until when one may sleep on the doors.
    pub(in crate::driver) fn sleep_at_doors_until(&mut self, now: Instant) -> Option<Instant> {
        match self.ports.prepare_sleep() {
            true => Some(now),
            false => self.next_deadline(),
        }
    }

    /// Sends the answers that wait.
    pub(in crate::driver) fn send_waiting(&mut self, now: Instant) {
        if self.unsent {
            self.transmit(now);
        }
    }

    /// Whether answers wait to be sent.
    pub(in crate::driver) fn has_unsent(&self) -> bool {
        self.unsent
    }

    /// When something must be done even if nothing arrives.
    pub(in crate::driver) fn next_deadline(&self) -> Option<Instant> {
        let held_back = self.tap.as_ref().and_then(Tap::next_due);
        let due = earliest(self.host.poll_timeout(), held_back);
        let due = earliest(due, self.next_release());
        let due = earliest(due, self.alarms.next());
        earliest(due, self.ports.tend_at())
    }

    /// When a disconnection that waits for a poll is told at the latest.
    pub(in crate::driver) fn next_release(&self) -> Option<Instant> {
        self.connections.next_deadline()
    }
}

#[cfg(test)]
mod tests {
    use crate::clock::now;
    use crate::{Access, ConnectOptions, Context, Request};

    /// The device is locked before the message is sent, so that no other thread takes it; and the peer
    /// does not send it again.
    #[test]
    fn answers_wait_for_one_poll_that_finds_nothing() {
        let connect_options = ConnectOptions {
            ack_timeout: wire::AckTimeout::new(0).expect("for ever"),
            ..ConnectOptions::default()
        };
        let ends = ["127.58.91.1", "127.58.91.2"].map(|address| {
            let context = Context::open(address).expect("a loopback address");
            let domain = context.protection_domain().expect("room");
            let completions = context.completion_queue(8).expect("room");
            let memory = domain.register(64, Access::LOCAL_WRITE).expect("room");
            let builder = domain
                .queue_pair(&completions)
                .connect_options(connect_options);
            let prepared = builder.reliable().expect("room");
            (completions, memory, prepared)
        });
        let [(_sent, _, here), (received, memory, there)] = ends;
        let (ours, theirs) = (here.endpoint(), there.endpoint());
        let here = here.connect(theirs).expect("a peer");
        let there = there.connect(ours).expect("a peer");
        there.post_receive(1, [memory.all()]).expect("room");

        let mut core = received.driver().shared.lock();
        here.post(Request::send().inline(b"question"))
            .expect("room");
        let id = received.id();
        while core.progress_for(now(), id).is_none() {}
        assert!(core.has_unsent(), "the program may answer at once");
        assert!(core.progress_for(now(), id).is_none());
        assert!(core.has_unsent(), "or after it has found nothing more");
        assert!(core.progress_for(now(), id).is_none());
        assert!(!core.has_unsent(), "it goes on polling");
    }
}
