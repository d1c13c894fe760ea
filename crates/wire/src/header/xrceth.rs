//! The XRC extended transport header.

use zerocopy::byteorder::big_endian::U32;

use super::declare_header::header;
use crate::number::Srqn;

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
