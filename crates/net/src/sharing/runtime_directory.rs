//! The runtime directory, in which the processes of one user find each other.

use std::env;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use super::long_socket_path::long_paths_work;
use super::stale_files;
use crate::private_file;
use crate::sys::process::user;

/// The longest path, in bytes, that leaves room for the name of a Unix socket in its address.
/// Sockets under longer paths are reached through `/proc`.
const SHORT: usize = 40;

/// Why the directory can't be used.
#[derive(Debug, thiserror::Error)]
pub enum DirectoryError {
    /// Other users could read or change its content.
    #[error(
        "the directory {path} must be a real directory that belongs to user {user} and is closed to all \
         others (mode 0700): remove it, or set XDG_RUNTIME_DIR to a directory of your own"
    )]
    NotPrivate {
        /// The directory.
        path: PathBuf,
        /// The user that needs it.
        user: u32,
    },
    /// It can't be created or inspected.
    #[error(
        "the directory {path} can't be used: {source}; set XDG_RUNTIME_DIR to a directory of your own"
    )]
    Unusable {
        /// The directory.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
}

/// A directory that only this user can enter.
#[derive(Debug, Clone)]
pub struct RuntimeDirectory {
    path: PathBuf,
}

impl RuntimeDirectory {
    /// The directory that all processes of this user share: `$XDG_RUNTIME_DIR/roci` if the system
    /// provides that, otherwise `/dev/shm/roci-UID`, `/tmp/roci-UID` or `~/.cache/roci`.
    ///
    /// It is in memory if possible: the registry is written while packets wait, and replacing a
    /// file on a busy disk was seen to take half a second. A path that another user has created
    /// first, or that can't be written, is skipped, so that no user can block another.
    pub fn of_user() -> Result<Self, DirectoryError> {
        let directory = CandidatePaths::of_user().choose()?;
        stale_files::remove_if_due(directory.path());
        Ok(directory)
    }

