//! The interface between the watcher and its owner: the table of datagrams and the commands.

/// A datagram that is ready to be sent, as it is stored in the table.
///
/// The size divides a page, so a slot never crosses a page boundary and is written whole.
#[repr(C)]
pub(crate) struct Slot {
    /// The length of the payload in bytes; 0 marks an empty slot.
    pub(crate) payload_length: u32,
    /// The [index](Command) of the socket to send from.
    pub(crate) socket: u32,
    pub(crate) name_length: u32,
    pub(crate) control_length: u32,
    /// The destination, as the kernel reads it.
    pub(crate) name: [u8; NAME_LENGTH],
    /// Control messages: traffic class and hop limit, where they differ from the socket's.
    pub(crate) control: [u8; CONTROL_LENGTH],
    pub(crate) payload: [u8; PAYLOAD_LENGTH],
}

pub(crate) const SLOT_LENGTH: usize = 512;
pub(crate) const NAME_LENGTH: usize = 32;
pub(crate) const CONTROL_LENGTH: usize = 80;
pub(crate) const PAYLOAD_LENGTH: usize = 384;

const _: () = assert!(size_of::<Slot>() == SLOT_LENGTH);

/// The number of slots: another process of the user could make the table larger, and the watcher would read it for ever. Notices
/// beyond are not sent.
pub(crate) const MAX_SLOTS: usize = 1 << 17;

/// A command: the index of a descriptor, which is sent with it. A command without a descriptor
/// removes the one at the index.
pub(crate) type Command = u32;

/// The table of [slots](Slot).
pub(crate) const TABLE: Command = 0;
/// The process descriptor of the owner.
pub(crate) const OWNER: Command = 1;
/// The number of descriptors. A process with more addresses sends exit notices from these only.
pub(crate) const MAX_DESCRIPTORS: usize = 2048;
