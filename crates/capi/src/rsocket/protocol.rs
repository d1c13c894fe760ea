//! The protocol of stream sockets.
//!
//! All messages are RDMA writes with immediate data. The immediate data is the message; the written data is
//! application data, or the description of a buffer that the peer may write next.

use crate::errno::Errno;

/// The error of a connection whose peer does what no rsocket does.
pub(super) const PROTOCOL_ERROR: Errno = Errno(libc::EPROTO);

/// The message types, in the top three bits.
const DATA: u32 = 0;
const CREDITS: u32 = 4;
const MAP: u32 = 6;
const CONTROL: u32 = 7;

const KIND_AT: u32 = 29;
const REST: u32 = (1 << KIND_AT) - 1;

const DISCONNECT: u32 = 0;
const KEEP_ALIVE: u32 = 1;
const SHUTDOWN: u32 = 2;

/// A message, as immediate data carries it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Message {
    /// This many bytes were written into the current buffer.
    Data(u32),
    /// Messages up to this number, counted from the start, may be sent. There may be a new buffer, too.
    Credits(u16),
    /// An entry of the map of directly written memory has changed.
    Map(u16),
    /// The peer neither sends nor receives any more.
    Disconnect,
    /// Checks whether the peer is alive.
    KeepAlive,
    /// The peer sends no more data.
    Shutdown,
}

impl Message {
    pub(super) fn emit(self) -> [u8; 4] {
        let (kind, rest) = match self {
            Self::Data(bytes) => (DATA, bytes & REST),
            Self::Credits(number) => (CREDITS, number.into()),
            Self::Map(entry) => (MAP, entry.into()),
            Self::Disconnect => (CONTROL, DISCONNECT),
            Self::KeepAlive => (CONTROL, KEEP_ALIVE),
            Self::Shutdown => (CONTROL, SHUTDOWN),
        };
        (kind << KIND_AT | rest).to_be_bytes()
    }

    /// `None` for an unknown message.
    pub(super) fn parse(bytes: [u8; 4]) -> Option<Self> {
        let number = u32::from_be_bytes(bytes);
        let rest = number & REST;
        match (number >> KIND_AT, rest) {
            (DATA, bytes) => Some(Self::Data(bytes)),
            // The sender's count has more than sixteen bits; both sides compare only the low sixteen.
            (CREDITS, number) => Some(Self::Credits(number as u16)),
            (MAP, entry) => Some(Self::Map(entry as u16)),
            (CONTROL, DISCONNECT) => Some(Self::Disconnect),
            (CONTROL, KEEP_ALIVE) => Some(Self::KeepAlive),
            (CONTROL, SHUTDOWN) => Some(Self::Shutdown),
            _ => None,
        }
    }
}

/// A buffer that the peer may write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Target {
    pub(super) address: u64,
    pub(super) key: u32,
    pub(super) length: u32,
}

impl Target {
    pub(super) const SIZE: usize = 16;

    /// The address after it; `None` if it is beyond all memory.
    pub(super) fn end(self) -> Option<u64> {
        self.address.checked_add(self.length.into())
    }

    /// The bytes that are written into the peer's memory, in the peer's byte order.
    pub(super) fn emit(self, big_endian: bool) -> [u8; Self::SIZE] {
        let mut bytes = [0; Self::SIZE];
        if big_endian {
            bytes[..8].copy_from_slice(&self.address.to_be_bytes());
            bytes[8..12].copy_from_slice(&self.key.to_be_bytes());
            bytes[12..].copy_from_slice(&self.length.to_be_bytes());
        } else {
            bytes[..8].copy_from_slice(&self.address.to_le_bytes());
            bytes[8..12].copy_from_slice(&self.key.to_le_bytes());
            bytes[12..].copy_from_slice(&self.length.to_le_bytes());
        }
        bytes
    }

