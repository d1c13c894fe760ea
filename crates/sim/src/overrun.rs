//! A completion queue that overruns because it is not polled.

use engine::{
    Access, AsyncEvent, Bug, CompletedWork, CompletionQueue, Config, Event, Id, QueuePairInit,
    QueuePairType, RemoteMemory, SendRequest, State, Status, Work,
};
use std::time::Duration;
use wire::{Gid, PathMtu, Psn, Qpn};

use crate::CheckError;
use crate::network::{Faults, Network};
use crate::rng::Rng;
use crate::simple_connect::{Peer, connect};
use crate::world::World;

/// Two queue pairs use the completion queue that overruns. The third uses another one.
const QUEUE_PAIRS: usize = 3;
const UNAFFECTED: usize = 2;

/// The run.
pub(crate) struct Overrun {
    pub(crate) world: World,
    rng: Rng,
    /// The capacity of the completion queue, and the number of requests.
    capacity: usize,
    requests: usize,
    requester: Requester,
    target: RemoteMemory,
}

/// The side whose completion queue overruns.
struct Requester {
    small: Id<CompletionQueue>,
    large: Id<CompletionQueue>,
    numbers: [Qpn; QUEUE_PAIRS],
}

impl Overrun {
    pub(crate) fn build(bug: Option<Bug>, mut rng: Rng) -> Result<Self, CheckError> {
        let faults = Faults {
            delay: Duration::from_micros(rng.between(1, 20) as u64),
            ..Faults::default()
        };
        let network = Network::new(faults, rng.fork());
        let mut world = World::new(network, Duration::ZERO, rng.fork());
        let gids: [Gid; 2] = [1, 2].map(|last| std::net::IpAddr::from([10, 0, 0, last]).into());
        for gid in gids {
            let address = gid
                .ip()
                .ok_or_else(|| CheckError::new("a GID has an address"))?;
            let host = world.add_host(address, config(gid, &mut rng));
            if let (Some(bug), Some(device)) = (bug, world.device_mut(host)) {
                device.plant(bug);
            }
        }
        let capacity = rng.between(1, 8);
        let responder = Self::add_responder(&mut world)?;
        let requester = Self::add_requester(&mut world, capacity as u32)?;
        for (&number, &peer) in requester.numbers.iter().zip(&responder.1) {
            Self::join(&mut world, gids, [number, peer])?;
        }
        Ok(Self {
            requests: capacity + rng.between(1, 20),
            world,
            rng,
            capacity,
            requester,
            target: responder.0,
        })
    }

    fn add_responder(world: &mut World) -> Result<(RemoteMemory, [Qpn; QUEUE_PAIRS]), CheckError> {
        let device = world.device_mut(1).ok_or_else(dead)?;
        let domain = device.allocate_domain()?;
        let queue = device.create_completion_queue(100)?;
        let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
        let buffer = engine::Buffer::zeroed(64);
        let region = device.register(domain, buffer, 0x1000, access)?;
        let mut numbers = [Qpn::default(); QUEUE_PAIRS];
        for number in &mut numbers {
            *number =
                device.create_queue_pair(QueuePairInit::new(QueuePairType::Rc, domain, queue))?;
        }
        let remote = RemoteMemory {
            address: region.address,
            key: region.remote_key,
        };
        Ok((remote, numbers))
    }

    fn add_requester(world: &mut World, capacity: u32) -> Result<Requester, CheckError> {
        let device = world.device_mut(0).ok_or_else(dead)?;
        let domain = device.allocate_domain()?;
        let small = device.create_completion_queue(capacity)?;
        let large = device.create_completion_queue(1000)?;
        let mut numbers = [Qpn::default(); QUEUE_PAIRS];
        for (index, number) in numbers.iter_mut().enumerate() {
            let queue = if index == UNAFFECTED { large } else { small };
            *number =
                device.create_queue_pair(QueuePairInit::new(QueuePairType::Rc, domain, queue))?;
        }
        Ok(Requester {
            small,
            large,
            numbers,
        })
    }

