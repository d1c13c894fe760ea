//! Members that come, stay, leave and die.

use std::fs;
use std::os::fd::AsFd;
use std::process::Command;
use std::slice;
use std::sync::Arc;
use std::thread::{sleep, yield_now};
use std::time::{Duration, Instant};

use net::poll::{Interest, wait};
use net::sharing::{ExitWatch, Member};

use crate::child::{Process, Report, TIMEOUT};
use crate::one_process::taken;
use crate::traffic::{Peer, Site};

/// Sends one packet to each member, and says whether each got it directly.
fn each_gets_one_directly(peer: &Peer, members: &mut [Process]) -> bool {
    let before: Vec<Report> = members.iter_mut().map(Process::report).collect();
    for member in members.iter() {
        peer.send(&[member.block.qpn_range().start + 5]);
    }
    let after: Vec<Report> = members.iter_mut().map(Process::report).collect();
    let pairs = before.iter().zip(&after);
    pairs.clone().all(|(before, after)| {
        after.own == before.own + 1
            && after.forwarded == before.forwarded
            && after.strays == before.strays
    })
}

/// Goes on until every packet is steered right, several times in a row. How long it took until the
/// first of these.
pub(crate) fn settle(peer: &Peer, members: &mut [Process]) -> Duration {
    settle_counting(peer, members).0
}

/// As [`settle`], and how many packets each member was sent meanwhile.
fn settle_counting(peer: &Peer, members: &mut [Process]) -> (Duration, u64) {
    let begin = Instant::now();
    let mut right_since = None;
    let mut in_a_row = 0;
    let mut sent = 0;
    while in_a_row < 5 {
        sent += 1;
        if each_gets_one_directly(peer, members) {
            right_since.get_or_insert(begin.elapsed());
            in_a_row += 1;
        } else {
            right_since = None;
            in_a_row = 0;
        }
        assert!(
            begin.elapsed() < TIMEOUT,
            "never settles: {:#?}",
            members
                .iter_mut()
                .map(|it| (it.block, it.report()))
                .collect::<Vec<_>>()
        );
    }
    (right_since.unwrap(), sent)
}

/// Sends many packets to each member in batches: all arrive, and none at another member.
pub(crate) fn all_get_their_own(peer: &Peer, members: &mut [Process]) {
    let before: Vec<Report> = members.iter_mut().map(Process::report).collect();
    for round in 0..20 {
        for member in members.iter() {
            let first = member.block.qpn_range().start + round;
            peer.send(&[first, first + 1, first + 2]);
        }
    }
    let after = until(members, |reports| {
        let mut pairs = before.iter().zip(reports);
        pairs.all(|(before, after)| after.own >= before.own + 60)
    });
    for (member, (before, after)) in members.iter().zip(before.iter().zip(&after)) {
        assert_eq!(after.own, before.own + 60, "block {}", member.block);
        assert_eq!(after.strays, before.strays);
        assert_eq!(after.forwarded, before.forwarded);
    }
}

/// Asks all members until the answers are as wanted, but not for ever: the last answers.
pub(crate) fn until(members: &mut [Process], wanted: impl Fn(&[Report]) -> bool) -> Vec<Report> {
    let begin = Instant::now();
    loop {
        let reports: Vec<Report> = members.iter_mut().map(Process::report).collect();
        if wanted(&reports) || begin.elapsed() > TIMEOUT {
            return reports;
        }
        sleep(Duration::from_millis(5));
    }
}

pub(crate) fn total(reports: &[Report], what: impl Fn(&Report) -> u64) -> u64 {
    reports.iter().map(what).sum()
}

#[test]
fn three_of_eight_are_killed_and_three_new_ones_join() {
    let site = Site::new(1);
    let address = site.address;
    let peer = Peer::new(address);
    let begin = Instant::now();
    let mut members: Vec<_> = (0..8).map(|_| Process::join(address)).collect();
    println!("eight processes started in {:?}", begin.elapsed());
    println!("settled after {:?}", settle(&peer, &mut members));
    all_get_their_own(&peer, &mut members);

    let mut dead = Vec::new();
    // Chosen by the clock: the order must not matter.
    let mut seed = begin.elapsed().as_nanos() as usize;
    for _ in 0..3 {
        let mut victim = members.remove(seed % members.len());
        seed /= 8;
        victim.kill();
        dead.push(victim.block);
    }
    println!("killed {dead:?}");
    let before: u64 = members.iter_mut().map(|it| it.report().own).sum();
    let begin = Instant::now();
    let mut sent = 0;
    while begin.elapsed() < Duration::from_millis(600) {
        for member in &members {
            peer.send(&[member.block.qpn_range().end - 1]);
            sent += 1;
        }
        sleep(Duration::from_millis(1));
    }
    let reports = until(&mut members, |reports| {
        total(reports, |it| it.own) == before + sent
    });
    let strays = total(&reports, |it| it.strays);
    let lost = total(&reports, |it| it.lost);
    println!("of {sent} packets after the deaths {strays} were forwarded and {lost} lost");
    assert_eq!(total(&reports, |it| it.own) - before, sent);
    // On a busy machine the deaths may be repaired later.
    println!("repaired after {:?}", settle(&peer, &mut members));
    all_get_their_own(&peer, &mut members);

    members.extend((0..3).map(|_| Process::join(address)));
    assert!(members.iter().all(|it| !dead.contains(&it.block)));
    println!(
        "three new ones: settled after {:?}",
        settle(&peer, &mut members)
    );
    all_get_their_own(&peer, &mut members);
    for _ in 0..10 {
        Peer::new(address).send(&[1, 1, 1]);
    }
    let general = |reports: &[Report]| total(reports, |it| it.general);
    let reports = until(&mut members, |reports| general(reports) >= 30);
    assert_eq!(
        general(&reports),
        30,
        "queue pair 1 reaches one member each time"
    );
}

