//! Receive pools: receive queues of one queue pair or shared, and their posted receives.

use std::collections::VecDeque;

use engine::{
    CompletedWork, Completion, CompletionQueue, Id, ReceiveRequest, Segment, SharedReceiveQueue,
    Status,
};
use wire::{Key, Srqn};

use super::Cluster;
use super::connection_end::{Cause, Message};
use super::observe::Due;
use crate::CheckError;
use crate::model_memory::Block;

/// A receive queue and its posted receives.
pub(crate) struct Pool {
    pub(crate) host: usize,
    pub(crate) memory: usize,
    pub(crate) key: Key,
    pub(crate) owner: Owner,
    /// The completion queue of its receives, if it is not that of the queue pair.
    pub(crate) completions: Option<Id<CompletionQueue>>,
    /// Its number in XRC requests.
    pub(crate) number: Option<Srqn>,
    /// The smallest and the largest capacity of a receive.
    pub(crate) min_capacity: usize,
    pub(crate) max_capacity: usize,
    pub(crate) max_segments: usize,
    /// How many receives the application keeps posted.
    pub(crate) depth: usize,
    /// Whether the application posts receives late.
    pub(crate) eager: bool,
    /// Receives without a completion yet, oldest first.
    pub(crate) posted: VecDeque<Receive>,
    posts: u64,
    /// Whether the limit of a shared queue is armed, and whether a receive was used since then.
    armed: Option<u32>,
    used: bool,
}

/// The owner of a pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Owner {
    End(usize),
    Shared(Id<SharedReceiveQueue>),
}

/// A receive that was posted.
pub(crate) struct Receive {
    id: u64,
    pub(super) block: Block,
    /// Its key is invalid: only an empty message can be received.
    poisoned: bool,
}

impl Pool {
    pub(crate) fn new(host: usize, memory: usize, key: Key, owner: Owner) -> Self {
        Self {
            host,
            memory,
            key,
            owner,
            completions: None,
            number: None,
            min_capacity: 0,
            max_capacity: 0,
            max_segments: 1,
            depth: 1,
            eager: true,
            posted: VecDeque::new(),
            posts: 0,
            armed: None,
            used: false,
        }
    }
}

const POOL_SHIFT: u32 = 40;

impl Cluster {
    /// Posts receives up to the target, but at most `most`.
    pub(crate) fn refill(&mut self, pool: usize, most: usize) -> Result<(), CheckError> {
        for _ in 0..most {
            if self.pools[pool].posted.len() >= self.pools[pool].depth || !self.is_usable(pool) {
                break;
            }
            if !self.post_receive(pool)? {
                break;
            }
        }
        Ok(())
    }

    fn is_usable(&self, pool: usize) -> bool {
        let pool = &self.pools[pool];
        let open = match pool.owner {
            Owner::End(end) => self.ends[end].is_alive(),
            Owner::Shared(_) => true,
        };
        open && self.world.device(pool.host).is_some()
    }

    /// The completion queue that a completion belongs to.
    pub(super) fn right_queue(
        &self,
        end: usize,
        completion: &Completion,
    ) -> Option<Id<CompletionQueue>> {
        let [sends, receives] = self.ends[end].completions?;
        if !completion.work.is_receive() {
            return Some(sends);
        }
        let pool = self.pools.get((completion.id >> POOL_SHIFT) as usize)?;
        pool.completions.or(Some(receives))
    }

    /// Posts a receive; false if no memory is free.
    fn post_receive(&mut self, pool: usize) -> Result<bool, CheckError> {
        let Pool {
            host,
            memory,
            key,
            owner,
            min_capacity,
            max_capacity,
            max_segments,
            ..
        } = self.pools[pool];
        let length = self.rng.between(min_capacity, max_capacity);
        let pieces = self.draw_pieces(length, max_segments);
        let Some(block) = self.memories[memory].allocate(length, pieces, &mut self.rng) else {
            return Ok(false);
        };
        let poisoned = self.rng.per_mille(self.profile.poisoned_receives);
        let key = if poisoned {
            Key::new(key.value() ^ 0x0080_0000)
        } else {
            key
        };
        self.pools[pool].posts += 1;
        let id = (pool as u64) << POOL_SHIFT | self.pools[pool].posts;
        let request = ReceiveRequest::new(id, self.segments(memory, key, &block));
        let device = match owner {
            Owner::End(end) => self.world.device_of(host, self.ends[end].number),
            Owner::Shared(_) => self.world.device_mut(host),
        };
        let device = device.expect("the caller checked that the host is up");
        let posted = match owner {
            Owner::End(end) => device.post_receive(self.ends[end].number, request),
            Owner::Shared(queue) => device.post_shared_receive(queue, request),
        };
        posted.map_err(|error| CheckError::new(format!("a receive was rejected: {error}")))?;
        self.pools[pool].posted.push_back(Receive {
            id,
            block,
            poisoned,
        });
        Ok(true)
    }

