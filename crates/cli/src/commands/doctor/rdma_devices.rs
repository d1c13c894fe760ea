//! Checks of the system's RDMA devices: NICs, and those that the kernel makes.

mod drivers;
mod gids;
mod limits;
mod open_device;
mod permissions;
mod ports;

use std::net::IpAddr;

use ::system::{Device, Tree};
use net::socket::interface;

use super::Check;
use crate::find_device;

/// A machine to check.
struct Machine {
    tree: Tree,
    devices: Vec<Device>,
    /// The addresses of the network interfaces.
    addresses: Vec<(String, IpAddr)>,
}

/// Checks the system's devices, if the environment does not exclude them.
pub(super) fn of_machine() -> Vec<Check> {
    let devices = match find_device::of_system() {
        Ok(devices) => devices,
        Err(error) => {
            let advice = "correct ROCI_DEVICES, or load the driver";
            return vec![Check::fail("RDMA device", error.to_string(), advice)];
        }
    };
    if devices.is_empty() && find_device::excludes_system() {
        return Vec::new();
    }
    let interfaces = interface::interfaces().unwrap_or_default();
    let addresses = interfaces.into_iter().flat_map(|interface| {
        let name = interface.name;
        let addresses = interface.addresses.into_iter();
        addresses.map(move |address| (name.clone(), address.ip))
    });
    check(&Machine {
        tree: Tree::of_machine(),
        devices,
        addresses: addresses.collect(),
    })
}

fn check(machine: &Machine) -> Vec<Check> {
    let mut findings = drivers::missing_modules(machine);
    if machine.devices.is_empty() {
        if findings.is_empty() {
            let text = "the system has none; software devices need none";
            findings.push(Check::ok("RDMA devices", text));
        }
        return findings;
    }
    findings.extend(ports::describe(machine));
    findings.extend(permissions::character_devices(machine));
    findings.push(permissions::connection_manager(machine));
    findings.extend(gids::missing(machine));
    findings.extend(gids::old_version(machine));
    findings.extend(ports::mtu(machine));
    findings.extend(ports::congestion(machine));
    findings.push(limits::locked_memory(machine));
    findings.extend(drivers::versions(machine));
    findings.extend(open_device::checks(machine));
    findings
}

#[cfg(test)]
mod fixtures {
    use ::system::fixture::Fixture;

    use super::*;

    /// The NIC of most tests.
    pub(super) fn nic() -> Fixture {
        let fixture = Fixture::with_nic("mlx5_0", "0000:81:00.0", "mlx5_core");
        fixture.file("sys/class/misc/rdma_cm/abi_version", "4");
        fixture.file("dev/infiniband/rdma_cm", "");
        fixture
    }

    /// The machine of a fixture, with the address of its `eth0`.
    pub(super) fn machine(fixture: &Fixture) -> Machine {
        Machine {
            tree: fixture.tree(),
            devices: fixture.tree().devices(),
            addresses: vec![("eth0".to_owned(), [10, 0, 0, 1].into())],
        }
    }

    /// What is found besides what is in order.
    pub(super) fn problems(fixture: &Fixture) -> Vec<(&'static str, String)> {
        let findings = check(&machine(fixture)).into_iter();
        findings
            .filter(|finding| finding.advice.is_some())
            .map(|finding| (finding.check, finding.finding))
            .collect()
    }

    /// The only problem.
    #[track_caller]
    pub(super) fn problem(fixture: &Fixture) -> (&'static str, String) {
        let problems = problems(fixture);
        let [problem] = <[_; 1]>::try_from(problems).expect("one problem");
        problem
    }

    #[test]
    fn a_good_machine_has_no_problem() {
        assert_eq!(problems(&nic()), []);
        let fixture = Fixture::with_rxe("rxe0");
        fixture.file("sys/class/misc/rdma_cm/abi_version", "4");
        fixture.file("dev/infiniband/rdma_cm", "");
        assert_eq!(problems(&fixture), []);
    }

    #[test]
    fn a_machine_without_rdma_has_no_problem() {
        let findings = check(&machine(&Fixture::new()));
        assert!(
            matches!(&findings[..], [only] if only.advice.is_none()),
            "{findings:?}"
        );
    }
}
