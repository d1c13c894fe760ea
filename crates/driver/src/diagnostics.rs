//! Diagnostics: explains failures on stderr, in one short paragraph each.
//!
//! The driver passes each [`Problem`] here after it has released its lock. With the catalogue in `errors`
//! it becomes a [`Diagnostic`]: what happened, why, and what to do.

mod connection;
mod failed_send;
mod misuse;
mod names;
mod no_response;
mod port_probe;
mod prolonged_retries;
mod rejected_call;
mod rejected_request;
mod report_once;

use std::collections::HashMap;
use std::fmt::Write;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use cm::MtuLimit;
use engine::incident::{ReceiveFault, RequestFault, SendFault};
use engine::{Incident, State};
use errors::{Cause, CodeKind, Entry, cause};
use net::socket::SendError;
use net::socket::interface::{Device, GidEntry};
use wire::{Qpn, ROCE_PORT};

pub(crate) use connection::{ConnectionFailure, UnansweredRequest, report_unresolved};
pub use misuse::{DeviceMemoryMistake, Misuse};
pub(crate) use names::completed as work_name;
use port_probe::PortProbe;

use crate::narrow_path::NarrowPath;

const VARIABLE: &str = "ROCI_EXPLAIN";
const CHECK_VARIABLE: &str = "ROCI_CHECK";
/// Also a value of it.
pub(crate) const CHECK_FAILS: &str = "fail";

/// Whether the program has enabled explanations.
static ENABLED: AtomicBool = AtomicBool::new(false);

/// Enables explanations on stderr for all devices that this process opens from now on: what failed, why,
/// and what to do.
///
/// There is one short paragraph for each kind of failure, and nothing without a failure.
/// `ROCI_EXPLAIN=1` in the environment does the same without a change to the program;
/// `ROCI_EXPLAIN=0` disables it.
pub fn enable_explanations() {
    ENABLED.store(true, Ordering::Relaxed);
}

/// Whether the program or the environment has enabled explanations. The check of a program explains failures, too.
pub(crate) fn is_enabled() -> bool {
    let by_default = || ENABLED.load(Ordering::Relaxed) || choice(CHECK_VARIABLE) == Some(true);
    choice(VARIABLE).unwrap_or_else(by_default)
}

/// Whether this process has explained a failure.
pub fn has_explained() -> bool {
    report_once::is_any_reported()
}

/// Whether the environment disables explanations.
pub(crate) fn is_disabled() -> bool {
    choice(VARIABLE) == Some(false)
}

/// What a variable says, if it says anything.
fn choice(variable: &str) -> Option<bool> {
    match std::env::var(variable).ok()?.as_str() {
        "0" => Some(false),
        "1" | CHECK_FAILS => Some(true),
        _ => None,
    }
}

/// Set by `roci run` for its program.
const RUN_VARIABLE: &str = "ROCI_RUN";

/// Which problems a device reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reported {
    Nothing,
    /// Those that look like a program that hangs, to a user of `roci run` who asked for no explanations.
    SilentPeers,
    Everything,
}

impl Reported {
    /// `explain`: whether explanations are enabled.
    pub(crate) fn new(explain: bool) -> Self {
        let is_set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        if explain {
            Self::Everything
        } else if is_set(RUN_VARIABLE) && !is_set(VARIABLE) {
            Self::SilentPeers
        } else {
            Self::Nothing
        }
    }
}

/// A problem that the driver found.
#[derive(Debug)]
pub(crate) enum Problem {
    /// The engine recorded an incident.
    Incident(Incident, PeerLookup),
    /// The kernel did not send packets of a queue pair.
    Unsent {
        queue_pair: Qpn,
        /// Whether it sends datagrams, which nothing acknowledges.
        is_datagram: bool,
        source: IpAddr,
        error: SendError,
    },
    /// The peer of a connection request has not answered yet.
    Unanswered(UnansweredRequest),
    /// A peer has answered neither requests nor probes of its port: our address, and the peer's.
    SilentPeer((SocketAddr, SocketAddr)),
    /// A connection request asked for a larger path MTU than one of the two ports allows.
    SmallerMtu(MtuLimit),
    /// A connection uses a smaller path MTU than the port has, because its path is narrower.
    NarrowPath(NarrowPath),
    /// A connection failed.
    ConnectionFailure(ConnectionFailure),
    /// The C libraries rejected a call.
    Misuse(Option<Qpn>, Misuse),
}

