//! The opcode table: one row per opcode. All other properties are computed from it.

use crate::header::{Bth, Extension};

/// The transport service of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Transport {
    /// Reliable connection.
    Rc,
    /// Unreliable connection.
    Uc,
    /// Unreliable datagram.
    Ud,
    /// Extended reliable connection: receives come from a shared receive queue.
    Xrc,
    /// Congestion notification, whose opcode belongs to no transport service.
    Cnp,
}

/// What a packet requests or responds to.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Operation {
    /// Data for the next receive of the peer.
    Send,
    /// Data for an address in the peer's memory.
    Write,
    /// A request for data in the peer's memory.
    ReadRequest,
    /// The requested data. Also the response to [`Flush`](Self::Flush) and
    /// [`AtomicWrite`](Self::AtomicWrite).
    ReadResponse,
    /// An acknowledgement, positive or negative.
    Acknowledge,
    /// The response to an atomic operation: the value before it.
    AtomicAcknowledge,
    /// Compares eight bytes and replaces them if equal.
    CompareSwap,
    /// Adds to eight bytes.
    FetchAdd,
    /// Writes eight bytes atomically.
    AtomicWrite,
    /// Makes earlier writes visible or persistent.
    Flush,
    /// Congestion notification packet: a switch marked a packet of the receiver's.
    CongestionNotification,
}

impl Operation {
    /// The name of a request in texts for people; the journal entries of captures begin with the same names. `None` for
    /// responses.
    #[must_use]
    pub const fn request_name(self) -> Option<&'static str> {
        Some(match self {
            Operation::Send => "SEND",
            Operation::Write => "RDMA WRITE",
            Operation::ReadRequest => "RDMA READ",
            Operation::CompareSwap => "compare-and-swap",
            Operation::FetchAdd => "fetch-and-add",
            Operation::AtomicWrite => "atomic write",
            Operation::Flush => "flush",
            Operation::ReadResponse
            | Operation::Acknowledge
            | Operation::AtomicAcknowledge
            | Operation::CongestionNotification => return None,
        })
    }
}

/// The position of a packet in its message.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Position {
    /// The first of several.
    First,
    /// Neither first nor last.
    Middle,
    /// The last of several.
    Last,
    /// The whole message.
    Only,
}

impl Position {
    /// Whether this packet starts a message.
    #[inline]
    pub const fn starts(self) -> bool {
        matches!(self, Position::First | Position::Only)
    }

    /// Whether this packet ends a message.
    #[inline]
    pub const fn ends(self) -> bool {
        matches!(self, Position::Last | Position::Only)
    }
}

/// The additional data in the last packet of a message.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Modifier {
    /// Nothing.
    None,
    /// Immediate data: four bytes for the peer's completion.
    Immediate,
    /// An R_Key that the peer invalidates.
    Invalidate,
}

/// A row of the table, with the columns that are computed from the others.
#[derive(Clone, Copy)]
struct Row {
    transport: Transport,
    operation: Operation,
    position: Position,
    modifier: Modifier,
    extensions: &'static [Extension],
    /// The offset of each extension header after the BTH, by kind; `ABSENT` if the opcode has none.
    offsets: [u8; Extension::COUNT],
    header_length: u8,
    carries_payload: bool,
}

const ABSENT: u8 = u8::MAX;

impl Row {
    const fn new(
        transport: Transport,
        operation: Operation,
        position: Position,
        extensions: &'static [Extension],
        carries_payload: bool,
    ) -> Self {
        let mut offsets = [ABSENT; Extension::COUNT];
        let mut length = 0;
        let mut index = 0;
        while index < extensions.len() {
            offsets[extensions[index] as usize] = length as u8;
            length += extensions[index].length();
            index += 1;
        }
        Row {
            transport,
            operation,
            position,
            modifier: modifier_among(extensions),
            extensions,
            offsets,
            header_length: (size_of::<Bth>() + length) as u8,
            carries_payload,
        }
    }
}

