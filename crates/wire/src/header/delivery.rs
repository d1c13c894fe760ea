//! Headers of messages that name a receiver, a sender, or bring a word along.

use zerocopy::byteorder::big_endian::U32;

use super::layout::header;
use crate::number::{Qpn, QueueKey};

header! {
    /// Datagram extended transport header: who sent it, and the key that lets it in.
    Deth, 8, Deth { queue_key: U32, source: U32 }
}

impl Deth {
    /// A datagram from queue pair `source`.
    #[inline]
    pub fn new(queue_key: QueueKey, source: Qpn) -> Self {
        Deth {
            queue_key: queue_key.value().into(),
            source: source.value().into(),
        }
    }

    /// The key the receiving queue pair must have.
    #[inline]
    pub fn queue_key(&self) -> QueueKey {
        QueueKey::new(self.queue_key.get())
    }

    /// The queue pair that sent it.
    #[inline]
    pub fn source(&self) -> Qpn {
        Qpn::new(self.source.get())
    }
}

header! {
    /// The shared receive queue that an XRC request is for.
    Xrceth, 4, Xrceth { shared_receive_queue: U32 }
}

impl Xrceth {
    /// Names a shared receive queue of the receiver.
    #[inline]
    pub fn new(shared_receive_queue: Qpn) -> Self {
        Xrceth {
            shared_receive_queue: shared_receive_queue.value().into(),
        }
    }

    /// The receiver's shared receive queue.
    #[inline]
    pub fn shared_receive_queue(&self) -> Qpn {
        Qpn::new(self.shared_receive_queue.get())
    }
}

header! {
    /// Immediate data. The protocol gives it no byte order: it is opaque.
    Immediate, 4, Immediate { bytes: [u8; 4] }
}

impl Immediate {
    /// Carries the bytes as they are.
    #[inline]
    pub fn new(bytes: [u8; 4]) -> Self {
        Immediate { bytes }
    }

    /// The bytes as they came.
    #[inline]
    pub fn bytes(&self) -> [u8; 4] {
        self.bytes
    }
}