    /// The directory at this path, which is created if it does not exist.
    pub fn at(path: impl Into<PathBuf>) -> Result<Self, DirectoryError> {
        let path = path.into();
        match DirBuilder::new()
            .recursive(is_in_cache(&path))
            .mode(0o700)
            .create(&path)
        {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(source) => return Err(DirectoryError::Unusable { path, source }),
        }
        match is_private(&path, user()) {
            Ok(true) => {}
            Ok(false) => return Err(DirectoryError::NotPrivate { path, user: user() }),
            Err(source) => return Err(DirectoryError::Unusable { path, source }),
        }
        match create_and_remove_file(&path) {
            Ok(()) => Ok(Self { path }),
            Err(source) => Err(DirectoryError::Unusable { path, source }),
        }
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// The possible paths of a user's directory, the best first.
struct CandidatePaths {
    /// The path that the user has set. It precedes all others.
    named: Option<PathBuf>,
    others: Vec<PathBuf>,
}

impl CandidatePaths {
    fn of_user() -> Self {
        let (user, outside) = (user(), user_outside());
        let named = env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
        // Not every login sets the variable, but all processes of a user must use the same path.
        let usual = PathBuf::from(format!("/run/user/{outside}"));
        let home = env::var_os("HOME").map(PathBuf::from);
        let shared = ["/dev/shm", "/tmp"].map(PathBuf::from);
        let shared = shared.into_iter().filter(|base| is_open_to_all(base));
        let shared = shared.map(|base| base.join(format!("roci-{outside}")));
        let usual = Some(usual).filter(|base| suits(base, user));
        let home = home.filter(|base| suits(base, user));
        Self {
            named: named
                .filter(|base| suits(base, user))
                .map(|base| base.join("roci")),
            others: (usual.map(|base| base.join("roci")).into_iter())
                .chain(shared)
                .chain(home.map(|base| base.join(".cache/roci")))
                .collect(),
        }
    }

    /// The path that the user has set, or the first one that exists, so that all processes use the
    /// same even if a better one becomes free later, or the first one that can be created.
    fn choose(self) -> Result<RuntimeDirectory, DirectoryError> {
        if let Some(named) = self.named {
            return RuntimeDirectory::at(named);
        }
        let existing = self.others.iter();
        let mut existing = existing.filter(|path| is_private(path, user()).unwrap_or(false));
        if let Some(directory) = existing.find_map(|path| RuntimeDirectory::at(path).ok()) {
            return Ok(directory);
        }
        let mut rejection = None;
        for path in self.others {
            match RuntimeDirectory::at(path) {
                Ok(directory) => return Ok(directory),
                Err(error) => rejection = rejection.or(Some(error)),
            }
        }
        Err(rejection.unwrap_or_else(|| DirectoryError::Unusable {
            path: "/dev/shm".into(),
            source: io::ErrorKind::NotFound.into(),
        }))
    }
}

/// The id of this user outside of its user namespace. The root user of a container is an ordinary
/// user there, and must not use the directory of the real root.
fn user_outside() -> u32 {
    let map = fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    outside(&map, user())
}

/// Looks up a user in lines of first id inside, first id outside, and count.
fn outside(map: &str, user: u32) -> u32 {
    let line = |line: &str| {
        let mut numbers = line.split_whitespace().map(str::parse::<u32>);
        let mut next = || numbers.next()?.ok();
        let (inside, outside, count) = (next()?, next()?, next()?);
        let place = user.checked_sub(inside).filter(|place| *place < count)?;
        outside.checked_add(place)
    };
    map.lines().find_map(line).unwrap_or(user)
}

/// Whether all users can create directories in it that others can't remove, as in `/tmp`.
fn is_open_to_all(path: &Path) -> bool {
    const OPEN_AND_STICKY: u32 = 0o1777;
    fs::metadata(path)
        .is_ok_and(|found| found.is_dir() && found.mode() & OPEN_AND_STICKY == OPEN_AND_STICKY)
}

/// Whether a base directory belongs to this user. A program that was started with `su` may have the
/// variable of another user.
fn suits(base: &Path, user: u32) -> bool {
    base.is_absolute()
        && (base.as_os_str().len() <= SHORT || long_paths_work())
        && fs::metadata(base).is_ok_and(|found| found.is_dir() && found.uid() == user)
}

/// Whether the path is in `.cache`, which not every user has yet.
fn is_in_cache(path: &Path) -> bool {
    path.parent()
        .is_some_and(|parent| parent.ends_with(".cache"))
}

/// Fails if nothing can be written into a directory, as in a container whose `/dev/shm` is read-only.
fn create_and_remove_file(directory: &Path) -> io::Result<()> {
    let (path, _) = private_file::create_draft(&directory.join(".probe"))?;
    let _ = fs::remove_file(&path);
    Ok(())
}

fn is_private(path: &Path, user: u32) -> io::Result<bool> {
    // Links are not followed: any user could have created one in `/tmp`.
    let found = fs::symlink_metadata(path)?;
    Ok(found.is_dir() && found.uid() == user && found.mode() & 0o077 == 0)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    /// A directory that is removed at the end of the test.
    struct Base(PathBuf);

    impl Base {
        fn new(name: &str) -> Self {
            let name = format!("roci-places-{name}-{}", std::process::id());
            let path = env::temp_dir().join(name);
            fs::create_dir_all(&path).unwrap();
            Self(path)
        }

        fn chosen(&self, named: Option<&str>) -> Result<PathBuf, DirectoryError> {
            let candidates = CandidatePaths {
                named: named.map(|name| self.0.join(name)),
                others: ["first", "second"].map(|name| self.0.join(name)).into(),
            };
            let chosen = candidates.choose()?;
            Ok(chosen.path().strip_prefix(&self.0).unwrap().to_owned())
        }

        fn squat(&self, name: &str) {
            let path = self.0.join(name);
            fs::create_dir_all(&path).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        }
    }

    impl Drop for Base {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn a_path_of_another_user_is_skipped() {
        let base = Base::new("squatted");
        assert_eq!(base.chosen(None).unwrap(), Path::new("first"));
        fs::remove_dir(base.0.join("first")).unwrap();
        base.squat("first");
        assert_eq!(base.chosen(None).unwrap(), Path::new("second"));
        fs::remove_dir(base.0.join("first")).unwrap();
        let again = base.chosen(None).unwrap();
        assert_eq!(again, Path::new("second"), "others of this user are there");
        base.squat("first");
        base.squat("second");
        base.chosen(None).unwrap_err();
    }

    #[test]
    fn a_path_that_cannot_be_written_is_skipped() {
        let base = Base::new("unwritable");
        let candidates = CandidatePaths {
            named: None,
            others: vec!["/proc/roci".into(), base.0.join("second")],
        };
        assert_eq!(candidates.choose().unwrap().path(), base.0.join("second"));
        // It exists and is private, as a directory of this user on a file system that is read-only now.
        let candidates = CandidatePaths {
            named: None,
            others: vec!["/proc/self/fd".into(), base.0.join("second")],
        };
        assert!(is_private(&candidates.others[0], user()).unwrap());
        assert_eq!(candidates.choose().unwrap().path(), base.0.join("second"));
        RuntimeDirectory::at("/proc/self/fd").unwrap_err();
    }

    #[test]
    fn a_path_set_by_the_user_is_used_or_rejected() {
        let base = Base::new("named");
        assert_eq!(base.chosen(Some("mine")).unwrap(), Path::new("mine"));
        base.squat("theirs");
        base.chosen(Some("theirs")).unwrap_err();
    }

    #[test]
    fn a_missing_cache_is_created_and_no_other_parent() {
        let base = Base::new("cache");
        RuntimeDirectory::at(base.0.join(".cache/roci")).unwrap();
        RuntimeDirectory::at(base.0.join("other/roci")).unwrap_err();
    }

    #[test]
    fn the_root_of_a_container_is_an_ordinary_user_outside() {
        assert_eq!(outside("         0       1000          1\n", 0), 1000);
        let ranges = "0 1000 1\n1 100000 65536\n";
        assert_eq!(outside(ranges, 0), 1000);
        assert_eq!(outside(ranges, 5), 100_004);
        assert_eq!(outside("0 0 4294967295\n", 1000), 1000);
        assert_eq!(outside("", 1000), 1000);
    }

    #[test]
    fn a_directory_that_others_can_enter_is_rejected() {
        let base = env::temp_dir().join(format!("roci-directory-test-{}", std::process::id()));
        let made = RuntimeDirectory::at(&base).unwrap();
        assert_eq!(made.path(), base);
        RuntimeDirectory::at(&base).unwrap();
        let link = base.join("link");
        symlink(&base, &link).unwrap();
        let rejected = RuntimeDirectory::at(&link).unwrap_err();
        assert!(
            matches!(rejected, DirectoryError::NotPrivate { .. }),
            "{rejected}"
        );
        for mode in [0o755, 0o770, 0o740, 0o720, 0o710, 0o704, 0o702, 0o701] {
            fs::set_permissions(&base, fs::Permissions::from_mode(mode)).unwrap();
            let rejected = RuntimeDirectory::at(&base).unwrap_err();
            assert!(
                matches!(rejected, DirectoryError::NotPrivate { .. }),
                "{mode:o}: {rejected}"
            );
        }
        let nowhere = RuntimeDirectory::at(base.join("no/where")).unwrap_err();
        assert!(
            matches!(nowhere, DirectoryError::Unusable { .. }),
            "{nowhere}"
        );
        fs::remove_dir_all(&base).unwrap();
    }

    #[test]
    fn a_directory_of_another_user_is_not_private() {
        let base = Base::new("other-user");
        fs::set_permissions(&base.0, fs::Permissions::from_mode(0o700)).unwrap();
        assert!(is_private(&base.0, user()).unwrap());
        assert!(!is_private(&base.0, user() + 1).unwrap());
    }

    #[test]
    fn a_runtime_directory_must_be_absolute_and_owned_by_the_user() {
        let base = Base::new("suits");
        let directory = PathBuf::from(format!("/tmp/roci-suits-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        assert!(suits(&directory, user()));
        assert!(!suits(&directory, user() + 1), "of another user");
        assert!(!suits(Path::new("."), user()), "relative");
        fs::remove_dir(&directory).unwrap();
        assert!(!suits(&directory, user()), "not there");
        let long = base.0.join("x".repeat(200));
        fs::create_dir(&long).unwrap();
        assert!(suits(&long, user()), "of any length");
        let file = Path::new("/proc/self/stat");
        assert!(!suits(file, user()), "a file");
    }

    #[test]
    fn a_shared_directory_is_open_to_all_and_sticky() {
        let base = Base::new("sticky");
        for (mode, expected) in [(0o1777, true), (0o777, false), (0o1755, false)] {
            fs::set_permissions(&base.0, fs::Permissions::from_mode(mode)).unwrap();
            assert_eq!(is_open_to_all(&base.0), expected, "{mode:o}");
        }
    }
}
