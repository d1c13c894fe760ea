//! `cargo xtask bench --network`: RDMA and TCP over emulated links, in alternating rounds.
//!
//! The link is `crates/net/examples/link_emulator.rs`, between two network namespaces. `roci perf` measures both RDMA and
//! TCP on it, TCP once with each congestion control.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use std::{env, thread};

use serde_json::Value;

use crate::interop::namespace;
use xtask::command::{CommandLine, call};

/// The builds before the measurements.
const BUILDS: [&str; 2] = [
    "build --release -p roci",
    "build --release -p rocinante-net --example link_emulator",
];

const ROUNDS: usize = 3;

/// How long RDMA, and then TCP, sends in one round.
const SECONDS: &str = "2";

/// How long one round may take; a server that does not start, or a connection that hangs, ends the run.
const ROUND_TIMEOUT: Duration = Duration::from_secs(60);

/// How long the whole run may take.
const RUN_TIMEOUT: Duration = Duration::from_secs(1800);

const CONGESTION_CONTROLS: [&str; 2] = ["cubic", "bbr"];

/// The network of the link.
const NETWORK: &str = "10.213.0.0/24";

/// The namespace of the server.
const FAR: &str = "far";

const ADDRESSES: [&str; 2] = ["10.213.0.1", "10.213.0.2"];

/// A link: its name in the table, and the arguments of the emulator. `delay` is half of the round trip.
struct Scenario(&'static str, &'static str);

const SCENARIOS: [Scenario; 12] = [
    Scenario("unlimited", ""),
    Scenario("unlimited, loss 0.1 %", "loss=0.1"),
    Scenario("unlimited, loss 1 %", "loss=1"),
    Scenario("300 Mbit/s, 1 ms, queue 50", "rate=300 delay=0.5 queue=50"),
    Scenario("1 Gbit/s, 1 ms, queue 100", "rate=1000 delay=0.5 queue=100"),
    Scenario("300 Mbit/s, 1 ms, queue 1000", "rate=300 delay=0.5"),
    Scenario("300 Mbit/s, 1 ms, loss 1 %", "rate=300 delay=0.5 loss=1"),
    Scenario("300 Mbit/s, 1 ms, 1 % late", "rate=300 delay=0.5 late=1"),
    Scenario("200 Mbit/s, 50 ms", "rate=200 delay=25"),
    Scenario(
        "200 Mbit/s, 50 ms, loss 0.1 %",
        "rate=200 delay=25 loss=0.1",
    ),
    Scenario("200 Mbit/s, 50 ms, loss 1 %", "rate=200 delay=25 loss=1"),
    Scenario("1 Gbit/s, 20 ms", "rate=1000 delay=10 queue=2000"),
];

/// Builds, and runs this program again in namespaces of its own.
pub(crate) fn run(root: &Path, name: &str) -> Result<(), String> {
    if !namespace::works() {
        return Err(
            "an emulated link needs network namespaces and /dev/net/tun: run as root, or allow user namespaces".into(),
        );
    }
    for build in BUILDS.map(CommandLine::cargo) {
        if !build.run(root).is_ok_and(|built| built) {
            return Err(format!("`{build}` failed"));
        }
    }
    let words = ["bench", "--network", "--inside", name].map(str::to_owned);
    namespace::run_inside(&words, Instant::now() + RUN_TIMEOUT)
}

/// Inside the namespaces: measures on each link whose name contains `name`, and prints the table.
pub(crate) fn run_inside(name: &str) -> Result<(), String> {
    namespace::end_with_the_outside();
    call(Command::new("mount").args(["-t", "tmpfs", "-o", "mode=0700", "tmpfs", "/run"]))?;
    let built = release_build()?;
    println!("MB/s: median (least – most) of {ROUNDS} rounds");
    println!("{:<32}{:>20}{:>20}{:>20}", "", "RDMA", "CUBIC", "BBR");
    for Scenario(title, link) in SCENARIOS.iter().filter(|it| it.0.contains(name)) {
        let _link = Link::create(&built, link)?;
        let mut rates = [vec![], vec![], vec![]];
        for _ in 0..ROUNDS {
            for (index, control) in CONGESTION_CONTROLS.iter().enumerate() {
                ip(&format!(
                    "route replace {NETWORK} dev near congctl {control}"
                ))?;
                let [rdma, tcp] = measured(&built)?;
                rates[0].push(rdma);
                rates[index + 1].push(tcp);
            }
        }
        println!("{title:<32}{}", rates.map(shown).concat());
    }
    Ok(())
}

