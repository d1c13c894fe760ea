//! The overhead of the C libraries: perftest under `roci run`, compared with `roci perf`, which does not use
//! them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use xtask::command::CommandLine;

/// The path of perftest, if it is installed.
const PERFTEST: &str = "/usr/bin/ib_send_bw";

/// The build before the measurements.
const BUILD: &str = "build --release -p roci -p capi -p preload";

/// The device and the TCP port of both sides of a measurement.
const DEVICE: &str = "roci0=127.0.0.1";
const PORT: &str = "18516";

/// The two programs take turns, so that both see the same load of the machine.
const ROUNDS: usize = 5;

/// What is compared.
struct Row {
    /// Its names in perftest and in `roci perf`.
    program: &'static str,
    test: &'static str,
    size: &'static str,
    messages: &'static str,
    measures: Measure,
}

#[derive(Clone, Copy, PartialEq)]
enum Measure {
    /// MiB per second: the C libraries should reach 0.9 of `roci perf`.
    Bandwidth,
    /// Microseconds of a typical message: the C libraries should take at most 1.15 times as long.
    Latency,
}

const ROWS: [Row; 7] = [
    bandwidth("ib_write_bw", "write-bw", "65536", "20000"),
    bandwidth("ib_write_bw", "write-bw", "1048576", "2000"),
    bandwidth("ib_read_bw", "read-bw", "65536", "20000"),
    bandwidth("ib_read_bw", "read-bw", "1048576", "2000"),
    bandwidth("ib_send_bw", "send-bw", "65536", "20000"),
    bandwidth("ib_send_bw", "send-bw", "1048576", "2000"),
    Row {
        measures: Measure::Latency,
        ..bandwidth("ib_send_lat", "send-lat", "2", "20000")
    },
];

const fn bandwidth(
    program: &'static str,
    test: &'static str,
    size: &'static str,
    messages: &'static str,
) -> Row {
    Row {
        program,
        test,
        size,
        messages,
        measures: Measure::Bandwidth,
    }
}

/// Why it can't be measured here, if it can't.
pub(crate) fn missing() -> Option<String> {
    let sentence = "perftest is not installed (`apt-get install perftest` as root)";
    (!Path::new(PERFTEST).exists()).then(|| sentence.to_owned())
}

/// Measures, and prints the table.
pub(crate) fn measure(root: &Path) -> Result<(), String> {
    let build = CommandLine::cargo(BUILD);
    println!("$ {build}");
    if !build.run(root).is_ok_and(|built| built) {
        return Err(format!("`{build}` failed"));
    }
    let roci = release_build()?.join("roci");
    println!(
        "{:<12} {:>8}  {:>10} {:>10}  perftest / roci perf: median (least – most)",
        "", "bytes", "perftest", "roci perf"
    );
    for row in ROWS {
        println!("{}", row.measured(&roci)?);
    }
    Ok(())
}

/// The directory beside the one of the unoptimised build, in which we are.
fn release_build() -> Result<PathBuf, String> {
    let ours = std::env::current_exe().map_err(|error| error.to_string())?;
    let directory = ours.parent().and_then(Path::parent);
    Ok(directory
        .ok_or("a program is in a directory")?
        .join("release"))
}

impl Row {
    fn measured(&self, roci: &Path) -> Result<String, String> {
        let mut through_c = Vec::new();
        let mut ours = Vec::new();
        for _ in 0..ROUNDS {
            through_c.push(self.through_c(roci)?);
            ours.push(self.directly(roci)?);
        }
        let mut ratios: Vec<f64> = through_c
            .iter()
            .zip(&ours)
            .map(|(c, own)| c / own)
            .collect();
        let unit = match self.measures {
            Measure::Bandwidth => "MiB/s",
            Measure::Latency => "µs",
        };
        Ok(format!(
            "{:<12} {:>8}  {:>10.1} {:>10.1}  {:.2} ({:.2} – {:.2})  {unit}",
            self.program,
            self.size,
            median(&mut through_c),
            median(&mut ours),
            median(&mut ratios),
            ratios[0],
            ratios[ratios.len() - 1],
        ))
    }

