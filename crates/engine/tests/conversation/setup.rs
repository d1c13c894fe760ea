//! The setup of a conversation: the device, its queue pair and memory.

use std::net::IpAddr;
use std::sync::Arc;

use engine::{
    Access, Address, Attributes, Buffer, Config, Congestion, Device, QueuePairInit, QueuePairType,
    Registration, RemoteMemory, Segment, State,
};
use wire::{AckTimeout, Gid, Key, PathMtu, Qpn, QueueKey, RnrTimer};

use super::{Conversation, DEVICE_ADDRESS, PEER, PEER_ADDRESS, PSN, at};

/// The settings that a test may change.
#[derive(Clone)]
pub(crate) struct Setup {
    pub(crate) kind: QueuePairType,
    pub(crate) config: Config,
    pub(crate) path_mtu: PathMtu,
    /// The access rights of the peer.
    pub(crate) access: Access,
    pub(crate) queue_key: QueueKey,
    /// The code of the acknowledgement timeout: 14 is 67.108864 ms.
    pub(crate) ack_timeout: u8,
    pub(crate) retry_count: u8,
    pub(crate) rnr_retry: u8,
    /// The code of the RNR timer: 12 is 0.64 ms.
    pub(crate) rnr_timer: u8,
    pub(crate) initiator_depth: u8,
    pub(crate) responder_resources: u8,
    pub(crate) completions: u32,
    pub(crate) queue_pair: fn(&mut QueuePairInit),
    /// The last state of the queue pair's setup.
    pub(crate) state: State,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            kind: QueuePairType::Rc,
            config: Config {
                gids: vec![gid(DEVICE_ADDRESS)],
                active_mtu: PathMtu::Mtu4096,
                congestion: Congestion::Local,
                ..Config::default()
            },
            path_mtu: PathMtu::Mtu1024,
            access: all_access(),
            queue_key: QueueKey::new(0x1111_1111),
            ack_timeout: 14,
            retry_count: 3,
            rnr_retry: 7,
            rnr_timer: 12,
            initiator_depth: 4,
            responder_resources: 4,
            completions: 4096,
            queue_pair: |_| {},
            state: State::ReadyToSend,
        }
    }
}

/// All access rights that a peer can have, and those that they require.
pub(crate) fn all_access() -> Access {
    Access::LOCAL_WRITE
        | Access::REMOTE_WRITE
        | Access::REMOTE_READ
        | Access::REMOTE_ATOMIC
        | Access::FLUSH_GLOBAL
        | Access::FLUSH_PERSISTENT
        | Access::WINDOW_BIND
}

/// An IPv4 address as a GID.
pub(crate) fn gid(address: [u8; 4]) -> Gid {
    IpAddr::from(address).into()
}

/// Registered memory of the device.
#[derive(Clone)]
pub(crate) struct Region {
    pub(crate) buffer: Arc<Buffer>,
    pub(crate) registration: Registration,
}

impl Region {
    /// Its key, local and remote.
    pub(crate) fn key(&self) -> Key {
        self.registration.remote_key
    }

    /// The address of the byte at `offset`.
    pub(crate) fn address(&self, offset: u64) -> u64 {
        self.registration.address + offset
    }

    /// A segment with the whole region.
    pub(crate) fn all(&self) -> Segment {
        self.segment(0, self.registration.length as u32)
    }

    /// A segment with a part of the region.
    pub(crate) fn segment(&self, offset: u64, length: u32) -> Segment {
        Segment {
            address: self.address(offset),
            length,
            key: self.registration.local_key,
        }
    }

    /// The present content.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        self.buffer.to_vec()
    }

    /// The first `length` bytes.
    pub(crate) fn first(&self, length: usize) -> Vec<u8> {
        let mut bytes = self.bytes();
        bytes.truncate(length);
        bytes
    }

    /// The 64-bit word at `offset`.
    pub(crate) fn word(&self, offset: usize) -> u64 {
        let mut bytes = [0; 8];
        self.buffer.read(offset, &mut bytes);
        u64::from_ne_bytes(bytes)
    }
}

/// An address in the peer's memory, for requests of the device.
pub(crate) fn remote(address: u64) -> RemoteMemory {
    RemoteMemory {
        address,
        key: Key::new(0xabcd),
    }
}

