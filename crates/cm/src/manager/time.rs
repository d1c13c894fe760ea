//! Timers: each id has at most one, and what it means follows from the id's state.

use std::time::Instant;

use crate::event::{EventKind, Failure, Unreachable};
use crate::id::{Id, Phase, State};
use crate::manager::Manager;
use crate::memory::Ghost;
use crate::sabotage::Bug;

impl Manager {
    /// When to call [`handle_timeout`](Self::handle_timeout).
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        let timer = self.timers.first().map(|&(at, _)| at);
        [timer, self.ghosts.deadline(), self.answers.deadline()]
            .into_iter()
            .flatten()
            .min()
    }

    /// Does what is due. Early or twice is harmless.
    pub fn handle_timeout(&mut self, now: Instant) {
        while let Some(&(at, id)) = self.timers.first()
            && at <= now
        {
            self.clear_timer(id);
            self.expire(now, id);
        }
        self.ghosts.expire(now);
        self.answers.expire(now);
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
        let endpoint = self.known(id);
        match (endpoint.state, endpoint.phase()) {
            (State::AddressQuery, _) => {
                endpoint.state = State::AddressBound;
                self.emit(id, EventKind::AddressError(Failure::TimedOut));
            }
            (State::RouteQuery, _) => {
                endpoint.state = State::AddressResolved;
                self.emit(id, EventKind::RouteError(Failure::TimedOut));
            }
            (_, Some(Phase::TimeWait)) => self.leave_timewait(id),
            (_, Some(_)) => self.ask_again(now, id),
            (_, None) => {}
        }
    }

    /// The peer has not answered in time.
    fn ask_again(&mut self, now: Instant, id: Id) {
        let link = self.link(id);
        let peer = link.peer;
        let Some(in_flight) = &mut link.in_flight else {
            return;
        };
        let expired = in_flight.until.is_some_and(|until| until <= now);
        let left = in_flight.retries_left.checked_sub(1);
        let Some(left) = left.filter(|_| !expired) else {
            self.no_answer(now, id);
            return;
        };
        in_flight.retries_left = left;
        let again = in_flight.next(now);
        let datagram = *in_flight.datagram;
        let attribute = in_flight.attribute;
        self.counters.repeated += 1;
        self.counters.sent.count_attribute(attribute);
        self.post(peer, &datagram);
        self.set_timer(id, again);
    }

    fn no_answer(&mut self, now: Instant, id: Id) {
        if self.link(id).phase == Phase::DisconnectSent {
            self.enter_timewait(now, id);
            self.tell_disconnected(id, true);
            return;
        }
        match self.link(id).phase {
            Phase::ReplySent | Phase::ReplyDelayed => self.forget_request(now, id),
            _ => {
                self.forget_link(id);
            }
        }
        if self.known(id).state == State::Connect {
            self.emit(id, EventKind::Unreachable(Unreachable::TimedOut));
        }
    }

    /// The connection is over, but packets of it may still be under way.
    pub(super) fn enter_timewait(&mut self, now: Instant, id: Id) {
        self.stop_asking(id);
        let endpoint = self.known(id);
        let mut link = endpoint.link.take().expect("a connection is ending");
        link.phase = Phase::TimeWait;
        let until = now + link.timewait();
        // A new connection of the same remote queue pair is not stale any more.
        self.forget_remote(id, &link);
        self.known(id).link = Some(link);
        self.set_timer(id, until);
    }

    fn leave_timewait(&mut self, id: Id) {
        self.forget_link(id);
        if self.known(id).state == State::Disconnect {
            self.emit(id, EventKind::TimewaitExit);
        }
    }

    /// Leaves behind what must be remembered of a connection whose id is destroyed.
    pub(super) fn leave_ghost(&mut self, id: Id) {
        let Some(until) = self.known(id).deadline else {
            return;
        };
        let Some(link) = self.forget_link(id) else {
            return;
        };
        if self.sabotage.has(Bug::NoTimewait) {
            return;
        }
        let ghost = Ghost {
            remote: link.remote_name(),
            qpn: link.local_qpn,
            until,
        };
        self.ghosts.add(link.local_id, ghost, self.config.max_ids);
    }

    /// The application is told once that its connection has ended.
    pub(super) fn tell_disconnected(&mut self, id: Id, timed_out: bool) {
        let endpoint = self.known(id);
        if endpoint.state == State::Connect {
            endpoint.state = State::Disconnect;
            self.emit(id, EventKind::Disconnected { timed_out });
        }
    }
}
