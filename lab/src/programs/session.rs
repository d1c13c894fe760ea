//! One run: a server, its clients, and their results.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use xtask::command::shown;

use super::findings::Finding;
use super::list::{Ready, Row, Server};
use super::network::{Family, Host, Network};

/// Longer than any of them needs on a machine that is busy with other things.
const SESSION_TIMEOUT: Duration = Duration::from_secs(180);

/// As [`SESSION_TIMEOUT`], for a program that is checked: the check takes most of its time.
const CHECKED_TIMEOUT: Duration = Duration::from_secs(600);

/// A program that opens no device.
const LISTS_DEVICES: &str = "ibv_devices";

/// How lines of the check begin.
const CHECK_PREFIX: &str = "roci: check:";

/// Run with explanations of what goes wrong: nothing does, so nothing must be explained.
const EXPLAINED: [&str; 2] = ["ibv_rc_pingpong", "rping"];

/// How often to check whether a process has exited or has printed something.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// The states of a listening socket in `/proc/net/tcp`, and of an open one in `/proc/net/udp`.
const LISTENING: &str = "0A";
const UNCONNECTED: &str = "07";

/// What every run needs to know.
pub(crate) struct Tools {
    /// The command under test.
    pub(crate) roci: PathBuf,
    /// Our Python scripts.
    pub(crate) scripts: PathBuf,
    /// A directory for outputs, and for the processes to find each other.
    pub(crate) scratch: PathBuf,
    /// Whether processes of one host use sockets, too, so that their packets can be counted.
    pub(crate) sockets_only: bool,
    /// Whether the programs are checked, as by `roci run --check`.
    pub(crate) checked: bool,
}

/// A row over one network and one family.
pub(crate) struct Session<'a> {
    pub(crate) tools: &'a Tools,
    pub(crate) row: &'a Row,
    pub(crate) network: &'a Network,
    pub(crate) family: Family,
    /// A name that no other session has.
    pub(crate) number: usize,
}

