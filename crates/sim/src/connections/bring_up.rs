//! Creates queue pairs and brings them to RTS with the attributes of the manager.

use std::time::Duration;

use cm::{ExchangeState, Id, Parameters, private_data};

use super::Connections;
use super::application::{Action, LONG_DELAY, pause, response_capacity};
use super::data_queue_pair::DataQueuePair;
use super::event_log::Ends;
use super::process_config::Service;
use super::script::Side;
use crate::CheckError;

impl Connections {
    /// Creates a queue pair for an id and moves it to INIT; false if the device has no number left.
    fn create_queue_pair_for(
        &mut self,
        host: usize,
        id: Id,
        service: Service,
    ) -> Result<bool, CheckError> {
        let (process, device, manager) = self.parts(host);
        let (domain, queue) = (process.domain, process.queue);
        let Some(pair) = DataQueuePair::create(device, domain, queue, service, Some(id))? else {
            self.event_counts.note("no queue pair left");
            return Ok(false);
        };
        pair.initialize(device, &manager.init_attributes(id)?)?;
        process.of_id.insert(id, pair.number);
        let number = pair.number;
        process.queue_pairs.insert(number, pair);
        self.queue_pairs += 1;
        self.check_reuse(host, number)?;
        Ok(true)
    }

    /// A number is reused only when no packet of its last connection can be in flight.
    fn check_reuse(&mut self, host: usize, number: wire::Qpn) -> Result<(), CheckError> {
        let Some(&ended) = self.process(host).ended.get(&number) else {
            return Ok(());
        };
        self.event_counts.note("number reused");
        if self.world.now() - ended > self.world.network.faults().slowest() {
            Ok(())
        } else {
            Err(CheckError::new(format!("{number} is reused too early")))
        }
    }

    pub(super) fn connect(&mut self, host: usize, id: Id) -> Result<(), CheckError> {
        let key = self.key(host, id);
        let (number, service) = (
            self.event_log.record(key).number,
            self.event_log.record(key).service,
        );
        if !self.create_queue_pair_for(host, id, service)? {
            self.give_up(host, id);
            return Ok(());
        }
        let capacity = match service {
            Service::Datagram => private_data::SERVICE_REQUEST,
            _ => private_data::REQUEST,
        };
        let data = self.script.private_data(number, Side::Client, capacity);
        let now = self.world.instant();
        let (responder_resources, initiator_depth) = self.draw_depths();
        let (process, device, manager) = self.parts(host);
        let pair = process
            .queue_pair_of(id)
            .expect("the queue pair was created above");
        if service == Service::Datagram {
            pair.open(device)?;
        }
        let parameters = Parameters {
            private_data: &data,
            responder_resources,
            initiator_depth,
            ..Parameters::new(pair.number)
        };
        Ok(manager.connect(now, id, &parameters)?)
    }

    pub(super) fn accept(&mut self, host: usize, id: Id) -> Result<(), CheckError> {
        let key = self.key(host, id);
        let (number, service) = (
            self.event_log.record(key).number,
            self.event_log.record(key).service,
        );
        let capacity = response_capacity(service);
        let welcome = self.script.private_data(number, Side::Server, capacity);
        let now = self.world.instant();
        let (responder_resources, initiator_depth) = self.draw_depths();
        let (process, _, manager) = self.parts(host);
        let prepared = match manager.phase(id) {
            Some(ExchangeState::ServiceRequestReceived) => Some(process.service),
            Some(ExchangeState::RequestReceived) => self.prepare(host, id)?,
            _ => return Ok(()),
        };
        let Some(qpn) = prepared else {
            return self.perform(host, Action::Reject(id));
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
            self.plan_action(host, Duration::from_millis(100), Action::Destroy(id));
        }
        Ok(())
    }

