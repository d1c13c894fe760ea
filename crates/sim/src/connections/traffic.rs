//! Sends and receives the messages of connections, and compares them with the script.

use engine::{Completion, Destination, Status};
use wire::{Qpn, grh};

use super::application::{Act, pause};
use super::ledger::Who;
use super::place::Service;
use super::script::{Side, number_of};
use super::socket::address_of;
use super::{Connections, Process};
use crate::Complaint;
use crate::tap::Endpoint;

/// How many times connections retry. The first try may fail without loss, if its packets are
/// reordered.
const RETRIES: usize = 7;

/// The longest datagram of a client. It fits the smallest path MTU.
const LONGEST_DATAGRAM: usize = 200;

impl Connections {
    /// Sends all messages of one side.
    pub(super) fn say_everything(&mut self, host: usize, id: cm::Id) -> Result<(), Complaint> {
        let who = self.who(host, id);
        let (number, side) = (self.ledger.record(who).number, self.ledger.record(who).side);
        self.watch(who);
        let (script, now) = (self.script, self.world.now());
        let (process, device, _) = self.parts(host);
        let Some(socket) = process.socket(id) else {
            return Ok(());
        };
        socket.progress = now;
        for index in 0..script.count(number, side) {
            let message = script.message(number, side, index);
            socket.post_send(device, index, &message, None)?;
        }
        Ok(())
    }

    /// Observes the requests of a reliable connection with the tap.
    fn watch(&mut self, who: Who) {
        let record = self.ledger.record(who);
        let (Some(ends), Service::Reliable) = (record.ends, record.service) else {
            return;
        };
        let local = Endpoint {
            host: who.host,
            queue_pair: ends.local_qpn,
        };
        let peer = Endpoint {
            host: self.peer_host(who),
            queue_pair: ends.remote_qpn,
        };
        let stream = self.world.tap.follow(local, peer, 1);
        let process = self.process(who.host);
        if let Some(socket) = process.sockets.get_mut(&ends.local_qpn) {
            socket.stream = Some(stream);
        }
    }

    pub(super) fn peer_host(&mut self, who: Who) -> usize {
        let record = self.ledger.record(who);
        match record.side {
            Side::Client => record.server,
            Side::Guest => self.clients[&record.number].host,
        }
    }

    /// Sends datagrams to a service.
    pub(super) fn write_to_service(
        &mut self,
        host: usize,
        id: cm::Id,
        found: &cm::ServiceFound,
    ) -> Result<(), Complaint> {
        let who = self.who(host, id);
        let number = self.ledger.record(who).number;
        let destination = Destination {
            address: address_of(&found.path),
            queue_pair: found.remote_qpn,
            queue_key: found.queue_key,
        };
        let script = self.script;
        let (process, device, _) = self.parts(host);
        let Some(socket) = process.socket(id) else {
            return Ok(());
        };
        for index in 0..script.count(number, Side::Client) {
            let mut datagram = number.to_be_bytes().to_vec();
            datagram.push(index as u8);
            datagram.extend(script.message(number, Side::Client, index));
            datagram.truncate(LONGEST_DATAGRAM);
            socket.post_send(device, index, &datagram, Some(destination))?;
        }
        Ok(())
    }

    /// A completion of any queue pair except queue pair 1.
    pub(super) fn data_completed(
        &mut self,
        host: usize,
        completion: &Completion,
    ) -> Result<(), Complaint> {
        let number = completion.queue_pair;
        if number == self.process(host).service {
            return self.service_received(host, completion);
        }
        let owner = self.process(host).sockets.get(&number);
        let Some(owner) = owner.map(|socket| socket.id) else {
            return Err(Complaint::new(format!("{completion:?} of nobody")));
        };
        match (completion.status, owner) {
            (Status::Flushed, _) => Ok(()),
            (Status::Success, Some(id)) if completion.work.is_receive() => {
                self.received(host, id, completion)
            }
            (Status::Success, Some(id)) => self.sent(host, id, completion),
            (Status::Success, None) => {
                let text = format!("a broken queue pair goes on: {completion:?}");
                Err(Complaint::new(text))
            }
            (_, Some(id)) => self.failed(host, id, completion),
            (_, None) => Ok(()),
        }
    }

    fn received(
        &mut self,
        host: usize,
        id: cm::Id,
        completion: &Completion,
    ) -> Result<(), Complaint> {
        let who = self.who(host, id);
        let (script, now) = (self.script, self.world.now());
        let socket = self.process(host).socket(id).expect("it has just received");
        socket.progress = now;
        let found = socket.received(completion.id, completion.length);
        let record = self.ledger.record(who);
        let (number, peer) = (record.number, record.side.other());
        let expected = match record.service {
            Service::Reliable => record.received..record.received + 1,
            _ => 0..script.count(number, peer),
        };
        let is_known = expected
            .filter(|&index| index < script.count(number, peer))
            .any(|index| script.message(number, peer, index) == found);
        record.received += 1;
        if !is_known {
            return Err(Complaint::new(format!(
                "{who:?} got {} bytes that are not its next message: {record:?}",
                found.len()
            )));
        }
        self.leave_when_done(who);
        Ok(())
    }

