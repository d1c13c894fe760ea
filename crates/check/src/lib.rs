//! Finds mistakes of RDMA programs.
//!
//! A device records [`Observation`]s: what the program asks of it, and what it does with the program's memory.
//! A [`Checker`] compares them with the [`Rule`]s of the verbs, and reports each violation as a [`Finding`].
//!
//! A request uses local memory from its post until it ends (`local_use`). It uses remote memory until the program has
//! polled a completion that covers it (`remote_use`), because only then the program knows that it has been executed.
//! A message from the peer can carry this knowledge, too. So the checker finds a race whenever the program allows one,
//! even if the requests happen to be executed in the intended order.
#![cfg_attr(docsrs, feature(doc_cfg))]
// Nothing in this crate may be excepted from the bans in clippy.toml.
#![forbid(clippy::disallowed_methods, clippy::disallowed_types)]

mod device;
mod finding;
mod local_use;
mod profile;
mod remote_use;
mod request;
mod rule;

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

use engine::observation::{Discarded, PostedSend, ReceiveQueueId, RemoteAccess, RemoteAccessKind};
use engine::{Completion, CompletionQueue, Id, Observation, Segment, Status, Work};
use wire::{Key, Qpn};

pub use finding::Finding;
pub use profile::{Profile, UnknownProfile};
pub use request::DeviceId;
pub use rule::{Level, Rule};

use device::{Device, QueuePair, Receive, Send};
use local_use::{LocalUse, LocalUses, Purpose, Space, UseKey};
use remote_use::{Conflict, RemoteUse, RemoteUses, conflicts, remote_of};
use request::{QueuePairId, RequestName, bytes, common, counted, operation, qp};

/// Compares the observations of all devices of a process with the rules.
///
/// `S` describes the program's call that led to an observation, for instance its stack.
#[derive(Debug)]
pub struct Checker<S> {
    devices: BTreeMap<DeviceId, Device<S>>,
    local: LocalUses<S>,
    remote: RemoteUses<S>,
    profile: Option<Profile>,
}

impl<S: Clone> Default for Checker<S> {
    fn default() -> Self {
        Self::new()
    }
}

impl<S: Clone> Checker<S> {
    /// A checker without devices.
    #[must_use]
    pub fn new() -> Self {
        Self {
            devices: BTreeMap::new(),
            local: LocalUses::new(),
            remote: RemoteUses::new(),
            profile: None,
        }
    }

    /// Also compares what the program uses with the limits of another device.
    #[must_use]
    pub fn with_profile(self, profile: Option<Profile>) -> Self {
        Self { profile, ..self }
    }

    /// Handles an observation of a device during `call`.
    pub fn observe(
        &mut self,
        device: DeviceId,
        observation: Observation,
        call: &S,
        findings: &mut Vec<Finding<S>>,
    ) {
        self.devices.entry(device).or_insert_with(Device::new);
        Step {
            checker: self,
            id: device,
            call,
            findings,
        }
        .handle(observation);
    }

    /// Reports what a device leaves behind when it is closed or the program ends.
    pub fn close(&mut self, device: DeviceId, findings: &mut Vec<Finding<S>>) {
        let Some(closed) = self.devices.remove(&device) else {
            return;
        };
        let mut queue_pairs: Vec<_> = closed.queue_pairs.iter().collect();
        queue_pairs.sort_by_key(|(number, _)| number.value());
        for (number, queue_pair) in queue_pairs {
            if let Some(failure) = queue_pair.failures.first() {
                findings.push(not_polled(*number, failure));
            }
        }
        // The connection manager of librdmacm keeps a protection domain for each device.
        let domains = closed.domains.saturating_sub(1);
        let counts = [
            (closed.queue_pairs.len(), "queue pair"),
            (closed.completion_queues.len(), "completion queue"),
            (closed.shared_receives.len(), "shared receive queue"),
            (closed.region_count(), "memory region"),
            (domains, "protection domain"),
        ];
        let left = counts.iter().filter(|(count, _)| *count > 0);
        let left: Vec<_> = left
            .map(|(count, name)| counted(*count as u64, name))
            .collect();
        if !left.is_empty() {
            findings.push(Finding {
                rule: Rule::Leak,
                about: format!("device {}", device.0),
                what: format!("At the end there were still {}.", left.join(", ")),
                calls: Vec::new(),
            });
        }
    }
}

/// The handling of one observation.
struct Step<'s, S> {
    checker: &'s mut Checker<S>,
    id: DeviceId,
    call: &'s S,
    findings: &'s mut Vec<Finding<S>>,
}

