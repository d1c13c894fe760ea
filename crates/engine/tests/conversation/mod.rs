//! A device that exchanges packets with a peer. The test plays the peer and sets the time.
//!
//! ```ignore
//! let mut peer = Conversation::new();
//! peer.sends(at(1), send_only(PSN + 2, b"gap"));
//! peer.receives(at(1), ["nak sequence +0"]);
//! peer.receives_nothing(at(2));
//! ```
//!
//! The packets of the peer get a valid ICRC. The packets of the device are verified, parsed and
//! described as text, with PSNs relative to [`PSN`], the first PSN of both directions.
#![allow(dead_code, reason = "each test file uses a part of this module")]

mod device_packet;
mod peer_packet;
mod setup;

pub(crate) use device_packet::DevicePacket;
pub(crate) use peer_packet::*;
#[allow(unused_imports, reason = "each test file uses a part of this module")]
pub(crate) use setup::{Region, Setup, all_access, gid, remote};

use std::sync::OnceLock;
use std::time::{Duration, Instant};

use engine::{
    Address, AsyncEvent, Attributes, Completion, CompletionQueue, Counters, Device, Event, Id,
    Notify, ProtectionDomain, ReceiveRequest, SendRequest, State, Status, transmit,
};
use wire::{AckTimeout, Flow, PathMtu, Psn, Qpn, ROCE_PORT, RnrTimer, Route, icrc};

/// The first PSN of both directions. It makes every test cross the wrap of PSNs.
pub(crate) const PSN: Psn = Psn::new(0xff_fffe);

/// The number of the peer's queue pair.
pub(crate) const PEER: Qpn = Qpn::new(0x77);

/// The address of the device.
pub(crate) const DEVICE_ADDRESS: [u8; 4] = [10, 0, 0, 1];

/// The address of the peer.
pub(crate) const PEER_ADDRESS: [u8; 4] = [10, 0, 0, 2];

/// The time `millis` milliseconds after the start.
pub(crate) fn at(millis: u64) -> Instant {
    start() + Duration::from_millis(millis)
}

/// The time `nanos` nanoseconds after the start.
pub(crate) fn at_nanos(nanos: u64) -> Instant {
    start() + Duration::from_nanos(nanos)
}

#[expect(
    clippy::disallowed_methods,
    reason = "an `Instant` cannot be constructed; any value will do"
)]
fn start() -> Instant {
    static START: OnceLock<Instant> = OnceLock::new();
    *START.get_or_init(Instant::now)
}

/// The flow from the peer to the device.
pub(crate) fn flow() -> Flow {
    Flow {
        source: PEER_ADDRESS.into(),
        destination: DEVICE_ADDRESS.into(),
        source_port: 0xc123,
        destination_port: ROCE_PORT,
    }
}

/// One device with one queue pair, and the peer of that queue pair.
pub(crate) struct Conversation {
    pub(crate) device: Device,
    pub(crate) domain: Id<ProtectionDomain>,
    pub(crate) completion_queue: Id<CompletionQueue>,
    /// The device's queue pair.
    pub(crate) number: Qpn,
    setup: Setup,
    /// The time of the latest action.
    now: Instant,
}

impl Conversation {
    /// A connected RC queue pair with default settings.
    pub(crate) fn new() -> Self {
        Self::with(Setup::default())
    }

    /// The peer sends a packet to the device.
    pub(crate) fn sends(&mut self, now: Instant, sent: PeerPacket) {
        let number = self.number;
        self.sends_to(number, now, sent);
    }

    /// The peer sends several packets at once.
    pub(crate) fn sends_all(&mut self, now: Instant, sent: impl IntoIterator<Item = PeerPacket>) {
        for packet in sent {
            self.sends(now, packet);
        }
    }

    /// The peer sends a packet to another queue pair of the device.
    pub(crate) fn sends_to(&mut self, number: Qpn, now: Instant, sent: PeerPacket) {
        let datagram = sent.sealed(number, &flow());
        self.delivers(now, &flow(), &datagram);
    }

