//! One seed, one run.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::CheckError;
use crate::planted_bug::Bug;
use crate::rng::Rng;
use crate::scenario::Scenario;
use crate::summary::{Options, Summary};

/// A run in which a check failed.
#[derive(Debug, Clone)]
pub struct Failure {
    /// The seed that reproduces it.
    pub seed: u64,
    /// The kind of run.
    pub scenario: Scenario,
    /// The check that failed.
    pub error: CheckError,
    /// The bug that was enabled.
    pub bug: Option<Bug>,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Failure {
            seed,
            scenario,
            error,
            bug,
        } = self;
        writeln!(f, "seed {seed} ({scenario:?}): {error}")?;
        write!(f, "replay: cargo run --release -p sim -- --seed {seed}")?;
        match bug {
            Some(bug) => write!(f, " --plant {bug}"),
            None => Ok(()),
        }
    }
}

/// Runs one seed. A panic counts as a failure.
pub fn run(seed: u64, options: Options) -> Result<Summary, Box<Failure>> {
    let mut rng = Rng::new(seed);
    let scenario = Scenario::draw(&mut rng);
    let execute = AssertUnwindSafe(|| scenario.execute(rng, options));
    let outcome = catch_unwind(execute).unwrap_or_else(|panic| Err(describe_panic(panic.as_ref())));
    outcome.map_err(|error| {
        Box::new(Failure {
            seed,
            scenario,
            error,
            bug: options.bug,
        })
    })
}

fn describe_panic(panic: &(dyn std::any::Any + Send)) -> CheckError {
    let text = panic
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("without a message");
    CheckError::new(format!("panic: {text}"))
}
