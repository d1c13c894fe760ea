//! Finds the program to run, and checks whether it can load our libraries.

use std::env;
use std::ffi::OsStr;
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::elf::{CLibrary, Executable};
use super::environment::USUAL_PROGRAMS;

/// The maximum number of nested script interpreters, as in the kernel.
const DEEPEST_SCRIPT: usize = 4;

const SET_USER: u32 = 0o4000;
const SET_GROUP: u32 = 0o2000;
const ANY_EXECUTE: u32 = 0o111;

/// Why a program can't be run, and what to do.
#[derive(Debug, thiserror::Error)]
pub(super) enum ProgramError {
    #[error("there is no program `{name}`; check its name, and PATH if it has no `/`")]
    NotFound { name: String },
    #[error("{} is not executable; name a program, or make it one with `chmod +x`", path.display())]
    NotExecutable { path: PathBuf },
    #[error(
        "{} changes to another user (setuid or setgid), so the loader keeps our libraries out; \
         run roci as that user instead, such as `sudo roci run -- PROGRAM`", path.display()
    )]
    Privileged { path: PathBuf },
    #[error(
        "{} is for another processor or word size than roci ({}); use a build of it for this one",
        path.display(), env::consts::ARCH
    )]
    Foreign { path: PathBuf },
    #[error("{} can't be run: {source}", path.display())]
    Rejected { path: PathBuf, source: io::Error },
}

/// An existing program.
#[derive(Debug)]
pub(super) struct Program {
    path: PathBuf,
}

impl Program {
    /// Finds it as a shell does.
    pub(super) fn find(name: &OsStr) -> Result<Self, ProgramError> {
        if name.as_bytes().contains(&b'/') || name.is_empty() {
            return Self::at(PathBuf::from(name));
        }
        let directories = env::var_os("PATH").unwrap_or_else(|| USUAL_PROGRAMS.into());
        let candidates = env::split_paths(&directories).map(|directory| directory.join(name));
        // A file that is not executable does not hide a later one that is.
        let mut found = candidates.map(Self::at).filter(|found| !is_missing(found));
        let first = found.next();
        match first {
            Some(Err(rejected)) => found.find(Result::is_ok).unwrap_or(Err(rejected)),
            Some(found) => found,
            None => Err(not_found(name)),
        }
    }

    pub(super) fn at(path: PathBuf) -> Result<Self, ProgramError> {
        match fs::metadata(&path) {
            Ok(found) if found.is_file() && found.mode() & ANY_EXECUTE != 0 => Ok(Self { path }),
            Ok(_) => Err(ProgramError::NotExecutable { path }),
            Err(_) => Err(not_found(path.as_os_str())),
        }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// How it loads libraries. Fails if it can't load ours.
    pub(super) fn loading(&self) -> Result<Loading, ProgramError> {
        let mut path = self.path.clone();
        for _ in 0..DEEPEST_SCRIPT {
            match look_at(&path)? {
                Executable::Script { interpreter } => path = interpreter.into(),
                Executable::Native { loader: None } => {
                    return Ok(Loading::Never(static_note(&path)));
                }
                Executable::Native {
                    loader: Some(loader),
                } => return Ok(Loading::With(CLibrary::of_loader(&loader))),
                _ => return Ok(Loading::Unknown),
            }
        }
        Ok(Loading::Unknown)
    }
}

/// How a program loads libraries.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Loading {
    /// With this C library.
    With(CLibrary),
    /// It loads none, only programs that it starts do. The text says so to the user.
    Never(String),
    /// It is of a type that only the system knows.
    Unknown,
}

/// The type of a file. One that can't be read may still be executable; then the type is unknown.
fn look_at(path: &Path) -> Result<Executable, ProgramError> {
    let of = |path: &Path| path.to_owned();
    let found = match fs::metadata(path) {
        Ok(found) => found,
        Err(_) => return Ok(Executable::Other),
    };
    let executable = Executable::read(path).unwrap_or(Executable::Other);
    match &executable {
        // The system ignores the privileges of a script.
        Executable::Script { .. } => {}
        Executable::Foreign => return Err(ProgramError::Foreign { path: of(path) }),
        _ if is_privileged(&found) => return Err(ProgramError::Privileged { path: of(path) }),
        _ => {}
    }
    Ok(executable)
}

/// Whether it would run with other privileges (setuid, setgid, capabilities).
fn is_privileged(found: &Metadata) -> bool {
    let Ok(ours) = fs::metadata("/proc/self") else {
        return found.mode() & (SET_USER | SET_GROUP) != 0;
    };
    (found.mode() & SET_USER != 0 && found.uid() != ours.uid())
        || (found.mode() & SET_GROUP != 0 && found.gid() != ours.gid())
}

fn static_note(path: &Path) -> String {
    format!(
        "{} is linked statically: it can't load our libraries, only programs that it starts can",
        path.display()
    )
}

fn is_missing(found: &Result<Program, ProgramError>) -> bool {
    matches!(found, Err(ProgramError::NotFound { .. }))
}

fn not_found(name: &OsStr) -> ProgramError {
    let name = name.to_string_lossy().into_owned();
    ProgramError::NotFound { name }
}
