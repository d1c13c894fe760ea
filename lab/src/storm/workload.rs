//! The running programs: starts, waits for and ends them.

use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

use super::cluster::{Cluster, Side};
use super::exit_check::{End, judge};
use super::program::{Intervention, Number, Program, after};
use super::random::Random;
use super::services::{Commands, LARGEST_LIMIT, Limit, PAIRS, SERVICES, ServiceKind};
use super::{POLL_INTERVAL, outcome_counts::Tally};
use crate::programs::session::registry_lists;

pub(super) use super::services::Tools;

/// How many programs run beside the servers.
const CLIENTS: usize = 6;

/// How long a client may run. Without faults none takes more than a few seconds.
const PROGRAM_TIMEOUT: Duration = Duration::from_secs(60);

/// What the server of `rping` says when it has lost a connection request: it keeps only the last of two that arrive before
/// it looks, and serves that one twice. The second time it can't create a queue pair, or, if the first connection has
/// ended by then, can't accept the request. The client of the other one waits for minutes, because the request was received and
/// not answered.
const LOST_REQUEST: [&str; 2] = ["setup_qp failed", "rdma_accept: Invalid argument"];

/// How long a program may wait for a peer that has ended.
const LONELY_PROGRAM_TIMEOUT: Duration = Duration::from_secs(15);

/// The longest outage that the retries of a queue pair bridge. After a longer one the peer may have given up
/// without a message, and a program that only listens does not notice.
const MAX_BRIDGED_OUTAGE: Duration = Duration::from_millis(2500);

/// How long a server may take to listen, and how long a client without disturbance may take.
const READY_TIMEOUT: Duration = Duration::from_secs(30);

#[derive(Clone, Copy, Debug)]
enum Role {
    Server(usize),
    /// The server of a service.
    Client(usize),
    PairServer,
    PairClient(Number),
}

struct Participant {
    program: Program,
    role: Role,
    /// Since when its peer is gone.
    alone_since: Option<Instant>,
    /// How long it could not reach its peer, or its peer could not answer.
    disturbed: Duration,
}

impl Participant {
    fn is_server(&self) -> bool {
        matches!(self.role, Role::Server(_))
    }

    /// Whether it may wait for a message that will not arrive. Ledger clients always have
    /// outstanding requests, which end with a status.
    fn may_wait_for_ever(&self) -> bool {
        let is_active = matches!(self.role, Role::Client(service) if SERVICES[service].kind == ServiceKind::Ledger);
        !is_active && (self.alone_since.is_some() || self.disturbed > MAX_BRIDGED_OUTAGE)
    }

    fn is_overdue(&self) -> bool {
        let left_alone = |since: Instant| since.elapsed() > LONELY_PROGRAM_TIMEOUT;
        let is_old = !self.is_server() && self.program.started.elapsed() > PROGRAM_TIMEOUT;
        is_old || (self.may_wait_for_ever() && self.alone_since.is_some_and(left_alone))
    }
}

/// A client that starts when the server of its pair listens.
struct Awaited {
    server: Number,
    port: u16,
    client: Command,
}

pub(super) struct Population<'a> {
    commands: Commands<'a>,
    random: Random,
    /// The smallest limit of address space, in MiB.
    least_memory: u64,
    members: Vec<Participant>,
    awaited: Vec<Awaited>,
    /// When services that were killed start again.
    restarts: Vec<(Instant, usize)>,
    next: Number,
    tally: Tally,
    /// Whether to print how each program ended.
    pub(super) is_verbose: bool,
}

impl<'a> Population<'a> {
    pub(super) fn new(
        cluster: &'a Cluster,
        tools: &'a Tools,
        random: Random,
    ) -> Result<Self, String> {
        Ok(Self {
            commands: Commands { cluster, tools },
            random,
            least_memory: tools.least_memory()?,
            members: Vec::new(),
            awaited: Vec::new(),
            restarts: Vec::new(),
            next: 1,
            tally: Tally::default(),
            is_verbose: false,
        })
    }

