//! Runs two programs, one on each side.

use std::time::{Duration, Instant};

use super::command_channel::Outcome;
use super::machine::Machine;
use super::network::{self, Family, Side};
use super::program::{Programs, Running};
use super::rows::{Link, Role, Row, Way};

/// How long a server may take to listen: an emulated machine starts it slowly.
const LISTEN_TIMEOUT: Duration = Duration::from_secs(55);

/// How long one pair of programs may take, without and with loss: an emulated machine is slow on a busy host.
const PAIR_TIMEOUT: Duration = Duration::from_secs(120);
const LOSSY_PAIR_TIMEOUT: Duration = Duration::from_secs(240);

/// How long a server may run after its client has exited, on an emulated machine and a busy host.
const SERVER_EXIT_TIMEOUT: Duration = Duration::from_secs(60);

/// The device of either side.
const KERNEL_DEVICE: &str = "rxe0";
const OUR_DEVICE: &str = "roci_tap0";

/// The results of both programs.
pub(crate) struct Conversation {
    pub(crate) server: Outcome,
    pub(crate) client: Outcome,
    pub(crate) took: Duration,
}

/// The two sides and the link between them.
pub(crate) struct PairRunner {
    pub(crate) machine: Machine,
    pub(crate) programs: Programs,
    link: Option<Link>,
    gids: Gids,
}

/// A program that runs on either side.
enum Started {
    There { channel: usize },
    Here(Running),
}

impl PairRunner {
    pub(crate) fn new(mut machine: Machine, programs: Programs) -> Result<Self, String> {
        let gids = Gids::read(&mut machine)?;
        Ok(Self {
            machine,
            programs,
            link: None,
            gids,
        })
    }

    /// Runs server and client; `ours` is the role of our side, if any.
    pub(crate) fn run(&mut self, row: &Row, ours: Option<Role>) -> Result<Conversation, String> {
        self.set_link(row.link)?;
        let start = Instant::now();
        let mut server = self.start(row, Role::Server, ours)?;
        if !self.wait_for_listener(&mut server)? {
            let server = self.finish(server, Duration::from_millis(1))?;
            let text = server.text.trim();
            return Err(format!("the server does not listen; its output: {text}"));
        }
        let client = self.start(row, Role::Client, ours)?;
        let timeout = if row.link.lossy {
            LOSSY_PAIR_TIMEOUT
        } else {
            PAIR_TIMEOUT
        };
        let client = self.finish(client, timeout)?;
        let server = self.finish(server, SERVER_EXIT_TIMEOUT)?;
        self.programs.keep(&row.name, ours, [&server, &client]);
        Ok(Conversation {
            server,
            client,
            took: start.elapsed(),
        })
    }

    fn start(&mut self, row: &Row, role: Role, ours: Option<Role>) -> Result<Started, String> {
        let side = ours.map_or(Side::Kernel, |ours| role.side(ours));
        let server = ours.map_or(Side::Kernel, |ours| Role::Server.side(ours));
        let line = match role {
            Role::Server => &row.server,
            Role::Client => &row.client,
        };
        let line = self.fill_in(line, row.family, side, server);
        match side {
            Side::Ours => self.programs.start(row.way, &line, role).map(Started::Here),
            Side::Kernel => {
                let channel = match role {
                    Role::Server => 0,
                    Role::Client => 1,
                };
                // Addresses stand for the kernel's device, too.
                let line = match row.way {
                    Way::Roci => format!("env ROCI_DEVICES=system {line}"),
                    _ => line,
                };
                self.machine.begin(channel, &line)?;
                Ok(Started::There { channel })
            }
        }
    }

    fn fill_in(&self, line: &str, family: Family, side: Side, server: Side) -> String {
        let device = match side {
            Side::Kernel => KERNEL_DEVICE,
            Side::Ours => OUR_DEVICE,
        };
        line.replace("{server}", server.address(family))
            .replace("{server4}", server.address(Family::Ipv4))
            .replace("{here}", side.address(family))
            .replace("{device}", device)
            .replace("{gid}", &self.gids.index(side, family).to_string())
    }

    fn wait_for_listener(&mut self, server: &mut Started) -> Result<bool, String> {
        match server {
            Started::There { channel } => self.machine.wait_for_listener(*channel, LISTEN_TIMEOUT),
            Started::Here(running) => Ok(running.wait_for_listener(LISTEN_TIMEOUT)),
        }
    }

    fn finish(&mut self, started: Started, timeout: Duration) -> Result<Outcome, String> {
        match started {
            Started::There { channel } => self.machine.finish(channel, timeout),
            Started::Here(running) => running.finish(timeout),
        }
    }

    /// Sets the properties of the link.
    fn set_link(&mut self, link: Link) -> Result<(), String> {
        if self.link == Some(link) {
            return Ok(());
        }
        // Unknown until all commands have succeeded.
        self.link = None;
        let mtu = link.mtu;
        network::set_mtu(mtu)?;
        self.machine.must(&format!("ip link set eth0 mtu {mtu}"))?;
        self.machine
            .must(if link.lossy { ADD_LOSS } else { REMOVE_LOSS })?;
        self.link = Some(link);
        Ok(())
    }
}

/// The kernel's side adds loss in both directions: on its interface for packets that leave, and on an `ifb` device for
/// packets that arrive.
const ADD_LOSS: &str = "modprobe ifb numifbs=1; ip link set ifb0 up; \
    tc qdisc replace dev eth0 root netem loss 5% duplicate 5% delay 2ms reorder 95% \
    && tc qdisc replace dev eth0 ingress \
    && tc filter add dev eth0 ingress matchall action mirred egress redirect dev ifb0 \
    && tc qdisc replace dev ifb0 root netem loss 5% duplicate 5% delay 2ms reorder 95%";

const REMOVE_LOSS: &str = "tc qdisc del dev eth0 root; tc qdisc del dev eth0 ingress; true";

/// The indexes of the addresses in each side's GID table.
struct Gids {
    kernel: Vec<String>,
}

impl Gids {
    fn read(machine: &mut Machine) -> Result<Self, String> {
        let list = "for i in 0 1 2 3 4 5; do cat /sys/class/infiniband/rxe0/ports/1/gids/$i; done";
        let text = machine.must(list)?;
        let kernel = text.lines().map(str::to_owned).collect();
        Ok(Self { kernel })
    }

    fn index(&self, side: Side, family: Family) -> usize {
        match side {
            Side::Kernel => {
                let wanted = match family {
                    Family::Ipv4 => "0000:0000:0000:0000:0000:ffff:",
                    Family::Ipv6 => "fd00:",
                };
                let mut entries = self.kernel.iter();
                entries.position(|gid| gid.starts_with(wanted)).unwrap_or(0)
            }
            // Link-local, IPv4, the others: the order of the kernel's own tables.
            Side::Ours => match family {
                Family::Ipv4 => 1,
                Family::Ipv6 => 2,
            },
        }
    }
}
