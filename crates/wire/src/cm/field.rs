//! Fields of connection manager messages: how to read and write a value at its position.

use std::fmt;

use crate::mad::BODY_LENGTH;
use crate::number::{AckTimeout, Gid, PartitionKey, PathMtu, Psn, Qpn, QueueKey};

pub(super) type Body = [u8; BODY_LENGTH];

/// The position of a field in a message, and its width in bits.
#[derive(Clone, Copy)]
pub(super) struct FieldPosition {
    byte: usize,
    bit: usize,
    width: usize,
}

impl FieldPosition {
    /// The whole message body.
    pub(super) const BODY: FieldPosition = bytes(0, BODY_LENGTH);

    /// This position, relative to the start of `outer`.
    pub(super) const fn within(self, outer: FieldPosition) -> FieldPosition {
        FieldPosition {
            byte: outer.byte + self.byte,
            ..self
        }
    }
}

/// A field of `width` bits that starts at the most significant bit of a byte.
pub(super) const fn at(byte: usize, width: usize) -> FieldPosition {
    bits(byte, 0, width)
}

/// A field of `width` bits that starts `bit` bits below the most significant bit of a byte.
pub(super) const fn bits(byte: usize, bit: usize, width: usize) -> FieldPosition {
    FieldPosition { byte, bit, width }
}

/// A field of whole bytes.
pub(super) const fn bytes(byte: usize, length: usize) -> FieldPosition {
    bits(byte, 0, 8 * length)
}

/// A value that can be read from and written to a position.
pub(super) trait Field {
    fn read(body: &Body, position: FieldPosition) -> Self;
    fn write(&self, body: &mut Body, position: FieldPosition);
}

/// A value of up to 64 bits.
pub(super) trait Number {
    fn from_number(number: u64) -> Self;
    fn number(&self) -> u64;
}

impl<T: Number> Field for T {
    fn read(body: &Body, position: FieldPosition) -> Self {
        T::from_number(read_number(body, position))
    }

    fn write(&self, body: &mut Body, position: FieldPosition) {
        let number = self.number();
        debug_assert!(
            position.width == 64 || number >> position.width == 0,
            "{number} takes more than {} bits",
            position.width
        );
        write_number(body, position, number);
    }
}

fn read_number(body: &Body, position: FieldPosition) -> u64 {
    let end = position.bit + position.width;
    let covered = &body[position.byte..][..end.div_ceil(8)];
    let number = covered
        .iter()
        .fold(0, |number, &byte| number << 8 | u64::from(byte));
    number >> bits_after(position) & mask(position.width)
}

fn write_number(body: &mut Body, position: FieldPosition, number: u64) {
    let end = position.bit + position.width;
    let covered = &mut body[position.byte..][..end.div_ceil(8)];
    let mut rest = (number & mask(position.width)) << bits_after(position);
    for byte in covered.iter_mut().rev() {
        *byte |= rest as u8;
        rest >>= 8;
    }
}

/// How many low bits of the field's last byte belong to the next field.
fn bits_after(position: FieldPosition) -> usize {
    (position.bit + position.width).next_multiple_of(8) - (position.bit + position.width)
}

fn mask(width: usize) -> u64 {
    u64::MAX >> (64 - width)
}

/// Implements [`Number`]: each row names a type and its conversions from and to a number.
macro_rules! numbers {
    ($($type:ty: $from_number:expr, $into_number:expr;)+) => {
        $(
            impl Number for $type {
                fn from_number(number: u64) -> Self {
                    #[allow(clippy::redundant_closure_call)]
                    $from_number(number)
                }

                fn number(&self) -> u64 {
                    #[allow(clippy::redundant_closure_call)]
                    u64::from($into_number(*self))
                }
            }
        )+
    };
}

numbers! {
    bool: |number| number != 0, |flag| flag;
    u8: |number| number as u8, |number| number;
    u16: |number| number as u16, |number| number;
    u32: |number| number as u32, |number| number;
    u64: |number| number, |number| number;
    Psn: |number| Psn::new(number as u32), Psn::value;
    Qpn: |number| Qpn::new(number as u32), Qpn::value;
    QueueKey: |number| QueueKey::new(number as u32), QueueKey::value;
    PartitionKey: |number| PartitionKey::new(number as u16), PartitionKey::value;
    AckTimeout: |number| AckTimeout::from_low_bits(number as u8), AckTimeout::code;
    Option<PathMtu>: |number| PathMtu::from_code(number as u8),
        |mtu: Option<PathMtu>| mtu.map_or(0, PathMtu::code);
}

impl Field for Gid {
    fn read(body: &Body, position: FieldPosition) -> Self {
        Gid::from_bytes(read_bytes(body, position))
    }

