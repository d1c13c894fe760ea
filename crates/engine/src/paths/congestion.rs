//! Control of congestion on a path: how much may be unacknowledged, and how fast it is sent.
//!
//! A [control](CongestionControl) is told what is acknowledged and lost, and is asked for a window and a pause between packets.
//! The unit is the packet. A packet of a READ is one of its response.

mod cubic;
mod model;
mod notification;

use std::time::{Duration, Instant};

use super::delivery::Sample;
use cubic::Cubic;
use model::Model;

/// Which control of congestion applies to peers on other hosts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Congestion {
    /// That of peers on this host: the window of each queue pair doubles until the first loss.
    Local,
    /// The window grows as with TCP CUBIC, and any loss reduces it.
    Cubic,
    /// The window and the pace follow a model of the path: its rate and its round trip. Single losses reduce nothing.
    #[default]
    Model,
}

/// The minimum of a window in packets: with fewer, a single loss is not noticed before a timer expires.
pub(crate) const MIN_PACKETS: u32 = 4;

/// The first window to another host, in packets. A larger one, sent at once, may exceed a queue.
const INITIAL_PACKETS: u32 = 32;

/// What an acknowledgement tells.
#[derive(Debug, Clone, Copy)]
pub(super) struct Acknowledged {
    pub(super) now: Instant,
    /// How many packets are newly acknowledged.
    pub(super) packets: u32,
    /// How many were unacknowledged before.
    pub(super) outstanding: u32,
    /// Whether losses are being repaired.
    pub(super) is_repairing: bool,
    /// How many packets were acknowledged in all.
    pub(super) delivered: u64,
    pub(super) sample: Option<Sample>,
}

/// What was lost.
#[derive(Debug, Clone, Copy)]
pub(super) enum PathLoss {
    /// Packets are sent again. It is new if no loss of the same round trip was told before.
    Packets { again: u32, is_new: bool },
    /// Nothing was acknowledged for so long that everything is sent again.
    Silence,
}

/// Decides how much may be unacknowledged, and how fast it is sent.
pub(super) trait CongestionControl {
    fn acknowledged(&mut self, told: &Acknowledged);

    fn lost(&mut self, loss: PathLoss);

    /// The peer has received a packet with a congestion mark.
    fn notified(&mut self);

    /// How many packets may be unacknowledged.
    fn window(&self) -> u32;

    /// The time between two packets, if they are to be spread.
    fn pause(&self) -> Option<Duration>;
}

/// The control of one path.
#[derive(Debug)]
pub(super) enum Control {
    Cubic(Box<Cubic>),
    Model(Box<Model>),
}

impl Control {
    /// `None` if each queue pair has its own.
    pub(super) fn new(congestion: Congestion) -> Option<Self> {
        match congestion {
            Congestion::Local => None,
            Congestion::Cubic => Some(Self::Cubic(Box::default())),
            Congestion::Model => Some(Self::Model(Box::default())),
        }
    }

    pub(super) fn get(&self) -> &dyn CongestionControl {
        match self {
            Self::Cubic(cubic) => &**cubic,
            Self::Model(model) => &**model,
        }
    }

    pub(super) fn get_mut(&mut self) -> &mut dyn CongestionControl {
        match self {
            Self::Cubic(cubic) => &mut **cubic,
            Self::Model(model) => &mut **model,
        }
    }
}

#[cfg(test)]
#[expect(
    clippy::disallowed_methods,
    reason = "an `Instant` cannot be constructed; any value will do"
)]
pub(super) fn start() -> Instant {
    Instant::now()
}
