//! What a forked child does to the others when it keeps the sockets that it inherits.

use std::process::{Child, Command, Stdio};

use net::sharing::Member;

use crate::child::{Process, Report};
use crate::processes::{all_get_their_own, settle, total, until};
use crate::traffic::{Peer, Site};

/// A process that keeps a member's socket and does nothing with it, for longer than a test takes.
pub(crate) fn keeper(member: &Member) -> Child {
    let [socket, _] = member.fds();
    let copy = socket.try_clone_to_owned().unwrap();
    let mut sleeper = Command::new("sleep");
    let sleeper = sleeper.arg("300").stdin(Stdio::from(copy));
    // No process waits for the end of its output.
    sleeper
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

/// Kills one process, whose number we got from our own child.
fn kill(pid: &str) {
    assert!(pid.parse::<u32>().is_ok_and(|pid| pid > 1), "{pid}");
    let status = Command::new("kill").args(["-9", pid]).status();
    assert!(status.unwrap().success());
}

#[test]
fn a_socket_of_no_member_does_not_harm_the_members() {
    let site = Site::new(20);
    let peer = Peer::new(site.address);
    let mut members: Vec<_> = (0..4).map(|_| Process::join(site.address)).collect();
    settle(&peer, &mut members);
    let mut victim = members.remove(0);
    let rounds = |reports: &[Report]| total(reports, |it| it.rounds);
    let before: Vec<_> = members.iter_mut().map(Process::report).collect();
    let grandchild = victim.ask("keep");
    victim.kill();
    let repaired = settle(&peer, &mut members);
    println!("with a socket of no member in the group: repaired after {repaired:?}");
    // The death is noticed, and the last member does not find itself in the place of the dead one, which the socket keeps.
    let looks = |reports: &[Report]| rounds(reports) > rounds(&before);
    assert!(looks(&until(&mut members, looks)));
    settle(&peer, &mut members);
    all_get_their_own(&peer, &mut members);
    // Connection management must not reach the socket of no member.
    let before: u64 = members.iter_mut().map(|it| it.report().general).sum();
    for _ in 0..20 {
        // Another port each time: the kernel would choose another socket.
        Peer::new(site.address).send(&[1]);
    }
    let after = |reports: &[Report]| total(reports, |it| it.general) - before;
    let reports = until(&mut members, |reports| after(reports) >= 20);
    assert_eq!(after(&reports), 20);
    // A new member can join despite the foreign socket.
    members.push(Process::join(site.address));
    let repaired = settle(&peer, &mut members);
    println!("and after another one joined: {repaired:?}");
    kill(&grandchild);
    let repaired = settle(&peer, &mut members);
    println!("and after that socket is closed: {repaired:?}");
}
