//! Address resolution on the local network: an address that no machine has is reported as such.
//!
//! `rdma_resolve_addr` of the kernel waits until the next hop to the peer has answered, and fails if it does not. The kernel
//! keeps a table of its neighbours, and a datagram to one of them makes it ask. So a peer in the table is resolved at once. To
//! another one an empty datagram is sent, and the table is read until the neighbour answers, or the kernel reports to the
//! sender of the datagram that it does not.

use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use cm::{Failure, Id, Manager, State};
use net::socket::interface::{Neighbour, neighbour};

use crate::clock::earliest;
use crate::times::LONG;

/// How many times the first interval passes at most before the table is read again. A machine on a local network answers within that one. It
/// doubles, because a machine that has not answered for some time may not exist.
const LONGEST_INTERVAL: u32 = 64;

/// How many resolutions wait at a time. Others are resolved at once, and their requests time out.
const MAX_WAITING: usize = 64;

/// Services at this port ignore what they receive. Most machines have none, and their answer is ignored.
const DISCARD_PORT: u16 = 9;

/// Address resolutions that wait for a neighbour.
#[derive(Default)]
pub(crate) struct Neighbours(Vec<Resolution>);

struct Resolution {
    id: Id,
    source: IpAddr,
    peer: SocketAddr,
    probe: UdpSocket,
    interval: Duration,
    next: Instant,
}

impl Neighbours {
    /// Resolves an address, now or later.
    pub(crate) fn resolve(
        &mut self,
        now: Instant,
        manager: &mut Manager,
        id: Id,
        (source, mut peer): (IpAddr, SocketAddr),
    ) {
        peer.set_port(DISCARD_PORT);
        // One of another peer, which timed out.
        self.0.retain(|last| last.id != id);
        let waiting =
            (self.0.len() < MAX_WAITING).then(|| Resolution::begin(now, id, source, peer));
        match waiting.flatten() {
            Some(resolution) => self.0.push(resolution),
            None => manager.address_resolved(id, Ok(source)),
        }
    }

    /// Reads the table again for those whose time has come.
    pub(crate) fn check(&mut self, now: Instant, manager: &mut Manager) {
        self.0.retain_mut(|resolution| {
            if manager.state(resolution.id) != Some(State::AddressQuery) {
                return false;
            }
            match resolution.advance(now) {
                Some(result) => {
                    manager.address_resolved(resolution.id, result);
                    false
                }
                None => true,
            }
        });
    }

    /// When to read the table again.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        let times = self.0.iter().map(|it| Some(it.next));
        times.fold(None, earliest)
    }
}

impl Resolution {
    /// `None` if there is nothing to wait for, or nothing can be found out.
    fn begin(now: Instant, id: Id, source: IpAddr, peer: SocketAddr) -> Option<Self> {
        let state = || neighbour(source, peer).ok();
        if state()? == Neighbour::Resolved {
            return None;
        }
        let probe = probe(source, peer).ok()?;
        (state()? == Neighbour::Unresolved).then_some(Self {
            id,
            source,
            peer,
            probe,
            interval: LONG,
            next: now + LONG,
        })
    }

    fn advance(&mut self, now: Instant) -> Option<Result<IpAddr, Failure>> {
        if self.next > now {
            return None;
        }
        let unreachable = |error: io::Error| error.kind() == io::ErrorKind::HostUnreachable;
        if self.probe.recv(&mut [0]).is_err_and(unreachable) {
            // What Linux reports.
            return Some(Err(Failure::TimedOut));
        }
        match neighbour(self.source, self.peer) {
            Ok(Neighbour::Unresolved) => {
                self.interval = (LONGEST_INTERVAL * LONG).min(2 * self.interval);
                self.next = now + self.interval;
                None
            }
            _ => Some(Ok(self.source)),
        }
    }
}

/// Sends an empty datagram. Not to the port of RoCE: the Soft-RoCE of Linux 6.1 panics when it drops a datagram that is
/// shorter than a header.
fn probe(source: IpAddr, peer: SocketAddr) -> io::Result<UdpSocket> {
    let socket = UdpSocket::bind((source, 0))?;
    socket.connect(peer)?;
    socket.set_nonblocking(true)?;
    socket.send(&[])?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use cm::{Config, ServiceType};
    use wire::cm::PortSpace;

    use super::*;
    use crate::clock::now;

    fn new_id(manager: &mut Manager) -> Id {
        let service_type = ServiceType::of(PortSpace::Tcp);
        let id = manager.create_id(PortSpace::Tcp, service_type);
        id.expect("room")
    }

    /// One whose time has come.
    fn resolution(id: Id) -> Resolution {
        let loopback = IpAddr::from([127, 0, 0, 1]);
        Resolution {
            id,
            source: loopback,
            peer: ([192, 0, 2, 1], DISCARD_PORT).into(),
            probe: UdpSocket::bind((loopback, 0)).expect("a port"),
            interval: LONG,
            next: now(),
        }
    }

    #[test]
    fn a_lane_looks_at_resolutions_when_their_time_has_come() {
        let driver = crate::Driver::without_thread("127.58.94.12");
        let mut state = driver.lane().lock();
        // It resolves nothing any more.
        let id = new_id(state.manager());
        let waiting = resolution(id);
        let next = waiting.next;
        state.cm_events().neighbours().0.push(waiting);
        assert!(state.next_deadline().is_some_and(|at| at <= next));
        state.serve(now());
        assert_eq!(state.cm_events().neighbours_deadline(), None);
    }

    /// Otherwise the answer for the first peer would count for the second.
    #[test]
    fn next_resolution_of_an_id_replaces_the_last() {
        let mut manager = Manager::new(Config::new(1, [1; 32]));
        let id = new_id(&mut manager);
        let mut neighbours = Neighbours(vec![resolution(id)]);
        let loopback = IpAddr::from([127, 0, 0, 1]);
        let here = (loopback, (loopback, 7174).into());
        neighbours.resolve(now(), &mut manager, id, here);
        assert_eq!(neighbours.deadline(), None, "nothing waits");
    }
}
