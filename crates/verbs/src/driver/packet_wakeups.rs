//! Programs that wait at the descriptor of a channel and are woken by packets directly.

use std::io;
use std::sync::{Arc, Weak};

use net::poll::PollSet;

use super::bell::Bell;

/// The channel whose descriptor is readable while packets wait. The device's thread leaves the packets to
/// the program then, as it does for one that polls, and a packet wakes one thread instead of two.
///
/// There is one at most: with several, each packet would wake all of their threads.
#[derive(Debug, Default)]
pub(super) struct PacketWakeups {
    channel: Option<(Weak<Bell>, PollSet)>,
    /// Whether they turned out to be of no use for this program.
    refused: bool,
}

/// After this many looks without a notification, packets no longer wake the program: other threads take
/// the packets, or the packets are not for this channel.
const MAX_LOOKS_IN_VAIN: u32 = 64;

/// What a program expects when its descriptor is readable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AtReadable {
    /// A notification: it may take EAGAIN for an error. It gets an extra one for packets that bring none.
    Notification,
    /// A notification or none.
    Anything,
}

impl PacketWakeups {
    /// Whether a channel has them.
    pub(super) fn are_used(&self) -> bool {
        self.channel.is_some()
    }

    /// Gives them to a channel whose program expects this at a readable descriptor.
    pub(super) fn offer(
        &mut self,
        bell: &Arc<Bell>,
        expected: AtReadable,
        packets: impl FnOnce() -> io::Result<PollSet>,
    ) {
        if self.belong_to(bell) && expected == AtReadable::Anything {
            bell.end_promise();
        }
        if self.refused || self.belong_to(bell) {
            return;
        }
        if self.bell().is_some() {
            self.refuse();
        } else {
            self.give(bell, expected, packets);
        }
    }

    /// Without a descriptor for them, everything goes on through the device's thread.
    fn give(
        &mut self,
        bell: &Arc<Bell>,
        expected: AtReadable,
        packets: impl FnOnce() -> io::Result<PollSet>,
    ) {
        self.take_back();
        let promised = expected == AtReadable::Notification;
        if let Ok(packets) = packets()
            && bell.include_packets(&packets, promised).is_ok()
        {
            self.channel = Some((Arc::downgrade(bell), packets));
        }
    }

    /// The sockets have changed.
    pub(super) fn renew(&mut self, packets: impl FnOnce() -> io::Result<PollSet>) {
        if let Some(bell) = self.bell() {
            let expected = if bell.has_promise() {
                AtReadable::Notification
            } else {
                AtReadable::Anything
            };
            self.give(&bell, expected, packets);
        }
    }

    /// Whether packets that are taken now may have woken a program that must get a notification then.
    pub(super) fn owe_notification(&self) -> bool {
        self.bell().is_some_and(|bell| bell.has_promise_open()) && self.packets_wait()
    }

    /// Whether the sockets are readable.
    pub(super) fn packets_wait(&self) -> bool {
        self.channel.as_ref().is_some_and(|(_, it)| it.is_ready())
    }

    /// Packets were taken that may have woken the program, and what they brought is told.
    pub(super) fn note_taken(&mut self) {
        if let Some(bell) = self.bell() {
            bell.keep_promise();
            self.note_look_in_vain(&bell);
        }
    }

    /// A look for packets may have brought no notification of this channel; after too many, packets wake
    /// the program no longer.
    pub(super) fn note_look_in_vain(&mut self, bell: &Arc<Bell>) {
        if self.belong_to(bell) && bell.looks_in_vain() >= MAX_LOOKS_IN_VAIN {
            self.refuse();
        }
    }

    /// A completion queue of the channel is destroyed: an extra notification must not be about it.
    pub(super) fn end_promise(&mut self, bell: &Arc<Bell>) {
        if self.belong_to(bell) && bell.has_promise() {
            self.take_back();
            bell.note_promised(false);
        }
    }

    /// The channel that has them, as long as it exists.
    fn bell(&self) -> Option<Arc<Bell>> {
        self.channel.as_ref().and_then(|(bell, _)| bell.upgrade())
    }

    /// Ends them for good.
    pub(super) fn refuse(&mut self) {
        self.refused = true;
        self.take_back();
    }

    /// The channel's program blocks when there is no notification.
    pub(super) fn withdraw(&mut self, bell: &Arc<Bell>) {
        if self.belong_to(bell) {
            self.take_back();
        }
    }

    fn belong_to(&self, bell: &Arc<Bell>) -> bool {
        let channel = self.channel.as_ref();
        channel.is_some_and(|(its, _)| std::ptr::eq(its.as_ptr(), Arc::as_ptr(bell)))
    }

    fn take_back(&mut self) {
        if let Some((bell, packets)) = self.channel.take()
            && let Some(bell) = bell.upgrade()
        {
            bell.exclude_packets(&packets);
        }
    }
}

