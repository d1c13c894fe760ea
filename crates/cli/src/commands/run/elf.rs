//! Reads from an executable whether it can load our libraries.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

const MAGIC: &[u8] = b"\x7fELF";

/// The program header that names the loader.
const PT_INTERP: u32 = 3;

const HEADER_LENGTH: usize = 64;
const PROGRAM_HEADER_LENGTH: usize = 56;

/// The maximum number of program headers: more than linkers create, because a damaged file may contain any number.
const MAX_PROGRAM_HEADERS: u16 = 1024;
const LONGEST_LOADER: u64 = 4096;

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
    let offset = u64::from_ne_bytes(part(header, 32));
    let length = u64::from(u16::from_ne_bytes(part(header, 54)));
    let count = u16::from_ne_bytes(part(header, 56)).min(MAX_PROGRAM_HEADERS);
    for index in 0..u64::from(count) {
        let mut entry = [0; PROGRAM_HEADER_LENGTH];
        file.read_exact_at(&mut entry, offset.saturating_add(index * length))?;
        if u32::from_ne_bytes(part(&entry, 0)) == PT_INTERP {
            let loader = Some(loader(file, &entry)?);
            return Ok(Executable::Native { loader });
        }
    }
    Ok(Executable::Native { loader: None })
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

fn loader(file: &File, entry: &[u8; PROGRAM_HEADER_LENGTH]) -> io::Result<String> {
    let offset = u64::from_ne_bytes(part(entry, 8));
    let length = u64::from_ne_bytes(part(entry, 32)).min(LONGEST_LOADER);
    let mut path = vec![0; length as usize];
    file.read_exact_at(&mut path, offset)?;
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
