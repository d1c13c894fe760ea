//! A host with our device: it posts WRITEs of one size for ever, or receives those of others.

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

use engine::{
    Access, Buffer, CompletionQueue, Config, Congestion, Device, HeldLists, Id, QueuePairInit,
    QueuePairType, Registration, RemoteMemory, Segment, SendRequest, Status, Work,
};
use wire::{AckTimeout, Gid, PathMtu, Psn, Qpn};

use crate::simple_connect::{Peer, connect};

/// The size of a message.
pub(super) const MESSAGE: u32 = 64 << 10;

/// A peer may take as long as programs usually allow: 134 ms.
const ACK_TIMEOUT: u8 = 15;

const MTU: PathMtu = PathMtu::Mtu1024;

/// A device with queue pairs and one region.
pub(super) struct Host {
    pub(super) device: Device,
    pub(super) address: IpAddr,
    pub(super) queue_pairs: Vec<Qpn>,
    /// The time of its next timer event.
    pub(super) timer_at: Option<Duration>,
    /// How long the messages took that are complete.
    pub(super) times: Vec<Duration>,
    init: QueuePairInit,
    completions: Id<CompletionQueue>,
    region: Registration,
    /// When the outstanding messages of each queue pair were posted.
    posted: Vec<VecDeque<Duration>>,
}

impl Host {
    pub(super) fn new(number: u32, congestion: Congestion, held_lists: HeldLists) -> Self {
        let address = IpAddr::from(Ipv4Addr::from(0x0a01_0000 + number));
        let mut device = Device::new(Config {
            gids: vec![address.into()],
            congestion,
            held_lists,
            ..Config::default()
        });
        device.leave_out_icrc(true);
        let domain = device.allocate_domain().expect("room");
        let completions = device.create_completion_queue(1 << 16).expect("room");
        let buffer = Buffer::zeroed(MESSAGE as usize);
        let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
        let region = device
            .register(domain, Arc::clone(&buffer), buffer.address(), access)
            .expect("room");
        Self {
            device,
            address,
            queue_pairs: Vec::new(),
            timer_at: None,
            times: Vec::new(),
            init: QueuePairInit::new(QueuePairType::Rc, domain, completions),
            completions,
            region,
            posted: Vec::new(),
        }
    }

    /// Connects a new queue pair of each host with one of the other.
    pub(super) fn connect(&mut self, other: &mut Self) {
        let numbers = [&mut *self, &mut *other].map(|host| {
            let number = host.device.create_queue_pair(host.init).expect("room");
            host.queue_pairs.push(number);
            host.posted.push(VecDeque::new());
            number
        });
        self.finish(numbers[0], numbers[1], other.address);
        other.finish(numbers[1], numbers[0], self.address);
    }

    fn finish(&mut self, number: Qpn, peer: Qpn, address: IpAddr) {
        let peer = Peer {
            gid: Gid::from(address),
            number: peer,
            sends: Psn::ZERO,
            expects: Psn::ZERO,
            ack_timeout: AckTimeout::new(ACK_TIMEOUT),
        };
        connect(&mut self.device, number, QueuePairType::Rc, MTU, &peer).expect("legal");
    }

    /// Posts a WRITE to the region of another host.
    pub(super) fn post(&mut self, now: Duration, index: usize, target: RemoteMemory) {
        let request = SendRequest::new(index as u64, Work::Write(target)).with([Segment {
            address: self.region.address,
            length: MESSAGE,
            key: self.region.local_key,
        }]);
        self.posted[index].push_back(now);
        let number = self.queue_pairs[index];
        self.device.post_send(number, request).expect("accepted");
    }

    /// What others write to.
    pub(super) fn target(&self) -> RemoteMemory {
        RemoteMemory {
            address: self.region.address,
            key: self.region.remote_key,
        }
    }

    /// The index of the queue pair whose oldest message is complete.
    pub(super) fn completed(&mut self, now: Duration) -> Option<usize> {
        let completion = self.device.poll_completion(self.completions)?;
        assert_eq!(completion.status, Status::Success);
        let index = completion.id as usize;
        let posted = self.posted[index].pop_front().expect("it was posted");
        self.times.push(now - posted);
        Some(index)
    }

    /// How many packets of a queue pair are acknowledged, and how many were sent again.
    pub(super) fn progress(&self, index: usize) -> (u64, u64) {
        let queue_pair = self.device.queue_pair(self.queue_pairs[index]);
        let queue_pair = queue_pair.expect("it exists");
        let counters = queue_pair.counters();
        let once = counters.packets_sent - counters.retransmitted;
        let waiting = u64::from(queue_pair.usage().unacknowledged);
        (once.saturating_sub(waiting), counters.retransmitted)
    }
}
