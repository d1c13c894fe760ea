//! Our devices as cards on a PCI bus.

use std::fs;

use net::socket::interface::Device;

use super::Contents;

/// The PCI domain. No known machine has it, so no real card has the addresses of ours. The preloaded library knows
/// the directory, too.
const DOMAIN: &str = "5243";

/// The vendor and device ids of a card.
const MAKER: &str = "0x5243";
const MODEL: &str = "0x0001";

/// The PCI class of a network controller.
const CLASS: &str = "0x020000";

/// The address of a card. Only its bus number differs: some programs take cards that differ in the rest for ports of
/// one card.
fn address(number: usize) -> String {
    format!("{DOMAIN}:{:02x}:00.0", number % 0x100)
}

fn directory(number: usize) -> String {
    format!("sys/devices/pci{DOMAIN}:00/{}", address(number))
}

/// Adds a card, with its network interface and without a NUMA node.
pub(super) fn add(contents: &mut Contents, number: usize, device: &Device) {
    let directory = directory(number);
    let facts = [
        ("class", CLASS),
        ("vendor", MAKER),
        ("device", MODEL),
        ("subsystem_vendor", MAKER),
        ("subsystem_device", MODEL),
        ("numa_node", "-1"),
    ];
    for (name, value) in facts {
        contents.line(format!("{directory}/{name}"), value);
    }
    add_processors(contents, &directory);
    contents.changeable(
        format!("{directory}/uevent"),
        format_args!("PCI_SLOT_NAME={}", address(number)),
    );
    contents.directory("sys/bus/pci");
    contents.link(format!("{directory}/subsystem"), "../../../bus/pci");
    let mut interfaces: Vec<&str> = (device.gids.iter())
        .map(|entry| entry.interface.name.as_str())
        .collect();
    interfaces.sort_unstable();
    interfaces.dedup();
    for name in interfaces {
        contents.link(
            format!("{directory}/net/{name}"),
            format!("/sys/class/net/{name}"),
        );
    }
}

/// The list of all CPUs, because the card has no NUMA node.
fn add_processors(contents: &mut Contents, directory: &str) {
    let online = fs::read_to_string("/sys/devices/system/cpu/online");
    let Some(list) = online.ok().filter(|list| mask(list).is_some()) else {
        return;
    };
    contents.line(format!("{directory}/local_cpulist"), list.trim());
    let mask = mask(&list).unwrap_or_default();
    contents.line(format!("{directory}/local_cpus"), mask);
}

/// The CPU mask of a list such as `0-3,6`, the highest first, in groups of 32 bits.
fn mask(list: &str) -> Option<String> {
    let mut groups = Vec::<u32>::new();
    for range in list.trim().split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last) = (first.parse::<u16>().ok()?, last.parse::<u16>().ok()?);
        for processor in first..=last {
            let group = usize::from(processor / 32);
            groups.resize(groups.len().max(group + 1), 0);
            groups[group] |= 1 << (processor % 32);
        }
    }
    let groups = groups.iter().rev().map(|group| format!("{group:08x}"));
    Some(groups.collect::<Vec<_>>().join(","))
}

/// Adds a class device to a card, and returns the directory for its files.
pub(super) fn hang(contents: &mut Contents, number: usize, class: &str, name: &str) -> String {
    let address = address(number);
    let directory = format!("{}/{class}/{name}", directory(number));
    let from_class = directory.replacen("sys/", "../../", 1);
    contents.link(format!("sys/class/{class}/{name}"), from_class);
    contents.link(format!("{directory}/device"), format!("../../../{address}"));
    contents.link(
        format!("{directory}/subsystem"),
        format!("../../../../../class/{class}"),
    );
    directory
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processors_are_bits_in_groups_of_32() {
        assert_eq!(mask("0-1\n").as_deref(), Some("00000003"));
        assert_eq!(mask("0,3-4").as_deref(), Some("00000019"));
        assert_eq!(mask("0-32").as_deref(), Some("00000001,ffffffff"));
        assert_eq!(mask("?"), None);
    }
}
