//! Races, as a target and an initiator see them.

use std::net::{IpAddr, Ipv4Addr};

use check::{Checker, DeviceId, Finding, Rule};
use engine::observation::{Peer, PostedSend, RemoteAccess, RemoteAccessKind};
use engine::{
    CompletedWork, Completion, CompletionQueue, Config, Device, Id, Observation, QueuePairInit,
    QueuePairType, RemoteMemory, Segments, Status, Work,
};
use wire::{Key, Qpn};

const DEVICE: DeviceId = DeviceId(0);
const OWN: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
const PEER: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 7));
const KEY: Key = Key::new(0x1234);

/// A device with two queue pairs, and its checker.
struct Program {
    checker: Checker<()>,
    completions: Id<CompletionQueue>,
    queue_pairs: [Qpn; 2],
}

impl Program {
    fn new(kind: QueuePairType) -> Self {
        let mut device = Device::new(Config {
            observations: true,
            ..Config::default()
        });
        let domain = device.allocate_domain().expect("room");
        let completions = device.create_completion_queue(64).expect("room");
        let init = QueuePairInit::new(kind, domain, completions);
        let mut create = || device.create_queue_pair(init).expect("room");
        let queue_pairs = [create(), create()];
        let mut program = Self {
            checker: Checker::new(),
            completions,
            queue_pairs,
        };
        for observation in device.take_observations() {
            program.observe(observation);
        }
        for number in queue_pairs {
            program.observe(Observation::Connected(number, connection(number)));
        }
        program
    }

    fn observe(&mut self, observation: Observation) -> Vec<Rule> {
        let mut findings: Vec<Finding<()>> = Vec::new();
        (self.checker).observe(DEVICE, observation, &(), &mut findings);
        findings.iter().map(|finding| finding.rule).collect()
    }

    /// A peer accesses `length` bytes at `address` through one of the queue pairs.
    fn access(
        &mut self,
        index: usize,
        kind: RemoteAccessKind,
        address: u64,
        length: u32,
    ) -> Vec<Rule> {
        self.observe(Observation::RemoteAccess(RemoteAccess {
            queue_pair: self.queue_pairs[index],
            kind,
            key: KEY,
            address,
            length,
            message: 0,
        }))
    }

    fn answer(&mut self, index: usize) {
        let rules = self.observe(Observation::Answered(self.queue_pairs[index]));
        assert!(rules.is_empty());
    }

    /// Posts a WRITE of 8 bytes to the peer.
    fn write(&mut self, index: usize, signaled: bool) -> Vec<Rule> {
        self.post(index, Work::Write(remote(0)), signaled, false)
    }

    fn post(&mut self, index: usize, work: Work, signaled: bool, fenced: bool) -> Vec<Rule> {
        self.observe(Observation::SendPosted(PostedSend {
            queue_pair: self.queue_pairs[index],
            peer: Some(PEER),
            id: 1,
            work,
            segments: Segments::new(),
            length: 8,
            signaled,
            fenced,
        }))
    }

    fn end(&mut self, index: usize) {
        let rules = self.observe(Observation::SendEnded {
            queue_pair: self.queue_pairs[index],
            status: Status::Success,
            changed_at: None,
        });
        assert!(rules.is_empty());
    }

    fn poll(&mut self, index: usize, work: CompletedWork) {
        let completion = Completion {
            id: 1,
            status: Status::Success,
            work,
            length: 8,
            queue_pair: self.queue_pairs[index],
            immediate: None,
            invalidated: None,
            source: None,
        };
        let rules = self.observe(Observation::Polled(self.completions, completion));
        assert!(rules.is_empty());
    }
}

/// Each queue pair has a peer of its own.
fn connection(number: Qpn) -> Peer {
    Peer {
        own: OWN,
        address: PEER,
        queue_pair: Qpn::new(number.value() ^ 0x80_0000),
    }
}

fn remote(address: u64) -> RemoteMemory {
    RemoteMemory { address, key: KEY }
}

#[test]
fn two_unanswered_accesses_race_if_one_writes() {
    use RemoteAccessKind::{Atomic, Read, Write};
    let races = [
        (Write, Write, true),
        (Write, Read, true),
        (Read, Write, true),
        (Write, Atomic, true),
        (Atomic, Read, true),
        (Read, Read, false),
        (Atomic, Atomic, false),
    ];
    for (first, second, race) in races {
        let mut program = Program::new(QueuePairType::Rc);
        assert_eq!(program.access(0, first, 0, 8), []);
        let found = program.access(1, second, 7, 8);
        assert_eq!(found == [Rule::TargetRace], race, "{first:?} {second:?}");
    }
}

#[test]
fn an_access_after_the_answer_to_the_other_does_not_race() {
    let mut program = Program::new(QueuePairType::Rc);
    program.access(0, RemoteAccessKind::Write, 0, 8);
    program.answer(0);
    assert_eq!(program.access(1, RemoteAccessKind::Write, 0, 8), []);
}

