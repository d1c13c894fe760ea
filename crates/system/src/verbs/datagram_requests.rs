//! The outstanding requests of a datagram queue pair, by numbers of our own.
//!
//! A completion does not tell the sender's address: the device writes it into the first 40 bytes of the receive. To find these bytes,
//! each request gets a number instead of the program's id. A failed completion does not tell whether it is of a send or of a receive, so
//! sends have such numbers, too.

use std::collections::VecDeque;
use std::mem;
use std::sync::{Mutex, MutexGuard, PoisonError};

use engine::{ReceiveRequest, Segment, SystemRefusal};
use smallvec::SmallVec;

/// Set in the numbers of sends.
const SEND: u64 = 1 << 63;

/// The memory of a receive.
type Segments = SmallVec<[Segment; 4]>;

/// The outstanding requests of one queue pair.
#[derive(Debug, Default)]
pub(super) struct DatagramRequests(Mutex<Outstanding>);

#[derive(Debug, Default)]
struct Outstanding {
    /// Receives by number. A free place has no segments, and is in `free`.
    receives: Vec<(u64, Segments)>,
    free: Vec<usize>,
    /// The ids of sends in their order. Unsignaled ones end when a later one completes.
    sends: VecDeque<u64>,
    /// The number of the first of these sends.
    first_send: u64,
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
    /// Posts a receive under a number.
    pub(super) fn receive(
        &self,
        request: &ReceiveRequest,
        post: impl FnOnce(u64) -> Result<(), SystemRefusal>,
    ) -> Result<(), SystemRefusal> {
        let mut outstanding = self.lock();
        let entry = (request.id, request.segments.iter().copied().collect());
        let number = outstanding.add_receive(entry);
        let posted = post(number);
        if posted.is_err() {
            outstanding.end(number);
        }
        posted
    }

    /// Posts a send under a number.
    pub(super) fn send(
        &self,
        id: u64,
        post: impl FnOnce(u64) -> Result<(), SystemRefusal>,
    ) -> Result<(), SystemRefusal> {
        let mut outstanding = self.lock();
        let number = outstanding.first_send + outstanding.sends.len() as u64;
        post(SEND | number)?;
        outstanding.sends.push_back(id);
        Ok(())
    }

    /// The request of a completion, which has ended.
    pub(super) fn end(&self, number: u64) -> Option<Ended> {
        self.lock().end(number)
    }

    fn lock(&self) -> MutexGuard<'_, Outstanding> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Outstanding {
    fn add_receive(&mut self, entry: (u64, Segments)) -> u64 {
        if let Some(free) = self.free.pop() {
            self.receives[free] = entry;
            return free as u64;
        }
        self.receives.push(entry);
        self.receives.len() as u64 - 1
    }

    fn end(&mut self, number: u64) -> Option<Ended> {
        if number & SEND == 0 {
            let place = usize::try_from(number).ok()?;
            let (id, segments) = self.receives.get_mut(place)?;
            let (id, segments) = (*id, mem::take(segments));
            self.free.push(place);
            return Some(Ended { id, segments });
        }
        let number = number & !SEND;
        let earlier = usize::try_from(number.checked_sub(self.first_send)?).ok()?;
        let id = *self.sends.get(earlier)?;
        self.sends.drain(..=earlier);
        self.first_send = number + 1;
        let segments = Segments::new();
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
            address: 0,
            length: 64,
            key: Key::new(9),
        };
        ReceiveRequest::new(id, [segment])
    }

    fn number_of(post: impl FnOnce(&mut dyn FnMut(u64)) -> Result<(), SystemRefusal>) -> u64 {
        let mut given = None;
        post(&mut |number| given = Some(number)).expect("it is posted");
        given.expect("a number")
    }

    #[test]
    fn a_completion_ends_its_send_and_all_unsignaled_ones_before_it() {
        let requests = DatagramRequests::default();
        let mut numbers = Vec::new();
        for id in [7, 7, 8] {
            let number = number_of(|take| {
                requests.send(id, |number| {
                    take(number);
                    Ok(())
                })
            });
            numbers.push(number);
        }
        assert_eq!(requests.send(9, |_| Err(REFUSED)), Err(REFUSED));
        let id = |number| requests.end(number).map(|ended| ended.id);
        assert_eq!(id(numbers[1]), Some(7));
        assert_eq!(id(numbers[2]), Some(8));
        assert_eq!(id(numbers[2]), None, "it has ended");
    }

    #[test]
    fn receives_end_in_any_order_and_refused_ones_leave_nothing() {
        let requests = DatagramRequests::default();
        let post = |id| {
            number_of(|take| {
                requests.receive(&receive(id), |number| {
                    take(number);
                    Ok(())
                })
            })
        };
        let (first, second) = (post(1), post(2));
        assert_eq!(requests.end(second).map(|ended| ended.id), Some(2));
        let refused = receive(3);
        assert_eq!(requests.receive(&refused, |_| Err(REFUSED)), Err(REFUSED));
        assert_eq!(post(4), second, "the place is free again");
        let ended = requests.end(first).expect("it is outstanding");
        assert_eq!((ended.id, ended.segments.len()), (1, 1));
    }
}
