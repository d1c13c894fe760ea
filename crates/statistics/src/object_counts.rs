//! How many objects the program has.

/// The names of the kinds of objects, in the order of the page. Queue pairs have a word of their own.
pub const OBJECT_KINDS: [&str; 5] = [
    "protection_domains",
    "completion_queues",
    "memory_regions",
    "shared_receive_queues",
    "connection_ids",
];

/// A kind of objects that are counted. Its number is its place on the page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ObjectKind {
    /// Protection domains.
    ProtectionDomain,
    /// Completion queues.
    CompletionQueue,
    /// Memory regions. Windows are not counted.
    MemoryRegion,
    /// Shared receive queues.
    SharedReceiveQueue,
    /// Ids of the connection manager that are at the device.
    ConnectionId,
}

/// How many objects of each kind were created on a lane, minus those that were destroyed there.
///
/// The lanes of a device share its objects, and an object may be destroyed on another lane than it was created on. So the
/// number of a lane may be negative; the sum of the lanes is the number of the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ObjectCounts(pub [i64; OBJECT_KINDS.len()]);

impl ObjectCounts {
    /// The words of a page.
    #[must_use]
    pub fn words(&self) -> [u64; OBJECT_KINDS.len()] {
        self.0.map(i64::cast_unsigned)
    }

    /// Adds the words of a page.
    pub fn add(&mut self, words: &[u64]) {
        for (sum, word) in self.0.iter_mut().zip(words) {
            *sum = sum.wrapping_add(word.cast_signed());
        }
    }

    /// How many objects of a kind exist. The pages of two lanes are not of the same moment, so a sum of them may be
    /// negative for a few milliseconds; then this is 0.
    #[must_use]
    pub fn get(&self, kind: ObjectKind) -> u64 {
        self.0[kind as usize].max(0).cast_unsigned()
    }

    /// The numbers of all kinds with their names.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let counts = self.0.map(|count| count.max(0).cast_unsigned());
        OBJECT_KINDS.into_iter().zip(counts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_that_another_lane_destroyed_does_not_exist() {
        let created = ObjectCounts([1, 3, 0, 0, 2]);
        let destroyed = ObjectCounts([0, -3, -1, 0, 0]);
        let mut sum = ObjectCounts::default();
        sum.add(&created.words());
        sum.add(&destroyed.words());
        assert_eq!(sum.get(ObjectKind::ProtectionDomain), 1);
        assert_eq!(sum.get(ObjectKind::CompletionQueue), 0);
        assert_eq!(sum.get(ObjectKind::MemoryRegion), 0, "never negative");
        assert!(sum.iter().eq([
            ("protection_domains", 1),
            ("completion_queues", 0),
            ("memory_regions", 0),
            ("shared_receive_queues", 0),
            ("connection_ids", 2),
        ]));
    }
}
