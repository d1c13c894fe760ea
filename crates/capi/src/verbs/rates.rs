//! Link rates and their codes.

use std::ffi::c_int;

use crate::entry::entry;

/// A rate: its code, its multiple of 2.5 Gbit/s if that is a whole number, and Mbit/s.
struct Rate {
    code: c_int,
    multiple: Option<c_int>,
    megabits: c_int,
}

const fn rate(code: c_int, multiple: c_int, megabits: c_int) -> Rate {
    Rate {
        code,
        multiple: Some(multiple),
        megabits,
    }
}

/// A rate that is not a whole multiple of 2.5 Gbit/s.
const fn odd_rate(code: c_int, megabits: c_int) -> Rate {
    Rate {
        code,
        multiple: None,
        megabits,
    }
}

const RATES: [Rate; 23] = [
    rate(2, 1, 2_500),
    rate(5, 2, 5_000),
    rate(3, 4, 10_000),
    rate(6, 8, 20_000),
    rate(4, 12, 30_000),
    rate(7, 16, 40_000),
    rate(8, 24, 60_000),
    rate(9, 32, 80_000),
    rate(10, 48, 120_000),
    odd_rate(11, 14_062),
    odd_rate(12, 56_250),
    odd_rate(13, 112_500),
    odd_rate(14, 168_750),
    odd_rate(15, 25_781),
    odd_rate(16, 103_125),
    odd_rate(17, 206_250),
    odd_rate(18, 309_375),
    rate(19, 11, 28_125),
    rate(20, 20, 53_125),
    rate(21, 160, 425_000),
    rate(22, 240, 637_500),
    rate(23, 320, 850_000),
    rate(24, 480, 1_275_000),
];

/// The code for any other rate: the maximum of the port.
const MAX: c_int = 0;

entry! {
    export fn ibv_rate_to_mult(code: c_int) -> c_int {
        Ok(find(|rate| rate.code == code).and_then(|rate| rate.multiple).unwrap_or(-1))
    }

    export fn mult_to_ibv_rate(multiple: c_int) -> c_int {
        Ok(find(|rate| rate.multiple == Some(multiple)).map_or(MAX, |rate| rate.code))
    }

    export fn ibv_rate_to_mbps(code: c_int) -> c_int {
        Ok(find(|rate| rate.code == code).map_or(-1, |rate| rate.megabits))
    }

    export fn mbps_to_ibv_rate(megabits: c_int) -> c_int {
        Ok(find(|rate| rate.megabits == megabits).map_or(MAX, |rate| rate.code))
    }
}

fn find(which: impl Fn(&&Rate) -> bool) -> Option<&'static Rate> {
    RATES.iter().find(which)
}
