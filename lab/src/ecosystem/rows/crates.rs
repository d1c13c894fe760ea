//! Rust crates, by their own examples.

use super::super::entry::Field::{self, Libraries, Mpi};
use super::super::entry::{Crate, Entry, Origin};
use super::mpi::open_over_ucx;
use crate::programs::list::{Ready, Row, ends, stays};

/// Where the examples that exchange addresses wait.
const EXCHANGE_PORT: u16 = 18515;

const IBVERBS: Crate = Crate {
    name: "ibverbs",
    version: "0.9.2",
    examples: &[],
};
const MPI: Crate = Crate {
    name: "mpi",
    version: "0.8.2",
    examples: &["all_to_all", "immediate_reduce", "structured"],
};
const MUMMY: Crate = Crate {
    name: "rdma-mummy-sys",
    version: "0.2.6",
    examples: &[],
};
const RDMA_SYS: Crate = Crate {
    name: "rdma-sys",
    version: "0.3.0",
    examples: &[],
};
/// Another of its examples does not compile.
const RRDDMMA: Crate = Crate {
    name: "rrddmma",
    version: "0.7.3",
    examples: &["loopback"],
};
const SIDEWAY: Crate = Crate {
    name: "sideway",
    version: "0.4.3",
    examples: &[],
};

/// Some examples know one device only.
const AS_MLX5: &str = "{roci} run --devices mlx5_0={own} --";

pub(super) fn entries() -> Vec<Entry> {
    let groups = [alone(), sideway(), pairs(), over_mpi()];
    let entries = groups.into_iter().flatten();
    entries.map(Entry::large).collect()
}

/// The path of an example.
fn example(it: &Crate, example: &str) -> String {
    format!("{{scripts}}/{}/bin/{example}", it.name)
}

fn entry(field: Field, it: &'static Crate, row: Row) -> Entry {
    Entry::new(field, Origin::Crate(it), row)
}

fn run(it: &'static Crate, name: &str, line: String, prints: &'static str) -> Row {
    Row {
        client: Some(line),
        ..Row::alone(it.name, name, prints)
    }
}

fn alone() -> Vec<Entry> {
    let own = |it: &'static Crate, name: &str, prints| run(it, name, example(it, name), prints);
    let mlx5 = |it: &'static Crate, name: &str, prints| {
        run(it, name, format!("{AS_MLX5} {}", example(it, name)), prints)
    };
    vec![
        entry(Libraries, &IBVERBS, own(&IBVERBS, "loopback", "received"))
            .few()
            .checks("a message to itself, printed as it came"),
        entry(Libraries, &RRDDMMA, mlx5(&RRDDMMA, "loopback", "elapsed"))
            .few()
            .checks("write and read of 4 KiB, compared"),
    ]
}

fn sideway() -> Vec<Entry> {
    let looking = |name: &str| {
        entry(
            Libraries,
            &SIDEWAY,
            run(&SIDEWAY, name, example(&SIDEWAY, name), "roci0"),
        )
        .silent()
        .checks("shows the device and its GIDs")
    };
    let pingpong = |name: &str| {
        let line = format!(
            "{} -d {{device}} -g {{gid}} -n 200",
            example(&SIDEWAY, name)
        );
        let server = ends(&line, Ready::Tcp(EXCHANGE_PORT));
        let row = Row::pair(SIDEWAY.name, server, &format!("{line} {{address}}"));
        entry(Libraries, &SIDEWAY, row.options(name)).checks("200 round trips")
    };
    let cmtime = example(&SIDEWAY, "cmtime");
    let cmtime = Row::pair(
        SIDEWAY.name,
        stays(&format!("{cmtime} -b {{address}}"), Ready::BusyService),
        &format!("{cmtime} -s {{address}} -c 20"),
    );
    vec![
        looking("ibv_devinfo"),
        looking("show_gids"),
        pingpong("rc_pingpong"),
        pingpong("rc_pingpong_split"),
        entry(Libraries, &SIDEWAY, cmtime.options("cmtime"))
            .few()
            .checks("20 connections"),
    ]
}

fn pairs() -> Vec<Entry> {
    let pair = |it: &'static Crate| {
        let row = Row::pair(
            it.name,
            ends(&example(it, "server"), Ready::Service),
            &format!("{} {{address}} 7471", example(it, "client")),
        );
        entry(
            Libraries,
            it,
            row.options("server, client").prints("rdma_client: end"),
        )
        .few()
        .checks("connects, and a message goes there and back")
    };
    vec![pair(&RDMA_SYS), pair(&MUMMY)]
}

/// Those of rsmpi assert what they receive.
fn over_mpi() -> Vec<Entry> {
    let over = |name: &str| {
        let line = format!("{} -n 2 {}", open_over_ucx("rc_v"), example(&MPI, name));
        entry(Mpi, &MPI, run(&MPI, name, line, ""))
            .few()
            .checks("rsmpi over Open MPI and UCX; they compare what they receive")
    };
    MPI.examples.iter().map(|name| over(name)).collect()
}
