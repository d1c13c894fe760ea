//! Endings: DREQ and DREP, and the destruction of ids.

use std::time::Instant;

use wire::cm::{DisconnectReply, DisconnectRequest, PrivateData, RejectReason};

use crate::error::CallError;
use crate::event::Instruction;
use crate::id::{Id, Phase, State};
use crate::link;
use crate::manager::{Arrival, Manager};
use crate::sabotage::Bug;

impl Manager {
    /// Ends a connection, or agrees to its end, like `rdma_disconnect`. The queue pair is to be
    /// broken. [`Disconnected`](crate::EventKind::Disconnected) and
    /// [`TimewaitExit`](crate::EventKind::TimewaitExit) follow. Without a connection nothing happens.
    pub fn disconnect(&mut self, now: Instant, id: Id) -> Result<(), CallError> {
        let endpoint = self.endpoint(id)?;
        if !matches!(endpoint.state, State::Connect | State::Disconnect) {
            return Err(CallError::WrongState(endpoint.state));
        }
        match endpoint.phase() {
            Some(Phase::Established) => {
                self.break_queue_pair(id);
                self.part(now, id);
            }
            Some(Phase::DisconnectReceived) => {
                self.break_queue_pair(id);
                self.agree_to_part(now, id);
            }
            _ => {}
        }
        Ok(())
    }

    /// Destroys an id, like `rdma_destroy_id`. A peer in the middle of a conversation is told.
    /// Events of the id that were not fetched are lost.
    pub fn destroy(&mut self, now: Instant, id: Id) -> Result<(), CallError> {
        self.endpoint(id)?;
        self.end_conversation(now, id);
        for guest in self.guests_of(id) {
            self.destroy(now, guest)?;
        }
        self.leave_waiting_room(id);
        self.leave_all_groups(id);
        self.clear_timer(id);
        self.release_port(id);
        self.endpoints.remove(id);
        self.events.retain(|event| event.id != id);
        self.instructions.retain(|instruction| {
            !matches!(instruction,
                Instruction::ResolveAddress { id: of, .. }
                | Instruction::ResolveRoute { id: of, .. } if *of == id)
        });
        Ok(())
    }

    /// Says good-bye.
    pub(super) fn part(&mut self, now: Instant, id: Id) {
        let link = self.link(id);
        link.phase = Phase::DisconnectSent;
        let transaction = link::own_transaction(link.local_id);
        let part = link.part();
        self.ask(now, id, transaction, part);
    }

    pub(super) fn handle_part(
        &mut self,
        now: Instant,
        arrival: Arrival,
        transaction: u64,
        part: &DisconnectRequest,
    ) {
        let id = self.conversations.get(&part.remote_id).copied();
        let Some(id) = id.filter(|&id| self.link(id).remote_id == part.local_id) else {
            self.agree_to_unknown(arrival, transaction, part);
            return;
        };
        let same_source = self.link(id).peer.destination == arrival.source;
        let link = self.link(id);
        if !same_source || link.local_qpn != part.remote_qpn {
            self.counters.unmatched += 1;
            return;
        }
        match link.phase {
            Phase::ReplySent
            | Phase::ReplyDelayed
            | Phase::Established
            | Phase::DisconnectSent
            | Phase::TimeWait => {
                link.transaction = transaction;
                self.accept_farewell(now, id, part);
            }
            Phase::DisconnectReceived => self.counters.duplicates.count(&(*part).into()),
            _ => self.counters.unmatched += 1,
        }
    }

    fn accept_farewell(&mut self, now: Instant, id: Id, part: &DisconnectRequest) {
        let is_deaf = self.sabotage.has(Bug::CrossedFarewellsIgnored);
        let link = self.link(id);
        match link.phase {
            Phase::DisconnectSent if is_deaf => {}
            // Both said good-bye at once: the application has nothing more to decide.
            Phase::DisconnectSent => {
                self.agree_to_part(now, id);
                self.tell_disconnected(id, false);
            }
            // It has not heard our answer.
            Phase::TimeWait => {
                let parted = link.parted();
                self.counters.duplicates.count(&(*part).into());
                self.say(id, parted);
            }
            _ => {
                link.phase = Phase::DisconnectReceived;
                self.stop_asking(id);
                self.tell_disconnected(id, false);
            }
        }
    }

