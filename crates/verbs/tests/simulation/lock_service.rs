//! The worked example: a mistake that ordinary runs do not show, and simulated ones do.

#[path = "../../examples/lock_service/runs.rs"]
mod runs;
#[path = "../../examples/lock_service/service.rs"]
pub(crate) mod service;

use rocinante::sim::{Seeds, Simulation};
use service::Release;

/// The example itself does 10,000 runs, which take longer.
#[test]
fn ordinary_runs_do_not_show_the_mistake() {
    runs::run_ordinary(100, 2, Release::AfterPost);
}

#[test]
fn a_thousand_seeds_show_the_mistake() {
    let seeds = Seeds::new(1000).faults("loss=1%");
    let found = seeds.find(|simulation| runs::simulate(simulation, Release::AfterPost));
    let message = found.expect("an addition is lost").message;
    assert!(message.contains("an addition is lost"), "{message}");
}

#[rocinante::test(seeds = 1000, faults = "loss=1%")]
fn waiting_for_the_completion_corrects_it(simulation: Simulation) {
    runs::simulate(simulation, Release::AfterCompletion);
}
