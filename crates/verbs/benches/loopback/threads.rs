//! Threads that share one context, beside as many processes.
//!
//! Each client process has a server process of its own, with as many threads.

use std::io::{BufRead, BufReader, Lines, StdinLock, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rocinante::{
    Access, CompletionQueue, Context, Endpoint, MemoryRegion, OpenOptions, PreparedQueuePair,
    QueuePair, RemoteMemory, Request, Status,
};

use crate::spread::{Goal, Spread, take_turns};

const ADDRESS: &str = "127.61.0.6";
const SERVER_ADDRESS: &str = "127.61.0.7";
const ROUNDS: usize = 5;
const TIME: Duration = Duration::from_millis(400);
const SMALL: usize = 64;
const LARGE: usize = 64 << 10;

/// Receives that a server has posted for each client: twice as many as a client has requests.
const RECEIVES: u32 = 128;

pub(crate) fn run() {
    println!("threads of one context, and as many processes, each with a server: median (min-max)");
    println!(
        "{:>24}  {:>25}  {:>25}  ratio, goal  |  of one thread less, goal  |  slowest of a fair share, goal",
        "", "threads", "processes"
    );
    for operation in ["write", "send"] {
        for size in [SMALL, LARGE] {
            for count in 1..=most_threads() {
                compare(count, operation, size);
            }
        }
    }
    println!();
}

/// Half of the processors, and at least two.
fn most_threads() -> usize {
    let processors = thread::available_parallelism().map_or(1, usize::from);
    (processors / 2).max(2)
}

fn compare(count: usize, operation: &str, size: usize) {
    let mut threads = vec![Client::start(count, operation, size)];
    let start = |_| Client::start(1, operation, size);
    let mut processes: Vec<_> = (0..count).map(start).collect();
    let mut fewer = vec![Client::start((count - 1).max(1), operation, size)];
    let mut shares = Vec::new();
    let total = |counts: &[usize]| {
        let each = counts.iter().sum::<usize>() as f64 / TIME.as_secs_f64();
        if size == SMALL {
            each / 1e6
        } else {
            each * size as f64 / 1e9
        }
    };
    let [ours, theirs, less] = take_turns(
        ROUNDS,
        [
            &mut || {
                let counts = run_at_once(&mut threads);
                let fair = counts.iter().sum::<usize>() as f64 / count as f64;
                let slowest = counts.iter().min().map_or(0.0, |least| *least as f64);
                shares.push(slowest / fair);
                total(&counts)
            },
            &mut || total(&run_at_once(&mut processes)),
            &mut || total(&run_at_once(&mut fewer)),
        ],
    );
    let unit = if size == SMALL {
        "64 B, M/s"
    } else {
        "64 KiB, GB/s"
    };
    let ratio = ours.median / theirs.median;
    print!(
        "{count:>4} {operation:>5} {unit:>13}  {ours}  {theirs}  {ratio:5.2} {}",
        Goal::AtLeast(0.8).for_figure(ratio)
    );
    if count > 1 {
        let growth = ours.median / less.median;
        let slowest = Spread::of(shares);
        print!(
            "  |  {growth:5.2} {}  |  {slowest} {}",
            Goal::AtLeast(1.0).for_figure(growth),
            Goal::AtLeast(0.7).for_figure(slowest.median)
        );
    }
    println!();
}

/// How many requests each thread of each client completed.
fn run_at_once(clients: &mut [Client]) -> Vec<usize> {
    clients.iter_mut().for_each(|client| client.0.order("go"));
    let counts = clients.iter_mut().map(|client| client.0.answer());
    let numbers = |line: String| -> Vec<usize> {
        let words = line.split_whitespace();
        words.map(|it| it.parse().expect("a number")).collect()
    };
    counts.flat_map(numbers).collect()
}

/// A process of this program, with pipes to it.
struct Process {
    child: Child,
    orders: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

impl Process {
    fn start(role: &str, count: usize, operation: &str, size: usize) -> Self {
        let mut command = Command::new(std::env::current_exe().expect("this program"));
        command.args([role, &count.to_string(), operation, &size.to_string()]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("a copy of this program");
        Self {
            orders: child.stdin.take(),
            answers: BufReader::new(child.stdout.take().expect("a pipe")),
            child,
        }
    }

    fn order(&mut self, line: &str) {
        let orders = self.orders.as_mut().expect("it runs");
        writeln!(orders, "{line}").expect("it reads");
    }

    fn answer(&mut self) -> String {
        let mut line = String::new();
        self.answers.read_line(&mut line).expect("it answers");
        line.trim().to_owned()
    }
}

impl Drop for Process {
    /// It ends when its pipe is closed.
    fn drop(&mut self) {
        drop(self.orders.take());
        let _ = self.child.wait();
    }
}

/// A process whose threads send or write.
struct Client(Process);

impl Client {
    fn start(count: usize, operation: &str, size: usize) -> Self {
        let mut process = Process::start("client", count, operation, size);
        assert_eq!(process.answer(), "ready");
        Self(process)
    }
}

/// The client process.
pub(crate) fn be_client(count: &str, operation: &str, size: &str) {
    let count = count.parse().expect("a number");
    let size = size.parse().expect("a number");
    let mut server = Process::start("server", count, operation, size);
    let connect = |end: Unconnected| {
        server.order(&end.prepared.endpoint().to_string());
        let endpoint: Endpoint = server.answer().parse().expect("an endpoint");
        Sender {
            target: server.answer().parse().expect("a memory"),
            queue_pair: end.prepared.connect(endpoint).expect("a peer"),
            completions: end.completions,
            source: end.memory,
            sends: operation == "send",
            depth: if size == SMALL { 64 } else { 16 },
        }
    };
    let ends = open(ADDRESS, count, size).into_iter();
    let ends: Vec<Sender> = ends.map(connect).collect();
    println!("ready");
    for _go in std::io::stdin().lines() {
        server.order("begin");
        assert_eq!(server.answer(), "begun");
        let until = Instant::now() + TIME;
        let counts: Vec<String> = thread::scope(|scope| {
            let threads = ends.iter().map(|end| scope.spawn(|| end.run(until)));
            let threads: Vec<_> = threads.collect();
            let counts = threads.into_iter().map(|it| it.join().expect("no panic"));
            counts.map(|count| count.to_string()).collect()
        });
        server.order("end");
        assert_eq!(server.answer(), "ended");
        println!("{}", counts.join(" "));
    }
}

struct Sender {
    completions: CompletionQueue,
    source: MemoryRegion,
    queue_pair: QueuePair,
    target: RemoteMemory,
    sends: bool,
    depth: u32,
}

impl Sender {
    /// How many requests complete that are posted before this time.
    fn run(&self, until: Instant) -> usize {
        let mut outstanding = 0;
        let mut done = 0;
        let mut open = true;
        while open || outstanding > 0 {
            open = open && Instant::now() < until;
            while open && outstanding < self.depth {
                let request = if self.sends {
                    Request::send()
                } else {
                    Request::write(self.target)
                };
                let request = request.data(self.source.all());
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

/// The ends of this number of threads, with one context.
fn open(address: &str, count: usize, size: usize) -> Vec<Unconnected> {
    let options = OpenOptions::default();
    let context = Context::open_with(address, &options).expect("a loopback address");
    let end = || {
        let domain = context.allocate_protection_domain().expect("room");
        let completions = context.create_completion_queue(2 * RECEIVES).expect("room");
        let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
        let memory = domain.allocate_memory(size, access).expect("room");
        let builder = domain.queue_pair_builder(&completions);
        let builder = builder.depth(RECEIVES, RECEIVES);
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

/// One connection of the server.
struct Receiver {
    queue_pair: QueuePair,
    memory: MemoryRegion,
    completions: CompletionQueue,
}

impl Receiver {
    fn post_receive(&self) {
        let posted = self.queue_pair.post_receive(0, [self.memory.all()]);
        posted.expect("room");
    }

    /// Polls, and posts a receive for each one that a message has used.
    fn serve(&self, stop: &AtomicBool) {
        while !stop.load(Ordering::Relaxed) {
            while let Some(completion) = self.completions.poll() {
                assert_eq!(completion.status, Status::Success);
                self.post_receive();
            }
        }
    }
}

/// The server process. It polls only while SENDs are measured: a WRITE needs no action of it.
pub(crate) fn be_server(count: &str, operation: &str, size: &str) {
    let count = count.parse().expect("a number");
    let ends = open(SERVER_ADDRESS, count, size.parse().expect("a number"));
    let mut orders = std::io::stdin().lock().lines();
    let connect = |end: Unconnected| {
        let order = orders.next().expect("an endpoint").expect("a pipe");
        println!("{}", end.prepared.endpoint());
        println!("{}", end.memory.remote(0));
        let connected = end.prepared.connect(order.parse().expect("an endpoint"));
        let end = Receiver {
            queue_pair: connected.expect("a peer"),
            memory: end.memory,
            completions: end.completions,
        };
        (0..RECEIVES).for_each(|_| end.post_receive());
        end
    };
    let ends: Vec<_> = ends.into_iter().map(connect).collect();
    while let Some(Ok(begin)) = orders.next() {
        assert_eq!(begin, "begin");
        if operation == "send" {
            serve(&ends, &mut orders);
        } else {
            println!("begun");
            let _ = orders.next();
        }
        println!("ended");
    }
}

fn serve(ends: &[Receiver], orders: &mut Lines<StdinLock<'_>>) {
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        for end in ends {
            scope.spawn(|| end.serve(&stop));
        }
        println!("begun");
        let _ = orders.next();
        stop.store(true, Ordering::Relaxed);
    });
}
