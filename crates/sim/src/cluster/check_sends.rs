//! Checks the completions of send requests, and updates the model.

use engine::{CompletedWork, Completion, QueuePairType, State, Status};

use super::Cluster;
use super::connection_end::{Cause, Drain, End, Expected, Fault, Opening, Posted};
use crate::CheckError;

impl Cluster {
    /// A send request of `end` completed.
    pub(crate) fn send_completed(
        &mut self,
        end: usize,
        completion: &Completion,
    ) -> Result<(), CheckError> {
        if completion.status != Status::Success {
            // The peer's host may have an event with the reason.
            self.drain_events(self.ends[self.ends[end].peer].host)?;
        }
        loop {
            let Some(posted) = self.ends[end].outstanding.pop_front() else {
                let text = format!("{completion:?}, but nothing is outstanding");
                return Err(self.error_at(end, &text));
            };
            if posted.id == completion.id {
                return self.check(end, posted, completion);
            }
            // An unsignaled request before it has succeeded.
            if posted.signaled || self.ends[end].flushing {
                let text = format!(
                    "{completion:?} came before that of {:?} {}",
                    posted.work, posted.id
                );
                return Err(self.error_at(end, &text));
            }
            self.settle(end, posted)?;
        }
    }

    fn check(
        &mut self,
        end: usize,
        posted: Posted,
        completion: &Completion,
    ) -> Result<(), CheckError> {
        if completion.work != posted.work {
            let text = format!("{completion:?} is of a {:?}", posted.work);
            return Err(self.error_at(end, &text));
        }
        if completion.status == Status::Success {
            return self.check_success(end, posted, completion);
        }
        if self.ends[end].flushing && completion.status != Status::Flushed {
            let text = format!("{completion:?} in a send queue in ERROR");
            return Err(self.error_at(end, &text));
        }
        if !self.ends[end].flushing {
            self.check_failure(end, &posted, completion.status)?;
            self.ends[end].flushing = true;
            self.ends[end].quota = 0;
        }
        self.abandon(end, posted);
        Ok(())
    }

    fn check_success(
        &mut self,
        end: usize,
        posted: Posted,
        completion: &Completion,
    ) -> Result<(), CheckError> {
        if !posted.signaled {
            return Err(self.error_at(end, "an unsignaled request completed with success"));
        }
        if self.ends[end].flushing {
            return Err(self.error_at(end, "a request succeeded after one that failed"));
        }
        let state = &self.ends[end];
        if state.drain != Drain::No && posted.id > state.last_before_drain {
            return Err(self.error_at(end, "a request was started while the queue drains"));
        }
        if posted.has_result && completion.length as usize != posted.length {
            let text = format!("{completion:?} of {} bytes", posted.length);
            return Err(self.error_at(end, &text));
        }
        self.settle(end, posted)
    }

    /// A request succeeded: its effects are in memory from now on.
    fn settle(&mut self, end: usize, posted: Posted) -> Result<(), CheckError> {
        if let Expected::Failure(status, _) = posted.expected {
            let text = format!(
                "{:?} of {} bytes succeeded, but must end with {status:?}",
                posted.work, posted.length
            );
            return Err(self.error_at(end, &text));
        }
        let lossy = self.is_lossy(end);
        let local = self.ends[end].local.0;
        for effect in posted.effects {
            if lossy && effect.memory != local {
                self.memories[effect.memory].suspect(effect.offset, effect.bytes);
            } else {
                self.memories[effect.memory].settle(effect.offset, &effect.bytes);
            }
        }
        if let Some(block) = posted.block {
            if posted.has_result {
                let found = self.memories[local].check(block.range.clone());
                found.map_err(|wrong| {
                    let text = format!("{:?} returned wrong data: {wrong}", posted.work);
                    self.error_at(end, &text)
                })?;
            }
            self.memories[local].free(&block);
        }
        self.windows_settled(end, posted.binds, posted.invalidates);
        Ok(())
    }