    pub(super) fn parse(bytes: &[u8; Self::SIZE], big_endian: bool) -> Self {
        let (address, rest) = bytes.split_first_chunk().expect("eight of sixteen bytes");
        let (key, rest) = rest.split_first_chunk().expect("four of eight bytes");
        let length = rest.first_chunk().expect("the last four bytes");
        if big_endian {
            Self {
                address: u64::from_be_bytes(*address),
                key: u32::from_be_bytes(*key),
                length: u32::from_be_bytes(*length),
            }
        } else {
            Self {
                address: u64::from_le_bytes(*address),
                key: u32::from_le_bytes(*key),
                length: u32::from_le_bytes(*length),
            }
        }
    }
}

/// Memory that the peer may write directly, and its offset.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Mapping {
    pub(super) offset: u64,
    pub(super) target: Target,
}

impl Mapping {
    pub(super) const SIZE: usize = 8 + Target::SIZE;

    pub(super) fn emit(self, big_endian: bool) -> [u8; Self::SIZE] {
        let mut bytes = [0; Self::SIZE];
        let offset = if big_endian {
            self.offset.to_be_bytes()
        } else {
            self.offset.to_le_bytes()
        };
        bytes[..8].copy_from_slice(&offset);
        bytes[8..].copy_from_slice(&self.target.emit(big_endian));
        bytes
    }

    pub(super) fn parse(bytes: &[u8; Self::SIZE], big_endian: bool) -> Self {
        let (offset, rest) = bytes.split_first_chunk().expect("eight of the bytes");
        let target = rest.first_chunk().expect("the other sixteen");
        Self {
            offset: if big_endian {
                u64::from_be_bytes(*offset)
            } else {
                u64::from_le_bytes(*offset)
            },
            target: Target::parse(target, big_endian),
        }
    }
}

/// The private data that each side sends when a connection is established.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ConnectionData {
    /// Whether the sender is big-endian.
    pub(super) big_endian: bool,
    /// How many messages may be sent to it.
    pub(super) credits: u16,
    /// How many mappings its memory can hold.
    pub(super) mappings: u16,
    /// Where descriptions of buffers are written, and how many fit. The mappings follow.
    pub(super) targets: Target,
    /// The first buffer.
    pub(super) buffer: Target,
}

const VERSION: u8 = 1;
const FLAG_BIG_ENDIAN: u8 = 1;
const FLAG_MAPPINGS: u8 = 2;

impl ConnectionData {
    pub(super) const SIZE: usize = 40;

    pub(super) fn emit(&self) -> [u8; Self::SIZE] {
        let mut bytes = [0; Self::SIZE];
        bytes[0] = VERSION;
        bytes[1] = if self.big_endian { FLAG_BIG_ENDIAN } else { 0 };
        if self.mappings > 0 {
            bytes[1] |= FLAG_MAPPINGS;
            bytes[7] = scale_of(self.mappings);
        }
        bytes[2..4].copy_from_slice(&self.credits.to_be_bytes());
        bytes[8..24].copy_from_slice(&self.targets.emit(true));
        bytes[24..].copy_from_slice(&self.buffer.emit(true));
        bytes
    }

    /// Where the description of a buffer is written.
    pub(super) fn target_address(&self, slot: u32) -> u64 {
        self.targets.address + u64::from(slot) * Target::SIZE as u64
    }

    /// Where a mapping is written.
    pub(super) fn mapping_address(&self, entry: u16) -> u64 {
        self.target_address(self.targets.length) + u64::from(entry) * Mapping::SIZE as u64
    }

    /// Whether all its memory can exist. Descriptions are written from the second slot on.
    fn is_valid(&self) -> bool {
        let Target {
            address, length, ..
        } = self.targets;
        let descriptions = u64::from(length) * Target::SIZE as u64;
        let mappings = u64::from(self.mappings) * Mapping::SIZE as u64;
        let is_described = address.checked_add(descriptions + mappings).is_some();
        length >= 2 && is_described && self.buffer.end().is_some()
    }

    /// `None` if the peer is not an rsocket, has another version, or names memory that can't exist.
    pub(super) fn parse(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; Self::SIZE] = bytes.first_chunk()?;
        if bytes[0] != VERSION {
            return None;
        }
        let has_mappings = bytes[1] & FLAG_MAPPINGS != 0;
        let parsed = Self {
            big_endian: bytes[1] & FLAG_BIG_ENDIAN != 0,
            credits: u16::from_be_bytes([bytes[2], bytes[3]]),
            mappings: if has_mappings { count_of(bytes[7]) } else { 0 },
            targets: Target::parse(bytes[8..24].first_chunk()?, true),
            buffer: Target::parse(bytes[24..].first_chunk()?, true),
        };
        parsed.is_valid().then_some(parsed)
    }
}

