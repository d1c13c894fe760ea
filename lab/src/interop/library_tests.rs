//! The tests of our C libraries, run on rdma-core's with the kernel's device.
//!
//! They were written for ours. That the same binary prints the same on the originals shows that what
//! they demand is what programs are used to. Every case is compared; where the two differ, that is known
//! and explained in [`differences`], case by case.

mod differences;

use std::time::{Duration, Instant};

use super::cell::Cell;
use super::command_channel::Outcome;
use super::guest_files;
use super::machine::Machine;
use super::program::Programs;
use differences::{DIFFERENCES, Difference, Why};

/// How long one library test may take on an emulated machine.
const TEST_TIMEOUT: Duration = Duration::from_secs(240);

/// Two devices with the names and the addresses that the tests know. Only these two: one of the tests
/// counts them. Their link-local addresses need not be probed for by others first.
const LAY: &str = "echo 0 > /proc/sys/net/ipv6/conf/default/accept_dad; \
    ip link add left0 type veth peer name right0 \
    && ip link set left0 up && ip link set right0 up \
    && ip addr add 10.214.0.1/24 dev left0 \
    && rdma link delete rxe0 \
    && rdma link add left type rxe netdev left0 && rdma link add right type rxe netdev right0";

const CLEAR: &str = "rdma link delete left; rdma link delete right; ip link delete left0; \
    rdma link add rxe0 type rxe netdev eth0";

/// Not one of the loopback network, which the kernel's connection manager leaves without a device.
const LEFT_ADDRESS: &str = "10.214.0.1";

const PROGRAMS: [&str; 13] = [
    "attribute_ranges",
    "connection_ids",
    "connections",
    "devices",
    "events",
    "fork",
    "invalid_arguments",
    "memory",
    "post_and_poll",
    "process_exit",
    "receive_queues",
    "rsocket",
    "signals_and_cancellation",
];

/// How a program went on either library.
pub(crate) struct Line {
    pub(crate) name: &'static str,
    pub(crate) ours: Cell,
    pub(crate) kernels: Cell,
    /// Only if the kernel's is good.
    pub(crate) tally: Option<Tally>,
}

/// How many cases of a program are alike, and why the others are not.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub(crate) struct Tally {
    alike: usize,
    lacking: usize,
    otherwise: usize,
}

/// A case as a program prints it: its line, and the facts below it.
#[derive(Debug, PartialEq, Eq)]
struct Case<'t> {
    name: &'t str,
    words: Vec<&'t str>,
}

/// What is known to differ, a line each.
pub(crate) fn known_differences() -> impl Iterator<Item = String> {
    DIFFERENCES.iter().map(|it| {
        let (program, case, because) = (it.program, it.case, it.why.because());
        format!("`{program}`, `{case}`: {because}.")
    })
}

/// Runs every program on both.
pub(crate) fn run(machine: &mut Machine, programs: &Programs) -> Result<Vec<Line>, String> {
    machine.must(LAY)?;
    let lines = PROGRAMS.iter().map(|name| try_one(machine, programs, name));
    let lines: Result<Vec<_>, String> = lines.collect();
    machine.must(CLEAR)?;
    lines
}

fn try_one(machine: &mut Machine, programs: &Programs, name: &'static str) -> Result<Line, String> {
    let program = guest_files::library_test(name);
    let start = Instant::now();
    let ours = programs.run_alone(&program, TEST_TIMEOUT)?;
    let ours_took = start.elapsed();
    let start = Instant::now();
    machine.begin(
        0,
        &format!("env OTHER_LIBRARY=1 LEFT_ADDRESS={LEFT_ADDRESS} {program}"),
    )?;
    let kernels = machine.finish(0, TEST_TIMEOUT)?;
    programs.keep(name, None, [&kernels, &ours]);
    let known = DIFFERENCES.iter().filter(|it| it.program == name);
    let judged = judge(&kernels.text, &ours.text, &known.collect::<Vec<_>>());
    Ok(Line {
        name,
        ours: cell(passes(&ours), ours_took),
        tally: judged.as_ref().ok().copied(),
        kernels: cell(judged.map(drop), start.elapsed()),
    })
}

fn cell(verdict: Result<(), String>, took: Duration) -> Cell {
    match verdict {
        Ok(()) => Cell::Good(took),
        Err(reason) => Cell::Bad(reason),
    }
}

/// With ours all cases hold.
fn passes(said: &Outcome) -> Result<(), String> {
    let cases = cases(&said.text)?;
    let broken = cases.iter().filter(|case| case.words[0] != "holds");
    let broken: Vec<_> = broken.map(Case::to_line).collect();
    if said.succeeded() && broken.is_empty() {
        Ok(())
    } else {
        Err(format!(
            "it ended with {}: {}",
            said.code,
            broken.join("; ")
        ))
    }
}

/// Each case must print the same on both, or differ as it is known to.
fn judge(kernels: &str, ours: &str, known: &[&Difference]) -> Result<Tally, String> {
    let (kernels, ours) = (cases(kernels)?, cases(ours)?);
    let names = kernels.iter().map(|it| it.name);
    if !names.eq(ours.iter().map(|it| it.name)) {
        return Err("the two do not run the same cases".into());
    }
    let mut tally = Tally::default();
    let mut complaints: Vec<_> = known
        .iter()
        .filter(|it| ours.iter().all(|case| case.name != it.case))
        .map(|it| format!("`{}` is no case", it.case))
        .collect();
    for (kernels, ours) in kernels.iter().zip(&ours) {
        let known = known.iter().find(|it| it.case == ours.name);
        match compare(kernels, ours, known.copied()) {
            Ok(None) => tally.alike += 1,
            Ok(Some(Why::Lacks(_))) => tally.lacking += 1,
            Ok(Some(Why::Otherwise(_))) => tally.otherwise += 1,
            Err(complaint) => complaints.push(complaint),
        }
    }
    if complaints.is_empty() {
        Ok(tally)
    } else {
        Err(complaints.join("; "))
    }
}

