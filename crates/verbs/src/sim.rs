//! Simulation: your own async program on simulated hosts, with a simulated network and clock, in one thread and from one
//! seed.
//!
//! The programs of the hosts use the API of this crate as on real machines: they open devices, connect, post and await. The
//! device that runs inside is the real one, with its protocol, its connection manager and its driver; only sockets, threads and
//! the clock are replaced. Delays of packets and of tasks, faults and all random numbers depend on the seed, so a seed that
//! fails once fails always:
//!
//! ```
//! use rocinante::sim::{Host, Simulation};
//! use rocinante::{Access, Connector, Listener, Request};
//!
//! type Outcome = Result<(), Box<dyn std::error::Error>>;
//!
//! async fn server(host: Host) -> Outcome {
//!     let listener = Listener::bind(host.address_of("server", 7471))?;
//!     let request = listener.next().await;
//!     let domain = request.context().allocate_protection_domain()?;
//!     let completions = request.context().create_completion_queue(16)?;
//!     let memory = domain.allocate_memory(64, Access::LOCAL_WRITE)?;
//!     let prepared = request.prepare(domain.queue_pair_builder(&completions))?;
//!     prepared.post_receive(1, memory.all())?;
//!     let connection = prepared.accept_async(b"").await?;
//!     let received = completions.next().await.into_result()?;
//!     assert_eq!(memory.to_vec(..received.length as usize), b"hello");
//!     // Without this, the connection ends here, and the client fails if the acknowledgement was lost.
//!     connection.disconnected().await;
//!     Ok(())
//! }
//!
//! async fn client(host: Host) -> Outcome {
//!     let connector = Connector::resolve_async(host.address_of("server", 7471)).await?;
//!     let domain = connector.context().allocate_protection_domain()?;
//!     let completions = connector.context().create_completion_queue(16)?;
//!     let prepared = connector.prepare(domain.queue_pair_builder(&completions))?;
//!     let connection = prepared.connect_async(b"").await?;
//!     connection.post_send(Request::send().inline(b"hello"))?;
//!     completions.next().await.into_result()?;
//!     Ok(())
//! }
//!
//! let report = Simulation::with_seed(42)
//!     .faults("loss=1%")
//!     .service("server", server)
//!     .host("client", client)
//!     .run();
//! assert!(report.packets > 0);
//! ```
//!
//! # Hosts and tasks
//!
//! Each host has one device, `roci0`, with one address: 10.0.0.1 for the first host, and so on. [`Host::address_of`] finds
//! it by the host's name. `Context::open("roci0")`, [`Listener::bind`](crate::Listener::bind) and
//! [`Connector::resolve_async`](crate::Connector::resolve_async) use it. A run ends when the programs of all
//! [hosts](Simulation::host) have ended; a [service](Simulation::service) is stopped then.
//!
//! The clock stands still while a task runs, and goes on when all tasks wait. So a function that blocks its thread panics:
//! `completions.next().await` instead of `completions.wait()`. A program that polls its memory or a queue must
//! [sleep](Host::sleep) in between.
//!
//! # Failures
//!
//! A run fails if a task panics, if the program of a host returns an error, if all tasks wait and nothing can wake one, if it
//! takes too long, or if a [check](Simulation::check) of the program finds an error. [`Simulation::run`] then panics with the
//! seed, the host and the time; [`Simulation::try_run`] returns a [`Failure`].
//!
//! Beyond the faults of the [fault language](Simulation::faults), hosts can [crash](Control::crash) and
//! [restart](Control::restart), and the network between two hosts can be [cut](Control::partition): at a fixed time with
//! [`Simulation::at`], or from the program of a host with [`Host::control`].
//!
//! # Many seeds
//!
//! [`Seeds`] runs a simulation with many seeds, on all CPUs, and reports the first one that fails.
//!
//! # What is not simulated
//!
//! Other threads, files, sockets and timers of other libraries. A program that uses them inside of a simulation gives
//! different results for one seed. The same is true for the order of a `HashMap`. The fault `stop` does nothing; `kill`
//! crashes the host.

mod failure;
mod host;
mod runtime;
mod seeds;

use std::fmt;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use driver::CheckOptions;
use driver::simulation::Latency;

pub use failure::{Cause, Failure, Waiting};
pub use host::{Control, Host, Sleep, Task};
pub use seeds::{FailedSeed, Seeds};

use runtime::{HostSetup, Program, Runtime, Step};

/// How long a run may take by default, in simulated time. The retries of a connection end within a few seconds.
const DEFAULT_LIMIT: Duration = Duration::from_secs(60);

/// A simulation that has not run yet: its hosts, their programs, and what happens to them.
#[must_use = "it does nothing until `run`"]
pub struct Simulation {
    seed: u64,
    faults: Option<String>,
    check: Option<CheckOptions>,
    capture: Option<PathBuf>,
    latency: Option<Latency>,
    limit: Duration,
    hosts: Vec<HostSetup>,
    script: Vec<(Duration, Step)>,
}

