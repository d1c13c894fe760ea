//! What a forked child does to the sockets it inherits.

use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

use net::share::Member;

use crate::child::Process;
use crate::processes::{all_get_their_own, settle};
use crate::traffic::{Peer, address};

/// A child that keeps the sockets and does nothing.
pub(crate) fn fork_and_keep(member: &Member) -> i32 {
    fork(|| assert!(member.is_inherited()))
}

/// A child that knows what to do.
pub(crate) fn fork_and_disown(member: &Member) -> i32 {
    fork(|| member.disown_after_fork())
}

fn fork(in_child: impl FnOnce()) -> i32 {
    // SAFETY: the child calls nothing that allocates or takes a lock, and never returns.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        in_child();
        sleep(Duration::from_secs(20));
        // SAFETY: takes no pointers and does not return.
        unsafe { libc::_exit(0) };
    }
    assert!(pid > 0);
    pid
}

/// Kills one process, whose number we got from our own child.
fn kill(pid: &str) {
    assert!(pid.parse::<u32>().is_ok_and(|pid| pid > 1), "{pid}");
    assert!(
        Command::new("kill")
            .args(["-9", pid])
            .status()
            .unwrap()
            .success()
    );
}

#[test]
fn a_forked_child_that_keeps_the_sockets_does_not_harm_the_others() {
    let address = address(20);
    let peer = Peer::new(address);
    let mut members: Vec<_> = (0..4).map(|_| Process::join(address)).collect();
    settle(&peer, &mut members);
    let grandchild = members[0].ask("fork");
    members[0].kill();
    members.remove(0);
    let begin = Instant::now();
    let repaired = settle(&peer, &mut members);
    println!("with a socket of nobody in the group: repaired after {repaired:?}");
    // The dead are noticed, and the last member does not find its place in the first round.
    sleep(Duration::from_millis(600));
    all_get_their_own(&peer, &mut members);
    let rounds: u64 = members.iter_mut().map(|it| it.report().rounds).sum();
    println!("{rounds} rounds");
    // Connection management must not reach the socket of nobody.
    let before: u64 = members.iter_mut().map(|it| it.report().general).sum();
    for _ in 0..20 {
        // Another port each time: the kernel would choose another socket.
        Peer::new(address).send(&[1]);
    }
    sleep(Duration::from_millis(50));
    let after: u64 = members.iter_mut().map(|it| it.report().general).sum();
    assert_eq!(after - before, 20);
    // Newcomers live with it as well.
    members.push(Process::join(address));
    let repaired = settle(&peer, &mut members);
    println!("and after another one joined: {repaired:?}");
    kill(&grandchild);
    println!(
        "and after the socket of nobody is gone: {:?}",
        settle(&peer, &mut members)
    );
    assert!(begin.elapsed() < Duration::from_secs(10));
}

#[test]
fn a_forked_child_that_disowns_the_sockets_leaves_no_trace() {
    let address = address(21);
    let peer = Peer::new(address);
    let mut members: Vec<_> = (0..3).map(|_| Process::join(address)).collect();
    let grandchild = members[2].ask("fork-disown");
    settle(&peer, &mut members);
    // The parent still works, and its death leaves no socket behind.
    members[2].kill();
    members.pop();
    settle(&peer, &mut members);
    all_get_their_own(&peer, &mut members);
    drop(members);
    let mut alone = [Process::join(address)];
    settle(&peer, &mut alone);
    kill(&grandchild);
}
