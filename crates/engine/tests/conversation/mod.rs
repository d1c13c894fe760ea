//! A device in conversation with a peer that the test plays, packet by packet and moment by moment.
//!
//! ```ignore
//! let mut peer = Conversation::new();
//! peer.says(at(1), send_only(PSN + 2, b"gap"));
//! peer.hears(at(1), ["nak sequence +0"]);
//! peer.hears_nothing(at(2));
//! ```
//!
//! What the peer says is sealed as a kernel would seal it; what it hears is verified, parsed and
//! written in words, with sequence numbers relative to [`PSN`], where both directions begin.
#![allow(dead_code, reason = "every test file uses a part of it")]

mod heard;
mod said;
mod setup;

pub(crate) use heard::Heard;
pub(crate) use said::*;
#[allow(unused_imports, reason = "every test file uses a part of it")]
pub(crate) use setup::{Region, Setup, everything, gid, remote};

use std::sync::OnceLock;
use std::time::{Duration, Instant};

use engine::{
    Arrival, AsyncEvent, Attributes, Completion, CompletionQueue, Counters, Device, Event, Id,
    Notify, ProtectionDomain, ReceiveRequest, SendRequest, State, Status, transmit,
};
use wire::{Flow, Psn, Qpn, ROCE_PORT, icrc};

/// Where both directions begin: everything crosses the wrap of the sequence numbers.
pub(crate) const PSN: Psn = Psn::new(0xff_fffe);

/// The number of the peer's queue pair.
pub(crate) const PEER: Qpn = Qpn::new(0x77);

/// The address of the device.
pub(crate) const DEVICE_ADDRESS: [u8; 4] = [10, 0, 0, 1];

/// The address of the peer.
pub(crate) const PEER_ADDRESS: [u8; 4] = [10, 0, 0, 2];

/// The moment so many milliseconds after the beginning.
pub(crate) fn at(millis: u64) -> Instant {
    beginning() + Duration::from_millis(millis)
}

/// The moment so many nanoseconds after the beginning.
pub(crate) fn at_nanos(nanos: u64) -> Instant {
    beginning() + Duration::from_nanos(nanos)
}

#[expect(
    clippy::disallowed_methods,
    reason = "an `Instant` can't be made from nothing; which one it is does not matter"
)]
fn beginning() -> Instant {
    static BEGINNING: OnceLock<Instant> = OnceLock::new();
    *BEGINNING.get_or_init(Instant::now)
}

/// The way from the peer to the device.
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
    /// The latest moment that anything happened at.
    now: Instant,
}

impl Conversation {
    /// A connected pair of the usual kind.
    pub(crate) fn new() -> Self {
        Self::with(Setup::default())
    }

    /// The peer sends a packet to the device.
    pub(crate) fn says(&mut self, now: Instant, said: Said) {
        let number = self.number;
        self.says_to(number, now, said);
    }

    /// The peer sends several packets at once.
    pub(crate) fn says_all(&mut self, now: Instant, said: impl IntoIterator<Item = Said>) {
        for packet in said {
            self.says(now, packet);
        }
    }

    /// The peer sends a packet to another queue pair of the device.
    pub(crate) fn says_to(&mut self, number: Qpn, now: Instant, said: Said) {
        let datagram = said.sealed(number, &flow());
        self.delivers(now, &flow(), &datagram);
    }

    /// The network delivers these bytes.
    pub(crate) fn delivers(&mut self, now: Instant, flow: &Flow, datagram: &[u8]) {
        self.wait_until(now);
        self.device
            .handle_datagram(now, &Arrival::new(*flow), datagram);
    }

    /// All that the device has sent until now is exactly this.
    #[track_caller]
    pub(crate) fn hears<const N: usize>(&mut self, now: Instant, expected: [&str; N]) {
        let heard = self.listens(now);
        let words: Vec<&str> = heard.iter().map(Heard::words).collect();
        assert_eq!(words, expected);
    }

    /// The device has sent nothing.
    #[track_caller]
    pub(crate) fn hears_nothing(&mut self, now: Instant) {
        self.hears(now, []);
    }

    /// All that the device has sent until now, to look at closely.
    pub(crate) fn listens(&mut self, now: Instant) -> Vec<Heard> {
        let mut heard = Vec::new();
        self.collect(&mut heard);
        while let Some(due) = self.due_until(now) {
            self.passes_to(due.max(self.now));
            self.device.handle_timeout(due);
            self.collect(&mut heard);
        }
        self.passes_to(now);
        heard
    }

    fn collect(&mut self, heard: &mut Vec<Heard>) {
        while let Some(batch) = self.listens_to_one_batch(self.now) {
            heard.extend(batch);
        }
    }

