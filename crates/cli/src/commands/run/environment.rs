//! The environment in which a program finds our libraries and devices.

use std::env;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::slice;
use std::time::SystemTime;

use anyhow::{Context as _, bail};
use clap::Args;
use net::socket::interface::{self, DEVICES_VARIABLE, Device};
use net::tap::capture::{Limits, parse_size};
use net::tap::fault::{FAULT_VARIABLE, Faults};

use super::device_files::{self, Reader};
use super::elf::CLibrary;
use super::libraries::Libraries;
use super::stand_ins;
use crate::find_device::NO_DEVICE;
use crate::output::remark;

const PATH: &str = "PATH";
const LIBRARY_PATH: &str = "LD_LIBRARY_PATH";
const PRELOAD: &str = "LD_PRELOAD";
const TREE: &str = "ROCI_TREE";
/// The variable with the libraries that stay in `LD_PRELOAD` when a program sets it.
const KEPT_PRELOAD: &str = "ROCI_PRELOAD";
/// The variable that identifies the program's process.
const RUN: &str = "ROCI_RUN";
const PCAP: &str = "ROCI_PCAP";
const PCAP_RING: &str = "ROCI_PCAP_RING";
const PCAP_SNAPLEN: &str = "ROCI_PCAP_SNAPLEN";
const EXPLAIN: &str = "ROCI_EXPLAIN";
const CHECK: &str = "ROCI_CHECK";
const CHECK_JSON: &str = "ROCI_CHECK_JSON";
const CHECK_PROCESSES: &str = "ROCI_CHECK_PROCESSES";
const CHECK_PROFILE: &str = "ROCI_CHECK_PROFILE";
const CHECK_SUPPRESS: &str = "ROCI_CHECK_SUPPRESS";
const SHORTCUT: &str = "ROCI_SHORTCUT";
const RSOCKET: &str = "ROCI_RSOCKET";

/// The options of sanitizers with which a program of theirs runs on our libraries.
///
/// AddressSanitizer ends a program in which another library than its own is preloaded first. Ours calls its functions, as
/// the program does. ThreadSanitizer does not see the locks of libraries that were not compiled with it, and would report
/// their memory.
const SANITIZERS: [(&str, &str); 2] = [
    ("ASAN_OPTIONS", "verify_asan_link_order=0"),
    ("TSAN_OPTIONS", "ignore_noninstrumented_modules=1"),
];
const SANITIZER_SEPARATORS: &[u8] = b":";

/// The characters that end a path in each variable.
const PATH_SEPARATORS: &[u8] = b":;";
const PRELOAD_SEPARATORS: &[u8] = b": ";
const PROGRAM_SEPARATORS: &[u8] = b":";

/// The search path if `PATH` is not set.
pub(super) const USUAL_PROGRAMS: &str = "/usr/bin:/bin";

