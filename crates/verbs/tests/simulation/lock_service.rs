//! The worked example: a mistake that ordinary runs do not show, and simulated ones do.

#[path = "../../examples/lock_service/runs.rs"]
mod runs;
#[path = "../../examples/lock_service/service.rs"]
pub(crate) mod service;

use rocinante::sim::{Seeds, Simulation};
use service::Release;

#[test]
fn the_corrected_service_loses_nothing_on_real_devices() {
    assert_eq!(runs::run_ordinary(50, 2, Release::AfterCompletion), 0);
}

#[test]
#[ignore = "takes a minute, and may show the mistake by chance on a busy machine: cargo test -p rocinante --features sim --test simulation -- --ignored ten_thousand"]
fn ten_thousand_ordinary_runs_do_not_show_the_mistake() {
    assert_eq!(runs::run_ordinary(10_000, 3, Release::AfterPost), 0);
}

#[test]
fn a_thousand_seeds_show_the_mistake() {
    let seeds = Seeds::new(1000).faults("loss=1%");
    let found = seeds.find(|simulation| runs::simulate(simulation, Release::AfterPost));
    let message = found.expect("an addition is lost").message;
    assert!(message.contains(service::LOST), "{message}");
}

#[rocinante::test(seeds = 1000, faults = "loss=1%")]
fn waiting_for_the_completion_corrects_it(simulation: Simulation) {
    runs::simulate(simulation, Release::AfterCompletion);
}
