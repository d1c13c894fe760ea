//! Reports at the exit of a program that it opened none of our devices, and what it used instead; or which files
//! have its capture, if there are several.
//!
//! `roci run` preloads this library into every program, so that it is found before a copy of libibverbs that
//! the program contains. A copy that is bound otherwise (`RTLD_DEEPBIND`, `dlsym`, static linking) finds no
//! device, and most programs then continue without RDMA. With `--pcap`, `--explain` or `--check` the user expects our
//! devices to be used, so the report is printed.

use std::env;
use std::ffi::{CStr, OsString, c_char, c_int, c_void};
use std::fmt::Write as _;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// The identity of the process that `roci run` became.
const RUN_VARIABLE: &str = "ROCI_RUN";

/// Strings that occur in a program with a static libibverbs, and in one with our Rust library.
const LINKED_IN: &[u8] = b"libibverbs: Warning";
const RUST_LIBRARY: &[u8] = b"ROCI_SHORTCUT";

pub(crate) fn print() {
    let asked = |name| env::var_os(name).is_some_and(|value| !value.is_empty() && value != "0");
    let is_asked = ["ROCI_EXPLAIN", "ROCI_PCAP", "ROCI_CHECK"]
        .into_iter()
        .any(asked);
    let report = if driver::Driver::was_opened() {
        let name = capture_name();
        name.and_then(|name| capture_report(&net::tap::capture::parts_of_ended_run(&name)))
    } else if is_asked {
        // An explanation has said why no device was opened.
        Loaded::now().report(is_the_program() && !driver::has_explained())
    } else {
        None
    };
    if let Some(report) = report {
        // SAFETY: a text with its length. The standard library's stderr may already be closed.
        unsafe { libc::write(2, report.as_ptr().cast(), report.len()) };
    }
}

/// The capture that the user asked for.
fn capture_name() -> Option<PathBuf> {
    let name = env::var_os("ROCI_PCAP").filter(|name| !name.is_empty())?;
    Some(name.into())
}

/// How many files a report names.
const MAX_PARTS: usize = 8;

/// Names the files of a capture, if there are several.
fn capture_report(parts: &[PathBuf]) -> Option<String> {
    let named = |parts: &[PathBuf]| {
        let names = parts.iter().map(|part| part.display().to_string());
        names.collect::<Vec<_>>().join(" ")
    };
    let count = parts.len();
    match count {
        0 | 1 => None,
        2..=MAX_PARTS => Some(format!(
            "roci: the capture has {count} files; this command joins them:\n  roci explain {}\n",
            named(parts)
        )),
        _ => Some(format!(
            "roci: the capture has {count} files; `roci explain` joins them: {} and {} more\n",
            named(&parts[..MAX_PARTS]),
            count - MAX_PARTS
        )),
    }
}

/// Whether this is the process that `roci run` became, and it had no children.
fn is_the_program() -> bool {
    let own = std::process::id().to_string();
    let run = env::var(RUN_VARIABLE).is_ok_and(|run| run.split('.').next() == Some(&*own));
    // SAFETY: numbers, for which zero is valid.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: a live structure for the result.
    let known = unsafe { libc::getrusage(libc::RUSAGE_CHILDREN, &raw mut usage) } == 0;
    run && known && usage.ru_maxrss == 0 && !has_children()
}

/// Whether the process has children that it has not waited for, as `oshrun` after `shmem_global_exit`.
fn has_children() -> bool {
    let tasks = std::fs::read_dir("/proc/self/task").into_iter().flatten();
    let mut lists = tasks
        .flatten()
        .filter_map(|task| std::fs::read(task.path().join("children")).ok());
    lists.any(|list| !list.is_empty())
}

/// The copies of libibverbs in this process.
#[derive(Default)]
struct Loaded {
    ours: PathBuf,
    others: Vec<PathBuf>,
    linked_in: bool,
    has_rust_library: bool,
}

impl Loaded {
    fn now() -> Self {
        let mut loaded = Self::default();
        // SAFETY: the function is called before this returns, with the pointer that is given here.
        unsafe { libc::dl_iterate_phdr(Some(look_at), (&raw mut loaded).cast()) };
        loaded
    }

    /// The report; `None` if there is nothing to report.
    fn report(&self, is_the_program: bool) -> Option<String> {
        let mut text = String::from("roci: this program opened none of our devices");
        match self.others.first() {
            Some(other) => write!(
                text,
                ": it uses {} instead of our libibverbs. Replace that file by a link to {}, or remove it.",
                other.display(),
                self.ours.display()
            ),
            None if self.linked_in => write!(
                text,
                ": libibverbs is linked into it. Use a build that loads libibverbs.so.1.",
            ),
            None if is_the_program && !self.has_rust_library => {
                write!(text, ", so there is nothing to capture, to explain or to check.")
            }
            None => return None,
        }
        .ok()?;
        text.push('\n');
        Some(text)
    }
}

