//! The options to open a device, and why it cannot be opened.

use std::error::Error;
use std::io;
use std::path::PathBuf;

use engine::HeldLists;
use net::sharing::JoinError;
use net::socket::interface::DeviceError;
use net::stderr;
use net::tap::capture::{self, CaptureError};
use net::tap::fault::FaultError;

use crate::check::CheckOptions;
use crate::fabric::here;
use crate::shortcut::Shortcut;

/// How many lanes, and groups of queues, a device has at most.
pub(crate) const MAX_LANES: usize = 64;

/// How many lanes a device has at most, if the options do not say it.
const MAX_DEFAULT_LANES: usize = 8;

/// The options to open a device. By default nothing is captured, injected, checked or explained.
///
/// Write `OpenOptions { faults, ..OpenOptions::default() }`, because a later version may add fields.
#[derive(Debug, Clone)]
pub struct OpenOptions {
    /// Whether the name means one of our devices or one of the system.
    pub devices: DeviceChoice,
    /// The capture file for all packets.
    pub capture: Option<PathBuf>,
    /// How large the capture may become.
    pub capture_limits: capture::Limits,
    /// Faults to inject, in the format of `ROCI_FAULT`.
    pub faults: Option<String>,
    /// The log of the injected faults, which several processes can share: one rule for each fault, in the format of `ROCI_FAULT`.
    pub fault_log: Option<PathBuf>,
    /// Whether the kernel segments batches into packets, which is much faster. The default is true.
    pub segmentation: bool,
    /// When packets to queue pairs of this machine go through memory instead of sockets. The default is [`Shortcut::Auto`].
    pub shortcut: Shortcut,
    /// Whether to explain failures on stderr: what happened, why, and what to do. See
    /// [`enable_explanations`](crate::enable_explanations()) for all devices of a process.
    pub explain: bool,
    /// How the program is checked for violations of the rules of the verbs; `None`: not at all. Findings go to
    /// stderr. Failures are explained, too, unless `ROCI_EXPLAIN` is 0.
    pub check: Option<CheckOptions>,
    /// Whether peers get an exit notice when this process dies without closing its connections. This
    /// needs a second, very small process, which starts with the first connection. The default is true.
    pub watcher: bool,
    /// Whether peers that understand it are told what this device holds behind a lost packet, and are asked for that after the
    /// first loss. The default is true.
    pub held_lists: bool,
    /// How many engines the device may run, for programs that use it with several threads. Each has its own lock, sockets
    /// and thread. Queues move to another engine when several threads use them. The default is one for each processor, at most 8.
    pub lanes: usize,
}

/// Which kind of device a name means. This crate has software devices only; the safe API knows both.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DeviceChoice {
    /// As `ROCI_DEVICES` says, and otherwise either; then a name that exists twice is an error.
    #[default]
    Automatic,
    /// One of our devices.
    Software,
    /// One of the system: a NIC, or one that the kernel makes.
    System,
}

impl Default for OpenOptions {
    fn default() -> Self {
        Self {
            devices: DeviceChoice::default(),
            capture: None,
            capture_limits: capture::Limits::default(),
            faults: None,
            fault_log: None,
            segmentation: true,
            shortcut: Shortcut::Auto,
            explain: false,
            check: None,
            watcher: true,
            held_lists: true,
            lanes: default_lanes(),
        }
    }
}

impl OpenOptions {
    /// Options from the environment: `ROCI_PCAP`, `ROCI_PCAP_RING`, `ROCI_PCAP_SNAPLEN`, `ROCI_FAULT`, `ROCI_FAULT_LOG`, `ROCI_GSO=0`, `ROCI_SHORTCUT` (0 or 1),
    /// `ROCI_LANES`, `ROCI_WATCHER=0`, `ROCI_HELD_LISTS=0`, `ROCI_CHECK` (1 or `fail`), `ROCI_CHECK_JSON`, `ROCI_CHECK_PROCESSES`, `ROCI_CHECK_PROFILE`, `ROCI_CHECK_SUPPRESS`, and `ROCI_EXPLAIN=1` (or the program, with [`enable_explanations`](crate::enable_explanations())).
    /// In a simulation they are the default, because the environment must not change what happens.
    #[must_use]
    pub fn from_env() -> Self {
        if here(|machine| machine.run().is_some()) {
            return Self::default();
        }
        let text = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
        let size = |name, least, example| size(name, &text(name)?, least, example);
        let switch = |name| switch(name, text(name).as_deref());
        // Explanations are decided elsewhere, too. A value without a meaning is reported here.
        switch("ROCI_EXPLAIN");
        Self {
            devices: DeviceChoice::default(),
            capture: text("ROCI_PCAP").map(PathBuf::from),
            capture_limits: capture::Limits {
                ring: size("ROCI_PCAP_RING", capture::Limits::LEAST_RING, "64M"),
                snap_length: size(
                    "ROCI_PCAP_SNAPLEN",
                    capture::Limits::LEAST_SNAP_LENGTH,
                    "128",
                )
                .map(|size| u32::try_from(size).unwrap_or(u32::MAX)),
            },
            faults: text("ROCI_FAULT"),
            fault_log: text("ROCI_FAULT_LOG").map(PathBuf::from),
            segmentation: switch("ROCI_GSO").unwrap_or(true),
            shortcut: Shortcut::from_switch(switch("ROCI_SHORTCUT")),
            explain: crate::diagnostics::is_enabled(),
            check: CheckOptions::from_env(),
            watcher: switch("ROCI_WATCHER").unwrap_or(true),
            held_lists: switch("ROCI_HELD_LISTS").unwrap_or(true),
            lanes: lanes(text("ROCI_LANES").as_deref()),
        }
    }

