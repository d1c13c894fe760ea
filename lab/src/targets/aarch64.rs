//! An emulated aarch64 machine, in which our programs and tests run.
//!
//! Debian's kernel for arm64 boots in QEMU with the distribution's RDMA programs. Its first process runs the
//! checks and switches the machine off; they are judged here by what the console says. QEMU executes the
//! instructions on this machine's processor: they are shown to compute the right thing, but loads and stores are
//! reordered no more than here.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use xtask::command::{CommandLine, run_cargo};
use xtask::debian::{self, Package};
use xtask::linker::{Linker, must_be_of};

use super::console::Check;
use super::provide;
use crate::interop::build_directory::BuildDirectory;
use crate::interop::guest_files::{library_test, listed, put};
use crate::interop::image::{concatenate, fresh_directory, lay_out_root, merge, pack, run};
use crate::interop::packages::Packages;

const TARGET: &str = "aarch64-unknown-linux-gnu";

const COMPILER: &str = "aarch64-linux-gnu-gcc";
const LINKER: &str = "CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER";
const RUNNER: &str = "CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER";

const TOOLS: [Package; 4] = [
    ("qemu-system-arm", "/usr/bin/qemu-system-aarch64"),
    ("gcc-aarch64-linux-gnu", "/usr/bin/aarch64-linux-gnu-gcc"),
    (
        "libc6-dev-arm64-cross",
        "/usr/aarch64-linux-gnu/include/stdio.h",
    ),
    ("cpio", "/usr/bin/cpio"),
];

const PROGRAMS: &str = "build -p roci -p capi -p preload -p sim";

/// Those that read no files of the project.
const TESTS: &str = "test -p rocinante-engine -p rocinante-wire -p capi --lib --test memory_races --test memory_windows";

/// The programs that these are, without cargo's number, and what each must print. The tests that are named here run
/// the copies in assembly.
const TEST_PROGRAMS: [(&str, &str); 5] = [
    (
        "engine",
        "owned_memory_is_copied_at_every_alignment_offset_and_length ... ok",
    ),
    (
        "rocinante_c",
        "every_length_is_copied_and_nothing_else ... ok",
    ),
    ("memory_races", "concurrent_copies_write_whole_words ... ok"),
    ("memory_windows", "test result: ok."),
    ("wire", "test result: ok."),
];

/// What `cargo` builds for the machine, beside each other as `roci run` wants it.
const OURS: [&str; 4] = [
    "roci",
    "sim",
    "librocinante_c.so",
    "librocinante_preload.so",
];

/// The tests of our C libraries.
const C_PROGRAMS: [&str; 2] = [
    "crates/capi/tests/programs",
    "crates/capi/tests/programs/ours",
];

/// Not run: a case of each takes longer than its minute on an emulated processor.
const LEFT_OUT: [&str; 2] = ["few_descriptors", "reply_before_disconnect"];

/// A run that takes longer than this hangs: an emulated processor is slow, and this machine may be busy.
const TIMEOUT: Duration = Duration::from_secs(40 * 60);

/// Runs everything; the error says what failed.
pub(super) fn check(root: &Path) -> Result<(), String> {
    debian::install(&TOOLS)?;
    provide(TARGET)?;
    let directory = BuildDirectory::find_arm64()?;
    let packages = Packages::fetch(&directory)?;
    unpack(&directory, &packages)?;
    let overlay = directory.file("overlay");
    fresh_directory(&overlay)?;
    build(root, &directory, &overlay)?;
    let programs = compile_programs(root, &directory, &overlay)?;
    let checks = all_checks(&programs);
    let console = boot(root, &directory, &packages, &checks)?;
    let failures: Vec<_> = checks
        .iter()
        .filter_map(|check| check.judge(&console).err())
        .collect();
    if failures.is_empty() {
        println!("{} checks passed on aarch64", checks.len());
        return Ok(());
    }
    Err(format!(
        "{}\n{} of {} checks failed on aarch64",
        failures.join("\n"),
        failures.len(),
        checks.len()
    ))
}

