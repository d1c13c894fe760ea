//! The values that a device gives to every queue pair.

use std::time::Duration;

use wire::PathMtu;

use crate::paths::{Congestion, WindowLimits};

/// The settings that a device gives to every queue pair.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Settings {
    pub(crate) active_mtu: PathMtu,
    pub(crate) window: WindowLimits,
    pub(crate) congestion: Congestion,
    pub(crate) advertise_credits: bool,
    pub(crate) min_ack_timeout: Duration,
    pub(crate) max_responder_resources: u8,
}
