//! Why there is no such device, and what to do.

use std::io;
use std::net::IpAddr;
use std::path::PathBuf;

use super::Device;

/// Why there is no such device, and what to do.
#[derive(Debug, thiserror::Error)]
pub enum DeviceError {
    /// The kernel doesn't answer.
    #[error(
        "cannot list the network interfaces: {error}; is AF_NETLINK forbidden in this sandbox?"
    )]
    Unknown {
        /// What the system said.
        #[source]
        error: io::Error,
    },
    /// The interface doesn't exist.
    #[error("there is no interface `{name}`; this machine has {}", list(known))]
    NoSuchInterface {
        /// What was asked for.
        name: String,
        /// What there is.
        known: Vec<String>,
    },
    /// The interface is switched off.
    #[error("interface {name} is down; bring it up with `ip link set {name} up`")]
    InterfaceDown {
        /// The interface.
        name: String,
    },
    /// The interface has no address, and without one there is no GID.
    #[error("interface {name} has no address; add one with `ip address add ADDRESS dev {name}`")]
    NoAddress {
        /// The interface.
        name: String,
    },
    /// Not even the smallest packet fits.
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
        /// What was asked for.
        address: IpAddr,
    },
    /// Two devices would have the same name.
    #[error("two devices are called `{name}`; give one of them another name")]
    DuplicateName {
        /// The name.
        name: String,
    },
    /// Two devices would have the same address, and a packet belongs to one.
    #[error("{address} is an address of both `{first}` and `{second}`; remove it from one of them")]
    DuplicateAddress {
        /// The address.
        address: IpAddr,
        /// One of the devices.
        first: String,
        /// The other one.
        second: String,
    },
    /// An entry of the list of devices cannot be understood.
    #[error(
        "{}`{entry}`: {problem}; write INTERFACE or ADDRESS+ADDRESS, and NAME= before it if you like", place(*number)
    )]
    BadEntry {
        /// Which one, counted from 1; none if it stands alone.
        number: Option<usize>,
        /// The entry.
        entry: String,
        /// What is wrong.
        problem: String,
    },
    /// A name that programs would trip over.
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
        /// What the system said.
        error: io::Error,
    },
    /// A line in the file of links cannot be understood.
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
        /// What was asked for.
        name: String,
        /// What there is.
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
