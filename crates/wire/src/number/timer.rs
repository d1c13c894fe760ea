//! Durations that the protocol encodes as five-bit codes.

use std::fmt;
use std::time::Duration;

const CODES: u8 = 32;

/// How long a requester waits before it retries after an RNR NAK.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct RnrTimer(u8);

impl RnrTimer {
    /// Takes a five-bit code. Code 0 is the longest delay.
    pub const fn new(code: u8) -> Option<Self> {
        if code < CODES {
            Some(RnrTimer(code))
        } else {
            None
        }
    }

    /// Reads the code from the low five bits of a syndrome.
    pub(crate) const fn from_low_bits(byte: u8) -> Self {
        RnrTimer(byte % CODES)
    }

    /// The five-bit code.
    pub const fn code(self) -> u8 {
        self.0
    }

    /// The delay of the code, from 10 µs to 655.36 ms.
    pub const fn delay(self) -> Duration {
        /// IBA "Encoding for RNR NAK Timer Field": each of 32 codes means a delay. The unit here is 10 µs.
        const DELAYS: [u32; CODES as usize] = [
            65536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768,
            1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152,
        ];
        Duration::from_micros(10 * DELAYS[self.0 as usize] as u64)
    }
}

impl fmt::Display for RnrTimer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.delay())
    }
}

/// How long a requester waits for an acknowledgement.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct AckTimeout(u8);

impl AckTimeout {
    /// Takes a five-bit code. Code 0 never times out.
    pub const fn new(code: u8) -> Option<Self> {
        if code < CODES {
            Some(AckTimeout(code))
        } else {
            None
        }
    }

    /// Reads the code from the low five bits of a field.
    pub(crate) const fn from_low_bits(byte: u8) -> Self {
        AckTimeout(byte % CODES)
    }

    /// The five-bit code.
    pub const fn code(self) -> u8 {
        self.0
    }

    /// 4.096 µs · 2^code, or `None` if the requester waits without limit (C9-140).
    pub const fn interval(self) -> Option<Duration> {
        if self.0 == 0 {
            return None;
        }
        Some(Duration::from_nanos(4096 << self.0))
    }
}

impl fmt::Display for AckTimeout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.interval() {
            Some(interval) => write!(f, "{interval:?}"),
            None => f.write_str("never"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn delay(code: u8) -> Duration {
        RnrTimer::new(code).expect("a code").delay()
    }

    // IBA "Encoding for RNR NAK Timer Field"
    #[test]
    fn rnr_delays_match_the_specification() {
        assert_eq!(delay(0), Duration::from_micros(655_360));
        assert_eq!(delay(1), Duration::from_micros(10));
        assert_eq!(delay(12), Duration::from_micros(640));
        assert_eq!(delay(31), Duration::from_micros(491_520));
        assert_eq!(RnrTimer::new(32), None);
    }

    #[test]
    fn rnr_delays_double_every_second_code() {
        for code in 2..30 {
            assert_eq!(delay(code + 2), 2 * delay(code), "code {code}");
        }
    }

    // C9-140
    #[test]
    fn acknowledge_timeouts_are_powers_of_two() {
        let interval = |code| AckTimeout::new(code).and_then(AckTimeout::interval);
        assert_eq!(interval(0), None);
        assert_eq!(interval(1), Some(Duration::from_nanos(8192)));
        assert_eq!(interval(14), Some(Duration::from_nanos(67_108_864)));
        assert_eq!(interval(31), Some(Duration::from_nanos(4096 << 31)));
        assert_eq!(AckTimeout::new(32), None);
    }
}
