//! Hosts with connected queue pairs, applications that use them, and a model of what must happen.
//!
//! Every [`End`] has its own memory at both sides, so the effect of a request is known when it is
//! posted: requests of one send queue take effect in order, and different send queues use different
//! memory. Every completion, receive, event and byte of memory is compared with the model.

mod build;
mod check_sends;
mod connect;
mod connection_end;
mod disrupt;
mod failing_requests;
mod invalid_posts;
mod memory_windows;
mod observe;
mod receive_queues;
mod run_parameters;
mod unreliable;
mod valid_requests;
mod workload;

pub(crate) use build::draw_config;
pub(crate) use run_parameters::{Profile, Service};
pub(crate) use valid_requests::Verb;

use std::time::Duration;

use engine::{CompletionQueue, Id, Notify, State};
use wire::Key;

use crate::CheckError;
use crate::model_memory::ModelMemory;
use crate::rng::Rng;
use crate::world::{Step, World};
use connection_end::{Cause, End};
use receive_queues::Pool;

/// All work must complete within this time after the last network fault.
const COMPLETION_TIMEOUT: Duration = Duration::from_secs(3);

/// A run with more steps than this counts as an endless loop.
const MAX_STEPS: u64 = 5_000_000;

/// Hosts, their queue pairs, and the model.
pub(crate) struct Cluster {
    pub(crate) world: World,
    profile: Profile,
    rng: Rng,
    memories: Vec<ModelMemory>,
    ends: Vec<End>,
    pools: Vec<Pool>,
    queues: Vec<Queue>,
    /// Valid keys by host.
    live_keys: Vec<(usize, Key)>,
    next_id: u64,
    steps: u64,
}

/// A completion queue, and whether it is armed.
struct Queue {
    host: usize,
    id: Id<CompletionQueue>,
    armed: Option<Notify>,
    notifications: u32,
}

/// A scheduled action of the application.
#[derive(Debug, Clone, Copy)]
enum Call {
    /// An end posts requests.
    Post(usize),
    /// Receives are posted to a pool.
    Refill(usize),
    /// The peer of an end is down: the end is moved to ERROR.
    Disconnect(usize),
    /// An end is moved to ERROR while it works.
    Break(usize),
    /// The send queue of an end starts to drain.
    Drain(usize),
    /// A drained send queue continues.
    Resume(usize),
    /// A host goes down.
    Kill(usize),
    /// An end deregisters memory that its peer used.
    Deregister(usize),
    /// Two ends in ERROR are connected again.
    Reconnect(usize),
}

impl Call {
    fn number(self) -> u64 {
        let (kind, index) = match self {
            Call::Post(end) => (0, end),
            Call::Refill(pool) => (1, pool),
            Call::Disconnect(end) => (2, end),
            Call::Break(end) => (3, end),
            Call::Drain(end) => (4, end),
            Call::Resume(end) => (5, end),
            Call::Kill(host) => (6, host),
            Call::Deregister(end) => (7, end),
            Call::Reconnect(end) => (8, end),
        };
        kind << 32 | index as u64
    }

    fn from_number(number: u64) -> Self {
        let index = number as u32 as usize;
        match number >> 32 {
            0 => Call::Post(index),
            1 => Call::Refill(index),
            2 => Call::Disconnect(index),
            3 => Call::Break(index),
            4 => Call::Drain(index),
            5 => Call::Resume(index),
            6 => Call::Kill(index),
            7 => Call::Deregister(index),
            _ => Call::Reconnect(index),
        }
    }
}

impl Cluster {
    /// Runs the simulation, and checks it.
    pub(crate) fn run(&mut self) -> Result<(), CheckError> {
        self.start()?;
        self.run_until_idle()?;
        self.check_all_done()?;
        self.check_gaps_reported()?;
        self.tear_down()?;
        self.check_memory()?;
        self.check_not_ready_bounds()?;
        self.check_counters()
    }

    fn run_until_idle(&mut self) -> Result<(), CheckError> {
        loop {
            match self.world.step()? {
                Some(Step::Host(host)) => self.poll_sometimes(host)?,
                Some(Step::Call(number)) => self.act(Call::from_number(number))?,
                None => {
                    self.drain_all()?;
                    if self.world.is_idle() {
                        return Ok(());
                    }
                }
            }
            self.check_completion_time()?;
        }
    }

    fn start(&mut self) -> Result<(), CheckError> {
        for pool in 0..self.pools.len() {
            if self.pools[pool].eager {
                self.refill(pool, usize::MAX)?;
            }
            if self.profile.late_receives {
                self.call_later(Call::Refill(pool));
            }
        }
        for end in 0..self.ends.len() {
            if self.ends[end].sends() {
                self.start_end(end);
            }
        }
        self.plan_disruptions()
    }

    /// If a host is going to fail, some ends start only afterwards.
    fn start_end(&mut self, end: usize) {
        let Some((_, death)) = self.profile.death.filter(|_| self.rng.percent(40)) else {
            return self.call_later(Call::Post(end));
        };
        self.world.call(death, Call::Post(end).number());
    }

    fn call_later(&mut self, call: Call) {
        let delay = self.rng.up_to(self.profile.pace);
        self.world.call(delay, call.number());
    }

