//! A lock service with a mistake that ordinary runs do not show, and simulated ones do.
//!
//! ```text
//! lock_service ordinary 10000     real devices and threads
//! lock_service simulate 1000      simulated hosts, one run for each seed, with 1% loss
//! lock_service fixed 1000         the same without the mistake
//! ```

mod runs;
mod service;

use std::process::ExitCode;
use std::time::Instant;

use rocinante::sim::Seeds;
use service::Release;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = arguments.get(1).and_then(|text| text.parse().ok());
    let begin = Instant::now();
    match (arguments.first().map(String::as_str), number) {
        (Some("ordinary"), Some(runs)) => {
            let lost = runs::run_ordinary(runs, 1, Release::AfterPost);
            println!(
                "{lost} of {runs} ordinary runs have lost an addition ({:.1?})",
                begin.elapsed()
            );
        }
        (Some("simulate"), Some(seeds)) => simulate(seeds, Release::AfterPost, begin),
        (Some("fixed"), Some(seeds)) => simulate(seeds, Release::AfterCompletion, begin),
        _ => {
            eprintln!("usage: lock_service ordinary RUNS | simulate SEEDS | fixed SEEDS");
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

fn simulate(seeds: u64, release: Release, begin: Instant) {
    // The panic of the seed that fails is expected here, and printed below.
    std::panic::set_hook(Box::new(|_| {}));
    let all = Seeds::new(seeds).faults("loss=1%");
    match all.find(|simulation| runs::simulate(simulation, release)) {
        Some(failed) => println!("{}", failed.message),
        None => println!(
            "{seeds} seeds: no addition is lost ({:.1?})",
            begin.elapsed()
        ),
    }
}
