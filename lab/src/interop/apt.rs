//! apt with the package lists of this machine, or with separate lists of another release.

use std::fs;
use std::path::Path;
use std::process::Command;

use super::architecture::Architecture;
use super::build_directory::BuildDirectory;
use super::release::Release;
use super::system_programs;

/// The keys with which Debian signs its releases.
const KEYS: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// The fields of an archive that this machine uses, as [`Archive::parse`] reads them.
const FORMAT: &str = "$(ORIGIN) $(CODENAME) $(REPO_URI)";

/// The machine's own lists, as if nothing were installed: apt prefers an installed version even if no archive has it, and then
/// can't download it. What apt computes from that is not kept, because it is wrong for other commands.
const WITHOUT_STATUS: [&str; 3] = [
    "Dir::State::status=/dev/null",
    "Dir::Cache::pkgcache=",
    "Dir::Cache::srcpkgcache=",
];

/// How to call apt for a release.
pub(crate) struct Apt {
    options: Vec<String>,
    /// Whether these are the machine's own lists, which may be old.
    uses_own_lists: bool,
}

/// An archive that this machine's apt uses.
#[derive(Debug, PartialEq, Eq)]
struct Archive {
    codename: String,
    address: String,
}

impl Apt {
    /// The machine's own lists if they have this release; otherwise separate lists from the same mirror.
    pub(crate) fn of(release: Release, build_directory: &BuildDirectory) -> Result<Self, String> {
        let archives = machines_archives()?;
        let (suite, architecture) = (release.suite(), build_directory.architecture);
        let is_ours = architecture == Architecture::Amd64;
        if is_ours && archives.iter().any(|it| it.codename == suite) {
            return Ok(Self {
                options: WITHOUT_STATUS.map(str::to_owned).into(),
                uses_own_lists: true,
            });
        }
        let directory = build_directory.file("apt");
        Self::beside(&archives, suite, architecture, &directory)
    }

    /// Lists of a suite in this directory, from the machine's mirror, as if nothing were installed.
    pub(crate) fn of_suite(suite: &str, directory: &Path) -> Result<Self, String> {
        Self::beside(&machines_archives()?, suite, Architecture::Amd64, directory)
    }

    fn beside(
        archives: &[Archive],
        suite: &str,
        architecture: Architecture,
        directory: &Path,
    ) -> Result<Self, String> {
        let mirror = archives.iter().find(|it| it.is_release());
        let mirror =
            mirror.ok_or_else(|| format!("apt knows no mirror that has Debian's {suite}"))?;
        Self::with_lists(&mirror.address, suite, architecture, directory)
    }

    fn with_lists(
        address: &str,
        suite: &str,
        architecture: Architecture,
        directory: &Path,
    ) -> Result<Self, String> {
        let unusable = |error: std::io::Error| format!("{}: {error}", directory.display());
        for name in ["lists/partial", "cache/archives/partial"] {
            fs::create_dir_all(directory.join(name)).map_err(unusable)?;
        }
        let sources = directory.join("sources.list");
        let line = format!("deb [{}target=Packages] {address} {suite} main\n", signed());
        fs::write(&sources, line).map_err(unusable)?;
        let directory = directory.display();
        let architecture = architecture.name();
        let apt = Self {
            options: vec![
                format!("APT::Architecture={architecture}"),
                format!("APT::Architectures={architecture}"),
                format!("Dir::Etc::sourcelist={}", sources.display()),
                "Dir::Etc::sourceparts=-".into(),
                format!("Dir::State::lists={directory}/lists"),
                format!("Dir::Cache={directory}/cache"),
                // What this machine has installed is of another release or architecture.
                "Dir::State::status=/dev/null".into(),
            ],
            uses_own_lists: false,
        };
        apt.get(&["-q", "update"], Path::new("."))?;
        Ok(apt)
    }

    /// Runs `apt-get` in a directory. The machine's own lists may name versions that the mirror has no
    /// more: then they are updated, and it runs again.
    pub(crate) fn get(&self, words: &[&str], directory: &Path) -> Result<(), String> {
        let first = self.try_get(words, directory);
        if first.is_ok() || !self.uses_own_lists || !system_programs::may_install() {
            return first;
        }
        system_programs::update_lists()?;
        self.try_get(words, directory)
    }

    fn try_get(&self, words: &[&str], directory: &Path) -> Result<(), String> {
        let output = self
            .command("apt-get")
            .args(words)
            .current_dir(directory)
            .output()
            .map_err(|error| format!("apt-get can't be started: {error}"))?;
        if output.status.success() {
            return Ok(());
        }
        let reason = String::from_utf8_lossy(&output.stderr);
        Err(format!("Debian's packages can't be fetched: {reason}"))
    }

    /// What these packages depend on.
    pub(crate) fn depends(&self, names: &[String]) -> Vec<String> {
        let output = self
            .command("apt-cache")
            .arg("depends")
            .args(names)
            .output();
        let text = output.map(|output| output.stdout).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let lines = text.lines().filter_map(|line| {
            let (kind, name) = line.split_once(": ")?;
            let needed = kind.ends_with("Depends");
            // Virtual packages are in angle brackets.
            (needed && !name.starts_with('<')).then(|| name.to_owned())
        });
        lines.collect()
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.args(self.options.iter().flat_map(|it| ["-o", it.as_str()]));
        command
    }
}

impl Archive {
    /// A line such as `Debian bookworm http://mirror/debian/`.
    fn parse(line: &str) -> Option<Self> {
        let mut words = line.split_whitespace();
        let (origin, codename, address) = (words.next()?, words.next()?, words.next()?);
        (origin == "Debian").then(|| Self {
            codename: codename.to_owned(),
            address: address.to_owned(),
        })
    }

    /// Whether it has a release, and not only its updates: `bookworm-security` is elsewhere.
    fn is_release(&self) -> bool {
        !self.codename.contains('-')
    }
}

fn signed() -> String {
    if Path::new(KEYS).is_file() {
        format!("signed-by={KEYS} ")
    } else {
        String::new()
    }
}

/// The archives of this machine. A new machine has none until it has fetched its lists.
fn machines_archives() -> Result<Vec<Archive>, String> {
    let known = list_archives()?;
    if !known.is_empty() || !system_programs::may_install() {
        return Ok(known);
    }
    system_programs::update_lists()?;
    list_archives()
}

fn list_archives() -> Result<Vec<Archive>, String> {
    let output = Command::new("apt-get")
        .args(["indextargets", "--format", FORMAT, "Created-By: Packages"])
        .output()
        .map_err(|error| format!("apt-get can't be started: {error}"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    Ok(text.lines().filter_map(Archive::parse).collect())
}

#[cfg(test)]
mod tests {
    use super::Archive;

    #[test]
    fn a_line_about_a_debian_archive_is_parsed() {
        let archive = Archive::parse("Debian bookworm http://mirror/debian/").expect("Debian's");
        assert!(archive.is_release());
        assert_eq!(archive.address, "http://mirror/debian/");
        let security = Archive::parse("Debian bookworm-security http://mirror/security/");
        assert!(!security.expect("Debian's").is_release());
        assert_eq!(Archive::parse("Ubuntu noble http://mirror/ubuntu/"), None);
        assert_eq!(Archive::parse(""), None);
    }
}