    fn write(&self, body: &mut Body, position: FieldPosition) {
        write_bytes(body, position, &self.bytes());
    }
}

impl<const N: usize> Field for PrivateData<N> {
    fn read(body: &Body, position: FieldPosition) -> Self {
        PrivateData(read_bytes(body, position))
    }

    fn write(&self, body: &mut Body, position: FieldPosition) {
        write_bytes(body, position, &self.0);
    }
}

fn read_bytes<const N: usize>(body: &Body, position: FieldPosition) -> [u8; N] {
    debug_assert_eq!(position.width, 8 * N);
    let bytes = &body[position.byte..][..N];
    bytes.try_into().expect("the slice is N long")
}

fn write_bytes(body: &mut Body, position: FieldPosition, bytes: &[u8]) {
    debug_assert_eq!(position.width, 8 * bytes.len());
    body[position.byte..][..bytes.len()].copy_from_slice(bytes);
}

/// The application's data in a message. The wire carries no length: unused bytes are zero.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct PrivateData<const N: usize>([u8; N]);

/// The application's private data is longer than the field of the message.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the private data has {length} bytes, and the message carries at most {max}")]
pub struct PrivateDataTooLong {
    /// The length of the application's data.
    pub length: usize,
    /// The length of the field.
    pub max: usize,
}

impl<const N: usize> PrivateData<N> {
    /// Pads `data` with zeros.
    pub fn new(data: &[u8]) -> Result<Self, PrivateDataTooLong> {
        if data.len() > N {
            return Err(PrivateDataTooLong {
                length: data.len(),
                max: N,
            });
        }
        let mut bytes = [0; N];
        bytes[..data.len()].copy_from_slice(data);
        Ok(PrivateData(bytes))
    }

    /// All bytes, including the padding.
    pub const fn bytes(&self) -> &[u8; N] {
        &self.0
    }
}

impl<const N: usize> Default for PrivateData<N> {
    fn default() -> Self {
        PrivateData([0; N])
    }
}

impl<const N: usize> From<[u8; N]> for PrivateData<N> {
    fn from(bytes: [u8; N]) -> Self {
        PrivateData(bytes)
    }
}

impl<const N: usize> fmt::Debug for PrivateData<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let filled = self
            .0
            .iter()
            .rposition(|&byte| byte != 0)
            .map_or(0, |last| last + 1);
        write!(f, "{:02x?} + {} zeros", &self.0[..filled], N - filled)
    }
}

/// Declares a message or a part of one: each row is a field and its position.
macro_rules! layout {
    ($(#[$attribute:meta])* $name:ident {
        $($(#[$field_attribute:meta])* $field:ident: $type:ty = $position:expr;)+
    }) => {
        $(#[$attribute])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
        pub struct $name {
            $($(#[$field_attribute])* pub $field: $type,)+
        }

        impl $crate::cm::field::Field for $name {
            fn read(body: &$crate::cm::Body, position: $crate::cm::FieldPosition) -> Self {
                $name {
                    $($field: $crate::cm::field::Field::read(body, $position.within(position)),)+
                }
            }

            fn write(&self, body: &mut $crate::cm::Body, position: $crate::cm::FieldPosition) {
                $($crate::cm::field::Field::write(&self.$field, body, $position.within(position));)+
            }
        }
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writing_a_field_inside_a_byte_keeps_the_neighbouring_bits() {
        let mut body = [0; BODY_LENGTH];
        0x15_u8.write(&mut body, at(43, 5));
        2_u8.write(&mut body, bits(43, 5, 2));
        true.write(&mut body, bits(43, 7, 1));
        assert_eq!(body[43], 0b1010_1101);
        assert_eq!(u8::read(&body, at(43, 5)), 0x15);
        assert_eq!(u8::read(&body, bits(43, 5, 2)), 2);
        assert!(bool::read(&body, bits(43, 7, 1)));
    }

    #[test]
    fn field_of_24_bits_shares_its_word_with_the_next_byte() {
        let mut body = [0; BODY_LENGTH];
        Qpn::new(0x0012_3456).write(&mut body, at(32, 24));
        0xff_u8.write(&mut body, at(35, 8));
        assert_eq!(body[32..36], [0x12, 0x34, 0x56, 0xff]);
    }

    #[test]
    fn too_long_private_data_is_rejected_with_both_lengths() {
        let error = PrivateData::<4>::new(&[0; 5]).unwrap_err();
        assert_eq!((error.length, error.max), (5, 4));
        let data = PrivateData::<4>::new(&[1, 2]).unwrap();
        assert_eq!(data.bytes(), &[1, 2, 0, 0]);
        assert_eq!(format!("{data:?}"), "[01, 02] + 2 zeros");
    }
}
