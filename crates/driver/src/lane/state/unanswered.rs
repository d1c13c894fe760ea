//! Connection requests without an answer: a machine where no process serves the RoCE port has rejected them.
//!
//! A kernel rejects a request for a service that nobody has. Devices in user space exist only while a process runs, and the
//! machine itself reports that none does: by an ICMP error, which sockets of a device do not receive. So when a request
//! has been retransmitted several times, a datagram that every device drops follows it from a socket of its own.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use cm::{ExchangeState, Id, Unanswered};
use wire::ROCE_PORT;

use super::LaneState;
use crate::clock::earliest;
use crate::diagnostics::{Problem, Reported, UnansweredRequest};
use crate::probe_datagram::PROBE_DATAGRAM;
use crate::times::{ANSWER_TIMEOUT, LONG, REPORT_INTERVAL};

/// How often a request is retransmitted before its peer's port is probed. So a server may start six seconds after its client.
const RETRANSMISSIONS_BEFORE_PROBE: u8 = 3;

/// How long after the request a probe follows. If no process receives the probe, none has received the request.
const PROBE_DELAY: Duration = LONG.saturating_mul(20);

/// How long to wait for the next attempt: a machine reports one closed port each second to each peer, and a request may have used
/// that up.
const NEXT_ATTEMPT: Duration = REPORT_INTERVAL.saturating_add(ANSWER_TIMEOUT.saturating_mul(4));

/// How often a port is probed after one request. Without a result, the request is repeated until it times out. After so many
/// probes that neither an answer nor an error followed, the peer is silent.
const MAX_ATTEMPTS: u8 = 3;

/// How many ports are watched at a time. Requests to others end when they time out.
const MAX_WATCHED: usize = 64;

/// Requests whose peers may not run.
#[derive(Default)]
pub(crate) struct UnansweredRequests(Vec<PortWatch>);

/// Watches the RoCE port of a peer.
struct PortWatch {
    path: (SocketAddr, SocketAddr),
    socket: UdpSocket,
    /// The requests to it, and when each was last sent.
    requests: Vec<(Id, Instant)>,
    step: Step,
    attempts: u8,
    /// Probes without a result, since the first one.
    probes_in_vain: u8,
}

/// What a step of a watch found out.
#[derive(Debug, PartialEq, Eq)]
enum Found {
    Nothing,
    /// The port is closed: nobody has received these requests.
    Closed(Vec<Id>),
    /// The peer is silent. Found once.
    Silence,
}

#[derive(Clone, Copy)]
enum Step {
    /// Wait for the next retransmission.
    Wait,
    ProbeAt(Instant),
    /// When to look for the result, and when the probe was sent.
    LookAt(Instant, Instant),
}

impl PortWatch {
    fn new(path: (SocketAddr, SocketAddr)) -> io::Result<Self> {
        let socket = UdpSocket::bind(path.0)?;
        socket.connect(path.1)?;
        socket.set_nonblocking(true)?;
        Ok(Self {
            path,
            socket,
            requests: Vec::new(),
            step: Step::Wait,
            attempts: 0,
            probes_in_vain: 0,
        })
    }

    fn note_request(&mut self, now: Instant, id: Id) {
        self.requests.retain(|(known, _)| *known != id);
        self.requests.push((id, now));
        self.attempts = 0;
        if matches!(self.step, Step::Wait) {
            self.step = Step::ProbeAt(now + PROBE_DELAY);
        }
    }

    fn deadline(&self) -> Option<Instant> {
        match self.step {
            Step::Wait => None,
            Step::ProbeAt(at) | Step::LookAt(at, _) => Some(at),
        }
    }

    /// Does what is due.
    fn advance(&mut self, now: Instant) -> Found {
        match self.step {
            Step::ProbeAt(at) if at <= now => {
                self.attempts += 1;
                // An error of an earlier probe would be reported instead of sending this one.
                let _ = self.is_refused();
                let _ = self.socket.send(&PROBE_DATAGRAM);
                self.step = Step::LookAt(now + ANSWER_TIMEOUT, now);
                Found::Nothing
            }
            Step::LookAt(at, sent) if at <= now => self.look(now, sent),
            _ => Found::Nothing,
        }
    }

    fn look(&mut self, now: Instant, sent: Instant) -> Found {
        let is_refused = self.is_refused();
        let is_before = |(_, at): &mut (Id, Instant)| is_refused && *at + PROBE_DELAY <= sent;
        let refused: Vec<_> = self.requests.extract_if(.., is_before).collect();
        self.step = if self.requests.is_empty() || self.attempts >= MAX_ATTEMPTS {
            Step::Wait
        } else {
            Step::ProbeAt(now + NEXT_ATTEMPT)
        };
        if is_refused {
            return Found::Closed(refused.into_iter().map(|(id, _)| id).collect());
        }
        self.probes_in_vain = self.probes_in_vain.saturating_add(1);
        if self.probes_in_vain == MAX_ATTEMPTS {
            Found::Silence
        } else {
            Found::Nothing
        }
    }

    fn is_refused(&self) -> bool {
        let refused = |error: io::Error| error.kind() == io::ErrorKind::ConnectionRefused;
        self.socket.recv(&mut [0]).is_err_and(refused)
    }
}

impl UnansweredRequests {
    fn note(&mut self, now: Instant, id: Id, mut local: SocketAddr, mut peer: SocketAddr) {
        local.set_port(0);
        peer.set_port(ROCE_PORT);
        let path = (local, peer);
        if !self.0.iter().any(|watch| watch.path == path)
            && self.0.len() < MAX_WATCHED
            && let Ok(watch) = PortWatch::new(path)
        {
            self.0.push(watch);
        }
        if let Some(watch) = self.0.iter_mut().find(|watch| watch.path == path) {
            watch.note_request(now, id);
        }
    }

