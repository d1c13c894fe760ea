//! A program with a device, as its checker sees it.

use std::net::{IpAddr, Ipv4Addr};

use check::{Checker, DeviceId, Finding, Rule};
use engine::observation::{Peer, PostedSend, ReceiveQueueId, RemoteAccess, RemoteAccessKind};
use engine::{
    CompletedWork, Completion, CompletionQueue, Config, Device, Id, Observation, ProtectionDomain,
    QueuePairInit, QueuePairType, RemoteMemory, Segment, Segments, Status, Work,
};
use wire::{Key, Qpn};

pub(crate) const DEVICE: DeviceId = DeviceId(0);
pub(crate) const OWN: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
pub(crate) const PEER: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 7));
pub(crate) const KEY: Key = Key::new(0x1234);

/// The requests for which a send queue has room.
pub(crate) const SEND_QUEUE: u32 = 8;

/// A device with two queue pairs, and its checker.
pub(crate) struct Program {
    pub(crate) checker: Checker<()>,
    pub(crate) domain: Id<ProtectionDomain>,
    pub(crate) completions: Id<CompletionQueue>,
    pub(crate) queue_pairs: [Qpn; 2],
}

impl Program {
    pub(crate) fn new(kind: QueuePairType) -> Self {
        Self::with_room(kind, 64)
    }

    /// Its completion queue has room for this many completions.
    pub(crate) fn with_room(kind: QueuePairType, capacity: u32) -> Self {
        let mut device = Device::new(Config {
            observations: true,
            ..Config::default()
        });
        let domain = device.allocate_domain().expect("room");
        let completions = device.create_completion_queue(capacity).expect("room");
        let init = QueuePairInit {
            max_sends: SEND_QUEUE,
            ..QueuePairInit::new(kind, domain, completions)
        };
        let mut create = || device.create_queue_pair(init).expect("room");
        let queue_pairs = [create(), create()];
        let mut program = Self {
            checker: Checker::new(),
            domain,
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

    pub(crate) fn observe(&mut self, observation: Observation) -> Vec<Rule> {
        let mut findings: Vec<Finding<()>> = Vec::new();
        (self.checker).observe(DEVICE, observation, &(), &mut findings);
        findings.iter().map(|finding| finding.rule).collect()
    }

    /// The program ends, or closes the device.
    pub(crate) fn close(&mut self) -> Vec<Rule> {
        let mut findings: Vec<Finding<()>> = Vec::new();
        self.checker.close(DEVICE, &mut findings);
        findings.iter().map(|finding| finding.rule).collect()
    }

    /// A peer accesses `length` bytes at `address` through one of the queue pairs.
    pub(crate) fn access(
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

    pub(crate) fn answer(&mut self, index: usize) {
        let rules = self.observe(Observation::Answered(self.queue_pairs[index]));
        assert!(rules.is_empty());
    }

    /// Posts a WRITE of 8 bytes to the peer.
    pub(crate) fn write(&mut self, index: usize, signaled: bool) -> Vec<Rule> {
        self.post(index, Work::Write(remote(0)), signaled, false)
    }

    pub(crate) fn post(
        &mut self,
        index: usize,
        work: Work,
        signaled: bool,
        fenced: bool,
    ) -> Vec<Rule> {
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

    /// Posts a signaled request that uses local memory.
    pub(crate) fn post_from(&mut self, index: usize, work: Work, memory: Segment) -> Vec<Rule> {
        self.observe(Observation::SendPosted(PostedSend {
            queue_pair: self.queue_pairs[index],
            peer: Some(PEER),
            id: 1,
            work,
            segments: [memory].into_iter().collect(),
            length: memory.length.into(),
            signaled: true,
            fenced: false,
        }))
    }

    pub(crate) fn post_receive(&mut self, index: usize, memory: Segment) -> Vec<Rule> {
        self.observe(Observation::ReceivePosted {
            queue: ReceiveQueueId::Own(self.queue_pairs[index]),
            id: 1,
            segments: [memory].into_iter().collect(),
        })
    }

    pub(crate) fn end(&mut self, index: usize) {
        let rules = self.observe(Observation::SendEnded {
            queue_pair: self.queue_pairs[index],
            status: Status::Success,
            changed_at: None,
        });
        assert!(rules.is_empty());
    }

    pub(crate) fn poll(&mut self, index: usize, work: CompletedWork) {
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

    /// The device finds the memory of the oldest receive changed when its message arrives.
    pub(crate) fn change_receive(&mut self, index: usize) -> Vec<Rule> {
        self.observe(Observation::ReceiveChanged {
            queue_pair: self.queue_pairs[index],
            id: 1,
        })
    }

    /// The device finds the message of the first request changed when the program polls.
    pub(crate) fn change(&mut self, index: usize) -> Vec<Rule> {
        self.observe(Observation::MessageChanged {
            queue_pair: self.queue_pairs[index],
            serial: 0,
            offset: 0,
        })
    }
}

/// Eight bytes of local memory.
pub(crate) fn local(address: u64) -> Segment {
    Segment {
        address,
        length: 8,
        key: KEY,
    }
}

/// Each queue pair has a peer of its own.
pub(crate) fn connection(number: Qpn) -> Peer {
    Peer {
        own: OWN,
        address: PEER,
        queue_pair: Qpn::new(number.value() ^ 0x80_0000),
    }
}

pub(crate) fn remote(address: u64) -> RemoteMemory {
    RemoteMemory { address, key: KEY }
}
