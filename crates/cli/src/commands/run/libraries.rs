//! Finds our libraries, and provides them under the names that programs load.

use std::env;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use anyhow::{Context as _, bail};

use super::content_directory::Contents;
use super::elf::CLibrary;

/// The name of the shared object that cargo builds.
const BUILT: &str = "librocinante_c.so";

/// The names that programs load: both libraries are one object. Some programs load the names without a version at
/// run time.
const NAMES: [&str; 4] = [
    "libibverbs.so.1",
    "librdmacm.so.1",
    "libibverbs.so",
    "librdmacm.so",
];

const SHIM: &str = "librocinante_preload.so";

/// Characters that the loader does not allow in a path: separators and `$`.
const SEPARATORS: &[u8] = b" \t\n:;$";

/// The libraries, ready for the loader.
pub(super) struct Libraries {
    /// The directory with both libraries under their names.
    pub(super) directory: PathBuf,
    /// The preloaded libraries: the one for device files, and both C libraries, so that they are found before a copy
    /// that a program has under another name.
    pub(super) preloaded: Vec<PathBuf>,
}

impl Libraries {
    /// The libraries of this `roci` for programs with that C library: built next to it, or installed with it.
    pub(super) fn find(needed: CLibrary) -> anyhow::Result<Self> {
        let program = env::current_exe().context("the path of the roci executable is unknown")?;
        let here = program.parent().context("a program is in a directory")?;
        let libraries = match (built(here, BUILT), built(here, SHIM)) {
            (Some(library), Some(shim)) if is_for(&library, needed) => linked(&library, &shim)?,
            _ => installed(here, needed)?,
        };
        if suits_loader(&libraries.directory) {
            return Ok(libraries);
        }
        let path = libraries.directory.display();
        bail!(
            "the loader can't take the path {path}; set XDG_RUNTIME_DIR to one without separators"
        )
    }

    fn in_directory(directory: PathBuf) -> Self {
        let preloaded = [SHIM, NAMES[0], NAMES[1]].map(|name| directory.join(name));
        Self {
            preloaded: preloaded.into(),
            directory,
        }
    }
}

/// The newer of two: `cargo build` puts a library next to the program, `cargo test` into `deps`.
fn built(here: &Path, name: &str) -> Option<PathBuf> {
    let candidates = [here.join(name), here.join("deps").join(name)];
    candidates
        .into_iter()
        .rev()
        .max_by_key(|path| modified(path))
        .filter(|path| path.is_file())
}

fn modified(path: &Path) -> Option<SystemTime> {
    fs::metadata(path).and_then(|found| found.modified()).ok()
}

/// Whether a library can be loaded into programs with that C library.
fn is_for(library: &Path, needed: CLibrary) -> bool {
    CLibrary::of_library(library).is_ok_and(|found| found == needed)
}

/// The files that `cargo xtask install` or a Python wheel puts there. Libraries for another C library than the usual
/// one of this installation have a directory of their own.
fn installed(here: &Path, needed: CLibrary) -> anyhow::Result<Libraries> {
    let usual = here.parent().unwrap_or(here).join("lib/rocinante");
    let own = usual.join(needed.name());
    let directory = if own.is_dir() { own } else { usual };
    let library = directory.join(NAMES[0]);
    let others = [library, here.join(BUILT)]
        .into_iter()
        .find(|it| it.is_file());
    if let Some(other) = others.filter(|it| !is_for(it, needed)) {
        bail!(
            "the program uses the C library {0}, and {1} is for another one; build the libraries for {0} \
             with `cargo xtask package --tarball`, or use a build of the program for the other",
            needed.name(),
            other.display()
        );
    }
    let [library, shim] = [NAMES[0], SHIM].map(|name| directory.join(name));
    for path in [&library, &shim] {
        if !path.is_file() {
            bail!(
                "the libraries of roci are neither in {} nor in {}; run `cargo build` there, or \
                 `cargo xtask install --prefix DIR`",
                here.display(),
                directory.display()
            );
        }
    }
    // A wheel can't hold links, so it has each library under one name only.
    let has_all_names = NAMES.iter().all(|name| directory.join(name).is_file());
    if has_all_names && suits_loader(&directory) {
        return Ok(Libraries::in_directory(directory));
    }
    linked(&library, &shim)
}

/// A directory of links to them.
fn linked(library: &Path, shim: &Path) -> anyhow::Result<Libraries> {
    let mut contents = Contents::default();
    for name in NAMES {
        contents.link(name, library);
    }
    contents.link(SHIM, shim);
    Ok(Libraries::in_directory(contents.publish("lib")?))
}

fn suits_loader(path: &Path) -> bool {
    let bytes = OsStr::as_bytes(path.as_os_str());
    !bytes.iter().any(|byte| SEPARATORS.contains(byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_with_separators_of_the_loader_do_not_suit() {
        assert!(suits_loader(Path::new("/run/user/1000/roci/lib-1")));
        for path in ["/my programs/lib", "/a:b", "/a;b", "/$ORIGIN"] {
            assert!(!suits_loader(Path::new(path)), "{path}");
        }
    }

    /// Two files would be two devices in one process.
    #[test]
    fn libraries_of_a_wheel_are_one_file_under_every_name() {
        let test = env::current_exe().expect("a test knows where it is");
        let here = test.parent().expect("a program is in a directory");
        let prefix = env::temp_dir().join(format!("roci-wheel-test-{}", std::process::id()));
        let directory = prefix.join("lib/rocinante");
        fs::create_dir_all(&directory).expect("a directory");
        for (name, installed) in [(BUILT, NAMES[0]), (SHIM, SHIM)] {
            let library = built(here, name).expect("built with this test");
            fs::copy(library, directory.join(installed)).expect("copied");
        }
        let found = installed(&prefix.join("bin"), super::super::usual_c_library());
        let found = found.expect("as pip leaves them").directory;
        let library = fs::canonicalize(directory.join(NAMES[0])).expect("a file");
        for name in NAMES {
            let file = fs::canonicalize(found.join(name)).expect("a file");
            assert_eq!(file, library, "{name}");
        }
        fs::remove_dir_all(&found).expect("removed");
        fs::remove_dir_all(&prefix).expect("removed");
    }
}