/// Counts up to 128 are encoded as they are; larger ones in units of 256.
const LINEAR: u16 = 128;

fn scale_of(count: u16) -> u8 {
    if count <= LINEAR {
        count as u8
    } else {
        (LINEAR | count >> 8) as u8
    }
}

fn count_of(scale: u8) -> u16 {
    let scale = u16::from(scale);
    if scale <= LINEAR {
        scale
    } else {
        (scale & !LINEAR) << 8
    }
}

/// The nearest count that can be encoded.
pub(super) fn rounded(count: u16) -> u16 {
    count_of(scale_of(count))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_parsed_as_they_were_emitted() {
        let all = [
            Message::Data(0),
            Message::Data(REST),
            Message::Credits(0xffff),
            Message::Map(7),
            Message::Disconnect,
            Message::KeepAlive,
            Message::Shutdown,
        ];
        for message in all {
            assert_eq!(Message::parse(message.emit()), Some(message));
        }
        assert_eq!(Message::Credits(5).emit(), [0x80, 0, 0, 5]);
        assert_eq!(Message::Shutdown.emit(), [0xe0, 0, 0, 2]);
        assert_eq!(Message::parse([0x20, 0, 0, 1]), None);
    }

    #[test]
    fn connection_data_is_forty_bytes_and_parsed_as_emitted() {
        let connection_data = ConnectionData {
            big_endian: false,
            credits: 384,
            mappings: 1024,
            targets: Target {
                address: 0x1122,
                key: 3,
                length: 2,
            },
            buffer: Target {
                address: 0x3344,
                key: 4,
                length: 1 << 16,
            },
        };
        let bytes = connection_data.emit();
        assert_eq!(bytes[..8], [1, 2, 1, 0x80, 0, 0, 0, 0x84]);
        assert_eq!(bytes[14..24], [0x11, 0x22, 0, 0, 0, 3, 0, 0, 0, 2]);
        assert_eq!(ConnectionData::parse(&bytes), Some(connection_data));
        assert_eq!(ConnectionData::parse(&bytes[..39]), None);
        assert_eq!(ConnectionData::parse(&[2; 40]), None);
    }

    #[test]
    fn connection_data_with_memory_that_cannot_exist_is_not_valid() {
        let valid = ConnectionData {
            big_endian: false,
            credits: 384,
            mappings: 8,
            targets: Target {
                address: u64::MAX - 2 * 16 - 8 * 24,
                key: 3,
                length: 2,
            },
            buffer: Target {
                address: u64::MAX - 4096,
                key: 4,
                length: 4096,
            },
        };
        let with = |change: fn(&mut ConnectionData)| {
            let mut changed = valid;
            change(&mut changed);
            ConnectionData::parse(&changed.emit())
        };
        assert_eq!(with(|_| ()), Some(valid));
        assert_eq!(with(|it| it.targets.address += 1), None);
        assert_eq!(with(|it| it.targets.length = u32::MAX), None);
        assert_eq!(with(|it| it.targets.length = 1), None);
        assert_eq!(with(|it| it.mappings += 1), None);
        assert_eq!(with(|it| it.buffer.address += 1), None);
    }

    #[test]
    fn descriptions_are_written_in_the_byte_order_of_the_reader() {
        let target = Target {
            address: 1,
            key: 2,
            length: 3,
        };
        for big_endian in [false, true] {
            assert_eq!(Target::parse(&target.emit(big_endian), big_endian), target);
            let mapping = Mapping { offset: 9, target };
            assert_eq!(
                Mapping::parse(&mapping.emit(big_endian), big_endian),
                mapping
            );
        }
        assert_ne!(target.emit(false), target.emit(true));
    }

    #[test]
    fn mapping_counts_are_rounded_to_what_one_byte_encodes() {
        assert_eq!([0, 1, 128, 129, 600].map(rounded), [0, 1, 128, 128, 512]);
    }
}
