//! Formats durations, numbers and names.

use std::fmt;

use wire::Psn;

use crate::connection::{Connection, Endpoint, QueuePair};
use crate::connection_end::Side;
use crate::typed_index::ConnectionId;

/// A duration in nanoseconds, with three digits and the unit that fits.
pub(crate) fn duration(nanoseconds: u64) -> String {
    let (value, unit) = match nanoseconds {
        0..1_000 => return format!("{nanoseconds} ns"),
        1_000..1_000_000 => (nanoseconds as f64 / 1e3, "µs"),
        1_000_000..1_000_000_000 => (nanoseconds as f64 / 1e6, "ms"),
        _ => (nanoseconds as f64 / 1e9, "s"),
    };
    let digits = match value {
        ..10.0 => 2,
        10.0..100.0 => 1,
        _ => 0,
    };
    format!("{value:.digits$} {unit}")
}

/// A point in time in nanoseconds, as seconds with six digits.
pub(crate) fn moment(nanoseconds: u64) -> String {
    let microseconds = nanoseconds / 1000;
    format!(
        "{}.{:06}",
        microseconds / 1_000_000,
        microseconds % 1_000_000
    )
}

/// Bytes with the unit that fits.
pub(crate) fn bytes(count: u64) -> String {
    const UNITS: [&str; 4] = ["KiB", "MiB", "GiB", "TiB"];
    if count < 1024 {
        return format!("{count} B");
    }
    let mut value = count as f64 / 1024.0;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    let digits = usize::from(value < 100.0 && value.fract() >= 0.05);
    format!("{value:.digits$} {}", UNITS[unit])
}

/// A number with a comma after every three digits.
#[must_use]
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// `1 packet`, `2 packets`: a number with the right word.
pub(crate) fn count(number: u64, one: &str, many: &str) -> String {
    format!(
        "{} {}",
        grouped(number),
        if number == 1 { one } else { many }
    )
}

/// `once`, `twice`, `3 times`.
pub(crate) fn times(number: u64) -> String {
    match number {
        1 => "once".to_owned(),
        2 => "twice".to_owned(),
        more => format!("{} times", grouped(more)),
    }
}

/// `PSN 7` or `PSN 7–9`.
pub(crate) fn psn_range(first: Psn, span: u64) -> String {
    match span {
        0 | 1 => format!("PSN {first}"),
        _ => format!("PSN {first}–{}", first + (span as u32 - 1)),
    }
}

/// Looks up the names of the ends of connections.
#[derive(Clone, Copy)]
pub(crate) struct Names<'a> {
    pub(crate) endpoints: &'a [Endpoint],
    pub(crate) queue_pairs: &'a [QueuePair],
    pub(crate) connections: &'a [Connection],
}

impl Names<'_> {
    /// One end of a connection: `QP 0x000011 at 10.0.0.1`.
    pub(crate) fn name(&self, connection: ConnectionId, side: Side) -> Name<'_> {
        let end = &self.connections[connection.index()].ends[side.index()];
        Name {
            endpoint: &self.endpoints[end.endpoint.index()],
            queue_pair: end.queue_pair.map(|id| &self.queue_pairs[id.index()]),
        }
    }
}

/// The name of an end.
pub(crate) struct Name<'a> {
    endpoint: &'a Endpoint,
    queue_pair: Option<&'a QueuePair>,
}

impl fmt::Display for Name<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.queue_pair {
            Some(queue_pair) => write!(f, "QP {:#x}", queue_pair.number.value())?,
            None => write!(f, "a queue pair")?,
        }
        write!(f, " at {}", self.endpoint.address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_three_digits_and_a_unit() {
        assert_eq!(duration(0), "0 ns");
        assert_eq!(duration(999), "999 ns");
        assert_eq!(duration(1_500), "1.50 µs");
        assert_eq!(duration(67_100_000), "67.1 ms");
        assert_eq!(duration(268_000_000), "268 ms");
        assert_eq!(duration(6_000_000_000), "6.00 s");
        assert_eq!(moment(1_234_567_890), "1.234567");
    }

    #[test]
    fn large_numbers_have_separators() {
        assert_eq!(grouped(0), "0");
        assert_eq!(grouped(999), "999");
        assert_eq!(grouped(65_536), "65,536");
        assert_eq!(grouped(1_234_567), "1,234,567");
    }

    #[test]
    fn sizes_and_counts_have_units() {
        assert_eq!(bytes(1023), "1023 B");
        assert_eq!(bytes(1024), "1 KiB");
        assert_eq!(bytes(1536), "1.5 KiB");
        assert_eq!(bytes(64 << 20), "64 MiB");
        assert_eq!(count(1, "packet", "packets"), "1 packet");
        assert_eq!(count(1_234, "packet", "packets"), "1,234 packets");
        assert_eq!(
            (times(1), times(3)),
            ("once".to_owned(), "3 times".to_owned())
        );
        assert_eq!(psn_range(Psn::new(0xff_ffff), 2), "PSN 16777215–0");
    }
}
