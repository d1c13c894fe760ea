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

impl PacketWakeups {
    /// Whether a channel has them.
    pub(super) fn are_used(&self) -> bool {
        self.channel.is_some()
    }

    /// A program takes it that the channel's descriptor is readable without a notification.
    pub(super) fn offer(
        &mut self,
        bell: &Arc<Bell>,
        packets: impl FnOnce() -> io::Result<PollSet>,
    ) {
        if self.refused || self.belong_to(bell) {
            return;
        }
        if self.bell().is_some() {
            self.refuse();
        } else {
            self.give(bell, packets);
        }
    }

    /// Without a descriptor for them, everything goes on through the device's thread.
    fn give(&mut self, bell: &Arc<Bell>, packets: impl FnOnce() -> io::Result<PollSet>) {
        self.take_back();
        if let Ok(packets) = packets()
            && bell.include_packets(&packets).is_ok()
        {
            self.channel = Some((Arc::downgrade(bell), packets));
        }
    }

    /// The sockets have changed.
    pub(super) fn renew(&mut self, packets: impl FnOnce() -> io::Result<PollSet>) {
        if let Some(bell) = self.bell() {
            self.give(&bell, packets);
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
        wakeups.offer(&first, packets);
        wakeups.offer(&first, packets);
        assert!(wakeups.are_used() && readable(&first));
        wakeups.offer(&second, packets);
        assert!(!readable(&first) && !readable(&second));
        wakeups.offer(&first, packets);
        assert!(!wakeups.are_used() && !readable(&first), "once is enough");
    }

    #[test]
    fn a_channel_follows_one_that_is_gone() {
        let packet = packet();
        let packets = || PollSet::over([packet.as_fd()]);
        let mut wakeups = PacketWakeups::default();
        wakeups.offer(&channel(), packets);
        let next = channel();
        wakeups.offer(&next, packets);
        assert!(readable(&next));
        wakeups.withdraw(&channel());
        assert!(readable(&next), "it is another one's");
        wakeups.withdraw(&next);
        assert!(!readable(&next));
        wakeups.offer(&next, packets);
        drop(wakeups);
        assert!(!readable(&next), "the device is gone");
    }

    #[test]
    fn new_sockets_replace_the_old_ones() {
        let packet = packet();
        let quiet = Waker::new().expect("a descriptor");
        let mut wakeups = PacketWakeups::default();
        let channel = channel();
        wakeups.offer(&channel, || PollSet::over([packet.as_fd()]));
        wakeups.renew(|| PollSet::over([quiet.as_fd()]));
        assert!(!readable(&channel));
        quiet.wake();
        assert!(readable(&channel));
    }
}
