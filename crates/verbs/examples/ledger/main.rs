//! Proves that nothing is lost that was acknowledged, whatever happens to the processes.
//!
//! ```text
//! ledger server ADDRESS:PORT FILE             until it is killed
//! ledger client ADDRESS:PORT ID COUNT FILE    until COUNT numbers are acknowledged
//! ```
//!
//! The client writes a block into the server's memory for each number, sends the number, and adds
//! it to its file when the SEND has completed. The server adds each number that it receives to its
//! own file before it posts the receive again. `cargo xtask storm` kills, stops and disconnects
//! both, and compares the files.

#![forbid(unsafe_code)]

mod block;
mod client;
mod server;

use std::error::Error;
use std::fs::{File, OpenOptions};
use std::io;
use std::process::ExitCode;

/// Whatever went wrong, as a sentence.
type Failure = Box<dyn Error + Send + Sync>;

/// How many receives the server keeps posted: so far it can be behind its client.
const RECEIVES: usize = 16;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("ledger: {failure}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["server", address, file] => server::run(address.parse()?, file),
        ["client", server, id, count, file] => {
            client::run(server.parse()?, id.parse()?, count.parse()?, file)
        }
        _ => Err("usage: ledger server ADDRESS FILE | ledger client ADDRESS ID COUNT FILE".into()),
    }
}

/// A file to which each line is added by one system call, so that a killed process leaves whole lines.
fn record(path: &str) -> io::Result<File> {
    OpenOptions::new().create(true).append(true).open(path)
}
