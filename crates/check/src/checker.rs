//! The checker: compares observations with the rules.

mod lifetimes;
mod processes;
mod receives;
mod threads;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::IpAddr;
use std::ops::Range;

use engine::observation::{Peer, PostedSend, RemoteAccess, RemoteAccessKind};
use engine::{
    Access, CompletedWork, Completion, CompletionQueue, Id, Observation, Segment, Status, Work,
};
use wire::{Key, Qpn};

use crate::device_profile::Profile;
use crate::finding::Finding;
use crate::local_buffers::{LocalUse, LocalUses, Purpose, Space, UseKey};
use crate::observed_objects::{Device, QueueCapacity, QueuePair, Retired, Send};
use crate::process_order::{Event, ProcessOrder};
use crate::remote_accesses::{Conflict, Remote, RemoteUse, RemoteUses, conflicts, remote_of};
use crate::request_name::{DeviceId, QueuePairId, RequestName, bytes, common, operation, qp};
use crate::rule::Rule;
use crate::thread_order::{Deed, SyncPoint};
use lifetimes::error_event;
pub(crate) use threads::Outcome;

/// The rights by which a peer may tell the program something in its memory.
const SIGNALS: Access = Access::REMOTE_WRITE
    .union(Access::REMOTE_ATOMIC)
    .union(Access::WINDOW_BIND);

