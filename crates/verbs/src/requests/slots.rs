//! Which requests of a queue pair exist, and what is known of each. Without I/O: [`Core`](super::core::Core) posts and polls.

use std::collections::VecDeque;
use std::mem;
use std::task::Waker;

use engine::{Completion, PostError, ReceiveRequest};

use super::outstanding::{Finished, RequestError};
use crate::request::{Incoming, Request};

/// The requests of a queue pair, each with a slot. The number of its slot is the id of a work request, and keeps its place until the
/// request is complete, also if nobody waits for it any more.
#[derive(Debug)]
pub(super) struct Slots {
    slots: Vec<Slot>,
    free: Vec<usize>,
    sends: Queue,
    receives: Queue,
    /// The free words for results of atomics: as many as sends can be posted.
    words: Vec<usize>,
    driving: Driving,
    /// Why no request is posted any more.
    end: Option<RequestError>,
}

/// One of the two queues of a queue pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    Sends,
    Receives,
}

/// What a request asks for.
#[derive(Debug)]
pub(super) enum Work {
    Send(Request),
    /// The previous value goes to a word of ours.
    Atomic(Incoming),
    Receive(ReceiveRequest),
}

/// A request that is to be posted now.
#[derive(Debug)]
pub(super) struct Due {
    pub(super) slot: usize,
    pub(super) work: Work,
    /// For an atomic: where its result goes.
    pub(super) word: Option<usize>,
}

#[derive(Debug)]
struct Queue {
    depth: usize,
    posted: usize,
    /// What waits for room, oldest first.
    waiting: VecDeque<(usize, Work)>,
    /// A thread posts what waits. Others leave theirs to it, so that requests are posted in their order.
    is_posting: bool,
}

/// What is known of a request.
#[derive(Debug)]
enum Slot {
    Free,
    Outstanding {
        waiter: Waiter,
        /// For an atomic that is posted: where its result goes.
        word: Option<usize>,
    },
    Done(Result<Finished, RequestError>),
}

/// Whom the end of a request wakes.
#[derive(Debug)]
enum Waiter {
    /// Its future was not polled yet.
    NotYet,
    Task(Waker),
    /// The future was dropped.
    Nobody,
}

impl Waiter {
    fn into_waker(self) -> Option<Waker> {
        match self {
            Self::Task(waker) => Some(waker),
            Self::NotYet | Self::Nobody => None,
        }
    }
}

/// Whether a thread takes completions out of the completion queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Driving {
    No,
    Yes,
    /// And it does so once more afterwards, because another thread or task wants it.
    Again,
}

impl Work {
    pub(super) fn side(&self) -> Side {
        match self {
            Self::Send(_) | Self::Atomic(_) => Side::Sends,
            Self::Receive(_) => Side::Receives,
        }
    }
}

impl Slots {
    pub(super) fn new(sends: u32, receives: u32) -> Self {
        Self {
            slots: Vec::new(),
            free: Vec::new(),
            sends: Queue::new(sends as usize),
            receives: Queue::new(receives as usize),
            words: (0..sends as usize).collect(),
            driving: Driving::No,
            end: None,
        }
    }

