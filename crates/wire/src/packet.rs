//! One RoCEv2 packet: the payload of a UDP datagram, without the ICRC at its end.

mod head;
mod payload;

use std::fmt;
use std::ops::Range;
use std::sync::atomic::AtomicU8;

use zerocopy::FromBytes;

use crate::header::{
    Aeth, AtomicAckEth, AtomicEth, Bth, Deth, Extension, ExtensionHeader, Feth, Ieth, Immediate,
    Reth, Syndrome, Xrceth,
};
use crate::held::{self, BadHeldPackets, HeldPackets};
use crate::icrc::ICRC_LENGTH;
use crate::number::{Key, PartitionKey, Psn, Qpn, Srqn};
use crate::opcode::{Opcode, Operation, Position};

pub use head::PacketHead;
pub use payload::PayloadBytes;

const BTH_LENGTH: usize = size_of::<Bth>();

/// A parsed packet. Its lengths are checked and its headers are typed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Packet<'a> {
    /// The opcode.
    pub opcode: Opcode,
    /// Whether the receiver raises a solicited event.
    pub solicited: bool,
    /// The state of path migration (MigReq).
    pub migrated: bool,
    /// How many pad bytes follow the payload to a multiple of four.
    pub pad: u8,
    /// The partition.
    pub partition: PartitionKey,
    /// FECN: the packet met congestion on its path.
    pub forward_congestion: bool,
    /// BECN: packets in the opposite direction met congestion.
    pub backward_congestion: bool,
    /// The destination queue pair.
    pub destination: Qpn,
    /// Whether the sender requests an acknowledgement.
    pub acknowledge: bool,
    /// The packet sequence number.
    pub psn: Psn,
    extensions: &'a [u8],
    /// The payload, without pad and ICRC. That of an acknowledgement is a list: see [`held_packets`](Self::held_packets).
    pub payload: PayloadBytes<'a>,
}

/// The part of a packet that is truncated.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Layer {
    /// The base transport header and the ICRC, which every packet has.
    Base,
    /// The extension headers of the opcode.
    Extensions(Opcode),
}

impl fmt::Display for Layer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Layer::Base => f.write_str("the BTH"),
            Layer::Extensions(opcode) => write!(f, "the headers of {opcode}"),
        }
    }
}

/// Why a datagram is not a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ParseError {
    /// The datagram ends before the headers do.
    #[error("{layer} and the ICRC take {needed} bytes, the datagram has {found}")]
    TooShort {
        /// The truncated part.
        layer: Layer,
        /// The minimum length of the datagram.
        needed: usize,
        /// The length of the datagram.
        found: usize,
    },
    /// The opcode is undefined, or defined only for reliable datagrams.
    #[error("unknown opcode {0:#04x}")]
    UnknownOpcode(u8),
    /// The transport header version is not 0.
    #[error("transport header version {0}, the only known one is 0")]
    TransportVersion(u8),
    /// The pad is longer than the data it belongs to.
    #[error("the pad is {pad} bytes long, but only {found} bytes follow the headers")]
    PadExceedsPayload {
        /// The pad count in the BTH.
        pad: u8,
        /// How many bytes are between headers and ICRC.
        found: usize,
    },
    /// The opcode carries no payload, but the packet has one.
    #[error("{opcode} carries no payload, but {found} bytes follow its headers")]
    UnexpectedPayload {
        /// The opcode.
        opcode: Opcode,
        /// How many bytes are between headers and ICRC.
        found: usize,
    },
    /// The length of payload and pad is not a multiple of four.
    #[error("payload and pad take {found} bytes, not a multiple of four")]
    Misaligned {
        /// How many bytes are between headers and ICRC.
        found: usize,
    },
}

impl<'a> Packet<'a> {
    /// Parses a UDP payload that ends with the ICRC. Does not verify the ICRC, which needs the
    /// addresses: see [`IcrcChecker`](crate::IcrcChecker).
    #[inline]
    pub fn parse(datagram: &'a [u8]) -> Result<Packet<'a>, ParseError> {
        let (packet, payload) = Self::parse_headers(datagram, datagram.len())?;
        Ok(Packet {
            payload: PayloadBytes::Private(&datagram[payload]),
            ..packet
        })
    }

    /// Parses a packet in memory that another process can change at any time. Its headers are read from `head`, a copy
    /// of its first bytes.
    #[inline]
    pub fn parse_shared(
        head: &'a [u8],
        datagram: &'a [AtomicU8],
    ) -> Result<Packet<'a>, ParseError> {
        let (packet, payload) = Self::parse_headers(head, datagram.len())?;
        Ok(Packet {
            payload: PayloadBytes::Shared(&datagram[payload]),
            ..packet
        })
    }

