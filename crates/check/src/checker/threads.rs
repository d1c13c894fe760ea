//! What ThreadSanitizer is told, if the program was built with it.

use std::collections::BTreeMap;
use std::ops::Range;

use engine::observation::{PostedSend, RemoteAccessKind};
use engine::{CompletedWork, Completion, Status};
use wire::{Key, Qpn};

use super::receives::filled;
use super::{Checker, Step};
use crate::local_buffers::{Purpose, Space, UseKey};
use crate::observed_objects::{Receive, Retired};
use crate::remote_accesses::remote_of;
use crate::thread_order::{Actor, Deed, MemoryAccess, SyncPoint, is_word};

/// What is left for the poll of a send request.
#[derive(Debug, Clone)]
pub(crate) struct Outcome {
    /// What the device knew when it had executed the request.
    pub(crate) sync: SyncPoint,
    /// The atomic variable that it read.
    pub(crate) word: Option<u64>,
}

impl<S: Clone> Checker<S> {
    /// Also collects what the device does, for ThreadSanitizer.
    #[must_use]
    pub fn with_threads(self, is_wanted: bool) -> Self {
        let deeds = is_wanted.then(Vec::new);
        Self { deeds, ..self }
    }

    /// What was done since the last call, to be told by the thread that called [`observe`](Self::observe), before it does
    /// anything else.
    pub fn take_deeds(&mut self) -> Vec<Deed<S>> {
        self.deeds.as_mut().map(std::mem::take).unwrap_or_default()
    }

    fn note_deed(&mut self, deed: Deed<S>) {
        if let Some(deeds) = &mut self.deeds {
            deeds.push(deed);
        }
    }

    /// What the requests leave that use memory for these purposes, of each queue pair the newest. Such requests are compared
    /// with each other by rules of their own: benchmarks use the same memory for all.
    fn syncs_of_users(
        &self,
        range: &Range<u64>,
        matches: impl Fn(Purpose) -> bool,
    ) -> Vec<SyncPoint> {
        let users = self.local.overlapping(0, range);
        let users = users.filter(|(it, _)| matches(it.purpose));
        let mut newest = BTreeMap::new();
        for (it, _) in users {
            let (serial, sync) = newest
                .entry(it.request.queue_pair)
                .or_insert((it.serial, &it.sync));
            if *serial < it.serial {
                (*serial, *sync) = (it.serial, &it.sync);
            }
        }
        let newest = newest.into_values().filter_map(|(_, sync)| sync.clone());
        newest.collect()
    }

    fn is_used_by(&self, range: &Range<u64>, purpose: Purpose) -> bool {
        let mut users = self.local.overlapping(0, range);
        self.local.has(purpose) && users.any(|(it, _)| it.purpose == purpose)
    }
}

