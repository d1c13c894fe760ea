//! What can be wrong with a description of faults.

use super::opcodes;

/// A description of faults that makes no sense, and where it stops doing so.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("fault description, column {column}: {problem}")]
pub struct FaultError {
    /// The character, counted from 1, at which it goes wrong.
    pub column: usize,
    /// What is wrong, and what would be right.
    pub problem: FaultProblem,
}

/// What is wrong with a description of faults.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum FaultProblem {
    /// A name that nothing has.
    #[error("`{found}` is not known here; there is {known}")]
    UnknownName {
        /// What stands there.
        found: String,
        /// What could stand there.
        known: &'static str,
    },
    /// An opcode that does not exist.
    #[error("`{found}` is not an opcode; {}", suggestion(found))]
    UnknownOpcode {
        /// What stands there.
        found: String,
    },
    /// A name with nothing behind it.
    #[error("`{name}` needs a value, such as `{name}={example}`")]
    MissingValue {
        /// The name.
        name: String,
        /// A value that would do.
        example: &'static str,
    },
    /// A value of another kind, or out of range.
    #[error("`{found}` is no value for `{name}`: expected {expected}")]
    BadValue {
        /// The name before the value.
        name: &'static str,
        /// The value.
        found: String,
        /// What would do.
        expected: &'static str,
    },
    /// The same thing said twice.
    #[error("`{name}` is given twice; keep one of them")]
    Twice {
        /// What is said twice.
        name: &'static str,
    },
    /// More than one way to choose among the packets.
    #[error("`nth`, `every` and `rate` exclude each other; keep one of them")]
    Exclusive,
    /// A rule inside a list of chances.
    #[error("a rule needs a clause of its own: write `;` instead of `,` before `{action}:`")]
    RuleInList {
        /// What the rule does.
        action: String,
    },
    /// A rule that does not say when to strike.
    #[error("`{action}` needs a condition, such as `{action}:times=1` for the first packet")]
    NoCondition {
        /// What the rule does.
        action: &'static str,
    },
    /// A delay that does not say how long.
    #[error("`delay` must know for how long: add `by=5ms`")]
    NoDuration,
    /// A duration for what takes no time.
    #[error("`by` is how long `delay` and `reorder` hold a packet back; remove it from `{action}`")]
    NeedlessDuration {
        /// What the rule does.
        action: &'static str,
    },
}

fn suggestion(wrong: &str) -> String {
    match opcodes::nearest(wrong) {
        Some(name) => format!("did you mean {name}?"),
        None => "names look like RC_SEND_ONLY, WRITE_FIRST or ACK".to_owned(),
    }
}
