//! Timers: each id has at most one. Its meaning follows from the id's state.

use std::time::Instant;

use wire::cm::{Reject, RejectReason, RejectedMessage, ServiceReply, ServiceStatus};

use crate::event::{EventKind, Failure, Unanswered, Unreachable};
use crate::exchange_state::ExchangeState;
use crate::id::{Id, State};
use crate::manager::{Addresses, Manager, note};
use crate::planted_bug::Bug;
use crate::retained_state::TimeWait;

impl Manager {
    /// When to call [`handle_timeout`](Self::handle_timeout).
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        let timer = self.timers.first().map(|&(at, _)| at);
        [timer, self.time_wait.deadline(), self.responses.deadline()]
            .into_iter()
            .flatten()
            .min()
    }

    /// Handles expired timers. An early or repeated call is harmless.
    pub fn handle_timeout(&mut self, now: Instant) {
        while let Some(&(at, id)) = self.timers.first()
            && at <= now
        {
            self.clear_timer(id);
            self.expire(now, id);
        }
        self.time_wait.expire(now);
        self.responses.expire(now);
    }

    pub(super) fn set_timer(&mut self, id: Id, at: Instant) {
        self.clear_timer(id);
        self.known(id).deadline = Some(at);
        self.timers.insert((at, id));
    }

    pub(super) fn clear_timer(&mut self, id: Id) {
        if let Some(at) = self.known(id).deadline.take() {
            self.timers.remove(&(at, id));
        }
    }

    fn expire(&mut self, now: Instant, id: Id) {
        let entry = self.known(id);
        match (entry.state, entry.phase()) {
            (State::AddressQuery, _) => {
                entry.state = State::AddressBound;
                self.emit(id, EventKind::AddressError(Failure::TimedOut));
            }
            (State::RouteQuery, _) => {
                entry.state = State::AddressResolved;
                self.emit(id, EventKind::RouteError(Failure::TimedOut));
            }
            (_, Some(ExchangeState::TimeWait)) => self.leave_timewait(id),
            (_, Some(_)) => self.retransmit(now, id),
            (_, None) => {}
        }
    }

    /// The peer has not answered in time: retransmits, or stops waiting.
    fn retransmit(&mut self, now: Instant, id: Id) {
        let exchange = self.exchange(id);
        let (peer, phase) = (exchange.peer, exchange.phase);
        let Some(outstanding) = &mut exchange.outstanding else {
            return;
        };
        if !outstanding.count_retransmission(now) {
            self.handle_no_response(now, id);
            return;
        }
        let again = outstanding.next();
        let datagram = *outstanding.datagram;
        let attribute = outstanding.attribute;
        let retransmissions = outstanding.retransmissions;
        if matches!(
            phase,
            ExchangeState::RequestSent | ExchangeState::ServiceRequestSent
        ) {
            let unanswered = Unanswered {
                id,
                retransmissions,
            };
            note(&mut self.unanswered, unanswered);
        }
        self.counters.retransmitted.count_attribute(attribute);
        self.counters.sent.count_attribute(attribute);
        self.enqueue(peer, &datagram);
        self.set_timer(id, again);
    }

    /// The next request that was retransmitted, because no response came. It may still succeed.
    pub fn poll_unanswered(&mut self) -> Option<Unanswered> {
        self.unanswered.pop_front()
    }

    /// No process serves the RoCE port at the peer's address, so nobody has the service. The request ends as if a device there
    /// had said so.
    pub fn handle_closed_port(&mut self, now: Instant, id: Id) {
        let Some(exchange) = self.entry(id).ok().and_then(|it| it.exchange.as_ref()) else {
            return;
        };
        let (phase, peer, request) = (exchange.phase, exchange.peer, exchange.local_id);
        let addresses = Addresses {
            source: peer.destination,
            destination: peer.source,
        };
        match phase {
            ExchangeState::RequestSent => {
                let reject = Reject {
                    remote_id: request,
                    message: RejectedMessage::Request,
                    reason: RejectReason::InvalidServiceId,
                    ..Reject::default()
                };
                self.handle_rej(now, addresses, &reject);
            }
            ExchangeState::ServiceRequestSent => {
                let reply = ServiceReply {
                    request_id: request,
                    status: ServiceStatus::NotSupported,
                    ..ServiceReply::default()
                };
                self.handle_sidr_rep(addresses, &reply);
            }
            _ => {}
        }
    }

    fn handle_no_response(&mut self, now: Instant, id: Id) {
        if self.exchange(id).phase == ExchangeState::DisconnectSent {
            self.enter_timewait(now, id);
            self.report_disconnected(id, true);
            return;
        }
        match self.exchange(id).phase {
            ExchangeState::ReplySent | ExchangeState::ReplyDelayed => self.drop_request(now, id),
            _ => {
                self.remove_exchange(id);
            }
        }
        if self.known(id).state == State::Connect {
            self.emit(id, EventKind::Unreachable(Unreachable::TimedOut));
        }
    }

    /// The connection has ended, but packets of it may still arrive.
    pub(super) fn enter_timewait(&mut self, now: Instant, id: Id) {
        self.stop_retransmitting(id);
        let entry = self.known(id);
        let mut exchange = entry.exchange.take().expect("the id has an exchange");
        exchange.phase = ExchangeState::TimeWait;
        let until = now + exchange.timewait();
        // A new connection of the same remote queue pair is not stale any more.
        self.remove_queue_pairs(id, &exchange);
        self.known(id).exchange = Some(exchange);
        self.set_timer(id, until);
    }

    fn leave_timewait(&mut self, id: Id) {
        self.remove_exchange(id);
        if self.known(id).state == State::Disconnect {
            self.emit(id, EventKind::TimewaitExit);
        }
    }

    /// Keeps a connection in time-wait although its id is destroyed.
    pub(super) fn keep_in_time_wait(&mut self, id: Id) {
        let Some(until) = self.known(id).deadline else {
            return;
        };
        let Some(exchange) = self.remove_exchange(id) else {
            return;
        };
        if self.planted.is(Bug::NoTimewait) {
            return;
        }
        let entry = TimeWait {
            remote: exchange.remote_connection(),
            qpn: exchange.local_qpn,
            until,
        };
        self.time_wait
            .add(exchange.local_id, entry, self.config.max_ids);
    }

    /// Reports the end of a connection to the application, once. A destroyed id is forgotten instead.
    pub(super) fn report_disconnected(&mut self, id: Id, timed_out: bool) {
        let entry = self.known(id);
        if entry.destroyed {
            self.forget_destroyed(id);
            return;
        }
        if entry.state == State::Connect {
            entry.state = State::Disconnect;
            self.emit(id, EventKind::Disconnected { timed_out });
        }
    }
}
