//! What a thread waits for that waits for completions, or for notifications of completion queues.

use std::sync::Arc;

use engine::{CompletionQueue, Id, Notify};

use super::Driver;
use crate::blocked_calls::Situation;
use crate::waiting::notifier::Notifier;

/// A completion queue at one moment.
struct QueueState {
    id: Id<CompletionQueue>,
    completions: usize,
    armed: Option<Notify>,
}

impl Driver {
    /// Describes the wait for a notification of a channel.
    pub fn describe_channel(
        &self,
        notifier: &Arc<Notifier>,
    ) -> impl Fn() -> Situation + Send + Sync + use<> {
        let (common, objects) = (
            Arc::clone(&self.opened.lane.common),
            Arc::clone(&self.opened.lane.objects),
        );
        let notifier = Arc::clone(notifier);
        move || {
            let queues = common.queues_of(&notifier).into_iter();
            let queues = queues.filter_map(|id| objects.completion_queue(id));
            let states = queues.map(|queue| QueueState {
                id: queue.id(),
                completions: queue.len(),
                armed: queue.armed(),
            });
            of_channel(&states.collect::<Vec<_>>())
        }
    }

    /// Describes the wait for a completion.
    pub fn describe_queue(
        &self,
        queue: Id<CompletionQueue>,
    ) -> impl Fn() -> Situation + Send + Sync + use<> {
        let objects = Arc::clone(&self.opened.lane.objects);
        move || {
            let found = objects.completion_queue(queue);
            let count = found.map_or(0, |queue| queue.len());
            Situation::without_problem(match count {
                0 => format!("CQ {} is empty.", queue.index()),
                _ => format!("CQ {} holds {}.", queue.index(), completions(count)),
            })
        }
    }
}

fn of_channel(queues: &[QueueState]) -> Situation {
    if let Some(queue) = queues.iter().find(|queue| queue.completions > 0) {
        return not_polled(queue);
    }
    let armed = queues.iter().filter(|queue| queue.armed.is_some()).count();
    Situation::without_problem(match (queues.len(), armed) {
        (0, _) => "No completion queue has this channel.".to_owned(),
        (1, 0) => "Its completion queue is empty and not armed, so no completion causes an event."
            .to_owned(),
        (1, _) => "Its completion queue is empty and armed.".to_owned(),
        (count, armed) => {
            format!("Its {count} completion queues are empty, and {armed} of them are armed.")
        }
    })
}

/// The completions of a queue cause no event any more.
fn not_polled(queue: &QueueState) -> Situation {
    let problem = match queue.armed {
        None => {
            "The queue is not armed, so none of them causes an event. After each event, arm the queue \
             (ibv_req_notify_cq), and then poll it until it is empty."
        }
        Some(Notify::Any) => {
            "The queue was armed when they were already there, and only a later one causes an event. After each event, arm \
             the queue, and then poll it until it is empty."
        }
        Some(Notify::Solicited) => {
            "The queue is armed for solicited completions only: one causes an event if it comes after the queue was armed, \
             and its sender has set IBV_SEND_SOLICITED. Arm the queue for all completions, and then poll it until it is empty."
        }
    };
    Situation {
        facts: format!(
            "CQ {} of its channel holds {} that the program has not polled.",
            queue.id.index(),
            completions(queue.completions)
        ),
        problem: Some(problem.to_owned()),
    }
}

fn completions(count: usize) -> String {
    match count {
        1 => "1 completion".to_owned(),
        _ => format!("{count} completions"),
    }
}
