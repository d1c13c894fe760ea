//! Senders that share a link to one receiver, in virtual time.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use engine::transmit::packets;
use engine::{Congestion, HeldLists};
use wire::Route;

use super::bbr::Bbr;
use super::cubic::Cubic;
use super::host::{Host, MESSAGE};
use super::link::{Arrival, Direction, Link};
use super::tcp::{Acknowledgement, Control, Data, Tcp};
use crate::rng::Rng;

/// IP and UDP headers.
const LOWER_HEADERS: usize = 28;

/// The bytes of a full packet on the link. Those of TCP are as long, so that shares of a link can be compared.
const PACKET: usize = 1024 + 16 + LOWER_HEADERS;

/// The bytes of TCP's acknowledgements on the link.
const TCP_ACKNOWLEDGEMENT: usize = 52;

const PACKETS_PER_MESSAGE: u64 = MESSAGE as u64 / 1024;

/// A timer of a process is late by up to so much.
const TIMER_LATENESS: Duration = Duration::from_micros(100);

/// What shares a link, and for how long.
#[derive(Debug, Clone, Copy)]
pub struct Setup {
    /// The link.
    pub link: Link,
    /// The control of congestion of our devices.
    pub congestion: Congestion,
    /// Whether our devices list what they hold behind a loss, as they do once they have agreed on it.
    pub held_lists: bool,
    /// How many hosts send with our device.
    pub senders: usize,
    /// How many queue pairs each of them has.
    pub queue_pairs: usize,
    /// How many messages are outstanding at each queue pair and TCP connection.
    pub outstanding: usize,
    /// How many TCP connections with CUBIC there are.
    pub cubic: usize,
    /// How many TCP connections with BBR there are.
    pub bbr: usize,
    /// How long.
    pub duration: Duration,
    /// The seed of all random decisions.
    pub seed: u64,
}

/// What one queue pair or TCP connection reached.
#[derive(Debug, Clone, Copy)]
pub struct Share {
    /// Its part of the link, headers included, repeated packets not.
    pub of_link: f64,
    /// How many packets were acknowledged.
    pub packets: u64,
    /// How many packets were sent again.
    pub repeated: u64,
}

/// The result of a run.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// Our queue pairs.
    pub ours: Vec<Share>,
    /// The TCP connections, those with CUBIC first.
    pub tcp: Vec<Share>,
    /// How long our messages took, in ascending order.
    pub times: Vec<Duration>,
    /// The largest number of packets in the queue of the link.
    pub longest_queue: usize,
}

/// What is on the link.
enum Frame {
    Ours {
        to: usize,
        route: Route,
        packet: Vec<u8>,
    },
    Data(usize, Data),
    Acknowledgement(usize, Acknowledgement),
}

enum Event {
    Arrival(Arrival<Frame>),
    HostTimer(usize),
    TcpTimer(usize),
}

/// The receiver is host 0.
struct Run {
    setup: Setup,
    hosts: Vec<Host>,
    indices: BTreeMap<IpAddr, usize>,
    tcp: Vec<Tcp>,
    /// The time of the next timer event of each TCP connection.
    tcp_timers: Vec<Option<Duration>>,
    to_receiver: Direction<Frame>,
    to_senders: Direction<Frame>,
    events: BTreeMap<(Duration, u64), Event>,
    scheduled: u64,
    start: Instant,
    now: Duration,
    rng: Rng,
    buffer: Vec<u8>,
}

impl Setup {
    /// Runs it.
    #[must_use]
    pub fn run(self) -> Outcome {
        let mut run = Run::new(self);
        run.begin();
        while run.now < self.duration && run.step() {}
        run.outcome()
    }

    fn share(&self, packets: u64, repeated: u64) -> Share {
        let possible = self.duration.as_secs_f64() / self.link.transit(PACKET).as_secs_f64();
        Share {
            of_link: packets as f64 / possible,
            packets,
            repeated,
        }
    }
}

impl Run {
    fn new(setup: Setup) -> Self {
        let mut rng = Rng::new(setup.seed);
        let held_lists = if setup.held_lists {
            HeldLists::Always
        } else {
            HeldLists::Never
        };
        let new_host = |number| Host::new(number, setup.congestion, held_lists);
        let mut receiver = new_host(0);
        let mut senders: Vec<_> = (1..=setup.senders as u32).map(new_host).collect();
        for sender in &mut senders {
            for _ in 0..setup.queue_pairs {
                sender.connect(&mut receiver);
            }
        }
        let limit = setup.outstanding as u64 * PACKETS_PER_MESSAGE;
        let cubic = (0..setup.cubic).map(|_| Control::Cubic(Cubic::default()));
        let bbr = (0..setup.bbr).map(|_| Control::Bbr(Bbr::default()));
        let hosts: Vec<_> = std::iter::once(receiver).chain(senders).collect();
        let addresses = hosts.iter().map(|host| host.address);
        Self {
            setup,
            indices: addresses.zip(0..).collect(),
            hosts,
            tcp: cubic.chain(bbr).map(|it| Tcp::new(it, limit)).collect(),
            tcp_timers: vec![None; setup.cubic + setup.bbr],
            to_receiver: Direction::new(setup.link, rng.fork()),
            to_senders: Direction::new(setup.link, rng.fork()),
            events: BTreeMap::new(),
            scheduled: 0,
            // The only use of the clock: all times are relative to it.
            start: Instant::now(),
            now: Duration::ZERO,
            rng,
            buffer: Vec::new(),
        }
    }

