//! Machines for tests: trees in temporary directories, with devices as the kernel shows them, and a library in place of the
//! system's.

use std::ffi::{CStr, CString};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::{Device, Tree};

/// A library that takes the place of the system's libibverbs and librdmacm in this process, and its devices.
struct StandIn {
    library: CString,
    devices: Vec<Device>,
}

static STAND_IN: OnceLock<StandIn> = OnceLock::new();

/// Uses this library in place of the system's libibverbs and librdmacm, and these devices in place of those that the kernel shows, from now
/// until the process ends. It may be the library of this project. Later calls have no effect, and so has the first one if a library of the system is
/// loaded already.
///
/// # Panics
///
/// If the path has a zero byte.
pub fn use_library(library: &Path, devices: Vec<Device>) {
    STAND_IN.get_or_init(|| StandIn {
        library: CString::new(library.as_os_str().as_bytes()).expect("a path of a file"),
        devices,
    });
}

pub(crate) fn stand_in_library() -> Option<&'static CStr> {
    STAND_IN.get().map(|it| it.library.as_c_str())
}

pub(crate) fn stand_in_devices() -> Option<&'static [Device]> {
    STAND_IN.get().map(|it| &it.devices[..])
}

/// A directory with the files of a machine, removed when it is dropped.
#[derive(Debug)]
pub struct Fixture {
    root: PathBuf,
}

impl Fixture {
    /// A machine without any file.
    ///
    /// # Panics
    ///
    /// If the directory can't be created, as all methods that write.
    #[allow(clippy::new_without_default, reason = "it writes to the disk")]
    pub fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("roci-machine-{}-{number}", std::process::id());
        let root = std::env::temp_dir().join(name);
        let _ = fs::remove_dir_all(&root);
        fs::create_dir_all(&root).expect("a directory");
        Self { root }
    }

    /// A machine with the kernel's Soft-RoCE on `eth0`, as Linux 6.1 shows it.
    pub fn with_rxe(name: &str) -> Self {
        let fixture = Self::new();
        fixture.add_device(name, "1: CA");
        fixture.file(format!("sys/class/infiniband/{name}/parent"), "eth0");
        fixture.add_gids(
            name,
            &[
                (0, "fe80::5054:ff:fe12:3456", "RoCE v2", "eth0"),
                (1, "::ffff:10.0.0.1", "RoCE v2", "eth0"),
            ],
        );
        fixture.add_interface("eth0", 1500);
        fixture
    }

    /// A machine with a NIC whose PCI function is at `slot` and has this driver.
    pub fn with_nic(name: &str, slot: &str, driver: &str) -> Self {
        let fixture = Self::new();
        fixture.add_nic(name, slot, driver);
        fixture.add_gids(
            name,
            &[
                (0, "fe80::5054:ff:fe12:3456", "IB/RoCE v1", "eth0"),
                (1, "fe80::5054:ff:fe12:3456", "RoCE v2", "eth0"),
                (2, "::ffff:10.0.0.1", "IB/RoCE v1", "eth0"),
                (3, "::ffff:10.0.0.1", "RoCE v2", "eth0"),
            ],
        );
        fixture.add_interface("eth0", 9000);
        fixture
    }

    /// Adds a NIC without GIDs.
    pub fn add_nic(&self, name: &str, slot: &str, driver: &str) {
        self.add_device(name, "1: CA");
        self.add_pci_function(slot, driver);
        let device = format!("sys/class/infiniband/{name}");
        self.link(
            format!("{device}/device"),
            &format!("../../../bus/pci/devices/{slot}"),
        );
        self.file(format!("{device}/fw_ver"), "16.35.2000");
        self.file(format!("{device}/board_id"), "MT_0000000013");
    }

    /// Adds a PCI function that is a network card.
    pub fn add_pci_function(&self, slot: &str, driver: &str) {
        let function = format!("sys/bus/pci/devices/{slot}");
        self.file(format!("{function}/class"), "0x020000");
        self.file(format!("sys/bus/pci/drivers/{driver}/uevent"), "");
        self.link(
            format!("{function}/driver"),
            &format!("../../drivers/{driver}"),
        );
    }

    /// Adds a device with one active Ethernet port, and its character device.
    pub fn add_device(&self, name: &str, node_type: &str) {
        let device = format!("sys/class/infiniband/{name}");
        let number = fs::read_dir(self.root.join("dev/infiniband")).map_or(0, Iterator::count);
        for (file, text) in [
            ("node_type", node_type),
            ("node_guid", "5054:00ff:fe12:3456"),
            ("fw_ver", ""),
            ("ports/1/state", "4: ACTIVE"),
            ("ports/1/phys_state", "5: LinkUp"),
            ("ports/1/link_layer", "Ethernet"),
            ("ports/1/rate", "100 Gb/sec (4X EDR)"),
            ("ports/1/lid", "0x0"),
        ] {
            self.file(format!("{device}/{file}"), text);
        }
        let verbs = format!("sys/class/infiniband_verbs/uverbs{number}");
        self.file(format!("{verbs}/ibdev"), name);
        self.file(format!("dev/infiniband/uverbs{number}"), "");
    }

    /// Fills entries of the GID table of port 1: index, address, type and interface.
    pub fn add_gids(&self, device: &str, entries: &[(usize, &str, &str, &str)]) {
        let port = format!("sys/class/infiniband/{device}/ports/1");
        for (index, address, kind, interface) in entries {
            let address: std::net::Ipv6Addr = address.parse().expect("an address");
            let groups = address.segments().map(|group| format!("{group:04x}"));
            self.file(format!("{port}/gids/{index}"), &groups.join(":"));
            self.file(format!("{port}/gid_attrs/types/{index}"), kind);
            self.file(format!("{port}/gid_attrs/ndevs/{index}"), interface);
        }
    }

    /// Adds a network interface.
    pub fn add_interface(&self, name: &str, mtu: u32) {
        self.file(format!("sys/class/net/{name}/mtu"), &mtu.to_string());
        self.file(format!("sys/class/net/{name}/operstate"), "up");
    }

    /// Writes a file, with the end of the line that the kernel adds.
    pub fn file(&self, relative: impl AsRef<Path>, text: &str) {
        let path = self.root.join(relative);
        fs::create_dir_all(path.parent().expect("a file is in a directory")).expect("a directory");
        fs::write(path, format!("{text}\n")).expect("a file");
    }

    /// Removes a file or a directory.
    pub fn remove(&self, relative: impl AsRef<Path>) {
        let path = self.root.join(relative);
        let removed = if path.is_dir() {
            fs::remove_dir_all(path)
        } else {
            fs::remove_file(path)
        };
        removed.expect("it exists");
    }

    fn link(&self, relative: impl AsRef<Path>, target: &str) {
        symlink(target, self.root.join(relative)).expect("a link");
    }

    /// The tree of this machine.
    pub fn tree(&self) -> Tree {
        Tree::at(&self.root)
    }

    /// The directory.
    pub fn path(&self) -> &Path {
        &self.root
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.root);
    }
}
