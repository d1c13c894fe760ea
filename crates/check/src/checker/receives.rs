//! Receives: what they find in their memory.

use std::ops::Range;

use engine::observation::ReceiveQueueId;
use engine::{Completion, Segment};
use wire::Qpn;

use super::Step;
use crate::local_buffers::{LocalUses, Purpose, Space};
use crate::observed_objects::Receive;
use crate::request_name::{RequestName, bytes, common, qp};
use crate::rule::Rule;

impl<S: Clone> Step<'_, S> {
    pub(super) fn post_receive(&mut self, queue: ReceiveQueueId, id: u64, segments: &[Segment]) {
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
        let sync = self.sync_point();
        let uses = self.use_local(&request, Purpose::Receive, segments, sync.as_ref());
        self.tell_receive(sync.as_ref());
        let receive = Receive {
            id,
            uses,
            sync,
            call: self.call.clone(),
        };
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
                self.expect_completion(completions, true);
            }
        }
    }

    /// The memory of a receive differs from what was there when it was posted.
    pub(super) fn receive_changed(&mut self, number: Qpn, id: u64) {
        let Some(queue_pair) = self.queue_pair(number) else {
            return;
        };
        let receive = queue_pair.receives.front().filter(|it| it.id == id);
        let Some((uses, call)) = receive.map(|it| (it.uses.clone(), it.call.clone())) else {
            return;
        };
        let local = &self.checker.local;
        if uses.is_empty() || !uses.iter().all(|key| local.is_untouched(key)) {
            return;
        }
        let range = local.get(&uses[0]).map(|it| bytes(&it.range));
        let what = format!(
            "The memory of the receive (wr_id {id:#x}) of {}, {}, was changed after it was posted and before its message \
             arrived.",
            qp(number),
            range.unwrap_or_default()
        );
        let calls = vec![("the post of the receive".to_owned(), call)];
        self.find(Rule::ReceiveChanged, qp(number), what, calls);
    }

    /// Compares the memory of a message that has arrived with that of other outstanding requests.
    pub(super) fn check_received(&mut self, completion: &Completion, receive: &Receive<S>) {
        let through = Some((self.id, completion.queue_pair));
        let local = &mut self.checker.local;
        let filled = filled(local, receive, completion.length);
        for (space, range) in &filled {
            local.note_received(*space, range, through, receive.id);
        }
        let conflict = filled.iter().find_map(|(space, range)| {
            let mut overlapping = local.overlapping(*space, range);
            // A message of the same peer can be the reply to the request.
            let other = overlapping.find(|(other, _)| {
                other.purpose != Purpose::Receive
                    && other.request.queue_pair != through
                    && !other.ended
            });
            other.map(|(other, common)| (other.request.clone(), other.call.clone(), common))
        });
        self.check_written(completion, receive);
        let Some((request, call, common)) = conflict else {
            return;
        };
        let what = format!(
            "A message for the receive (wr_id {:#x}) of {} was stored into {} while {request} was outstanding and used \
             them.",
            receive.id,
            qp(completion.queue_pair),
            bytes(&common),
        );
        let about = qp(completion.queue_pair);
        let calls = vec![(format!("the request: {request}"), call)];
        self.find(Rule::OverlappingRequests, about, what, calls);
    }

    /// Checks that no peer had written the memory of a message between the post of its receive and its arrival.
    fn check_written(&mut self, completion: &Completion, receive: &Receive<S>) {
        let local = &self.checker.local;
        let mut left = u64::from(completion.length);
        let written = receive.uses.iter().find_map(|key| {
            let used = local.get(key)?;
            let end = used.range.end.min(used.range.start.saturating_add(left));
            left -= end - used.range.start;
            let (through, written) = used.written_through.as_ref()?;
            let common = common(written, &(used.range.start..end))?;
            Some((*through, common, used.call.clone()))
        });
        let Some((through, common, call)) = written else {
            return;
        };
        let about = qp(completion.queue_pair);
        let what = format!(
            "A message for the receive (wr_id {:#x}) of {about} was stored into {}, which an RDMA WRITE through {} had \
             written after the receive was posted.",
            receive.id,
            bytes(&common),
            qp(through)
        );
        let calls = vec![("the post of the receive".to_owned(), call)];
        self.find(Rule::SharedTarget, about, what, calls);
    }
}

/// The memory that a message of this length filled.
pub(super) fn filled<S>(
    local: &LocalUses<S>,
    receive: &Receive<S>,
    length: u32,
) -> Vec<(Space, Range<u64>)> {
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
