//! Connection requests that arrive before a listener exists.
//!
//! Two programs often race: one connects while the other is about to listen. A kernel sends a
//! request slowly enough for the listener to win; this host sends it within microseconds. So a
//! request without a listener waits before it is rejected: long enough for a listener on a busy
//! machine, and shorter than the 1.5 seconds after which our sender retransmits it.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use cm::Recipient;
use wire::Route;

/// How long a request waits for a listener before it is rejected.
const LISTENER_TIMEOUT: Duration = Duration::from_secs(1);
/// The time between two look-ups of a request. A listener that comes is found this fast.
const LOOKUP_INTERVAL: Duration = Duration::from_millis(2);

/// How many messages may wait for a look-up. Any sender can fill this queue, so further messages
/// are dropped. Their senders retransmit them.
const MAX_UNRESOLVED: usize = 256;

/// How many requests may wait for a listener. Further ones are rejected at once.
const MAX_PENDING: usize = 64;

/// A management datagram whose owner is being looked up.
#[derive(Debug, Clone)]
pub struct Message {
    /// The addresses and IP fields of the packet.
    pub route: Route,
    /// The packet, from the BTH to the ICRC.
    pub packet: Vec<u8>,
    /// Which process the message is for.
    pub recipient: Recipient,
    /// When a request without a listener is rejected. `None` before its first look-up.
    deadline: Option<Instant>,
}

impl Message {
    pub(crate) fn new(route: Route, packet: &[u8], recipient: Recipient) -> Self {
        Self {
            route,
            packet: packet.to_vec(),
            recipient,
            deadline: None,
        }
    }
}

/// Messages whose owner must be looked up now or later.
#[derive(Default)]
pub(crate) struct Pending {
    unresolved: VecDeque<Message>,
    /// Requests for a service without a listener, by the time of their next look-up. Every request
    /// waits equally long, so the queue is sorted.
    waiting: VecDeque<(Instant, Message)>,
    /// How many messages were dropped because [`MAX_UNRESOLVED`] messages waited.
    pub(crate) dropped: u64,
}

impl Pending {
    /// Adds a message that has just arrived.
    pub(crate) fn add(&mut self, message: Message) {
        if self.unresolved.len() >= MAX_UNRESOLVED {
            self.dropped += 1;
            return;
        }
        self.unresolved.push_back(message);
    }

    /// The next message whose owner must be looked up now.
    pub(crate) fn poll(&mut self, now: Instant) -> Option<Message> {
        if let Some(message) = self.unresolved.pop_front() {
            return Some(message);
        }
        let (at, _) = self.waiting.front()?;
        if *at > now {
            return None;
        }
        self.waiting.pop_front().map(|(_, message)| message)
    }

    /// Keeps a request that waits for a listener. Returns it as `Err` if it has waited long enough
    /// or if [`MAX_PENDING`] requests wait.
    pub(crate) fn wait(&mut self, now: Instant, mut message: Message) -> Result<(), Message> {
        let deadline = *message.deadline.get_or_insert(now + LISTENER_TIMEOUT);
        if now >= deadline || self.waiting.len() >= MAX_PENDING {
            return Err(message);
        }
        self.waiting.push_back((now + LOOKUP_INTERVAL, message));
        Ok(())
    }

    /// When the next waiting request is looked up again. Messages that have just arrived are looked
    /// up at once and need no timer.
    pub(crate) fn next_lookup(&self) -> Option<Instant> {
        self.waiting.front().map(|(at, _)| *at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[expect(
        clippy::disallowed_methods,
        reason = "there is no other way to make the first instant"
    )]
    fn start() -> Instant {
        Instant::now()
    }

    fn request() -> Message {
        let localhost = [127, 0, 0, 1].into();
        let flow = wire::Flow {
            source: localhost,
            destination: localhost,
            source_port: 1,
            destination_port: wire::ROCE_PORT,
        };
        Message::new(Route::new(flow), b"REQ", Recipient::Everyone)
    }

    #[test]
    fn request_without_a_listener_waits_one_second_however_late_its_lookups_are() {
        let start = start();
        let at = |milliseconds| start + Duration::from_millis(milliseconds);
        for delay in [2, 7, 400] {
            let mut pending = Pending::default();
            let mut now = start;
            let mut message = request();
            while let Ok(()) = pending.wait(now, message) {
                assert_eq!(pending.next_lookup(), Some(now + LOOKUP_INTERVAL));
                now += Duration::from_millis(delay);
                message = pending.poll(now).expect("its time has come");
            }
            let late = at(1000 + delay);
            assert!(now >= at(1000) && now < late, "{:?}", now - start);
        }
    }

    #[test]
    fn request_beyond_the_limit_does_not_wait() {
        let now = start();
        let mut pending = Pending::default();
        for _ in 0..MAX_PENDING {
            pending.wait(now, request()).expect("room");
        }
        assert!(pending.wait(now, request()).is_err());
    }
}
