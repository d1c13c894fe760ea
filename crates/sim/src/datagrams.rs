//! Datagrams to single queue pairs and to multicast groups.

mod check;

use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;
use std::time::Duration;

use engine::{
    Access, Address, Bug, CompletionQueue, Config, Destination, Id, QueuePairInit, QueuePairType,
    ReceiveRequest, Segment, SendFlags, SendRequest, Work,
};
use wire::{Gid, Key, PathMtu, Qpn, QueueKey, grh};

use crate::CheckError;
use crate::model_memory::{Block, ModelMemory};
use crate::network::{Faults, Network};
use crate::rng::Rng;
use crate::simple_connect::open;
use crate::world::{Step, World};

/// Hosts with datagram queue pairs that send to each other.
pub(crate) struct Datagrams {
    pub(crate) world: World,
    rng: Rng,
    memories: Vec<ModelMemory>,
    members: Vec<GroupMember>,
    groups: Vec<IpAddr>,
    sent: Vec<Sent>,
    /// The longest datagram that fits into every receive.
    longest: usize,
    /// Whether a datagram may find no receive posted.
    late: bool,
    pace: Duration,
    next_id: u64,
}

/// A queue pair.
struct GroupMember {
    host: usize,
    number: Qpn,
    queue: Id<CompletionQueue>,
    queue_key: QueueKey,
    /// The memory of its sends and receives.
    memory: usize,
    key: Key,
    groups: Vec<usize>,
    posted: VecDeque<(u64, Block)>,
    outstanding: VecDeque<Outstanding>,
    quota: usize,
    /// The last datagram received from each sender.
    newest: BTreeMap<usize, usize>,
}

/// A datagram whose send has no completion yet.
struct Outstanding {
    id: u64,
    signaled: bool,
    oversize: bool,
    block: Block,
}

/// A datagram that was sent.
struct Sent {
    id: u64,
    from: usize,
    to: Receiver,
    data: Vec<u8>,
    immediate: Option<[u8; 4]>,
    queue_key: QueueKey,
    /// How many times each member received it.
    came: BTreeMap<usize, u32>,
}

/// The receiver of a datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Receiver {
    GroupMember(usize),
    Group(usize),
    /// None, because it is too long.
    None,
}

const DEPTH: usize = 128;
const ACTIVE_MTU: PathMtu = PathMtu::Mtu4096;
const KEYS: [QueueKey; 2] = [QueueKey::new(0x1111_1111), QueueKey::new(0x2222)];

impl Datagrams {
    pub(crate) fn build(
        faults: Faults,
        bug: Option<Bug>,
        mut rng: Rng,
    ) -> Result<Self, CheckError> {
        let network = Network::new(faults, rng.fork());
        let lag = Duration::from_micros(rng.below(10) as u64);
        let world = World::new(network, lag, rng.fork());
        let mut datagrams = Self {
            world,
            memories: Vec::new(),
            members: Vec::new(),
            groups: Vec::new(),
            sent: Vec::new(),
            longest: *rng.pick(&[0, 64, 256, 1024, 4096]),
            late: rng.percent(30),
            pace: Duration::from_micros(rng.between(1, 50) as u64),
            next_id: 0,
            rng,
        };
        let over_ipv6 = datagrams.rng.percent(50);
        datagrams.groups = if over_ipv6 {
            vec!["ff0e::1".parse(), "ff0e::2".parse()]
        } else {
            vec!["224.1.2.3".parse(), "239.9.9.9".parse()]
        }
        .into_iter()
        .flatten()
        .collect();
        for number in 0..datagrams.rng.between(2, 4) {
            datagrams.add_host(number as u8, over_ipv6, bug)?;
        }
        Ok(datagrams)
    }

    fn add_host(
        &mut self,
        number: u8,
        over_ipv6: bool,
        bug: Option<Bug>,
    ) -> Result<(), CheckError> {
        let address: IpAddr = if over_ipv6 {
            [0xfd00, 0, 0, 0, 0, 0, 0, u16::from(number) + 1].into()
        } else {
            [10, 0, 0, number + 1].into()
        };
        let config = Config {
            active_mtu: ACTIVE_MTU,
            ..crate::cluster::draw_config(&mut self.rng, address)
        };
        let host = self.world.add_host(address, config);
        if let (Some(bug), Some(device)) = (bug, self.world.device_mut(host)) {
            device.plant(bug);
        }
        for _ in 0..self.rng.between(1, 2) {
            self.add_member(host)?;
        }
        Ok(())
    }

    fn add_member(&mut self, host: usize) -> Result<(), CheckError> {
        // Three times the used size, because free ranges are found by random tries.
        let length = 3 * (DEPTH + 16) * (self.longest + 80);
        let memory = ModelMemory::new(host, length, self.rng.word() >> 8, &mut self.rng);
        let queue_key = *self.rng.pick(&KEYS);
        let joined: Vec<usize> = (0..self.groups.len())
            .filter(|_| self.rng.percent(50))
            .collect();
        let device = self.world.device_mut(host).ok_or_else(dead)?;
        let domain = device.allocate_domain()?;
        let queue = device.create_completion_queue(10_000)?;
        let region = device.register(domain, memory.buffer(), memory.base, Access::LOCAL_WRITE)?;
        let mut init = QueuePairInit::new(QueuePairType::Ud, domain, queue);
        init.max_receives = DEPTH as u32;
        let number = device.create_queue_pair(init)?;
        open(device, number, queue_key)?;
        for &group in &joined {
            device.attach_multicast(number, self.groups[group].into())?;
        }
        self.world.hosts[host]
            .groups
            .extend(joined.iter().map(|&group| self.groups[group]));
        self.memories.push(memory);
        self.members.push(GroupMember {
            host,
            number,
            queue,
            queue_key,
            memory: self.memories.len() - 1,
            key: region.local_key,
            groups: joined,
            posted: VecDeque::new(),
            outstanding: VecDeque::new(),
            quota: self.rng.between(1, 14),
            newest: BTreeMap::new(),
        });
        Ok(())
    }

