//! Round trips beside plain UDP, and at descriptors beside TCP.

use std::cell::RefCell;
use std::io::Write;
use std::process::{Child, Command};
use std::time::Instant;

use rocinante::Request;

use crate::peer::{End, Peer, Way, await_tcp, receive_udp};
use crate::spread::{Goal, Spread, in_turn};

const TRIPS: usize = 5_000;
const ROUNDS: usize = 9;

/// Beside busy threads each may take milliseconds.
const BUSY_TRIPS: usize = 200;

pub(crate) fn run(peer: &mut Peer, way: Way) {
    println!("round trip of 64 bytes {way}, two processes: µs, median (min-max)");
    println!(
        "{:>18}  {:>25}  {:>25}  ratio  goal",
        "", "RDMA SEND", "UDP"
    );
    let peer = RefCell::new(peer);
    for (name, echo, udp) in [
        ("both spin", "echo-spin", "udp-spin"),
        ("both sleep", "echo-sleep", "udp-sleep"),
    ] {
        let spin = name == "both spin";
        let wait: Wait = if spin {
            End::spin_for_receive
        } else {
            End::sleep_for_receive
        };
        let ours = || rdma(&mut peer.borrow_mut(), echo, TRIPS, 64, wait);
        let theirs = || plain(&mut peer.borrow_mut(), udp, spin);
        let (ours, theirs) = in_turn(ROUNDS, ours, theirs);
        let ratio = ours.median / theirs.median;
        let goal = match way {
            _ if !spin => String::new(),
            Way::Sockets => Goal::AtMost(1.6).for_figure(ratio),
            Way::Shortcut => format!("µs {}", Goal::AtMost(2.0).for_figure(ours.median)),
        };
        println!("{name:>18}  {ours}  {theirs}  {ratio:5.2}  {goal}");
    }
    compare_with_tcp(
        &peer,
        "both at descriptor",
        64,
        "echo-descriptor",
        End::await_descriptor,
    );
    println!();
}

/// One event for each wake-up, as most C programs have it. Some reply at once, and some empty their queue before. The peer is a new
/// one: packets wake none of its programs.
pub(crate) fn run_events(peer: &mut Peer, way: Way) {
    println!("round trip {way}, one event for each wake-up: µs, median (min-max)");
    println!("{:>18}  {:>25}  {:>25}  ratio", "", "RDMA SEND", "TCP");
    let peer = RefCell::new(peer);
    for (name, size) in [("64 bytes", 64), ("64 KiB", 64 << 10)] {
        compare_with_tcp(&peer, name, size, "echo-event", End::await_event);
    }
    let wait = End::await_event_and_drain;
    compare_with_tcp(&peer, "64 bytes, drained", 64, "echo-drain", wait);
    println!();
}

/// As a program that computes on all processors has it: two busy processes for each.
pub(crate) fn run_busy(peer: &mut Peer, way: Way) {
    let _busy = Busy::start();
    println!(
        "round trip of 64 bytes {way}, beside two busy processes per processor: µs, median (min-max)"
    );
    println!("{:>18}  {:>25}  {:>25}  ratio", "", "RDMA", "TCP");
    let peer = RefCell::new(peer);
    let tcp = || tcp(&mut peer.borrow_mut(), BUSY_TRIPS, 64);
    let print = |name: &str, (ours, theirs): (Spread, Spread)| {
        let ratio = ours.median / theirs.median;
        println!("{name:>18}  {ours}  {theirs}  {ratio:5.2}");
    };
    let waits: [(&str, Wait); 2] = [
        ("READ, waiting", End::wait_for_success),
        ("READ, polling", End::poll_for_success),
    ];
    for (name, wait) in waits {
        let ours = || read(&mut peer.borrow_mut(), wait);
        print(name, in_turn(ROUNDS, ours, tcp));
    }
    let waits: [(&str, &str, Wait); 3] = [
        ("SEND, both sleep", "echo-sleep", End::sleep_for_receive),
        ("SEND, both poll", "echo-spin", End::spin_for_receive),
        ("SEND, one event", "echo-event", End::await_event),
    ];
    for (name, role, wait) in waits {
        let ours = || rdma(&mut peer.borrow_mut(), role, BUSY_TRIPS, 64, wait);
        print(name, in_turn(ROUNDS, ours, tcp));
    }
    println!();
}

/// Processes that compute until they are dropped.
struct Busy(Vec<Child>);

impl Busy {
    fn start() -> Self {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let start = |_| {
            let mut shell = Command::new("sh");
            shell.args(["-c", "while :; do :; done"]);
            shell.spawn().expect("a shell")
        };
        Self((0..2 * processors).map(start).collect())
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn read(peer: &mut Peer, wait: Wait) -> f64 {
    peer.be("target");
    let start = Instant::now();
    for _ in 0..BUSY_TRIPS {
        let request = Request::read(peer.remote);
        peer.end
            .post_send(request.data(peer.end.memory.slice(0..64)));
        wait(&peer.end);
    }
    start.elapsed().as_secs_f64() * 1e6 / BUSY_TRIPS as f64
}

fn compare_with_tcp(peer: &RefCell<&mut Peer>, name: &str, size: usize, role: &str, wait: Wait) {
    let ours = || rdma(&mut peer.borrow_mut(), role, TRIPS, size, wait);
    let theirs = || tcp(&mut peer.borrow_mut(), TRIPS, size);
    let (ours, theirs) = in_turn(ROUNDS, ours, theirs);
    let ratio = ours.median / theirs.median;
    println!("{name:>18}  {ours}  {theirs}  {ratio:5.2}  (TCP)");
}

/// How an end waits for the next receive.
type Wait = fn(&End);

fn rdma(peer: &mut Peer, role: &str, trips: usize, size: usize, wait: Wait) -> f64 {
    peer.end.post_receive(size);
    peer.be(&format!("{role} {trips} {size}"));
    let start = Instant::now();
    for trip in 0..trips {
        peer.end.send(size);
        wait(&peer.end);
        if trip + 1 < trips {
            peer.end.post_receive(size);
        }
    }
    start.elapsed().as_secs_f64() * 1e6 / trips as f64
}

fn tcp(peer: &mut Peer, trips: usize, size: usize) -> f64 {
    peer.be(&format!("tcp-descriptor {trips} {size}"));
    let mut buffer = vec![1; size];
    let start = Instant::now();
    for _ in 0..trips {
        peer.tcp.write_all(&buffer).expect("it listens");
        await_tcp(&mut peer.tcp, &mut buffer);
    }
    start.elapsed().as_secs_f64() * 1e6 / trips as f64
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
