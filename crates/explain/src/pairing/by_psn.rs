//! Pairs lanes by their PSNs.
//!
//! PSNs alone do not distinguish queue pairs that all start at the same PSN. So each lane with answers
//! is compared with every candidate lane: an answer matches a lane that has sent a request with its
//! PSN. Each lane is paired with the lane that matches best.

use std::cmp::Reverse;
use std::collections::HashMap;

use wire::{Position, Psn, Transport};

use crate::collect::Collection;
use crate::id::EndpointId;
use crate::lane::{Lane, LaneId};
use crate::packet::{Marks, Packet, Role};

/// A lane with this many more matching answers than any other is the right one.
const ENOUGH: i64 = 16;

/// An answer is compared with at most this many of the latest lanes, to bound the time.
const MAX_CANDIDATES: usize = 64;

/// How many matching answers one mismatch outweighs.
const MISFIT: i64 = 4;

/// How many PSNs an answer may be behind the next request.
const LONGEST_WINDOW: i32 = 1 << 22;

/// The requests of a lane.
#[derive(Clone, Copy)]
struct Requests {
    first: Psn,
    next: Psn,
    /// When the last one was sent.
    time: u64,
}

/// A lane that may be answered by another.
struct Candidate {
    requester: LaneId,
    /// The PSN after the last answered request.
    answered: Psn,
    tally: Tally,
}

/// The evidence that two lanes are one connection.
#[derive(Clone, Copy, Default)]
struct Tally {
    fits: i64,
    misfits: i64,
    /// How many answered requests were retransmitted.
    repeated: u64,
    /// The time from requests to answers, in nanoseconds.
    delay: u64,
}

#[derive(Default)]
struct Comparison {
    requests: Vec<Option<Requests>>,
    /// Lanes with requests between two addresses, in the order of their first.
    requesters: HashMap<(EndpointId, EndpointId), Vec<LaneId>>,
    /// The candidates of each lane.
    candidates: Vec<Vec<Candidate>>,
    /// The lanes that have this one among their candidates.
    answerers: Vec<Vec<LaneId>>,
    settled: Vec<bool>,
    pairs: Vec<(LaneId, LaneId)>,
}

/// The pairs with the best evidence, each lane in at most one pair.
pub(super) fn pairs(
    collection: &Collection,
    is_open: impl Fn(LaneId) -> bool,
) -> Vec<(LaneId, LaneId)> {
    let lanes = &collection.lanes.list;
    let count = lanes.len();
    let mut ballot = Comparison {
        requests: vec![None; count],
        candidates: (0..count).map(|_| Vec::new()).collect(),
        answerers: vec![Vec::new(); count],
        settled: (0..count)
            .map(|id| !is_answered(&lanes[id]) || !is_open(id))
            .collect(),
        ..Comparison::default()
    };
    if ballot.settled.iter().all(|&settled| settled) {
        return Vec::new();
    }
    for packet in &collection.packets {
        let lane = packet.connection.index();
        if !ballot.settled[lane] && !packet.marks.contains(Marks::DAMAGED) {
            let way = (lanes[lane].from, lanes[lane].to);
            ballot.take(lane, way, packet);
        }
    }
    ballot.result()
}

fn is_answered(lane: &Lane) -> bool {
    let answered = matches!(lane.transport, Transport::Rc | Transport::Xrc);
    answered && lane.exchange.is_none()
}

impl Comparison {
    fn take(&mut self, lane: LaneId, (from, to): (EndpointId, EndpointId), packet: &Packet) {
        match packet.role {
            Role::Request => self.take_request(lane, (from, to), packet),
            Role::Acknowledge | Role::Response | Role::NotReady | Role::Reject => {
                self.take_answer(lane, (to, from), packet);
            }
            Role::Manage | Role::Congestion => {}
        }
    }

    fn take_request(&mut self, lane: LaneId, way: (EndpointId, EndpointId), packet: &Packet) {
        let Some(requests) = &mut self.requests[lane] else {
            self.requests[lane] = Some(Requests {
                first: packet.psn,
                next: packet.psn + 1,
                time: packet.time,
            });
            self.requesters.entry(way).or_default().push(lane);
            return;
        };
        requests.time = packet.time;
        if packet.psn.since(requests.next) >= 0 {
            requests.next = packet.psn + 1;
            if requests.next.since(requests.first) > LONGEST_WINDOW {
                requests.first = requests.next - LONGEST_WINDOW as u32;
            }
            return;
        }
        for &answerer in &self.answerers[lane] {
            let candidates = self.candidates[answerer].iter_mut();
            for candidate in candidates.filter(|candidate| candidate.requester == lane) {
                candidate.tally.repeated += u64::from(packet.psn.since(candidate.answered) < 0);
            }
        }
    }

    fn take_answer(&mut self, lane: LaneId, back: (EndpointId, EndpointId), packet: &Packet) {
        if !self.compare(lane, packet) {
            self.add_candidates(lane, back, packet);
        }
        self.settle(lane);
    }

    /// Whether an answer matches a request of any candidate.
    fn compare(&mut self, lane: LaneId, packet: &Packet) -> bool {
        let Self {
            requests, settled, ..
        } = self;
        let mut fits = false;
        for candidate in &mut self.candidates[lane] {
            let requests = requests[candidate.requester].as_ref();
            if let Some(requests) = requests.filter(|_| !settled[candidate.requester]) {
                fits |= candidate.compare(requests, packet);
            }
        }
        fits
    }

