//! A member in a process of its own, and how a test talks with it: a line for a line.

use std::env;
use std::io::{BufRead, BufReader, Write, stdin};
use std::net::IpAddr;
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, TryRecvError};
use std::thread;
use std::time::{Duration, Instant};

use net::poll::{Interest, Waker, wait};
use net::sharing::{ExitWatch, Member, NumberBlock};
use net::socket::Inbox;
use wire::{IcrcChecker, Packet, Qpn};

use crate::forks;

const ADDRESS: &str = "ROCI_TEST_MEMBER_OF";

/// For what happens at once on a quiet machine.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(30);

/// What a member has received.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Report {
    /// For its own queue pairs, steered or forwarded.
    pub(crate) own: u64,
    /// For queue pair 1.
    pub(crate) general: u64,
    /// Forwarded by others.
    pub(crate) forwarded: u64,
    /// Forwarded to others.
    pub(crate) strays: u64,
    /// Rounds of probes it started.
    pub(crate) rounds: u64,
    /// For others, but their mailbox was full or gone.
    pub(crate) lost: u64,
}

/// A child process, and the member in it. It is killed in the end.
pub(crate) struct Process {
    child: Child,
    input: ChildStdin,
    output: Receiver<String>,
    pub(crate) block: NumberBlock,
}

impl Process {
    /// Starts a process that joins.
    pub(crate) fn join(address: IpAddr) -> Self {
        let (mut process, joined) = Self::start(address, None);
        let block = joined
            .strip_prefix("joined ")
            .unwrap_or_else(|| panic!("{joined}"));
        process.block = block.parse().unwrap();
        process
    }

    /// Starts a process, perhaps of another user, that tries to join; and what it says.
    pub(crate) fn start(address: IpAddr, user: Option<u32>) -> (Self, String) {
        let mut command = Command::new(env::current_exe().unwrap());
        command.args([
            "child::member",
            "--exact",
            "--ignored",
            "--nocapture",
            "--quiet",
        ]);
        command.env(ADDRESS, address.to_string());
        if let Some(user) = user {
            command.uid(user);
        }
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let input = child.stdin.take().unwrap();
        let (sender, output) = mpsc::channel();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        thread::spawn(move || {
            // The test harness prints lines of its own: ours have a mark.
            let ours = lines.map_while(Result::ok);
            ours.filter_map(|line| line.split_once("> ").map(|(_, text)| text.to_owned()))
                .try_for_each(|text| sender.send(text))
        });
        let process = Self {
            child,
            input,
            output,
            block: NumberBlock::new(0x800, 11).unwrap(),
        };
        let first = process.answer();
        (process, first)
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn ask(&mut self, question: &str) -> String {
        writeln!(self.input, "{question}").unwrap();
        self.answer()
    }

    pub(crate) fn report(&mut self) -> Report {
        let answer = self.ask("report");
        let mut numbers = answer.split(' ').map(|number| number.parse().unwrap());
        let mut next = || numbers.next().unwrap();
        Report {
            own: next(),
            general: next(),
            forwarded: next(),
            strays: next(),
            rounds: next(),
            lost: next(),
        }
    }

    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    fn answer(&self) -> String {
        self.output
            .recv_timeout(TIMEOUT)
            .expect("the child answers")
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Not a test: what the children run.
#[test]
#[ignore = "started by other tests as a process of its own"]
fn member() {
    let Ok(address) = env::var(ADDRESS) else {
        return;
    };
    match Member::join(address.parse().unwrap()) {
        Ok(member) => {
            say(&format!("joined {}", member.block()));
            serve(member);
        }
        Err(error) => say(&format!("rejected: {error}")),
    }
}

fn say(text: &str) {
    println!("> {text}");
}

/// What a driver's engine thread does.
fn serve(mut member: Member) {
    let waker = Waker::new().unwrap();
    let (sender, questions) = mpsc::channel();
    let mut report = Report::default();
    let mut inbox = Inbox::new(4);
    let mut checker = IcrcChecker::new();
    let exits = Arc::new(ExitWatch::new().unwrap());
    member.watch_exits(&exits);
    thread::scope(|scope| {
        scope.spawn(|| {
            for line in stdin().lines().map_while(Result::ok) {
                let _ = sender.send(line);
                waker.wake();
            }
            // The test is over, or does not want us any more.
            let _ = sender.send("quit".into());
            waker.wake();
        });
        loop {
            let due = member.maintain(Instant::now());
            let [udp, mailbox] = member.fds();
            let descriptors = [udp, mailbox, waker.as_fd(), exits.as_fd()];
            let interests = descriptors.map(Interest::readable);
            let left = due.saturating_duration_since(Instant::now());
            let ready = wait(&interests, Some(left)).unwrap();
            waker.clear();
            if ready.contains(3) {
                member.handle_exits();
            }
            // Before the packets: an answer counts all that came before its question.
            let question = questions.try_recv();
            for _ in 0..16 {
                let taken = member.receive(Instant::now(), &mut inbox, |it| {
                    checker.check(&it.route.flow, it.packet).unwrap();
                    match Packet::parse(it.packet).unwrap().destination {
                        Qpn::GSI => report.general += 1,
                        _ => report.own += 1,
                    }
                });
                taken.unwrap();
            }
            match question {
                Ok(question) if question == "quit" => break,
                Ok(question) => answer(&member, report, &question),
                Err(TryRecvError::Empty) => {}
                Err(TryRecvError::Disconnected) => break,
            }
        }
        drop(member);
        say("left");
        std::process::exit(0);
    });
}

fn answer(member: &Member, report: Report, question: &str) {
    let counters = member.counters();
    let (verb, service) = question.split_once(' ').unwrap_or((question, "0"));
    let service: u64 = service.parse().unwrap();
    match verb {
        "report" => say(&format!(
            "{} {} {} {} {} {}",
            report.own,
            report.general,
            counters.forwarded_to_us,
            counters.strays_forwarded,
            counters.rounds,
            counters.strays_lost
        )),
        "claim" => say(&match member.claimant().claim(service) {
            Ok(()) => "claimed".to_owned(),
            Err(error) => error.to_string(),
        }),
        "release" => {
            member.claimant().release(service).unwrap();
            say("released");
        }
        "keep" => say(&forks::keeper(member).id().to_string()),
        _ => say("what?"),
    }
}
