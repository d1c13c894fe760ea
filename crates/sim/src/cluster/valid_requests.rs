//! Valid requests and their effects.

use std::ops::Range;

use engine::{Access, CompletedWork, RemoteMemory, SendFlags, SendRequest, Work};
use wire::{FlushPlacement, FlushRange, Key};

use super::Cluster;
use super::connection_end::{Effect, Expected, Message, Target};
use crate::model_memory::Block;

/// The kind of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verb {
    Send,
    SendImmediate,
    Write,
    WriteImmediate,
    Read,
    CompareSwap,
    FetchAdd,
    AtomicWrite,
    Flush,
    /// Sends the result of an earlier read or atomic of the same queue.
    Forward,
    /// A read or write of zero bytes, whose key is not checked.
    Nothing,
    /// Binds a window of this end.
    Bind,
    /// Invalidates a window of this end.
    LocalInvalidate,
    /// Invalidates a window of the peer.
    SendInvalidate,
    /// Reads or writes through a window of the peer.
    ThroughWindow,
}

impl Verb {
    /// The access right that the peer's queue pair must grant.
    pub(super) fn service(self) -> Access {
        match self {
            Verb::Send | Verb::SendImmediate | Verb::SendInvalidate => Access::empty(),
            Verb::Bind | Verb::LocalInvalidate => Access::empty(),
            Verb::Write | Verb::WriteImmediate | Verb::AtomicWrite | Verb::Forward => {
                Access::REMOTE_WRITE
            }
            Verb::Read => Access::REMOTE_READ,
            Verb::CompareSwap | Verb::FetchAdd => Access::REMOTE_ATOMIC,
            Verb::Flush => Access::FLUSH_GLOBAL | Access::FLUSH_PERSISTENT,
            Verb::Nothing | Verb::ThroughWindow => Access::REMOTE_READ | Access::REMOTE_WRITE,
        }
    }
}

/// A request to post, and its effects.
pub(crate) struct Draft {
    pub(crate) request: SendRequest,
    pub(crate) expected: Expected,
    pub(crate) effects: Vec<Effect>,
    pub(crate) reads: Option<(usize, Range<usize>)>,
    pub(crate) block: Option<Block>,
    pub(crate) message: Option<Message>,
    pub(crate) binds: Option<usize>,
    pub(crate) invalidates: Option<usize>,
}

impl Draft {
    pub(crate) fn new(work: Work) -> Self {
        Self {
            request: SendRequest::new(0, work),
            expected: Expected::Success,
            effects: Vec::new(),
            reads: None,
            block: None,
            message: None,
            binds: None,
            invalidates: None,
        }
    }

    fn fence_if(&mut self, needed: bool) {
        if needed {
            self.request.flags |= SendFlags::FENCE;
        }
    }
}

/// A range of the memory of the peer that a request addresses.
#[derive(Debug, Clone)]
pub(crate) struct RemoteRange {
    pub(crate) memory: usize,
    pub(crate) range: Range<usize>,
    pub(crate) remote: RemoteMemory,
}

/// Data to send: bytes, and their block unless they are inline.
pub(crate) struct Source {
    pub(crate) bytes: Vec<u8>,
    pub(crate) block: Option<Block>,
}

impl Cluster {
    /// A random length, often one of the corner cases.
    pub(super) fn draw_length(&mut self, mtu: usize, longest: usize) -> usize {
        let rng = &mut self.rng;
        let around = |rng: &mut crate::rng::Rng, middle: usize| middle - 1 + rng.below(3);
        let length = match rng.below(20) {
            0 => 0,
            1 => 1,
            2..=6 => rng.between(1, 64),
            7..=9 => around(rng, mtu),
            10..=12 => {
                let packets = rng.between(2, 5);
                around(rng, packets * mtu)
            }
            13..=17 => rng.between(1, 4 * mtu),
            18 => rng.below(mtu),
            _ => rng.below(longest + 1),
        };
        length.min(longest)
    }

    /// A random number of segments for a message of this length.
    pub(super) fn draw_pieces(&mut self, length: usize, most: usize) -> usize {
        let pieces = match self.rng.below(10) {
            0..=5 => 1,
            6..=8 => self.rng.between(1, 4),
            _ => self.rng.between(1, most),
        };
        match length {
            0 if self.rng.percent(50) => 0,
            _ => pieces.min(most),
        }
    }

    /// Data of the application, inline or in segments; none if no memory is free.
    pub(super) fn draw_source(&mut self, end: usize, length: usize) -> Option<Source> {
        let limits = self.ends[end].limits;
        if length <= limits.max_inline && self.rng.percent(30) {
            return Some(Source {
                bytes: self.rng.bytes(length),
                block: None,
            });
        }
        let pieces = self.draw_pieces(length, limits.max_segments);
        let memory = &mut self.memories[self.ends[end].local.0];
        let block = memory.allocate(length, pieces, &mut self.rng)?;
        memory.scribble(&block, &mut self.rng);
        Some(Source {
            bytes: memory.planned_message(&block),
            block: Some(block),
        })
    }

