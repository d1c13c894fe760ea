//! What an open device costs: the time to open it, and processor time while nothing happens.

use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

use rocinante::Context;

use crate::peer::{Peer, Way};
use crate::spread::{Goal, Spread};

const ADDRESS: &str = "127.61.0.8";
const OPENINGS: usize = 15;

/// Threads that polled until now go to sleep.
const SETTLING: Duration = Duration::from_secs(1);
const IDLE: Duration = Duration::from_secs(4);

pub(crate) fn run_opening() {
    let first = Spread::of((0..OPENINGS).map(|_| open_in_a_new_process()).collect());
    let again = Spread::of((0..OPENINGS).map(|_| open()).collect());
    println!("opening a device: ms, median (min-max)");
    for (name, figure) in [("in a new process", first), ("again", again)] {
        let goal = Goal::AtMost(5.0).for_figure(figure.median);
        println!("{name:>18}  {figure}  {goal}");
    }
    println!();
}

/// The other process of [`run_opening`].
pub(crate) fn print_opening() {
    println!("{}", open());
}

fn open_in_a_new_process() -> f64 {
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    let output = command
        .arg("open")
        .output()
        .expect("a copy of this program");
    let text = String::from_utf8(output.stdout).expect("text");
    text.trim().parse().expect("a number")
}

fn open() -> f64 {
    let start = Instant::now();
    let context = Context::open(ADDRESS).expect("a loopback address");
    let took = start.elapsed();
    drop(context);
    took.as_secs_f64() * 1e3
}

/// Two processes with a connection that was just used, and sleeps.
pub(crate) fn run_idle(way: Way) {
    let mut peer = Peer::start(way);
    peer.end.post_receive(64);
    peer.be("echo-sleep 1 64");
    peer.end.send(64);
    peer.end.sleep_for_receive();
    sleep(SETTLING);
    let processes = [std::process::id(), peer.process()];
    let before = processes.map(processor_time);
    sleep(IDLE);
    let used = processes.map(processor_time);
    let used = used.iter().sum::<f64>() - before.iter().sum::<f64>();
    // Half a millisecond is 0.05 %: `top` prints 0.0.
    let each = used / 2.0 / IDLE.as_secs_f64();
    println!(
        "idle process {way}: {each:.3} ms of processor time in a second  {}\n",
        Goal::AtMost(0.5).for_figure(each)
    );
}

/// What all threads of a process have used, in milliseconds.
pub(crate) fn processor_time(process: u32) -> f64 {
    let tasks = std::fs::read_dir(format!("/proc/{process}/task")).expect("Linux has it");
    let of_task = |task: std::io::Result<std::fs::DirEntry>| {
        let path = task.expect("Linux has it").path().join("schedstat");
        let text = std::fs::read_to_string(path).unwrap_or_default();
        let word = text.split_whitespace().next();
        word.and_then(|word| word.parse::<f64>().ok())
            .unwrap_or(0.0)
    };
    tasks.map(of_task).sum::<f64>() / 1e6
}
