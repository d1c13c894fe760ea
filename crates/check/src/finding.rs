//! What the checker found.

use crate::rule::Rule;

/// A violation of a rule.
#[derive(Debug, Clone)]
pub struct Finding<S> {
    /// The rule.
    pub rule: Rule,
    /// The object, such as a queue pair. A violation is reported once for each object.
    pub about: String,
    /// What happened.
    pub what: String,
    /// The calls that caused it.
    pub calls: Vec<(String, S)>,
}

impl<S> Finding<S> {
    /// What happened, and what to do.
    #[must_use]
    pub fn paragraph(&self) -> String {
        format!("{}: {} {}", self.rule.name(), self.what, self.rule.remedy())
    }
}
