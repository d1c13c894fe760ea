//! The scoreboard: every case, here and with the kernel's Soft-RoCE.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::reasons;
use super::suite::Outcome;

/// The results of the same cases with the kernel's Soft-RoCE.
const KERNEL: &str = include_str!("soft-roce.txt");

const PASSES: &str = "passes";

/// The beginning of the second part of the page; the version follows.
const NEWEST: &str = "## The newest suite: rdma-core ";

/// The page in the docs: the suite of Debian 12, and the newest.
#[derive(Default)]
pub(super) struct Page {
    pub(super) usual: String,
    pub(super) newest: String,
}

impl Page {
    pub(super) fn read(text: &str) -> Self {
        let newest = text.find(NEWEST).unwrap_or(text.len());
        Self {
            usual: text[..newest].trim_end().to_owned() + "\n",
            newest: text[newest..].to_owned(),
        }
    }

    pub(super) fn text(&self) -> String {
        if self.newest.is_empty() {
            return self.usual.clone();
        }
        format!("{}\n{}", self.usual, self.newest)
    }

    /// What is recorded of the newest suite, if that had this version.
    pub(super) fn newest_of(&self, version: &str) -> Scoreboard {
        let recorded = self.newest.strip_prefix(NEWEST);
        let recorded = recorded.filter(|rest| rest.lines().next() == Some(version));
        recorded.map(Scoreboard::read).unwrap_or_default()
    }
}

/// The words in a cell, by case: `passes`, or what is missing.
#[derive(Default, PartialEq, Debug)]
pub(super) struct Scoreboard {
    cells: BTreeMap<String, String>,
    /// Whether every case ran that could run anywhere.
    complete: bool,
}

impl Scoreboard {
    /// The results of a run, without the cases that failed.
    pub(super) fn of(cases: &BTreeMap<String, Outcome>) -> Self {
        let cell = |(case, outcome): (&String, &Outcome)| {
            let cell = match outcome {
                Outcome::Passed => PASSES.to_owned(),
                Outcome::Skipped(said) => format!("needs {}", reasons::of_skip(case, said)?),
                Outcome::Failed(_) => return None,
            };
            Some((case.clone(), cell))
        };
        let lacks = |outcome: &Outcome| matches!(outcome, Outcome::Skipped(said) if reasons::is_of_machine(said));
        Self {
            cells: cases.iter().filter_map(cell).collect(),
            complete: !cases.values().any(lacks),
        }
    }

    /// Parses the page.
    pub(super) fn read(document: &str) -> Self {
        let row = |line: &str| {
            let mut cells = line.strip_prefix("| test_")?.split(" | ");
            let (case, here) = (cells.next()?, cells.next()?.trim_end_matches(" |"));
            // The short table names files; a case has a dot in its name.
            case.contains('.')
                .then(|| (format!("test_{case}"), here.to_owned()))
        };
        Self {
            cells: document.lines().filter_map(row).collect(),
            complete: true,
        }
    }

    pub(super) fn is_complete(&self) -> bool {
        self.complete
    }

    /// What passed before and did not pass now, although this machine could have run it.
    pub(super) fn lost(&self, now: &BTreeMap<String, Outcome>) -> Vec<String> {
        let passed = self.cells.iter().filter(|(_, cell)| *cell == PASSES);
        let lost = passed.filter_map(|(case, _)| match now.get(case) {
            Some(Outcome::Skipped(said)) if !reasons::is_of_machine(said) => {
                Some(format!("{case} used to pass and is skipped: {said}"))
            }
            None => Some(format!("{case} used to pass and did not run")),
            _ => None,
        });
        lost.collect()
    }

    /// The first part of the page in the docs.
    pub(super) fn document(&self, of_vendors: usize) -> String {
        let kernel = kernel();
        let passing =
            |cells: &BTreeMap<_, String>| cells.values().filter(|cell| *cell == PASSES).count();
        let mut page = introduction(
            self.cells.len(),
            passing(&self.cells),
            passing(&kernel),
            of_vendors,
        );
        for (file, ours) in by_file(&self.cells) {
            let theirs = by_file(&kernel).get(file).copied().unwrap_or_default();
            let (all, here, there) = (ours.0, ours.1, theirs.1);
            let _ = writeln!(page, "| {file} | {all} | {here} | {there} |");
        }
        page += CASES;
        for (case, here) in &self.cells {
            let there = kernel.get(case).map_or("–", String::as_str);
            let _ = writeln!(page, "| {case} | {here} | {there} |");
        }
        page
    }
}

