//! The folder where the processes of one user find each other.

use std::env;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use crate::sys::process::user;

/// Longer paths would leave no room for the name of a Unix socket, which has 108 bytes in all.
const LONGEST: usize = 40;

/// Why there is no such folder.
#[derive(Debug, thiserror::Error)]
pub enum DirectoryError {
    /// Somebody else could read or change what is in it.
    #[error(
        "the folder {path} must be a real folder that belongs to user {user} and is closed to all \
         others (mode 0700): remove it, or set XDG_RUNTIME_DIR to a folder of your own"
    )]
    NotPrivate {
        /// The folder.
        path: PathBuf,
        /// Who wanted it.
        user: u32,
    },
    /// It can't be made or looked at.
    #[error(
        "the folder {path} can't be used: {source}; set XDG_RUNTIME_DIR to a folder of your own"
    )]
    Unusable {
        /// The folder.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

/// A folder that only this user can enter.
#[derive(Debug, Clone)]
pub struct RuntimeDirectory {
    path: PathBuf,
}

impl RuntimeDirectory {
    /// The one that all processes of this user share: `$XDG_RUNTIME_DIR/roci` where the system
    /// provides such a place, otherwise `/dev/shm/roci-UID`, or `/tmp/roci-UID` without that.
    ///
    /// In memory if possible: what is written here is written while packets wait, and replacing a
    /// file on a busy disk was seen to take half a second.
    pub fn of_user() -> Result<Self, DirectoryError> {
        let user = user();
        let named = env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
        // Not every login sets the variable, but all processes of a user must agree.
        let usual = PathBuf::from(format!("/run/user/{user}"));
        let mut bases = named.into_iter().chain([usual]);
        let path = match bases.find(|base| suits(base, user)) {
            Some(base) => base.join("roci"),
            None if is_shared_memory(Path::new("/dev/shm")) => {
                PathBuf::from(format!("/dev/shm/roci-{user}"))
            }
            None => PathBuf::from(format!("/tmp/roci-{user}")),
        };
        Self::at(path)
    }

    /// This one, which is made if it does not exist.
    pub fn at(path: impl Into<PathBuf>) -> Result<Self, DirectoryError> {
        let path = path.into();
        match DirBuilder::new().mode(0o700).create(&path) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(source) => return Err(DirectoryError::Unusable { path, source }),
        }
        match is_private(&path, user()) {
            Ok(true) => Ok(Self { path }),
            Ok(false) => Err(DirectoryError::NotPrivate { path, user: user() }),
            Err(source) => Err(DirectoryError::Unusable { path, source }),
        }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// Whether everybody can make folders in it that others can't remove, as in `/tmp`.
fn is_shared_memory(path: &Path) -> bool {
    const OPEN_AND_STICKY: u32 = 0o1777;
    fs::metadata(path)
        .is_ok_and(|found| found.is_dir() && found.mode() & OPEN_AND_STICKY == OPEN_AND_STICKY)
}

/// A program that was started with `su` may carry the variable of another user.
fn suits(base: &Path, user: u32) -> bool {
    base.is_absolute()
        && base.as_os_str().len() <= LONGEST
        && fs::metadata(base).is_ok_and(|found| found.is_dir() && found.uid() == user)
}

fn is_private(path: &Path, user: u32) -> io::Result<bool> {
    // Not following links: anybody could have put one into /tmp.
    let found = fs::symlink_metadata(path)?;
    Ok(found.is_dir() && found.uid() == user && found.mode() & 0o077 == 0)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[test]
    fn a_folder_that_others_can_enter_is_refused() {
        let base = env::temp_dir().join(format!("roci-directory-test-{}", std::process::id()));
        let made = RuntimeDirectory::at(&base).unwrap();
        assert_eq!(made.path(), base);
        RuntimeDirectory::at(&base).unwrap();
        let link = base.join("link");
        symlink(&base, &link).unwrap();
        let refused = RuntimeDirectory::at(&link).unwrap_err();
        assert!(
            matches!(refused, DirectoryError::NotPrivate { .. }),
            "{refused}"
        );
        for mode in [0o755, 0o770, 0o740, 0o720, 0o710, 0o704, 0o702, 0o701] {
            fs::set_permissions(&base, fs::Permissions::from_mode(mode)).unwrap();
            let refused = RuntimeDirectory::at(&base).unwrap_err();
            assert!(
                matches!(refused, DirectoryError::NotPrivate { .. }),
                "{mode:o}: {refused}"
            );
        }
        let nowhere = RuntimeDirectory::at(base.join("no/where")).unwrap_err();
        assert!(
            matches!(nowhere, DirectoryError::Unusable { .. }),
            "{nowhere}"
        );
        fs::remove_dir_all(&base).unwrap();
    }
}