    pub(super) fn handle_parted(
        &mut self,
        now: Instant,
        arrival: Arrival,
        parted: &DisconnectReply,
    ) {
        let id = self.joint_conversation(arrival, parted.remote_id, parted.local_id);
        let Some(id) = id else { return };
        match self.link(id).phase {
            Phase::DisconnectSent | Phase::DisconnectReceived => {
                self.enter_timewait(now, id);
                self.tell_disconnected(id, false);
            }
            _ => self.counters.duplicates.count(&(*parted).into()),
        }
    }

    fn agree_to_part(&mut self, now: Instant, id: Id) {
        let parted = self.link(id).parted();
        self.say(id, parted);
        self.enter_timewait(now, id);
    }

    /// Whoever says good-bye to a connection that we don't know shall not wait for an answer.
    fn agree_to_unknown(&mut self, arrival: Arrival, transaction: u64, part: &DisconnectRequest) {
        self.counters.duplicates.count(&(*part).into());
        let parted = DisconnectReply {
            local_id: part.remote_id,
            remote_id: part.local_id,
            ..DisconnectReply::default()
        };
        let peer = self.answer_to(arrival);
        self.send(peer, transaction, parted);
    }

    /// The last word of a conversation whose id is about to go. There will be no second one: like
    /// Linux, nothing is repeated for an id that does not exist.
    fn end_conversation(&mut self, now: Instant, id: Id) {
        let Some(phase) = self.known(id).phase() else {
            return;
        };
        let nothing = PrivateData::default();
        match phase {
            Phase::RequestSent | Phase::RequestDelayed => {
                let guid = self.config.guid;
                let given_up = self.link(id).give_up(guid);
                self.say(id, given_up);
            }
            Phase::RequestReceived => {
                self.refuse_request(now, id, RejectReason::Consumer, nothing);
                return;
            }
            Phase::ServiceRequestReceived => {
                let refused = self.refuse_service(now, id, &[]);
                refused.expect("nothing is not too long");
                return;
            }
            Phase::ReplyReceived => {
                let refusal = self.link(id).refusal(RejectReason::Consumer, nothing);
                self.say(id, refusal);
            }
            Phase::ReplySent | Phase::ReplyDelayed => {
                let refusal = self.link(id).refusal(RejectReason::Consumer, nothing);
                self.say(id, refusal);
                self.enter_timewait(now, id);
            }
            Phase::Established => {
                self.part(now, id);
                self.enter_timewait(now, id);
            }
            Phase::DisconnectSent => self.enter_timewait(now, id),
            Phase::DisconnectReceived => self.agree_to_part(now, id),
            Phase::TimeWait | Phase::ServiceRequestSent => {}
        }
        if self.known(id).phase() == Some(Phase::TimeWait) {
            self.leave_ghost(id);
        } else {
            self.forget_link(id);
        }
    }

    /// Those who came to a listener and were not noticed by the application yet.
    fn guests_of(&self, listener: Id) -> Vec<Id> {
        // Most ids never listened, and there may be many ids.
        if self
            .endpoints
            .get(listener)
            .is_none_or(|it| it.backlog.is_none())
        {
            return Vec::new();
        }
        let waiting = |waits_at: Option<Id>| waits_at == Some(listener);
        let guests = self
            .endpoints
            .iter()
            .filter(|(_, endpoint)| waiting(endpoint.waits_at));
        guests.map(|(id, _)| id).collect()
    }

    /// Whether a queue pair's number must not be used again yet, because packets of its last
    /// connection may be under way, even if the id is destroyed.
    pub fn is_lingering(&self, qpn: wire::Qpn) -> bool {
        let links = self.endpoints.values().filter_map(|e| e.link.as_ref());
        let mut waiting = links.filter(|link| link.phase == Phase::TimeWait);
        self.ghosts.uses(qpn) || waiting.any(|link| link.local_qpn == qpn)
    }
}
