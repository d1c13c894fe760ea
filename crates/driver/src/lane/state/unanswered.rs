//! Connection requests without an answer: a peer whose machine has no process at the RoCE port has rejected them.
//!
//! A kernel rejects a request for a service that nobody has. Devices in user space exist only while a process runs, and the
//! machine itself reports that none does: by an ICMP error, which sockets of a device do not receive. So a request that is
//! retransmitted is accompanied by an empty datagram from a socket of its own.

use std::io;
use std::net::{IpAddr, UdpSocket};
use std::time::Instant;

use cm::{ExchangeState, Id, Unanswered};
use wire::ROCE_PORT;

use super::LaneState;
use crate::diagnostics::{Problem, UnansweredRequest};

/// How often the port must be closed, one retransmission after the other. So a server may start a few seconds after its client.
const REJECT_AFTER: u8 = 2;

/// How many requests are watched at a time. Others end when they time out.
const MAX_WATCHED: usize = 16;

/// Requests whose peers may not run.
#[derive(Default)]
pub(crate) struct UnansweredRequests(Vec<(Id, PortWatch)>);

/// Watches the RoCE port of a peer.
struct PortWatch {
    socket: UdpSocket,
    /// How many datagrams came back.
    closed: u8,
}

impl PortWatch {
    fn new(source: IpAddr, peer: IpAddr) -> io::Result<Self> {
        let socket = UdpSocket::bind((source, 0))?;
        socket.connect((peer, ROCE_PORT))?;
        socket.set_nonblocking(true)?;
        Ok(Self { socket, closed: 0 })
    }

    /// Takes the result of the last datagram, and sends another one.
    fn probe(&mut self) {
        let refused = |error: io::Error| error.kind() == io::ErrorKind::ConnectionRefused;
        if self.socket.recv(&mut [0]).is_err_and(refused) {
            self.closed += 1;
        }
        // An error that is left over concerns the last datagram.
        let _ = self.socket.send(&[]);
    }
}

impl UnansweredRequests {
    /// Notes a retransmission. Returns whether the peer's port is closed.
    fn note(&mut self, id: Id, source: IpAddr, peer: IpAddr) -> bool {
        let is_known = self.0.iter().any(|(watched, _)| *watched == id);
        if !is_known
            && self.0.len() < MAX_WATCHED
            && let Ok(watch) = PortWatch::new(source, peer)
        {
            self.0.push((id, watch));
        }
        let watch = self.0.iter_mut().find(|(watched, _)| *watched == id);
        watch.is_some_and(|(_, watch)| {
            watch.probe();
            watch.closed >= REJECT_AFTER
        })
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
            if retransmissions == 1
                && let Some(problems) = &mut self.unsendable
            {
                problems.push(Problem::Unanswered(UnansweredRequest { local, peer }));
            }
            if let (Some(local), Some(peer), None) = (local, peer, self.sockets.simulated())
                && self.unanswered.note(id, local.ip(), peer.ip())
            {
                self.host.manager().handle_closed_port(now, id);
            }
        }
        if !self.unanswered.0.is_empty() {
            let manager = self.host.manager();
            (self.unanswered.0).retain(|(id, _)| waits(manager.phase(*id)));
        }
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
    use super::*;

    const HERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

    #[test]
    fn a_port_is_closed_if_two_datagrams_come_back() {
        let peer = IpAddr::from([127, 58, 95, 1]);
        let mut watch = PortWatch::new(HERE, peer).unwrap();
        let mut closed = || {
            watch.probe();
            watch.closed
        };
        assert_eq!([closed(), closed(), closed()], [0, 1, 2]);
        let served = UdpSocket::bind((peer, ROCE_PORT)).unwrap();
        assert_eq!([closed(), closed(), closed()], [3, 3, 3]);
        drop(served);
    }
}
