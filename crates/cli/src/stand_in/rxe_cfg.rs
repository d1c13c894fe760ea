//! `rxe_cfg`, with which devices of Soft-RoCE were made before `rdma link add`.

use std::process::ExitCode;

/// What the script did is not needed, so it is no failure. What it never did is one.
pub(super) fn run(arguments: &[String]) -> ExitCode {
    const KNOWN: [&str; 7] = [
        "start",
        "stop",
        "status",
        "persistent",
        "add",
        "remove",
        "help",
    ];
    let command = arguments.iter().find(|word| !word.starts_with('-'));
    match command.map(String::as_str) {
        Some(word) if !KNOWN.contains(&word) => {
            eprintln!("rxe_cfg: there is no command `{word}`; `rdma link` lists the devices");
            ExitCode::FAILURE
        }
        _ => {
            eprintln!(
                "rxe_cfg: nothing is to be done: each interface has a device already, which `rdma link` lists, and `rdma link \
                 add NAME type rxe netdev INTERFACE` gives one another name"
            );
            ExitCode::SUCCESS
        }
    }
}
