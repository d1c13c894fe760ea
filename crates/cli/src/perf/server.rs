//! The server: takes part in the measurements that a client orders.

use std::net::{IpAddr, TcpListener};

use anyhow::{Context as _, ensure};

use super::control_connection::{
    Control, Hello, Order, Tally, Through, VERSION, Welcome, listen, over,
};
use super::local_device::{self, LocalDevice};
use super::options::Options;
use super::queue_pairs::{Draft, QueuePairs, Side, common_mtu};
use super::{bandwidth, latency, tcp};
use crate::find_device;
use crate::free_loopback_address;
use crate::output::print_line;

/// Serves one client. Returns the faults that no packet at this end had; with `--local`, prints them for the client, which
/// also reports the error.
pub(super) fn run(options: &Options) -> anyhow::Result<Vec<String>> {
    let (listener, ready) = prepare(options)?;
    let served = serve_one(&listener, ready, options);
    if !options.announce {
        return served;
    }
    if let Ok(unused) = &served {
        print_line(serde_json::to_string(unused)?)?;
    }
    Ok(Vec::new())
}

fn serve_one(
    listener: &TcpListener,
    ready: Option<LocalDevice>,
    options: &Options,
) -> anyhow::Result<Vec<String>> {
    let (stream, _) = listener
        .accept()
        .context("accepting a client failed; try again")?;
    let (control, local, _) = over(stream)?;
    let local_device = match ready {
        Some(local_device) => local_device,
        None => local_device::open(None, options.gid_index, local.ip())?,
    };
    let mut server = Server::meet(control, local_device, local.ip(), options.announce)?;
    server.serve()?;
    Ok(server.queue_pairs.context.unused_faults())
}

/// The listener, and the device if one was named.
fn prepare(options: &Options) -> anyhow::Result<(TcpListener, Option<LocalDevice>)> {
    if options.announce {
        std::thread::spawn(end_with_parent);
        let (address, context) =
            free_loopback_address::open(None, &rocinante::OpenOptions::from_env())?;
        let listener = listen(Some(address), 0)?;
        print_line(listener.local_addr()?)?;
        return Ok((listener, Some(local_device::on_loopback(context))));
    }
    let (address, ready) = match &options.device {
        None => (None, None),
        Some(name) => {
            let address =
                find_device::gid(&find_device::openable(name)?, options.gid_index)?.address;
            let local_device = local_device::open(Some(name), options.gid_index, address)?;
            (Some(address), Some(local_device))
        }
    };
    let listener = listen(address, options.port)?;
    let port = listener.local_addr()?.port();
    let shown = address.map_or_else(|| "ADDRESS".to_owned(), |address| address.to_string());
    let port = if port == 18515 {
        String::new()
    } else {
        format!(" -p {port}")
    };
    let test = options.test.name();
    print_line(format_args!("waiting for: roci perf {test} {shown}{port}"))?;
    Ok((listener, ready))
}

/// Ends this process when the one that started it ends: it holds the other end of stdin.
fn end_with_parent() {
    let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
    std::process::exit(0);
}

struct Server {
    control: Control,
    queue_pairs: QueuePairs,
    address: IpAddr,
}

impl Server {
    fn meet(
        mut control: Control,
        local_device: LocalDevice,
        address: IpAddr,
        quiet: bool,
    ) -> anyhow::Result<Self> {
        let hello: Hello = control.receive()?;
        let draft = match draft(hello, local_device) {
            Ok(draft) => draft,
            Err(error) => {
                control.send(&Welcome::Rejected(error.to_string()))?;
                return Err(error);
            }
        };
        control.send(&Welcome::Here(draft.side()))?;
        let theirs: Side = control.receive()?;
        let queue_pairs = draft.connect(&theirs)?;
        control.send(&Through)?;
        if let (false, Some(client)) = (quiet, theirs.address()) {
            let (test, service) = (
                queue_pairs.parameters.test.name(),
                queue_pairs.parameters.service.name(),
            );
            print_line(format_args!("{client} measures {test} over {service}"))?;
        }
        Ok(Self {
            control,
            queue_pairs,
            address,
        })
    }

    /// Executes the client's orders until there are no more.
    fn serve(&mut self) -> anyhow::Result<()> {
        loop {
            match self.control.receive()? {
                Order::Rdma { size } => self.take_part(size)?,
                Order::Tcp { size } => self.take_part_in_tcp(size)?,
                Order::Finish => return Ok(()),
            }
        }
    }

    fn take_part(&mut self, size: usize) -> anyhow::Result<()> {
        self.check(size)?;
        let (queue_pairs, parameters) = (&self.queue_pairs, &self.queue_pairs.parameters);
        queue_pairs.clear_last_byte(size);
        self.control.send(&Through)?;
        let own = parameters.bidirectional.then_some(parameters.amount);
        let (Through, done) = self.control.receive_during(|stop| {
            if parameters.test.is_latency() {
                latency::answer(queue_pairs, size, stop).map(|()| Tally::Done)
            } else {
                bandwidth::serve(queue_pairs, size, own, stop).map(Tally::Counted)
            }
        })?;
        self.control.send(&tally(done))
    }

    fn take_part_in_tcp(&mut self, size: usize) -> anyhow::Result<()> {
        self.check(size)?;
        let listener = listen(Some(self.address), 0)?;
        self.control.send(&listener.local_addr()?.port())?;
        let done = tcp::serve(&listener, &self.queue_pairs.parameters, size);
        self.control.send(&tally(done.map(|()| Tally::Done)))
    }

    fn check(&self, size: usize) -> anyhow::Result<()> {
        let agreed = (1..=self.queue_pairs.parameters.largest()).contains(&size);
        ensure!(
            agreed,
            "the client asks for {size} bytes, which it had not announced"
        );
        Ok(())
    }
}

fn tally(done: anyhow::Result<Tally>) -> Tally {
    done.unwrap_or_else(|error| Tally::Failed(error.to_string()))
}

fn draft(hello: Hello, local_device: LocalDevice) -> anyhow::Result<Draft> {
    ensure!(
        hello.version == VERSION,
        "client and server are of different versions of roci"
    );
    let mut parameters = hello.parameters;
    parameters.check()?;
    let here = local_device.context.active_mtu().bytes();
    let mtu = common_mtu(parameters.mtu, here, hello.active_mtu)?;
    parameters.fit(mtu)?;
    Draft::new(local_device, &parameters, mtu)
}
