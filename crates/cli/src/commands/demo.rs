//! `roci demo`: two processes, every type of RDMA operation, each byte checked.

mod peer;

use std::io::BufReader;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use clap::Args;
use explain::terminal::grouped;
use net::sharing::RuntimeDirectory;
use rocinante::{
    Access, CompletionQueue, Context, Device, DeviceKind, Endpoint, MemoryRegion, OpenError,
    OpenOptions, QueuePair, Request, Status,
};
use serde::{Deserialize, Serialize};

use crate::free_loopback_address;
use crate::json_channel::{JsonChannel, MemoryDescription};
use crate::output::{FAINT, GOOD, STRONG, print_line, styled};

pub(crate) use peer::run as run_peer;

/// The options of `roci demo`.
#[derive(Args)]
#[command(after_help = "\
Examples:
  roci demo
  roci demo --capture /tmp/first.pcapng && wireshark /tmp/first.pcapng
  ROCI_FAULT=loss=5% roci demo        with packet loss
  roci demo -d mlx5_0                 through a device of the system")]
pub(crate) struct Options {
    /// The device that both processes use [default: a loopback address for each]
    #[arg(short, long, value_name = "NAME")]
    device: Option<String>,

    /// The capture file
    #[arg(long, value_name = "FILE", default_value = "roci-demo.pcapng")]
    capture: PathBuf,
}

/// The number of bytes to write and read.
const BULK: usize = 64 * 1024;
/// The offset of the counter for compare-and-swap, after the bulk data.
const COUNTER: usize = BULK;
/// The size of the device memory: the data and the counter.
const DEVICE_MEMORY: usize = BULK + 8;
/// The initial value of the counter.
const BEFORE: u64 = 42;
/// The new value of the counter.
const AFTER: u64 = 1337;
/// The timeout of each step. Longer than any step takes, even with injected losses: all retries of a queue pair together take four seconds,
/// and more on a machine that is busy with other things.
const COMPLETION_TIMEOUT: Duration = Duration::from_secs(15);

/// The messages to the second process.
#[derive(Serialize, Deserialize)]
enum Ask {
    /// Open this device, or an address other than the one that is taken.
    Start {
        device: Option<String>,
        taken: IpAddr,
    },
    /// Connect to this endpoint.
    Connect(String),
    /// Send back the received text.
    Received,
    /// Check that the memory has this pattern.
    Pattern(u32),
    /// Send back the counter.
    Counter,
}

/// The first message of the second process.
#[derive(Serialize, Deserialize)]
struct Introduction {
    address: IpAddr,
    endpoint: String,
    memory: MemoryDescription,
    /// Whether it is device memory. Not every device of the system has some.
    is_device_memory: bool,
}

/// This process's device, and the capture of what it does.
struct OpenedDevice {
    address: IpAddr,
    context: Context,
    /// A device of the system has none.
    capture: Option<PathBuf>,
}

/// Runs the demo.
pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    let opened = match &options.device {
        Some(name) => open_named(name, &options.capture)?,
        None => open(&options.capture, |options| {
            let (_, context) = free_loopback_address::open(None, options)?;
            Ok(context)
        })?,
    };
    let mut demo = Demo::start(&opened, options.device.as_ref())?;
    let how = if is_system(opened.context.device()) {
        format!("through {}", opened.context.name())
    } else {
        "without RDMA hardware".to_owned()
    };
    let title = format!("Two processes on this machine talk RDMA, {how}.");
    print_line(format_args!("\n{}\n", styled(STRONG, title)))?;
    demo.introduce()?;
    demo.send()?;
    demo.write()?;
    demo.read()?;
    demo.swap()?;
    let packets = opened.context.counters().unwrap_or_default();
    let count = grouped(packets.packets_sent + packets.packets_received);
    demo.end()?;
    let Some(capture) = &opened.capture else {
        return print_line("\nAll data is correct.");
    };
    let is_whole = opened.context.capture_path().is_some();
    let capture = capture.display();
    if !is_whole {
        return print_line(format_args!(
            "\nAll data is correct. The capture in {capture} ended early: it lacks packets."
        ));
    }
    print_line(format_args!(
        "\nAll data is correct. All {count} packets are in {capture}:"
    ))?;
    print_line(format_args!("  roci explain {capture}"))?;
    print_line(format_args!("  wireshark {capture}"))
}

/// Opens the device with this name, with a capture if it is one of ours.
fn open_named(name: &str, capture: &Path) -> anyhow::Result<OpenedDevice> {
    let devices = rocinante::devices()?;
    if (devices.iter()).any(|device| device.name == name && is_system(device)) {
        let context = Context::open(name)?;
        return Ok(OpenedDevice {
            address: address_of(&context)?,
            context,
            capture: None,
        });
    }
    open(capture, |options| Context::open_with(name, options))
}