/// Turns the table below into [`Opcode`] and its rows.
macro_rules! opcodes {
    ($($name:ident = $byte:literal:
        $transport:ident $operation:ident $position:ident
        [$($extension:ident),*] $($payload:ident)?;)+) => {
        /// The kind of a packet: the first byte of its BTH.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        #[repr(u8)]
        pub enum Opcode {
            $(
                #[doc = concat!(
                    "`", stringify!($byte), "`: ", stringify!($transport), " ",
                    stringify!($operation), ", ", stringify!($position), ".",
                )]
                $name = $byte,
            )+
        }

        impl Opcode {
            /// Every opcode, in the order of the table.
            pub const ALL: &[Opcode] = &[$(Opcode::$name),+];

            /// The row of this opcode.
            const fn define(self) -> Row {
                match self {
                    $(Opcode::$name => Row::new(
                        Transport::$transport,
                        Operation::$operation,
                        Position::$position,
                        const { &[$(Extension::$extension),*] },
                        payload!($($payload)?),
                    ),)+
                }
            }
        }
    };
}

macro_rules! payload {
    (payload) => {
        true
    };
    () => {
        false
    };
}

// IBA "OpCode field": the low five bits are the operation, the high three bits the service. Each opcode
// has its own extension headers.
opcodes! {
    RcSendFirst = 0x00: Rc Send First [] payload;
    RcSendMiddle = 0x01: Rc Send Middle [] payload;
    RcSendLast = 0x02: Rc Send Last [] payload;
    RcSendLastImmediate = 0x03: Rc Send Last [Immediate] payload;
    RcSendOnly = 0x04: Rc Send Only [] payload;
    RcSendOnlyImmediate = 0x05: Rc Send Only [Immediate] payload;
    RcWriteFirst = 0x06: Rc Write First [Reth] payload;
    RcWriteMiddle = 0x07: Rc Write Middle [] payload;
    RcWriteLast = 0x08: Rc Write Last [] payload;
    RcWriteLastImmediate = 0x09: Rc Write Last [Immediate] payload;
    RcWriteOnly = 0x0a: Rc Write Only [Reth] payload;
    RcWriteOnlyImmediate = 0x0b: Rc Write Only [Reth, Immediate] payload;
    RcReadRequest = 0x0c: Rc ReadRequest Only [Reth];
    RcReadResponseFirst = 0x0d: Rc ReadResponse First [Aeth] payload;
    RcReadResponseMiddle = 0x0e: Rc ReadResponse Middle [] payload;
    RcReadResponseLast = 0x0f: Rc ReadResponse Last [Aeth] payload;
    RcReadResponseOnly = 0x10: Rc ReadResponse Only [Aeth] payload;
    RcAcknowledge = 0x11: Rc Acknowledge Only [Aeth];
    RcAtomicAcknowledge = 0x12: Rc AtomicAcknowledge Only [Aeth, AtomicAckEth];
    RcCompareSwap = 0x13: Rc CompareSwap Only [AtomicEth];
    RcFetchAdd = 0x14: Rc FetchAdd Only [AtomicEth];
    RcSendLastInvalidate = 0x16: Rc Send Last [Ieth] payload;
    RcSendOnlyInvalidate = 0x17: Rc Send Only [Ieth] payload;
    RcFlush = 0x1c: Rc Flush Only [Feth, Reth];
    RcAtomicWrite = 0x1d: Rc AtomicWrite Only [Reth] payload;

    UcSendFirst = 0x20: Uc Send First [] payload;
    UcSendMiddle = 0x21: Uc Send Middle [] payload;
    UcSendLast = 0x22: Uc Send Last [] payload;
    UcSendLastImmediate = 0x23: Uc Send Last [Immediate] payload;
    UcSendOnly = 0x24: Uc Send Only [] payload;
    UcSendOnlyImmediate = 0x25: Uc Send Only [Immediate] payload;
    UcWriteFirst = 0x26: Uc Write First [Reth] payload;
    UcWriteMiddle = 0x27: Uc Write Middle [] payload;
    UcWriteLast = 0x28: Uc Write Last [] payload;
    UcWriteLastImmediate = 0x29: Uc Write Last [Immediate] payload;
    UcWriteOnly = 0x2a: Uc Write Only [Reth] payload;
    UcWriteOnlyImmediate = 0x2b: Uc Write Only [Reth, Immediate] payload;

    UdSendOnly = 0x64: Ud Send Only [Deth] payload;
    UdSendOnlyImmediate = 0x65: Ud Send Only [Deth, Immediate] payload;

    // RoCEv2 annex: the sixteen bytes after the BTH are reserved.
    CongestionNotification = 0x81: Cnp CongestionNotification Only [] payload;

    // XRC annex: every request names its shared receive queue; responses do not.
    XrcSendFirst = 0xa0: Xrc Send First [Xrceth] payload;
    XrcSendMiddle = 0xa1: Xrc Send Middle [Xrceth] payload;
    XrcSendLast = 0xa2: Xrc Send Last [Xrceth] payload;
    XrcSendLastImmediate = 0xa3: Xrc Send Last [Xrceth, Immediate] payload;
    XrcSendOnly = 0xa4: Xrc Send Only [Xrceth] payload;
    XrcSendOnlyImmediate = 0xa5: Xrc Send Only [Xrceth, Immediate] payload;
    XrcWriteFirst = 0xa6: Xrc Write First [Xrceth, Reth] payload;
    XrcWriteMiddle = 0xa7: Xrc Write Middle [Xrceth] payload;
    XrcWriteLast = 0xa8: Xrc Write Last [Xrceth] payload;
    XrcWriteLastImmediate = 0xa9: Xrc Write Last [Xrceth, Immediate] payload;
    XrcWriteOnly = 0xaa: Xrc Write Only [Xrceth, Reth] payload;
    XrcWriteOnlyImmediate = 0xab: Xrc Write Only [Xrceth, Reth, Immediate] payload;
    XrcReadRequest = 0xac: Xrc ReadRequest Only [Xrceth, Reth];
    XrcReadResponseFirst = 0xad: Xrc ReadResponse First [Aeth] payload;
    XrcReadResponseMiddle = 0xae: Xrc ReadResponse Middle [] payload;
    XrcReadResponseLast = 0xaf: Xrc ReadResponse Last [Aeth] payload;
    XrcReadResponseOnly = 0xb0: Xrc ReadResponse Only [Aeth] payload;
    XrcAcknowledge = 0xb1: Xrc Acknowledge Only [Aeth];
    XrcAtomicAcknowledge = 0xb2: Xrc AtomicAcknowledge Only [Aeth, AtomicAckEth];
    XrcCompareSwap = 0xb3: Xrc CompareSwap Only [Xrceth, AtomicEth];
    XrcFetchAdd = 0xb4: Xrc FetchAdd Only [Xrceth, AtomicEth];
    XrcSendLastInvalidate = 0xb6: Xrc Send Last [Xrceth, Ieth] payload;
    XrcSendOnlyInvalidate = 0xb7: Xrc Send Only [Xrceth, Ieth] payload;
    XrcFlush = 0xbc: Xrc Flush Only [Xrceth, Feth, Reth];
    XrcAtomicWrite = 0xbd: Xrc AtomicWrite Only [Xrceth, Reth] payload;
}

