//! Far more members than a machine has processors.

use std::collections::HashSet;
use std::env;
use std::fs::File;
use std::io::{BufRead, BufReader, Write, stdin};
use std::os::fd::AsFd;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use net::poll::{Interest, wait};
use net::sharing::{JoinError, Member, NumberBlock};
use net::socket::Inbox;

use crate::child::TIMEOUT;
use crate::one_process::taken;
use crate::traffic::{Peer, Site};

const ORDER: &str = "ROCI_TEST_MANY_MEMBERS_OF";

/// Joins this number of times, and prints how long it took.
fn join(site: &Site, count: usize) -> Vec<Member> {
    let begin = Instant::now();
    let members: Vec<_> = (0..count)
        .map(|_| Member::join(site.address).unwrap())
        .collect();
    println!("{count} joins took {:?}", begin.elapsed());
    members
}

/// Sends one packet to each member: each gets it from the kernel.
fn each_gets_its_own(site: &Site, members: &mut [Member]) {
    let peer = Peer::new(site.address);
    let forwarded = |members: &[Member]| -> u64 {
        let counters = members.iter().map(|it| it.counters().forwarded_to_us);
        counters.sum()
    };
    let before = forwarded(members);
    for member in members.iter() {
        peer.send(&[member.qpn_range().start, member.qpn_range().end - 1]);
    }
    for member in members.iter_mut() {
        assert_eq!(taken(member).len(), 2, "{}", member.block());
    }
    assert_eq!(forwarded(members), before);
}

#[test]
fn two_hundred_contexts_share_an_address() {
    let site = Site::new(62);
    let mut members = join(&site, 200);
    each_gets_its_own(&site, &mut members);
    let blocks: HashSet<_> = members.iter().map(Member::block).collect();
    assert_eq!(blocks.len(), 200);
    // A member that leaves does not disturb the others, whatever its place.
    let begin = Instant::now();
    let mut rest: Vec<_> = members.into_iter().skip(1).step_by(2).collect();
    println!("a hundred left in {:?}", begin.elapsed());
    rest.iter_mut().for_each(|it| _ = taken(it));
    each_gets_its_own(&site, &mut rest);
    let rounds = rest.iter().map(|it| it.counters().rounds).sum::<u64>();
    assert_eq!(rounds, 0, "no member had to probe places");
    rest.extend(join(&site, 50));
    each_gets_its_own(&site, &mut rest);
}

