//! Processes that connect with their connection managers, exchange messages, disconnect and die.
//!
//! Each process has a [`host::Host`], the same code that the driver runs. Management datagrams go
//! through queue pair 1 and the simulated network, and queue pairs get the manager's attributes. The
//! last process may share the address of the first.

mod application;
mod bring_up;
mod census;
mod driver;
mod exit;
mod ledger;
mod place;
mod process;
mod script;
mod socket;
mod traffic;
mod verdict;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use cm::{Load, Manager, State};
use engine::{Config, Device};
use host::Host;

use crate::Complaint;
use crate::machine::Machine;
use crate::network::{Cut, Faults, Network};
use crate::plant::Bug;
use crate::rng::Rng;
use crate::world::{Step, World};
use application::Act;
pub use census::Census;
use exit::Lesson;
use ledger::{Ledger, Who};
use place::{Place, Service};
use process::Process;
use script::Script;
use verdict::{Circumstances, judge};

/// The run must end before this virtual time.
const END: Duration = Duration::from_secs(10_000);

/// Connections and deaths are planned within this time.
const BUSY: Duration = Duration::from_secs(25);

/// The run.
pub(crate) struct Connections {
    pub(crate) world: World,
    pub(crate) census: Census,
    rng: Rng,
    bug: Option<Bug>,
    /// Whether the last process shares the address of the first.
    shared: bool,
    /// Whether a watcher sends the exit notices of processes that die.
    watched: bool,
    /// Whether one side of the next established connection is going to die.
    ends_by_death: bool,
    /// The processes by host; none while a process is dead. Each host of the world is one process.
    processes: Vec<Option<Process>>,
    places: Vec<Place>,
    lives: Vec<u32>,
    ledger: Ledger,
    clients: BTreeMap<u32, Who>,
    script: Script,
    plans: BTreeMap<u64, Plan>,
    planned: u64,
    /// Processes that died or stopped listening for a while.
    unsteady: BTreeSet<usize>,
    queue_pairs: usize,
}

/// A planned action.
#[derive(Debug, Clone, Copy)]
enum Plan {
    Act {
        host: usize,
        life: u32,
        act: Act,
    },
    Death(usize),
    /// A peer of a dead process must have an event about it by now.
    Learned {
        who: Who,
        lesson: Lesson,
    },
    Birth(usize),
}

impl Connections {
    pub(crate) fn build(bug: Option<Bug>, mut rng: Rng) -> Result<Self, Complaint> {
        let hosts = rng.between(2, 4);
        let network = Network::new(draw_faults(&mut rng, hosts), rng.fork());
        let lag = Duration::from_micros(rng.below(10) as u64);
        let world = World::new(network, lag, rng.fork());
        let (shared, ipv6) = (rng.percent(40), rng.percent(30));
        let numbers = *rng.pick(&[4, 8, 64]);
        let watched = rng.percent(50);
        let place = |number| Place {
            number,
            shares_first: shared && number == hosts - 1,
            ipv6,
            numbers,
        };
        let mut connections = Self {
            world,
            census: Census::default(),
            bug,
            shared,
            watched,
            ends_by_death: false,
            processes: Vec::new(),
            places: (0..hosts).map(place).collect(),
            lives: vec![0; hosts],
            ledger: Ledger::default(),
            clients: BTreeMap::new(),
            script: Script::new(&mut rng),
            plans: BTreeMap::new(),
            planned: 0,
            unsteady: BTreeSet::new(),
            queue_pairs: 0,
            rng,
        };
        for host in 0..hosts {
            connections.add_process(host, shared)?;
        }
        connections.make_plans(hosts);
        Ok(connections)
    }

    fn add_process(&mut self, host: usize, shared: bool) -> Result<(), Complaint> {
        let place = self.places[host];
        let machine = self.draw_host(place)?;
        self.world.add_host(place.address(), machine);
        if shared && place.guid() == 1 {
            self.world.hosts[host].numbers = Some(place.number_range());
        }
        self.processes.push(None);
        self.start_process(host)
    }