    /// Parses the headers of a datagram. Returns a packet without payload, and where the payload is.
    #[inline]
    fn parse_headers(
        head: &'a [u8],
        length: usize,
    ) -> Result<(Packet<'a>, Range<usize>), ParseError> {
        let (base, opcode) = parse_base(head, length)?;
        let extensions = split(head, length, opcode)?;
        let start = BTH_LENGTH + extensions.len();
        let data = length - start - ICRC_LENGTH;
        let payload = strip_pad(opcode, base.pad(), data)?;
        let packet = Packet {
            opcode,
            solicited: base.solicited(),
            migrated: base.migrated(),
            pad: base.pad(),
            partition: base.partition(),
            forward_congestion: base.forward_congestion(),
            backward_congestion: base.backward_congestion(),
            destination: base.destination(),
            acknowledge: base.acknowledge(),
            psn: base.psn(),
            extensions,
            payload: PayloadBytes::Private(&[]),
        };
        Ok((packet, start..start + payload))
    }

    /// The length of the datagram: headers, payload, pad and ICRC.
    #[inline]
    #[must_use]
    pub fn length(&self) -> usize {
        let data = self.payload.len() + usize::from(self.pad);
        BTH_LENGTH + self.extensions.len() + data + ICRC_LENGTH
    }

    /// The remote address, key and length.
    #[inline]
    pub fn reth(&self) -> Option<&'a Reth> {
        self.extension()
    }

    /// The syndrome and the message sequence number.
    #[inline]
    pub fn aeth(&self) -> Option<&'a Aeth> {
        self.extension()
    }

    /// The sending queue pair of a datagram, and the Q_Key.
    #[inline]
    pub fn deth(&self) -> Option<&'a Deth> {
        self.extension()
    }

    /// The operands of an atomic request.
    #[inline]
    pub fn atomic(&self) -> Option<&'a AtomicEth> {
        self.extension()
    }

    /// The result of an atomic request.
    #[inline]
    pub fn atomic_acknowledge(&self) -> Option<&'a AtomicAckEth> {
        self.extension()
    }

    /// The immediate data.
    #[inline]
    pub fn immediate(&self) -> Option<&'a Immediate> {
        self.extension()
    }

    /// The R_Key to invalidate.
    #[inline]
    pub fn invalidate(&self) -> Option<Key> {
        self.extension().map(Ieth::key)
    }

    /// The shared receive queue of an XRC request.
    #[inline]
    pub fn xrc_srq(&self) -> Option<Srqn> {
        self.extension().map(Xrceth::shared_receive_queue)
    }

    /// The range and the placement of a flush.
    #[inline]
    pub fn flush(&self) -> Option<&'a Feth> {
        self.extension()
    }

    /// The packets that the sender of an acknowledgement holds behind a missing one. Most acknowledgements list none.
    pub fn held_packets(&self) -> Result<HeldPackets, BadHeldPackets> {
        if self.payload.is_empty() || self.opcode.operation() != Operation::Acknowledge {
            return Ok(HeldPackets::default());
        }
        HeldPackets::parse(&self.payload.to_vec())
    }

    /// Builds the headers again from the parsed fields.
    pub fn head(&self) -> PacketHead {
        let head = PacketHead::new(self.opcode, self.destination, self.psn)
            .solicited(self.solicited)
            .migrated(self.migrated)
            .pad(self.pad)
            .partition(self.partition)
            .congestion(self.forward_congestion, self.backward_congestion)
            .acknowledge(self.acknowledge);
        let extensions = self.opcode.extensions().iter();
        extensions.fold(head, |head, &extension| {
            self.push_extension(head, extension)
                .expect("a parsed packet has the extensions of its opcode")
        })
    }

    /// Appends headers, payload and pad to `out`. The caller adds the ICRC.
    pub fn emit(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.head().bytes());
        self.payload.append_to(out);
        out.extend_from_slice(&[0; 3][..self.pad.into()]);
    }

    #[inline]
    fn extension<T: ExtensionHeader>(&self) -> Option<&'a T> {
        let offset = self.opcode.offset_of(T::KIND)?;
        let bytes = self.extensions.get(offset..)?;
        T::ref_from_prefix(bytes).ok().map(|(header, _)| header)
    }

    fn push_extension(&self, head: PacketHead, extension: Extension) -> Option<PacketHead> {
        Some(match extension {
            Extension::Xrceth => head.push(&Xrceth::new(self.xrc_srq()?)),
            Extension::Deth => {
                let deth = self.deth()?;
                head.push(&Deth::new(deth.queue_key(), deth.source()))
            }
            Extension::Reth => {
                let reth = self.reth()?;
                let address = reth.virtual_address();
                head.push(&Reth::new(address, reth.remote_key(), reth.dma_length()))
            }
            Extension::AtomicEth => {
                let atomic = self.atomic()?;
                head.push(&AtomicEth::new(
                    atomic.virtual_address(),
                    atomic.remote_key(),
                    atomic.swap_or_add(),
                    atomic.compare(),
                ))
            }
            Extension::Aeth => {
                let aeth = self.aeth()?;
                head.push(&Aeth::new(aeth.syndrome(), aeth.message_sequence()))
            }
            Extension::AtomicAckEth => {
                head.push(&AtomicAckEth::new(self.atomic_acknowledge()?.original()))
            }
            Extension::Immediate => head.push(&Immediate::new(self.immediate()?.bytes())),
            Extension::Ieth => head.push(&Ieth::new(self.invalidate()?)),
            Extension::Feth => head.push(self.flush()?),
        })
    }
}

