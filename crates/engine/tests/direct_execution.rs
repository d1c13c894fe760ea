//! Requests within a device that are executed without packets: nothing but their speed tells them from packets.
//!
//! A device that records incidents builds packets for every request. So the same program runs on one that records them and on
//! one that does not, and the two are compared after each step.

mod conversation;

use conversation::*;
use engine::{
    Access, Attributes, Id, QueuePairInit, QueuePairType, ReceiveRequest, RemoteMemory,
    SendRequest, SharedReceiveInit, SharedReceiveQueue, WindowLimits, Work,
};
use proptest::prelude::*;
use wire::{Key, PathMtu, Qpn};

/// Memory has four areas of this size, for four kinds of use, and each end has half of each. A program that relies on the order
/// of requests without a fence sees differences, so what one kind of request writes, no other kind and no other end accesses.
const AREA: u64 = 16 << 10;

/// What a program does.
#[derive(Debug, Clone, Copy)]
enum Step {
    Receive(End, u32),
    Send(End, Request),
    /// Sends what was posted.
    Transmit,
}

#[derive(Debug, Clone, Copy)]
enum End {
    Left,
    Right,
}

#[derive(Debug, Clone, Copy)]
struct Request {
    kind: Kind,
    offset: u32,
    length: u32,
    signaled: bool,
    solicited: bool,
    fenced: bool,
    /// Whether its memory is one segment.
    is_whole: bool,
}

/// How the two ends are connected.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Connection {
    Usual,
    /// The right end takes receives from a shared queue.
    SharedReceives,
    /// Packets of the right end are shorter.
    UnequalMtus,
    /// The right end sends to a third queue pair.
    Elsewhere,
    /// The right end answers no READ.
    NoResources,
    /// The left end sends no READ.
    NoDepth,
    /// The send windows are so small that each packet of a message requests an acknowledgement.
    NarrowWindow,
}

#[derive(Debug, Clone, Copy)]
enum Kind {
    Send,
    SendImmediate,
    SendInline,
    Write,
    WriteImmediate,
    WriteToUnknownKey,
    Read,
    FetchAdd,
}

/// A device with two queue pairs that are connected to each other.
struct Pair {
    peer: Conversation,
    numbers: [Qpn; 2],
    left: Region,
    right: Region,
    shared: Option<Id<SharedReceiveQueue>>,
}

impl Pair {
    fn new(builds_packets: bool, connection: Connection) -> Self {
        let mut setup = Setup::default();
        setup.config.incidents = builds_packets;
        if connection == Connection::NarrowWindow {
            setup.config.window = WindowLimits {
                min: 1024,
                initial: 2048,
                max: 1 << 16,
            };
        }
        let mut peer = Conversation::with(setup);
        let mut init = QueuePairInit::new(QueuePairType::Rc, peer.domain, peer.completion_queue);
        let third = peer.device.create_queue_pair(init).expect("room");
        let shared = (connection == Connection::SharedReceives).then(|| {
            let queue = peer.device.create_shared_receive_queue(SharedReceiveInit {
                domain: peer.domain,
                capacity: 128,
                max_segments: 1,
                xrc: None,
            });
            queue.expect("room")
        });
        init.shared_receive = shared;
        let second = peer.device.create_queue_pair(init).expect("room");
        let numbers = [peer.number, second];
        connect(&mut peer, numbers[0], second, |it| {
            if connection == Connection::NoDepth && it.initiator_depth.is_some() {
                it.initiator_depth = Some(0);
            }
        });
        connect(&mut peer, second, numbers[0], |it| match connection {
            Connection::UnequalMtus if it.path_mtu.is_some() => {
                it.path_mtu = Some(PathMtu::Mtu512);
            }
            Connection::Elsewhere if it.destination.is_some() => it.destination = Some(third),
            Connection::NoResources if it.responder_resources.is_some() => {
                it.responder_resources = Some(0);
            }
            _ => {}
        });
        peer.device.set_own_delivery(true);
        let content = |factor: u64| (0..4 * AREA).map(move |it| (it * factor % 251) as u8);
        let left = peer.registers(0x1000_0000, &content(3).collect::<Vec<_>>());
        let right = peer.registers(0x2000_0000, &content(7).collect::<Vec<_>>());
        Self {
            peer,
            numbers,
            left,
            right,
            shared,
        }
    }

