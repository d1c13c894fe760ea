//! Exit notices: the messages that a watcher sends when its process dies, and the events that they
//! must cause.

use std::time::Duration;

use cm::{ExchangeState, Manager};
use host::Host;
use wire::{Deth, Flow, Opcode, PacketHead, Psn, Qpn, QueueKey, icrc};

use super::event_log::{IdKey, Record, Step};
use super::process::Process;
use super::{Connections, Scheduled};
use crate::CheckError;
use crate::machine::Machine;

/// How long after a death its peers must have an event. The slowest datagram takes much less.
const NOTICE_TIMEOUT: Duration = Duration::from_secs(1);

/// The source port of exit notices. Any will do.
const SOURCE_PORT: u16 = 0xc000;

/// The event that an exit notice must cause at a peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ExpectedEnd {
    /// Both sides were established: the application gets a disconnect event.
    Disconnected,
    /// One side was half-open: any event that ends the connection.
    Ended,
}

impl ExpectedEnd {
    /// The event that follows from the phases of both sides when one dies, if its exit notice arrives.
    fn of(dead: ExchangeState, peer: ExchangeState) -> Option<ExpectedEnd> {
        let is_over = |phase| {
            matches!(
                phase,
                ExchangeState::TimeWait | ExchangeState::DisconnectReceived
            )
        };
        let (replied, waits) = (
            matches!(dead, ExchangeState::ReplySent | ExchangeState::ReplyDelayed),
            matches!(
                peer,
                ExchangeState::RequestSent | ExchangeState::RequestDelayed
            ),
        );
        match (dead, peer) {
            (ExchangeState::Established, ExchangeState::Established) => {
                Some(ExpectedEnd::Disconnected)
            }
            // There is no notice: the DREP is sent, or no peer waits for the requester of a service.
            (ExchangeState::TimeWait | ExchangeState::ServiceRequestSent, _) => None,
            (_, peer) if is_over(peer) => None,
            // If the REP is lost, the peer can't match a REJ with the REP's communication id, as on
            // Linux.
            _ if replied && waits => None,
            _ => Some(ExpectedEnd::Ended),
        }
    }

    fn is_reported(self, record: &Record) -> bool {
        record.has(Step::Disconnected)
            || self == ExpectedEnd::Ended
                && (record.has(Step::Rejected) || record.has(Step::Unreachable))
    }
}

impl Connections {
    /// Plans the death of one side of an established connection, if the run wants one.
    pub(super) fn maybe_die(&mut self, key: IdKey) {
        if !std::mem::take(&mut self.ends_by_death) {
            return;
        }
        let peer = self.peer_host(key);
        let host = *self.rng.pick(&[key.host, peer]);
        let after = self.rng.up_to(Duration::from_millis(100));
        self.plan_death(after, host);
    }

    /// Ends a process. Its watcher sends its exit notices.
    pub(super) fn die(&mut self, host: usize) -> Result<(), CheckError> {
        self.interrupted.insert(host);
        let expected_ends = self.expected_ends(host);
        let Some(process) = self.processes[host].take() else {
            return Ok(());
        };
        self.event_counts.note("death");
        let counters = *self.host(host).manager().counters();
        self.event_counts.take(&counters);
        self.world.kill(host);
        self.send_exit_notices(host, &process)?;
        for (key, expected) in expected_ends {
            self.plan(
                NOTICE_TIMEOUT,
                Scheduled::CheckEndReported { key, expected },
            );
        }
        Ok(())
    }

    /// Stores the exit notices that changed.
    pub(super) fn keep_exit_notices(&mut self, host: usize) {
        let machine = self.world.hosts[host].machine.as_mut();
        let machine = machine.and_then(Machine::host);
        let (Some(process), Some(machine)) = (self.processes[host].as_mut(), machine) else {
            return;
        };
        while let Some(changed) = machine.manager().poll_exit_notice() {
            match changed.transmit {
                Some(message) => process.exit_notices.insert(changed.id, message),
                None => process.exit_notices.remove(&changed.id),
            };
        }
    }

    fn send_exit_notices(&mut self, host: usize, process: &Process) -> Result<(), CheckError> {
        for message in process.exit_notices.values() {
            self.event_counts.note("exit notice");
            let (flow, packet) = datagram(message);
            self.world.send_for(host, &flow, &packet)?;
        }
        Ok(())
    }

    /// The events that the peers of a process must get if it dies now. None is certain with loss or
    /// reordering, or if the process has packets to send.
    fn expected_ends(&mut self, host: usize) -> Vec<(IdKey, ExpectedEnd)> {
        let is_sure = self.watched && self.world.is_faultless() && !self.world.has_to_send(host);
        let pairs = if is_sure {
            self.pairs_of(host)
        } else {
            Vec::new()
        };
        pairs
            .into_iter()
            .filter_map(|(dead, peer)| {
                let expected = ExpectedEnd::of(self.phase(dead)?, self.phase(peer)?)?;
                Some((peer, expected))
            })
            .collect()
    }

    /// The ids of a process, each with those of other processes that belong to the same connection.
    fn pairs_of(&self, host: usize) -> Vec<(IdKey, IdKey)> {
        let incarnation = self.incarnations[host];
        let (ours, others): (Vec<_>, Vec<_>) = self
            .event_log
            .records
            .iter()
            .partition(|(key, _)| key.host == host);
        let ours = ours
            .into_iter()
            .filter(|(key, _)| key.incarnation == incarnation);
        ours.flat_map(|(&key, record)| {
            let is_peer = |it: &Record| it.number == record.number && it.side != record.side;
            let peers = others.iter().filter(move |(_, it)| is_peer(it));
            peers.map(move |&(&peer, _)| (key, peer))
        })
        .collect()
    }

    /// The connection manager in which an id is or was; none if that process is dead.
    fn manager_of(&mut self, key: IdKey) -> Option<&mut Manager> {
        let is_current =
            self.incarnations[key.host] == key.incarnation && self.processes[key.host].is_some();
        let machine = self.world.hosts[key.host].machine.as_mut();
        machine.filter(|_| is_current)?.host().map(Host::manager)
    }

    fn phase(&mut self, key: IdKey) -> Option<ExchangeState> {
        self.manager_of(key)?.phase(key.id)
    }

    /// A peer of a dead process must have its event by now, unless its application gave up before.
    pub(super) fn check_end_reported(
        &mut self,
        key: IdKey,
        expected: ExpectedEnd,
    ) -> Result<(), CheckError> {
        let manager = self.manager_of(key);
        let is_gone = manager.is_none_or(|manager| manager.state(key.id).is_none());
        let record = self.event_log.record(key);
        let left = (is_gone || record.gave_up) && !ExpectedEnd::Ended.is_reported(record);
        if left || expected.is_reported(record) {
            self.event_counts.note("death reported in time");
            return Ok(());
        }
        let text =
            format!("{key:?} must get an event because its peer died ({expected:?}): {record:?}");
        Err(CheckError::new(text))
    }
}

/// The packet that queue pair 1 would have sent.
fn datagram(message: &cm::Transmit) -> (Flow, Vec<u8>) {
    let flow = Flow {
        source: message.source,
        destination: message.destination,
        source_port: SOURCE_PORT,
        destination_port: wire::ROCE_PORT,
    };
    let head = PacketHead::new(Opcode::UdSendOnly, Qpn::GSI, Psn::ZERO)
        .push(&Deth::new(QueueKey::GSI, Qpn::GSI));
    let mut packet = [head.bytes(), &message.datagram[..]].concat();
    packet.extend(icrc::checksum(&flow, 0, &packet));
    (flow, packet)
}
