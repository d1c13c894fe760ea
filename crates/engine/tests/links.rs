//! WRITEs between two devices over links with a rate, a queue, a delay and losses, in virtual time.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use engine::transmit::packets;
use engine::{
    Access, Address, Attributes, Buffer, CompletionQueue, Config, Device, HeldLists, Id,
    QueuePairInit, QueuePairType, RemoteMemory, Segment, SendRequest, State, Status, Work,
};
use wire::{AckTimeout, Gid, PathMtu, Psn, Qpn, RnrTimer, Route};

const MESSAGE: u32 = 64 << 10;
const OUTSTANDING: u64 = 16;

/// IP and UDP headers.
const LOWER_HEADERS: usize = 28;

/// A link. Both directions are alike.
#[derive(Clone, Copy)]
struct Link {
    /// Megabits per second.
    rate: u64,
    /// The time from one end to the other.
    delay: Duration,
    /// How many packets wait; further ones are lost.
    queue: usize,
    /// One packet in so many is lost.
    loses_one_in: Option<u64>,
    /// One packet in so many is overtaken by the next three.
    delays_one_in: Option<u64>,
}

const SHALLOW: Link = Link {
    rate: 300,
    delay: Duration::from_micros(500),
    queue: 50,
    loses_one_in: None,
    delays_one_in: None,
};

/// One direction of the link.
struct Direction {
    link: Link,
    random: u64,
    idle_at: Duration,
    queue: VecDeque<Duration>,
    late: Option<(u32, Vec<u8>)>,
}

impl Direction {
    fn happens(&mut self, one_in: Option<u64>) -> bool {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        one_in.is_some_and(|one_in| (self.random >> 11).is_multiple_of(one_in))
    }

    /// The packets that arrive because of this one, and when.
    fn carry(&mut self, now: Duration, packet: &[u8]) -> Vec<(Duration, Vec<u8>)> {
        while self.queue.front().is_some_and(|at| *at <= now) {
            self.queue.pop_front();
        }
        if self.happens(self.link.loses_one_in) || self.queue.len() >= self.link.queue {
            return Vec::new();
        }
        let bits = 8 * (packet.len() + LOWER_HEADERS) as u64;
        self.idle_at = self.idle_at.max(now) + Duration::from_nanos(1000 * bits / self.link.rate);
        self.queue.push_back(self.idle_at);
        let at = self.idle_at + self.link.delay;
        if self.late.is_none() && self.happens(self.link.delays_one_in) {
            self.late = Some((3, packet.to_vec()));
            return Vec::new();
        }
        let mut arrivals = vec![(at, packet.to_vec())];
        if let Some((overtaken_by, _)) = &mut self.late {
            *overtaken_by -= 1;
        }
        let late = self.late.take_if(|(overtaken_by, _)| *overtaken_by == 0);
        arrivals.extend(late.map(|(_, packet)| (at, packet)));
        arrivals
    }
}

/// A device with one queue pair and one region.
struct End {
    device: Device,
    completions: Id<CompletionQueue>,
    number: Qpn,
    address: u64,
    key: wire::Key,
    gid: Gid,
}

impl End {
    fn new(address: [u8; 4], held_lists: HeldLists) -> Self {
        let gid = Gid::from(IpAddr::from(address));
        let mut device = Device::new(Config {
            gids: vec![gid],
            held_lists,
            ..Config::default()
        });
        let domain = device.allocate_domain().expect("room");
        let completions = device.create_completion_queue(1 << 10).expect("room");
        let init = QueuePairInit::new(QueuePairType::Rc, domain, completions);
        let number = device.create_queue_pair(init).expect("room");
        let buffer = Buffer::zeroed(MESSAGE as usize);
        let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
        let region = device
            .register(domain, Arc::clone(&buffer), buffer.address(), access)
            .expect("room");
        Self {
            device,
            completions,
            number,
            address: region.address,
            key: region.remote_key,
            gid,
        }
    }

