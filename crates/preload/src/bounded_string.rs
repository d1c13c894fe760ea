//! A text of limited length, because nothing may be allocated.

use std::ffi::CStr;

const MAX: usize = libc::PATH_MAX as usize;

/// A text. One that is too long is empty for its reader.
pub(crate) struct Text {
    bytes: [u8; MAX],
    length: usize,
    too_long: bool,
}

impl Text {
    pub(crate) const fn new() -> Self {
        Self {
            bytes: [0; MAX],
            length: 0,
            too_long: false,
        }
    }

    pub(crate) fn join(mut self, more: &[u8]) -> Self {
        let end = self.length + more.len();
        if end >= MAX {
            self.too_long = true;
            return self;
        }
        self.bytes[self.length..end].copy_from_slice(more);
        self.length = end;
        self
    }

    /// Appends a number in decimal digits.
    pub(crate) fn number(self, number: u64) -> Self {
        self.in_base(number, 10, 1)
    }

    /// Appends a number in at least this number of hexadecimal digits.
    pub(crate) fn digits(self, number: u64, least: usize) -> Self {
        self.in_base(number, 16, least)
    }

    fn in_base(self, mut number: u64, base: u64, least: usize) -> Self {
        let mut digits = [b'0'; 20];
        let mut first = digits.len();
        while number > 0 {
            first -= 1;
            digits[first] = b"0123456789abcdef"[(number % base) as usize];
            number /= base;
        }
        let first = first.min(digits.len() - least);
        self.join(&digits[first..])
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        if self.too_long {
            return b"";
        }
        &self.bytes[..self.length]
    }

    /// The text with a zero at its end; `None` if it is too long.
    pub(crate) fn as_c_str(&self) -> Option<&CStr> {
        let text = CStr::from_bytes_until_nul(&self.bytes).ok()?;
        (!self.too_long).then_some(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_texts_are_appended() {
        let text = Text::new().join(b"a").number(0).number(u64::MAX);
        assert_eq!(text.bytes(), b"a018446744073709551615");
        let text = Text::new().digits(0x2f, 1).join(b".").digits(0x2f, 16);
        assert_eq!(text.bytes(), b"2f.000000000000002f");
        assert_eq!(Text::new().digits(0, 1).bytes(), b"0");
    }

    #[test]
    fn a_text_that_is_too_long_is_not_used() {
        let text = Text::new().join(&[b'x'; MAX]).join(b"y");
        assert_eq!(text.as_c_str(), None);
        assert_eq!(text.bytes(), b"");
    }
}
