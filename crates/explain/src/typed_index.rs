//! Typed indices into the lists of an [`Analysis`](crate::Analysis).

use std::fmt;
use std::num::NonZeroU32;

/// Declares index types. An `Option` of one is as small as the index itself, because there may be
/// millions of them.
macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident;)+) => { $(
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(NonZeroU32);

        impl $name {
            /// The id of the element with this index.
            ///
            /// # Panics
            /// If the list is longer than 2^32 - 1.
            #[inline]
            pub fn new(index: usize) -> Self {
                let number = u32::try_from(index).ok().and_then(|index| index.checked_add(1));
                let number = number.and_then(NonZeroU32::new);
                $name(number.expect("a list of less than 2^32 entries"))
            }

            /// The index.
            #[inline]
            pub const fn index(self) -> usize {
                self.0.get() as usize - 1
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}({})", stringify!($name), self.index())
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                to.serialize_u64(self.index() as u64)
            }
        }
    )+ };
}

ids! {
    /// An index in [`Analysis::endpoints`](crate::Analysis::endpoints).
    EndpointId;
    /// An index in [`Analysis::queue_pairs`](crate::Analysis::queue_pairs).
    QueuePairId;
    /// An index in [`Analysis::connections`](crate::Analysis::connections).
    ConnectionId;
    /// An index in [`Analysis::messages`](crate::Analysis::messages).
    MessageId;
    /// An index in [`Analysis::packets`](crate::Analysis::packets).
    PacketId;
    /// An index in [`Analysis::anomalies`](crate::Analysis::anomalies).
    AnomalyId;
}
