//! How many connections per second two processes make, and whether it stays so with many open.
//!
//! This process connects, a copy of itself accepts: connect, accept, disconnect, with a queue pair
//! made on each side. TCP does the same over the same interface in the same run.

mod rdma;
mod server;
mod tcp;

use std::time::Instant;

/// How many connections are open at once.
const OPEN: [usize; 4] = [10, 100, 1000, 5000];

/// How many connections a round makes at least: few at a time are made again and again.
const ENOUGH: usize = 1000;

const ROUNDS: usize = 5;

fn main() {
    if std::env::args().nth(1).as_deref() == Some("serve") {
        return server::run();
    }
    let mut server = server::Server::start();
    let client = rdma::Client::of(server.rdma);
    println!("connections per second, two processes over loopback: median (min-max)");
    println!(
        "  open at once      RDMA                      TCP                       RDMA at 10 = 1"
    );
    let mut first = None;
    for open in OPEN {
        let (mut rdma, mut tcp) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            rdma.push(rate(open, || client.round(open)));
            tcp.push(rate(open, || tcp::round(&mut server, open)));
        }
        let median = spread(&mut rdma).0;
        let base = *first.get_or_insert(median);
        let (rdma, tcp) = (show(&mut rdma), show(&mut tcp));
        println!(
            "  {open:>12}      {rdma:<24}  {tcp:<24}  {:.2}",
            median / base
        );
    }
    println!("  the goal is at least 1000 per second, flat");
}

/// Connections per second.
fn rate(open: usize, mut round: impl FnMut()) -> f64 {
    let rounds = ENOUGH.div_ceil(open);
    let begin = Instant::now();
    for _ in 0..rounds {
        round();
    }
    (rounds * open) as f64 / begin.elapsed().as_secs_f64()
}

/// Median, smallest and largest.
fn spread(rates: &mut [f64]) -> (f64, f64, f64) {
    rates.sort_by(f64::total_cmp);
    (rates[rates.len() / 2], rates[0], rates[rates.len() - 1])
}

fn show(rates: &mut [f64]) -> String {
    let (median, smallest, largest) = spread(rates);
    format!("{median:>7.0} ({smallest:.0}-{largest:.0})")
}