/// A run that has ended well.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Report {
    /// How long it took, in simulated time.
    pub elapsed: Duration,
    /// How many packets the hosts sent.
    pub packets: u64,
    /// A hash of all packets and the times at which they were sent. The same seed and program give the same number.
    pub digest: u64,
}

/// What the program of a host returns: nothing, or a result whose error fails the run.
pub trait Outcome {
    /// The text of the error.
    fn into_result(self) -> Result<(), String>;
}

impl Outcome for () {
    fn into_result(self) -> Result<(), String> {
        Ok(())
    }
}

impl<E: fmt::Display> Outcome for Result<(), E> {
    fn into_result(self) -> Result<(), String> {
        self.map_err(|error| error.to_string())
    }
}

impl Simulation {
    /// A simulation without hosts. The seed decides everything that is random in it.
    pub fn with_seed(seed: u64) -> Self {
        Self {
            seed,
            faults: None,
            check: None,
            capture: None,
            latency: None,
            limit: DEFAULT_LIMIT,
            hosts: Vec::new(),
            script: Vec::new(),
        }
    }

    /// Adds a host. Programs start in the order in which their hosts are added. The run ends when the programs of all hosts have ended.
    ///
    /// The program is called again when the host [restarts](Control::restart). What it must keep, as on a disk, lives
    /// outside of it, for example in an `Rc` that it clones.
    ///
    /// # Panics
    /// If there is a host of this name.
    pub fn host<F, P>(self, name: &str, program: P) -> Self
    where
        P: Fn(Host) -> F + 'static,
        F: Future<Output: Outcome> + 'static,
    {
        self.add(name, program, true)
    }

    /// Adds a host that serves the others: the run does not wait for the end of its program.
    ///
    /// # Panics
    /// If there is a host of this name.
    pub fn service<F, P>(self, name: &str, program: P) -> Self
    where
        P: Fn(Host) -> F + 'static,
        F: Future<Output: Outcome> + 'static,
    {
        self.add(name, program, false)
    }

    fn add<F, P>(mut self, name: &str, program: P, is_awaited: bool) -> Self
    where
        P: Fn(Host) -> F + 'static,
        F: Future<Output: Outcome> + 'static,
    {
        let is_known = self.hosts.iter().any(|host| host.name == name);
        assert!(!is_known, "there is a host `{name}` already");
        let program: Program = Rc::new(move |host| {
            let running = program(host);
            Box::pin(async move { running.await.into_result() })
        });
        self.hosts.push(HostSetup {
            name: name.to_owned(),
            program,
            is_awaited,
        });
        self
    }

    /// Injects faults at the devices of all hosts, in the language of `ROCI_FAULT`: `loss=1%`, `dup=1%,reorder=5%`,
    /// `drop:cm=REP,nth=1`. The seed of the simulation decides which packets they affect.
    pub fn faults(mut self, faults: &str) -> Self {
        self.faults = Some(faults.to_owned());
        self
    }

    /// Checks the programs for violations of the rules of the verbs. The run fails if there are any.
    pub fn check(mut self, options: CheckOptions) -> Self {
        self.check = Some(options);
        self
    }

    /// Writes the packets of each host to a file `HOST.pcapng` in this directory, for Wireshark or `roci explain`. Captures of
    /// one seed are equal, byte for byte.
    pub fn capture(mut self, directory: impl AsRef<Path>) -> Self {
        self.capture = Some(directory.as_ref().to_owned());
        self
    }

    /// Sets how long packets travel, from `min` to `max`. By default the seed decides, between 0.5 and
    /// 144 µs.
    pub fn latency(mut self, min: Duration, max: Duration) -> Self {
        self.latency = Some(Latency { min, max });
        self
    }

    /// Sets how long the run may take, in simulated time; a minute by default.
    pub fn limit(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }

    /// Does something at a time after the start, such as a crash:
    /// `.at(Duration::from_millis(5), |control| control.crash("server"))`.
    pub fn at(mut self, time: Duration, action: impl FnOnce(&Control) + 'static) -> Self {
        self.script.push((time, Box::new(action)));
        self
    }

    /// Runs it.
    ///
    /// # Panics
    /// If the run fails.
    pub fn run(self) -> Report {
        match self.try_run() {
            Ok(report) => report,
            Err(failure) => panic!("{failure}"),
        }
    }

    /// Runs it.
    ///
    /// # Errors
    /// If the run fails.
    pub fn try_run(self) -> Result<Report, Failure> {
        Runtime::new(self)?.run()
    }
}

impl fmt::Debug for Simulation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hosts: Vec<_> = self.hosts.iter().map(|host| &host.name).collect();
        f.debug_struct("Simulation")
            .field("seed", &self.seed)
            .field("hosts", &hosts)
            .finish_non_exhaustive()
    }
}
