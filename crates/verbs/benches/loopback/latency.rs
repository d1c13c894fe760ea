//! Round trips beside plain UDP, and at descriptors beside TCP.

use std::cell::RefCell;
use std::io::{Read, Write};
use std::time::Instant;

use rocinante::Request;

use crate::peer::{End, Peer, Way, receive_udp, wait_readable};
use crate::spread::in_turn;

const TRIPS: usize = 5_000;
const ROUNDS: usize = 9;

pub(crate) fn run(peer: &mut Peer, way: Way) {
    println!("round trip of 64 bytes {way}, two processes: µs, median (min-max)");
    println!(
        "{:>18}  {:>25}  {:>25}  ratio  goal",
        "", "RDMA SEND", "UDP"
    );
    let peer = RefCell::new(peer);
    for (name, echo, udp, goal) in [
        ("both spin", "echo-spin", "udp-spin", 1.3),
        ("both sleep", "echo-sleep", "udp-sleep", 1.5),
    ] {
        let spin = name == "both spin";
        let wait = match spin {
            true => End::spin_for_receive,
            false => End::sleep_for_receive,
        };
        let ours = || rdma(&mut peer.borrow_mut(), echo, wait);
        let theirs = || plain(&mut peer.borrow_mut(), udp, spin);
        let (ours, theirs) = in_turn(ROUNDS, ours, theirs);
        let ratio = ours.median / theirs.median;
        println!("{name:>18}  {ours}  {theirs}  {ratio:5.2}  {goal:.2}");
    }
    let ours = || {
        rdma(
            &mut peer.borrow_mut(),
            "echo-descriptor",
            End::await_descriptor,
        )
    };
    let theirs = || tcp(&mut peer.borrow_mut());
    let (ours, theirs) = in_turn(ROUNDS, ours, theirs);
    let ratio = ours.median / theirs.median;
    println!(
        "{:>18}  {ours}  {theirs}  {ratio:5.2}  1.50  (TCP)",
        "both at descriptor"
    );
    println!();
}

fn rdma(peer: &mut Peer, role: &str, wait: impl Fn(&End)) -> f64 {
    peer.end.post_receive(64);
    peer.be(&format!("{role} {TRIPS}"));
    let start = Instant::now();
    for trip in 0..TRIPS {
        peer.end.post(Request::send().inline(&[1; 64]).unsignaled());
        wait(&peer.end);
        if trip + 1 < TRIPS {
            peer.end.post_receive(64);
        }
    }
    start.elapsed().as_secs_f64() * 1e6 / TRIPS as f64
}

fn tcp(peer: &mut Peer) -> f64 {
    peer.be(&format!("tcp-descriptor {TRIPS}"));
    let mut buffer = [1; 64];
    let start = Instant::now();
    for _ in 0..TRIPS {
        peer.tcp.write_all(&buffer).expect("it listens");
        wait_readable(&peer.tcp);
        peer.tcp.read_exact(&mut buffer).expect("it sends");
    }
    start.elapsed().as_secs_f64() * 1e6 / TRIPS as f64
}

fn plain(peer: &mut Peer, role: &str, spin: bool) -> f64 {
    peer.be(&format!("{role} {TRIPS}"));
    peer.udp.set_nonblocking(spin).expect("a socket");
    let mut buffer = [1; 64];
    let start = Instant::now();
    for _ in 0..TRIPS {
        peer.udp.send(&buffer).expect("it listens");
        receive_udp(&peer.udp, &mut buffer);
    }
    start.elapsed().as_secs_f64() * 1e6 / TRIPS as f64
}
