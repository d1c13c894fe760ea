//! Three connected processes, and the test that starts them.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::SocketAddr;
use std::ops::Range;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc;
use std::thread;

use rocinante::{
    CompletionQueue, Endpoint, OpenOptions, PreparedQueuePair, QueuePair, QueuePairBuilder,
    RemoteMemory, Request, Status,
};

use super::every_rule;
use crate::Make;
use crate::support::{End, TIMEOUT};

/// A program: what each of its processes does.
pub(super) type Programs = &'static [(&'static str, fn(&mut Stage))];

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Role {
    Target,
    First,
    Second,
}

pub(super) const TARGET: Role = Role::Target;
pub(super) const FIRST: Role = Role::First;
pub(super) const SECOND: Role = Role::Second;

const ROLES: [Role; 3] = [TARGET, FIRST, SECOND];

/// Begins each line that a process says to the others.
const PREFIX: &str = "stage ";

/// Where messages are, outside the memory that the programs race for.
const MESSAGES: usize = 4096;

/// One of the processes.
pub(super) struct Stage {
    pub(super) role: Role,
    pub(super) end: End,
    wrong: bool,
    pub(super) received: CompletionQueue,
    to: BTreeMap<Role, QueuePair>,
    memory: BTreeMap<Role, RemoteMemory>,
    heard: BTreeSet<String>,
    number: u32,
}

/// Runs the part of a program that the environment names.
pub(crate) fn run_role() {
    let variable = |name| std::env::var(name).expect("the test sets it");
    let role = variable("ROLE");
    let role = ROLES.into_iter().find(|it| format!("{it:?}") == role);
    let name = variable("PROGRAM");
    let (_, run) = (super::PROGRAMS.iter().chain(every_rule::PROGRAMS))
        .find(|(known, _)| *known == name)
        .expect("a program of this name");
    let number = variable("NUMBER").parse().expect("a number");
    let mut stage = Stage::new(role.expect("a role"), variable("WRONG") == "1", number);
    run(&mut stage);
    stage.finish();
}

impl Stage {
    fn new(role: Role, wrong: bool, number: u32) -> Self {
        let end = End::at(&address(role, number), &OpenOptions::from_env());
        let received = end.context.create_completion_queue(64).expect("room");
        let mut stage = Self {
            role,
            end,
            wrong,
            received,
            to: BTreeMap::new(),
            memory: BTreeMap::new(),
            heard: BTreeSet::new(),
            number,
        };
        stage.join();
        stage
    }

    /// Connects with the other processes.
    fn join(&mut self) {
        let me = self.role;
        let peers = ROLES.into_iter().filter(|peer| *peer != me);
        let prepared: Vec<_> = peers
            .map(|peer| {
                let prepared = self.builder().create_reliable().expect("room");
                for id in 0..4 {
                    let start = MESSAGES + 64 * (4 * peer as usize + id);
                    let room = self.end.memory.slice(start..start + 64);
                    prepared.post_receive(id as u64, [room]).expect("room");
                }
                (peer, prepared)
            })
            .collect();
        self.tell(&format!("{me:?} has {}", self.end.memory.remote(0)));
        for (peer, prepared) in &prepared {
            self.tell(&format!("{me:?} to {peer:?} is {}", prepared.endpoint()));
        }
        for (peer, prepared) in prepared {
            let memory = self.hear_rest(&format!("{peer:?} has "));
            self.memory.insert(peer, memory.parse().expect("memory"));
            let endpoint = self.hear_rest(&format!("{peer:?} to {me:?} is "));
            let endpoint: Endpoint = endpoint.parse().expect("an endpoint");
            let queue_pair = prepared.connect(endpoint).expect("a peer");
            self.to.insert(peer, queue_pair);
        }
        self.meet("joined");
    }

    /// Makes another connection between the first process and the target. Returns nothing in the second process.
    pub(super) fn connect_again(&mut self, prepared: PreparedQueuePair) -> Option<QueuePair> {
        let (me, peer) = match self.role {
            Role::First => (FIRST, TARGET),
            Role::Target => (TARGET, FIRST),
            Role::Second => return None,
        };
        self.tell(&format!("{me:?} again is {}", prepared.endpoint()));
        let endpoint = self.hear_rest(&format!("{peer:?} again is "));
        let endpoint: Endpoint = endpoint.parse().expect("an endpoint");
        let queue_pair = prepared.connect(endpoint).expect("a peer");
        self.tell(&format!("{me:?} is connected"));
        self.hear(&format!("{peer:?} is connected"));
        Some(queue_pair)
    }

