//! Hosts, the network between them, and time.

use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use cm::{
    Arrival, Config, Failure, Id, Instruction, Kind, Load, Manager, Recipient, Route, Slice, State,
    Transmit,
};
use wire::cm::{Message, PortSpace};
use wire::{PathMtu, Qpn};

use crate::application::Act;
use crate::ledger::{Ledger, Role, Seen, Who};
use crate::random::Random;

/// After this time nothing may happen any more.
const END: u64 = 10_000_000;

#[expect(
    clippy::disallowed_methods,
    reason = "an `Instant` can't be made from nothing; which one it is does not matter"
)]
fn beginning() -> Instant {
    static BEGINNING: OnceLock<Instant> = OnceLock::new();
    *BEGINNING.get_or_init(Instant::now)
}

/// Something that is going to happen.
#[derive(Debug)]
pub(crate) enum Happening {
    Arrival { host: usize, transmit: Transmit },
    Act { host: usize, life: u32, act: Act },
    Death { host: usize },
    Birth { host: usize },
}

/// Ordered by time, then by when it was planned; the soonest is the greatest.
struct Planned {
    at: u64,
    order: u64,
    happening: Happening,
}

impl PartialEq for Planned {
    fn eq(&self, other: &Self) -> bool {
        (self.at, self.order) == (other.at, other.order)
    }
}

impl Eq for Planned {}

impl PartialOrd for Planned {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Planned {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (other.at, other.order).cmp(&(self.at, self.order))
    }
}

/// Where a host is. The last of several may be a second process at the address of the first:
/// then it has a slice of the identifiers and other ports, but the same device.
#[derive(Clone, Copy)]
struct Place {
    number: usize,
    shares_first: bool,
    ipv6: bool,
}

impl Place {
    fn device(self) -> u8 {
        if self.shares_first {
            return 1;
        }
        self.number as u8 + 1
    }

    fn address(self) -> IpAddr {
        match self.ipv6 {
            true => Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, self.device().into()).into(),
            false => Ipv4Addr::new(10, 0, 0, self.device()).into(),
        }
    }

    fn slice(self) -> Slice {
        Slice::new(4, u32::from(self.shares_first)).expect("a slice")
    }

    fn ports(self) -> u16 {
        7000 + 10 * u16::from(self.shares_first)
    }

    /// Whether a message is for the process here.
    fn owns(self, message: &Message) -> bool {
        match cm::owner_of(message) {
            Recipient::Identifier(id) => self.slice().contains(id),
            Recipient::Listener(service) => service
                .port()
                .is_some_and(|(_, port)| port / 10 == self.ports() / 10),
            Recipient::Everyone => true,
        }
    }
}

/// A host with one process, or one of two processes.
pub(crate) struct Host {
    pub(crate) address: IpAddr,
    pub(crate) connections: u16,
    pub(crate) services: u16,
    place: Place,
    pub(crate) manager: Manager,
    pub(crate) life: u32,
    pub(crate) queue_pairs: BTreeMap<Id, Qpn>,
    listeners: Vec<Id>,
    alive: bool,
    qpns_given: u32,
}

impl Host {
    fn new(place: Place, life: u32) -> Self {
        let address = place.address();
        let seed = 1000 * u64::from(life) + place.number as u64;
        let mut config = Config::new(place.device().into(), seed);
        config.slice = place.slice();
        let mut manager = Manager::new(config);
        manager.add_address(address);
        let mut host = Host {
            address,
            connections: place.ports(),
            services: place.ports() + 1,
            place,
            manager,
            life,
            queue_pairs: BTreeMap::new(),
            listeners: Vec::new(),
            alive: true,
            qpns_given: 0x10 + (u32::from(place.shares_first) << 16),
        };
        host.listen(PortSpace::Tcp, host.connections);
        host.listen(PortSpace::Udp, host.services);
        host
    }

    fn listen(&mut self, space: PortSpace, port: u16) {
        let manager = &mut self.manager;
        let id = manager.create(space, Kind::of(space)).expect("an id");
        let address = (self.address, port).into();
        manager.bind(id, address).expect("a free port");
        manager.listen(id, 8).expect("a bound id");
        self.listeners.push(id);
    }

