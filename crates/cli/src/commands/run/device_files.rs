//! Device files: the content of `/dev/infiniband` and `/sys/class/infiniband*` for our devices.
//!
//! They are written into a directory (the tree), where the preloaded library looks for them. Names, modes
//! and contents are those of the kernel's `rdma_rxe`; the tests compare the two file by file. In
//! addition each device is on a PCI bus like a card, because programs look up its NUMA node and neighbours there.

mod pci_bus;
mod port;
mod unused_trees;

use std::path::PathBuf;

use net::socket::interface::Device;

use super::content_directory::Contents;
use crate::commands::devices::guid;

/// The prefix of the directories' names.
const KIND: &str = "tree";

/// The reader of a tree.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reader {
    Program,
    Shell,
}

/// The version of the interface between the kernel and the original library.
const VERBS_VERSION: u32 = 6;

/// The version of a driver's part of that interface: that of `rdma_rxe`.
const DRIVER_VERSION: u32 = 2;

/// The version of the interface of the kernel's connection manager.
const CONNECTIONS_VERSION: u32 = 4;

/// The model of the card. Tools print it.
const BOARD: &str = "rocinante";

/// An existing character device, because programs check the file type.
const CHARACTER_DEVICE: &str = "/dev/null";

/// The numbers of the kernel's character devices.
const VERBS_MAJOR: u32 = 231;
const VERBS_FIRST_MINOR: usize = 192;
const CONNECTIONS_NUMBER: (u32, usize) = (10, 124);

/// Writes the tree of these devices, and returns its path. A tree for a program is removed when no process uses it any
/// more; a tree for a shell stays, because the variables that a shell exports are not visible from outside.
pub(super) fn write(devices: &[Device], reader: Reader) -> anyhow::Result<PathBuf> {
    let contents = contents(devices);
    let path = match reader {
        Reader::Shell => contents.publish("shell-tree")?,
        Reader::Program => {
            let path = contents.publish(KIND)?;
            unused_trees::remove_beside(&path, KIND);
            path
        }
    };
    // Resolved paths of the C library are compared with this path.
    Ok(path.canonicalize().unwrap_or(path))
}

fn contents(devices: &[Device]) -> Contents {
    let mut contents = Contents::default();
    for class in ["infiniband", "infiniband_verbs"] {
        contents.directory(format!("sys/class/{class}"));
    }
    contents.line("sys/class/infiniband_verbs/abi_version", VERBS_VERSION);
    add_connection_manager(&mut contents);
    for (number, device) in devices.iter().enumerate() {
        pci_bus::add(&mut contents, number, device);
        add_character_device(&mut contents, number, device);
        add_device(&mut contents, number, device);
    }
    contents
}

fn add_connection_manager(contents: &mut Contents) {
    let directory = "sys/devices/virtual/misc/rdma_cm";
    let name = "infiniband/rdma_cm";
    contents.link(
        "sys/class/misc/rdma_cm",
        "../../devices/virtual/misc/rdma_cm",
    );
    contents.line(format!("{directory}/abi_version"), CONNECTIONS_VERSION);
    contents.link(format!("{directory}/subsystem"), "../../../../class/misc");
    add_number(contents, directory, CONNECTIONS_NUMBER, name);
    contents.link(format!("dev/{name}"), CHARACTER_DEVICE);
}

/// The device names, numbered in the order of the devices, as in the library.
fn character_device(number: usize) -> String {
    format!("uverbs{number}")
}

fn add_character_device(contents: &mut Contents, number: usize, device: &Device) {
    let name = character_device(number);
    let directory = pci_bus::hang(contents, number, "infiniband_verbs", &name);
    contents.line(format!("{directory}/ibdev"), &device.name);
    contents.line(format!("{directory}/abi_version"), DRIVER_VERSION);
    let node = format!("infiniband/{name}");
    let numbers = (VERBS_MAJOR, VERBS_FIRST_MINOR + number);
    add_number(contents, &directory, numbers, &node);
    contents.link(format!("dev/{node}"), CHARACTER_DEVICE);
}

/// The `uevent` file of a character device.
fn add_number(contents: &mut Contents, directory: &str, numbers: (u32, usize), name: &str) {
    let (major, minor) = numbers;
    contents.line(format!("{directory}/dev"), format_args!("{major}:{minor}"));
    let event = format!("MAJOR={major}\nMINOR={minor}\nDEVNAME={name}\nDEVMODE=0666");
    contents.changeable(format!("{directory}/uevent"), event);
}

fn add_device(contents: &mut Contents, number: usize, device: &Device) {
    let directory = pci_bus::hang(contents, number, "infiniband", &device.name);
    let guid = guid(device.guid);
    let parent = device.gids.first().map(|entry| &*entry.interface.name);
    let facts = [
        ("node_type", "1: CA"),
        ("node_guid", &guid),
        ("sys_image_guid", &guid),
        ("fw_ver", env!("CARGO_PKG_VERSION")),
        ("board_id", BOARD),
        ("parent", parent.unwrap_or_default()),
    ];
    for (name, value) in facts {
        contents.line(format!("{directory}/{name}"), value);
    }
    contents.changeable(format!("{directory}/node_desc"), "rocinante");
    contents.changeable(
        format!("{directory}/uevent"),
        format_args!("NAME={}", device.name),
    );
    port::add(contents, &format!("{directory}/ports/1"), device);
}
