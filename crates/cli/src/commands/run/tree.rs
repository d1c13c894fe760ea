//! What programs want to see in `/dev/infiniband` and `/sys/class/infiniband*`.
//!
//! It is written as files into a folder, before which the preloaded library sends them. The contents
//! are those of the kernel for a RoCE device, as far as programs have been seen to look.

use std::path::PathBuf;

use net::interface::{Device, GidEntry, LinkState};

use super::folder::Contents;
use crate::commands::devices::guid;

/// The version of the interface between the kernel and the original library.
const VERBS_VERSION: u32 = 6;

/// A file that is a character device, as programs insist.
const CHARACTER_DEVICE: &str = "/dev/null";

/// The only port.
const PORT: &str = "ports/1";

/// Writes the tree of these devices, and tells where it is.
pub(super) fn write(devices: &[Device]) -> anyhow::Result<PathBuf> {
    contents(devices).publish("tree")
}

fn contents(devices: &[Device]) -> Contents {
    let mut contents = Contents::default();
    for class in ["infiniband", "infiniband_verbs"] {
        contents.folder(format!("sys/class/{class}"));
    }
    contents.line("sys/class/infiniband_verbs/abi_version", VERBS_VERSION);
    contents.link("dev/infiniband/rdma_cm", CHARACTER_DEVICE);
    for (number, device) in devices.iter().enumerate() {
        add_character_device(&mut contents, number, device);
        add_device(&mut contents, number, device);
        add_port(&mut contents, device);
    }
    contents
}

/// The names follow the order of the devices, as in the library.
fn character_device(number: usize) -> String {
    format!("uverbs{number}")
}

fn add_character_device(contents: &mut Contents, number: usize, device: &Device) {
    let name = character_device(number);
    contents.link(format!("dev/infiniband/{name}"), CHARACTER_DEVICE);
    let folder = format!("sys/class/infiniband_verbs/{name}");
    contents.line(format!("{folder}/ibdev"), &device.name);
    contents.line(format!("{folder}/abi_version"), 1);
    add_parent(contents, &format!("{folder}/device"), number, device);
}

fn add_device(contents: &mut Contents, number: usize, device: &Device) {
    let folder = format!("sys/class/infiniband/{}", device.name);
    let guid = guid(device.guid);
    let facts = [
        ("node_type", "1: CA"),
        ("node_guid", &guid),
        ("sys_image_guid", &guid),
        ("node_desc", "rocinante"),
        ("fw_ver", env!("CARGO_PKG_VERSION")),
    ];
    for (name, value) in facts {
        contents.line(format!("{folder}/{name}"), value);
    }
    add_parent(contents, &format!("{folder}/device"), number, device);
}

/// What would be the card: it knows its network interface, and is near no processor in particular.
fn add_parent(contents: &mut Contents, folder: &str, number: usize, device: &Device) {
    contents.line(format!("{folder}/numa_node"), -1);
    contents.folder(format!("{folder}/infiniband/{}", device.name));
    let character_device = character_device(number);
    contents.folder(format!("{folder}/infiniband_verbs/{character_device}"));
    let mut interfaces: Vec<&str> = (device.gids.iter())
        .map(|entry| entry.interface.name.as_str())
        .collect();
    interfaces.sort_unstable();
    interfaces.dedup();
    for name in interfaces {
        contents.link(
            format!("{folder}/net/{name}"),
            format!("/sys/class/net/{name}"),
        );
    }
}

fn add_port(contents: &mut Contents, device: &Device) {
    let folder = format!("sys/class/infiniband/{}/{PORT}", device.name);
    let (state, physical) = match device.state {
        LinkState::Active => ("4: ACTIVE", "5: LinkUp"),
        LinkState::Down => ("1: DOWN", "3: Disabled"),
    };
    let facts = [
        ("state", state),
        ("phys_state", physical),
        ("link_layer", "Ethernet"),
        // One lane of ten gigabits, as the library says: a device in software has no speed.
        ("rate", "10 Gb/sec (1X QDR)"),
        ("lid", "0x0"),
        ("lid_mask_count", "0"),
        ("sm_lid", "0x0"),
        ("sm_sl", "0"),
        ("cap_mask", "0x04010000"),
        ("pkeys/0", "0xffff"),
    ];
    for (name, value) in facts {
        contents.line(format!("{folder}/{name}"), value);
    }
    for entry in &device.gids {
        add_gid(contents, &folder, entry);
    }
    // The kernel has a file for every index; those of the empty ones are one file.
    let mut empty =
        (device.gids.len()..Device::GID_TABLE_LENGTH).map(|index| format!("{folder}/gids/{index}"));
    if let Some(first) = empty.next() {
        contents.line(&first, gid_text([0; 16]));
        empty.for_each(|path| contents.name(path, &first));
    }
}

fn add_gid(contents: &mut Contents, folder: &str, entry: &GidEntry) {
    let index = entry.index;
    contents.line(
        format!("{folder}/gids/{index}"),
        gid_text(entry.gid.bytes()),
    );
    let attributes = format!("{folder}/gid_attrs");
    contents.line(format!("{attributes}/types/{index}"), "RoCE v2");
    contents.line(format!("{attributes}/ndevs/{index}"), &entry.interface.name);
}

/// Eight groups, without any of the abbreviations of IPv6.
fn gid_text(bytes: [u8; 16]) -> String {
    let groups = bytes
        .chunks(2)
        .map(|pair| format!("{:02x}{:02x}", pair[0], pair[1]));
    groups.collect::<Vec<_>>().join(":")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gid_is_written_in_full() {
        let mut bytes = [0; 16];
        bytes[10..].copy_from_slice(&[0xff, 0xff, 10, 0, 0, 1]);
        assert_eq!(gid_text(bytes), "0000:0000:0000:0000:0000:ffff:0a00:0001");
    }
}
