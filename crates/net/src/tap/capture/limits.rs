//! How large a capture may become.

/// How large a capture may become.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// The maximum size in bytes of the capture. It then consists of two files, each with half of it: the newest
    /// packets are in the file, and those before in one with `-earlier` in its name. `None`: no limit.
    pub ring: Option<u64>,
    /// How many bytes of each packet are kept, from its IP header on. `None`: all.
    pub snap_length: Option<u32>,
}

impl Limits {
    /// The smallest ring: several packets must fit into half of it.
    pub const LEAST_RING: u64 = 1 << 20;

    /// The smallest snap length: the headers of IPv6, UDP and most requests.
    pub const LEAST_SNAP_LENGTH: u64 = 96;
}

/// A number of bytes from a text such as `512`, `96K`, `64M` or `2G`. The units are powers of 1024.
#[must_use]
pub fn parse_size(text: &str) -> Option<u64> {
    let text = text.trim();
    let digits = text.trim_end_matches(|letter: char| !letter.is_ascii_digit());
    let shift = match &*text[digits.len()..].to_ascii_lowercase() {
        "" | "b" => 0,
        "k" | "kb" | "kib" => 10,
        "m" | "mb" | "mib" => 20,
        "g" | "gb" | "gib" => 30,
        _ => return None,
    };
    let number: u64 = digits.parse().ok()?;
    number.checked_mul(1 << shift)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_units() {
        assert_eq!(parse_size("512"), Some(512));
        assert_eq!(parse_size("96k"), Some(96 << 10));
        assert_eq!(parse_size("64M"), Some(64 << 20));
        assert_eq!(parse_size("2 GiB"), None);
        assert_eq!(parse_size("2GiB"), Some(2 << 30));
        for wrong in ["", "M", "-1", "1.5M", "64T", "99999999999G"] {
            assert_eq!(parse_size(wrong), None, "{wrong}");
        }
    }
}
