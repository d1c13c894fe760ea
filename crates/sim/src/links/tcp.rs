//! A TCP sender and its receiver, packet by packet: what our senders are compared with, and what they share a link with.
//!
//! It has what decides the speed of a long transfer: selective acknowledgements, packets that count as lost when more than three
//! later ones have arrived, a timeout, and the control of congestion. There is no handshake and no delayed acknowledgement.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use super::bbr::Bbr;
use super::cubic::Cubic;

/// A packet counts as lost when one that was sent this many later has arrived.
const REORDERING: u64 = 3;

const MIN_TIMEOUT: Duration = Duration::from_millis(200);

/// The control of congestion.
#[derive(Debug)]
pub(super) enum Control {
    /// As Linux has by default.
    Cubic(Cubic),
    /// The first version of BBR.
    Bbr(Bbr),
}

/// What an acknowledgement tells.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sample {
    /// The time.
    pub(super) now: Duration,
    /// The round trip.
    pub(super) round_trip: Duration,
    /// How many packets arrived since the last acknowledgement.
    pub(super) newly: u64,
    /// How many packets arrived in all.
    pub(super) delivered: u64,
    /// How many had arrived when the acknowledged packet was sent.
    pub(super) delivered_before: u64,
    /// Packets per second over the last round trip.
    pub(super) rate: f64,
}

/// A packet of data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Data {
    /// Its place in the stream, in packets.
    pub(super) place: u64,
    /// How many packets were sent before it, repeated ones included.
    pub(super) number: u64,
}

/// An acknowledgement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Acknowledgement {
    /// The first place that has not arrived.
    pub(super) expected: u64,
    /// The latest arrivals.
    pub(super) latest: [Data; 4],
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    UnderWay,
    Lost,
    Arrived,
}

#[derive(Debug, Clone, Copy)]
struct Segment {
    fate: Fate,
    number: u64,
    sent_at: Duration,
    delivered: u64,
    delivered_at: Duration,
}

/// One connection.
pub(super) struct Tcp {
    control: Control,
    /// How many packets may be unacknowledged, as the application's buffer allows.
    limit: u64,
    oldest: u64,
    segments: VecDeque<Segment>,
    /// Transmissions in their order: number and place.
    transmissions: VecDeque<(u64, u64)>,
    lost: BTreeSet<u64>,
    under_way: u64,
    number: u64,
    newest_arrived: u64,
    delivered: u64,
    delivered_at: Duration,
    /// Losses of packets with smaller numbers belong to a loss that was counted.
    recovery_end: u64,
    smoothed: Option<Duration>,
    timeout_at: Option<Duration>,
    timeouts: u32,
    free_at: Duration,
    /// How many packets were sent again.
    pub(super) repeated: u64,
    expected: u64,
    ahead: BTreeSet<u64>,
    latest: [Data; 4],
}

impl Tcp {
    /// A connection that has not sent.
    pub(super) fn new(control: Control, limit: u64) -> Self {
        Self {
            control,
            limit,
            oldest: 0,
            segments: VecDeque::new(),
            transmissions: VecDeque::new(),
            lost: BTreeSet::new(),
            under_way: 0,
            number: 0,
            newest_arrived: 0,
            delivered: 0,
            delivered_at: Duration::ZERO,
            recovery_end: 0,
            smoothed: None,
            timeout_at: None,
            timeouts: 0,
            free_at: Duration::ZERO,
            repeated: 0,
            expected: 0,
            ahead: BTreeSet::new(),
            latest: [Data {
                place: 0,
                number: 0,
            }; 4],
        }
    }

    /// How many packets are acknowledged without a gap.
    pub(super) fn acknowledged(&self) -> u64 {
        self.oldest
    }

    /// The next packet, if one may be sent now.
    pub(super) fn next_packet(&mut self, now: Duration) -> Option<Data> {
        if self.under_way >= self.window() || now < self.free_at {
            return None;
        }
        let place = match self.lost.pop_first() {
            Some(place) => place,
            None if (self.segments.len() as u64) < self.limit => {
                self.oldest + self.segments.len() as u64
            }
            None => return None,
        };
        self.number += 1;
        self.under_way += 1;
        self.transmissions.push_back((self.number, place));
        if self.under_way == 1 {
            self.delivered_at = now;
        }
        let segment = Segment {
            fate: Fate::UnderWay,
            number: self.number,
            sent_at: now,
            delivered: self.delivered,
            delivered_at: self.delivered_at,
        };
        match self.segments.get_mut((place - self.oldest) as usize) {
            Some(old) => {
                self.repeated += 1;
                *old = segment;
            }
            None => self.segments.push_back(segment),
        }
        if let Some(pause) = self.pause() {
            self.free_at = self.free_at.max(now.saturating_sub(pause)) + pause;
        }
        self.timeout_at.get_or_insert(now + self.timeout());
        let number = self.number;
        Some(Data { place, number })
    }

    /// When it is to be asked again, if nothing arrives.
    pub(super) fn deadline(&self, now: Duration) -> Option<Duration> {
        let wants = self.under_way < self.window()
            && (!self.lost.is_empty() || (self.segments.len() as u64) < self.limit);
        let paced = (wants && self.free_at > now).then_some(self.free_at);
        paced.into_iter().chain(self.timeout_at).min()
    }

