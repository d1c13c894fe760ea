//! Runs the tasks of all hosts, and moves the clock when all of them wait.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::collections::btree_map::OccupiedEntry;
use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::net::IpAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use driver::simulation::{HostId, World};
use net::tap::fault::{FaultSpec, Random};

use super::failure::{Cause, Failure, Waiting};
use super::host::{Control, Host};
use super::{Report, Simulation};

/// The program of a host.
pub(super) type Program = Rc<dyn Fn(Host) -> Work>;

/// A task.
pub(super) type Work = Pin<Box<dyn Future<Output = Result<(), String>>>>;

/// Something that happens at a time.
pub(super) type Step = Box<dyn FnOnce(&Control)>;

/// A host before the run.
pub(super) struct HostSetup {
    pub(super) name: String,
    pub(super) program: Program,
    pub(super) is_awaited: bool,
}

/// What a task or a script asks for. It is done when the task has returned, because it may end that task.
#[derive(Clone, Copy)]
pub(super) enum Command {
    Crash(usize),
    Restart(usize),
}

/// A host during the run.
pub(super) struct HostEntry {
    pub(super) name: String,
    id: HostId,
    program: Program,
    is_awaited: bool,
    is_running: Cell<bool>,
}

/// What the tasks share.
pub(super) struct Inner {
    pub(super) world: World,
    pub(super) hosts: Vec<HostEntry>,
    tasks: RefCell<BTreeMap<u64, TaskEntry>>,
    /// When each task that was woken runs.
    ready: RefCell<BTreeSet<(Instant, u64)>>,
    task_timers: RefCell<BTreeMap<(Instant, u64), Waker>>,
    commands: RefCell<Vec<Command>>,
    woken: Arc<Woken>,
    random: RefCell<Random>,
    next: Cell<u64>,
}

struct TaskEntry {
    host: usize,
    /// Whether it is the program of its host.
    is_main: bool,
    /// `None` while it runs.
    work: Option<Work>,
    is_ready: bool,
    waits_for: Vec<String>,
}

/// The tasks that were woken.
#[derive(Default)]
struct Woken(Mutex<Vec<u64>>);

impl Woken {
    fn push(&self, task: u64) {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(task);
    }

    fn take(&self) -> Vec<u64> {
        std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

struct TaskWaker {
    task: u64,
    woken: Arc<Woken>,
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        self.woken.push(self.task);
    }
}

impl Inner {
    pub(super) fn find(&self, name: &str) -> usize {
        let found = self.hosts.iter().position(|host| host.name == name);
        found.unwrap_or_else(|| {
            let known: Vec<_> = self.hosts.iter().map(|host| &host.name[..]).collect();
            panic!("there is no host `{name}`, only: {}", known.join(", "))
        })
    }

    pub(super) fn address(&self, host: usize) -> IpAddr {
        self.world.address(self.hosts[host].id)
    }

    pub(super) fn set_cut(&self, one: &str, other: &str, cut: bool) {
        let id = |name| self.hosts[self.find(name)].id;
        self.world.set_cut(id(one), id(other), cut);
    }

    pub(super) fn request(&self, command: Command) {
        self.commands.borrow_mut().push(command);
    }

    pub(super) fn next_number(&self) -> u64 {
        self.next.set(self.next.get() + 1);
        self.next.get()
    }

    pub(super) fn spawn(&self, host: usize, work: Work) {
        let number = self.add_task(host, false, work);
        self.woken.push(number);
    }

    /// Adds a task. A main one has its turn already.
    fn add_task(&self, host: usize, is_main: bool, work: Work) -> u64 {
        let number = self.next_number();
        let task = TaskEntry {
            host,
            is_main,
            work: Some(work),
            is_ready: is_main,
            waits_for: Vec::new(),
        };
        self.tasks.borrow_mut().insert(number, task);
        number
    }

    pub(super) fn set_task_timer(&self, key: (Instant, u64), waker: &Waker) {
        let former = self.task_timers.borrow_mut().insert(key, waker.clone());
        drop(former);
    }

