//! The only port of a device.

use net::socket::interface::{Device, GidEntry, LinkState};
use statistics::{GENERAL, HARDWARE, MESSAGE_FILES};

use super::Contents;
use crate::commands::devices::gid_in_full;

/// For how many milliseconds the kernel keeps counters that it has read.
const COUNTER_LIFESPAN: u32 = 12;

pub(super) fn add(contents: &mut Contents, directory: &str, device: &Device) {
    let (state, physical) = match device.state {
        LinkState::Active => ("4: ACTIVE", "5: LinkUp"),
        LinkState::Down => ("1: DOWN", "3: Disabled"),
    };
    let facts = [
        ("state", state),
        ("phys_state", physical),
        ("link_layer", "Ethernet"),
        // Width 1X at 10 Gbit/s, as the library reports: a software device has no speed of its own.
        ("rate", "10 Gb/sec (1X QDR)"),
        ("lid", "0x0"),
        ("lid_mask_count", "0"),
        ("sm_lid", "0x0"),
        ("sm_sl", "0"),
        ("cap_mask", "0x00010000"),
        ("pkeys/0", "0xffff"),
    ];
    for (name, value) in facts {
        contents.line(format!("{directory}/{name}"), value);
    }
    add_counters(contents, directory);
    add_gids(contents, directory, device);
}

fn add_counters(contents: &mut Contents, directory: &str) {
    // The preloaded library replaces the zero by the present value.
    let general = [("counters", &GENERAL[..]), ("hw_counters", &HARDWARE[..])];
    let messages = MESSAGE_FILES
        .iter()
        .map(|(group, files)| (*group, &files[..]));
    for (group, files) in general.into_iter().chain(messages) {
        for file in files {
            contents.line(format!("{directory}/{group}/{}", file.name), 0);
        }
    }
    let lifespan = format!("{directory}/hw_counters/lifespan");
    contents.changeable(lifespan, COUNTER_LIFESPAN);
}

/// The kernel has files for every index. Those of empty indexes are hard links to one file, which take no
/// space; the preloaded library makes reading them fail.
fn add_gids(contents: &mut Contents, directory: &str, device: &Device) {
    for entry in &device.gids {
        add_gid(contents, directory, entry);
    }
    let empty = device.gids.len()..Device::GID_TABLE_LENGTH;
    let Some(first) = empty.clone().next() else {
        return;
    };
    contents.line(format!("{directory}/gids/{first}"), gid_in_full([0; 16]));
    let attributes = ["gid_attrs/types", "gid_attrs/ndevs"];
    for attribute in attributes {
        contents.empty(format!("{directory}/{attribute}/{first}"));
    }
    for index in empty.skip(1) {
        for table in ["gids"].into_iter().chain(attributes) {
            let table = format!("{directory}/{table}");
            contents.name(format!("{table}/{index}"), format!("{table}/{first}"));
        }
    }
}

fn add_gid(contents: &mut Contents, directory: &str, entry: &GidEntry) {
    let index = entry.index;
    contents.line(
        format!("{directory}/gids/{index}"),
        gid_in_full(entry.gid.bytes()),
    );
    let attributes = format!("{directory}/gid_attrs");
    contents.line(format!("{attributes}/types/{index}"), "RoCE v2");
    contents.line(format!("{attributes}/ndevs/{index}"), &entry.interface.name);
}
