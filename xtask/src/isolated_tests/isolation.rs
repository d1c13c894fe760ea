//! A network namespace and a runtime directory for one process.

use std::env;
use std::fmt;
use std::fs;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::{self, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use xtask::debian;

/// Who may make network namespaces here.
pub(super) enum Isolation {
    Root,
    /// An ordinary user. The tests are root within a user namespace.
    User,
    /// Nobody; what is missing.
    None(String),
}

/// A new network has only a loopback interface, which is down. An Ethernet interface makes it like that of a real
/// machine, where the kernel can make one. Without an IPv6 address: the kernel would add it some time after the start.
const WITH_INTERFACES: &str = "
ip link set lo up || exit
ip -batch - >/dev/null 2>&1 <<'COMMANDS'
link add eth0 type veth peer name eth1
link set eth0 addrgenmode none up
link set eth1 addrgenmode none up
address add 198.51.100.1/24 dev eth0
COMMANDS
exec \"$@\"";

impl Isolation {
    pub(super) fn available() -> Self {
        let is_root = debian::are_we_root();
        let wanted = if is_root {
            Isolation::Root
        } else {
            Isolation::User
        };
        if wanted.works() {
            return wanted;
        }
        Isolation::None("`unshare --net` or `ip` fails".into())
    }

    fn works(&self) -> bool {
        let Ok(directory) = RuntimeDirectory::new() else {
            return false;
        };
        let mut probe = self.command("true", &directory);
        let status = probe.stdout(Stdio::null()).stderr(Stdio::null()).status();
        status.is_ok_and(|status| status.success())
    }

    /// A command that runs this program, in its own network if possible.
    pub(super) fn command(
        &self,
        program: impl AsRef<Path>,
        directory: &RuntimeDirectory,
    ) -> Command {
        let program = program.as_ref();
        let mut command = match self {
            Isolation::None(_) => Command::new(program),
            Isolation::Root => unshare(&["--net"], program),
            Isolation::User => unshare(&["--user", "--map-root-user", "--net"], program),
        };
        command.env("XDG_RUNTIME_DIR", &directory.path);
        command
    }
}

fn unshare(namespaces: &[&str], program: &Path) -> Command {
    let mut command = Command::new("unshare");
    command
        .args(namespaces)
        .args(["--", "sh", "-c", WITH_INTERFACES, "sh"])
        .arg(program);
    command
}

/// What a run says about it, before the first test.
impl fmt::Display for Isolation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Isolation::Root => f.write_str("each test has a network namespace of its own"),
            Isolation::User => {
                f.write_str("each test has a network namespace of its own, in a user namespace")
            }
            Isolation::None(why) => write!(
                f,
                "no network namespaces here ({why}): the tests share a network, and run one after the other"
            ),
        }
    }
}

/// Where the processes of one test find each other. Short, because it is part of the names of Unix sockets.
pub(super) struct RuntimeDirectory {
    path: PathBuf,
}

impl RuntimeDirectory {
    pub(super) fn new() -> Result<Self, String> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("roci-test-{}-{number}", process::id());
        let make = |path: &PathBuf| fs::DirBuilder::new().mode(0o700).create(path);
        // In memory, as those of users are. On a disk that others keep busy, to replace a registry takes seconds, and whoever waits for
        // its lock gives up.
        let path = Path::new("/dev/shm").join(&name);
        if make(&path).is_ok() {
            return Ok(RuntimeDirectory { path });
        }
        let path = env::temp_dir().join(name);
        make(&path).map_err(|error| format!("{} can't be made: {error}", path.display()))?;
        Ok(RuntimeDirectory { path })
    }

    pub(super) fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }
}

impl Drop for RuntimeDirectory {
    fn drop(&mut self) {
        // A process that outlives its test may still write here; then the directory stays.
        let _ = fs::remove_dir_all(&self.path);
    }
}
