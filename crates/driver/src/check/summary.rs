//! What the check says when the program ends: everything in one list, errors first.

use std::collections::BTreeMap;
use std::fmt;

use ::check::{Level, Rule};

use crate::diagnostics::Explained;

/// How problems that were explained are called in place of a rule.
pub(super) const EXPLAINED: &str = "explained";

/// How many lines the list has. More would only be noise.
const MAX_LINES: usize = 40;

/// How serious a line is. In the order of the list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Error,
    Note,
    /// A failure that is not always a mistake of the program.
    Explained,
}

/// The list, and how much there is of each kind.
pub(super) struct Summary(Vec<(Kind, String)>);

impl Summary {
    /// `findings`: how often each rule was violated, by object.
    pub(super) fn new(findings: &BTreeMap<(Rule, String), u32>, explained: &[Explained]) -> Self {
        let findings = findings.iter().map(|((rule, about), times)| {
            let kind = match rule.level() {
                Level::Error => Kind::Error,
                Level::Note => Kind::Note,
            };
            let often = match times {
                1 => String::new(),
                _ => format!(", {times} times"),
            };
            (kind, format!("{}: {about}{often}", rule.name()))
        });
        let explained = explained.iter().map(|problem| {
            let kind = if problem.is_mistake {
                Kind::Error
            } else {
                Kind::Explained
            };
            let (about, reason) = (&problem.about, problem.cause.reason);
            (kind, format!("{EXPLAINED}: {about}: {reason}"))
        });
        let mut lines: Vec<_> = findings.chain(explained).collect();
        lines.sort_by_key(|(kind, _)| *kind);
        Self(lines)
    }

    pub(super) fn has_errors(&self) -> bool {
        self.count(Kind::Error) > 0
    }

    fn count(&self, kind: Kind) -> usize {
        self.0.iter().filter(|(it, _)| *it == kind).count()
    }

    /// How much there is, in one sentence or two.
    fn headline(&self) -> String {
        let [errors, notes, explained] =
            [Kind::Error, Kind::Note, Kind::Explained].map(|kind| self.count(kind));
        let failures = counted(explained, "other failure");
        match (errors + notes, explained) {
            (0, 0) => "no findings.".to_owned(),
            (0, _) => format!("no findings, {failures} explained above."),
            (_, 0) => format!(
                "{}, {}. Each rule is reported once for each object.",
                counted(errors, "error"),
                counted(notes, "note")
            ),
            _ => format!(
                "{}, {}, {failures}. Each rule is reported once for each object.",
                counted(errors, "error"),
                counted(notes, "note")
            ),
        }
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.headline())?;
        for (kind, line) in self.0.iter().take(MAX_LINES) {
            let kind = match kind {
                Kind::Error => "error: ",
                Kind::Note => "note: ",
                Kind::Explained => "",
            };
            write!(f, "\n    {kind}{line}")?;
        }
        match self.0.len().saturating_sub(MAX_LINES) {
            0 => Ok(()),
            more => write!(f, "\n    … and {more} more"),
        }
    }
}

fn counted(count: usize, name: &str) -> String {
    match count {
        1 => format!("1 {name}"),
        _ => format!("{count} {name}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn explained(is_mistake: bool) -> Explained {
        Explained {
            is_mistake,
            about: "QP 0x000011".to_owned(),
            what: "It failed.".to_owned(),
            cause: &errors::cause::UNKNOWN_LOCAL_KEY,
        }
    }

    #[test]
    fn errors_come_first_and_what_was_explained_is_listed() {
        let findings = BTreeMap::from([
            ((Rule::Leak, "device 0".to_owned()), 1),
            ((Rule::RemoteRace, "QP 0x000012".to_owned()), 3),
        ]);
        let summary = Summary::new(&findings, &[explained(false), explained(true)]);
        let text = summary.to_string();
        let lines: Vec<_> = text.lines().collect();
        let reason = errors::cause::UNKNOWN_LOCAL_KEY.reason;
        let mistake = format!("    error: explained: QP 0x000011: {reason}");
        let other = format!("    explained: QP 0x000011: {reason}");
        let expected = [
            "2 errors, 1 note, 1 other failure. Each rule is reported once for each object.",
            "    error: remote-race: QP 0x000012, 3 times",
            mistake.as_str(),
            "    note: leak: device 0",
            other.as_str(),
        ];
        assert_eq!(lines, expected);
        assert!(summary.has_errors());
    }

    #[test]
    fn a_failure_that_a_correct_program_may_meet_is_no_error() {
        let none = BTreeMap::new();
        let summary = Summary::new(&none, &[explained(false)]);
        assert!(!summary.has_errors());
        let text = summary.to_string();
        assert!(
            text.starts_with("no findings, 1 other failure explained above."),
            "{text}"
        );
        assert_eq!(Summary::new(&none, &[]).to_string(), "no findings.");
        assert!(Summary::new(&none, &[explained(true)]).has_errors());
    }

    #[test]
    fn a_long_list_says_how_much_it_omits() {
        let about = |number: usize| format!("QP {number:#x}");
        let findings = (0..MAX_LINES + 2).map(|number| ((Rule::Leak, about(number)), 1));
        let text = Summary::new(&findings.collect(), &[]).to_string();
        assert_eq!(text.lines().count(), MAX_LINES + 2);
        assert!(text.ends_with("… and 2 more"), "{text}");
    }
}
