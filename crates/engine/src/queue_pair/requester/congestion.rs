//! Control of congestion: how much may be unacknowledged, and how fast it is sent.
//!
//! A [control](CongestionControl) is told what is sent, acknowledged and lost, and is asked for a window and a pause between packets.
//! [`Local`] is for peers on this host, where only the receiver's buffer can overflow. [`Model`] and [`Cubic`] are for the network.
//! The unit is the packet. A packet of a READ is one of its response.

mod cubic;
mod delivery;
mod local;
mod model;
mod notification;

use std::time::{Duration, Instant};

use wire::Psn;

use cubic::Cubic;
use local::Local;
use model::Model;

/// The limits of the send window, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WindowLimits {
    /// The minimum to a peer on this host.
    pub min: u32,
    /// The initial size to a peer on this host.
    pub initial: u32,
    /// The maximum for round trips of up to a millisecond. Longer ones admit as many times more.
    pub max: u32,
}

impl Default for WindowLimits {
    /// Large enough for a fast loopback, small enough for common socket receive buffers.
    fn default() -> Self {
        Self {
            min: 32 << 10,
            initial: 256 << 10,
            max: 1 << 20,
        }
    }
}

/// Which control of congestion applies to peers on other hosts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Congestion {
    /// That of peers on this host: the window doubles until the first loss.
    Local,
    /// The window grows as with TCP CUBIC, and any loss reduces it.
    Cubic,
    /// The window and the pace follow a model of the path: its rate and its round trip. Single losses reduce nothing.
    #[default]
    Model,
}

/// The minimum of a window in packets: with fewer, a single loss is not noticed before a timer expires.
pub(super) const MIN_PACKETS: u32 = 4;

/// The first window to another host, in packets. A larger one, sent at once, may exceed a queue.
const INITIAL_PACKETS: u32 = 32;

/// The maximum number of packets in a window, because small packets cost a receiver more than their
/// bytes.
const MAX_PACKETS: u32 = 2048;

/// How many times the usual maximum a window may have. All of it fits into what a peer keeps.
const MAX_STRETCH: u32 = 16;

/// What an acknowledgement tells.
#[derive(Debug, Clone, Copy)]
pub(super) struct Acknowledged {
    /// The time, unless the acknowledgement came from this device.
    pub(super) now: Option<Instant>,
    /// The first packet that is not acknowledged.
    pub(super) oldest: Psn,
    /// How many packets are newly acknowledged.
    pub(super) packets: u32,
    /// How many were unacknowledged before.
    pub(super) outstanding: u32,
    /// Whether losses are being repaired.
    pub(super) is_repairing: bool,
}

/// What was lost.
#[derive(Debug, Clone, Copy)]
pub(super) enum Loss {
    /// Packets are sent again: how many, and how many in all since the repair began.
    Packets { again: u32, in_repair: u32 },
    /// A response of a READ.
    Response,
    /// Nothing was acknowledged for so long that everything is sent again. A further timeout without progress says nothing about
    /// the rate: the peer or the path is gone.
    Timeout { is_first: bool },
}

/// Decides how much may be unacknowledged, and how fast it is sent.
trait CongestionControl {
    /// A new packet is sent that requests an acknowledgement.
    fn sent(&mut self, _psn: Psn, _now: Instant) {}

    /// Less is sent than could be: the program, or its peer, is the limit. As many packets are unacknowledged.
    fn is_limited_by_program(&mut self, _outstanding: u32) {}

    fn acknowledged(&mut self, told: &Acknowledged);

    fn lost(&mut self, loss: Loss);

    /// The peer has received a packet with a congestion mark.
    fn notified(&mut self) {}

    /// How many packets may be unacknowledged.
    fn window(&self) -> u32;

    /// The time between two packets, if they are to be spread.
    fn pause(&self) -> Option<Duration> {
        None
    }
}