    /// A request failed: it may have had its effects, or parts of them.
    pub(super) fn abandon(&mut self, end: usize, posted: Posted) {
        if let Expected::Failure(_, Some(fault)) = posted.expected {
            self.ends[end].provoked.push(fault);
        }
        for effect in posted.effects {
            self.memories[effect.memory].suspect(effect.offset, effect.bytes);
        }
        let local = self.ends[end].local.0;
        if let Some(block) = posted.block.filter(|_| posted.has_result) {
            for piece in block.pieces {
                self.memories[local].accept(piece);
            }
        }
        if let Some(window) = posted.binds {
            self.ends[end].windows[window].opening = Opening::Closed;
        }
    }

    /// The first failure of a send queue must have a reason.
    fn check_failure(
        &mut self,
        end: usize,
        posted: &Posted,
        status: Status,
    ) -> Result<(), CheckError> {
        match (status, posted.expected) {
            (Status::Flushed, _) => return self.check_flush(end),
            (_, Expected::Failure(expected, fault)) if status == expected => {
                self.check_raised(end, fault)?;
            }
            (Status::RetriesExhausted, _) => self.check_exhausted(end)?,
            (Status::ReceiverNotReady, _) => self.check_not_ready(end)?,
            // A receive of the peer failed; its own completion is checked.
            (Status::RemoteOperation, _) if self.peer_receive_failed(end) => {}
            _ => {
                let text = format!(
                    "{:?} of {} bytes ended with {status:?}, but {:?} was expected",
                    posted.work, posted.length, posted.expected
                );
                return Err(self.error_at(end, &text));
            }
        }
        // An unreliable queue pair continues to receive.
        if self.ends[end].kind == QueuePairType::Uc {
            self.ends[end].doomed = true;
            return Ok(());
        }
        self.fail_end(end, Cause::OwnRequest(status));
        Ok(())
    }

    fn peer_receive_failed(&self, end: usize) -> bool {
        let peer = &self.ends[self.ends[end].peer];
        peer.raised == Some(Fault::Fatal)
    }

    fn check_raised(&self, end: usize, fault: Option<Fault>) -> Result<(), CheckError> {
        let raised = self.ends[self.ends[end].peer].raised;
        if fault.is_some() && raised != fault {
            let text = format!("the peer rejected a request with {raised:?} instead of {fault:?}");
            return Err(self.error_at(end, &text));
        }
        Ok(())
    }

    /// A retry error is correct only if a fault explains each failed try.
    fn check_exhausted(&self, end: usize) -> Result<(), CheckError> {
        let End {
            stream,
            limits,
            peer,
            ..
        } = self.ends[end];
        let stream = self.world.tap.stream(stream);
        let tries = u32::from(limits.retry_count) + 1;
        if stream.most_sent() < tries {
            let text = format!(
                "gave up after sending a packet {} times, not {tries}",
                stream.most_sent()
            );
            return Err(self.error_at(end, &text));
        }
        if self.world.device(self.ends[peer].host).is_none() {
            return self.check_tries_to_dead_host(end);
        }
        if self.state(peer).is_none_or(|state| !state.receives()) {
            return Ok(());
        }
        let timeout = limits.ack_timeout.unwrap_or_default() + self.world.slowest_round_trip();
        // The timeout grows with every retry, up to four times the interval.
        let window = 4 * timeout * (tries + 1);
        let since = stream.last_sent().saturating_sub(window);
        let faults = stream.faults_since(since);
        // A NAK and the timeout both react to a gap: one lost packet may cost two tries. With reordering,
        // a NAK may come although nothing is lost.
        let overtaken = usize::from(!self.profile.faults.keeps_order());
        if faults < (tries as usize).div_ceil(2) - overtaken {
            let text = format!(
                "gave up after {tries} tries, though only {faults} packets were lost or corrupted meanwhile"
            );
            return Err(self.error_at(end, &text));
        }
        Ok(())
    }