    pub(super) fn cancel_task_timer(&self, key: (Instant, u64)) {
        let former = self.task_timers.borrow_mut().remove(&key);
        drop(former);
    }

    /// How long a task that was woken waits for its turn: usually a few microseconds, as on a machine with a free CPU,
    /// and sometimes as long as other programs use the CPU.
    fn turn_delay(&self) -> Duration {
        let mut random = self.random.borrow_mut();
        let longest = match random.below(256) {
            0 => Duration::from_millis(5),
            1..=16 => Duration::from_micros(200),
            _ => Duration::from_micros(5),
        };
        Duration::from_nanos(random.below(longest.as_nanos() as u64))
    }
}

/// One run.
pub(super) struct Runtime {
    inner: Rc<Inner>,
    seed: u64,
    limit: Duration,
    /// Ordered by time, the next last.
    script: Vec<(Duration, Step)>,
}

impl Runtime {
    pub(super) fn new(plan: Simulation) -> Result<Self, Failure> {
        let world = World::new(plan.seed);
        if let Some(Err(error)) = plan.faults.as_deref().map(str::parse::<FaultSpec>) {
            return Err(setup_failure(plan.seed, error.to_string()));
        }
        world.set_faults(plan.faults);
        world.set_check(plan.check);
        if let Some(latency) = plan.latency {
            world.set_latency(latency);
        }
        let host = |host: HostSetup| HostEntry {
            id: world.add_host(&host.name),
            name: host.name,
            program: host.program,
            is_awaited: host.is_awaited,
            is_running: Cell::new(false),
        };
        let hosts: Vec<_> = plan.hosts.into_iter().map(host).collect();
        if let Some(directory) = &plan.capture {
            start_captures(&world, &hosts, directory, plan.seed)?;
        }
        let mut script = plan.script;
        script.sort_by_key(|(time, _)| std::cmp::Reverse(*time));
        Ok(Self {
            inner: Rc::new(Inner {
                world,
                hosts,
                tasks: RefCell::default(),
                ready: RefCell::default(),
                task_timers: RefCell::default(),
                commands: RefCell::default(),
                woken: Arc::default(),
                random: RefCell::new(Random::new(plan.seed, 3)),
                next: Cell::new(0),
            }),
            seed: plan.seed,
            limit: plan.limit,
            script,
        })
    }

    pub(super) fn run(mut self) -> Result<Report, Failure> {
        let inner = Rc::clone(&self.inner);
        let world = &inner.world;
        for host in 0..inner.hosts.len() {
            self.start(host);
        }
        let outcome = self.run_to_end();
        let report = Report {
            elapsed: world.elapsed(),
            packets: world.packets(),
            digest: world.digest(),
        };
        // The rest ends without a report: no task is left that could receive one.
        for host in 0..inner.hosts.len() {
            self.crash(host);
        }
        match outcome {
            Ok(()) => Ok(report),
            Err(cause) => Err(Failure {
                seed: self.seed,
                at: report.elapsed,
                cause,
            }),
        }
    }

    fn run_to_end(&mut self) -> Result<(), Cause> {
        loop {
            self.schedule_woken();
            if self.is_over() {
                return Ok(());
            }
            let next = self
                .next_event()
                .ok_or_else(|| Cause::Hang(self.waiting()))?;
            self.inner.world.advance_to(next);
            if self.inner.world.elapsed() > self.limit {
                let (limit, waiting) = (self.limit, self.waiting());
                return Err(Cause::TooLong { limit, waiting });
            }
            self.inner.world.serve();
            self.wake_due_sleepers();
            self.run_script()?;
            self.run_ready()?;
            self.execute_commands();
            let findings = self.inner.world.take_findings();
            if !findings.is_empty() {
                return Err(Cause::Findings(findings));
            }
        }
    }

