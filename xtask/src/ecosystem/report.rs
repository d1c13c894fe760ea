//! The scoreboard for the docs.

use std::fmt::Write as _;

use super::Line;
use super::list::Entry;
use crate::programs::list::Server;

const INTRODUCTION: &str = "\
# The wider ecosystem

`cargo xtask ecosystem --full` runs these, unmodified, on Rocinante devices of two network namespaces that
are joined by a veth pair (10.77.0.1 and 10.77.0.2), and writes this table. Without `--full`, and in `cargo
xtask test`, it runs those that are quick.

A row works when all processes end well, the data is right as far as the program looks at it, and enough
packets went over the device. Every command runs under `roci run --devices roci0=10.77.0.N --`.

";

/// The file.
pub(super) fn document(lines: &[Line]) -> String {
    let mut text = INTRODUCTION.to_owned();
    text.push_str("| program | version | command | result | remark |\n|---|---|---|---|---|\n");
    for line in lines {
        let (entry, version, result) = (&line.entry, &line.version, line.outcome.word());
        let _ = writeln!(
            text,
            "{} {version} | {} | {result} | {} |",
            beginning(entry),
            commands(entry),
            entry.remark
        );
    }
    text.push_str(BY_HAND);
    text
}

/// The first cell of a row.
fn beginning(entry: &Entry) -> String {
    format!("| {}, {} |", entry.row.program, entry.row.options)
}

/// As one would type them.
fn commands(entry: &Entry) -> String {
    let server = match &entry.row.server {
        Server::None => None,
        Server::Ends(line, _) | Server::Stays(line, _) => Some(line),
    };
    let lines = server.into_iter().chain(&entry.row.client);
    let shown: Vec<String> = lines.map(|line| format!("`{}`", filled_in(line))).collect();
    shown.join("<br>")
}

fn filled_in(line: &str) -> String {
    line.replace("{device}", "roci0")
        .replace("{address}", "10.77.0.1")
        .replace("{gid}", "0")
        .replace("{scripts}/", "")
        .replace("{scratch}", "/tmp")
        // The shell would end the command there.
        .replace("verbs;", "verbs\\;")
}

const BY_HAND: &str = "
## Tried by hand

| program | version | command | result | remark |
|---|---|---|---|---|
| ibstat, ibstatus | 44.0-2 | `ibstat` | works | from the files that `roci run` shows |
| ibhosts, ibaddr and others of infiniband-diags | 44.0-2 | `ibhosts` | can't | *is ib_umad module loaded?*: they talk to a subnet manager, which RoCE doesn't have |
| srp_daemon | 44.0-2 | `srp_daemon -c -o` | can't | SRP is spoken by the kernel, to targets that a subnet manager knows |
| iperf | 2.1.8 | `LD_PRELOAD=…/librspreload.so iperf -c 10.77.0.1` | works | over rsockets |
| sideway | 0.4.3 | its own tests (`test_cq`, `test_qp`, `test_atomic`, `test_mr_and_cq`, `test_post_send`) | works | `test_post_send` sleeps for a moment where it should wait, which can be too short on a busy machine |
| async-rdma | 0.5.0 | `cargo build` | can't | it can't be built from crates.io any more: it wants a version of `simd-abstraction` that was withdrawn |
| glusterfs | 10.3 | – | can't | the project removed its RDMA transport in version 8 |
| ceph | 16.2 | – | not tried | Debian has no program that uses its messenger alone |
| gloo | 0.0~git20220518 | – | not tried | Debian has the library with its ibverbs transport, and no program |

Nothing else in Debian 12 is linked with libibverbs or librdmacm, except DPDK's drivers for Mellanox's cards and the
tools of Omni-Path.
";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ecosystem::list::entries;

    #[test]
    fn the_scoreboard_in_the_docs_has_the_rows_of_the_list() {
        let document = include_str!("../../../docs/ecosystem.md");
        let rows: Vec<&str> = document
            .lines()
            .skip_while(|line| !line.starts_with("|---"))
            .skip(1)
            .take_while(|line| line.starts_with("| "))
            .collect();
        let entries = entries();
        assert_eq!(
            rows.len(),
            entries.len(),
            "run `cargo xtask ecosystem --full`"
        );
        for (row, entry) in rows.iter().zip(&entries) {
            assert!(
                row.starts_with(&beginning(entry)),
                "{row}: run `cargo xtask ecosystem --full`"
            );
        }
    }
}
