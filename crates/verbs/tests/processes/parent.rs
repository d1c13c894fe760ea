//! Starts the processes, kills some, and compares what the others say.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use crate::child::ADDRESS;

const SHARED_ADDRESS: &str = "127.53.1.1";
const PROCESSES: usize = 8;
const TIMEOUT: Duration = Duration::from_secs(30);

/// After this time a death must not affect the surviving processes any more.
const RECOVERY: Duration = Duration::from_secs(1);

struct Process {
    child: Child,
    orders: ChildStdin,
}

struct Parent {
    processes: BTreeMap<usize, Process>,
    dead: BTreeSet<usize>,
    said: Receiver<(usize, String)>,
    saying: Sender<(usize, String)>,
    /// Lines that were received and not read yet.
    waiting: BTreeMap<usize, VecDeque<String>>,
    next: usize,
    /// Whether packets go through memory.
    shortcut: bool,
}

pub(crate) fn run(shortcut: bool) {
    let (saying, said) = channel();
    let mut parent = Parent {
        processes: BTreeMap::new(),
        dead: BTreeSet::new(),
        said,
        saying,
        waiting: BTreeMap::new(),
        next: 0,
        shortcut,
    };
    for _ in 0..PROCESSES {
        parent.start_one();
    }
    parent.everybody_proceeds();
    // Not all at the same moment of the others' traffic.
    for (victim, pause) in [(1, 130), (4, 370), (6, 20)] {
        thread::sleep(Duration::from_millis(pause));
        parent.kill(victim);
        parent.start_one();
    }
    thread::sleep(RECOVERY);
    parent.everybody_proceeds();
    parent.stop_and_compare();
}

