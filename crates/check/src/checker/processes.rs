//! What a process publishes, so that its requests can be compared with those of other processes.

use std::ops::Range;

use engine::observation::{Peer, PostedSend, RemoteAccess, RemoteAccessKind};
use wire::Qpn;

use super::{Checker, Step};
use crate::finding::Finding;
use crate::local_buffers::{Purpose, Space, UseKey};
use crate::process_order::{
    Event, Place, ProcessOrder, QueuePairName, RECORD_BYTES, name, operation_index,
};

impl<S: Clone> Checker<S> {
    /// The size of a record.
    pub const RECORD_BYTES: usize = RECORD_BYTES;

    /// Also compares requests of different processes, which publish records. `process` is a number that no other of them
    /// has.
    #[must_use]
    pub fn with_processes(self, process: u64, pid: u32) -> Self {
        let processes = Some(ProcessOrder::new(process, pid));
        Self { processes, ..self }
    }

    /// The records that must be published before any packet leaves that was built after them.
    pub fn take_records(&mut self) -> Vec<u8> {
        let processes = self.processes.as_mut();
        processes.map_or_else(Vec::new, ProcessOrder::take_pending)
    }

    /// Handles published records of all processes, including this one, in their order. If a record cannot be read,
    /// everything before is forgotten.
    pub fn replay(&mut self, records: &[u8], findings: &mut Vec<Finding<S>>) {
        if let Some(processes) = &mut self.processes
            && !processes.replay(records, findings)
        {
            processes.forget();
        }
    }
}

impl<S: Clone> Step<'_, S> {
    pub(super) fn publish(&mut self, event: impl FnOnce() -> Event) {
        if let Some(processes) = &mut self.checker.processes {
            processes.publish(event());
        }
    }

    /// The name of a queue pair, if processes are compared and the queue pair counts its messages.
    fn name_of(&mut self, number: Qpn) -> Option<QueuePairName> {
        self.checker.processes.as_ref()?;
        let queue_pair = self.queue_pair(number)?;
        let peer = queue_pair.peer.filter(|_| queue_pair.counts_messages())?;
        Some(name(peer.own, number))
    }

    pub(super) fn publish_connection(&mut self, number: Qpn, peer: Peer) {
        let Some(queue_pair) = self.name_of(number) else {
            return;
        };
        let peer = name(peer.address, peer.queue_pair);
        self.publish(|| Event::Connected { queue_pair, peer });
    }

    /// Publishes a request. Returns its number among the messages of its queue pair.
    pub(super) fn publish_post(&mut self, posted: &PostedSend, uses: &[UseKey]) -> Option<u64> {
        let queue_pair = self.name_of(posted.queue_pair)?;
        if posted.work.is_local() {
            return None;
        }
        let message = self.queue_pair(posted.queue_pair)?.messages;
        self.publish(|| Event::Posted {
            queue_pair,
            message,
            operation: operation_index(&posted.work),
            id: posted.id,
        });
        for key in uses {
            let Some(used) = self.checker.local.get(key) else {
                continue;
            };
            let kind = match used.purpose {
                Purpose::Send => RemoteAccessKind::Read,
                _ => RemoteAccessKind::Write,
            };
            let place = place(used.space, &used.range);
            self.publish(|| Event::Used {
                queue_pair,
                message,
                kind,
                place,
            });
        }
        Some(message)
    }

    /// Remembers the number of a message until the program polls it.
    pub(super) fn message_received(&mut self, number: Qpn, message: u32) {
        if let Some(queue_pair) = self.queue_pair(number) {
            queue_pair.last_message = Some(message).filter(|_| queue_pair.counts_messages());
        }
        if self.name_of(number).is_some()
            && let Some(queue_pair) = self.queue_pair(number)
        {
            let message = queue_pair.count_from(message);
            queue_pair.received_messages.push_back(message);
        }
    }

    /// Publishes what the program has learned from a completion.
    pub(super) fn publish_poll(&mut self, number: Qpn, is_receive: bool, covered: Option<u64>) {
        let name = self.name_of(number);
        let received = self.queue_pair(number).filter(|_| is_receive);
        let received = received.and_then(|it| it.received_messages.pop_front());
        match (name, received, covered) {
            (Some(queue_pair), Some(message), _) => self.publish(|| Event::Received {
                queue_pair,
                message,
            }),
            (Some(queue_pair), None, Some(message)) if !is_receive => {
                self.publish(|| Event::Polled {
                    queue_pair,
                    message,
                });
            }
            // A message without a number, such as a datagram.
            _ if is_receive => self.publish(|| Event::LearnedAll),
            _ => {}
        }
    }

    pub(super) fn publish_access(
        &mut self,
        access: &RemoteAccess,
        space: Space,
        range: &Range<u64>,
    ) {
        let Some(queue_pair) = self.name_of(access.queue_pair) else {
            return;
        };
        let it = self.queue_pair(access.queue_pair);
        let Some(message) = it.map(|it| it.count_from(access.message)) else {
            return;
        };
        let (kind, place) = (access.kind, place(space, range));
        self.publish(|| Event::Accessed {
            queue_pair,
            message,
            kind,
            place,
        });
    }
}

fn place(space: Space, range: &Range<u64>) -> Place {
    Place {
        space,
        start: range.start,
        length: range.end - range.start,
    }
}
