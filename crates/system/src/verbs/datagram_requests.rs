//! The outstanding requests of datagram queue pairs, by numbers of our own.
//!
//! A completion does not tell the sender's address: the device writes it into the first 40 bytes of the receive. To find these bytes,
//! each request gets a number instead of the program's id. A failed completion does not tell whether it is of a send or of a receive, so
//! sends have such numbers, too.
//!
//! A shared receive queue may have receives before it has a queue pair. Those have the ids of the program, because connected queue pairs
//! need no numbers. They are remembered until the first queue pair decides which kind of queue it is; no number is equal to
//! one of their ids.

use std::collections::{HashMap, VecDeque};
use std::mem;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use engine::{ReceiveRequest, Segment, SystemRefusal};
use smallvec::SmallVec;

use super::address_handles::AddressHandle;

/// Set in the numbers of sends.
const SEND: u64 = 1 << 63;

/// The address handles of sends that have ended together; mostly of one.
type Handles = SmallVec<[Arc<AddressHandle>; 1]>;

/// The memory of a receive.
type Segments = SmallVec<[Segment; 4]>;

/// The outstanding requests of one queue pair.
#[derive(Debug, Default)]
pub(super) struct DatagramRequests {
    receives: Arc<DatagramReceives>,
    sends: Mutex<Sends>,
}

#[derive(Debug, Default)]
struct Sends {
    /// The ids of sends in their order, and the address handles that the device reads. Unsignaled ones end when a later one
    /// completes.
    outstanding: VecDeque<(u64, Option<Arc<AddressHandle>>)>,
    /// The number of the first of these sends.
    first: u64,
}

/// The outstanding receives of one receive queue.
#[derive(Debug, Default)]
pub(super) struct DatagramReceives {
    outstanding: Mutex<Receives>,
    /// Whether there are early receives. Once there are none, there are none for ever.
    has_early: AtomicBool,
}

#[derive(Debug, Default)]
struct Receives {
    /// Receives by number. A free place has no segments, and is in `free`.
    numbered: Vec<(u64, Segments)>,
    free: Vec<usize>,
    /// Receives by the program's id, posted before the queue had a queue pair. Those with the same id are in the order in which
    /// the device uses them.
    early: HashMap<u64, VecDeque<Segments>>,
}

/// A request that has ended.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Ended {
    /// The program's id.
    pub(super) id: u64,
    /// The memory of a receive; empty for a send.
    pub(super) segments: Segments,
}

impl DatagramRequests {
    /// The requests of a queue pair with these receives.
    pub(super) fn with_receives(receives: Arc<DatagramReceives>) -> Self {
        let sends = Mutex::default();
        Self { receives, sends }
    }

    /// The receives.
    pub(super) fn receives(&self) -> &DatagramReceives {
        &self.receives
    }

    /// Posts a send under a number.
    pub(super) fn send(
        &self,
        id: u64,
        handle: Option<Arc<AddressHandle>>,
        post: impl FnOnce(u64) -> Result<(), SystemRefusal>,
    ) -> Result<(), SystemRefusal> {
        let mut sends = self.sends();
        let mut number = sends.next();
        while self.receives.is_early(SEND | number) {
            // The number of no request.
            sends.outstanding.push_back((0, None));
            number = sends.next();
        }
        post(SEND | number)?;
        sends.outstanding.push_back((id, handle));
        Ok(())
    }

    /// The request of a completion, which has ended.
    pub(super) fn end(&self, number: u64) -> Option<Ended> {
        if let Some(received) = self.receives.end(number) {
            return Some(received);
        }
        // The handles are dropped without the lock, because destroying one asks the kernel.
        let (sent, _handles) = self.sends().end(number)?;
        Some(sent)
    }

    fn sends(&self) -> MutexGuard<'_, Sends> {
        self.sends.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Sends {
    fn next(&self) -> u64 {
        self.first + self.outstanding.len() as u64
    }

    /// The send of a completion, and the address handles of all sends that have ended with it.
    fn end(&mut self, number: u64) -> Option<(Ended, Handles)> {
        let number = number.checked_sub(SEND)?;
        let earlier = usize::try_from(number.checked_sub(self.first)?).ok()?;
        let id = self.outstanding.get(earlier)?.0;
        let ended = self.outstanding.drain(..=earlier);
        let handles = ended.filter_map(|(_, handle)| handle).collect();
        self.first = number + 1;
        let segments = Segments::new();
        Some((Ended { id, segments }, handles))
    }
}

impl DatagramReceives {
    /// Posts a receive under a number.
    pub(super) fn receive(
        &self,
        request: &ReceiveRequest,
        post: impl FnOnce(&ReceiveRequest) -> Result<(), SystemRefusal>,
    ) -> Result<(), SystemRefusal> {
        let mut outstanding = self.lock();
        let number = outstanding.add((request.id, request.segments.iter().copied().collect()));
        let posted = post(&ReceiveRequest {
            id: number,
            ..request.clone()
        });
        if posted.is_err() {
            outstanding.end(number);
        }
        posted
    }