    /// The peer sends a packet, and a congested router marks it.
    pub(crate) fn sends_marked(&mut self, now: Instant, sent: PeerPacket) {
        let datagram = sent.sealed(self.number, &flow());
        self.delivers_on(now, &Route::new(flow()).marked(), &datagram);
    }

    /// The network delivers this datagram.
    pub(crate) fn delivers(&mut self, now: Instant, flow: &Flow, datagram: &[u8]) {
        self.delivers_on(now, &Route::new(*flow), datagram);
    }

    fn delivers_on(&mut self, now: Instant, route: &Route, datagram: &[u8]) {
        self.wait_until(now);
        self.device.handle_datagram(now, route, datagram);
    }

    /// Asserts that the device has sent exactly these packets until now.
    #[track_caller]
    pub(crate) fn receives<const N: usize>(&mut self, now: Instant, expected: [&str; N]) {
        let packets = self.received(now);
        let words: Vec<&str> = packets.iter().map(DevicePacket::text).collect();
        assert_eq!(words, expected);
    }

    /// Asserts that the device has sent nothing.
    #[track_caller]
    pub(crate) fn receives_nothing(&mut self, now: Instant) {
        self.receives(now, []);
    }

    /// All packets that the device has sent until now.
    pub(crate) fn received(&mut self, now: Instant) -> Vec<DevicePacket> {
        let mut packets = Vec::new();
        self.collect(&mut packets);
        while let Some(due) = self.due_until(now) {
            self.advance_to(due.max(self.now));
            self.device.handle_timeout(due);
            self.collect(&mut packets);
        }
        self.advance_to(now);
        packets
    }

    fn collect(&mut self, packets: &mut Vec<DevicePacket>) {
        while let Some(batch) = self.received_batch(self.now) {
            packets.extend(batch);
        }
    }

    fn due_until(&self, now: Instant) -> Option<Instant> {
        self.device.poll_timeout().filter(|due| *due <= now)
    }

    fn advance_to(&mut self, now: Instant) {
        assert!(now >= self.now, "time must not go back");
        self.now = now;
    }

    /// The packets of the next send, if there is one.
    pub(crate) fn received_batch(&mut self, now: Instant) -> Option<Vec<DevicePacket>> {
        let mut buffer = Vec::new();
        let sent = self.device.poll_transmit(now, &mut buffer)?;
        let packets = transmit::packets(&sent, &buffer).enumerate();
        Some(
            packets
                .map(|(index, bytes)| {
                    let (packet, seal) = bytes.split_last_chunk::<4>().expect("an ICRC");
                    let expected = icrc::checksum(&sent.route.flow, index as u16, packet);
                    assert_eq!(
                        *seal, expected,
                        "the ICRC of packet {index} covers its IP identification"
                    );
                    DevicePacket::new(sent.route, bytes)
                })
                .collect(),
        )
    }

    /// Advances the time and handles expired timers. The device's packets stay queued.
    pub(crate) fn wait_until(&mut self, now: Instant) {
        while let Some(due) = self.due_until(now) {
            self.device.handle_timeout(due);
        }
        self.advance_to(now);
    }

    /// The application posts a send request, which must succeed.
    #[track_caller]
    pub(crate) fn posts(&mut self, request: SendRequest) {
        self.device
            .post_send(self.number, request)
            .expect("the request is accepted");
    }

    /// The application posts a receive with the whole region.
    #[track_caller]
    pub(crate) fn posts_receive(&mut self, id: u64, region: &Region) {
        self.posts_receive_request(ReceiveRequest::new(id, [region.all()]));
    }

    /// The application posts this receive, which must succeed.
    #[track_caller]
    pub(crate) fn posts_receive_request(&mut self, request: ReceiveRequest) {
        self.device
            .post_receive(self.number, request)
            .expect("the receive is accepted");
    }

    /// Asserts that the unpolled completions are exactly these.
    #[track_caller]
    pub(crate) fn completes<const N: usize>(&mut self, expected: [(u64, Status); N]) {
        let completed: Vec<(u64, Status)> = self
            .completions()
            .iter()
            .map(|completion| (completion.id, completion.status))
            .collect();
        assert_eq!(completed, expected);
    }