impl Scoreboard {
    /// The second part of the page: what passes of the newest suite, and each case that does not.
    pub(super) fn section(&self, version: &str, of_vendors: usize) -> String {
        let passing = |cell: &&String| *cell == PASSES;
        let (cases, here) = (
            self.cells.len(),
            self.cells.values().filter(passing).count(),
        );
        let mut page = format!(
            "\
{NEWEST}{version}

`cargo xtask conformance --newest` fetches the newest rdma-core of Debian (sid), with the libraries and the Python
it needs, into `target/conformance`, and runs its suite there under `roci run`. It is fetched once; remove that
directory for a newer one. This version asks `rdma link show -j` for the interface of its device; the `rdma` of
`roci run` answers.

Debian's package also runs without this command: `roci run -- python3 run_tests.py` in a copy of its tests. Of
390 tests 184 pass, 205 are skipped, and one fails before it starts a process (`test_multi_process_alloc_dm`): since Python 3.14 the
arguments of a process are pickled by default, and this test passes an open file. With the start method `fork`, which the command sets,
it passes. The device needs an interface with an IPv4 address: on `lo` ten further tests (`test_rdmacm_async_*`) crash in pyverbs, because
an id that is bound to a loopback address has no device, as in the kernel.

Of {cases} cases that are for every device, **{here} pass here** and none fails. A further {of_vendors} are for the
cards of single makers.

| file | cases | pass here |
|---|---|---|
"
        );
        for (file, (all, passing)) in by_file(&self.cells) {
            let _ = writeln!(page, "| {file} | {all} | {passing} |");
        }
        page += "\n| case | here |\n|---|---|\n";
        for (case, here) in &self.cells {
            let _ = writeln!(page, "| {case} | {here} |");
        }
        page
    }
}

fn introduction(cases: usize, here: usize, kernel: usize, of_vendors: usize) -> String {
    format!(
        "\
# rdma-core's own test suite

`cargo xtask conformance` runs the test suite of rdma-core 44, as Debian 12 ships it in `python3-pyverbs`, on a
device of ours and writes this page. `cargo xtask test` runs it too, and fails when a case fails or when
one that passes on this page no longer does.

Of {cases} cases that are for every device, **{here} pass here** and none fails. The kernel's Soft-RoCE (Linux
6.1, the same suite) passes {kernel}. A further {of_vendors} cases are for cards of single makers (mlx5, EFA) and apply
to no other device.

| file | cases | pass here | pass with Soft-RoCE |
|---|---|---|---|
"
    )
}

const CASES: &str = "
A case that can't run here says what it would need.

| case | here | Soft-RoCE |
|---|---|---|
";

/// How many cases each file has, and how many of them pass.
fn by_file(cells: &BTreeMap<String, String>) -> BTreeMap<&str, (usize, usize)> {
    let mut files: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
    for (case, cell) in cells {
        let file = case.split('.').next().unwrap_or(case);
        let (all, passing) = files.entry(file).or_default();
        *all += 1;
        *passing += usize::from(cell == PASSES);
    }
    files
}

fn kernel() -> BTreeMap<String, String> {
    let rows = KERNEL.lines().filter(|line| !line.starts_with('#'));
    let rows = rows.filter_map(|line| line.split_once(' '));
    rows.map(|(word, case)| {
        let cell = match word {
            "passed" => PASSES,
            "skipped" => "skips",
            _ => "fails",
        };
        (case.to_owned(), cell.to_owned())
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_scoreboard_is_read_as_written() {
        let cases = [
            ("test_addr.AHTest.test_create_ah", Outcome::Passed),
            (
                "test_flow.FlowTest.test_tcp_spec_flow_traffic",
                Outcome::Skipped("no".into()),
            ),
        ];
        let cases = cases.map(|(case, outcome)| (case.to_owned(), outcome));
        let board = Scoreboard::of(&cases.into());
        let page = board.document(102);
        assert_eq!(Scoreboard::read(&page), board);
        assert!(page.contains("Of 2 cases that are for every device, **1 pass here**"));
        assert!(page.contains("| test_addr.AHTest.test_create_ah | passes | passes |"));
        assert!(page.contains("| test_flow | 1 | 0 | 0 |"));
    }

    #[test]
    fn both_parts_of_the_page_are_read_again() {
        let board = |case: &str| Scoreboard::of(&[(case.to_owned(), Outcome::Passed)].into());
        let usual = board("test_addr.AHTest.test_create_ah");
        let newest = board("test_buf.BufAPITest.test_alloc_buf");
        let page = Page {
            usual: usual.document(102),
            newest: newest.section("65.0", 156),
        };
        let again = Page::read(&page.text());
        assert_eq!(again.text(), page.text());
        assert_eq!(Scoreboard::read(&again.usual), usual);
        assert_eq!(again.newest_of("65.0"), newest);
        assert_eq!(again.newest_of("66.0"), Scoreboard::default());
    }

    #[test]
    fn the_kernel_passes_what_it_was_seen_to_pass() {
        let kernel = kernel();
        let passing = kernel.values().filter(|cell| *cell == PASSES).count();
        assert_eq!((kernel.len(), passing), (171, 96));
    }
}