impl Opcode {
    /// The length of the longest BTH and extension headers of any opcode.
    pub const MAX_HEADER_LENGTH: usize = longest_header();

    /// The opcode of a byte, if it is known.
    #[inline]
    pub const fn from_byte(byte: u8) -> Option<Opcode> {
        static BY_BYTE: [Option<Opcode>; 256] = opcodes_by_byte();
        BY_BYTE[byte as usize]
    }

    /// The byte in the BTH.
    #[inline]
    pub const fn byte(self) -> u8 {
        self as u8
    }

    /// Whether it is a request.
    #[inline]
    pub const fn is_request(self) -> bool {
        !self.is_response() && !matches!(self.transport(), Transport::Cnp)
    }

    /// Whether it is a response.
    #[inline]
    pub const fn is_response(self) -> bool {
        matches!(
            self.operation(),
            Operation::ReadResponse | Operation::Acknowledge | Operation::AtomicAcknowledge
        )
    }

    /// The opcode with these properties, if there is one.
    #[inline]
    pub const fn find(
        transport: Transport,
        operation: Operation,
        position: Position,
        modifier: Modifier,
    ) -> Option<Opcode> {
        static BY_PROPERTIES: [Option<Opcode>; PROPERTY_COMBINATIONS] = opcodes_by_properties();
        BY_PROPERTIES[property_index(transport, operation, position, modifier)]
    }

