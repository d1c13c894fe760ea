//! The side that uses memory of the other's device.

use std::net::SocketAddr;

use anyhow::ensure;
use examples::{Exchange, Introduction, succeeded, text_of};
use rocinante::{
    Access, CompletionQueue, Context, Key, MemoryRegion, QueuePair, Remote, Request, Terms,
};

use crate::layout::{BOARD, COUNTER, FLAG, GREETING, LOCK, TEXT, TICKETS};

/// Connected with a server.
pub(crate) struct Client {
    exchange: Exchange,
    completions: CompletionQueue,
    /// Ours, in ordinary memory: what we send, and where answers land.
    memory: MemoryRegion,
    queue_pair: QueuePair,
    /// The server's.
    device_memory: Remote,
}

impl Client {
    pub(crate) fn connect(
        context: &Context,
        gid_index: u8,
        server: SocketAddr,
    ) -> anyhow::Result<Self> {
        let domain = context.protection_domain()?;
        let completions = context.completion_queue(16)?;
        let memory = domain.register(TEXT, Access::LOCAL_WRITE)?;
        let terms = Terms {
            gid_index,
            ..Terms::default()
        };
        let prepared = domain.queue_pair(&completions).terms(terms).reliable()?;
        let mut exchange = Exchange::call(server)?;
        exchange.say(Introduction {
            endpoint: prepared.endpoint(),
            // The server asks for nothing of ours.
            memory: Remote {
                address: 0,
                key: Key::new(0),
            },
            length: 0,
        })?;
        let server: Introduction = exchange.hear()?.parse()?;
        Ok(Self {
            queue_pair: prepared.connect(server.endpoint)?,
            exchange,
            completions,
            memory,
            device_memory: server.memory,
        })
    }

    /// Each operation once, in an order in which each can be seen to work.
    pub(crate) fn try_everything(&self) -> anyhow::Result<()> {
        self.memory.write(0, b"a SEND finds its own place");
        self.carry_out("SEND", Request::send().data(self.memory.slice(0..26)))?;
        println!("SEND     26 bytes: the server's receive said where they go");

        let read = Request::read(self.at(GREETING)).data(self.memory.all());
        self.carry_out("RDMA READ", read)?;
        let greeting = text_of(&self.memory.to_vec(0..TEXT));
        println!("READ     \"{greeting}\"");

        self.memory.write(0, b"a WRITE says where it goes");
        let write = Request::write(self.at(BOARD)).data(self.memory.slice(0..26));
        self.carry_out("RDMA WRITE", write)?;
        println!("WRITE    26 bytes to offset {BOARD}");

        let found = self.compare_swap(FLAG, 0, 7)?;
        let again = self.compare_swap(FLAG, 0, 8)?;
        println!("SWAP     the flag was {found}, now 7; who expects 0 again finds {again}");
        ensure!((found, again) == (0, 7), "compare-and-swap went wrong");

        let tickets = [self.fetch_add(TICKETS, 1)?, self.fetch_add(TICKETS, 1)?];
        println!("ADD      drew tickets {} and {}", tickets[0], tickets[1]);
        ensure!(tickets == [0, 1], "fetch-and-add went wrong");
        Ok(())
    }

    /// Adds 1 to the counter by READ and WRITE, under the lock. Returns how often it was taken.
    pub(crate) fn increment(&self, times: u64) -> anyhow::Result<u64> {
        // Unlike any other holder's: queue pair numbers are unique on a host.
        let name = u64::from(self.queue_pair.number().value());
        let mut waits = 0;
        for _ in 0..times {
            // Free is 0. Whoever swaps in its own name has the lock.
            while self.compare_swap(LOCK, 0, name)? != 0 {
                waits += 1;
            }
            let counter = self.read_number(COUNTER)?;
            self.write_number(COUNTER, counter + 1)?;
            let holder = self.compare_swap(LOCK, name, 0)?;
            ensure!(holder == name, "somebody took the lock away from {name:#x}");
        }
        Ok(waits)
    }

    pub(crate) fn end(&mut self) -> anyhow::Result<()> {
        self.exchange.say("done")
    }

    /// Replaces a number if it is `expected`; what it was.
    fn compare_swap(&self, offset: usize, expected: u64, new: u64) -> anyhow::Result<u64> {
        let request = Request::compare_swap(self.at(offset), expected, new);
        self.carry_out("COMPARE-AND-SWAP", request.data(self.memory.slice(0..8)))?;
        Ok(self.answer())
    }

    /// Adds to a number; what it was.
    fn fetch_add(&self, offset: usize, add: u64) -> anyhow::Result<u64> {
        let request = Request::fetch_add(self.at(offset), add);
        self.carry_out("FETCH-AND-ADD", request.data(self.memory.slice(0..8)))?;
        Ok(self.answer())
    }

    fn read_number(&self, offset: usize) -> anyhow::Result<u64> {
        let request = Request::read(self.at(offset));
        self.carry_out("RDMA READ", request.data(self.memory.slice(0..8)))?;
        Ok(self.answer())
    }

    fn write_number(&self, offset: usize, value: u64) -> anyhow::Result<()> {
        let request = Request::write(self.at(offset));
        self.carry_out("RDMA WRITE", request.inline(&value.to_ne_bytes()))
    }

    fn at(&self, offset: usize) -> Remote {
        Remote {
            address: self.device_memory.address + offset as u64,
            ..self.device_memory
        }
    }

    fn answer(&self) -> u64 {
        let mut bytes = [0; 8];
        self.memory.read(0, &mut bytes);
        u64::from_ne_bytes(bytes)
    }

    fn carry_out(&self, what: &str, request: Request) -> anyhow::Result<()> {
        self.queue_pair.post(request)?;
        succeeded(&self.completions, what).map(drop)
    }
}
