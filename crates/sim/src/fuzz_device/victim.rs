//! The device under attack, and memory that no peer may access.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use engine::{
    Access, Attributes, Binding, Buffer, CompletionQueue, Config, Device, Id, ProtectionDomain,
    QueuePairInit, QueuePairType, ReceiveRequest, Segment, SendRequest, SharedReceiveInit,
    SharedReceiveQueue, State, WindowKind, Work,
};
use wire::{Flow, Gid, Key, PathMtu, Psn, Qpn, QueueKey, ROCE_PORT};

use crate::digest::Digest;
use crate::rng::Rng;
use crate::simple_connect::{ALL_RIGHTS, Peer, connect, open};

pub(super) const OURS: [u8; 4] = [10, 0, 0, 1];
pub(super) const THEIRS: [u8; 4] = [10, 0, 0, 2];
pub(super) const FIRST_PSN: Psn = Psn::new(0x00ff_fff0);
pub(super) const MTU: PathMtu = PathMtu::Mtu256;
pub(super) const QUEUE_KEY: QueueKey = QueueKey::new(0x1234);
const MAX_SENDS: u32 = 16;
const COMPLETIONS: u32 = 256;

/// The bytes of each region.
pub(super) const SIZE: usize = 2048;

/// The part of the windowed region that its window covers.
pub(super) const WINDOW: std::ops::Range<usize> = 512..1024;

const NEW_DEVICE: &str = "a new device has free entries";

/// A queue pair of the victim.
#[derive(Debug, Clone, Copy)]
pub(super) struct VictimQueuePair {
    pub(super) kind: QueuePairType,
    pub(super) number: Qpn,
    /// The queue pair that it is connected to.
    pub(super) peer: Qpn,
}

/// A region of the victim.
pub(super) struct Region {
    pub(super) buffer: Arc<Buffer>,
    pub(super) key: Key,
    pub(super) address: u64,
    before: Vec<u8>,
}

/// The device, and the state that the checks need.
pub(super) struct Victim {
    pub(super) device: Device,
    pub(super) now: Instant,
    pub(super) queue_pairs: Vec<VictimQueuePair>,
    /// Peers have all access rights.
    pub(super) public: Region,
    /// Registered without remote access rights. No request uses it.
    pub(super) private: Region,
    /// Peers can access it only through its window.
    pub(super) windowed: Region,
    /// Receives and results are written to it.
    pub(super) inbox: Region,
    pub(super) window: Key,
    queue: Id<CompletionQueue>,
    shared: Id<SharedReceiveQueue>,
    /// Memory that was never registered.
    guards: Vec<(Arc<Buffer>, Vec<u8>)>,
    /// The content of all memory that peers may not read.
    secret: [u8; 16],
    /// How many of its own requests succeeded.
    pub(super) completed: u32,
}

impl Victim {
    /// A device whose secret depends on the input, so that no input can contain it.
    pub(super) fn new(input: &[u8]) -> Self {
        let secret = secret_for(input);
        let mut device = Device::new(Config {
            gids: vec![gid(OURS)],
            seed: [1; 32],
            ..Config::default()
        });
        let domain = device.allocate_domain().expect(NEW_DEVICE);
        let queue = device
            .create_completion_queue(COMPLETIONS)
            .expect(NEW_DEVICE);
        let shared = device.create_shared_receive_queue(SharedReceiveInit {
            domain,
            capacity: 16,
            max_segments: 4,
            xrc: None,
        });
        let window = device.allocate_window(domain, WindowKind::Two);
        let all = ALL_RIGHTS | Access::LOCAL_WRITE;
        let bindable = Access::LOCAL_WRITE | Access::WINDOW_BIND;
        let own = Access::LOCAL_WRITE;
        let mut region = |base, content: &[u8; 16], access| {
            Region::new(&mut device, domain, base, content, access)
        };
        let mut victim = Self {
            public: region(0x1_0000, &[0; 16], all),
            private: region(0x2_0000, &secret, own),
            windowed: region(0x3_0000, &[7; 16], bindable),
            inbox: region(0x4_0000, &[9; 16], own),
            guards: (0..3).map(|_| guard(&secret)).collect(),
            device,
            now: Instant::now(),
            queue_pairs: Vec::new(),
            window: window.expect(NEW_DEVICE),
            queue,
            shared: shared.expect(NEW_DEVICE),
            secret,
            completed: 0,
        };
        victim.add_queue_pairs(domain);
        victim
    }

    fn add_queue_pairs(&mut self, domain: Id<ProtectionDomain>) {
        for (index, kind) in [
            QueuePairType::Rc,
            QueuePairType::Rc,
            QueuePairType::Uc,
            QueuePairType::Ud,
        ]
        .into_iter()
        .enumerate()
        {
            let mut init = QueuePairInit::new(kind, domain, self.queue);
            init.max_sends = MAX_SENDS;
            init.max_receives = 16;
            // The second one uses the shared receive queue.
            init.shared_receive = (index == 1).then_some(self.shared);
            let number = self.device.create_queue_pair(init);
            self.queue_pairs.push(VictimQueuePair {
                kind,
                number: number.expect(NEW_DEVICE),
                peer: Qpn::new(0x100 + index as u32),
            });
            self.connect_queue_pair(index);
        }
        self.bind_window();
    }

