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

use crate::peer::Way;
use crate::spread::{Goal, Spread, take_turns};

const ADDRESS: &str = "127.61.0.6";
const SERVER_ADDRESS: &str = "127.61.0.7";
const ROUNDS: usize = 5;
const TIME: Duration = Duration::from_millis(400);
const SMALL: usize = 64;
const LARGE: usize = 64 << 10;

/// The operation of threads that WRITE to queue pairs of their own process.
const OWN: &str = "own";

/// How many threads use the queues that another one has created.
const ONE_CREATOR_COUNTS: [usize; 3] = [2, 4, 7];

/// Receives that a server has posted for each client: twice as many as a client has requests.
const RECEIVES: u32 = 128;

/// Which thread creates the queues of a program.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Creator {
    /// Each thread creates its own.
    Each,
    /// One thread creates all of them, and other threads use them.
    One,
}

impl Creator {
    const fn name(self) -> &'static str {
        match self {
            Creator::Each => "each",
            Creator::One => "one",
        }
    }
}

/// What the threads of a client do.
#[derive(Clone, Copy)]
struct Load<'a> {
    way: Way,
    creator: Creator,
    operation: &'a str,
    size: usize,
}

/// In the table each line of figures begins with the number of threads.
pub(crate) fn run(way: Way) {
    for (creator, who) in [
        (Creator::Each, "each creates its queues"),
        (Creator::One, "one thread creates all queues"),
    ] {
        let (counts, less) = match creator {
            Creator::Each => ((1..=most_threads()).collect(), "one thread less"),
            Creator::One => (ONE_CREATOR_COUNTS.to_vec(), "one thread"),
        };
        println!("threads of one context {way}, {who},");
        println!("and as many processes, each with a server: median (min-max)");
        println!(
            "{:>24}  {:>25}  {:>25}  ratio, goal  |  of {less}, goal  |  slowest of a fair share, goal",
            "", "threads", "processes"
        );
        for operation in ["write", "send", OWN] {
            if operation == OWN && way == Way::Sockets {
                continue;
            }
            for size in [SMALL, LARGE] {
                let load = Load {
                    way,
                    creator,
                    operation,
                    size,
                };
                counts.iter().for_each(|count| compare(*count, load));
            }
        }
        println!();
    }
}

/// Half of the processors, and at least two.
fn most_threads() -> usize {
    let processors = thread::available_parallelism().map_or(1, usize::from);
    (processors / 2).max(2)
}

