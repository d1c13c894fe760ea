//! Every deliberate bug must be found, to prove that the checks work.

use sim::{Bug, Failure, Options, Scenario, run};

/// At least one of this many runs must find each bug.
const RUNS: usize = 6000;

#[test]
fn every_bug_is_found() {
    // A bug may make the engine panic. The run reports that.
    std::panic::set_hook(Box::new(|_| {}));
    let mut missed = Vec::new();
    for bug in Bug::all() {
        match first_failure(bug) {
            Some(failure) => {
                println!(
                    "{bug:?}\n    {}",
                    failure.to_string().replace('\n', "\n    ")
                );
                assert_success_without_bug(&failure);
            }
            None => missed.push(bug),
        }
    }
    assert!(missed.is_empty(), "not found: {missed:?}");
}

fn first_failure(bug: Bug) -> Option<Failure> {
    let options = Options {
        bug: Some(bug),
        ..Options::default()
    };
    // Only some runs have connection managers.
    let concerns = |seed: &u64| match bug {
        Bug::Device(_) => true,
        Bug::Manager(_) => Scenario::of_seed(*seed) == Scenario::Connections,
    };
    (0..)
        .filter(concerns)
        .take(RUNS)
        .find_map(|seed| run(seed, options).err().map(|failure| *failure))
}

fn assert_success_without_bug(failure: &Failure) {
    if let Err(failure) = run(failure.seed, Options::default()) {
        panic!("without the bug, the same run must succeed: {failure}");
    }
}
