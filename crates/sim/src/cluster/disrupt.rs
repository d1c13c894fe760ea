//! Errors, drains, deregistrations, host failures and reconnections, and the end of a run.

use engine::{Attributes, RemoteMemory, State};

use super::connection_end::{Cause, Drain, Posted};
use super::receive_queues::Owner;
use super::{Call, Cluster};
use crate::CheckError;

impl Cluster {
    /// Plans the disruptions of a run.
    pub(super) fn plan_disruptions(&mut self) -> Result<(), CheckError> {
        let span = self.profile.pace * self.profile.requests as u32 / 2;
        for end in 0..self.ends.len() {
            if self.rng.percent(self.profile.breaks) {
                let delay = self.rng.up_to(span);
                self.world.call(delay, Call::Break(end).number());
            }
            if self.rng.percent(self.profile.reconnections) {
                // Long after all packets of the old connection.
                let delay = 4 * span + 100 * self.world.slowest_round_trip();
                self.world.call(delay, Call::Reconnect(end).number());
            }
            if self.rng.percent(self.profile.drains) {
                let delay = self.rng.up_to(span);
                self.world.call(delay, Call::Drain(end).number());
            }
            if self.rng.percent(self.profile.deregistrations) {
                let delay = self.rng.up_to(span);
                self.world.call(delay, Call::Deregister(end).number());
            }
        }
        if let Some((host, at)) = self.profile.death {
            self.world.call(at, Call::Kill(host).number());
        }
        (0..self.pools.len()).try_for_each(|pool| self.arm_limit(pool))
    }

    /// Deregisters a region while its peer has no request for it. Late packets find no region.
    pub(super) fn deregister(&mut self, end: usize) -> Result<(), CheckError> {
        let (host, peer) = (self.ends[end].host, self.ends[end].peer);
        // Requests of a peer in ERROR are flushed there, but may still arrive here.
        let busy = !self.ends[peer].outstanding.is_empty() || !self.ends[peer].is_alive();
        // The first region stays, because windows and requests need it.
        if busy || self.ends[end].targets.len() == 1 || !self.ends[end].is_alive() {
            return Ok(());
        }
        let Some(target) = self.ends[end].targets.pop() else {
            return Ok(());
        };
        let stale = RemoteMemory {
            address: self.memories[target.memory].base,
            key: target.key,
        };
        self.ends[end].stale.push(stale);
        self.live_keys.retain(|live| *live != (host, target.key));
        match self.world.device_mut(host) {
            Some(device) => Ok(device.deregister(target.key)?),
            None => Ok(()),
        }
    }

    /// Moves an end to ERROR: all its requests must be flushed.
    pub(super) fn break_end(&mut self, end: usize) -> Result<(), CheckError> {
        let host = self.ends[end].host;
        // Check the earlier completions first.
        self.drain(host)?;
        if !self.ends[end].is_alive() {
            return Ok(());
        }
        self.fail_end(end, Cause::Application);
        self.modify(end, State::Error, None)?;
        self.drain(host)
    }

    fn modify(
        &mut self,
        end: usize,
        state: State,
        drain_event: Option<bool>,
    ) -> Result<(), CheckError> {
        let (host, number) = (self.ends[end].host, self.ends[end].number);
        let attributes = Attributes {
            state: Some(state),
            drain_event,
            ..Attributes::default()
        };
        match self.world.device_of(host, number) {
            Some(device) => Ok(device.modify(number, &attributes)?),
            None => Ok(()),
        }
    }

    /// Drains a send queue: started requests finish, no request starts.
    pub(super) fn drain_send_queue(&mut self, end: usize) -> Result<(), CheckError> {
        if self.state(end) != Some(State::ReadyToSend) || self.ends[end].drain != Drain::No {
            return Ok(());
        }
        self.ends[end].drain = Drain::Asked;
        self.ends[end].last_before_drain = self.next_id;
        self.modify(end, State::SendQueueDrain, Some(true))
    }

    /// The drained event of a send queue.
    pub(super) fn drained(&mut self, end: usize) -> Result<(), CheckError> {
        if self.ends[end].drain != Drain::Asked {
            return Err(self.error_at(end, "reports a drain that was not requested"));
        }
        self.ends[end].drain = Drain::Done;
        self.call_later(Call::Resume(end));
        Ok(())
    }

    /// A drained send queue continues.
    pub(super) fn resume(&mut self, end: usize) -> Result<(), CheckError> {
        if self.state(end) != Some(State::SendQueueDrain) {
            return Ok(());
        }
        self.ends[end].drain = Drain::No;
        self.modify(end, State::ReadyToSend, None)
    }

    /// A host goes down: its posted requests never complete.
    pub(super) fn kill(&mut self, host: usize) -> Result<(), CheckError> {
        self.drain(host)?;
        self.world.kill(host);
        for end in 0..self.ends.len() {
            if self.ends[end].host == host {
                self.ends[end].quota = 0;
                // The peer gets no message: its retries must fail.
                self.ends[end].failure.get_or_insert(Cause::Application);
                let lost: Vec<Posted> = self.ends[end].outstanding.drain(..).collect();
                lost.into_iter()
                    .for_each(|posted| self.abandon(end, posted));
            }
        }
        for pool in 0..self.pools.len() {
            if self.pools[pool].host == host {
                self.abandon_receives(pool);
            }
        }
        Ok(())
    }

    /// Connects two ends in ERROR again, with the same queue pairs and other PSNs.
    pub(super) fn reconnect(&mut self, end: usize) -> Result<(), CheckError> {
        let pair = [end, self.ends[end].peer];
        let hosts = pair.map(|end| self.ends[end].host);
        if hosts.iter().any(|&host| self.world.device(host).is_none()) {
            return Ok(());
        }
        self.drain_all()?;
        if pair.iter().any(|&end| self.ends[end].is_alive()) {
            return Ok(());
        }
        for end in pair {
            self.modify(end, State::Reset, None)?;
            self.forget_failure(end);
        }
        self.join(pair)?;
        for end in pair {
            self.ends[end].quota = self.rng.between(1, self.profile.requests);
            for pool in self.ends[end].pools.clone() {
                self.refill(pool, usize::MAX)?;
                if self.profile.late_receives {
                    self.call_later(Call::Refill(pool));
                }
            }
            self.call_later(Call::Post(end));
        }
        Ok(())
    }

    /// Takes the memory content after the failure as expected: no packet is in flight.
    fn forget_failure(&mut self, end: usize) {
        let state = &mut self.ends[end];
        let targets = state.targets.iter().map(|target| target.memory);
        for memory in targets.chain([state.local.0]) {
            self.memories[memory].accept_all();
        }
        state.in_flight.clear();
        state.provoked.clear();
        state.doomed = false;
        state.failure = None;
        state.flushing = false;
        state.raised = None;
        state.drain = Drain::No;
    }

    /// At the end, every queue pair is moved to ERROR: it must flush the outstanding requests, and only
    /// those.
    pub(super) fn tear_down(&mut self) -> Result<(), CheckError> {
        for end in 0..self.ends.len() {
            if self.world.device(self.ends[end].host).is_some() {
                self.break_end(end)?;
            }
        }
        self.run_until_idle()?;
        for pool in &self.pools {
            if let Owner::End(end) = pool.owner
                && !pool.posted.is_empty()
            {
                let text = format!("{} receives were never flushed", pool.posted.len());
                return Err(self.error_at(end, &text));
            }
        }
        Ok(())
    }
}