    /// Remembers a receive that has the program's id, before the queue has a queue pair.
    pub(super) fn add_early(&self, request: &ReceiveRequest) {
        let segments = request.segments.iter().copied().collect();
        let mut outstanding = self.lock();
        let same_id = outstanding.early.entry(request.id).or_default();
        same_id.push_back(segments);
        self.has_early.store(true, Ordering::Release);
    }

    /// Forgets the early receives, because connected queue pairs use the queue.
    pub(super) fn forget_early(&self) {
        let mut outstanding = self.lock();
        outstanding.early = HashMap::new();
        self.has_early.store(false, Ordering::Release);
    }

    fn is_early(&self, id: u64) -> bool {
        self.has_early.load(Ordering::Acquire) && self.lock().early.contains_key(&id)
    }

    fn end(&self, number: u64) -> Option<Ended> {
        let mut outstanding = self.lock();
        if outstanding.early.is_empty() {
            return outstanding.end(number);
        }
        let early = outstanding.end_early(number);
        if outstanding.early.is_empty() {
            self.has_early.store(false, Ordering::Release);
        }
        early.or_else(|| outstanding.end(number))
    }

    fn lock(&self) -> MutexGuard<'_, Receives> {
        let locked = self.outstanding.lock();
        locked.unwrap_or_else(PoisonError::into_inner)
    }
}

impl Receives {
    fn add(&mut self, entry: (u64, Segments)) -> u64 {
        if let Some(free) = self.free.pop() {
            self.numbered[free] = entry;
            return free as u64;
        }
        while self.early.contains_key(&(self.numbered.len() as u64)) {
            // The number of no request. It is not free either, as long as nobody can tell when the early one ends.
            self.numbered.push((0, Segments::new()));
        }
        self.numbered.push(entry);
        self.numbered.len() as u64 - 1
    }

    fn end(&mut self, number: u64) -> Option<Ended> {
        let place = usize::try_from(number).ok()?;
        let (id, segments) = self.numbered.get_mut(place)?;
        let (id, segments) = (*id, mem::take(segments));
        self.free.push(place);
        Some(Ended { id, segments })
    }

    fn end_early(&mut self, id: u64) -> Option<Ended> {
        let same_id = self.early.get_mut(&id)?;
        let segments = same_id.pop_front()?;
        if same_id.is_empty() {
            self.early.remove(&id);
        }
        Some(Ended { id, segments })
    }
}

#[cfg(test)]
mod tests {
    use wire::Key;

    use super::*;

    const REFUSED: SystemRefusal = SystemRefusal::Lacks("room");

    fn receive(id: u64) -> ReceiveRequest {
        let segment = Segment {
            address: id,
            length: 64,
            key: Key::new(9),
        };
        ReceiveRequest::new(id, [segment])
    }

    fn send(requests: &DatagramRequests, id: u64) -> u64 {
        let mut given = None;
        let posted = requests.send(id, None, |number| {
            given = Some(number);
            Ok(())
        });
        posted.expect("it is posted");
        given.expect("a number")
    }

    fn post(requests: &DatagramRequests, id: u64) -> u64 {
        let mut given = None;
        let posted = requests.receives().receive(&receive(id), |request| {
            given = Some(request.id);
            Ok(())
        });
        posted.expect("it is posted");
        given.expect("a number")
    }

    #[test]
    fn a_completion_ends_its_send_and_all_unsignaled_ones_before_it() {
        let requests = DatagramRequests::default();
        let numbers = [7, 7, 8].map(|id| send(&requests, id));
        assert_eq!(requests.send(9, None, |_| Err(REFUSED)), Err(REFUSED));
        let id = |number| requests.end(number).map(|ended| ended.id);
        assert_eq!(id(numbers[1]), Some(7));
        assert_eq!(id(numbers[2]), Some(8));
        assert_eq!(id(numbers[2]), None, "it has ended");
    }

    #[test]
    fn receives_end_in_any_order_and_refused_ones_leave_nothing() {
        let requests = DatagramRequests::default();
        let (first, second) = (post(&requests, 1), post(&requests, 2));
        assert_eq!(requests.end(second).map(|ended| ended.id), Some(2));
        let refused = requests.receives().receive(&receive(3), |_| Err(REFUSED));
        assert_eq!(refused, Err(REFUSED));
        assert_eq!(post(&requests, 4), second, "the place is free again");
        let ended = requests.end(first).expect("it is outstanding");
        assert_eq!((ended.id, ended.segments.len()), (1, 1));
        let ended = requests.end(second).expect("it is outstanding");
        assert_eq!((ended.id, ended.segments[0].address), (4, 4));
    }

    #[test]
    fn no_number_is_the_id_of_an_early_receive() {
        let receives = Arc::new(DatagramReceives::default());
        let early = [0, 1, 1, SEND];
        for id in early {
            receives.add_early(&receive(id));
        }
        let requests = DatagramRequests::with_receives(receives);
        let (received, sent) = (post(&requests, 70), send(&requests, 80));
        assert!(!early.contains(&received), "{received}");
        assert!(!early.contains(&sent), "{sent}");
        for id in early {
            let ended = requests.end(id).expect("it is outstanding");
            assert_eq!((ended.id, ended.segments[0].address), (id, id));
        }
        let id = |number| requests.end(number).map(|ended| ended.id);
        assert_eq!(id(received), Some(70));
        assert_eq!(id(sent), Some(80));
    }
}