#[test]
fn accesses_through_one_queue_pair_or_to_other_bytes_do_not_race() {
    let mut program = Program::new(QueuePairType::Rc);
    program.access(0, RemoteAccessKind::Write, 0, 8);
    assert_eq!(program.access(0, RemoteAccessKind::Write, 0, 8), []);
    assert_eq!(program.access(1, RemoteAccessKind::Write, 8, 8), []);
}

#[test]
fn all_packets_of_a_message_count_until_it_is_answered() {
    let mut program = Program::new(QueuePairType::Rc);
    program.access(0, RemoteAccessKind::Write, 0, 1024);
    program.access(0, RemoteAccessKind::Write, 1024, 1024);
    let found = program.access(1, RemoteAccessKind::Read, 100, 8);
    assert_eq!(found, [Rule::TargetRace]);
}

#[test]
fn unreliable_writes_are_never_answered_and_not_compared() {
    let mut program = Program::new(QueuePairType::Uc);
    program.access(0, RemoteAccessKind::Write, 0, 8);
    assert_eq!(program.access(1, RemoteAccessKind::Write, 0, 8), []);
}

#[test]
fn a_request_that_has_ended_races_until_its_completion_is_polled() {
    let mut program = Program::new(QueuePairType::Rc);
    assert_eq!(program.write(0, true), []);
    program.end(0);
    assert_eq!(program.write(1, true), [Rule::RemoteRace]);
    let mut program = Program::new(QueuePairType::Rc);
    program.write(0, true);
    program.end(0);
    program.poll(0, CompletedWork::Write);
    assert_eq!(program.write(1, true), []);
}

#[test]
fn a_later_completion_covers_unsignaled_requests() {
    let mut program = Program::new(QueuePairType::Rc);
    program.write(0, false);
    program.write(0, true);
    program.end(0);
    program.end(0);
    program.poll(0, CompletedWork::Write);
    assert_eq!(program.write(1, true), []);
}

#[test]
fn a_message_of_the_peer_orders_requests_that_have_ended() {
    let mut program = Program::new(QueuePairType::Rc);
    program.write(0, false);
    program.end(0);
    program.poll(0, CompletedWork::Receive);
    assert_eq!(program.write(1, true), []);
    let mut program = Program::new(QueuePairType::Rc);
    program.write(0, false);
    program.poll(0, CompletedWork::Receive);
    assert_eq!(program.write(1, true), [Rule::RemoteRace]);
}

#[test]
fn a_message_through_another_queue_pair_of_the_peer_orders_requests_that_have_ended() {
    let mut program = Program::new(QueuePairType::Rc);
    program.write(0, false);
    program.end(0);
    program.poll(1, CompletedWork::Receive);
    assert_eq!(program.write(1, true), []);
}

#[test]
fn a_write_of_the_peer_orders_requests_that_have_ended() {
    let mut program = Program::new(QueuePairType::Rc);
    program.write(0, false);
    program.end(0);
    program.access(0, RemoteAccessKind::Write, 1000, 8);
    assert_eq!(program.write(1, true), []);
}

#[test]
fn a_fence_orders_all_later_requests_behind_earlier_reads() {
    let read = Work::Read(remote(0));
    let (same, other) = (Work::Write(remote(0)), Work::Write(remote(64)));
    let mut program = Program::new(QueuePairType::Rc);
    program.post(0, read, false, false);
    assert_eq!(program.post(0, other, false, true), []);
    assert_eq!(program.post(0, same, false, false), []);
    program.post(0, Work::Read(remote(128)), false, false);
    let late = Work::Write(remote(128));
    assert_eq!(program.post(0, late, false, false), [Rule::MissingFence]);
}

impl Program {
    /// The device finds the message of the first request changed when the program polls.
    fn change(&mut self, index: usize) -> Vec<Rule> {
        self.observe(Observation::MessageChanged {
            queue_pair: self.queue_pairs[index],
            serial: 0,
            offset: 0,
        })
    }
}

#[test]
fn a_message_may_change_when_a_message_of_the_peer_was_polled() {
    let mut program = Program::new(QueuePairType::Rc);
    program.write(0, true);
    program.end(0);
    assert_eq!(program.change(0), [Rule::BufferChanged]);
    for through in [0, 1] {
        let mut program = Program::new(QueuePairType::Rc);
        program.write(0, true);
        program.end(0);
        program.poll(through, CompletedWork::Receive);
        assert_eq!(program.change(0), []);
    }
}

#[test]
fn a_message_may_change_when_the_peer_has_written_memory() {
    let mut program = Program::new(QueuePairType::Rc);
    program.write(0, true);
    program.access(0, RemoteAccessKind::Write, 1000, 8);
    program.end(0);
    assert_eq!(program.change(0), [Rule::BufferChanged]);
    program.access(0, RemoteAccessKind::Write, 1000, 8);
    assert_eq!(program.change(0), []);
}
