//! The order of requests of different processes, by vector clocks.
//!
//! Each process publishes records of its requests, of what it polls, and of accesses to its memory, before the packets
//! leave that others could learn from. All processes read all records in one order, and each computes from them what
//! every process knew at every post. So no process has to trust the clock of another.

mod accesses;
mod clock;
mod history;
mod record;
#[cfg(test)]
mod tests;

use std::collections::{HashMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;

use engine::observation::RemoteAccessKind;
use wire::Qpn;

use crate::finding::Finding;
use crate::local_buffers::Space;
use crate::remote_accesses::conflicts;
use crate::request_name::{bytes, qp};
use crate::rule::Rule;
use accesses::{Access, Accesses};
use clock::{Clock, Moment};
use history::{History, Post};
pub(crate) use record::{Event, Place, QueuePairName, RECORD_BYTES, operation_index};
use record::{OPERATIONS, Record};

/// How many processes, queue pairs, and words that atomics change are remembered.
const MAX_PROCESSES: usize = 1024;
const MAX_QUEUE_PAIRS: usize = 1024;
const MAX_WORDS: usize = 65_536;

/// Computes the order of requests from the records of all processes.
#[derive(Debug)]
pub(crate) struct ProcessOrder {
    own: u64,
    pid: u32,
    /// Records that are not published.
    pending: Vec<Record>,
    processes: HashMap<u64, Process>,
    queue_pairs: HashMap<QueuePairName, History>,
    /// The queue pairs, oldest first.
    connected: VecDeque<QueuePairName>,
    /// What the processes knew that changed a word by atomics.
    words: HashMap<(u64, Space, u64), Arc<Clock>>,
    /// Accesses to memory of this process.
    accesses: Accesses,
}

#[derive(Debug)]
struct Process {
    pid: u32,
    /// How many polls it has made.
    own: u64,
    known: Arc<Clock>,
}

impl ProcessOrder {
    /// The order as this process sees it. `process` is a number that no other process has.
    pub(crate) fn new(process: u64, pid: u32) -> Self {
        let mut order = Self {
            own: process,
            pid,
            pending: Vec::new(),
            processes: HashMap::new(),
            queue_pairs: HashMap::new(),
            connected: VecDeque::new(),
            words: HashMap::new(),
            accesses: Accesses::default(),
        };
        order.publish(Event::LearnedAll);
        order
    }

    /// Adds a record of this process. The parts of a message that is written packet by packet make one.
    pub(crate) fn publish(&mut self, event: Event) {
        if let Some(last) = self.pending.last_mut()
            && extend(&mut last.event, &event)
        {
            return;
        }
        self.pending.push(Record {
            process: self.own,
            pid: self.pid,
            event,
        });
    }

    /// The records that are not published.
    pub(crate) fn take_pending(&mut self) -> Vec<u8> {
        let pending = self.pending.drain(..);
        pending.flat_map(|record| record.encode()).collect()
    }

    /// Forgets everything, because records were lost.
    pub(crate) fn forget(&mut self) {
        self.processes.clear();
        self.queue_pairs.clear();
        self.connected.clear();
        self.words.clear();
        self.accesses = Accesses::default();
    }

    /// Handles published records of all processes. Returns false at one that cannot be read.
    pub(crate) fn replay<S>(&mut self, records: &[u8], findings: &mut Vec<Finding<S>>) -> bool {
        let (records, _) = records.as_chunks::<RECORD_BYTES>();
        records.iter().all(|bytes| {
            let record = Record::decode(bytes);
            record.map(|it| self.apply(&it, findings)).is_some()
        })
    }

    fn apply<S>(&mut self, record: &Record, findings: &mut Vec<Finding<S>>) {
        let process = record.process;
        if !self.processes.contains_key(&process) {
            self.add_process(process, record.pid);
        }
        match record.event {
            Event::LearnedAll => self.learn_all(process),
            Event::Connected { queue_pair, peer } => self.connect(process, queue_pair, peer),
            Event::Posted {
                queue_pair,
                message,
                operation,
                id,
            } => self.post(process, queue_pair, message, operation, id),
            Event::Polled {
                queue_pair,
                message,
            } => self.poll(process, queue_pair, message),
            Event::Received {
                queue_pair,
                message,
            } => self.receive(process, queue_pair, message),
            Event::Used {
                queue_pair,
                message,
                kind,
                place,
            } if process == self.own => self.access(queue_pair, message, kind, place, findings),
            Event::Used { .. } => {}
            Event::Accessed {
                queue_pair,
                message,
                kind,
                place,
            } => {
                let Some(peer) = self.queue_pairs.get(&queue_pair).map(|it| it.peer) else {
                    return;
                };
                if kind == RemoteAccessKind::Atomic {
                    self.change_word(peer, message, (process, place.space, place.start));
                }
                if process == self.own {
                    self.access(peer, message, kind, place, findings);
                }
            }
        }
    }

    /// A process that starts may know all: the one that started it may have told it.
    fn add_process(&mut self, process: u64, pid: u32) {
        if self.processes.len() >= MAX_PROCESSES {
            self.forget();
        }
        let new = Process {
            pid,
            own: 0,
            known: Arc::default(),
        };
        self.processes.insert(process, new);
        self.learn_all(process);
    }

    fn learn_all(&mut self, process: u64) {
        let mut all = Clock::default();
        for (number, it) in &self.processes {
            all.learn(*number, it.own);
        }
        if let Some(it) = self.processes.get_mut(&process) {
            it.known = Arc::new(all);
        }
    }

    /// Both ends of a connection have learned each other's numbers, in whatever way.
    fn connect(&mut self, process: u64, queue_pair: QueuePairName, peer: QueuePairName) {
        self.learn_all(process);
        self.accesses.forget(queue_pair);
        let history = History::new(process, peer);
        if self.queue_pairs.insert(queue_pair, history).is_none() {
            self.connected.push_back(queue_pair);
        }
        if self.connected.len() > MAX_QUEUE_PAIRS
            && let Some(oldest) = self.connected.pop_front()
        {
            self.queue_pairs.remove(&oldest);
            self.accesses.forget(oldest);
        }
    }

    fn moment(&self, process: u64) -> Option<Moment> {
        let it = self.processes.get(&process)?;
        Some(Moment {
            process,
            own: it.own,
            known: Arc::clone(&it.known),
        })
    }

    fn post(
        &mut self,
        process: u64,
        queue_pair: QueuePairName,
        message: u64,
        operation: u8,
        id: u64,
    ) {
        let Some(moment) = self.moment(process) else {
            return;
        };
        let history = self.queue_pairs.get_mut(&queue_pair);
        // Another process says that it has this queue pair.
        let Some(history) = history.filter(|it| it.process == process) else {
            return;
        };
        let post = Post {
            operation,
            id,
            moment,
            result: None,
        };
        history.add_post(message, post);
    }

    /// The next count of a process.
    fn advance(&mut self, process: u64) -> u64 {
        let Some(it) = self.processes.get_mut(&process) else {
            return 0;
        };
        it.own += 1;
        it.own
    }

    fn poll(&mut self, process: u64, queue_pair: QueuePairName, message: u64) {
        let own = self.advance(process);
        let history = self.queue_pairs.get_mut(&queue_pair);
        let Some(history) = history.filter(|it| it.process == process) else {
            return;
        };
        let atomics = history.newly_polled(message).filter(|post| is_atomic(post));
        let results: Vec<_> = atomics.map(|post| post.result.clone()).collect();
        history.polled(message, own);
        for result in results {
            match (result, self.processes.get_mut(&process)) {
                (Some(result), Some(it)) => Clock::join(&mut it.known, &result),
                // The target is not checked: others may have changed the word.
                _ => self.learn_all(process),
            }
        }
    }

    fn receive(&mut self, process: u64, queue_pair: QueuePairName, message: u64) {
        let own = self.advance(process);
        let peer = self.queue_pairs.get(&queue_pair);
        let peer = peer.filter(|it| it.process == process).map(|it| it.peer);
        let history = peer.and_then(|peer| self.queue_pairs.get_mut(&peer));
        let moment = history.and_then(|history| {
            history.received(message, process, own);
            history.post(message).map(|post| post.moment.clone())
        });
        match (moment, self.processes.get_mut(&process)) {
            (Some(moment), Some(it)) => moment.teach(&mut it.known),
            // The sender is not checked, or its post is forgotten.
            _ => self.learn_all(process),
        }
    }

    /// An atomic was executed. Its result tells of those that changed the word before.
    fn change_word(&mut self, from: QueuePairName, message: u64, word: (u64, Space, u64)) {
        if self.words.len() >= MAX_WORDS && !self.words.contains_key(&word) {
            self.forget();
        }
        let history = self.queue_pairs.get_mut(&from);
        let Some(post) = history.and_then(|history| history.post_mut(message)) else {
            return;
        };
        let clock = self.words.entry(word).or_default();
        post.result = Some(Arc::clone(clock));
        post.moment.teach(clock);
    }

    /// Compares an access to memory of this process with earlier ones of other processes.
    fn access<S>(
        &mut self,
        queue_pair: QueuePairName,
        message: u64,
        kind: RemoteAccessKind,
        place: Place,
        findings: &mut Vec<Finding<S>>,
    ) {
        let history = self.queue_pairs.get(&queue_pair);
        let Some(post) = history.and_then(|history| history.post(message)) else {
            return;
        };
        let new = Access {
            process: post.moment.process,
            queue_pair,
            message,
            operation: post.operation,
            id: post.id,
            kind,
            space: place.space,
            range: place.start..place.start.saturating_add(place.length),
        };
        let mut overlapping = self.accesses.overlapping(new.space, &new.range);
        let race = overlapping.find(|(earlier, _)| {
            earlier.process != new.process
                && conflicts(earlier.kind, kind)
                && !self.is_known(earlier, &post.moment)
        });
        if let Some((earlier, common)) = race {
            findings.push(self.race(earlier, &new, &common));
        }
        drop(overlapping);
        self.accesses.add(new);
    }

    fn is_known(&self, access: &Access, at: &Moment) -> bool {
        let history = self.queue_pairs.get(&access.queue_pair);
        history.is_none_or(|it| it.is_known(access.message, at))
    }

    fn race<S>(&self, earlier: &Access, later: &Access, common: &Range<u64>) -> Finding<S> {
        let what = format!(
            "{} and {} access {} of process {}, and nothing that the devices have seen orders them.",
            self.name(earlier),
            self.name(later),
            bytes(common),
            self.pid
        );
        Finding {
            rule: Rule::ProcessRace,
            about: format!(
                "{} and {}",
                qp(earlier.queue_pair.number),
                qp(later.queue_pair.number)
            ),
            what,
            calls: Vec::new(),
        }
    }

    fn name(&self, access: &Access) -> String {
        let operation = OPERATIONS.get(usize::from(access.operation));
        let pid = self.processes.get(&access.process).map_or(0, |it| it.pid);
        let stores_result = access.kind == RemoteAccessKind::Write && access.operation > 1;
        let part = if stores_result { "the result of " } else { "" };
        format!(
            "{part}{} (wr_id {:#x}) of {} of process {pid}",
            operation.unwrap_or(&"request"),
            access.id,
            qp(access.queue_pair.number),
        )
    }
}

fn is_atomic(post: &Post) -> bool {
    let name = OPERATIONS.get(usize::from(post.operation));
    matches!(name, Some(&("compare-and-swap" | "fetch-and-add")))
}

/// Adds the next packet of a WRITE to the record of those before it. Returns whether it is one.
fn extend(last: &mut Event, next: &Event) -> bool {
    let (
        Event::Accessed {
            queue_pair,
            message,
            kind: RemoteAccessKind::Write,
            place,
        },
        Event::Accessed {
            queue_pair: next_queue_pair,
            message: next_message,
            kind: RemoteAccessKind::Write,
            place: next_place,
        },
    ) = (last, next)
    else {
        return false;
    };
    let extends = (*queue_pair, *message, place.space)
        == (*next_queue_pair, *next_message, next_place.space)
        && place.start.checked_add(place.length) == Some(next_place.start);
    if extends {
        place.length = place.length.saturating_add(next_place.length);
    }
    extends
}

/// A count modulo 2^24, as packets carry it, extended by the one that came before it.
pub(crate) const fn extended(count: u32, before: u64) -> u64 {
    let distance = (count.wrapping_sub(before as u32) << 8) as i32 >> 8;
    before.saturating_add_signed(distance as i64)
}

/// The name of a queue pair among those of all processes.
pub(crate) const fn name(address: std::net::IpAddr, number: Qpn) -> QueuePairName {
    QueuePairName { address, number }
}
