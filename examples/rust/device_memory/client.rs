//! The client: accesses the server's device memory.

use std::net::SocketAddr;

use anyhow::ensure;
use examples::{Exchange, PeerInfo, println, succeeded, text_of};
use rocinante::{
    Access, CompletionQueue, ConnectOptions, Context, Key, MemoryRegion, QueuePair, RemoteMemory,
    Request,
};

use crate::layout::{BOARD, COUNTER, FLAG, GREETING, LOCK, TEXT, TICKETS};

/// A client that is connected to a server.
pub(crate) struct Client {
    exchange: Exchange,
    completions: CompletionQueue,
    /// Local host memory: for data to send, and for responses.
    memory: MemoryRegion,
    queue_pair: QueuePair,
    /// The server's device memory.
    device_memory: RemoteMemory,
}

impl Client {
    pub(crate) fn connect(
        context: &Context,
        gid_index: u8,
        server: SocketAddr,
    ) -> anyhow::Result<Self> {
        let domain = context.allocate_protection_domain()?;
        let completions = context.create_completion_queue(16)?;
        let memory = domain.allocate_memory(TEXT, Access::LOCAL_WRITE)?;
        let connect_options = ConnectOptions {
            gid_index: Some(gid_index),
            ..ConnectOptions::default()
        };
        let prepared = domain
            .queue_pair_builder(&completions)
            .connect_options(connect_options)
            .create_reliable()?;
        let mut exchange = Exchange::connect(server)?;
        exchange.send(PeerInfo {
            endpoint: prepared.endpoint(),
            // The server does not access memory of the client.
            memory: RemoteMemory {
                address: 0,
                key: Key::new(0),
            },
            length: 0,
        })?;
        let server = exchange.receive_peer()?;
        Ok(Self {
            queue_pair: prepared.connect(server.endpoint)?,
            exchange,
            completions,
            memory,
            device_memory: server.memory,
        })
    }

    /// Performs each operation once.
    pub(crate) fn try_everything(&self) -> anyhow::Result<()> {
        self.memory.write(0, b"a SEND has no destination.");
        self.carry_out("SEND", Request::send().data(self.memory.slice(0..26)))?;
        println!("SEND     26 bytes, into the receive that the server posted");

        let read = Request::read(self.at(GREETING)).data(self.memory.all());
        self.carry_out("RDMA READ", read)?;
        let greeting = text_of(&self.memory.to_vec(0..TEXT));
        println!("READ     \"{greeting}\"");

        self.memory.write(0, b"a WRITE has a destination.");
        let write = Request::write(self.at(BOARD)).data(self.memory.slice(0..26));
        self.carry_out("RDMA WRITE", write)?;
        println!("WRITE    26 bytes to offset {BOARD}");

        let found = self.compare_swap(FLAG, 0, 7)?;
        let again = self.compare_swap(FLAG, 0, 8)?;
        println!(
            "SWAP     the flag was {found} and is now 7; a second swap that expects 0 finds {again}"
        );
        ensure!((found, again) == (0, 7), "compare-and-swap went wrong");

        let tickets = [self.fetch_add(TICKETS, 1)?, self.fetch_add(TICKETS, 1)?];
        println!("ADD      got tickets {} and {}", tickets[0], tickets[1]);
        ensure!(tickets == [0, 1], "fetch-and-add went wrong");
        Ok(())
    }

    /// Increments the counter by READ and WRITE, under the lock. Returns the number of retries.
    pub(crate) fn increment(&self, times: u64) -> anyhow::Result<u64> {
        // Unique: no two queue pairs of a host have the same number.
        let name = u64::from(self.queue_pair.number().value());
        let mut retries = 0;
        for _ in 0..times {
            // 0 means free. The client that replaces it with its own number has the lock.
            while self.compare_swap(LOCK, 0, name)? != 0 {
                retries += 1;
            }
            let counter = self.read_number(COUNTER)?;
            self.write_number(COUNTER, counter + 1)?;
            let holder = self.compare_swap(LOCK, name, 0)?;
            ensure!(holder == name, "another client took the lock of {name:#x}");
        }
        Ok(retries)
    }

    pub(crate) fn end(&mut self) -> anyhow::Result<()> {
        self.exchange.send("done")
    }

    /// Replaces a number if it equals `expected`. Returns the previous value.
    fn compare_swap(&self, offset: usize, expected: u64, new: u64) -> anyhow::Result<u64> {
        let request = Request::compare_swap(self.at(offset), expected, new);
        self.carry_out("COMPARE-AND-SWAP", request.data(self.memory.slice(0..8)))?;
        Ok(self.fetched())
    }

    /// Adds to a number. Returns the previous value.
    fn fetch_add(&self, offset: usize, add: u64) -> anyhow::Result<u64> {
        let request = Request::fetch_add(self.at(offset), add);
        self.carry_out("FETCH-AND-ADD", request.data(self.memory.slice(0..8)))?;
        Ok(self.fetched())
    }

    fn read_number(&self, offset: usize) -> anyhow::Result<u64> {
        let request = Request::read(self.at(offset));
        self.carry_out("RDMA READ", request.data(self.memory.slice(0..8)))?;
        Ok(self.fetched())
    }

    fn write_number(&self, offset: usize, value: u64) -> anyhow::Result<()> {
        let request = Request::write(self.at(offset));
        self.carry_out("RDMA WRITE", request.inline(&value.to_ne_bytes()))
    }

    fn at(&self, offset: usize) -> RemoteMemory {
        RemoteMemory {
            address: self.device_memory.address + offset as u64,
            ..self.device_memory
        }
    }

    fn fetched(&self) -> u64 {
        let mut bytes = [0; 8];
        self.memory.read(0, &mut bytes);
        u64::from_ne_bytes(bytes)
    }

    fn carry_out(&self, what: &str, request: Request) -> anyhow::Result<()> {
        self.queue_pair.post_send(request)?;
        succeeded(&self.completions, what).map(drop)
    }
}
