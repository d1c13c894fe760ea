//! Timeouts. They are rounded as Linux rounds them, so that both sides time out at the same time.

use std::time::Duration;

use wire::cm::Timeout;

/// The duration of a timeout code as Linux computes it: 4.096 µs · 2^code, rounded to 2^(code - 8)
/// milliseconds.
pub(crate) const fn interval(code: u8) -> Duration {
    Duration::from_millis(1 << code.saturating_sub(8))
}

/// The acknowledge timeout of a path is the round trip plus the acknowledge delay of the remote device (IBA 12.7.34).
/// With codes the sum is the larger code, plus one if the smaller
/// code is about as large.
pub(crate) const fn ack_timeout(ack_delay: u8, packet_lifetime: u8) -> u8 {
    let round_trip = packet_lifetime + 1;
    let (larger, smaller) = if round_trip >= ack_delay {
        (round_trip, ack_delay)
    } else {
        (ack_delay, round_trip)
    };
    let sum = if smaller + 1 >= larger {
        larger + 1
    } else {
        larger
    };
    if sum > LARGEST_CODE {
        LARGEST_CODE
    } else {
        sum
    }
}

/// The largest code that five bits hold.
pub(crate) const LARGEST_CODE: u8 = 31;

/// The default packet lifetime of a RoCE network (code 18: about a second).
pub(crate) const PACKET_LIFETIME: u8 = 18;

/// How long the peer may take to answer (code 20: about four seconds).
pub(crate) const RESPONSE: Timeout = timeout(20);

/// How long the application may take to answer (code 24: about a minute).
pub(crate) const APPLICATION: Timeout = timeout(24);

/// The longest response timeout that a peer can ask for, and the longest time-wait (code 21: about
/// eight seconds). Linux accepts any value, which can be hours. Its own requests contain 20.
pub(crate) const MAX_RESPONSE_CODE: u8 = 21;

/// The longest delay that a peer can ask for with an MRA (code 24: about a minute). Linux asks for
/// this value.
pub(crate) const MAX_MRA_CODE: u8 = APPLICATION.code();

/// How long an accepted request can stay unconfirmed: the longest response timeout times the number
/// of transmissions. An MRA does not extend it.
pub(crate) const MAX_HALF_OPEN_TIME: Duration =
    Duration::from_millis(16 << (MAX_RESPONSE_CODE - 8));

/// The same while more than half of the half-open requests that are allowed exist, in total or from the source: strangers who never
/// confirm must not keep others out for minutes.
pub(crate) const CROWDED_HALF_OPEN_TIME: Duration = Duration::from_secs(4);

/// The interval that a peer asks for, at most that of `longest`.
pub(crate) const fn bounded_interval(code: u8, longest: u8) -> Duration {
    interval(if code < longest { code } else { longest })
}

/// How long to wait before a request that was rejected as stale is sent again. Meanwhile the peer
/// ends the old connection of the queue pair, which takes one round trip.
pub(crate) const STALE_RETRY_DELAY: Duration = Duration::from_millis(100);

/// When a message is retransmitted for the first times, after it was sent. Linux waits for the whole
/// response interval, four to six seconds. A peer answers an early copy as it answers a late one, so
/// one lost message delays a connection by 1.5 seconds. All further retransmissions are those of Linux.
///
/// An address that several processes share rejects a request for a service that none of them has
/// after one second. The first retransmission comes later than that.
pub(crate) const EARLY_RETRANSMISSIONS: [Duration; 2] =
    [Duration::from_millis(1500), Duration::from_secs(3)];

/// How long the DREQ of a destroyed id is retransmitted, as long as the watcher sends that of a dead
/// process. Linux sends it once.
pub(crate) const DESTROYED_DREQ_TIME: Duration = Duration::from_secs(15);

/// How many times a message is retransmitted before the peer counts as unreachable.
pub(crate) const MAX_RETRIES: u8 = 15;

/// How long a final response is remembered: as long as its request may be retransmitted. After an MRA,
/// a requester retransmits fifteen times, every 68 seconds.
pub(crate) const RESPONSE_LIFETIME: Duration = Duration::from_secs(16 * 68);

const fn timeout(code: u8) -> Timeout {
    match Timeout::new(code) {
        Some(timeout) => timeout,
        None => panic!("a code has five bits"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_equal_those_of_linux() {
        assert_eq!(interval(20), Duration::from_millis(4096));
        assert_eq!(interval(18), Duration::from_millis(1024));
        assert_eq!(interval(8), Duration::from_millis(1));
        assert_eq!(interval(0), Duration::from_millis(1));
    }

    // IBA 12.7.34
    #[test]
    fn codes_of_about_the_same_size_round_up() {
        assert_eq!(ack_timeout(15, 18), 19, "what rxe announces");
        assert_eq!(ack_timeout(18, 18), 20);
        assert_eq!(ack_timeout(19, 18), 20);
        assert_eq!(ack_timeout(21, 18), 21);
        assert_eq!(ack_timeout(20, 18), 21);
        assert_eq!(ack_timeout(0, 31), 31);
    }
}
