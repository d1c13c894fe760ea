//! The limits of other devices.

use check::{Checker, DeviceId, Profile, Rule};
use engine::observation::PostedSend;
use engine::{
    Config, Device, Observation, QueuePairInit, QueuePairType, RemoteMemory, Segments, Work,
};
use wire::{Key, Qpn};

/// How many things a device of this kind does not support, of a program that creates these objects.
fn unsupported(profile: Profile, kind: QueuePairType, completions: u32, change: Change) -> usize {
    let mut device = Device::new(Config {
        observations: true,
        ..Config::default()
    });
    let domain = device.allocate_domain().expect("room");
    let queue = device.create_completion_queue(completions).expect("room");
    let mut init = QueuePairInit::new(kind, domain, queue);
    init.max_inline = 0;
    change(&mut init);
    device.create_queue_pair(init).expect("room");
    let mut checker = Checker::new().with_profile(Some(profile));
    let mut findings = Vec::new();
    for observation in device.take_observations() {
        checker.observe(DeviceId(0), observation, &(), &mut findings);
    }
    assert!(findings.iter().all(|it| it.rule == Rule::NotPortable));
    findings.len()
}

type Change = fn(&mut QueuePairInit);

#[test]
fn an_ordinary_program_runs_on_devices_with_connections() {
    for profile in [Profile::Cx5, Profile::Cx7, Profile::E810, Profile::Rxe] {
        assert_eq!(unsupported(profile, QueuePairType::Rc, 64, |_| ()), 0);
    }
    assert_eq!(unsupported(Profile::Efa, QueuePairType::Rc, 64, |_| ()), 1);
    assert_eq!(unsupported(Profile::Efa, QueuePairType::Ud, 64, |_| ()), 0);
    assert_eq!(unsupported(Profile::E810, QueuePairType::Uc, 64, |_| ()), 1);
}

#[test]
fn each_limit_is_compared() {
    let rc = QueuePairType::Rc;
    let at = |sends| unsupported(Profile::E810, rc, 64, sends);
    assert_eq!(at(|init| init.max_sends = 8127), 0);
    assert_eq!(at(|init| init.max_sends = 8128), 1);
    assert_eq!(at(|init| init.max_receives = 8128), 1);
    assert_eq!(at(|init| init.max_receive_segments = 7), 1);
    let inline = |init: &mut QueuePairInit| init.max_inline = 33;
    assert_eq!(unsupported(Profile::Efa, QueuePairType::Ud, 64, inline), 1);
    assert_eq!(unsupported(Profile::Rxe, rc, 32_767, |_| ()), 0);
    assert_eq!(unsupported(Profile::Rxe, rc, 32_768, |_| ()), 1);
}

#[test]
fn a_profile_is_found_by_its_name() {
    for profile in Profile::ALL {
        assert_eq!(profile.name().parse(), Ok(profile));
    }
    let error = "cx9".parse::<Profile>().expect_err("there is none");
    assert!(error.to_string().contains("cx5, cx7, e810, efa, rxe"));
}

#[test]
fn the_number_of_outstanding_reads_is_compared() {
    let found = |profile, depth| {
        let mut checker = Checker::new().with_profile(Some(profile));
        let mut findings = Vec::new();
        let observation = Observation::ReadDepth(Qpn::GSI, depth);
        checker.observe(DeviceId(0), observation, &(), &mut findings);
        findings.len()
    };
    assert_eq!((found(Profile::Cx5, 16), found(Profile::Cx5, 17)), (0, 1));
    assert_eq!((found(Profile::Rxe, 128), found(Profile::Rxe, 129)), (0, 1));
}

#[test]
fn a_request_that_a_device_does_not_support_is_found_when_it_is_posted() {
    let found = |profile| {
        let mut device = Device::new(Config {
            observations: true,
            ..Config::default()
        });
        let domain = device.allocate_domain().expect("room");
        let queue = device.create_completion_queue(64).expect("room");
        let init = QueuePairInit::new(QueuePairType::Rc, domain, queue);
        let number = device.create_queue_pair(init).expect("room");
        let target = RemoteMemory {
            address: 0,
            key: Key::new(1),
        };
        let posted = PostedSend {
            queue_pair: number,
            peer: None,
            id: 1,
            work: Work::FetchAdd {
                remote: target,
                add: 1,
            },
            segments: Segments::new(),
            length: 8,
            signaled: true,
            fenced: false,
        };
        let mut checker = Checker::new().with_profile(Some(profile));
        let mut findings = Vec::new();
        for observation in device.take_observations() {
            checker.observe(DeviceId(0), observation, &(), &mut findings);
        }
        findings.clear();
        let posted = Observation::SendPosted(posted);
        checker.observe(DeviceId(0), posted, &(), &mut findings);
        findings.iter().map(|it| it.rule).collect::<Vec<_>>()
    };
    assert_eq!(found(Profile::Cx5), []);
    assert_eq!(found(Profile::E810), [Rule::NotPortable]);
}
