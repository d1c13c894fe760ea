//! A link with a rate, a queue, a delay and losses.

use std::collections::VecDeque;
use std::time::Duration;

use crate::rng::Rng;

/// A link. Both directions are alike.
#[derive(Debug, Clone, Copy)]
pub struct Link {
    /// Megabits per second.
    pub rate: u64,
    /// The time from one end to the other.
    pub delay: Duration,
    /// How many packets wait; further ones are lost.
    pub queue: usize,
    /// One packet in so many is lost.
    pub loses_one_in: Option<usize>,
    /// One packet in so many is overtaken by the next three.
    pub delays_one_in: Option<usize>,
    /// How many packets wait when further ones get a congestion mark.
    pub marks_from: Option<usize>,
}

impl Link {
    /// How long the link needs for so many bytes.
    #[must_use]
    pub fn transit(&self, bytes: usize) -> Duration {
        Duration::from_nanos(8000 * bytes as u64 / self.rate)
    }
}

/// The arrival of a packet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Arrival<P> {
    /// When it arrives.
    pub(super) at: Duration,
    /// Whether it has a congestion mark.
    pub(super) is_marked: bool,
    /// What arrives.
    pub(super) packet: P,
}

/// One direction of a link, which all senders share.
pub(super) struct Direction<P> {
    link: Link,
    rng: Rng,
    idle_at: Duration,
    /// When each waiting packet leaves the queue.
    queue: VecDeque<Duration>,
    late: Option<(u32, Arrival<P>)>,
    /// The largest number of packets that waited.
    pub(super) longest_queue: usize,
}

impl<P> Direction<P> {
    /// An idle direction.
    pub(super) fn new(link: Link, rng: Rng) -> Self {
        Self {
            link,
            rng,
            idle_at: Duration::ZERO,
            queue: VecDeque::new(),
            late: None,
            longest_queue: 0,
        }
    }

    fn happens(&mut self, one_in: Option<usize>) -> bool {
        one_in.is_some_and(|one_in| self.rng.below(one_in) == 0)
    }

    /// The packets that arrive because of this one, which has so many bytes.
    pub(super) fn carry(&mut self, now: Duration, bytes: usize, packet: P) -> Vec<Arrival<P>> {
        while self.queue.front().is_some_and(|at| *at <= now) {
            self.queue.pop_front();
        }
        let waiting = self.queue.len();
        if self.happens(self.link.loses_one_in) || waiting >= self.link.queue {
            return Vec::new();
        }
        self.idle_at = self.idle_at.max(now) + self.link.transit(bytes);
        self.queue.push_back(self.idle_at);
        self.longest_queue = self.longest_queue.max(waiting + 1);
        let arrival = Arrival {
            at: self.idle_at + self.link.delay,
            is_marked: self.link.marks_from.is_some_and(|from| waiting >= from),
            packet,
        };
        if self.late.is_none() && self.happens(self.link.delays_one_in) {
            self.late = Some((3, arrival));
            return Vec::new();
        }
        let at = arrival.at;
        let mut arrivals = vec![arrival];
        if let Some((overtaken_by, _)) = &mut self.late {
            *overtaken_by -= 1;
        }
        let late = self.late.take_if(|(overtaken_by, _)| *overtaken_by == 0);
        arrivals.extend(late.map(|(_, late)| Arrival { at, ..late }));
        arrivals
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINK: Link = Link {
        rate: 8,
        delay: Duration::from_millis(1),
        queue: 3,
        loses_one_in: None,
        delays_one_in: None,
        marks_from: Some(2),
    };

    fn arrivals(link: Link, packets: u32) -> Vec<(u128, bool, u32)> {
        let mut direction = Direction::new(link, Rng::new(1));
        let carry = |packet| direction.carry(Duration::ZERO, 1000, packet);
        let arrivals = (0..packets).flat_map(carry);
        let shown = |it: Arrival<u32>| (it.at.as_millis(), it.is_marked, it.packet);
        arrivals.map(shown).collect()
    }

    #[test]
    fn packets_wait_for_each_other_and_a_full_queue_drops_them() {
        assert_eq!(
            arrivals(LINK, 5),
            [(2, false, 0), (3, false, 1), (4, true, 2)]
        );
    }

    #[test]
    fn late_packet_arrives_behind_the_next_three() {
        let link = Link {
            queue: 9,
            delays_one_in: Some(1),
            marks_from: None,
            ..LINK
        };
        let order = arrivals(link, 4).into_iter().map(|(_, _, packet)| packet);
        assert_eq!(order.collect::<Vec<_>>(), [1, 2, 3, 0]);
    }
}