/// Unpacks the kernel and packs the distribution's programs, once.
fn unpack(directory: &BuildDirectory, packages: &Packages) -> Result<(), String> {
    let base = directory.file("base.cpio");
    if base.is_file() {
        return Ok(());
    }
    println!("unpacking the kernel and the programs");
    let (kernel, headers, root) = (
        directory.file("kernel"),
        directory.file("headers"),
        directory.file("root"),
    );
    fresh_directory(&kernel)?;
    merge(&kernel)?;
    packages.unpack(&packages.kernel, &kernel)?;
    fresh_directory(&headers)?;
    packages.unpack_headers(&headers)?;
    lay_out_root(&root)?;
    for name in &packages.programs {
        packages.unpack(name, &root)?;
    }
    pack(&root, &base)
}

/// Builds our programs and tests into the machine's directory.
fn build(root: &Path, directory: &BuildDirectory, overlay: &Path) -> Result<(), String> {
    cargo(root, CommandLine::cargo(PROGRAMS))?;
    must_be_of(&built(directory, "librocinante_c.so"), Linker::GnuLd)?;
    for name in OURS {
        put(
            &built(directory, name),
            &overlay.join("opt/roci").join(name),
        )?;
    }
    let tests = overlay.join("tests");
    fs::create_dir_all(&tests).map_err(|error| error.to_string())?;
    // cargo can't execute them: instead of that, it copies each to where it is executed later.
    let copies = format!("cp --target-directory {}", tests.display());
    cargo(root, CommandLine::cargo(TESTS).env(RUNNER, copies))
}

fn names_of(files: &[PathBuf]) -> Vec<String> {
    let names = files.iter().filter_map(|path| path.file_stem());
    names.map(|it| it.to_string_lossy().into_owned()).collect()
}

fn cargo(root: &Path, command: CommandLine) -> Result<(), String> {
    let command = command
        .arguments(&["--target".to_owned(), TARGET.to_owned()])
        .env(LINKER, COMPILER);
    run_cargo(root, &command)
}

fn built(directory: &BuildDirectory, name: &str) -> PathBuf {
    directory.built_for(TARGET).join(name)
}

/// Compiles the tests of the C libraries, and tells their names.
fn compile_programs(
    root: &Path,
    directory: &BuildDirectory,
    overlay: &Path,
) -> Result<Vec<String>, String> {
    let libraries = directory.file("libraries");
    fresh_directory(&libraries)?;
    for name in ["libibverbs.so", "librdmacm.so"] {
        put(
            &built(directory, "librocinante_c.so"),
            &libraries.join(name),
        )?;
    }
    let programs = overlay.join("usr/bin");
    fs::create_dir_all(&programs).map_err(|error| error.to_string())?;
    let mut names = Vec::new();
    for sources in C_PROGRAMS {
        let sources = listed(&root.join(sources), "c")?;
        for (source, name) in sources.iter().zip(names_of(&sources)) {
            run(Command::new(COMPILER)
                .args(["-std=gnu11", "-O2", "-Wall", "-Werror", "-pthread", "-o"])
                .args([&programs.join(library_test(&name)), source])
                .arg("-I")
                .arg(directory.file("headers/usr/include"))
                .arg("-L")
                .arg(&libraries)
                .args(["-libverbs", "-lrdmacm"]))?;
            names.push(name);
        }
    }
    Ok(names)
}

