//! Round trips of tasks that await their messages, beside TCP with tokio.

use std::cell::RefCell;
use std::future::Future;
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Instant;

use rocinante::{Completion, Notify, Status};
use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::runtime::{Builder, Runtime};

use crate::costs::processor_time;
use crate::peer::{End, Peer, Way};
use crate::spread::{Goal, Spread, take_turns};

const TRIPS: usize = 5_000;
const ROUNDS: usize = 9;
const SIZE: usize = 64;

/// What runs the tasks of one side.
#[derive(Clone, Copy)]
enum Executor {
    Tokio,
    /// The task waits at the descriptor of the completion channel.
    TokioAtDescriptor,
    Own,
}

impl Executor {
    /// What the peer is then.
    fn role(self) -> &'static str {
        match self {
            Self::Tokio => "echo-tokio",
            Self::TokioAtDescriptor => "echo-tokio-descriptor",
            Self::Own => "echo-await",
        }
    }

    fn of(role: &str) -> Option<Self> {
        let all = [Self::Tokio, Self::TokioAtDescriptor, Self::Own];
        all.into_iter().find(|it| it.role() == role)
    }

    fn run<F: Future>(self, future: F) -> F::Output {
        match self {
            Self::Tokio | Self::TokioAtDescriptor => tokio().block_on(future),
            Self::Own => rocinante::block_on(future),
        }
    }
}

/// One request at a time: the time of a round trip, and the processor time of both processes. Each row has a device of its own, because
/// a device remembers how its tasks waited.
pub(crate) fn run(way: Way) {
    println!("round trip of 64 bytes {way}, tasks: µs, median (min-max)");
    println!("{:>18}  {:>25}  {:>25}", "", "time", "processor time");
    let peers = [(); 4].map(|()| RefCell::new(Peer::start(way)));
    let cost = RefCell::new(Costs::default());
    let measure = |which: usize, trips: &mut dyn FnMut(&mut Peer)| {
        let peer = &mut *peers[which].borrow_mut();
        let processes = [std::process::id(), peer.process()];
        let before = processes.map(processor_time);
        let start = Instant::now();
        trips(peer);
        let took = start.elapsed().as_secs_f64() * 1e6 / TRIPS as f64;
        let used = processes.map(processor_time);
        let used = used.iter().sum::<f64>() - before.iter().sum::<f64>();
        cost.borrow_mut().0[which].push(used * 1e3 / TRIPS as f64);
        took
    };
    let times = take_turns(
        ROUNDS,
        [
            &mut || measure(0, &mut tcp),
            &mut || measure(1, &mut |peer| rdma(peer, Executor::Tokio)),
            &mut || measure(2, &mut |peer| rdma(peer, Executor::TokioAtDescriptor)),
            &mut || measure(3, &mut |peer| rdma(peer, Executor::Own)),
        ],
    );
    let costs = cost.into_inner().0.map(Spread::of);
    let names = ["TCP, tokio", "tokio", "tokio, descriptor", "own executor"];
    for ((name, time), cost) in names.into_iter().zip(times).zip(costs) {
        let ratios = [time.median / times[0].median, cost.median / costs[0].median];
        let goal = match name {
            "TCP, tokio" => String::new(),
            _ => Goal::AtMost(1.0).for_figure(ratios[0].max(ratios[1])),
        };
        let [of_time, of_cost] = ratios;
        println!("{name:>18}  {time}  {cost}  {of_time:5.2} {of_cost:5.2}  {goal}");
    }
    println!();
}

/// The processor time of the rounds of each row.
#[derive(Default)]
struct Costs([Vec<f64>; 4]);

fn rdma(peer: &mut Peer, executor: Executor) {
    peer.end.post_receive(SIZE);
    peer.be(&format!("{} {TRIPS} {SIZE}", executor.role()));
    let end = &peer.end;
    executor.run(async {
        let messages = Messages::of(end, executor);
        for trip in 0..TRIPS {
            end.send(SIZE);
            messages.next().await;
            if trip + 1 < TRIPS {
                end.post_receive(SIZE);
            }
        }
    });
}

fn tcp(peer: &mut Peer) {
    peer.be(&format!("tcp-tokio {TRIPS} {SIZE}"));
    with_tokio(&peer.tcp, async |tcp| {
        let mut buffer = vec![1; SIZE];
        for _ in 0..TRIPS {
            tcp.write_all(&buffer).await.expect("it listens");
            tcp.read_exact(&mut buffer).await.expect("it sends");
        }
    });
}

/// The peer of [`rdma`].
pub(crate) fn echo(end: &End, role: &str, rounds: usize, size: usize) {
    let executor = Executor::of(role).expect("one of its roles");
    end.post_receive(size);
    println!("ready");
    executor.run(async {
        let messages = Messages::of(end, executor);
        for round in 0..rounds {
            messages.next().await;
            if round + 1 < rounds {
                end.post_receive(size);
            }
            end.send(size);
        }
    });
}

/// The peer of [`tcp`].
pub(crate) fn echo_tcp(tcp: &TcpStream, rounds: usize, size: usize) {
    println!("ready");
    with_tokio(tcp, async |tcp| {
        let mut buffer = vec![0; size];
        for _ in 0..rounds {
            tcp.read_exact(&mut buffer).await.expect("it sends");
            tcp.write_all(&buffer).await.expect("it listens");
        }
    });
}

/// The messages of an end.
struct Messages<'e> {
    end: &'e End,
    /// The descriptor to wait at.
    descriptor: Option<AsyncFd<BorrowedFd<'e>>>,
}

impl<'e> Messages<'e> {
    #[expect(deprecated, reason = "what replaces it is an unsafe function")]
    fn of(end: &'e End, executor: Executor) -> Self {
        let is_used = matches!(executor, Executor::TokioAtDescriptor);
        let descriptor = || AsyncFd::new(end.channel.as_fd()).expect("a descriptor");
        Self {
            end,
            descriptor: is_used.then(descriptor),
        }
    }

    async fn next(&self) {
        loop {
            let completion = match &self.descriptor {
                None => self.end.completions.next().await,
                Some(descriptor) => self.next_at(descriptor).await,
            };
            assert_eq!(completion.status, Status::Success);
            if completion.work.is_receive() {
                return;
            }
        }
    }

    async fn next_at(&self, descriptor: &AsyncFd<BorrowedFd<'_>>) -> Completion {
        loop {
            self.end.completions.arm(Notify::Any);
            if let Some(completion) = self.end.completions.poll() {
                return completion;
            }
            let mut ready = descriptor.readable().await.expect("a descriptor");
            ready.clear_ready();
            let _ = self.end.channel.poll();
        }
    }
}

/// Gives a connection to tokio for a while.
fn with_tokio(tcp: &TcpStream, work: impl AsyncFnOnce(&mut tokio::net::TcpStream)) {
    tcp.set_nonblocking(true).expect("a socket");
    tokio().block_on(async {
        let own = tcp.try_clone().expect("a descriptor");
        let mut own = tokio::net::TcpStream::from_std(own).expect("a socket");
        work(&mut own).await;
    });
    tcp.set_nonblocking(false).expect("a socket");
}

fn tokio() -> Runtime {
    let mut builder = Builder::new_current_thread();
    builder.enable_io().build().expect("a runtime")
}