    fn due_until(&self, now: Instant) -> Option<Instant> {
        self.device.poll_timeout().filter(|due| *due <= now)
    }

    fn passes_to(&mut self, now: Instant) {
        assert!(now >= self.now, "time goes forward");
        self.now = now;
    }

    /// The packets of one send, if there is one.
    pub(crate) fn listens_to_one_batch(&mut self, now: Instant) -> Option<Vec<Heard>> {
        let mut buffer = Vec::new();
        let sent = self.device.poll_transmit(now, &mut buffer)?;
        let packets = transmit::packets(&sent, &buffer).enumerate();
        Some(
            packets
                .map(|(index, bytes)| {
                    let (packet, seal) = bytes.split_last_chunk::<4>().expect("an ICRC");
                    let expected = icrc::checksum(&sent.route.flow, index as u16, packet);
                    assert_eq!(*seal, expected, "packet {index} is sealed for its IP id");
                    Heard::new(sent.route, bytes)
                })
                .collect(),
        )
    }

    /// Time passes; the timers of the device run out, and nobody listens to what it sends.
    pub(crate) fn wait_until(&mut self, now: Instant) {
        while let Some(due) = self.due_until(now) {
            self.device.handle_timeout(due);
        }
        self.passes_to(now);
    }

    /// The application gives the device work, which must be taken.
    #[track_caller]
    pub(crate) fn posts(&mut self, request: SendRequest) {
        self.device
            .post_send(self.number, request)
            .expect("the request is taken");
    }

    /// The application posts a receive of all of `region`.
    #[track_caller]
    pub(crate) fn receives(&mut self, id: u64, region: &Region) {
        self.receives_by(ReceiveRequest::new(id, [region.all()]));
    }

    /// The application posts this receive.
    #[track_caller]
    pub(crate) fn receives_by(&mut self, request: ReceiveRequest) {
        self.device
            .post_receive(self.number, request)
            .expect("the receive is taken");
    }

    /// The completions not yet polled are exactly these.
    #[track_caller]
    pub(crate) fn completes<const N: usize>(&mut self, expected: [(u64, Status); N]) {
        let completed: Vec<(u64, Status)> = self
            .completions()
            .iter()
            .map(|completion| (completion.id, completion.status))
            .collect();
        assert_eq!(completed, expected);
    }

    /// The completions not yet polled.
    pub(crate) fn completions(&mut self) -> Vec<Completion> {
        let queue = self.completion_queue;
        std::iter::from_fn(|| self.device.poll_completion(queue)).collect()
    }

    /// The only completion not yet polled.
    #[track_caller]
    pub(crate) fn completion(&mut self) -> Completion {
        let completions = self.completions();
        let [completion] = completions[..] else {
            panic!("one completion was expected, not {completions:?}");
        };
        completion
    }

    /// Asks for a notification.
    pub(crate) fn arms(&mut self, notify: Notify) {
        self.device.arm(self.completion_queue, notify);
    }

    /// All events not yet taken are exactly these.
    #[track_caller]
    pub(crate) fn raises<const N: usize>(&mut self, expected: [AsyncEvent; N]) {
        assert_eq!(self.events(), expected.map(Event::Async));
    }

    /// Whether the one event not yet taken is a completion notification.
    pub(crate) fn is_notified(&mut self) -> bool {
        self.events() == [Event::Completion(self.completion_queue)]
    }

    /// All events not yet taken.
    pub(crate) fn events(&mut self) -> Vec<Event> {
        std::iter::from_fn(|| self.device.poll_event()).collect()
    }

    /// The state of the queue pair.
    pub(crate) fn state(&self) -> State {
        let queue_pair = self.device.queue_pair(self.number);
        queue_pair.expect("it is not destroyed").state()
    }

    /// The queue pair goes to another state without further attributes.
    #[track_caller]
    pub(crate) fn goes_to(&mut self, state: State) {
        self.modifies(Attributes {
            state: Some(state),
            ..Attributes::default()
        });
    }

    /// The queue pair gets new attributes.
    #[track_caller]
    pub(crate) fn modifies(&mut self, attributes: Attributes) {
        self.device
            .modify(self.number, &attributes)
            .expect("the change is legal");
    }

    /// What the device counted.
    pub(crate) fn counters(&self) -> &Counters {
        self.device.counters()
    }

    /// What the conversation began with.
    pub(crate) fn setup(&self) -> &Setup {
        &self.setup
    }
}

/// Bytes that differ from their neighbours, so that none can be in the wrong place.
pub(crate) fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|index| (index % 251) as u8 + 1).collect()
}
