//! Runs the commands of a page.

use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use xtask::command::program_beside_us;
use xtask::scratch::Scratch;

use super::block::{Block, BlockKind};

/// Longer than any of them needs on a machine that is busy with other things.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(90);

/// How often to check whether a process has exited or has printed something.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// Stands for cargo: what pages ask it to build is there, and what they ask it to run is run from
/// the unoptimised build. What other steps of the test run is not run again.
const CARGO: &str = r#"#!/bin/sh
case "$*" in
"build"*|"xtask "*|*" -p sim "*) exit 0 ;;
"run --release -- "*) shift 3; exec roci "$@" ;;
"run --release --example "*) program=$4; shift 4; [ "$1" = "--" ] && shift; exec "$program" "$@" ;;
esac
echo "the pages ask cargo for something that their test does not know: cargo $*" >&2
exit 1
"#;

/// What a page finds in the directory where it is followed.
const DIRECTORIES: [&str; 2] = ["examples/c", "examples/python"];

/// An empty directory, and a path on which our programs are found.
pub(super) struct Reader {
    directory: Scratch,
    path: String,
}

impl Reader {
    pub(super) fn new(root: &Path) -> Result<Self, String> {
        let directory = Scratch::new("tutorial")?;
        let complain = |error: std::io::Error| format!("the reader's directory: {error}");
        let tools = directory.0.join("bin");
        fs::create_dir(&tools).map_err(complain)?;
        write_program(&tools.join("cargo"), CARGO).map_err(complain)?;
        for name in DIRECTORIES {
            copy_sources(&root.join(name), &directory.0.join(name)).map_err(complain)?;
        }
        let ours = program_beside_us("")?;
        let inherited = std::env::var("PATH").unwrap_or_default();
        // The distribution's Python before any other: pyverbs belongs to that one.
        let path = format!(
            "{}:{}:{}:/usr/bin:{inherited}",
            tools.display(),
            ours.display(),
            ours.join("examples").display()
        );
        Ok(Self { directory, path })
    }

    /// Runs the blocks in their order; the error has the output of the one that failed.
    pub(super) fn follow(&self, blocks: &[Block]) -> Result<(), String> {
        let mut server: Option<Terminal> = None;
        for block in blocks {
            match block.kind {
                BlockKind::Elsewhere => {}
                BlockKind::Alone => self.open_terminal(block)?.wait_for_success()?,
                BlockKind::Server => {
                    let terminal = server.insert(self.open_terminal(block)?);
                    terminal.wait_until_it_listens()?;
                }
                BlockKind::Client => {
                    let mut served = server.take().expect("a server stands before each client");
                    let asked = self.open_terminal(block)?.wait_for_success();
                    asked.map_err(|why| format!("{why}\n{}", served.report("served it")))?;
                    served.wait_for_success()?;
                }
            }
        }
        Ok(())
    }

    fn open_terminal(&self, block: &Block) -> Result<Terminal, String> {
        println!(
            "  line {}: {}",
            block.line,
            block.script.replace('\n', "; ")
        );
        let complain = |error: std::io::Error| format!("line {}: {error}", block.line);
        let output = self.directory.0.join(format!("line-{}", block.line));
        let file = File::create(&output).map_err(complain)?;
        let both = file.try_clone().map_err(complain)?;
        let mut command = Command::new("bash");
        command
            .args(["-euo", "pipefail", "-c", &block.script])
            .current_dir(&self.directory.0)
            .env("PATH", &self.path)
            // The links of the user are not ours to use, or to change.
            .env("XDG_CONFIG_HOME", self.directory.0.join("config"))
            .env_remove("ROCI_PCAP")
            .env_remove("ROCI_FAULT")
            .env_remove("ROCI_DEVICES")
            .env_remove("ROCI_EXPLAIN")
            .stdin(Stdio::null())
            .stdout(file)
            .stderr(both)
            // A group of its own, which ends as a whole.
            .process_group(0);
        Ok(Terminal {
            line: block.line,
            script: block.script.clone(),
            child: command.spawn().map_err(complain)?,
            output,
        })
    }
}

fn write_program(path: &Path, text: &str) -> std::io::Result<()> {
    fs::write(path, text)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o755))
}

/// Copies sources, and not what was built beside them.
fn copy_sources(from: &Path, to: &Path) -> std::io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default();
        if path.is_file() && path.extension().is_some() {
            fs::copy(&path, to.join(name))?;
        }
    }
    Ok(())
}

/// A block that runs, and does not outlive this.
struct Terminal {
    line: usize,
    script: String,
    child: Child,
    output: PathBuf,
}

impl Terminal {
    /// Every server of ours prints its port.
    fn wait_until_it_listens(&mut self) -> Result<(), String> {
        let deadline = Instant::now() + COMMAND_TIMEOUT;
        while !self.output().contains(" port ") {
            if let Some(status) = self.ended() {
                return Err(self.report(&format!("ended before it listened ({status})")));
            }
            if Instant::now() > deadline {
                return Err(self.report("did not listen in time"));
            }
            sleep(POLL_INTERVAL);
        }
        Ok(())
    }

    fn wait_for_success(&mut self) -> Result<(), String> {
        let deadline = Instant::now() + COMMAND_TIMEOUT;
        loop {
            match self.ended() {
                Some(status) if status.success() => return Ok(()),
                Some(status) => return Err(self.report(&status.to_string())),
                None if Instant::now() > deadline => return Err(self.report("did not end in time")),
                None => sleep(POLL_INTERVAL),
            }
        }
    }

    fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    fn output(&self) -> String {
        let bytes = fs::read(&self.output).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    fn report(&self, how: &str) -> String {
        let output = self.output();
        format!(
            "line {}\n$ {}\n{}\n{how}",
            self.line,
            self.script,
            output.trim_end()
        )
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // What it left in the background goes, too.
        let group = format!("-{}", self.child.id());
        let mut kill = Command::new("kill");
        let _ = kill
            .args(["-KILL", "--", &group])
            .stderr(Stdio::null())
            .status();
        let _ = self.child.wait();
    }
}
