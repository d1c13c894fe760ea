//! Why a run failed.

use std::fmt;
use std::time::Duration;

/// A failed run.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Failure {
    /// The seed that fails.
    pub seed: u64,
    /// When it failed, in simulated time.
    pub at: Duration,
    /// Why.
    pub cause: Cause,
}

/// Why a run failed.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Cause {
    /// A task of a host panicked.
    Panic {
        /// The host.
        host: String,
        /// The message.
        message: String,
    },
    /// The program of a host returned an error.
    Error {
        /// The host.
        host: String,
        /// The error.
        error: String,
    },
    /// All tasks wait, and no packet and no timer can wake one.
    Hang(Vec<Waiting>),
    /// The run takes longer than its limit.
    TooLong {
        /// The limit, in simulated time.
        limit: Duration,
        /// The tasks that have not ended.
        waiting: Vec<Waiting>,
    },
    /// The check of the programs has found errors.
    Findings(Vec<String>),
    /// The run can't start.
    Setup(String),
}

/// A task that waits.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Waiting {
    /// Its host.
    pub host: String,
    /// What it waits for.
    pub waits_for: Vec<String>,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "seed {} fails after {:?}: {}",
            self.seed, self.at, self.cause
        )
    }
}

impl std::error::Error for Failure {}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Panic { host, message } => write!(f, "host `{host}` panicked: {message}"),
            Self::Error { host, error } => write!(f, "host `{host}` returned an error: {error}"),
            Self::Hang(waiting) => {
                f.write_str("all tasks wait, and no packet and no timer can wake them: ")?;
                list(f, waiting)
            }
            Self::TooLong { limit, waiting } => {
                write!(f, "the run takes longer than {limit:?} of simulated time: ")?;
                list(f, waiting)
            }
            Self::Findings(findings) => {
                write!(
                    f,
                    "the program violates the rules of the verbs: {}",
                    findings.join("\n")
                )
            }
            Self::Setup(problem) => f.write_str(problem),
        }
    }
}

fn list(f: &mut fmt::Formatter<'_>, waiting: &[Waiting]) -> fmt::Result {
    for (index, task) in waiting.iter().enumerate() {
        let separator = if index == 0 { "" } else { "; " };
        let waits_for = match &task.waits_for[..] {
            [] => "something outside of the simulation".to_owned(),
            known => known.join(", or "),
        };
        write!(f, "{separator}host `{}` waits for {waits_for}", task.host)?;
    }
    Ok(())
}
