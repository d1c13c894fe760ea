//! `roci link`: adds, deletes and shows links: named devices that stay until they are deleted.

use anyhow::{Context as _, bail};
use clap::{Args, Subcommand};
use net::socket::interface::{self, Link, Links};
use serde::Serialize;
use system::Tree;

use crate::find_device::{self, SOFTWARE};
use crate::output::{Table, print, print_json, print_line};

/// The options of `roci link`.
#[derive(Args)]
#[command(after_help = "\
A link is a device with a name of your own, as with `rdma link add`. It is stored in
~/.config/roci/links until it is deleted. Its addresses move
to it from the automatic device of the interface. RDMA devices of the system are shown, too; `rdma link`
adds and deletes them.

Examples:
  roci link                                   show the links
  roci link add rxe0 netdev eth0              a device called rxe0 on eth0
  roci link add mlx5_0 netdev 127.0.0.2       a second device on loopback
  roci link del rxe0")]
pub(crate) struct Options {
    #[command(subcommand)]
    action: Option<Action>,
    /// Print JSON, for scripts
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Subcommand)]
enum Action {
    /// Show the links
    Show,
    /// Add a link
    #[command(override_usage = "roci link add NAME netdev INTERFACE|ADDRESS")]
    Add {
        /// The name of the new device
        name: String,
        /// The word `netdev`, then an interface, or addresses joined by `+`
        #[arg(required = true, num_args = 2..=4, value_names = ["netdev", "INTERFACE|ADDRESS"])]
        netdev: Vec<String>,
    },
    /// Delete a link
    #[command(visible_alias = "delete")]
    Del {
        /// The name of the device
        name: String,
    },
}

#[derive(Serialize)]
struct Row {
    name: String,
    netdev: String,
    /// `software`, or the driver of a device of the system.
    kind: String,
}

/// Shows or changes the links.
pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    let links = Links::of_user()
        .context("there is no place to keep links; set HOME or XDG_CONFIG_HOME to a directory")?;
    match &options.action {
        None | Some(Action::Show) => show(&links, options.json),
        Some(Action::Add { name, netdev }) => {
            refuse_name_of_system(name)?;
            links.add(
                &Link::new(name, target(netdev)?)?,
                &interface::interfaces()?,
            )?;
            answer(
                &links,
                options.json,
                &format!("{name} is a device now; `roci devinfo {name}` shows it"),
            )
        }
        Some(Action::Del { name }) => {
            links.remove(name)?;
            answer(
                &links,
                options.json,
                &format!("{name} is no device any more"),
            )
        }
    }
}

/// Fails if the system has a device with this name: a program could not say which one it means.
fn refuse_name_of_system(name: &str) -> anyhow::Result<()> {
    let mut devices = Tree::of_machine().devices().into_iter();
    match devices.find(|device| device.name == name) {
        None => Ok(()),
        Some(device) => bail!(
            "the system has an RDMA device `{name}` ({}); choose another name for the link",
            device.kind
        ),
    }
}

/// The argument after `netdev`. The words `type rxe` may precede it, as in `rdma link add`.
fn target(words: &[String]) -> anyhow::Result<&str> {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["netdev", target] | ["type", _, "netdev", target] => Ok(target),
        _ => bail!(
            "`{}` is not how a link is described; write `roci link add NAME netdev INTERFACE`",
            words.join(" ")
        ),
    }
}

fn answer(links: &Links, json: bool, sentence: &str) -> anyhow::Result<()> {
    if json {
        show(links, json)
    } else {
        print_line(sentence)
    }
}

fn show(links: &Links, json: bool) -> anyhow::Result<()> {
    let row = |link: &Link| Row {
        name: link.name().to_owned(),
        netdev: link.target(),
        kind: SOFTWARE.to_owned(),
    };
    let system_row = |device: system::Device| Row {
        netdev: device
            .ports
            .iter()
            .find_map(|port| port.interface.clone())
            .unwrap_or_default(),
        kind: format!("system: {}", device.kind),
        name: device.name,
    };
    let system = find_device::of_system()?.into_iter().map(system_row);
    let rows: Vec<Row> = links.list()?.iter().map(row).chain(system).collect();
    if json {
        return print_json(&rows);
    }
    if rows.is_empty() {
        return print_line(
            "There are no links; `roci link add NAME netdev INTERFACE` adds one. \
             The other devices need none: see `roci devices`.",
        );
    }
    let mut table = Table::new(["LINK", "NETDEV", "KIND"]);
    for row in rows {
        table.push([row.name, row.netdev, row.kind]);
    }
    print(table)
}