fn is_system(device: &Device) -> bool {
    matches!(device.kind, DeviceKind::System { .. })
}

/// An address of a device.
fn address_of(context: &Context) -> anyhow::Result<IpAddr> {
    let gids = &context.device().gids;
    let ipv4 = gids.iter().find(|entry| entry.address.is_ipv4());
    let entry = ipv4.or(gids.first());
    let name = context.name();
    let advice = format!("{name} has no address: `roci doctor` says what is wrong with it");
    entry.map(|entry| entry.address).context(advice)
}

/// Opens one of our devices, with a capture in the requested file or in a writable directory.
fn open(
    capture: &Path,
    open: impl Fn(&OpenOptions) -> Result<Context, OpenError>,
) -> anyhow::Result<OpenedDevice> {
    let mut paths = paths(capture).into_iter().peekable();
    loop {
        let path = paths.next().expect("the last path returns");
        let options = OpenOptions {
            capture: Some(path.clone()),
            ..OpenOptions::from_env()
        };
        match open(&options) {
            Err(OpenError::Capture(_)) if paths.peek().is_some() => {}
            opened => {
                let context = opened?;
                return Ok(OpenedDevice {
                    address: address_of(&context)?,
                    context,
                    capture: Some(path),
                });
            }
        }
    }
}

/// The possible capture files: in the current directory, in the shared temporary directory (where a file of another
/// user may have the name), and in a directory of this user.
fn paths(capture: &Path) -> Vec<PathBuf> {
    let mut paths = vec![capture.to_owned()];
    if capture.is_relative() {
        paths.push(std::env::temp_dir().join(capture));
        let own = RuntimeDirectory::of_user().ok();
        paths.extend(own.map(|directory| directory.path().join(capture)));
    }
    paths
}

/// The second process. Dropping this ends it.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Both processes, connected.
struct Demo {
    address: IpAddr,
    other: Introduction,
    process: Process,
    channel: JsonChannel<BufReader<ChildStdout>, ChildStdin>,
    completions: CompletionQueue,
    memory: MemoryRegion,
    queue_pair: QueuePair,
}

impl Demo {
    fn start(opened: &OpenedDevice, device: Option<&String>) -> anyhow::Result<Self> {
        let (process, mut channel) = spawn()?;
        channel.send(&Ask::Start {
            device: device.cloned(),
            taken: opened.address,
        })?;
        let context = &opened.context;
        let domain = context.allocate_protection_domain()?;
        let completions = context.create_completion_queue(16)?;
        let memory = domain.allocate_memory(2 * BULK + 8, Access::LOCAL_WRITE)?;
        let prepared = domain.queue_pair_builder(&completions).create_reliable()?;
        let other: Introduction = channel.receive()?;
        channel.send(&Ask::Connect(prepared.endpoint().to_string()))?;
        let queue_pair = prepared.connect(other.endpoint.parse::<Endpoint>()?)?;
        channel.receive::<()>()?;
        Ok(Self {
            address: opened.address,
            other,
            process,
            channel,
            completions,
            memory,
            queue_pair,
        })
    }

    fn introduce(&self) -> anyhow::Result<()> {
        let line = |who: &str, process: u32, address: IpAddr, number: u32| {
            print_line(format_args!(
                "  {who}  process {process}, device on {address}, queue pair {number:#x}"
            ))
        };
        let (here, there) = (self.queue_pair.number(), self.queue_pair.peer().queue_pair);
        line("here ", std::process::id(), self.address, here.value())?;
        line(
            "there",
            self.process.0.id(),
            self.other.address,
            there.value(),
        )?;
        print_line("")
    }

    /// SEND: both sides take part.
    fn send(&mut self) -> anyhow::Result<()> {
        let text = format!("hello from process {}", std::process::id());
        let took = self.carry_out("SEND", Request::send().inline(text.as_bytes()))?;
        let received: String = self.ask(&Ask::Received)?;
        ensure!(
            received == text,
            "SEND: `{text}` was sent and `{received}` arrived; please report this"
        );
        report(
            "SEND",
            took,
            &format!("\"{text}\" arrived in a receive buffer that `there` had posted"),
        )
    }

    /// One-sided operations: the program of the peer does nothing.
    fn write(&mut self) -> anyhow::Result<()> {
        let seed = std::process::id();
        self.memory.write(0, &pattern(seed));
        let request = Request::write(self.other.memory.at(0)).data(self.memory.slice(0..BULK));
        let took = self.carry_out("RDMA WRITE", request)?;
        if let Some(offset) = self.ask::<Option<usize>>(&Ask::Pattern(seed))? {
            bail!("RDMA WRITE: byte {offset} is wrong at the peer; please report this");
        }
        let bytes = grouped(BULK as u64);
        let memory = if self.other.is_device_memory {
            "device memory"
        } else {
            "memory"
        };
        report(
            "RDMA WRITE",
            took,
            &format!("{bytes} bytes written to {memory} of `there`, without its program"),
        )
    }