/// The options for devices and their packets.
#[derive(Args)]
pub(crate) struct Settings {
    /// Capture every packet to this file; `%p` in its name becomes the process id
    #[arg(long, value_name = "FILE")]
    pcap: Option<PathBuf>,
    /// Keep only the newest packets of the capture: at most this many bytes, such as 64M, in two files
    #[arg(long, value_name = "SIZE", requires = "pcap", value_parser = ring)]
    pcap_ring: Option<u64>,
    /// Keep only this many bytes of each packet, from its IP header on
    #[arg(long, value_name = "BYTES", requires = "pcap", value_parser = snap_length)]
    pcap_snaplen: Option<u64>,
    /// Inject faults, as ROCI_FAULT does: loss=1%, drop:opcode=ACK,nth=3, …
    #[arg(long, value_name = "SPEC")]
    fault: Option<String>,
    /// Use these devices, as ROCI_DEVICES does: eth0, mlx5_0=127.0.0.2, …
    #[arg(long, value_name = "SPEC")]
    devices: Option<String>,
    /// Explain errors on stderr, as ROCI_EXPLAIN=1 does
    #[arg(long)]
    explain: bool,
    /// Check the program for races, changed buffers, lost completions and other mistakes, as ROCI_CHECK=1 does, and explain
    /// errors. With `--check=fail`, a program with errors exits with status 66
    #[arg(long, value_name = "fail", require_equals = true, num_args = 0..=1,
          default_missing_value = "report")]
    check: Option<WhenFound>,
    /// Also append each finding of the check to this file, as one line of JSON
    #[arg(long, value_name = "FILE", requires = "check")]
    check_json: Option<PathBuf>,
    /// Do not report the findings that this file names: each line a rule, or `RULE: PART OF THE TEXT`
    #[arg(long, value_name = "FILE", requires = "check")]
    check_suppress: Option<PathBuf>,
    /// Also report what a device of this kind does not support: cx5, cx7, e810, efa, rxe
    #[arg(long, value_name = "DEVICE", requires = "check")]
    check_profile: Option<rocinante::Profile>,
    /// Also compare the requests of all processes that are checked in this way, as ROCI_CHECK_PROCESSES=1 does. Only for
    /// programs whose processes wait for each other by RDMA alone, not by TCP, MPI or pipes
    #[arg(long, requires = "check")]
    check_processes: bool,
    /// When packets between processes of this machine go through memory: auto (while no program captures or
    /// shapes loopback), always (as ROCI_SHORTCUT=1), never (as ROCI_SHORTCUT=0)
    #[arg(long, value_name = "WHEN", require_equals = true, num_args = 0..=1,
          default_missing_value = "always")]
    shortcut: Option<WhenShortcut>,
    /// Send what the program sends over TCP through rsockets, if its peer has them too
    #[arg(long)]
    rsocket: bool,
}

fn ring(text: &str) -> Result<u64, String> {
    size(text, Limits::LEAST_RING)
}

fn snap_length(text: &str) -> Result<u64, String> {
    size(text, Limits::LEAST_SNAP_LENGTH)
}

/// A number of bytes of at least this size.
fn size(text: &str, least: u64) -> Result<u64, String> {
    let size = parse_size(text).filter(|size| *size >= least);
    size.ok_or_else(|| format!("must be a number of bytes from {least} on, such as 64M"))
}

fn number(value: Option<u64>) -> Option<OsString> {
    value.map(|value| value.to_string().into())
}

/// What a check does when the program ends.
#[derive(clap::ValueEnum, Debug, Clone, Copy)]
enum WhenFound {
    #[value(hide = true)]
    Report,
    Fail,
}

impl WhenFound {
    /// The value of the environment variable.
    fn value(self) -> OsString {
        match self {
            Self::Report => "1",
            Self::Fail => "fail",
        }
        .into()
    }
}

/// When packets go through memory.
#[derive(clap::ValueEnum, Debug, Clone, Copy)]
enum WhenShortcut {
    Auto,
    Always,
    Never,
}

impl WhenShortcut {
    /// The value of the environment variable. An empty one counts as not set.
    fn value(self) -> OsString {
        match self {
            Self::Auto => "",
            Self::Always => "1",
            Self::Never => "0",
        }
        .into()
    }
}

impl Settings {
    /// The devices of the program.
    fn devices(&self) -> anyhow::Result<Vec<Device>> {
        let found = match &self.devices {
            Some(spec) => interface::devices(Some(spec)),
            None => interface::from_env(),
        };
        Ok(found?)
    }

    /// Fails if the faults can't be parsed, from the option or from the environment.
    fn check_faults(&self) -> anyhow::Result<()> {
        let inherited = || env::var(FAULT_VARIABLE).ok();
        let spec = self.fault.clone().or_else(inherited).unwrap_or_default();
        if !spec.is_empty() {
            Faults::parse(&spec)?;
        }
        Ok(())
    }

