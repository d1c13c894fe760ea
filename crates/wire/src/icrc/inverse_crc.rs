//! Inverse CRC-32: recovers changed bytes from the difference of two CRCs.
//!
//! A CRC is a remainder of polynomials over GF(2). If two messages of equal length differ in four
//! bytes, their CRCs differ by those bytes times x^(32 + 8n) modulo P, where n is the number of
//! bytes that follow. Multiplying the difference of the CRCs by x^-(32 + 8n) recovers the bytes.

/// The Ethernet polynomial P. In all registers here, the highest bit is the coefficient of x^0.
const POLYNOMIAL: u32 = 0xedb8_8320;
const ONE: u32 = 1 << 31;
const X: u32 = 1 << 30;

/// P is primitive: the powers of x have the period 2^32 - 1.
const ORDER: u64 = (1 << 32) - 1;

/// Multiplies by a fixed power of x with tables.
#[derive(Debug)]
pub(super) struct Rewind {
    bytes_after: usize,
    /// `products[i][b]` is the product of byte `b` at index `i` of the register.
    products: [[u32; 256]; 4],
}

impl Rewind {
    /// Prepares the tables for four bytes that `bytes_after` bytes follow.
    pub(super) fn new(bytes_after: usize) -> Self {
        let factor = power_of_x(ORDER - (32 + 8 * bytes_after as u64) % ORDER);
        let mut products = [[0; 256]; 4];
        let mut product = factor;
        for bit in (0..32).rev() {
            products[bit / 8][1 << (bit % 8)] = product;
            product = times_x(product);
        }
        for table in &mut products {
            fill_sums(table);
        }
        Rewind {
            bytes_after,
            products,
        }
    }

    #[inline]
    pub(super) fn bytes_after(&self) -> usize {
        self.bytes_after
    }

    /// The four changed bytes, the first one lowest, that make two CRCs differ by `difference`.
    #[inline]
    pub(super) fn rewind(&self, difference: u32) -> u32 {
        let bytes = difference.to_le_bytes();
        self.products
            .iter()
            .zip(bytes)
            .fold(0, |sum, (table, byte)| sum ^ table[usize::from(byte)])
    }
}

/// The contribution of one byte to a CRC when `bytes_after` bytes follow it.
pub(super) fn contribution(byte: u8, bytes_after: usize) -> u32 {
    product(u32::from(byte), power_of_x(8 * (bytes_after as u64 + 1)))
}

/// The contribution of each value of one byte to a CRC when `bytes_after` bytes follow it.
pub(super) const fn contributions(bytes_after: usize) -> [u32; 256] {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut register = byte as u32;
        let mut shifts = 0;
        while shifts < 8 * (bytes_after + 1) {
            register = times_x(register);
            shifts += 1;
        }
        table[byte] = register;
        byte += 1;
    }
    table
}

/// Completes a table that holds the products of single bits.
fn fill_sums(table: &mut [u32; 256]) {
    for byte in 1..256_usize {
        let without_lowest_bit = byte & (byte - 1);
        table[byte] = table[without_lowest_bit] ^ table[byte ^ without_lowest_bit];
    }
}

fn power_of_x(mut exponent: u64) -> u32 {
    let mut power = ONE;
    let mut square = X;
    while exponent != 0 {
        if exponent & 1 != 0 {
            power = product(power, square);
        }
        square = product(square, square);
        exponent >>= 1;
    }
    power
}

fn product(left: u32, mut right: u32) -> u32 {
    let mut sum = 0;
    for bit in (0..32).rev() {
        if left >> bit & 1 != 0 {
            sum ^= right;
        }
        right = times_x(right);
    }
    sum
}

const fn times_x(polynomial: u32) -> u32 {
    let overflow = polynomial & 1;
    (polynomial >> 1) ^ (overflow * POLYNOMIAL)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn x_to_the_power_of_its_order_is_one() {
        assert_eq!(power_of_x(ORDER), ONE);
        assert_eq!(power_of_x(1), X);
        assert_eq!(product(power_of_x(ORDER - 5), power_of_x(5)), ONE);
    }

    #[test]
    fn single_contribution_equals_the_table_entry() {
        assert_eq!(contribution(0xff, 23), contributions(23)[0xff]);
        assert_eq!(contribution(0x5a, 1), contributions(1)[0x5a]);
        assert_eq!(contribution(0, 4000), 0);
    }

    #[test]
    fn four_changed_bytes_are_recovered() {
        for bytes_after in [0, 1, 16, 36, 1060, 4128, 65_535] {
            let table = Rewind::new(bytes_after);
            let mut message = vec![0x5a; 4 + bytes_after];
            let before = crc32fast::hash(&message);
            let change = [0x12, 0x34, 0x40, 0x80];
            for (byte, change) in message.iter_mut().zip(change) {
                *byte ^= change;
            }
            let difference = before ^ crc32fast::hash(&message);
            assert_eq!(table.rewind(difference).to_le_bytes(), change);
        }
    }
}