    /// When something is to be done.
    pub(super) fn deadline(&self) -> Option<Instant> {
        let deadlines = self.0.iter().map(PortWatch::deadline);
        deadlines.fold(None, earliest)
    }
}

impl LaneState {
    /// Rejects requests to machines where no process serves the RoCE port.
    pub(super) fn check_unanswered(&mut self, now: Instant) {
        while let Some(Unanswered {
            id,
            retransmissions,
        }) = self.host.manager().poll_unanswered()
        {
            let manager = self.host.manager();
            let (local, peer) = (manager.local_address(id), manager.peer_address(id));
            if retransmissions == 1 && self.reported == Reported::Everything {
                let request = UnansweredRequest { local, peer };
                self.problems.push(Problem::Unanswered(request));
            }
            if let (Some(local), Some(peer)) = (local, peer)
                && self.sockets.is_real()
                && retransmissions >= RETRANSMISSIONS_BEFORE_PROBE
            {
                self.unanswered.note(now, id, local, peer);
            }
        }
        if !self.unanswered.0.is_empty() {
            self.advance_watches(now);
        }
    }

    fn advance_watches(&mut self, now: Instant) {
        let manager = self.host.manager();
        self.unanswered.0.retain_mut(|watch| {
            (watch.requests).retain(|(id, _)| waits(manager.phase(*id)));
            if watch.requests.is_empty() {
                return false;
            }
            match watch.advance(now) {
                Found::Nothing => {}
                Found::Closed(requests) => {
                    for id in requests {
                        manager.handle_closed_port(now, id);
                    }
                }
                Found::Silence if self.reported == Reported::SilentPeers => {
                    self.problems.push(Problem::SilentPeer(watch.path));
                }
                // The explanation of a request without an answer has said more.
                Found::Silence => {}
            }
            !watch.requests.is_empty()
        });
    }
}

fn waits(phase: Option<ExchangeState>) -> bool {
    matches!(
        phase,
        Some(ExchangeState::RequestSent | ExchangeState::ServiceRequestSent)
    )
}

#[cfg(test)]
mod tests {
    use cm::ServiceType;
    use wire::cm::PortSpace;

    use super::*;
    use crate::Driver;
    use crate::clock::now;

    fn ids() -> [Id; 2] {
        let driver = Driver::without_thread("127.58.95.9");
        let mut state = driver.lane().lock();
        [(); 2].map(|()| {
            let manager = state.manager();
            let id = manager.create_id(PortSpace::Tcp, ServiceType::ReliableConnection);
            id.expect("room")
        })
    }

    fn watch(peer: &str) -> PortWatch {
        let peer = SocketAddr::new(peer.parse().unwrap(), ROCE_PORT);
        PortWatch::new(("127.0.0.1:0".parse().unwrap(), peer)).unwrap()
    }

    #[test]
    fn requests_before_the_probe_of_a_closed_port_are_rejected_and_later_ones_are_not() {
        let [early, late] = ids();
        let mut watch = watch("127.58.95.1");
        let begin = now();
        watch.note_request(begin, early);
        assert_eq!(watch.advance(begin), Found::Nothing);
        let probe = begin + PROBE_DELAY;
        assert_eq!(watch.deadline(), Some(probe));
        assert_eq!(watch.advance(probe), Found::Nothing);
        watch.note_request(probe, late);
        let refused = watch.advance(probe + ANSWER_TIMEOUT);
        assert_eq!(refused, Found::Closed(vec![early]));
        let again = probe + ANSWER_TIMEOUT + NEXT_ATTEMPT;
        assert_eq!(watch.deadline(), Some(again));
        assert_eq!(watch.advance(again), Found::Nothing);
        let refused = watch.advance(again + ANSWER_TIMEOUT);
        assert_eq!(refused, Found::Closed(vec![late]));
        assert_eq!(watch.deadline(), None);
    }

    #[test]
    fn a_limited_number_of_ports_is_watched() {
        let [id, _] = ids();
        let mut requests = UnansweredRequests::default();
        let local = "127.0.0.1:0".parse().unwrap();
        for host in 0..=MAX_WATCHED {
            let peer = SocketAddr::from(([127, 58, 96, host as u8], 7471));
            requests.note(now(), id, local, peer);
            requests.note(now(), id, local, peer);
        }
        assert_eq!(requests.0.len(), MAX_WATCHED);
        assert!(requests.0.iter().all(|watch| watch.requests.len() == 1));
    }

    #[test]
    fn a_port_that_a_process_serves_is_silent_once_and_its_requests_are_left_alone() {
        let [id, _] = ids();
        let mut watch = watch("127.58.95.2");
        // Nobody serves it, and then somebody does.
        let _ = watch.socket.send(&PROBE_DATAGRAM);
        let _served = UdpSocket::bind(watch.path.1).unwrap();
        for finds_silence in [true, false] {
            watch.note_request(now(), id);
            let mut found = Vec::new();
            while let Some(at) = watch.deadline() {
                found.push(watch.advance(at));
            }
            assert_eq!(found.len(), 2 * usize::from(MAX_ATTEMPTS));
            let last = found.pop().unwrap();
            assert_eq!(last == Found::Silence, finds_silence);
            assert!(found.iter().all(|found| *found == Found::Nothing));
        }
        assert_eq!(watch.requests.len(), 1);
    }
}