    pub(super) fn start_servers(&mut self) -> Result<(), String> {
        for service in 0..SERVICES.len() {
            self.start_server(service)?;
        }
        self.wait_for_servers()
    }

    fn start_server(&mut self, service: usize) -> Result<(), String> {
        let command = self.commands.server(&SERVICES[service]);
        self.start(command, Role::Server(service))?;
        Ok(())
    }

    fn start(&mut self, command: Command, role: Role) -> Result<&mut Participant, String> {
        let program = Program::start(command, self.next, &self.commands.tools.scratch)?;
        self.next += 1;
        self.tally.started += 1;
        self.members.push(Participant {
            program,
            role,
            alone_since: None,
            disturbed: Duration::ZERO,
        });
        Ok(self.members.last_mut().expect("it was just pushed"))
    }

    /// Checks every process: reaps those that ended, starts others, and fails if one hangs.
    pub(super) fn tick(&mut self) -> Result<(), String> {
        self.reap()?;
        self.start_awaited()?;
        let now = Instant::now();
        let due: Vec<usize> = (self.restarts.iter())
            .filter(|(at, _)| *at <= now)
            .map(|(_, service)| *service)
            .collect();
        self.restarts.retain(|(at, _)| *at > now);
        for service in due {
            self.start_server(service)?;
        }
        self.end_overdue()
    }

    fn reap(&mut self) -> Result<(), String> {
        let mut index = 0;
        while index < self.members.len() {
            let Some(status) = self.members[index].program.ended() else {
                index += 1;
                continue;
            };
            let member = self.members.remove(index);
            let end = judge(&member.program, status)?;
            self.tally.count(&member.program, end);
            if self.is_verbose {
                println!("{end:?}: {}", member.program.summary());
            }
            self.after_end(&member, end)?;
        }
        Ok(())
    }

    fn after_end(&mut self, member: &Participant, end: End) -> Result<(), String> {
        let number = member.program.number;
        match member.role {
            Role::Server(service) => {
                if end == End::Success || !SERVICES[service].may_end() {
                    return Err(member.program.describe("a server ended by itself"));
                }
                let at = after(self.random.between(50, 1500));
                self.restarts.push((at, service));
                self.leave_alone(|other| matches!(other.role, Role::Client(of) if of == service));
            }
            Role::PairServer => {
                self.awaited.retain(|awaited| awaited.server != number);
                self.leave_alone(
                    |other| matches!(other.role, Role::PairClient(server) if server == number),
                );
            }
            Role::PairClient(server) => {
                self.leave_alone(|other| other.program.number == server);
            }
            Role::Client(_) => {}
        }
        Ok(())
    }

    fn leave_alone(&mut self, is_affected: impl Fn(&Participant) -> bool) {
        let now = Instant::now();
        for member in self.members.iter_mut().filter(|member| is_affected(member)) {
            member.alone_since.get_or_insert(now);
        }
    }

    fn start_awaited(&mut self) -> Result<(), String> {
        let members = &self.members;
        let listens = |awaited: &mut Awaited| {
            let server = members
                .iter()
                .find(|member| member.program.number == awaited.server);
            server.is_some_and(|server| server.program.listens_at(awaited.port))
        };
        let ready: Vec<Awaited> = self.awaited.extract_if(.., listens).collect();
        for Awaited { server, client, .. } in ready {
            self.start(client, Role::PairClient(server))?;
        }
        Ok(())
    }

    fn end_overdue(&mut self) -> Result<(), String> {
        let is_due =
            |it: &Participant| it.is_overdue() && it.program.intervention == Intervention::None;
        if !self.members.iter().any(is_due) {
            return Ok(());
        }
        let losers = self.servers_that_lost_a_request();
        for member in self.members.iter_mut().filter(|it| is_due(it)) {
            let is_lost = matches!(member.role, Role::Client(service) if losers.contains(&service));
            if !is_lost && !member.may_wait_for_ever() {
                let hanging = member.program.number;
                return Err(self.describe_with_server(hanging));
            }
            member.program.dismiss();
        }
        Ok(())
    }