    /// Adds a request, which waits for [`next_due`](Self::next_due). Returns its slot.
    pub(super) fn add(&mut self, work: Work) -> usize {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot::Free);
            self.slots.len() - 1
        });
        if let Some(end) = &self.end {
            self.slots[slot] = Slot::Done(Err(end.clone()));
            return slot;
        }
        self.slots[slot] = Slot::Outstanding {
            waiter: Waiter::NotYet,
            word: None,
        };
        self.queue(work.side()).waiting.push_back((slot, work));
        slot
    }

    /// Begins to post what waits, unless another thread does.
    pub(super) fn begin_posting(&mut self, side: Side) -> bool {
        !mem::replace(&mut self.queue(side).is_posting, true)
    }

    /// The next request to post. If there is none, or no room, the posting ends.
    pub(super) fn next_due(&mut self, side: Side) -> Option<Due> {
        let queue = self.queue(side);
        let due = if queue.posted < queue.depth {
            queue.waiting.pop_front()
        } else {
            None
        };
        let Some((slot, work)) = due else {
            queue.is_posting = false;
            return None;
        };
        queue.posted += 1;
        let word = match &work {
            Work::Atomic(_) => self.words.pop(),
            Work::Send(_) | Work::Receive(_) => None,
        };
        if let Slot::Outstanding { word: place, .. } = &mut self.slots[slot] {
            *place = word;
        }
        Some(Due { slot, work, word })
    }

    /// Whether a request waits for room.
    pub(super) fn is_waiting(&mut self, side: Side) -> bool {
        !self.queue(side).waiting.is_empty()
    }

    /// A request that was to be posted was rejected. Returns whom to wake.
    #[must_use]
    pub(super) fn reject(&mut self, slot: usize, side: Side, error: PostError) -> Option<Waker> {
        if !self.is_outstanding(slot) {
            return None;
        }
        self.queue(side).posted -= 1;
        self.finish(slot, |_| Err(RequestError::Rejected(error)))
    }

    /// A request is complete. `read` reads a word of ours. Returns whom to wake.
    #[must_use]
    pub(super) fn complete(
        &mut self,
        completion: Completion,
        read: impl FnOnce(usize) -> u64,
    ) -> Option<Waker> {
        let (side, slot) = Side::and_slot_of(completion.id);
        if !self.is_outstanding(slot) {
            return None;
        }
        self.queue(side).posted -= 1;
        self.finish(slot, |word| {
            let previous = word.map(read).unwrap_or_default();
            match completion.into_result() {
                Ok(completion) => Ok(Finished {
                    completion,
                    previous,
                }),
                Err(error) => Err(RequestError::Failed(error.status)),
            }
        })
    }

    /// Not if the end came before it was complete.
    fn is_outstanding(&self, slot: usize) -> bool {
        matches!(self.slots.get(slot), Some(Slot::Outstanding { .. }))
    }

    fn finish(
        &mut self,
        slot: usize,
        result: impl FnOnce(Option<usize>) -> Result<Finished, RequestError>,
    ) -> Option<Waker> {
        let Slot::Outstanding { waiter, word } = mem::replace(&mut self.slots[slot], Slot::Free)
        else {
            unreachable!("a request is posted once, and completes once");
        };
        let result = result(word);
        self.words.extend(word);
        if matches!(waiter, Waiter::Nobody) {
            self.free.push(slot);
        } else {
            self.slots[slot] = Slot::Done(result);
        }
        waiter.into_waker()
    }

    /// Takes the result of a request, whose slot is free then.
    pub(super) fn take(&mut self, slot: usize) -> Option<Result<Finished, RequestError>> {
        if !self.is_done(slot) {
            return None;
        }
        self.free.push(slot);
        match mem::replace(&mut self.slots[slot], Slot::Free) {
            Slot::Done(result) => Some(result),
            Slot::Free | Slot::Outstanding { .. } => None,
        }
    }

    /// Lets a task wait for a request. Returns a waker that the caller drops without the lock, because that runs code of the executor.
    pub(super) fn add_task(&mut self, slot: usize, task: Waker) -> Option<Waker> {
        match &mut self.slots[slot] {
            Slot::Outstanding { waiter, .. } => {
                mem::replace(waiter, Waiter::Task(task)).into_waker()
            }
            Slot::Done(_) | Slot::Free => Some(task),
        }
    }

    /// Whether the result of a request is there.
    pub(super) fn is_done(&self, slot: usize) -> bool {
        matches!(self.slots[slot], Slot::Done(_))
    }

    /// Nobody waits for a request any more. What is posted keeps its slot until it is complete; what waits for room is not posted.
    /// Returns what the caller drops without the lock.
    pub(super) fn abandon(&mut self, slot: usize, side: Side) -> impl Sized + use<> {
        let queue = self.queue(side);
        let place = queue.waiting.iter().position(|(it, _)| *it == slot);
        let withdrawn = place.and_then(|place| queue.waiting.remove(place));
        let mut waker = None;
        match &mut self.slots[slot] {
            Slot::Outstanding { waiter, .. } if withdrawn.is_none() => {
                waker = mem::replace(waiter, Waiter::Nobody).into_waker();
            }
            it => {
                if let Slot::Outstanding { waiter, .. } = mem::replace(it, Slot::Free) {
                    waker = waiter.into_waker();
                }
                self.free.push(slot);
            }
        }
        (withdrawn, waker)
    }

    /// No request is posted any more, and none completes. Returns whom to wake.
    #[must_use]
    pub(super) fn end(&mut self, error: &RequestError) -> Vec<Waker> {
        self.end.get_or_insert_with(|| error.clone());
        for side in [Side::Sends, Side::Receives] {
            let queue = self.queue(side);
            queue.waiting.clear();
            queue.posted = 0;
        }
        let outstanding =
            |(slot, it): (usize, &Slot)| matches!(it, Slot::Outstanding { .. }).then_some(slot);
        let slots: Vec<_> = self
            .slots
            .iter()
            .enumerate()
            .filter_map(outstanding)
            .collect();
        let failed = |slot| self.finish(slot, |_| Err(error.clone()));
        slots.into_iter().filter_map(failed).collect()
    }

    /// Begins to take completions, unless another thread does. That one does it once more then.
    pub(super) fn begin_driving(&mut self) -> bool {
        let begins = self.driving == Driving::No;
        self.driving = if begins { Driving::Yes } else { Driving::Again };
        begins
    }

    /// Whether to take completions once more. If not, the driving ends.
    pub(super) fn drives_again(&mut self) -> bool {
        let again = self.driving == Driving::Again;
        self.driving = if again { Driving::Yes } else { Driving::No };
        again
    }

    fn queue(&mut self, side: Side) -> &mut Queue {
        match side {
            Side::Sends => &mut self.sends,
            Side::Receives => &mut self.receives,
        }
    }
}