/// The emulator of one link. Dropping it removes the devices and the namespace.
struct Link(Child);

impl Link {
    fn create(built: &Path, properties: &str) -> Result<Self, String> {
        let emulator = built.join("examples/link_emulator");
        let mut command = Command::new("chrt");
        command.args(["-f", "50"]).arg(&emulator);
        // Only root may have a real-time priority.
        if call(Command::new("chrt").args(["-f", "50", "true"])).is_err() {
            command = Command::new(&emulator);
        }
        command
            .args(["near", FAR])
            .args(properties.split_whitespace())
            .stdout(Stdio::piped());
        let started = command.spawn();
        let mut link = Self(started.map_err(|error| format!("the emulator: {error}"))?);
        wait_for_line(&mut link.0)?;
        ip(&format!("netns add {FAR}"))?;
        ip(&format!("link set {FAR} netns {FAR}"))?;
        for (inside, device, address) in [
            (String::new(), "near", ADDRESSES[0]),
            (format!("-n {FAR} "), FAR, ADDRESSES[1]),
        ] {
            ip(&format!("{inside}address add {address}/24 dev {device}"))?;
            ip(&format!(
                "{inside}link set {device} mtu 1500 txqueuelen 10000 up"
            ))?;
            ip(&format!("{inside}link set lo up"))?;
        }
        Ok(link)
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
        let _ = ip(&format!("netns delete {FAR}"));
    }
}

/// Megabytes per second of RDMA and of TCP, in one round.
fn measured(built: &Path) -> Result<[f64; 2], String> {
    let roci = built.join("roci");
    let mut server = Command::new("ip");
    server.args(["netns", "exec", FAR]).arg(&roci);
    server.args(["perf", "write-bw"]).stdout(Stdio::piped());
    let started = server.stdin(Stdio::null()).spawn();
    let mut server = started.map_err(|error| format!("the server: {error}"))?;
    let mut client = Command::new("timeout");
    client.arg(ROUND_TIMEOUT.as_secs().to_string()).arg(&roci);
    client.args(["perf", "write-bw", ADDRESSES[1], "-s", "64K", "-t", "16"]);
    client.args(["-D", SECONDS, "--vs-tcp", "--rounds", "1", "--json"]);
    let result = wait_for_line(&mut server)
        .and_then(|()| client.output().map_err(|error| error.to_string()));
    let _ = server.kill();
    let _ = server.wait();
    let output = result?;
    if !output.status.success() {
        let errors = String::from_utf8_lossy(&output.stderr);
        return Err(format!("roci perf failed: {}", errors.trim()));
    }
    let report: Value =
        serde_json::from_slice(&output.stdout).map_err(|error| error.to_string())?;
    let row = &report["results"][0];
    let rates = [&row["average_mib_per_second"], &row["tcp"]["tcp"]];
    let rates = rates.map(|rate| rate.as_f64().unwrap_or(f64::NAN));
    Ok(rates.map(|mebibytes| mebibytes * 1.048_576))
}

/// Waits until a program says that it is ready.
fn wait_for_line(program: &mut Child) -> Result<(), String> {
    let output = program.stdout.take().ok_or("its output is a pipe")?;
    let mut reader = BufReader::new(output);
    let mut line = String::new();
    let read = reader.read_line(&mut line);
    read.map_err(|error| error.to_string())?;
    if line.is_empty() {
        return Err("a program has ended at once: see above".into());
    }
    // A program whose output nobody reads would end.
    thread::spawn(move || std::io::copy(&mut reader, &mut std::io::sink()));
    Ok(())
}

fn ip(words: &str) -> Result<(), String> {
    call(Command::new("ip").args(words.split_whitespace()))
}

fn shown(mut rates: Vec<f64>) -> String {
    rates.sort_by(f64::total_cmp);
    let (least, most) = (rates[0], rates[rates.len() - 1]);
    let range = format!("{:.1} ({least:.1} – {most:.1})", rates[rates.len() / 2]);
    format!("{range:>20}")
}

/// The directory beside the one of the unoptimised build, in which we are.
fn release_build() -> Result<PathBuf, String> {
    let ours = env::current_exe().map_err(|error| error.to_string())?;
    let directory = ours.parent().and_then(Path::parent);
    Ok(directory
        .ok_or("a program is in a directory")?
        .join("release"))
}
