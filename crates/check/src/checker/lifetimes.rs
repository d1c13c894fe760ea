//! The lifetimes of objects: what they leave behind, and what still uses them.

use std::ops::Range;

use engine::observation::{Discarded, RemoteAccess};
use engine::{AsyncEvent, Completion, MappingChange, Registration};
use wire::{Key, Qpn, RnrTimer};

use super::{Checker, Step, kind_name};
use crate::finding::Finding;
use crate::local_buffers::{LocalUse, Purpose};
use crate::observed_objects::{Device, QueuePair, Receive};
use crate::request_name::{DeviceId, RequestName, bytes, counted, qp};
use crate::rule::Rule;

impl<S: Clone> Checker<S> {
    /// Reports what a device leaves behind when it is closed or the program ends.
    pub fn close(&mut self, device: DeviceId, findings: &mut Vec<Finding<S>>) {
        let Some(closed) = self.devices.remove(&device) else {
            return;
        };
        let mut queue_pairs: Vec<_> = closed.queue_pairs.iter().collect();
        queue_pairs.sort_by_key(|(number, _)| number.value());
        for (number, queue_pair) in &queue_pairs {
            if let Some(failure) = queue_pair.failures.first() {
                findings.push(not_polled(**number, failure));
            }
            findings.extend(never_polled(**number, queue_pair, "The program ended"));
        }
        for event in &closed.events {
            findings.extend(not_fetched(*event, &closed));
        }
        findings.extend(leak(device, &closed));
    }
}

/// The objects that a device leaves behind.
fn leak<S: Clone>(id: DeviceId, closed: &Device<S>) -> Option<Finding<S>> {
    let counts = [
        (closed.queue_pairs.len(), "queue pair"),
        (closed.completion_queues.len(), "completion queue"),
        (closed.shared_receives.len(), "shared receive queue"),
        (closed.regions.len(), "memory region"),
        (closed.domains, "protection domain"),
    ];
    let left = counts.iter().filter(|(count, _)| *count > 0);
    let left: Vec<_> = left
        .map(|(count, name)| counted(*count as u64, name))
        .collect();
    if left.is_empty() {
        return None;
    }
    let queue_pair = (closed.queue_pairs.iter()).min_by_key(|(number, _)| number.value());
    let queue = (closed.completion_queues.iter()).min_by_key(|(queue, _)| queue.index());
    let region = (closed.regions.iter()).min_by_key(|(key, _)| key.value());
    let created = [
        queue_pair.map(|(number, it)| (qp(*number), it.call.clone())),
        queue.map(|(queue, it)| (format!("CQ {}", queue.index()), it.call.clone())),
        region.map(|(key, it)| (format!("region {:#x}", key.value()), it.call.clone())),
    ];
    let created = created.into_iter().flatten();
    Some(Finding {
        rule: Rule::Leak,
        about: format!("device {}", id.0),
        what: format!("At the end there were still {}.", left.join(", ")),
        calls: created
            .map(|(name, call)| (format!("the creation of {name}"), call))
            .collect(),
    })
}

