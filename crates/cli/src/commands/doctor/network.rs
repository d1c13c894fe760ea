//! Checks of the network stack, on loopback.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use net::poll::{Interest, wait};
use net::socket::{Inbox, Receiver, Sender, SocketError};
use rocinante::{Access, Context, OpenOptions, Request, Status};
use std::os::fd::AsFd;
use wire::Route;

use super::Check;
use crate::free_loopback_address;
use crate::shortcut_use::ShortcutUse;

const PROBE_TIMEOUT: Duration = Duration::from_secs(2);

/// A socket at the loopback address of IPv4, or of IPv6 where there is no IPv4.
fn receiver() -> Result<Receiver, SocketError> {
    let bind = |address: IpAddr| Receiver::bind(SocketAddr::new(address, 0));
    let bound = bind(Ipv4Addr::LOCALHOST.into());
    bound.or_else(|error| bind(Ipv6Addr::LOCALHOST.into()).map_err(|_| error))
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
    let lost = || format!("a UDP packet to {} did not arrive", receiver.local().ip());
    send_to(&receiver, PACKET, &mut [0; BATCH * PACKET])?;
    ensure!(is_readable(&receiver)?, lost());
    let mut inbox = Inbox::new(BATCH);
    let batches = receiver.receive(&mut inbox)?;
    let longest = batches.map(|batch| batch.packets().count()).max();
    longest.with_context(lost)
}

/// Sends packets to a socket from its own address.
fn send_to(receiver: &Receiver, size: usize, packets: &mut [u8]) -> anyhow::Result<()> {
    let address = receiver.local().ip();
    let sender = Sender::bind(address)?;
    let mut flow = sender.flow_to(address);
    flow.destination_port = receiver.local().port();
    sender.send(&Route::new(flow), size, packets)?;
    Ok(())
}

fn is_readable(receiver: &Receiver) -> anyhow::Result<bool> {
    let ready = wait(&[Interest::readable(receiver.as_fd())], Some(PROBE_TIMEOUT))?;
    Ok(!ready.is_empty())
}

/// Whether a packet to a socket arrives there, from the same machine.
pub(super) fn arrives(receiver: &Receiver) -> bool {
    let sent = send_to(receiver, 1, &mut [0]);
    sent.is_ok() && is_readable(receiver).unwrap_or(false)
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
            error.to_string(),
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
