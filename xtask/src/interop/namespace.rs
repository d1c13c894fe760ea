//! A network of our own, which ends with us.
//!
//! The run happens in a second process of this program, inside namespaces that `unshare` makes: a
//! network without any link to the outside, and a process tree. When that process ends, for whatever
//! reason, the kernel ends everything that it has started and removes the network with all that is in
//! it. It ends when we do: it reads from a pipe that only we hold open.

use std::env;
use std::io::{self, Read};
use std::process::{self, Command, ExitStatus, Stdio};
use std::thread;

use super::host;

const NAMESPACES: [&str; 6] = [
    "--net",
    "--mount",
    "--pid",
    "--fork",
    "--kill-child",
    "--mount-proc",
];

/// An ordinary user is root in there, and only there.
const AS_USER: [&str; 2] = ["--user", "--map-root-user"];

/// Whether such a network can be made here.
pub(crate) fn works() -> bool {
    let mut probe = unshare();
    probe.args(["ip", "tuntap", "add", "dev", "tap0", "mode", "tap"]);
    let status = probe.stdout(Stdio::null()).stderr(Stdio::null()).status();
    status.is_ok_and(|status| status.success())
}

/// Runs this program again, with these arguments, inside.
pub(crate) fn run_inside(arguments: &[String]) -> io::Result<ExitStatus> {
    let mut command = unshare();
    command.arg(env::current_exe()?).args(arguments);
    let mut child = command.stdin(Stdio::piped()).spawn()?;
    // The pipe is the leash; it must stay open while we wait.
    let leash = child.stdin.take();
    let status = child.wait();
    drop(leash);
    status
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
    let mut command = Command::new("unshare");
    command.env("PATH", host::search_path());
    if !host::is_root() {
        command.args(AS_USER);
    }
    command.args(NAMESPACES).arg("--");
    command
}
