//! Lanes that answer each other, by their sequence numbers.

use std::collections::HashMap;

use wire::{Psn, Transport};

use crate::collect::Collection;
use crate::id::EndpointId;
use crate::lane::LaneId;
use crate::packet::{Marks, Packet, Role};

/// As many answers with the right numbers are no coincidence: two lanes need no more of them.
const ENOUGH: u32 = 16;

/// The last two lanes that had a request with some number.
type Askers = [Option<LaneId>; 2];

#[derive(Default)]
struct Ballot {
    askers: HashMap<(EndpointId, EndpointId, Psn), Askers>,
    votes: HashMap<(LaneId, LaneId), u32>,
    settled: Vec<bool>,
}

/// The pairs that most answers speak for, each lane in one pair at most.
pub(super) fn pairs(collection: &Collection) -> Vec<(LaneId, LaneId)> {
    let lanes = &collection.lanes.list;
    let mut ballot = Ballot {
        settled: lanes.iter().map(|lane| !is_open(lane)).collect(),
        ..Ballot::default()
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

fn is_open(lane: &crate::lane::Lane) -> bool {
    let answered = matches!(lane.transport, Transport::Rc | Transport::Xrc);
    answered && lane.dialogue.is_none()
}

impl Ballot {
    fn take(&mut self, lane: LaneId, (from, to): (EndpointId, EndpointId), packet: &Packet) {
        match packet.role {
            Role::Request => {
                let askers = self.askers.entry((from, to, packet.psn)).or_default();
                if askers[0] != Some(lane) {
                    *askers = [Some(lane), askers[0]];
                }
            }
            Role::Acknowledge | Role::Response | Role::NotReady => {
                if let Some(askers) = self.askers.get(&(to, from, packet.psn)) {
                    // One that talks with itself is the last possibility.
                    let others = askers.iter().flatten().find(|&&asker| asker != lane);
                    let asker = others.or(askers[0].as_ref()).copied();
                    asker.into_iter().for_each(|asker| self.vote(lane, asker));
                }
            }
            Role::Refuse | Role::Manage | Role::Congestion => {}
        }
    }

    fn vote(&mut self, lane: LaneId, asker: LaneId) {
        let pair = (lane.min(asker), lane.max(asker));
        let votes = self.votes.entry(pair).or_default();
        *votes += 1;
        if *votes >= ENOUGH {
            self.settled[lane] = true;
            self.settled[asker] = true;
        }
    }

    fn result(self) -> Vec<(LaneId, LaneId)> {
        let mut votes: Vec<_> = self.votes.into_iter().collect();
        votes.sort_by_key(|&(pair, votes)| (std::cmp::Reverse(votes), pair));
        let mut taken = vec![false; self.settled.len()];
        let mut pairs = Vec::new();
        for ((one, other), _) in votes {
            if !taken[one] && !taken[other] {
                taken[one] = true;
                taken[other] = true;
                pairs.push((one, other));
            }
        }
        pairs
    }
}