    /// Which peers are told what the device holds behind a lost packet.
    pub(crate) fn peers_to_tell(&self) -> HeldLists {
        if self.held_lists {
            HeldLists::Negotiated
        } else {
            HeldLists::Never
        }
    }
}

/// One lane for each processor, up to a limit.
fn default_lanes() -> usize {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    processors.min(MAX_DEFAULT_LANES)
}

/// How many lanes the environment asks for. An invalid number is reported and not used.
fn lanes(value: Option<&str>) -> usize {
    let usual = default_lanes();
    let Some(value) = value else { return usual };
    match value.parse() {
        Ok(count @ 1..=MAX_LANES) => count,
        _ => {
            stderr::print(format_args!(
                "ROCI_LANES={value} is ignored: give a number from 1 to {MAX_LANES}"
            ));
            usual
        }
    }
}

/// What a switch of the environment says, if it is set. A value that means nothing is reported and not used.
pub(crate) fn switch(name: &str, value: Option<&str>) -> Option<bool> {
    match value? {
        "0" => Some(false),
        "1" => Some(true),
        value => {
            stderr::print(format_args!("{name}={value} is ignored: give 0 or 1"));
            None
        }
    }
}

/// A size of the environment. An invalid one is reported and not used.
fn size(name: &str, value: &str, least: u64, example: &str) -> Option<u64> {
    let size = capture::parse_size(value).filter(|size| *size >= least);
    if size.is_none() {
        stderr::print(format_args!(
            "{name}={value} is ignored: give a size of at least {least}, such as {example}"
        ));
    }
    size
}

/// Why a device cannot be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The devices cannot be listed, or the name is invalid.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// No device has this name.
    #[error("there is no device `{name}`{}", remedy(known))]
    Unknown {
        /// The requested name.
        name: String,
        /// The names of all devices.
        known: Vec<String>,
    },
    /// There is a device of ours and one of the system with this name.
    #[error(
        "there are two devices `{name}`, one of ours and one of the system; set ROCI_DEVICES=software or ROCI_DEVICES=system, or \
         OpenOptions::devices, to choose"
    )]
    Ambiguous {
        /// The name.
        name: String,
    },
    /// A device of the system can't be opened.
    #[error("the device `{name}` of the system can't be opened: {error}")]
    SystemDevice {
        /// The name.
        name: String,
        /// The reason.
        #[source]
        error: Box<dyn Error + Send + Sync>,
    },
    /// An address cannot be used.
    #[error(transparent)]
    Join(#[from] JoinError),
    /// The capture file cannot be written.
    #[error(transparent)]
    Capture(#[from] CaptureError),
    /// The faults cannot be parsed.
    #[error(transparent)]
    Fault(#[from] FaultError),
    /// The log of the faults can't be written.
    #[error("the log of the faults in {} can't be written: {error}; choose another file", path.display())]
    FaultLog {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        error: io::Error,
    },
    /// A system call failed.
    #[error("the system does not provide a thread, a descriptor or random numbers: {0}")]
    System(#[source] io::Error),
}

impl OpenError {
    /// A system call failed. A limit of open files is named.
    pub(crate) fn of_system(error: io::Error) -> Self {
        match JoinError::of_limit(&error) {
            Some(limit) => Self::Join(limit),
            None => Self::System(error),
        }
    }

    /// The number of the system error at its root, or the one that describes it best; `None` if no number does.
    #[must_use]
    pub fn os_error(&self) -> Option<i32> {
        system_error(self).or_else(|| match self {
            Self::Join(error) => Some(error.os_error()),
            _ => None,
        })
    }
}

/// The number of the system error at the root of an error, if there is one: too many open files, for example.
#[must_use]
pub fn system_error(error: &(dyn Error + 'static)) -> Option<i32> {
    let mut cause = Some(error);
    while let Some(error) = cause {
        let said = error.downcast_ref::<io::Error>();
        if let Some(number) = said.and_then(io::Error::raw_os_error) {
            return Some(number);
        }
        cause = error.source();
    }
    None
}

fn remedy(known: &[String]) -> String {
    if known.is_empty() {
        return ", because no interface is up and has an address; bring loopback up with `ip link set lo up`".into();
    }
    let known = known.join(", ");
    format!("; give an interface, an address or one of: {known}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_switch_is_on_or_off_or_not_set() {
        let said = [None, Some("0"), Some("1"), Some("maybe"), Some("2")];
        let meant = said.map(|value| switch("ROCI_WATCHER", value));
        assert_eq!(meant, [None, Some(false), Some(true), None, None]);
    }

    #[test]
    fn a_size_is_used_from_the_least_one_on() {
        let size = |value| size("ROCI_PCAP_SNAPLEN", value, 64, "128");
        assert_eq!((size("64"), size("1K")), (Some(64), Some(1024)));
        assert_eq!((size("63"), size("much")), (None, None));
    }
}
