//! What `cargo xtask test` runs, cheapest first, so that a small mistake is found within seconds.

use std::path::Path;

use xtask::command::CommandLine;
use xtask::steps::{Step, Work};

use crate::{bans, book, browser, fuzz, isolated_tests, linkers, oldest_compiler, registry, style};

/// How much time the run may take.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Pace {
    /// Below three minutes: between two edits.
    Quick,
    /// Everything: before a change goes in.
    Full,
}

/// Every step, in the order they run; some run beside others.
pub(crate) const STEP_NAMES: [&str; 23] = [
    "style",
    "format",
    "bans",
    "clippy",
    "tests",
    "models",
    "linkers",
    "targets",
    "oldest-rust",
    "docs",
    "book",
    "registry",
    "simulator",
    "browser",
    "programs",
    "storm",
    "tutorial",
    "conformance",
    "ecosystem",
    "interop",
    "recipes",
    "fuzz",
    "miri",
];

/// Miri interprets every instruction, some hundred times slower than the machine.
const MIRI_CASES: &str = "2";

const TOO_SLOW: &str = "too slow for --quick";

const FUZZ_RESULT: &str = "arbitrary bytes cause no panic";

/// The steps themselves.
pub(crate) fn steps(root: &Path, pace: Pace) -> Vec<Step> {
    let mut steps = source_steps(pace);
    steps.extend(program_steps(pace));
    steps.push(Step::new("fuzz", FUZZ_RESULT, short_fuzzing(root, pace)).beside());
    let miri = miri(root, pace);
    steps.push(Step::new("miri", "Miri finds no undefined behaviour", miri).beside());
    steps
}

/// The source code and its own tests.
fn source_steps(pace: Pace) -> Vec<Step> {
    vec![
        Step::new(
            "style",
            "source files are short, few modules import each other, docs/reference.md lists every variable, and translations have the same code",
            Work::Check(style::check),
        ),
        Step::new(
            "format",
            "the code is formatted",
            Work::command("fmt --all --check"),
        ),
        Step::new(
            "bans",
            "clippy rejects I/O and clocks in the crates that must not use them",
            Work::Check(bans::check),
        ),
        Step::new(
            "clippy",
            "the compiler and clippy report nothing",
            clippy(pace),
        ),
        Step::new(
            "tests",
            "every test and every example in the docs passes",
            tests(pace),
        ),
        Step::new(
            "models",
            "threads that share memory without a lock are right in every order of their steps",
            models(),
        )
        .beside(),
        Step::new(
            "linkers",
            "the C libraries link with GNU ld and with lld, and pass the same tests",
            unless_quick(pace, || None, linkers::check),
        ),
        Step::new(
            "targets",
            "the code compiles for other architectures and older systems",
            in_laboratory(pace),
        ),
        Step::new(
            "oldest-rust",
            "the code compiles with the oldest compiler that it declares",
            unless_quick(pace, oldest_compiler::missing, oldest_compiler::check),
        ),
        Step::new(
            "docs",
            "the documentation of the code builds and its links are valid",
            docs(pace),
        ),
        Step::new(
            "book",
            "the links of all pages lead somewhere, and the book builds",
            Work::Check(book::check),
        ),
        Step::new(
            "registry",
            "the crates and their dependencies can be published",
            unless_quick(pace, registry::missing, registry::check),
        ),
        Step::new("simulator", "no seed breaks the protocol", simulator(pace)).beside(),
        Step::new(
            "browser",
            "the HTML page of `roci explain` works in a browser",
            unless_quick(pace, browser::missing, browser::check),
        ),
    ]
}

/// Real programs, networks and systems.
fn program_steps(pace: Pace) -> Vec<Step> {
    vec![
        Step::new(
            "programs",
            "other people's RDMA programs run unmodified",
            in_laboratory(pace),
        ),
        Step::new(
            "storm",
            "nothing hangs or is lost when processes die, networks fail and resources run out",
            in_laboratory(pace),
        ),
        Step::new(
            "tutorial",
            "the commands of README, tutorial and other pages work",
            in_laboratory(pace),
        ),
        Step::new(
            "conformance",
            "rdma-core's own test suite passes as before",
            in_laboratory(pace),
        ),
        Step::new(
            "ecosystem",
            "UCX, libfabric, MPI and fio run unmodified, over our device",
            in_laboratory(pace),
        ),
        Step::new(
            "interop",
            "data is exchanged with the Soft-RoCE of a stock Linux kernel",
            in_laboratory(pace),
        )
        .beside(),
        Step::new(
            "recipes",
            "the CI recipes, the Debian package and the Python wheel work",
            in_laboratory(pace),
        ),
    ]
}

/// What `cargo xtask fuzz` runs; the error says what is missing.
pub(crate) fn fuzzing(root: &Path, target: Option<&str>, seconds: u32) -> Result<Step, String> {
    match fuzz::missing(root) {
        None => Ok(Step::new(
            "fuzz",
            FUZZ_RESULT,
            Work::Commands(fuzz::commands(root, target, seconds)?),
        )),
        Some(missing) => Err(missing),
    }
}

