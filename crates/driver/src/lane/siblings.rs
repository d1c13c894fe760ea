//! The lanes of an open device, and what they tell each other.

use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use super::Lane;
use super::state::LaneState;
use crate::lanes::LaneMessage;

/// The lanes of an open device, in the order in which they were opened. The first has the connection manager.
#[derive(Default)]
pub(crate) struct Siblings(Mutex<Vec<Weak<Lane>>>);

impl Siblings {
    /// Adds a lane that has its queue pairs.
    pub(crate) fn add(&self, lane: &Arc<Lane>) {
        let mut lanes = self.0.lock();
        lanes.push(Arc::downgrade(lane));
        if lanes.len() > 1 {
            lane.common.note_lanes();
        }
    }

    fn all(&self) -> Vec<Arc<Lane>> {
        let lanes = self.0.lock();
        lanes.iter().filter_map(Weak::upgrade).collect()
    }

    /// Runs `work` for each lane. The caller holds no lock of a lane.
    pub(crate) fn for_each(&self, work: impl FnMut(&Arc<Lane>)) {
        self.all().iter().for_each(work);
    }

    /// Delivers the messages of a lane that has released its lock.
    #[cold]
    pub(crate) fn deliver(&self, messages: Vec<LaneMessage>) {
        let lanes = self.all();
        let Some((first, others)) = lanes.split_first() else {
            return;
        };
        for message in messages {
            match message {
                LaneMessage::MoveToError(number) => {
                    others.iter().for_each(|lane| lane.move_to_error(number));
                }
                LaneMessage::Disconnecting => {
                    others.iter().for_each(Lane::receive_all);
                    if !first.common.has_unpolled() {
                        first.step(LaneState::release_disconnections);
                    }
                }
                LaneMessage::Established(number) => first.note_established(number),
                LaneMessage::Polled => first.step(LaneState::release_disconnections),
            }
        }
    }
}
