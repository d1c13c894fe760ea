//! Reads from an executable whether it can load our libraries, and from a library which C library it needs.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

const MAGIC: &[u8] = b"\x7fELF";

/// The program headers of what is loaded, of the table for the loader, and of the loader's name.
const PT_LOAD: u32 = 1;
const PT_DYNAMIC: u32 = 2;
const PT_INTERP: u32 = 3;

/// Entries of the table for the loader: the end, a needed library, and the address of all names.
const DT_NULL: u64 = 0;
const DT_NEEDED: u64 = 1;
const DT_STRTAB: u64 = 5;

/// The longest table for the loader: longer than linkers create.
const LONGEST_TABLE: u64 = 64 * 1024;

/// What programs and libraries for glibc need.
const GLIBC: &[u8] = b"libc.so.6\0";

const HEADER_LENGTH: usize = 64;
const PROGRAM_HEADER_LENGTH: usize = 56;

/// The maximum number of program headers: more than linkers create, because a damaged file may contain any number.
const MAX_PROGRAM_HEADERS: u16 = 1024;
const LONGEST_LOADER: u64 = 4096;

/// A C library. A program can't load libraries for another one than its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CLibrary {
    /// The GNU C library.
    Glibc,
    /// musl, as on Alpine Linux.
    Musl,
}

impl CLibrary {
    /// The C library that a loader belongs to.
    pub(super) fn of_loader(loader: &str) -> Self {
        if loader.contains("ld-musl") {
            Self::Musl
        } else {
            Self::Glibc
        }
    }

    /// The C library that a shared library needs.
    pub(super) fn of_library(path: &Path) -> io::Result<Self> {
        let file = File::open(path)?;
        let mut header = [0; HEADER_LENGTH];
        file.read_exact_at(&mut header, 0)?;
        if needs_glibc(&file, &header)? {
            Ok(Self::Glibc)
        } else {
            Ok(Self::Musl)
        }
    }

    /// Its name.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Glibc => "glibc",
            Self::Musl => "musl",
        }
    }
}

/// The type of a file.
#[derive(Debug, PartialEq)]
pub(super) enum Executable {
    /// An executable for this architecture.
    Native {
        /// The dynamic loader; `None` if it is linked statically.
        loader: Option<String>,
    },
    /// An executable for another architecture or word size.
    Foreign,
    /// A script for this interpreter.
    Script { interpreter: String },
    /// Another type, which the system may know.
    Other,
}

impl Executable {
    pub(super) fn read(path: &Path) -> io::Result<Self> {
        let file = File::open(path)?;
        let mut beginning = [0; 256];
        let length = file.read_at(&mut beginning, 0)?;
        let beginning = &beginning[..length];
        if let Some(line) = beginning.strip_prefix(b"#!") {
            return Ok(script(line));
        }
        match beginning.first_chunk::<HEADER_LENGTH>() {
            Some(header) if header.starts_with(MAGIC) => elf(&file, header),
            _ => Ok(Self::Other),
        }
    }
}

fn script(line: &[u8]) -> Executable {
    let line = line.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let line = String::from_utf8_lossy(line);
    match line.split_ascii_whitespace().next() {
        Some(interpreter) => Executable::Script {
            interpreter: interpreter.to_owned(),
        },
        None => Executable::Other,
    }
}

fn elf(file: &File, header: &[u8; HEADER_LENGTH]) -> io::Result<Executable> {
    if kind(header) != kind(&our_own_header()?) {
        return Ok(Executable::Foreign);
    }
    let headers = program_headers(file, header)?;
    let interpreter = headers.iter().find(|it| it.kind == PT_INTERP);
    let loader = interpreter.map(|it| loader(file, it)).transpose()?;
    Ok(Executable::Native { loader })
}

/// What is in a part of a file, and where the part is in memory.
struct ProgramHeader {
    kind: u32,
    offset: u64,
    address: u64,
    length: u64,
}

fn program_headers(file: &File, header: &[u8; HEADER_LENGTH]) -> io::Result<Vec<ProgramHeader>> {
    let offset = u64::from_ne_bytes(part(header, 32));
    let length = u64::from(u16::from_ne_bytes(part(header, 54)));
    let count = u16::from_ne_bytes(part(header, 56)).min(MAX_PROGRAM_HEADERS);
    let read = |index| {
        let mut entry = [0; PROGRAM_HEADER_LENGTH];
        file.read_exact_at(&mut entry, offset.saturating_add(index * length))?;
        Ok(ProgramHeader {
            kind: u32::from_ne_bytes(part(&entry, 0)),
            offset: u64::from_ne_bytes(part(&entry, 8)),
            address: u64::from_ne_bytes(part(&entry, 16)),
            length: u64::from_ne_bytes(part(&entry, 32)),
        })
    };
    (0..u64::from(count)).map(read).collect()
}

