//! Processes that connect with their connection managers, exchange messages, disconnect and die.
//!
//! Each process has a [`host::Host`], the same code that the driver runs. Management datagrams go
//! through queue pair 1 and the simulated network, and queue pairs get the manager's attributes. The
//! last process may share the address of the first.

mod application;
mod bring_up;
mod check;
mod data_queue_pair;
mod driver;
mod event_counts;
mod event_log;
mod exit_notices;
mod process;
mod process_config;
mod script;
mod traffic;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use cm::{Manager, State, TableSizes};
use engine::{Config, Device, HeldLists};
use host::Host;

use crate::CheckError;
use crate::machine::Machine;
use crate::network::{Cut, Faults, Network};
use crate::planted_bug::Bug;
use crate::rng::Rng;
use crate::world::{Step, World};
use application::Action;
use check::{Conditions, check_connections};
pub use event_counts::EventCounts;
use event_log::{EventLog, IdKey};
use exit_notices::ExpectedEnd;
use process::Process;
use process_config::{ProcessConfig, Service};
use script::Script;

/// The run must end before this virtual time.
const TIME_LIMIT: Duration = Duration::from_secs(10_000);

/// Connections and deaths are planned within this time.
const PLANNING_TIME: Duration = Duration::from_secs(25);

/// The run.
pub(crate) struct Connections {
    pub(crate) world: World,
    pub(crate) event_counts: EventCounts,
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
    configs: Vec<ProcessConfig>,
    incarnations: Vec<u32>,
    event_log: EventLog,
    clients: BTreeMap<u32, IdKey>,
    script: Script,
    plans: BTreeMap<u64, Scheduled>,
    planned: u64,
    /// Processes that died or stopped listening for a while.
    interrupted: BTreeSet<usize>,
    queue_pairs: usize,
}

/// A planned action.
#[derive(Debug, Clone, Copy)]
enum Scheduled {
    Action {
        host: usize,
        incarnation: u32,
        action: Action,
    },
    Death(usize),
    /// A peer of a dead process must have an event about it by now.
    CheckEndReported {
        key: IdKey,
        expected: ExpectedEnd,
    },
    Restart(usize),
}

impl Connections {
    pub(crate) fn build(bug: Option<Bug>, mut rng: Rng) -> Result<Self, CheckError> {
        let hosts = rng.between(2, 4);
        let network = Network::new(draw_faults(&mut rng, hosts), rng.fork());
        let lag = Duration::from_micros(rng.below(10) as u64);
        let world = World::new(network, lag, rng.fork());
        let (shared, ipv6) = (rng.percent(40), rng.percent(30));
        let numbers = *rng.pick(&[4, 8, 64]);
        let watched = rng.percent(50);
        let config = |number| ProcessConfig {
            number,
            shares_first: shared && number == hosts - 1,
            ipv6,
            numbers,
        };
        let mut connections = Self {
            world,
            event_counts: EventCounts::default(),
            bug,
            shared,
            watched,
            ends_by_death: false,
            processes: Vec::new(),
            configs: (0..hosts).map(config).collect(),
            incarnations: vec![0; hosts],
            event_log: EventLog::default(),
            clients: BTreeMap::new(),
            script: Script::new(&mut rng),
            plans: BTreeMap::new(),
            planned: 0,
            interrupted: BTreeSet::new(),
            queue_pairs: 0,
            rng,
        };
        for host in 0..hosts {
            connections.add_process(host, shared)?;
        }
        connections.make_plans(hosts);
        Ok(connections)
    }

    fn add_process(&mut self, host: usize, shared: bool) -> Result<(), CheckError> {
        let config = self.configs[host];
        let machine = self.draw_host(config)?;
        self.world.add_host(config.address(), machine);
        if shared && config.guid() == 1 {
            self.world.hosts[host].numbers = Some(config.number_range());
        }
        self.processes.push(None);
        self.start_process(host)
    }

    fn start_process(&mut self, host: usize) -> Result<(), CheckError> {
        self.incarnations[host] += 1;
        let config = self.configs[host];
        let mut rng = self.rng.fork();
        let process = Process::start(config, self.host(host), &mut rng)?;
        self.processes[host] = Some(process);
        Ok(())
    }