impl<S: Clone> Step<'_, S> {
    /// Where a new request leaves what it knows, if the order of threads is told.
    pub(super) fn sync_point(&self) -> Option<SyncPoint> {
        let is_told = self.checker.deeds.is_some();
        is_told.then(SyncPoint::default)
    }

    /// The device may execute a request from now on.
    pub(super) fn tell_post(
        &mut self,
        posted: &PostedSend,
        uses: &[UseKey],
        sync: SyncPoint,
    ) -> Outcome {
        let number = posted.queue_pair;
        let mut deed = Deed::of(Actor::Requests(self.id, number));
        for key in uses {
            self.add_local_access(&mut deed, key, number);
        }
        let remote = self.remote_access_of(posted);
        let word = remote.as_ref().and_then(|access| match access {
            MemoryAccess::LoadWord(word) | MemoryAccess::ChangeWord(word) => Some(word.start),
            _ => None,
        });
        deed.accesses.extend(remote);
        deed.is_asked = true;
        deed.call = Some(self.call.clone());
        deed.tells.push(sync.clone());
        let mut caller = Deed::of(Actor::Thread);
        caller.tells_calls = true;
        self.checker.note_deed(caller);
        self.checker.note_deed(deed);
        Outcome { sync, word }
    }

    fn add_local_access(&mut self, deed: &mut Deed<S>, key: &UseKey, number: Qpn) {
        let Some(used) = self.checker.local.get(key) else {
            return;
        };
        let (local_key, range, purpose) = (used.key, used.range.clone(), used.purpose);
        if !self.is_program_memory(used.space, local_key, &range) {
            return;
        }
        if purpose != Purpose::Result && self.may_learn_from_memory(number) {
            return;
        }
        let checker = &self.checker;
        if checker.is_used_by(&range, Purpose::Receive) {
            let arrivals = checker
                .devices
                .get(&self.id)
                .map(|it| it.arrival_sync.clone());
            deed.learns.extend(arrivals);
        }
        if purpose == Purpose::Result {
            let others = checker.syncs_of_users(&range, |it| it != Purpose::Receive);
            deed.learns.extend(others);
            deed.accesses.push(MemoryAccess::Write(range));
        } else {
            if checker.is_used_by(&range, Purpose::Result) {
                let others = checker.syncs_of_users(&range, |it| it == Purpose::Result);
                deed.learns.extend(others);
            }
            deed.accesses.push(MemoryAccess::Read(range));
        }
    }

    /// Whether a peer in another process can tell by a WRITE that it has received a message. Then the program may reuse
    /// its memory before it polls, and nothing shows when it reads what was written.
    fn may_learn_from_memory(&mut self, number: Qpn) -> bool {
        let device = self.device();
        let is_writable = device.is_writable_by_peers;
        let peer = device.queue_pairs.get(&number).and_then(|it| it.peer);
        is_writable && peer.is_none_or(|peer| self.sender_in_process(number, peer).is_none())
    }

    /// What a request does with remote memory, if that is memory of this process.
    fn remote_access_of(&self, posted: &PostedSend) -> Option<MemoryAccess> {
        let (key, range, kind) = remote_of(posted)?;
        let mut devices = self.checker.devices.values();
        let (space, range) = devices.find_map(|device| {
            let found = device.find(key, &range)?;
            device.is_program_memory(key, &found.1).then_some(found)
        })?;
        if space != 0 {
            return None;
        }
        Some(match (kind, is_word(&range)) {
            (RemoteAccessKind::Atomic, true) => MemoryAccess::ChangeWord(range),
            (RemoteAccessKind::Read, true) => MemoryAccess::LoadWord(range),
            (RemoteAccessKind::Read, false) => MemoryAccess::Read(range),
            (_, true) => MemoryAccess::StoreWord(range),
            (_, false) => MemoryAccess::Write(range),
        })
    }

    fn is_program_memory(&mut self, space: Space, key: Key, range: &Range<u64>) -> bool {
        space == 0 && self.device().is_program_memory(key, range)
    }

    /// A receive may be filled from now on, but only after what the program did before.
    pub(super) fn tell_receive(&mut self, sync: Option<&SyncPoint>) {
        let mut deed = Deed::of(Actor::Thread);
        deed.tells.extend(sync.cloned());
        self.checker.note_deed(deed);
    }

    /// A message was stored.
    pub(super) fn tell_arrival(&mut self, completion: &Completion, receive: &Receive<S>) {
        let Some(sync) = receive.sync.clone() else {
            return;
        };
        let number = completion.queue_pair;
        let mut deed = Deed::of(Actor::Messages(self.id));
        deed.learns.push(sync.clone());
        deed.tells.push(sync);
        match self.sync_of_message(number) {
            Some(request) => deed.learns.push(request),
            None => {
                // Another process has sent it, perhaps as a reply to what this one has posted.
                deed.learns_of_calls = true;
                let last = self.queue_pair(number).and_then(|it| it.sends.back());
                let last = last.and_then(|it| it.outcome.as_ref());
                deed.learns.extend(last.map(|it| it.sync.clone()));
            }
        }
        if (completion.status, completion.work) == (Status::Success, CompletedWork::Receive) {
            self.add_message(&mut deed, completion, receive);
        }
        deed.call = Some(receive.call.clone());
        self.checker.note_deed(deed);
    }

    fn add_message(&mut self, deed: &mut Deed<S>, completion: &Completion, receive: &Receive<S>) {
        deed.tells.push(self.device().arrival_sync.clone());
        let filled = filled(&self.checker.local, receive, completion.length);
        let keys = receive
            .uses
            .iter()
            .filter_map(|it| self.checker.local.get(it));
        let keys: Vec<_> = keys.map(|it| it.key).collect();
        for ((space, range), key) in filled.into_iter().zip(keys) {
            if range.is_empty() || !self.is_program_memory(space, key, &range) {
                continue;
            }
            let users = |it| it != Purpose::Receive;
            deed.learns
                .extend(self.checker.syncs_of_users(&range, users));
            deed.accesses.push(MemoryAccess::Write(range));
        }
    }

    /// What the request that has sent the last message to a queue pair left, if it was posted in this process.
    fn sync_of_message(&mut self, number: Qpn) -> Option<SyncPoint> {
        let queue_pair = self.queue_pair(number)?;
        let (peer, message) = (queue_pair.peer?, queue_pair.last_message?);
        let ((device, number), _) = self.sender_in_process(number, peer)?;
        let sender = self
            .checker
            .devices
            .get(&device)?
            .queue_pairs
            .get(&number)?;
        Some(sender.outcome_of(message)?.sync.clone())
    }

    /// The program has polled a completion of a send request.
    pub(super) fn tell_poll(&mut self, retired: &Retired) {
        let mut deed = Deed::of(Actor::Thread);
        deed.learns.extend(retired.sync.clone());
        deed.learns_of_words.extend(&retired.words);
        self.tell_thread(deed);
    }

    /// The program knows that a request or a receive has ended.
    pub(super) fn tell_end(&mut self, sync: Option<SyncPoint>) {
        let mut deed = Deed::of(Actor::Thread);
        deed.learns.extend(sync);
        self.tell_thread(deed);
    }

    fn tell_thread(&mut self, mut deed: Deed<S>) {
        if !deed.learns.is_empty() || !deed.learns_of_words.is_empty() {
            deed.tells_calls = true;
            self.checker.note_deed(deed);
        }
    }

    /// The device executes no request of a queue pair from now on, which the program learns by a call.
    pub(super) fn tell_stop(&mut self, number: Qpn, ends: bool) {
        self.tell_calls(Actor::Requests(self.id, number), ends);
        self.tell_calls(Actor::Messages(self.id), false);
    }

    /// The device uses some memory no more.
    pub(super) fn tell_deregistration(&mut self) {
        if self.checker.deeds.is_none() {
            return;
        }
        let numbers: Vec<_> = self.device().queue_pairs.keys().copied().collect();
        self.tell_calls(Actor::Messages(self.id), false);
        for number in numbers {
            self.tell_calls(Actor::Requests(self.id, number), false);
        }
    }

    fn tell_calls(&mut self, actor: Actor, ends: bool) {
        let mut deed = Deed::of(actor);
        deed.tells_calls = true;
        deed.ends = ends;
        self.checker.note_deed(deed);
    }
}
