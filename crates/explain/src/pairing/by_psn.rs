//! Pairs tracks by their PSNs.
//!
//! PSNs alone do not distinguish queue pairs that all start at the same PSN. So each track with responses
//! is compared with every candidate track: a response matches a track that has sent a request with its
//! PSN. Each track is paired with the track that matches best.

use std::cmp::Reverse;
use std::collections::HashMap;

use wire::{Position, Psn, Transport};

use crate::collect::Collection;
use crate::packet::{Marks, Packet, Role};
use crate::track::{Track, TrackId};
use crate::typed_index::EndpointId;

/// A track with this many more matching responses than any other is the right one.
const ENOUGH: i64 = 16;

/// A response is compared with at most this many of the latest tracks, to bound the time.
const MAX_CANDIDATES: usize = 64;

/// How many matching responses one mismatch outweighs.
const MISFIT: i64 = 4;

/// How many PSNs a response may be behind the next request.
const LONGEST_WINDOW: i32 = 1 << 22;

/// The requests of a track.
#[derive(Clone, Copy)]
struct Requests {
    first: Psn,
    next: Psn,
    /// When the last one was sent.
    time: u64,
}

/// A track that may be answered by another.
struct Candidate {
    requester: TrackId,
    /// The PSN after the last answered request.
    answered: Psn,
    tally: Tally,
}

/// The evidence that two tracks are one connection.
#[derive(Clone, Copy, Default)]
struct Tally {
    fits: i64,
    misfits: i64,
    /// How many answered requests were retransmitted.
    retransmitted: u64,
    /// The time from requests to responses, in nanoseconds.
    delay: u64,
}

#[derive(Default)]
struct Comparison {
    requests: Vec<Option<Requests>>,
    /// Tracks with requests between two addresses, in the order of their first.
    requesters: HashMap<(EndpointId, EndpointId), Vec<TrackId>>,
    /// The candidates of each track.
    candidates: Vec<Vec<Candidate>>,
    /// The tracks that have this one among their candidates.
    responders: Vec<Vec<TrackId>>,
    settled: Vec<bool>,
    pairs: Vec<(TrackId, TrackId)>,
}

/// The pairs with the best evidence, each track in at most one pair.
pub(super) fn pairs(
    collection: &Collection,
    is_open: impl Fn(TrackId) -> bool,
) -> Vec<(TrackId, TrackId)> {
    let tracks = &collection.tracks.list;
    let count = tracks.len();
    let mut ballot = Comparison {
        requests: vec![None; count],
        candidates: (0..count).map(|_| Vec::new()).collect(),
        responders: vec![Vec::new(); count],
        settled: (0..count)
            .map(|id| !is_answered(&tracks[id]) || !is_open(id))
            .collect(),
        ..Comparison::default()
    };
    if ballot.settled.iter().all(|&settled| settled) {
        return Vec::new();
    }
    for packet in &collection.packets {
        let track = packet.connection.index();
        if !ballot.settled[track] && !packet.marks.contains(Marks::DAMAGED) {
            let way = (tracks[track].from, tracks[track].to);
            ballot.take(track, way, packet);
        }
    }
    ballot.result()
}

fn is_answered(track: &Track) -> bool {
    let answered = matches!(track.transport, Transport::Rc | Transport::Xrc);
    answered && track.exchange.is_none()
}

impl Comparison {
    fn take(&mut self, track: TrackId, (from, to): (EndpointId, EndpointId), packet: &Packet) {
        match packet.role {
            Role::Request => self.take_request(track, (from, to), packet),
            Role::Acknowledge | Role::Response | Role::NotReady | Role::Reject => {
                self.take_response(track, (to, from), packet);
            }
            Role::Manage | Role::Congestion => {}
        }
    }

