//! The scoreboard for the docs.

use std::fmt::Write as _;

use super::Line;
use super::entry::{Entry, Field};
use super::rows::TRIED;
use crate::programs::list::Server;
use crate::programs::report::Outcome;

const INTRODUCTION: &str = "\
# The wider ecosystem

`cargo xtask ecosystem --full` runs these programs, unmodified, on Rocinante devices of two network namespaces
that are joined by a veth pair (10.77.0.1 and 10.77.0.2), and writes this page. Without `--full`, and in `cargo xtask test`,
it runs the quick ones. A program that PyPI, crates.io or Debian does not provide at the moment is left out.

A row works if all processes exit with success, the data is correct (where the row says that it is compared), and enough
packets went over the device. For that count, processes of one host use sockets, too (`ROCI_SHORTCUT=0`). There is also a page about the [programs of rdma-core and perftest](programs.md).

";

const COMMANDS: &str = "
What else Debian 12 links with libibverbs or librdmacm (`apt-cache rdepends libibverbs1 librdmacm1`) has no row: librpma, ibacm, `gfio`,
DPDK's drivers for Mellanox's cards, and the tools of Omni-Path.

## The commands

Each runs under `roci run --devices roci0=10.77.0.N --`; where there are two, the first one is the server. Files that are
not part of the package are in [lab/ecosystem](../lab/ecosystem).

";

/// The file.
pub(super) fn document(lines: &[Line]) -> String {
    let mut text = INTRODUCTION.to_owned();
    text.push_str("| field | program | version | what was done and checked | result |\n|---|---|---|---|---|\n");
    for field in Field::ALL {
        let ours = lines.iter().filter(|line| line.entry.field == field);
        for group in groups(ours) {
            write_group(&mut text, &group);
        }
        for it in TRIED.iter().filter(|it| it.field == field) {
            let (field, program) = (it.field.name(), it.program);
            let _ = writeln!(
                text,
                "| {field} | {program} | {} | {} | {} |",
                it.version, it.checks, it.result
            );
        }
    }
    text.push_str(COMMANDS);
    for line in lines {
        let _ = writeln!(text, "- {}: {}", name(&line.entry), commands(&line.entry));
    }
    text
}

/// Runs of one program that do the same.
fn groups<'a>(lines: impl Iterator<Item = &'a Line>) -> Vec<Vec<&'a Line>> {
    let mut groups: Vec<Vec<&Line>> = Vec::new();
    for line in lines {
        let key = |line: &Line| {
            let program = line.entry.row.program;
            (
                program,
                line.version.clone(),
                line.entry.checks,
                line.outcome.word(),
            )
        };
        match groups.iter_mut().find(|group| key(group[0]) == key(line)) {
            Some(group) => group.push(line),
            None => groups.push(vec![line]),
        }
    }
    groups
}

fn write_group(text: &mut String, group: &[&Line]) {
    let Line {
        entry,
        version,
        outcome,
    } = group[0];
    let options: Vec<&str> = group
        .iter()
        .map(|line| line.entry.row.options.as_str())
        .collect();
    let result = match outcome {
        Outcome::Works => "**works**",
        other => other.word(),
    };
    let _ = writeln!(
        text,
        "{} {version} | {}: {} | {result} |",
        beginning(entry),
        options.join("; "),
        entry.checks
    );
}

/// The first cells of a row.
fn beginning(entry: &Entry) -> String {
    format!("| {} | {} |", entry.field.name(), entry.row.program)
}

/// A run, in the list of commands.
fn name(entry: &Entry) -> String {
    format!("{}, {}", entry.row.program, entry.row.options)
}

/// As one would type them.
fn commands(entry: &Entry) -> String {
    let server = match &entry.row.server {
        Server::None => None,
        Server::Ends(line, _) | Server::Stays(line, _) => Some(line),
    };
    let lines = server.into_iter().chain(&entry.row.client);
    let shown: Vec<String> = lines.map(|line| format!("`{}`", filled_in(line))).collect();
    shown.join(" and ")
}

fn filled_in(line: &str) -> String {
    line.replace("{device}", "roci0")
        .replace("{address}", "10.77.0.1")
        .replace("{own}", "10.77.0.2")
        .replace("{gid}", "0")
        .replace("{roci}", "roci")
        .replace("{scripts}/", "")
        .replace("{scratch}", "/tmp")
        // The shell would end the command there.
        .replace("verbs;", "verbs\\;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ecosystem::rows::entries;

    const DOCUMENT: &str = include_str!("../../../docs/ecosystem.md");

    #[test]
    fn the_scoreboard_in_the_docs_has_the_runs_of_the_list() {
        let listed: Vec<&str> = DOCUMENT
            .lines()
            .filter(|line| line.starts_with("- "))
            .collect();
        let entries = entries();
        let wanted = entries
            .iter()
            .map(|entry| format!("- {}: {}", name(entry), commands(entry)));
        let wanted: Vec<String> = wanted.collect();
        assert_eq!(listed, wanted, "run `cargo xtask ecosystem --full`");
        for entry in &entries {
            let begins =
                |line: &str| line.starts_with(&beginning(entry)) && line.contains(entry.checks);
            let program = entry.row.program;
            assert!(
                DOCUMENT.lines().any(begins),
                "{program}: run `cargo xtask ecosystem --full`"
            );
        }
    }

    #[test]
    fn the_scoreboard_in_the_docs_has_what_was_tried_by_hand() {
        for it in &TRIED {
            assert!(
                DOCUMENT.contains(it.program) && DOCUMENT.contains(it.checks),
                "{}: run `cargo xtask ecosystem --full`",
                it.program
            );
        }
    }
}
