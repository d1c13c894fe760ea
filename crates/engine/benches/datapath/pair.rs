//! Two devices with connected queue pairs. A buffer replaces the network.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use engine::transmit::packets;
use engine::{
    Access, Address, Attributes, BatchLimits, Buffer, CompletionQueue, Config, Device, Id,
    QueuePairInit, QueuePairType, Registration, RemoteMemory, Segment, SendRequest, State, Status,
    Work,
};
use wire::{AckTimeout, Gid, PathMtu, Psn, Qpn, RnrTimer, Route};

/// One device and the objects that its queue pairs share.
pub(crate) struct End {
    pub(crate) device: Device,
    pub(crate) completions: Id<CompletionQueue>,
    pub(crate) queue_pairs: Vec<Qpn>,
    pub(crate) regions: Vec<(Arc<Buffer>, Registration)>,
    pub(crate) gid: Gid,
}

/// Both devices.
pub(crate) struct Pair {
    pub(crate) client: End,
    pub(crate) server: End,
    wire: Vec<u8>,
    pub(crate) packets: u64,
    /// The time that each side has spent.
    pub(crate) time_spent: TimeSpent,
}

/// Time spent in sending and in receiving packets.
#[derive(Default, Clone, Copy)]
pub(crate) struct TimeSpent {
    pub(crate) sending: Duration,
    pub(crate) receiving: Duration,
}

impl End {
    pub(crate) fn new(address: [u8; 4], mtu: PathMtu, connections: usize, size: usize) -> Self {
        let gid = Gid::from(IpAddr::from(address));
        let mut device = Device::new(Config {
            gids: vec![gid],
            active_mtu: mtu,
            // Without a socket there is no system call to save. Small batches stay in the
            // first-level cache.
            batch: BatchLimits {
                packets: 4,
                ..BatchLimits::default()
            },
            ..Config::default()
        });
        let domain = device.allocate_domain().expect("a new device has room");
        let completions = device
            .create_completion_queue(1 << 20)
            .expect("a new device has room");
        let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ;
        let mut end = Self {
            device,
            completions,
            queue_pairs: Vec::new(),
            regions: Vec::new(),
            gid,
        };
        for _ in 0..connections {
            let init = QueuePairInit::new(QueuePairType::Rc, domain, completions);
            let number = end
                .device
                .create_queue_pair(init)
                .expect("a new device has room");
            end.queue_pairs.push(number);
            let buffer = Buffer::zeroed(size);
            let address = buffer.address();
            let region = end
                .device
                .register(domain, Arc::clone(&buffer), address, access)
                .expect("a new device has room");
            end.regions.push((buffer, region));
        }
        end
    }

    pub(crate) fn connect(&mut self, local: Qpn, peer: Qpn, gid: Gid, mtu: PathMtu) {
        let steps = [
            Attributes {
                state: Some(State::Initialized),
                port: Some(1),
                partition_index: Some(0),
                access: Some(Access::REMOTE_WRITE | Access::REMOTE_READ),
                ..Attributes::default()
            },
            Attributes {
                state: Some(State::ReadyToReceive),
                path: Some(Address::new(gid, 0)),
                path_mtu: Some(mtu),
                destination: Some(peer),
                receive_psn: Some(Psn::ZERO),
                responder_resources: Some(4),
                rnr_timer: RnrTimer::new(12),
                ..Attributes::default()
            },
            Attributes {
                state: Some(State::ReadyToSend),
                ack_timeout: AckTimeout::new(14),
                retry_count: Some(7),
                rnr_retry: Some(7),
                initiator_depth: Some(4),
                send_psn: Some(Psn::ZERO),
                ..Attributes::default()
            },
        ];
        for step in steps {
            self.device
                .modify(local, &step)
                .expect("all required attributes are given");
        }
    }
}

impl Pair {
    pub(crate) fn connected(mtu: PathMtu, connections: usize, size: usize) -> Self {
        let mut client = End::new([10, 0, 0, 1], mtu, connections, size);
        let mut server = End::new([10, 0, 0, 2], mtu, connections, size);
        for index in 0..connections {
            let (ours, theirs) = (client.queue_pairs[index], server.queue_pairs[index]);
            client.connect(ours, theirs, server.gid, mtu);
            server.connect(theirs, ours, client.gid, mtu);
        }
        Self {
            client,
            server,
            wire: Vec::with_capacity(1 << 17),
            packets: 0,
            time_spent: TimeSpent::default(),
        }
    }

    /// Posts a WRITE of the whole region of connection `index`.
    pub(crate) fn post_write(&mut self, index: usize, length: u32) {
        let (_, local) = &self.client.regions[index];
        let (_, remote) = &self.server.regions[index];
        let work = Work::Write(RemoteMemory {
            address: remote.address,
            key: remote.remote_key,
        });
        let request = SendRequest::new(index as u64, work).with([Segment {
            address: local.address,
            length,
            key: local.local_key,
        }]);
        self.client
            .device
            .post_send(self.client.queue_pairs[index], request)
            .expect("the queue has room");
    }

    /// Transfers packets until neither device has any more.
    pub(crate) fn transfer_all(&mut self, now: Instant) {
        loop {
            let (wire, time_spent) = (&mut self.wire, &mut self.time_spent);
            let there = transfer(&mut self.client, &mut self.server, now, wire, time_spent);
            let back = transfer(&mut self.server, &mut self.client, now, wire, time_spent);
            self.packets += there + back;
            if there + back == 0 {
                return;
            }
        }
    }

    /// Polls all completions and returns how many there are. Each must have succeeded.
    pub(crate) fn drain_completions(&mut self) -> usize {
        let mut count = 0;
        while let Some(completion) = self.client.device.poll_completion(self.client.completions) {
            assert_eq!(completion.status, Status::Success);
            count += 1;
        }
        count
    }
}

/// Transfers everything that `from` has to send, batch by batch. Returns how many packets.
fn transfer(
    from: &mut End,
    to: &mut End,
    now: Instant,
    wire: &mut Vec<u8>,
    time_spent: &mut TimeSpent,
) -> u64 {
    let mut count = 0;
    loop {
        let start = Instant::now();
        let Some(transmit) = from.device.poll_transmit(now, wire) else {
            return count;
        };
        let emitted = Instant::now();
        let route = Route::new(transmit.route.flow);
        for packet in packets(&transmit, wire) {
            to.device.handle_datagram(now, &route, packet);
            count += 1;
        }
        time_spent.sending += emitted - start;
        time_spent.receiving += emitted.elapsed();
    }
}
