//! The lifetimes of objects: what they leave behind, and what still uses them.

use engine::Completion;
use engine::observation::{Discarded, RemoteAccess};
use wire::{Key, Qpn};

use crate::device::Receive;
use crate::finding::Finding;
use crate::request::{DeviceId, bytes, counted, qp};
use crate::rule::Rule;
use crate::{Checker, Step, kind_name};

impl<S: Clone> Checker<S> {
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

impl<S: Clone> Step<'_, S> {
    pub(crate) fn deregister(&mut self, key: Key, unmapped_at: Option<u64>) {
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

    pub(crate) fn access_rejected(&mut self, access: &RemoteAccess) {
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

    pub(crate) fn receiver_not_ready(&mut self, number: Qpn) {
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
        let mut receives = std::mem::take(&mut queue_pair.receives);
        receives.append(&mut queue_pair.received);
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
        self.checker.with_ended.remove(&(self.id, number));
    }

    pub(crate) fn forget_receives(&mut self, receives: impl IntoIterator<Item = Receive>) {
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
