//! What the teaching programs share: opening a device, introducing two ends to each other over TCP,
//! and waiting for a completion. Everything that is worth learning is in the programs themselves.

#![forbid(unsafe_code)]

mod device;
mod exchange;

use std::time::Duration;

use anyhow::{Context as _, ensure};
use rocinante::{Completion, CompletionQueue, Status};

pub use device::{DeviceOptions, describe_gid, gid_index, point_to_capture};
pub use exchange::{Exchange, Introduction, listen, memory_of};

/// Longer than anything here takes, even on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// The next completion, whatever became of its request.
pub fn completed(completions: &CompletionQueue) -> anyhow::Result<Completion> {
    completions
        .wait_for(PATIENCE)
        .context("nothing completed in 30 seconds: did the other end stop?")
}

/// The next completion, which has to be a success.
pub fn succeeded(completions: &CompletionQueue, what: &str) -> anyhow::Result<Completion> {
    let completion = completed(completions)?;
    let status = completion.status;
    ensure!(
        status == Status::Success,
        "{what} failed with status {} ({status:?}): {status}",
        status as u32
    );
    Ok(completion)
}

/// Text in memory, up to the first zero.
#[must_use]
pub fn text_of(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|byte| *byte == 0);
    String::from_utf8_lossy(&bytes[..end.unwrap_or(bytes.len())]).into_owned()
}