    /// All senders start at once.
    fn begin(&mut self) {
        let target = self.hosts[0].target();
        for host in 1..self.hosts.len() {
            for index in 0..self.setup.queue_pairs {
                for _ in 0..self.setup.outstanding {
                    self.hosts[host].post(self.now, index, target);
                }
            }
            self.let_send(host);
        }
        (0..self.tcp.len()).for_each(|flow| self.let_tcp_send(flow));
    }

    /// Handles the next event, if there is one.
    fn step(&mut self) -> bool {
        let Some(((at, _), event)) = self.events.pop_first() else {
            return false;
        };
        self.now = at;
        match event {
            Event::Arrival(arrival) => self.arrive(arrival),
            Event::HostTimer(host) => {
                if self.hosts[host].timer_at == Some(at) {
                    self.hosts[host].timer_at = None;
                    let now = self.instant();
                    self.hosts[host].device.handle_timeout(now);
                    self.let_send(host);
                }
            }
            Event::TcpTimer(flow) => {
                if self.tcp_timers[flow] == Some(at) {
                    self.tcp_timers[flow] = None;
                    self.tcp[flow].handle_timeout(at);
                    self.let_tcp_send(flow);
                }
            }
        }
        true
    }

    fn arrive(&mut self, arrival: Arrival<Frame>) {
        match arrival.packet {
            Frame::Ours { to, route, packet } => {
                let is_marked = arrival.is_marked && route.allows_marks();
                let route = if is_marked { route.marked() } else { route };
                self.deliver(to, &route, &packet);
            }
            Frame::Data(flow, data) => {
                let told = self.tcp[flow].receive(data);
                let frame = Frame::Acknowledgement(flow, told);
                let arrivals = self.to_senders.carry(self.now, TCP_ACKNOWLEDGEMENT, frame);
                self.schedule_arrivals(arrivals);
            }
            Frame::Acknowledgement(flow, told) => {
                self.tcp[flow].handle_acknowledgement(self.now, &told);
                self.let_tcp_send(flow);
            }
        }
    }

    fn deliver(&mut self, to: usize, route: &Route, packet: &[u8]) {
        let now = self.instant();
        let target = self.hosts[0].target();
        let host = &mut self.hosts[to];
        host.device.handle_without_icrc(now, route, packet);
        while let Some(index) = host.completed(self.now) {
            host.post(self.now, index, target);
        }
        self.let_send(to);
    }

    fn let_send(&mut self, from: usize) {
        let now = self.instant();
        let mut buffer = std::mem::take(&mut self.buffer);
        while let Some(sent) = self.hosts[from].device.poll_transmit(now, &mut buffer) {
            let to = match from {
                0 => self.index_of(sent.route.flow.destination),
                _ => 0,
            };
            for packet in packets(&sent, &buffer) {
                self.send(from, to, sent.route, packet.to_vec());
            }
        }
        self.buffer = buffer;
        self.schedule_timer(from);
    }

    fn send(&mut self, from: usize, to: usize, route: Route, packet: Vec<u8>) {
        let bytes = packet.len() + LOWER_HEADERS;
        let direction = match from {
            0 => &mut self.to_senders,
            _ => &mut self.to_receiver,
        };
        let frame = Frame::Ours { to, route, packet };
        let arrivals = direction.carry(self.now, bytes, frame);
        self.schedule_arrivals(arrivals);
    }

    fn index_of(&self, address: IpAddr) -> usize {
        let found = self.indices.get(&address);
        *found.expect("a host has it")
    }

    fn let_tcp_send(&mut self, flow: usize) {
        while let Some(data) = self.tcp[flow].next_packet(self.now) {
            let frame = Frame::Data(flow, data);
            let arrivals = self.to_receiver.carry(self.now, PACKET, frame);
            self.schedule_arrivals(arrivals);
        }
        let at = self.tcp[flow].deadline(self.now);
        if let Some(at) = at.filter(|_| at != self.tcp_timers[flow]) {
            self.tcp_timers[flow] = Some(at);
            self.schedule(at, Event::TcpTimer(flow));
        }
    }

    fn schedule_arrivals(&mut self, arrivals: Vec<Arrival<Frame>>) {
        for arrival in arrivals {
            self.schedule(arrival.at, Event::Arrival(arrival));
        }
    }

    fn schedule_timer(&mut self, host: usize) {
        let Some(due) = self.hosts[host].device.poll_timeout() else {
            return;
        };
        let due = due.saturating_duration_since(self.start).max(self.now);
        // A timer is late by no more than that, so it need not move for less.
        let is_late = |at| at > due + TIMER_LATENESS;
        if self.hosts[host].timer_at.is_none_or(is_late) {
            let at = due + self.rng.up_to(TIMER_LATENESS);
            self.hosts[host].timer_at = Some(at);
            self.schedule(at, Event::HostTimer(host));
        }
    }

    fn schedule(&mut self, at: Duration, event: Event) {
        self.scheduled += 1;
        self.events.insert((at, self.scheduled), event);
    }

    fn instant(&self) -> Instant {
        self.start + self.now
    }

    fn outcome(self) -> Outcome {
        let setup = self.setup;
        let mut times = Vec::new();
        let mut ours = Vec::new();
        for host in &self.hosts[1..] {
            times.extend_from_slice(&host.times);
            for index in 0..setup.queue_pairs {
                let (packets, repeated) = host.progress(index);
                ours.push(setup.share(packets, repeated));
            }
        }
        times.sort_unstable();
        let tcp = self.tcp.iter();
        let tcp = tcp.map(|it| setup.share(it.acknowledged(), it.repeated));
        Outcome {
            ours,
            tcp: tcp.collect(),
            times,
            longest_queue: self.to_receiver.longest_queue,
        }
    }
}