/// Runs one of the functions below in a process that may open this many files.
fn start(function: &str, order: &str, files: u32) -> Child {
    let program = env::current_exe().unwrap();
    let arguments = "--exact --ignored --nocapture --quiet";
    let script = format!("ulimit -n {files} && exec \"$0\" many_members::{function} {arguments}");
    let mut shell = Command::new("sh");
    let shell = shell.args(["-c", &script]).arg(program);
    shell
        .env(ORDER, order)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

/// The next line that a process says to us.
fn heard(lines: &mut impl Iterator<Item = String>) -> String {
    let line = lines.find_map(|line| line.split_once("> ").map(|(_, said)| said.to_owned()));
    line.expect("a line")
}

fn lines(child: &mut Child) -> impl Iterator<Item = String> + use<> {
    let output = BufReader::new(child.stdout.take().unwrap());
    output.lines().map_while(Result::ok)
}

#[test]
fn a_thousand_contexts_of_one_process_share_an_address() {
    let mut child = start("thousand", "", 4096);
    let mut lines = lines(&mut child);
    let said = heard(&mut lines);
    println!("{said}");
    lines.for_each(drop);
    assert!(child.wait().unwrap().success());
}

/// Not a test: what a process of the test above runs.
#[test]
#[ignore = "started by other tests as a process of its own"]
fn thousand() {
    if env::var(ORDER).is_err() {
        return;
    }
    let site = Site::new(68);
    let begin = Instant::now();
    let mut members: Vec<_> = (0..1024)
        .map(|_| Member::join(site.address).unwrap())
        .collect();
    let joined = begin.elapsed();
    each_gets_its_own(&site, &mut members);
    let last = Instant::now();
    members.push(Member::join(site.address).unwrap());
    let last = last.elapsed();
    let begin = Instant::now();
    members.drain(..100);
    let left = begin.elapsed() / 100;
    members.iter_mut().for_each(|it| _ = taken(it));
    each_gets_its_own(&site, &mut members);
    println!("> 1024 joined in {joined:?}, another in {last:?}, then each left in {left:?}");
    // Not one by one.
    members.into_iter().for_each(std::mem::forget);
}

/// Not a test: a process with some members. It answers each line with how many packets it got, and how many of them from other members,
/// until its input ends.
#[test]
#[ignore = "started by other tests as a process of its own"]
fn many_members() {
    let Ok(order) = env::var(ORDER) else {
        return;
    };
    let (address, count) = order.split_once(' ').unwrap();
    let address = address.parse().unwrap();
    let mut members: Vec<_> = (0..count.parse().unwrap())
        .map(|_| Member::join(address).unwrap())
        .collect();
    let blocks: Vec<_> = members.iter().map(|it| it.block().to_string()).collect();
    println!("> {}", blocks.join(" "));
    let (standard_input, mut input) = (stdin(), stdin().lock());
    let mut inbox = Inbox::new(1);
    let mut got = 0;
    loop {
        let now = Instant::now();
        let due = members.iter_mut().map(|it| it.maintain(now)).min().unwrap();
        let sockets = members.iter().flat_map(Member::fds).map(Interest::readable);
        let interests: Vec<_> = [Interest::readable(standard_input.as_fd())]
            .into_iter()
            .chain(sockets)
            .collect();
        let ready = wait(&interests, Some(due.saturating_duration_since(now))).unwrap();
        // What was sent before the question is in the sockets.
        let asked = ready.contains(0);
        let woken: Vec<_> = (0..members.len())
            .map(|at| asked || ready.contains(1 + 2 * at) || ready.contains(2 + 2 * at))
            .collect();
        let now = Instant::now();
        for (member, _) in members.iter_mut().zip(woken).filter(|it| it.1) {
            // A mailbox is looked into every sixteenth time.
            for _ in 0..16 {
                got += member.receive(now, &mut inbox, |_| {}).unwrap();
            }
        }
        if asked {
            if input.read_line(&mut String::new()).unwrap() == 0 {
                std::process::exit(0);
            }
            let forwarded = members.iter().map(|it| it.counters().forwarded_to_us);
            println!("> {got} {}", forwarded.sum::<u64>());
        }
    }
}

struct Members {
    child: Child,
    lines: Box<dyn Iterator<Item = String>>,
    blocks: Vec<NumberBlock>,
}

impl Members {
    fn start(site: &Site, count: usize) -> Self {
        let mut child = start("many_members", &format!("{} {count}", site.address), 1024);
        let lines = Box::new(lines(&mut child));
        Self {
            child,
            lines,
            blocks: Vec::new(),
        }
    }

    fn wait(&mut self) {
        let said = heard(&mut self.lines);
        self.blocks = said.split(' ').map(|it| it.parse().unwrap()).collect();
    }

    /// How many packets it got, and how many of them from other members.
    fn report(&mut self) -> (u64, u64) {
        writeln!(self.child.stdin.as_ref().unwrap()).unwrap();
        let said = heard(&mut self.lines);
        let (got, forwarded) = said.split_once(' ').unwrap();
        (got.parse().unwrap(), forwarded.parse().unwrap())
    }
}

impl Drop for Members {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Some processes with 16 members each: half of them die at once.
fn groups(site: &Site, processes: usize) {
    let begin = Instant::now();
    let mut groups: Vec<_> = (0..processes).map(|_| Members::start(site, 16)).collect();
    groups.iter_mut().for_each(Members::wait);
    println!(
        "{processes} processes joined 16 times each in {:?}",
        begin.elapsed()
    );
    let half = groups.split_off(processes / 2);
    for mut victim in half {
        victim.child.kill().unwrap();
        victim.child.wait().unwrap();
    }
    let begin = Instant::now();
    let newcomer = Member::join(site.address).unwrap();
    println!(
        "after half of them died another joined in {:?}",
        begin.elapsed()
    );
    let mut blocks = groups.iter().flat_map(|it| &it.blocks);
    assert!(blocks.all(|block| *block != newcomer.block()));
    let peer = Peer::new(site.address);
    let mut right_in_a_row = 0;
    while right_in_a_row < 5 {
        assert!(begin.elapsed() < TIMEOUT, "they don't find their places");
        right_in_a_row = if each_group_gets_its_own(&peer, &mut groups) {
            right_in_a_row + 1
        } else {
            0
        };
    }
    println!("their places were found after {:?}", begin.elapsed());
}

/// Sends one packet to each member, and says whether each group got its own from the kernel.
fn each_group_gets_its_own(peer: &Peer, groups: &mut [Members]) -> bool {
    let before: Vec<_> = groups.iter_mut().map(Members::report).collect();
    for block in groups.iter().flat_map(|it| &it.blocks) {
        peer.send(&[block.first()]);
    }
    let mut groups = groups.iter_mut().zip(before);
    groups.all(|(group, (got, forwarded))| {
        let expected = (got + group.blocks.len() as u64, forwarded);
        group.report() == expected
    })
}

#[test]
fn places_are_found_again_after_half_of_many_died() {
    groups(&Site::new(69), 8);
}

#[test]
#[ignore = "64 processes, 1,024 members: cargo test -p rocinante-net --test sharing -- --ignored half_of_a_thousand"]
fn places_are_found_again_after_half_of_a_thousand_died() {
    groups(&Site::new(66), 64);
}

#[test]
fn a_limit_of_open_files_is_not_reported_as_a_taken_port() {
    let mut child = start("files", "", 64);
    let mut lines = lines(&mut child);
    let said = heard(&mut lines);
    println!("{said}");
    assert!(said.contains("no more than 64 files"), "{said}");
    let said = heard(&mut lines);
    println!("{said}");
    assert!(said.contains("no more than 64 files"), "{said}");
    assert!(said.contains("raise the limit with `ulimit -n`"), "{said}");
    lines.for_each(drop);
    assert!(child.wait().unwrap().success());
}

/// Not a test: joins until there are no more files.
#[test]
#[ignore = "started by other tests as a process of its own"]
fn files() {
    if env::var(ORDER).is_err() {
        return;
    }
    let site = Site::new(67);
    let mut members = Vec::new();
    let rejected = loop {
        match Member::join(site.address) {
            Ok(member) => members.push(member),
            Err(error) => break error,
        }
    };
    println!("> {rejected}");
    assert!(matches!(rejected, JoinError::TooManyFiles { limit: 64 }));
    // Three descriptors each, and those that every process has.
    assert!(members.len() >= 15, "{}", members.len());
    let null = || File::open("/dev/null").ok();
    let rest: Vec<_> = std::iter::from_fn(null).collect();
    let unclaimed = members[0].claimant().claim(7).unwrap_err();
    println!("> {unclaimed}");
    let limit = std::error::Error::source(&unclaimed).unwrap().to_string();
    assert!(limit.contains("Too many open files"), "{limit}");
    drop(rest);
}
