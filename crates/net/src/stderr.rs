//! Messages to the user of a program.

use std::fmt::Display;
use std::io::Write;

/// Prints a paragraph on stderr. One write, so that lines of several threads do not mix. A write error is ignored: stderr
/// may be a pipe that nobody reads any more. The caller holds no lock that packets need: its reader may be slow.
pub fn print(text: impl Display) {
    let _ = std::io::stderr().write_all(format!("roci: {text}\n").as_bytes());
}
