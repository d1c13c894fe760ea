//! Unmodified programs and libraries that use RDMA, under `roci run`: machine learning, MPI, storage, RPC, bindings for
//! other languages.

mod entry;
mod evidence;
mod prerequisites;
mod python;
mod report;
mod rows;

use std::fs;
use std::path::Path;
use std::time::Instant;

use clap::Args;
use xtask::command::program_beside_us;
use xtask::debian::{self, Package};
use xtask::scratch::Scratch;

use crate::programs::network::{Family, Network, TestNetworks, VETH};
use crate::programs::report::Outcome;
use crate::programs::session::{Session, Tools};
use crate::programs::{self, findings, judge};
use entry::{Effort, Entry};
use prerequisites::Supply;

/// The scoreboard.
const DOCUMENT: &str = "docs/ecosystem.md";

/// What the rows of every run need. The first ones are not programs of RDMA.
const PACKAGES: [Package; 11] = [
    ("iproute2", "/usr/bin/ip"),
    ("gcc", "/usr/bin/gcc"),
    ("ucx-utils", "/usr/bin/ucx_perftest"),
    ("libucx-dev", "/usr/include/ucp/api/ucp.h"),
    ("libfabric-bin", "/usr/bin/fi_pingpong"),
    ("openmpi-bin", "/usr/bin/mpirun.openmpi"),
    ("libopenmpi-dev", "/usr/bin/mpicc.openmpi"),
    ("mpich", "/usr/bin/mpiexec.mpich"),
    ("libmpich-dev", "/usr/bin/mpicc.mpich"),
    ("fio", "/usr/bin/fio"),
    ("libibverbs-dev", "/usr/include/infiniband/verbs.h"),
];

/// What the other rows need.
const MORE_PACKAGES: [Package; 15] = [
    ("dapl2-utils", "/usr/bin/dtest"),
    ("iperf3", "/usr/bin/iperf3"),
    ("tgt", "/usr/sbin/tgtd"),
    ("libiscsi-bin", "/usr/bin/iscsi-inq"),
    ("qemu-system-x86", "/usr/bin/qemu-system-x86_64"),
    ("librdmacm-dev", "/usr/include/rdma/rdma_cma.h"),
    ("libclang-dev", "/usr/share/doc/libclang-dev"),
    ("cmake", "/usr/bin/cmake"),
    ("libgloo-dev", "/usr/include/gloo/allreduce_ring.h"),
    ("g++", "/usr/bin/g++"),
    ("netpipe-openmpi", "/usr/bin/NPopenmpi"),
    ("netpipe-mpich2", "/usr/bin/NPmpich2"),
    ("hpcc", "/usr/bin/hpcc"),
    ("r-cran-rmpi", "/usr/lib/R/site-library/Rmpi"),
    (
        "scalapack-mpi-test",
        "/usr/lib/x86_64-linux-gnu/scalapack/openmpi-tests",
    ),
];

/// Which programs to run.
#[derive(Args)]
pub(crate) struct Options {
    /// Also run the slow programs, and write docs/ecosystem.md
    #[arg(long)]
    full: bool,
    /// Check the programs as `roci run --check` does, and write nothing
    #[arg(long)]
    check: bool,
    /// Run only programs whose name contains this, slow ones included, and write nothing
    #[arg(default_value = "")]
    name: String,
}

/// Why these programs can't run here; `None` if they can.
pub(crate) fn missing() -> Option<String> {
    if debian::are_we_root() {
        debian::missing(&PACKAGES)
    } else {
        Some("only root can make network namespaces".into())
    }
}

/// Runs the quick programs. Fails if one of them fails.
pub(crate) fn check(root: &Path) -> Result<(), String> {
    run(root, false, |entry| entry.effort == Effort::Small)?.verdict()
}

