//! The headers of a RoCEv2 packet as they lie in memory: big-endian, without alignment.
//!
//! Every packet begins with a [`Bth`]. What follows before the payload, the opcode says: the
//! [`Extension`]s, each with a header of its own.
//!
//! | header | carries |
//! |---|---|
//! | [`Reth`], [`AtomicEth`], [`Ieth`] | which memory of the peer is meant |
//! | [`Feth`] | what of it to flush, and how far |
//! | [`Deth`], [`Xrceth`], [`Immediate`] | what the receiver of a message is told |
//! | [`Aeth`], [`AtomicAckEth`] | what became of a request |

mod access;
mod bth;
mod delivery;
mod flush;
mod layout;
mod response;
mod syndrome;

pub use access::{AtomicEth, Ieth, Reth};
pub use bth::Bth;
pub use delivery::{Deth, Immediate, Xrceth};
pub use flush::{Feth, FlushPlacement, FlushRange};
pub use response::{Aeth, AtomicAckEth};
pub use syndrome::{NakCode, Syndrome};

use zerocopy::{FromBytes, Immutable as NoCells, IntoBytes, KnownLayout, Unaligned};

/// A header between the BTH and the payload.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Extension {
    /// The shared receive queue an XRC request is for.
    Xrceth,
    /// Who sent a datagram, and the key that lets it in.
    Deth,
    /// Where in the peer's memory.
    Reth,
    /// Where, and with which operands.
    AtomicEth,
    /// Acknowledgement: syndrome and message sequence number.
    Aeth,
    /// What an atomic operation found.
    AtomicAckEth,
    /// Immediate data.
    Immediate,
    /// The key to invalidate.
    Ieth,
    /// What to flush, and how far.
    Feth,
}

impl Extension {
    /// How many kinds there are.
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

/// A header that can stand between the BTH and the payload.
pub trait ExtensionHeader: FromBytes + IntoBytes + NoCells + KnownLayout + Unaligned {
    /// Which of the extensions it is.
    const KIND: Extension;
}
