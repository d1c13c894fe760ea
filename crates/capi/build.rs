//! How the shared object is linked: its name, that it stays loaded, and its symbol versions.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

fn main() {
    let script = format!("{}/versions.map", env!("CARGO_MANIFEST_DIR"));
    println!("cargo::rerun-if-changed={script}");
    // Both libraries are this one file: librdmacm.so.1 is a link to libibverbs.so.1, so that the
    // loader maps one object with one set of statics.
    link_with("-Wl,-soname,libibverbs.so.1");
    // The device's thread outlives a dlclose.
    link_with("-Wl,-z,nodelete");
    link_with(&format!("-Wl,--version-script={script}"));
    link_with(&format!("-B{}/", gnu_ld_wrappers().display()));
}

fn link_with(argument: &str) {
    println!("cargo::rustc-cdylib-link-arg={argument}");
}

/// A directory in which the compiler driver finds GNU ld before it finds the system's.
///
/// rustc passes a version script of its own, without a node name. lld merges it with ours; GNU ld
/// rejects ("anonymous version tag cannot be combined with other version tags"). So `ld` and
/// `ld.bfd` in this directory start the real linker with a named node that also hides all other symbols.
/// A driver that links with lld or mold looks for another name and never sees the directory.
fn gnu_ld_wrappers() -> PathBuf {
    let directory =
        PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets it")).join("gnu-ld");
    fs::create_dir_all(&directory).expect("cargo's directory can be written");
    let hidden = directory.join("hidden.map");
    fs::write(&hidden, "ROCI_HIDDEN { local: *; };\n").expect("the directory can be written");
    for name in ["ld", "ld.bfd"] {
        let wrapper = directory.join(name);
        fs::write(&wrapper, wrapper_text(name, &real_linker(name), &hidden)).expect("as above");
        fs::set_permissions(&wrapper, fs::Permissions::from_mode(0o755)).expect("it is ours");
    }
    directory
}

/// What the compiler driver of this target starts under that name, for drivers that do not tell the wrapper their own name.
fn real_linker(name: &str) -> String {
    let driver = std::env::var_os("RUSTC_LINKER").unwrap_or_else(|| "cc".into());
    let answer = Command::new(driver)
        .arg(format!("-print-prog-name={name}"))
        .output();
    let path = answer
        .ok()
        .and_then(|output| String::from_utf8(output.stdout).ok());
    path.map(|path| path.trim().to_owned())
        .filter(|path| !path.is_empty())
        .unwrap_or_else(|| name.to_owned())
}

/// Passes all arguments on, but for rustc's version script, which is a file named `list`.
///
/// GCC's driver gives its name in `COLLECT_GCC`. It may be another one than when this was written: `cargo check` runs this
/// program too, and needs no linker for another architecture. In `COMPILER_PATH` it would find the wrapper again.
fn wrapper_text(name: &str, linker: &str, hidden: &Path) -> String {
    let hidden = hidden.display();
    format!(
        "#!/bin/sh\n\
         for argument; do\n\
             shift\n\
             case $argument in\n\
             --version-script=*/list) set -- \"$@\" '--version-script={hidden}' ;;\n\
             *) set -- \"$@\" \"$argument\" ;;\n\
             esac\n\
         done\n\
         linker=$(env -u COMPILER_PATH \"${{COLLECT_GCC:-false}}\" -print-prog-name={name} 2>/dev/null)\n\
         exec \"${{linker:-{linker}}}\" \"$@\"\n"
    )
}
