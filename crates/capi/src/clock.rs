//! The clocks of completion timestamps.

/// Reads a clock of the system, in nanoseconds.
fn read(clock: libc::clockid_t) -> u64 {
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the kernel fills in the live structure.
    unsafe { libc::clock_gettime(clock, &raw mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// The device's clock, which counts nanoseconds.
pub(crate) fn device() -> u64 {
    read(libc::CLOCK_MONOTONIC)
}

/// The time of day.
pub(crate) fn wall() -> u64 {
    read(libc::CLOCK_REALTIME)
}
