//! Work requests: from the post through the packets to the completion, as far as our own captures tell.

use std::collections::{HashMap, VecDeque};

use wire::{Operation, Qpn};

use crate::collect::Collection;
use crate::journal::{Event, EventKind};
use crate::message::Message;
use crate::pairing::Paired;
use crate::typed_index::{MessageId, QueuePairId};

/// A work request. Times are in nanoseconds since the first packet of the capture, and negative before it.
#[derive(Clone, Debug)]
pub struct WorkRequest {
    /// The process that posted it, an index in [`CaptureSummary::processes`](crate::CaptureSummary::processes).
    pub process: Option<usize>,
    /// The number of its queue pair; none for a shared receive queue.
    pub number: Option<Qpn>,
    /// The caller's id.
    pub id: u64,
    /// The operation: `SEND`, `receive` and so on.
    pub work: String,
    /// Whether it is a receive.
    pub is_receive: bool,
    /// The length of its message or buffer.
    pub length: u64,
    /// When it was posted.
    pub posted: i64,
    /// Its message on the wire.
    pub message: Option<MessageId>,
    /// When its completion was added to the completion queue.
    pub completed: Option<i64>,
    /// When the program took the completion.
    pub polled: Option<i64>,
    /// The status of its completion by its name in C.
    pub status: Option<String>,
}

/// A queue of one process: of a queue pair, or a shared receive queue, for sends or for receives.
type Queue = (Option<usize>, Option<Qpn>, bool);

/// The requests of each queue, by their places in the list.
type Queues = HashMap<Queue, VecDeque<usize>>;

/// Joins posts, completions and messages.
pub(crate) fn list(
    collection: &Collection,
    paired: &Paired,
    messages: &[Message],
) -> Vec<WorkRequest> {
    let mut requests: Vec<WorkRequest> = Vec::new();
    let (mut outstanding, mut completed) = (Queues::new(), Queues::new());
    for event in &collection.events {
        let time = i64::try_from(event.time).unwrap_or(i64::MAX);
        match event.kind {
            EventKind::SendPosted | EventKind::ReceivePosted => {
                let is_receive = event.kind == EventKind::ReceivePosted;
                let queue = (event.process, event.queue_pair, is_receive);
                outstanding
                    .entry(queue)
                    .or_default()
                    .push_back(requests.len());
                requests.push(posted(event, is_receive, time));
            }
            EventKind::Completed => {
                if let Some(place) = completes(event, &requests, &mut outstanding) {
                    requests[place].completed = Some(time);
                    requests[place].status = Some(event.status.clone());
                    completed
                        .entry(queue_of(event))
                        .or_default()
                        .push_back(place);
                }
            }
            EventKind::Async => {}
            EventKind::Polled => {
                let waiting = completed.entry(queue_of(event)).or_default();
                let meant = waiting
                    .iter()
                    .position(|&place| requests[place].id == event.id);
                if let Some(place) = meant.and_then(|meant| waiting.remove(meant)) {
                    requests[place].polled = Some(time);
                }
            }
        }
    }
    join_messages(&mut requests, collection, paired, messages);
    requests
}

/// The name of a receive in the journal.
const RECEIVE: &str = "receive";

/// The queue that a completion names.
fn queue_of(event: &Event) -> Queue {
    (event.process, event.queue_pair, event.work == RECEIVE)
}

/// The request that a completion ends: the oldest one with its id. In a send queue it ends the unsignaled ones before
/// it, too.
fn completes(event: &Event, requests: &[WorkRequest], outstanding: &mut Queues) -> Option<usize> {
    let own = queue_of(event);
    let (process, _, is_receive) = own;
    [own, (process, None, is_receive)]
        .into_iter()
        .find_map(|queue| {
            let waiting = outstanding.get_mut(&queue)?;
            let is_meant = |&place: &usize| requests[place].id == event.id;
            let meant = waiting.iter().position(is_meant)?;
            let place = waiting[meant];
            if is_receive {
                waiting.remove(meant);
            } else {
                waiting.drain(..=meant);
            }
            Some(place)
        })
}

fn posted(event: &Event, is_receive: bool, time: i64) -> WorkRequest {
    WorkRequest {
        process: event.process,
        number: event.queue_pair,
        id: event.id,
        work: event.work.clone(),
        is_receive,
        length: event.length,
        posted: time,
        message: None,
        completed: None,
        polled: None,
        status: None,
    }
}

/// The messages of a queue pair leave in the order of their posts.
fn join_messages(
    requests: &mut [WorkRequest],
    collection: &Collection,
    paired: &Paired,
    messages: &[Message],
) {
    let mut queues: HashMap<(usize, Qpn), VecDeque<usize>> = HashMap::new();
    for (place, request) in requests.iter().enumerate() {
        if let (Some(process), Some(number), false) =
            (request.process, request.number, request.is_receive)
        {
            queues
                .entry((process, number))
                .or_default()
                .push_back(place);
        }
    }
    let sender = |message: &Message| -> Option<(usize, Qpn)> {
        let connection = &paired.connections[message.connection.index()];
        let id: QueuePairId = connection.ends[message.from.index()].queue_pair?;
        let queue_pair = &paired.queue_pairs[id.index()];
        let key = (queue_pair.endpoint, queue_pair.number);
        let process = collection.process_of.get(&key)?;
        Some((*process, queue_pair.number))
    };
    for (index, message) in messages.iter().enumerate() {
        let Some(waiting) = sender(message).and_then(|key| queues.get_mut(&key)) else {
            continue;
        };
        let begun = i64::try_from(message.begun).unwrap_or(i64::MAX);
        while let Some(&place) = waiting.front() {
            let request = &mut requests[place];
            if request.posted > begun {
                break;
            }
            waiting.pop_front();
            if is_same(message.operation, &request.work) {
                request.message = Some(MessageId::new(index));
                break;
            }
        }
    }
}

/// Whether a message on the wire has the operation of a post. Local operations have no message.
fn is_same(operation: Operation, work: &str) -> bool {
    operation
        .request_name()
        .is_some_and(|name| work.starts_with(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(kind: EventKind, work: &str, id: u64) -> Event {
        Event {
            time: 0,
            process: Some(0),
            kind,
            queue_pair: Some(Qpn::new(7)),
            id,
            work: work.to_owned(),
            length: 8,
            status: String::new(),
        }
    }

    /// The places of requests that are outstanding after the completion of the second of three.
    fn left(kind: EventKind, work: &str) -> Vec<usize> {
        let is_receive = work == RECEIVE;
        let requests: Vec<_> = (0..3)
            .map(|id| posted(&event(kind, work, id), is_receive, 0))
            .collect();
        let completion = event(EventKind::Completed, work, 1);
        let queue = queue_of(&completion);
        let mut outstanding = Queues::from([(queue, (0..3).collect())]);
        assert_eq!(completes(&completion, &requests, &mut outstanding), Some(1));
        outstanding[&queue].iter().copied().collect()
    }

    #[test]
    fn the_completion_of_a_send_ends_those_before_it_and_that_of_a_receive_does_not() {
        assert_eq!(left(EventKind::SendPosted, "SEND"), [2]);
        assert_eq!(left(EventKind::ReceivePosted, RECEIVE), [0, 2]);
    }
}
