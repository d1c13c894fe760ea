//! Which device, which of its addresses, and where its packets are written.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};
use std::path::PathBuf;

use clap::Args;
use rocinante::{Context, Options};

/// Where RoCEv2 packets go, at every host.
const ROCE_PORT: u16 = 4791;

/// What every program can be told about its device.
#[derive(Args, Debug, Clone)]
pub struct DeviceOptions {
    /// The device: its name, its interface, or one of its addresses [default: one that leads to the
    /// other end]
    #[arg(long, value_name = "D")]
    pub device: Option<String>,
    /// Write every packet to this file, for Wireshark and `roci explain`
    #[arg(long, value_name = "FILE")]
    pub pcap: Option<PathBuf>,
}

impl DeviceOptions {
    /// Opens the device, with a capture in `FILE` or else in `capture`.
    pub fn open(&self, capture: &str, peer: Option<IpAddr>) -> anyhow::Result<Context> {
        let name = match &self.device {
            Some(name) => name.clone(),
            None => device_towards(peer)?,
        };
        // When something goes wrong, stderr says what and why; ROCI_EXPLAIN=0 keeps it silent.
        rocinante::explain();
        let options = Options {
            capture: Some(self.pcap.clone().unwrap_or_else(|| capture.into())),
            ..Options::from_env()
        };
        Ok(Context::open_with(&name, &options)?)
    }
}

/// A device that leads to the other end; without one, loopback, where this machine talks to itself.
fn device_towards(peer: Option<IpAddr>) -> anyhow::Result<String> {
    let devices = rocinante::devices()?;
    // Who lists devices wants one of those.
    if std::env::var_os("ROCI_DEVICES").is_some()
        && let Some(first) = devices.first()
    {
        return Ok(first.name.clone());
    }
    let address = match peer {
        Some(peer) => address_towards(peer)?,
        None => Ipv4Addr::LOCALHOST.into(),
    };
    let device = rocinante::device_at(address)?;
    // An address is a device too, also one that no device has.
    Ok(device.map_or_else(|| address.to_string(), |device| device.name))
}

/// Which of our addresses leads to a peer. Connecting a UDP socket sends nothing, but it makes the
/// kernel choose.
fn address_towards(peer: IpAddr) -> io::Result<IpAddr> {
    let any: IpAddr = match peer {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0))?;
    socket.connect((peer, ROCE_PORT))?;
    Ok(socket.local_addr()?.ip())
}

/// The entry of the GID table to use: the one asked for; or the address that leads to the peer; or
/// the first of the peer's family, which without a peer is IPv4, because most networks carry that.
#[must_use]
pub fn gid_index(context: &Context, wish: Option<u8>, peer: Option<IpAddr>) -> u8 {
    let leads_there = peer.and_then(|peer| address_towards(peer).ok());
    let is_v4 = peer.is_none_or(|peer| peer.is_ipv4());
    let index_of = |fits: &dyn Fn(IpAddr) -> bool| {
        let mut entries = context.device().gids.iter();
        let found = entries.find(|entry| fits(entry.address))?;
        u8::try_from(found.index).ok()
    };
    wish.or_else(|| index_of(&|address| Some(address) == leads_there))
        .or_else(|| index_of(&|address| address.is_ipv4() == is_v4))
        .unwrap_or(0)
}

/// A line about the GID in use.
#[must_use]
pub fn describe_gid(context: &Context, index: u8) -> String {
    let name = context.name();
    match context.gids().get(usize::from(index)) {
        Some(gid) => match gid.ip() {
            Some(ip) => format!("{name}, GID index {index} = {gid}, the address {ip}"),
            None => format!("{name}, GID index {index}, which is empty"),
        },
        None => format!("{name}, which has no GID index {index}"),
    }
}

/// Says where the packets are.
pub fn point_to_capture(context: &Context) {
    if let Some(path) = context.capture_path() {
        println!("\nEvery packet is in {0}: roci explain {0}", path.display());
    }
}