    fn connect(&mut self, peer: Qpn, gid: Gid) {
        let steps = [
            Attributes {
                state: Some(State::Initialized),
                port: Some(1),
                partition_index: Some(0),
                access: Some(Access::REMOTE_WRITE),
                ..Attributes::default()
            },
            Attributes {
                state: Some(State::ReadyToReceive),
                path: Some(Address::new(gid, 0)),
                path_mtu: Some(PathMtu::Mtu1024),
                destination: Some(peer),
                receive_psn: Some(Psn::ZERO),
                responder_resources: Some(4),
                rnr_timer: RnrTimer::new(12),
                ..Attributes::default()
            },
            Attributes {
                state: Some(State::ReadyToSend),
                ack_timeout: AckTimeout::new(15),
                retry_count: Some(7),
                rnr_retry: Some(7),
                initiator_depth: Some(4),
                send_psn: Some(Psn::ZERO),
                ..Attributes::default()
            },
        ];
        for step in steps {
            self.device.modify(self.number, &step).expect("legal");
        }
    }
}

/// A packet under way: when it arrives, in which order it was sent, at which end, and what it is.
type UnderWay = (Duration, u64, usize, Vec<u8>);

/// Two devices and the link between them.
struct Run {
    ends: [End; 2],
    directions: [Direction; 2],
    start: Instant,
    now: Duration,
    under_way: BinaryHeap<Reverse<UnderWay>>,
    sent: u64,
}

impl Run {
    fn new(link: Link, held_lists: HeldLists) -> Self {
        let mut ends = [[10, 0, 0, 1], [10, 0, 0, 2]].map(|address| End::new(address, held_lists));
        for (one, other) in [(0, 1), (1, 0)] {
            let (peer, gid) = (ends[other].number, ends[other].gid);
            ends[one].connect(peer, gid);
        }
        let direction = |random| Direction {
            link,
            random,
            idle_at: Duration::ZERO,
            queue: VecDeque::new(),
            late: None,
        };
        #[expect(
            clippy::disallowed_methods,
            reason = "an `Instant` cannot be constructed; any value will do"
        )]
        let start = Instant::now();
        Self {
            ends,
            directions: [direction(0x9e37_79b9), direction(0x7f4a_7c15)],
            start,
            now: Duration::ZERO,
            under_way: BinaryHeap::new(),
            sent: 0,
        }
    }

    fn post(&mut self) {
        let [client, server] = &mut self.ends;
        let work = Work::Write(RemoteMemory {
            address: server.address,
            key: server.key,
        });
        let request = SendRequest::new(0, work).with([Segment {
            address: client.address,
            length: MESSAGE,
            key: client.key,
        }]);
        client
            .device
            .post_send(client.number, request)
            .expect("it is accepted");
    }

    fn transmit(&mut self, end: usize) {
        let mut buffer = Vec::new();
        let now = self.start + self.now;
        while let Some(sent) = self.ends[end].device.poll_transmit(now, &mut buffer) {
            for packet in packets(&sent, &buffer) {
                for (at, packet) in self.directions[end].carry(self.now, packet) {
                    self.sent += 1;
                    self.under_way
                        .push(Reverse((at, self.sent, 1 - end, packet)));
                }
            }
        }
    }

    /// Handles the next arrival or timer.
    fn step(&mut self) {
        let timer = |end: &End| end.device.poll_timeout();
        let timers = self.ends.iter().filter_map(timer).min();
        let timers = timers.map(|at| at.saturating_duration_since(self.start));
        let arrival = self.under_way.peek().map(|Reverse((at, ..))| *at);
        let next = timers.into_iter().chain(arrival).min();
        self.now = next.expect("something is under way").max(self.now);
        let now = self.start + self.now;
        if arrival.is_some_and(|at| at <= self.now)
            && let Some(Reverse((_, _, end, packet))) = self.under_way.pop()
        {
            let [from, to] = [[10, 0, 0, 1], [10, 0, 0, 2]].map(IpAddr::from);
            let (source, destination) = if end == 1 { (from, to) } else { (to, from) };
            let flow = wire::Flow {
                source,
                destination,
                source_port: 0xc000,
                destination_port: wire::ROCE_PORT,
            };
            let route = Route::new(flow);
            self.ends[end]
                .device
                .handle_without_icrc(now, &route, &packet);
        }
        for end in &mut self.ends {
            end.device.handle_timeout(now);
        }
    }

    /// How many megabytes per second arrive, on average over this time.
    fn rate_over(&mut self, duration: Duration) -> f64 {
        (0..OUTSTANDING).for_each(|_| self.post());
        let mut completed = 0;
        while self.now < duration {
            self.transmit(0);
            self.transmit(1);
            self.step();
            let queue = self.ends[0].completions;
            while let Some(completion) = self.ends[0].device.poll_completion(queue) {
                assert_eq!(completion.status, Status::Success);
                completed += 1;
                self.post();
            }
        }
        f64::from(completed * MESSAGE) / 1e6 / duration.as_secs_f64()
    }
}

