//! What ThreadSanitizer is told about the device: which memory of the program it accesses, and what orders these accesses.
//!
//! A request accesses its memory, local and in this process remote, when it is posted, because from then on the
//! device may do so at any time. The program may know that it has done so when it polls the completion. So a load or
//! store between the two is a race, whatever the network did in this run.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use wire::Qpn;

use crate::request_name::DeviceId;

/// A place where one actor leaves what it knows, and others take it. Its memory exists for nothing else.
#[derive(Debug, Clone, Default)]
pub struct SyncPoint(Arc<AtomicU64>);

impl SyncPoint {
    /// Its address in this process.
    #[must_use]
    pub fn address(&self) -> usize {
        Arc::as_ptr(&self.0).addr()
    }
}

/// Who accesses memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Actor {
    /// The thread that makes the present call.
    Thread,
    /// The device, for the requests of a send queue.
    Requests(DeviceId, Qpn),
    /// The device, for the messages that arrive.
    Messages(DeviceId),
}

/// An access of the device to memory of the program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MemoryAccess {
    /// Bytes are read.
    Read(Range<u64>),
    /// Bytes are written.
    Write(Range<u64>),
    /// An aligned word of at most 8 bytes is read. Programs make a word that peers read an atomic variable.
    LoadWord(Range<u64>),
    /// An aligned word of at most 8 bytes is written.
    StoreWord(Range<u64>),
    /// An atomic operation.
    ChangeWord(Range<u64>),
}

/// What one actor does, in the order of the fields.
#[derive(Debug, Clone)]
pub struct Deed<S> {
    /// Who.
    pub actor: Actor,
    /// Whether the thread that makes the present call has asked for it, so that all it did before comes first.
    pub is_asked: bool,
    /// It learns of what was done before other calls than posts and polls, and before posts of sends.
    pub learns_of_calls: bool,
    /// It learns of what was left there.
    pub learns: Vec<SyncPoint>,
    /// It learns of what was released at these atomic variables.
    pub learns_of_words: Vec<u64>,
    /// The memory that it accesses.
    pub accesses: Vec<MemoryAccess>,
    /// The call of the program that caused the accesses.
    pub call: Option<S>,
    /// Where it leaves what it knows.
    pub tells: Vec<SyncPoint>,
    /// It tells later calls.
    pub tells_calls: bool,
    /// Whether it does nothing any more.
    pub ends: bool,
}

impl<S> Deed<S> {
    /// Nothing.
    pub(crate) const fn of(actor: Actor) -> Self {
        Self {
            actor,
            is_asked: false,
            learns_of_calls: false,
            learns: Vec::new(),
            learns_of_words: Vec::new(),
            accesses: Vec::new(),
            call: None,
            tells: Vec::new(),
            tells_calls: false,
            ends: false,
        }
    }
}

/// A word that a program can access as an atomic variable.
pub(crate) fn is_word(range: &Range<u64>) -> bool {
    let length = range.end - range.start;
    matches!(length, 1 | 2 | 4 | 8) && range.start.is_multiple_of(length)
}