    /// An acknowledged message must have arrived at the peer's application.
    fn sent(&mut self, host: usize, id: cm::Id, completion: &Completion) -> Result<(), Complaint> {
        let who = self.who(host, id);
        let now = self.world.now();
        let socket = self.process(host).socket(id).expect("it has just sent");
        socket.progress = now;
        let record = self.ledger.record(who);
        let in_turn = completion.id == record.sent as u64;
        record.sent += 1;
        let record = record.clone();
        let has_it = |peer: &super::ledger::Record| {
            peer.number == record.number && peer.side != record.side && peer.received >= record.sent
        };
        let arrived =
            record.service != Service::Reliable || self.ledger.records.values().any(has_it);
        if !in_turn || !arrived {
            let text = format!("{who:?}: {completion:?} in or before its time: {record:?}");
            return Err(Complaint::new(text));
        }
        self.leave_when_done(who);
        Ok(())
    }

    /// A transport failure must have a reason. The application gives up.
    fn failed(
        &mut self,
        host: usize,
        id: cm::Id,
        completion: &Completion,
    ) -> Result<(), Complaint> {
        let who = self.who(host, id);
        let gone = !self.peer_listens(who);
        let socket = self.process(host).socket(id).expect("it has just failed");
        let (stream, progress) = (socket.stream, socket.progress);
        let harmed = stream.map_or(0, |stream| {
            self.world.tap.stream(stream).harmed_since(progress)
        });
        let excused = gone || harmed >= RETRIES;
        if completion.status != Status::RetriesExhausted || !excused {
            return Err(Complaint::new(format!(
                "{who:?}: {completion:?} without a reason: {harmed} packets were harmed"
            )));
        }
        self.census.note("broken transport");
        self.ledger.record(who).broken = Some(completion.status);
        let after = pause(&mut self.rng);
        self.plan_act(host, after, Act::Disconnect(id));
        Ok(())
    }

    /// Whether the peer's queue pair can receive.
    fn peer_listens(&mut self, who: Who) -> bool {
        let host = self.peer_host(who);
        let record = self.ledger.record(who).clone();
        let remote = record.ends.map(|ends| ends.remote_qpn);
        let (Some(process), Some(remote)) = (&self.processes[host], remote) else {
            return false;
        };
        let is_peer = |id| {
            let peer = self.ledger.records.get(&self.who(host, id));
            peer.is_some_and(|peer| peer.number == record.number)
        };
        listens(process, self.world.peek(host), remote, is_peer)
    }

    fn service_received(&mut self, host: usize, completion: &Completion) -> Result<(), Complaint> {
        let (process, device, _) = self.parts(host);
        let socket = &process.sockets[&completion.queue_pair];
        let found = socket.received(completion.id, completion.length);
        socket.post_receive(device, completion.id as usize)?;
        let datagram = found.get(grh::LENGTH..).unwrap_or_default();
        let number = number_of(datagram);
        let is_right = number
            .zip(datagram.get(4))
            .is_some_and(|(number, &index)| self.is_datagram(number, index, datagram));
        let unknown = || Complaint::new(format!("a datagram that nobody sent: {completion:?}"));
        let number = number.filter(|_| is_right).ok_or_else(unknown)?;
        let mut records = self.ledger.records.values_mut();
        if let Some(guest) = records.find(|r| r.number == number && r.side == Side::Guest) {
            guest.received += 1;
        }
        self.census.note("datagram of a service");
        Ok(())
    }

    fn is_datagram(&self, number: u32, index: u8, datagram: &[u8]) -> bool {
        let message = self
            .script
            .message(number, Side::Client, usize::from(index));
        let length = message.len().min(LONGEST_DATAGRAM - 5);
        datagram[5..] == message[..length]
    }

    /// An application that stays disconnects when all messages are exchanged.
    pub(super) fn leave_when_done(&mut self, who: Who) {
        let script = self.script;
        let record = self.ledger.record(who);
        let (number, side) = (record.number, record.side);
        let done = record.sent == script.count(number, side)
            && record.received == script.count(number, side.other());
        if record.patient && done {
            let after = pause(&mut self.rng);
            self.plan_act(who.host, after, Act::Disconnect(who.id));
        }
    }
}

fn listens(
    process: &Process,
    device: Option<&engine::Device>,
    number: Qpn,
    is_peer: impl Fn(cm::Id) -> bool,
) -> bool {
    let socket = process.sockets.get(&number);
    let (Some(socket), Some(device)) = (socket, device) else {
        return false;
    };
    socket.id.is_some_and(is_peer) && socket.listens(device)
}
