//! Hosts, the network between them, and a clock that jumps from one event to the next.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::net::IpAddr;
use std::ops::Range;
use std::time::{Duration, Instant};

use engine::{Arrival, Counters, Device, Transmit, transmit};
use wire::{Flow, ICRC_LENGTH, Packet, Qpn, icrc};

use crate::Complaint;
use crate::digest::Digest;
use crate::machine::Machine;
use crate::network::{Fate, Network};
use crate::rng::Rng;
use crate::tap::{Endpoint, Tap};

/// One machine with one device.
pub struct Host {
    /// The device; none when the host is dead.
    pub machine: Option<Machine>,
    /// The address at which it is reached.
    pub address: IpAddr,
    /// Multicast groups that it listens to.
    pub groups: Vec<IpAddr>,
    /// The queue pair numbers whose packets it gets; all of them, unless it is one of several
    /// processes at its address.
    pub numbers: Option<Range<u32>>,
    /// When its timers will be looked at.
    timer_at: Option<Duration>,
    /// Whether it will be asked for packets.
    transmit_due: bool,
    /// What it counted, also after its death.
    pub counters: Counters,
    /// How many datagrams reached it with bits flipped.
    spoiled: u64,
}

/// What happens at a moment.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Happening {
    Arrival { host: usize, datagram: Datagram },
    Timeout { host: usize },
    Transmit { host: usize },
    Call { number: u64 },
}

/// A datagram under way. Never compared: no two happenings have the same turn.
#[derive(Debug)]
struct Datagram {
    flow: Flow,
    bytes: Vec<u8>,
    intact: bool,
}

impl PartialEq for Datagram {
    fn eq(&self, other: &Self) -> bool {
        self.bytes == other.bytes
    }
}

impl Eq for Datagram {}

impl PartialOrd for Datagram {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Datagram {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.bytes.cmp(&other.bytes)
    }
}

/// What a step of the world was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Something at this host.
    Host(usize),
    /// A moment that was asked for with [`World::call`].
    Call(u64),
}

/// Everything there is.
pub struct World {
    /// All hosts.
    pub hosts: Vec<Host>,
    /// The network between them.
    pub network: Network,
    /// Who looks at the wire.
    pub tap: Tap,
    /// The fingerprint of all that happened.
    pub digest: Digest,
    /// How many packets were sent.
    pub packets: u64,
    /// Whether packets are printed.
    pub prints: bool,
    base: Instant,
    now: Duration,
    agenda: BinaryHeap<Reverse<(Duration, u64, Happening)>>,
    turns: u64,
    /// How long a host may let packets wait for others before it sends or answers.
    lag: Duration,
    rng: Rng,
    buffer: Vec<u8>,
}

impl World {
    /// A world without hosts, whose network is `network` and whose hosts may answer after `lag`.
    #[must_use]
    pub fn new(network: Network, lag: Duration, rng: Rng) -> Self {
        Self {
            hosts: Vec::new(),
            network,
            tap: Tap::default(),
            digest: Digest::default(),
            packets: 0,
            prints: false,
            // The only look at a clock: all times are distances from here.
            base: Instant::now(),
            now: Duration::ZERO,
            agenda: BinaryHeap::new(),
            turns: 0,
            lag,
            rng,
            buffer: Vec::new(),
        }
    }

    /// Adds a host; gives its number.
    pub fn add_host(&mut self, address: IpAddr, machine: impl Into<Machine>) -> usize {
        self.hosts.push(Host {
            machine: Some(machine.into()),
            address,
            groups: Vec::new(),
            numbers: None,
            timer_at: None,
            transmit_due: false,
            counters: Counters::default(),
            spoiled: 0,
        });
        self.hosts.len() - 1
    }

    /// The time since the world began.
    #[must_use]
    pub fn now(&self) -> Duration {
        self.now
    }

    /// The most that a request and its answer take on this network, with hosts as slow as here.
    #[must_use]
    pub fn slowest_round_trip(&self) -> Duration {
        2 * (self.network.faults().slowest() + self.lag)
    }

    /// Whether every datagram under way arrives, and in order.
    #[must_use]
    pub fn is_calm(&self) -> bool {
        let faults = self.network.faults();
        let is_over = self.now >= faults.until + faults.slowest();
        is_over || faults.loses_nothing() && faults.keeps_order()
    }

    /// Whether a host may have packets that it was not yet asked for.
    #[must_use]
    pub fn has_to_send(&self, host: usize) -> bool {
        self.hosts[host].transmit_due
    }

    /// The device of a host, to do something with it; none if the host is dead.
    pub fn device(&mut self, host: usize) -> Option<&mut Device> {
        self.machine(host).map(Machine::device)
    }

