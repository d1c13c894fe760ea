//! How many objects a device has created and not destroyed.

use std::ops::{AddAssign, SubAssign};

/// How many objects of each kind a device created, minus those that it destroyed.
///
/// Devices that share objects may destroy those of each other. Then a number is negative; the sum over all of
/// them is how many there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ObjectCounts {
    /// Protection domains.
    pub domains: i64,
    /// Completion queues.
    pub completion_queues: i64,
    /// Memory regions. Windows are not counted.
    pub regions: i64,
    /// Shared receive queues.
    pub shared_receive_queues: i64,
}

impl AddAssign for ObjectCounts {
    fn add_assign(&mut self, other: Self) {
        self.domains += other.domains;
        self.completion_queues += other.completion_queues;
        self.regions += other.regions;
        self.shared_receive_queues += other.shared_receive_queues;
    }
}

impl SubAssign for ObjectCounts {
    fn sub_assign(&mut self, other: Self) {
        self.domains -= other.domains;
        self.completion_queues -= other.completion_queues;
        self.regions -= other.regions;
        self.shared_receive_queues -= other.shared_receive_queues;
    }
}