    /// Polls all completions.
    pub(crate) fn completions(&mut self) -> Vec<Completion> {
        let queue = self.completion_queue;
        std::iter::from_fn(|| self.device.poll_completion(queue)).collect()
    }

    /// Polls the only completion.
    #[track_caller]
    pub(crate) fn completion(&mut self) -> Completion {
        let completions = self.completions();
        let [completion] = completions[..] else {
            panic!("expected one completion, got {completions:?}");
        };
        completion
    }

    /// Arms the completion queue.
    pub(crate) fn arms(&mut self, notify: Notify) {
        self.device.arm(self.completion_queue, notify);
    }

    /// Asserts that the pending events are exactly these asynchronous events.
    #[track_caller]
    pub(crate) fn raises<const N: usize>(&mut self, expected: [AsyncEvent; N]) {
        assert_eq!(self.events(), expected.map(Event::Async));
    }

    /// Whether the only pending event is a completion notification.
    pub(crate) fn is_notified(&mut self) -> bool {
        self.events() == [Event::Completion(self.completion_queue)]
    }

    /// Polls all events except those that only the connection manager needs.
    pub(crate) fn events(&mut self) -> Vec<Event> {
        let all = std::iter::from_fn(|| self.device.poll_event());
        all.filter(|event| !matches!(event, Event::FirstPacket(_)))
            .collect()
    }

    /// The state of the queue pair.
    pub(crate) fn state(&self) -> State {
        let queue_pair = self.device.queue_pair(self.number);
        queue_pair.expect("the queue pair exists").state()
    }

    /// Moves the queue pair to another state without further attributes.
    #[track_caller]
    pub(crate) fn goes_to(&mut self, state: State) {
        self.modifies(Attributes {
            state: Some(state),
            ..Attributes::default()
        });
    }

    /// Modifies the queue pair, which must succeed.
    #[track_caller]
    pub(crate) fn modifies(&mut self, attributes: Attributes) {
        self.device
            .modify(self.number, &attributes)
            .expect("the change is legal");
    }

    /// The queue pair.
    pub(crate) fn queue_pair(&self) -> &engine::QueuePair {
        let queue_pair = self.device.queue_pair(self.number);
        queue_pair.expect("the queue pair exists")
    }

    /// The counters of the device.
    pub(crate) fn counters(&self) -> &Counters {
        self.device.counters()
    }

    /// The setup of the conversation.
    pub(crate) fn setup(&self) -> &Setup {
        &self.setup
    }
}

/// Bytes that differ from their neighbours, so that a wrong offset is detected.
pub(crate) fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|index| (index % 251) as u8 + 1).collect()
}

/// Connects two queue pairs of the device with each other.
pub(crate) fn connect_to_each_other(peer: &mut Conversation, [one, two]: [Qpn; 2]) {
    connect(peer, one, two, |_| {});
    connect(peer, two, one, |_| {});
}

/// Connects a queue pair of the device with another one, with some changed attributes.
pub(crate) fn connect(
    peer: &mut Conversation,
    number: Qpn,
    other: Qpn,
    change: impl Fn(&mut Attributes),
) {
    let reset = Attributes {
        state: Some(State::Reset),
        ..Attributes::default()
    };
    let initialize = Attributes {
        state: Some(State::Initialized),
        port: Some(1),
        partition_index: Some(0),
        access: Some(all_access()),
        ..Attributes::default()
    };
    let receive = Attributes {
        state: Some(State::ReadyToReceive),
        path: Some(Address::new(gid(DEVICE_ADDRESS), 0)),
        path_mtu: Some(PathMtu::Mtu1024),
        destination: Some(other),
        receive_psn: Some(PSN),
        responder_resources: Some(4),
        rnr_timer: RnrTimer::new(12),
        ..Attributes::default()
    };
    let send = Attributes {
        state: Some(State::ReadyToSend),
        send_psn: Some(PSN),
        ack_timeout: AckTimeout::new(14),
        retry_count: Some(3),
        rnr_retry: Some(7),
        initiator_depth: Some(4),
        ..Attributes::default()
    };
    for mut step in [reset, initialize, receive, send] {
        change(&mut step);
        peer.device.modify(number, &step).expect("legal");
    }
}