    fn join(world: &mut World, gids: [Gid; 2], numbers: [Qpn; 2]) -> Result<(), CheckError> {
        for side in 0..2 {
            let peer = Peer {
                gid: gids[1 - side],
                number: numbers[1 - side],
                sends: Psn::ZERO,
                expects: Psn::ZERO,
                ack_timeout: Peer::SHORT_ACK_TIMEOUT,
            };
            let device = world.device_mut(side).ok_or_else(dead)?;
            connect(
                device,
                numbers[side],
                QueuePairType::Rc,
                PathMtu::Mtu1024,
                &peer,
            )?;
        }
        Ok(())
    }

    pub(crate) fn run(&mut self) -> Result<(), CheckError> {
        for id in 1..=self.requests {
            self.post(self.requester.numbers[0], id as u64)?;
            self.post(self.requester.numbers[UNAFFECTED], id as u64)?;
            for _ in 0..self.rng.below(20) {
                self.world.step()?;
            }
        }
        while self.world.step()?.is_some() {}
        self.check_events()?;
        self.check_states()?;
        self.check_completions(self.requester.small, self.capacity)?;
        self.check_completions(self.requester.large, self.requests)
    }

    fn post(&mut self, number: Qpn, id: u64) -> Result<(), CheckError> {
        let request = SendRequest::new(id, Work::Write(self.target)).inline(b"overflow");
        let device = self.world.device_mut(0).ok_or_else(dead)?;
        device
            .post_send(number, request)
            .map_err(|error| CheckError::new(format!("a post failed: {error}")))
    }

    /// The overrun is reported once.
    fn check_events(&mut self) -> Result<(), CheckError> {
        let device = self.world.device_mut(0).ok_or_else(dead)?;
        let mut overruns = 0;
        while let Some(event) = device.poll_event() {
            if event != Event::Async(AsyncEvent::CompletionQueueError(self.requester.small)) {
                return Err(CheckError::new(format!("{event:?} after an overrun")));
            }
            overruns += 1;
        }
        match overruns {
            1 => Ok(()),
            count => Err(CheckError::new(format!(
                "{count} events tell of one overrun"
            ))),
        }
    }

    /// Every queue pair of the completion queue is in ERROR, also an idle one; the others are not.
    fn check_states(&self) -> Result<(), CheckError> {
        let device = self.world.device(0).ok_or_else(dead)?;
        for (index, &number) in self.requester.numbers.iter().enumerate() {
            let state = device.queue_pair(number).map(engine::QueuePair::state);
            let expected = match index {
                UNAFFECTED => State::ReadyToSend,
                _ => State::Error,
            };
            if state != Some(expected) {
                return Err(CheckError::new(format!(
                    "after an overrun, queue pair {index} is in {state:?}, not {expected:?}"
                )));
            }
        }
        Ok(())
    }

    /// The completions before the overrun are still there, in order.
    fn check_completions(
        &mut self,
        queue: Id<CompletionQueue>,
        expected: usize,
    ) -> Result<(), CheckError> {
        let device = self.world.device_mut(0).ok_or_else(dead)?;
        for id in 1..=expected as u64 {
            let found = device.poll_completion(queue);
            let right = found.is_some_and(|found| {
                (found.id, found.status, found.work) == (id, Status::Success, CompletedWork::Write)
            });
            if !right {
                return Err(CheckError::new(format!(
                    "{found:?} instead of request {id}"
                )));
            }
        }
        match device.poll_completion(queue) {
            None => Ok(()),
            Some(surplus) => Err(CheckError::new(format!("{surplus:?} beyond the capacity"))),
        }
    }

    /// How many queue pairs there are.
    pub(crate) fn queue_pairs(&self) -> usize {
        2 * QUEUE_PAIRS
    }
}

fn config(gid: Gid, rng: &mut Rng) -> Config {
    Config {
        gids: vec![gid],
        seed: rng.seed(),
        ..Config::default()
    }
}

fn dead() -> CheckError {
    CheckError::new("the host is down")
}
