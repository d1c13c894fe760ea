//! `cargo xtask install`: the command, its libraries, completions and manual, where the user wants them.

use std::fs;
use std::io;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::command::CommandLine;

/// With all that `roci` can do: a build without features leaves out what a first try does not need.
const BUILD: &str =
    "build --release -p roci -p capi -p preload --features roci/manual,roci/monitor";

/// Where `man` looks below a prefix.
const MANUAL: &str = "share/man/man1";

/// Both libraries are one object; the file has the name that is in it.
const LIBRARY: &str = "libibverbs.so.1";
const OTHER_NAMES: [&str; 3] = ["librdmacm.so.1", "libibverbs.so", "librdmacm.so"];

/// A shell, and where it looks for completions below a prefix.
const COMPLETIONS: [(&str, &str); 3] = [
    ("bash", "share/bash-completion/completions/roci"),
    ("zsh", "share/zsh/site-functions/_roci"),
    ("fish", "share/fish/vendor_completions.d/roci.fish"),
];

/// The directories of what was built.
pub struct Built {
    /// The directory of `roci`.
    pub command: PathBuf,
    /// The directory of the libraries.
    pub libraries: PathBuf,
    /// The libraries for programs that use the C library musl, if they were built.
    pub musl: Option<PathBuf>,
}

impl Built {
    /// All of it in one directory, as cargo leaves it.
    pub fn in_directory(directory: &Path) -> Self {
        Self {
            command: directory.to_owned(),
            libraries: directory.to_owned(),
            musl: None,
        }
    }
}

/// Builds everything and puts it below the prefix.
pub fn install(root: &Path, prefix: &Path) -> Result<(), String> {
    let built = build(root)?;
    let prefix = std::path::absolute(prefix).map_err(|error| error.to_string())?;
    copy_everything(&Built::in_directory(&built), &prefix).map_err(|error| {
        format!(
            "not everything can be put into {}: {error}",
            prefix.display()
        )
    })?;
    println!("installed below {}", prefix.display());
    Ok(())
}

/// Builds everything. Returns the directory with the result.
pub fn build(root: &Path) -> Result<PathBuf, String> {
    let build = CommandLine::cargo(BUILD);
    println!("$ {build}");
    match build.run(root) {
        Ok(true) => release_directory().map_err(|error| error.to_string()),
        Ok(false) => Err(format!("`{build}` failed")),
        Err(error) => Err(format!("cargo can't be started: {error}")),
    }
}

/// Puts what was built below the prefix.
pub fn copy_everything(built: &Built, prefix: &Path) -> io::Result<()> {
    let libraries = prefix.join("lib/rocinante");
    let command = prefix.join("bin/roci");
    copy_libraries(&built.libraries, &libraries)?;
    if let Some(musl) = &built.musl {
        copy_libraries(musl, &libraries.join("musl"))?;
    }
    install_file(&built.command.join("roci"), &command, 0o755)?;
    for (shell, path) in COMPLETIONS {
        write(&prefix.join(path), &completions(&command, shell)?)?;
    }
    write_manual(&command, &prefix.join(MANUAL))
}

fn copy_libraries(from: &Path, to: &Path) -> io::Result<()> {
    install_file(&from.join("librocinante_c.so"), &to.join(LIBRARY), 0o644)?;
    for name in OTHER_NAMES {
        link(LIBRARY, &to.join(name))?;
    }
    let shim = "librocinante_preload.so";
    install_file(&from.join(shim), &to.join(shim), 0o644)
}

fn completions(command: &Path, shell: &str) -> io::Result<Vec<u8>> {
    let script = Command::new(command)
        .args(["completions", shell])
        .output()?;
    if script.status.success() && !script.stdout.is_empty() {
        return Ok(script.stdout);
    }
    let complaint = String::from_utf8_lossy(&script.stderr);
    let complaint = format!("`roci completions {shell}` failed: {}", complaint.trim());
    Err(io::Error::other(complaint))
}