impl<S: Clone> Step<'_, S> {
    /// Memory was registered, or a region changed. A region that has another place has the same keys.
    pub(crate) fn register(
        &mut self,
        region: Registration,
        memory: Option<u64>,
        is_of_program: bool,
    ) {
        let (id, call) = (self.id, self.call.clone());
        let before = self.device().regions.get(&region.local_key);
        let before = before.map(|it| it.registration);
        let has_moved =
            |it: &Registration| (it.address, it.length) != (region.address, region.length);
        if let Some(before) = before.filter(has_moved) {
            self.check_unused(region.local_key, "moved");
            self.device().forget_place(&before, call.clone());
        }
        (self.device()).register(id, region, memory, is_of_program, call);
    }

    /// Checks that no request uses a region, as far as the program knows.
    fn check_unused(&mut self, key: Key, how: &str) {
        let Some((request, range, call)) = self.request_using(key) else {
            return;
        };
        let about = format!("region {:#x}", key.value());
        let what = format!(
            "The memory of {about} was {how} before the program polled the completion of {request}, which uses {}.",
            bytes(&range)
        );
        let mut calls = self.calls_of_region(key, how);
        calls.push((format!("the request: {request}"), call));
        self.find(Rule::RegionInUse, about, what, calls);
    }

    /// The present call, which ends the use of a region, and its registration.
    fn calls_of_region(&mut self, key: Key, how: &str) -> Vec<(String, S)> {
        let registered = self.device().regions.get(&key);
        let registered = registered.map(|it| ("the registration".to_owned(), it.call.clone()));
        let name = match how {
            "moved" => "the re-registration",
            _ => "the deregistration",
        };
        let now = (name.to_owned(), self.call.clone());
        [now].into_iter().chain(registered).collect()
    }

    pub(crate) fn deregister(&mut self, key: Key, changed: Option<(u64, MappingChange)>) {
        let about = format!("region {:#x}", key.value());
        if let Some((address, change)) = changed {
            let how = match change {
                MappingChange::Unmapped => "was unmapped or protected",
                MappingChange::ReadOnly => "was protected against writes",
                MappingChange::Replaced => {
                    "was given back to the system and replaced by other pages"
                }
            };
            let what =
                format!("The memory of {about} {how} at {address:#x} before it was deregistered.");
            let calls = self.calls_of_region(key, "deregistered");
            self.find(Rule::MemoryUnmapped, about, what, calls);
        }
        self.check_unused(key, "deregistered");
        let call = self.call.clone();
        self.device().deregister(key, call);
        self.tell_deregistration();
    }

    /// A request that uses a region, as far as the program knows. A receive uses it only when a message arrives.
    fn request_using(&mut self, key: Key) -> Option<(RequestName, Range<u64>, S)> {
        let region = self.device().regions.get(&key)?.registration;
        let range = region.address..region.address.saturating_add(region.length);
        let (space, range) = self.device().locate(key, range);
        let is_here = |it: &LocalUse<S>| {
            let queue_pair = it.request.queue_pair;
            queue_pair.is_some_and(|(device, _)| device == self.id)
        };
        let mut overlapping = self.checker.local.overlapping(space, &range);
        let (it, _) = overlapping
            .find(|(it, _)| it.key == key && it.purpose != Purpose::Receive && is_here(it))?;
        Some((it.request.clone(), it.range.clone(), it.call.clone()))
    }

    /// The program took an event.
    pub(crate) fn event_fetched(&mut self, event: AsyncEvent) {
        let events = &mut self.device().events;
        let taken = events.iter().position(|it| *it == event);
        taken.map(|index| events.remove(index));
    }

    pub(crate) fn access_rejected(&mut self, access: &RemoteAccess) {
        let former = self.device().former(access);
        let former = former.map(|it| (it.range.clone(), it.moved, it.call.clone()));
        let Some((range, moved, call)) = former else {
            return;
        };
        let number = access.queue_pair;
        let what = format!(
            "{} through {} used R_Key {:#x} after its memory, {}, was {}.",
            kind_name(access.kind),
            qp(number),
            access.key.value(),
            bytes(&range),
            if moved {
                "replaced by other memory"
            } else {
                "deregistered"
            }
        );
        let name = if moved {
            "the re-registration"
        } else {
            "the deregistration"
        };
        let calls = vec![(name.to_owned(), call)];
        self.find(Rule::KeyAfterDeregistration, qp(number), what, calls);
    }

    pub(crate) fn receiver_not_ready(&mut self, number: Qpn, timer: RnrTimer) {
        if timer == RnrTimer::default() {
            let what = format!(
                "A message for {} found no receive, and the peer now waits as long as the min_rnr_timer 0 says.",
                qp(number)
            );
            self.find(Rule::LongestRnrTimer, qp(number), what, Vec::new());
        }
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
    pub(crate) fn discard(&mut self, discarded: &Discarded, how: &str) {
        let number = discarded.queue_pair;
        if let Some(failure) = &discarded.failure {
            self.findings.push(not_polled(number, failure));
        }
        if discarded.sends > 0 {
            let what = format!(
                "{} was {how} with {} outstanding.",
                qp(number),
                counted(discarded.sends as u64, "send request")
            );
            let calls = vec![("the call".to_owned(), self.call.clone())];
            self.find(Rule::DestroyedWithSends, qp(number), what, calls);
        }
        self.device().forget_arrivals(number);
        let device = self.device();
        let (gone, events) = (std::mem::take(&mut device.events).into_iter())
            .partition(|event| queue_pair_of(*event) == Some(number));
        device.events = events;
        let gone: Vec<AsyncEvent> = gone;
        let unfetched = gone
            .into_iter()
            .find_map(|event| not_fetched(event, device));
        self.findings.extend(unfetched);
        let Some(queue_pair) = self.queue_pair(number) else {
            return;
        };
        let unpolled = never_polled(number, queue_pair, &format!("The queue pair was {how}"));
        self.findings.extend(unpolled);
        let Some(queue_pair) = self.queue_pair(number) else {
            return;
        };
        let sends = std::mem::take(&mut queue_pair.sends);
        let mut receives = std::mem::take(&mut queue_pair.receives);
        receives.append(&mut queue_pair.received);
        let sizes = queue_pair.sizes;
        let expected = (queue_pair.expected_sends, queue_pair.expected_receives);
        let device = self.device();
        device.expect_fewer(sizes.send_completions, false, expected.0);
        device.expect_fewer(sizes.receive_completions, true, expected.1);
        for send in sends {
            self.checker.local.remove(&send.uses);
        }
        self.forget_receives(receives);
        (self.checker.remote).forget_before((self.id, number), u64::MAX);
        self.checker.with_ended.remove(&(self.id, number));
    }

    pub(crate) fn forget_receives(&mut self, receives: impl IntoIterator<Item = Receive<S>>) {
        for receive in receives {
            self.checker.local.remove(&receive.uses);
        }
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

/// Requests were executed, but the program has polled no completion that covers them.
fn never_polled<S: Clone>(
    number: Qpn,
    queue_pair: &QueuePair<S>,
    when: &str,
) -> Option<Finding<S>> {
    let (first, count) = queue_pair.unknown_executed()?;
    let queue = queue_pair.sizes.send_completions.index();
    let others = match count {
        1 => String::new(),
        _ => format!(" and {} more", count - 1),
    };
    let what = format!(
        "{when} before the program polled a completion that covers {}{others}.",
        first.request
    );
    Some(Finding {
        rule: Rule::NeverPolled,
        about: format!("CQ {queue}"),
        what,
        calls: vec![
            (
                format!("the request: {}", first.request),
                first.call.clone(),
            ),
            (
                format!("the creation of {}", qp(number)),
                queue_pair.call.clone(),
            ),
        ],
    })
}

/// The program did not take an event about an error, and no completion told it.
fn not_fetched<S>(event: AsyncEvent, device: &Device<S>) -> Option<Finding<S>> {
    let (about, happened) = match event {
        AsyncEvent::CompletionQueueError(queue) => (
            format!("CQ {}", queue.index()),
            "overran (IBV_EVENT_CQ_ERR)",
        ),
        AsyncEvent::QueuePairFatal(number) => (qp(number), "failed (IBV_EVENT_QP_FATAL)"),
        AsyncEvent::RequestError(number) => (
            qp(number),
            "received an invalid request (IBV_EVENT_QP_REQ_ERR)",
        ),
        AsyncEvent::AccessError(number) => (
            qp(number),
            "received a request for memory that the peer must not access (IBV_EVENT_QP_ACCESS_ERR)",
        ),
        _ => return None,
    };
    let queue_pair = queue_pair_of(event).and_then(|number| device.queue_pairs.get(&number));
    if queue_pair.is_some_and(|it| it.has_polled_failure) {
        return None;
    }
    Some(Finding {
        rule: Rule::EventNotFetched,
        what: format!(
            "{about} {happened}, and the program neither fetched the event nor polled a completion with an error."
        ),
        about,
        calls: Vec::new(),
    })
}

/// The event, if it is about an error.
pub(crate) fn error_event(event: AsyncEvent) -> Option<AsyncEvent> {
    let is_error =
        queue_pair_of(event).is_some() || matches!(event, AsyncEvent::CompletionQueueError(_));
    is_error.then_some(event)
}

/// The queue pair that an event about an error names.
fn queue_pair_of(event: AsyncEvent) -> Option<Qpn> {
    match event {
        AsyncEvent::QueuePairFatal(number)
        | AsyncEvent::RequestError(number)
        | AsyncEvent::AccessError(number) => Some(number),
        _ => None,
    }
}
