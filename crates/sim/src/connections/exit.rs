//! Exit notices: the messages that a watcher sends when its process dies, and the events that they
//! must cause.

use std::time::Duration;

use cm::{Manager, Phase};
use host::Host;
use wire::{Deth, Flow, Opcode, PacketHead, Psn, Qpn, QueueKey, icrc};

use super::ledger::{Record, Step, Who};
use super::process::Process;
use super::{Connections, Plan};
use crate::Complaint;
use crate::machine::Machine;

/// How long after a death its peers must have an event. The slowest datagram takes much less.
const NOTICE_TIME: Duration = Duration::from_secs(1);

/// The source port of exit notices. Any will do.
const SOURCE_PORT: u16 = 0xc000;

/// The event that an exit notice must cause at a peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Lesson {
    /// Both sides were established: the application gets a disconnect event.
    Disconnected,
    /// One side was half-open: any event that ends the connection.
    Ended,
}

impl Lesson {
    /// The event that follows from the phases of both sides when one dies, if its exit notice arrives.
    fn of(dead: Phase, peer: Phase) -> Option<Lesson> {
        let is_over = |phase| matches!(phase, Phase::TimeWait | Phase::DisconnectReceived);
        let (replied, waits) = (
            matches!(dead, Phase::ReplySent | Phase::ReplyDelayed),
            matches!(peer, Phase::RequestSent | Phase::RequestDelayed),
        );
        match (dead, peer) {
            (Phase::Established, Phase::Established) => Some(Lesson::Disconnected),
            // There is no notice: the DREP is sent, or no peer waits for the requester of a service.
            (Phase::TimeWait | Phase::ServiceRequestSent, _) => None,
            (_, peer) if is_over(peer) => None,
            // If the REP is lost, the peer can't match a REJ with the REP's communication id, as on
            // Linux.
            _ if replied && waits => None,
            _ => Some(Lesson::Ended),
        }
    }

    fn is_learned(self, record: &Record) -> bool {
        record.has(Step::Disconnected)
            || self == Lesson::Ended
                && (record.has(Step::Rejected) || record.has(Step::Unreachable))
    }
}

impl Connections {
    /// Plans the death of one side of an established connection, if the run wants one.
    pub(super) fn perhaps_die(&mut self, who: Who) {
        if !std::mem::take(&mut self.ends_by_death) {
            return;
        }
        let peer = self.peer_host(who);
        let host = *self.rng.pick(&[who.host, peer]);
        let after = self.rng.up_to(Duration::from_millis(100));
        self.plan_death(after, host);
    }

    /// Ends a process. Its watcher sends its exit notices.
    pub(super) fn die(&mut self, host: usize) -> Result<(), Complaint> {
        self.unsteady.insert(host);
        let lessons = self.lessons(host);
        let Some(process) = self.processes[host].take() else {
            return Ok(());
        };
        self.census.note("death");
        let counters = *self.host(host).manager().counters();
        self.census.take(&counters);
        self.world.kill(host);
        self.send_exit_notices(host, &process)?;
        for (who, lesson) in lessons {
            self.plan(NOTICE_TIME, Plan::Learned { who, lesson });
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

    fn send_exit_notices(&mut self, host: usize, process: &Process) -> Result<(), Complaint> {
        for message in process.exit_notices.values() {
            self.census.note("exit notice");
            let (flow, packet) = datagram(message);
            self.world.send_for(host, &flow, &packet)?;
        }
        Ok(())
    }

    /// The events that the peers of a process must get if it dies now. None is certain with loss or
    /// reordering, or if the process has packets to send.
    fn lessons(&mut self, host: usize) -> Vec<(Who, Lesson)> {
        let is_sure = self.watched && self.world.is_calm() && !self.world.has_to_send(host);
        let pairs = if is_sure {
            self.pairs_of(host)
        } else {
            Vec::new()
        };
        pairs
            .into_iter()
            .filter_map(|(dead, peer)| {
                let lesson = Lesson::of(self.phase(dead)?, self.phase(peer)?)?;
                Some((peer, lesson))
            })
            .collect()
    }

    /// The ids of a process, each with those of other processes that belong to the same connection.
    fn pairs_of(&self, host: usize) -> Vec<(Who, Who)> {
        let life = self.lives[host];
        let (ours, others): (Vec<_>, Vec<_>) = self
            .ledger
            .records
            .iter()
            .partition(|(who, _)| who.host == host);
        let ours = ours.into_iter().filter(|(who, _)| who.life == life);
        ours.flat_map(|(&who, record)| {
            let is_peer = |it: &Record| it.number == record.number && it.side != record.side;
            let peers = others.iter().filter(move |(_, it)| is_peer(it));
            peers.map(move |&(&peer, _)| (who, peer))
        })
        .collect()
    }

    /// The connection manager in which an id is or was; none if that process is dead.
    fn manager_of(&mut self, who: Who) -> Option<&mut Manager> {
        let lives = self.lives[who.host] == who.life && self.processes[who.host].is_some();
        let machine = self.world.hosts[who.host].machine.as_mut();
        machine.filter(|_| lives)?.host().map(Host::manager)
    }

    fn phase(&mut self, who: Who) -> Option<Phase> {
        self.manager_of(who)?.phase(who.id)
    }

    /// A peer of a dead process must have its event by now, unless its application gave up before.
    pub(super) fn check_learned(&mut self, who: Who, lesson: Lesson) -> Result<(), Complaint> {
        let manager = self.manager_of(who);
        let is_gone = manager.is_none_or(|manager| manager.state(who.id).is_none());
        let record = self.ledger.record(who);
        let left = (is_gone || record.broke_off) && !Lesson::Ended.is_learned(record);
        if left || lesson.is_learned(record) {
            self.census.note("death learned in time");
            return Ok(());
        }
        let what = format!("{who:?} must learn that its peer died ({lesson:?}): {record:?}");
        Err(Complaint::new(what))
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
