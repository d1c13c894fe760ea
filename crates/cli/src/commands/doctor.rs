//! `roci doctor`: checks this machine, and says what to do about each problem.

mod gpu;
mod network;
mod rdma_devices;
mod system;

use std::process::ExitCode;

use clap::Args;
use serde::Serialize;

use crate::find_device;
use crate::output::{BAD, FAINT, GOOD, STRONG, WARNING, count, print_json, print_line, styled};

/// The options of `roci doctor`.
#[derive(Args)]
#[command(after_help = "\
The exit code is 1 if a check fails, and 0 otherwise. Warnings are not failures.

Examples:
  roci doctor
  roci doctor --json | jq '.[] | select(.verdict != \"ok\")'
  ROCI_DEVICES=lo roci doctor      check one device only
  ROCI_DEVICES=system roci doctor  check NICs and other RDMA devices of the system")]
pub(crate) struct Options {
    /// Print JSON, for scripts
    #[arg(long)]
    json: bool,
}

/// The result of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum CheckResult {
    Ok,
    Warn,
    Fail,
}

/// One check and its result.
#[derive(Debug, Serialize)]
struct Check {
    check: &'static str,
    verdict: CheckResult,
    /// What was found.
    finding: String,
    /// What to do, if there is a problem.
    advice: Option<String>,
}

impl Check {
    fn ok(check: &'static str, finding: impl Into<String>) -> Self {
        Self::new(check, CheckResult::Ok, finding, None)
    }

    fn warn(check: &'static str, finding: impl Into<String>, advice: impl Into<String>) -> Self {
        Self::new(check, CheckResult::Warn, finding, Some(advice.into()))
    }

    fn fail(check: &'static str, finding: impl Into<String>, advice: impl Into<String>) -> Self {
        Self::new(check, CheckResult::Fail, finding, Some(advice.into()))
    }

    fn new(
        check: &'static str,
        verdict: CheckResult,
        finding: impl Into<String>,
        advice: Option<String>,
    ) -> Self {
        Self {
            check,
            verdict,
            finding: finding.into(),
            advice,
        }
    }
}

/// What no check of one machine can find out.
const NOT_CHECKED: &str = "Not checked: firewalls and security groups on the way to other machines, and rules of this one for their packets. \
                           `roci ping` between two machines shows whether UDP port 4791 gets through.";

/// Runs all checks.
pub(crate) fn run(options: &Options) -> anyhow::Result<ExitCode> {
    let mut findings = rdma_devices::of_machine();
    if !find_device::excludes_software() {
        findings.extend(software_checks());
    }
    if options.json {
        print_json(&findings)?;
    } else {
        print_findings(&findings)?;
    }
    let failed = findings.iter().any(|one| one.verdict == CheckResult::Fail);
    Ok(ExitCode::from(u8::from(failed)))
}

/// The checks that concern our devices.
fn software_checks() -> Vec<Check> {
    let mut findings = system::devices();
    findings.extend(system::ports());
    findings.push(system::kernel_module());
    findings.push(system::runtime_directory());
    findings.push(system::open_files());
    findings.push(system::libraries());
    findings.extend(system::restrictions());
    findings.push(system::watcher());
    findings.push(gpu::driver());
    findings.push(network::receive_buffer());
    findings.push(network::segmentation());
    findings.push(network::local_packets());
    findings.push(network::ping());
    refer_to_earlier(&mut findings);
    findings
}

/// A failure that has the same text as an earlier one refers to that one.
fn refer_to_earlier(findings: &mut [Check]) {
    for index in 1..findings.len() {
        let (earlier, [finding, ..]) = findings.split_at_mut(index) else {
            return;
        };
        let is_same = |one: &&Check| one.finding.contains(&finding.finding);
        if finding.verdict == CheckResult::Fail
            && let Some(first) = earlier.iter().find(is_same)
        {
            finding.finding = format!("it failed for the same reason as `{}`", first.check);
            finding.advice = None;
        }
    }
}

fn print_findings(findings: &[Check]) -> anyhow::Result<()> {
    for finding in findings {
        let verdict = match finding.verdict {
            CheckResult::Ok => styled(GOOD, "ok  "),
            CheckResult::Warn => styled(WARNING, "warn"),
            CheckResult::Fail => styled(BAD, "fail"),
        };
        let check = styled(STRONG, format_args!("{:<17}", finding.check));
        print_line(format_args!("{verdict}  {check}  {}", finding.finding))?;
        if let Some(advice) = &finding.advice {
            print_line(styled(FAINT, format_args!("{:25}{advice}", "")))?;
        }
    }
    let of = |verdict| findings.iter().filter(|one| one.verdict == verdict).count();
    print_line(match (of(CheckResult::Fail), of(CheckResult::Warn)) {
        (0, 0) => "\nEverything is in order.".to_owned(),
        (0, warnings) => format!(
            "\nIt works; {} above.",
            count(warnings, "warning", "warnings")
        ),
        (failures, _) => format!("\n{} failed.", count(failures, "check", "checks")),
    })?;
    print_line(styled(FAINT, NOT_CHECKED))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_with_the_text_of_an_earlier_one_refers_to_it() {
        let mut findings = [
            Check::fail("device", "UDP is forbidden: EPERM", "allow UDP"),
            Check::ok("watcher", "it starts"),
            Check::fail("RDMA ping", "UDP is forbidden", "ask who forbids it"),
            Check::fail("end of process", "there is no clone", "allow clone"),
        ];
        refer_to_earlier(&mut findings);
        let texts = findings
            .each_ref()
            .map(|it| (&*it.finding, it.advice.as_deref()));
        let refers = "it failed for the same reason as `device`";
        let expected = [
            ("UDP is forbidden: EPERM", Some("allow UDP")),
            ("it starts", None),
            (refers, None),
            ("there is no clone", Some("allow clone")),
        ];
        assert_eq!(texts, expected);
    }
}