    /// The queue pair to a process.
    pub(super) fn to(&self, peer: Role) -> &QueuePair {
        &self.to[&peer]
    }

    /// The memory of a process, from `start` on.
    pub(super) fn memory_of(&self, peer: Role, start: usize) -> RemoteMemory {
        let mut memory = self.memory[&peer];
        memory.address += start as u64;
        memory
    }

    /// Waits until all processes are here.
    fn meet(&mut self, place: &str) {
        self.tell(&format!("{place} {:?}", self.role));
        for role in ROLES {
            self.hear(&format!("{place} {role:?}"));
        }
    }

    fn finish(mut self) {
        self.meet("finished");
    }

    pub(super) fn right(&self) -> bool {
        !self.wrong
    }

    pub(super) fn builder(&self) -> QueuePairBuilder {
        let builder = (self.end.domain).queue_pair_builder(&self.end.completions);
        builder.receive_completions(&self.received).depth(16, 16)
    }

    /// Where the second process listens.
    pub(super) fn service(&self) -> SocketAddr {
        let address = address(SECOND, self.number);
        format!("{address}:7171").parse().expect("an address")
    }

    /// Says something that all processes hear, by pipes.
    pub(super) fn tell(&self, what: &str) {
        println!("{PREFIX}{what}");
    }

    /// Waits until a process has said this.
    pub(super) fn hear(&mut self, what: &str) {
        while !self.heard.contains(what) {
            self.hear_line();
        }
    }

    /// The rest of a line that begins in this way.
    pub(super) fn hear_rest(&mut self, start: &str) -> String {
        loop {
            let rest = self.heard.iter().find_map(|line| line.strip_prefix(start));
            match rest {
                Some(rest) => return rest.to_owned(),
                None => self.hear_line(),
            }
        }
    }

    fn hear_line(&mut self) {
        let mut line = String::new();
        let length = std::io::stdin().read_line(&mut line).expect("a pipe");
        assert!(length > 0, "another process has failed");
        self.heard.insert(line.trim_end().to_owned());
    }

    /// Posts a request to the target's memory, with the same bytes of the own memory.
    pub(super) fn post(&self, make: Make, range: Range<usize>) {
        let remote = self.memory_of(TARGET, range.start);
        let request = make(remote, self.end.memory.slice(range));
        self.to[&TARGET].post_send(request).expect("room");
    }

    /// Waits for the completion of a request.
    pub(super) fn sent(&self) {
        self.end.success();
    }

    pub(super) fn access(&self, make: Make, range: Range<usize>) {
        self.post(make, range);
        self.sent();
    }

    /// Reads memory of the first process into the same bytes.
    pub(super) fn read_from_first(&self, range: Range<usize>) {
        let request = Request::read(self.memory[&FIRST]);
        let request = request.data(self.end.memory.slice(range));
        self.to[&FIRST].post_send(request).expect("room");
        self.sent();
    }

    /// Sends a message.
    pub(super) fn send(&self, to: Role) {
        self.send_from(to, MESSAGES / 2..MESSAGES / 2 + 8);
    }

    /// Sends these bytes.
    pub(super) fn send_from(&self, to: Role, range: Range<usize>) {
        let request = Request::send().data(self.end.memory.slice(range));
        self.to[&to].post_send(request).expect("room");
        self.sent();
    }

    /// Waits for a message.
    pub(super) fn receive(&self) {
        let completion = self.received.wait_for(TIMEOUT).expect("a message");
        assert_eq!(completion.status, Status::Success, "{completion:?}");
    }
}

/// The address of a process.
fn address(role: Role, number: u32) -> String {
    let [high, low] = [number / 250 + 1, number % 250 + 1];
    format!("127.{}.{high}.{low}", 64 + role as u32)
}

