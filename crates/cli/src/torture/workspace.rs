//! Where one job runs: a directory of its own and, where the system allows it, a network of its own.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};

use anyhow::Context as _;

use super::merged_capture;

/// The directory, the runtime directory and the network namespace of one job.
pub(super) struct Workspace {
    directory: PathBuf,
    network: Option<Network>,
}

/// A process that keeps a network namespace. It ends when its standard input is closed.
struct Network {
    holder: Child,
    input: Option<ChildStdin>,
    is_root: bool,
}

impl Workspace {
    /// Makes the directory of a job, and its network if wanted. `None` if the system has no namespace for us.
    pub(super) fn new(job: usize, own_network: bool) -> anyhow::Result<Option<Self>> {
        let name = format!("roci-torture-{}-{job}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        let network = if own_network { Network::new() } else { None };
        if own_network && network.is_none() {
            return Ok(None);
        }
        let workspace = Workspace { directory, network };
        let runtime = workspace.runtime();
        fs::create_dir_all(&runtime)
            .with_context(|| format!("the directory {} can't be made", runtime.display()))?;
        Ok(Some(workspace))
    }

    pub(super) fn path(&self) -> PathBuf {
        self.directory.join("run")
    }

    pub(super) fn log(&self) -> PathBuf {
        self.path().join("faults.log")
    }

    pub(super) fn runtime(&self) -> PathBuf {
        self.directory.join("runtime")
    }

    /// Removes what an earlier run has left.
    pub(super) fn clear(&self) -> anyhow::Result<()> {
        let path = self.path();
        if path.exists() {
            fs::remove_dir_all(&path).with_context(|| format!("{} is in use", path.display()))?;
        }
        fs::create_dir_all(&path).with_context(|| format!("{} can't be made", path.display()))
    }

    /// A command in the job's network. The program and its arguments follow.
    pub(super) fn command(&self) -> Command {
        let Some(network) = &self.network else {
            return Command::new("env");
        };
        let mut command = Command::new("nsenter");
        command.arg("--target").arg(network.holder.id().to_string());
        if !network.is_root {
            command.args(["--user", "--preserve-credentials"]);
        }
        command.args(["--net", "--"]);
        command
    }

    /// Copies output and log of the last run, and joins its captures in one file.
    pub(super) fn keep(&self, target: &Path) -> anyhow::Result<()> {
        let failed = || format!("{} can't be written", target.display());
        fs::create_dir_all(target).with_context(failed)?;
        let mut captures = Vec::new();
        for entry in fs::read_dir(self.path()).with_context(failed)?.flatten() {
            let path = entry.path();
            if path
                .extension()
                .is_some_and(|extension| extension == "pcapng")
            {
                captures.push(fs::read(&path).unwrap_or_default());
            } else if path.is_file() {
                fs::copy(&path, target.join(entry.file_name())).with_context(failed)?;
            }
        }
        let capture = merged_capture::merge(&captures);
        fs::write(target.join("capture.pcapng"), capture).with_context(failed)
    }
}

impl Drop for Workspace {
    fn drop(&mut self) {
        if let Some(network) = &mut self.network {
            drop(network.input.take());
            let _ = network.holder.wait();
        }
        let _ = fs::remove_dir_all(&self.directory);
    }
}

impl Network {
    /// `None` if the tools or the permission are missing.
    fn new() -> Option<Self> {
        let is_root = rustix::process::geteuid().is_root();
        let mut command = Command::new("unshare");
        if !is_root {
            command.args(["--user", "--map-current-user", "--keep-caps"]);
        }
        let script = "ip link set lo up && echo ready && exec cat";
        command.args(["--net", "--", "sh", "-c", script]);
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let mut holder = command.spawn().ok()?;
        let input = holder.stdin.take();
        let mut line = String::new();
        let output = holder.stdout.take()?;
        let _ = BufReader::new(output).read_line(&mut line);
        if line.trim() != "ready" {
            drop(input);
            let _ = holder.wait();
            return None;
        }
        Some(Network {
            holder,
            input,
            is_root,
        })
    }
}
