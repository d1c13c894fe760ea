//! Threads that share one context, beside threads that have a context each.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rocinante::{
    Access, CompletionQueue, Context, Endpoint, MemoryRegion, OpenOptions, PreparedQueuePair,
    QueuePair, RemoteMemory, Request, Status,
};

use crate::spread::in_turn;

const ADDRESS: &str = "127.61.0.6";
const PEER_ADDRESS: &str = "127.61.0.7";
const ROUNDS: usize = 5;
const TIME: Duration = Duration::from_millis(400);
const DEPTH: u32 = 64;
const LENGTH: usize = 64;

pub(crate) fn run() {
    println!(
        "threads that write {LENGTH} bytes, {DEPTH} requests each: million/s, median (min-max)"
    );
    println!(
        "{:>18}  {:>25}  {:>25}  ratio",
        "", "one context", "one context each"
    );
    for count in 1..=most_threads() {
        let shared = Writers::connect(count, true);
        let separate = Writers::connect(count, false);
        let (ours, theirs) = in_turn(ROUNDS, || shared.rate(), || separate.rate());
        let ratio = ours.median / theirs.median;
        println!("{count:>18}  {ours}  {theirs}  {ratio:5.2}");
    }
    println!();
}

/// Half of the processors, and at least two.
fn most_threads() -> usize {
    let processors = thread::available_parallelism().map_or(1, usize::from);
    (processors / 2).max(2)
}

/// The ends of this process, and the process that has the others.
struct Writers {
    ends: Vec<Writer>,
    _peer: Target,
}

struct Writer {
    completions: CompletionQueue,
    source: MemoryRegion,
    queue_pair: QueuePair,
    target: RemoteMemory,
}

impl Writers {
    fn connect(count: usize, shared: bool) -> Self {
        let ends = open(ADDRESS, count, shared);
        let mut peer = Target::start(count, shared);
        let connect = |end: Unconnected| {
            let (endpoint, target) = peer.exchange(end.prepared.endpoint());
            Writer {
                queue_pair: end.prepared.connect(endpoint).expect("a peer"),
                completions: end.completions,
                source: end.memory,
                target,
            }
        };
        Self {
            ends: ends.into_iter().map(connect).collect(),
            _peer: peer,
        }
    }

    /// Millions of writes in a second, of all threads together.
    fn rate(&self) -> f64 {
        let until = Instant::now() + TIME;
        let done: usize = thread::scope(|scope| {
            let threads = self.ends.iter().map(|end| scope.spawn(|| end.write(until)));
            let threads: Vec<_> = threads.collect();
            let counts = threads.into_iter().map(|it| it.join().expect("no panic"));
            counts.sum()
        });
        done as f64 / TIME.as_secs_f64() / 1e6
    }
}

impl Writer {
    fn write(&self, until: Instant) -> usize {
        let mut outstanding = 0;
        let mut done = 0;
        let mut open = true;
        while open || outstanding > 0 {
            open = open && Instant::now() < until;
            while open && outstanding < DEPTH {
                let request = Request::write(self.target).data(self.source.slice(..LENGTH));
                self.queue_pair.post_send(request).expect("room");
                outstanding += 1;
            }
            while let Some(completion) = self.completions.poll() {
                assert_eq!(completion.status, Status::Success);
                outstanding -= 1;
                done += 1;
            }
        }
        done
    }
}

struct Unconnected {
    completions: CompletionQueue,
    memory: MemoryRegion,
    prepared: PreparedQueuePair,
}

fn open(address: &str, count: usize, shared: bool) -> Vec<Unconnected> {
    let options = OpenOptions::default();
    let context = || Context::open_with(address, &options).expect("a loopback address");
    let one = context();
    let end = || {
        let context = if shared { one.clone() } else { context() };
        let domain = context.allocate_protection_domain().expect("room");
        let completions = context.create_completion_queue(2 * DEPTH).expect("room");
        let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
        let memory = domain.allocate_memory(LENGTH, access).expect("room");
        let builder = domain.queue_pair_builder(&completions).depth(DEPTH, DEPTH);
        Unconnected {
            prepared: builder.create_reliable().expect("room"),
            completions,
            memory,
        }
    };
    // Each thread creates its own queues, as servers do.
    let in_thread = |_| thread::scope(|scope| scope.spawn(end).join().expect("no panic"));
    (0..count).map(in_thread).collect()
}

/// The process that is written to. It never polls.
struct Target {
    process: Child,
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Target {
    fn start(count: usize, shared: bool) -> Self {
        let mut command = Command::new(std::env::current_exe().expect("this program"));
        command.args(["target", &count.to_string(), &shared.to_string()]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = command.spawn().expect("a copy of this program");
        Self {
            orders: process.stdin.take().expect("a pipe"),
            answers: BufReader::new(process.stdout.take().expect("a pipe")),
            process,
        }
    }

    fn exchange(&mut self, ours: Endpoint) -> (Endpoint, RemoteMemory) {
        writeln!(self.orders, "{ours}").expect("it reads");
        let mut line = || {
            let mut line = String::new();
            self.answers.read_line(&mut line).expect("it answers");
            line
        };
        let endpoint = line().trim().parse().expect("an endpoint");
        (endpoint, line().trim().parse().expect("a memory"))
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The other process.
pub(crate) fn be_target(count: &str, shared: &str) {
    let count = count.parse().expect("a number");
    let ends = open(PEER_ADDRESS, count, shared == "true");
    let mut orders = std::io::stdin().lines();
    let connect = |end: Unconnected| {
        let order = orders.next().expect("an endpoint").expect("a pipe");
        println!("{}", end.prepared.endpoint());
        println!("{}", end.memory.remote(0));
        let connected = end.prepared.connect(order.parse().expect("an endpoint"));
        (connected.expect("a peer"), end.memory, end.completions)
    };
    let _connected: Vec<_> = ends.into_iter().map(connect).collect();
    // Until the other process closes the pipe.
    let _ = orders.next();
}
