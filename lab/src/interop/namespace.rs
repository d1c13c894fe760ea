//! A network namespace that ends with this program.
//!
//! The run is a second process of this program, in new network and process namespaces that `unshare` creates. When
//! that process exits, the kernel kills everything that it started and removes the network. The process exits when
//! this one does: it reads from a pipe whose other end only this process has.

use std::env;
use std::io::{self, Read};
use std::path::PathBuf;
use std::process::{self, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use xtask::debian;

use super::system_programs;

/// How often to check whether the program in the namespace has exited.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

const NAMESPACES: [&str; 6] = [
    "--net",
    "--mount",
    "--pid",
    "--fork",
    "--kill-child",
    "--mount-proc",
];

/// A higher priority than other work on this machine, which would make timeouts of the protocol expire.
const HIGHER_PRIORITY: [&str; 3] = ["-n", "-5", "unshare"];

/// An ordinary user is root in the namespace only.
const AS_USER: [&str; 2] = ["--user", "--map-root-user"];

/// Whether this machine allows such a namespace.
pub(crate) fn works() -> bool {
    let mut probe = unshare();
    probe.args(["ip", "tuntap", "add", "dev", "tap0", "mode", "tap"]);
    let status = probe.stdout(Stdio::null()).stderr(Stdio::null()).status();
    status.is_ok_and(|status| status.success())
}

/// The path of this program. If an earlier step has built it again, the kernel reports the running file as deleted,
/// and the new file has its path.
fn own_program() -> io::Result<PathBuf> {
    let path = env::current_exe()?;
    let kept = path
        .to_str()
        .and_then(|path| path.strip_suffix(" (deleted)"));
    Ok(kept.map(PathBuf::from).unwrap_or(path))
}

/// Runs this program with these arguments in the namespaces, and ends it at `end`.
pub(crate) fn run_inside(arguments: &[String], end: Instant) -> Result<(), String> {
    let failed = |error: io::Error| format!("unshare can't be started: {error}");
    let mut command = unshare();
    command.arg(own_program().map_err(failed)?).args(arguments);
    let mut child = command.stdin(Stdio::piped()).spawn().map_err(failed)?;
    // The child exits when this pipe is closed.
    let pipe = child.stdin.take();
    while Instant::now() < end {
        match child.try_wait().map_err(failed)? {
            Some(status) if status.success() => return Ok(()),
            Some(_) => return Err("the run failed: see above".into()),
            None => thread::sleep(POLL_INTERVAL),
        }
    }
    drop(pipe);
    child.wait().map_err(failed)?;
    Err("the run took too long and was ended".into())
}

/// In the namespaces: ends this process, and with it everything that it started, when the process outside exits.
pub(crate) fn end_with_the_outside() {
    thread::spawn(|| {
        let mut nothing = [0];
        while io::stdin().read(&mut nothing).is_ok_and(|count| count > 0) {}
        process::exit(130);
    });
}

fn unshare() -> Command {
    let is_root = debian::are_we_root();
    let mut command = Command::new(if is_root { "nice" } else { "unshare" });
    command.env("PATH", system_programs::search_path());
    if is_root {
        command.args(HIGHER_PRIORITY)
    } else {
        command.args(AS_USER)
    };
    command.args(NAMESPACES).arg("--");
    command
}