impl<S: Clone> Step<'_, S> {
    fn handle(&mut self, observation: Observation) {
        match observation {
            Observation::DomainAllocated(_) => self.device().domains += 1,
            Observation::DomainFreed(_) => {
                let domains = &mut self.device().domains;
                *domains = domains.saturating_sub(1);
            }
            Observation::Registered(region, access) => {
                let id = self.id;
                self.device().register(id, region, access);
            }
            Observation::Deregistered { key, unmapped_at } => self.deregister(key, unmapped_at),
            Observation::CompletionQueue(queue, capacity) => {
                self.compare_with_profile(|profile| profile.reject_completion_queue(capacity));
                let queues = &mut self.device().completion_queues;
                queues.entry(queue).or_default().capacity = capacity;
            }
            Observation::CompletionQueueDestroyed(queue) => {
                self.device().completion_queues.remove(&queue);
            }
            Observation::SharedReceiveQueue(queue) => {
                (self.device().shared_receives).insert(queue, VecDeque::new());
            }
            Observation::SharedReceiveQueueDestroyed(queue) => {
                let receives = self.device().shared_receives.remove(&queue);
                self.forget_receives(receives.unwrap_or_default());
            }
            Observation::QueuePair(number, sizes) => {
                self.compare_with_profile(|profile| profile.reject_queue_pair(&sizes));
                let queue_pair = QueuePair::new(sizes);
                self.device().queue_pairs.insert(number, queue_pair);
            }
            Observation::Connected(number, peer) => {
                if let Some(queue_pair) = self.queue_pair(number) {
                    queue_pair.peer = Some(peer);
                }
            }
            Observation::QueuePairDestroyed(discarded) => {
                self.discard(&discarded, "destroyed");
                self.device().queue_pairs.remove(&discarded.queue_pair);
            }
            Observation::QueuePairReset(discarded) => {
                self.discard(&discarded, "reset");
                if let Some(it) = self.queue_pair(discarded.queue_pair) {
                    *it = QueuePair::new(it.sizes);
                }
            }
            Observation::SendPosted(posted) => self.post_send(&posted),
            Observation::SendEnded {
                queue_pair,
                changed_at,
                ..
            } => self.end_send(queue_pair, changed_at),
            Observation::ReceivePosted {
                queue,
                id,
                segments,
            } => self.post_receive(queue, id, &segments),
            Observation::Completed(_, completion) => self.complete(&completion),
            Observation::Polled(queue, completion) => self.poll(queue, &completion),
            Observation::RemoteAccess(access) => self.remote_access(&access),
            Observation::Answered(number) => self.device().forget_arrivals(number),
            Observation::AccessRejected(access) => self.access_rejected(&access),
            Observation::ReceiverNotReady(number) => self.receiver_not_ready(number),
        }
    }

    fn device(&mut self) -> &mut Device<S> {
        let devices = &mut self.checker.devices;
        devices.get_mut(&self.id).expect("`observe` inserts it")
    }

    fn queue_pair(&mut self, number: Qpn) -> Option<&mut QueuePair<S>> {
        self.device().queue_pairs.get_mut(&number)
    }

    fn find(&mut self, rule: Rule, about: String, what: String, calls: Vec<(String, S)>) {
        self.findings.push(Finding {
            rule,
            about,
            what,
            calls,
        });
    }

    fn compare_with_profile(&mut self, reject: impl FnOnce(Profile) -> Option<String>) {
        if let Some(profile) = self.checker.profile
            && let Some(unsupported) = reject(profile)
        {
            let about = unsupported.clone();
            let name = profile.name();
            let what = format!(
                "The program uses {unsupported}; a device of the profile {name} does not support that."
            );
            let calls = vec![("the call".to_owned(), self.call.clone())];
            self.find(Rule::NotPortable, about, what, calls);
        }
    }

    fn deregister(&mut self, key: Key, unmapped_at: Option<u64>) {
        if let Some(address) = unmapped_at {
            let about = format!("region {:#x}", key.value());
            let what = format!(
                "The memory of {about} was unmapped or protected at {address:#x} before it was deregistered."
            );
            let calls = vec![("the deregistration".to_owned(), self.call.clone())];
            self.find(Rule::MemoryUnmapped, about, what, calls);
        }
        self.device().deregister(key);
    }

    fn post_send(&mut self, posted: &PostedSend) {
        let number = posted.queue_pair;
        if self.queue_pair(number).is_none() {
            return;
        }
        self.compare_with_profile(|profile| profile.reject_request(posted));
        let request = RequestName {
            operation: operation(&posted.work),
            id: posted.id,
            queue_pair: Some((self.id, number)),
        };
        let purpose = match posted.work {
            Work::Read(_) | Work::CompareSwap { .. } | Work::FetchAdd { .. } => Purpose::Result,
            _ => Purpose::Send,
        };
        if let Some(queue_pair) = self.queue_pair(number).filter(|_| posted.fenced) {
            queue_pair.fence = queue_pair.next_serial();
        }
        let uses = self.use_local(&request, purpose, &posted.segments);
        self.use_remote(posted, &request);
        let ranges = posted.segments.iter().map(range_of).collect();
        let (signaled, call) = (posted.signaled, self.call.clone());
        let Some(queue_pair) = self.queue_pair(number) else {
            return;
        };
        queue_pair.sends.push_back(Send {
            request,
            ranges,
            uses,
            signaled,
            call,
        });
        let max = queue_pair.sizes.max_sends;
        let forgotten = queue_pair.forget_unsignaled(max);
        queue_pair.unsignaled = if signaled {
            0
        } else {
            queue_pair.unsignaled + 1
        };
        let never_signaled = max > 0 && queue_pair.unsignaled == max + 1;
        let completions = queue_pair.sizes.send_completions;
        queue_pair.expected_sends += u32::from(signaled);
        if let Some(before) = forgotten {
            (self.checker.remote).forget_before((self.id, number), before);
        }
        if never_signaled {
            let what = format!(
                "{} requests in succession were posted to {} without the signaled flag, and its send queue has room for \
                 {max}.",
                max + 1,
                qp(number)
            );
            let calls = vec![("the last of them".to_owned(), self.call.clone())];
            self.find(Rule::NeverSignaled, qp(number), what, calls);
        }
        if signaled {
            self.expect_completion(completions);
        }
    }

    /// Records the local memory of a request, and checks that no other request under way conflicts.
    fn use_local(
        &mut self,
        request: &RequestName,
        purpose: Purpose,
        segments: &[Segment],
    ) -> Vec<UseKey> {
        let queue_pair = request.queue_pair.and_then(|(_, it)| self.queue_pair(it));
        let (serial, fence) = queue_pair.map_or((0, 0), |it| (it.next_serial(), it.fence));
        let used = segments.iter().filter(|segment| segment.length > 0);
        let used: Vec<_> = used
            .map(|segment| LocalUse {
                space: self.device().space(segment.key),
                range: range_of(segment),
                purpose,
                request: request.clone(),
                call: self.call.clone(),
                serial,
                overwritten_by: None,
            })
            .collect();
        let conflicts = used.iter().find_map(|new| {
            let (other, common) = self.checker.local.conflict(new, fence)?;
            let rule = if other.purpose == new.purpose {
                Rule::SharedTarget
            } else {
                Rule::OverlappingRequests
            };
            Some((rule, other.request.clone(), other.call.clone(), common))
        });
        if let Some((rule, other, call, common)) = conflicts {
            let verb = match rule {
                Rule::SharedTarget => "both store data into",
                _ => "one of them stores data into",
            };
            let what = format!(
                "{request} and {other} are under way, and {verb} {}{}.",
                bytes(&common),
                if rule == Rule::SharedTarget {
                    ""
                } else {
                    " that the other one sends"
                }
            );
            let calls = vec![
                (format!("the earlier request: {other}"), call),
                (format!("the later request: {request}"), self.call.clone()),
            ];
            let about = request
                .queue_pair
                .map_or_else(String::new, |(_, it)| qp(it));
            self.find(rule, about, what, calls);
        }
        let local = &mut self.checker.local;
        used.into_iter().map(|it| local.insert(it)).collect()
    }

    /// Records the remote memory of a request, and checks that no other request conflicts.
    fn use_remote(&mut self, posted: &PostedSend, request: &RequestName) {
        let (Some((key, range, kind)), Some(peer)) = (remote_of(posted), posted.peer) else {
            return;
        };
        let number = posted.queue_pair;
        let queue_pair = self.queue_pair(number);
        let (serial, fence) = queue_pair.map_or((0, 0), |it| (it.next_serial(), it.fence));
        let new = RemoteUse {
            range,
            kind,
            request: request.clone(),
            queue_pair: (self.id, number),
            serial,
            call: self.call.clone(),
        };
        let conflict = (self.checker.remote).conflict((peer, key), &new, fence);
        if let Some((earlier, common, conflict)) = conflict {
            let (rule, order) = match conflict {
                Conflict::Unordered => (
                    Rule::RemoteRace,
                    "was posted before the program polled the completion of",
                ),
                Conflict::NoFence => (Rule::MissingFence, "was posted without a fence behind"),
            };
            let what = format!(
                "{request} {order} {}, and both access {} of the peer {peer} (R_Key {:#x}).",
                earlier.request,
                bytes(&common),
                key.value()
            );
            let calls = vec![
                (
                    format!("the earlier request: {}", earlier.request),
                    earlier.call.clone(),
                ),
                (format!("the later request: {request}"), self.call.clone()),
            ];
            self.find(rule, qp(number), what, calls);
        }
        self.checker.remote.insert((peer, key), new);
    }

    fn end_send(&mut self, number: Qpn, changed_at: Option<u32>) {
        let Some(queue_pair) = self.queue_pair(number) else {
            return;
        };
        let Some(send) = queue_pair.sends.get_mut(queue_pair.ended) else {
            return;
        };
        let uses = std::mem::take(&mut send.uses);
        let (request, call) = (send.request.clone(), send.call.clone());
        let changed = changed_at.map(|offset| (offset, send.address_of(offset)));
        queue_pair.ended += 1;
        let local = &self.checker.local;
        let receive = (uses.iter()).find_map(|key| local.get(key)?.overwritten_by);
        self.checker.local.remove(&uses);
        let Some((offset, address)) = changed else {
            return;
        };
        let by = receive.map_or_else(String::new, |id| {
            format!(" by a message for the receive (wr_id {id:#x}) of the same queue pair")
        });
        let what = format!(
            "The memory of {request} was changed{by} at {address:#x} (offset {offset}) after it was posted and before \
             it completed."
        );
        let calls = vec![(format!("the request: {request}"), call)];
        self.find(Rule::BufferChanged, qp(number), what, calls);
    }

    fn post_receive(&mut self, queue: ReceiveQueueId, id: u64, segments: &[Segment]) {
        let queue_pair = match queue {
            ReceiveQueueId::Own(number) if self.queue_pair(number).is_none() => return,
            ReceiveQueueId::Own(number) => Some((self.id, number)),
            ReceiveQueueId::Shared(_) => None,
        };
        let request = RequestName {
            operation: "receive",
            id,
            queue_pair,
        };
        let uses = self.use_local(&request, Purpose::Receive, segments);
        let receive = Receive { id, uses };
        match queue {
            ReceiveQueueId::Shared(queue) => {
                let shared = &mut self.device().shared_receives;
                shared.entry(queue).or_default().push_back(receive);
            }
            ReceiveQueueId::Own(number) => {
                let Some(queue_pair) = self.queue_pair(number) else {
                    return;
                };
                queue_pair.receives.push_back(receive);
                queue_pair.has_posted_receive = true;
                queue_pair.expected_receives += 1;
                let completions = queue_pair.sizes.receive_completions;
                self.expect_completion(completions);
            }
        }
    }

    fn expect_completion(&mut self, queue: Id<CompletionQueue>) {
        if let Some((expected, capacity)) = self.device().expect(queue) {
            let about = format!("CQ {}", queue.index());
            let what = format!(
                "Up to {expected} completions may arrive at {about} before the program polls, but it has room for \
                 {capacity}."
            );
            let calls = vec![("the request that exceeds it".to_owned(), self.call.clone())];
            self.find(Rule::CompletionQueueTooSmall, about, what, calls);
        }
    }

    /// A completion was added: a receive has ended, or a request has failed.
    fn complete(&mut self, completion: &Completion) {
        let Some(queue_pair) = self.queue_pair(completion.queue_pair) else {
            return;
        };
        if !matches!(completion.status, Status::Success | Status::Flushed) {
            queue_pair.failures.push(*completion);
        }
        if !completion.work.is_receive() {
            return;
        }
        let ended = match queue_pair.sizes.shared_receive {
            None => queue_pair.receives.pop_front(),
            Some(queue) => {
                let shared = &mut self.device().shared_receives;
                let receives = shared.entry(queue).or_default();
                let index = receives.iter().position(|it| it.id == completion.id);
                index.and_then(|index| receives.remove(index))
            }
        };
        if completion.status == Status::Success
            && let Some(receive) = &ended
        {
            self.check_received(completion, receive);
        }
        self.forget_receives(ended);
    }

    /// Compares the memory of a message that has arrived with that of other requests under way.
    fn check_received(&mut self, completion: &Completion, receive: &Receive) {
        let through = Some((self.id, completion.queue_pair));
        let local = &mut self.checker.local;
        let filled = filled(local, receive, completion.length);
        for (space, range) in &filled {
            local.note_overwritten(*space, range, through, receive.id);
        }
        let conflict = filled.iter().find_map(|(space, range)| {
            let mut overlapping = local.overlapping(*space, range);
            // A message of the same peer can be the answer to the request.
            let other = overlapping.find(|(other, _)| {
                other.purpose != Purpose::Receive && other.request.queue_pair != through
            });
            other.map(|(other, common)| (other.request.clone(), other.call.clone(), common))
        });
        let Some((request, call, common)) = conflict else {
            return;
        };
        let what = format!(
            "A message for the receive (wr_id {:#x}) of {} was stored into {} while {request} was under way and used \
             them.",
            receive.id,
            qp(completion.queue_pair),
            bytes(&common),
        );
        let about = qp(completion.queue_pair);
        let calls = vec![(format!("the request: {request}"), call)];
        self.find(Rule::OverlappingRequests, about, what, calls);
    }

    fn poll(&mut self, queue: Id<CompletionQueue>, completion: &Completion) {
        let number = completion.queue_pair;
        let is_receive = completion.work.is_receive();
        let Some(queue_pair) = self.queue_pair(number) else {
            return;
        };
        if completion.status != Status::Success {
            queue_pair.failures.retain(|failure| failure != completion);
        }
        let expected = if is_receive {
            &mut queue_pair.expected_receives
        } else {
            &mut queue_pair.expected_sends
        };
        let was_expected = *expected > 0;
        *expected = expected.saturating_sub(1);
        if !is_receive {
            queue_pair.retire(completion);
        }
        let (peer, first) = (queue_pair.peer, queue_pair.first_serial);
        if was_expected {
            self.device().expect_fewer(queue, 1);
        }
        if is_receive {
            if let Some(peer) = peer {
                self.learn_from(peer);
            }
        } else {
            (self.checker.remote).forget_before((self.id, number), first);
        }
    }

    /// A message of a peer may say that it has seen the effect of requests which have ended.
    fn learn_from(&mut self, peer: std::net::IpAddr) {
        let devices = &self.checker.devices;
        let has_ended = |(device, number): QueuePairId, serial: u64| {
            let device = devices.get(&device);
            let queue_pair = device.and_then(|device| device.queue_pairs.get(&number));
            queue_pair.is_none_or(|it| serial < it.ended_before())
        };
        let remote = &mut self.checker.remote;
        remote.forget_at(peer, |it| has_ended(it.queue_pair, it.serial));
    }

    fn remote_access(&mut self, access: &RemoteAccess) {
        let end = access.address.saturating_add(access.length.into());
        let range = access.address..end;
        if access.kind != RemoteAccessKind::Read
            && let Some(peer) = self.queue_pair(access.queue_pair).and_then(|it| it.peer)
        {
            // The program may wait for a value in its memory.
            self.learn_from(peer);
        }
        self.check_arrivals(access, &range);
        self.check_buffers(access, &range);
        self.device().add_arrival(*access);
    }

    /// Compares with accesses of other peers which do not know yet that theirs are executed.
    fn check_arrivals(&mut self, access: &RemoteAccess, range: &Range<u64>) {
        let space = self.device().space(access.key);
        let device = self.device();
        let race = device.arrivals().find_map(|other| {
            let end = other.address.saturating_add(other.length.into());
            let relevant = other.queue_pair != access.queue_pair
                && device.space(other.key) == space
                && conflicts(other.kind, access.kind);
            let common = common(&(other.address..end), range).filter(|_| relevant)?;
            Some((*other, common))
        });
        let Some((other, common)) = race else { return };
        let what = format!(
            "{} through {} and {} through {} access {} at once.",
            kind_name(other.kind),
            qp(other.queue_pair),
            kind_name(access.kind),
            qp(access.queue_pair),
            bytes(&common)
        );
        self.find(Rule::TargetRace, qp(access.queue_pair), what, Vec::new());
    }

    /// Compares with the memory of local requests that are under way.
    fn check_buffers(&mut self, access: &RemoteAccess, range: &Range<u64>) {
        let space = self.device().space(access.key);
        let through = Some((self.id, access.queue_pair));
        let conflict =
            (self.checker.local.overlapping(space, range)).find(|(local, _)| match local.purpose {
                // A message of the same peer can be the answer to the request.
                Purpose::Send => {
                    access.kind != RemoteAccessKind::Read && local.request.queue_pair != through
                }
                Purpose::Result => local.request.queue_pair != through,
                // A WRITE with immediate data consumes a receive whose memory it may name itself.
                Purpose::Receive => false,
            });
        let Some((local, common)) = conflict else {
            return;
        };
        let what = format!(
            "{} through {} accesses {} while {} is under way and uses them.",
            kind_name(access.kind),
            qp(access.queue_pair),
            bytes(&common),
            local.request
        );
        let calls = vec![(
            format!("the request: {}", local.request),
            local.call.clone(),
        )];
        let about = qp(access.queue_pair);
        self.find(Rule::RemoteAccessToBuffer, about, what, calls);
    }

    fn access_rejected(&mut self, access: &RemoteAccess) {
        let Some(range) = self.device().former_range(access.key).cloned() else {
            return;
        };
        let number = access.queue_pair;
        let what = format!(
            "{} through {} used R_Key {:#x} after its memory, {}, was deregistered.",
            kind_name(access.kind),
            qp(number),
            access.key.value(),
            bytes(&range)
        );
        self.find(Rule::KeyAfterDeregistration, qp(number), what, Vec::new());
    }

    fn receiver_not_ready(&mut self, number: Qpn) {
        let early = self
            .queue_pair(number)
            .is_some_and(|it| !it.has_posted_receive && it.sizes.shared_receive.is_none());
        if early {
            let what = format!(
                "A message arrived at {} before its first receive was posted.",
                qp(number)
            );
            self.find(Rule::NoReceiveYet, qp(number), what, Vec::new());
        }
    }

    /// A queue pair is destroyed or reset.
    fn discard(&mut self, discarded: &Discarded, how: &str) {
        let number = discarded.queue_pair;
        if let Some(failure) = &discarded.failure {
            self.findings.push(not_polled(number, failure));
        }
        if discarded.sends > 0 {
            let what = format!(
                "{} was {how} while {} were under way.",
                qp(number),
                counted(discarded.sends as u64, "send request")
            );
            let calls = vec![("the call".to_owned(), self.call.clone())];
            self.find(Rule::DestroyedWithSends, qp(number), what, calls);
        }
        self.device().forget_arrivals(number);
        let Some(queue_pair) = self.queue_pair(number) else {
            return;
        };
        let sends = std::mem::take(&mut queue_pair.sends);
        let receives = std::mem::take(&mut queue_pair.receives);
        let sizes = queue_pair.sizes;
        let expected = (queue_pair.expected_sends, queue_pair.expected_receives);
        let device = self.device();
        device.expect_fewer(sizes.send_completions, expected.0);
        device.expect_fewer(sizes.receive_completions, expected.1);
        for send in sends {
            self.checker.local.remove(&send.uses);
        }
        self.forget_receives(receives);
        (self.checker.remote).forget_before((self.id, number), u64::MAX);
    }

    fn forget_receives(&mut self, receives: impl IntoIterator<Item = Receive>) {
        for receive in receives {
            self.checker.local.remove(&receive.uses);
        }
    }
}

