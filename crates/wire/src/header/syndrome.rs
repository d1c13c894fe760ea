//! The AETH syndrome: one byte that says whether a request succeeded.

use crate::number::RnrTimer;

/// The syndrome of an acknowledgement.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Syndrome {
    /// All packets up to this PSN arrived.
    Acknowledge {
        /// How many more messages the responder has receives for; `None` if it does not report
        /// credits.
        credits: Option<u32>,
    },
    /// RNR NAK: no receive was posted. The requester retries after the delay.
    ReceiverNotReady(RnrTimer),
    /// The responder rejects the request.
    Negative(NakCode),
    /// A reserved value.
    Reserved(u8),
}

impl Syndrome {
    /// An acknowledgement from a responder that does not report credits.
    pub const UNLIMITED: Syndrome = Syndrome::Acknowledge { credits: None };

    const RECEIVER_NOT_READY: u8 = 0x20;
    const NEGATIVE: u8 = 0x60;

    /// IBA "End-to-End Flow Control Credit Encoding": each of 31 codes means a number of credits. Code 31
    /// means "invalid": the responder does not report credits.
    const CREDITS: [u32; 31] = [
        0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536,
        2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768,
    ];
    const CREDITS_INVALID: u8 = 31;

    /// Reads the first byte of an AETH.
    #[inline]
    pub const fn from_byte(byte: u8) -> Self {
        let value = byte & 0x1f;
        match byte & 0xe0 {
            0 if value == Self::CREDITS_INVALID => Self::UNLIMITED,
            0 => Syndrome::Acknowledge {
                credits: Some(Self::CREDITS[value as usize]),
            },
            Self::RECEIVER_NOT_READY => Syndrome::ReceiverNotReady(RnrTimer::from_low_bits(value)),
            Self::NEGATIVE => match NakCode::from_code(value) {
                Some(code) => Syndrome::Negative(code),
                None => Syndrome::Reserved(byte),
            },
            _ => Syndrome::Reserved(byte),
        }
    }

    /// The first byte of an AETH. A credit count is rounded down to one that has a code.
    #[inline]
    pub fn byte(self) -> u8 {
        match self {
            Syndrome::Acknowledge { credits: None } => Self::CREDITS_INVALID,
            Syndrome::Acknowledge {
                credits: Some(count),
            } => Self::credit_code(count),
            Syndrome::ReceiverNotReady(timer) => Self::RECEIVER_NOT_READY | timer.code(),
            Syndrome::Negative(code) => Self::NEGATIVE | code as u8,
            Syndrome::Reserved(byte) => byte,
        }
    }

    /// What a peer reads of a credit count: it is rounded down to one that has a code.
    #[inline]
    #[must_use]
    pub fn reported_credits(count: u32) -> u32 {
        match count {
            // These codes are the numbers themselves.
            0..=4 => count,
            _ => Self::CREDITS[usize::from(Self::credit_code(count))],
        }
    }

    /// The codes are numbers with two significant bits: the position of the higher one, and the lower one.
    #[inline]
    fn credit_code(count: u32) -> u8 {
        let Some(highest) = count.checked_ilog2() else {
            return 0;
        };
        let code = highest * 2 + (count >> highest.saturating_sub(1) & 1);
        code.min(Self::CREDITS.len() as u32 - 1) as u8
    }
}

/// Why the responder rejects a request.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum NakCode {
    /// A packet before this one is missing.
    SequenceError = 0,
    /// The request is malformed, or the queue pair does not support it.
    InvalidRequest = 1,
    /// The key, the address range or the permission is wrong.
    RemoteAccess = 2,
    /// The responder failed for a local reason.
    RemoteOperational = 3,
    /// Only for reliable datagrams, which no known device implements.
    InvalidRdRequest = 4,
}

impl NakCode {
    const fn from_code(code: u8) -> Option<Self> {
        match code {
            0 => Some(NakCode::SequenceError),
            1 => Some(NakCode::InvalidRequest),
            2 => Some(NakCode::RemoteAccess),
            3 => Some(NakCode::RemoteOperational),
            4 => Some(NakCode::InvalidRdRequest),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // IBA "End-to-End Flow Control Credit Encoding"
    #[test]
    fn every_syndrome_byte_round_trips() {
        for byte in 0..=255 {
            assert_eq!(Syndrome::from_byte(byte).byte(), byte);
        }
    }

    #[test]
    fn credits_are_rounded_down_to_a_number_with_a_code() {
        let credits = (0..70_000).chain([1 << 24, u32::MAX]);
        for count in credits {
            let expected = Syndrome::CREDITS.into_iter().rev().find(|it| *it <= count);
            let sent = Syndrome::Acknowledge {
                credits: Some(count),
            };
            let received = Syndrome::from_byte(sent.byte());
            assert_eq!(
                received,
                Syndrome::Acknowledge { credits: expected },
                "{count}"
            );
            assert_eq!(Some(Syndrome::reported_credits(count)), expected, "{count}");
        }
    }

    #[test]
    fn syndromes_that_linux_sends_are_parsed() {
        let timer = RnrTimer::new(14).expect("a code");
        assert_eq!(Syndrome::from_byte(0x1f), Syndrome::UNLIMITED);
        assert_eq!(Syndrome::from_byte(0x2e), Syndrome::ReceiverNotReady(timer));
        let nak = |code| Syndrome::Negative(code);
        assert_eq!(Syndrome::from_byte(0x60), nak(NakCode::SequenceError));
        assert_eq!(Syndrome::from_byte(0x62), nak(NakCode::RemoteAccess));
        assert_eq!(Syndrome::from_byte(0x63), nak(NakCode::RemoteOperational));
    }

    #[test]
    fn reserved_syndromes_are_kept() {
        for byte in [0x40, 0x5f, 0x65, 0x7f, 0x80, 0xff] {
            assert_eq!(Syndrome::from_byte(byte), Syndrome::Reserved(byte));
        }
    }

    // IBA "End-to-End Flow Control Credit Encoding"
    #[test]
    fn credits_are_rounded_down() {
        let encoded = |count| {
            let syndrome = Syndrome::Acknowledge {
                credits: Some(count),
            };
            match Syndrome::from_byte(syndrome.byte()) {
                Syndrome::Acknowledge { credits } => credits,
                other => panic!("{other:?}"),
            }
        };
        for exact in [0, 1, 4, 6, 24, 1024, 32768] {
            assert_eq!(encoded(exact), Some(exact));
        }
        assert_eq!(encoded(5), Some(4));
        assert_eq!(encoded(32767), Some(24576));
        assert_eq!(encoded(u32::MAX), Some(32768));
    }
}