/// The wrong program violates this rule and no other, and the right one none.
pub(super) fn finds(program: &str, rule: &str) {
    let (mut rules, said) = run(program, rule, true);
    if rule == "remote-race" {
        // The target may notice the same race.
        rules.remove("target-race");
    }
    if rule == "region-in-use" {
        // A request that finds its memory gone fails, and its failure is explained.
        rules.remove("explained");
    }
    let expected = BTreeSet::from([rule.to_owned()]);
    assert_eq!(rules, expected, "{program}: {said}");
    let (rules, said) = run(program, rule, false);
    assert!(rules.is_empty(), "{program}, corrected: {said}");
}

/// Runs the three processes. Returns the rules that they violate, and what they said.
fn run(program: &str, rule: &str, wrong: bool) -> (BTreeSet<String>, String) {
    let number = own_number();
    let (say, said) = mpsc::channel();
    let mut inputs: Vec<ChildStdin> = Vec::new();
    let mut readers = Vec::new();
    let mut children: Vec<(Child, thread::JoinHandle<String>)> = Vec::new();
    for role in ROLES {
        let mut child = start(program, wrong, role, number, &options_for(rule, role));
        inputs.push(child.stdin.take().expect("a pipe"));
        let output = BufReader::new(child.stdout.take().expect("a pipe"));
        let say = say.clone();
        readers.push(thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                let line = line.split_once(PREFIX).map(|(_, line)| line.to_owned());
                line.map(|line| say.send(Some(line)));
            }
            // The process has ended.
            let _ = say.send(None);
        }));
        let mut errors = child.stderr.take().expect("a pipe");
        let errors = thread::spawn(move || {
            let mut text = String::new();
            errors.read_to_string(&mut text).expect("a pipe");
            text
        });
        children.push((child, errors));
    }
    drop(say);
    let mut finished = 0;
    for line in said {
        let Some(line) = line else {
            if finished < ROLES.len() {
                // The others wait for a message that never comes.
                inputs.clear();
            }
            continue;
        };
        finished += usize::from(line.starts_with("finished "));
        for input in &mut inputs {
            // A process that has ended hears nothing more.
            let _ = writeln!(input, "{line}");
        }
    }
    readers
        .into_iter()
        .for_each(|it| it.join().expect("no panic"));
    let mut text = String::new();
    let mut succeeded = true;
    for (mut child, errors) in children {
        let status = child.wait().expect("a child");
        succeeded &= status.code().is_some_and(|it| it == 0 || it == 66);
        text.push_str(&errors.join().expect("no panic"));
    }
    assert!(succeeded, "{program}: {text}");
    let rules = text.lines().filter_map(|line| {
        let (rule, rest) = line.strip_prefix("roci: check: ")?.split_once(": ")?;
        (!rest.is_empty()).then(|| rule.to_owned())
    });
    (rules.collect(), text.clone())
}

/// A number for three processes that no others use at the same time: tests run side by side, in one process or in several.
fn own_number() -> u32 {
    static RUNS: AtomicU32 = AtomicU32::new(0);
    let run = RUNS.fetch_add(1, Ordering::Relaxed);
    std::process::id().wrapping_mul(64).wrapping_add(run) % 50_000
}

/// Some rules need an option, or a lost packet.
fn options_for(rule: &str, role: Role) -> Vec<(&'static str, &'static str)> {
    match (rule, role) {
        ("process-race", _) => vec![("ROCI_CHECK_PROCESSES", "1")],
        ("not-portable", _) => vec![("ROCI_CHECK_PROFILE", "rxe")],
        ("target-race", Role::First) => vec![
            ("ROCI_FAULT", "drop:opcode=RC_WRITE_LAST,nth=1"),
            ("ROCI_SHORTCUT", "0"),
        ],
        ("target-race", _) => vec![("ROCI_SHORTCUT", "0")],
        _ => Vec::new(),
    }
}

fn start(program: &str, wrong: bool, role: Role, number: u32, options: &[(&str, &str)]) -> Child {
    Command::new(std::env::current_exe().expect("this test"))
        .args(["role", "--exact", "--ignored", "--nocapture"])
        .env("PROGRAM", program)
        .env("ROLE", format!("{role:?}"))
        .env("NUMBER", number.to_string())
        .env("WRONG", if wrong { "1" } else { "0" })
        .env("ROCI_CHECK", "fail")
        .envs(options.iter().copied())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("a process")
}