    fn through_c(&self, roci: &Path) -> Result<f64, String> {
        let command = |server: &[&str]| {
            let mut command = Command::new(roci);
            command
                .args(["run", "--devices", DEVICE, "--", self.program])
                .args(["-d", "roci0", "-x", "0", "-F", "-p", PORT])
                .args(["-s", self.size, "-n", self.messages])
                .args(server)
                .stdin(Stdio::null())
                .stdout(Stdio::piped())
                .stderr(Stdio::piped());
            command
        };
        let started = command(&[]).spawn();
        let mut server = Running(started.map_err(|error| self.failed(&error.to_string()))?);
        server.wait_until_it_listens()?;
        let client = command(&["127.0.0.1"]).output();
        let client = client.map_err(|error| self.failed(&error.to_string()))?;
        let column = match self.measures {
            Measure::Bandwidth => 3,
            Measure::Latency => 4,
        };
        let text = String::from_utf8_lossy(&client.stdout);
        column_of(&text, self.size, column).ok_or_else(|| self.failed(&everything(&client)))
    }

    fn directly(&self, roci: &Path) -> Result<f64, String> {
        let output = Command::new(roci)
            .args(["perf", self.test, "--local", "--json"])
            .args(["-s", self.size, "-n", self.messages])
            .env("ROCI_DEVICES", DEVICE)
            .output()
            .map_err(|error| self.failed(&error.to_string()))?;
        let field = match self.measures {
            Measure::Bandwidth => "average_mib_per_second",
            Measure::Latency => "typical_us",
        };
        let text = String::from_utf8_lossy(&output.stdout);
        field_of(&text, field).ok_or_else(|| self.failed(&everything(&output)))
    }

    fn failed(&self, why: &str) -> String {
        format!("{} of {} bytes: {why}", self.program, self.size)
    }
}

fn everything(output: &Output) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    format!("{}{}", text(&output.stdout), text(&output.stderr))
}

/// A number in the line of perftest's table that begins with the size.
pub(crate) fn column_of(table: &str, size: &str, column: usize) -> Option<f64> {
    let mut lines = table.lines().map(str::split_whitespace);
    let mut line = lines.find(|line| line.clone().next() == Some(size))?;
    line.nth(column)?.parse().ok()
}

/// A number of our own result.
pub(crate) fn field_of(json: &str, name: &str) -> Option<f64> {
    let (_, behind) = json.split_once(&format!("\"{name}\": "))?;
    let end = behind.find([',', '\n', '}'])?;
    behind[..end].trim().parse().ok()
}

/// Sorts the numbers, and gives the one in the middle.
pub(crate) fn median(numbers: &mut [f64]) -> f64 {
    numbers.sort_by(f64::total_cmp);
    numbers[numbers.len() / 2]
}

/// A process that does not outlive this.
struct Running(Child);

impl Running {
    fn wait_until_it_listens(&mut self) -> Result<(), String> {
        const LISTEN_TIMEOUT: Duration = Duration::from_secs(20);
        const LISTENING: &str = "0A";
        let port = format!(":{:04X}", PORT.parse::<u16>().expect("a port"));
        let end = Instant::now() + LISTEN_TIMEOUT;
        while Instant::now() < end {
            let tables = ["/proc/net/tcp", "/proc/net/tcp6"].map(fs::read_to_string);
            let listens = tables.iter().flatten().flat_map(|table| table.lines());
            let mut sockets = listens.map(|line| line.split_whitespace().skip(1));
            if sockets.any(|mut fields| {
                fields.next().is_some_and(|local| local.ends_with(&port))
                    && fields.nth(1) == Some(LISTENING)
            }) {
                return Ok(());
            }
            sleep(Duration::from_millis(5));
        }
        Err("perftest's server does not listen".into())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_found_in_what_the_programs_print() {
        let table = " #bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]   MsgRate[Mpps]\n \
                     65536      2000             1726.63            936.09 \t\t   0.014977\n";
        assert_eq!(column_of(table, "65536", 3), Some(936.09));
        assert_eq!(column_of(table, "1048576", 3), None);
        let json = "{\n  \"bytes\": 2,\n  \"typical_us\": 35.9,\n  \"p99_us\": 1815.5\n}\n";
        assert_eq!(field_of(json, "typical_us"), Some(35.9));
        assert_eq!(field_of(json, "p99_us"), Some(1815.5));
        assert_eq!(field_of(json, "average_us"), None);
    }

    #[test]
    fn the_median_is_in_the_middle() {
        let mut numbers = [3.0, 1.0, 2.0];
        assert_eq!(median(&mut numbers), 2.0);
        assert_eq!(numbers, [1.0, 2.0, 3.0]);
    }
}
