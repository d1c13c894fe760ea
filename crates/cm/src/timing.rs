//! How long things take. Linux rounds the protocol's durations, and so do we, because both sides
//! of a conversation should lose patience at the same time.

use std::time::Duration;

use wire::cm::Timeout;

/// A code as Linux counts it: 4.096 µs · 2^code, taken as 2^(code - 8) milliseconds.
pub(crate) const fn interval(code: u8) -> Duration {
    Duration::from_millis(1 << code.saturating_sub(8))
}

/// The acknowledge timeout for a path: what it takes there and back, and the time that the other
/// device needs. IBA 12.7.34 adds the two; with codes that is the larger one, rounded up only if
/// the other is of about the same size.
pub(crate) const fn ack_timeout(ack_delay: u8, packet_life_time: u8) -> u8 {
    let there_and_back = packet_life_time + 1;
    let (larger, smaller) = if there_and_back >= ack_delay {
        (there_and_back, ack_delay)
    } else {
        (ack_delay, there_and_back)
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

/// How long a packet lives in a RoCE network, if nobody knows better (code 18: about a second).
pub(crate) const PACKET_LIFE_TIME: u8 = 18;

/// How long the other side may take to answer (code 20: about four seconds).
pub(crate) const RESPONSE: Timeout = timeout(20);

/// How long the application may take to answer (code 24: about a minute).
pub(crate) const APPLICATION: Timeout = timeout(24);

/// The longest time to wait for an answer that a peer can ask for, and the longest time-wait (code
/// 21: about eight seconds). Linux takes whatever the peer says, which can be hours. Its own
/// requests say 20.
pub(crate) const LONGEST_RESPONSE: u8 = 21;

/// The longest delay that a peer can ask for with an MRA (code 24: about a minute), which is what
/// Linux asks for.
pub(crate) const LONGEST_DELAY: u8 = APPLICATION.code();

/// How long an accepted request can stay unconfirmed: what the longest response time and all
/// retries add up to. A peer that asks for delays gets no more.
pub(crate) const LONGEST_HALF_OPEN: Duration = Duration::from_millis(16 << (LONGEST_RESPONSE - 8));

/// An interval that a peer asks for, but not more than `longest`.
pub(crate) const fn bounded_interval(code: u8, longest: u8) -> Duration {
    interval(if code < longest { code } else { longest })
}

/// How long to wait before a request that was called stale is sent again. Meanwhile the peer ends
/// the old connection of the queue pair, which takes one round trip.
pub(crate) const STALE_RETRY: Duration = Duration::from_millis(100);

/// How often a message is repeated before the other side counts as unreachable.
pub(crate) const MAX_RETRIES: u8 = 15;

/// For how long an answer is remembered that a repeated request gets again: as long as it may be
/// repeated. A requester that was asked for patience does so fifteen times, every 68 seconds.
pub(crate) const ANSWER_LIFE_TIME: Duration = Duration::from_secs(16 * 68);

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
    fn intervals_are_those_of_linux() {
        assert_eq!(interval(20), Duration::from_millis(4096));
        assert_eq!(interval(18), Duration::from_millis(1024));
        assert_eq!(interval(8), Duration::from_millis(1));
        assert_eq!(interval(0), Duration::from_millis(1));
    }

    #[test]
    fn a_path_and_a_device_of_the_same_speed_add_up() {
        assert_eq!(ack_timeout(15, 18), 19, "what rxe announces");
        assert_eq!(ack_timeout(18, 18), 20);
        assert_eq!(ack_timeout(19, 18), 20);
        assert_eq!(ack_timeout(21, 18), 21);
        assert_eq!(ack_timeout(20, 18), 21);
        assert_eq!(ack_timeout(0, 31), 31);
    }
}
