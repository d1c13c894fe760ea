//! The side that receives, and records what came.

use std::fs::File;
use std::io::Write;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use rocinante::{
    Access, CompletionQueue, Connection, ConnectionRequest, Listener, MemoryRegion, Status,
};

use crate::{Failure, RECEIVES, block, record};

/// How long a client may be silent. A stopped one comes back earlier; one that is gone never does.
const SILENCE: Duration = Duration::from_secs(10);

/// How long flushing receives may take.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(20);

/// Bytes of a number, and where the received ones are.
const NUMBER: usize = 8;
const NUMBERS: usize = block::SLOTS * block::LENGTH;

pub(crate) fn run(address: SocketAddr, file: &str) -> Result<(), Failure> {
    let received = Arc::new(record(file)?);
    let listener = Listener::bind(address)?;
    println!("listening at {}", listener.local_address());
    loop {
        let request = listener.wait();
        let received = Arc::clone(&received);
        let started = thread::Builder::new().spawn(move || {
            let client = client_of(&request);
            if let Err(failure) = serve(request, client, &received) {
                eprintln!("ledger: client {client}: {failure}");
            }
        });
        if let Err(error) = started {
            eprintln!("ledger: a client can't be served: {error}");
        }
    }
}

fn client_of(request: &ConnectionRequest) -> u64 {
    let id = request.private_data().first_chunk();
    id.map_or(0, |bytes| u64::from_be_bytes(*bytes))
}

fn serve(request: ConnectionRequest, client: u64, received: &File) -> Result<(), Failure> {
    let context = request.context().clone();
    let domain = context.allocate_protection_domain()?;
    let completions = context.create_completion_queue(2 * RECEIVES as u32)?;
    let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ;
    let memory = domain.allocate_memory(NUMBERS + RECEIVES * NUMBER, access)?;
    let builder = domain
        .queue_pair_builder(&completions)
        .depth(1, RECEIVES as u32);
    let prepared = request.prepare(builder)?;
    for receive in 0..RECEIVES {
        prepared.post_receive(receive as u64, [memory.slice(place(receive))])?;
    }
    let blocks = memory.remote(0);
    let key = blocks.key.value();
    let private_data = [&blocks.address.to_be_bytes()[..], &key.to_be_bytes()].concat();
    let mut session = Session {
        client,
        connection: prepared.accept(&private_data)?,
        completions,
        memory,
        received,
        posted: RECEIVES,
    };
    session.serve()
}

fn place(receive: usize) -> std::ops::Range<usize> {
    let start = NUMBERS + receive * NUMBER;
    start..start + NUMBER
}

struct Session<'a> {
    client: u64,
    connection: Connection,
    completions: CompletionQueue,
    memory: MemoryRegion,
    received: &'a File,
    /// Receives that have not completed.
    posted: usize,
}

impl Session<'_> {
    /// Takes numbers until the connection breaks, or the client is silent for too long.
    fn serve(&mut self) -> Result<(), Failure> {
        let mut heard = Instant::now();
        while heard.elapsed() < SILENCE {
            let Some(completion) = self.completions.wait_for(Duration::from_millis(500)) else {
                continue;
            };
            self.posted -= 1;
            if completion.status != Status::Success {
                break;
            }
            heard = Instant::now();
            self.take(completion.id as usize)?;
            let memory = self.memory.slice(place(completion.id as usize));
            // A queue pair in the error state takes no receives; the next completion says so.
            if self
                .connection
                .post_receive(completion.id, [memory])
                .is_ok()
            {
                self.posted += 1;
            }
        }
        self.drain()
    }

    /// What came before the end of the connection was acknowledged, and counts.
    fn drain(&mut self) -> Result<(), Failure> {
        let _ = self.connection.move_to_error();
        while self.posted > 0 {
            let completion = self.completions.wait_for(FLUSH_TIMEOUT);
            let completion = completion.ok_or("LOST: receives were not flushed")?;
            self.posted -= 1;
            if completion.status == Status::Success {
                self.take(completion.id as usize)?;
            }
        }
        Ok(())
    }

    fn take(&mut self, receive: usize) -> Result<(), Failure> {
        let mut number = [0; NUMBER];
        self.memory.read(place(receive).start, &mut number);
        let (client, number) = (self.client, u64::from_be_bytes(number));
        let mut received = self.received;
        received.write_all(format!("{client} {number}\n").as_bytes())?;
        let offset = block::offset(number);
        let block = self.memory.to_vec(offset..offset + block::LENGTH);
        if block == block::content(client, number) {
            Ok(())
        } else {
            Err(format!("LOST: number {number} came without its block").into())
        }
    }
}
