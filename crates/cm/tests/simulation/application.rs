//! What applications do: always after a while, and not always the right thing.

use cm::{EventKind, Failure, Id, Parameters, Request};
use wire::cm::{PortSpace, RejectReason};

use crate::ledger::{Ends, Role, Step, Who};
use crate::random::Random;
use crate::world::{Happening, World};

/// Something that an application is going to do.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Act {
    Begin {
        number: u32,
        to: usize,
        service: bool,
    },
    ResolveRoute(Id),
    Connect(Id),
    Accept(Id),
    Reject(Id),
    Establish(Id),
    Fail(Id),
    Disconnect(Id),
    Destroy(Id),
}

/// Long enough for every lost message to be repeated, even by a peer that was asked for patience.
const LONG: u64 = 900_000;

/// How long an application takes; now and then so long that the peer asks again.
fn pause(random: &mut Random) -> u64 {
    if random.chance(10) {
        return random.between(1000, 15_000);
    }
    random.between(1, 300)
}

impl World {
    /// Decides what to do about an event.
    pub(crate) fn react(&mut self, host: usize, id: Id, kind: &EventKind) {
        let who = self.who(host, id);
        if let EventKind::ConnectRequest { request, .. } = kind {
            let number = number_of(request);
            self.ledger.open(who, Role::Guest(number));
            let manager = &mut self.hosts[host].manager;
            manager.request_taken(id).expect("a new id");
        }
        if !self.ledger.records.contains_key(&who) {
            return;
        }
        let step = self.ledger.note(who, kind);
        let after = pause(&mut self.random);
        match step {
            Step::Request => self.answer_request(host, id, after),
            Step::Resolved if *kind == EventKind::AddressResolved => {
                self.plan(host, after, Act::ResolveRoute(id));
            }
            Step::Resolved => self.plan(host, after, Act::Connect(id)),
            Step::Response => self.answer_response(host, id, after),
            Step::Established => self.plan_end(host, id),
            Step::Disconnected => {
                self.plan(host, after, Act::Disconnect(id));
                if self.random.chance(20) {
                    self.plan(host, after, Act::Destroy(id));
                } else {
                    self.plan(host, 200_000, Act::Destroy(id));
                }
            }
            Step::Rejected
            | Step::Unreachable
            | Step::Failed
            | Step::Found
            | Step::TimewaitExit => self.plan(host, after, Act::Destroy(id)),
        }
    }

    pub(crate) fn act(&mut self, host: usize, act: Act) {
        let now = self.now();
        let id = match act {
            Act::Begin {
                number,
                to,
                service,
            } => {
                self.begin(host, number, to, service);
                return;
            }
            Act::ResolveRoute(id)
            | Act::Connect(id)
            | Act::Accept(id)
            | Act::Reject(id)
            | Act::Establish(id)
            | Act::Fail(id)
            | Act::Disconnect(id)
            | Act::Destroy(id) => id,
        };
        let manager = &mut self.hosts[host].manager;
        if manager.state(id).is_none() {
            return;
        }
        // The peer may have changed everything while the application was thinking, so most of
        // these may fail; what matters is that the ledger fits.
        match act {
            Act::ResolveRoute(id) => {
                let _ = manager.resolve_route(now, id, std::time::Duration::from_secs(2));
            }
            Act::Connect(id) => self.connect(host, id),
            Act::Accept(id) => self.accept(host, id),
            Act::Reject(id) => {
                let _ = manager.reject(now, id, RejectReason::Consumer, b"no");
                self.break_off(host, id);
            }
            Act::Establish(id) => self.establish(host, id),
            Act::Fail(id) => {
                let _ = manager.connect_failed(id, Failure::Os(12));
                self.break_off(host, id);
            }
            Act::Disconnect(id) => {
                let _ = manager.disconnect(now, id);
            }
            Act::Destroy(id) => self.destroy(host, id),
            Act::Begin { .. } => unreachable!("done above"),
        }
    }

    fn begin(&mut self, host: usize, number: u32, to: usize, service: bool) {
        let (space, port) = match service {
            true => (PortSpace::Udp, self.hosts[to].services),
            false => (PortSpace::Tcp, self.hosts[to].connections),
        };
        let peer = (self.hosts[to].address, port).into();
        let now = self.now();
        let manager = &mut self.hosts[host].manager;
        let id = manager.create(space, cm::Kind::of(space)).expect("an id");
        let timeout = std::time::Duration::from_secs(2);
        let asked = manager.resolve_address(now, id, None, peer, timeout);
        asked.expect("a new id");
        let who = self.who(host, id);
        self.ledger.open(who, Role::Client(number));
    }