impl Session<'_> {
    /// Runs it; the error is what a reader needs to find out why it failed.
    pub(crate) fn run(&self) -> Result<(), String> {
        let end = Instant::now() + self.timeout();
        let _ = fs::remove_file(self.findings_file());
        let mut server = self.start_server()?;
        if let Some((server, ready)) = &mut server {
            server.wait_until(end, |server| server.is_ready(*ready, &self.registry()))?;
        }
        let mut outputs = self.run_clients(end).map_err(|why| match &server {
            Some((server, _)) => format!("{why}\n{}", server.failed("served it")),
            None => why,
        })?;
        if let Some((mut server, _)) = server {
            if let Server::Ends(..) = self.row.server {
                server.wait_for_success(end)?;
            }
            outputs.push(server.output());
        }
        let explained = |line: &str| line.starts_with("roci:") && !self.is_expected(line);
        if let Some(line) = outputs
            .iter()
            .flat_map(|it| it.lines())
            .find(|it| explained(it))
        {
            return Err(format!(
                "all went well, and yet something is explained: {line}"
            ));
        }
        if outputs
            .iter()
            .any(|output| output.contains(self.row.prints))
        {
            Ok(())
        } else {
            Err(format!(
                "no program prints `{}`:\n{}",
                self.row.prints,
                outputs.join("\n")
            ))
        }
    }

    /// What the check of the last run found.
    pub(crate) fn findings(&self) -> Vec<Finding> {
        let lines = fs::read_to_string(self.findings_file()).unwrap_or_default();
        lines.lines().filter_map(Finding::parse).collect()
    }

    /// Whether a check may print this line.
    fn is_expected(&self, line: &str) -> bool {
        self.tools.checked && is_of_check(self.row.program, line)
    }

    fn findings_file(&self) -> PathBuf {
        let name = format!("{}-findings", self.number);
        self.tools.scratch.join(name)
    }

    fn timeout(&self) -> Duration {
        if self.tools.checked {
            CHECKED_TIMEOUT
        } else {
            SESSION_TIMEOUT
        }
    }

    fn start_server(&self) -> Result<Option<(Running, Ready)>, String> {
        let (line, ready) = match &self.row.server {
            Server::None => return Ok(None),
            Server::Ends(line, ready) | Server::Stays(line, ready) => (line, *ready),
        };
        let mut line = self.filled_in(line);
        if let Ready::Says(_) = ready {
            // Programs buffer output to a file; the output of this one must be seen at once.
            line.insert_str(0, "stdbuf -oL ");
        }
        if let Ready::Tcp(port) = ready {
            self.wait_until_free(port)?;
        }
        let server = self.start(&self.network.server, &line, "server")?;
        Ok(Some((server, ready)))
    }

    /// Some servers have children, which end a moment later than they do and keep their port that long.
    fn wait_until_free(&self, port: u16) -> Result<(), String> {
        let end = Instant::now() + SESSION_TIMEOUT;
        while Instant::now() < end {
            let mut look = self.network.server.command("cat");
            let tables = look.args(["/proc/net/tcp", "/proc/net/tcp6"]).output();
            let tables =
                tables.map_err(|error| format!("the tables of ports can't be read: {error}"))?;
            if !has_socket(&String::from_utf8_lossy(&tables.stdout), port, LISTENING) {
                return Ok(());
            }
            sleep(POLL_INTERVAL);
        }
        Err(format!("another process listens at port {port}"))
    }

    /// Their output, when all have succeeded.
    fn run_clients(&self, end: Instant) -> Result<Vec<String>, String> {
        let mut outputs = Vec::new();
        for mut client in self.start_clients(end)? {
            client.wait_for_success(end)?;
            outputs.push(client.output());
        }
        Ok(outputs)
    }

    fn start_clients(&self, end: Instant) -> Result<Vec<Running>, String> {
        let Some(line) = &self.row.client else {
            return Ok(Vec::new());
        };
        let line = self.filled_in(line);
        let (number, next_when) = self.row.clients;
        let mut clients: Vec<Running> = Vec::new();
        for number in 0..number {
            if let Some(before) = clients.last_mut() {
                before.wait_until(end, |before| before.output().contains(next_when))?;
            }
            let role = format!("client{number}");
            let host = &self.network.client;
            clients.push(self.start(host, &line, &role)?);
        }
        Ok(clients)
    }

    fn filled_in(&self, line: &str) -> String {
        let (server, client) = (&self.network.server, &self.network.client);
        line.replace("{device}", Host::device())
            .replace("{gid}", Host::gid(self.family))
            .replace("{address}", server.address(self.family))
            .replace("{own}", client.address(self.family))
            .replace("{v4}", &server.v4)
            .replace("{roci}", &self.tools.roci.to_string_lossy())
            .replace("{scripts}", &self.tools.scripts.to_string_lossy())
            .replace("{scratch}", &self.tools.scratch.to_string_lossy())
    }

    fn start(&self, host: &Host, line: &str, role: &str) -> Result<Running, String> {
        let path = self.tools.scratch.join(format!("{}-{role}", self.number));
        let failed = |error| format!("{role} can't be started: {error}");
        let output = File::create(&path).map_err(failed)?;
        let both = output.try_clone().map_err(failed)?;
        let devices = host.devices();
        let mut command = host.command(&self.tools.roci.to_string_lossy());
        command
            .args(["run", "--devices", &devices])
            .args(EXPLAINED.contains(&self.row.program).then_some("--explain"))
            .arg("--")
            .args(line.split_whitespace())
            .env("XDG_RUNTIME_DIR", &self.tools.scratch)
            .envs(self.tools.sockets_only.then_some(("ROCI_SHORTCUT", "0")))
            .envs(
                self.tools
                    .checked
                    .then(|| self.check_options())
                    .into_iter()
                    .flatten(),
            )
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(output)
            .stderr(both);
        Ok(Running {
            shown: shown(&command),
            child: command.spawn().map_err(failed)?,
            output: path,
        })
    }

    fn check_options(&self) -> [(&'static str, PathBuf); 2] {
        let file = self.findings_file();
        [("ROCI_CHECK", "1".into()), ("ROCI_CHECK_JSON", file)]
    }

    fn registry(&self) -> PathBuf {
        self.tools.scratch.join("roci")
    }
}

/// A process that does not outlive this.
struct Running {
    shown: String,
    child: Child,
    output: PathBuf,
}

impl Running {
    fn output(&self) -> String {
        let bytes = fs::read(&self.output).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    fn failed(&self, how: &str) -> String {
        format!("$ {}\n{}\n{how}", self.shown, self.output().trim_end())
    }

    fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    /// Waits for something to become true of a process that must not end before.
    fn wait_until(
        &mut self,
        end: Instant,
        mut holds: impl FnMut(&Self) -> bool,
    ) -> Result<(), String> {
        while !holds(self) {
            if let Some(status) = self.ended() {
                return Err(self.failed(&format!("ended before it was ready: {status}")));
            }
            if Instant::now() > end {
                return Err(self.failed("did not become ready in time"));
            }
            sleep(POLL_INTERVAL);
        }
        Ok(())
    }

    fn wait_for_success(&mut self, end: Instant) -> Result<(), String> {
        loop {
            match self.ended() {
                Some(status) if status.success() => return Ok(()),
                Some(status) => return Err(self.failed(&status.to_string())),
                None if Instant::now() > end => return Err(self.failed("did not end in time")),
                None => sleep(POLL_INTERVAL),
            }
        }
    }

    fn is_ready(&self, ready: Ready, registry: &Path) -> bool {
        match ready {
            Ready::Tcp(port) => self.has_socket(["tcp", "tcp6"], port, LISTENING),
            Ready::Udp(port) => self.has_socket(["udp", "udp6"], port, UNCONNECTED),
            Ready::Service => self.has_service(registry) && self.waits(),
            Ready::BusyService => self.has_service(registry),
            Ready::Says(text) => self.output().contains(text),
        }
    }

    /// Whether it sleeps, and did nothing else for a moment.
    fn waits(&self) -> bool {
        let before = self.switches();
        sleep(POLL_INTERVAL);
        before.is_some() && before == self.switches()
    }

    /// How often it went to sleep, if it sleeps now.
    fn switches(&self) -> Option<String> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id())).ok()?;
        let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name));
        let sleeps = field("State:")?.trim_start().starts_with('S');
        let switches = field("voluntary_ctxt_switches:")?.trim().to_owned();
        sleeps.then_some(switches)
    }

    /// Looks into the process's own network namespace.
    fn has_socket(&self, tables: [&str; 2], port: u16, state: &str) -> bool {
        tables.iter().any(|table| {
            let path = format!("/proc/{}/net/{table}", self.child.id());
            has_socket(&fs::read_to_string(path).unwrap_or_default(), port, state)
        })
    }

    /// Whether one of the registries names the process as one that listens.
    fn has_service(&self, registry: &Path) -> bool {
        registry_lists(registry, self.child.id())
    }
}

