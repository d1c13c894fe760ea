//! Hosts, the network between them, and a virtual clock that advances from one event to the next.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::net::IpAddr;
use std::ops::Range;
use std::time::{Duration, Instant};

use engine::{Counters, Device, QueuePair, Transmit, transmit};
use wire::{Flow, ICRC_LENGTH, Packet, Qpn, Route, icrc};

use crate::CheckError;
use crate::digest::Digest;
use crate::machine::Machine;
use crate::network::{Network, PacketOutcome};
use crate::packet_observer::{HostQueuePair, Tap};
use crate::rng::Rng;

/// A simulated host.
pub struct Host {
    /// What the host runs; none while it is down.
    pub machine: Option<Machine>,
    /// Its address.
    pub address: IpAddr,
    /// The multicast groups that it has joined.
    pub groups: Vec<IpAddr>,
    /// The queue pair numbers whose packets it receives. None means all: it is the only process at its
    /// address.
    pub numbers: Option<Range<u32>>,
    /// When its next timer event is scheduled.
    timer_at: Option<Duration>,
    /// Whether a transmit event is scheduled.
    transmit_due: bool,
    /// Its counters at the time when it went down.
    pub counters: Counters,
    /// How many corrupted datagrams reached it.
    corrupted: u64,
}

/// An event of the simulation.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Receive { host: usize, datagram: Datagram },
    Timeout { host: usize },
    Transmit { host: usize },
    Call { number: u64 },
}

/// A datagram in flight. The order is never used, because every event has a different sequence number.
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

/// What a step of the simulation did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// An event at this host.
    Host(usize),
    /// A call that [`World::call`] scheduled.
    Call(u64),
}

/// The simulated hosts, network and clock.
pub struct World {
    /// All hosts.
    pub hosts: Vec<Host>,
    /// The network between them.
    pub network: Network,
    /// Observes all packets.
    pub tap: Tap,
    /// The digest of all events.
    pub digest: Digest,
    /// How many packets were sent.
    pub packets: u64,
    /// Whether packets are printed.
    pub prints: bool,
    base: Instant,
    now: Duration,
    event_queue: BinaryHeap<Reverse<(Duration, u64, Event)>>,
    sequence: u64,
    /// The longest time that a host waits before it sends or answers.
    lag: Duration,
    rng: Rng,
    buffer: Vec<u8>,
}

impl World {
    /// A simulation without hosts. Hosts send and answer after at most `lag`.
    #[must_use]
    pub fn new(network: Network, lag: Duration, rng: Rng) -> Self {
        Self {
            hosts: Vec::new(),
            network,
            tap: Tap::default(),
            digest: Digest::default(),
            packets: 0,
            prints: false,
            // The only use of the clock: all times are relative to it.
            base: Instant::now(),
            now: Duration::ZERO,
            event_queue: BinaryHeap::new(),
            sequence: 0,
            lag,
            rng,
            buffer: Vec::new(),
        }
    }

    /// Adds a host; returns its index.
    pub fn add_host(&mut self, address: IpAddr, machine: impl Into<Machine>) -> usize {
        self.hosts.push(Host {
            machine: Some(machine.into()),
            address,
            groups: Vec::new(),
            numbers: None,
            timer_at: None,
            transmit_due: false,
            counters: Counters::default(),
            corrupted: 0,
        });
        self.hosts.len() - 1
    }

    /// The virtual time since the start.
    #[must_use]
    pub fn now(&self) -> Duration {
        self.now
    }

    /// The longest round trip on this network, including the delays of the hosts.
    #[must_use]
    pub fn slowest_round_trip(&self) -> Duration {
        2 * (self.network.faults().slowest() + self.lag)
    }

    /// Whether every datagram in flight arrives, and in order.
    #[must_use]
    pub fn is_faultless(&self) -> bool {
        let faults = self.network.faults();
        let is_over = self.now >= faults.until + faults.slowest();
        is_over || faults.loses_nothing() && faults.keeps_order()
    }

    /// Whether a host may have packets that it was not yet asked for.
    #[must_use]
    pub fn has_to_send(&self, host: usize) -> bool {
        self.hosts[host].transmit_due
    }

    /// The device of a host, to change it; none if the host is down. Schedules a transmit event.
    pub fn device_mut(&mut self, host: usize) -> Option<&mut Device> {
        self.machine(host).map(Machine::device_mut)
    }