    fn take_request(&mut self, track: TrackId, way: (EndpointId, EndpointId), packet: &Packet) {
        let Some(requests) = &mut self.requests[track] else {
            self.requests[track] = Some(Requests {
                first: packet.psn,
                next: packet.psn + 1,
                time: packet.time,
            });
            self.requesters.entry(way).or_default().push(track);
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
        for &responder in &self.responders[track] {
            let candidates = self.candidates[responder].iter_mut();
            for candidate in candidates.filter(|candidate| candidate.requester == track) {
                candidate.tally.retransmitted +=
                    u64::from(packet.psn.since(candidate.answered) < 0);
            }
        }
    }

    fn take_response(&mut self, track: TrackId, back: (EndpointId, EndpointId), packet: &Packet) {
        if !self.compare(track, packet) {
            self.add_candidates(track, back, packet);
        }
        self.settle(track);
    }

    /// Whether a response matches a request of any candidate.
    fn compare(&mut self, track: TrackId, packet: &Packet) -> bool {
        let Self {
            requests, settled, ..
        } = self;
        let mut fits = false;
        for candidate in &mut self.candidates[track] {
            let requests = requests[candidate.requester].as_ref();
            if let Some(requests) = requests.filter(|_| !settled[candidate.requester]) {
                fits |= candidate.compare(requests, packet);
            }
        }
        fits
    }

    fn add_candidates(&mut self, track: TrackId, back: (EndpointId, EndpointId), packet: &Packet) {
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
            let known = &mut self.candidates[track];
            let requests = self.requests[requester].expect("a track in this list has requests");
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
                self.responders[requester].push(track);
            }
        }
    }

    /// Accepts a pair that is far ahead of all others.
    fn settle(&mut self, track: TrackId) {
        let settled = &self.settled;
        let open = self.candidates[track].iter();
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
        self.pairs
            .push((track.min(requester), track.max(requester)));
        self.settled[track] = true;
        self.settled[requester] = true;
    }

    fn result(self) -> Vec<(TrackId, TrackId)> {
        let Self {
            settled, mut pairs, ..
        } = self;
        let mut tallies: HashMap<(TrackId, TrackId), Tally> = HashMap::new();
        for (track, candidates) in self.candidates.iter().enumerate() {
            for candidate in candidates {
                let requester = candidate.requester;
                if settled[track] || settled[requester] {
                    continue;
                }
                let requests = self.requests[requester].expect("a candidate has requests");
                let unanswered = candidate.answered.since(requests.next) < 0;
                let pair = (track.min(requester), track.max(requester));
                let tally = tallies.entry(pair).or_default();
                tally.add(&candidate.tally);
                tally.misfits += i64::from(unanswered);
            }
        }
        let mut tallies: Vec<_> = tallies.into_iter().collect();
        tallies.retain(|(_, tally)| tally.fits > 0);
        // Tracks are numbered in the order of their first packets, and a device answers in order.
        tallies.sort_by_key(|&((one, other), tally)| {
            // A queue pair that is connected to itself is the last possibility.
            let itself = one == other;
            let against = (tally.retransmitted, tally.magnitude_of_delay());
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
    fn place(&self, response: &Packet) -> Option<i32> {
        // A NAK may name a lost request, which is the next one.
        let last = i32::from(response.role == Role::Reject);
        let place = response.psn.since(self.first);
        (place >= 0 && response.psn.since(self.next) < last).then_some(place)
    }
}

impl Candidate {
    /// Whether a response matches the requests of this track.
    fn compare(&mut self, requests: &Requests, response: &Packet) -> bool {
        let is_more_data = response.role == Role::Response
            && matches!(
                response.opcode.position(),
                Position::Middle | Position::Last
            );
        let fits = requests.place(response).is_some();
        if fits && !is_more_data {
            self.tally.fits += 1;
            let delay = response.time.saturating_sub(requests.time);
            self.tally.delay = self.tally.delay.saturating_add(delay);
        }
        // A read uses more PSNs than its request packet.
        if !fits && !is_more_data {
            self.tally.misfits += 1;
        }
        let answers_it = !matches!(response.role, Role::Reject | Role::NotReady);
        if answers_it && (fits || is_more_data) && response.psn.since(self.answered) >= 0 {
            self.answered = response.psn + 1;
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
        self.retransmitted += other.retransmitted;
        self.delay = self.delay.saturating_add(other.delay);
    }

    /// Delays are compared by powers of eight.
    fn magnitude_of_delay(&self) -> u32 {
        let mean = self.delay / self.fits.max(1) as u64;
        (u64::BITS - mean.leading_zeros()) / 3
    }
}
