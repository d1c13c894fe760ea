//! The second process of the demo: it registers memory and reports what it contains.

use std::io::{BufReader, Stdin, Stdout};
use std::net::IpAddr;

use anyhow::{Context as _, bail};
use rocinante::{
    Access, CompletionQueue, Context, Endpoint, MemoryError, MemoryRegion, OpenOptions,
    ProtectionDomain, QueuePair, Status,
};

use super::{
    Ask, BEFORE, BULK, COMPLETION_TIMEOUT, COUNTER, DEVICE_MEMORY, Introduction, difference,
};
use crate::free_loopback_address;
use crate::json_channel::JsonChannel;

/// Runs until the channel closes.
pub(crate) fn run() -> anyhow::Result<()> {
    let streams = (BufReader::new(std::io::stdin()), std::io::stdout());
    let mut channel = JsonChannel::new(streams.0, streams.1);
    let Ask::Start { device, taken } = channel.receive()? else {
        bail!("this is a part of `roci demo`; run that instead");
    };
    let (address, context) = open(device.as_ref(), taken)?;
    let peer = Peer::start(address, &context, &mut channel)?;
    channel.send(&())?;
    while let Ok(question) = channel.receive::<Ask>() {
        match question {
            Ask::Received => channel.send(&peer.received()?)?,
            Ask::Pattern(seed) => channel.send(&peer.wrong_byte(seed))?,
            Ask::Counter => channel.send(&peer.counter())?,
            Ask::Start { .. } | Ask::Connect(_) => bail!("the demo sent an unexpected message"),
        }
    }
    Ok(())
}

/// Opens the device with this name, or an address that is not taken.
fn open(device: Option<&String>, taken: IpAddr) -> anyhow::Result<(IpAddr, Context)> {
    let options = OpenOptions {
        // The capture of the first process has all packets.
        capture: None,
        ..OpenOptions::from_env()
    };
    let Some(name) = device else {
        return Ok(free_loopback_address::open(Some(taken), &options)?);
    };
    Ok((taken, Context::open_with(name, &options)?))
}

/// Device memory, or ordinary memory at a device of the system without it.
fn allocate(domain: &ProtectionDomain, access: Access) -> anyhow::Result<(MemoryRegion, bool)> {
    match domain.allocate_device_memory(DEVICE_MEMORY, access) {
        Err(MemoryError::System(_)) => Ok((domain.allocate_memory(DEVICE_MEMORY, access)?, false)),
        allocated => Ok((allocated?, true)),
    }
}

struct Peer {
    completions: CompletionQueue,
    /// The receive buffer.
    inbox: MemoryRegion,
    /// The memory that the first process writes, reads and swaps.
    memory: MemoryRegion,
    _queue_pair: QueuePair,
}

impl Peer {
    fn start(
        address: IpAddr,
        context: &Context,
        channel: &mut JsonChannel<BufReader<Stdin>, Stdout>,
    ) -> anyhow::Result<Self> {
        let domain = context.allocate_protection_domain()?;
        let completions = context.create_completion_queue(16)?;
        let inbox = domain.allocate_memory(256, Access::LOCAL_WRITE)?;
        let remote = Access::REMOTE_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC;
        let (memory, is_device_memory) = allocate(&domain, Access::LOCAL_WRITE | remote)?;
        memory.write(COUNTER, &BEFORE.to_ne_bytes());
        let prepared = domain.queue_pair_builder(&completions).create_reliable()?;
        prepared.post_receive(0, [inbox.all()])?;
        channel.send(&Introduction {
            address,
            endpoint: prepared.endpoint().to_string(),
            memory: memory.remote(0).into(),
            is_device_memory,
        })?;
        let Ask::Connect(endpoint) = channel.receive()? else {
            bail!("the demo sent an unexpected message");
        };
        Ok(Self {
            _queue_pair: prepared.connect(endpoint.parse::<Endpoint>()?)?,
            completions,
            inbox,
            memory,
        })
    }

    fn received(&self) -> anyhow::Result<String> {
        let completion = self.completions.wait_for(COMPLETION_TIMEOUT);
        let completion = completion.context("the message did not arrive in time")?;
        if completion.status != Status::Success {
            bail!("the receive failed: {}", completion.status);
        }
        let bytes = self.inbox.to_vec(0..completion.length as usize);
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    fn wrong_byte(&self, seed: u32) -> Option<usize> {
        difference(&self.memory.to_vec(0..BULK), seed)
    }

    fn counter(&self) -> u64 {
        let mut bytes = [0; 8];
        self.memory.read(COUNTER, &mut bytes);
        u64::from_ne_bytes(bytes)
    }
}
