//! The acknowledgement extended transport header.

use zerocopy::byteorder::big_endian::U32;

use super::declare_header::header;
use super::syndrome::Syndrome;

header! {
    /// Acknowledgement extended transport header (AETH).
    Aeth, 4, Aeth { word: U32 }
}

impl Aeth {
    const SEQUENCE: u32 = 0x00ff_ffff;

    /// `message_sequence` counts completed messages. The header carries its low 24 bits.
    #[inline]
    pub fn new(syndrome: Syndrome, message_sequence: u32) -> Self {
        let word = u32::from(syndrome.byte()) << 24 | message_sequence & Self::SEQUENCE;
        Aeth { word: word.into() }
    }

    /// The syndrome.
    #[inline]
    pub fn syndrome(&self) -> Syndrome {
        Syndrome::from_byte((self.word.get() >> 24) as u8)
    }

    /// How many messages the responder has completed, modulo 2^24.
    #[inline]
    pub fn message_sequence(&self) -> u32 {
        self.word.get() & Self::SEQUENCE
    }
}