/// Whether the loader is asked for the library of glibc.
fn needs_glibc(file: &File, header: &[u8; HEADER_LENGTH]) -> io::Result<bool> {
    let headers = program_headers(file, header)?;
    let Some(table) = headers.iter().find(|it| it.kind == PT_DYNAMIC) else {
        return Ok(false);
    };
    let mut bytes = vec![0; table.length.min(LONGEST_TABLE) as usize];
    file.read_exact_at(&mut bytes, table.offset)?;
    let (entries, _) = bytes.as_chunks::<16>();
    let entries = entries.iter().map(|entry| {
        let tag = u64::from_ne_bytes(part(entry, 0));
        (tag, u64::from_ne_bytes(part(entry, 8)))
    });
    let entries: Vec<_> = entries.take_while(|(tag, _)| *tag != DT_NULL).collect();
    let Some((_, names)) = entries.iter().find(|(tag, _)| *tag == DT_STRTAB) else {
        return Ok(false);
    };
    let holds = |it: &&ProgramHeader| {
        it.kind == PT_LOAD && (it.address..it.address.saturating_add(it.length)).contains(names)
    };
    let Some(loaded) = headers.iter().find(holds) else {
        return Ok(false);
    };
    let names = names - loaded.address + loaded.offset;
    let is_glibc = |name: u64| {
        let mut bytes = [0; GLIBC.len()];
        let read = file.read_exact_at(&mut bytes, names.saturating_add(name));
        read.is_ok() && bytes == GLIBC
    };
    let mut needed = entries.iter().filter(|(tag, _)| *tag == DT_NEEDED);
    Ok(needed.any(|(_, name)| is_glibc(*name)))
}

/// Word size, byte order and processor.
fn kind(header: &[u8; HEADER_LENGTH]) -> ([u8; 2], [u8; 2]) {
    (part(header, 4), part(header, 18))
}

fn our_own_header() -> io::Result<[u8; HEADER_LENGTH]> {
    let mut header = [0; HEADER_LENGTH];
    File::open("/proc/self/exe")?.read_exact_at(&mut header, 0)?;
    Ok(header)
}

fn loader(file: &File, header: &ProgramHeader) -> io::Result<String> {
    let mut path = vec![0; header.length.min(LONGEST_LOADER) as usize];
    file.read_exact_at(&mut path, header.offset)?;
    let path = String::from_utf8_lossy(&path);
    Ok(path.trim_end_matches('\0').to_owned())
}

fn part<const N: usize, const M: usize>(whole: &[u8; M], at: usize) -> [u8; N] {
    let part = whole[at..].first_chunk();
    *part.expect("every field lies within its header")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_program_is_native_and_has_a_loader() {
        let read = Executable::read(Path::new("/proc/self/exe")).expect("readable");
        assert!(
            matches!(&read, Executable::Native { loader: Some(path) } if path.starts_with('/')),
            "{read:?}"
        );
    }

    #[test]
    fn the_c_library_of_this_program_is_that_of_its_loader() {
        let this = Path::new("/proc/self/exe");
        let Ok(Executable::Native { loader: Some(path) }) = Executable::read(this) else {
            panic!("a program with a loader");
        };
        let library = CLibrary::of_library(this).expect("readable");
        assert_eq!(library, CLibrary::of_loader(&path), "{path}");
        let alpine = CLibrary::of_loader("/lib/ld-musl-x86_64.so.1");
        assert_eq!(alpine, CLibrary::Musl);
    }

    #[test]
    fn the_first_word_of_a_script_is_its_interpreter() {
        let interpreter = |line: &[u8]| match script(line) {
            Executable::Script { interpreter } => interpreter,
            other => panic!("{other:?}"),
        };
        assert_eq!(interpreter(b"/bin/sh\necho"), "/bin/sh");
        assert_eq!(interpreter(b" /usr/bin/env python3\n"), "/usr/bin/env");
        assert_eq!(script(b"\n"), Executable::Other);
    }
}