    /// A request with this data.
    pub(super) fn with_source(&self, end: usize, work: Work, source: &Source) -> Draft {
        let mut draft = Draft::new(work);
        let request = draft.request;
        draft.request = match &source.block {
            None => request.inline(&source.bytes),
            Some(block) => {
                let (memory, key) = self.ends[end].local;
                request.with(self.segments(memory, key, block))
            }
        };
        draft.block = source.block.clone();
        draft
    }

    /// A request with memory for a result; none if no memory is free.
    pub(super) fn with_result(&mut self, end: usize, work: Work, length: usize) -> Option<Draft> {
        let pieces = self.draw_pieces(length, self.ends[end].limits.max_segments);
        let (memory, key) = self.ends[end].local;
        let block = self.memories[memory].allocate(length, pieces, &mut self.rng)?;
        let mut draft = Draft::new(work);
        draft.request = draft.request.with(self.segments(memory, key, &block));
        draft.block = Some(block);
        Some(draft)
    }

    /// The effects of a result on the pieces of its block.
    pub(super) fn result_effects(&self, end: usize, block: &Block, bytes: &[u8]) -> Vec<Effect> {
        let memory = self.ends[end].local.0;
        let mut rest = bytes;
        let mut effects = Vec::with_capacity(block.pieces.len());
        for piece in &block.pieces {
            let (now, later) = rest.split_at(piece.len());
            effects.push(Effect {
                memory,
                offset: piece.start,
                bytes: now.to_vec(),
            });
            rest = later;
        }
        effects
    }

    /// Memory of the peer with these rights.
    pub(super) fn draw_target(&mut self, end: usize, rights: Access) -> Target {
        let targets = &self.ends[self.ends[end].peer].targets;
        let usable: Vec<Target> = targets
            .iter()
            .filter(|target| target.access.contains(rights))
            .copied()
            .collect();
        *self.rng.pick(&usable)
    }

    /// `length` bytes of the peer with these rights, at an offset that is a multiple of `align`.
    pub(super) fn draw_remote_range(
        &mut self,
        end: usize,
        rights: Access,
        length: usize,
        align: usize,
    ) -> RemoteRange {
        let target = self.draw_target(end, rights);
        let memory = &self.memories[target.memory];
        let room = (memory.len() - length) / align;
        let offset = self.rng.below(room + 1) * align;
        RemoteRange {
            memory: target.memory,
            range: offset..offset + length,
            remote: RemoteMemory {
                address: memory.address(offset),
                key: target.key,
            },
        }
    }

    /// The longest message that fits every receive of a pool.
    fn longest_message(&self, pool: usize) -> usize {
        self.pools[pool].min_capacity.min(self.profile.longest)
    }

    pub(super) fn draw_pool(&mut self, end: usize) -> usize {
        let peer = self.ends[end].peer;
        *self.rng.pick(&self.ends[peer].pools)
    }

    pub(super) fn draft_send(&mut self, end: usize, immediate: Option<[u8; 4]>) -> Option<Draft> {
        let pool = self.draw_pool(end);
        let mtu = self.ends[end].limits.mtu.bytes();
        let length = self.draw_length(mtu, self.longest_message(pool));
        let source = self.draw_source(end, length)?;
        let work = immediate.map_or(Work::Send, Work::SendImmediate);
        let mut draft = self.with_source(end, work, &source);
        draft.message = Some(Message {
            pool,
            work: CompletedWork::Receive,
            length,
            data: source.bytes,
            immediate,
            invalidates: None,
            solicited: false,
            receive_failure: None,
        });
        Some(draft)
    }

    pub(super) fn draft_write(&mut self, end: usize, immediate: Option<[u8; 4]>) -> Option<Draft> {
        let length = self.draw_length(self.ends[end].limits.mtu.bytes(), self.profile.longest);
        let target_range = self.draw_remote_range(end, Access::REMOTE_WRITE, length, 1);
        self.draft_write_to(end, &target_range, immediate)
    }

    pub(super) fn draft_write_to(
        &mut self,
        end: usize,
        target_range: &RemoteRange,
        immediate: Option<[u8; 4]>,
    ) -> Option<Draft> {
        let length = target_range.range.len();
        let source = self.draw_source(end, length)?;
        let work = match immediate {
            None => Work::Write(target_range.remote),
            Some(bytes) => Work::WriteImmediate(target_range.remote, bytes),
        };
        let mut draft = self.with_source(end, work, &source);
        self.change(end, &mut draft, target_range, source.bytes);
        if immediate.is_some() {
            draft.message = Some(Message {
                pool: self.draw_pool(end),
                work: CompletedWork::ReceiveWriteImmediate,
                length,
                data: Vec::new(),
                immediate,
                invalidates: None,
                solicited: false,
                receive_failure: None,
            });
        }
        Some(draft)
    }