impl Queue {
    fn new(depth: usize) -> Self {
        Self {
            depth,
            posted: 0,
            waiting: VecDeque::new(),
            is_posting: false,
        }
    }
}

impl Side {
    /// The id of the work request of a slot.
    pub(super) fn id(self, slot: usize) -> u64 {
        (slot as u64) << 1 | u64::from(self == Self::Receives)
    }

    /// The reverse. A completion tells the kind of its work only if it is a success.
    fn and_slot_of(id: u64) -> (Self, usize) {
        let side = if id & 1 == 1 {
            Self::Receives
        } else {
            Self::Sends
        };
        (side, (id >> 1) as usize)
    }
}

#[cfg(test)]
mod tests {
    use engine::{CompletedWork, Status};
    use wire::Qpn;

    use super::*;

    fn send() -> Work {
        Work::Send(Request::send().empty())
    }

    fn completion(side: Side, slot: usize, status: Status) -> Completion {
        Completion {
            id: side.id(slot),
            status,
            work: CompletedWork::Send,
            length: 0,
            queue_pair: Qpn::new(7),
            immediate: None,
            invalidated: None,
            source: None,
        }
    }

    /// Posts all for which there is room. Returns their slots.
    fn post(slots: &mut Slots, side: Side) -> Vec<usize> {
        assert!(slots.begin_posting(side));
        std::iter::from_fn(|| slots.next_due(side))
            .map(|due| due.slot)
            .collect()
    }

    fn succeed(slots: &mut Slots, slot: usize) {
        let woken = slots.complete(completion(Side::Sends, slot, Status::Success), |_| 0);
        assert!(woken.is_none(), "nobody waits");
    }

    #[test]
    fn requests_beyond_the_depth_wait_and_are_posted_in_their_order() {
        let mut slots = Slots::new(2, 1);
        let added: Vec<_> = (0..5).map(|_| slots.add(send())).collect();
        assert_eq!(post(&mut slots, Side::Sends), added[..2]);
        assert!(post(&mut slots, Side::Receives).is_empty());
        succeed(&mut slots, added[1]);
        assert_eq!(post(&mut slots, Side::Sends), added[2..3]);
        succeed(&mut slots, added[0]);
        succeed(&mut slots, added[2]);
        assert_eq!(post(&mut slots, Side::Sends), added[3..5]);
        assert!(added[..3].iter().all(|slot| slots.is_done(*slot)));
    }