    fn add_candidates(&mut self, lane: LaneId, back: (EndpointId, EndpointId), packet: &Packet) {
        let Some(requesters) = self.requesters.get_mut(&back) else {
            return;
        };
        let settled = &self.settled;
        let recent = requesters.iter().rev().take(MAX_CANDIDATES);
        if recent.clone().any(|&requester| settled[requester]) {
            requesters.retain(|&requester| !settled[requester]);
        }
        let recent = requesters.iter().rev().take(MAX_CANDIDATES);
        for &requester in recent {
            let known = &mut self.candidates[lane];
            let requests = self.requests[requester].expect("a lane in this list has requests");
            let is_new = known
                .iter()
                .all(|candidate| candidate.requester != requester);
            if known.len() < MAX_CANDIDATES && is_new && requests.place(packet).is_some() {
                let mut candidate = Candidate {
                    requester,
                    answered: requests.first,
                    tally: Tally::default(),
                };
                candidate.compare(&requests, packet);
                known.push(candidate);
                self.answerers[requester].push(lane);
            }
        }
    }

    /// Accepts a pair that is far ahead of all others.
    fn settle(&mut self, lane: LaneId) {
        let settled = &self.settled;
        let open = self.candidates[lane].iter();
        let open = open.filter(|candidate| !settled[candidate.requester]);
        let mut best: Option<&Candidate> = None;
        let mut second = 0;
        for candidate in open {
            let score = candidate.tally.score();
            match best {
                Some(best) if best.tally.score() >= score => second = second.max(score),
                _ => {
                    second = best.map_or(0, |best| best.tally.score()).max(second);
                    best = Some(candidate);
                }
            }
        }
        let Some(best) = best.filter(|best| best.tally.score() - second >= ENOUGH) else {
            return;
        };
        let requester = best.requester;
        self.pairs.push((lane.min(requester), lane.max(requester)));
        self.settled[lane] = true;
        self.settled[requester] = true;
    }

    fn result(self) -> Vec<(LaneId, LaneId)> {
        let Self {
            settled, mut pairs, ..
        } = self;
        let mut tallies: HashMap<(LaneId, LaneId), Tally> = HashMap::new();
        for (lane, candidates) in self.candidates.iter().enumerate() {
            for candidate in candidates {
                let requester = candidate.requester;
                if settled[lane] || settled[requester] {
                    continue;
                }
                let requests = self.requests[requester].expect("a candidate has requests");
                let unanswered = candidate.answered.since(requests.next) < 0;
                let pair = (lane.min(requester), lane.max(requester));
                let tally = tallies.entry(pair).or_default();
                tally.add(&candidate.tally);
                tally.misfits += i64::from(unanswered);
            }
        }
        let mut tallies: Vec<_> = tallies.into_iter().collect();
        tallies.retain(|(_, tally)| tally.fits > 0);
        // Lanes are numbered in the order of their first packets, and a device answers in order.
        tallies.sort_by_key(|&((one, other), tally)| {
            // A queue pair that is connected to itself is the last possibility.
            let itself = one == other;
            let against = (tally.repeated, tally.magnitude_of_delay());
            (Reverse(tally.score()), itself, against, one, other)
        });
        let mut taken = settled;
        for ((one, other), _) in tallies {
            if !taken[one] && !taken[other] {
                taken[one] = true;
                taken[other] = true;
                pairs.push((one, other));
            }
        }
        pairs
    }
}

impl Requests {
    /// The distance from the first request to the one that a packet answers; none if there is none.
    fn place(&self, answer: &Packet) -> Option<i32> {
        // A NAK may name a lost request, which is the next one.
        let last = i32::from(answer.role == Role::Reject);
        let place = answer.psn.since(self.first);
        (place >= 0 && answer.psn.since(self.next) < last).then_some(place)
    }
}

impl Candidate {
    /// Whether an answer matches the requests of this lane.
    fn compare(&mut self, requests: &Requests, answer: &Packet) -> bool {
        let is_more_data = answer.role == Role::Response
            && matches!(answer.opcode.position(), Position::Middle | Position::Last);
        let fits = requests.place(answer).is_some();
        if fits && !is_more_data {
            self.tally.fits += 1;
            let delay = answer.time.saturating_sub(requests.time);
            self.tally.delay = self.tally.delay.saturating_add(delay);
        }
        // A read uses more PSNs than its request packet.
        if !fits && !is_more_data {
            self.tally.misfits += 1;
        }
        let answers_it = !matches!(answer.role, Role::Reject | Role::NotReady);
        if answers_it && (fits || is_more_data) && answer.psn.since(self.answered) >= 0 {
            self.answered = answer.psn + 1;
        }
        fits || is_more_data
    }
}

impl Tally {
    fn score(&self) -> i64 {
        self.fits - MISFIT * self.misfits
    }

    fn add(&mut self, other: &Tally) {
        self.fits += other.fits;
        self.misfits += other.misfits;
        self.repeated += other.repeated;
        self.delay = self.delay.saturating_add(other.delay);
    }

    /// Delays are compared by powers of eight.
    fn magnitude_of_delay(&self) -> u32 {
        let mean = self.delay / self.fits.max(1) as u64;
        (u64::BITS - mean.leading_zeros()) / 3
    }
}
