//! Programs of others, unmodified, under `roci run`.

pub(crate) mod findings;
pub(crate) mod list;
pub(crate) mod network;
mod packages;
pub(crate) mod report;
pub(crate) mod session;

use std::fs;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Instant;

use xtask::command::{cargo, program_beside_us};
use xtask::debian;
use xtask::scratch::Scratch;

use list::Row;
use network::TestNetworks;
use report::{COLUMNS, Line, Outcome};
use session::{Session, Tools};

pub(crate) use packages::{install, missing};

/// The command, its libraries and all examples, as the tests have built them before: with another selection the
/// features differ, and cargo compiles almost every crate again (200 s of CPU time instead of 60). The macros are compiled
/// as what the others need: selected by name they get debug information, and every crate that uses them is compiled again.
const BUILD: &str =
    "build --workspace --exclude rocinante-macros --all-features --lib --bin roci --examples";

/// The table in the docs.
const DOCUMENT: &str = "docs/programs.md";

/// The maximum number of runs at once. Each is two processes that poll: with fewer cores than that, they
/// take turns of milliseconds, and a run alone is faster than two at a time.
const MAX_WORKERS: usize = 2;

/// Runs everything; fails if something does.
pub(crate) fn check(root: &Path) -> Result<(), String> {
    run(root, false, |_| true)?.verdict()
}

/// Runs what has this in its name, and writes the table if that was everything. A check writes nothing.
pub(crate) fn write(root: &Path, part: &str, checked: bool) -> Result<(), String> {
    let results = run(root, checked, |row| row.program.contains(part))?;
    if part.is_empty() && !checked && results.is_complete() {
        let path = root.join(DOCUMENT);
        fs::write(&path, results.document())
            .map_err(|error| format!("{DOCUMENT} can't be written: {error}"))?;
        println!("the table is in {DOCUMENT}");
    }
    results.verdict()
}

/// Every row with its outcome.
struct Results {
    rows: Vec<Row>,
    outcomes: Vec<[Outcome; COLUMNS.len()]>,
    failures: Vec<String>,
}

impl Results {
    fn lines(&self) -> Vec<Line<'_>> {
        let rows = self.rows.iter().zip(&self.outcomes);
        rows.map(|(row, &outcomes)| Line { row, outcomes })
            .collect()
    }

    fn document(&self) -> String {
        report::document(&self.lines())
    }

    fn is_complete(&self) -> bool {
        !self.outcomes.as_flattened().contains(&Outcome::LeftOut)
    }

    fn verdict(&self) -> Result<(), String> {
        match self.failures.len() {
            0 => Ok(()),
            number => Err(format!(
                "{}\n\n{number} runs failed",
                self.failures.join("\n\n")
            )),
        }
    }
}

fn run(root: &Path, checked: bool, wanted: impl Fn(&Row) -> bool) -> Result<Results, String> {
    install()?;
    build(root)?;
    let mut rows = list::rows();
    rows.retain(wanted);
    if rows.is_empty() {
        return Err("no program has that in its name".into());
    }
    let scratch = Scratch::new("programs")?;
    let tools = Tools {
        roci: program_beside_us("roci")?,
        scripts: root.join("lab/src/programs/pyverbs"),
        scratch: scratch.0.clone(),
        sockets_only: false,
        checked,
    };
    let started = Instant::now();
    let (outcomes, failures) = run_rows(&tools, &rows)?;
    let results = Results {
        rows,
        outcomes,
        failures,
    };
    print!("\n{}", report::table(&results.lines()));
    println!("{:.0} s", started.elapsed().as_secs_f32());
    Ok(results)
}

/// Builds the command, its libraries and all examples.
pub(crate) fn build(root: &Path) -> Result<(), String> {
    cargo(root, BUILD)
}

/// Results by row and column, and what failed.
type Found = (Vec<[Outcome; COLUMNS.len()]>, Vec<String>);

/// Each worker has networks of its own, so that runs can't disturb each other.
fn run_rows(tools: &Tools, rows: &[Row]) -> Result<Found, String> {
    let all_test_networks = all_test_networks()?;
    let next = AtomicUsize::new(0);
    let empty = vec![[Outcome::NoRun; COLUMNS.len()]; rows.len()];
    let found = Mutex::new((empty, Vec::new()));
    thread::scope(|scope| {
        for test_networks in &all_test_networks {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    let Some(row) = rows.get(number) else { break };
                    let (outcomes, failures) = run_row(tools, row, number, test_networks);
                    let mut found = found.lock().expect("no worker panics while it reports");
                    found.0[number] = outcomes;
                    found.1.extend(failures);
                }
            });
        }
    });
    Ok(found
        .into_inner()
        .expect("no worker panics while it reports"))
}

fn all_test_networks() -> Result<Vec<TestNetworks>, String> {
    if !debian::are_we_root() {
        println!("left out: network namespaces, which only root can make");
        return Ok(vec![TestNetworks::without_namespaces()]);
    }
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let workers = 0..(cores / 2).clamp(1, MAX_WORKERS);
    workers.map(TestNetworks::with_namespaces).collect()
}

/// Runs one row over everything it can use.
fn run_row(
    tools: &Tools,
    row: &Row,
    number: usize,
    test_networks: &TestNetworks,
) -> ([Outcome; COLUMNS.len()], Vec<String>) {
    let mut failures = Vec::new();
    let outcomes = COLUMNS.map(|(name, family, title)| {
        if !row.families.contains(&family) || (row.is_alone() && name != network::LOOPBACK) {
            return Outcome::NoRun;
        }
        let mut networks = test_networks.networks.iter();
        let Some(network) = networks.find(|network| network.name == name) else {
            return Outcome::LeftOut;
        };
        let session = Session {
            tools,
            row,
            network,
            family,
            number,
        };
        let started = Instant::now();
        let (outcome, complaint) = judge(row, session.run());
        let seconds = started.elapsed().as_secs_f32();
        let run = format!("{} {} ({title})", row.program, row.options);
        println!("{:<8} {seconds:>5.1} s  {run}", outcome.word());
        let complaint = complaint.or_else(|| findings::judge(&session));
        failures.extend(complaint.map(|why| format!("--- {run}\n{why}")));
        outcome
    });
    (outcomes, failures)
}

/// What a result means, and the error if it is not the expected one.
pub(crate) fn judge(row: &Row, result: Result<(), String>) -> (Outcome, Option<String>) {
    match (result, row.unsupported) {
        (Ok(()), None) => (Outcome::Works, None),
        (Ok(()), Some(_)) => {
            let news = "it works, although the list says that it can't: correct the list";
            (Outcome::Fails, Some(news.to_owned()))
        }
        (Err(why), None) => (Outcome::Fails, Some(why)),
        (Err(_), Some(_)) => (Outcome::Unsupported, None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_impossible_row_must_fail() {
        let rows = list::rows();
        let good = rows
            .iter()
            .find(|row| row.unsupported.is_none())
            .expect("most are");
        let unsupported = rows
            .iter()
            .find(|row| row.unsupported.is_some())
            .expect("some are");
        let failed = || Err("no answer".to_owned());
        assert_eq!(judge(good, Ok(())), (Outcome::Works, None));
        assert_eq!(judge(good, failed()), (Outcome::Fails, failed().err()));
        assert_eq!(judge(unsupported, failed()), (Outcome::Unsupported, None));
        assert!(
            judge(unsupported, Ok(()))
                .1
                .is_some_and(|news| news.contains("correct the list"))
        );
    }
}