impl Drop for Running {
    /// Its children end with it.
    fn drop(&mut self) {
        if self.ended().is_none() {
            let group = format!("kill -KILL -{}", self.child.id());
            let _ = Command::new("sh").args(["-c", &group]).status();
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Whether a check of this program may print this line. It explains failures, too, of which correct programs have some.
fn is_of_check(program: &str, line: &str) -> bool {
    let is_list = program == LISTS_DEVICES && line.contains("opened none of our devices");
    let is_explained =
        !EXPLAINED.contains(&program) && line.starts_with(&format!("roci: {}: ", Host::device()));
    line.starts_with(CHECK_PREFIX) || is_list || is_explained
}

/// Whether one of the registries in a directory names the process as one that listens.
pub(crate) fn registry_lists(registry: &Path, process: u32) -> bool {
    let files = fs::read_dir(registry).into_iter().flatten().flatten();
    files
        .filter(|entry| {
            entry
                .metadata()
                .is_ok_and(|found| found.is_file() && found.size() > 0)
        })
        .filter_map(|entry| fs::read_to_string(entry.path()).ok())
        .any(|table| listens(&table, process))
}

/// Whether a table of TCP sockets has one that listens at this port.
pub(crate) fn listens_at(table: &str, port: u16) -> bool {
    has_socket(table, port, LISTENING)
}

/// Whether a table of sockets has one at this port, in this state.
fn has_socket(table: &str, port: u16, state: &str) -> bool {
    let port = format!(":{port:04X}");
    table.lines().any(|line| {
        let mut fields = line.split_whitespace().skip(1);
        let ours = fields.next().is_some_and(|local| local.ends_with(&port));
        ours && fields.nth(1) == Some(state)
    })
}

/// Whether a table of an address has a service of this process.
fn listens(table: &str, process: u32) -> bool {
    let process = process.to_string();
    let words = |line: &'static str| move |text: &str| text.starts_with(line);
    let members = table.lines().filter(|line| words("member ")(line));
    let mut slices = members.filter_map(|line| {
        let mut words = line.split(' ').skip(1);
        let slice = words.next()?;
        (words.nth(1) == Some(process.as_str())).then_some(slice)
    });
    slices.any(|slice| {
        let mut listeners = table.lines().filter(|line| words("listener ")(line));
        listeners.any(|line| line.ends_with(&format!(" member {slice}")))
    })
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_check_may_explain_failures_of_a_program_that_may_have_some() {
        let explained = format!("roci: {}: It failed.", super::Host::device());
        assert!(super::is_of_check("qperf", &explained));
        assert!(!super::is_of_check("rping", &explained));
        assert!(super::is_of_check("rping", "roci: check: no findings."));
        let unused = "roci: this program opened none of our devices";
        assert!(!super::is_of_check("qperf", unused));
    }

    #[test]
    fn a_port_that_is_listened_at_is_found() {
        let table = "  sl  local_address rem_address   st tx_queue\n   \
                     0: 0100007F:4853 00000000:0000 0A 00000000:00000000\n   \
                     1: 0100007F:4854 0100007F:9999 01 00000000:00000000\n";
        assert!(super::has_socket(table, 18515, super::LISTENING));
        assert!(!super::has_socket(table, 18516, super::LISTENING));
        assert!(!super::has_socket(table, 39321, super::LISTENING));
    }

    #[test]
    fn a_listener_is_found_by_its_process() {
        let table = "roci 3 boot\nround 00 last 4\nmember 2 pid 71 start 9 round 00 place 0\n\
                     member 12 pid 72 start 9 round 00\nlistener 0000000001061c06 member 12\n";
        assert!(super::listens(table, 72));
        assert!(!super::listens(table, 71));
        assert!(!super::listens(table, 7));
    }
}
