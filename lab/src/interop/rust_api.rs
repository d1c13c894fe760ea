//! The Rust API on the kernel's devices: the tests that run at any device, in the kernel's machine, through its own
//! libibverbs and librdmacm; `roci`, whose rows talk with Rocinante; and the programs of the tutorial.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use xtask::command::CommandLine;

use super::backend::Backend;
use super::build_directory::BuildDirectory;
use super::guest_files::Extra;
use super::image::run as run_tool;
use super::machine::Machine;
use super::tutorial_programs;

/// The name of these tests for `--only`.
pub(crate) const NAME: &str = "Rust API";

/// The test program, its package in cargo's messages, and its name in the machine.
const TEST: &str = "any_device";
const PACKAGE: &str = "#rocinante@";
const PROGRAM: &str = "rocinante-any-device";

/// The address of the interface of siw.
const IWARP_ADDRESS: &str = "10.215.0.1";

/// How long the tests may take on an emulated machine.
const TIMEOUT: Duration = Duration::from_secs(240);

/// Built with the features of the whole workspace, as the earlier steps did, so that nothing is compiled again.
const BUILD: &str =
    "test --workspace --all-features --test any_device --no-run --message-format json";

/// Builds the tests. Returns the program of the tests.
pub(crate) fn build(root: &Path) -> Result<PathBuf, String> {
    let build = CommandLine::cargo(BUILD);
    println!("$ {build}");
    let output = build.capture(root).map_err(|error| error.to_string())?;
    let errors = String::from_utf8_lossy(&output.stderr);
    executable(&String::from_utf8_lossy(&output.stdout))
        .filter(|_| output.status.success())
        .ok_or_else(|| format!("`{build}` failed: {errors}"))
}

/// The test program that cargo's messages name. The C libraries compile the same tests for themselves.
fn executable(messages: &str) -> Option<PathBuf> {
    let ours = messages.lines().filter(|line| line.contains(PACKAGE));
    let paths = ours.filter_map(|line| {
        let (_, rest) = line.split_once("\"executable\":\"")?;
        rest.split_once('"').map(|(path, _)| path)
    });
    let mut tests = paths.filter(|path| path.contains(TEST));
    tests.next_back().map(PathBuf::from)
}

/// The tests, `roci` and the programs of the tutorial, without debug information.
pub(crate) fn programs(
    build_directory: &BuildDirectory,
    tests: &Path,
) -> Result<Vec<Extra>, String> {
    let tutorial =
        tutorial_programs::PROGRAMS.map(|(name, path)| (build_directory.example(name), path));
    let programs = [
        (tests.to_owned(), "usr/bin/rocinante-any-device"),
        (build_directory.roci(), "usr/bin/roci"),
    ];
    let stripped = programs.into_iter().chain(tutorial).map(|(program, path)| {
        let name = Path::new(path).file_name().unwrap_or_default();
        let file = build_directory.file(&name.to_string_lossy());
        run_tool(Command::new("strip").arg("-o").arg(&file).arg(program))?;
        Ok(Extra { file, path })
    });
    stripped.collect()
}

/// Runs the tests on the kernel's device. Returns a sentence for the report.
pub(crate) fn check(machine: &mut Machine) -> Result<String, String> {
    let passed = run_tests(machine, "rxe0")?;
    demo(machine)?;
    let runs = tutorial_programs::check(machine)?;
    let mut sentence = format!(
        "{NAME}: {passed} tests passed on the kernel's device, through the system's libraries, `roci demo`, and {runs} \
         runs of the tutorial's programs."
    );
    if machine.backend == Backend::Uml {
        let passed = check_iwarp(machine)?;
        sentence.push_str(&format!(
            " {passed} tests and `roci ping` passed on the kernel's Soft-iWARP."
        ));
    }
    Ok(sentence)
}

/// Runs the tests on a device. Returns how many passed.
fn run_tests(machine: &mut Machine, device: &str) -> Result<usize, String> {
    let environment = format!("ROCI_DEVICES=system ROCI_TEST_DEVICE={device}");
    machine.begin(0, &format!("env {environment} {PROGRAM} --test-threads=1"))?;
    let outcome = machine.finish(0, TIMEOUT)?;
    let passed = passed(&outcome.text).filter(|_| outcome.succeeded());
    passed.ok_or_else(|| {
        format!(
            "the tests of the {NAME} failed on {device}:\n{}",
            outcome.text
        )
    })
}

/// Runs the tests on siw, which only User Mode Linux has. It has an interface of its own, because two devices of an address are
/// ambiguous.
fn check_iwarp(machine: &mut Machine) -> Result<usize, String> {
    machine.must(&format!(
        "ip link add iwarp0 type dummy && ip link set iwarp0 up && ip addr add {IWARP_ADDRESS}/24 dev iwarp0 && \
         rdma link add siw0 type siw netdev iwarp0"
    ))?;
    let passed = run_tests(machine, "siw0")?;
    let ping = "env ROCI_DEVICES=system:siw0 roci ping -V -C 3 -a";
    machine.begin(0, &format!("{ping} {IWARP_ADDRESS} -s"))?;
    if !machine.wait_for_listener(0, TIMEOUT)? {
        return Err("`roci ping -s` does not listen on siw0".into());
    }
    machine.begin(1, &format!("{ping} {IWARP_ADDRESS} -c"))?;
    for channel in [1, 0] {
        let outcome = machine.finish(channel, TIMEOUT)?;
        if !outcome.succeeded() {
            return Err(format!("`roci ping` failed on siw0:\n{}", outcome.text));
        }
    }
    machine.must("rdma link delete siw0 && ip link delete iwarp0")?;
    Ok(passed)
}

/// `roci demo` on the kernel's device.
fn demo(machine: &mut Machine) -> Result<(), String> {
    machine.begin(0, "env ROCI_DEVICES=system roci demo -d rxe0")?;
    let outcome = machine.finish(0, TIMEOUT)?;
    let text = outcome.text.replace("\r\n", "\n");
    if outcome.succeeded() && text.contains("All data is correct.") {
        Ok(())
    } else {
        Err(format!(
            "`roci demo` failed on the kernel's device:\n{text}"
        ))
    }
}

/// How many tests passed, if some ran and none failed.
fn passed(text: &str) -> Option<usize> {
    let (_, rest) = text.split_once("test result: ok. ")?;
    let number = rest.split(' ').next()?.parse().ok()?;
    (number > 0).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_tests_that_ran_count() {
        let line = |passed| format!("test result: ok. {passed} passed; 0 failed; 0 ignored");
        assert_eq!(passed(&line(22)), Some(22));
        assert_eq!(passed(&line(0)), None);
        assert_eq!(passed("test result: FAILED. 21 passed; 1 failed"), None);
    }

    #[test]
    fn program_is_the_one_of_the_test() {
        let message = |package, path| {
            format!(r#"{{"package_id":"path+file:///p/{package}","executable":"{path}"}}"#)
        };
        let messages = [
            message("verbs#rocinante@0.1.0", "/t/other-1"),
            message("verbs#rocinante@0.1.0", "/t/any_device-2"),
            message("capi#0.1.0", "/t/any_device-3"),
        ];
        let messages = messages.join("\n");
        assert_eq!(executable(&messages), Some("/t/any_device-2".into()));
        assert_eq!(
            executable(&message("verbs#rocinante@0.1.0", "/t/other-1")),
            None
        );
    }
}
