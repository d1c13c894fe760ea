//! How fast the engine is, beside what any implementation would have to do at least.
//!
//! Two devices in one thread, no sockets: one emits packets into a buffer, the other parses,
//! checks and executes them, and the other way round for the answers.
//!
//! `cargo bench -p engine` prints two tables:
//! - *bulk*: 1 MiB RDMA WRITEs for each path MTU, beside a plain copy plus CRC of the same bytes;
//! - *scaling*: the cost of a packet with 1, 100 and 10,000 connections.
//!
//! Every figure is the median of several rounds with the smallest and largest beside it, and the
//! two sides of a ratio take turns, so that both see the same noise.

// A benchmark reads the clock: the ban is for the engine itself.
#![allow(clippy::disallowed_methods)]

mod bulk;
mod pair;
mod scaling;

/// Median, smallest and largest of some measurements.
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
    // Cargo adds flags of its own; a name chooses one table.
    let chosen: Vec<String> = std::env::args().skip(1).collect();
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
