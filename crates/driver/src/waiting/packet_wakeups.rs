//! Packet wake-ups: a packet directly wakes the program that waits on the descriptor of a channel.
//!
//! A program that takes notifications without sleeping in the library waits on the descriptor. Two wake-ups are needed then: the
//! packet wakes the lane's thread, which wakes the program. One is enough if the sockets are part of the descriptor, and taking the
//! notification receives the packet. There are two kinds of programs:
//!
//! - One accepts a readable descriptor without a notification. The documentation of the Rust API says that this may happen. A
//!   C program shows that it accepts this by draining its non-blocking channel until EAGAIN.
//! - A C program takes one event for each wake-up from a non-blocking channel, and may treat EAGAIN as an error. When packets
//!   are received that may have woken it and bring no notification, by whichever thread, it gets an extra event for the queue of the
//!   last one. Extra events without a completion are part of the verbs API (`ibv_get_cq_event(3)`): a completion that is polled before its
//!   event is taken leaves one.
//!
//! A blocking channel never has the sockets. At most one channel of a lane has them, because each packet would wake the
//! threads of all channels. After 64 wake-ups in a row without a notification the lane's thread serves the sockets again.

use std::io;
use std::sync::{Arc, Weak};

use net::poll::PollSet;

use crate::waiting::notifier::Notifier;

/// The channel whose descriptor is readable while packets wait. The lane's thread then leaves the packets
/// to the program, as it does for a program that polls, and a packet wakes one thread instead of two.
///
/// At most one channel of a lane has packet wake-ups: with several, each packet would wake all of their threads.
#[derive(Debug, Default)]
pub(crate) struct PacketWakeups {
    channel: Option<(Weak<Notifier>, PollSet)>,
    /// Whether packet wake-ups proved useless for this program.
    disabled: bool,
}

/// After this many polls in a row without a notification, packets no longer wake the program: other threads
/// receive the packets, or the packets are not for this channel.
const MAX_EMPTY_POLLS: u32 = 64;

/// What a program expects when its descriptor is readable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AtReadable {
    /// A notification, because the program may treat EAGAIN as an error. It gets an extra one for packets
    /// that cause none.
    Notification,
    /// A notification or none.
    Anything,
}

impl PacketWakeups {
    /// Whether a channel has packet wake-ups.
    pub(crate) fn are_used(&self) -> bool {
        self.channel.is_some()
    }

    /// Enables packet wake-ups for a channel. `expected` is what its program expects at a readable descriptor.
    pub(crate) fn offer(
        &mut self,
        notifier: &Arc<Notifier>,
        expected: AtReadable,
        packets: impl FnOnce() -> io::Result<PollSet>,
    ) {
        if self.belong_to(notifier) && expected == AtReadable::Anything {
            notifier.end_promise();
        }
        if self.disabled || self.belong_to(notifier) {
            return;
        }
        if self.notifier().is_some() {
            self.disable();
        } else {
            self.enable(notifier, expected, packets);
        }
    }

    /// If the system has no descriptor left, notifications still come through the lane's thread.
    fn enable(
        &mut self,
        notifier: &Arc<Notifier>,
        expected: AtReadable,
        packets: impl FnOnce() -> io::Result<PollSet>,
    ) {
        self.remove();
        let promised = expected == AtReadable::Notification;
        if let Ok(packets) = packets()
            && notifier.include_packets(&packets, promised).is_ok()
        {
            self.channel = Some((Arc::downgrade(notifier), packets));
        }
    }

    /// Updates the set of sockets after it has changed.
    pub(crate) fn renew(&mut self, packets: impl FnOnce() -> io::Result<PollSet>) {
        if let Some(notifier) = self.notifier() {
            let expected = if notifier.has_promise() {
                AtReadable::Notification
            } else {
                AtReadable::Anything
            };
            self.enable(&notifier, expected, packets);
        }
    }

    /// Whether a program waits that must get a notification if packets wake it.
    pub(crate) fn has_promise_open(&self) -> bool {
        self.notifier()
            .is_some_and(|notifier| notifier.has_promise_open())
    }

    /// Reports that packets were received that may have woken the program, and their events dispatched.
    pub(crate) fn note_taken(&mut self) {
        if let Some(notifier) = self.notifier() {
            notifier.keep_promise();
            self.note_empty_poll(&notifier);
        }
    }

    /// Disables packet wake-ups after too many polls without a notification of this channel.
    pub(crate) fn note_empty_poll(&mut self, notifier: &Arc<Notifier>) {
        if self.belong_to(notifier) && notifier.empty_polls() >= MAX_EMPTY_POLLS {
            self.disable();
        }
    }

    /// Reports that a completion queue of the channel is destroyed. An extra notification must not name it.
    pub(crate) fn end_promise(&mut self, notifier: &Arc<Notifier>) {
        if self.belong_to(notifier) && notifier.has_promise() {
            self.remove();
            notifier.note_promised(false);
        }
    }

