//! The table of programs and results, for the terminal and for the docs.

use std::fmt::Write as _;

use super::list::Row;
use super::network::{Family, LOOPBACK, VETH};

/// The columns: a network and a family.
pub(super) const COLUMNS: [(&str, Family, &str); 4] = [
    (LOOPBACK, Family::V4, "127.0.0.1"),
    (LOOPBACK, Family::V6, "::1"),
    (VETH, Family::V4, "veth, IPv4"),
    (VETH, Family::V6, "veth, IPv6"),
];

const INTRODUCTION: &str = "\
# Programs that run unmodified

`cargo xtask programs` runs these programs of Debian 12 under `roci run`, as two processes on one
machine and on two network namespaces with a veth pair between them, and writes this table.
`cargo xtask test` runs them all, too.

A dash means that the program does not support this case, or that the case adds nothing to the others.
`can't` is explained below the table.

";

/// The outcome of one run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Outcome {
    /// There is no such run.
    NoRun,
    /// It could not be tried on this machine.
    LeftOut,
    Works,
    Fails,
    /// It can't work with any library, and fails.
    Unsupported,
}

impl Outcome {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::NoRun => "–",
            Self::LeftOut => "left out",
            Self::Works => "works",
            Self::Fails => "fails",
            Self::Unsupported => "can't",
        }
    }
}

/// The results of one row, by column.
pub(super) struct Line<'a> {
    pub(super) row: &'a Row,
    pub(super) outcomes: [Outcome; COLUMNS.len()],
}

/// The file for the docs.
pub(super) fn document(lines: &[Line<'_>]) -> String {
    let mut text = INTRODUCTION.to_owned();
    let titles = COLUMNS.map(|(.., title)| title);
    let _ = writeln!(text, "| program | options | {} |", titles.join(" | "));
    let _ = writeln!(text, "|---|---|{}", "---|".repeat(COLUMNS.len()));
    for Line { row, outcomes } in lines {
        let words = outcomes.map(Outcome::word).join(" | ");
        let _ = writeln!(text, "{} {words} |", beginning(row));
    }
    for (program, why) in reasons(lines) {
        let _ = writeln!(text, "\n{program} can't: {why}.");
    }
    text
}

/// The first two cells of a row.
fn beginning(row: &Row) -> String {
    let options = match row.options.as_str() {
        "" => String::new(),
        options if options.starts_with('-') => format!("`{options}`"),
        options => options.to_owned(),
    };
    format!("| {} | {options} |", row.program)
}

/// Each reason once.
fn reasons<'a>(lines: &[Line<'a>]) -> Vec<(&'a str, &'static str)> {
    let reasons = lines
        .iter()
        .filter_map(|line| Some((line.row.program, line.row.unsupported?)));
    let mut reasons: Vec<_> = reasons.collect();
    reasons.dedup();
    reasons
}

/// The same for the terminal.
pub(super) fn table(lines: &[Line<'_>]) -> String {
    let mut text = String::new();
    let titles = COLUMNS.map(|(.., title)| title);
    let line = |text: &mut String, program: &str, options: &str, cells: [&str; 4]| {
        let _ = write!(text, "{program:<27} {options:<25}");
        for cell in cells {
            let _ = write!(text, " {cell:<10}");
        }
        text.truncate(text.trim_end().len());
        text.push('\n');
    };
    line(&mut text, "program", "options", titles);
    for Line { row, outcomes } in lines {
        line(
            &mut text,
            row.program,
            &row.options,
            outcomes.map(Outcome::word),
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::programs::list::rows;

    #[test]
    fn the_table_in_the_docs_has_the_rows_of_the_list() {
        let document = include_str!("../../../docs/programs.md");
        let written: Vec<&str> = document
            .lines()
            .filter(|line| line.starts_with("| "))
            .collect();
        let rows = rows();
        assert_eq!(written.len(), rows.len() + 1, "run `cargo xtask programs`");
        for (line, row) in written[1..].iter().zip(&rows) {
            assert!(
                line.starts_with(&beginning(row)),
                "{line}: run `cargo xtask programs`"
            );
        }
    }

    #[test]
    fn the_chinese_table_has_the_same_results() {
        let table = |page: &str| -> Vec<String> {
            let rows = page.lines().filter(|line| line.starts_with("| ")).skip(1);
            rows.map(|row| row.replace("不可用", "can't").replace("可用", "works"))
                .collect()
        };
        let english = include_str!("../../../docs/programs.md");
        let chinese = include_str!("../../../docs/zh-CN/programs.md");
        assert_eq!(
            table(chinese),
            table(english),
            "copy the rows to docs/zh-CN/programs.md and translate their results"
        );
    }

    #[test]
    fn reasons_are_listed_once_below_the_table() {
        let rows = rows();
        let lines: Vec<Line<'_>> = (rows.iter())
            .map(|row| Line {
                row,
                outcomes: [Outcome::Unsupported; COLUMNS.len()],
            })
            .collect();
        let document = document(&lines);
        assert_eq!(document.matches("qperf can't").count(), 1, "{document}");
        assert_eq!(
            document
                .lines()
                .filter(|line| line.starts_with("| "))
                .count(),
            rows.len() + 1
        );
    }
}