    /// The request changes the peer's memory: a fence orders it after reads of the same bytes.
    pub(super) fn change(
        &self,
        end: usize,
        draft: &mut Draft,
        target_range: &RemoteRange,
        bytes: Vec<u8>,
    ) {
        draft.fence_if(self.ends[end].is_reading(target_range.memory, &target_range.range));
        draft.effects.push(Effect {
            memory: target_range.memory,
            offset: target_range.range.start,
            bytes,
        });
    }

    pub(super) fn draft_read(&mut self, end: usize) -> Option<Draft> {
        let length = self.draw_length(self.ends[end].limits.mtu.bytes(), self.profile.longest);
        let target_range = self.draw_remote_range(end, Access::REMOTE_READ, length, 1);
        self.draft_read_from(end, &target_range)
    }

    pub(super) fn draft_read_from(
        &mut self,
        end: usize,
        target_range: &RemoteRange,
    ) -> Option<Draft> {
        let mut draft = self.with_result(
            end,
            Work::Read(target_range.remote),
            target_range.range.len(),
        )?;
        let bytes = self.memories[target_range.memory]
            .planned(target_range.range.clone())
            .to_vec();
        if let Some(block) = &draft.block {
            draft.effects = self.result_effects(end, block, &bytes);
        }
        draft.reads = Some((target_range.memory, target_range.range.clone()));
        Some(draft)
    }

    pub(super) fn draft_atomic(&mut self, end: usize, verb: Verb) -> Option<Draft> {
        let target_range = self.draw_remote_range(end, Access::REMOTE_ATOMIC, 8, 8);
        let original = self.word(&target_range);
        let operand = self.rng.word();
        let (work, result) = match verb {
            Verb::FetchAdd => {
                let (remote, add) = (target_range.remote, operand);
                (Work::FetchAdd { remote, add }, original.wrapping_add(add))
            }
            _ => {
                let hits = self.rng.percent(60);
                let compare = if hits { original } else { self.rng.word() };
                let swap = operand;
                let remote = target_range.remote;
                let swapped = if compare == original { swap } else { original };
                let work = Work::CompareSwap {
                    remote,
                    compare,
                    swap,
                };
                (work, swapped)
            }
        };
        let mut draft = self.with_result(end, work, 8)?;
        if let Some(block) = &draft.block {
            draft.effects = self.result_effects(end, block, &original.to_ne_bytes());
        }
        self.change(
            end,
            &mut draft,
            &target_range,
            result.to_ne_bytes().to_vec(),
        );
        Some(draft)
    }

    fn word(&self, target_range: &RemoteRange) -> u64 {
        let bytes = self.memories[target_range.memory].planned(target_range.range.clone());
        u64::from_ne_bytes(bytes.try_into().expect("an atomic has eight bytes"))
    }

    pub(super) fn draft_atomic_write(&mut self, end: usize) -> Option<Draft> {
        let target_range = self.draw_remote_range(end, Access::REMOTE_WRITE, 8, 8);
        let source = self.draw_source(end, 8)?;
        let mut draft = self.with_source(end, Work::AtomicWrite(target_range.remote), &source);
        self.change(end, &mut draft, &target_range, source.bytes);
        Some(draft)
    }

    pub(super) fn draft_flush(&mut self, end: usize) -> Draft {
        let choices = [FlushPlacement::GLOBAL, FlushPlacement::PERSISTENT];
        let placement = *self.rng.pick(&choices);
        let range = *self.rng.pick(&[FlushRange::Range, FlushRange::Region]);
        let rights = Access::FLUSH_GLOBAL | Access::FLUSH_PERSISTENT;
        let length = self.rng.below(100);
        let target_range = self.draw_remote_range(end, rights, length, 1);
        Draft::new(Work::Flush {
            remote: target_range.remote,
            length: length as u32,
            placement,
            range,
        })
    }

    /// A fenced send of the result of an earlier read.
    pub(super) fn draft_forward(&mut self, end: usize) -> Option<Draft> {
        let mut results = self.ends[end].outstanding.iter().filter(|posted| {
            posted.has_result && posted.expected == Expected::Success && posted.length > 0
        });
        let earlier = results.next_back()?.block.clone()?;
        let local = self.ends[end].local.0;
        let bytes = self.memories[local].planned_message(&earlier);
        let block = Some(self.memories[local].share(&earlier));
        let target_range = self.draw_remote_range(end, Access::REMOTE_WRITE, bytes.len(), 1);
        let source = Source { bytes, block };
        let mut draft = self.with_source(end, Work::Write(target_range.remote), &source);
        self.change(end, &mut draft, &target_range, source.bytes);
        draft.fence_if(true);
        Some(draft)
    }

    /// C9-88: the key of a zero-length request is not checked.
    pub(super) fn draft_nothing(&mut self, end: usize) -> Draft {
        let remote = RemoteMemory {
            address: self.rng.word(),
            key: Key::new(self.rng.word() as u32),
        };
        let reads = self.rng.percent(50) && self.ends[end].is_reliable();
        Draft::new(if reads {
            Work::Read(remote)
        } else {
            Work::Write(remote)
        })
    }
}