/// Runs the requested programs, and writes the scoreboard if those are all.
pub(crate) fn write(root: &Path, options: &Options) -> Result<(), String> {
    if let Some(missing) = missing() {
        return Err(missing);
    }
    let everything = options.full && options.name.is_empty() && !options.check;
    let results = run(root, options.check, |entry| match options.name.as_str() {
        "" => options.full || entry.effort == Effort::Small,
        name => entry.row.program.contains(name),
    })?;
    if everything && !results.is_complete() {
        println!("{DOCUMENT} stays as it is: it tells of all programs, and some were left out");
    } else if everything {
        let path = root.join(DOCUMENT);
        fs::write(&path, report::document(&results.lines))
            .map_err(|error| format!("{DOCUMENT} can't be written: {error}"))?;
        println!("the scoreboard is in {DOCUMENT}");
    }
    results.verdict()
}

/// An entry and its result.
pub(crate) struct Line {
    entry: Entry,
    version: String,
    outcome: Outcome,
}

struct Results {
    lines: Vec<Line>,
    failures: Vec<String>,
}

impl Results {
    fn is_complete(&self) -> bool {
        let mut outcomes = self.lines.iter().map(|line| line.outcome);
        outcomes.all(|outcome| outcome != Outcome::LeftOut)
    }

    fn verdict(&self) -> Result<(), String> {
        match self.failures.len() {
            0 => Ok(()),
            number => Err(format!(
                "{}\n\n{number} programs failed",
                self.failures.join("\n\n")
            )),
        }
    }
}

fn run(root: &Path, checked: bool, wanted: impl Fn(&Entry) -> bool) -> Result<Results, String> {
    let mut entries = rows::entries();
    entries.retain(wanted);
    if entries.is_empty() {
        return Err("no program has that in its name".into());
    }
    programs::build(root)?;
    let scratch = Scratch::new("ecosystem")?;
    let Supply {
        directory,
        entries,
        left_out,
    } = prerequisites::prepare(root, entries)?;
    let tools = Tools {
        roci: program_beside_us("roci")?,
        scripts: directory,
        scratch: scratch.0.clone(),
        sockets_only: true,
        checked,
    };
    let test_networks = TestNetworks::with_namespaces(0)?;
    let mut networks = test_networks.networks.iter();
    let network = networks.find(|network| network.name == VETH);
    let network = network.expect("test networks with namespaces have a veth pair");
    let mut results = run_entries(&tools, entries, network)?;
    for it in left_out {
        let (row, why) = (&it.entry.row, it.why);
        println!("left out         {} {}: {why}", row.program, row.options);
        results.lines.push(Line {
            entry: it.entry,
            version: String::new(),
            outcome: Outcome::LeftOut,
        });
    }
    Ok(results)
}

fn run_entries(tools: &Tools, entries: Vec<Entry>, network: &Network) -> Result<Results, String> {
    let started = Instant::now();
    let mut results = Results {
        lines: Vec::new(),
        failures: Vec::new(),
    };
    for (number, entry) in entries.into_iter().enumerate() {
        let begun = Instant::now();
        let session = Session {
            tools,
            row: &entry.row,
            network,
            family: Family::V4,
            number,
        };
        let result = run_entry(&session, entry.datagrams);
        let (outcome, complaint) = judge(&entry.row, result);
        let seconds = begun.elapsed().as_secs_f32();
        let run = format!("{} {}", entry.row.program, entry.row.options);
        println!("{:<8} {seconds:>5.1} s  {run}", outcome.word());
        let complaint = complaint.or_else(|| findings::judge(&session));
        let complaint = complaint.map(|why| format!("--- {run}\n{why}"));
        results.failures.extend(complaint);
        let version = entry.origin.version()?;
        results.lines.push(Line {
            entry,
            version,
            outcome,
        });
    }
    println!("{:.0} s", started.elapsed().as_secs_f32());
    Ok(results)
}

/// One run, and a check that at least `expected` datagrams went over our device.
fn run_entry(session: &Session<'_>, expected: u64) -> Result<(), String> {
    let before = evidence::datagrams(session.network)?;
    session.run()?;
    let seen = evidence::datagrams(session.network)? - before;
    if seen >= expected {
        Ok(())
    } else {
        Err(format!(
            "only {seen} datagrams came, and {expected} must: it went another way than over our device"
        ))
    }
}
