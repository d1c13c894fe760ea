//! The headers of a RoCEv2 packet in their wire layout: big-endian and unaligned.
//!
//! Every packet begins with a [`Bth`]. The opcode determines which [`Extension`] headers follow
//! before the payload.
//!
//! | header | carries |
//! |---|---|
//! | [`Reth`], [`AtomicEth`], [`Ieth`] | the remote memory of the request |
//! | [`Feth`] | the range and the placement of a flush |
//! | [`Deth`], [`Xrceth`], [`Immediate`] | the sender, the shared receive queue, immediate data |
//! | [`Aeth`], [`AtomicAckEth`] | the result of a request |

mod aeth;
mod atomic_ack_eth;
mod atomic_eth;
mod bth;
mod declare_header;
mod deth;
mod feth;
mod ieth;
mod immediate;
mod reth;
mod syndrome;
mod xrceth;

pub use aeth::Aeth;
pub use atomic_ack_eth::AtomicAckEth;
pub use atomic_eth::AtomicEth;
pub use bth::Bth;
pub use deth::Deth;
pub use feth::{Feth, FlushPlacement, FlushRange};
pub use ieth::Ieth;
pub use immediate::Immediate;
pub use reth::Reth;
pub use syndrome::{NakCode, Syndrome};
pub use xrceth::Xrceth;

use zerocopy::{FromBytes, Immutable as NoCells, IntoBytes, KnownLayout, Unaligned};

/// A header between the BTH and the payload.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Extension {
    /// XRCETH: the shared receive queue of an XRC request.
    Xrceth,
    /// DETH: the sending queue pair of a datagram, and its Q_Key.
    Deth,
    /// RETH: the remote address, key and length.
    Reth,
    /// AtomicETH: the remote address, key and operands.
    AtomicEth,
    /// AETH: the syndrome and the message sequence number.
    Aeth,
    /// AtomicAckETH: the value before an atomic operation.
    AtomicAckEth,
    /// Immediate data (ImmDt).
    Immediate,
    /// IETH: the key to invalidate.
    Ieth,
    /// FETH: the range and the placement of a flush.
    Feth,
}

impl Extension {
    /// How many extension headers exist.
    pub(crate) const COUNT: usize = Extension::Feth as usize + 1;

    /// Its length in bytes.
    #[inline]
    pub const fn length(self) -> usize {
        match self {
            Extension::Xrceth => size_of::<Xrceth>(),
            Extension::Deth => size_of::<Deth>(),
            Extension::Reth => size_of::<Reth>(),
            Extension::AtomicEth => size_of::<AtomicEth>(),
            Extension::Aeth => size_of::<Aeth>(),
            Extension::AtomicAckEth => size_of::<AtomicAckEth>(),
            Extension::Immediate => size_of::<Immediate>(),
            Extension::Ieth => size_of::<Ieth>(),
            Extension::Feth => size_of::<Feth>(),
        }
    }
}

/// A header between the BTH and the payload.
pub trait ExtensionHeader: FromBytes + IntoBytes + NoCells + KnownLayout + Unaligned {
    /// The extension that this header is.
    const KIND: Extension;
}