    fn servers_that_lost_a_request(&self) -> Vec<usize> {
        let servers = self.members.iter().filter_map(|member| match member.role {
            Role::Server(service) if SERVICES[service].kind == ServiceKind::Rping => {
                let errors = member.program.errors();
                let has_lost = LOST_REQUEST.iter().any(|sign| errors.contains(sign));
                has_lost.then_some(service)
            }
            _ => None,
        });
        servers.collect()
    }

    /// A program that hangs, and its server: the cause may be at either.
    fn describe_with_server(&self, hanging: Number) -> String {
        let number = |member: &Participant| member.program.number;
        let member = self.members.iter().find(|it| number(it) == hanging);
        let role = member.map(|it| it.role);
        let is_server = |it: &&Participant| match (role, it.role) {
            (Some(Role::Client(service)), Role::Server(served)) => service == served,
            (Some(Role::PairClient(server)), Role::PairServer) => number(it) == server,
            _ => false,
        };
        let server = self.members.iter().filter(is_server);
        let stacks = member.into_iter().chain(server);
        let stacks: Vec<_> = stacks.map(|it| it.program.describe_hanging()).collect();
        stacks.join("\n\n")
    }

    /// Starts programs until there are enough.
    pub(super) fn grow(&mut self) -> Result<(), String> {
        while self.members.len() + self.restarts.len() < SERVICES.len() + CLIENTS {
            if self.random.percent(30) {
                self.start_pair()?;
            } else {
                self.start_client()?;
            }
        }
        Ok(())
    }

    fn start_pair(&mut self) -> Result<(), String> {
        let pair = *self.random.choose(&PAIRS).expect("there are some");
        let port = 20_000 + (self.next % 10_000) as u16;
        let side = self.side();
        let [server, client] = self.commands.pair(pair, port, side, &mut self.random);
        let server = self.start(server, Role::PairServer)?.program.number;
        self.awaited.push(Awaited {
            server,
            port,
            client,
        });
        Ok(())
    }

    fn start_client(&mut self) -> Result<(), String> {
        let service = self.random.between(0, SERVICES.len() as u64 - 1) as usize;
        let (side, limit) = (self.side(), self.limit());
        let count = self.random.between(20, 2000);
        self.start_client_of(service, side, limit, count)?;
        Ok(())
    }

    fn start_client_of(
        &mut self,
        service: usize,
        side: Side,
        limit: Limit,
        count: u64,
    ) -> Result<Number, String> {
        let command = self.commands.client(
            &SERVICES[service],
            (side, limit),
            (self.next, count),
            &mut self.random,
        );
        let member = self.start(command, Role::Client(service))?;
        member.program.is_limited = limit != Limit::None;
        Ok(member.program.number)
    }

    fn side(&mut self) -> Side {
        if self.random.percent(50) {
            Side::Server
        } else {
            Side::Client
        }
    }

    fn limit(&mut self) -> Limit {
        match self.random.between(0, 99) {
            0..15 => Limit::Descriptors(self.random.between(3, 40)),
            15..25 => Limit::Memory(self.random.between(self.least_memory, LARGEST_LIMIT)),
            25..32 => Limit::Disk,
            _ => Limit::None,
        }
    }

    /// Every program that may be stopped; only those that may be killed.
    pub(super) fn victims(&self, to_kill: bool) -> Vec<Number> {
        let may = |member: &&Participant| match member.role {
            Role::Server(service) => !to_kill || SERVICES[service].is_killed,
            _ => true,
        };
        let victims = self.members.iter().filter(may);
        victims.map(|member| member.program.number).collect()
    }

    /// The program, if it still runs.
    pub(super) fn program(&mut self, number: Number) -> Option<&mut Program> {
        let mut programs = self.members.iter_mut().map(|member| &mut member.program);
        programs.find(|program| program.number == number)
    }

