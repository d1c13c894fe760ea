//! A simulator that never fails proves nothing: every planted bug must be found.

use engine::Bug;
use sim::{Failure, Options, run};

/// Some seed below this must find each bug.
const SEEDS: u64 = 2000;

#[test]
fn every_planted_bug_is_found() {
    // A planted bug may well make the engine panic; the run tells of it.
    std::panic::set_hook(Box::new(|_| {}));
    let mut missed = Vec::new();
    for bug in Bug::ALL {
        match first_catch(bug) {
            Some(failure) => {
                println!(
                    "{bug:?}\n    {}",
                    failure.to_string().replace('\n', "\n    ")
                );
                assert_innocent_without(&failure);
            }
            None => missed.push(bug),
        }
    }
    assert!(missed.is_empty(), "nobody noticed {missed:?}");
}

fn first_catch(bug: Bug) -> Option<Failure> {
    let options = Options {
        bug: Some(bug),
        ..Options::default()
    };
    (0..SEEDS).find_map(|seed| run(seed, options).err().map(|failure| *failure))
}

fn assert_innocent_without(failure: &Failure) {
    if let Err(failure) = run(failure.seed, Options::default()) {
        panic!("without the bug, the same run must go well: {failure}");
    }
}