fn clippy(pace: Pace) -> Work {
    let command = CommandLine::cargo("clippy --all-targets --all-features");
    let command = command.arguments_of(packages(pace));
    Work::Commands(vec![command.arguments_of("-- -D warnings")])
}

/// What of the workspace is compiled. A quick run does not use the laboratory.
fn packages(pace: Pace) -> &'static str {
    match pace {
        Pace::Quick => "--workspace --exclude lab",
        Pace::Full => "--workspace",
    }
}

fn tests(pace: Pace) -> Work {
    Work::Check(match pace {
        Pace::Quick => isolated_tests::check_quickly,
        Pace::Full => isolated_tests::check,
    })
}

/// With its own target directory: the flag makes cargo build the dependencies again.
fn models() -> Work {
    let packages = "-p rocinante-engine -p rocinante-net -p rocinante-driver";
    let command = format!("test --lib --target-dir target/models {packages}");
    let command = CommandLine::cargo(&command).unoptimised();
    let command = command
        .arguments_of("-- model_checks")
        .env("CARGO_PROFILE_DEV_DEBUG", "0")
        .env("RUSTFLAGS", "--cfg loom");
    Work::Commands(vec![command])
}

fn docs(pace: Pace) -> Work {
    let command = CommandLine::cargo("doc --no-deps").arguments_of(packages(pace));
    Work::Commands(vec![command.env("RUSTDOCFLAGS", "-Dwarnings")])
}

fn simulator(pace: Pace) -> Work {
    Work::command(match pace {
        // The unoptimised build is there already, and checks arithmetic for overflow.
        Pace::Quick => "run -p sim -- --seeds 300",
        Pace::Full => "run --release -p sim -- --seeds 10000",
    })
}

/// A check that takes long, where nothing that it needs is missing.
fn unless_quick(
    pace: Pace,
    missing: fn() -> Option<String>,
    check: fn(&Path) -> Result<(), String>,
) -> Work {
    if pace == Pace::Quick {
        return Work::LeftOut(TOO_SLOW.into());
    }
    missing().map_or(Work::Check(check), Work::LeftOut)
}

fn in_laboratory(pace: Pace) -> Work {
    match pace {
        Pace::Quick => Work::LeftOut(TOO_SLOW.into()),
        Pace::Full => Work::Laboratory,
    }
}

fn short_fuzzing(root: &Path, pace: Pace) -> Work {
    if pace == Pace::Quick {
        return Work::LeftOut(TOO_SLOW.into());
    }
    match fuzz::missing(root) {
        Some(missing) => Work::LeftOut(format!(
            "{missing}; the same entry points ran under proptest in `cargo test`"
        )),
        None => Work::Check(fuzz::check_shortly),
    }
}

pub(crate) fn on_ci() -> bool {
    std::env::var_os("CI").is_some()
}

fn miri(root: &Path, pace: Pace) -> Work {
    if pace == Pace::Quick {
        return Work::LeftOut(TOO_SLOW.into());
    }
    if !CommandLine::cargo("+nightly miri --version").works(root) {
        let install = "rustup toolchain install nightly --component miri";
        return Work::LeftOut(format!("Miri is not installed (`{install}`)"));
    }
    Work::Commands(vec![
        // Fetches the standard library's source by itself; `test` would stop and ask for it.
        CommandLine::cargo("+nightly miri setup"),
        miri_test("rocinante-wire --lib"),
        miri_test("rocinante-engine --lib --test memory_windows --test memory_races"),
    ])
}

fn miri_test(what: &str) -> CommandLine {
    // Miri isolates the program from environment and files: proptest is configured through Miri, and must not
    // look for a file with earlier failures.
    let settings = [
        format!("PROPTEST_CASES={MIRI_CASES}"),
        "PROPTEST_DISABLE_FAILURE_PERSISTENCE=true".to_owned(),
    ];
    let flags = settings.map(|setting| format!("-Zmiri-env-set={setting}"));
    CommandLine::cargo(&format!("+nightly miri test -p {what}")).env("MIRIFLAGS", flags.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn quick_steps() -> Vec<Step> {
        steps(Path::new(env!("CARGO_MANIFEST_DIR")), Pace::Quick)
    }

    #[test]
    fn the_help_names_the_steps_that_run() {
        let names: Vec<_> = quick_steps().iter().map(|step| step.name).collect();
        assert_eq!(names, STEP_NAMES);
    }

    #[test]
    fn quick_skips_slow_steps_and_says_so() {
        for step in quick_steps() {
            let slow = [
                "linkers",
                "targets",
                "oldest-rust",
                "registry",
                "browser",
                "programs",
                "storm",
                "tutorial",
                "conformance",
                "ecosystem",
                "interop",
                "recipes",
                "fuzz",
                "miri",
            ]
            .contains(&step.name);
            assert_eq!(matches!(step.work, Work::LeftOut(_)), slow, "{}", step.name);
        }
    }
}