    fn connect(&mut self, host: usize, id: Id) {
        let who = self.who(host, id);
        let Role::Client(number) = self.ledger.record(who).role else {
            panic!("guests do not connect");
        };
        let qpn = self.hosts[host].new_qpn();
        let number = number.to_be_bytes();
        let parameters = Parameters {
            private_data: &number,
            ..Parameters::new(qpn)
        };
        let now = self.now();
        let manager = &mut self.hosts[host].manager;
        let connected = manager.connect(now, id, &parameters);
        connected.expect("the route was resolved");
        self.hosts[host].queue_pairs.insert(id, qpn);
        if self.random.chance(5) {
            let after = pause(&mut self.random);
            self.plan(host, after, Act::Destroy(id));
        }
    }

    fn answer_request(&mut self, host: usize, id: Id, after: u64) {
        let act = match self.random.between(0, 100) {
            0..80 => Act::Accept(id),
            80..92 => Act::Reject(id),
            _ => Act::Destroy(id),
        };
        self.plan(host, after, act);
    }

    fn answer_response(&mut self, host: usize, id: Id, after: u64) {
        let act = match self.random.between(0, 100) {
            0..90 => Act::Establish(id),
            90..94 => Act::Fail(id),
            94..97 => Act::Reject(id),
            _ => Act::Destroy(id),
        };
        self.plan(host, after, act);
    }

    fn accept(&mut self, host: usize, id: Id) {
        let qpn = self.hosts[host].new_qpn();
        let now = self.now();
        let manager = &mut self.hosts[host].manager;
        let accepted = manager.accept(now, id, &Parameters::new(qpn));
        if accepted.is_err() {
            return;
        }
        self.hosts[host].queue_pairs.insert(id, qpn);
        self.note_ends(host, id);
        // The application of a datagram service is done with it.
        if self.hosts[host].manager.phase(id).is_none() {
            self.plan(host, 100, Act::Destroy(id));
        }
    }

    fn establish(&mut self, host: usize, id: Id) {
        let manager = &mut self.hosts[host].manager;
        if manager.establish(id).is_err() {
            return;
        }
        self.note_ends(host, id);
        self.plan_end(host, id);
    }

    /// Sooner or later one side has enough; sometimes both at once.
    fn plan_end(&mut self, host: usize, id: Id) {
        let after = self.random.pick(&[50, 500, 2000, 20_000, LONG]);
        let who = self.who(host, id);
        self.ledger.record(who).patient = after == LONG;
        let act = match self.random.chance(10) {
            true => Act::Destroy(id),
            false => Act::Disconnect(id),
        };
        self.plan(host, after, act);
    }

    fn destroy(&mut self, host: usize, id: Id) {
        let now = self.now();
        let who = self.who(host, id);
        let manager = &mut self.hosts[host].manager;
        let unfinished = manager.phase(id);
        let ended = matches!(unfinished, None | Some(cm::Phase::TimeWait));
        manager.destroy(now, id).expect("it exists");
        if !ended {
            self.ledger.record(who).broke_off = true;
        }
    }

    fn break_off(&mut self, host: usize, id: Id) {
        let who = self.who(host, id);
        self.ledger.record(who).broke_off = true;
        self.plan(host, 5, Act::Destroy(id));
    }

    fn note_ends(&mut self, host: usize, id: Id) {
        let manager = &self.hosts[host].manager;
        let (Ok(receive), Ok(send)) = (manager.receive_attributes(id), manager.send_attributes(id))
        else {
            return;
        };
        let ends = Ends {
            local_qpn: self.hosts[host].queue_pairs[&id],
            remote_qpn: receive.remote_qpn,
            send_psn: send.send_psn,
            receive_psn: receive.receive_psn,
        };
        let who = self.who(host, id);
        self.ledger.record(who).ends = Some(ends);
    }

    pub(crate) fn plan(&mut self, host: usize, after: u64, act: Act) {
        let life = self.hosts[host].life;
        self.later(after, Happening::Act { host, life, act });
    }

    pub(crate) fn who(&self, host: usize, id: Id) -> Who {
        let life = self.hosts[host].life;
        Who { host, life, id }
    }
}

fn number_of(request: &Request) -> u32 {
    let data = match request {
        Request::Connection(offer) => &offer.private_data,
        Request::Service { private_data } => private_data,
    };
    u32::from_be_bytes(*data.first_chunk().expect("four bytes"))
}