/// The memory that a message of this length filled.
fn filled<S>(local: &LocalUses<S>, receive: &Receive, length: u32) -> Vec<(Space, Range<u64>)> {
    let mut left = u64::from(length);
    let filled = receive.uses.iter().filter_map(|key| {
        let used = local.get(key)?;
        let start = used.range.start;
        let length = left.min(used.range.end - start);
        left -= length;
        Some((used.space, start..start + length))
    });
    filled.collect()
}

fn range_of(segment: &Segment) -> Range<u64> {
    segment.address..segment.address.saturating_add(segment.length.into())
}

const fn kind_name(kind: RemoteAccessKind) -> &'static str {
    match kind {
        RemoteAccessKind::Read => "an RDMA READ",
        RemoteAccessKind::Write => "an RDMA WRITE",
        RemoteAccessKind::Atomic => "an atomic",
    }
}

fn not_polled<S>(number: Qpn, failure: &Completion) -> Finding<S> {
    let what = format!(
        "A request (wr_id {:#x}) of {} failed ({}), and the program never polled its completion.",
        failure.id,
        qp(number),
        failure.status
    );
    Finding {
        rule: Rule::FailureNotPolled,
        about: qp(number),
        what,
        calls: Vec::new(),
    }
}

/// Compiles and runs the example of the front page in the registry.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