    /// Ends the packet wake-ups of a channel that another lane serves from now on. Its program may have been woken.
    pub(crate) fn leave(&mut self, notifier: &Arc<Notifier>) {
        if self.belong_to(notifier) {
            if notifier.has_promise_open() {
                notifier.keep_promise();
            }
            self.remove();
            // The other lane may promise it again.
            notifier.note_promised(false);
        }
    }

    /// The notifier of the channel with packet wake-ups, if it still exists.
    pub(crate) fn notifier(&self) -> Option<Arc<Notifier>> {
        self.channel
            .as_ref()
            .and_then(|(notifier, _)| notifier.upgrade())
    }

    /// Disables packet wake-ups for this lane permanently.
    pub(crate) fn disable(&mut self) {
        self.disabled = true;
        self.remove();
    }

    /// Ends the packet wake-ups of a channel whose program blocks when there is no notification.
    pub(crate) fn withdraw(&mut self, notifier: &Arc<Notifier>) {
        if self.belong_to(notifier) {
            self.remove();
        }
    }

    fn belong_to(&self, notifier: &Arc<Notifier>) -> bool {
        let channel = self.channel.as_ref();
        channel.is_some_and(|(its, _)| std::ptr::eq(its.as_ptr(), Arc::as_ptr(notifier)))
    }

    fn remove(&mut self) {
        if let Some((notifier, packets)) = self.channel.take()
            && let Some(notifier) = notifier.upgrade()
        {
            notifier.exclude_packets(&packets);
        }
    }
}