    fn is_over(&self) -> bool {
        let hosts = self.inner.hosts.iter();
        let mut awaited = hosts.filter(|host| host.is_awaited);
        self.script.is_empty() && awaited.all(|host| !host.is_running.get())
    }

    fn start(&self, host: usize) {
        let entry = &self.inner.hosts[host];
        entry.is_running.set(true);
        let handle = Host {
            inner: Rc::clone(&self.inner),
            index: host,
        };
        let program = Rc::clone(&entry.program);
        // The program itself runs as part of the task, so that its panics are those of the host.
        let work = Box::pin(async move { program(handle).await });
        let number = self.inner.add_task(host, true, work);
        // At once, so that programs start in the order of their hosts.
        let turn = (self.inner.world.now(), number);
        self.inner.ready.borrow_mut().insert(turn);
    }

    /// Ends all tasks of a host. What their destructors send does not leave the host.
    fn crash(&self, host: usize) {
        let entry = &self.inner.hosts[host];
        entry.is_running.set(false);
        self.inner.world.crash(entry.id);
        self.drop_tasks(host);
    }

    fn drop_tasks(&self, host: usize) {
        let entered = self.inner.world.enter(Some(self.inner.hosts[host].id));
        let mut tasks = self.inner.tasks.borrow_mut();
        let (its, others) = std::mem::take(&mut *tasks)
            .into_iter()
            .partition::<BTreeMap<_, _>, _>(|(_, task)| task.host == host);
        *tasks = others;
        drop(tasks);
        // A destructor that panics would hide why the run fails.
        let _ = catch_unwind(AssertUnwindSafe(|| drop(its)));
        drop(entered);
    }

    /// Gives each task that was woken its turn.
    fn schedule_woken(&self) {
        let now = self.inner.world.now();
        for number in self.inner.woken.take() {
            let mut tasks = self.inner.tasks.borrow_mut();
            if let Some(task) = tasks.get_mut(&number)
                && !std::mem::replace(&mut task.is_ready, true)
            {
                let turn = (now + self.inner.turn_delay(), number);
                self.inner.ready.borrow_mut().insert(turn);
            }
        }
    }

    fn next_event(&self) -> Option<Instant> {
        let world = &self.inner.world;
        let script = self.script.last().and_then(|(time, _)| {
            let ahead = time.saturating_sub(world.elapsed());
            world.now().checked_add(ahead)
        });
        [
            world.next_event(),
            self.inner.ready.borrow().first().map(|(at, _)| *at),
            self.inner
                .task_timers
                .borrow()
                .keys()
                .next()
                .map(|(at, _)| *at),
            script,
        ]
        .into_iter()
        .flatten()
        .min()
    }

    fn wake_due_sleepers(&self) {
        let now = self.inner.world.now();
        loop {
            let mut task_timers = self.inner.task_timers.borrow_mut();
            let due = task_timers
                .first_entry()
                .filter(|first| first.key().0 <= now);
            let Some(waker) = due.map(OccupiedEntry::remove) else {
                return;
            };
            drop(task_timers);
            waker.wake();
        }
    }

    fn run_script(&mut self) -> Result<(), Cause> {
        let elapsed = self.inner.world.elapsed();
        while let Some((_, step)) = self.script.pop_if(|(time, _)| *time <= elapsed) {
            let control = Control {
                inner: Rc::clone(&self.inner),
            };
            let _entered = self.inner.world.enter(None);
            catch_unwind(AssertUnwindSafe(|| step(&control))).map_err(|panic| Cause::Panic {
                host: "the script".to_owned(),
                message: message_of(&*panic),
            })?;
        }
        Ok(())
    }

    fn run_ready(&self) -> Result<(), Cause> {
        let now = self.inner.world.now();
        loop {
            let mut ready = self.inner.ready.borrow_mut();
            match ready.first() {
                Some((at, _)) if *at <= now => {}
                _ => return Ok(()),
            }
            let Some((_, number)) = ready.pop_first() else {
                return Ok(());
            };
            drop(ready);
            self.run_task(number)?;
        }
    }

