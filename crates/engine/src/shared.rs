//! The state that the queue pairs of a device share.

use std::collections::VecDeque;

use crate::completion::{Completion, CompletionQueue, PushOutcome};
use crate::counters::Counters;
use crate::event::{AsyncEvent, Event};
use crate::incident::{Incident, Incidents};
use crate::memory::Memory;
use crate::observation::{Observation, Observations};
use crate::planted_bug::{Bug, PlantedBug};
use crate::receive_queue::{SharedReceiveQueue, SrqNumbers};
use crate::slab::{Id, Table};

pub(crate) struct Shared {
    pub(crate) memory: Memory,
    pub(crate) completion_queues: Table<CompletionQueue>,
    pub(crate) receive_queues: Table<SharedReceiveQueue>,
    pub(crate) srq_numbers: SrqNumbers,
    pub(crate) events: VecDeque<Event>,
    pub(crate) incidents: Incidents,
    pub(crate) observations: Observations,
    pub(crate) counters: Counters,
    pub(crate) planted: PlantedBug,
    /// Completion queues that overran and whose queue pairs must still enter the error state.
    pub(crate) overrun: Vec<Id<CompletionQueue>>,
}

impl Shared {
    pub(crate) fn raise(&mut self, event: AsyncEvent) {
        self.observations.note(|| Observation::EventRaised(event));
        self.events.push_back(Event::Async(event));
    }

    /// Adds a completion to its queue and raises the events that follow from it.
    pub(crate) fn complete(
        &mut self,
        queue: Id<CompletionQueue>,
        completion: Completion,
        solicited: bool,
    ) {
        self.observations
            .note(|| Observation::Completed(queue, completion));
        let entry = self
            .completion_queues
            .get_mut(queue)
            .expect("a completion queue outlives its queue pairs");
        let outcome = entry.push(completion, solicited);
        if entry.take_watch() {
            self.events.push_back(Event::CompletionAdded(queue));
        }
        if self.planted.is(Bug::CompletionOutOfOrder) {
            swap_newest(entry);
        }
        match outcome {
            PushOutcome::Added | PushOutcome::AlreadyOverrun => {}
            PushOutcome::Notify => self.events.push_back(Event::Completion(queue)),
            PushOutcome::Overrun => {
                let capacity = entry.capacity();
                self.incidents.note(|| Incident::CompletionsOverran {
                    queue: queue.index(),
                    capacity,
                    queue_pair: completion.queue_pair,
                });
                self.overrun.push(queue);
                self.raise(AsyncEvent::CompletionQueueError(queue));
            }
        }
    }
}

fn swap_newest(queue: &mut CompletionQueue) {
    let (Some(newest), Some(before)) = (queue.pop_newest(), queue.pop_newest()) else {
        return;
    };
    queue.push(newest, false);
    queue.push(before, false);
}
