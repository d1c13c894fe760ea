//! The client: orders the measurements, takes part in them and reports the results.

use std::net::{IpAddr, SocketAddr};

use anyhow::bail;

use super::control_connection::{Control, Hello, Order, Tally, Through, VERSION, Welcome, connect};
use super::local_device::{self, LocalDevice};
use super::options::Options;
use super::progress::Progress;
use super::queue_pairs::{Draft, QueuePairs, common_mtu};
use super::report::{Report, Row};
use super::test_parameters::TestParameters;
use super::throughput::{MessageCounts, Seen};
use super::{bandwidth, latency, tcp};
use crate::free_loopback_address;

/// Runs the measurements with the server at this address. Returns the faults that no packet at this end had.
pub(super) fn run(options: &Options, server: &str, port: u16) -> anyhow::Result<Vec<String>> {
    let parameters = options.parameters()?;
    let (control, local, peer) = connect(server, port)?;
    let local_device = match (&options.device, options.local) {
        (None, true) => local_device::on_loopback(
            free_loopback_address::open(Some(peer.ip()), &rocinante::OpenOptions::from_env())?.1,
        ),
        (device, _) => local_device::open(device.as_deref(), options.gid_index, local.ip())?,
    };
    let mut client = Client::meet(control, local_device, parameters, peer.ip())?;
    client.measure_all(server, options)?;
    Ok(client.queue_pairs.context.unused_faults())
}

struct Client {
    control: Control,
    queue_pairs: QueuePairs,
    server: IpAddr,
}

impl Client {
    fn meet(
        mut control: Control,
        local_device: LocalDevice,
        mut parameters: TestParameters,
        server: IpAddr,
    ) -> anyhow::Result<Self> {
        let active_mtu = local_device.context.active_mtu().bytes();
        control.send(&Hello {
            version: VERSION,
            parameters: parameters.clone(),
            active_mtu,
        })?;
        let theirs = match control.receive()? {
            Welcome::Here(side) => side,
            Welcome::Rejected(why) => bail!("the server rejects: {why}"),
        };
        let mtu = common_mtu(parameters.mtu, active_mtu, theirs.mtu)?;
        parameters.fit(mtu)?;
        let draft = Draft::new(local_device, &parameters, mtu)?;
        control.send(&draft.side())?;
        let queue_pairs = draft.connect(&theirs)?;
        control.receive::<Through>()?;
        Ok(Self {
            control,
            queue_pairs,
            server,
        })
    }

    fn measure_all(&mut self, server: &str, options: &Options) -> anyhow::Result<()> {
        let json = options.json;
        let parameters = self.queue_pairs.parameters.clone();
        let mut report = Report::begin(server, self.queue_pairs.mtu.bytes(), &parameters, json)?;
        for &size in &parameters.sizes {
            let progress = Progress::new(&parameters, size, json, options.interval());
            let row = if parameters.test.is_latency() {
                self.latency(size, &progress)?
            } else {
                self.bandwidth(size, &progress)?
            };
            drop(progress);
            report.push(row)?;
        }
        self.control.send(&Order::Finish)?;
        let counters = self.queue_pairs.context.counters();
        let retransmitted = counters.map(|counters| counters.retransmitted);
        report.end(retransmitted, options.html.as_deref())
    }

    /// Runs all rounds of one message size, RDMA and TCP in turn.
    fn bandwidth(&mut self, size: usize, progress: &Progress) -> anyhow::Result<Row> {
        let mut rounds = Vec::new();
        let mut total: Option<Seen> = None;
        for _ in 0..self.queue_pairs.parameters.rounds {
            let seen = self.bandwidth_round(size, progress)?;
            if self.queue_pairs.parameters.vs_tcp {
                rounds.push((seen.rate(), self.tcp_round(size)?));
            }
            total = Some(match total {
                None => seen,
                Some(before) => Seen {
                    client: before.client.join(seen.client),
                    server: before.server.join(seen.server),
                    ..seen
                },
            });
        }
        let total = total.expect("there is at least one round");
        Ok(Row::bandwidth(size, &total, &rounds))
    }

    fn bandwidth_round(&mut self, size: usize, progress: &Progress) -> anyhow::Result<Seen> {
        self.control.send(&Order::Rdma { size })?;
        self.control.receive::<Through>()?;
        let parameters = &self.queue_pairs.parameters;
        let sent = bandwidth::send(&self.queue_pairs, size, parameters.amount, progress)?;
        self.control.send(&Through)?;
        // The server may still be sending.
        let (tally, received) = self
            .control
            .receive_during(|heard| bandwidth::serve(&self.queue_pairs, size, None, heard))?;
        let received = received?;
        Ok(Seen {
            client: MessageCounts {
                received: sent.received + received.received,
                receive_seconds: sent.receive_seconds + received.receive_seconds,
                ..sent
            },
            server: flow(tally)?,
            arrivals: parameters.counts_arrivals(),
            bidirectional: parameters.bidirectional,
        })
    }

    fn latency(&mut self, size: usize, progress: &Progress) -> anyhow::Result<Row> {
        let mut rounds = Vec::new();
        let mut all = latency::histogram();
        for _ in 0..self.queue_pairs.parameters.rounds {
            self.control.send(&Order::Rdma { size })?;
            self.control.receive::<Through>()?;
            let times = latency::ask(
                &self.queue_pairs,
                size,
                self.queue_pairs.parameters.amount,
                progress,
            )?;
            self.control.send(&Through)?;
            flow(self.control.receive()?)?;
            if self.queue_pairs.parameters.vs_tcp {
                rounds.push((times.value_at_quantile(0.5) as f64, self.tcp_round(size)?));
            }
            all.add(&times)?;
        }
        Ok(Row::latency(size, &all, &rounds))
    }

    /// The rate or latency of TCP.
    fn tcp_round(&mut self, size: usize) -> anyhow::Result<f64> {
        self.control.send(&Order::Tcp { size })?;
        let server = SocketAddr::new(self.server, self.control.receive::<u16>()?);
        let parameters = &self.queue_pairs.parameters;
        let measured = if parameters.test.is_latency() {
            tcp::latency(server, parameters, size)?
        } else {
            tcp::bandwidth(server, parameters, size)?
        };
        match self.control.receive()? {
            Tally::Failed(why) => bail!("the server failed: {why}"),
            Tally::Counted(_) | Tally::Done => Ok(measured),
        }
    }
}

fn flow(tally: Tally) -> anyhow::Result<MessageCounts> {
    match tally {
        Tally::Counted(flow) => Ok(flow),
        Tally::Done => Ok(MessageCounts::default()),
        Tally::Failed(why) => bail!("the server failed: {why}"),
    }
}
