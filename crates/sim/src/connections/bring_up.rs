//! Creates queue pairs and brings them to RTS with the attributes of the manager.

use std::time::Duration;

use cm::{Id, Parameters, Phase, private_data};

use super::Connections;
use super::application::{Act, LONG, pause, room_of_answer};
use super::ledger::Ends;
use super::place::Service;
use super::script::Side;
use super::socket::Socket;
use crate::Complaint;

impl Connections {
    /// Creates a queue pair for an id and moves it to INIT; false if the device has no number left.
    fn create_socket(&mut self, host: usize, id: Id, service: Service) -> Result<bool, Complaint> {
        let (process, device, manager) = self.parts(host);
        let (domain, queue) = (process.domain, process.queue);
        let Some(socket) = Socket::create(device, domain, queue, service, Some(id))? else {
            self.census.note("no queue pair left");
            return Ok(false);
        };
        socket.initialize(device, &manager.init_attributes(id)?)?;
        process.of_id.insert(id, socket.number);
        let number = socket.number;
        process.sockets.insert(number, socket);
        self.queue_pairs += 1;
        self.check_reuse(host, number)?;
        Ok(true)
    }

    /// A number is reused only when no packet of its last connection can be in flight.
    fn check_reuse(&mut self, host: usize, number: wire::Qpn) -> Result<(), Complaint> {
        let Some(&ended) = self.process(host).ended.get(&number) else {
            return Ok(());
        };
        self.census.note("number used again");
        match self.world.now() - ended > self.world.network.faults().slowest() {
            true => Ok(()),
            false => Err(Complaint::new(format!("{number} is used again too early"))),
        }
    }

    pub(super) fn connect(&mut self, host: usize, id: Id) -> Result<(), Complaint> {
        let who = self.who(host, id);
        let (number, service) = (
            self.ledger.record(who).number,
            self.ledger.record(who).service,
        );
        if !self.create_socket(host, id, service)? {
            self.break_off(host, id);
            return Ok(());
        }
        let room = match service {
            Service::Datagram => private_data::SERVICE_REQUEST,
            _ => private_data::REQUEST,
        };
        let greeting = self.script.greeting(number, Side::Client, room);
        let now = self.world.instant();
        let (responder_resources, initiator_depth) = self.draw_depths();
        let (process, device, manager) = self.parts(host);
        let socket = process.socket(id).expect("it was made just now");
        if service == Service::Datagram {
            socket.open(device)?;
        }
        let parameters = Parameters {
            private_data: &greeting,
            responder_resources,
            initiator_depth,
            ..Parameters::new(socket.number)
        };
        Ok(manager.connect(now, id, &parameters)?)
    }

    pub(super) fn accept(&mut self, host: usize, id: Id) -> Result<(), Complaint> {
        let who = self.who(host, id);
        let (number, service) = (
            self.ledger.record(who).number,
            self.ledger.record(who).service,
        );
        let room = room_of_answer(service);
        let welcome = self.script.greeting(number, Side::Guest, room);
        let now = self.world.instant();
        let (responder_resources, initiator_depth) = self.draw_depths();
        let (process, _, manager) = self.parts(host);
        let prepared = match manager.phase(id) {
            Some(Phase::ServiceRequestReceived) => Some(process.service),
            Some(Phase::RequestReceived) => self.prepare(host, id)?,
            _ => return Ok(()),
        };
        let Some(qpn) = prepared else {
            return self.act(host, Act::Reject(id));
        };
        let parameters = Parameters {
            private_data: &welcome,
            responder_resources,
            initiator_depth,
            ..Parameters::new(qpn)
        };
        self.host(host).manager().accept(now, id, &parameters)?;
        // The application of a datagram service does not need the id any more.
        if service == Service::Datagram {
            self.plan_act(host, Duration::from_millis(100), Act::Destroy(id));
        }
        Ok(())
    }

