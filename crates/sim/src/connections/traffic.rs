//! Sends and receives the messages of connections, and compares them with the script.

use engine::{Completion, Destination, Status};
use wire::{Qpn, grh};

use super::application::{Action, pause};
use super::data_queue_pair::address_of;
use super::event_log::IdKey;
use super::process_config::Service;
use super::script::{Side, number_of};
use super::{Connections, Process};
use crate::CheckError;
use crate::packet_observer::HostQueuePair;

/// How many times connections retry. The first try may fail without loss, if its packets are
/// reordered.
const RETRIES: usize = 7;

/// The longest datagram of a client. It fits the smallest path MTU.
const LONGEST_DATAGRAM: usize = 200;

impl Connections {
    /// Sends all messages of one side.
    pub(super) fn send_all_messages(&mut self, host: usize, id: cm::Id) -> Result<(), CheckError> {
        let key = self.key(host, id);
        let (number, side) = (
            self.event_log.record(key).number,
            self.event_log.record(key).side,
        );
        self.watch(key);
        let (script, now) = (self.script, self.world.now());
        let (process, device, _) = self.parts(host);
        let Some(pair) = process.queue_pair_of(id) else {
            return Ok(());
        };
        pair.progress = now;
        for index in 0..script.count(number, side) {
            let message = script.message(number, side, index);
            pair.post_send(device, index, &message, None)?;
        }
        Ok(())
    }

    /// Observes the requests of a reliable connection with the tap.
    fn watch(&mut self, key: IdKey) {
        let record = self.event_log.record(key);
        let (Some(ends), Service::Reliable) = (record.ends, record.service) else {
            return;
        };
        let local = HostQueuePair {
            host: key.host,
            queue_pair: ends.local_qpn,
        };
        let peer = HostQueuePair {
            host: self.peer_host(key),
            queue_pair: ends.remote_qpn,
        };
        let stream = self.world.tap.follow(local, peer, 1);
        let process = self.process(key.host);
        if let Some(pair) = process.queue_pairs.get_mut(&ends.local_qpn) {
            pair.stream = Some(stream);
        }
    }

    pub(super) fn peer_host(&mut self, key: IdKey) -> usize {
        let record = self.event_log.record(key);
        match record.side {
            Side::Client => record.server,
            Side::Server => self.clients[&record.number].host,
        }
    }

    /// Sends datagrams to a service.
    pub(super) fn send_to_service(
        &mut self,
        host: usize,
        id: cm::Id,
        found: &cm::ServiceFound,
    ) -> Result<(), CheckError> {
        let key = self.key(host, id);
        let number = self.event_log.record(key).number;
        let destination = Destination {
            address: address_of(&found.path),
            queue_pair: found.remote_qpn,
            queue_key: found.queue_key,
        };
        let script = self.script;
        let (process, device, _) = self.parts(host);
        let Some(pair) = process.queue_pair_of(id) else {
            return Ok(());
        };
        for index in 0..script.count(number, Side::Client) {
            let mut datagram = number.to_be_bytes().to_vec();
            datagram.push(index as u8);
            datagram.extend(script.message(number, Side::Client, index));
            datagram.truncate(LONGEST_DATAGRAM);
            pair.post_send(device, index, &datagram, Some(destination))?;
        }
        Ok(())
    }