    /// Arms the limit of a shared receive queue.
    pub(super) fn arm_limit(&mut self, pool: usize) -> Result<(), CheckError> {
        let Owner::Shared(queue) = self.pools[pool].owner else {
            return Ok(());
        };
        let limit = self.rng.between(1, self.pools[pool].depth) as u32;
        self.pools[pool].armed = Some(limit);
        self.pools[pool].used = false;
        let host = self.pools[pool].host;
        match self.world.device_mut(host) {
            Some(device) => Ok(device.set_shared_receive_limit(queue, limit)?),
            None => Ok(()),
        }
    }

    /// A limit event: it must be armed.
    pub(super) fn limit_reached(
        &mut self,
        host: usize,
        queue: Id<SharedReceiveQueue>,
    ) -> Result<(), CheckError> {
        let owner = Owner::Shared(queue);
        let mut pools = self.pools.iter_mut();
        let pool = pools.find(|pool| pool.host == host && pool.owner == owner);
        match pool.and_then(|pool| pool.armed.take()) {
            Some(_) => Ok(()),
            None => Err(CheckError::new(format!(
                "shared receive queue {queue:?} of host {host} reports a limit that is not armed"
            ))),
        }
    }

    /// A queue that fell below its limit, and stayed there, must have reported it.
    pub(super) fn check_limits(&self, host: usize) -> Result<(), CheckError> {
        let Some(device) = self.world.device(host) else {
            return Ok(());
        };
        for pool in self.pools.iter().filter(|pool| pool.host == host) {
            let (Owner::Shared(queue), Some(limit)) = (pool.owner, pool.armed) else {
                continue;
            };
            let left = device
                .shared_receive_queue(queue)
                .map_or(0, |queue| queue.len());
            if pool.used && left < limit as usize {
                return Err(CheckError::new(format!(
                    "shared receive queue {queue:?} of host {host} has {left} receives left and \
                     did not report its limit of {limit}"
                )));
            }
        }
        Ok(())
    }

    /// These receives never complete: their content is unknown.
    pub(super) fn abandon_receives(&mut self, pool: usize) {
        let memory = &mut self.memories[self.pools[pool].memory];
        for receive in self.pools[pool].posted.drain(..) {
            for piece in receive.block.pieces {
                memory.accept(piece);
            }
        }
    }

    /// The segments of a block.
    pub(crate) fn segments(&self, memory: usize, key: Key, block: &Block) -> Vec<Segment> {
        let memory = &self.memories[memory];
        let segment = |piece: &std::ops::Range<usize>| Segment {
            address: memory.address(piece.start),
            length: piece.len() as u32,
            key,
        };
        block.pieces.iter().map(segment).collect()
    }

    /// A receive of `end` completed. Returns whether the sender solicited a notification.
    pub(crate) fn receive_completed(
        &mut self,
        end: usize,
        completion: &Completion,
    ) -> Result<Due, CheckError> {
        let pool = (completion.id >> POOL_SHIFT) as usize;
        let receive = self.take_posted(end, pool, completion.id)?;
        if completion.status != Status::Success {
            self.receive_failed(end, pool, &receive, completion)?;
            return Ok(Due::Yes);
        }
        let message = self.next_message(end, pool, &receive, completion)?;
        self.check_message(end, &message, completion)?;
        if receive.poisoned && !message.data.is_empty() {
            return Err(self.error_at(end, "a message was received with an invalid key"));
        }
        self.store_message(end, pool, &receive, &message)?;
        if let Some(key) = message.invalidates {
            self.invalidated_by_peer(end, key);
        }
        Ok(match (self.is_lossy(end), message.solicited) {
            (true, _) => Due::Perhaps,
            (false, true) => Due::Yes,
            (false, false) => Due::No,
        })
    }

