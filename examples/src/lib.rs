//! Code that the tutorial programs share: opening a device, exchanging connection parameters over
//! TCP, and waiting for a completion.

#![forbid(unsafe_code)]

/// As `println` of the standard library; but a reader that stops early, such as `head`, ends the program
/// without an error.
#[macro_export]
macro_rules! println {
    ($($text:tt)*) => {
        $crate::print_line(format_args!($($text)*))
    };
}

mod device;
mod tcp_exchange;

use std::fmt::Arguments;
use std::io::{self, ErrorKind, Write};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use rocinante::{Completion, CompletionQueue, Status};

pub use device::{DeviceOptions, describe_gid, gid_index, point_to_capture};
pub use tcp_exchange::{Exchange, PeerInfo, listen, parse_memory};

/// How long to wait for a completion or an event. Longer than any operation takes on a busy machine.
pub const TIMEOUT: Duration = Duration::from_secs(30);

/// Waits for the next completion, successful or not.
pub fn completed(completions: &CompletionQueue) -> anyhow::Result<Completion> {
    completions
        .wait_for(TIMEOUT)
        .context("nothing completed in 30 seconds: is the peer still running?")
}

/// Waits for the next completion. Fails if its status is not success.
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

/// Prints one line, for [`println!`].
pub fn print_line(text: Arguments<'_>) {
    match writeln!(io::stdout(), "{text}") {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => std::process::exit(0),
        written => written.expect("the output can be written"),
    }
}

/// Text in memory, up to the first zero.
#[must_use]
pub fn text_of(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|byte| *byte == 0);
    String::from_utf8_lossy(&bytes[..end.unwrap_or(bytes.len())]).into_owned()
}
