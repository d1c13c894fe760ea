//! Disconnection with DREQ and DREP, and the destruction of ids.

use std::time::Instant;

use wire::cm::{DisconnectReply, DisconnectRequest, PrivateData, RejectReason};

use crate::error::CallError;
use crate::event::Instruction;
use crate::exchange;
use crate::exchange_state::ExchangeState;
use crate::id::{Id, IdEntry, State};
use crate::manager::{Addresses, Manager};
use crate::planted_bug::Bug;
use crate::timing;

impl Manager {
    /// Ends a connection, or answers the peer's DREQ, like `rdma_disconnect`. Moves the queue pair to
    /// ERROR. [`Disconnected`](crate::EventKind::Disconnected) and
    /// [`TimewaitExit`](crate::EventKind::TimewaitExit) follow. Without a connection nothing happens.
    pub fn disconnect(&mut self, now: Instant, id: Id) -> Result<(), CallError> {
        let entry = self.entry(id)?;
        if !matches!(entry.state, State::Connect | State::Disconnect) {
            return Err(CallError::WrongState(entry.state));
        }
        match entry.phase() {
            Some(ExchangeState::Established) => {
                self.move_to_error(id);
                self.send_dreq(now, id);
            }
            Some(ExchangeState::DisconnectReceived) => {
                self.move_to_error(id);
                self.send_drep(now, id);
            }
            _ => {}
        }
        Ok(())
    }

    /// How many destroyed ids can wait for the response to their DREQ, and not more than
    /// [`Config::max_ids`](crate::Config::max_ids). The DREQ of further ones is sent once.
    const MAX_DESTROYED: usize = 1024;

    /// Destroys an id, like `rdma_destroy_id`. If an exchange is in progress, the peer gets a message.
    /// Events of the id that were not fetched are lost.
    pub fn destroy(&mut self, now: Instant, id: Id) -> Result<(), CallError> {
        self.entry(id)?;
        self.end_exchange(now, id);
        for child in self.untaken_children(id) {
            self.destroy(now, child)?;
        }
        self.leave_backlog(id);
        self.leave_all_groups(id);
        self.release_port(id);
        if self.known(id).phase() == Some(ExchangeState::DisconnectSent) {
            self.keep_until_answered(id);
        } else {
            self.clear_timer(id);
            self.id_table.remove(id);
        }
        self.events.retain(|event| event.id != id);
        self.instructions.retain(|instruction| {
            !matches!(instruction,
                Instruction::ResolveAddress { id: of, .. }
                | Instruction::ResolveRoute { id: of, .. } if *of == id)
        });
        Ok(())
    }

    /// Sends a DREQ.
    pub(super) fn send_dreq(&mut self, now: Instant, id: Id) {
        let exchange = self.exchange(id);
        exchange.phase = ExchangeState::DisconnectSent;
        let transaction = exchange::own_transaction(exchange.local_id);
        let dreq = exchange.dreq();
        self.send_until_response(now, id, transaction, dreq);
    }

    pub(super) fn handle_dreq(
        &mut self,
        now: Instant,
        addresses: Addresses,
        transaction: u64,
        dreq: &DisconnectRequest,
    ) {
        let id = self.by_local_id.get(&dreq.remote_id).copied();
        let Some(id) = id.filter(|&id| self.exchange(id).remote_id == dreq.local_id) else {
            self.respond_to_unknown_dreq(addresses, transaction, dreq);
            return;
        };
        let same_source = self.exchange(id).peer.destination == addresses.source;
        let exchange = self.exchange(id);
        if !same_source || exchange.local_qpn != dreq.remote_qpn {
            self.counters.unmatched += 1;
            return;
        }
        match exchange.phase {
            ExchangeState::ReplySent
            | ExchangeState::ReplyDelayed
            | ExchangeState::Established
            | ExchangeState::DisconnectSent
            | ExchangeState::TimeWait => {
                exchange.transaction = transaction;
                self.accept_dreq(now, id, dreq);
            }
            ExchangeState::DisconnectReceived => self.counters.duplicates.count(&(*dreq).into()),
            _ => self.counters.unmatched += 1,
        }
    }

    fn accept_dreq(&mut self, now: Instant, id: Id, dreq: &DisconnectRequest) {
        let ignore_crossed = self.planted.is(Bug::CrossedDisconnectsIgnored);
        let exchange = self.exchange(id);
        match exchange.phase {
            ExchangeState::DisconnectSent if ignore_crossed => {}
            // The two DREQs crossed: the application has nothing left to decide.
            ExchangeState::DisconnectSent => {
                self.send_drep(now, id);
                self.report_disconnected(id, false);
            }
            // Our DREP is lost or late.
            ExchangeState::TimeWait => {
                let drep = exchange.drep();
                self.counters.duplicates.count(&(*dreq).into());
                self.send(id, drep);
            }
            _ => {
                exchange.phase = ExchangeState::DisconnectReceived;
                self.stop_retransmitting(id);
                self.report_disconnected(id, false);
            }
        }
    }

    pub(super) fn handle_drep(
        &mut self,
        now: Instant,
        addresses: Addresses,
        drep: &DisconnectReply,
    ) {
        let id = self.find_by_both_ids(addresses, drep.remote_id, drep.local_id);
        let Some(id) = id else { return };
        match self.exchange(id).phase {
            ExchangeState::DisconnectSent | ExchangeState::DisconnectReceived => {
                self.enter_timewait(now, id);
                self.report_disconnected(id, false);
            }
            _ => self.counters.duplicates.count(&(*drep).into()),
        }
    }