    /// Handles the timeout, if it is due.
    pub(super) fn handle_timeout(&mut self, now: Duration) {
        if self.timeout_at.is_none_or(|at| now < at) {
            return;
        }
        for (index, segment) in self.segments.iter_mut().enumerate() {
            if segment.fate == Fate::UnderWay {
                segment.fate = Fate::Lost;
                self.lost.insert(self.oldest + index as u64);
            }
        }
        self.transmissions.clear();
        self.under_way = 0;
        self.timeouts += 1;
        self.recovery_end = self.number;
        self.timeout_at = Some(now + self.timeout());
        match &mut self.control {
            Control::Cubic(cubic) => cubic.timed_out(),
            Control::Bbr(_) => {}
        }
    }

    /// The receiver's side: a packet arrives and is acknowledged.
    pub(super) fn receive(&mut self, data: Data) -> Acknowledgement {
        if data.place >= self.expected {
            self.ahead.insert(data.place);
        }
        while self.ahead.remove(&self.expected) {
            self.expected += 1;
        }
        self.latest.rotate_right(1);
        self.latest[0] = data;
        Acknowledgement {
            expected: self.expected,
            latest: self.latest,
        }
    }

    /// The sender's side: an acknowledgement arrives.
    pub(super) fn handle_acknowledgement(&mut self, now: Duration, told: &Acknowledgement) {
        let before = self.delivered;
        let mut newest: Option<Segment> = None;
        let mut arrived = |it: &mut Self, place: u64| {
            let Some(segment) = it.arrive(place) else {
                return;
            };
            if newest.is_none_or(|newest| newest.number < segment.number) {
                newest = Some(segment);
            }
        };
        for data in told.latest.iter().filter(|data| data.number > 0) {
            arrived(self, data.place);
        }
        while self.oldest < told.expected {
            arrived(self, self.oldest);
            self.segments.pop_front();
            self.oldest += 1;
        }
        let Some(newest) = newest else { return };
        self.newest_arrived = self.newest_arrived.max(newest.number);
        self.delivered_at = now;
        self.timeouts = 0;
        self.timeout_at = None;
        let round_trip = now - newest.sent_at;
        let smoothed = self.smoothed.unwrap_or(round_trip);
        self.smoothed = Some((smoothed * 7 + round_trip) / 8);
        self.find_losses(now);
        if self.under_way > 0 || !self.lost.is_empty() {
            self.timeout_at = Some(now + self.timeout());
        }
        let elapsed = now - newest.delivered_at;
        let sample = Sample {
            now,
            round_trip,
            newly: self.delivered - before,
            delivered: self.delivered,
            delivered_before: newest.delivered,
            rate: (self.delivered - newest.delivered) as f64 / elapsed.as_secs_f64(),
        };
        let recovers = self.newest_arrived <= self.recovery_end;
        match &mut self.control {
            Control::Cubic(cubic) if recovers => cubic.note_round_trip(round_trip),
            Control::Cubic(cubic) => cubic.acknowledged(&sample),
            Control::Bbr(bbr) => bbr.acknowledged(&sample, self.under_way),
        }
    }

    fn arrive(&mut self, place: u64) -> Option<Segment> {
        let index = place.checked_sub(self.oldest)? as usize;
        let segment = self.segments.get_mut(index)?;
        match std::mem::replace(&mut segment.fate, Fate::Arrived) {
            Fate::Arrived => return None,
            Fate::UnderWay => self.under_way -= 1,
            Fate::Lost => drop(self.lost.remove(&place)),
        }
        self.delivered += 1;
        Some(*segment)
    }

    fn find_losses(&mut self, now: Duration) {
        while let Some(&(number, place)) = self.transmissions.front() {
            if number + REORDERING >= self.newest_arrived {
                break;
            }
            self.transmissions.pop_front();
            let index = place.checked_sub(self.oldest).map(|it| it as usize);
            let Some(segment) = index.and_then(|index| self.segments.get_mut(index)) else {
                continue;
            };
            if segment.number != number || segment.fate != Fate::UnderWay {
                continue;
            }
            segment.fate = Fate::Lost;
            self.under_way -= 1;
            self.lost.insert(place);
            if number > self.recovery_end {
                self.recovery_end = self.number;
                match &mut self.control {
                    Control::Cubic(cubic) => cubic.lost(now),
                    Control::Bbr(_) => {}
                }
            }
        }
    }

    fn window(&self) -> u64 {
        match &self.control {
            Control::Cubic(cubic) => cubic.window(),
            Control::Bbr(bbr) => bbr.window(),
        }
    }

    /// The time between two packets.
    fn pause(&self) -> Option<Duration> {
        match &self.control {
            Control::Cubic(_) => None,
            Control::Bbr(bbr) => bbr.pause(),
        }
    }

    fn timeout(&self) -> Duration {
        let round_trip = self.smoothed.unwrap_or(Duration::from_secs(1));
        (2 * round_trip).max(MIN_TIMEOUT) * (1 << self.timeouts.min(6))
    }
}
