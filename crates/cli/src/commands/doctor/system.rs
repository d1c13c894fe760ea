//! Checks of the system: interfaces, ports, permissions.

use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;

use net::restriction_check;
use net::restrictions::Restriction;
use net::sharing::RuntimeDirectory;
use net::socket::interface::{Device, LinkState};
use net::socket::{Receiver, SocketError};
use net::watcher::Watcher;
use rocinante::{Context, OpenOptions};
use wire::ROCE_PORT;

use super::{Check, network};
use crate::commands::run;
use crate::find_device;
use crate::free_loopback_address;
use crate::output::count;

/// The libraries for programs that `roci run` starts. Other commands work without them.
pub(super) fn libraries() -> Check {
    const CHECK: &str = "libraries";
    match run::find_libraries() {
        Ok(directory) => Check::ok(
            CHECK,
            format!("`roci run` uses those in {}", directory.display()),
        ),
        Err(error) => Check::warn(
            CHECK,
            error.to_string(),
            "`roci run` and `roci env` fail without them",
        ),
    }
}

/// The devices and their MTUs.
pub(super) fn devices() -> Vec<Check> {
    match find_device::all() {
        Err(error) => vec![Check::fail(
            "devices",
            error.to_string(),
            "without devices nothing else works; correct this first",
        )],
        Ok(devices) if devices.is_empty() => vec![Check::fail(
            "devices",
            "no interface is up and has an address",
            "bring loopback up with `ip link set lo up`",
        )],
        Ok(devices) => devices.iter().map(describe).collect(),
    }
}

fn describe(device: &Device) -> Check {
    let interface = device
        .interface
        .as_ref()
        .map_or("several interfaces", |id| &id.name);
    let text = format!(
        "{} on {interface}, {}, interface MTU {}, path MTU {}",
        device.name,
        count(device.gids.len(), "address", "addresses"),
        device.mtu,
        device.active_mtu
    );
    if device.state == LinkState::Down {
        let advice = format!("nothing is connected to {interface}; check the cable or the peer");
        return Check::warn("device", text, advice);
    }
    Check::ok("device", text)
}

/// UDP port 4791 at every address of every device.
pub(super) fn ports() -> Vec<Check> {
    let devices = find_device::all().unwrap_or_default();
    let addresses: Vec<IpAddr> = devices
        .iter()
        .flat_map(|device| device.gids.iter().map(|entry| entry.address))
        .collect();
    let mut findings = Vec::new();
    let mut free = 0;
    for &address in &addresses {
        match bind(address) {
            Err(error) => findings.push(held_port(address, &error)),
            Ok(socket) if network::arrives(&socket) => free += 1,
            Ok(_) => findings.push(blocked_port(address)),
        }
    }
    if free > 0 {
        let text = format!(
            "UDP {ROCE_PORT} is free on {}",
            count(free, "address", "addresses")
        );
        findings.push(Check::ok("port", text));
    }
    findings
}

fn bind(address: IpAddr) -> Result<Receiver, SocketError> {
    Receiver::bind(SocketAddr::new(address, ROCE_PORT))
}

/// Whether a port that is in use can be shared.
fn held_port(address: IpAddr, error: &SocketError) -> Check {
    if Context::open(&address.to_string()).is_ok() {
        let text = format!("UDP {ROCE_PORT} on {address} is shared with other processes of yours");
        return Check::ok("port", text);
    }
    let advice = "end the process that holds the port, or use another address";
    Check::fail("port", error.to_string(), advice)
}

fn blocked_port(address: IpAddr) -> Check {
    Check::fail(
        "port",
        format!(
            "a packet to UDP {ROCE_PORT} on {address} did not arrive, though it was sent from this machine"
        ),
        format!(
            "a firewall drops it: `nft list ruleset` or `iptables -S` shows the rules; allow UDP port {ROCE_PORT}"
        ),
    )
}

/// How many files a program may open: each device takes several.
pub(super) fn open_files() -> Check {
    const CHECK: &str = "open files";
    const RAISE: &str = "raise the limit with `ulimit -n 1024`";
    /// EMFILE.
    const TOO_MANY: i32 = 24;
    let limits = fs::read_to_string("/proc/self/limits").unwrap_or_default();
    let Some(limit) = soft_limit(&limits, "Max open files") else {
        return Check::ok(CHECK, "there is no limit");
    };
    let before = open_descriptors();
    let opened = free_loopback_address::open(None, &OpenOptions::from_env());
    let taken = open_descriptors().saturating_sub(before);
    match opened {
        Err(error) if error.os_error() == Some(TOO_MANY) => {
            let text = format!("a program may open {limit}, which is too few for a device");
            Check::fail(CHECK, text, RAISE)
        }
        // Other checks say why there is no device.
        Err(_) => Check::ok(CHECK, format!("a program may open {limit}")),
        Ok(_) => {
            let text =
                format!("a program may open {limit}, and a device with one address takes {taken}");
            // A thread may have a lane of its own, with as many descriptors, and the program has files, too.
            if limit < 4 * (before + taken) {
                Check::warn(CHECK, text, RAISE)
            } else {
                Check::ok(CHECK, text)
            }
        }
    }
}

fn soft_limit(limits: &str, name: &str) -> Option<usize> {
    let line = limits.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}

fn open_descriptors() -> usize {
    fs::read_dir("/proc/self/fd").map_or(0, Iterator::count)
}

/// The kernel's Soft-RoCE uses the port at all addresses.
pub(super) fn kernel_module() -> Check {
    if !Path::new("/sys/module/rdma_rxe").exists() {
        return Check::ok(
            "rdma_rxe",
            "the kernel's Soft-RoCE is not loaded, so it holds no port",
        );
    }
    let text = "the kernel's Soft-RoCE is loaded, and holds the port while it has a link";
    let advice = "if the port is taken, run `sudo rdma link delete NAME`, or `sudo rmmod rdma_rxe`";
    Check::warn("rdma_rxe", text, advice)
}

/// The runtime directory, where processes that share an address find each other.
pub(super) fn runtime_directory() -> Check {
    let check = "runtime directory";
    match RuntimeDirectory::of_user() {
        Err(error) => Check::fail(
            check,
            error.to_string(),
            "no device can be opened without it",
        ),
        Ok(directory) => {
            let path = directory.path().display();
            Check::ok(check, format!("{path} is yours alone and can be written"))
        }
    }
}

/// What the system forbids, and what happens instead.
pub(super) fn restrictions() -> Vec<Check> {
    let check = "sandbox";
    let restrictions = Restriction::ALL
        .into_iter()
        .filter(|restriction| restriction_check::exists(*restriction));
    let findings: Vec<_> = restrictions
        .map(|restriction| Check::warn(check, restriction.consequence(), restriction.advice()))
        .collect();
    if findings.is_empty() {
        vec![Check::ok(check, "nothing that devices use is forbidden")]
    } else {
        findings
    }
}

/// Whether peers are notified when a process dies.
pub(super) fn watcher() -> Check {
    let check = "end of process";
    if !OpenOptions::from_env().watcher {
        let text = "peers are not notified when a process dies: ROCI_WATCHER is 0";
        return Check::ok(check, text);
    }
    match Watcher::of_process() {
        Ok(_) => Check::ok(check, "peers are notified when a process dies"),
        Err(error) => Check::warn(
            check,
            format!("peers are not notified when a process dies: {error}"),
            "disconnect before a program ends, or its peers wait forever",
        ),
    }
}
