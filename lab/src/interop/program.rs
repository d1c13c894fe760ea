//! A program on our side.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use super::build_directory::BuildDirectory;
use super::command_channel::Outcome;
use super::guest_files;
use super::image;
use super::release::Release;
use super::rows::{Role, Way};

/// How often to check whether a program has exited or listens.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// How many checks in a row must find a server asleep before it counts as waiting for clients.
const ASLEEP_CHECKS: u32 = 3;

/// Delays packets to queue pair 1, which is the connection manager's.
const DELAYED_MANAGEMENT: &str = "delay:qp=1,by=500ms";

/// The programs of this side.
pub(crate) struct Programs {
    roci: PathBuf,
    programs: PathBuf,
    libraries: PathBuf,
    compiled: PathBuf,
    outputs: PathBuf,
}

impl Programs {
    pub(crate) fn new(build_directory: &BuildDirectory) -> Result<Self, String> {
        let root = image::root(&BuildDirectory::find(Release::OURS)?);
        let outputs = build_directory.file("outputs");
        fs::create_dir_all(&outputs).map_err(|error| error.to_string())?;
        let programs = Self {
            roci: build_directory.roci(),
            programs: root.join("usr/bin"),
            libraries: build_directory.file("libraries"),
            compiled: guest_files::programs(build_directory),
            outputs,
        };
        programs.link_libraries(&root)?;
        Ok(programs)
    }

    /// Copies the libraries that perftest needs besides ours. The other ones of the directory fit another C library.
    fn link_libraries(&self, root: &Path) -> Result<(), String> {
        fs::create_dir_all(&self.libraries).map_err(|error| error.to_string())?;
        for name in ["libibumad.so.3", "libpci.so.3"] {
            let library = root.join("usr/lib/x86_64-linux-gnu").join(name);
            let copy = self.libraries.join(name);
            fs::copy(&library, &copy).map_err(|error| format!("{name}: {error}"))?;
        }
        Ok(())
    }

    /// Runs a program without a peer, with the devices that the tests of our libraries use.
    pub(crate) fn run_alone(&self, program: &str, timeout: Duration) -> Result<Outcome, String> {
        let mut command = self.command(Way::Run, program);
        command.env("ROCI_DEVICES", "left=127.0.0.31,right=127.0.0.32");
        self.launch(command, program, "alone")?.finish(timeout)
    }

    /// Starts a command line, given as for the kernel's side.
    pub(crate) fn start(&self, way: Way, line: &str, role: Role) -> Result<Running, String> {
        let mut command = self.command(way, line);
        if (way, role) == (Way::RunWithDelay, Role::Client) {
            command.env("ROCI_FAULT", DELAYED_MANAGEMENT);
        }
        self.launch(command, line, &format!("{role:?}"))
    }

    fn launch(&self, mut command: Command, line: &str, name: &str) -> Result<Running, String> {
        let output = self.outputs.join(name);
        let file = File::create(&output).map_err(|error| error.to_string())?;
        let errors = output.with_extension("err");
        let errors = File::create(&errors).map_err(|error| error.to_string())?;
        let child = command
            .env("LD_LIBRARY_PATH", &self.libraries)
            // `/run` belongs to our namespace.
            .env("XDG_RUNTIME_DIR", "/run")
            .stdin(Stdio::null())
            .stdout(file)
            .stderr(errors)
            .spawn()
            .map_err(|error| format!("`{line}` can't be started here: {error}"))?;
        Ok(Running { child, output })
    }

    /// Stores the output of both sides, to find out why a row failed.
    pub(crate) fn keep(&self, row: &str, ours: Option<Role>, said: [&Outcome; 2]) {
        let ours = ours.map_or("kernels".into(), |role| format!("{role:?}"));
        for (role, outcome) in [Role::Server, Role::Client].iter().zip(said) {
            let name = format!("{row} - {ours} - {role:?}.txt").replace('/', " ");
            // The files are only for diagnosis, so an error is ignored.
            let _ = fs::write(self.outputs.join(name), &outcome.text);
        }
    }

    /// The path of a program that was compiled here, or of the distribution's.
    fn path_of(&self, program: &str) -> PathBuf {
        let compiled = self.compiled.join(program);
        if compiled.is_file() {
            compiled
        } else {
            self.programs.join(program)
        }
    }

    fn command(&self, way: Way, line: &str) -> Command {
        let mut words = line.split_whitespace();
        let program = words.next().expect("a command line names a program");
        let mut command = Command::new(&self.roci);
        match (way, program) {
            (Way::Ping, _) => command.arg("ping"),
            (Way::Roci, _) => &mut command,
            (Way::Run | Way::RunWithDelay, _) => {
                command.args(["run", "--"]).arg(self.path_of(program))
            }
        };
        command.args(words);
        command
    }
}

/// A program of this side that runs.
pub(crate) struct Running {
    child: Child,
    output: PathBuf,
}

impl Running {
    /// Waits until a server waits for clients: it has its port, and all of its threads sleep.
    pub(crate) fn wait_for_listener(&mut self, timeout: Duration) -> bool {
        let start = Instant::now();
        let mut asleep = 0;
        while start.elapsed() < timeout && asleep < ASLEEP_CHECKS {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return false;
            }
            asleep = if has_port() && self.sleeps() {
                asleep + 1
            } else {
                0
            };
            sleep(POLL_INTERVAL);
        }
        asleep == ASLEEP_CHECKS
    }

    fn sleeps(&self) -> bool {
        let tasks = format!("/proc/{}/task", self.child.id());
        let Ok(tasks) = fs::read_dir(tasks) else {
            return false;
        };
        tasks.flatten().all(|task| {
            let stat = fs::read_to_string(task.path().join("stat")).unwrap_or_default();
            // The name before the state is in parentheses and may contain anything.
            stat.rsplit(')')
                .next()
                .is_some_and(|rest| rest.starts_with(" S"))
        })
    }

    /// Waits for the end; a program that takes too long is killed.
    pub(crate) fn finish(mut self, timeout: Duration) -> Result<Outcome, String> {
        let start = Instant::now();
        let code = loop {
            match self.child.try_wait().map_err(|error| error.to_string())? {
                // The code with which a shell reports SIGKILL.
                Some(status) => break status.code().unwrap_or(137),
                None if start.elapsed() > timeout => break self.kill(),
                None => sleep(POLL_INTERVAL),
            }
        };
        let mut text = fs::read(&self.output).map_err(|error| error.to_string())?;
        // stderr comes last, as on the other side.
        let errors = fs::read(self.output.with_extension("err"));
        text.extend(errors.map_err(|error| error.to_string())?);
        let text = String::from_utf8_lossy(&text).into_owned();
        Ok(Outcome { code, text })
    }

    fn kill(&mut self) -> i32 {
        // It is no error if it has just exited.
        let _ = self.child.kill();
        let _ = self.child.wait();
        137
    }
}

/// Whether a process in this network has the RoCE port, or a TCP listener.
fn has_port() -> bool {
    let lines = |name: &str| fs::read_to_string(format!("/proc/net/{name}")).unwrap_or_default();
    let roce = format!(":{:04X} ", wire::ROCE_PORT);
    let bound = ["udp", "udp6"]
        .map(lines)
        .iter()
        .any(|it| it.contains(&roce));
    // 0A is the state LISTEN.
    bound
        || ["tcp", "tcp6"]
            .map(lines)
            .iter()
            .any(|it| it.contains(" 0A "))
}
