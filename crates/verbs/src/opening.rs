//! Which devices there are, how they are opened, and why that fails.

use std::io;
use std::net::IpAddr;
use std::path::PathBuf;

use net::capture::CaptureError;
use net::fault::FaultError;
use net::interface::{Device, DeviceError};
use net::share::JoinError;

/// How a device is opened.
#[derive(Debug, Clone)]
pub struct Options {
    /// Writes every packet to this file.
    pub capture: Option<PathBuf>,
    /// Breaks packets on purpose, as `ROCI_FAULT` says it.
    pub faults: Option<String>,
    /// Whether the kernel may cut batches into packets; much faster.
    pub segmentation: bool,
    /// Whether packets to other processes of this user and machine may go through memory instead of
    /// sockets, if those allow it too: several times as fast, and invisible on the interface.
    pub shortcut: bool,
    /// Says on stderr what went wrong and what to do, a short paragraph each time. See
    /// [`explain`](crate::explain()) for all devices of a process.
    pub explain: bool,
    /// Whether the peers of connections are told when this process dies without closing them. That
    /// takes a second, very small process, which starts with the first connection.
    pub watcher: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            capture: None,
            faults: None,
            segmentation: true,
            shortcut: false,
            explain: false,
            watcher: true,
        }
    }
}

impl Options {
    /// What the environment asks for: `ROCI_PCAP`, `ROCI_FAULT`, `ROCI_GSO=0`, `ROCI_SHORTCUT=1`,
    /// `ROCI_WATCHER=0`, and `ROCI_EXPLAIN=1` (or the program, with [`explain`](crate::explain())).
    #[must_use]
    pub fn from_env() -> Self {
        let text = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
        Self {
            capture: text("ROCI_PCAP").map(PathBuf::from),
            faults: text("ROCI_FAULT"),
            segmentation: text("ROCI_GSO").is_none_or(|value| value != "0"),
            shortcut: text("ROCI_SHORTCUT").is_some_and(|value| value != "0"),
            explain: crate::narrator::is_wanted(),
            watcher: text("ROCI_WATCHER").is_none_or(|value| value != "0"),
        }
    }
}

/// Why a device can't be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// There is no such device.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// Its name is not among the devices.
    #[error(
        "there is no device `{name}`; give an interface, an address or one of: {}",
        known.join(", ")
    )]
    Unknown {
        /// What was asked for.
        name: String,
        /// What there is.
        known: Vec<String>,
    },
    /// Its addresses can't be used.
    #[error(transparent)]
    Join(#[from] JoinError),
    /// The capture can't be written.
    #[error(transparent)]
    Capture(#[from] CaptureError),
    /// The faults can't be understood.
    #[error(transparent)]
    Fault(#[from] FaultError),
    /// The system refuses something basic.
    #[error("the system refuses a thread, an event counter or random numbers: {0}")]
    System(#[source] io::Error),
}

/// The devices of this machine: what `ROCI_DEVICES` lists, or else the user's links and every
/// interface that is up and has an address. Loopback is one of them only if no other interface is
/// connected; [`device`] finds it by its name.
pub fn devices() -> Result<Vec<Device>, OpenError> {
    Ok(net::interface::from_env()?)
}

/// The device that has this address.
pub fn device_at(address: IpAddr) -> Result<Option<Device>, OpenError> {
    let mut reachable = net::interface::reachable()?.into_iter();
    Ok(reachable.find(|device| device.gid_of(address).is_some()))
}

/// The device of this name; an interface or an address is one too, without being listed.
pub fn device(name: &str) -> Result<Device, OpenError> {
    let mut reachable = net::interface::reachable()?.into_iter();
    if let Some(device) = reachable.find(|device| device.name == name) {
        return Ok(device);
    }
    let known = devices()?.into_iter().map(|device| device.name).collect();
    match net::interface::devices(Some(name)) {
        Ok(mut made) if made.len() == 1 => Ok(made.remove(0)),
        _ => Err(OpenError::Unknown {
            name: name.to_owned(),
            known,
        }),
    }
}