impl Drop for PacketWakeups {
    fn drop(&mut self) {
        self.remove();
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;
    use std::time::Duration;

    use net::poll::{Interest, Waker, wait};

    use super::*;

    fn channel() -> Arc<Notifier> {
        let notifier = Arc::new(Notifier::new().expect("a descriptor"));
        notifier.expose();
        notifier
    }

    /// A channel whose last notification was 7.
    fn notified_channel() -> Arc<Notifier> {
        let channel = channel();
        channel.notify(7);
        assert_eq!(channel.take(), Some(7));
        channel
    }

    fn readable(notifier: &Notifier) -> bool {
        let interest = Interest::readable(notifier.expose());
        let ready = wait(&[interest], Some(Duration::ZERO));
        !ready.expect("a descriptor").is_empty()
    }

    /// Whether a packet may have woken a program that must get a notification.
    fn owes(wakeups: &PacketWakeups) -> bool {
        let packets_wait = wakeups
            .channel
            .as_ref()
            .is_some_and(|(_, it)| it.is_ready());
        wakeups.has_promise_open() && packets_wait
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
        let channel = notified_channel();
        wakeups.offer(&channel, AtReadable::Notification, packets);
        assert!(readable(&channel) && owes(&wakeups));
        packet.clear();
        wakeups.note_taken();
        assert!(readable(&channel) && !owes(&wakeups));
        assert_eq!(channel.take(), Some(7), "an extra one");
        assert!(!readable(&channel) && !owes(&wakeups));
    }

    #[test]
    fn poll_by_the_program_adds_the_extra_notification() {
        let packet = packet();
        let mut wakeups = PacketWakeups::default();
        let channel = notified_channel();
        let packets = || PollSet::over([packet.as_fd()]);
        wakeups.offer(&channel, AtReadable::Notification, packets);
        let look = |wakeups: &mut PacketWakeups| {
            channel.take_after(|| {
                if owes(wakeups) {
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

    /// Anyone may send such a datagram. The lane's thread may read it before the program does.
    #[test]
    fn a_datagram_without_a_packet_brings_the_promised_notification() {
        let driver = crate::Driver::open("127.58.95.1", &crate::OpenOptions::default());
        let driver = driver.expect("a loopback address");
        let channel = channel();
        channel.notify(7);
        assert_eq!(driver.take_notification(&channel), Some(7));
        driver.promise_packet_wakeups(&channel, || true);
        // The device may have sent itself packets to check its steering.
        while readable(&channel) {
            assert_eq!(driver.take_notification(&channel), Some(7));
        }
        let anyone = std::net::UdpSocket::bind("127.58.95.2:0").expect("a loopback address");
        anyone
            .send_to(&[], "127.58.95.1:4791")
            .expect("the device listens");
        let interest = Interest::readable(channel.expose());
        let timeout = Duration::from_secs(20);
        let ready = wait(&[interest], Some(timeout)).expect("a descriptor");
        assert!(!ready.is_empty());
        assert_eq!(driver.take_notification(&channel), Some(7));
    }

    /// A program reads until EAGAIN, makes its channel blocking, and finds it readable.
    #[test]
    fn a_program_that_blocks_again_gets_a_notification_if_packets_may_have_woken_it() {
        let driver = crate::Driver::open("127.58.95.3", &crate::OpenOptions::default());
        let driver = driver.expect("a loopback address");
        let channel = channel();
        assert_eq!(channel.begin_blocking(), None, "it has always blocked");
        channel.notify(7);
        assert_eq!(driver.take_notification(&channel), Some(7));
        driver.offer_packet_wakeups(&channel);
        assert!(channel.has_packets());
        // A packet was here, and another thread has taken it.
        driver.withdraw_packet_wakeups(&channel);
        assert!(!channel.has_packets() && !channel.has_promise());
        assert_eq!(channel.begin_blocking(), Some(7), "an extra one");
        assert_eq!(channel.begin_blocking(), None, "once");
        driver.offer_packet_wakeups(&channel);
        assert!(!channel.has_packets(), "it may block again");
        channel.notify(8);
        assert_eq!(driver.take_notification(&channel), Some(8));
        driver.promise_packet_wakeups(&channel, || true);
        driver.offer_packet_wakeups(&channel);
        assert!(channel.has_packets() && channel.has_promise());
        assert_eq!(channel.begin_blocking(), None, "a promise is kept");
        driver.withdraw_packet_wakeups(&channel);
        assert!(!channel.has_packets() && !channel.has_promise());
    }

    #[test]
    fn a_promise_ends_with_the_queue_that_its_notification_would_name() {
        let packet = packet();
        let mut wakeups = PacketWakeups::default();
        let channel = notified_channel();
        wakeups.offer(&channel, AtReadable::Notification, || {
            PollSet::over([packet.as_fd()])
        });
        assert!(wakeups.are_used());
        channel.forget(7);
        wakeups.end_promise(&channel);
        assert!(!wakeups.are_used() && !readable(&channel));
    }

    #[test]
    fn a_program_that_packets_may_have_woken_is_notified_when_another_lane_takes_its_channel() {
        for has_notification in [false, true] {
            let packet = packet();
            let mut wakeups = PacketWakeups::default();
            let channel = notified_channel();
            wakeups.offer(&channel, AtReadable::Notification, || {
                PollSet::over([packet.as_fd()])
            });
            if has_notification {
                channel.notify(7);
            }
            // Another thread has taken the packet.
            packet.clear();
            wakeups.leave(&channel);
            assert!(!wakeups.are_used());
            assert_eq!(channel.take(), Some(7), "{has_notification}");
            assert_eq!(channel.take(), None, "once");
        }
    }

    #[test]
    fn a_destroyed_queue_gets_no_extra_notification() {
        let packet = packet();
        let packets = || PollSet::over([packet.as_fd()]);
        let mut wakeups = PacketWakeups::default();
        let channel = notified_channel();
        wakeups.offer(&channel, AtReadable::Notification, packets);
        wakeups.offer(&channel, AtReadable::Anything, packets);
        channel.forget(7);
        assert_eq!(channel.begin_blocking(), None);
        wakeups.withdraw(&channel);
        assert!(!channel.may_accept_anything());
    }

    #[test]
    fn packets_that_are_taken_away_from_a_channel_leave_the_promised_notification() {
        let packet = packet();
        let packets = || PollSet::over([packet.as_fd()]);
        let mut wakeups = PacketWakeups::default();
        let (first, second) = (notified_channel(), channel());
        wakeups.offer(&first, AtReadable::Notification, packets);
        wakeups.offer(&second, AtReadable::Anything, packets);
        assert!(!wakeups.are_used());
        assert_eq!(first.take(), Some(7));
        assert_eq!(first.take(), None);
    }

    #[test]
    fn packet_wakeups_end_after_many_polls_without_a_notification() {
        let packet = packet();
        let packets = || PollSet::over([packet.as_fd()]);
        let mut wakeups = PacketWakeups::default();
        let channel = channel();
        wakeups.offer(&channel, AtReadable::Anything, packets);
        let look = |wakeups: &mut PacketWakeups| {
            assert_eq!(channel.take_after(|| ()), None);
            wakeups.note_empty_poll(&channel);
        };
        (1..MAX_EMPTY_POLLS).for_each(|_| look(&mut wakeups));
        channel.notify(7);
        assert_eq!(channel.take(), Some(7), "which begins the count again");
        (1..MAX_EMPTY_POLLS).for_each(|_| look(&mut wakeups));
        assert!(wakeups.are_used() && readable(&channel));
        look(&mut wakeups);
        assert!(!wakeups.are_used() && !readable(&channel));
    }

    #[test]
    fn packets_that_bring_nothing_many_times_wake_the_device_s_thread_again() {
        let packet = packet();
        let packets = || PollSet::over([packet.as_fd()]);
        let mut wakeups = PacketWakeups::default();
        let channel = notified_channel();
        wakeups.offer(&channel, AtReadable::Notification, packets);
        for _ in 0..MAX_EMPTY_POLLS {
            assert!(wakeups.are_used());
            wakeups.note_taken();
            assert_eq!(channel.take(), Some(7));
        }
        assert!(!wakeups.are_used());
    }
}