#[test]
fn each_death_is_repaired_before_the_next() {
    let site = Site::new(2);
    let address = site.address;
    let peer = Peer::new(address);
    let mut members: Vec<_> = (0..8).map(|_| Process::join(address)).collect();
    settle(&peer, &mut members);
    for _ in 0..4 {
        members[0].kill();
        members.remove(0);
        let traffic = settle(&peer, &mut members);
        println!(
            "killed one of {}: steered right after {traffic:?}",
            members.len() + 1
        );
    }
}

#[test]
fn a_leaving_member_does_not_disturb_the_others() {
    let site = Site::new(3);
    let address = site.address;
    let peer = Peer::new(address);
    let mut members: Vec<_> = (0..5).map(|_| Process::join(address)).collect();
    settle(&peer, &mut members);
    while members.len() > 1 {
        let mut first = members.remove(0);
        assert_eq!(first.ask("quit"), "left");
        println!(
            "left: steered right after {:?}",
            settle(&peer, &mut members)
        );
    }
    all_get_their_own(&peer, &mut members);
}

#[test]
fn a_stopped_process_delays_only_itself() {
    let site = Site::new(4);
    let address = site.address;
    let peer = Peer::new(address);
    let mut members: Vec<_> = (0..5).map(|_| Process::join(address)).collect();
    let (_, sent_before) = settle_counting(&peer, &mut members);
    let mut stopped = members.remove(1);
    stop_between_changes(stopped.pid());
    members[0].kill();
    members.remove(0);
    println!(
        "with one stopped: repaired after {:?}",
        settle(&peer, &mut members)
    );
    let sent = sent_before + peer_sends_while_stopped(&peer, &stopped);
    signal("-CONT", stopped.pid());
    let reports = until(slice::from_mut(&mut stopped), |reports| {
        total(reports, |it| it.own) >= sent
    });
    assert_eq!(total(&reports, |it| it.own), sent);
    members.push(stopped);
    println!("after it goes on: {:?}", settle(&peer, &mut members));
}

/// The others do not wait for their next check.
#[test]
fn the_end_of_a_process_is_noticed_at_once() {
    let site = Site::new(6);
    let address = site.address;
    let peer = Peer::new(address);
    let mut first = Process::join(address);
    let watch = Arc::new(ExitWatch::new().unwrap());
    let mut members = [(); 2].map(|()| Member::join(address).unwrap());
    for member in &mut members {
        _ = taken(member);
        member.watch_exits(&watch);
    }
    let has_ended = |timeout| {
        let interest = Interest::readable(watch.as_fd());
        !wait(&[interest], Some(timeout)).unwrap().is_empty()
    };
    assert!(!has_ended(Duration::ZERO));
    first.kill();
    assert!(has_ended(TIMEOUT));
    members.iter_mut().for_each(Member::handle_exits);
    assert!(!has_ended(Duration::ZERO), "it is reported once");
    let numbers = members.each_ref().map(|it| it.qpn_range().start);
    // Of packets that are sent together, only the first is steered.
    numbers
        .iter()
        .for_each(|number| peer.send(slice::from_ref(number)));
    let mut got = [0; 2];
    let begin = Instant::now();
    while got != [1; 2] {
        for (got, member) in got.iter_mut().zip(&mut members) {
            *got += taken(member).len();
        }
        assert!(begin.elapsed() < TIMEOUT, "{got:?}");
    }
}

/// Nothing is lost: it waits in the socket or in the mailbox. How many packets it is sent.
fn peer_sends_while_stopped(peer: &Peer, stopped: &Process) -> u64 {
    const PACKETS: u64 = 5;
    for _ in 0..PACKETS {
        peer.send(&[stopped.block.qpn_range().start]);
    }
    PACKETS
}

/// Stops a process, but not while it changes the registry: the others would wait for its lock.
fn stop_between_changes(pid: u32) {
    loop {
        signal("-STOP", pid);
        while !is_stopped(pid) {
            yield_now();
        }
        let locks = fs::read_to_string("/proc/locks").unwrap();
        let owner = pid.to_string();
        if !locks
            .lines()
            .any(|lock| lock.split_whitespace().any(|word| word == owner))
        {
            return;
        }
        signal("-CONT", pid);
    }
}

/// Whether all threads of a process are stopped.
fn is_stopped(pid: u32) -> bool {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    threads.flatten().all(|thread| {
        let stat = fs::read_to_string(thread.path().join("stat")).unwrap();
        // The state follows the name, which is in brackets and may contain anything.
        stat.rsplit(") ")
            .next()
            .is_some_and(|rest| rest.starts_with('T'))
    })
}

fn signal(name: &str, pid: u32) {
    let status = Command::new("kill").args([name, &pid.to_string()]).status();
    assert!(status.unwrap().success());
}

#[test]
fn another_user_gets_an_error_with_the_reason() {
    let site = Site::new(5);
    let address = site.address;
    let _first = Process::join(address);
    let (mut other, said) = Process::start(address, None);
    assert!(said.starts_with("joined"), "{said}");
    other.kill();
    if !is_root() {
        println!("skipped: only root can start a process of another user");
        return;
    }
    let (_other, said) = Process::start(address, Some(65_534));
    println!("{said}");
    let taken = format!("port 4791 of {address} is taken");
    assert!(said.contains(&taken), "{said}");
}

fn is_root() -> bool {
    let id = Command::new("id").arg("-u").output().unwrap();
    id.stdout.trim_ascii() == b"0"
}