fn compare(count: usize, load: Load<'_>) {
    let mut threads = vec![Client::start(count, load)];
    let mut processes: Vec<_> = (0..count).map(|_| Client::start(1, load)).collect();
    let fewer = match load.creator {
        Creator::Each => (count - 1).max(1),
        Creator::One => 1,
    };
    let mut fewer = vec![Client::start(fewer, load)];
    let mut shares = Vec::new();
    let size = load.size;
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
        "{count:>4} {:>5} {unit:>13}  {ours}  {theirs}  {ratio:5.2} {}",
        load.operation,
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
    /// A server gets the environment of its client.
    fn start(role: &str, arguments: [&str; 4], variables: &[(&str, &str)]) -> Self {
        let mut command = Command::new(std::env::current_exe().expect("this program"));
        command.arg(role).args(arguments);
        command.envs(variables.iter().copied());
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
    fn start(count: usize, load: Load<'_>) -> Self {
        let [count, size] = [count, load.size].map(|number| number.to_string());
        let arguments = [&count, load.creator.name(), load.operation, &size];
        let variables = [("ROCI_SHORTCUT", load.way.settings().1)];
        let mut process = Process::start("client", arguments, &variables);
        assert_eq!(process.answer(), "ready");
        Self(process)
    }
}

/// The client process.
pub(crate) fn be_client(arguments: [&str; 4]) {
    let (program, operation) = Program::parse(arguments);
    if operation == OWN {
        let pairs = program.open(ADDRESS).into_iter();
        let (senders, _targets): (Vec<_>, Vec<_>) = pairs.map(connect_to_each_other).unzip();
        println!("ready");
        for _go in std::io::stdin().lines() {
            println!("{}", run_all(&senders));
        }
        return;
    }
    let mut server = Process::start("server", arguments, &[]);
    let connect = |[end]: [Unconnected; 1]| {
        server.order(&end.prepared.endpoint().to_string());
        let endpoint: Endpoint = server.answer().parse().expect("an endpoint");
        let target = server.answer().parse().expect("a memory");
        Sender::new(end, endpoint, target, operation)
    };
    let senders: Vec<Sender> = program.open(ADDRESS).into_iter().map(connect).collect();
    println!("ready");
    for _go in std::io::stdin().lines() {
        server.order("begin");
        assert_eq!(server.answer(), "begun");
        let counts = run_all(&senders);
        server.order("end");
        assert_eq!(server.answer(), "ended");
        println!("{counts}");
    }
}

/// Lets a thread run for each. Returns how many requests each completed.
fn run_all(senders: &[Sender]) -> String {
    let until = Instant::now() + TIME;
    let counts: Vec<String> = thread::scope(|scope| {
        let threads = senders.iter().map(|it| scope.spawn(|| it.run(until)));
        let threads: Vec<_> = threads.collect();
        let counts = threads.into_iter().map(|it| it.join().expect("no panic"));
        counts.map(|count| count.to_string()).collect()
    });
    counts.join(" ")
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
    fn new(end: Unconnected, peer: Endpoint, target: RemoteMemory, operation: &str) -> Self {
        Self {
            depth: if end.memory.len() == SMALL { 64 } else { 16 },
            queue_pair: end.prepared.connect(peer).expect("a peer"),
            completions: end.completions,
            source: end.memory,
            target,
            sends: operation == "send",
        }
    }

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

/// The first one writes to the second.
fn connect_to_each_other([one, other]: [Unconnected; 2]) -> (Sender, Receiver) {
    let endpoints = [&one, &other].map(|end| end.prepared.endpoint());
    let target = other.memory.remote(0);
    let connected = other.prepared.connect(endpoints[0]);
    let other = Receiver {
        queue_pair: connected.expect("a peer"),
        memory: other.memory,
        completions: other.completions,
    };
    (Sender::new(one, endpoints[1], target, OWN), other)
}

/// The queues of a client or a server.
struct Program {
    count: usize,
    creator: Creator,
    size: usize,
}

impl Program {
    fn parse([count, creator, operation, size]: [&str; 4]) -> (Self, &str) {
        let all = [Creator::Each, Creator::One];
        let program = Self {
            count: count.parse().expect("a number"),
            creator: (all.into_iter().find(|it| it.name() == creator)).expect("a creator"),
            size: size.parse().expect("a number"),
        };
        (program, operation)
    }

    /// The ends of each thread, with one context.
    fn open<const ENDS: usize>(&self, address: &str) -> Vec<[Unconnected; ENDS]> {
        let options = OpenOptions::from_env();
        let context = Context::open_with(address, &options).expect("a loopback address");
        let end = || {
            let domain = context.allocate_protection_domain().expect("room");
            let completions = context.create_completion_queue(2 * RECEIVES).expect("room");
            let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
            let memory = domain.allocate_memory(self.size, access).expect("room");
            let builder = domain.queue_pair_builder(&completions);
            let builder = builder.depth(RECEIVES, RECEIVES);
            Unconnected {
                prepared: builder.create_reliable().expect("room"),
                completions,
                memory,
            }
        };
        let all = || [(); ENDS].map(|()| end());
        let in_thread = || thread::scope(|scope| scope.spawn(all).join().expect("no panic"));
        let ends = (0..self.count).map(|_| match self.creator {
            Creator::Each => in_thread(),
            Creator::One => all(),
        });
        ends.collect()
    }
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
pub(crate) fn be_server(arguments: [&str; 4]) {
    let (program, operation) = Program::parse(arguments);
    let ends = program.open(SERVER_ADDRESS);
    let mut orders = std::io::stdin().lock().lines();
    let connect = |[end]: [Unconnected; 1]| {
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
