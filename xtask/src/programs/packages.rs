//! The programs themselves, from the distribution.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::process::{Command, Stdio};

/// Debian's packages with a file by which each is known to be there.
const PACKAGES: [(&str, &str); 9] = [
    ("libibverbs-dev", "/usr/include/infiniband/verbs.h"),
    ("librdmacm-dev", "/usr/include/rdma/rdma_cma.h"),
    ("ibverbs-utils", "/usr/bin/ibv_rc_pingpong"),
    ("rdmacm-utils", "/usr/bin/rping"),
    ("perftest", "/usr/bin/ib_send_bw"),
    ("qperf", "/usr/bin/qperf"),
    ("python3-pyverbs", "/usr/lib/python3/dist-packages/pyverbs"),
    ("iproute2", "/usr/bin/ip"),
    ("netbase", "/etc/services"),
];

/// Whether we may install packages and make namespaces.
pub(super) fn are_we_root() -> bool {
    fs::metadata("/proc/self").is_ok_and(|found| found.uid() == 0)
}

/// Why the programs can't be run here, if they can't.
pub(crate) fn missing() -> Option<String> {
    let absent = absent();
    if absent.is_empty() || (are_we_root() && has_apt()) {
        return None;
    }
    let install = format!("apt-get install {}", absent.join(" "));
    Some(format!("programs are not installed (`{install}` as root)"))
}

/// Installs what is not there yet.
pub(super) fn install() -> Result<(), String> {
    let absent = absent();
    if absent.is_empty() {
        return Ok(());
    }
    if let Some(missing) = missing() {
        return Err(missing);
    }
    let install = [
        &["install", "--yes", "--no-install-recommends"],
        &absent[..],
    ]
    .concat();
    if apt_get(&install).is_ok() {
        return Ok(());
    }
    // A new machine may not know the packages yet.
    apt_get(&["update"])?;
    apt_get(&install)
}

fn apt_get(words: &[&str]) -> Result<(), String> {
    println!("$ apt-get {}", words.join(" "));
    let status = Command::new("apt-get")
        .args(words)
        .env("DEBIAN_FRONTEND", "noninteractive")
        .stdout(Stdio::null())
        .status();
    match status {
        Ok(status) if status.success() => Ok(()),
        Ok(_) => Err(format!("apt-get {} failed", words.join(" "))),
        Err(error) => Err(format!("apt-get can't be started: {error}")),
    }
}

fn absent() -> Vec<&'static str> {
    let absent = PACKAGES
        .iter()
        .filter(|(_, file)| fs::metadata(file).is_err());
    absent.map(|(package, _)| *package).collect()
}

fn has_apt() -> bool {
    fs::metadata("/usr/bin/apt-get").is_ok()
}
