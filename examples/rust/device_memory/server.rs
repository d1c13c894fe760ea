//! The server: owns the device memory.

use std::net::TcpListener;

use examples::{Exchange, PeerInfo, println, text_of};
use rocinante::{
    Access, CompletionQueue, ConnectOptions, Context, MemoryRegion, ProtectionDomain, QueuePair,
};

use crate::layout::{BOARD, COUNTER, FLAG, GREETING, INBOX, LOCK, TEXT, TICKETS};

/// Device memory that clients may access.
pub(crate) struct Server {
    domain: ProtectionDomain,
    completions: CompletionQueue,
    memory: MemoryRegion,
    gid_index: u8,
}

/// A connected client.
struct ConnectedClient {
    exchange: Exchange,
    // A queue pair lives as long as its handle.
    _queue_pair: QueuePair,
}

impl Server {
    pub(crate) fn new(context: &Context, gid_index: u8, size: usize) -> anyhow::Result<Self> {
        let domain = context.allocate_protection_domain()?;
        let rights = Access::LOCAL_WRITE
            | Access::REMOTE_READ
            | Access::REMOTE_WRITE
            | Access::REMOTE_ATOMIC;
        // In C: ibv_alloc_dm and ibv_reg_dm_mr with IBV_ACCESS_ZERO_BASED.
        let memory = domain.allocate_device_memory(size, rights)?;
        // The process has no pointer to it and copies data in and out (ibv_memcpy_to_dm).
        memory.write(GREETING, b"hello from the device's own memory");
        Ok(Self {
            // Two for each client: 512 clients at once.
            completions: context.create_completion_queue(1024)?,
            domain,
            memory,
            gid_index,
        })
    }

    /// Accepts all clients, and waits until all are done.
    pub(crate) fn serve(&self, listener: &TcpListener, clients: usize) -> anyhow::Result<()> {
        let connected = (0..clients).map(|_| self.accept(listener));
        let mut connected: Vec<_> = connected.collect::<anyhow::Result<_>>()?;
        // Until then only the device works; this program takes no part.
        for client in &mut connected {
            client.exchange.receive()?;
        }
        while let Some(received) = self.completions.poll() {
            println!("receive  {}: {} bytes", received.status, received.length);
        }
        Ok(())
    }

    fn accept(&self, listener: &TcpListener) -> anyhow::Result<ConnectedClient> {
        let mut exchange = Exchange::over(listener.accept()?.0)?;
        let connect_options = ConnectOptions {
            gid_index: Some(self.gid_index),
            ..ConnectOptions::default()
        };
        let prepared = self
            .domain
            .queue_pair_builder(&self.completions)
            .depth(1, 1)
            .connect_options(connect_options);
        let prepared = prepared.create_reliable()?;
        // The buffer of a receive can be in device memory, too.
        prepared.post_receive(1, [self.memory.slice(INBOX..INBOX + TEXT)])?;
        let client = exchange.receive_peer()?;
        let server = PeerInfo {
            endpoint: prepared.endpoint(),
            memory: self.memory.remote(0),
            length: self.memory.len(),
        };
        // Connect before replying: the client may send as soon as it has the reply.
        let queue_pair = prepared.connect(client.endpoint)?;
        exchange.send(server)?;
        Ok(ConnectedClient {
            exchange,
            _queue_pair: queue_pair,
        })
    }

    /// Prints the memory. The device copies it out (ibv_memcpy_from_dm).
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
        // Atomics use the byte order of the host.
        u64::from_ne_bytes(bytes)
    }
}