/// The base transport header at the beginning of a datagram of this length.
#[inline]
fn parse_base(head: &[u8], length: usize) -> Result<(&Bth, Opcode), ParseError> {
    const NEEDED: usize = BTH_LENGTH + ICRC_LENGTH;
    let base = Bth::ref_from_prefix(head).ok();
    let Some((base, _)) = base.filter(|_| length >= NEEDED) else {
        return Err(ParseError::TooShort {
            layer: Layer::Base,
            needed: NEEDED,
            found: length,
        });
    };
    if base.transport_version() != 0 {
        return Err(ParseError::TransportVersion(base.transport_version()));
    }
    match Opcode::from_byte(base.opcode()) {
        Some(opcode) => Ok((base, opcode)),
        None => Err(ParseError::UnknownOpcode(base.opcode())),
    }
}

/// The extension headers at the beginning of a datagram of this length.
#[inline]
fn split(head: &[u8], length: usize, opcode: Opcode) -> Result<&[u8], ParseError> {
    let needed = opcode.header_length() + ICRC_LENGTH;
    match head.get(BTH_LENGTH..opcode.header_length()) {
        Some(extensions) if length >= needed => Ok(extensions),
        _ => Err(ParseError::TooShort {
            layer: Layer::Extensions(opcode),
            needed,
            found: length,
        }),
    }
}

/// The length of the payload, without its pad, if `found` bytes are between headers and ICRC.
#[inline]
fn strip_pad(opcode: Opcode, pad: u8, found: usize) -> Result<usize, ParseError> {
    let may_list = opcode.operation() == Operation::Acknowledge && pad == 0;
    let max_list = if may_list { held::MAX_LENGTH } else { 0 };
    if !opcode.carries_payload() && found > max_list {
        return Err(ParseError::UnexpectedPayload { opcode, found });
    }
    if !found.is_multiple_of(4) {
        return Err(ParseError::Misaligned { found });
    }
    found
        .checked_sub(pad.into())
        .ok_or(ParseError::PadExceedsPayload { pad, found })
}

/// The destination queue pair of a packet, read without parsing the packet; `None` if it is shorter than that.
#[inline]
#[must_use]
pub fn destination_queue_pair(packet: &[u8]) -> Option<Qpn> {
    let &[_, _, _, _, _, high, middle, low] = packet.first_chunk::<8>()?;
    Some(Qpn::new(u32::from_be_bytes([0, high, middle, low])))
}

