//! `roci top`: the RDMA processes of this user, live in a terminal.

#[cfg(feature = "monitor")]
mod column;
#[cfg(feature = "monitor")]
mod details;
#[cfg(feature = "monitor")]
mod filter;
#[cfg(feature = "monitor")]
mod live;
#[cfg(feature = "monitor")]
mod screen;
#[cfg(all(test, feature = "monitor"))]
mod tests;
#[cfg(feature = "monitor")]
mod view;

use std::time::Duration;

use clap::Args;

use super::stat::seconds;

#[cfg(feature = "monitor")]
pub(crate) use live::run;

/// The options of `roci top`.
#[derive(Args)]
#[command(after_help = "\
Shows the devices that running processes of this user have open, and their queue pairs: peer, state, lane, path, rates,
retransmissions, and how full their queues are. It reads what each process publishes, as `roci stat` does; the
processes do not notice. For scripts, use `roci stat --json -i 1`.

Keys:
  up, down, page up, page down   select a queue pair
  Enter, Esc                     show all of a queue pair, and go back
  <, >, r                        sort by another column; reverse the order
  /                              filter: words that a line must contain, or with ! must not
  p                              pause
  ?, q                           help, quit

Examples:
  roci top
  roci top roci_eth0 -i 0.5      one device, twice a second
  roci top --filter '!idle rnr'  only lines with `rnr` and without `idle`")]
pub(crate) struct Options {
    /// Only devices with this name
    #[arg(value_name = "DEVICE")]
    device: Option<String>,
    /// Seconds between two updates
    #[arg(short, long, value_name = "SECONDS", default_value = "1", value_parser = seconds)]
    interval: Duration,
    /// Words that a line must contain, or with ! must not
    #[arg(short, long, value_name = "WORDS", default_value = "")]
    filter: String,
}

#[cfg(not(feature = "monitor"))]
pub(crate) fn run(_options: &Options) -> anyhow::Result<()> {
    crate::left_out("its monitor", "monitor")
}
