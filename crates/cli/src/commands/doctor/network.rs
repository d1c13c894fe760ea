//! Checks of the network stack, on loopback.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use net::poll::{Interest, wait};
use net::socket::{Inbox, Receiver, Sender};
use rocinante::{Access, Context, OpenOptions, Request, Status};
use std::os::fd::AsFd;
use wire::Route;

use super::Check;
use crate::free_loopback_address;
use crate::shortcut_use::ShortcutUse;

const PROBE_TIMEOUT: Duration = Duration::from_secs(2);

/// The loopback address, or the one of IPv6 on a machine without IPv4.
fn loopback() -> IpAddr {
    match UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)) {
        Ok(_) => Ipv4Addr::LOCALHOST.into(),
        Err(_) => Ipv6Addr::LOCALHOST.into(),
    }
}

fn receiver() -> anyhow::Result<Receiver> {
    Ok(Receiver::bind(SocketAddr::new(loopback(), 0))?)
}

/// The recommended receive buffer, for packets that arrive faster than they are handled.
pub(super) fn receive_buffer() -> Check {
    let check = "receive buffer";
    let receiver = match receiver() {
        Ok(receiver) => receiver,
        Err(error) => return Check::fail(check, error.to_string(), "bring loopback up first"),
    };
    // The kernel reports twice the requested size.
    let granted = receiver.buffer() / 2 / 1024;
    match receiver.shortage() {
        None => Check::ok(check, format!("{granted} KiB for each address")),
        Some(shortage) => Check::warn(
            check,
            format!("{granted} KiB for each address; windows adapt, so it is slower but works"),
            shortage.to_string(),
        ),
    }
}

/// Whether the kernel segments and coalesces batches of packets (GSO, GRO).
pub(super) fn segmentation() -> Check {
    let check = "GSO and GRO";
    match largest_batch() {
        Ok(BATCH) => Check::ok(
            check,
            format!("{BATCH} packets sent and received in one system call"),
        ),
        Ok(joined) => Check::warn(
            check,
            format!("of {BATCH} packets sent in one system call, {joined} were received in one"),
            "bandwidth will be about a third; use Linux 5.0 or later without a UDP filter on lo",
        ),
        Err(error) => Check::fail(
            check,
            error.to_string(),
            "bring loopback up with `ip link set lo up`, or check whether a firewall blocks UDP on it",
        ),
    }
}

const BATCH: usize = 8;

fn largest_batch() -> anyhow::Result<usize> {
    const PACKET: usize = 1024;
    let receiver = receiver()?;
    let loopback = receiver.local().ip();
    let sender = Sender::bind(loopback)?;
    let mut flow = sender.flow_to(loopback);
    flow.destination_port = receiver.local().port();
    sender.send(&Route::new(flow), PACKET, &mut [0; BATCH * PACKET])?;
    let ready = wait(&[Interest::readable(receiver.as_fd())], Some(PROBE_TIMEOUT))?;
    let lost = || format!("a UDP packet to {loopback} did not arrive");
    ensure!(!ready.is_empty(), lost());
    let mut inbox = Inbox::new(BATCH);
    let batches = receiver.receive(&mut inbox)?;
    let longest = batches.map(|batch| batch.packets().count()).max();
    longest.with_context(lost)
}

/// A message over a reliable connection, through the whole stack.
pub(super) fn ping() -> Check {
    match round_trip() {
        Ok((address, took)) => Check::ok(
            "RDMA ping",
            format!("64 bytes to {address} and back in {} µs", took.as_micros()),
        ),
        Err(error) => Check::fail(
            "RDMA ping",
            format!("{error:#}"),
            "correct what failed above; if nothing did, please report this",
        ),
    }
}

fn round_trip() -> anyhow::Result<(IpAddr, Duration)> {
    let (address, context) = free_loopback_address::open(None, &OpenOptions::from_env())?;
    Ok((address, round_trip_at(&context)?))
}

/// A message from a device to itself, and one back.
pub(super) fn round_trip_at(context: &Context) -> anyhow::Result<Duration> {
    let domain = context.allocate_protection_domain()?;
    let completions = context.create_completion_queue(16)?;
    let memory = domain.allocate_memory(128, Access::LOCAL_WRITE)?;
    let builder = || domain.queue_pair_builder(&completions).depth(4, 4);
    let (here, there) = (builder().create_reliable()?, builder().create_reliable()?);
    let ends = (here.endpoint(), there.endpoint());
    let (here, there) = (here.connect(ends.1)?, there.connect(ends.0)?);
    here.post_receive(0, [memory.slice(0..64)])?;
    there.post_receive(0, [memory.slice(64..128)])?;
    let begin = Instant::now();
    for queue_pair in [&here, &there] {
        queue_pair.post_send(Request::send().inline(&[0x52; 64]))?;
        for _ in 0..2 {
            let completion = completions.wait_for(PROBE_TIMEOUT);
            let completion = completion.context("no response within two seconds")?;
            let status = completion.status;
            ensure!(status == Status::Success, "it failed: {status}");
        }
    }
    let took = begin.elapsed();
    ensure!(
        memory.to_vec(0..128) == [0x52; 128],
        "the received bytes differ from those sent"
    );
    Ok(took)
}

/// How packets between queue pairs of this machine travel.
pub(super) fn local_packets() -> Check {
    Check::ok("local packets", ShortcutUse::now().text())
}
