//! The datagram extended transport header.

use zerocopy::byteorder::big_endian::U32;

use super::declare_header::header;
use crate::number::{Qpn, QueueKey};

header! {
    /// Datagram extended transport header (DETH): the sending queue pair and the Q_Key.
    Deth, 8, Deth { queue_key: U32, source: U32 }
}

impl Deth {
    /// `source` is the sending queue pair.
    #[inline]
    pub fn new(queue_key: QueueKey, source: Qpn) -> Self {
        Deth {
            queue_key: queue_key.value().into(),
            source: source.value().into(),
        }
    }

    /// The Q_Key that the receiving queue pair must have.
    #[inline]
    pub fn queue_key(&self) -> QueueKey {
        QueueKey::new(self.queue_key.get())
    }

    /// The sending queue pair.
    #[inline]
    pub fn source(&self) -> Qpn {
        Qpn::new(self.source.get())
    }
}
