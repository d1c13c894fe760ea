//! The side that asks, measures and reports.

use std::net::{IpAddr, SocketAddr};

use anyhow::bail;

use super::exchange::{Control, Hello, Order, Tally, Through, VERSION, Welcome, connect};
use super::flow::{Flow, Seen};
use super::options::Options;
use super::place::{self, Place};
use super::plan::Plan;
use super::progress::Progress;
use super::report::{Report, Row};
use super::station::{Draft, Station, common_mtu};
use super::{bandwidth, latency, tcp};
use crate::loopback;

/// Measures with the server at this address.
pub(super) fn run(options: &Options, server: &str, port: u16) -> anyhow::Result<()> {
    let plan = options.plan()?;
    let (control, local, peer) = connect(server, port)?;
    let place = match (&options.device, options.local) {
        (None, true) => {
            place::on_loopback(loopback::open(Some(peer.ip()), &rocinante::Options::from_env())?.1)
        }
        (device, _) => place::open(device.as_deref(), options.gid_index, local.ip())?,
    };
    let mut client = Client::meet(control, place, plan, peer.ip())?;
    client.measure_all(server, options.json)
}

struct Client {
    control: Control,
    station: Station,
    server: IpAddr,
}

impl Client {
    fn meet(
        mut control: Control,
        place: Place,
        mut plan: Plan,
        server: IpAddr,
    ) -> anyhow::Result<Self> {
        let active_mtu = place.context.active_mtu().bytes();
        control.say(&Hello {
            version: VERSION,
            plan: plan.clone(),
            active_mtu,
        })?;
        let theirs = match control.hear()? {
            Welcome::Here(side) => side,
            Welcome::Refused(why) => bail!("the server refuses: {why}"),
        };
        let mtu = common_mtu(plan.mtu, active_mtu, theirs.mtu)?;
        plan.fit(mtu)?;
        let draft = Draft::new(place, &plan, mtu)?;
        control.say(&draft.side())?;
        let station = draft.connect(&theirs)?;
        control.hear::<Through>()?;
        Ok(Self {
            control,
            station,
            server,
        })
    }

    fn measure_all(&mut self, server: &str, json: bool) -> anyhow::Result<()> {
        let plan = self.station.plan.clone();
        let mut report = Report::begin(server, self.station.mtu.bytes(), &plan, json)?;
        for &size in &plan.sizes {
            let progress = Progress::new(&plan, size, json);
            let row = if plan.test.is_latency() {
                self.latency(size, &progress)?
            } else {
                self.bandwidth(size, &progress)?
            };
            drop(progress);
            report.push(row)?;
        }
        self.control.say(&Order::Finish)?;
        report.end(self.station.context.counters().retransmitted)
    }

    /// All rounds of one size, RDMA and TCP in turn.
    fn bandwidth(&mut self, size: usize, progress: &Progress) -> anyhow::Result<Row> {
        let mut rounds = Vec::new();
        let mut total: Option<Seen> = None;
        for _ in 0..self.station.plan.rounds {
            let seen = self.bandwidth_round(size, progress)?;
            if self.station.plan.vs_tcp {
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
        self.control.say(&Order::Rdma { size })?;
        self.control.hear::<Through>()?;
        let plan = &self.station.plan;
        let sent = bandwidth::send(&self.station, size, plan.amount, progress)?;
        self.control.say(&Through)?;
        // The other side may still be sending.
        let (tally, received) = self
            .control
            .hear_during(|heard| bandwidth::serve(&self.station, size, None, heard))?;
        let received = received?;
        Ok(Seen {
            client: Flow {
                received: sent.received + received.received,
                receive_seconds: sent.receive_seconds + received.receive_seconds,
                ..sent
            },
            server: flow(tally)?,
            arrivals: plan.counts_arrivals(),
            bidirectional: plan.bidirectional,
        })
    }

    fn latency(&mut self, size: usize, progress: &Progress) -> anyhow::Result<Row> {
        let mut rounds = Vec::new();
        let mut all = latency::histogram();
        for _ in 0..self.station.plan.rounds {
            self.control.say(&Order::Rdma { size })?;
            self.control.hear::<Through>()?;
            let times = latency::ask(&self.station, size, self.station.plan.amount, progress)?;
            self.control.say(&Through)?;
            flow(self.control.hear()?)?;
            if self.station.plan.vs_tcp {
                rounds.push((times.value_at_quantile(0.5) as f64, self.tcp_round(size)?));
            }
            all.add(&times)?;
        }
        Ok(Row::latency(size, &all, &rounds))
    }

    /// The rate or the time that TCP reaches.
    fn tcp_round(&mut self, size: usize) -> anyhow::Result<f64> {
        self.control.say(&Order::Tcp { size })?;
        let server = SocketAddr::new(self.server, self.control.hear::<u16>()?);
        let plan = &self.station.plan;
        let measured = if plan.test.is_latency() {
            tcp::latency(server, plan, size)?
        } else {
            tcp::bandwidth(server, plan, size)?
        };
        match self.control.hear()? {
            Tally::Failed(why) => bail!("the server failed: {why}"),
            Tally::Counted(_) | Tally::Done => Ok(measured),
        }
    }
}

fn flow(tally: Tally) -> anyhow::Result<Flow> {
    match tally {
        Tally::Counted(flow) => Ok(flow),
        Tally::Done => Ok(Flow::default()),
        Tally::Failed(why) => bail!("the server failed: {why}"),
    }
}
