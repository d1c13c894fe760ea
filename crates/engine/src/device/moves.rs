//! Moves queue pairs to another device that shares the objects of this one.

use wire::Qpn;

use super::Device;
use crate::qpn_range::QpnRange;
use crate::queue_pair::QueuePair;
use crate::state::QueuePairType;

/// Queue pairs on their way to another device.
pub struct MovingQueuePairs {
    #[expect(clippy::vec_box, reason = "they are boxed in both devices")]
    queue_pairs: Vec<Box<QueuePair>>,
    /// Numbers that must not be used again yet.
    quarantined: Vec<Qpn>,
}

impl Device {
    /// Whether the queue pairs with these numbers can move to another device: they were created with
    /// [`create_queue_pair_in`](Self::create_queue_pair_in), and are reliable connections. Only these can bear that packets
    /// arrive in another order meanwhile.
    #[must_use]
    pub fn can_give(&self, numbers: QpnRange) -> bool {
        if self.keeps_numbers {
            return false;
        }
        let mut moving = self
            .queue_pairs
            .iter()
            .filter(|it| numbers.contains(it.number()));
        moving.all(|queue_pair| queue_pair.init().kind == QueuePairType::Rc)
    }

    /// Takes the queue pairs with these numbers out of the device, for one that shares its objects. The numbers do not
    /// belong to this device any more.
    pub fn give(&mut self, numbers: QpnRange) -> MovingQueuePairs {
        self.note_room();
        self.ready.retain(|number| !numbers.contains(*number));
        self.given.push(numbers);
        let moving = self.queue_pairs.numbers();
        let moving: Vec<Qpn> = moving.filter(|it| numbers.contains(*it)).collect();
        let queue_pairs = moving.iter().filter_map(|it| {
            let mut queue_pair = self.queue_pairs.take(*it)?;
            queue_pair.leave_path(&mut self.state.paths);
            // It counts among what this device keeps.
            queue_pair.drop_kept();
            Some(queue_pair)
        });
        MovingQueuePairs {
            queue_pairs: queue_pairs.collect(),
            quarantined: self.queue_pairs.quarantined_in(numbers),
        }
    }

    /// Takes queue pairs over from a device that shares its objects with this one. Their numbers belong to this one.
    pub fn adopt(&mut self, moving: MovingQueuePairs) {
        for number in moving.quarantined {
            self.queue_pairs.quarantine(number);
        }
        for mut queue_pair in moving.queue_pairs {
            let number = queue_pair.number();
            queue_pair.enter_device(&self.gids, &mut self.state.paths);
            self.queue_pairs.put(queue_pair);
            self.reschedule(number);
        }
    }
}
