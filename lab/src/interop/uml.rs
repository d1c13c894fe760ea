//! A kernel that is a program: User Mode Linux, built once from Debian's source.

use std::fs::{self, File};
use std::num::NonZero;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::{available_parallelism, sleep};
use std::time::{Duration, Instant};

use super::build_directory::BuildDirectory;
use super::image::{Image, fresh_directory, run};
use super::network::{CONTROL_TAP, LARGEST_MTU, Side, TAP, addresses};
use super::packages::Packages;
use super::system_programs;

const CONFIGURATION: &str = include_str!("../../guest/uml.config");

/// Changes of the kernel's source: the file, the old text, the new text.
///
/// Newer processors have more registers to save than Linux 6.1 has room for; without the change no program starts on
/// them. With the first change, the MTU of an interface can be reduced and raised again.
const PATCHES: [(&str, &str, &str); 5] = [
    (
        "arch/um/drivers/vector_kern.c",
        "dev->mtu = get_mtu(def);",
        "dev->mtu = dev->max_mtu = get_mtu(def);",
    ),
    (
        "arch/x86/um/user-offsets.c",
        "DEFINE_LONGS(HOST_FP_SIZE, 2696)",
        "DEFINE_LONGS(HOST_FP_SIZE, 12288)",
    ),
    (
        REGISTERS,
        "iov.iov_len = FP_SIZE * sizeof(unsigned long);",
        "iov.iov_len = xstate_length;",
    ),
    (
        REGISTERS,
        "have_xstate_support = 1;",
        "have_xstate_support = 1, xstate_length = iov.iov_len;",
    ),
    (
        REGISTERS,
        "int have_xstate_support;",
        "int have_xstate_support;\nstatic unsigned long xstate_length = FP_SIZE * sizeof(unsigned long);",
    ),
];
const REGISTERS: &str = "arch/x86/um/os-Linux/registers.c";

/// How long tcpdump may take until it captures.
const CAPTURE_TIMEOUT: Duration = Duration::from_secs(20);

/// Builds the kernel that an earlier run has not built.
pub(crate) fn build(
    build_directory: &BuildDirectory,
    image: &Image,
    packages: &Packages,
) -> Result<(), String> {
    let built_with = image.kernel.with_extension("config");
    let is_built = fs::read_to_string(&built_with).is_ok_and(|it| it == CONFIGURATION);
    if is_built && image.kernel.is_file() {
        return Ok(());
    }
    println!("building User Mode Linux: this happens once, and takes some minutes");
    let source = build_directory.file("kernel-source");
    fresh_directory(&source)?;
    packages.unpack_kernel_source(build_directory, &source)?;
    for (file, old, new) in PATCHES {
        patch(&source.join(file), old, new)?;
    }
    let wanted = source.join("wanted.config");
    fs::write(&wanted, CONFIGURATION).map_err(|error| error.to_string())?;
    let log = build_directory.file("kernel-build.log");
    let chosen = format!("KCONFIG_ALLCONFIG={}", wanted.display());
    make(&source, &[&chosen, "allnoconfig"], &log)?;
    has_devices(&source.join(".config"))?;
    let jobs = available_parallelism().map_or(1, NonZero::get);
    make(&source, &[&format!("-j{jobs}"), "linux"], &log)?;
    run(Command::new("strip")
        .arg("-o")
        .arg(&image.kernel)
        .arg(source.join("linux")))?;
    fs::write(&built_with, CONFIGURATION).map_err(|error| error.to_string())?;
    fs::remove_dir_all(&source).map_err(|error| error.to_string())
}

/// All changes must apply: for another version of the source they must be reviewed.
fn patch(file: &Path, old: &str, new: &str) -> Result<(), String> {
    let unusable = |error: std::io::Error| format!("{}: {error}", file.display());
    let text = fs::read_to_string(file).map_err(unusable)?;
    if !text.contains(old) {
        return Err(format!(
            "{} lacks `{old}`: this source is not the one that is known",
            file.display()
        ));
    }
    fs::write(file, text.replace(old, new)).map_err(unusable)
}

fn make(source: &Path, words: &[&str], log: &Path) -> Result<(), String> {
    let output = File::create(log).map_err(|error| error.to_string())?;
    let errors = output.try_clone().map_err(|error| error.to_string())?;
    let made = run(Command::new("make")
        .arg("ARCH=um")
        .args(words)
        .current_dir(source)
        .stdout(output)
        .stderr(errors));
    made.map_err(|error| format!("{error}; see {}", log.display()))
}

fn has_devices(configuration: &Path) -> Result<(), String> {
    let text = fs::read_to_string(configuration).map_err(|error| error.to_string())?;
    let has = |option: &&str| text.contains(&format!("\n{option}=y\n"));
    if ["CONFIG_RDMA_RXE", "CONFIG_RDMA_SIW"].iter().all(has) {
        Ok(())
    } else {
        Err("this source can't build rdma_rxe and siw into User Mode Linux".into())
    }
}

pub(crate) fn start(build_directory: &BuildDirectory, image: &Image) -> Result<Child, String> {
    let console =
        File::create(build_directory.file("console.log")).map_err(|error| error.to_string())?;
    let errors = console.try_clone().map_err(|error| error.to_string())?;
    Command::new(&image.kernel)
        .args("umid=peer uml_dir=/run mem=1024M rdinit=/init quiet".split(' '))
        .args(["con=null", "con0=null,fd:1"])
        .arg(format!("initrd={}", image.initramfs.display()))
        .args(addresses().split(' '))
        .arg(format!("peer.control={}", Side::Kernel.control_address()))
        .arg(interface(0, TAP, LARGEST_MTU))
        .arg(interface(1, CONTROL_TAP, 1500))
        .stdin(Stdio::null())
        .stdout(console)
        .stderr(errors)
        .spawn()
        .map_err(|error| format!("User Mode Linux can't be started: {error}"))
}

fn interface(number: u32, tap: &str, mtu: u32) -> String {
    format!("vec{number}:transport=tap,ifname={tap},depth=128,gro=0,mtu={mtu}")
}

/// Starts to capture every frame of the link into a file.
pub(crate) fn capture(capture: &Path) -> Result<Child, String> {
    let notes = capture.with_extension("log");
    let errors = File::create(&notes).map_err(|error| error.to_string())?;
    let mut child = Command::new("tcpdump")
        .env("PATH", system_programs::search_path())
        .args(["-i", TAP, "-Z", "root", "-s", "0", "-B", "65536"])
        .args(["-U", "--immediate-mode", "-w"])
        .arg(capture)
        .args(["udp", "port", "4791"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(errors)
        .spawn()
        .map_err(|error| format!("tcpdump can't be started: {error}"))?;
    let start = Instant::now();
    let listens = || fs::read_to_string(&notes).is_ok_and(|text| text.contains("listening on"));
    while !listens() {
        let ended = !matches!(child.try_wait(), Ok(None));
        if ended || start.elapsed() > CAPTURE_TIMEOUT {
            return Err(format!("tcpdump captures nothing: see {}", notes.display()));
        }
        sleep(Duration::from_millis(20));
    }
    Ok(child)
}
