//! Throughput of the engine, compared with the minimum work of any implementation.
//!
//! Two devices in one thread, without sockets: one writes packets into a buffer, the other parses,
//! checks and executes them, and the responses take the same way back.
//!
//! `cargo bench -p rocinante-engine` prints two tables:
//! - *bulk*: RDMA WRITEs of 1 MiB for each path MTU, compared with a copy plus CRC of the same bytes;
//! - *scaling*: the cost of a packet with 1, 100 and 10,000 connections.
//!
//! With an operation, a length and a count it runs so many requests within one device instead, for a tool that counts
//! instructions.
//!
//! Every figure is the median of several rounds, with minimum and maximum. The two sides of a ratio
//! are measured alternately, so that noise affects both.

// A benchmark reads the clock. The ban applies to the engine itself.
#![allow(clippy::disallowed_methods)]

mod bulk;
mod one_device;
mod pair;
mod scaling;

/// Median, minimum and maximum of some measurements.
#[derive(Clone, Copy)]
struct Spread {
    median: f64,
    min: f64,
    max: f64,
}

impl Spread {
    fn of(mut samples: Vec<f64>) -> Self {
        samples.sort_by(f64::total_cmp);
        Self {
            median: samples[samples.len() / 2],
            min: samples[0],
            max: samples[samples.len() - 1],
        }
    }
}

impl std::fmt::Display for Spread {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { median, min, max } = self;
        write!(f, "{median:8.2} {:>16}", format!("({min:.2}-{max:.2})"))
    }
}

fn main() {
    // Cargo adds its own flags. A table name selects one table.
    let arguments = std::env::args().skip(1).filter(|it| !it.starts_with("--"));
    let chosen: Vec<String> = arguments.collect();
    if let [operation, length, count] = &chosen[..] {
        return one_device::run(operation, length, count);
    }
    let wants = |name: &str| {
        let named = |table: &str| chosen.iter().any(|argument| argument == table);
        named(name) || !(named("bulk") || named("scaling"))
    };
    if wants("bulk") {
        bulk::run();
    }
    if wants("scaling") {
        scaling::run();
    }
}