    /// The machine of a host, to do something with it; none if the host is dead.
    pub fn machine(&mut self, host: usize) -> Option<&mut Machine> {
        self.touch(host);
        self.hosts[host].machine.as_mut()
    }

    /// The device of a host, to look at.
    #[must_use]
    pub fn peek(&self, host: usize) -> Option<&Device> {
        self.hosts[host].machine.as_ref().map(Machine::peek)
    }

    /// Ends a host: its device is gone, and packets to it vanish.
    pub fn kill(&mut self, host: usize) {
        if let Some(machine) = self.hosts[host].machine.take() {
            self.hosts[host].counters = *machine.peek().counters();
        }
    }

    /// A dead host begins a new life, with a new device.
    pub fn revive(&mut self, host: usize, machine: impl Into<Machine>) -> Result<(), Complaint> {
        self.check_spoiled_at(host, &self.hosts[host].counters)?;
        let host = &mut self.hosts[host];
        host.machine = Some(machine.into());
        host.spoiled = 0;
        Ok(())
    }

    /// All counters of all hosts, the dead included.
    pub fn counters(&self) -> impl Iterator<Item = Counters> {
        self.hosts.iter().map(|host| match &host.machine {
            Some(machine) => *machine.peek().counters(),
            None => host.counters,
        })
    }

    /// Every host must have noticed every datagram that reached it with bits flipped, and no other.
    pub fn check_spoiled(&self) -> Result<(), Complaint> {
        for (host, counters) in self.counters().enumerate() {
            self.check_spoiled_at(host, &counters)?;
        }
        Ok(())
    }

    fn check_spoiled_at(&self, host: usize, counters: &Counters) -> Result<(), Complaint> {
        let noticed = counters.bad_checksum + counters.malformed;
        match self.hosts[host].spoiled {
            spoiled if spoiled == noticed => Ok(()),
            spoiled => Err(Complaint::new(format!(
                "{spoiled} spoiled datagrams reached host {host}, which noticed {noticed}"
            ))),
        }
    }

    /// Makes [`step`](Self::step) return [`Step::Call`] with this number after a delay.
    pub fn call(&mut self, delay: Duration, number: u64) {
        self.schedule(self.now + delay, Happening::Call { number });
    }