fn write_manual(command: &Path, directory: &Path) -> io::Result<()> {
    fs::create_dir_all(directory)?;
    let written = Command::new(command)
        .arg("manual")
        .arg(directory)
        .status()?;
    if written.success() {
        Ok(())
    } else {
        Err(io::Error::other("roci could not write its manual"))
    }
}

/// Replaces a file as a whole: programs that have the old one open keep it.
fn install_file(from: &Path, to: &Path, mode: u32) -> io::Result<()> {
    write(to, &fs::read(from)?)?;
    fs::set_permissions(to, fs::Permissions::from_mode(mode))
}

fn write(to: &Path, bytes: &[u8]) -> io::Result<()> {
    let draft = draft(to)?;
    fs::write(&draft, bytes)?;
    fs::rename(&draft, to)
}

fn link(target: &str, to: &Path) -> io::Result<()> {
    let draft = draft(to)?;
    symlink(target, &draft)?;
    fs::rename(&draft, to)
}

/// A name beside the final one, free to be used.
fn draft(to: &Path) -> io::Result<PathBuf> {
    if let Some(directory) = to.parent() {
        fs::create_dir_all(directory)?;
    }
    let mut draft = to.as_os_str().to_owned();
    draft.push(".new");
    match fs::remove_file(&draft) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(draft.into()),
    }
}

/// The directory of the release build: beside that of the unoptimised one, in which we are.
pub fn release_directory() -> io::Result<PathBuf> {
    let ours = std::env::current_exe()?;
    let target = ours.ancestors().nth(2);
    Ok(target.unwrap_or(Path::new("target")).join("release"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn existing_files_are_replaced_atomically() {
        let base = std::env::temp_dir().join(format!("roci-install-{}", std::process::id()));
        let built = base.join("built");
        fs::create_dir_all(&built).expect("a directory");
        let names = ["librocinante_c.so", "librocinante_preload.so"];
        let script =
            "#!/bin/sh\ncase $1 in manual) echo page > $2/roci.1 ;; *) echo $1 for $2 ;; esac\n";
        let prefix = base.join("prefix");
        for round in ["old", "new"] {
            for name in names {
                fs::write(built.join(name), round).expect("written");
            }
            fs::write(built.join("roci"), script).expect("written");
            copy_everything(&Built::in_directory(&built), &prefix).expect("installed");
            let read = |path: &str| fs::read_to_string(prefix.join(path)).expect("a file");
            assert_eq!(read("lib/rocinante/libibverbs.so.1"), round);
            assert_eq!(read("lib/rocinante/librdmacm.so.1"), round);
            assert_eq!(read("lib/rocinante/librocinante_preload.so"), round);
            assert_eq!(
                read("share/zsh/site-functions/_roci"),
                "completions for zsh\n"
            );
            assert_eq!(read("share/man/man1/roci.1"), "page\n");
        }
        let installed = fs::read_dir(prefix.join("lib/rocinante")).expect("a directory");
        assert_eq!(installed.count(), 5, "no drafts are left behind");
        fs::remove_dir_all(&base).expect("removed");
    }

    #[test]
    fn completions_that_cannot_be_made_are_not_installed() {
        let base = std::env::temp_dir().join(format!("roci-completions-{}", std::process::id()));
        let (built, prefix) = (base.join("built"), base.join("prefix"));
        fs::create_dir_all(&built).expect("a directory");
        for name in ["librocinante_c.so", "librocinante_preload.so"] {
            fs::write(built.join(name), "").expect("written");
        }
        let script = "#!/bin/sh\necho no such shell >&2\nexit 2\n";
        fs::write(built.join("roci"), script).expect("written");
        let failed = copy_everything(&Built::in_directory(&built), &prefix);
        let said = failed.expect_err("the command fails").to_string();
        assert_eq!(said, "`roci completions bash` failed: no such shell");
        assert!(!prefix.join(COMPLETIONS[0].1).exists());
        fs::remove_dir_all(&base).expect("removed");
    }
}
