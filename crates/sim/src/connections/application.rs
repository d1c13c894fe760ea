//! The applications: they react to events after a random delay, and sometimes reject or give up.

use std::time::Duration;

use cm::{EventKind, Failure, Id, Phase, Request, private_data};
use wire::cm::RejectReason;

use super::Connections;
use super::ledger::{Record, Step};
use super::place::Service;
use super::script::{Side, number_of};
use crate::Complaint;
use crate::rng::Rng;

/// An action of an application.
#[derive(Clone, Copy, Debug)]
pub(super) enum Act {
    Begin {
        number: u32,
        server: usize,
        service: Service,
    },
    ResolveRoute(Id),
    Connect(Id),
    Take(Id),
    Accept(Id),
    Reject(Id),
    Establish(Id),
    Fail(Id),
    PostReceives(Id),
    Disconnect(Id),
    Destroy(Id),
    CloseListener,
    OpenListener(Service),
}

/// Long enough for all retransmissions of a lost message, also after an MRA.
pub(super) const LONG: Duration = Duration::from_secs(900);

/// The timeout of address and route resolution.
const SEARCH: Duration = Duration::from_secs(2);

/// How long an application takes to react; sometimes so long that the peer retransmits.
pub(super) fn pause(rng: &mut Rng) -> Duration {
    let milliseconds = match rng.percent(10) {
        true => rng.between(1000, 15_000),
        false => rng.between(1, 300),
    };
    Duration::from_millis(milliseconds as u64)
}

impl Connections {
    /// Reacts to an event.
    pub(super) fn react(&mut self, host: usize, id: Id, kind: &EventKind) -> Result<(), Complaint> {
        if let EventKind::ConnectRequest { listener, request } = kind {
            self.welcome(host, *listener, id, request)?;
        }
        let who = self.who(host, id);
        let step = self.ledger.note(who, kind)?;
        self.census.note(format!("{step:?}"));
        if *kind == (EventKind::Disconnected { timed_out: true }) {
            self.census.note("farewell without an answer");
        }
        if matches!(step, Step::Disconnected | Step::Rejected) {
            self.ledger.record(who).over = Some(self.world.now());
        }
        let after = pause(&mut self.rng);
        match (step, kind) {
            (Step::Request, _) => self.answer_request(host, id, after),
            (Step::Resolved, EventKind::AddressResolved) => {
                self.plan_act(host, after, Act::ResolveRoute(id));
            }
            (Step::Resolved, _) => self.plan_act(host, after, Act::Connect(id)),
            (Step::Response, EventKind::ConnectResponse(offer)) => {
                self.check_welcome(host, id, &offer.private_data)?;
                self.answer_response(host, id, after);
            }
            (Step::Established, _) => {
                self.perhaps_die(who);
                self.begin_to_talk(host, id)?;
            }
            (Step::Disconnected, _) => self.follow(host, id, after),
            (Step::Found, EventKind::ServiceFound(found)) => {
                self.check_welcome(host, id, &found.private_data)?;
                self.write_to_service(host, id, found)?;
                self.plan_act(host, after, Act::Destroy(id));
            }
            _ => self.plan_act(host, after, Act::Destroy(id)),
        }
        Ok(())
    }

    /// Records a request. Its private data must be that of its connection number.
    fn welcome(
        &mut self,
        host: usize,
        listener: Id,
        id: Id,
        request: &Request,
    ) -> Result<(), Complaint> {
        let unknown = || Complaint::new(format!("nobody said {request:?}"));
        let (data, room) = match request {
            Request::Connection(offer) => (&offer.private_data, private_data::REQUEST),
            Request::Service { private_data } => (private_data, private_data::SERVICE_REQUEST),
        };
        let number = number_of(data).ok_or_else(unknown)?;
        if !self.script.is_greeting(number, Side::Client, room, data) {
            return Err(unknown());
        }
        let listeners = &self.process(host).listeners;
        let service = *listeners.get(&listener).ok_or_else(unknown)?;
        let who = self.who(host, id);
        self.ledger
            .open(who, Record::new(number, Side::Guest, service, host))?;
        // Some applications take a request at once, others when they answer it.
        if self.rng.percent(50) {
            self.plan_act(host, Duration::from_millis(1), Act::Take(id));
        }
        Ok(())
    }

    fn check_welcome(&mut self, host: usize, id: Id, data: &[u8]) -> Result<(), Complaint> {
        let who = self.who(host, id);
        let record = self.ledger.record(who);
        let room = room_of_answer(record.service);
        match self
            .script
            .is_greeting(record.number, Side::Guest, room, data)
        {
            true => Ok(()),
            false => Err(Complaint::new(format!("{who:?} is welcomed with {data:?}"))),
        }
    }

    fn answer_request(&mut self, host: usize, id: Id, after: Duration) {
        let act = self.rng.weighted(&[
            (80, Act::Accept(id)),
            (12, Act::Reject(id)),
            (8, Act::Destroy(id)),
        ]);
        self.plan_act(host, after, act);
    }

    fn answer_response(&mut self, host: usize, id: Id, after: Duration) {
        let act = self.rng.weighted(&[
            (90, Act::Establish(id)),
            (4, Act::Fail(id)),
            (3, Act::Reject(id)),
            (3, Act::Destroy(id)),
        ]);
        self.plan_act(host, after, act);
    }

