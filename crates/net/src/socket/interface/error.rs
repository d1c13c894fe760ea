//! Errors of devices and links.

use std::io;
use std::net::IpAddr;
use std::path::PathBuf;

use super::Device;

/// Why a device does not exist or can't be used, and what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DeviceError {
    /// The kernel doesn't answer.
    #[error(
        "cannot list the network interfaces: {error}; is AF_NETLINK forbidden in this sandbox?"
    )]
    Unknown {
        /// The error of the system.
        #[source]
        error: io::Error,
    },
    /// The interface doesn't exist.
    #[error("there is no interface `{name}`; this machine has {}", list(known))]
    NoSuchInterface {
        /// The requested name.
        name: String,
        /// The interfaces that exist.
        known: Vec<String>,
    },
    /// The interface is down.
    #[error("interface {name} is down; bring it up with `ip link set {name} up`")]
    InterfaceDown {
        /// The interface.
        name: String,
    },
    /// The interface has no address, so it has no GID.
    #[error("interface {name} has no address; add one with `ip address add ADDRESS dev {name}`")]
    NoAddress {
        /// The interface.
        name: String,
    },
    /// Even the smallest packet does not fit.
    #[error(
        "interface {name} has an MTU of {mtu}, RDMA needs {}; raise it with `ip link set {name} mtu 1500`",
        Device::SMALLEST_MTU
    )]
    MtuTooSmall {
        /// The interface.
        name: String,
        /// Its MTU.
        mtu: u32,
    },
    /// No interface has this address.
    #[error(
        "{address} is not an address of this machine; choose one that `ip address` shows, or one of 127.0.0.0/8"
    )]
    AddressElsewhere {
        /// The requested address.
        address: IpAddr,
    },
    /// Two devices would have the same name.
    #[error("two devices are called `{name}`; give one of them another name")]
    DuplicateName {
        /// The name.
        name: String,
    },
    /// Two devices would have the same address, but a packet belongs to one.
    #[error("{address} is an address of both `{first}` and `{second}`; remove it from one of them")]
    DuplicateAddress {
        /// The address.
        address: IpAddr,
        /// One of the devices.
        first: String,
        /// The other one.
        second: String,
    },
    /// An entry of the list of devices is invalid.
    #[error(
        "{}`{entry}`: {problem}; write INTERFACE or ADDRESS+ADDRESS, and NAME= before it if you like", place(*number)
    )]
    BadEntry {
        /// Its position, counted from 1; `None` if it is not in a list.
        number: Option<usize>,
        /// The entry.
        entry: String,
        /// What is wrong.
        problem: String,
    },
    /// A list asks for the automatic devices and for another one.
    #[error(
        "the list of devices has `software`, which stands for all interfaces, and `{entry}`; remove one of them"
    )]
    SoftwareTwice {
        /// The other entry.
        entry: String,
    },
    /// A name that programs can't handle.
    #[error(
        "`{name}` cannot be the name of a device; use up to 63 letters, digits, `_`, `-` and `.`"
    )]
    BadName {
        /// The name.
        name: String,
    },
    /// The file of links cannot be read or written.
    #[error("cannot use the file of links {}: {error}", path.display())]
    LinkFile {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        error: io::Error,
    },
    /// A line in the file of links is invalid.
    #[error("{}, line {line}: {error}", path.display())]
    BadLink {
        /// The file.
        path: PathBuf,
        /// The line, counted from 1.
        line: usize,
        /// What is wrong.
        error: Box<DeviceError>,
    },
    /// A link of this name exists already.
    #[error("there is a link `{name}` already; remove it first, or choose another name")]
    LinkExists {
        /// The name.
        name: String,
    },
    /// No link of this name exists.
    #[error("there is no link `{name}`; there is {}", list(known))]
    NoSuchLink {
        /// The requested name.
        name: String,
        /// The links that exist.
        known: Vec<String>,
    },
}

fn list(names: &[String]) -> String {
    match names {
        [] => "none".to_owned(),
        names => names.join(", "),
    }
}

fn place(number: Option<usize>) -> String {
    number.map_or_else(String::new, |number| {
        format!("device list, entry {number}, ")
    })
}
