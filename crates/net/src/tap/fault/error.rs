//! Errors in a fault specification.

use super::opcodes;

/// An error in a fault specification, and its position.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("fault specification, column {column}: {problem}")]
pub struct FaultError {
    /// The column of the error, counted from 1.
    pub column: usize,
    /// What is wrong, and what is expected.
    pub problem: FaultProblem,
}

/// What is wrong with a fault specification.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum FaultProblem {
    /// An unknown name.
    #[error("`{found}` is unknown here; the known names are {known}")]
    UnknownName {
        /// The name that was found.
        found: String,
        /// The names that are known here.
        known: &'static str,
    },
    /// An opcode that does not exist.
    #[error("`{found}` is not an opcode; {}", suggestion(found))]
    UnknownOpcode {
        /// The name that was found.
        found: String,
    },
    /// A name without a value.
    #[error("`{name}` needs a value, such as `{name}={example}`")]
    MissingValue {
        /// The name.
        name: String,
        /// An example of a value.
        example: &'static str,
    },
    /// A value of another kind, or out of range.
    #[error("`{found}` is not a value for `{name}`: expected {expected}")]
    BadValue {
        /// The name before the value.
        name: &'static str,
        /// The value.
        found: String,
        /// The expected value.
        expected: &'static str,
    },
    /// A name that is given twice.
    #[error("`{name}` is given twice; keep one of them")]
    Twice {
        /// The name.
        name: &'static str,
    },
    /// More than one way to select packets.
    #[error("`nth`, `every` and `rate` exclude each other; keep one of them")]
    Exclusive,
    /// A rule inside a list of probabilities.
    #[error("a rule needs a clause of its own: write `;` instead of `,` before `{action}:`")]
    RuleInList {
        /// The action of the rule.
        action: String,
    },
    /// A rule without a condition.
    #[error("`{action}` needs a condition, such as `{action}:times=1` for the first packet")]
    NoCondition {
        /// The action of the rule.
        action: &'static str,
    },
    /// A delay or a stop without a duration.
    #[error("`{action}` needs a duration: add `by=5ms`")]
    NoDuration {
        /// The action of the rule.
        action: &'static str,
    },
    /// A duration for an action that has none.
    #[error(
        "`by` is the duration of `delay`, `reorder`, `late`, `down` and `stop`; remove it from `{action}`"
    )]
    NeedlessDuration {
        /// The action of the rule.
        action: &'static str,
    },
}

fn suggestion(wrong: &str) -> String {
    match opcodes::nearest(wrong) {
        Some(name) => format!("did you mean {name}?"),
        None => "names look like RC_SEND_ONLY, WRITE_FIRST or ACK".to_owned(),
    }
}
