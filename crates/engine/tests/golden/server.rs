//! Our device in the memory of the kernel's server.

use std::sync::Arc;
use std::time::Instant;

use engine::{
    Access, Address, Attributes, Buffer, Config, Congestion, Device, QpnRange, QueuePairInit,
    QueuePairType, ReceiveRequest, Registration, Segment, State, transmit,
};
use wire::{AckTimeout, Flow, PathMtu, Psn, Qpn, RnrTimer, Route, icrc};

use crate::capture::{Capture, Frame};
use crate::conversation::at;

const INBOX: u64 = 0x1000;
const INBOX_SIZE: usize = 1 << 20;

/// One side of a connection with the numbers of the captured one.
pub(crate) struct Host {
    pub(crate) device: Device,
    pub(crate) number: Qpn,
    pub(crate) memory: Registration,
    pub(crate) buffer: Arc<Buffer>,
    pub(crate) inbox: Registration,
    pub(crate) completions: engine::Id<engine::CompletionQueue>,
}

/// The addresses and numbers of both sides.
pub(crate) struct Ends {
    pub(crate) flow: Flow,
    pub(crate) local: Qpn,
    pub(crate) peer: Qpn,
    pub(crate) psn: Psn,
    pub(crate) mtu: PathMtu,
}

impl Host {
    /// One side, with memory that starts at `address`.
    pub(crate) fn new(ends: &Ends, address: u64, length: usize) -> Self {
        let mut device = Device::new(Config {
            gids: vec![ends.flow.source.into()],
            active_mtu: PathMtu::Mtu4096,
            // The kernel does not start slowly.
            congestion: Congestion::Local,
            // A space of one number forces the captured number.
            numbers: QpnRange {
                first: ends.local.value(),
                count: 1,
            },
            // The kernel does not report credits.
            advertise_credits: false,
            ..Config::default()
        });
        let domain = device.allocate_domain().expect("a domain");
        let completions = device.create_completion_queue(65536).expect("a queue");
        let mut init = QueuePairInit::new(QueuePairType::Rc, domain, completions);
        init.max_receives = 65536;
        let number = device.create_queue_pair(init).expect("a queue pair");
        let access = Access::LOCAL_WRITE
            | Access::REMOTE_READ
            | Access::REMOTE_WRITE
            | Access::REMOTE_ATOMIC;
        let mut register = |address, length| {
            let buffer = Buffer::zeroed(length);
            let extent = Arc::clone(&buffer);
            let registered = device.register(domain, extent, address, access);
            (buffer, registered.expect("memory"))
        };
        let (buffer, memory) = register(address, length);
        let (_, inbox) = register(INBOX, INBOX_SIZE);
        let mut host = Self {
            device,
            number,
            memory,
            buffer,
            inbox,
            completions,
        };
        host.connect(ends);
        host
    }

    fn connect(&mut self, ends: &Ends) {
        let initialized = Attributes {
            state: Some(State::Initialized),
            port: Some(1),
            partition_index: Some(0),
            access: Some(Access::REMOTE_READ | Access::REMOTE_WRITE | Access::REMOTE_ATOMIC),
            ..Attributes::default()
        };
        let ready_to_receive = Attributes {
            state: Some(State::ReadyToReceive),
            path: Some(Address::new(ends.flow.destination.into(), 0)),
            path_mtu: Some(ends.mtu),
            destination: Some(ends.peer),
            receive_psn: Some(ends.psn),
            responder_resources: Some(128),
            rnr_timer: RnrTimer::new(0),
            ..Attributes::default()
        };
        let ready_to_send = Attributes {
            state: Some(State::ReadyToSend),
            send_psn: Some(ends.psn),
            ack_timeout: AckTimeout::new(18),
            retry_count: Some(7),
            rnr_retry: Some(7),
            initiator_depth: Some(128),
            ..Attributes::default()
        };
        for attributes in [initialized, ready_to_receive, ready_to_send] {
            let changed = self.device.modify(self.number, &attributes);
            changed.expect("the change is legal");
        }
    }