impl Parent {
    /// Starts a process and connects it with all others.
    fn start_one(&mut self) {
        let number = self.next;
        self.next += 1;
        let program = std::env::current_exe().expect("this program");
        let mut child = Command::new(program)
            .arg("child")
            .env(ADDRESS, SHARED_ADDRESS)
            .env("ROCI_SHORTCUT", if self.shortcut { "1" } else { "0" })
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a child");
        let (output, saying) = (child.stdout.take().expect("piped"), self.saying.clone());
        thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                let _ = saying.send((number, line));
            }
        });
        let orders = child.stdin.take().expect("piped");
        self.processes.insert(number, Process { child, orders });
        self.wait_for(number, "ready");
        let others: Vec<usize> = self.processes.keys().copied().collect();
        for other in others.into_iter().filter(|other| *other != number) {
            self.introduce(number, other);
        }
    }

    fn introduce(&mut self, one: usize, other: usize) {
        self.order(one, &format!("prepare {other}"));
        self.order(other, &format!("prepare {one}"));
        let ones = self.wait_for(one, &format!("endpoint {other} "));
        let others = self.wait_for(other, &format!("endpoint {one} "));
        self.order(other, &format!("connect {one} {ones}"));
        self.order(one, &format!("connect {other} {others}"));
    }

    fn kill(&mut self, number: usize) {
        let mut process = self.processes.remove(&number).expect("it lives");
        process.child.kill().expect("our own child");
        process.child.wait().expect("our own child");
        self.dead.insert(number);
    }

    /// Every pair of living processes counts on, in both directions.
    fn everybody_proceeds(&mut self) {
        let deadline = Instant::now() + TIMEOUT;
        let before = self.progress();
        let alive = self.processes.len();
        let pairs = before.keys().filter(|(_, peer)| !self.dead.contains(peer));
        assert_eq!(
            pairs.count(),
            alive * (alive - 1),
            "every pair is connected"
        );
        while let Some((pair, count)) = self.first_that_stands_still(&before) {
            assert!(
                Instant::now() < deadline,
                "{pair:?} stands still at {count}"
            );
            thread::sleep(Duration::from_millis(50));
        }
    }

    /// A pair of living processes that has counted no further since then.
    fn first_that_stands_still(
        &mut self,
        then: &BTreeMap<(usize, usize), u64>,
    ) -> Option<((usize, usize), u64)> {
        let stands_still =
            |pair: &(usize, usize), count: &u64| then.get(pair).is_some_and(|then| count <= then);
        let mut progress = self.progress().into_iter();
        progress.find(|(pair, count)| stands_still(pair, count) && !self.dead.contains(&pair.1))
    }

    fn progress(&mut self) -> BTreeMap<(usize, usize), u64> {
        let mut progress = BTreeMap::new();
        for number in self.numbers() {
            self.order(number, "report");
            self.collect(number, "reported", "progress", |peer, count| {
                progress.insert((number, peer), count);
            });
        }
        progress
    }

    /// What each has counted is what its peer has in memory: nothing lost, nothing twice.
    fn stop_and_compare(&mut self) {
        let numbers = self.numbers();
        let mut counted = BTreeMap::new();
        for &number in &numbers {
            self.order(number, "stop");
        }
        for &number in &numbers {
            for _ in 1..numbers.len() {
                let said = self.wait_for(number, "quiet ");
                let (peer, count) = pair(&said);
                counted.insert((number, peer), count);
            }
        }
        for &number in &numbers {
            self.order(number, "counters");
            self.collect(number, "counted", "counter", |peer, count| {
                if let Some(theirs) = counted.get(&(peer, number)) {
                    assert_eq!(*theirs, count, "{peer} counted at {number}");
                }
            });
        }
        let total: u64 = counted.values().sum();
        println!("{} pairs agree on {total} additions", counted.len());
        self.all_took_the_way_they_should();
        for number in numbers {
            self.order(number, "exit");
            let mut process = self.processes.remove(&number).expect("it lives");
            assert!(process.child.wait().expect("our own child").success());
        }
    }

    /// Only processes that use shortcuts have mapped rings.
    fn all_took_the_way_they_should(&self) {
        for process in self.processes.values() {
            let maps = format!("/proc/{}/maps", process.child.id());
            let maps = std::fs::read_to_string(maps).expect("our own child");
            assert_eq!(maps.contains("roci-ring"), self.shortcut, "{maps}");
        }
    }

    fn numbers(&self) -> Vec<usize> {
        self.processes.keys().copied().collect()
    }

    fn order(&mut self, number: usize, line: &str) {
        let process = self.processes.get_mut(&number).expect("it lives");
        writeln!(process.orders, "{line}").expect("it listens");
    }

    /// Takes lines of a kind until the one that ends them.
    fn collect(&mut self, number: usize, end: &str, kind: &str, mut take: impl FnMut(usize, u64)) {
        loop {
            let line = self.next_line(number);
            if line == end {
                return;
            }
            if let Some(rest) = line.strip_prefix(kind) {
                let (peer, count) = pair(rest);
                take(peer, count);
            }
        }
    }

    /// What follows `beginning` in the next such line of a process.
    fn wait_for(&mut self, number: usize, beginning: &str) -> String {
        loop {
            let line = self.next_line(number);
            if let Some(rest) = line.strip_prefix(beginning) {
                return rest.to_owned();
            }
        }
    }

    /// The next line of a process; others' lines wait for their turn.
    fn next_line(&mut self, number: usize) -> String {
        let deadline = Instant::now() + TIMEOUT;
        loop {
            let waiting = self.waiting.get_mut(&number);
            if let Some(line) = waiting.and_then(VecDeque::pop_front) {
                return line;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            match self.said.recv_timeout(left) {
                Ok((from, line)) => {
                    self.check(from, &line);
                    self.waiting.entry(from).or_default().push_back(line);
                }
                Err(_) => panic!("process {number} says nothing"),
            }
        }
    }

    /// A connection may be lost only to a process that is dead.
    fn check(&self, from: usize, line: &str) {
        if let Some(rest) = line.strip_prefix("lost ") {
            let peer: usize = rest
                .split(' ')
                .next()
                .and_then(|word| word.parse().ok())
                .expect("one");
            assert!(
                self.dead.contains(&peer),
                "{from} lost {rest}, which is alive"
            );
        }
    }
}

fn pair(text: &str) -> (usize, u64) {
    let mut words = text.split_whitespace();
    let mut next = || words.next().expect("two numbers");
    let peer = next().parse().expect("a number");
    (peer, next().parse().expect("a number"))
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