    fn start_process(&mut self, host: usize) -> Result<(), Complaint> {
        self.lives[host] += 1;
        let place = self.places[host];
        let mut rng = self.rng.fork();
        let process = Process::start(place, self.host(host), &mut rng)?;
        self.processes[host] = Some(process);
        Ok(())
    }

    fn draw_host(&mut self, place: Place) -> Result<Host, Complaint> {
        let device = Config {
            numbers: place.numbers(),
            ..crate::cluster::draw_config(&mut self.rng, place.address())
        };
        let mut manager = cm::Config::new(place.guid(), seed_of(self.rng.word()));
        manager.slice = place.slice();
        manager.exit_notices = self.watched;
        let mut host = Host::new(host::Config {
            device,
            manager,
            shares_addresses: self.shared,
        })?;
        if let Some(bug) = self.bug.and_then(Bug::of_device) {
            host.device().sabotage(bug);
        }
        if let Some(bug) = self.bug.and_then(Bug::of_manager) {
            host.manager().sabotage(bug);
        }
        Ok(host)
    }

    fn make_plans(&mut self, hosts: usize) {
        for _ in 0..self.rng.between(3, 12) {
            let host = self.rng.below(hosts);
            self.plan_connection(host);
        }
        match self.rng.below(100) {
            0..30 => {
                let host = self.rng.below(hosts);
                let death = self.rng.up_to(BUSY);
                self.plan_death(death, host);
            }
            30..60 => self.ends_by_death = true,
            _ => {}
        }
        if self.rng.percent(15) {
            let host = self.rng.below(hosts);
            let after = self.rng.up_to(BUSY);
            self.plan_act(host, after, Act::CloseListener);
        }
    }

    fn plan_death(&mut self, after: Duration, host: usize) {
        self.plan(after, Plan::Death(host));
        if self.rng.percent(70) {
            let absence = Duration::from_millis(self.rng.between(10, 5000) as u64);
            self.plan(after + absence, Plan::Birth(host));
        }
    }

    fn plan_connection(&mut self, host: usize) {
        let number = self.planned as u32;
        let service = self.rng.weighted(&[
            (70, Service::Reliable),
            (10, Service::Unreliable),
            (20, Service::Datagram),
        ]);
        let server = self.rng.below(self.places.len());
        let begin = Act::Begin {
            number,
            server,
            service,
        };
        let after = self.rng.up_to(BUSY);
        self.plan_act(host, after, begin);
    }

    fn plan(&mut self, after: Duration, plan: Plan) {
        self.planned += 1;
        self.plans.insert(self.planned, plan);
        self.world.call(after, self.planned);
    }

    /// Plans an action of the application. It is skipped if the process is dead or was restarted.
    fn plan_act(&mut self, host: usize, after: Duration, act: Act) {
        let life = self.lives[host];
        self.plan(after, Plan::Act { host, life, act });
    }

    pub(crate) fn run(&mut self) -> Result<(), Complaint> {
        while let Some(step) = self.world.step()? {
            if self.world.now() > END {
                return Err(Complaint::new("it does not come to an end"));
            }
            match step {
                Step::Host(host) => self.pump(host)?,
                Step::Call(number) => self.carry_out(number)?,
            }
        }
        for host in 0..self.processes.len() {
            self.close(host)?;
        }
        self.world.check_spoiled()?;
        let faults = self.world.network.faults();
        let circumstances = Circumstances {
            is_steady: &|host| !self.unsteady.contains(&host),
            is_faultless: faults.are_none(),
            script: self.script,
        };
        judge(&self.ledger, &circumstances)
    }