    fn draw_host(&mut self, config: ProcessConfig) -> Result<Host, CheckError> {
        let drawn = crate::cluster::draw_config(&mut self.rng, config.address());
        let device = Config {
            numbers: config.numbers(),
            held_lists: match drawn.held_lists {
                HeldLists::Never => HeldLists::Never,
                HeldLists::Negotiated | HeldLists::Always => HeldLists::Negotiated,
            },
            ..drawn
        };
        let mut manager = cm::Config::new(config.guid(), seed_of(self.rng.word()));
        manager.id_range = config.id_range();
        manager.exit_notices = self.watched;
        let mut host = Host::new(host::Config {
            device,
            manager,
            shares_addresses: self.shared,
            objects: None,
        })?;
        if let Some(bug) = self.bug.and_then(Bug::of_device) {
            host.device_mut().plant(bug);
        }
        if let Some(bug) = self.bug.and_then(Bug::of_manager) {
            host.manager().plant(bug);
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
                let death = self.rng.up_to(PLANNING_TIME);
                self.plan_death(death, host);
            }
            30..60 => self.ends_by_death = true,
            _ => {}
        }
        if self.rng.percent(15) {
            let host = self.rng.below(hosts);
            let after = self.rng.up_to(PLANNING_TIME);
            self.plan_action(host, after, Action::CloseListener);
        }
    }

    fn plan_death(&mut self, after: Duration, host: usize) {
        self.plan(after, Scheduled::Death(host));
        if self.rng.percent(70) {
            let absence = Duration::from_millis(self.rng.between(10, 5000) as u64);
            self.plan(after + absence, Scheduled::Restart(host));
        }
    }

    fn plan_connection(&mut self, host: usize) {
        let number = self.planned as u32;
        let service = self.rng.weighted(&[
            (70, Service::Reliable),
            (10, Service::Unreliable),
            (20, Service::Datagram),
        ]);
        let server = self.rng.below(self.configs.len());
        let begin = Action::Begin {
            number,
            server,
            service,
        };
        let after = self.rng.up_to(PLANNING_TIME);
        self.plan_action(host, after, begin);
    }

    fn plan(&mut self, after: Duration, plan: Scheduled) {
        self.planned += 1;
        self.plans.insert(self.planned, plan);
        self.world.call(after, self.planned);
    }

    /// Plans an action of the application. It is skipped if the process is dead or was restarted.
    fn plan_action(&mut self, host: usize, after: Duration, action: Action) {
        let incarnation = self.incarnations[host];
        self.plan(
            after,
            Scheduled::Action {
                host,
                incarnation,
                action,
            },
        );
    }

    pub(crate) fn run(&mut self) -> Result<(), CheckError> {
        while let Some(step) = self.world.step()? {
            if self.world.now() > TIME_LIMIT {
                return Err(CheckError::new("the run does not end"));
            }
            match step {
                Step::Host(host) => self.pump(host)?,
                Step::Call(number) => self.carry_out(number)?,
            }
        }
        for host in 0..self.processes.len() {
            self.close(host)?;
        }
        self.world.check_corrupted()?;
        let faults = self.world.network.faults();
        let conditions = Conditions {
            is_uninterrupted: &|host| !self.interrupted.contains(&host),
            is_faultless: faults.are_none(),
            script: self.script,
        };
        check_connections(&self.event_log, &conditions)
    }

    fn carry_out(&mut self, number: u64) -> Result<(), CheckError> {
        let plan = self.plans.remove(&number).expect("a plan for each call");
        let is_current = |host: usize, incarnation| {
            self.incarnations[host] == incarnation && self.processes[host].is_some()
        };
        match plan {
            Scheduled::Action {
                host,
                incarnation,
                action,
            } if is_current(host, incarnation) => {
                self.perform(host, action)?;
                self.pump(host)
            }
            Scheduled::Action { .. } => Ok(()),
            Scheduled::Death(host) => self.die(host),
            Scheduled::CheckEndReported { key, expected } => self.check_end_reported(key, expected),
            Scheduled::Restart(host) => self.restart(host),
        }
    }

    /// Starts a dead process again, with empty tables.
    fn restart(&mut self, host: usize) -> Result<(), CheckError> {
        let machine = self.draw_host(self.configs[host])?;
        self.world.restart(host, machine)?;
        self.start_process(host)?;
        self.event_counts.note("restart");
        for _ in 0..self.rng.below(5) {
            self.plan_connection(host);
        }
        self.pump(host)
    }

    /// At the end a process has only listeners. Without them its tables are empty.
    fn close(&mut self, host: usize) -> Result<(), CheckError> {
        let now = self.world.instant();
        let Some(mut process) = self.processes[host].take() else {
            return Ok(());
        };
        let (device, manager) = self.host(host).parts();
        let counters = *manager.counters();
        for id in std::mem::take(&mut process.listeners).into_keys() {
            if manager.state(id) != Some(State::Listening) {
                return Err(CheckError::new("a listener stopped listening"));
            }
            manager.destroy(now, id)?;
        }
        if manager.table_sizes() != TableSizes::default() {
            let left = format!("host {host} is left with {:?}", manager.table_sizes());
            return Err(CheckError::new(left));
        }
        process.stop(device)?;
        self.event_counts.take(&counters);
        Ok(())
    }

    fn process(&mut self, host: usize) -> &mut Process {
        let process = self.processes[host].as_mut();
        process.expect("the process is alive")
    }

    /// A process, its device and its connection manager.
    fn parts(&mut self, host: usize) -> (&mut Process, &mut Device, &mut Manager) {
        let process = self.processes[host].as_mut();
        let machine = self.world.machine(host).and_then(Machine::host);
        let machine = machine.expect("a process has a host");
        let (device, manager) = machine.parts();
        (process.expect("the process is alive"), device, manager)
    }

    fn key(&self, host: usize, id: cm::Id) -> IdKey {
        let incarnation = self.incarnations[host];
        IdKey {
            host,
            incarnation,
            id,
        }
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
    let cuts = if rng.percent(15) {
        vec![draw_cut(rng, hosts)]
    } else {
        Vec::new()
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
    let from = rng.up_to(PLANNING_TIME);
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