    /// The absolute path of a file of the check, because the program may change its directory.
    fn check_file(name: Option<&PathBuf>) -> anyhow::Result<Option<OsString>> {
        let path = name.map(std::path::absolute).transpose();
        Ok(path.context("the file needs a name")?.map(OsString::from))
    }

    /// The absolute path of the capture file, because the program may change its directory.
    fn capture(&self) -> anyhow::Result<Option<PathBuf>> {
        let Some(name) = &self.pcap else {
            return Ok(None);
        };
        let path = std::path::absolute(name).context("the capture needs a name")?;
        match path.parent() {
            Some(directory) if !directory.is_dir() => bail!(
                "there is no directory {} for the capture; make it, or choose another file",
                directory.display()
            ),
            _ => Ok(Some(path)),
        }
    }
}

/// The variables to set.
pub(crate) struct Environment(Vec<(&'static str, OsString)>);

impl Environment {
    /// The variables that make programs use our libraries, with these settings.
    pub(crate) fn new(
        settings: &Settings,
        reader: Reader,
        needed: CLibrary,
    ) -> anyhow::Result<Self> {
        settings.check_faults()?;
        let capture = settings.capture()?;
        let devices = settings.devices()?;
        if devices.is_empty() {
            remark(NO_DEVICE);
        }
        let tree = device_files::write(&devices, reader)?;
        let libraries = Libraries::find(needed)?;
        let mut variables = vec![
            (
                LIBRARY_PATH,
                in_front(
                    LIBRARY_PATH,
                    slice::from_ref(&libraries.directory),
                    PATH_SEPARATORS,
                ),
            ),
            (
                PRELOAD,
                in_front(PRELOAD, &libraries.preloaded, PRELOAD_SEPARATORS),
            ),
            (KEPT_PRELOAD, joined(&libraries.preloaded)),
            (TREE, tree.into()),
        ];
        variables.extend(program_path()?.map(|path| (PATH, path)));
        // The program's own options come later, and count.
        variables.extend(
            SANITIZERS.map(|(name, option)| {
                (name, in_front(name, &[option.into()], SANITIZER_SEPARATORS))
            }),
        );
        let given = [
            (PCAP, capture.map(OsString::from)),
            (PCAP_RING, number(settings.pcap_ring)),
            (PCAP_SNAPLEN, number(settings.pcap_snaplen)),
            (EXPLAIN, settings.explain.then(|| "1".into())),
            (CHECK, settings.check.map(WhenFound::value)),
            (
                CHECK_JSON,
                Settings::check_file(settings.check_json.as_ref())?,
            ),
            (
                CHECK_SUPPRESS,
                Settings::check_file(settings.check_suppress.as_ref())?,
            ),
            (
                CHECK_PROFILE,
                settings.check_profile.map(|profile| profile.name().into()),
            ),
            (
                CHECK_PROCESSES,
                settings.check_processes.then(|| "1".into()),
            ),
            (SHORTCUT, settings.shortcut.map(WhenShortcut::value)),
            (RSOCKET, settings.rsocket.then(|| "1".into())),
            (FAULT_VARIABLE, settings.fault.as_ref().map(OsString::from)),
            (
                DEVICES_VARIABLE,
                settings.devices.as_ref().map(OsString::from),
            ),
        ];
        let given = given
            .into_iter()
            .filter_map(|(name, value)| Some((name, value?)));
        variables.extend(given);
        if reader == Reader::Program {
            variables.push((RUN, this_run().into()));
        }
        Ok(Self(variables))
    }

    /// Every variable with its value.
    pub(crate) fn set(&self) -> impl Iterator<Item = (&'static str, &OsStr)> {
        self.0
            .iter()
            .map(|(name, value)| (*name, value.as_os_str()))
    }
}

/// `PATH` with the directory of our stand-ins first; `None` if it can't be added.
fn program_path() -> anyhow::Result<Option<OsString>> {
    let directory = stand_ins::directory()?;
    if directory.as_os_str().as_bytes().contains(&b':') {
        return Ok(None);
    }
    let mut path = in_front(PATH, slice::from_ref(&directory), PROGRAM_SEPARATORS);
    if env::var_os(PATH).is_none() {
        path.push(":");
        path.push(USUAL_PROGRAMS);
    }
    Ok(Some(path))
}

/// The id of this process and its start time, because the id will be reused.
fn this_run() -> String {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let now = now.unwrap_or_default().as_nanos();
    format!("{}.{now}", std::process::id())
}

/// The variables to change so that our libraries are no longer used: the rest of each value, or `None` to unset it.
pub(crate) fn without_ours(
    needed: CLibrary,
) -> anyhow::Result<Vec<(&'static str, Option<OsString>)>> {
    let libraries = Libraries::find(needed)?;
    let rest = |name, entries: &[PathBuf], separators| {
        let rest = without(&env::var_os(name).unwrap_or_default(), entries, separators);
        (name, Some(rest).filter(|rest| !rest.is_empty()))
    };
    let directory = slice::from_ref(&libraries.directory);
    let mut changes = vec![
        rest(LIBRARY_PATH, directory, PATH_SEPARATORS),
        rest(PRELOAD, &libraries.preloaded, PRELOAD_SEPARATORS),
        rest(PATH, &[stand_ins::directory()?], PROGRAM_SEPARATORS),
    ];
    changes.extend(
        SANITIZERS.map(|(name, option)| rest(name, &[option.into()], SANITIZER_SEPARATORS)),
    );
    let plain = [
        TREE,
        KEPT_PRELOAD,
        RUN,
        PCAP,
        PCAP_RING,
        PCAP_SNAPLEN,
        EXPLAIN,
        CHECK,
        CHECK_JSON,
        CHECK_PROCESSES,
        CHECK_PROFILE,
        CHECK_SUPPRESS,
        SHORTCUT,
        RSOCKET,
        FAULT_VARIABLE,
        DEVICES_VARIABLE,
    ];
    changes.extend(plain.map(|name| (name, None)));
    Ok(changes)
}

/// The list of a variable with these entries first, and without duplicates of them.
fn in_front(variable: &str, entries: &[PathBuf], separators: &[u8]) -> OsString {
    let rest = without(
        &env::var_os(variable).unwrap_or_default(),
        entries,
        separators,
    );
    let mut list = joined(entries);
    if !rest.is_empty() {
        list.push(":");
        list.push(rest);
    }
    list
}

fn joined(entries: &[PathBuf]) -> OsString {
    let entries: Vec<&OsStr> = entries.iter().map(|entry| entry.as_os_str()).collect();
    entries.join(OsStr::new(":"))
}

fn without(list: &OsStr, entries: &[PathBuf], separators: &[u8]) -> OsString {
    let is_ours = |other: &[u8]| {
        let mut entries = entries.iter();
        entries.any(|entry| entry.as_os_str().as_bytes() == other)
    };
    let others = list.as_bytes().split(|byte| separators.contains(byte));
    let others: Vec<&[u8]> = others.filter(|other| !is_ours(other)).collect();
    OsStr::from_bytes(&others.join(&b':')).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_removed_at_any_position() {
        let ours = ["/ours".into(), "/ours/too".into()];
        let rest = |list: &str| without(OsStr::new(list), &ours, b": ");
        for list in [
            "/a:/b",
            "/ours:/ours/too:/a:/b",
            "/ours:/a:/b",
            "/a:/ours:/b",
            "/a /b /ours",
            "/ours:/a:/ours:/b",
        ] {
            assert_eq!(rest(list), "/a:/b", "{list}");
        }
        assert_eq!(rest("/ours"), "");
        assert_eq!(rest(""), "");
        assert_eq!(rest("/ours2:/a"), "/ours2:/a");
    }
}
