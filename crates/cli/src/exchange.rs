//! Exchanges addresses, queue pair numbers and memory keys between two processes, before RDMA works.
//!
//! One JSON text a line, over anything that carries bytes.

use std::io::{BufRead, Write};
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Context as _;
use rocinante::{Key, RemoteMemory};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// A way to the other process and back.
pub(crate) struct Exchange<R, W> {
    reader: R,
    writer: W,
}

impl<R: BufRead + Send, W: Write> Exchange<R, W> {
    /// Over this pair of streams.
    pub(crate) fn new(reader: R, writer: W) -> Self {
        Self { reader, writer }
    }

    /// Tells the other one something.
    pub(crate) fn say(&mut self, message: &impl Serialize) -> anyhow::Result<()> {
        let mut line = serde_json::to_string(message)?;
        line.push('\n');
        self.writer
            .write_all(line.as_bytes())
            .and_then(|()| self.writer.flush())
            .context("the other process closed the connection; its output says why")
    }

    /// Waits for what the other one says.
    pub(crate) fn hear<T: DeserializeOwned>(&mut self) -> anyhow::Result<T> {
        hear(&mut self.reader)
    }

    /// Works until the other one says something; `work` must look at the flag and end soon
    /// after it is set.
    pub(crate) fn hear_during<T: DeserializeOwned + Send, O>(
        &mut self,
        work: impl FnOnce(&AtomicBool) -> O,
    ) -> anyhow::Result<(T, O)> {
        let heard = AtomicBool::new(false);
        let reader = &mut self.reader;
        std::thread::scope(|scope| {
            let listener = scope.spawn(|| {
                let message = hear(reader);
                heard.store(true, Ordering::Release);
                message
            });
            let outcome = work(&heard);
            let message = listener.join().expect("listening does not panic")?;
            Ok((message, outcome))
        })
    }
}

fn hear<T: DeserializeOwned>(reader: &mut impl BufRead) -> anyhow::Result<T> {
    /// More than any message needs, and not more than a stranger should be able to fill.
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

/// Memory of a process, as it describes it to the other one.
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
    /// From `offset` on.
    pub(crate) fn at(self, offset: u64) -> RemoteMemory {
        RemoteMemory {
            address: self.address.wrapping_add(offset),
            key: Key::new(self.key),
        }
    }
}