    #[test]
    fn one_thread_posts_at_a_time() {
        let mut slots = Slots::new(2, 1);
        slots.add(send());
        assert!(slots.begin_posting(Side::Sends));
        assert!(!slots.begin_posting(Side::Sends));
        assert!(slots.begin_posting(Side::Receives), "another queue");
        assert!(slots.next_due(Side::Sends).is_some());
        assert!(slots.next_due(Side::Sends).is_none());
        assert!(slots.begin_posting(Side::Sends));
    }

    /// Otherwise a late completion would be that of the next request.
    #[test]
    fn a_posted_request_that_nobody_awaits_keeps_its_slot_until_it_is_complete() {
        let mut slots = Slots::new(1, 1);
        let first = slots.add(send());
        post(&mut slots, Side::Sends);
        drop(slots.abandon(first, Side::Sends));
        let second = slots.add(send());
        assert_ne!(first, second);
        assert!(post(&mut slots, Side::Sends).is_empty(), "no room");
        succeed(&mut slots, first);
        assert_eq!(post(&mut slots, Side::Sends), [second]);
        assert_eq!(slots.add(send()), first, "its slot is free");
    }

    #[test]
    fn a_request_that_waits_for_room_is_not_posted_if_nobody_awaits_it() {
        let mut slots = Slots::new(1, 1);
        let [first, second, third] = [(); 3].map(|()| slots.add(send()));
        assert_eq!(post(&mut slots, Side::Sends), [first]);
        drop(slots.abandon(second, Side::Sends));
        succeed(&mut slots, first);
        assert_eq!(post(&mut slots, Side::Sends), [third]);
        assert_eq!(slots.add(send()), second);
    }

    #[test]
    fn a_result_that_nobody_takes_frees_its_slot() {
        let mut slots = Slots::new(1, 1);
        let first = slots.add(send());
        post(&mut slots, Side::Sends);
        succeed(&mut slots, first);
        drop(slots.abandon(first, Side::Sends));
        assert_eq!(slots.add(send()), first);
    }

    #[test]
    fn an_atomic_has_a_word_of_its_own_until_it_is_complete() {
        let mut slots = Slots::new(2, 1);
        let remote = engine::RemoteMemory {
            address: 0,
            key: wire::Key::new(0),
        };
        let mut atomic = || slots.add(Work::Atomic(Request::fetch_add(remote, 1)));
        let added = [atomic(), atomic(), atomic()];
        assert!(slots.begin_posting(Side::Sends));
        let due: Vec<_> = std::iter::from_fn(|| slots.next_due(Side::Sends)).collect();
        let words: Vec<_> = due.iter().filter_map(|due| due.word).collect();
        assert!(words.len() == 2 && words[0] != words[1]);
        let done = completion(Side::Sends, added[0], Status::Success);
        assert!(slots.complete(done, |word| word as u64 + 40).is_none());
        let taken = slots.take(added[0]).expect("done").expect("success");
        assert_eq!(taken.previous, words[0] as u64 + 40);
        assert!(slots.begin_posting(Side::Sends));
        let next = slots.next_due(Side::Sends).expect("room");
        assert_eq!(next.word, Some(words[0]));
    }

    #[test]
    fn the_end_fails_all_requests_and_those_that_follow() {
        let mut slots = Slots::new(1, 1);
        let [posted, waiting] = [(); 2].map(|()| slots.add(send()));
        post(&mut slots, Side::Sends);
        assert!(slots.add_task(posted, Waker::noop().clone()).is_none());
        assert!(slots.take(posted).is_none());
        let woken = slots.end(&RequestError::Closed);
        assert_eq!(woken.len(), 1);
        let next = slots.add(send());
        for slot in [posted, waiting, next] {
            let result = slots.take(slot).expect("it is done");
            assert!(matches!(result, Err(RequestError::Closed)));
        }
        // Nothing follows from a completion that is late.
        let late = completion(Side::Sends, posted, Status::Success);
        assert!(slots.complete(late, |_| 0).is_none());
        assert!(post(&mut slots, Side::Sends).is_empty());
    }
}