impl Problem {
    /// Whether the program is wrong, whatever its peers and the network do: its requests and receives cannot be executed, or it
    /// left completions unpolled until they were lost. A call that is refused tells the program so, and may be an attempt. A receive
    /// whose memory is there failed for another reason: a GPU did not copy.
    const fn is_mistake(&self) -> bool {
        let Self::Incident(incident, _) = self else {
            return false;
        };
        match incident {
            Incident::SendFailed(failed) => matches!(
                failed.fault,
                SendFault::Segment(_) | SendFault::NoReads | SendFault::TooLong { .. }
            ),
            Incident::RequestRejected(rejected) => matches!(
                rejected.fault,
                RequestFault::Receive(ReceiveFault::Unusable { fault: Some(_), .. })
            ),
            Incident::DatagramFailed { fault, .. } => {
                matches!(fault, ReceiveFault::Unusable { fault: Some(_), .. })
            }
            Incident::CompletionsOverran { .. } => true,
            _ => false,
        }
    }
}

/// What a device knows about a peer that does not respond.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PeerLookup {
    /// Nothing: the peer is not at this device.
    NotLocal,
    /// The peer should be at this device, which has no such queue pair.
    Missing,
    /// The peer is a queue pair of this device, in this state.
    Found(State),
    /// The peer is a queue pair of this device that is connected to another number.
    ConnectedTo(Qpn),
}

/// Reports the problems of one device.
pub(crate) struct Reporter {
    device: Device,
    reported: Reported,
    probe: PortProbe,
    /// Why packets of queue pairs were not sent. That explains a missing response.
    unsent: Mutex<HashMap<Qpn, &'static Cause>>,
    /// The faults that the user injects into this device.
    faults: Option<String>,
}

/// A problem that was explained to the user.
pub(crate) struct Explained {
    /// Whether the program is wrong, whatever its peers and the network do.
    pub(crate) is_mistake: bool,
    /// The object.
    pub(crate) about: String,
    /// What happened.
    pub(crate) what: String,
    pub(crate) cause: &'static Cause,
}

/// The text about one problem.
struct Diagnostic {
    /// The object. The same problem is reported once per object.
    about: String,
    /// What happened and why.
    what: String,
    cause: &'static Cause,
    /// The catalogue entry to refer to.
    entry: Option<&'static Entry>,
    /// Whether there is nothing to do about it.
    is_ordinary: bool,
}

impl Diagnostic {
    fn new(about: String, what: String, cause: &'static Cause) -> Self {
        Self {
            about,
            what,
            cause,
            entry: None,
            is_ordinary: false,
        }
    }

    /// Omits the remedy.
    fn ordinary(mut self) -> Self {
        self.is_ordinary = true;
        self
    }

    fn explained(self, is_mistake: bool) -> Explained {
        Explained {
            is_mistake,
            about: self.about,
            what: self.what,
            cause: self.cause,
        }
    }

    fn code(mut self, topic: CodeKind, code: u32) -> Self {
        self.entry = errors::entry(topic, code);
        self
    }

    fn paragraph(&self) -> String {
        let Self { what, cause, .. } = self;
        if self.is_ordinary {
            return what.clone();
        }
        let remedy = cause.remedy;
        match self.entry {
            Some(entry) => {
                let reference = entry.reference();
                format!("{what} {remedy} (More: roci explain {reference})")
            }
            None => format!("{what} {remedy}"),
        }
    }
}

impl Reporter {
    /// `None` if there is nothing to report.
    pub(crate) fn new(device: &Device, reported: Reported, faults: Option<&str>) -> Option<Self> {
        (reported != Reported::Nothing).then(|| Self {
            device: device.clone(),
            reported,
            probe: PortProbe::default(),
            unsent: Mutex::default(),
            faults: faults.map(str::to_owned),
        })
    }

