//! The side whose device has the memory.

use std::net::TcpListener;

use examples::{Exchange, Introduction, text_of};
use rocinante::{
    Access, CompletionQueue, Context, MemoryRegion, ProtectionDomain, QueuePair, Terms,
};

use crate::layout::{BOARD, COUNTER, FLAG, GREETING, INBOX, LOCK, TEXT, TICKETS};

/// Device memory that clients may use.
pub(crate) struct Server {
    domain: ProtectionDomain,
    completions: CompletionQueue,
    memory: MemoryRegion,
    gid_index: u8,
}

/// A client and what connects us with it.
struct Guest {
    exchange: Exchange,
    // Kept: a queue pair lives as long as its handle.
    _queue_pair: QueuePair,
}

impl Server {
    pub(crate) fn new(context: &Context, gid_index: u8, size: usize) -> anyhow::Result<Self> {
        let domain = context.protection_domain()?;
        let rights = Access::LOCAL_WRITE
            | Access::REMOTE_READ
            | Access::REMOTE_WRITE
            | Access::REMOTE_ATOMIC;
        // In C: ibv_alloc_dm and ibv_reg_dm_mr with IBV_ACCESS_ZERO_BASED.
        let memory = domain.register_on_device(size, rights)?;
        // It is not the process's memory: one copies in and out (ibv_memcpy_to_dm).
        memory.write(GREETING, b"hello from the device's own memory");
        Ok(Self {
            completions: context.completion_queue(64)?,
            domain,
            memory,
            gid_index,
        })
    }

    /// Lets all clients in, and waits until all have gone.
    pub(crate) fn serve(&self, listener: &TcpListener, clients: usize) -> anyhow::Result<()> {
        let guests = (0..clients).map(|_| self.welcome(listener));
        let mut guests: Vec<_> = guests.collect::<anyhow::Result<_>>()?;
        // What they do in between, the device does alone.
        for guest in &mut guests {
            guest.exchange.hear()?;
        }
        while let Some(received) = self.completions.poll() {
            println!("receive  {}: {} bytes", received.status, received.length);
        }
        Ok(())
    }

    fn welcome(&self, listener: &TcpListener) -> anyhow::Result<Guest> {
        let mut exchange = Exchange::over(listener.accept()?.0)?;
        let terms = Terms {
            gid_index: self.gid_index,
            ..Terms::default()
        };
        let prepared = self.domain.queue_pair(&self.completions).terms(terms);
        let prepared = prepared.reliable()?;
        // A receive may be in device memory as well.
        prepared.post_receive(1, [self.memory.slice(INBOX..INBOX + TEXT)])?;
        let client: Introduction = exchange.hear()?.parse()?;
        let server = Introduction {
            endpoint: prepared.endpoint(),
            memory: self.memory.remote(0),
            length: self.memory.len(),
        };
        // First ready, then known: a client may send as soon as it knows us.
        let queue_pair = prepared.connect(client.endpoint)?;
        exchange.say(server)?;
        Ok(Guest {
            exchange,
            _queue_pair: queue_pair,
        })
    }

    /// Prints the memory. Copying it out is a matter of the device, too (ibv_memcpy_from_dm).
    pub(crate) fn show(&self) {
        for (name, offset) in [("greeting", GREETING), ("inbox", INBOX), ("board", BOARD)] {
            let text = text_of(&self.memory.to_vec(offset..offset + TEXT));
            println!("  {offset:>3}  {name:<9} \"{text}\"");
        }
        let numbers = [
            ("flag", FLAG),
            ("tickets", TICKETS),
            ("lock", LOCK),
            ("counter", COUNTER),
        ];
        for (name, offset) in numbers {
            println!("  {offset:>3}  {name:<9} {}", self.number(offset));
        }
    }

    pub(crate) fn counter(&self) -> u64 {
        self.number(COUNTER)
    }

    fn number(&self, offset: usize) -> u64 {
        let mut bytes = [0; 8];
        self.memory.read(offset, &mut bytes);
        // Atomics work on numbers in the host's own byte order.
        u64::from_ne_bytes(bytes)
    }
}