    /// Brings the queue pair of a server to RTR. Some servers go to RTS at once, others when the
    /// connection is established: those see data before the RTU.
    fn prepare(&mut self, host: usize, id: Id) -> Result<Option<wire::Qpn>, CheckError> {
        let key = self.key(host, id);
        let service = self.event_log.record(key).service;
        if !self.create_queue_pair_for(host, id, service)? {
            return Ok(None);
        }
        let at_once = self.rng.percent(50);
        let (process, device, manager) = self.parts(host);
        let receive = manager.receive_attributes(id)?;
        let send = manager.send_attributes(id)?;
        let pair = process
            .queue_pair_of(id)
            .expect("the queue pair was created above");
        pair.receive(device, &receive)?;
        if at_once {
            pair.send(device, &send)?;
        }
        let number = pair.number;
        self.post_receives_soon_or_late(host, id)?;
        self.note_ends(host, id)?;
        Ok(Some(number))
    }

    pub(super) fn establish(&mut self, host: usize, id: Id) -> Result<(), CheckError> {
        let (process, device, manager) = self.parts(host);
        if manager.phase(id) != Some(ExchangeState::ReplyReceived) {
            return Ok(());
        }
        let init = manager.init_attributes(id)?;
        let receive = manager.receive_attributes(id)?;
        let send = manager.send_attributes(id)?;
        let pair = process
            .queue_pair_of(id)
            .expect("an id that connects has a queue pair");
        pair.initialize(device, &init)?;
        pair.receive(device, &receive)?;
        pair.send(device, &send)?;
        manager.establish(id)?;
        self.post_receives_soon_or_late(host, id)?;
        self.note_ends(host, id)?;
        self.start_traffic(host, id)
    }

    /// The connection is established: sends all messages, and plans the end of the connection.
    /// Sometimes both sides end it at the same time.
    pub(super) fn start_traffic(&mut self, host: usize, id: Id) -> Result<(), CheckError> {
        let key = self.key(host, id);
        if self.event_log.record(key).side == Side::Server {
            self.move_to_rts(host, id)?;
        }
        self.send_all_messages(host, id)?;
        let after = *self.rng.pick(&[50, 500, 2000, 20_000, 900_000, 900_000]);
        let after = Duration::from_millis(after);
        self.event_log.record(key).stays = after == LONG_DELAY;
        let action = if self.rng.percent(10) {
            Action::Destroy(id)
        } else {
            Action::Disconnect(id)
        };
        self.plan_action(host, after, action);
        self.disconnect_when_done(key);
        Ok(())
    }

    fn move_to_rts(&mut self, host: usize, id: Id) -> Result<(), CheckError> {
        let (process, device, manager) = self.parts(host);
        let send = manager.send_attributes(id)?;
        let Some(pair) = process.queue_pair_of(id) else {
            return Ok(());
        };
        let state = device.queue_pair(pair.number).map(engine::QueuePair::state);
        match state {
            Some(engine::State::ReadyToReceive) => pair.send(device, &send),
            _ => Ok(()),
        }
    }

    /// Posts receives. Reliable connections sometimes get them late, because the peer retries.
    fn post_receives_soon_or_late(&mut self, host: usize, id: Id) -> Result<(), CheckError> {
        let key = self.key(host, id);
        let waits = self.event_log.record(key).service == Service::Reliable;
        if waits && self.rng.percent(20) {
            let after = pause(&mut self.rng);
            self.plan_action(host, after, Action::PostReceives(id));
            return Ok(());
        }
        self.post_receives(host, id)
    }

    pub(super) fn post_receives(&mut self, host: usize, id: Id) -> Result<(), CheckError> {
        let (process, device, _) = self.parts(host);
        match process.queue_pair_of(id) {
            Some(pair) => pair.post_receives(device),
            None => Ok(()),
        }
    }

    fn draw_depths(&mut self) -> (u8, u8) {
        (self.rng.below(4) as u8, self.rng.below(4) as u8)
    }

    fn note_ends(&mut self, host: usize, id: Id) -> Result<(), CheckError> {
        let key = self.key(host, id);
        let (process, _, manager) = self.parts(host);
        let receive = manager.receive_attributes(id)?;
        let send = manager.send_attributes(id)?;
        let ends = Ends {
            local_qpn: process.of_id[&id],
            remote_qpn: receive.remote_qpn,
            send_psn: send.send_psn,
            receive_psn: receive.receive_psn,
        };
        self.event_log.record(key).ends = Some(ends);
        Ok(())
    }
}