    fn run_task(&self, number: u64) -> Result<(), Cause> {
        let mut tasks = self.inner.tasks.borrow_mut();
        let Some(task) = tasks.get_mut(&number) else {
            return Ok(());
        };
        task.is_ready = false;
        let (host, is_main) = (task.host, task.is_main);
        let mut work = task.work.take().expect("only this function takes it");
        drop(tasks);
        let entered = self.inner.world.enter(Some(self.inner.hosts[host].id));
        let waker = Waker::from(Arc::new(TaskWaker {
            task: number,
            woken: Arc::clone(&self.inner.woken),
        }));
        let mut context = Context::from_waker(&waker);
        let polled = catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(&mut context)));
        if matches!(polled, Ok(Poll::Pending)) {
            if let Some(task) = self.inner.tasks.borrow_mut().get_mut(&number) {
                task.work = Some(work);
                task.waits_for = entered.take_waits();
            }
            return Ok(());
        }
        // At the host, and without letting a destructor hide why the run fails.
        let dropped = catch_unwind(AssertUnwindSafe(|| drop(work)));
        let name = self.name(host);
        match (polled, dropped) {
            (Err(panic), _) | (_, Err(panic)) => {
                let message = message_of(&*panic);
                return Err(Cause::Panic {
                    host: name,
                    message,
                });
            }
            (Ok(Poll::Ready(Err(error))), _) => return Err(Cause::Error { host: name, error }),
            (Ok(_), Ok(())) => {}
        }
        drop(entered);
        self.inner.tasks.borrow_mut().remove(&number);
        if is_main {
            // As at the end of a process: its other tasks end, and their connections are closed.
            self.drop_tasks(host);
            self.inner.hosts[host].is_running.set(false);
        }
        Ok(())
    }

    fn execute_commands(&self) {
        let faults = self
            .inner
            .world
            .take_crashes()
            .into_iter()
            .filter_map(|id| {
                let host = self.inner.hosts.iter().position(|host| host.id == id);
                host.map(Command::Crash)
            });
        let asked = std::mem::take(&mut *self.inner.commands.borrow_mut());
        for command in faults.chain(asked) {
            match command {
                Command::Crash(host) => self.crash(host),
                Command::Restart(host) => {
                    self.crash(host);
                    self.start(host);
                }
            }
        }
    }

    /// The tasks that wait, those of awaited hosts first.
    fn waiting(&self) -> Vec<Waiting> {
        let tasks = self.inner.tasks.borrow();
        let mut waiting: Vec<_> = tasks.values().collect();
        waiting.sort_by_key(|task| !self.inner.hosts[task.host].is_awaited);
        let one = |task: &TaskEntry| Waiting {
            host: self.name(task.host),
            waits_for: task.waits_for.clone(),
        };
        waiting.into_iter().map(one).collect()
    }

    fn name(&self, host: usize) -> String {
        self.inner.hosts[host].name.clone()
    }
}

fn start_captures(
    world: &World,
    hosts: &[HostEntry],
    directory: &std::path::Path,
    seed: u64,
) -> Result<(), Failure> {
    let failed = |problem| setup_failure(seed, problem);
    std::fs::create_dir_all(directory).map_err(|error| {
        failed(format!(
            "the directory {} can't be created: {error}",
            directory.display()
        ))
    })?;
    for host in hosts {
        let path = directory.join(format!("{}.pcapng", host.name));
        let program = format!(
            "Rocinante {}, simulated host {}",
            env!("CARGO_PKG_VERSION"),
            host.name
        );
        let started = world.set_capture(host.id, &path, &program);
        started.map_err(|error| failed(error.to_string()))?;
    }
    Ok(())
}

fn setup_failure(seed: u64, problem: String) -> Failure {
    Failure {
        seed,
        at: Duration::ZERO,
        cause: Cause::Setup(problem),
    }
}

/// The message of a panic.
pub(super) fn message_of(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
    text.unwrap_or("a panic without a message").to_owned()
}
