//! The verdict in an acknowledgement: one byte.

use crate::number::RnrTimer;

/// The verdict of an acknowledgement.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Syndrome {
    /// Everything up to here arrived.
    Acknowledge {
        /// How many more messages the responder has receives for; none if it does not say.
        credits: Option<u32>,
    },
    /// No receive was posted: try again after the delay.
    ReceiverNotReady(RnrTimer),
    /// The request is refused.
    Negative(NakCode),
    /// A byte without a meaning.
    Reserved(u8),
}

impl Syndrome {
    /// An acknowledgement by a responder that does not count credits.
    pub const UNLIMITED: Syndrome = Syndrome::Acknowledge { credits: None };

    const RECEIVER_NOT_READY: u8 = 0x20;
    const NEGATIVE: u8 = 0x60;

    /// IBA vol. 1, table "End-to-End Flow Control Credit Encoding". Code 31 means "not counted".
    const CREDITS: [u32; 31] = [
        0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536,
        2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768,
    ];
    const NOT_COUNTED: u8 = 31;

    /// Reads the first byte of an AETH.
    #[inline]
    pub const fn from_byte(byte: u8) -> Self {
        let value = byte & 0x1f;
        match byte & 0xe0 {
            0 if value == Self::NOT_COUNTED => Self::UNLIMITED,
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

    /// The first byte of an AETH. Credits are rounded down to what can be said.
    #[inline]
    pub fn byte(self) -> u8 {
        match self {
            Syndrome::Acknowledge { credits: None } => Self::NOT_COUNTED,
            Syndrome::Acknowledge {
                credits: Some(count),
            } => Self::credit_code(count),
            Syndrome::ReceiverNotReady(timer) => Self::RECEIVER_NOT_READY | timer.code(),
            Syndrome::Negative(code) => Self::NEGATIVE | code as u8,
            Syndrome::Reserved(byte) => byte,
        }
    }

    fn credit_code(count: u32) -> u8 {
        let first_above = Self::CREDITS.partition_point(|&credits| credits <= count);
        // The table starts at zero, so at least one entry is not above.
        (first_above - 1) as u8
    }
}

/// Why a request is refused.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum NakCode {
    /// A packet before this one is missing.
    SequenceError = 0,
    /// The request makes no sense here.
    InvalidRequest = 1,
    /// The key, the range or the permission is wrong.
    RemoteAccess = 2,
    /// The responder failed by itself.
    RemoteOperational = 3,
    /// Only for reliable datagrams, which nobody implements.
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

    #[test]
    fn every_byte_survives() {
        for byte in 0..=255 {
            assert_eq!(Syndrome::from_byte(byte).byte(), byte);
        }
    }

    #[test]
    fn the_bytes_that_linux_sends() {
        let timer = RnrTimer::new(14).expect("a code");
        assert_eq!(Syndrome::from_byte(0x1f), Syndrome::UNLIMITED);
        assert_eq!(Syndrome::from_byte(0x2e), Syndrome::ReceiverNotReady(timer));
        let refused = |code| Syndrome::Negative(code);
        assert_eq!(Syndrome::from_byte(0x60), refused(NakCode::SequenceError));
        assert_eq!(Syndrome::from_byte(0x62), refused(NakCode::RemoteAccess));
        assert_eq!(
            Syndrome::from_byte(0x63),
            refused(NakCode::RemoteOperational)
        );
    }

    #[test]
    fn what_has_no_meaning_is_kept() {
        for byte in [0x40, 0x5f, 0x65, 0x7f, 0x80, 0xff] {
            assert_eq!(Syndrome::from_byte(byte), Syndrome::Reserved(byte));
        }
    }

    #[test]
    fn credits_are_rounded_down() {
        let said = |count| {
            let syndrome = Syndrome::Acknowledge {
                credits: Some(count),
            };
            match Syndrome::from_byte(syndrome.byte()) {
                Syndrome::Acknowledge { credits } => credits,
                other => panic!("{other:?}"),
            }
        };
        for exact in [0, 1, 4, 6, 24, 1024, 32768] {
            assert_eq!(said(exact), Some(exact));
        }
        assert_eq!(said(5), Some(4));
        assert_eq!(said(32767), Some(24576));
        assert_eq!(said(u32::MAX), Some(32768));
    }
}
