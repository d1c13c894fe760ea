//! Downloads and unpacks Debian's packages.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::apt::Apt;
use super::architecture::Architecture;
use super::build_directory::BuildDirectory;
use super::system_programs;

/// The packages of programs that the kernel peer runs. Their libraries are added.
const PROGRAMS: [&str; 7] = [
    "busybox-static",
    "dash",
    "ibverbs-providers",
    "ibverbs-utils",
    "iproute2",
    "perftest",
    "rdmacm-utils",
];

/// The packages of headers for C programs that run there.
const HEADERS: [&str; 2] = ["libibverbs-dev", "librdmacm-dev"];

/// Downloaded packages.
pub(crate) struct Packages {
    directory: PathBuf,
    pub(crate) kernel: String,
    pub(crate) programs: Vec<String>,
}

impl Packages {
    /// The packages of an earlier run; if there was none, the ones that apt offers now.
    pub(crate) fn fetch(build_directory: &BuildDirectory) -> Result<Self, String> {
        let directory = build_directory.file("packages");
        let list = directory.join("list");
        if let Ok(known) = fs::read_to_string(&list) {
            return Ok(Self::from_list(directory, &known));
        }
        let architecture = build_directory.architecture;
        println!(
            "fetching Debian's kernel {} and programs for {}",
            build_directory.debian.kernel(),
            architecture.name()
        );
        let apt = Apt::of(build_directory.debian, build_directory)?;
        let kernel = newest_kernel(&apt, architecture)?;
        let mut wanted = vec![kernel];
        wanted.extend(with_libraries(&apt));
        wanted.extend(HEADERS.map(str::to_owned));
        fs::create_dir_all(&directory).map_err(|error| error.to_string())?;
        download(&apt, &directory, &wanted)?;
        // Written last: its presence says that the packages are complete.
        let known = wanted.join("\n");
        fs::write(&list, &known).map_err(|error| error.to_string())?;
        Ok(Self::from_list(directory, &known))
    }

    fn from_list(directory: PathBuf, list: &str) -> Self {
        let mut names = list.lines().map(str::to_owned);
        let kernel = names.next().unwrap_or_default();
        let programs = names
            .filter(|name| !HEADERS.contains(&name.as_str()))
            .collect();
        Self {
            directory,
            kernel,
            programs,
        }
    }

    /// Unpacks the headers.
    pub(crate) fn unpack_headers(&self, target: &Path) -> Result<(), String> {
        let mut headers = HEADERS.iter();
        headers.try_for_each(|name| self.unpack(name, target))
    }

    /// Fetches the source of this kernel and unpacks it.
    pub(crate) fn unpack_kernel_source(
        &self,
        build_directory: &BuildDirectory,
        target: &Path,
    ) -> Result<(), String> {
        let name = source_of(&self.kernel).ok_or("the kernel's name has no version")?;
        if self.file(&name).is_err() {
            println!("fetching {name}");
            let apt = Apt::of(build_directory.debian, build_directory)?;
            download(&apt, &self.directory, std::slice::from_ref(&name))?;
        }
        self.unpack(&name, target)?;
        let archive = target.join(format!("usr/src/{name}.tar.xz"));
        let unpacked = Command::new("tar")
            .args(["-xJ", "--strip-components=1", "-C"])
            .arg(target)
            .arg("-f")
            .arg(&archive)
            .status();
        match unpacked {
            Ok(status) if status.success() => Ok(()),
            _ => Err(format!("{} can't be unpacked", archive.display())),
        }
    }

    /// Unpacks one package, without its documentation.
    pub(crate) fn unpack(&self, name: &str, target: &Path) -> Result<(), String> {
        let file = self.file(name)?;
        let mut open = Command::new("dpkg-deb")
            .arg("--fsys-tarfile")
            .arg(&file)
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| format!("dpkg-deb can't be started: {error}"))?;
        let contents = open.stdout.take().expect("the output was asked for");
        let unpacked = Command::new("tar")
            .arg("-x")
            // Older packages contain /bin and /lib, which are links into /usr here.
            .arg("--keep-directory-symlink")
            .arg("--no-same-owner")
            .args(["--exclude=./usr/share/*", "--exclude=*/gconv/*"])
            .arg("-C")
            .arg(target)
            .stdin(contents)
            .status();
        let opened = open.wait();
        match (opened, unpacked) {
            (Ok(opened), Ok(unpacked)) if opened.success() && unpacked.success() => Ok(()),
            _ => Err(format!(
                "{} can't be unpacked: remove {} and run again",
                file.display(),
                self.directory.display()
            )),
        }
    }

    /// The file of a package: its name, an underscore, its version.
    fn file(&self, name: &str) -> Result<PathBuf, String> {
        let prefix = format!("{name}_");
        let entries = fs::read_dir(&self.directory).map_err(|error| error.to_string())?;
        let mut paths = entries.flatten().map(|entry| entry.path());
        let found = paths.find(|path| {
            let file = path.file_name().unwrap_or_default().to_string_lossy();
            file.starts_with(&prefix) && file.ends_with(".deb")
        });
        found.ok_or_else(|| {
            let directory = self.directory.display();
            format!("{directory} lacks {name}: remove that directory and run again")
        })
    }
}

/// `linux-image-6.1.0-54-amd64` is built from `linux-source-6.1`.
fn source_of(kernel: &str) -> Option<String> {
    let version = kernel.strip_prefix("linux-image-")?;
    let mut numbers = version.split('.');
    let (major, minor) = (numbers.next()?, numbers.next()?);
    Some(format!("linux-source-{major}.{minor}"))
}

fn newest_kernel(apt: &Apt, architecture: Architecture) -> Result<String, String> {
    let newest = architecture.newest_kernel();
    let found = |names: Vec<String>| names.into_iter().find(|it| it.starts_with("linux-image-"));
    if let Some(kernel) = found(apt.depends(&[newest.to_owned()])) {
        return Ok(kernel);
    }
    if system_programs::may_install() {
        system_programs::update_lists()?;
    }
    found(apt.depends(&[newest.to_owned()]))
        .ok_or_else(|| format!("apt knows no {newest}: run `apt-get update`"))
}

/// The programs and all libraries that they depend on.
fn with_libraries(apt: &Apt) -> BTreeSet<String> {
    let mut all: BTreeSet<String> = PROGRAMS.map(str::to_owned).into();
    let mut new: Vec<String> = all.iter().cloned().collect();
    while !new.is_empty() {
        new = apt
            .depends(&new)
            .into_iter()
            .filter(|name| is_library(name))
            .filter(|name| all.insert(name.clone()))
            .collect();
    }
    all
}

/// Whether a package is a library. Programs that configure packages are not needed, because nothing is configured.
fn is_library(name: &str) -> bool {
    (name.starts_with("lib") || name.starts_with("zlib")) && !name.ends_with("-bin")
}

fn download(apt: &Apt, directory: &Path, names: &[String]) -> Result<(), String> {
    let names = names.iter().map(String::as_str);
    let words: Vec<_> = ["-q", "download"].into_iter().chain(names).collect();
    apt.get(&words, directory)
}

#[cfg(test)]
mod tests {
    use super::source_of;

    #[test]
    fn a_kernel_has_a_source() {
        let source = source_of("linux-image-6.1.0-54-amd64");
        assert_eq!(source.as_deref(), Some("linux-source-6.1"));
        assert_eq!(source_of("linux-image-amd64"), None);
    }
}