fn all_checks(programs: &[String]) -> Vec<Check> {
    let mut checks = vec![Check::new("machine", "uname -m", "aarch64")];
    for (name, expected) in TEST_PROGRAMS {
        let command = format!("PROPTEST_CASES=16 /tests/{name}-*");
        checks.push(Check::new(name, &command, expected));
    }
    checks.extend([
        Check::new("simulator", "sim --seeds 20", "20 runs, 0 failed"),
        Check::new("roci demo", "roci demo", "All data is correct."),
        Check::new("ibv_devinfo", "roci run -- ibv_devinfo", "PORT_ACTIVE"),
        Check::new(
            "ibv_rc_pingpong",
            "roci run -- meet.sh \"ibv_rc_pingpong -g 0 -c\" \"ibv_rc_pingpong -g 0 -c 127.0.0.1\"",
            "1000 iters in",
        ),
        Check::new(
            "rping",
            "roci run -- meet.sh \"rping -s -C 5\" \"rping -c -a 127.0.0.1 -C 5 -v\"",
            "ping data: rdma-ping-4",
        ),
    ]);
    let programs = programs
        .iter()
        .filter(|it| !LEFT_OUT.contains(&it.as_str()));
    for (program, number) in programs.zip(1..) {
        let (left, right) = (format!("127.31.{number}.1"), format!("127.31.{number}.2"));
        let command = format!(
            "ROCI_DEVICES=left={left},right={right} LEFT_ADDRESS={left} roci run -- {}",
            library_test(program)
        );
        checks.push(Check::new(&format!("C {program}"), &command, ": holds"));
    }
    checks
}

/// Boots the machine, which runs the checks, and returns what it printed.
fn boot(
    root: &Path,
    directory: &BuildDirectory,
    packages: &Packages,
    checks: &[Check],
) -> Result<String, String> {
    let overlay = directory.file("overlay");
    let lines: String = checks.iter().map(Check::line).collect();
    let init = include_str!("../../guest/checks.sh").to_owned() + &lines + "poweroff -f\n";
    let script = directory.file("init");
    fs::write(&script, init).map_err(|error| error.to_string())?;
    put(&script, &overlay.join("init"))?;
    let meet = root.join("lab/guest/meet.sh");
    put(&meet, &overlay.join("usr/bin/meet.sh"))?;
    let archive = directory.file("overlay.cpio");
    pack(&overlay, &archive)?;
    let initramfs = directory.file("initramfs.cpio");
    concatenate(&[&directory.file("base.cpio"), &archive], &initramfs)?;
    let release = packages.kernel.trim_start_matches("linux-image-");
    println!("Linux {release} runs {} checks", checks.len());
    let start = Instant::now();
    let kernel = directory
        .file("kernel/boot")
        .join(format!("vmlinuz-{release}"));
    let console = directory.file("console.log");
    let machine = start_machine(&kernel, &initramfs, &console)?;
    let ended = wait_for_end(machine);
    println!("the machine ran for {:.0?}", start.elapsed());
    let text = fs::read(&console).map_err(|error| error.to_string())?;
    let text = String::from_utf8_lossy(&text).replace('\r', "");
    ended.map(|()| text)
}

/// A processor with the atomic and the CRC instructions that libraries look for at run time.
fn start_machine(kernel: &Path, initramfs: &Path, console: &Path) -> Result<Child, String> {
    let errors = File::create(console.with_extension("qemu")).map_err(|error| error.to_string())?;
    Command::new("qemu-system-aarch64")
        .args("-M virt -accel tcg,thread=multi -cpu neoverse-n1 -smp 2 -m 2048".split(' '))
        .args("-nodefaults -display none -no-reboot".split(' '))
        .arg("-kernel")
        .arg(kernel)
        .arg("-initrd")
        .arg(initramfs)
        .args(["-append", "console=ttyAMA0 panic=-1 quiet"])
        .args(["-serial", &format!("file:{}", console.display())])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(errors)
        .spawn()
        .map_err(|error| format!("QEMU can't be started: {error}"))
}

/// It switches itself off.
fn wait_for_end(mut machine: Child) -> Result<(), String> {
    let start = Instant::now();
    loop {
        match machine.try_wait().map_err(|error| error.to_string())? {
            Some(status) if status.success() => return Ok(()),
            Some(status) => return Err(format!("QEMU failed: {status}")),
            None if start.elapsed() > TIMEOUT => break,
            None => sleep(Duration::from_millis(200)),
        }
    }
    // It may have ended in this moment; that is an error, too.
    let _ = machine.kill();
    let _ = machine.wait();
    Err("the machine was not switched off in time".into())
}