    fn number(&self, end: End) -> Qpn {
        self.numbers[end as usize]
    }

    fn run(&mut self, id: u64, step: Step) {
        let device = &mut self.peer.device;
        // A full queue rejects the same request on both devices.
        match step {
            Step::Receive(end, length) => {
                let segment = self.right.segment(place(2, end), length);
                let receive = ReceiveRequest::new(id, [segment]);
                let _ = match (end, self.shared) {
                    (End::Right, Some(queue)) => device.post_shared_receive(queue, receive),
                    _ => device.post_receive(self.numbers[end as usize], receive),
                };
            }
            Step::Send(end, request) => {
                let number = self.number(end);
                let mut request = self.request(id, end, request);
                let _ = if id.is_multiple_of(2) {
                    self.peer.device.post_send(number, &mut request)
                } else {
                    self.peer.device.post_send(number, request)
                };
            }
            Step::Transmit => while device.poll_transmit(at(0), &mut Vec::new()).is_some() {},
        }
    }

    fn request(&self, id: u64, end: End, request: Request) -> SendRequest {
        let Request { offset, length, .. } = request;
        let area = match request.kind {
            Kind::Read => 0,
            Kind::FetchAdd => 3,
            _ => 1,
        };
        let remote = RemoteMemory {
            address: self.right.address(place(area, end) + u64::from(offset)),
            key: self.right.key(),
        };
        let unknown = RemoteMemory {
            key: Key::new(0x77_7777),
            ..remote
        };
        let work = match request.kind {
            Kind::Send | Kind::SendInline => Work::Send,
            Kind::SendImmediate => Work::SendImmediate(*b"word"),
            Kind::Write => Work::Write(remote),
            Kind::WriteImmediate => Work::WriteImmediate(remote, *b"word"),
            Kind::WriteToUnknownKey => Work::Write(unknown),
            Kind::Read => Work::Read(remote),
            Kind::FetchAdd => Work::FetchAdd {
                remote: RemoteMemory {
                    address: remote.address & !7,
                    ..remote
                },
                add: 5,
            },
        };
        let sent = SendRequest::new(id, work);
        let sent = match request.kind {
            Kind::SendInline => sent.inline(b"inline"),
            Kind::FetchAdd => sent.with([self.left.segment(place(3, end), 8)]),
            kind => {
                let own = place(u64::from(matches!(kind, Kind::Read)), end);
                let first = if request.is_whole { length } else { length / 3 };
                let rest = self.left.segment(own + u64::from(first), length - first);
                let rest = (!request.is_whole).then_some(rest);
                sent.with([self.left.segment(own, first)].into_iter().chain(rest))
            }
        };
        flagged(sent, request)
    }

    /// Everything that a program can rely on. Completions of different work queues have no order.
    fn visible(&mut self) -> impl PartialEq + std::fmt::Debug + use<> {
        let mut completions = self.peer.completions();
        completions.sort_by_key(|it| (it.queue_pair.value(), it.work.is_receive()));
        let events: Vec<_> = std::iter::from_fn(|| self.peer.device.poll_event()).collect();
        let states = self.numbers.map(|number| {
            let queue_pair = self.peer.device.queue_pair(number).expect("it exists");
            (queue_pair.attributes(), queue_pair.outstanding_sends())
        });
        (
            completions,
            format!("{events:?}"),
            format!("{states:?}"),
            (self.left.bytes(), self.right.bytes()),
        )
    }

    /// The packets of one more message of each end. They tell PSNs, message numbers and credits.
    fn packets(&mut self) -> Vec<Vec<u8>> {
        self.peer.device.set_own_delivery(false);
        for number in self.numbers {
            let request = SendRequest::new(9, Work::Send).inline(b"last");
            let _ = self.peer.device.post_send(number, request);
        }
        let mut buffer = Vec::new();
        let sent = || {
            let transmit = self.peer.device.poll_transmit(at(0), &mut buffer);
            transmit.map(|_| buffer.clone())
        };
        std::iter::from_fn(sent).collect()
    }
}