    fn take_posted(&mut self, end: usize, pool: usize, id: u64) -> Result<Receive, CheckError> {
        let Some(found) = self.pools.get_mut(pool) else {
            return Err(self.error_at(end, "a receive completed that was never posted"));
        };
        found.used = true;
        let index = found.posted.iter().position(|receive| receive.id == id);
        let in_order = matches!(found.owner, Owner::Shared(_)) || index == Some(0);
        match index.and_then(|index| found.posted.remove(index)) {
            Some(receive) if in_order => Ok(receive),
            Some(_) => Err(self.error_at(end, "a receive overtook the one before it")),
            None => Err(self.error_at(end, "a receive completed twice or was never posted")),
        }
    }

    /// The message that the completion belongs to.
    fn next_message(
        &mut self,
        end: usize,
        pool: usize,
        receive: &Receive,
        completion: &Completion,
    ) -> Result<Message, CheckError> {
        if self.is_lossy(end) {
            return self.find_message(end, pool, receive, completion);
        }
        let peer = self.ends[end].peer;
        let sender = &mut self.ends[peer];
        let index = sender
            .in_flight
            .iter()
            .position(|message| message.pool == pool);
        match index.and_then(|index| sender.in_flight.remove(index)) {
            Some(message) => Ok(message),
            None => Err(self.error_at(end, "a receive completed, but no message is in flight")),
        }
    }

    fn check_message(
        &self,
        end: usize,
        message: &Message,
        completion: &Completion,
    ) -> Result<(), CheckError> {
        let found = (
            completion.work,
            completion.length as usize,
            completion.immediate,
            completion.invalidated,
        );
        let expected = (
            message.work,
            message.length,
            message.immediate,
            message.invalidates,
        );
        if message.receive_failure.is_some() {
            return Err(self.error_at(end, "a message was received that must be rejected"));
        }
        if found != expected {
            let text = format!("a receive shows {found:?}, but {expected:?} was sent");
            return Err(self.error_at(end, &text));
        }
        Ok(())
    }

    fn store_message(
        &mut self,
        end: usize,
        pool: usize,
        receive: &Receive,
        message: &Message,
    ) -> Result<(), CheckError> {
        let lossy = self.is_lossy(end);
        let memory = &mut self.memories[self.pools[pool].memory];
        let mut rest = &message.data[..];
        for piece in &receive.block.pieces {
            let (now, later) = rest.split_at(piece.len().min(rest.len()));
            memory.plan(piece.start, now);
            memory.settle(piece.start, now);
            rest = later;
            if lossy {
                // After the message may be a part of an incomplete one.
                memory.accept(piece.start + now.len()..piece.end);
            }
        }
        memory.check(receive.block.range.clone())?;
        memory.free(&receive.block);
        if self.pools[pool].eager {
            self.refill(pool, 2)?;
        }
        Ok(())
    }

    fn receive_failed(
        &mut self,
        end: usize,
        pool: usize,
        receive: &Receive,
        completion: &Completion,
    ) -> Result<(), CheckError> {
        let memory = &mut self.memories[self.pools[pool].memory];
        if self.ends[self.ends[end].peer].in_flight.is_empty() && !self.profile.is_lossy() {
            memory.check(receive.block.range.clone())?;
        } else {
            // An incomplete message may have written a part of it.
            for piece in &receive.block.pieces {
                memory.accept(piece.clone());
            }
            memory.check(receive.block.range.clone())?;
        }
        memory.free(&receive.block);
        let status = completion.status;
        let sender = self.ends[end].peer;
        let expected = self.ends[sender]
            .in_flight
            .iter()
            .find(|message| message.pool == pool)
            .and_then(|message| message.receive_failure);
        let explained = match status {
            Status::Flushed => return self.check_flush(end),
            Status::LocalProtection => receive.poisoned,
            status => expected == Some(status),
        };
        if !explained || completion.work != CompletedWork::Receive {
            let text = format!("a receive ended with {status:?}, but {expected:?} was expected");
            return Err(self.error_at(end, &text));
        }
        self.fail_end(end, Cause::OwnReceive(status));
        Ok(())
    }
}
