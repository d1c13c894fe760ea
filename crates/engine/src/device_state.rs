//! The part of a device that its queue pairs use and change: objects, events, incidents and counters.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use crate::completion::{Completion, CompletionQueue, PushOutcome, Pushed, Status};
use crate::counters::Counters;
use crate::event::{AsyncEvent, Event};
use crate::incident::{Incident, Incidents};
use crate::now::Now;
use crate::observation::{Observation, Observations};
use crate::paths::Paths;
use crate::peers::{HeldLists, Question, Standing};
use crate::planted_bug::{Bug, PlantedBug};
use crate::queue_pair::KeptTotal;
use crate::shared_objects::DeviceObjects;
use crate::slab::Id;
use wire::{Qpn, Route};

pub(crate) struct DeviceState {
    pub(crate) objects: DeviceObjects,
    pub(crate) events: VecDeque<Event>,
    pub(crate) incidents: Incidents,
    pub(crate) observations: Observations,
    /// Queue pairs with posted messages whose checksums are not complete.
    pub(crate) unread: Vec<Qpn>,
    /// Queue pairs with messages that have ended and are not compared with their checksums.
    pub(crate) uncompared: BTreeSet<Qpn>,
    pub(crate) counters: Counters,
    pub(crate) paths: Paths,
    pub(crate) held_lists: HeldLists,
    /// Questions to peers, to be sent from queue pair 1.
    pub(crate) questions: VecDeque<Question>,
    pub(crate) planted: PlantedBug,
    /// How much its queue pairs keep behind gaps, and whether they must drop it.
    pub(crate) kept: Arc<KeptTotal>,
    pub(crate) kept_is_full: bool,
    /// Completion queues that overran and whose queue pairs must still enter the error state.
    pub(crate) overrun: Vec<Id<CompletionQueue>>,
    /// Completion queues that overran and whose queue pairs have entered it.
    pub(crate) overrun_before: Vec<Id<CompletionQueue>>,
}

impl DeviceState {
    pub(crate) fn raise(&mut self, event: AsyncEvent) {
        self.observations.note(|| Observation::EventRaised(event));
        self.events.push_back(Event::Async(event));
    }

    /// Whether the peer understands lists of what is held behind a gap. Asks it, if this is not known.
    pub(crate) fn may_list_held(&mut self, route: &Route, now: &Now) -> bool {
        match self.held_lists {
            HeldLists::Never => return false,
            HeldLists::Always => return true,
            HeldLists::Negotiated => {}
        }
        let standing = self.objects.peers().standing(&route.flow, now.get());
        if let Standing::Unknown(question) = standing {
            self.questions.push_back(question);
        }
        standing == Standing::Understands
    }

    /// Counts packets that a queue pair of the device would send and another one receive.
    #[inline]
    pub(crate) fn count_delivered(&mut self, packets: u64, bytes: u64) {
        let counters = &mut self.counters;
        counters.packets_sent += packets;
        counters.packets_received += packets;
        counters.delivered_to_self += packets;
        counters.bytes_sent += bytes;
        counters.bytes_received += bytes;
    }

    /// Adds a completion to its queue and raises the events that follow from it.
    #[inline]
    pub(crate) fn complete(
        &mut self,
        queue: &CompletionQueue,
        completion: Completion,
        solicited: bool,
    ) {
        self.observations
            .note(|| Observation::Completed(queue.id(), completion));
        if completion.status != Status::Success {
            // Success is only told when all bytes are there.
            self.objects.memory().settle();
        }
        self.add_completion(queue, completion, solicited);
        if self.planted.is(Bug::CompletionOutOfOrder) {
            queue.swap_newest();
        }
    }

    /// As [`complete`](Self::complete), where nothing is observed.
    #[inline(always)]
    pub(crate) fn add_completion(
        &mut self,
        queue: &CompletionQueue,
        completion: Completion,
        solicited: bool,
    ) {
        let queue_pair = completion.queue_pair;
        let pushed = queue.push(completion, solicited);
        if pushed != Pushed::UNNOTICED {
            self.announce(queue, queue_pair, pushed);
        }
    }

    #[cold]
    fn announce(&mut self, queue: &CompletionQueue, queue_pair: Qpn, pushed: Pushed) {
        let id = queue.id();
        if pushed.watched {
            self.events.push_back(Event::CompletionAdded(id));
        }
        match pushed.outcome {
            PushOutcome::Added => {}
            PushOutcome::Notify => self.events.push_back(Event::Completion(id)),
            PushOutcome::Overrun => {
                let capacity = queue.capacity();
                self.incidents.note(|| Incident::CompletionsOverran {
                    queue: id.index(),
                    capacity,
                    queue_pair,
                });
                self.overrun.push(id);
                self.raise(AsyncEvent::CompletionQueueError(id));
            }
            // Another device may have reported it. The queue pairs of this one must fail, too.
            PushOutcome::AlreadyOverrun if !self.overrun_before.contains(&id) => {
                self.overrun.push(id);
            }
            PushOutcome::AlreadyOverrun => {}
        }
    }
}