    /// Posts receives of this length.
    pub(crate) fn receives(&mut self, count: u64, length: u32) {
        let segment = Segment {
            address: INBOX,
            length,
            key: self.inbox.local_key,
        };
        for id in 0..count {
            let request = ReceiveRequest::new(id, [segment]);
            let posted = self.device.post_receive(self.number, request);
            posted.expect("the queue has room");
        }
    }

    pub(crate) fn handle(&mut self, frame: &Frame, bytes: &[u8]) {
        let route = Route::new(frame.flow);
        self.device.handle_datagram(now(), &route, bytes);
    }

    /// All packets that the device sends now.
    pub(crate) fn transmit(&mut self) -> Vec<Vec<u8>> {
        let mut packets = Vec::new();
        let mut buffer = Vec::new();
        while let Some(sent) = self.device.poll_transmit(now(), &mut buffer) {
            packets.extend(transmit::packets(&sent, &buffer).map(<[u8]>::to_vec));
        }
        packets
    }
}

fn now() -> Instant {
    at(0)
}

/// The setup of the server in a capture, as far as the capture does not show it.
pub(crate) struct Server {
    pub(crate) mtu: PathMtu,
    /// The number and the length of the posted receives.
    pub(crate) receives: (u64, u32),
    /// Whether the client has the right key, so that its requests get our key.
    pub(crate) right_key: bool,
    /// The length of the registered memory, if it is shorter than what the client names.
    pub(crate) registered: Option<usize>,
    /// Whether a receive is posted late: after the first response.
    pub(crate) late_receive: bool,
}

impl Default for Server {
    fn default() -> Self {
        Self {
            mtu: PathMtu::Mtu1024,
            receives: (4096, INBOX_SIZE as u32),
            right_key: true,
            registered: None,
            late_receive: false,
        }
    }
}

impl Server {
    /// Our responses to the requests of the captured client.
    pub(crate) fn responses(&self, capture: &Capture) -> Vec<Vec<u8>> {
        let mut host = self.host(capture);
        let (count, length) = self.receives;
        host.receives(count, length);
        let mut responses = Vec::new();
        for frame in capture.requests() {
            let bytes = self.with_our_key(frame, &host);
            host.handle(frame, &bytes);
            responses.extend(host.transmit());
            if self.late_receive {
                host.receives(1, length);
            }
        }
        responses
    }

    fn host(&self, capture: &Capture) -> Host {
        let flow = capture.first_request().flow;
        let ends = Ends {
            flow: Flow {
                source: flow.destination,
                destination: flow.source,
                ..flow
            },
            local: capture.server(),
            peer: capture.client(),
            psn: capture.first_psn(),
            mtu: self.mtu,
        };
        let places: Vec<(u64, u64)> = capture
            .requests()
            .filter_map(Frame::memory)
            .map(|(address, length, _)| (address, address + u64::from(length)))
            .collect();
        let start = places.iter().map(|memory| memory.0).min().unwrap_or(0) & !0xfff;
        let end = places.iter().map(|memory| memory.1).max().unwrap_or(0);
        let length = self.registered.unwrap_or((end - start) as usize);
        let host = Host::new(&ends, start, length);
        for (address, bytes) in capture.known_memory(self.mtu.bytes() as u64) {
            host.buffer.write((address - start) as usize, &bytes);
        }
        host
    }

    /// The request with our key, as the client would have sent it to us.
    fn with_our_key(&self, frame: &Frame, host: &Host) -> Vec<u8> {
        const KEY: std::ops::Range<usize> = 20..24;
        let mut bytes = frame.bytes.clone();
        if self.right_key && frame.memory().is_some() {
            bytes.truncate(bytes.len() - 4);
            let key = host.memory.remote_key.value();
            bytes[KEY].copy_from_slice(&key.to_be_bytes());
            let seal = icrc::checksum(&frame.flow, 0, &bytes);
            bytes.extend_from_slice(&seal);
        }
        bytes
    }
}