    fn carry_out(&mut self, number: u64) -> Result<(), Complaint> {
        let plan = self.plans.remove(&number).expect("a plan for each call");
        let lives = |host: usize, life| self.lives[host] == life && self.processes[host].is_some();
        match plan {
            Plan::Act { host, life, act } if lives(host, life) => {
                self.act(host, act)?;
                self.pump(host)
            }
            Plan::Act { .. } => Ok(()),
            Plan::Death(host) => self.die(host),
            Plan::Learned { who, lesson } => self.check_learned(who, lesson),
            Plan::Birth(host) => self.bear(host),
        }
    }

    /// Starts a dead process again, with empty tables.
    fn bear(&mut self, host: usize) -> Result<(), Complaint> {
        let machine = self.draw_host(self.places[host])?;
        self.world.revive(host, machine)?;
        self.start_process(host)?;
        self.census.note("rebirth");
        for _ in 0..self.rng.below(5) {
            self.plan_connection(host);
        }
        self.pump(host)
    }

    /// At the end a process has only listeners. Without them its tables are empty.
    fn close(&mut self, host: usize) -> Result<(), Complaint> {
        let now = self.world.instant();
        let Some(mut process) = self.processes[host].take() else {
            return Ok(());
        };
        let (device, manager) = self.host(host).parts();
        let counters = *manager.counters();
        for id in std::mem::take(&mut process.listeners).into_keys() {
            if manager.state(id) != Some(State::Listening) {
                return Err(Complaint::new("a listener does not listen any more"));
            }
            manager.destroy(now, id)?;
        }
        if manager.load() != Load::default() {
            let left = format!("host {host} is left with {:?}", manager.load());
            return Err(Complaint::new(left));
        }
        process.stop(device)?;
        self.census.take(&counters);
        Ok(())
    }

    fn process(&mut self, host: usize) -> &mut Process {
        let process = self.processes[host].as_mut();
        process.expect("only the living do something")
    }

    /// A process, its device and its connection manager.
    fn parts(&mut self, host: usize) -> (&mut Process, &mut Device, &mut Manager) {
        let process = self.processes[host].as_mut();
        let machine = self.world.machine(host).and_then(Machine::host);
        let machine = machine.expect("a living process has a host");
        let (device, manager) = machine.parts();
        (
            process.expect("only the living do something"),
            device,
            manager,
        )
    }

    fn who(&self, host: usize, id: cm::Id) -> Who {
        let life = self.lives[host];
        Who { host, life, id }
    }

    /// The number of queue pairs created.
    pub(crate) fn queue_pairs(&self) -> usize {
        self.queue_pairs
    }
}

/// Faults for connection managers: their timeouts are seconds, and no packet takes longer than the
/// packet lifetime of one second.
fn draw_faults(rng: &mut Rng, hosts: usize) -> Faults {
    let millisecond = Duration::from_millis(1);
    let until = Duration::from_secs(*rng.pick(&[5, 60, 2000]));
    let cuts = match rng.percent(15) {
        true => vec![draw_cut(rng, hosts)],
        false => Vec::new(),
    };
    Faults {
        loss: *rng.pick(&[0, 0, 50, 100, 200]),
        duplication: *rng.pick(&[0, 100, 300]),
        corruption: *rng.pick(&[0, 0, 30]),
        delay: rng.up_to(5 * millisecond),
        jitter: *rng.pick(&[
            Duration::ZERO,
            millisecond,
            5 * millisecond,
            900 * millisecond,
        ]),
        cuts,
        until,
    }
}

/// A cut that is shorter than the retries of a requester.
fn draw_cut(rng: &mut Rng, hosts: usize) -> Cut {
    let from = rng.up_to(BUSY);
    let length = Duration::from_millis(rng.between(10, 40_000) as u64);
    let first = rng.below(hosts);
    Cut {
        hosts: [first, (first + 1) % hosts],
        from,
        until: from + length,
    }
}

/// The seed of a connection manager from a random word.
fn seed_of(word: u64) -> [u8; 32] {
    let mut seed = [0; 32];
    seed[..8].copy_from_slice(&word.to_le_bytes());
    seed
}