    /// The device of a host that has a queue pair, to change it; none if the host is down. Schedules a transmit event.
    pub fn device_of(&mut self, host: usize, number: Qpn) -> Option<&mut Device> {
        self.machine(host).map(|machine| machine.device_of(number))
    }

    /// A queue pair of a host, read-only.
    #[must_use]
    pub fn queue_pair(&self, host: usize, number: Qpn) -> Option<&QueuePair> {
        let devices = self.hosts[host].machine.as_ref()?.devices();
        devices.iter().find_map(|device| device.queue_pair(number))
    }

    /// The machine of a host, to change it; none if the host is down. Schedules a transmit event.
    pub fn machine(&mut self, host: usize) -> Option<&mut Machine> {
        self.touch(host);
        self.hosts[host].machine.as_mut()
    }

    /// The device of a host, read-only.
    #[must_use]
    pub fn device(&self, host: usize) -> Option<&Device> {
        self.hosts[host].machine.as_ref().map(Machine::device)
    }

    /// Takes a host down: its device is gone, and packets to it are lost.
    pub fn kill(&mut self, host: usize) {
        if let Some(machine) = self.hosts[host].machine.take() {
            self.hosts[host].counters = machine.counters();
        }
    }

    /// Starts a host again with a new device.
    pub fn restart(&mut self, host: usize, machine: impl Into<Machine>) -> Result<(), CheckError> {
        self.check_corrupted_at(host, &self.hosts[host].counters)?;
        let host = &mut self.hosts[host];
        host.machine = Some(machine.into());
        host.corrupted = 0;
        Ok(())
    }

    /// The counters of all hosts, including those that are down.
    pub fn counters(&self) -> impl Iterator<Item = Counters> {
        self.hosts.iter().map(|host| match &host.machine {
            Some(machine) => machine.counters(),
            None => host.counters,
        })
    }

    /// Every host must have counted each corrupted datagram that reached it, and no other.
    pub fn check_corrupted(&self) -> Result<(), CheckError> {
        for (host, counters) in self.counters().enumerate() {
            self.check_corrupted_at(host, &counters)?;
        }
        Ok(())
    }

    fn check_corrupted_at(&self, host: usize, counters: &Counters) -> Result<(), CheckError> {
        let noticed = counters.bad_checksum + counters.malformed;
        match self.hosts[host].corrupted {
            corrupted if corrupted == noticed => Ok(()),
            corrupted => Err(CheckError::new(format!(
                "{corrupted} corrupted datagrams reached host {host}, which counted {noticed}"
            ))),
        }
    }

    /// Makes [`step`](Self::step) return [`Step::Call`] with this number after a delay.
    pub fn call(&mut self, delay: Duration, number: u64) {
        self.schedule(self.now + delay, Event::Call { number });
    }