    pub(crate) fn run(&mut self) -> Result<(), CheckError> {
        for member in 0..self.members.len() {
            let first = if self.late { self.rng.below(6) } else { DEPTH };
            self.post_receives(member, first)?;
            self.call_later(member);
        }
        while let Some(step) = self.world.step()? {
            match step {
                Step::Call(member) => self.act(member as usize)?,
                Step::Host(host) => self.drain(host)?,
            }
        }
        self.check_all_arrived()?;
        self.world.check_corrupted()?;
        self.memories.iter().try_for_each(ModelMemory::check_all)
    }

    fn call_later(&mut self, member: usize) {
        let delay = self.rng.up_to(self.pace);
        self.world.call(delay, member as u64);
    }

    fn act(&mut self, member: usize) -> Result<(), CheckError> {
        let more = self.rng.below(3);
        self.post_receives(member, more)?;
        if self.members[member].quota == 0 {
            return Ok(());
        }
        self.members[member].quota -= 1;
        self.send(member)?;
        self.call_later(member);
        Ok(())
    }

    fn post_receives(&mut self, member: usize, count: usize) -> Result<(), CheckError> {
        for _ in 0..count.min(DEPTH - self.members[member].posted.len()) {
            let GroupMember {
                host,
                number,
                memory,
                ..
            } = self.members[member];
            let length = grh::LENGTH + self.longest + self.rng.below(20);
            let pieces = self.rng.between(1, 3);
            let found = self.memories[memory].allocate(length, pieces, &mut self.rng);
            let Some(block) = found else { return Ok(()) };
            self.next_id += 1;
            let request = ReceiveRequest::new(self.next_id, self.segments(member, &block));
            let device = self.world.device_mut(host).ok_or_else(dead)?;
            device.post_receive(number, request).map_err(rejected)?;
            self.members[member].posted.push_back((self.next_id, block));
        }
        Ok(())
    }

    fn segments(&self, member: usize, block: &Block) -> Vec<Segment> {
        let GroupMember { memory, key, .. } = self.members[member];
        let segment = |piece: &std::ops::Range<usize>| Segment {
            address: self.memories[memory].address(piece.start),
            length: piece.len() as u32,
            key,
        };
        block.pieces.iter().map(segment).collect()
    }

    fn send(&mut self, from: usize) -> Result<(), CheckError> {
        let GroupMember { host, number, .. } = self.members[from];
        let oversize = self.rng.percent(5);
        let length = if oversize {
            ACTIVE_MTU.bytes() + self.rng.between(1, 100)
        } else {
            self.rng.below(self.longest + 1)
        };
        let memory = self.members[from].memory;
        let found = self.memories[memory].allocate(length, 2, &mut self.rng);
        let Some(block) = found else { return Ok(()) };
        self.memories[memory].scribble(&block, &mut self.rng);
        let (to, destination) = self.draw_receiver(from);
        let immediate = self
            .rng
            .percent(50)
            .then(|| (self.rng.word() as u32).to_be_bytes());
        self.next_id += 1;
        let signaled = self.rng.percent(70);
        let mut flags = SendFlags::empty();
        flags.set(SendFlags::SIGNALED, signaled);
        let work = immediate.map_or(Work::Send, Work::SendImmediate);
        let request = SendRequest::new(self.next_id, work)
            .with(self.segments(from, &block))
            .to(destination)
            .flags(flags);
        self.sent.push(Sent {
            id: self.next_id,
            from,
            to: if oversize { Receiver::None } else { to },
            data: self.memories[memory].planned_message(&block),
            immediate,
            queue_key: destination.queue_key,
            came: BTreeMap::new(),
        });
        self.members[from].outstanding.push_back(Outstanding {
            id: self.next_id,
            signaled,
            oversize,
            block,
        });
        let device = self.world.device_mut(host).ok_or_else(dead)?;
        device.post_send(number, request).map_err(rejected)
    }

    fn draw_receiver(&mut self, from: usize) -> (Receiver, Destination) {
        let (to, gid, queue_pair): (Receiver, Gid, Qpn) = if self.rng.percent(30) {
            let group = self.rng.below(self.groups.len());
            let gid = self.groups[group].into();
            (Receiver::Group(group), gid, Qpn::MULTICAST)
        } else {
            let member = self.rng.below(self.members.len());
            let GroupMember { host, number, .. } = self.members[member];
            let gid = self.world.hosts[host].address.into();
            (Receiver::GroupMember(member), gid, number)
        };
        let queue_key = if self.rng.percent(15) {
            *self.rng.pick(&KEYS)
        } else {
            match to {
                Receiver::GroupMember(member) => self.members[member].queue_key,
                _ => self.members[from].queue_key,
            }
        };
        let destination = Destination {
            address: Address::new(gid, 0),
            queue_pair,
            queue_key,
        };
        (to, destination)
    }

    /// How many queue pairs there are.
    pub(crate) fn queue_pairs(&self) -> usize {
        self.members.len()
    }
}

fn error_at(member: usize, text: &str) -> CheckError {
    CheckError::new(format!("datagram queue pair {member}: {text}"))
}

fn rejected(error: engine::PostError) -> CheckError {
    CheckError::new(format!("a post was rejected: {error}"))
}

fn dead() -> CheckError {
    CheckError::new("the host is down")
}