/// Compares the observations of all devices of a process with the rules.
///
/// `S` describes the program's call that led to an observation, for instance its stack.
#[derive(Debug)]
pub struct Checker<S> {
    devices: BTreeMap<DeviceId, Device<S>>,
    local: LocalUses<S>,
    remote: RemoteUses<S>,
    /// Queue pairs with requests that have ended without the program's knowledge.
    with_ended: BTreeSet<QueuePairId>,
    profile: Option<Profile>,
    /// The order of requests of all processes, if they are compared.
    processes: Option<ProcessOrder>,
    /// What the device did, if ThreadSanitizer is told.
    deeds: Option<Vec<Deed<S>>>,
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
            with_ended: BTreeSet::new(),
            profile: None,
            processes: None,
            deeds: None,
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
            Observation::Registered {
                region,
                access,
                memory,
                accelerated,
            } => {
                self.device().is_writable_by_peers |= access.intersects(SIGNALS);
                self.register(region, memory, !accelerated);
            }
            Observation::Deregistered { key, changed } => self.deregister(key, changed),
            Observation::CompletionQueue(queue, capacity) => self.completion_queue(queue, capacity),
            Observation::CompletionQueueDestroyed(queue) => {
                self.device().completion_queues.remove(&queue);
            }
            Observation::SharedReceiveQueue(queue) => {
                (self.device().shared_receives).insert(queue, VecDeque::new());
            }
            Observation::SharedReceiveQueueDestroyed(queue) => {
                self.tell_deregistration();
                let receives = self.device().shared_receives.remove(&queue);
                self.forget_receives(receives.unwrap_or_default());
            }
            Observation::QueuePair(number, sizes) => {
                self.compare_with_profile(|profile| profile.reject_queue_pair(&sizes));
                let queue_pair = QueuePair::new(sizes, self.call.clone());
                self.device().queue_pairs.insert(number, queue_pair);
            }
            Observation::Connected(number, peer) => {
                let before = self.queue_pair(number).map(|it| it.peer.replace(peer));
                if before.is_some_and(|before| before != Some(peer)) {
                    self.publish_connection(number, peer);
                }
            }
            Observation::ReadDepth(_, depth) => {
                self.compare_with_profile(|profile| profile.reject_read_depth(depth));
            }
            Observation::QueuePairFailed(number) => self.queue_pair_failed(number),
            Observation::QueuePairDestroyed(discarded) => {
                self.discard(&discarded, "destroyed");
                self.tell_stop(discarded.queue_pair, true);
                self.device().queue_pairs.remove(&discarded.queue_pair);
            }
            Observation::QueuePairReset(discarded) => {
                self.discard(&discarded, "reset");
                self.tell_stop(discarded.queue_pair, false);
                if let Some(it) = self.queue_pair(discarded.queue_pair) {
                    *it = QueuePair::new(it.sizes, it.call.clone());
                }
            }
            Observation::SendPosted(posted) => self.post_send(&posted),
            Observation::SendEnded {
                queue_pair,
                status,
                changed_at,
            } => self.end_send(queue_pair, status, changed_at),
            Observation::MessageChanged {
                queue_pair,
                serial,
                offset,
            } => self.message_changed(queue_pair, serial, offset),
            Observation::ReceivePosted {
                queue,
                id,
                segments,
            } => self.post_receive(queue, id, &segments),
            Observation::ReceiveChanged { queue_pair, id } => self.receive_changed(queue_pair, id),
            Observation::MessageReceived {
                queue_pair,
                message,
            } => self.message_received(queue_pair, message),
            Observation::Completed(_, completion) => self.complete(&completion),
            Observation::Polled(queue, completion) => self.poll(queue, &completion),
            Observation::RemoteAccess(access) => self.remote_access(&access),
            Observation::Answered(number) => self.device().forget_arrivals(number),
            Observation::AccessRejected(access) => self.access_rejected(&access),
            Observation::ReceiverNotReady(number, timer) => self.receiver_not_ready(number, timer),
            Observation::EventRaised(event) => self.device().events.extend(error_event(event)),
            Observation::EventFetched(event) => {
                self.publish(|| Event::LearnedAll);
                self.event_fetched(event);
            }
            Observation::ConnectionEvent => self.publish(|| Event::LearnedAll),
        }
    }

    /// A completion queue was created or resized.
    fn completion_queue(&mut self, queue: Id<CompletionQueue>, capacity: u32) {
        self.compare_with_profile(|profile| profile.reject_completion_queue(capacity));
        let call = self.call.clone();
        let queues = &mut self.device().completion_queues;
        let watched = queues.entry(queue).or_insert(QueueCapacity {
            capacity,
            sends: 0,
            receives: 0,
            call,
        });
        watched.capacity = capacity;
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
        let sync = self.sync_point();
        let uses = self.use_local(&request, purpose, &posted.segments, sync.as_ref());
        self.use_remote(posted, &request);
        let outcome = sync.map(|sync| self.tell_post(posted, &uses, sync));
        let message = self.publish_post(posted, &uses);
        let ranges = posted.segments.iter().map(range_of).collect();
        let (signaled, call) = (posted.signaled, self.call.clone());
        let Some(queue_pair) = self.queue_pair(number) else {
            return;
        };
        queue_pair.messages += u64::from(!posted.work.is_local());
        queue_pair.sends.push_back(Send {
            request,
            ranges,
            uses,
            signaled,
            message,
            messages_through: queue_pair.messages,
            outcome,
            completes: false,
            has_failed: false,
            is_known: false,
            call,
        });
        let max = queue_pair.sizes.max_sends;
        let before = queue_pair.first_serial;
        let forgotten = queue_pair.forget_unsignaled(max);
        let first = queue_pair.first_serial;
        queue_pair.unsignaled = if signaled {
            0
        } else {
            queue_pair.unsignaled + 1
        };
        let completions = queue_pair.sizes.send_completions;
        queue_pair.expected_sends += u32::from(signaled);
        if first > before {
            self.checker.local.remove(&forgotten);
            (self.checker.remote).forget_before((self.id, number), first);
        }
        self.check_send_queue(number, max);
        if signaled {
            self.expect_completion(completions, false);
        }
    }

    /// Checks that on hardware a send queue would have had room for the newest request.
    fn check_send_queue(&mut self, number: Qpn, max: u32) {
        let Some(queue_pair) = self.queue_pair(number).filter(|_| max > 0) else {
            return;
        };
        let created = queue_pair.call.clone();
        let posted = queue_pair.sends.len();
        let is_signaled = queue_pair.sends.iter().any(|send| send.signaled);
        let (rule, how) = if queue_pair.unsignaled == max + 1 {
            (
                Rule::NeverSignaled,
                "in succession without the signaled flag",
            )
        } else if posted == max as usize + 1 && is_signaled {
            (
                Rule::SendQueueNotPolled,
                "without a poll of a completion that covers one of them",
            )
        } else {
            return;
        };
        let what = format!(
            "{} requests were posted to {} {how}, and its send queue has room for {max}.",
            max + 1,
            qp(number)
        );
        let calls = vec![
            ("the last of them".to_owned(), self.call.clone()),
            (format!("the creation of {}", qp(number)), created),
        ];
        self.find(rule, qp(number), what, calls);
    }

    /// Records the local memory of a request, and checks that no other outstanding request conflicts.
    fn use_local(
        &mut self,
        request: &RequestName,
        purpose: Purpose,
        segments: &[Segment],
        sync: Option<&SyncPoint>,
    ) -> Vec<UseKey> {
        let queue_pair = request.queue_pair.and_then(|(_, it)| self.queue_pair(it));
        let (serial, fence) = queue_pair.map_or((0, 0), |it| (it.next_serial(), it.fence));
        let used = segments.iter().filter(|segment| segment.length > 0);
        let used: Vec<_> = used
            .map(|segment| {
                let (space, range) = self.device().locate(segment.key, range_of(segment));
                LocalUse {
                    overwritten: self.is_filled(space, &range, purpose),
                    space,
                    range,
                    key: segment.key,
                    purpose,
                    request: request.clone(),
                    call: self.call.clone(),
                    serial,
                    ended: false,
                    sync: sync.cloned(),
                    overwritten_by: None,
                    written_through: None,
                }
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
                "{request} was posted before the program polled the completion of {other}, and {verb} {}{}.",
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
        if purpose == Purpose::Result {
            (used.iter()).for_each(|it| local.note_stored(it.space, &it.range));
        }
        used.into_iter().map(|it| local.insert(it)).collect()
    }

    /// Whether an earlier request will store its result into memory that a new one sends.
    fn is_filled(&self, space: Space, range: &Range<u64>, purpose: Purpose) -> bool {
        let local = &self.checker.local;
        purpose == Purpose::Send
            && local.has(Purpose::Result)
            && (local.overlapping(space, range)).any(|(it, _)| it.purpose == Purpose::Result)
    }

    /// Records the remote memory of a request, and checks that no other request conflicts.
    fn use_remote(&mut self, posted: &PostedSend, request: &RequestName) {
        let (Some((key, range, kind)), Some(peer)) = (remote_of(posted), posted.peer) else {
            return;
        };
        let number = posted.queue_pair;
        let queue_pair = self.queue_pair(number);
        let (serial, fence) = queue_pair.map_or((0, 0), |it| (it.next_serial(), it.fence));
        let (remote, range) = self.remote_place(peer, key, range);
        let new = RemoteUse {
            range,
            kind,
            request: request.clone(),
            queue_pair: (self.id, number),
            peer,
            serial,
            call: self.call.clone(),
        };
        let conflict = (self.checker.remote).conflict(remote, &new, fence);
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
        self.checker.remote.insert(remote, new);
    }

    /// Where the memory of an R_Key is. Keys are random, so a key of this process names memory of this process.
    fn remote_place(&self, peer: IpAddr, key: Key, range: Range<u64>) -> (Remote, Range<u64>) {
        let mut devices = self.checker.devices.values();
        match devices.find_map(|device| device.find(key, &range)) {
            Some((space, range)) => (Remote::Own(space), range),
            None => (Remote::Of(peer, key), range),
        }
    }

    fn end_send(&mut self, number: Qpn, status: Status, changed_at: Option<u32>) {
        let id = (self.id, number);
        let Some(queue_pair) = self.queue_pair(number) else {
            return;
        };
        let serial = queue_pair.ended_before();
        let Some(send) = queue_pair.sends.get_mut(queue_pair.ended) else {
            return;
        };
        send.has_failed = status != Status::Success;
        send.completes = send.signaled || send.has_failed;
        let uses = send.uses.clone();
        queue_pair.ended += 1;
        self.checker.local.end(&uses);
        self.checker.with_ended.insert(id);
        if let Some(offset) = changed_at {
            self.message_changed(number, serial, offset);
        }
    }

    /// The memory of a message differs from what was posted.
    fn message_changed(&mut self, number: Qpn, serial: u64, offset: u32) {
        let Some(queue_pair) = self.queue_pair(number) else {
            return;
        };
        let index = serial.checked_sub(queue_pair.first_serial);
        let send = index.and_then(|index| queue_pair.sends.get(index as usize));
        let Some(send) = send.filter(|send| !send.is_known) else {
            return;
        };
        let (request, call) = (send.request.clone(), send.call.clone());
        let (uses, address) = (send.uses.clone(), send.address_of(offset));
        let local = &self.checker.local;
        let mut used = uses.iter().filter_map(|key| local.get(key));
        if used.clone().any(|it| it.overwritten) {
            return;
        }
        let receive = used.find_map(|it| it.overwritten_by);
        let by = receive.map_or_else(String::new, |id| {
            format!(" by a message for the receive (wr_id {id:#x}) of the same queue pair")
        });
        let what = format!(
            "The memory of {request} was changed{by} after it was posted and before the program polled its completion, in \
             the packet at {address:#x} (offset {offset})."
        );
        let calls = vec![(format!("the request: {request}"), call)];
        self.find(Rule::BufferChanged, qp(number), what, calls);
    }

    /// Counts a completion that a queue may have to hold, and checks that it has room.
    fn expect_completion(&mut self, queue: Id<CompletionQueue>, is_receive: bool) {
        let Some(watched) = self.device().completion_queues.get_mut(&queue) else {
            return;
        };
        *watched.expected(is_receive) += 1;
        let (sends, expected) = (watched.sends, watched.sends + watched.receives);
        let (capacity, created) = (watched.capacity, watched.call.clone());
        if expected <= capacity {
            return;
        }
        // The program controls the number of outstanding sends; its peers control the number of arriving messages.
        let (rule, count) = if sends > capacity {
            (Rule::CompletionQueueTooSmall, sends)
        } else {
            (Rule::TooManyReceives, expected)
        };
        let about = format!("CQ {}", queue.index());
        let what = format!(
            "Up to {count} completions may arrive at {about} before the program polls, but it has room for {capacity}."
        );
        let calls = vec![
            ("the request that exceeds it".to_owned(), self.call.clone()),
            (format!("the creation of {about}"), created),
        ];
        self.find(rule, about, what, calls);
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
        // An RDMA WRITE with immediate data stores nothing into the receive that it consumes.
        if (completion.status, completion.work) == (Status::Success, CompletedWork::Receive)
            && let Some(receive) = &ended
        {
            self.check_received(completion, receive);
        }
        if let Some(receive) = &ended {
            self.tell_arrival(completion, receive);
        }
        // The program knows nothing of it until it polls.
        if let Some(queue_pair) = self.queue_pair(completion.queue_pair) {
            queue_pair.received.extend(ended);
        }
    }

    fn poll(&mut self, queue: Id<CompletionQueue>, completion: &Completion) {
        let number = completion.queue_pair;
        let is_receive = completion.work.is_receive();
        let Some(queue_pair) = self.queue_pair(number) else {
            return;
        };
        if completion.status != Status::Success {
            queue_pair.failures.retain(|failure| failure != completion);
            queue_pair.has_polled_failure = true;
        }
        let expected = if is_receive {
            &mut queue_pair.expected_receives
        } else {
            &mut queue_pair.expected_sends
        };
        let was_expected = *expected > 0;
        *expected = expected.saturating_sub(1);
        let retired = if is_receive {
            let received = queue_pair.received.pop_front();
            received.map_or_else(Retired::default, |it| Retired {
                uses: it.uses,
                sync: it.sync,
                ..Retired::default()
            })
        } else {
            queue_pair.retire()
        };
        let first = queue_pair.first_serial;
        if was_expected {
            self.device().expect_fewer(queue, is_receive, 1);
        }
        self.tell_poll(&retired);
        self.checker.local.remove(&retired.uses);
        if completion.status == Status::Success {
            self.publish_poll(number, is_receive, retired.message);
        }
        if is_receive {
            self.learn_of_ended((self.id, number));
            self.learn_from_message(number);
        } else {
            (self.checker.remote).forget_before((self.id, number), first);
        }
    }

    /// A message of a peer may say that it has seen the effect of requests which have ended, except those of the queue
    /// pairs that `cannot_tell` names.
    fn learn_from(&mut self, peer: IpAddr, cannot_tell: impl Fn(QueuePairId) -> bool) {
        let devices = &self.checker.devices;
        let has_ended = |(device, number): QueuePairId, serial: u64| {
            let device = devices.get(&device);
            let queue_pair = device.and_then(|device| device.queue_pairs.get(&number));
            queue_pair.is_none_or(|it| serial < it.ended_before())
        };
        let remote = &mut self.checker.remote;
        remote.forget_at(peer, |it| {
            !cannot_tell(it.queue_pair) && has_ended(it.queue_pair, it.serial)
        });
        let of_peer = |(device, number): &QueuePairId| {
            let device = devices.get(device);
            let queue_pair = device.and_then(|device| device.queue_pairs.get(number));
            queue_pair.is_some_and(|it| it.peer.is_some_and(|it| it.address == peer))
        };
        let known: Vec<_> = (self.checker.with_ended.iter().copied())
            .filter(|it| of_peer(it) && !cannot_tell(*it))
            .collect();
        known.into_iter().for_each(|it| self.learn_of_ended(it));
    }

    /// A peer has written memory. If the peer is in this process, its WRITE says nothing about the requests of its own
    /// end: they are the requests that send such WRITEs.
    fn learn_from_write(&mut self, number: Qpn) {
        if let Some((peer, end)) = self.sending_end(number) {
            self.learn_from(peer, |it| end.contains(&it));
        }
    }

    /// The program has polled a message. Before this, the device has compared all its messages of which this one may
    /// tell. It cannot compare those of another device, and a message says nothing about the requests of its own end.
    fn learn_from_message(&mut self, number: Qpn) {
        let here = self.id;
        if let Some((peer, end)) = self.sending_end(number) {
            self.learn_from(peer, |it| it.0 != here && end.contains(&it));
        }
    }

    /// The address of the peer of a queue pair and, if the peer is in this process, the queue pairs of its end.
    fn sending_end(&mut self, number: Qpn) -> Option<(IpAddr, BTreeSet<QueuePairId>)> {
        let here = self.id;
        let queue_pair = self.queue_pair(number)?;
        let sizes = queue_pair.sizes;
        let peer = queue_pair.peer?;
        let sender = self.sender_in_process(number, peer);
        let end = sender.map(|(id, completions)| {
            let is_other_end = (id.0, completions) != (here, sizes.send_completions);
            let of_end = self.checker.devices.get(&id.0).filter(|_| is_other_end);
            let of_end = of_end.into_iter().flat_map(|device| &device.queue_pairs);
            let of_end = of_end.filter(|(_, it)| it.sizes.send_completions == completions);
            let mut all: BTreeSet<_> = of_end.map(|(number, _)| (id.0, *number)).collect();
            all.insert(id);
            all
        });
        Some((peer.address, end.unwrap_or_default()))
    }

    /// The peer of a queue pair, and where its send requests complete, if it belongs to this process.
    fn sender_in_process(
        &self,
        number: Qpn,
        peer: Peer,
    ) -> Option<(QueuePairId, Id<CompletionQueue>)> {
        self.checker.devices.iter().find_map(|(device, it)| {
            let sender = it.queue_pairs.get(&peer.queue_pair)?;
            let its_peer = sender.peer?;
            let is_peer = its_peer.queue_pair == number
                && its_peer.address == peer.own
                && its_peer.own == peer.address;
            is_peer.then_some(((*device, peer.queue_pair), sender.sizes.send_completions))
        })
    }

    fn queue_pair_failed(&mut self, number: Qpn) {
        self.tell_stop(number, false);
        self.learn_of_ended((self.id, number));
    }

    /// The program can know that the requests of a queue pair which have ended were executed.
    fn learn_of_ended(&mut self, queue_pair: QueuePairId) {
        let (device, number) = queue_pair;
        self.checker.with_ended.remove(&queue_pair);
        let device = self.checker.devices.get_mut(&device);
        let it = device.and_then(|device| device.queue_pairs.get_mut(&number));
        if let Some(it) = it {
            let sync = it.outcome_of_ended().map(|it| it.sync.clone());
            self.checker.local.remove(&it.learn_of_ended());
            self.tell_end(sync);
        }
    }

    fn remote_access(&mut self, access: &RemoteAccess) {
        let (space, range) = self.device().place_of(access);
        if access.kind != RemoteAccessKind::Read {
            self.checker.local.note_stored(space, &range);
            (self.checker.local).note_written(space, &range, access.queue_pair);
            // The program may wait for a value in its memory.
            self.learn_from_write(access.queue_pair);
        }
        self.check_arrivals(access, space, &range);
        self.check_buffers(access, space, &range);
        self.publish_access(access, space, &range);
        self.device().add_arrival(*access);
    }

    /// Compares with accesses of other peers which do not know yet that theirs are executed.
    fn check_arrivals(&mut self, access: &RemoteAccess, space: Space, range: &Range<u64>) {
        let device = self.device();
        let race = device.arrivals().find_map(|other| {
            let (other_space, other_range) = device.place_of(other);
            let relevant = other.queue_pair != access.queue_pair
                && other_space == space
                && conflicts(other.kind, access.kind);
            let common = common(&other_range, range).filter(|_| relevant)?;
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

    /// Compares with the memory of outstanding local requests.
    fn check_buffers(&mut self, access: &RemoteAccess, space: Space, range: &Range<u64>) {
        let through = Some((self.id, access.queue_pair));
        let relevant = |local: &LocalUse<S>| match local.purpose {
            // A message of the same peer can be the reply to the request.
            Purpose::Send => {
                access.kind != RemoteAccessKind::Read && local.request.queue_pair != through
            }
            Purpose::Result => local.request.queue_pair != through,
            // A WRITE with immediate data consumes a receive whose memory it may name itself.
            Purpose::Receive => false,
        };
        // The peer may know that a request has ended.
        let conflict = (self.checker.local.overlapping(space, range))
            .find(|(local, _)| !local.ended && relevant(local));
        let Some((local, common)) = conflict else {
            return;
        };
        let what = format!(
            "{} through {} accesses {} while {} is outstanding and uses them.",
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

/// Compiles and runs the example of the front page in the registry.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
