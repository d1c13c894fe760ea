//! Whether a process can open the devices.

use std::fs::OpenOptions;
use std::io;
use std::path::Path;

use ::system::Device;

use super::{Check, Machine};

const CHECK: &str = "device file";

/// The character devices through which programs use the devices.
pub(super) fn character_devices(machine: &Machine) -> Vec<Check> {
    let devices = machine.devices.iter();
    devices
        .filter_map(|it| character_device(machine, it))
        .collect()
}

fn character_device(machine: &Machine, device: &Device) -> Option<Check> {
    let name = &device.name;
    let Some(file) = &device.character_device else {
        return Some(Check::fail(
            CHECK,
            format!("programs can't use {name}: ib_uverbs is not loaded"),
            "load it with `sudo modprobe ib_uverbs`",
        ));
    };
    let file = format!("dev/infiniband/{file}");
    match open(&machine.tree.path(&file)) {
        Ok(()) => None,
        Err(error) if error.kind() == io::ErrorKind::NotFound => Some(Check::fail(
            CHECK,
            format!("/{file} is missing, so programs here can't use {name}"),
            "pass the device files to the container: `docker run --device=/dev/infiniband`; outside of one, udev makes them",
        )),
        Err(error) => Some(Check::fail(
            CHECK,
            format!("/{file} can't be opened: {error}"),
            permission_advice(machine),
        )),
    }
}

fn permission_advice(machine: &Machine) -> &'static str {
    if machine.tree.text("sys/fs/selinux/enforce").as_deref() == Some("1") {
        "SELinux is enforcing: `sudo ausearch -m avc -ts recent` shows whether it refused this; otherwise give your user \
         access to the file"
    } else {
        "give your user access to the file; the rules of rdma-core for udev do that"
    }
}

fn open(path: &Path) -> io::Result<()> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .open(path)
        .map(drop)
}

/// What `rdma_cm` needs.
pub(super) fn connection_manager(machine: &Machine) -> Check {
    const CHECK: &str = "rdma_cm";
    if !machine.tree.has("sys/class/misc/rdma_cm") {
        return Check::warn(
            CHECK,
            "connections by rdma_cm fail at system devices: rdma_ucm is not loaded",
            "load it with `sudo modprobe rdma_ucm`",
        );
    }
    let file = "dev/infiniband/rdma_cm";
    match open(&machine.tree.path(file)) {
        Ok(()) => Check::ok(CHECK, "programs can connect by rdma_cm at system devices"),
        Err(error) => Check::warn(
            CHECK,
            format!("connections by rdma_cm fail at system devices: /{file}: {error}"),
            "pass the file to the container, with `docker run --device=/dev/infiniband`, or give your user access to it",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixtures::{nic, problem};
    use super::*;

    #[test]
    fn verbs_without_their_module_are_named() {
        let fixture = nic();
        fixture.remove("sys/class/infiniband_verbs/uverbs0");
        let (check, text) = problem(&fixture);
        assert_eq!(check, CHECK);
        assert!(text.contains("ib_uverbs is not loaded"), "{text}");
    }

    #[test]
    fn a_container_without_device_files_is_recognized() {
        let fixture = nic();
        fixture.remove("dev/infiniband/uverbs0");
        let (check, text) = problem(&fixture);
        assert_eq!(check, CHECK);
        assert!(
            text.starts_with("/dev/infiniband/uverbs0 is missing"),
            "{text}"
        );
    }

    #[test]
    fn a_device_file_that_can_not_be_opened_is_named() {
        let fixture = nic();
        fixture.remove("dev/infiniband/uverbs0");
        // A directory can't be opened for writing, even by root.
        fixture.file("dev/infiniband/uverbs0/x", "");
        let (check, text) = problem(&fixture);
        assert_eq!(check, CHECK);
        assert!(text.contains("can't be opened"), "{text}");
        let machine = super::super::fixtures::machine(&fixture);
        assert!(!permission_advice(&machine).contains("SELinux"));
        fixture.file("sys/fs/selinux/enforce", "1");
        assert!(permission_advice(&machine).contains("SELinux"));
    }

    #[test]
    fn a_connection_manager_that_is_missing_is_named() {
        let fixture = nic();
        fixture.remove("dev/infiniband/rdma_cm");
        assert_eq!(problem(&fixture).0, "rdma_cm");
        fixture.remove("sys/class/misc/rdma_cm");
        let (check, text) = problem(&fixture);
        assert_eq!((check, text.contains("rdma_ucm is not")), ("rdma_cm", true));
    }
}
