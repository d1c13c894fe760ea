//! Builds hosts with random memory and queues.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use engine::{
    Access, BatchLimits, Bug, CompletionQueue, Config, Congestion, Device, HeldLists, Id,
    ProtectionDomain, QpnRange, SharedReceiveInit, SourcePort, WindowLimits, XrcDomain,
};
use wire::{Gid, Key, PathMtu};

use super::connection_end::Target;
use super::receive_queues::{Owner, Pool};
use super::{Cluster, Profile, Queue, Service};
use crate::CheckError;
use crate::machine::Machine;
use crate::model_memory::ModelMemory;
use crate::network::Network;
use crate::rng::Rng;
use crate::simple_connect::ALL_RIGHTS;
use crate::world::World;

/// The objects of a host that its queue pairs use.
pub(super) struct HostObjects {
    pub(super) host: usize,
    pub(super) domain: Id<ProtectionDomain>,
    pub(super) other_domain: Id<ProtectionDomain>,
    pub(super) xrc_domain: Option<Id<XrcDomain>>,
    pub(super) queues: Vec<Id<CompletionQueue>>,
    /// Shared receive queues: indices of pools.
    pub(super) shared: Vec<usize>,
}

/// More completions than any run produces.
const COMPLETIONS: u32 = 1 << 16;

/// The memory for the receives of one queue, in bytes.
const POOL_MEMORY: usize = 128 << 10;

impl Cluster {
    /// Builds the hosts and queue pairs of a profile.
    pub(crate) fn build(
        profile: Profile,
        bug: Option<Bug>,
        mut rng: Rng,
    ) -> Result<Self, CheckError> {
        let network = Network::new(profile.faults.clone(), rng.fork());
        let mut world = World::new(network, profile.lag, rng.fork());
        let faults = &profile.faults;
        world.tap.watches_receiver_not_ready = faults.are_none();
        world.tap.watches_credits = faults.are_none();
        let mut cluster = Self {
            world,
            rng,
            memories: Vec::new(),
            ends: Vec::new(),
            pools: Vec::new(),
            queues: Vec::new(),
            live_keys: Vec::new(),
            next_id: 0,
            steps: 0,
            profile,
        };
        let objects = cluster.add_host_objects(bug)?;
        for _ in 0..cluster.profile.pairs {
            cluster.add_pair(&objects)?;
        }
        Ok(cluster)
    }

    fn add_host_objects(&mut self, bug: Option<Bug>) -> Result<Vec<HostObjects>, CheckError> {
        let over_ipv6 = self.rng.percent(40);
        let mut objects = Vec::new();
        for number in 0..self.profile.hosts {
            let address = address_of(number, over_ipv6);
            let mut config = draw_config(&mut self.rng, address);
            if self.rng.percent(30) {
                // The address is not always the first GID.
                config.gids.insert(0, Gid::default());
            }
            let machine = if self.rng.percent(30) {
                Machine::with_two_lanes(config)
            } else {
                config.into()
            };
            let host = self.world.add_host(address, machine);
            if let (Some(bug), Some(machine)) = (bug, self.world.machine(host)) {
                machine
                    .devices_mut()
                    .iter_mut()
                    .for_each(|it| it.plant(bug));
            }
            objects.push(self.add_objects_of(host)?);
        }
        Ok(objects)
    }

    fn add_objects_of(&mut self, host: usize) -> Result<HostObjects, CheckError> {
        let xrc = self.profile.service == Service::Extended;
        let count = self.rng.between(1, 3);
        let device = self.device(host)?;
        let domain = device.allocate_domain()?;
        let other_domain = device.allocate_domain()?;
        let xrc_domain = if xrc {
            Some(device.open_xrc_domain()?)
        } else {
            None
        };
        let queues = (0..count)
            .map(|_| device.create_completion_queue(COMPLETIONS))
            .collect::<Result<Vec<_>, _>>()?;
        self.queues.extend(queues.iter().map(|&id| Queue {
            host,
            id,
            armed: None,
            notifications: 0,
        }));
        let mut objects = HostObjects {
            host,
            domain,
            other_domain,
            xrc_domain,
            queues,
            shared: Vec::new(),
        };
        if xrc || self.profile.shares_receives {
            for _ in 0..self.rng.between(1, 2) {
                let pool = self.add_shared_pool(&objects)?;
                objects.shared.push(pool);
            }
        }
        Ok(objects)
    }

    /// The device of a host, while everything is built.
    pub(super) fn device(&mut self, host: usize) -> Result<&mut Device, CheckError> {
        self.world.device_mut(host).ok_or_else(is_down)
    }

    /// One of the devices of a host that share its objects.
    pub(super) fn some_lane(&mut self, host: usize) -> Result<&mut Device, CheckError> {
        let machine = self.world.machine(host).ok_or_else(is_down)?;
        let devices = machine.devices_mut();
        let lane = match devices.len() {
            1 => 0,
            count => self.rng.below(count),
        };
        Ok(&mut devices[lane])
    }

    /// Registers memory of a host in a domain; returns its index and its key.
    pub(super) fn add_memory(
        &mut self,
        host: usize,
        domain: Id<ProtectionDomain>,
        length: usize,
        access: Access,
    ) -> Result<(usize, Key), CheckError> {
        // The base is aligned, so aligned words of the region are aligned in memory.
        let base = match self.rng.below(4) {
            0 => 0,
            1 => u64::MAX - (length as u64 | 7) - 8 * self.rng.below(100) as u64,
            _ => self.rng.word() >> 8 & !7,
        };
        let memory = ModelMemory::new(host, length, base, &mut self.rng);
        let buffer = memory.buffer();
        let registered = self.device(host)?.register(domain, buffer, base, access)?;
        self.memories.push(memory);
        self.live_keys.push((host, registered.local_key));
        Ok((self.memories.len() - 1, registered.local_key))
    }