/// Why the two differ; nothing if they don't.
fn compare<'d>(
    kernels: &Case<'_>,
    ours: &Case<'_>,
    known: Option<&'d Difference>,
) -> Result<Option<&'d Why>, String> {
    let differ = kernels.words != ours.words;
    match known {
        None if !differ => Ok(None),
        None => Err(first_difference(kernels, ours)),
        Some(known) if !differ => Err(format!(
            "{} no longer differs (`{}`): it can be taken out of the list",
            known.case, known.says
        )),
        Some(known) if kernels.words[0].contains(known.says) => Ok(Some(&known.why)),
        Some(known) => Err(format!("not `{}` but {}", known.says, kernels.to_line())),
    }
}

fn first_difference(kernels: &Case<'_>, ours: &Case<'_>) -> String {
    let longer = kernels.words.len().max(ours.words.len());
    let line = |case: &Case<'_>, at| {
        case.words
            .get(at)
            .map_or("nothing more", |it| *it)
            .to_owned()
    };
    let mut pairs = (0..longer).map(|at| (line(kernels, at), line(ours, at)));
    let (theirs, our) = pairs.find(|it| it.0 != it.1).expect("the two differ");
    format!("{}: rdma-core's says `{theirs}`, ours `{our}`", ours.name)
}

/// What a program printed, which ends with a line that counts its cases.
fn cases(text: &str) -> Result<Vec<Case<'_>>, String> {
    let mut cases: Vec<Case<'_>> = Vec::new();
    for line in text.lines() {
        if line.ends_with(" cases hold") {
            return Ok(cases);
        }
        if let (Some(fact), Some(case)) = (line.strip_prefix("  "), cases.last_mut()) {
            case.words.push(fact);
            continue;
        }
        let (name, verdict) = line
            .split_once(": ")
            .ok_or_else(|| format!("it printed `{line}`"))?;
        let words = vec![verdict];
        cases.push(Case { name, words });
    }
    Err(format!("it stopped early: {}", text.trim()))
}

impl Line {
    /// How many cases are alike, in a few words.
    pub(crate) fn summary(&self) -> String {
        self.tally.map_or_else(String::new, Tally::summary)
    }
}

impl Case<'_> {
    fn to_line(&self) -> String {
        format!("{}: {}", self.name, self.words[0])
    }
}

impl Tally {
    fn summary(self) -> String {
        let all = self.alike + self.lacking + self.otherwise;
        let mut words = format!("{all} cases, {} alike", self.alike);
        if self.lacking > 0 {
            words.push_str(&format!(", {} rxe lacks", self.lacking));
        }
        if self.otherwise > 0 {
            words.push_str(&format!(", {} otherwise", self.otherwise));
        }
        words
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OURS: &str = "grows: holds\n  5 pages\nshrinks: holds\n2 of 2 cases hold\n";

    fn known(says: &'static str) -> Difference {
        Difference {
            program: "memory",
            case: "shrinks",
            says,
            why: Why::Lacks("it can't"),
        }
    }

    #[test]
    fn both_libraries_must_print_the_same() {
        let alike = judge(OURS, OURS, &[]).expect("they say the same");
        assert_eq!(alike.summary(), "2 cases, 2 alike");
        let other_fact = OURS.replace('5', "6");
        let complaint = judge(&other_fact, OURS, &[]).expect_err("a fact differs");
        assert_eq!(
            complaint,
            "grows: rdma-core's says `6 pages`, ours `5 pages`"
        );
    }

    #[test]
    fn a_difference_must_be_the_known_one() {
        let kernels = OURS.replace("shrinks: holds", "shrinks: memory.c:7: shrunk (errno 95)");
        assert!(judge(&kernels, OURS, &[]).is_err());
        let tally = judge(&kernels, OURS, &[&known("errno 95")]).expect("it is known");
        assert_eq!(tally.summary(), "2 cases, 1 alike, 1 rxe lacks");
        assert!(judge(&kernels, OURS, &[&known("errno 22")]).is_err());
    }

    #[test]
    fn a_known_difference_that_no_longer_occurs_is_an_error() {
        let complaint = judge(OURS, OURS, &[&known("errno 95")]).expect_err("it is gone");
        assert!(complaint.starts_with("shrinks no longer differs"));
    }

    #[test]
    fn a_program_that_stops_early_is_noticed() {
        let half = "grows: holds\n";
        assert!(judge(half, OURS, &[]).is_err());
        assert!(judge("grows: holds\n1 of 1 cases hold\n", OURS, &[]).is_err());
    }

    #[test]
    fn every_case_must_hold_with_our_library() {
        let said = |code, text: &str| Outcome {
            code,
            text: text.to_owned(),
        };
        assert_eq!(passes(&said(0, OURS)), Ok(()));
        let broken = OURS.replace("shrinks: holds", "shrinks: killed: Aborted");
        assert!(passes(&said(1, &broken)).is_err());
        assert!(passes(&said(1, OURS)).is_err());
    }

    #[test]
    fn every_program_is_run() {
        let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/../crates/capi/tests/programs");
        let files = std::fs::read_dir(directory).expect("the programs are there");
        let paths = files.map(|file| file.expect("it can be read").path());
        let sources = paths.filter(|path| path.extension().is_some_and(|it| it == "c"));
        let name =
            |path: std::path::PathBuf| path.file_stem().unwrap().to_string_lossy().into_owned();
        let mut names: Vec<_> = sources.map(name).collect();
        names.sort();
        assert_eq!(names, PROGRAMS);
    }
}