    fn act(&mut self, call: Call) -> Result<(), CheckError> {
        match call {
            Call::Post(end) => self.post_some(end),
            Call::Refill(pool) => self.refill_late(pool),
            Call::Disconnect(end) | Call::Break(end) => self.break_end(end),
            Call::Drain(end) => self.drain_send_queue(end),
            Call::Resume(end) => self.resume(end),
            Call::Kill(host) => self.kill(host),
            Call::Deregister(end) => self.deregister(end),
            Call::Reconnect(end) => self.reconnect(end),
        }
    }

    fn refill_late(&mut self, pool: usize) -> Result<(), CheckError> {
        let most = self.rng.between(0, 3);
        self.refill(pool, most)?;
        if self.rng.percent(20) {
            self.drain_all()?;
        }
        if !self.is_done() {
            self.call_later(Call::Refill(pool));
        }
        Ok(())
    }

    fn state(&self, end: usize) -> Option<State> {
        let End { host, number, .. } = self.ends[end];
        let queue_pair = self.world.queue_pair(host, number)?;
        Some(queue_pair.state())
    }

    /// Whether requests of this end, and messages to it, may be lost without an error.
    fn is_lossy(&self, end: usize) -> bool {
        !self.ends[end].is_reliable() && self.profile.is_lossy()
    }

    /// An end is in ERROR for a known reason.
    fn fail_end(&mut self, end: usize, cause: Cause) {
        if self.ends[end].failure.is_some() {
            return;
        }
        self.ends[end].failure = Some(cause);
        self.ends[end].quota = 0;
        let peer = self.ends[end].peer;
        self.ends[peer].quota = 0;
        // The application of a working peer is informed outside of the simulation, some time later.
        let delay = 20 * self.world.slowest_round_trip() + self.rng.up_to(self.profile.pace);
        self.world.call(delay, Call::Disconnect(peer).number());
    }

    fn is_done(&self) -> bool {
        self.ends.iter().all(|end| {
            let sent = end.quota == 0 && end.outstanding.is_empty();
            let unread = !end.in_flight.is_empty()
                && end.is_reliable()
                && self.ends[end.peer].is_alive()
                && end.is_alive();
            sent && !unread
        })
    }

    fn check_completion_time(&mut self) -> Result<(), CheckError> {
        self.steps += 1;
        let late = self.world.now() > self.world.network.faults().until + COMPLETION_TIMEOUT;
        if !late && self.steps < MAX_STEPS {
            return Ok(());
        }
        self.drain_all()?;
        self.check_all_done()?;
        Err(CheckError::new(
            "all work is complete, but the devices do not become idle",
        ))
    }

    fn check_all_done(&self) -> Result<(), CheckError> {
        if self.is_done() {
            return Ok(());
        }
        let stuck = self
            .ends
            .iter()
            .position(|end| end.quota > 0 || !end.outstanding.is_empty());
        let Some(index) = stuck else {
            return Err(CheckError::new(
                "a message was acknowledged but never received",
            ));
        };
        let end = &self.ends[index];
        let text = format!(
            "does not progress in state {:?}: {} requests to post, {} outstanding, the oldest {:?} of {} bytes",
            self.state(index),
            end.quota,
            end.outstanding.len(),
            end.outstanding.front().map(|posted| posted.work),
            end.outstanding.front().map_or(0, |posted| posted.length),
        );
        Err(self.error_at(index, &text))
    }

    fn check_memory(&self) -> Result<(), CheckError> {
        self.memories.iter().try_for_each(ModelMemory::check_all)
    }

    /// Every PSN gap is reported by one sequence NAK.
    fn check_gaps_reported(&self) -> Result<(), CheckError> {
        let tells = |end: &End| end.is_alive() && end.is_reliable();
        let all_tell = self.ends.iter().all(tells) && self.profile.reconnections == 0;
        // A responder that sent an RNR NAK or is in ERROR does not report gaps.
        if !all_tell || self.profile.late_receives {
            return Ok(());
        }
        let gaps = self.world.tap.gaps();
        let naks: u64 = self
            .world
            .counters()
            .map(|counters| counters.sequence_naks_sent)
            .sum();
        if gaps == naks {
            Ok(())
        } else {
            Err(CheckError::new(format!(
                "{gaps} gaps occurred, but {naks} sequence NAKs were sent"
            )))
        }
    }

    /// On a faultless network nothing is retransmitted.
    fn check_counters(&self) -> Result<(), CheckError> {
        self.world.check_corrupted()?;
        if !self.profile.is_flawless() {
            return Ok(());
        }
        let harmless = [
            "packets_sent",
            "packets_received",
            "bytes_sent",
            "bytes_received",
            "sends_completed",
            "receives_completed",
        ];
        for (host, counters) in self.world.counters().enumerate() {
            let mut wrong = counters.iter().filter(|(name, _)| !harmless.contains(name));
            if let Some((name, count)) = wrong.find(|(_, count)| *count != 0) {
                return Err(CheckError::new(format!(
                    "on a faultless network, host {host} counts {count} {name}"
                )));
            }
        }
        Ok(())
    }

    /// An error at an end.
    fn error_at(&self, end: usize, text: &str) -> CheckError {
        let End { host, number, .. } = self.ends[end];
        CheckError::new(format!(
            "host {host} queue pair {number} at {:?}: {text}",
            self.world.now()
        ))
    }

    /// The number of queue pairs.
    pub(crate) fn queue_pairs(&self) -> usize {
        self.ends.len()
    }
}