    /// The peer disconnected: disconnects and destroys the id.
    fn follow(&mut self, host: usize, id: Id, after: Duration) {
        self.plan_act(host, after, Act::Disconnect(id));
        let later = match self.rng.percent(20) {
            true => after,
            false => Duration::from_secs(200),
        };
        self.plan_act(host, later, Act::Destroy(id));
    }

    pub(super) fn act(&mut self, host: usize, act: Act) -> Result<(), Complaint> {
        let now = self.world.instant();
        let id = match act {
            Act::Begin {
                number,
                server,
                service,
            } => return self.begin(host, number, server, service),
            Act::CloseListener => return self.close_listener(host),
            Act::OpenListener(service) => return self.open_listener(host, service),
            Act::ResolveRoute(id)
            | Act::Connect(id)
            | Act::Take(id)
            | Act::Accept(id)
            | Act::Reject(id)
            | Act::Establish(id)
            | Act::Fail(id)
            | Act::PostReceives(id)
            | Act::Disconnect(id)
            | Act::Destroy(id) => id,
        };
        let manager = self.host(host).manager();
        if manager.state(id).is_none() {
            return Ok(());
        }
        // The state may have changed during the delay, so most of these calls may fail. The event log
        // is checked instead.
        match act {
            Act::ResolveRoute(id) => {
                let _ = manager.resolve_route(now, id, SEARCH);
            }
            Act::Take(id) => manager.request_taken(id)?,
            Act::Connect(id) => self.connect(host, id)?,
            Act::Accept(id) => self.accept(host, id)?,
            Act::Reject(id) => {
                let _ = manager.reject(now, id, RejectReason::Consumer, b"no");
                self.break_off(host, id);
            }
            Act::Establish(id) => self.establish(host, id)?,
            Act::Fail(id) => {
                let _ = manager.connect_failed(id, Failure::Os(12));
                self.break_off(host, id);
            }
            Act::PostReceives(id) => self.post_receives(host, id)?,
            Act::Disconnect(id) => {
                let _ = manager.disconnect(now, id);
            }
            Act::Destroy(id) => self.destroy(host, id)?,
            Act::Begin { .. } | Act::CloseListener | Act::OpenListener(_) => {}
        }
        Ok(())
    }

    fn begin(
        &mut self,
        host: usize,
        number: u32,
        server: usize,
        service: Service,
    ) -> Result<(), Complaint> {
        let now = self.world.instant();
        let place = self.places[server];
        let peer = (place.address(), place.port()).into();
        let manager = self.host(host).manager();
        let id = manager.create(service.space(), service.kind())?;
        manager.resolve_address(now, id, None, peer, SEARCH)?;
        let who = self.who(host, id);
        self.clients.insert(number, who);
        self.ledger
            .open(who, Record::new(number, Side::Client, service, server))?;
        // Some applications destroy their id at a random time.
        if self.rng.percent(8) {
            let after = self.rng.up_to(Duration::from_secs(5));
            self.plan_act(host, after, Act::Destroy(id));
        }
        Ok(())
    }

    fn destroy(&mut self, host: usize, id: Id) -> Result<(), Complaint> {
        let now = self.world.instant();
        let who = self.who(host, id);
        let (process, device, manager) = self.parts(host);
        let ended = matches!(manager.phase(id), None | Some(Phase::TimeWait));
        manager.destroy(now, id)?;
        let number = process.retire(device, id)?;
        let record = self.ledger.record(who);
        record.broke_off |= !ended;
        let connected = record.has(Step::Established) || record.has(Step::Response);
        if let Some(number) = number.filter(|_| connected && record.ends.is_some()) {
            let ended = record.over.unwrap_or(self.world.now());
            self.process(host).ended.insert(number, ended);
        }
        Ok(())
    }

    pub(super) fn break_off(&mut self, host: usize, id: Id) {
        let who = self.who(host, id);
        self.ledger.record(who).broke_off = true;
        self.plan_act(host, Duration::from_millis(5), Act::Destroy(id));
    }

    /// Destroys a listener, and with it all child ids that the application has not taken.
    fn close_listener(&mut self, host: usize) -> Result<(), Complaint> {
        self.unsteady.insert(host);
        let now = self.world.instant();
        let index = self.rng.below(3);
        let (process, _, manager) = self.parts(host);
        let Some((&id, &service)) = process.listeners.iter().nth(index) else {
            return Ok(());
        };
        manager.destroy(now, id)?;
        process.listeners.remove(&id);
        let after = pause(&mut self.rng);
        self.plan_act(host, after, Act::OpenListener(service));
        Ok(())
    }

    fn open_listener(&mut self, host: usize, service: Service) -> Result<(), Complaint> {
        let mut rng = self.rng.fork();
        let (process, _, manager) = self.parts(host);
        process.listen(manager, service, &mut rng)?;
        Ok(())
    }
}

pub(super) fn room_of_answer(service: Service) -> usize {
    match service {
        Service::Datagram => private_data::SERVICE_REPLY,
        _ => private_data::REPLY,
    }
}
