//! The device of the tests.

use std::env;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, Ordering};

use rocinante::{Context, DeviceChoice, DeviceKind, OpenOptions};
use system::fixture::{Fixture, use_library};

/// The name of a device of the system; `None`: a loopback address of each test's own.
pub(crate) fn system_device() -> Option<String> {
    if is_ours() {
        return Some(device_of_our_library());
    }
    env::var("ROCI_TEST_DEVICE").ok()
}

/// Whether our C library is in place of the system's.
pub(crate) fn is_ours() -> bool {
    env!("CARGO_PKG_NAME") == "capi"
}

/// Whether it is a device of ours, whichever layer opens it.
pub(crate) fn is_software() -> bool {
    is_ours() || system_device().is_none()
}

/// Whether it is the kernel's Soft-RoCE.
pub(crate) fn is_rxe() -> bool {
    system_device().is_some_and(|name| name.starts_with("rxe"))
}

/// Whether it is the kernel's Soft-iWARP.
pub(crate) fn is_siw() -> bool {
    system_device().is_some_and(|name| name.starts_with("siw"))
}

pub(crate) fn open() -> Context {
    static NEXT: AtomicU8 = AtomicU8::new(1);
    let Some(name) = system_device() else {
        let name = format!("127.93.7.{}", NEXT.fetch_add(1, Ordering::Relaxed));
        return Context::open(&name).expect("a device");
    };
    let options = OpenOptions {
        devices: DeviceChoice::System,
        ..OpenOptions::default()
    };
    Context::open_with(&name, &options).expect("a device")
}

/// Loads our C library as if it were the system's. Its first device is the one that the Rust API lists first.
fn device_of_our_library() -> String {
    static NAME: OnceLock<String> = OnceLock::new();
    let name = NAME.get_or_init(|| {
        let devices = rocinante::devices().expect("a list");
        let mut ours = devices
            .into_iter()
            .filter(|it| it.kind == DeviceKind::Software);
        let device = ours.next().expect("loopback, at least");
        let machine = Fixture::new();
        machine.add_device(&device.name, "1: CA");
        for entry in &device.gids {
            let address = match entry.address {
                IpAddr::V4(address) => address.to_ipv6_mapped(),
                IpAddr::V6(address) => address,
            };
            let (address, interface) = (address.to_string(), &entry.interface.name);
            machine.add_gids(
                &device.name,
                &[(entry.index, &address, "RoCE v2", interface)],
            );
            machine.add_interface(interface, device.mtu);
        }
        use_library(&library(), machine.tree().devices());
        device.name
    });
    name.clone()
}

/// The shared object that cargo makes for the running test.
fn library() -> PathBuf {
    let test = env::current_exe().expect("a test knows where it is");
    let directory = test.parent().expect("a file is in a directory");
    directory.join("librocinante_c.so")
}