    pub(crate) fn explains_everything(&self) -> bool {
        self.reported == Reported::Everything
    }

    /// Reports all problems. Returns those that it explained for the first time. This may take a while, because it may probe the
    /// port of a silent peer.
    pub(crate) fn report(&self, problems: Vec<Problem>) -> Vec<Explained> {
        let mut explained = Vec::new();
        for problem in problems {
            let is_mistake = problem.is_mistake();
            if let Some(diagnostic) = self.diagnostic(problem)
                && report_once::report(Some(&self.device.name), &diagnostic)
            {
                explained.push(diagnostic.explained(is_mistake));
            }
        }
        explained
    }

    /// Names the injected faults where they may be the reason: silence is what they make.
    fn with_faults(&self, mut diagnostic: Diagnostic) -> Diagnostic {
        let silence = [&cause::PEER_SILENT, &cause::CLIENT_SILENT, &cause::SILENCE];
        let is_silence = silence.iter().any(|it| std::ptr::eq(*it, diagnostic.cause));
        if let Some(faults) = self.faults.as_ref().filter(|_| is_silence) {
            let _ = write!(
                diagnostic.what,
                " Faults are injected here (ROCI_FAULT={faults:.60}) and may be the reason."
            );
        }
        diagnostic
    }

    fn diagnostic(&self, problem: Problem) -> Option<Diagnostic> {
        self.explanation(problem).map(|it| self.with_faults(it))
    }

    fn explanation(&self, problem: Problem) -> Option<Diagnostic> {
        Some(match problem {
            Problem::Unsent {
                queue_pair,
                is_datagram,
                source,
                error,
            } => {
                let diagnostic = no_response::unsent(&self.device, queue_pair, source, &error)?;
                if is_datagram {
                    // No completion reports it.
                    return Some(Diagnostic {
                        entry: None,
                        ..diagnostic
                    });
                }
                self.unsent().insert(queue_pair, diagnostic.cause);
                diagnostic
            }
            Problem::Unanswered(request) => connection::unanswered(self, &request)?,
            Problem::SilentPeer((local, peer)) => connection::silent(local.ip(), peer.ip()),
            Problem::SmallerMtu(limit) => connection::smaller_mtu(&self.device, &limit),
            Problem::NarrowPath(path) => connection::narrow_path(&self.device, &path),
            Problem::ConnectionFailure(failure) => connection::describe(self, &failure)?,
            Problem::Misuse(queue_pair, misuse) => {
                rejected_call::misuse(&self.device, queue_pair, &misuse)
            }
            Problem::Incident(incident, lookup) => self.incident(incident, lookup)?,
        })
    }