    /// Whether nothing will ever happen unless somebody does something.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.agenda.is_empty()
    }

    /// Lets the next thing happen; none if nothing ever will.
    pub fn step(&mut self) -> Result<Option<Step>, Complaint> {
        let Some(Reverse((at, _, happening))) = self.agenda.pop() else {
            return Ok(None);
        };
        self.now = at;
        self.digest.number(at.as_nanos() as u64);
        let host = match happening {
            Happening::Call { number } => return Ok(Some(Step::Call(number))),
            Happening::Arrival { host, datagram } => {
                self.arrive(host, &datagram);
                host
            }
            Happening::Timeout { host } => {
                self.time_out(host);
                host
            }
            Happening::Transmit { host } => {
                self.transmit(host)?;
                host
            }
        };
        Ok(Some(Step::Host(host)))
    }

    fn schedule(&mut self, at: Duration, happening: Happening) {
        // The turn makes equal times happen in the order in which they were scheduled.
        self.turns += 1;
        self.agenda.push(Reverse((at, self.turns, happening)));
    }

    /// The same moment, as devices are told it.
    #[must_use]
    pub fn instant(&self) -> Instant {
        self.base + self.now
    }

    /// Something was or will be done to a device: ask it for packets and timers soon.
    fn touch(&mut self, host: usize) {
        if self.hosts[host].machine.is_some() && !self.hosts[host].transmit_due {
            self.hosts[host].transmit_due = true;
            let lag = self.rng.up_to(self.lag);
            self.schedule(self.now + lag, Happening::Transmit { host });
        }
    }

    fn arrive(&mut self, host: usize, datagram: &Datagram) {
        let (now, instant) = (self.now, self.instant());
        let Some(machine) = &mut self.hosts[host].machine else {
            return;
        };
        machine.handle_datagram(instant, &Arrival::new(datagram.flow), &datagram.bytes);
        if self.rng.percent(3) {
            // Early or twice is harmless, they say.
            machine.handle_timeout(instant);
        }
        self.hosts[host].spoiled += u64::from(!datagram.intact);
        if datagram.intact
            && let Ok(packet) = Packet::parse(&datagram.bytes)
        {
            let queue_pair = packet.destination;
            self.tap
                .arrived(now, Endpoint { host, queue_pair }, &packet);
        }
        self.touch(host);
    }

    fn time_out(&mut self, host: usize) {
        let instant = self.instant();
        self.hosts[host].timer_at = None;
        if let Some(machine) = &mut self.hosts[host].machine {
            machine.handle_timeout(instant);
        }
        self.touch(host);
    }

    fn transmit(&mut self, host: usize) -> Result<(), Complaint> {
        self.hosts[host].transmit_due = false;
        let mut buffer = std::mem::take(&mut self.buffer);
        let instant = self.instant();
        while let Some(machine) = &mut self.hosts[host].machine
            && let Some(transmit) = machine.poll_transmit(instant, &mut buffer)
        {
            self.send(host, &transmit, &buffer)?;
        }
        self.buffer = buffer;
        self.watch_timer(host);
        Ok(())
    }

    fn watch_timer(&mut self, host: usize) {
        let Some(machine) = &self.hosts[host].machine else {
            return;
        };
        let Some(deadline) = machine.poll_timeout() else {
            return;
        };
        let at = deadline.saturating_duration_since(self.base).max(self.now);
        if self.hosts[host].timer_at.is_none_or(|earlier| at < earlier) {
            self.hosts[host].timer_at = Some(at);
            self.schedule(at, Happening::Timeout { host });
        }
    }

    fn send(&mut self, from: usize, transmit: &Transmit, buffer: &[u8]) -> Result<(), Complaint> {
        let flow = transmit.route.flow;
        let receivers = self.receivers(&flow);
        for (index, datagram) in transmit::packets(transmit, buffer).enumerate() {
            self.send_packet(from, &receivers, &flow, index as u16, datagram)?;
        }
        Ok(())
    }

    /// Sends a packet in the place of a host, which may be dead.
    pub fn send_for(&mut self, host: usize, flow: &Flow, packet: &[u8]) -> Result<(), Complaint> {
        let receivers = self.receivers(flow);
        self.send_packet(host, &receivers, flow, 0, packet)
    }

    fn receivers(&self, flow: &Flow) -> Vec<usize> {
        let is_receiver = |host: &Host| {
            host.address == flow.destination || host.groups.contains(&flow.destination)
        };
        (0..self.hosts.len())
            .filter(|&host| is_receiver(&self.hosts[host]))
            .collect()
    }

    fn send_packet(
        &mut self,
        from: usize,
        receivers: &[usize],
        flow: &Flow,
        identification: u16,
        datagram: &[u8],
    ) -> Result<(), Complaint> {
        let packet = check_sent(flow, identification, datagram)?;
        self.packets += 1;
        for &to in receivers {
            if self.is_steered_to(to, packet.destination) {
                self.carry([from, to], flow, identification, datagram, &packet)?;
            }
        }
        Ok(())
    }

    /// Whether a packet that has this address comes to this host. Of the processes that share an
    /// address each has its numbers; what comes to queue pair 1 goes to any one that lives.
    fn is_steered_to(&self, host: usize, number: Qpn) -> bool {
        let Some(numbers) = &self.hosts[host].numbers else {
            return true;
        };
        if number != Qpn::GSI {
            return numbers.contains(&number.value());
        }
        let address = self.hosts[host].address;
        let lives = |other: &Host| other.address == address && other.machine.is_some();
        self.hosts.iter().position(lives) == Some(host)
    }

    fn carry(
        &mut self,
        hosts: [usize; 2],
        flow: &Flow,
        identification: u16,
        datagram: &[u8],
        packet: &Packet<'_>,
    ) -> Result<(), Complaint> {
        let now = self.now;
        let [from, host] = hosts;
        let (mut fate, mut deliveries) =
            self.network
                .carry(now, hosts, flow, identification, datagram);
        if self.hosts[host].machine.is_none() {
            fate = Fate::Nobody;
            deliveries.clear();
        }
        self.digest.bytes(datagram);
        self.digest.number(fate as u64);
        if self.prints {
            println!("{now:>12?}  {from} -> {host}  {fate:<10?}  {packet}");
        }
        for delivery in deliveries {
            let datagram = Datagram {
                flow: *flow,
                bytes: delivery.bytes,
                intact: fate != Fate::Corrupted,
            };
            self.schedule(delivery.at, Happening::Arrival { host, datagram });
        }
        let queue_pair = packet.destination;
        self.tap
            .sent(now, Endpoint { host, queue_pair }, packet, fate)
    }
}

/// Whatever a device sends must be a packet with the checksum that its place in the send calls for.
fn check_sent<'a>(
    flow: &Flow,
    identification: u16,
    datagram: &'a [u8],
) -> Result<Packet<'a>, Complaint> {
    let packet = Packet::parse(datagram)
        .map_err(|error| Complaint::new(format!("a device sent what is no packet: {error}")))?;
    let (content, seal) = datagram.split_at(datagram.len() - ICRC_LENGTH);
    if icrc::checksum(flow, identification, content) != seal {
        return Err(Complaint::new(format!(
            "a device sent a packet with a wrong ICRC as number {identification} of a send: {packet}"
        )));
    }
    Ok(packet)
}