    /// A queue pair whose peer's host is down sends a packet exactly retry count + 1 times, and not too
    /// fast.
    fn check_tries_to_dead_host(&self, end: usize) -> Result<(), CheckError> {
        let End { stream, limits, .. } = self.ends[end];
        let stream = self.world.tap.stream(stream);
        let (Some((_, death)), Some(first)) = (self.profile.death, stream.first_sent()) else {
            return Ok(());
        };
        if first < death {
            return Ok(());
        }
        let retries = u32::from(limits.retry_count);
        let (sent, took) = (stream.most_sent(), stream.last_sent() - first);
        let fastest = limits.ack_timeout.unwrap_or_default() * retries;
        if sent == retries + 1 && took >= fastest {
            return Ok(());
        }
        let text = format!(
            "sent to a dead host {sent} times within {took:?}; expected are {} times within {fastest:?}",
            retries + 1
        );
        Err(self.error_at(end, &text))
    }

    fn check_not_ready(&self, end: usize) -> Result<(), CheckError> {
        let End { stream, limits, .. } = self.ends[end];
        let rejections = self.world.tap.stream(stream).most_not_ready();
        let enough = limits.rnr_retry < 7 && rejections > u32::from(limits.rnr_retry);
        if enough {
            return Ok(());
        }
        let text = format!(
            "gave up after {rejections} receiver-not-ready NAKs with a retry count of {}",
            limits.rnr_retry
        );
        Err(self.error_at(end, &text))
    }

    /// Without loss and reordering, a receiver gets no more tries than the RNR retry count allows.
    pub(super) fn check_not_ready_bounds(&self) -> Result<(), CheckError> {
        if !self.profile.faults.are_none() {
            return Ok(());
        }
        for (index, end) in self.ends.iter().enumerate() {
            let rejections = self.world.tap.stream(end.stream).most_not_ready();
            let most = u32::from(end.limits.rnr_retry) + 1;
            if end.limits.rnr_retry < 7 && rejections > most {
                let text =
                    format!("tried a receiver {rejections} times that was not ready, not {most}");
                return Err(self.error_at(index, &text));
            }
        }
        Ok(())
    }

    /// A queue pair in ERROR has completed every failed request: the others succeeded.
    pub(super) fn settle_silent(&mut self, end: usize) -> Result<(), CheckError> {
        while let Some(posted) = self.ends[end].outstanding.pop_front() {
            if posted.signaled || self.ends[end].flushing {
                let text = format!("{:?} {} was never completed", posted.work, posted.id);
                return Err(self.error_at(end, &text));
            }
            self.settle(end, posted)?;
        }
        Ok(())
    }

    /// Only a queue pair in ERROR flushes.
    pub(crate) fn check_flush(&self, end: usize) -> Result<(), CheckError> {
        match self.state(end) {
            Some(State::Error) => Ok(()),
            Some(State::SendQueueError) if self.ends[end].kind == QueuePairType::Uc => Ok(()),
            state => {
                let text = format!("requests are flushed in state {state:?}");
                Err(self.error_at(end, &text))
            }
        }
    }

    /// An end reported an asynchronous error caused by a request of its peer.
    pub(crate) fn peer_rejected(&mut self, end: usize, fault: Fault) -> Result<(), CheckError> {
        let sender = &self.ends[self.ends[end].peer];
        let outstanding = sender.outstanding.iter().any(
            |posted| matches!(posted.expected, Expected::Failure(_, Some(other)) if other == fault),
        );
        let expected = outstanding || sender.provoked.contains(&fault);
        let corrupted = fault == Fault::Fatal && self.profile.poisoned_receives > 0;
        if !expected && !corrupted {
            let text = format!("reported {fault:?} without a request that causes it");
            return Err(self.error_at(end, &text));
        }
        if self.ends[end].raised.replace(fault).is_some() {
            return Err(self.error_at(end, "reported two errors about its peer"));
        }
        self.fail_end(end, Cause::RejectedPeer);
        Ok(())
    }

    /// Whether a kind of work writes a result to local memory.
    pub(crate) fn brings_result(work: CompletedWork) -> bool {
        matches!(
            work,
            CompletedWork::Read | CompletedWork::CompareSwap | CompletedWork::FetchAdd
        )
    }
}