fn flagged(mut sent: SendRequest, request: Request) -> SendRequest {
    let flags = [
        (engine::SendFlags::SIGNALED, request.signaled),
        (engine::SendFlags::SOLICITED, request.solicited),
        (engine::SendFlags::FENCE, request.fenced),
    ];
    flags
        .into_iter()
        .for_each(|(flag, on)| sent.flags.set(flag, on));
    sent
}

/// The part of an area that an end uses.
fn place(area: u64, end: End) -> u64 {
    area * AREA + end as u64 * (AREA / 2)
}

fn end() -> impl Strategy<Value = End> {
    prop_oneof![Just(End::Left), Just(End::Right)]
}

/// Of one packet, or of several.
fn length() -> impl Strategy<Value = u32> {
    prop_oneof![4 => 0_u32..64, 2 => 1000_u32..1100, 1 => 0_u32..7000]
}

fn request(length: impl Strategy<Value = u32>) -> impl Strategy<Value = Request> {
    let kind = prop_oneof![
        4 => Just(Kind::Send),
        2 => Just(Kind::SendImmediate),
        2 => Just(Kind::SendInline),
        6 => Just(Kind::Write),
        1 => Just(Kind::WriteImmediate),
        4 => Just(Kind::Read),
        1 => Just(Kind::FetchAdd),
    ];
    (kind, 0_u32..1000, length, any::<[bool; 5]>()).prop_map(
        |(kind, offset, length, [signaled, solicited, fenced, is_whole, is_aligned])| {
            let mask = if is_aligned { !7 } else { !0 };
            Request {
                kind,
                offset: offset & mask,
                length: length & mask,
                signaled,
                solicited,
                fenced,
                is_whole,
            }
        },
    )
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        // Long enough: two ends that fail at a time have no order.
        3 => end().prop_map(|end| Step::Receive(end, 8000)),
        5 => (end(), request(length())).prop_map(|(end, request)| Step::Send(end, request)),
        5 => Just(Step::Transmit),
    ]
}

fn connection() -> impl Strategy<Value = Connection> {
    prop_oneof![
        6 => Just(Connection::Usual),
        1 => Just(Connection::SharedReceives),
        1 => Just(Connection::UnequalMtus),
        1 => Just(Connection::Elsewhere),
        1 => Just(Connection::NoResources),
        1 => Just(Connection::NoDepth),
        1 => Just(Connection::NarrowWindow),
    ]
}

impl Connection {
    /// Whether a program may take this step. Where a request may fail, one end sends: requests of two ends have no order.
    fn admits(self, step: Step) -> bool {
        match self {
            Self::Usual | Self::SharedReceives | Self::NarrowWindow => true,
            _ => !matches!(step, Step::Send(End::Right, _)),
        }
    }
}

/// Runs the steps on both devices. Returns them.
fn run(steps: &[Step]) -> [Pair; 2] {
    run_on(pairs(Connection::Usual), steps)
}

/// A device that builds packets for all requests, and one that does not.
fn pairs(connection: Connection) -> [Pair; 2] {
    [true, false].map(|builds_packets| Pair::new(builds_packets, connection))
}

/// Compares the devices whenever all that was posted is sent. Until then one of them has executed what the other has queued.
fn run_on(mut pairs: [Pair; 2], steps: &[Step]) -> [Pair; 2] {
    for (id, step) in (0..).zip(steps.iter().chain([&Step::Transmit])) {
        pairs.iter_mut().for_each(|pair| pair.run(id, *step));
        if let Step::Transmit = step {
            let [packets, direct] = &mut pairs;
            assert_eq!(direct.visible(), packets.visible(), "after {id} steps");
        }
    }
    pairs
}

