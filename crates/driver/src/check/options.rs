//! How a program is checked.

use std::path::{Path, PathBuf};

use ::check::{Profile, Rule, UnknownProfile};
use net::{named_file, stderr};

use super::Finding;
use super::summary::EXPLAINED;
use crate::diagnostics::CHECK_FAILS;
use crate::options::switch;

const PROCESSES: &str = "ROCI_CHECK_PROCESSES";

/// How a program is checked. The options of the first device count for all devices of a process.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct CheckOptions {
    /// Whether a program with errors ends with exit status 66.
    pub fail: bool,
    /// A file to which each finding is appended as one line of JSON.
    pub json: Option<PathBuf>,
    /// A file with findings that are not reported. Each line is the name of a rule; after a colon, a part of
    /// the finding's text or of its stack.
    pub suppressions: Option<PathBuf>,
    /// The device whose limits the program must obey.
    pub profile: Option<Profile>,
    /// Whether the requests of all processes that are checked in this way are compared. Correct only for programs whose
    /// processes wait for each other by RDMA alone: by messages, immediate data, atomics, connections and completions.
    pub processes: bool,
}

impl CheckOptions {
    /// Options from `ROCI_CHECK` (`1` or `fail`), `ROCI_CHECK_JSON`, `ROCI_CHECK_SUPPRESS`, `ROCI_CHECK_PROFILE` and
    /// `ROCI_CHECK_PROCESSES`; `None` if the program is not checked.
    #[must_use]
    pub fn from_env() -> Option<Self> {
        let text = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
        let fail = fails(text("ROCI_CHECK")?.as_str())?;
        Some(Self {
            fail,
            json: text("ROCI_CHECK_JSON").map(PathBuf::from),
            suppressions: text("ROCI_CHECK_SUPPRESS").map(PathBuf::from),
            profile: text("ROCI_CHECK_PROFILE").and_then(|name| known(&name)),
            processes: switch(PROCESSES, text(PROCESSES).as_deref()).unwrap_or(false),
        })
    }
}

/// Whether a program with errors fails, from `ROCI_CHECK`; `None` if it is not checked. A value that means nothing is reported.
fn fails(value: &str) -> Option<bool> {
    match value {
        "0" => None,
        "1" => Some(false),
        CHECK_FAILS => Some(true),
        value => {
            stderr::print(format_args!(
                "ROCI_CHECK={value} is ignored: give 0, 1 or {CHECK_FAILS}"
            ));
            None
        }
    }
}

fn known(name: &str) -> Option<Profile> {
    let profile = name.parse();
    profile
        .inspect_err(|error: &UnknownProfile| super::output::print(&error.to_string()))
        .ok()
}

/// Findings that are not reported.
#[derive(Debug, Default)]
pub(super) struct Suppressions(Vec<(String, Option<String>)>);

impl Suppressions {
    /// Reads a file. If it cannot be read, everything is reported, and the reason, too.
    pub(super) fn read(path: Option<&Path>) -> Self {
        let Some(path) = path else {
            return Self::default();
        };
        match named_file::read_text(path) {
            Ok(text) => {
                let read = Self::parse(&text);
                for name in read.unknown_rules() {
                    super::output::print(&format!(
                        "there is no rule `{name}`, so this suppression has no effect."
                    ));
                }
                read
            }
            Err(error) => {
                let path = path.display();
                super::output::print(&format!(
                    "the file of suppressions {path} cannot be read: {error}"
                ));
                Self::default()
            }
        }
    }

    fn parse(text: &str) -> Self {
        let lines = text.lines().map(str::trim);
        let lines = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
        let entry = |line: &str| match line.split_once(':') {
            Some((rule, part)) => (rule.trim().to_owned(), Some(part.trim().to_owned())),
            None => (line.to_owned(), None),
        };
        Self(lines.map(entry).collect())
    }

    /// The rules that are named and that do not exist.
    fn unknown_rules(&self) -> impl Iterator<Item = &str> {
        let named = self.0.iter().map(|(name, _)| name.as_str());
        named.filter(|name| *name != EXPLAINED && Rule::ALL.iter().all(|it| it.name() != *name))
    }

    pub(super) fn cover(&self, finding: &Finding) -> bool {
        self.cover_rule(finding.rule.name(), |part| {
            finding.what.contains(part) || called_from(finding, part)
        })
    }

    /// Whether a problem that was explained does not count.
    pub(super) fn cover_explained(&self, what: &str) -> bool {
        self.cover_rule(EXPLAINED, |part| what.contains(part))
    }

    fn cover_rule(&self, name: &str, contains: impl Fn(&str) -> bool) -> bool {
        let mut of_rule = self.0.iter().filter(|(rule, _)| rule == name);
        of_rule.any(|(_, part)| part.as_deref().is_none_or(&contains))
    }
}

fn called_from(finding: &Finding, part: &str) -> bool {
    let calls = finding.calls.iter().filter_map(|(_, call)| call.as_ref());
    let mut frames = calls.flat_map(|call| call.frames());
    frames.any(|frame| frame.contains(part))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finding(rule: Rule, what: &str) -> Finding {
        Finding {
            rule,
            about: String::new(),
            what: what.to_owned(),
            calls: Vec::new(),
        }
    }

    #[test]
    fn a_program_is_checked_only_for_values_with_a_meaning() {
        let meant = ["0", "1", "fail", "maybe", "2"].map(fails);
        assert_eq!(meant, [None, Some(false), Some(true), None, None]);
    }

    #[test]
    fn a_suppression_names_a_rule_and_perhaps_a_part_of_the_text() {
        let suppressions = Suppressions::parse("# known\nleak\n\nbuffer-changed: QP 0x000012\n");
        assert!(suppressions.cover(&finding(Rule::Leak, "anything")));
        let changed = |what| suppressions.cover(&finding(Rule::BufferChanged, what));
        assert!(changed("of QP 0x000012 was"));
        assert!(!changed("of QP 0x000013 was"));
        assert!(!suppressions.cover(&finding(Rule::RemoteRace, "leak")));
        assert!(!suppressions.cover_explained("QP 0x000012"));
    }

    #[test]
    fn a_rule_that_does_not_exist_is_named() {
        let suppressions = Suppressions::parse("leak\nexplained\nlaek: QP 0x12\nremote-race: 7\n");
        assert_eq!(suppressions.unknown_rules().collect::<Vec<_>>(), ["laek"]);
    }

    #[test]
    fn an_explained_problem_can_be_suppressed() {
        let suppressions = Suppressions::parse("explained: lkey 0x7\n");
        assert!(suppressions.cover_explained("the segment with lkey 0x7 names no memory."));
        assert!(!suppressions.cover_explained("the segment with lkey 0x8 names no memory."));
        assert!(!suppressions.cover(&finding(Rule::Leak, "lkey 0x7")));
    }
}