    /// Numbers start again in every life: that is what makes connections stale.
    pub(crate) fn new_qpn(&mut self) -> Qpn {
        self.qpns_given += 1;
        Qpn::new(self.qpns_given)
    }
}

/// How bad the network is.
struct Weather {
    loss: u64,
    duplication: u64,
    slow: u64,
}

/// Everything.
pub(crate) struct World {
    pub(crate) hosts: Vec<Host>,
    pub(crate) random: Random,
    pub(crate) ledger: Ledger,
    weather: Weather,
    planned: BinaryHeap<Planned>,
    plans: u64,
    numbers: u32,
    time: u64,
    fallen: BTreeSet<usize>,
    seen: Seen,
}

impl World {
    pub(crate) fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let hosts = random.between(2, 5) as usize;
        let weather = Weather {
            loss: random.pick(&[0, 0, 5, 10, 20]),
            duplication: random.pick(&[0, 10, 30]),
            slow: random.pick(&[0, 10, 50]),
        };
        let (shared, ipv6) = (random.chance(40), random.chance(30));
        let place = |number| Place {
            number,
            shares_first: shared && number == hosts - 1,
            ipv6,
        };
        let mut world = World {
            hosts: (0..hosts).map(|n| Host::new(place(n), 1)).collect(),
            random,
            ledger: Ledger::default(),
            weather,
            planned: BinaryHeap::new(),
            plans: 0,
            numbers: 0,
            time: 0,
            fallen: BTreeSet::new(),
            seen: Seen::default(),
        };
        for host in 0..hosts {
            world.note_listeners(host);
        }
        world.make_plans();
        world
    }

    pub(crate) fn run(mut self) -> Seen {
        while let Some(at) = self.next() {
            assert!(at < END, "it does not come to an end");
            self.time = at;
            self.step();
        }
        self.close();
        let fallen = &self.fallen;
        let lived = |who: &Who| !fallen.contains(&who.host);
        self.ledger
            .assert_agreement(|client, guest| lived(client) && lived(guest));
        let mut seen = Seen::of(&self.ledger);
        seen.add(&self.seen);
        for host in &self.hosts {
            seen.count(host.manager.counters());
        }
        seen
    }

    pub(crate) fn now(&self) -> Instant {
        beginning() + Duration::from_millis(self.time)
    }

    pub(crate) fn later(&mut self, after: u64, happening: Happening) {
        self.plans += 1;
        self.planned.push(Planned {
            at: self.time + after,
            order: self.plans,
            happening,
        });
    }

    fn make_plans(&mut self) {
        let hosts = self.hosts.len() as u64;
        for _ in 0..self.random.between(3, 16) {
            let host = self.random.between(0, hosts) as usize;
            self.plan_connection(host);
        }
        if self.random.chance(40) {
            let host = self.random.between(0, hosts) as usize;
            let death = self.random.between(0, 25_000);
            self.later(death, Happening::Death { host });
            if self.random.chance(70) {
                let absence = self.random.between(10, 5000);
                self.later(death + absence, Happening::Birth { host });
            }
        }
    }

    fn plan_connection(&mut self, host: usize) {
        let hosts = self.hosts.len() as u64;
        self.numbers += 1;
        let act = Act::Begin {
            number: self.numbers,
            to: self.random.between(0, hosts) as usize,
            service: self.random.chance(20),
        };
        let after = self.random.between(0, 25_000);
        self.plan(host, after, act);
    }

    /// When something happens next.
    fn next(&self) -> Option<u64> {
        let planned = self.planned.peek().map(|planned| planned.at);
        let timers = self.hosts.iter().filter(|host| host.alive);
        let timers = timers.filter_map(|host| host.manager.poll_timeout());
        let due = timers.map(|at| (at - beginning()).as_millis() as u64);
        due.chain(planned).min().map(|at| at.max(self.time))
    }

    fn step(&mut self) {
        let now = self.now();
        for host in 0..self.hosts.len() {
            if self.hosts[host].alive {
                self.hosts[host].manager.handle_timeout(now);
                self.pump(host);
            }
        }
        while self.planned.peek().is_some_and(|p| p.at <= self.time) {
            let planned = self.planned.pop().expect("peeked");
            self.happen(planned.happening);
        }
    }

    fn happen(&mut self, happening: Happening) {
        let now = self.now();
        match happening {
            Happening::Arrival { host, transmit } if self.hosts[host].alive => {
                let arrival = Arrival {
                    source: transmit.source,
                    destination: transmit.destination,
                };
                let manager = &mut self.hosts[host].manager;
                manager.handle_datagram(now, arrival, &*transmit.datagram);
                self.pump(host);
            }
            Happening::Act { host, life, act } => {
                if self.hosts[host].alive && self.hosts[host].life == life {
                    self.act(host, act);
                    self.pump(host);
                }
            }
            Happening::Death { host } => {
                self.hosts[host].alive = false;
                self.fallen.insert(host);
            }
            Happening::Birth { host } => {
                let life = self.hosts[host].life + 1;
                self.seen.count(self.hosts[host].manager.counters());
                self.hosts[host] = Host::new(self.hosts[host].place, life);
                self.note_listeners(host);
                for _ in 0..self.random.between(0, 5) {
                    self.plan_connection(host);
                }
            }
            Happening::Arrival { .. } => {}
        }
    }

    /// Fetches everything that a manager has to say.
    fn pump(&mut self, host: usize) {
        loop {
            let manager = &mut self.hosts[host].manager;
            if let Some(instruction) = manager.poll_instruction() {
                self.obey(host, instruction);
            } else if let Some(transmit) = manager.poll_transmit() {
                self.carry(&transmit);
            } else if let Some(event) = manager.poll_event() {
                self.react(host, event.id, &event.kind);
            } else {
                return;
            }
        }
    }

    fn obey(&mut self, host: usize, instruction: Instruction) {
        let fails = self.random.chance(3);
        let Host {
            manager, address, ..
        } = &mut self.hosts[host];
        match instruction {
            Instruction::ResolveAddress { id, .. } => {
                manager.address_resolved(id, Ok(*address));
            }
            Instruction::ResolveRoute { id, .. } if fails => {
                manager.route_resolved(id, Err(Failure::Os(113)));
            }
            Instruction::ResolveRoute { id, .. } => {
                manager.route_resolved(id, Ok(Route::new(PathMtu::Mtu1024)));
            }
            Instruction::BreakQueuePair { id, qpn } => {
                let known = self.hosts[host].queue_pairs.get(&id);
                assert_eq!(known, Some(&qpn), "its own queue pair");
            }
            other => panic!("nobody asked for {other:?}"),
        }
    }

    /// Brings a datagram to its host, or not, or twice. No packet lives longer than the second
    /// that the protocol gives it.
    fn carry(&mut self, transmit: &Transmit) {
        let copies = 1 + u64::from(self.random.chance(self.weather.duplication));
        for _ in 0..copies {
            if self.random.chance(self.weather.loss) {
                continue;
            }
            let delay = match self.random.chance(self.weather.slow) {
                true => self.random.between(1, 900),
                false => self.random.between(1, 5),
            };
            for host in self.recipients(transmit) {
                let transmit = transmit.clone();
                self.later(delay, Happening::Arrival { host, transmit });
            }
        }
    }

    /// What a driver does: whoever gets a message for an address passes it on to its owner.
    fn recipients(&self, transmit: &Transmit) -> Vec<usize> {
        let (_, message) = Message::parse(&transmit.datagram).expect("a message");
        let is_there = |&number: &usize| self.hosts[number].address == transmit.destination;
        let there: Vec<usize> = (0..self.hosts.len()).filter(is_there).collect();
        let owns = |&number: &usize| self.hosts[number].place.owns(&message);
        let owners: Vec<usize> = there.iter().copied().filter(owns).collect();
        // Somebody has to answer for those who do not exist.
        if owners.is_empty() {
            return there[..1].to_vec();
        }
        owners
    }

    fn note_listeners(&mut self, host: usize) {
        for id in self.hosts[host].listeners.clone() {
            let who = self.who(host, id);
            self.ledger.open(who, Role::Listener);
        }
    }

    /// In the end nothing is left but listeners, and without them nothing at all.
    fn close(&mut self) {
        let now = self.now();
        for host in self.hosts.iter_mut().filter(|host| host.alive) {
            for &id in &host.listeners {
                assert_eq!(host.manager.state(id), Some(State::Listening));
                host.manager.destroy(now, id).expect("it exists");
            }
            assert_eq!(host.manager.load(), Load::default(), "something leaks");
        }
    }
}
