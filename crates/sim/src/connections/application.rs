//! The applications: they react to events after a random delay, and sometimes reject or give up.

use std::time::Duration;

use cm::{EventKind, ExchangeState, Failure, Id, Request, private_data};
use wire::cm::RejectReason;

use super::Connections;
use super::event_log::{Record, Step};
use super::process_config::Service;
use super::script::{Side, number_of};
use crate::CheckError;
use crate::rng::Rng;

/// An action of an application.
#[derive(Clone, Copy, Debug)]
pub(super) enum Action {
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
pub(super) const LONG_DELAY: Duration = Duration::from_secs(900);

/// The timeout of address and route resolution.
const RESOLVE_TIMEOUT: Duration = Duration::from_secs(2);

/// How long an application takes to react; sometimes so long that the peer retransmits.
pub(super) fn pause(rng: &mut Rng) -> Duration {
    let milliseconds = if rng.percent(10) {
        rng.between(1000, 15_000)
    } else {
        rng.between(1, 300)
    };
    Duration::from_millis(milliseconds as u64)
}

impl Connections {
    /// Reacts to an event.
    pub(super) fn react(
        &mut self,
        host: usize,
        id: Id,
        kind: &EventKind,
    ) -> Result<(), CheckError> {
        if let EventKind::ConnectRequest { listener, request } = kind {
            self.record_request(host, *listener, id, request)?;
        }
        let key = self.key(host, id);
        let step = self.event_log.note(key, kind)?;
        self.event_counts.note(format!("{step:?}"));
        if *kind == (EventKind::Disconnected { timed_out: true }) {
            self.event_counts.note("DREQ without a response");
        }
        if matches!(step, Step::Disconnected | Step::Rejected) {
            self.event_log.record(key).over = Some(self.world.now());
        }
        let after = pause(&mut self.rng);
        match (step, kind) {
            (Step::Request, _) => self.respond_to_request(host, id, after),
            (Step::Resolved, EventKind::AddressResolved) => {
                self.plan_action(host, after, Action::ResolveRoute(id));
            }
            (Step::Resolved, _) => self.plan_action(host, after, Action::Connect(id)),
            (Step::Response, EventKind::ConnectResponse(offer)) => {
                self.check_private_data(host, id, &offer.private_data)?;
                self.handle_response(host, id, after);
            }
            (Step::Established, _) => {
                self.maybe_die(key);
                self.start_traffic(host, id)?;
            }
            (Step::Disconnected, _) => self.end_after_peer(host, id, after),
            (Step::Found, EventKind::ServiceFound(found)) => {
                self.check_private_data(host, id, &found.private_data)?;
                self.send_to_service(host, id, found)?;
                self.plan_action(host, after, Action::Destroy(id));
            }
            _ => self.plan_action(host, after, Action::Destroy(id)),
        }
        Ok(())
    }

    /// Records a request. Its private data must be that of its connection number.
    fn record_request(
        &mut self,
        host: usize,
        listener: Id,
        id: Id,
        request: &Request,
    ) -> Result<(), CheckError> {
        let unknown = || CheckError::new(format!("nobody sent {request:?}"));
        let (data, capacity) = match request {
            Request::Connection(offer) => (&offer.private_data, private_data::REQUEST),
            Request::Service { private_data } => (private_data, private_data::SERVICE_REQUEST),
        };
        let number = number_of(data).ok_or_else(unknown)?;
        if !self
            .script
            .is_private_data(number, Side::Client, capacity, data)
        {
            return Err(unknown());
        }
        let listeners = &self.process(host).listeners;
        let service = *listeners.get(&listener).ok_or_else(unknown)?;
        let key = self.key(host, id);
        self.event_log
            .open(key, Record::new(number, Side::Server, service, host))?;
        // Some applications take a request at once, others when they answer it.
        if self.rng.percent(50) {
            self.plan_action(host, Duration::from_millis(1), Action::Take(id));
        }
        Ok(())
    }

    fn check_private_data(&mut self, host: usize, id: Id, data: &[u8]) -> Result<(), CheckError> {
        let key = self.key(host, id);
        let record = self.event_log.record(key);
        let capacity = response_capacity(record.service);
        if self
            .script
            .is_private_data(record.number, Side::Server, capacity, data)
        {
            Ok(())
        } else {
            Err(CheckError::new(format!(
                "{key:?} got the private data {data:?}"
            )))
        }
    }

    fn respond_to_request(&mut self, host: usize, id: Id, after: Duration) {
        let action = self.rng.weighted(&[
            (80, Action::Accept(id)),
            (12, Action::Reject(id)),
            (8, Action::Destroy(id)),
        ]);
        self.plan_action(host, after, action);
    }

    fn handle_response(&mut self, host: usize, id: Id, after: Duration) {
        let action = self.rng.weighted(&[
            (90, Action::Establish(id)),
            (4, Action::Fail(id)),
            (3, Action::Reject(id)),
            (3, Action::Destroy(id)),
        ]);
        self.plan_action(host, after, action);
    }

