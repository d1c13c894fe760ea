//! A channel of JSON messages between two processes. Before they can use RDMA, they exchange addresses, queue pair
//! numbers and memory keys over it.
//!
//! Each message is one line, over any pair of byte streams.

use std::io::{BufRead, Write};
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Context as _;
use rocinante::{Key, RemoteMemory};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// A channel of JSON messages to the other process and back.
pub(crate) struct JsonChannel<R, W> {
    reader: R,
    writer: W,
}

impl<R: BufRead + Send, W: Write> JsonChannel<R, W> {
    /// A channel over this pair of streams.
    pub(crate) fn new(reader: R, writer: W) -> Self {
        Self { reader, writer }
    }

    /// Sends a message.
    pub(crate) fn send(&mut self, message: &impl Serialize) -> anyhow::Result<()> {
        let mut line = serde_json::to_string(message)?;
        line.push('\n');
        self.writer
            .write_all(line.as_bytes())
            .and_then(|()| self.writer.flush())
            .context("the other process closed the connection; its output says why")
    }

    /// Waits for a message.
    pub(crate) fn receive<T: DeserializeOwned>(&mut self) -> anyhow::Result<T> {
        receive(&mut self.reader)
    }

    /// Runs `work` until a message is received. `work` must check the flag and return soon after it is set.
    pub(crate) fn receive_during<T: DeserializeOwned + Send, O>(
        &mut self,
        work: impl FnOnce(&AtomicBool) -> O,
    ) -> anyhow::Result<(T, O)> {
        let heard = AtomicBool::new(false);
        let reader = &mut self.reader;
        std::thread::scope(|scope| {
            let listener = scope.spawn(|| {
                let message = receive(reader);
                heard.store(true, Ordering::Release);
                message
            });
            let outcome = work(&heard);
            let message = listener.join().expect("listening does not panic")?;
            Ok((message, outcome))
        })
    }
}

fn receive<T: DeserializeOwned>(reader: &mut impl BufRead) -> anyhow::Result<T> {
    /// In bytes: more than any message needs. It bounds the memory that a wrong peer can make us use.
    const LONGEST: u64 = 1 << 20;
    let mut line = String::new();
    let read = std::io::Read::take(reader, LONGEST).read_line(&mut line);
    match read {
        Ok(0) | Err(_) => {
            anyhow::bail!("the other process closed the connection; its output says why")
        }
        Ok(_) => serde_json::from_str(&line)
            .context("the other process is not `roci`, or has another version"),
    }
}

/// The address and key of memory, in a message to the other process.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct MemoryDescription {
    address: u64,
    key: u32,
}

impl From<RemoteMemory> for MemoryDescription {
    fn from(remote: RemoteMemory) -> Self {
        Self {
            address: remote.address,
            key: remote.key.value(),
        }
    }
}

impl MemoryDescription {
    /// The remote memory from `offset` on.
    pub(crate) fn at(self, offset: u64) -> RemoteMemory {
        RemoteMemory {
            address: self.address.wrapping_add(offset),
            key: Key::new(self.key),
        }
    }
}
