//! Interfaces as devices: on made-up machines, on this one, and in a network namespace.

use std::net::IpAddr;
use std::path::PathBuf;
use std::process::Command;

use net::socket::interface::{
    Address, Device, DeviceError, Interface, Link, LinkState, Links, Monitor,
};
use net::socket::interface::{devices, interfaces, select, select_reachable, source_towards};
use wire::PathMtu;

fn ip(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

fn interface(index: u32, name: &str, addresses: &[&str]) -> Interface {
    let address = |text: &&str| {
        let (ip, prefix) = text.split_once('/').expect("address/prefix");
        Address {
            ip: ip.parse().expect("an address"),
            prefix: prefix.parse().expect("a number"),
        }
    };
    Interface {
        name: name.to_owned(),
        index,
        mtu: 1500,
        up: true,
        carrier: true,
        loopback: false,
        mac: Some([0x52, 0x54, 0, 0, 0, index as u8]),
        addresses: addresses.iter().map(address).collect(),
    }
}

fn loopback() -> Interface {
    Interface {
        mtu: 65_536,
        loopback: true,
        mac: None,
        ..interface(1, "lo", &["127.0.0.1/8", "::1/128"])
    }
}

/// Loopback, a card, a card without cable, one that is down, one without address, a narrow one.
fn machine() -> Vec<Interface> {
    let card = [
        "10.0.0.1/24",
        "10.0.0.2/24",
        "fd00::1/64",
        "fe80::5054:ff:fe00:2/64",
    ];
    let unplugged = Interface {
        carrier: false,
        mtu: 9000,
        ..interface(3, "eth1", &["10.1.0.1/24"])
    };
    let down = Interface {
        up: false,
        ..interface(4, "eth2", &["10.2.0.1/24"])
    };
    let narrow = Interface {
        mtu: 300,
        ..interface(6, "tun0", &["10.3.0.1/24"])
    };
    let bare = interface(5, "eth3", &[]);
    vec![
        loopback(),
        interface(2, "eth0", &card),
        unplugged,
        down,
        bare,
        narrow,
    ]
}

fn listed(spec: &str) -> Vec<Device> {
    select(&machine(), &[], Some(spec)).unwrap_or_else(|error| panic!("{spec}: {error}"))
}

fn rejected(spec: &str) -> String {
    match select(&machine(), &[], Some(spec)) {
        Ok(devices) => panic!("{spec} gave {devices:?}"),
        Err(error) => error.to_string(),
    }
}

fn names(devices: &[Device]) -> Vec<&str> {
    devices.iter().map(|device| device.name.as_str()).collect()
}

fn addresses(device: &Device) -> Vec<String> {
    let addresses = device.gids.iter().map(|entry| entry.address.to_string());
    addresses.collect()
}

#[test]
fn every_usable_interface_is_a_device_and_loopback_is_the_last() {
    let devices = select_reachable(&machine(), &[], None).expect("devices");
    assert_eq!(names(&devices), ["roci_eth0", "roci_eth1", "roci_lo"]);
    let [card, unplugged, loopback] = &devices[..] else {
        panic!("three devices");
    };
    assert_eq!(card.active_mtu, PathMtu::Mtu1024);
    assert_eq!(card.state, LinkState::Active);
    assert_eq!(card.guid, 0x5054_00ff_fe00_0002);
    assert_eq!(card.interface.as_ref().map(|i| i.index), Some(2));
    assert_eq!(unplugged.active_mtu, PathMtu::Mtu4096);
    assert_eq!(unplugged.state, LinkState::Down);
    assert_eq!(loopback.active_mtu, PathMtu::Mtu4096);
    assert_eq!(addresses(loopback), ["127.0.0.1", "::1"]);
}

#[test]
fn loopback_is_listed_only_if_nothing_else_leads_outside() {
    let names_of = |machine: &[Interface], links: &[Link]| {
        let devices = select(machine, links, None).expect("devices");
        devices.into_iter().map(|it| it.name).collect::<Vec<_>>()
    };
    let mut machine = machine();
    assert_eq!(names_of(&machine, &[]), ["roci_eth0", "roci_eth1"]);
    let named = Link::new("mine", "lo").expect("a link");
    let named = names_of(&machine, &[named]);
    assert_eq!(named, ["mine", "roci_eth0", "roci_eth1"], "by its name");
    for interface in machine.iter_mut().filter(|it| !it.loopback) {
        interface.carrier = false;
    }
    let unplugged = names_of(&machine, &[]);
    assert_eq!(
        unplugged,
        ["roci_eth0", "roci_eth1", "roci_lo"],
        "unplugged"
    );
    machine.retain(|it| it.loopback);
    assert_eq!(names_of(&machine, &[]), ["roci_lo"]);
    assert_eq!(names(&listed("lo,eth0")), ["roci_lo", "roci_eth0"]);
}

#[test]
fn the_gid_table_begins_as_the_kernels_does() {
    let devices = listed("eth0");
    let card = &devices[0];
    let expected = ["fe80::5054:ff:fe00:2", "10.0.0.1", "10.0.0.2", "fd00::1"];
    assert_eq!(addresses(card), expected);
    for (index, entry) in card.gids.iter().enumerate() {
        assert_eq!(entry.index, index);
        assert_eq!(entry.gid.ip(), Some(entry.address));
        assert_eq!(entry.interface.name, "eth0");
    }
    let mapped = "0000:0000:0000:0000:0000:ffff:0a00:0001";
    assert_eq!(
        card.gid(1).map(|entry| entry.gid.to_string()).as_deref(),
        Some(mapped)
    );
    assert_eq!(card.gid(4), None, "the rest of the table is empty");
    const { assert!(Device::GID_TABLE_LENGTH > 4) };
}

#[test]
fn more_addresses_than_the_table_holds_are_left_out() {
    let all: Vec<String> = (0..300)
        .map(|n| format!("10.{}.{}.1/24", n / 256, n % 256))
        .collect();
    let all: Vec<&str> = all.iter().map(String::as_str).collect();
    let devices = select(&[interface(2, "eth0", &all)], &[], None).expect("devices");
    assert_eq!(devices[0].gids.len(), Device::GID_TABLE_LENGTH);
}

#[test]
fn a_list_names_and_orders_devices() {
    let devices = listed("rxe0=eth0, mlx5_0=127.0.0.2, lo");
    assert_eq!(names(&devices), ["rxe0", "mlx5_0", "roci_lo"]);
    assert_eq!(addresses(&devices[1]), ["127.0.0.2"]);
    assert_eq!(
        devices[1].interface.as_ref().map(|i| i.name.as_str()),
        Some("lo")
    );
    assert_eq!(devices[1].active_mtu, PathMtu::Mtu4096);
}

#[test]
fn one_machine_plays_several_hosts() {
    let devices = listed("a=127.0.0.2+::1,b=127.0.0.3,127.9.9.9");
    assert_eq!(names(&devices), ["a", "b", "roci_127.9.9.9"]);
    assert_eq!(addresses(&devices[0]), ["127.0.0.2", "::1"]);
    let guids: Vec<u64> = devices.iter().map(|device| device.guid).collect();
    assert!(guids.iter().all(|guid| *guid != 0));
    assert!(guids[0] != guids[1] && guids[1] != guids[2] && guids[0] != guids[2]);
    assert_eq!(
        listed("a=127.0.0.2+::1,b=127.0.0.3,127.9.9.9"),
        devices,
        "stable"
    );
}

#[test]
fn a_device_on_two_interfaces_takes_the_smaller_mtu() {
    let devices = listed("a=127.0.0.1+10.0.0.1");
    assert_eq!((devices[0].mtu, &devices[0].interface), (1500, &None));
    assert_eq!(devices[0].gids[1].interface.name, "eth0");
}

#[test]
fn the_error_for_an_impossible_device_says_what_to_do() {
    let expected = [
        (
            "eth9",
            "there is no interface `eth9`; this machine has lo, eth0, eth1, eth2, eth3, tun0",
        ),
        (
            "lo,eth2",
            "interface eth2 is down; bring it up with `ip link set eth2 up`",
        ),
        (
            "10.2.0.1",
            "interface eth2 is down; bring it up with `ip link set eth2 up`",
        ),
        (
            "eth3",
            "interface eth3 has no address; add one with `ip address add ADDRESS dev eth3`",
        ),
        (
            "tun0",
            "interface tun0 has an MTU of 300, RDMA needs 336; raise it with `ip link set tun0 mtu 1500`",
        ),
        (
            "10.3.0.1+127.0.0.1",
            "interface tun0 has an MTU of 300, RDMA needs 336; raise it with `ip link set tun0 mtu 1500`",
        ),
        (
            "10.9.9.9",
            "10.9.9.9 is not an address of this machine; choose one that `ip address` shows, or one of 127.0.0.0/8",
        ),
        (
            "10.0.0.7",
            "10.0.0.7 is not an address of this machine; choose one that `ip address` shows, or one of 127.0.0.0/8",
        ),
        (
            "a=lo,a=eth0",
            "two devices are called `a`; give one of them another name",
        ),
        (
            "a=lo,b=127.0.0.1",
            "127.0.0.1 is an address of both `a` and `b`; remove it from one of them",
        ),
    ];
    for (spec, error) in expected {
        assert_eq!(rejected(spec), error);
    }
}

#[test]
fn the_same_link_local_address_on_two_interfaces_is_two_addresses() {
    let bridge = |index, name| interface(index, name, &["fe80::1/64"]);
    let bridges = [bridge(2, "br0"), bridge(3, "br1")];
    let devices = select(&bridges, &[], None).expect("devices");
    assert_eq!(names(&devices), ["roci_br0", "roci_br1"]);
    let scopes: Vec<_> = devices.iter().map(|d| d.gids[0].interface.index).collect();
    assert_eq!(scopes, [2, 3]);
}

#[test]
fn interfaces_with_one_ethernet_address_have_different_guids() {
    let mut vlan = interface(3, "eth0.100", &["10.7.0.1/24"]);
    vlan.mac = Some([0x52, 0x54, 0, 0, 0, 2]);
    let devices = select(&[interface(2, "eth0", &["10.6.0.1/24"]), vlan], &[], None);
    let devices = devices.expect("devices");
    assert_eq!(names(&devices), ["roci_eth0", "roci_eth0.100"]);
    assert_ne!(devices[0].guid, devices[1].guid);
}

#[test]
fn links_come_first_and_take_their_addresses() {
    let link = |name, target| Link::new(name, target).expect("a link");
    let links = [
        link("rxe0", "eth0"),
        link("gone", "eth9"),
        link("other", "127.0.0.1"),
    ];
    let devices = select_reachable(&machine(), &links, None).expect("devices");
    assert_eq!(names(&devices), ["rxe0", "other", "roci_eth1", "roci_lo"]);
    assert_eq!(addresses(&devices[3]), ["::1"], "the other one is taken");
    let devices = select(&machine(), &links, Some("lo")).expect("devices");
    assert_eq!(names(&devices), ["roci_lo"], "a list is the whole list");
}

/// A file of links that disappears with the test.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> (Self, Links) {
        let directory = std::env::temp_dir().join(format!("roci-{name}-{}", std::process::id()));
        let links = Links::at(directory.join("roci/links"));
        (Scratch(directory), links)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn links_are_kept() {
    let (_scratch, links) = Scratch::new("links");
    let link = |name, target| Link::new(name, target).expect("a link");
    assert_eq!(links.list().expect("no file is no link"), []);
    links.add(&link("rxe0", "eth0"), &machine()).expect("added");
    links
        .add(&link("b", "127.0.0.2+::1"), &machine())
        .expect("added");

    let kept = links.list().expect("a file");
    let kept: Vec<_> = kept.iter().map(ToString::to_string).collect();
    assert_eq!(kept, ["rxe0=eth0", "b=127.0.0.2+::1"]);

    links.remove("rxe0").expect("removed");
    let error = links.remove("rxe0").unwrap_err().to_string();
    assert_eq!(error, "there is no link `rxe0`; there is b");
}

#[test]
fn an_impossible_link_is_not_added() {
    let (_scratch, links) = Scratch::new("rejected");
    let add = |name, target| {
        let link = Link::new(name, target)?;
        links.add(&link, &machine())
    };
    add("a", "eth0").expect("added");
    let exists = add("a", "lo").unwrap_err().to_string();
    assert_eq!(
        exists,
        "there is a link `a` already; remove it first, or choose another name"
    );
    assert!(matches!(
        add("b", "eth9"),
        Err(DeviceError::NoSuchInterface { .. })
    ));
    assert!(matches!(add("b/c", "lo"), Err(DeviceError::BadName { .. })));
    assert!(matches!(
        add("b", "10.0.0.1"),
        Err(DeviceError::DuplicateAddress { .. })
    ));
    assert_eq!(links.list().expect("a file").len(), 1);
}

#[test]
fn a_file_edited_by_hand_is_read_and_its_errors_have_a_line() {
    let (_scratch, links) = Scratch::new("edited");
    std::fs::create_dir_all(links.path().parent().expect("a directory")).expect("created");
    std::fs::write(links.path(), "# mine\n\n  a = lo  \n").expect("written");
    assert_eq!(links.list().expect("a file")[0].to_string(), "a=lo");
    std::fs::write(links.path(), "# mine\na=lo\neth0\n").expect("written");
    let error = links.list().unwrap_err().to_string();
    let expected = "line 3: `eth0`: a link needs a name; write INTERFACE or";
    assert!(error.contains(expected), "{error}");
}

#[test]
fn this_machine_has_loopback() {
    let interfaces = interfaces().expect("interfaces");
    let lo = interfaces
        .iter()
        .find(|interface| interface.loopback)
        .expect("loopback");
    assert_eq!((lo.name.as_str(), lo.index, lo.mac), ("lo", 1, None));
    let has_localhost = lo
        .addresses
        .iter()
        .any(|address| address.ip == ip("127.0.0.1"));
    if !lo.up || !has_localhost {
        println!("skipped: loopback is not up here");
        return;
    }
    let devices = devices(Some("a=127.0.0.2,b=lo")).expect("devices");
    assert_eq!(names(&devices), ["a", "b"]);
    assert_eq!(devices[1].state, LinkState::Active);
}

/// What the test below starts in a namespace of its own.
#[test]
#[ignore = "runs in a network namespace that another test makes"]
fn child_in_a_namespace() {
    let all = devices(Some("d0,lo")).expect("devices");
    assert_eq!(all[0].mtu, 9000);
    assert_eq!(all[0].active_mtu, PathMtu::Mtu4096);
    assert_eq!(all[0].state, LinkState::Active);
    assert_eq!(all[0].guid, 0x0011_22ff_fe33_4455);
    let expected = ["fe80::11:22ff:fe33:4455", "10.5.0.1", "fd05::1"];
    assert_eq!(addresses(&all[0]), expected);
    assert_eq!(all[1].mtu, 65_536);
    assert!(matches!(
        devices(Some("d1")),
        Err(DeviceError::InterfaceDown { .. })
    ));
    changes_are_noticed();
    println!("the namespace is as expected");
}

fn changes_are_noticed() {
    let monitor = Monitor::new().expect("a netlink socket");
    assert!(!monitor.has_changed());
    for change in [
        "address add 10.5.0.2/24 dev d0",
        "link set d0 down",
        "link del d0",
    ] {
        let words = change.split(' ');
        assert!(Command::new("ip").args(words).status().unwrap().success());
        assert!(monitor.has_changed(), "{change}");
        assert!(!monitor.has_changed());
    }
}

#[test]
fn interfaces_of_this_kernel_become_devices() {
    let setup = "set -e
        ip link set lo up
        ip link add d0 type veth peer name p0
        ip link add d1 type veth peer name p1
        ip link set d0 address 02:11:22:33:44:55 mtu 9000 addrgenmode none up
        ip link set p0 up
        ip address add fd05::1/64 dev d0 nodad
        ip address add fe80::11:22ff:fe33:4455/64 dev d0 nodad
        ip address add 10.5.0.1/24 dev d0";
    let namespace = |script: String| {
        let mut command = Command::new("unshare");
        command.args(["--user", "--map-root-user", "--net", "sh", "-c", &script]);
        command.output()
    };
    if !namespace(setup.to_owned()).is_ok_and(|output| output.status.success()) {
        println!("skipped: no network namespace with interfaces here");
        return;
    }
    let test = std::env::current_exe().expect("this test");
    let child = "child_in_a_namespace --exact --ignored --nocapture";
    let output = namespace(format!("{setup}\nexec {} {child}", test.display())).expect("output");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.contains("the namespace is as expected"), "{output:?}");
}

#[test]
fn the_source_towards_a_peer_is_an_address_of_the_route() {
    let peer = "127.0.0.1:4791".parse().expect("an address");
    assert_eq!(source_towards(peer).expect("a route"), ip("127.0.0.1"));
}
