//! Probes the RoCE ports of peers that do not respond.

use std::io;
use std::net::{IpAddr, UdpSocket};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use wire::ROCE_PORT;

use crate::clock;
use crate::probe_datagram::PROBE_DATAGRAM;
use crate::times::{ANSWER_TIMEOUT, REPORT_INTERVAL};

/// What a probe says about a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PortState {
    /// The machine exists, and no process serves the port.
    Closed,
    /// There is no such machine, or no route to it: the error number.
    Unreachable(i32),
}

/// Probes ports for one lane of a device, one at a time and at most one per [`REPORT_INTERVAL`]. The thread that reports a problem waits for the
/// probe, and it may be the device's thread. So probes take at most a twentieth of its time, however many peers fall silent.
#[derive(Debug, Default)]
pub(super) struct PortProbe(Mutex<Option<LastProbe>>);

#[derive(Debug)]
struct LastProbe {
    begun: Instant,
    source: IpAddr,
    address: IpAddr,
    /// `None` while the probe runs, and if no ICMP error came back.
    state: Option<PortState>,
}

impl PortProbe {
    /// The state of the RoCE port at an address. `None` if nothing is known: no ICMP error came back, or the
    /// port was not probed, because another one was a moment ago.
    pub(super) fn port_state(&self, source: IpAddr, address: IpAddr) -> Option<PortState> {
        self.state_with(clock::now(), source, address, || probe(source, address))
    }

    fn state_with(
        &self,
        now: Instant,
        source: IpAddr,
        address: IpAddr,
        probe: impl FnOnce() -> Option<PortState>,
    ) -> Option<PortState> {
        let mut last = self.lock();
        if let Some(last) = &*last
            && now.saturating_duration_since(last.begun) < REPORT_INTERVAL
        {
            let is_same = (last.source, last.address) == (source, address);
            return last.state.filter(|_| is_same);
        }
        *last = Some(LastProbe {
            begun: now,
            source,
            address,
            state: None,
        });
        drop(last);
        let state = probe();
        if let Some(last) = &mut *self.lock()
            && last.begun == now
        {
            last.state = state;
        }
        state
    }

    fn lock(&self) -> MutexGuard<'_, Option<LastProbe>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Sends a datagram that every RoCE device drops. Returns `None` if no ICMP error comes back.
fn probe(source: IpAddr, address: IpAddr) -> Option<PortState> {
    let probed = UdpSocket::bind((source, 0)).and_then(|socket| {
        socket.connect((address, ROCE_PORT))?;
        socket.set_read_timeout(Some(ANSWER_TIMEOUT))?;
        socket.send(&PROBE_DATAGRAM)?;
        socket.recv(&mut [0])
    });
    let error = probed.err()?;
    match error.kind() {
        io::ErrorKind::ConnectionRefused => Some(PortState::Closed),
        io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable => {
            error.raw_os_error().map(PortState::Unreachable)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const SOURCE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);
    const UNREACHABLE: PortState = PortState::Unreachable(113);

    fn peer(number: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, number])
    }

    fn not_probed() -> Option<PortState> {
        panic!("a probe within the interval")
    }

    #[test]
    fn many_silent_peers_are_probed_once_per_second() {
        let probe = PortProbe::default();
        let begin = Instant::now();
        let at = |millis| begin + Duration::from_millis(millis);
        let first = probe.state_with(at(0), SOURCE, peer(0), || None);
        assert_eq!(first, None);
        for number in 1..=250 {
            let later = at(u64::from(number));
            assert_eq!(
                probe.state_with(later, SOURCE, peer(number), not_probed),
                None
            );
        }
        let next = probe.state_with(at(1000), SOURCE, peer(1), || Some(UNREACHABLE));
        assert_eq!(next, Some(UNREACHABLE));
    }

    #[test]
    fn the_answer_of_a_probe_holds_for_its_peer_alone() {
        let probe = PortProbe::default();
        let now = Instant::now();
        let closed = Some(PortState::Closed);
        assert_eq!(
            probe.state_with(now, SOURCE, peer(1), || closed),
            closed,
            "it is probed"
        );
        assert_eq!(probe.state_with(now, SOURCE, peer(1), not_probed), closed);
        assert_eq!(probe.state_with(now, SOURCE, peer(2), not_probed), None);
        assert_eq!(probe.state_with(now, peer(3), peer(1), not_probed), None);
    }

    #[test]
    fn no_thread_waits_for_a_running_probe() {
        let probe = PortProbe::default();
        let now = Instant::now();
        let meanwhile = || probe.state_with(now, SOURCE, peer(1), not_probed);
        let closed = Some(PortState::Closed);
        let state = probe.state_with(now, SOURCE, peer(1), || {
            assert_eq!(meanwhile(), None);
            closed
        });
        assert_eq!(state, closed);
    }

    #[test]
    fn a_port_without_a_process_is_closed() {
        let unused = IpAddr::from([127, 54, 201, 1]);
        let probe = PortProbe::default();
        assert_eq!(probe.port_state(SOURCE, unused), Some(PortState::Closed));
    }
}