/// Examines one loaded object; the program itself comes first and has no name.
unsafe extern "C" fn look_at(
    info: *mut libc::dl_phdr_info,
    _size: usize,
    loaded: *mut c_void,
) -> c_int {
    // SAFETY: the loader describes an object.
    let info = unsafe { &*info };
    // SAFETY: the pointer is that of `Loaded::now`, which waits for this function.
    let loaded = unsafe { &mut *loaded.cast::<Loaded>() };
    let path = object_path(info.dlpi_name);
    if path.as_os_str().is_empty() {
        loaded.linked_in = contains(info, LINKED_IN);
        loaded.has_rust_library = contains(info, RUST_LIBRARY);
    } else if segments(info).any(|segment| segment.contains(&(print as *const () as usize))) {
        loaded.ours = path;
    } else if is_libibverbs(&path) {
        loaded.others.push(path);
    }
    0
}

fn object_path(name: *const c_char) -> PathBuf {
    if name.is_null() {
        return PathBuf::new();
    }
    // SAFETY: the loader's names are texts.
    let name = unsafe { CStr::from_ptr(name) };
    OsString::from_vec(name.to_bytes().to_vec()).into()
}

/// Also a name such as `libibverbs-1a2b3c4d.so.1`, as in Python packages.
fn is_libibverbs(path: &Path) -> bool {
    let name = path.file_name().map(|name| name.to_string_lossy());
    name.is_some_and(|name| name.starts_with("libibverbs") && name.contains(".so"))
}

/// The readable address ranges of a loaded object.
fn segments(info: &libc::dl_phdr_info) -> impl Iterator<Item = std::ops::Range<usize>> {
    let count = usize::from(info.dlpi_phnum);
    // SAFETY: the loader gives their number.
    let headers = unsafe { std::slice::from_raw_parts(info.dlpi_phdr, count) };
    let base = info.dlpi_addr as usize;
    let readable = headers
        .iter()
        .filter(|header| header.p_type == libc::PT_LOAD && header.p_flags & libc::PF_R != 0);
    readable.map(move |header| {
        let start = base.wrapping_add(header.p_vaddr as usize);
        // Only what is in the file; the rest is data of the program.
        start..start.saturating_add(header.p_filesz as usize)
    })
}

fn contains(info: &libc::dl_phdr_info, text: &[u8]) -> bool {
    segments(info).any(|segment| {
        let start = std::ptr::with_exposed_provenance::<c_void>(segment.start);
        // SAFETY: a readable segment of an object that is loaded, and a text with its length.
        let found = unsafe { libc::memmem(start, segment.len(), text.as_ptr().cast(), text.len()) };
        !found.is_null()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn loaded(others: &[&str], linked_in: bool) -> Loaded {
        Loaded {
            ours: "/ours/libibverbs.so.1".into(),
            others: others.iter().map(PathBuf::from).collect(),
            linked_in,
            has_rust_library: false,
        }
    }

    #[test]
    fn a_copy_of_libibverbs_with_another_name_is_recognized() {
        for name in ["libibverbs.so.1", "libibverbs-5c1e1a2f.so.1.14.44.0"] {
            assert!(is_libibverbs(&Path::new("/x").join(name)), "{name}");
        }
        for name in ["libibverbs", "libmlx5.so.1", "my-libibverbs.so.1"] {
            assert!(!is_libibverbs(&Path::new("/x").join(name)), "{name}");
        }
    }

    #[test]
    fn the_report_names_the_library_used_instead() {
        let said = loaded(&["/theirs/libibverbs-1.so.1"], false).report(false);
        let said = said.expect("there is a report");
        assert!(said.contains("it uses /theirs/libibverbs-1.so.1"), "{said}");
        assert!(said.contains("link to /ours/libibverbs.so.1"), "{said}");
        let said = loaded(&[], true).report(false).expect("there is a report");
        assert!(said.contains("linked into it"), "{said}");
    }

    #[test]
    fn only_a_capture_of_several_files_is_reported() {
        let parts: Vec<_> = (0..20)
            .map(|n| PathBuf::from(format!("/t-{n}.pcapng")))
            .collect();
        assert_eq!(capture_report(&parts[..1]), None);
        let two = capture_report(&parts[..2]).expect("a report");
        assert!(
            two.ends_with("roci explain /t-0.pcapng /t-1.pcapng\n"),
            "{two}"
        );
        let many = capture_report(&parts).expect("a report");
        assert!(
            many.contains("20 files") && many.ends_with("and 12 more\n"),
            "{many}"
        );
    }

    #[test]
    fn a_child_without_libibverbs_prints_no_report() {
        assert_eq!(loaded(&[], false).report(false), None);
        assert!(loaded(&[], false).report(true).is_some());
    }

    #[test]
    fn a_program_with_our_rust_library_prints_no_report() {
        let rust = Loaded {
            has_rust_library: true,
            ..Loaded::default()
        };
        assert_eq!(rust.report(true), None);
    }
}