/// The control of one queue pair.
#[derive(Debug)]
enum Control {
    Local(Local),
    Cubic(Box<Cubic>),
    Model(Box<Model>),
}

/// The send window of a queue pair.
#[derive(Debug)]
pub(super) struct SendWindow {
    limits: WindowLimits,
    control: Control,
    /// How many times the usual maximum it may have.
    stretch: u32,
}

impl SendWindow {
    /// The window before the peer is known.
    pub(super) fn new(limits: WindowLimits) -> Self {
        Self {
            limits,
            control: Control::Local(Local::new(limits, 1)),
            stretch: 1,
        }
    }

    /// The window of a connection with packets of `mtu` bytes.
    pub(super) fn start(&mut self, congestion: Congestion, mtu: usize) {
        self.control = match congestion {
            Congestion::Local => Control::Local(Local::new(self.limits, mtu)),
            Congestion::Cubic => Control::Cubic(Box::default()),
            Congestion::Model => Control::Model(Box::default()),
        };
    }

    fn control(&self) -> &dyn CongestionControl {
        match &self.control {
            Control::Local(local) => local,
            Control::Cubic(cubic) => &**cubic,
            Control::Model(model) => &**model,
        }
    }

    fn control_mut(&mut self) -> &mut dyn CongestionControl {
        match &mut self.control {
            Control::Local(local) => local,
            Control::Cubic(cubic) => &mut **cubic,
            Control::Model(model) => &mut **model,
        }
    }

    /// The window in packets of `mtu` bytes.
    pub(super) fn packets(&self, mtu: usize) -> u32 {
        let room = (self.limits.max / mtu as u32).min(MAX_PACKETS);
        let max = (room * self.stretch).max(MIN_PACKETS);
        self.control().window().clamp(MIN_PACKETS, max)
    }

    /// Admits more for longer round trips.
    pub(super) fn stretch(&mut self, shortest_round_trip: Duration) {
        let millis = u32::try_from(shortest_round_trip.as_millis()).unwrap_or(u32::MAX);
        self.stretch = millis.clamp(1, MAX_STRETCH);
    }

    /// The time between two packets, if they are to be spread.
    pub(super) fn pause(&self) -> Option<Duration> {
        self.control().pause()
    }

    pub(super) fn sent(&mut self, psn: Psn, now: Instant) {
        self.control_mut().sent(psn, now);
    }

    pub(super) fn is_limited_by_program(&mut self, outstanding: u32) {
        self.control_mut().is_limited_by_program(outstanding);
    }

    pub(super) fn acknowledged(&mut self, told: &Acknowledged) {
        self.control_mut().acknowledged(told);
    }

    pub(super) fn lost(&mut self, loss: Loss) {
        self.control_mut().lost(loss);
    }

    pub(super) fn notified(&mut self) {
        self.control_mut().notified();
    }
}

#[cfg(test)]
#[expect(
    clippy::disallowed_methods,
    reason = "an `Instant` cannot be constructed; any value will do"
)]
fn start() -> Instant {
    Instant::now()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn window_has_no_more_than_the_usual_maximum_times_the_milliseconds_of_a_round_trip() {
        let mut window = SendWindow::new(WindowLimits {
            min: 1,
            initial: 64 << 20,
            max: 64 << 10,
        });
        window.start(Congestion::Local, 1024);
        assert_eq!(window.packets(1024), 64);
        window.stretch(Duration::from_millis(3));
        assert_eq!(window.packets(1024), 192);
        window.stretch(Duration::from_secs(3));
        assert_eq!(window.packets(1024), 64 * MAX_STRETCH);
    }

    #[test]
    fn window_is_limited_in_packets_of_a_small_mtu() {
        let mut window = SendWindow::new(WindowLimits {
            initial: 1 << 20,
            ..WindowLimits::default()
        });
        window.start(Congestion::Local, 256);
        assert_eq!(window.packets(256), MAX_PACKETS);
    }
}