    fn read(&mut self) -> anyhow::Result<()> {
        let seed = std::process::id();
        let request =
            Request::read(self.other.memory.at(0)).data(self.memory.slice(BULK..2 * BULK));
        let took = self.carry_out("RDMA READ", request)?;
        if let Some(offset) = difference(&self.memory.to_vec(BULK..2 * BULK), seed) {
            bail!("RDMA READ: byte {offset} came back wrong; please report this");
        }
        let bytes = grouped(BULK as u64);
        report(
            "RDMA READ",
            took,
            &format!("{bytes} bytes read back from `there`, all correct"),
        )
    }

    fn swap(&mut self) -> anyhow::Result<()> {
        let (first, took) = self.compare_swap(BEFORE, AFTER)?;
        let (second, _) = self.compare_swap(BEFORE, 0)?;
        let counter: u64 = self.ask(&Ask::Counter)?;
        ensure!(
            (first, second, counter) == (BEFORE, AFTER, AFTER),
            "COMPARE-AND-SWAP: found {first}, then {second}, and {counter} was left; \
             expected {BEFORE}, {AFTER} and {AFTER}; please report this"
        );
        report(
            "COMPARE-AND-SWAP",
            took,
            &format!(
                "{BEFORE} became {AFTER}; a second one that expected {BEFORE} changed nothing"
            ),
        )
    }

    /// Executes one compare-and-swap. Returns the previous value and the time.
    fn compare_swap(&mut self, compare: u64, swap: u64) -> anyhow::Result<(u64, Duration)> {
        let found = 2 * BULK..2 * BULK + 8;
        let remote = self.other.memory.at(COUNTER as u64);
        let request = Request::compare_swap(remote, compare, swap);
        let request = request.data(self.memory.slice(found.clone()));
        let took = self.carry_out("COMPARE-AND-SWAP", request)?;
        let mut bytes = [0; 8];
        self.memory.read(found.start, &mut bytes);
        Ok((u64::from_ne_bytes(bytes), took))
    }

    /// Posts a request and waits for its completion.
    fn carry_out(&self, name: &str, request: Request) -> anyhow::Result<Duration> {
        let begin = Instant::now();
        self.queue_pair.post_send(request)?;
        let completion = self
            .completions
            .wait_for(COMPLETION_TIMEOUT)
            .with_context(|| {
                format!("{name} did not complete in time; run `roci doctor` to find out why")
            })?;
        let status = completion.status;
        ensure!(
            status == Status::Success,
            "{name} failed: {status}; run `roci doctor` to find out why"
        );
        Ok(begin.elapsed())
    }

    fn ask<T: serde::de::DeserializeOwned>(&mut self, question: &Ask) -> anyhow::Result<T> {
        self.channel.send(question)?;
        self.channel.receive()
    }

    /// Ends the second process, by closing the channel to it.
    fn end(self) -> anyhow::Result<()> {
        drop(self.channel);
        let mut process = self.process;
        let ended = process.0.wait()?;
        ensure!(
            ended.success(),
            "the other process failed ({ended}); its error message is above"
        );
        Ok(())
    }
}

fn spawn() -> anyhow::Result<(Process, JsonChannel<BufReader<ChildStdout>, ChildStdin>)> {
    let program = std::env::current_exe().context("the path of the roci executable is unknown")?;
    let mut child = Command::new(program)
        .arg("demo-peer")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .context("a second process can't be started")?;
    let output = child.stdout.take().expect("its output is a pipe");
    let input = child.stdin.take().expect("its input is a pipe");
    let channel = JsonChannel::new(BufReader::new(output), input);
    Ok((Process(child), channel))
}

fn report(name: &str, took: Duration, sentence: &str) -> anyhow::Result<()> {
    print_line(format_args!(
        "  {} {} {sentence} {}",
        styled(GOOD, "ok"),
        styled(STRONG, format_args!("{name:<16}")),
        styled(
            FAINT,
            format_args!("({} µs)", grouped(took.as_micros() as u64))
        )
    ))
}

/// Bytes without an obvious period: a packet at the wrong offset is detected.
fn pattern(seed: u32) -> Vec<u8> {
    let mut state = seed | 1;
    let step = |_| {
        // Marsaglia's xorshift.
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        state as u8
    };
    (0..BULK).map(step).collect()
}

/// The offset of the first byte that differs from the pattern.
fn difference(bytes: &[u8], seed: u32) -> Option<usize> {
    let expected = pattern(seed);
    let mut pairs = bytes.iter().zip(&expected);
    pairs.position(|(found, expected)| found != expected)
}