    /// Sends a DREP and enters time-wait.
    fn send_drep(&mut self, now: Instant, id: Id) {
        let drep = self.exchange(id).drep();
        self.send(id, drep);
        self.enter_timewait(now, id);
    }

    /// IBA 12.9.8.2: a DREQ for an unknown connection is answered, so that the peer does not wait for a timeout.
    fn respond_to_unknown_dreq(
        &mut self,
        addresses: Addresses,
        transaction: u64,
        dreq: &DisconnectRequest,
    ) {
        self.counters.duplicates.count(&(*dreq).into());
        let drep = DisconnectReply {
            local_id: dreq.remote_id,
            remote_id: dreq.local_id,
            ..DisconnectReply::default()
        };
        let peer = self.reverse_path(addresses);
        self.send_to(peer, transaction, drep);
    }

    /// Sends the last message of an exchange whose id is about to be destroyed. Only a DREQ is
    /// retransmitted.
    fn end_exchange(&mut self, now: Instant, id: Id) {
        let Some(phase) = self.known(id).phase() else {
            return;
        };
        let nothing = PrivateData::default();
        match phase {
            ExchangeState::RequestSent | ExchangeState::RequestDelayed => {
                let guid = self.config.guid;
                let reject = self.exchange(id).reject_timeout(guid);
                self.send(id, reject);
            }
            ExchangeState::RequestReceived => {
                self.reject_request(now, id, RejectReason::Consumer, nothing);
                return;
            }
            ExchangeState::ServiceRequestReceived => {
                let rejected = self.reject_service(now, id, &[]);
                rejected.expect("empty private data fits");
                return;
            }
            ExchangeState::ReplyReceived => {
                let reject = self.exchange(id).reject(RejectReason::Consumer, nothing);
                self.send(id, reject);
            }
            ExchangeState::ReplySent | ExchangeState::ReplyDelayed => {
                let reject = self.exchange(id).reject(RejectReason::Consumer, nothing);
                self.send(id, reject);
                self.enter_timewait(now, id);
            }
            ExchangeState::Established => {
                self.send_dreq(now, id);
                if self.retransmit_dreq_for_a_while(now, id) {
                    return;
                }
            }
            ExchangeState::DisconnectSent => {
                if self.retransmit_dreq_for_a_while(now, id) {
                    return;
                }
            }
            ExchangeState::DisconnectReceived => self.send_drep(now, id),
            ExchangeState::TimeWait | ExchangeState::ServiceRequestSent => {}
        }
        if self.known(id).phase() == Some(ExchangeState::TimeWait) {
            self.keep_in_time_wait(id);
        } else {
            self.remove_exchange(id);
        }
    }

    /// Bounds how long the DREQ of an id that is about to be destroyed is retransmitted. Returns false, and
    /// enters time-wait, if too many destroyed ids wait already.
    ///
    /// Linux does not retransmit it. If it is lost there, the peer waits for ever.
    fn retransmit_dreq_for_a_while(&mut self, now: Instant, id: Id) -> bool {
        let max = Self::MAX_DESTROYED.min(self.config.max_ids);
        if self.destroyed >= max || self.planted.is(Bug::NoRetransmissions) {
            self.enter_timewait(now, id);
            return false;
        }
        let exchange = self.exchange(id);
        let outstanding = exchange.outstanding.as_mut();
        let outstanding = outstanding.expect("a DREQ is retransmitted until it is answered");
        outstanding.until = Some(now + timing::DESTROYED_DREQ_TIME);
        let next = outstanding.next();
        self.set_timer(id, next);
        true
    }

    /// Keeps a destroyed id until its DREQ is answered. The application does not see it any more.
    fn keep_until_answered(&mut self, id: Id) {
        self.destroyed += 1;
        let entry = self.known(id);
        entry.destroyed = true;
        entry.state = State::Idle;
        entry.source = None;
        let exchange = entry.exchange.take().expect("the id has sent a DREQ");
        // A new connection of the same remote queue pair is not stale any more.
        self.remove_queue_pairs(id, &exchange);
        self.known(id).exchange = Some(exchange);
    }

    /// Forgets a destroyed id whose DREQ is answered, or will not be. Its connection stays in time-wait.
    pub(super) fn forget_destroyed(&mut self, id: Id) {
        self.keep_in_time_wait(id);
        self.id_table.remove(id);
        self.destroyed -= 1;
    }

    /// The child ids of a listener that the application has not taken.
    fn untaken_children(&self, listener: Id) -> Vec<Id> {
        // The scan below is slow with many ids, and most ids never listened.
        if self
            .id_table
            .get(listener)
            .is_none_or(|it| it.backlog.is_none())
        {
            return Vec::new();
        }
        let waiting = |backlog_of: Option<Id>| backlog_of == Some(listener);
        let children = self
            .id_table
            .iter()
            .filter(|(_, entry)| waiting(entry.backlog_of));
        children.map(|(id, _)| id).collect()
    }

    /// Whether a queue pair's last connection is in time-wait, even if its id is destroyed. The number
    /// must not be reused yet, because packets of the connection may still arrive.
    pub fn is_in_time_wait(&self, qpn: wire::Qpn) -> bool {
        let ended = |it: &&IdEntry| it.destroyed || it.phase() == Some(ExchangeState::TimeWait);
        let id_table = self.id_table.values().filter(ended);
        let mut exchanges = id_table.filter_map(|entry| entry.exchange.as_ref());
        self.time_wait.uses(qpn) || exchanges.any(|exchange| exchange.local_qpn == qpn)
    }
}