    /// Brings a queue pair from any state to RTS.
    pub(super) fn connect_queue_pair(&mut self, index: usize) {
        let VictimQueuePair { kind, number, peer } = self.queue_pairs[index];
        let reset = Attributes {
            state: Some(State::Reset),
            ..Attributes::default()
        };
        let device = &mut self.device;
        let opened = device.modify(number, &reset).and_then(|()| match kind {
            QueuePairType::Ud => open(device, number, QUEUE_KEY),
            _ => {
                let peer = Peer {
                    gid: gid(THEIRS),
                    number: peer,
                    sends: FIRST_PSN,
                    expects: FIRST_PSN,
                    ack_timeout: Peer::SHORT_ACK_TIMEOUT,
                };
                connect(device, number, kind, MTU, &peer)
            }
        });
        opened.expect("a queue pair can always be reset and connected again");
    }

    /// Binds the window again, if it was invalidated.
    pub(super) fn bind_window(&mut self) {
        let key = Key::new(self.window.value() ^ 0x55);
        let request = SendRequest::new(
            0,
            Work::BindWindow {
                window: self.window,
                key: Some(key),
                binding: Binding {
                    region: self.windowed.key,
                    address: self.windowed.address + WINDOW.start as u64,
                    length: WINDOW.len() as u64,
                    access: Access::REMOTE_WRITE | Access::REMOTE_READ,
                },
            },
        );
        // Rejected if the queue is full, failed if the window is bound: both are correct.
        let _ = self.device.post_send(self.queue_pairs[0].number, request);
    }

    pub(super) fn window_key(&self) -> Key {
        self.device.window_key(self.window).unwrap_or(self.window)
    }

    /// Posts a receive with memory of the inbox.
    pub(super) fn post_receive(&mut self, index: usize, length: usize) {
        // Two segments, with bytes between them that must not change.
        let half = (length % 256) as u32;
        let segments = [(64, half), (1024, half)].map(|(offset, length)| Segment {
            address: self.inbox.address + offset,
            length,
            key: self.inbox.key,
        });
        let request = ReceiveRequest::new(1, segments);
        // A full queue or a wrong state is an error of the call.
        let _ = match index {
            1 => self.device.post_shared_receive(self.shared, request),
            _ => self
                .device
                .post_receive(self.queue_pairs[index].number, request),
        };
    }

    pub(super) fn flow(&self, from: [u8; 4]) -> Flow {
        Flow {
            source: from.into(),
            destination: OURS.into(),
            source_port: 0xc000,
            destination_port: ROCE_PORT,
        }
    }

    pub(super) fn wait(&mut self, time: Duration) {
        self.now += time;
        self.device.handle_timeout(self.now);
    }

    /// Fetches completions and events, so that no queue overruns.
    pub(super) fn drain(&mut self) {
        while let Some(completion) = self.device.poll_completion(self.queue) {
            let done = completion.status == engine::Status::Success;
            self.completed += u32::from(done && !completion.work.is_receive());
        }
        while self.device.poll_event().is_some() {}
    }

    /// The invariants.
    pub(super) fn check(&self) {
        for (buffer, before) in &self.guards {
            assert_eq!(buffer.to_vec(), *before, "unregistered memory");
        }
        self.private
            .assert_unchanged(0..SIZE, "memory without remote rights");
        let outside = "memory outside of the window";
        self.windowed.assert_unchanged(0..WINDOW.start, outside);
        self.windowed.assert_unchanged(WINDOW.end..SIZE, outside);
        let between = "memory between the pieces of a receive";
        self.inbox.assert_unchanged(0..64, between);
        self.inbox.assert_unchanged(320..1024, between);
        self.inbox.assert_unchanged(1280..SIZE, between);
        for pair in &self.queue_pairs {
            let queue_pair = self
                .device
                .queue_pair(pair.number)
                .expect("the queue pair exists");
            assert!(queue_pair.outstanding_sends() <= MAX_SENDS as usize);
        }
        let queue = self.device.completion_queue(self.queue);
        assert!(queue.is_some_and(|queue| queue.len() <= COMPLETIONS as usize));
    }

    /// A sent packet must not contain memory that peers may not read.
    pub(super) fn check_sent(&self, datagram: &[u8]) {
        let mut windows = datagram.windows(self.secret.len());
        // The memory repeats the secret, so any sixteen bytes of it are a rotation of the secret.
        let leaks = windows.any(|bytes| {
            let doubled = self.secret.repeat(2);
            doubled.windows(bytes.len()).any(|part| part == bytes)
        });
        assert!(!leaks, "a packet carries memory that peers may not read");
    }
}

impl Region {
    fn new(
        device: &mut Device,
        domain: Id<ProtectionDomain>,
        address: u64,
        content: &[u8; 16],
        access: Access,
    ) -> Self {
        let before = content.repeat(SIZE / content.len());
        let buffer = Buffer::copy_of(&before);
        let registration = device.register(domain, Arc::clone(&buffer), address, access);
        Self {
            buffer,
            key: registration.expect(NEW_DEVICE).local_key,
            address,
            before,
        }
    }

    #[cfg(test)]
    pub(super) fn is_changed(&self) -> bool {
        self.buffer.to_vec() != self.before
    }

    fn assert_unchanged(&self, range: std::ops::Range<usize>, what: &str) {
        let mut now = vec![0; range.len()];
        self.buffer.read(range.start, &mut now);
        assert_eq!(now, self.before[range], "{what} was written");
    }
}

/// Memory that is not registered with the device.
fn guard(content: &[u8; 16]) -> (Arc<Buffer>, Vec<u8>) {
    let bytes = content.repeat(16);
    (Buffer::copy_of(&bytes), bytes)
}

fn secret_for(input: &[u8]) -> [u8; 16] {
    let mut digest = Digest::default();
    digest.bytes(input);
    let mut secret = [0; 16];
    Rng::new(digest.value()).fill(&mut secret);
    secret
}

pub(super) fn gid(address: [u8; 4]) -> Gid {
    IpAddr::from(address).into()
}