    /// A completion of any queue pair except queue pair 1.
    pub(super) fn data_completed(
        &mut self,
        host: usize,
        completion: &Completion,
    ) -> Result<(), CheckError> {
        let number = completion.queue_pair;
        if number == self.process(host).service {
            return self.service_received(host, completion);
        }
        let owner = self.process(host).queue_pairs.get(&number);
        let Some(owner) = owner.map(|pair| pair.id) else {
            return Err(CheckError::new(format!(
                "{completion:?} of an unknown queue pair"
            )));
        };
        match (completion.status, owner) {
            (Status::Flushed, _) => Ok(()),
            (Status::Success, Some(id)) if completion.work.is_receive() => {
                self.received(host, id, completion)
            }
            (Status::Success, Some(id)) => self.sent(host, id, completion),
            (Status::Success, None) => {
                let text = format!("a queue pair in ERROR completed a request: {completion:?}");
                Err(CheckError::new(text))
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
    ) -> Result<(), CheckError> {
        let key = self.key(host, id);
        let script = self.script;
        let pair = self
            .process(host)
            .queue_pair_of(id)
            .expect("the queue pair has an id");
        let found = pair.received(completion.id, completion.length);
        let record = self.event_log.record(key);
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
            return Err(CheckError::new(format!(
                "{key:?} got {} bytes that are not its next message: {record:?}",
                found.len()
            )));
        }
        self.disconnect_when_done(key);
        Ok(())
    }

    /// An acknowledged message must have arrived at the peer's application.
    fn sent(&mut self, host: usize, id: cm::Id, completion: &Completion) -> Result<(), CheckError> {
        let key = self.key(host, id);
        let now = self.world.now();
        let pair = self
            .process(host)
            .queue_pair_of(id)
            .expect("the queue pair has an id");
        pair.progress = now;
        let record = self.event_log.record(key);
        let in_turn = completion.id == record.sent as u64;
        record.sent += 1;
        let record = record.clone();
        let has_it = |peer: &super::event_log::Record| {
            peer.number == record.number && peer.side != record.side && peer.received >= record.sent
        };
        let arrived =
            record.service != Service::Reliable || self.event_log.records.values().any(has_it);
        if !in_turn || !arrived {
            let text = format!("{key:?}: {completion:?} out of order: {record:?}");
            return Err(CheckError::new(text));
        }
        self.disconnect_when_done(key);
        Ok(())
    }

    /// A transport failure must have a reason. The application gives up.
    fn failed(
        &mut self,
        host: usize,
        id: cm::Id,
        completion: &Completion,
    ) -> Result<(), CheckError> {
        let key = self.key(host, id);
        let gone = !self.peer_can_receive(key);
        let pair = self
            .process(host)
            .queue_pair_of(id)
            .expect("the queue pair has an id");
        let (stream, progress) = (pair.stream, pair.progress);
        let faults = stream.map_or(0, |stream| {
            self.world.tap.stream(stream).faults_since(progress)
        });
        let excused = gone || faults >= RETRIES;
        if completion.status != Status::RetriesExhausted || !excused {
            return Err(CheckError::new(format!(
                "{key:?}: {completion:?} without a reason: {faults} packets were lost or corrupted"
            )));
        }
        self.event_counts.note("transport failure");
        self.event_log.record(key).broken = Some(completion.status);
        let after = pause(&mut self.rng);
        self.plan_action(host, after, Action::Disconnect(id));
        Ok(())
    }

    /// Whether the peer's queue pair can receive.
    fn peer_can_receive(&mut self, key: IdKey) -> bool {
        let host = self.peer_host(key);
        let record = self.event_log.record(key).clone();
        let remote = record.ends.map(|ends| ends.remote_qpn);
        let (Some(process), Some(remote)) = (&self.processes[host], remote) else {
            return false;
        };
        let is_peer = |id| {
            let peer = self.event_log.records.get(&self.key(host, id));
            peer.is_some_and(|peer| peer.number == record.number)
        };
        can_receive(process, self.world.device(host), remote, is_peer)
    }

    fn service_received(&mut self, host: usize, completion: &Completion) -> Result<(), CheckError> {
        let (process, device, _) = self.parts(host);
        let pair = &process.queue_pairs[&completion.queue_pair];
        let found = pair.received(completion.id, completion.length);
        pair.post_receive(device, completion.id as usize)?;
        let datagram = found.get(grh::LENGTH..).unwrap_or_default();
        let number = number_of(datagram);
        let is_right = number
            .zip(datagram.get(4))
            .is_some_and(|(number, &index)| self.is_datagram(number, index, datagram));
        let unknown = || CheckError::new(format!("an unknown datagram: {completion:?}"));
        let number = number.filter(|_| is_right).ok_or_else(unknown)?;
        let mut records = self.event_log.records.values_mut();
        if let Some(server) = records.find(|r| r.number == number && r.side == Side::Server) {
            server.received += 1;
        }
        self.event_counts.note("datagram of a service");
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
    pub(super) fn disconnect_when_done(&mut self, key: IdKey) {
        let script = self.script;
        let record = self.event_log.record(key);
        let (number, side) = (record.number, record.side);
        let done = record.sent == script.count(number, side)
            && record.received == script.count(number, side.other());
        if record.stays && done {
            let after = pause(&mut self.rng);
            self.plan_action(key.host, after, Action::Disconnect(key.id));
        }
    }
}

fn can_receive(
    process: &Process,
    device: Option<&engine::Device>,
    number: Qpn,
    is_peer: impl Fn(cm::Id) -> bool,
) -> bool {
    let pair = process.queue_pairs.get(&number);
    let (Some(pair), Some(device)) = (pair, device) else {
        return false;
    };
    pair.id.is_some_and(is_peer) && pair.can_receive(device)
}
