//! The side that sends, and records what was acknowledged.

use std::fs::File;
use std::io::Write;
use std::net::SocketAddr;
use std::thread::sleep;
use std::time::Duration;

use rocinante::{
    Access, Completion, CompletionQueue, Connection, Connector, Key, MemoryRegion, RemoteMemory,
    Request, Status,
};

use crate::{Failure, RECEIVES, block, record};

/// How many numbers are outstanding at once.
const WINDOW: u64 = RECEIVES as u64 / 2;

/// Between two numbers: a storm has many clients.
const PAUSE: Duration = Duration::from_millis(1);

/// How often a block is read back.
const READ_EVERY: u64 = 8;

/// Marks work requests that read a block back.
const READ: u64 = 1 << 63;

/// Bytes of a number.
const NUMBER: usize = 8;

/// Behind the blocks to write: the numbers, and the blocks that were read back.
const NUMBERS: usize = block::SLOTS * block::LENGTH;
const BACK: usize = NUMBERS + block::SLOTS * NUMBER;

pub(crate) fn run(server: SocketAddr, id: u64, count: u64, file: &str) -> Result<(), Failure> {
    let mut client = Client::connect(server, id, record(file)?)?;
    for number in 1..=count {
        client.post_block(number)?;
        sleep(PAUSE);
        client.settle(WINDOW)?;
    }
    client.settle(0)?;
    client.connection.disconnect()?;
    println!("all {count} numbers were acknowledged");
    Ok(())
}

struct Client {
    id: u64,
    connection: Connection,
    completions: CompletionQueue,
    memory: MemoryRegion,
    /// Where the server's blocks are.
    blocks: RemoteMemory,
    acknowledged: File,
    /// Work requests that have not completed.
    outstanding: u64,
}

impl Client {
    fn connect(server: SocketAddr, id: u64, acknowledged: File) -> Result<Self, Failure> {
        let connector = Connector::resolve(server)?;
        let context = connector.context().clone();
        let domain = context.allocate_protection_domain()?;
        let completions = context.create_completion_queue(128)?;
        let memory = domain.allocate_memory(2 * BACK, Access::LOCAL_WRITE)?;
        let builder = domain.queue_pair_builder(&completions).depth(64, 1);
        let connection = connector.prepare(builder)?.connect(&id.to_be_bytes())?;
        let blocks = remote(connection.private_data()).ok_or("the server named no memory")?;
        Ok(Self {
            id,
            connection,
            completions,
            memory,
            blocks,
            acknowledged,
            outstanding: 0,
        })
    }

    fn post_block(&mut self, number: u64) -> Result<(), Failure> {
        let offset = block::offset(number);
        let place = NUMBERS + offset / block::LENGTH * NUMBER;
        self.memory.write(offset, &block::content(self.id, number));
        self.memory.write(place, &number.to_be_bytes());
        let theirs = RemoteMemory {
            address: self.blocks.address + offset as u64,
            key: self.blocks.key,
        };
        let ours = self.memory.slice(offset..offset + block::LENGTH);
        let write = Request::write(theirs).data(ours).unsignaled().id(number);
        let send = Request::send().data(self.memory.slice(place..place + NUMBER));
        let mut requests = vec![write, send.id(number)];
        if number.is_multiple_of(READ_EVERY) {
            let back = BACK + offset;
            let back = self.memory.slice(back..back + block::LENGTH);
            requests.push(Request::read(theirs).data(back).id(READ | number));
        }
        self.outstanding += requests.len() as u64 - 1;
        self.connection.post_send_many(requests)?;
        Ok(())
    }

    /// Takes completions until at most this number is outstanding.
    fn settle(&mut self, allowed: u64) -> Result<(), Failure> {
        while self.outstanding > allowed {
            let completion = self.completions.wait();
            self.outstanding -= 1;
            self.take(&completion)?;
        }
        Ok(())
    }

    fn take(&mut self, completion: &Completion) -> Result<(), Failure> {
        let (number, status) = (completion.id & !READ, completion.status);
        if status != Status::Success {
            let code = status as u32;
            return Err(format!("number {number} failed with status {code}: {status}").into());
        }
        if completion.id & READ == 0 {
            writeln!(self.acknowledged, "{number}")?;
            return Ok(());
        }
        let back = BACK + block::offset(number);
        let read = self.memory.to_vec(back..back + block::LENGTH);
        if read == block::content(self.id, number) {
            Ok(())
        } else {
            Err(format!("LOST: block {number} was written, and another was read").into())
        }
    }
}

/// The address and the key, in network order.
fn remote(bytes: &[u8]) -> Option<RemoteMemory> {
    let (address, rest) = bytes.split_first_chunk()?;
    let key = rest.first_chunk()?;
    Some(RemoteMemory {
        address: u64::from_be_bytes(*address),
        key: Key::new(u32::from_be_bytes(*key)),
    })
}
