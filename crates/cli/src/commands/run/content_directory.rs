//! Directories whose name is a hash of their contents.
//!
//! They are in the user's runtime directory, are created once and never changed. Two builds, or two lists of
//! devices, have two directories. A reader finds a complete directory or none.

use std::collections::BTreeSet;
use std::collections::hash_map::RandomState;
use std::fs::{self, Permissions};
use std::hash::{BuildHasher, DefaultHasher, Hash, Hasher};
use std::io;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use anyhow::Context as _;
use net::sharing::RuntimeDirectory;

/// The contents of a directory, by relative path.
#[derive(Default, Hash, Debug, PartialEq)]
pub(super) struct Contents {
    directories: Vec<PathBuf>,
    files: Vec<(PathBuf, File)>,
    links: Vec<(PathBuf, PathBuf)>,
    /// Hard links.
    names: Vec<(PathBuf, PathBuf)>,
}

/// The content and mode of a file.
#[derive(Hash, Debug, PartialEq)]
struct File {
    text: String,
    mode: u32,
}

const READABLE: u32 = 0o444;
const CHANGEABLE: u32 = 0o644;
const FOLDER: u32 = 0o755;

impl Contents {
    pub(super) fn directory(&mut self, path: impl Into<PathBuf>) {
        self.directories.push(path.into());
    }

    /// Adds a file with one line.
    pub(super) fn line(&mut self, path: impl Into<PathBuf>, line: impl std::fmt::Display) {
        self.file(path, format!("{line}\n"), READABLE);
    }

    /// Adds a file with one line that its owner may write.
    pub(super) fn changeable(&mut self, path: impl Into<PathBuf>, line: impl std::fmt::Display) {
        self.file(path, format!("{line}\n"), CHANGEABLE);
    }

    /// Adds an empty file.
    pub(super) fn empty(&mut self, path: impl Into<PathBuf>) {
        self.file(path, String::new(), READABLE);
    }

    fn file(&mut self, path: impl Into<PathBuf>, text: String, mode: u32) {
        self.files.push((path.into(), File { text, mode }));
    }

    pub(super) fn link(&mut self, path: impl Into<PathBuf>, target: impl Into<PathBuf>) {
        self.links.push((path.into(), target.into()));
    }

    /// Adds a hard link to an existing file, which takes no space.
    pub(super) fn name(&mut self, path: impl Into<PathBuf>, file: impl Into<PathBuf>) {
        self.names.push((path.into(), file.into()));
    }

    /// The directory with these contents. Creates it if there is none yet.
    pub(super) fn publish(&self, kind: &str) -> anyhow::Result<PathBuf> {
        let runtime = RuntimeDirectory::of_user()?;
        let name = format!("{kind}-{:016x}", self.fingerprint());
        let path = runtime.path().join(name);
        self.publish_at(&path)
            .with_context(|| format!("the directory {} can't be made", path.display()))?;
        Ok(path)
    }

    fn fingerprint(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.hash(&mut hasher);
        hasher.finish()
    }

    /// Writes everything under a unique name, and then renames it.
    fn publish_at(&self, path: &Path) -> io::Result<()> {
        if let Ok(found) = fs::File::open(path) {
            // It is in use again; see `device_files::unused_trees`.
            let _ = found.set_modified(SystemTime::now());
            return Ok(());
        }
        let mut draft = path.to_owned().into_os_string();
        draft.push(format!(".{:016x}", RandomState::new().hash_one(path)));
        let draft = PathBuf::from(draft);
        let published = self
            .write_to(&draft)
            .and_then(|()| fs::rename(&draft, path));
        if published.is_err() {
            let _ = fs::remove_dir_all(&draft);
        }
        match published {
            // Another process has created it meanwhile.
            Err(_) if path.is_dir() => Ok(()),
            result => result,
        }
    }

    fn write_to(&self, base: &Path) -> io::Result<()> {
        fs::create_dir(base)?;
        for path in self.all_directories() {
            let path = base.join(path);
            fs::create_dir(&path)?;
            // The mode of directories in `/sys`, whatever the umask is.
            fs::set_permissions(&path, Permissions::from_mode(FOLDER))?;
        }
        for (path, file) in &self.files {
            let path = base.join(path);
            fs::write(&path, &file.text)?;
            fs::set_permissions(&path, Permissions::from_mode(file.mode))?;
        }
        for (path, target) in &self.links {
            symlink(target, base.join(path))?;
        }
        for (path, file) in &self.names {
            fs::hard_link(base.join(file), base.join(path))?;
        }
        Ok(())
    }

    /// The directories, and those of all files and links, parents first.
    fn all_directories(&self) -> BTreeSet<&Path> {
        let files = self.files.iter().map(|(path, _)| path);
        let links = self.links.iter().chain(&self.names).map(|(path, _)| path);
        let parents = files.chain(links).filter_map(|path| path.parent());
        let named = self.directories.iter().map(PathBuf::as_path).chain(parents);
        let with_parents = named.flat_map(Path::ancestors);
        with_parents
            .filter(|path| !path.as_os_str().is_empty())
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contents(line: &str) -> Contents {
        let mut contents = Contents::default();
        contents.directory("empty");
        contents.line("deep/down/file", line);
        contents.link("link", "/dev/null");
        contents.name("file", "deep/down/file");
        contents
    }

    #[test]
    fn other_contents_have_another_name() {
        assert_eq!(contents("a").fingerprint(), contents("a").fingerprint());
        assert_ne!(contents("a").fingerprint(), contents("b").fingerprint());
    }

    #[test]
    fn each_directory_is_created_once_and_after_its_parent() {
        let mut contents = contents("a");
        contents.line("deep/down/other", "b");
        let directories: Vec<_> = contents.all_directories().into_iter().collect();
        assert_eq!(directories, ["deep", "deep/down", "empty"].map(Path::new));
    }

    #[test]
    fn concurrent_callers_create_one_directory() {
        let base = std::env::temp_dir().join(format!("roci-directory-test-{}", std::process::id()));
        fs::create_dir_all(&base).expect("a directory");
        let path = base.join("published");
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| contents("here").publish_at(&path).expect("published"));
            }
        });
        let file = fs::read_to_string(path.join("file"));
        assert_eq!(file.expect("a file"), "here\n");
        assert!(path.join("empty").is_dir() && path.join("link").is_symlink());
        let left = fs::read_dir(&base).expect("a directory").count();
        assert_eq!(left, 1, "no drafts are left behind");
        fs::remove_dir_all(&base).expect("removed");
    }
}
