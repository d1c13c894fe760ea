//! Headers that name the sender or the shared receive queue of a message, or carry immediate data.

use zerocopy::byteorder::big_endian::U32;

use super::layout::header;
use crate::number::{Qpn, QueueKey, Srqn};

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

header! {
    /// XRC extended transport header (XRCETH): the shared receive queue of an XRC request.
    Xrceth, 4, Xrceth { shared_receive_queue: U32 }
}

impl Xrceth {
    /// `shared_receive_queue` is a number of the receiver.
    #[inline]
    pub fn new(shared_receive_queue: Srqn) -> Self {
        Xrceth {
            shared_receive_queue: shared_receive_queue.value().into(),
        }
    }

    /// The receiver's shared receive queue.
    #[inline]
    pub fn shared_receive_queue(&self) -> Srqn {
        Srqn::new(self.shared_receive_queue.get())
    }
}

header! {
    /// Immediate data. The protocol defines no byte order: the four bytes are opaque.
    Immediate, 4, Immediate { bytes: [u8; 4] }
}

impl Immediate {
    /// Stores the bytes unchanged.
    #[inline]
    pub fn new(bytes: [u8; 4]) -> Self {
        Immediate { bytes }
    }

    /// The bytes, unchanged.
    #[inline]
    pub fn bytes(&self) -> [u8; 4] {
        self.bytes
    }
}