/// Asserts that WRITEs take at least this part of the link's rate: to a peer that lists what it holds, and to one that doesn't.
#[track_caller]
fn assert_uses(link: Link, duration: Duration, with_lists: f64, without: f64) {
    assert_uses_with(HeldLists::Always, link, duration, with_lists);
    assert_uses_with(HeldLists::Never, link, duration, without);
}

#[track_caller]
fn assert_uses_with(held_lists: HeldLists, link: Link, duration: Duration, part: f64) {
    let mut run = Run::new(link, held_lists);
    let rate = run.rate_over(duration);
    let counters = run.ends[0].device.counters();
    let possible = link.rate as f64 / 8.0;
    let shown = format!(
        "{held_lists:?}: {rate:.1} of {possible} MB/s, {} of {} packets were retransmissions, {} timeouts",
        counters.retransmitted, counters.packets_sent, counters.timeouts
    );
    println!("{shown}");
    assert!(rate >= part * possible, "{shown}");
}

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn short_queue_does_not_stop_the_sender() {
    assert_uses(SHALLOW, SECOND / 2, 0.9, 0.6);
}

#[test]
fn fast_link_with_a_short_queue_is_used() {
    let link = Link {
        rate: 1000,
        queue: 100,
        ..SHALLOW
    };
    assert_uses(link, SECOND / 4, 0.8, 0.5);
}

#[test]
fn lost_packets_cost_little_more_than_themselves() {
    let link = Link {
        queue: 1000,
        loses_one_in: Some(100),
        ..SHALLOW
    };
    assert_uses(link, SECOND / 2, 0.9, 0.6);
}

#[test]
fn late_packets_are_not_taken_for_lost_ones() {
    let link = Link {
        queue: 1000,
        delays_one_in: Some(100),
        ..SHALLOW
    };
    assert_uses(link, SECOND / 2, 0.9, 0.8);
}

#[test]
fn long_path_is_filled() {
    let link = Link {
        rate: 100,
        delay: Duration::from_millis(25),
        queue: 1000,
        ..SHALLOW
    };
    assert_uses(link, 2 * SECOND, 0.75, 0.6);
}

#[test]
fn long_path_with_losses_is_used() {
    let link = Link {
        rate: 100,
        delay: Duration::from_millis(25),
        queue: 1000,
        loses_one_in: Some(1000),
        ..SHALLOW
    };
    assert_uses(link, 2 * SECOND, 0.6, 0.4);
}

#[test]
fn long_path_with_many_losses_is_used() {
    let link = Link {
        rate: 100,
        delay: Duration::from_millis(25),
        queue: 1000,
        loses_one_in: Some(100),
        ..SHALLOW
    };
    assert_uses(link, 2 * SECOND, 0.45, 0.08);
}

#[test]
fn link_that_loses_one_packet_in_twenty_is_used() {
    let link = Link {
        queue: 1000,
        loses_one_in: Some(20),
        ..SHALLOW
    };
    assert_uses(link, SECOND / 2, 0.4, 0.15);
}
