//! rdma-core's own test suite on one of our devices, and the scoreboard in the docs.

mod huge_pages;
mod newest_rdma_core;
mod reasons;
mod scoreboard;
mod suite;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::Instant;

use xtask::debian::{self, Package};

use newest_rdma_core::NewestRdmaCore;
use scoreboard::{Page, Scoreboard};
use suite::{Outcome, Results};

/// The scoreboard: a test that passes in it must not fail later.
const DOCUMENT: &str = "docs/conformance.md";

const PACKAGES: [Package; 2] = [
    ("python3-pyverbs", "/usr/lib/python3/dist-packages/pyverbs"),
    ("iproute2", "/usr/bin/ip"),
];

/// Why this machine can't run the suite, or `None`.
pub(crate) fn missing() -> Option<String> {
    if !debian::are_we_root() {
        return Some("only root can give the suite a network of its own".into());
    }
    debian::missing(&PACKAGES)
}

/// Runs everything; fails if a case does, or if one that passed no longer passes.
pub(crate) fn check(root: &Path) -> Result<(), String> {
    let results = run(root, "", None)?;
    let found = Scoreboard::of(&results.cases);
    let known = Scoreboard::read(&committed(root)?.usual);
    if found.is_complete() && found != known {
        println!("{DOCUMENT} is out of date: `cargo xtask conformance` writes it anew");
    }
    verdict(&results, &known)
}

/// Runs the cases whose names contain `part`, and writes the scoreboard if these are all cases.
pub(crate) fn write(root: &Path, part: &str, newest: bool) -> Result<(), String> {
    let newest = newest.then(NewestRdmaCore::fetch).transpose()?;
    let results = run(root, part, newest.as_ref())?;
    if !part.is_empty() {
        return verdict(&results, &Scoreboard::default());
    }
    let mut page = committed(root).unwrap_or_default();
    let known = match &newest {
        None => Scoreboard::read(&page.usual),
        Some(newest) => page.newest_of(&newest.version),
    };
    verdict(&results, &known)?;
    let found = Scoreboard::of(&results.cases);
    if !found.is_complete() {
        println!("nothing is written: this machine lacks huge pages, or the right to have some");
        return Ok(());
    }
    match &newest {
        None => page.usual = found.document(results.of_vendors),
        Some(newest) => page.newest = found.section(&newest.version, results.of_vendors),
    }
    fs::write(root.join(DOCUMENT), page.text())
        .map_err(|error| format!("{DOCUMENT} can't be written: {error}"))?;
    println!("the scoreboard is in {DOCUMENT}");
    Ok(())
}

fn run(root: &Path, part: &str, newest: Option<&NewestRdmaCore>) -> Result<Results, String> {
    if let Some(missing) = missing() {
        return Err(missing);
    }
    debian::install(&PACKAGES)?;
    let started = Instant::now();
    let results = suite::run(root, part, newest)?;
    if results.cases.is_empty() {
        return Err("no case has that in its name".into());
    }
    print!("\n{}", summary(&results.cases));
    println!("{:.0} s", started.elapsed().as_secs_f32());
    Ok(results)
}

fn committed(root: &Path) -> Result<Page, String> {
    fs::read_to_string(root.join(DOCUMENT))
        .map(|text| Page::read(&text))
        .map_err(|error| format!("{DOCUMENT} can't be read: {error}"))
}

/// All failures.
fn verdict(results: &Results, known: &Scoreboard) -> Result<(), String> {
    let mut complaints = known.lost(&results.cases);
    complaints.extend(results.ended.clone().err());
    for (case, outcome) in &results.cases {
        match outcome {
            Outcome::Failed(why) => complaints.push(format!("{case} failed: {why}")),
            Outcome::Skipped(why) if reasons::of_skip(case, why).is_none() => {
                complaints.push(format!(
                    "{case} was skipped, and lab/src/conformance/reasons.rs does not say why: {why}"
                ));
            }
            _ => {}
        }
    }
    if complaints.is_empty() {
        return Ok(());
    }
    Err(format!("{}\n\n{}", results.log, complaints.join("\n")))
}

/// A table with the results of the cases of each file.
fn summary(cases: &BTreeMap<String, Outcome>) -> String {
    let mut files: BTreeMap<&str, [usize; 3]> = BTreeMap::new();
    let mut total = [0; 3];
    for (case, outcome) in cases {
        let file = case.split('.').next().unwrap_or(case);
        let column = match outcome {
            Outcome::Passed => 0,
            Outcome::Failed(_) => 1,
            Outcome::Skipped(_) => 2,
        };
        files.entry(file).or_default()[column] += 1;
        total[column] += 1;
    }
    let row = |name: &str, [passed, failed, skipped]: [usize; 3]| {
        format!("{name:<24} {passed:>7} {failed:>7} {skipped:>8}\n")
    };
    let mut table = format!(
        "{:<24} {:>7} {:>7} {:>8}\n",
        "file", "passed", "failed", "skipped"
    );
    table.extend(files.into_iter().map(|(file, numbers)| row(file, numbers)));
    table + &row("together", total)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn results(outcomes: &[(&str, Outcome)]) -> Results {
        Results {
            cases: outcomes
                .iter()
                .map(|(case, outcome)| ((*case).to_owned(), outcome.clone()))
                .collect(),
            of_vendors: 0,
            ended: Ok(()),
            log: String::new(),
        }
    }

    fn skipped(why: &str) -> Outcome {
        Outcome::Skipped(why.to_owned())
    }

    #[test]
    fn a_test_that_passed_before_must_not_fail() {
        let case = "test_odp.OdpTestCase.test_odp_rc_huge_traffic";
        let before = Scoreboard::of(&results(&[(case, Outcome::Passed)]).cases);
        let now = |outcome| verdict(&results(&[(case, outcome)]), &before);
        assert_eq!(now(Outcome::Passed), Ok(()));
        assert!(now(Outcome::Failed("wrong data".into())).is_err());
        assert!(now(skipped("ODP is not supported")).is_err());
        let machine = "There are no huge pages of size 2M allocated";
        assert_eq!(now(skipped(machine)), Ok(()));
        assert!(verdict(&results(&[]), &before).is_err());
    }

    #[test]
    fn a_skip_needs_a_reason() {
        let skip = |case| verdict(&results(&[(case, skipped("?"))]), &Scoreboard::default());
        assert_eq!(
            skip("test_flow.FlowTest.test_eth_spec_flow_traffic"),
            Ok(())
        );
        assert!(skip("test_addr.AHTest.test_create_ah").is_err());
    }

    #[test]
    fn a_case_for_encrypted_memory_may_be_skipped_and_its_neighbour_may_not() {
        let verdict_on = |said| {
            let case = "test_buf.BufAPITest.test_multiple_mrs_one_buf";
            verdict(&results(&[(case, skipped(said))]), &Scoreboard::default())
        };
        assert_eq!(verdict_on("CC PD is not supported"), Ok(()));
        assert!(verdict_on("ibv_alloc_buf is not supported").is_err());
    }

    #[test]
    fn the_summary_counts_by_file() {
        let found = results(&[
            ("test_a.One.x", Outcome::Passed),
            ("test_a.One.y", skipped("why")),
            ("test_b.Two.z", Outcome::Passed),
        ]);
        let table = summary(&found.cases);
        let lines: Vec<Vec<_>> = table
            .lines()
            .map(|line| line.split_whitespace().collect())
            .collect();
        assert_eq!(lines[1], ["test_a", "1", "0", "1"]);
        assert_eq!(lines[3], ["together", "2", "0", "1"]);
    }
}
