//! Collects problems under the lane's lock. They are reported after the lock is released.

use engine::incident::{FailedSend, Path, RetriedSend};
use engine::{Incident, QueuePair, QueuePairType, State, Status, Transmit};
use net::socket::SendError;
use wire::{Gid, Qpn};

use super::LaneState;
use crate::diagnostics::{PeerLookup, Problem, Reported};

/// How many packets that the kernel refused are kept for one report. Many refusals have the same cause.
const MAX_UNSENDABLE: usize = 64;

impl LaneState {
    pub(super) fn note_unsent(&mut self, transmit: &Transmit, error: SendError) {
        self.statistics.send_errors += 1;
        if self.reported == Reported::Everything && self.problems.len() < MAX_UNSENDABLE {
            let queue_pair = self.host.device().queue_pair(transmit.queue_pair);
            self.problems.push(Problem::Unsent {
                queue_pair: transmit.queue_pair,
                is_datagram: queue_pair.is_some_and(|it| it.init().kind == QueuePairType::Ud),
                source: transmit.route.flow.source,
                error,
            });
        }
    }

    /// Whether there is a problem to report.
    pub(crate) fn has_problems(&self) -> bool {
        self.host.device().has_incidents()
            || self.cm_events.has_problems()
            || !self.problems.is_empty()
    }

    /// Takes the problems, with what this device knows about the peers.
    pub(crate) fn take_problems(&mut self) -> Vec<Problem> {
        let mut problems = std::mem::take(&mut self.problems);
        while let Some(incident) = self.host.device_mut().poll_incident() {
            let lookup = self.lookup_peer(&incident);
            problems.push(Problem::Incident(incident, lookup));
        }
        problems.append(&mut self.cm_events.take_problems());
        problems
    }

    /// What this device knows about a peer that did not respond. The peer may be a queue pair of this device.
    fn lookup_peer(&self, incident: &Incident) -> PeerLookup {
        let (Incident::SendFailed(FailedSend {
            queue_pair,
            path: Some(Path { peer, .. }),
            status: Status::RetriesExhausted,
            ..
        })
        | Incident::StillRetrying(RetriedSend {
            queue_pair,
            path: Some(Path { peer, .. }),
            ..
        })) = incident
        else {
            return PeerLookup::NotLocal;
        };
        if !self.host.device().gids().contains(&Gid::from(peer.address)) {
            return PeerLookup::NotLocal;
        }
        match self.host.device().queue_pair(peer.queue_pair) {
            Some(found) => lookup_of(found, *queue_pair),
            None if self.sockets.owns(peer.queue_pair) => PeerLookup::Missing,
            None => PeerLookup::NotLocal,
        }
    }
}

/// What a queue pair of this device says to another one that sends to it.
fn lookup_of(found: &QueuePair, sender: Qpn) -> PeerLookup {
    let other = found.attributes().destination.filter(|it| *it != sender);
    let receives = matches!(found.state(), State::ReadyToReceive | State::ReadyToSend);
    match other {
        Some(other) if receives && found.init().kind == QueuePairType::Rc => {
            PeerLookup::ConnectedTo(other)
        }
        _ => PeerLookup::Found(found.state()),
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use wire::{Flow, ROCE_PORT, Route};

    use super::*;
    use crate::Driver;
    use crate::options::OpenOptions;

    fn packet_of(address: IpAddr) -> Transmit {
        let flow = Flow {
            source: address,
            destination: address,
            source_port: ROCE_PORT,
            destination_port: ROCE_PORT,
        };
        Transmit {
            queue_pair: Qpn::GSI,
            route: Route::new(flow),
            segment_size: 256,
            has_icrc: true,
            destination: Qpn::GSI,
            shared_length: None,
        }
    }

    #[test]
    fn refused_packets_are_kept_for_a_report_up_to_a_limit() {
        let options = OpenOptions {
            explain: true,
            ..OpenOptions::default()
        };
        let driver = Driver::open("127.58.94.1", &options).expect("a loopback address");
        let transmit = packet_of(IpAddr::from([127, 58, 94, 1]));
        let mut state = driver.lane().lock();
        for _ in 0..=MAX_UNSENDABLE {
            state.note_unsent(&transmit, SendError::Full { sent: 0 });
        }
        assert_eq!(state.take_problems().len(), MAX_UNSENDABLE);
    }

    #[test]
    fn every_refused_packet_is_counted() {
        let driver = Driver::without_thread("127.58.94.12");
        let transmit = packet_of(IpAddr::from([127, 58, 94, 12]));
        let mut state = driver.lane().lock();
        for _ in 0..3 {
            state.note_unsent(&transmit, SendError::Full { sent: 0 });
        }
        assert_eq!(state.statistics.send_errors, 3);
    }
}