    /// How long a program is stopped. Its peers are not notified.
    pub(super) fn disturb_by_stop(&mut self, number: Number, duration: Duration) {
        let of = |role| match role {
            Role::Server(service) => Some(service),
            _ => None,
        };
        let mut stopped = self.members.iter();
        let stopped = stopped.find(|member| member.program.number == number);
        let service = stopped.and_then(|member| of(member.role));
        for member in &mut self.members {
            let is_peer = match member.role {
                Role::Client(service_of) => service == Some(service_of),
                Role::PairServer | Role::PairClient(_) => true,
                Role::Server(_) => false,
            };
            if is_peer || member.program.number == number {
                member.disturbed += duration;
            }
        }
    }

    /// How long the link is down.
    pub(super) fn disturb_all(&mut self, duration: Duration) {
        for member in &mut self.members {
            member.disturbed += duration;
        }
    }

    /// Whether anything but servers runs, or a server has still to start.
    pub(super) fn is_busy(&self) -> bool {
        let servers = self.members.iter().filter(|member| member.is_server());
        servers.count() != self.members.len() || !self.restarts.is_empty()
    }

    pub(super) fn describe_hanging(&self) -> String {
        let left = self.members.iter().filter(|member| !member.is_server());
        let left: Vec<String> = left
            .map(|member| member.program.describe_hanging())
            .collect();
        left.join("\n\n")
    }

    /// New clients on both hosts are served by each server, as before the storm.
    pub(super) fn prove_servers_work(&mut self) -> Result<(), String> {
        self.wait_for_servers()?;
        for service in 0..SERVICES.len() {
            for side in [Side::Server, Side::Client] {
                let number = self.start_client_of(service, side, Limit::None, 50)?;
                self.wait_for_success(number)?;
            }
        }
        Ok(())
    }

    fn wait_for_success(&mut self, number: Number) -> Result<(), String> {
        let end = Instant::now() + READY_TIMEOUT;
        loop {
            let program = self.program(number).expect("it is not reaped so far");
            match program.ended() {
                Some(status) if status.success() && !program.complains() => return self.reap(),
                Some(_) => return Err(program.describe("a client after the storm failed")),
                None if Instant::now() > end => return Err(program.describe_hanging()),
                None => sleep(POLL_INTERVAL),
            }
        }
    }

    fn wait_for_servers(&mut self) -> Result<(), String> {
        let end = Instant::now() + READY_TIMEOUT;
        let registry = self.commands.tools.scratch.join("roci");
        let listens = |member: &&Participant| !registry_lists(&registry, member.program.id());
        while let Some(waiting) = self
            .members
            .iter()
            .filter(|it| it.is_server())
            .find(listens)
        {
            if Instant::now() > end {
                return Err(waiting.program.describe("a server does not listen"));
            }
            sleep(POLL_INTERVAL);
            self.tick()?;
        }
        Ok(())
    }

    /// No server keeps children that have ended.
    pub(super) fn find_zombies(&self) -> Result<(), String> {
        let mut programs = self.members.iter().map(|member| &member.program);
        match programs.find(|program| program.zombies() > 0) {
            Some(parent) => Err(parent.describe("has zombies")),
            None => Ok(()),
        }
    }

    /// SIGTERM ends a server at once.
    pub(super) fn end_servers(&mut self) -> Result<(), String> {
        for member in &mut self.members {
            member.program.dismiss();
        }
        let end = Instant::now() + READY_TIMEOUT;
        while let Some(member) = self.members.first_mut() {
            let Some(status) = member.program.ended() else {
                if Instant::now() > end {
                    return Err(member.program.describe_hanging());
                }
                sleep(POLL_INTERVAL);
                continue;
            };
            judge(&member.program, status)?;
            self.members.remove(0);
        }
        Ok(())
    }

    pub(super) fn tally(&self) -> &Tally {
        &self.tally
    }
}