    /// Whether no event is scheduled.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.event_queue.is_empty()
    }

    /// Executes the next event; none if no event is scheduled.
    pub fn step(&mut self) -> Result<Option<Step>, CheckError> {
        let Some(Reverse((at, _, event))) = self.event_queue.pop() else {
            return Ok(None);
        };
        self.now = at;
        self.digest.number(at.as_nanos() as u64);
        let host = match event {
            Event::Call { number } => return Ok(Some(Step::Call(number))),
            Event::Receive { host, datagram } => {
                self.arrive(host, &datagram);
                host
            }
            Event::Timeout { host } => {
                self.time_out(host);
                host
            }
            Event::Transmit { host } => {
                self.transmit(host)?;
                host
            }
        };
        Ok(Some(Step::Host(host)))
    }

    fn schedule(&mut self, at: Duration, event: Event) {
        // The sequence number keeps events of equal time in the order in which they were scheduled.
        self.sequence += 1;
        self.event_queue.push(Reverse((at, self.sequence, event)));
    }

    /// The current time as an `Instant`, for devices.
    #[must_use]
    pub fn instant(&self) -> Instant {
        self.base + self.now
    }

    /// Schedules a transmit event, because the device changed or is about to change.
    fn touch(&mut self, host: usize) {
        if self.hosts[host].machine.is_some() && !self.hosts[host].transmit_due {
            self.hosts[host].transmit_due = true;
            let lag = self.rng.up_to(self.lag);
            self.schedule(self.now + lag, Event::Transmit { host });
        }
    }

    fn arrive(&mut self, host: usize, datagram: &Datagram) {
        let (now, instant) = (self.now, self.instant());
        let Some(machine) = &mut self.hosts[host].machine else {
            return;
        };
        machine.handle_datagram(instant, &Route::new(datagram.flow), &datagram.bytes);
        if self.rng.percent(3) {
            // An early or repeated call must be harmless.
            machine.handle_timeout(instant);
        }
        self.hosts[host].corrupted += u64::from(!datagram.intact);
        if datagram.intact
            && let Ok(packet) = Packet::parse(&datagram.bytes)
        {
            let queue_pair = packet.destination;
            self.tap
                .arrived(now, HostQueuePair { host, queue_pair }, &packet);
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

    fn transmit(&mut self, host: usize) -> Result<(), CheckError> {
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
            self.schedule(at, Event::Timeout { host });
        }
    }

    fn send(&mut self, from: usize, transmit: &Transmit, buffer: &[u8]) -> Result<(), CheckError> {
        let flow = transmit.route.flow;
        let receivers = self.receivers(&flow);
        for (index, datagram) in transmit::packets(transmit, buffer).enumerate() {
            self.send_packet(from, &receivers, &flow, index as u16, datagram)?;
        }
        Ok(())
    }

    /// Sends a packet on behalf of a host, which may be down.
    pub fn send_for(&mut self, host: usize, flow: &Flow, packet: &[u8]) -> Result<(), CheckError> {
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
    ) -> Result<(), CheckError> {
        let packet = check_sent(flow, identification, datagram)?;
        self.packets += 1;
        for &to in receivers {
            if self.is_steered_to(to, packet.destination) {
                self.carry([from, to], flow, identification, datagram, &packet)?;
            }
        }
        Ok(())
    }

    /// Whether this host receives a packet to this queue pair number. Processes that share an address
    /// have different numbers. A packet to queue pair 1 goes to the first process that is up.
    fn is_steered_to(&self, host: usize, number: Qpn) -> bool {
        let Some(numbers) = &self.hosts[host].numbers else {
            return true;
        };
        if number != Qpn::GSI {
            return numbers.contains(&number.value());
        }
        let address = self.hosts[host].address;
        let is_up = |other: &Host| other.address == address && other.machine.is_some();
        self.hosts.iter().position(is_up) == Some(host)
    }

    fn carry(
        &mut self,
        hosts: [usize; 2],
        flow: &Flow,
        identification: u16,
        datagram: &[u8],
        packet: &Packet<'_>,
    ) -> Result<(), CheckError> {
        let now = self.now;
        let [from, host] = hosts;
        let (mut outcome, mut deliveries) =
            self.network
                .carry(now, hosts, flow, identification, datagram);
        if self.hosts[host].machine.is_none() {
            outcome = PacketOutcome::NoReceiver;
            deliveries.clear();
        }
        self.digest.bytes(datagram);
        self.digest.number(outcome as u64);
        if self.prints {
            println!("{now:>12?}  {from} -> {host}  {outcome:<10?}  {packet}");
        }
        for delivery in deliveries {
            let datagram = Datagram {
                flow: *flow,
                bytes: delivery.bytes,
                intact: outcome != PacketOutcome::Corrupted,
            };
            self.schedule(delivery.at, Event::Receive { host, datagram });
        }
        let queue_pair = packet.destination;
        self.tap
            .sent(now, HostQueuePair { host, queue_pair }, packet, outcome)
    }
}

/// A sent datagram must be a valid packet with the ICRC of its position in the send.
fn check_sent<'a>(
    flow: &Flow,
    identification: u16,
    datagram: &'a [u8],
) -> Result<Packet<'a>, CheckError> {
    let packet = Packet::parse(datagram)
        .map_err(|error| CheckError::new(format!("a device sent an invalid packet: {error}")))?;
    let (content, seal) = datagram.split_at(datagram.len() - ICRC_LENGTH);
    if icrc::checksum(flow, identification, content) != seal {
        return Err(CheckError::new(format!(
            "a device sent a packet with a wrong ICRC as number {identification} of a send: {packet}"
        )));
    }
    Ok(packet)
}
