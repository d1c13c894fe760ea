//! Fields of messages: values with a place.

use std::fmt;

use crate::mad::BODY_LENGTH;
use crate::number::{AckTimeout, Gid, PartitionKey, PathMtu, Psn, Qpn, QueueKey};

pub(super) type Body = [u8; BODY_LENGTH];

/// Where in a message a field is, and how many bits it has.
#[derive(Clone, Copy)]
pub(super) struct Place {
    byte: usize,
    bit: usize,
    width: usize,
}

impl Place {
    /// The whole message.
    pub(super) const BODY: Place = bytes(0, BODY_LENGTH);

    /// The same place, counted from where `outer` starts.
    pub(super) const fn within(self, outer: Place) -> Place {
        Place {
            byte: outer.byte + self.byte,
            ..self
        }
    }
}

/// A field of `width` bits, the first of which is the highest of a byte.
pub(super) const fn at(byte: usize, width: usize) -> Place {
    bits(byte, 0, width)
}

/// A field of `width` bits that starts inside a byte, `bit` bits from the highest.
pub(super) const fn bits(byte: usize, bit: usize, width: usize) -> Place {
    Place { byte, bit, width }
}

/// A field of whole bytes.
pub(super) const fn bytes(byte: usize, length: usize) -> Place {
    bits(byte, 0, 8 * length)
}

/// What can be read from a place and written to it.
pub(super) trait Field {
    fn read(body: &Body, place: Place) -> Self;
    fn write(&self, body: &mut Body, place: Place);
}

/// A value of up to 64 bits.
pub(super) trait Number {
    fn from_number(number: u64) -> Self;
    fn number(&self) -> u64;
}

impl<T: Number> Field for T {
    fn read(body: &Body, place: Place) -> Self {
        T::from_number(read_number(body, place))
    }

    fn write(&self, body: &mut Body, place: Place) {
        let number = self.number();
        debug_assert!(
            place.width == 64 || number >> place.width == 0,
            "{number} takes more than {} bits",
            place.width
        );
        write_number(body, place, number);
    }
}

fn read_number(body: &Body, place: Place) -> u64 {
    let end = place.bit + place.width;
    let covered = &body[place.byte..][..end.div_ceil(8)];
    let number = covered
        .iter()
        .fold(0, |number, &byte| number << 8 | u64::from(byte));
    number >> behind(place) & mask(place.width)
}

fn write_number(body: &mut Body, place: Place, number: u64) {
    let end = place.bit + place.width;
    let covered = &mut body[place.byte..][..end.div_ceil(8)];
    let mut rest = (number & mask(place.width)) << behind(place);
    for byte in covered.iter_mut().rev() {
        *byte |= rest as u8;
        rest >>= 8;
    }
}

/// How many bits of its last byte belong to the next field.
fn behind(place: Place) -> usize {
    (place.bit + place.width).next_multiple_of(8) - (place.bit + place.width)
}

fn mask(width: usize) -> u64 {
    u64::MAX >> (64 - width)
}

/// Makes numbers of things: how to build one, how to take it apart.
macro_rules! numbers {
    ($($type:ty: $build:expr, $take_apart:expr;)+) => {
        $(
            impl Number for $type {
                fn from_number(number: u64) -> Self {
                    #[allow(clippy::redundant_closure_call)]
                    $build(number)
                }

                fn number(&self) -> u64 {
                    #[allow(clippy::redundant_closure_call)]
                    u64::from($take_apart(*self))
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
    fn read(body: &Body, place: Place) -> Self {
        Gid::from_bytes(read_bytes(body, place))
    }

    fn write(&self, body: &mut Body, place: Place) {
        write_bytes(body, place, &self.bytes());
    }
}

impl<const N: usize> Field for PrivateData<N> {
    fn read(body: &Body, place: Place) -> Self {
        PrivateData(read_bytes(body, place))
    }

    fn write(&self, body: &mut Body, place: Place) {
        write_bytes(body, place, &self.0);
    }
}

fn read_bytes<const N: usize>(body: &Body, place: Place) -> [u8; N] {
    debug_assert_eq!(place.width, 8 * N);
    let bytes = &body[place.byte..][..N];
    bytes.try_into().expect("the slice is N long")
}

fn write_bytes(body: &mut Body, place: Place, bytes: &[u8]) {
    debug_assert_eq!(place.width, 8 * bytes.len());
    body[place.byte..][..bytes.len()].copy_from_slice(bytes);
}

/// Bytes of the application's own that ride in a message. They have no length on the wire:
/// what the application does not fill is zero.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct PrivateData<const N: usize>([u8; N]);

/// The application has more private data than the message has room for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{length} bytes of private data, the message has room for {room}")]
pub struct PrivateDataTooLong {
    /// How much the application has.
    pub length: usize,
    /// How much fits.
    pub room: usize,
}

impl<const N: usize> PrivateData<N> {
    /// Fills up `data` with zeros.
    pub fn new(data: &[u8]) -> Result<Self, PrivateDataTooLong> {
        if data.len() > N {
            return Err(PrivateDataTooLong {
                length: data.len(),
                room: N,
            });
        }
        let mut bytes = [0; N];
        bytes[..data.len()].copy_from_slice(data);
        Ok(PrivateData(bytes))
    }

    /// All of it, including the zeros.
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

/// Declares a message, or a part of one: each row is a field and its place.
macro_rules! layout {
    ($(#[$attribute:meta])* $name:ident {
        $($(#[$field_attribute:meta])* $field:ident: $type:ty = $place:expr;)+
    }) => {
        $(#[$attribute])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
        pub struct $name {
            $($(#[$field_attribute])* pub $field: $type,)+
        }

        impl $crate::cm::field::Field for $name {
            fn read(body: &$crate::cm::Body, place: $crate::cm::Place) -> Self {
                $name {
                    $($field: $crate::cm::field::Field::read(body, $place.within(place)),)+
                }
            }

            fn write(&self, body: &mut $crate::cm::Body, place: $crate::cm::Place) {
                $($crate::cm::field::Field::write(&self.$field, body, $place.within(place));)+
            }
        }
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_inside_a_byte_leaves_its_neighbours_alone() {
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
    fn a_field_of_24_bits_shares_its_word_with_the_next_byte() {
        let mut body = [0; BODY_LENGTH];
        Qpn::new(0x0012_3456).write(&mut body, at(32, 24));
        0xff_u8.write(&mut body, at(35, 8));
        assert_eq!(body[32..36], [0x12, 0x34, 0x56, 0xff]);
    }

    #[test]
    fn private_data_says_how_much_fits() {
        let error = PrivateData::<4>::new(&[0; 5]).unwrap_err();
        assert_eq!((error.length, error.room), (5, 4));
        let data = PrivateData::<4>::new(&[1, 2]).unwrap();
        assert_eq!(data.bytes(), &[1, 2, 0, 0]);
        assert_eq!(format!("{data:?}"), "[01, 02] + 2 zeros");
    }
}
