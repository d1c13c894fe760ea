//! A network of our own, which ends with us.
//!
//! The run happens in a second process of this program, inside namespaces that `unshare` makes: a
//! network without any link to the outside, and a process tree. When that process ends, for whatever
//! reason, the kernel ends everything that it has started and removes the network with all that is in
//! it. It ends when we do: it reads from a pipe that only we hold open.

use std::env;
use std::io::{self, Read};
use std::path::PathBuf;
use std::process::{self, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use super::host;
use crate::debian;

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

/// Before other work on this machine: the time-outs of a protocol do not wait for it.
const AHEAD: [&str; 3] = ["-n", "-5", "unshare"];

/// An ordinary user is root in there, and only there.
const AS_USER: [&str; 2] = ["--user", "--map-root-user"];

/// Whether such a network can be made here.
pub(crate) fn works() -> bool {
    let mut probe = unshare();
    probe.args(["ip", "tuntap", "add", "dev", "tap0", "mode", "tap"]);
    let status = probe.stdout(Stdio::null()).stderr(Stdio::null()).status();
    status.is_ok_and(|status| status.success())
}

/// Where this program is. If a step before has built it again, the kernel calls the file that runs deleted, and
/// the new one is in its place.
fn own_program() -> io::Result<PathBuf> {
    let path = env::current_exe()?;
    let kept = path
        .to_str()
        .and_then(|path| path.strip_suffix(" (deleted)"));
    Ok(kept.map(PathBuf::from).unwrap_or(path))
}

/// Runs this program again, with these arguments, inside; it must be done before `end`.
pub(crate) fn run_inside(arguments: &[String], end: Instant) -> Result<(), String> {
    let failed = |error: io::Error| format!("unshare can't be started: {error}");
    let mut command = unshare();
    command.arg(own_program().map_err(failed)?).args(arguments);
    let mut child = command.stdin(Stdio::piped()).spawn().map_err(failed)?;
    // The pipe is the leash; it must stay open while we wait.
    let leash = child.stdin.take();
    while Instant::now() < end {
        match child.try_wait().map_err(failed)? {
            Some(status) if status.success() => return Ok(()),
            Some(_) => return Err("not everything is as it should be".into()),
            None => thread::sleep(POLL_INTERVAL),
        }
    }
    drop(leash);
    child.wait().map_err(failed)?;
    Err("it took too long, and was ended".into())
}

/// Inside: ends this process, and with it everything, when the one outside is gone.
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
    command.env("PATH", host::search_path());
    if is_root {
        command.args(AHEAD)
    } else {
        command.args(AS_USER)
    };
    command.args(NAMESPACES).arg("--");
    command
}