    /// Memory that peers may access: one region with all rights, others with fewer.
    pub(super) fn add_targets(&mut self, objects: &HostObjects) -> Result<Vec<Target>, CheckError> {
        let mut targets = Vec::new();
        for number in 0..self.rng.between(1, 3) {
            let access = match number {
                0 => ALL_RIGHTS | Access::WINDOW_BIND,
                _ => Access::from_bits_truncate(self.rng.word() as u32) & ALL_RIGHTS,
            } | Access::LOCAL_WRITE;
            let length = self.profile.longest.max(256) + self.rng.below(self.profile.memory);
            let (memory, key) = self.add_memory(objects.host, objects.domain, length, access)?;
            targets.push(Target {
                memory,
                key,
                access,
            });
        }
        Ok(targets)
    }

    fn add_shared_pool(&mut self, objects: &HostObjects) -> Result<usize, CheckError> {
        let max_segments = self.rng.between(1, 8) as u32;
        let completions = *self.rng.pick(&objects.queues);
        let domain = objects.domain;
        let xrc = objects.xrc_domain.map(|domain| (domain, completions));
        let device = self.device(objects.host)?;
        let queue = device.create_shared_receive_queue(SharedReceiveInit {
            domain,
            capacity: 128,
            max_segments,
            xrc,
        })?;
        let made = device.shared_receive_queue(queue);
        let number = made.and_then(|queue| queue.number());
        let pool = self.add_pool(objects, Owner::Shared(queue), max_segments as usize)?;
        self.pools[pool].number = number;
        self.pools[pool].completions = xrc.map(|(_, completions)| completions);
        Ok(pool)
    }

    /// A receive pool with its own memory.
    pub(super) fn add_pool(
        &mut self,
        objects: &HostObjects,
        owner: Owner,
        max_segments: usize,
    ) -> Result<usize, CheckError> {
        // Unless receives are posted late, a queue must never be empty.
        let late = self.profile.late_receives;
        let depth = if late { self.rng.between(1, 12) } else { 64 };
        let longest = self.profile.longest.min(POOL_MEMORY / depth);
        let capacity = match self.rng.below(4) {
            0 => longest,
            1 => self.rng.below(64),
            _ => self.rng.between(64, 64 + longest / 4),
        };
        // Three times the used size, because free ranges are found by random tries.
        let length = 3 * (depth + 2) * (capacity + 128);
        let access = Access::LOCAL_WRITE;
        let (memory, key) = self.add_memory(objects.host, objects.domain, length, access)?;
        let mut pool = Pool::new(objects.host, memory, key, owner);
        pool.min_capacity = capacity;
        pool.max_capacity = capacity + *self.rng.pick(&[0, 0, 7, 63]);
        pool.max_segments = max_segments;
        pool.eager = !late || self.rng.percent(30);
        pool.depth = depth;
        self.pools.push(pool);
        Ok(self.pools.len() - 1)
    }
}

pub(super) fn is_down() -> CheckError {
    CheckError::new("a host is down during the setup")
}

fn address_of(number: usize, over_ipv6: bool) -> IpAddr {
    let number = number as u8 + 1;
    if over_ipv6 {
        Ipv6Addr::from([0xfd00, 0, 0, 0, 0, 0, 0, u16::from(number)]).into()
    } else {
        Ipv4Addr::from([10, 0, 0, number]).into()
    }
}

/// A random device configuration.
pub(crate) fn draw_config(rng: &mut Rng, address: IpAddr) -> Config {
    let batch = if rng.percent(50) {
        BatchLimits::default()
    } else {
        BatchLimits {
            packets: *rng.pick(&[1, 1, 2, 7]),
            bytes: rng.between(5000, 65_000),
        }
    };
    let window = if rng.percent(50) {
        WindowLimits::default()
    } else {
        let min = rng.between(1, 20_000) as u32;
        WindowLimits {
            min,
            initial: min + rng.below(20_000) as u32,
            max: min + 20_000 + rng.below(100_000) as u32,
        }
    };
    let (advertise_credits, seed) = (rng.percent(60), rng.seed());
    Config {
        gids: vec![address.into()],
        active_mtu: PathMtu::Mtu4096,
        numbers: QpnRange {
            first: 16 + rng.below(1 << 20) as u32,
            ..QpnRange::default()
        },
        source_port: if rng.percent(50) {
            SourcePort::OfFlow
        } else {
            SourcePort::Fixed(rng.between(1024, 65_535) as u16)
        },
        batch,
        window,
        congestion: *rng.pick(&[Congestion::Local, Congestion::Cubic, Congestion::Model]),
        advertise_credits,
        held_lists: draw_held_lists(seed),
        seed,
        ..Config::default()
    }
}

/// Whether a device tells its peers what it holds behind a gap. Hosts without a connection manager can't agree on that.
fn draw_held_lists(seed: [u8; 32]) -> HeldLists {
    match seed[0] % 2 {
        0 => HeldLists::Always,
        _ => HeldLists::Never,
    }
}