    fn unsent(&self) -> MutexGuard<'_, HashMap<Qpn, &'static Cause>> {
        self.unsent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn incident(&self, incident: Incident, lookup: PeerLookup) -> Option<Diagnostic> {
        Some(match incident {
            Incident::ModifyRejected(change) => rejected_call::modify(&self.device, &change),
            Incident::PostRejected {
                queue_pair,
                state,
                id,
                work,
                error,
            } => rejected_call::post(queue_pair, state, id, work, error)?,
            Incident::RegisterRejected { access, error } => {
                rejected_call::register(&self.device, access, error)
            }
            Incident::SendFailed(failed) => {
                let unsent = self.unsent().remove(&failed.queue_pair);
                failed_send::send(self, &failed, lookup, unsent)?
            }
            Incident::StillRetrying(retried) => {
                let unsent = self.unsent().get(&retried.queue_pair).copied();
                // The reason was reported when the packets were not sent.
                if unsent.is_some() {
                    return None;
                }
                prolonged_retries::retried(self, &retried, lookup)
            }
            Incident::NotReady {
                queue_pair,
                state,
                from,
            } => prolonged_retries::early_packet(queue_pair, state, from),
            Incident::NoReceive {
                queue_pair,
                peer,
                naks,
                waited,
                is_shared,
            } => prolonged_retries::no_receive(queue_pair, peer, naks, waited, is_shared),
            Incident::DestroyRejected { object, users } => rejected_call::destroy(object, users),
            Incident::RequestRejected(rejected) => rejected_request::request(&rejected),
            Incident::DatagramFailed {
                queue_pair,
                sender,
                fault,
            } => rejected_request::datagram(queue_pair, sender, fault),
            Incident::WrongQueueKey {
                queue_pair,
                sender,
                given,
                wanted,
            } => rejected_request::queue_key(queue_pair, sender, given, wanted),
            Incident::UnknownQueuePair { number, from } => rejected_request::unknown(number, from),
            Incident::WrongPath {
                queue_pair,
                from,
                peer,
            } => rejected_request::wrong_peer(queue_pair, from, peer),
            Incident::CompletionsOverran {
                queue,
                capacity,
                queue_pair,
            } => rejected_request::overrun(queue, capacity, queue_pair),
        })
    }
}

/// The row of the GID table from which a peer can be reached: the kernel's choice, or else one of the same
/// address family.
fn row_towards(device: &Device, peer: IpAddr) -> Option<&GidEntry> {
    let source = net::socket::interface::source_towards((peer, ROCE_PORT).into());
    let chosen = source.ok().and_then(|source| device.gid_of(source));
    chosen.or_else(|| {
        let mut rows = device.gids.iter();
        rows.find(|row| scope(row.address) == scope(peer))
    })
}

/// The address family, and whether the address is link-local: such an IPv6 address reaches only others of its kind.
fn scope(address: IpAddr) -> (bool, bool) {
    match address {
        IpAddr::V4(_) => (true, false),
        IpAddr::V6(address) => (false, address.is_unicast_link_local()),
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::net::UdpSocket;
    use std::time::{Duration, Instant};

    use cm::{EventKind, Unreachable};
    use engine::incident::{FailedSend, Path, Peer, PeerResponses, SegmentFault, SendFault};
    use engine::{AccessError, Segment, Status, Work};

    use super::*;

    fn device(addresses: &str) -> Device {
        let specification = format!("device={addresses}");
        let devices =
            net::socket::interface::devices(Some(&specification)).expect("loopback addresses");
        devices.into_iter().next().expect("one")
    }

    fn new_reporter(device: &Device) -> Reporter {
        Reporter::new(device, Reported::Everything, None).expect("something to report")
    }

    #[test]
    fn silence_is_explained_with_the_faults_that_are_injected() {
        let silent = UdpSocket::bind(("127.54.203.6", ROCE_PORT)).expect("a free address");
        let request = || UnansweredRequest {
            local: Some(([127, 54, 203, 5], 0).into()),
            peer: Some((silent.local_addr().expect("it is bound").ip(), 7174).into()),
        };
        let device = device("127.54.203.5");
        for faults in [None, Some("loss=2%")] {
            let reporter = Reporter::new(&device, Reported::Everything, faults);
            let reporter = reporter.expect("something to report");
            let diagnostic = reporter.diagnostic(Problem::Unanswered(request()));
            let text = diagnostic.expect("nobody answers").what;
            assert_eq!(text.contains("(ROCI_FAULT=loss=2%)"), faults.is_some());
        }
    }

    /// Memory of a GPU can be there, and a copy to it fails.
    #[test]
    fn a_copy_that_fails_is_no_mistake_of_the_program() {
        let sender = Peer {
            address: [127, 54, 203, 1].into(),
            queue_pair: Qpn::new(17),
        };
        let is_mistake = |fault| {
            let failed = Incident::DatagramFailed {
                queue_pair: Qpn::new(18),
                sender,
                fault: ReceiveFault::Unusable { id: 1, fault },
            };
            Problem::Incident(failed, PeerLookup::NotLocal).is_mistake()
        };
        let wrong = SegmentFault {
            segment: Segment {
                address: 0,
                length: 8,
                key: wire::Key::new(1),
            },
            error: AccessError::UnknownKey,
            key_range: None,
        };
        assert!(is_mistake(Some(wrong)));
        assert!(!is_mistake(None));
    }

    fn unanswered(queue_pair: Qpn, source: IpAddr, peer: IpAddr) -> Problem {
        let peer = Peer {
            address: peer,
            queue_pair,
        };
        let failed = FailedSend {
            queue_pair,
            path: Some(Path {
                source,
                peer,
                mtu: wire::PathMtu::Mtu1024,
            }),
            id: 1,
            work: Work::Send,
            length: 4,
            status: Status::RetriesExhausted,
            fault: SendFault::NoResponse {
                retries: 7,
                waited: Duration::from_secs(1),
                responses: PeerResponses::None,
            },
        };
        Problem::Incident(Incident::SendFailed(failed), PeerLookup::NotLocal)
    }

    /// Each probe is a datagram that the device drops.
    #[test]
    fn silence_of_many_queue_pairs_is_explained_with_one_probe_per_second() {
        let silent = UdpSocket::bind(("127.54.203.2", ROCE_PORT)).expect("a free address");
        let peer = silent.local_addr().expect("it is bound").ip();
        let source = IpAddr::from([127, 54, 203, 1]);
        let reporter = new_reporter(&device("127.54.203.1"));
        let begin = Instant::now();
        for number in 1..=100 {
            let problem = unanswered(Qpn::new(number), source, peer);
            let diagnostic = reporter.diagnostic(problem).expect("an explanation");
            assert!(
                diagnostic.what.contains("no packet from the peer ever"),
                "{}",
                diagnostic.what
            );
        }
        let seconds = begin.elapsed().as_secs();
        silent.set_nonblocking(true).expect("a socket");
        let probes = std::iter::from_fn(|| match silent.recv(&mut [0]) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => None,
            received => Some(received.expect("a probe")),
        });
        let probes = probes.count() as u64;
        assert!(
            (1..=seconds + 1).contains(&probes),
            "{probes} in {seconds} s"
        );
    }

    #[test]
    fn advice_about_a_silent_peer_fits_the_side() {
        let reporter = new_reporter(&device("127.54.203.1"));
        let paragraph = |is_child| {
            let failure = ConnectionFailure {
                kind: EventKind::Unreachable(Unreachable::TimedOut),
                local: Some(([127, 54, 203, 1], 7174).into()),
                peer: Some(([127, 54, 203, 4], 40_000).into()),
                is_child,
            };
            let diagnostic = reporter.diagnostic(Problem::ConnectionFailure(failure));
            diagnostic.expect("an explanation").paragraph()
        };
        let (client, server) = (paragraph(false), paragraph(true));
        assert!(client.contains("Check that the server runs"), "{client}");
        assert!(
            server.contains("Check that the client still runs"),
            "{server}"
        );
        assert!(!server.contains("Check that the server"), "{server}");
    }

    #[test]
    fn a_request_that_its_client_has_left_is_told_before_it_is_accepted() {
        let reporter = new_reporter(&device("127.54.203.1"));
        let paragraph = |is_child| {
            let failure = ConnectionFailure {
                kind: EventKind::Rejected {
                    reason: wire::cm::RejectReason::Timeout,
                    private_data: Vec::new(),
                },
                local: None,
                peer: Some(([127, 54, 203, 4], 40_000).into()),
                is_child,
            };
            let diagnostic = reporter.diagnostic(Problem::ConnectionFailure(failure));
            diagnostic.expect("an explanation").paragraph()
        };
        let server = paragraph(true);
        assert!(server.contains("the client ended, or gave up"), "{server}");
        assert!(server.contains("`rdma_accept` for this id fails with EINVAL"));
        let client = paragraph(false);
        assert!(client.contains("Check the output of the peer"), "{client}");
    }

    #[test]
    fn a_link_local_address_is_not_proposed_for_a_global_peer() {
        let mut device = device("::1");
        device.gids[0].address = "fe80::1".parse().expect("an address");
        // The documentation's prefix: no kernel has a route to it, or the route has a source of no device.
        let global = "2001:db8::1".parse().expect("an address");
        assert!(row_towards(&device, global).is_none());
        let neighbour = "fe80::2".parse().expect("an address");
        assert!(row_towards(&device, neighbour).is_some());
    }
}