proptest! {
    #[test]
    fn a_program_sees_no_difference(
        connection in connection(),
        steps in prop::collection::vec(step(), 1..60),
    ) {
        let steps: Vec<_> = steps.into_iter().filter(|it| connection.admits(*it)).collect();
        let [mut packets, mut direct] = run_on(pairs(connection), &steps);
        prop_assert_eq!(direct.packets(), packets.packets());
    }

    /// One request of one packet at a time: then each has its own acknowledgement.
    #[test]
    fn the_same_packets_are_counted(
        connection in prop_oneof![Just(Connection::Usual), Just(Connection::NarrowWindow)],
        requests in prop::collection::vec(request(0_u32..=1024), 1..20)
    ) {
        let receives = Step::Receive(End::Right, 8000);
        let steps = |it| [receives, Step::Send(End::Left, it), Step::Transmit];
        let steps: Vec<_> = requests.into_iter().flat_map(steps).collect();
        let [packets, direct] = run_on(pairs(connection), &steps);
        let counters = |pair: &Pair| {
            let own = pair.numbers.map(|number| {
                let queue_pair = pair.peer.device.queue_pair(number).expect("it exists");
                (*queue_pair.counters(), queue_pair.usage())
            });
            (*pair.peer.device.counters(), own)
        };
        prop_assert_eq!(counters(&direct), counters(&packets));
    }
}

#[test]
fn a_request_that_fails_is_reported_as_by_packets() {
    let failing = Request {
        kind: Kind::WriteToUnknownKey,
        offset: 0,
        length: 8,
        signaled: true,
        solicited: false,
        fenced: false,
        is_whole: true,
    };
    let good = Request {
        kind: Kind::Write,
        ..failing
    };
    let too_long = Request {
        kind: Kind::Send,
        length: 100,
        ..failing
    };
    for last in [failing, too_long] {
        let steps = [good, good, last].map(|it| Step::Send(End::Left, it));
        let steps = [Step::Receive(End::Right, 50)].into_iter().chain(steps);
        let steps: Vec<_> = steps.flat_map(|step| [step, Step::Transmit]).collect();
        run(&steps);
    }
}

type Change = fn(&mut Pair);

fn fail(pair: &mut Pair, end: End) {
    let failed = pair.peer.device.move_to_error(pair.number(end));
    failed.expect("legal");
}

/// Requests that an end refuses, because of a change after the first ones.
#[test]
fn a_request_that_an_end_refuses_is_refused_as_by_packets() {
    let no_rights = |pair: &mut Pair| {
        let attributes = Attributes {
            access: Some(Access::LOCAL_WRITE),
            ..Attributes::default()
        };
        let changed = pair.peer.device.modify(pair.numbers[1], &attributes);
        changed.expect("legal");
    };
    let hidden_receives = |pair: &mut Pair| pair.peer.device.hide_receives(pair.numbers[1], true);
    let cases: [(Change, Kind); 5] = [
        (no_rights, Kind::Write),
        (no_rights, Kind::Read),
        (hidden_receives, Kind::Send),
        (|pair| fail(pair, End::Left), Kind::Write),
        (|pair| fail(pair, End::Right), Kind::Write),
    ];
    for (change, kind) in cases {
        let request = |kind| Request {
            kind,
            offset: 0,
            length: 8,
            signaled: true,
            solicited: false,
            fenced: false,
            is_whole: true,
        };
        // The first one needs packets, and the second finds both ends in step.
        let good = [Step::Send(End::Left, request(Kind::Write)), Step::Transmit];
        let receive = [Step::Receive(End::Right, 64)];
        let mut pairs = run(&[&receive[..], &good, &good].concat());
        pairs.iter_mut().for_each(change);
        let before = pairs[1].right.bytes();
        let steps = [Step::Send(End::Left, request(kind)), Step::Transmit];
        let [_, direct] = run_on(pairs, &steps);
        assert_eq!(direct.right.bytes(), before, "{kind:?} has an effect");
    }
}

/// Otherwise the comparison would compare packets with packets.
#[test]
fn a_request_between_idle_ends_builds_no_packet_and_completes_when_it_is_posted() {
    let write = Step::Send(
        End::Left,
        Request {
            kind: Kind::Write,
            offset: 0,
            length: 64,
            signaled: true,
            solicited: false,
            fenced: false,
            is_whole: true,
        },
    );
    let [mut packets, mut direct] = run(&[write, Step::Transmit]);
    for (pair, is_built) in [(&mut packets, true), (&mut direct, false)] {
        pair.run(7, write);
        assert_eq!(pair.peer.completions().is_empty(), is_built);
        let mut buffer = b"before".to_vec();
        assert!(pair.peer.device.poll_transmit(at(0), &mut buffer).is_none());
        // The last packet of the other device is an acknowledgement.
        assert_eq!(buffer.len() == 20, is_built, "{buffer:02x?}");
    }
}
