//! `roci perf`: measures bandwidth and latency, with the options and tables of perftest.
//!
//! The server needs no options: it uses the client's [parameters](test_parameters::TestParameters), which it receives over a
//! TCP connection together with everything else that RDMA needs to begin.
//!
//! From the bottom up: the [`options`] become [`test_parameters`]. [`local_device`] opens the device, and
//! [`queue_pairs`] has the verbs objects of one side. [`bandwidth`] and [`latency`] measure with them,
//! [`tcp`] without. [`client`] and [`server`] exchange orders ([`control_connection`]); the client prints the
//! [`report`].

mod bandwidth;
mod client;
mod control_connection;
mod html_report;
mod latency;
mod local_device;
mod options;
mod progress;
mod queue_pairs;
mod report;
mod server;
mod stall_timer;
mod tcp;
mod test_parameters;
mod throughput;

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Child, ChildStdout, Command, ExitCode, Stdio};

use anyhow::{Context as _, bail};

pub(crate) use options::Options;

use crate::output::remark;

/// Runs the client or the server.
pub(crate) fn run(options: &Options) -> anyhow::Result<ExitCode> {
    if options.local {
        // Check the options before a server is started.
        options.parameters()?;
        if options.gid_index.is_some() && options.device.is_none() {
            bail!(
                "-x chooses an address of a device, and --local uses loopback: name the device with -d, or leave out -x"
            );
        }
        let Some((mut server, address)) = start_server(options)? else {
            // The server has said why.
            return Ok(ExitCode::FAILURE);
        };
        let mut unused = client::run(options, &address.ip().to_string(), address.port())?;
        let at_server = server.unused_faults();
        unused.retain(|fault| at_server.contains(fault));
        remark_unused_faults("no packet", &unused);
    } else if let Some(server) = &options.server {
        remark_unused_faults(
            "no packet at this end",
            &client::run(options, server, options.port)?,
        );
    } else {
        remark_unused_faults("no packet at this end", &server::run(options)?);
    }
    Ok(ExitCode::SUCCESS)
}

/// Says which faults of ROCI_FAULT had no effect: a reader would take the results for those with the fault.
fn remark_unused_faults(no_packet: &str, faults: &[String]) {
    for fault in faults {
        remark(format_args!("{no_packet} had the fault `{fault}`"));
    }
}

/// The server process of `--local`. Dropping this ends it.
struct LocalServer {
    process: Child,
    output: BufReader<ChildStdout>,
}

impl LocalServer {
    /// The faults that no packet at the server had, which it prints when it has executed all orders. None if it ended before.
    fn unused_faults(&mut self) -> Vec<String> {
        let mut line = String::new();
        let read = self.output.read_line(&mut line);
        let faults = read.ok().and_then(|_| serde_json::from_str(&line).ok());
        faults.unwrap_or_default()
    }
}

impl Drop for LocalServer {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Starts the server. Nothing if it ends at once, with a message of its own.
fn start_server(options: &Options) -> anyhow::Result<Option<(LocalServer, SocketAddr)>> {
    let program = std::env::current_exe().context("the path of the roci executable is unknown")?;
    let mut child = Command::new(program)
        .args(["perf", &options.test.name(), "--announce"])
        // When this process ends in any way, the server reads the end of this pipe.
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .context("a server process can't be started")?;
    let output = child.stdout.take().expect("its output is a pipe");
    let mut server = LocalServer {
        process: child,
        output: BufReader::new(output),
    };
    let mut line = String::new();
    if server.output.read_line(&mut line)? == 0 {
        return Ok(None);
    }
    let address = line.trim().parse();
    let address = address.context("the local server has no address")?;
    Ok(Some((server, address)))
}
