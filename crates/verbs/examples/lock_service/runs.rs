//! The service on simulated hosts, and on real devices with threads.

use std::future::Future;
use std::net::{IpAddr, SocketAddr};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};

use rocinante::Listener;
use rocinante::sim::{Host, Simulation};

use super::service::{Job, LOST, Release, add, serve};

/// How many clients there are.
const CLIENTS: u64 = 2;

/// How often each adds 1 in one run.
const ROUNDS: u64 = 3;

/// The port of both servers.
const PORT: u16 = 7471;

/// One run on simulated hosts.
pub(crate) fn simulate(simulation: Simulation, release: Release) {
    let server = |host: Host| async move {
        let listener = Listener::bind(host.address_of(host.name(), PORT))?;
        serve(listener, CLIENTS as usize).await
    };
    // A disconnect may be lost with the process that sends it, so the run does not wait for the servers.
    let mut simulation = simulation
        .service("locks", server)
        .service("storage", server);
    let done = Arc::new(AtomicU64::new(0));
    for name in 1..=CLIENTS {
        let done = Arc::clone(&done);
        simulation = simulation.host(&format!("client{name}"), move |host: Host| {
            let job = Job {
                own: host.address_of(host.name(), 0),
                locks: host.address_of("locks", PORT),
                storage: host.address_of("storage", PORT),
                name,
                rounds: ROUNDS,
                release,
            };
            let done = Arc::clone(&done);
            async move { add(job, &done, CLIENTS * ROUNDS).await }
        });
    }
    simulation.run();
}

/// Runs on real devices of the loopback network 127.62.`net`.0/24, with a thread for each server and each client. Returns how many
/// of them have lost an addition.
pub(crate) fn run_ordinary(runs: u64, net: u8, release: Release) -> u64 {
    let address = |host: u8| SocketAddr::new(IpAddr::from([127, 62, net, host]), 0);
    // They keep the devices open from run to run.
    let _open = [1, 2, 3, 4].map(|host| Listener::bind(address(host)).expect("a loopback address"));
    let one_run = |_: &u64| {
        let [locks, storage] = [1, 2].map(|host| Listener::bind(address(host)).expect("a port"));
        let job = |name: u64| Job {
            own: address(2 + name as u8),
            locks: locks.local_address(),
            storage: storage.local_address(),
            name,
            rounds: ROUNDS,
            release,
        };
        let jobs: Vec<_> = (1..=CLIENTS).map(job).collect();
        let done = &AtomicU64::new(0);
        thread::scope(|scope| {
            for server in [locks, storage] {
                scope.spawn(|| block_on(serve(server, CLIENTS as usize)).expect("a server"));
            }
            let client = |job| {
                let work =
                    move || block_on(add(job, done, CLIENTS * ROUNDS)).map_err(|it| it.to_string());
                scope.spawn(work)
            };
            let clients: Vec<_> = jobs.into_iter().map(client).collect();
            let mut ended = clients.into_iter().map(|it| it.join().expect("no panic"));
            ended.any(|outcome| has_lost(&outcome))
        })
    };
    (0..runs).filter(one_run).count() as u64
}

/// Whether a client has found a wrong sum.
///
/// # Panics
/// If it has another error.
fn has_lost(outcome: &Result<(), String>) -> bool {
    match outcome {
        Ok(()) => false,
        Err(error) => {
            assert!(error.starts_with(LOST), "{error}");
            true
        }
    }
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// The smallest executor: a thread that parks until its task is woken.
fn block_on<F: Future>(future: F) -> F::Output {
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => thread::park(),
        }
    }
}