    /// Brings the queue pair of a server to RTR. Some servers go to RTS at once, others when the
    /// connection is established: those see data before the RTU.
    fn prepare(&mut self, host: usize, id: Id) -> Result<Option<wire::Qpn>, Complaint> {
        let who = self.who(host, id);
        let service = self.ledger.record(who).service;
        if !self.create_socket(host, id, service)? {
            return Ok(None);
        }
        let at_once = self.rng.percent(50);
        let (process, device, manager) = self.parts(host);
        let receive = manager.receive_attributes(id)?;
        let send = manager.send_attributes(id)?;
        let socket = process.socket(id).expect("it was made just now");
        socket.receive(device, &receive)?;
        if at_once {
            socket.send(device, &send)?;
        }
        let number = socket.number;
        self.post_receives_sometime(host, id)?;
        self.note_ends(host, id)?;
        Ok(Some(number))
    }

    pub(super) fn establish(&mut self, host: usize, id: Id) -> Result<(), Complaint> {
        let (process, device, manager) = self.parts(host);
        if manager.phase(id) != Some(Phase::ReplyReceived) {
            return Ok(());
        }
        let init = manager.init_attributes(id)?;
        let receive = manager.receive_attributes(id)?;
        let send = manager.send_attributes(id)?;
        let socket = process.socket(id).expect("who connects has a queue pair");
        socket.initialize(device, &init)?;
        socket.receive(device, &receive)?;
        socket.send(device, &send)?;
        manager.establish(id)?;
        self.post_receives_sometime(host, id)?;
        self.note_ends(host, id)?;
        self.begin_to_talk(host, id)
    }

    /// The connection is established: sends all messages, and plans the end of the connection.
    /// Sometimes both sides end it at the same time.
    pub(super) fn begin_to_talk(&mut self, host: usize, id: Id) -> Result<(), Complaint> {
        let who = self.who(host, id);
        if self.ledger.record(who).side == Side::Guest {
            self.send_from_now_on(host, id)?;
        }
        self.say_everything(host, id)?;
        let after = *self.rng.pick(&[50, 500, 2000, 20_000, 900_000, 900_000]);
        let after = Duration::from_millis(after);
        self.ledger.record(who).patient = after == LONG;
        let act = match self.rng.percent(10) {
            true => Act::Destroy(id),
            false => Act::Disconnect(id),
        };
        self.plan_act(host, after, act);
        self.leave_when_done(who);
        Ok(())
    }

    fn send_from_now_on(&mut self, host: usize, id: Id) -> Result<(), Complaint> {
        let (process, device, manager) = self.parts(host);
        let send = manager.send_attributes(id)?;
        let Some(socket) = process.socket(id) else {
            return Ok(());
        };
        let state = device
            .queue_pair(socket.number)
            .map(engine::QueuePair::state);
        match state {
            Some(engine::State::ReadyToReceive) => socket.send(device, &send),
            _ => Ok(()),
        }
    }

    /// Posts receives. Reliable connections sometimes get them late, because the peer retries.
    fn post_receives_sometime(&mut self, host: usize, id: Id) -> Result<(), Complaint> {
        let who = self.who(host, id);
        let waits = self.ledger.record(who).service == Service::Reliable;
        if waits && self.rng.percent(20) {
            let after = pause(&mut self.rng);
            self.plan_act(host, after, Act::PostReceives(id));
            return Ok(());
        }
        self.post_receives(host, id)
    }

    pub(super) fn post_receives(&mut self, host: usize, id: Id) -> Result<(), Complaint> {
        let (process, device, _) = self.parts(host);
        match process.socket(id) {
            Some(socket) => socket.post_receives(device),
            None => Ok(()),
        }
    }

    fn draw_depths(&mut self) -> (u8, u8) {
        (self.rng.below(4) as u8, self.rng.below(4) as u8)
    }

    fn note_ends(&mut self, host: usize, id: Id) -> Result<(), Complaint> {
        let who = self.who(host, id);
        let (process, _, manager) = self.parts(host);
        let receive = manager.receive_attributes(id)?;
        let send = manager.send_attributes(id)?;
        let ends = Ends {
            local_qpn: process.of_id[&id],
            remote_qpn: receive.remote_qpn,
            send_psn: send.send_psn,
            receive_psn: receive.receive_psn,
        };
        self.ledger.record(who).ends = Some(ends);
        Ok(())
    }
}
