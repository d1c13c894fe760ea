//! `roci perf`: bandwidth and latency, in the words and tables of perftest.
//!
//! The server needs no options: it follows the client's [plan](plan::Plan), which comes over a
//! TCP connection together with everything else that RDMA needs to begin.
//!
//! From the bottom up: the [`options`] make a [`plan`]; a [`place`] is a device, and a [`station`] all
//! that one side has there. [`bandwidth`] and [`latency`] measure with a station, [`tcp`] without one.
//! [`client`] and [`server`] speak by an [`exchange`] of orders; the client writes the [`report`].

mod bandwidth;
mod client;
mod exchange;
mod flow;
mod latency;
mod options;
mod patience;
mod place;
mod plan;
mod progress;
mod report;
mod server;
mod station;
mod tcp;

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};

use anyhow::Context as _;

pub(crate) use options::Options;

/// Measures, or serves one who does.
pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    if options.local {
        // Before a server is started in vain.
        options.plan()?;
        let (_server, address) = start_server(options)?;
        return client::run(options, &address.ip().to_string(), address.port());
    }
    match &options.server {
        Some(server) => client::run(options, server, options.port),
        None => server::run(options),
    }
}

/// The server of `--local`; it ends with this handle.
struct LocalServer(Child);

impl Drop for LocalServer {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn start_server(options: &Options) -> anyhow::Result<(LocalServer, SocketAddr)> {
    let program = std::env::current_exe().context("this program can't find itself")?;
    let mut child = Command::new(program)
        .args(["perf", &options.test.name(), "--announce"])
        // When this process ends, however it does, the server sees the end of this pipe.
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .context("a server process can't be started")?;
    let output = child.stdout.take().expect("its output is a pipe");
    let server = LocalServer(child);
    let mut line = String::new();
    BufReader::new(output).read_line(&mut line)?;
    let address = line.trim().parse();
    Ok((
        server,
        address.context("the local server did not start; its complaint is above")?,
    ))
}