impl Conversation {
    /// A connected queue pair with this setup.
    pub(crate) fn with(setup: Setup) -> Self {
        let mut device = Device::new(setup.config.clone());
        let domain = device.allocate_domain().expect("a domain");
        let completion_queue = device
            .create_completion_queue(setup.completions)
            .expect("a completion queue");
        let mut init = QueuePairInit::new(setup.kind, domain, completion_queue);
        (setup.queue_pair)(&mut init);
        let number = device.create_queue_pair(init).expect("a queue pair");
        let mut conversation = Self {
            device,
            domain,
            completion_queue,
            number,
            setup,
            now: at(0),
        };
        conversation.connects(number);
        conversation
    }

    /// Creates another queue pair with `init` and connects it to the same peer.
    pub(crate) fn adds(&mut self, init: QueuePairInit) -> Qpn {
        let number = self.device.create_queue_pair(init).expect("a queue pair");
        self.connects(number);
        number
    }

    /// The values that the first queue pair was created with.
    pub(crate) fn init(&self) -> QueuePairInit {
        QueuePairInit::new(self.setup.kind, self.domain, self.completion_queue)
    }

    /// Moves a queue pair to the state that the setup names.
    #[track_caller]
    pub(crate) fn connects(&mut self, number: Qpn) {
        let kind = self
            .device
            .queue_pair(number)
            .expect("the queue pair exists")
            .init()
            .kind;
        let steps = [
            self.setup.initialized(kind),
            self.setup.ready_to_receive(kind),
            self.setup.ready_to_send(kind),
        ];
        for attributes in &steps[..self.setup.state as usize] {
            self.device
                .modify(number, attributes)
                .expect("the change is legal");
        }
    }

    /// Registers `bytes` at `address` with all access rights.
    #[track_caller]
    pub(crate) fn registers(&mut self, address: u64, bytes: &[u8]) -> Region {
        self.registers_for(address, bytes, all_access())
    }

    /// Registers `bytes` at `address` with these access rights.
    #[track_caller]
    pub(crate) fn registers_for(&mut self, address: u64, bytes: &[u8], access: Access) -> Region {
        let buffer = Buffer::copy_of(bytes);
        let registration = self
            .device
            .register(self.domain, Arc::clone(&buffer), address, access)
            .expect("the memory is registered");
        Region {
            buffer,
            registration,
        }
    }

    /// Deregisters a region.
    #[track_caller]
    pub(crate) fn deregisters(&mut self, region: &Region) {
        let key = region.registration.local_key;
        self.device
            .deregister(key)
            .expect("the region has no windows");
    }
}

impl Setup {
    pub(crate) fn initialized(&self, kind: QueuePairType) -> Attributes {
        let is_datagram = matches!(kind, QueuePairType::Ud | QueuePairType::Management);
        Attributes {
            state: Some(State::Initialized),
            port: Some(1),
            partition_index: Some(0),
            access: (!is_datagram).then_some(self.access),
            queue_key: is_datagram.then_some(self.queue_key),
            ..Attributes::default()
        }
    }

    pub(crate) fn ready_to_receive(&self, kind: QueuePairType) -> Attributes {
        let state = Some(State::ReadyToReceive);
        if matches!(kind, QueuePairType::Ud | QueuePairType::Management) {
            return Attributes {
                state,
                ..Attributes::default()
            };
        }
        let responds = matches!(kind, QueuePairType::Rc | QueuePairType::XrcTarget);
        let timer = RnrTimer::new(self.rnr_timer).expect("the timer code is valid");
        Attributes {
            state,
            path: Some(Address::new(gid(PEER_ADDRESS), 0)),
            path_mtu: Some(self.path_mtu),
            destination: Some(PEER),
            receive_psn: Some(PSN),
            responder_resources: responds.then_some(self.responder_resources),
            rnr_timer: responds.then_some(timer),
            ..Attributes::default()
        }
    }

    pub(crate) fn ready_to_send(&self, kind: QueuePairType) -> Attributes {
        let requests = matches!(kind, QueuePairType::Rc | QueuePairType::XrcInitiator);
        let times_out = requests || kind == QueuePairType::XrcTarget;
        let timeout = AckTimeout::new(self.ack_timeout).expect("the timer code is valid");
        Attributes {
            state: Some(State::ReadyToSend),
            send_psn: Some(PSN),
            ack_timeout: times_out.then_some(timeout),
            retry_count: requests.then_some(self.retry_count),
            rnr_retry: requests.then_some(self.rnr_retry),
            initiator_depth: requests.then_some(self.initiator_depth),
            ..Attributes::default()
        }
    }
}