/// The position of a packet in its message, read without parsing the packet; `None` if its opcode is unknown.
#[inline]
#[must_use]
pub fn position(packet: &[u8]) -> Option<Position> {
    opcode_of(packet).map(Opcode::position)
}

/// The opcode of a packet, read without parsing the packet; `None` if it is unknown.
#[inline]
#[must_use]
pub fn opcode_of(packet: &[u8]) -> Option<Opcode> {
    packet.first().and_then(|byte| Opcode::from_byte(*byte))
}

/// Splits packets of `size` bytes each into an acknowledgement, which is the last of them, and the requests before it.
/// `None` if they are anything else. `read` returns the value of a byte.
///
/// In one segmented send only the last packet can be shorter than the others, so a sender puts an acknowledgement behind
/// its requests. A receiver handles it first: its program sees that a message was received before it sees the reply. An
/// acknowledgement does not depend on requests. A NAK, or an acknowledgement behind other responses, keeps its place.
#[inline]
#[must_use]
pub fn split_acknowledgement<T>(
    packets: &[T],
    size: usize,
    read: impl Fn(&T) -> u8,
) -> Option<(&[T], &[T])> {
    if packets.len() <= size {
        return None;
    }
    let (requests, last) = packets.split_at((packets.len() - 1) / size * size);
    let opcode_of = |packet: &[T]| Opcode::from_byte(read(packet.first()?));
    let is_acknowledgement = opcode_of(last)?.operation() == Operation::Acknowledge
        && matches!(
            Syndrome::from_byte(read(last.get(BTH_LENGTH)?)),
            Syndrome::Acknowledge { .. }
        );
    let are_requests = || {
        let mut opcodes = requests.chunks(size).map(opcode_of);
        opcodes.all(|opcode| opcode.is_some_and(Opcode::is_request))
    };
    (is_acknowledgement && are_requests()).then_some((last, requests))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ICRC: [u8; ICRC_LENGTH] = [0; ICRC_LENGTH];

    fn datagram(head: PacketHead, data: &[u8]) -> Vec<u8> {
        [head.bytes(), data, &ICRC].concat()
    }

    fn head(opcode: Opcode) -> PacketHead {
        PacketHead::new(opcode, Qpn::new(0x11), Psn::new(1234))
    }

    fn acknowledgement(syndrome: Syndrome) -> Vec<u8> {
        let head = head(Opcode::RcAcknowledge).push(&Aeth::new(syndrome, 1));
        datagram(head, &[])
    }

    fn splits(packets: &[Vec<u8>]) -> Option<(Vec<u8>, Vec<u8>)> {
        let (size, batch) = (packets[0].len(), packets.concat());
        let (first, rest) = split_acknowledgement(&batch, size, |byte| *byte)?;
        Some((first.to_vec(), rest.to_vec()))
    }

    #[test]
    fn acknowledgement_is_split_from_the_requests_before_it() {
        let request = datagram(head(Opcode::RcSendOnly), b"a request");
        let last = acknowledgement(Syndrome::UNLIMITED);
        let requests = [request.clone(), request.clone()];
        let batch = [&requests[..], std::slice::from_ref(&last)].concat();
        assert_eq!(splits(&batch), Some((last.clone(), requests.concat())));
        // Without payload and with an immediate, a request is as long as an acknowledgement.
        let equal = datagram(head(Opcode::RcSendOnlyImmediate), &[7; 4]);
        assert_eq!(equal.len(), last.len());
        let batch = [equal.clone(), last.clone()];
        assert_eq!(splits(&batch), Some((last, equal)));
    }

    #[test]
    fn other_packets_keep_their_order() {
        let request = datagram(head(Opcode::RcSendOnly), b"a request");
        let last = acknowledgement(Syndrome::UNLIMITED);
        assert_eq!(splits(std::slice::from_ref(&last)), None, "it is alone");
        assert_eq!(splits(&[request.clone(), request.clone()]), None);
        let nak = acknowledgement(Syndrome::Negative(crate::NakCode::SequenceError));
        assert_eq!(splits(&[request.clone(), nak]), None);
        let read = head(Opcode::RcReadResponseOnly).push(&Aeth::new(Syndrome::UNLIMITED, 1));
        let read = datagram(read, b"some");
        assert_eq!(splits(&[read, last.clone()]), None);
        let unknown = vec![0xff; last.len()];
        assert_eq!(splits(&[unknown, last.clone()]), None);
        let cut_off = last[..BTH_LENGTH].to_vec();
        assert_eq!(splits(&[request, cut_off]), None);
    }

    #[test]
    fn position_is_read_without_parsing() {
        for (opcode, expected) in [
            (Opcode::RcSendFirst, Position::First),
            (Opcode::UcWriteMiddle, Position::Middle),
            (Opcode::RcSendLast, Position::Last),
            (Opcode::RcAcknowledge, Position::Only),
        ] {
            assert_eq!(position(head(opcode).bytes()), Some(expected));
        }
        assert_eq!(position(&[0xff]), None);
        assert_eq!(position(&[]), None);
    }

    #[test]
    fn destination_is_read_without_parsing() {
        let head = PacketHead::new(Opcode::UdSendOnly, Qpn::new(0x12_3456), Psn::ZERO);
        let bytes = head.bytes();
        assert_eq!(destination_queue_pair(bytes), Some(Qpn::new(0x12_3456)));
        assert_eq!(
            destination_queue_pair(&bytes[..8]),
            Some(Qpn::new(0x12_3456))
        );
        assert_eq!(destination_queue_pair(&bytes[..7]), None);
    }

    #[test]
    fn payload_excludes_pad_and_icrc() {
        let bytes = datagram(head(Opcode::RcSendOnly).pad(3), &[1, 2, 3, 4, 5, 0, 0, 0]);
        let packet = Packet::parse(&bytes).expect("a packet");
        assert_eq!(packet.payload.to_vec(), [1, 2, 3, 4, 5]);
        assert_eq!(packet.pad, 3);
        assert_eq!(packet.length(), bytes.len());
    }

    #[test]
    fn packet_has_exactly_the_headers_of_its_opcode() {
        let reth = Reth::new(0x1000, Key::new(7), 64);
        let immediate = Immediate::new(*b"imm!");
        let head = head(Opcode::RcWriteOnlyImmediate)
            .push(&reth)
            .push(&immediate);
        let bytes = datagram(head, &[]);
        let packet = Packet::parse(&bytes).expect("a packet");
        assert_eq!(packet.reth(), Some(&reth));
        assert_eq!(packet.immediate(), Some(&immediate));
        assert_eq!((packet.aeth(), packet.deth()), (None, None));
        assert_eq!((packet.invalidate(), packet.xrc_srq()), (None, None));
    }

    #[test]
    fn too_short_packet_is_rejected_with_both_lengths() {
        let bytes = datagram(head(Opcode::RcWriteOnly), &[0; 12]);
        let error = Packet::parse(&bytes).unwrap_err();
        let layer = Layer::Extensions(Opcode::RcWriteOnly);
        let (needed, found) = (32, 28);
        assert_eq!(
            error,
            ParseError::TooShort {
                layer,
                needed,
                found
            }
        );
        let error = Packet::parse(&bytes[..15]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "the BTH and the ICRC take 16 bytes, the datagram has 15"
        );
    }

    #[test]
    fn unknown_opcode_and_version_are_rejected() {
        let mut bytes = datagram(head(Opcode::RcSendOnly), &[]);
        bytes[0] = 0x1f;
        assert_eq!(Packet::parse(&bytes), Err(ParseError::UnknownOpcode(0x1f)));
        bytes[1] |= 1;
        assert_eq!(Packet::parse(&bytes), Err(ParseError::TransportVersion(1)));
    }

    #[test]
    fn data_that_contradicts_opcode_or_pad_is_rejected() {
        let opcode = Opcode::RcReadRequest;
        let request = head(opcode).push(&Reth::new(0, Key::new(0), 0));
        let unexpected = ParseError::UnexpectedPayload { opcode, found: 4 };
        assert_eq!(Packet::parse(&datagram(request, &[0; 4])), Err(unexpected));

        let misaligned = datagram(head(Opcode::RcSendOnly), &[0; 5]);
        let error = ParseError::Misaligned { found: 5 };
        assert_eq!(Packet::parse(&misaligned), Err(error));

        let all_pad = datagram(head(Opcode::RcSendOnly).pad(1), &[]);
        let error = ParseError::PadExceedsPayload { pad: 1, found: 0 };
        assert_eq!(Packet::parse(&all_pad), Err(error));
    }
}
