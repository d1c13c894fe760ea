//! Selects the device, its GID and the capture file.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};
use std::path::PathBuf;

use anyhow::Context as _;
use clap::Args;
use rocinante::{Context, DeviceKind, OpenOptions};

/// The UDP port of RoCEv2.
const ROCE_PORT: u16 = 4791;

/// OpenOptions about the device, the same in every program.
#[derive(Args, Debug, Clone)]
pub struct DeviceOptions {
    /// The device: its name, its interface, or one of its addresses [default: a client takes one with a
    /// route to the server, and a server the one of loopback, which other machines can't reach]
    #[arg(long, value_name = "D")]
    pub device: Option<String>,
    /// Capture every packet to this file, for Wireshark and `roci explain`
    #[arg(long, value_name = "FILE")]
    pub pcap: Option<PathBuf>,
}

impl DeviceOptions {
    /// Opens the device of a server. Says so if clients on other machines can't reach it, and nobody chose it.
    pub fn open_server(&self, capture: &str) -> anyhow::Result<Context> {
        let context = self.open(capture, None)?;
        let is_chosen = self.device.is_some() || is_in_environment();
        let mut addresses = context.device().gids.iter().map(|entry| entry.address);
        if !is_chosen && addresses.all(|address| address.is_loopback()) {
            eprintln!(
                "note: only programs on this machine can reach the server's device, {}. For clients on others, choose one \
                 with --device: `roci devices` lists them.",
                context.name()
            );
        }
        Ok(context)
    }

    /// Opens the device. The capture goes to `--pcap`, or else to `capture`.
    pub fn open(&self, capture: &str, peer: Option<IpAddr>) -> anyhow::Result<Context> {
        let name = match &self.device {
            Some(name) => name.clone(),
            None => device_for(peer)?,
        };
        // Explain errors on stderr; ROCI_EXPLAIN=0 disables it.
        rocinante::enable_explanations();
        // A device of the system can't capture: use tcpdump there.
        let capture = (!is_of_system(&name)?).then(|| capture.into());
        let options = OpenOptions {
            capture: self.pcap.clone().or(capture),
            ..OpenOptions::from_env()
        };
        Ok(Context::open_with(&name, &options)?)
    }
}

fn is_of_system(name: &str) -> anyhow::Result<bool> {
    let devices = rocinante::devices()?;
    let mut of_system = devices.iter().filter(|it| it.kind != DeviceKind::Software);
    Ok(of_system.any(|device| device.name == name))
}

fn is_in_environment() -> bool {
    std::env::var_os("ROCI_DEVICES").is_some()
}

/// The device with a route to the peer. Without a peer, the loopback device.
fn device_for(peer: Option<IpAddr>) -> anyhow::Result<String> {
    let devices = rocinante::devices()?;
    // ROCI_DEVICES selects the device explicitly.
    if is_in_environment()
        && let Some(first) = devices.first()
    {
        return Ok(first.name.clone());
    }
    let address = match peer {
        Some(peer) => local_address_for(peer)?,
        None => Ipv4Addr::LOCALHOST.into(),
    };
    let device = rocinante::device_at(address)?;
    // An address that belongs to no listed device can be opened, too.
    Ok(device.map_or_else(|| address.to_string(), |device| device.name))
}

/// The local address that the kernel uses for a peer. Connecting a UDP socket sends nothing, but the
/// kernel selects the address.
fn local_address_for(peer: IpAddr) -> anyhow::Result<IpAddr> {
    source_of(peer).with_context(|| {
        format!(
            "no packet to {peer} can leave this machine: `ip route get {peer}` shows the route, and `roci doctor` whether \
             UDP port {ROCE_PORT} is blocked here"
        )
    })
}

fn source_of(peer: IpAddr) -> io::Result<IpAddr> {
    let any: IpAddr = match peer {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0))?;
    socket.connect((peer, ROCE_PORT))?;
    Ok(socket.local_addr()?.ip())
}

/// The GID index to use: the requested one; or that of the local address with a route to the peer; or
/// the first of the peer's address family. Without a peer that is IPv4, which most networks use.
#[must_use]
pub fn gid_index(context: &Context, requested: Option<u8>, peer: Option<IpAddr>) -> u8 {
    let local = peer.and_then(|peer| local_address_for(peer).ok());
    let is_v4 = peer.is_none_or(|peer| peer.is_ipv4());
    let index_of = |fits: &dyn Fn(IpAddr) -> bool| {
        let mut entries = context.device().gids.iter();
        let found = entries.find(|entry| fits(entry.address))?;
        u8::try_from(found.index).ok()
    };
    requested
        .or_else(|| index_of(&|address| Some(address) == local))
        .or_else(|| index_of(&|address| address.is_ipv4() == is_v4))
        .unwrap_or(0)
}

/// Describes the GID in one line.
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

/// Prints where the capture is.
pub fn point_to_capture(context: &Context) {
    if let Some(path) = context.capture_path() {
        println!("\nEvery packet is in {0}: roci explain {0}", path.display());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A socket may not be connected to the address of a broadcast, to which there may be no route either.
    #[test]
    fn a_peer_that_no_packet_can_be_sent_to_is_named() {
        let error = local_address_for(Ipv4Addr::BROADCAST.into()).expect_err("not allowed");
        let text = format!("{error:#}");
        for words in ["ip route get 255.255.255.255", "roci doctor"] {
            assert!(text.contains(words), "{text}");
        }
        let reasons = ["(os error 13)", "(os error 101)"];
        assert!(reasons.iter().any(|it| text.ends_with(it)), "{text}");
    }
}
