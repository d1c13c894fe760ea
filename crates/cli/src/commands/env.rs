//! `roci env`: prints the environment of `roci run` for a shell.

use std::ffi::OsStr;
use std::fmt::Write as _;

use anyhow::{Context as _, bail};
use clap::Args;

use super::run::device_files::Reader;
use super::run::environment::{Environment, Settings, without_ours};
use super::run::usual_c_library;
use crate::output::print;

/// The options of `roci env`.
#[derive(Args)]
#[command(after_help = "\
After that, every program that the shell starts runs as under `roci run`.

Examples:
  eval \"$(roci env)\"                             all programs of this shell
  eval \"$(roci env --devices mlx5_0=127.0.0.2)\"  on a device with this name
  eval \"$(roci env --unset)\"                     back to the system's libraries
  roci env --lines >> \"$GITHUB_ENV\"              all later steps of a job")]
pub(crate) struct Options {
    #[command(flatten)]
    settings: Settings,
    /// Print commands that unset all of these variables, and ROCI_PCAP, ROCI_FAULT and ROCI_DEVICES
    #[arg(long, conflicts_with_all = ["pcap", "fault", "devices"])]
    unset: bool,
    /// Print NAME=value lines instead of commands, for tools that read an environment file
    #[arg(long, conflicts_with = "unset")]
    lines: bool,
}

/// Prints the commands.
pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    let mut script = String::new();
    if options.unset {
        for (name, rest) in without_ours(usual_c_library())? {
            match rest {
                Some(rest) => export(&mut script, name, &rest)?,
                None => writeln!(script, "unset {name}")?,
            }
        }
    } else {
        let environment = Environment::new(&options.settings, Reader::Shell, usual_c_library())?;
        for (name, value) in environment.set() {
            if options.lines {
                line(&mut script, name, value)?;
            } else {
                export(&mut script, name, value)?;
            }
        }
    }
    print(script)
}

fn export(script: &mut String, name: &str, value: &OsStr) -> anyhow::Result<()> {
    Ok(writeln!(
        script,
        "export {name}={}",
        quoted(text(name, value)?)
    )?)
}

fn line(script: &mut String, name: &str, value: &OsStr) -> anyhow::Result<()> {
    let value = text(name, value)?;
    if value.contains('\n') {
        bail!("the value of {name} contains a line break; use paths without one");
    }
    Ok(writeln!(script, "{name}={value}")?)
}

fn text<'a>(name: &str, value: &'a OsStr) -> anyhow::Result<&'a str> {
    value
        .to_str()
        .with_context(|| format!("the value of {name} is not valid UTF-8; use other paths"))
}

/// Quotes a value for a shell.
fn quoted(value: &str) -> String {
    format!("'{}'", value.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shell_reads_quoted_values_unchanged() {
        assert_eq!(quoted("/a b:$c"), "'/a b:$c'");
        assert_eq!(quoted("it's"), r"'it'\''s'");
    }

    #[test]
    fn values_with_a_line_break_are_rejected() {
        let mut lines = String::new();
        line(&mut lines, "A", OsStr::new("/a b'")).expect("one line");
        assert_eq!(lines, "A=/a b'\n");
        line(&mut lines, "A", OsStr::new("/a\nB=")).expect_err("two lines");
    }
}