    /// The transport service.
    #[inline]
    pub const fn transport(self) -> Transport {
        self.row().transport
    }

    /// The operation.
    #[inline]
    pub const fn operation(self) -> Operation {
        self.row().operation
    }

    /// The position of the packet in its message.
    #[inline]
    pub const fn position(self) -> Position {
        self.row().position
    }

    /// The additional data in the packet.
    #[inline]
    pub const fn modifier(self) -> Modifier {
        self.row().modifier
    }

    /// The headers between BTH and payload, in wire order.
    #[inline]
    pub const fn extensions(self) -> &'static [Extension] {
        self.row().extensions
    }

    /// The length of the BTH and all extension headers.
    #[inline]
    pub const fn header_length(self) -> usize {
        self.row().header_length as usize
    }

    /// Whether a payload may follow the headers.
    #[inline]
    pub const fn carries_payload(self) -> bool {
        self.row().carries_payload
    }

    /// The offset of an extension header after the BTH, if the opcode has it.
    #[inline]
    pub const fn offset_of(self, wanted: Extension) -> Option<usize> {
        match self.row().offsets[wanted as usize] {
            ABSENT => None,
            offset => Some(offset as usize),
        }
    }

    #[inline]
    const fn row(self) -> &'static Row {
        static ROWS: [Row; 256] = rows();
        &ROWS[self as usize]
    }
}

/// The rows by opcode byte. Bytes without an opcode have a row that is never read.
const fn rows() -> [Row; 256] {
    let mut table = [Opcode::ALL[0].define(); 256];
    let mut index = 0;
    while index < Opcode::ALL.len() {
        let opcode = Opcode::ALL[index];
        table[opcode as usize] = opcode.define();
        index += 1;
    }
    table
}

/// One more than the largest value of [`property_index`].
const PROPERTY_COMBINATIONS: usize = property_index(
    Transport::Cnp,
    Operation::CongestionNotification,
    Position::Only,
    Modifier::Invalidate,
) + 1;

/// A distinct index for every combination of properties.
#[inline]
const fn property_index(
    transport: Transport,
    operation: Operation,
    position: Position,
    modifier: Modifier,
) -> usize {
    const OPERATIONS: usize = Operation::CongestionNotification as usize + 1;
    const POSITIONS: usize = Position::Only as usize + 1;
    const MODIFIERS: usize = Modifier::Invalidate as usize + 1;
    let service_and_operation = transport as usize * OPERATIONS + operation as usize;
    (service_and_operation * POSITIONS + position as usize) * MODIFIERS + modifier as usize
}

const fn opcodes_by_byte() -> [Option<Opcode>; 256] {
    let mut table = [None; 256];
    let mut index = 0;
    while index < Opcode::ALL.len() {
        let opcode = Opcode::ALL[index];
        table[opcode.byte() as usize] = Some(opcode);
        index += 1;
    }
    table
}

const fn opcodes_by_properties() -> [Option<Opcode>; PROPERTY_COMBINATIONS] {
    let mut table = [None; PROPERTY_COMBINATIONS];
    let mut index = 0;
    while index < Opcode::ALL.len() {
        let opcode = Opcode::ALL[index];
        let slot = property_index(
            opcode.transport(),
            opcode.operation(),
            opcode.position(),
            opcode.modifier(),
        );
        assert!(
            table[slot].is_none(),
            "two opcodes have the same properties"
        );
        table[slot] = Some(opcode);
        index += 1;
    }
    table
}

const fn longest_header() -> usize {
    let mut longest = 0;
    let mut index = 0;
    while index < Opcode::ALL.len() {
        let length = Opcode::ALL[index].header_length();
        if length > longest {
            longest = length;
        }
        index += 1;
    }
    longest
}

const fn modifier_among(extensions: &[Extension]) -> Modifier {
    let mut index = 0;
    while index < extensions.len() {
        match extensions[index] {
            Extension::Immediate => return Modifier::Immediate,
            Extension::Ieth => return Modifier::Invalidate,
            _ => index += 1,
        }
    }
    Modifier::None
}
