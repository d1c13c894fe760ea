//! Two hosts that a veth pair connects, and a full disk.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::programs::network::{Host, TestNetworks, VETH, ip};

/// How long processes may take to disappear after their parent or owner.
const EXIT_TIMEOUT: Duration = Duration::from_secs(20);

/// One of the two hosts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Side {
    Server,
    Client,
}

pub(super) struct Cluster {
    // Goes first: nothing may be left in the namespaces when the disk is unmounted.
    test_networks: TestNetworks,
    full_disk: PathBuf,
}

impl Cluster {
    pub(super) fn new(scratch: &Path) -> Result<Self, String> {
        let full_disk = scratch.join("full");
        let failed = |error| format!("{} can't be made: {error}", full_disk.display());
        fs::create_dir(&full_disk).map_err(failed)?;
        let mount = Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=64k", "tmpfs"])
            .arg(&full_disk)
            .status();
        if !mount.is_ok_and(|status| status.success()) {
            return Err("a small tmpfs can't be mounted".into());
        }
        let cluster = Self {
            test_networks: TestNetworks::with_namespaces(0)?,
            full_disk,
        };
        cluster.fill()?;
        Ok(cluster)
    }

    /// Large enough for a few captures to start before the disk is full.
    fn fill(&self) -> Result<(), String> {
        let made = File::create(self.full_disk.join("ballast"));
        let filled = made.and_then(|mut file| file.write_all(&[1; 48 << 10]));
        filled.map_err(|error| format!("the small disk can't be filled: {error}"))
    }

    pub(super) fn full_disk(&self) -> &Path {
        &self.full_disk
    }

    pub(super) fn host(&self, side: Side) -> &Host {
        let mut networks = self.test_networks.networks.iter();
        let network = networks.find(|network| network.name == VETH);
        let network = network.expect("test networks with namespaces have a veth pair");
        match side {
            Side::Server => &network.server,
            Side::Client => &network.client,
        }
    }

    pub(super) fn set_link(&self, side: Side, up: bool) -> Result<(), String> {
        let state = if up { "up" } else { "down" };
        self.ip(side, &format!("link set veth0 {state}"))
    }

    pub(super) fn set_address(&self, side: Side, there: bool) -> Result<(), String> {
        let verb = if there { "add" } else { "delete" };
        let address = &self.host(side).v4;
        self.ip(side, &format!("address {verb} {address}/24 dev veth0"))
    }

    fn ip(&self, side: Side, arguments: &str) -> Result<(), String> {
        let namespace = self.host(side).namespace();
        let namespace = namespace.expect("both ends are in namespaces");
        ip(&format!("-n {namespace} {arguments}"))
    }

    /// No process is left on the hosts.
    pub(super) fn is_empty(&self) -> Result<(), String> {
        let end = Instant::now() + EXIT_TIMEOUT;
        loop {
            let left: Vec<String> = [Side::Server, Side::Client]
                .iter()
                .flat_map(|side| self.processes(*side))
                .collect();
            if left.is_empty() {
                return Ok(());
            }
            if Instant::now() > end {
                let left: Vec<String> = left.iter().map(|id| describe(id)).collect();
                return Err(format!("processes are left:\n{}", left.join("\n")));
            }
            sleep(Duration::from_millis(100));
        }
    }

    fn processes(&self, side: Side) -> Vec<String> {
        let namespace = self.host(side).namespace().unwrap_or_default();
        let listed = Command::new("ip")
            .args(["netns", "pids", namespace])
            .output();
        let listed = listed.map(|output| output.stdout).unwrap_or_default();
        let listed = String::from_utf8_lossy(&listed);
        listed.split_whitespace().map(str::to_owned).collect()
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for process in [Side::Server, Side::Client]
            .iter()
            .flat_map(|side| self.processes(*side))
        {
            let _ = Command::new("kill").args(["-KILL", &process]).status();
        }
        let _ = Command::new("umount")
            .arg("--lazy")
            .arg(&self.full_disk)
            .status();
    }
}

fn describe(process: &str) -> String {
    let line = fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default();
    let line = String::from_utf8_lossy(&line).replace('\0', " ");
    format!("{process}: {line}")
}