    /// The peer disconnected: disconnects and destroys the id.
    fn end_after_peer(&mut self, host: usize, id: Id, after: Duration) {
        self.plan_action(host, after, Action::Disconnect(id));
        let later = if self.rng.percent(20) {
            after
        } else {
            Duration::from_secs(200)
        };
        self.plan_action(host, later, Action::Destroy(id));
    }

    pub(super) fn perform(&mut self, host: usize, action: Action) -> Result<(), CheckError> {
        let now = self.world.instant();
        let id = match action {
            Action::Begin {
                number,
                server,
                service,
            } => return self.begin(host, number, server, service),
            Action::CloseListener => return self.close_listener(host),
            Action::OpenListener(service) => return self.open_listener(host, service),
            Action::ResolveRoute(id)
            | Action::Connect(id)
            | Action::Take(id)
            | Action::Accept(id)
            | Action::Reject(id)
            | Action::Establish(id)
            | Action::Fail(id)
            | Action::PostReceives(id)
            | Action::Disconnect(id)
            | Action::Destroy(id) => id,
        };
        let manager = self.host(host).manager();
        if manager.state(id).is_none() {
            return Ok(());
        }
        // The state may have changed during the delay, so most of these calls may fail. The event log
        // is checked instead.
        match action {
            Action::ResolveRoute(id) => {
                let _ = manager.resolve_route(now, id, RESOLVE_TIMEOUT);
            }
            Action::Take(id) => manager.request_taken(id)?,
            Action::Connect(id) => self.connect(host, id)?,
            Action::Accept(id) => self.accept(host, id)?,
            Action::Reject(id) => {
                let _ = manager.reject(now, id, RejectReason::Consumer, b"no");
                self.give_up(host, id);
            }
            Action::Establish(id) => self.establish(host, id)?,
            Action::Fail(id) => {
                let _ = manager.connect_failed(id, Failure::Os(12));
                self.give_up(host, id);
            }
            Action::PostReceives(id) => self.post_receives(host, id)?,
            Action::Disconnect(id) => {
                let _ = manager.disconnect(now, id);
            }
            Action::Destroy(id) => self.destroy(host, id)?,
            Action::Begin { .. } | Action::CloseListener | Action::OpenListener(_) => {}
        }
        Ok(())
    }

    fn begin(
        &mut self,
        host: usize,
        number: u32,
        server: usize,
        service: Service,
    ) -> Result<(), CheckError> {
        let now = self.world.instant();
        let config = self.configs[server];
        let peer = (config.address(), config.port()).into();
        let manager = self.host(host).manager();
        let id = manager.create_id(service.space(), service.kind())?;
        manager.resolve_address(now, id, None, peer, RESOLVE_TIMEOUT)?;
        let key = self.key(host, id);
        self.clients.insert(number, key);
        self.event_log
            .open(key, Record::new(number, Side::Client, service, server))?;
        // Some applications destroy their id at a random time.
        if self.rng.percent(8) {
            let after = self.rng.up_to(Duration::from_secs(5));
            self.plan_action(host, after, Action::Destroy(id));
        }
        Ok(())
    }

    fn destroy(&mut self, host: usize, id: Id) -> Result<(), CheckError> {
        let now = self.world.instant();
        let key = self.key(host, id);
        let (process, device, manager) = self.parts(host);
        let ended = matches!(manager.phase(id), None | Some(ExchangeState::TimeWait));
        manager.destroy(now, id)?;
        let number = process.retire(device, id)?;
        let record = self.event_log.record(key);
        record.gave_up |= !ended;
        let connected = record.has(Step::Established) || record.has(Step::Response);
        if let Some(number) = number.filter(|_| connected && record.ends.is_some()) {
            let ended = record.over.unwrap_or(self.world.now());
            self.process(host).ended.insert(number, ended);
        }
        Ok(())
    }

    pub(super) fn give_up(&mut self, host: usize, id: Id) {
        let key = self.key(host, id);
        self.event_log.record(key).gave_up = true;
        self.plan_action(host, Duration::from_millis(5), Action::Destroy(id));
    }

    /// Destroys a listener, and with it all child ids that the application has not taken.
    fn close_listener(&mut self, host: usize) -> Result<(), CheckError> {
        self.interrupted.insert(host);
        let now = self.world.instant();
        let index = self.rng.below(3);
        let (process, _, manager) = self.parts(host);
        let Some((&id, &service)) = process.listeners.iter().nth(index) else {
            return Ok(());
        };
        manager.destroy(now, id)?;
        process.listeners.remove(&id);
        let after = pause(&mut self.rng);
        self.plan_action(host, after, Action::OpenListener(service));
        Ok(())
    }

    fn open_listener(&mut self, host: usize, service: Service) -> Result<(), CheckError> {
        let mut rng = self.rng.fork();
        let (process, _, manager) = self.parts(host);
        process.listen(manager, service, &mut rng)?;
        Ok(())
    }
}

pub(super) fn response_capacity(service: Service) -> usize {
    match service {
        Service::Datagram => private_data::SERVICE_REPLY,
        _ => private_data::REPLY,
    }
}
