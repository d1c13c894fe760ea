//! `roci env`: the environment of `roci run`, for a shell.

use std::ffi::OsStr;
use std::fmt::Write as _;

use anyhow::Context as _;
use clap::Args;

use super::run::environment::{Environment, Settings, without_ours};
use crate::output::print;

/// What to set.
#[derive(Args)]
#[command(after_help = "\
From then on, every program that the shell starts runs as under `roci run`.

Examples:
  eval \"$(roci env)\"                             all programs of this shell
  eval \"$(roci env --devices mlx5_0=127.0.0.2)\"  on a device with this name
  eval \"$(roci env --unset)\"                     back to the machine's own libraries")]
pub(crate) struct Options {
    #[command(flatten)]
    settings: Settings,
    /// Take it all back, ROCI_PCAP, ROCI_FAULT and ROCI_DEVICES included
    #[arg(long, conflicts_with_all = ["pcap", "fault", "devices"])]
    unset: bool,
}

/// Prints commands for a shell.
pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    let mut script = String::new();
    if options.unset {
        for (name, rest) in without_ours()? {
            match rest {
                Some(rest) => export(&mut script, name, &rest)?,
                None => writeln!(script, "unset {name}")?,
            }
        }
    } else {
        for (name, value) in Environment::new(&options.settings)?.set() {
            export(&mut script, name, value)?;
        }
    }
    print(script)
}

fn export(script: &mut String, name: &str, value: &OsStr) -> anyhow::Result<()> {
    let value = value
        .to_str()
        .with_context(|| format!("{name} would be no text; choose paths that are"))?;
    Ok(writeln!(script, "export {name}={}", quoted(value))?)
}

/// In quotes that leave nothing for the shell to do.
fn quoted(value: &str) -> String {
    format!("'{}'", value.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_shell_reads_what_was_meant() {
        assert_eq!(super::quoted("/a b:$c"), "'/a b:$c'");
        assert_eq!(super::quoted("it's"), r"'it'\''s'");
    }
}