impl Drop for PacketWakeups {
    fn drop(&mut self) {
        self.take_back();
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;
    use std::time::Duration;

    use net::poll::{Interest, Waker, wait};

    use super::*;

    fn channel() -> Arc<Bell> {
        let bell = Arc::new(Bell::new().expect("a descriptor"));
        bell.expose();
        bell
    }

    fn readable(bell: &Bell) -> bool {
        let interest = Interest::readable(bell.expose());
        let ready = wait(&[interest], Some(Duration::ZERO));
        !ready.expect("a descriptor").is_empty()
    }

    /// A descriptor at which a packet waits.
    fn packet() -> Waker {
        let packet = Waker::new().expect("a descriptor");
        packet.wake();
        packet
    }

    #[test]
    fn one_channel_is_readable_for_packets_and_with_two_none_is() {
        let packet = packet();
        let packets = || PollSet::over([packet.as_fd()]);
        let mut wakeups = PacketWakeups::default();
        let (first, second) = (channel(), channel());
        wakeups.offer(&first, AtReadable::Anything, packets);
        wakeups.offer(&first, AtReadable::Anything, packets);
        assert!(wakeups.are_used() && readable(&first));
        wakeups.offer(&second, AtReadable::Anything, packets);
        assert!(!readable(&first) && !readable(&second));
        wakeups.offer(&first, AtReadable::Anything, packets);
        assert!(!wakeups.are_used() && !readable(&first), "once is enough");
    }

    #[test]
    fn a_channel_follows_one_that_is_gone() {
        let packet = packet();
        let packets = || PollSet::over([packet.as_fd()]);
        let mut wakeups = PacketWakeups::default();
        wakeups.offer(&channel(), AtReadable::Anything, packets);
        let next = channel();
        wakeups.offer(&next, AtReadable::Anything, packets);
        assert!(readable(&next));
        wakeups.withdraw(&channel());
        assert!(readable(&next), "it is another one's");
        wakeups.withdraw(&next);
        assert!(!readable(&next));
        wakeups.offer(&next, AtReadable::Anything, packets);
        drop(wakeups);
        assert!(!readable(&next), "the device is gone");
    }

    #[test]
    fn new_sockets_replace_the_old_ones() {
        let packet = packet();
        let quiet = Waker::new().expect("a descriptor");
        let mut wakeups = PacketWakeups::default();
        let channel = channel();
        wakeups.offer(&channel, AtReadable::Anything, || {
            PollSet::over([packet.as_fd()])
        });
        wakeups.renew(|| PollSet::over([quiet.as_fd()]));
        assert!(!readable(&channel));
        quiet.wake();
        assert!(readable(&channel));
    }

    #[test]
    fn a_program_that_expects_a_notification_gets_one_for_packets_that_another_thread_takes() {
        let packet = packet();
        let packets = || PollSet::over([packet.as_fd()]);
        let mut wakeups = PacketWakeups::default();
        let channel = channel();
        channel.ring(7);
        assert_eq!(channel.answer(), Some(7));
        wakeups.offer(&channel, AtReadable::Notification, packets);
        assert!(readable(&channel) && wakeups.owe_notification());
        packet.clear();
        wakeups.note_taken();
        assert!(readable(&channel) && !wakeups.owe_notification());
        assert_eq!(channel.answer(), Some(7), "an extra one");
        assert!(!readable(&channel) && !wakeups.owe_notification());
    }

    #[test]
    fn a_look_of_the_program_itself_brings_the_extra_notification() {
        let packet = packet();
        let mut wakeups = PacketWakeups::default();
        let channel = channel();
        channel.ring(7);
        assert_eq!(channel.answer(), Some(7));
        let packets = || PollSet::over([packet.as_fd()]);
        wakeups.offer(&channel, AtReadable::Notification, packets);
        let look = |wakeups: &mut PacketWakeups| {
            channel.answer_after(|| {
                if wakeups.owe_notification() {
                    packet.clear();
                    wakeups.note_taken();
                }
            })
        };
        assert_eq!(look(&mut wakeups), Some(7));
        assert!(!readable(&channel), "it is taken at once");
        assert_eq!(
            look(&mut wakeups),
            None,
            "a program that drains sees the end"
        );
        wakeups.offer(&channel, AtReadable::Anything, packets);
        packet.wake();
        assert_eq!(look(&mut wakeups), None, "it has seen that, and goes on");
    }

    #[test]
    fn packets_that_are_taken_away_from_a_channel_leave_the_promised_notification() {
        let packet = packet();
        let packets = || PollSet::over([packet.as_fd()]);
        let mut wakeups = PacketWakeups::default();
        let (first, second) = (channel(), channel());
        first.ring(7);
        assert_eq!(first.answer(), Some(7));
        wakeups.offer(&first, AtReadable::Notification, packets);
        wakeups.offer(&second, AtReadable::Anything, packets);
        assert!(!wakeups.are_used());
        assert_eq!(first.answer(), Some(7));
        assert_eq!(first.answer(), None);
    }

    #[test]
    fn after_many_looks_in_vain_packets_wake_the_program_no_longer() {
        let packet = packet();
        let packets = || PollSet::over([packet.as_fd()]);
        let mut wakeups = PacketWakeups::default();
        let channel = channel();
        wakeups.offer(&channel, AtReadable::Anything, packets);
        let look = |wakeups: &mut PacketWakeups| {
            assert_eq!(channel.answer_after(|| ()), None);
            wakeups.note_look_in_vain(&channel);
        };
        (1..MAX_LOOKS_IN_VAIN).for_each(|_| look(&mut wakeups));
        channel.ring(7);
        assert_eq!(channel.answer(), Some(7), "which begins the count again");
        (1..MAX_LOOKS_IN_VAIN).for_each(|_| look(&mut wakeups));
        assert!(wakeups.are_used() && readable(&channel));
        look(&mut wakeups);
        assert!(!wakeups.are_used() && !readable(&channel));
    }

    #[test]
    fn packets_that_bring_nothing_many_times_wake_the_device_s_thread_again() {
        let packet = packet();
        let packets = || PollSet::over([packet.as_fd()]);
        let mut wakeups = PacketWakeups::default();
        let channel = channel();
        channel.ring(7);
        assert_eq!(channel.answer(), Some(7));
        wakeups.offer(&channel, AtReadable::Notification, packets);
        for _ in 0..MAX_LOOKS_IN_VAIN {
            assert!(wakeups.are_used());
            wakeups.note_taken();
            assert_eq!(channel.answer(), Some(7));
        }
        assert!(!wakeups.are_used());
    }
}
