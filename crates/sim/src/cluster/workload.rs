//! The posts of applications, and their effects in the model.

use engine::{QueuePairType, SendFlags};

use super::connection_end::{Expected, Posted};
use super::valid_requests::{Draft, Verb};
use super::{Call, Cluster};
use crate::CheckError;

impl Cluster {
    /// Posts a few requests, and schedules the next call until all are posted.
    pub(super) fn post_some(&mut self, end: usize) -> Result<(), CheckError> {
        for _ in 0..self.rng.between(1, self.profile.burst) {
            let state = &self.ends[end];
            if state.quota == 0 || state.outstanding.len() >= state.limits.max_sends {
                break;
            }
            self.post_one(end)?;
        }
        if self.ends[end].quota > 0 {
            self.call_later(Call::Post(end));
        }
        // If the queue is full, poll for completions.
        self.poll_sometimes(self.ends[end].host)
    }

    fn post_one(&mut self, end: usize) -> Result<(), CheckError> {
        let doomed = self.ends[end].doomed;
        if !doomed && self.rng.per_mille(self.profile.bad_posts) {
            self.post_invalid(end)?;
        }
        let draft = if !doomed && self.rng.per_mille(self.profile.violations) {
            self.draft_violation(end)
        } else {
            self.draft_legal(end)
        };
        let Some(mut draft) = draft else {
            return Ok(());
        };
        self.draw_flags(end, &mut draft);
        self.commit(end, draft)
    }

    fn draft_legal(&mut self, end: usize) -> Option<Draft> {
        let verb = self.rng.weighted(self.profile.verbs);
        let offered = self.ends[self.ends[end].peer].access;
        // An end without the right sends instead.
        let verb = if offered.contains(verb.service()) {
            verb
        } else {
            Verb::Send
        };
        match verb {
            Verb::Send => self.draft_send(end, None),
            Verb::SendImmediate => {
                let immediate = self.draw_immediate();
                self.draft_send(end, Some(immediate))
            }
            Verb::Write => self.draft_write(end, None),
            Verb::WriteImmediate => {
                let immediate = self.draw_immediate();
                self.draft_write(end, Some(immediate))
            }
            Verb::Read => self.draft_read(end),
            verb @ (Verb::CompareSwap | Verb::FetchAdd) => self.draft_atomic(end, verb),
            Verb::AtomicWrite => self.draft_atomic_write(end),
            Verb::Flush => Some(self.draft_flush(end)),
            Verb::Forward => self.draft_forward(end),
            Verb::Nothing => Some(self.draft_nothing(end)),
            Verb::Bind => self.draft_bind(end),
            Verb::LocalInvalidate => self.draft_local_invalidate(end),
            Verb::SendInvalidate => self.draft_send_invalidate(end),
            Verb::ThroughWindow => self.draft_through_window(end),
        }
    }

    fn draw_immediate(&mut self) -> [u8; 4] {
        (self.rng.word() as u32).to_be_bytes()
    }

    /// Flags that don't change the effect of a request.
    fn draw_flags(&mut self, end: usize, draft: &mut Draft) {
        let state = &self.ends[end];
        // Some requests must be signaled, so that a full queue frees its entries.
        let last = state.quota == 1 || state.outstanding.len() + 1 >= state.limits.max_sends;
        let flags = &mut draft.request.flags;
        flags.set(SendFlags::SIGNALED, last || self.rng.percent(60));
        flags.set(SendFlags::SOLICITED, self.rng.percent(30));
        if self.rng.percent(4) {
            *flags |= SendFlags::FENCE;
        }
        if let Some(message) = &mut draft.message {
            message.solicited = flags.contains(SendFlags::SOLICITED);
        }
    }

    /// Posts a request, and records its effects.
    fn commit(&mut self, end: usize, mut draft: Draft) -> Result<(), CheckError> {
        self.next_id += 1;
        draft.request.id = self.next_id;
        self.name_receive_queue(end, &mut draft);
        self.note_posted(end, &draft);
        let (host, number) = (self.ends[end].host, self.ends[end].number);
        let work = draft.request.work;
        let posted = match self.world.device_of(host, number) {
            Some(device) => device.post_send(number, draft.request),
            None => Ok(()),
        };
        self.ends[end].quota -= 1;
        posted.map_err(|error| self.error_at(end, &format!("{work:?} was rejected: {error}")))
    }

    /// Every XRC request names a shared receive queue, even if it uses none.
    fn name_receive_queue(&self, end: usize, draft: &mut Draft) {
        if self.ends[end].kind != QueuePairType::XrcInitiator {
            return;
        }
        let peer = &self.ends[self.ends[end].peer];
        let message = draft.message.as_ref();
        let pool = message.map_or(peer.pools[0], |message| message.pool);
        draft.request.remote_srqn = self.pools[pool].number;
    }

    fn note_posted(&mut self, end: usize, draft: &Draft) {
        let request = &draft.request;
        let work = request.work.kind();
        // Requests after one that must fail have no effect.
        let doomed = self.ends[end].doomed;
        let effects = if doomed {
            Vec::new()
        } else {
            draft.effects.clone()
        };
        for effect in &effects {
            self.memories[effect.memory].plan(effect.offset, &effect.bytes);
        }
        let state = &mut self.ends[end];
        let signal_all = state.limits.signal_all;
        state.outstanding.push_back(Posted {
            id: request.id,
            signaled: signal_all || request.flags.contains(SendFlags::SIGNALED),
            work,
            length: request.payload.length() as usize,
            expected: draft.expected,
            effects,
            reads: draft.reads.clone(),
            block: draft.block.clone(),
            has_result: Self::brings_result(work),
            binds: draft.binds,
            invalidates: draft.invalidates,
        });
        if !doomed && let Some(message) = &draft.message {
            state.in_flight.push_back(message.clone());
        }
        // A request that fails only when its result arrives does not stop later ones.
        state.doomed |= draft.expected != Expected::Success && !Self::brings_result(work);
        state.doomed |= matches!(draft.expected, Expected::Failure(_, Some(_)));
    }
}
