//! Links the C libraries so that they load with an older glibc than the one of this machine.
//!
//! A linker takes each symbol in the newest version that the C library before it has. So it is given another one: libraries
//! without code that export what the glibc of this machine exports, each symbol in the newest version that the older glibc
//! has, too. That is what linking on the older system does. A symbol that the older one lacks fails the link.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use xtask::command::{CommandLine, run_cargo};
use xtask::install;
use xtask::linker::Linker;

use super::{call, newest_glibc};

/// The minor number of the oldest glibc that the libraries load with: that of Debian 10 and RHEL 8.
pub(super) const OLDEST: u32 = 28;

/// Where the libraries without code are, below the workspace.
const DIRECTORY: &str = "target/old-glibc";

/// What programs are linked with: on this machine, a script that names the library and what belongs to it.
const SCRIPT: &str = "libc.so";
const C_LIBRARY: &str = "libc.so.6";

/// Threads and the loader's functions were in these until glibc 2.34, which still has the files. Nothing of them is
/// needed but that they are loaded.
const FORMER: [(&str, &str); 2] = [
    ("libpthread.so", "libpthread.so.0"),
    ("libdl.so", "libdl.so.2"),
];

/// Functions that glibc had in a static library until 2.33, and how it had them there: each in an object of its own, because a library may
/// define some of them itself. The types are ours, because the compiler knows these functions with others.
const FORMERLY_STATIC: [(&str, &str); 8] = [
    (
        "stat64",
        "(const char *path, void *to) { return __xstat64(VERSION, path, to); }",
    ),
    (
        "lstat64",
        "(const char *path, void *to) { return __lxstat64(VERSION, path, to); }",
    ),
    (
        "fstat64",
        "(int file, void *to) { return __fxstat64(VERSION, file, to); }",
    ),
    (
        "fstatat64",
        "(int at, const char *path, void *to, int flags) { return __fxstatat64(VERSION, at, path, to, flags); }",
    ),
    (
        "stat",
        "(const char *path, void *to) { return __xstat64(VERSION, path, to); }",
    ),
    (
        "lstat",
        "(const char *path, void *to) { return __lxstat64(VERSION, path, to); }",
    ),
    (
        "fstat",
        "(int file, void *to) { return __fxstat64(VERSION, file, to); }",
    ),
    (
        "fstatat",
        "(int at, const char *path, void *to, int flags) { return __fxstatat64(VERSION, at, path, to, flags); }",
    ),
];

const THEIR_HEADER: &str = "\
#if defined(__x86_64__)
enum { VERSION = 1 };
#else
enum { VERSION = 0 };
#endif
int __xstat64(int, const char *, void *), __lxstat64(int, const char *, void *), __fxstat64(int, int, void *);
int __fxstatat64(int, int, const char *, void *, int);
";

/// Builds the libraries for release, and tells their directory.
pub(super) fn build_libraries(root: &Path) -> Result<PathBuf, String> {
    let directory = install::release_directory().map_err(|error| error.to_string())?;
    let options = CommandLine::cargo("rustc --lib --release");
    build(root, &options, &directory)?;
    Ok(directory)
}

/// Links the libraries as those of packages are, without optimisation.
pub(crate) fn check(root: &Path) -> Result<(), String> {
    let directory = format!("target/linkers/{}", Linker::GnuLd.name());
    let options = CommandLine::cargo(&format!("rustc --lib --target-dir {directory}"));
    build(
        root,
        &options.unoptimised(),
        &root.join(directory).join("debug"),
    )
}

fn build(root: &Path, options: &CommandLine, directory: &Path) -> Result<(), String> {
    let links = write_libraries(&root.join(DIRECTORY))?;
    let links: Vec<_> = (links.iter().map(|word| format!("-Clink-arg={word}"))).collect();
    for package in ["capi", "preload"] {
        let package = options
            .clone()
            .arguments_of(&format!("--package {package} --"));
        run_cargo(root, &package.arguments(&links))?;
    }
    for name in ["librocinante_c.so", "librocinante_preload.so"] {
        let library = fs::read(directory.join(name)).map_err(|error| format!("{name}: {error}"))?;
        admits(newest_glibc(&library))?;
    }
    Ok(())
}

/// Fails if libraries need a newer glibc than promised.
fn admits(minor: u32) -> Result<(), String> {
    if minor > OLDEST {
        return Err(format!(
            "the libraries need glibc 2.{minor}, but should load with 2.{OLDEST}: `objdump --dynamic-syms` shows which symbol"
        ));
    }
    Ok(())
}

/// Writes libraries without code into the directory, and tells the compiler driver's words that link with them.
fn write_libraries(directory: &Path) -> Result<Vec<String>, String> {
    let failed = |error: std::io::Error| format!("{}: {error}", directory.display());
    fs::create_dir_all(directory).map_err(failed)?;
    let script = fs::read_to_string(file_of_compiler(SCRIPT)?).map_err(failed)?;
    let original = script.split_whitespace().find(|it| it.ends_with(C_LIBRARY));
    let original = original.ok_or("this machine's libc.so names no libc.so.6")?;
    let mut of_c = Symbols::default();
    of_c.add(&exports(Path::new(original))?);
    for (_, name) in FORMER {
        of_c.add(&exports(&file_of_compiler(name)?)?);
    }
    of_c.link(directory, C_LIBRARY, C_LIBRARY)?;
    let mut of_mathematics = Symbols::default();
    of_mathematics.add(&exports(&file_of_compiler("libm.so.6")?)?);
    of_mathematics.link(directory, "libm.so", "libm.so.6")?;
    for (file, name) in FORMER {
        Symbols::default().link(directory, file, name)?;
    }
    let formerly_static = compile_formerly_static(directory)?;
    let ours = format!(
        "\"{}\" \"{}\"",
        directory.join(C_LIBRARY).display(),
        formerly_static.display()
    );
    fs::write(directory.join(SCRIPT), script.replace(original, &ours)).map_err(failed)?;
    Ok(vec![
        format!("-L{}", directory.display()),
        "-Wl,-z,defs".to_owned(),
        "-Wl,--push-state,--no-as-needed".to_owned(),
        "-lpthread".to_owned(),
        "-ldl".to_owned(),
        "-Wl,--pop-state".to_owned(),
    ])
}

/// Where the compiler driver finds a file of the C library.
fn file_of_compiler(name: &str) -> Result<PathBuf, String> {
    let question = format!("-print-file-name={name}");
    let answer = call(Command::new("cc").arg(question))?;
    match answer.trim() {
        // It repeats the name of a file that it does not find.
        path if path == name => Err(format!(
            "`cc` finds no {name}: is this a system with glibc?"
        )),
        path => Ok(path.into()),
    }
}

fn exports(library: &Path) -> Result<String, String> {
    call(Command::new("objdump").arg("--dynamic-syms").arg(library))
}

fn compile_formerly_static(directory: &Path) -> Result<PathBuf, String> {
    let mut objects = Vec::new();
    for (name, body) in FORMERLY_STATIC {
        let source = directory.join(format!("{name}.c"));
        let object = source.with_extension("o");
        fs::write(&source, format!("{THEIR_HEADER}int {name}{body}\n"))
            .map_err(|error| format!("{}: {error}", source.display()))?;
        let options = ["-c", "-O2", "-fPIC", "-fvisibility=hidden", "-fno-builtin"];
        let mut compiler = Command::new("cc");
        compiler.args(options).arg("-o").args([&object, &source]);
        call(&mut compiler)?;
        objects.push(object);
    }
    let archive = directory.join("libstatic.a");
    // It keeps what an earlier one had.
    let _ = fs::remove_file(&archive);
    let mut archiver = Command::new("ar");
    call(archiver.arg("rcs").arg(&archive).args(objects))?;
    Ok(archive)
}

/// A version of glibc: all its numbers.
type Version = Vec<u32>;

/// What a library exports, by name: the version, and the size if it is a variable.
#[derive(Default)]
struct Symbols(BTreeMap<String, (Version, Option<u64>)>);

impl Symbols {
    /// Adds what a table of `objdump` has that is old enough, each symbol in its newest version.
    fn add(&mut self, table: &str) {
        for (name, version, size) in table.lines().filter_map(exported) {
            let is_old = version[..] <= [2, OLDEST][..];
            let is_newest = |(known, _): &(Version, _)| *known < version;
            if is_old && self.0.get(name).is_none_or(is_newest) {
                self.0.insert(name.to_owned(), (version, size));
            }
        }
    }

    /// Makes a library that exports them. `name` is what programs will ask the loader for.
    fn link(&self, directory: &Path, file: &str, name: &str) -> Result<(), String> {
        let (source, script) = (
            directory.join(format!("{file}.s")),
            directory.join(format!("{file}.map")),
        );
        fs::write(&source, self.assembly())
            .and_then(|()| fs::write(&script, self.version_script()))
            .map_err(|error| format!("{}: {error}", directory.display()))?;
        let mut command = Command::new("cc");
        command
            .args(["-shared", "-nostdlib", "-o"])
            .args([&directory.join(file), &source])
            .arg(format!("-Wl,-soname,{name}"));
        // A script has at least one version.
        if !self.0.is_empty() {
            command.arg(format!("-Wl,--version-script={}", script.display()));
        }
        call(&mut command).map(drop)
    }

    fn assembly(&self) -> String {
        let mut text = String::new();
        for (name, (_, size)) in &self.0 {
            let (section, kind) = match size {
                Some(_) => (".data", "object"),
                None => (".text", "function"),
            };
            // Everything has a place, functions too.
            let size = size.unwrap_or(1).max(1);
            let _ = writeln!(
                text,
                "{section}\n.globl {name}\n.type {name}, %{kind}\n.size {name}, {size}\n{name}: .zero {size}"
            );
        }
        text + ".section .note.GNU-stack,\"\",%progbits\n"
    }

    /// Each symbol below its version.
    fn version_script(&self) -> String {
        let mut versions: BTreeMap<&Version, String> = BTreeMap::new();
        for (name, (version, _)) in &self.0 {
            *versions.entry(version).or_default() += &format!(" {name};");
        }
        let nodes = versions.iter().map(|(version, names)| {
            let numbers: Vec<_> = version.iter().map(u32::to_string).collect();
            format!("GLIBC_{} {{{names} }};\n", numbers.join("."))
        });
        nodes.collect()
    }
}

/// The name, the version and, of a variable, the size of an exported symbol. Symbols for glibc itself have no version with
/// numbers.
///
/// `0000000000089380 g    DF .text⇥0000000000000eed (GLIBC_2.2.5) pthread_create`
fn exported(line: &str) -> Option<(&str, Version, Option<u64>)> {
    let (place, rest) = line.split_once('\t')?;
    let (address_and_kind, section) = place.rsplit_once(' ')?;
    if section.starts_with('*') || section.starts_with(".tbss") || section.starts_with(".tdata") {
        return None;
    }
    let mut words = rest.split_whitespace();
    let size = u64::from_str_radix(words.next()?, 16).ok()?;
    let version = words.next()?.trim_matches(['(', ')']);
    let numbers = version.strip_prefix("GLIBC_")?.split('.');
    let version = numbers.map(|it| it.parse().ok()).collect::<Option<_>>()?;
    let is_variable = address_and_kind.ends_with('O');
    Some((words.next()?, version, is_variable.then_some(size)))
}

#[cfg(test)]
mod tests {
    use super::super::needed_libraries;
    use super::*;

    /// Functions that were moved, replaced or static before, and a variable.
    const SOURCE: &str = "\
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
extern char **environ;
static void *thread(void *argument) { return argument; }
__attribute__((constructor)) static void start(void) {
    pthread_t id;
    struct stat found;
    struct stat *volatile to = &found;
    if (pthread_create(&id, 0, thread, 0) || pthread_join(id, 0) || !dlsym(RTLD_DEFAULT, \"malloc\") || !environ)
        abort();
    memset(to, 0, sizeof *to);
    if (stat(\"/\", to) || !S_ISDIR(to->st_mode) || fstatat(-100, \"/\", to, 0) || !S_ISDIR(to->st_mode))
        abort();
    exit(42);
}
";

    #[test]
    fn what_is_linked_here_loads_with_the_oldest_glibc() {
        let directory = std::env::temp_dir().join(format!("roci-glibc-{}", std::process::id()));
        let words = write_libraries(&directory).expect("libraries without code");
        let (source, library) = (directory.join("test.c"), directory.join("test.so"));
        fs::write(&source, SOURCE).expect("written");
        let mut link = Command::new("cc");
        link.args(["-shared", "-fPIC", "-O2", "-Wl,--as-needed", "-o"])
            .args([&library, &source])
            .args(words);
        call(&mut link).expect("it links");
        let minor = newest_glibc(&fs::read(&library).expect("a file"));
        assert_eq!(admits(minor), Ok(()));
        let needed = needed_libraries(&library).expect("a library");
        for (_, former) in FORMER {
            assert!(needed.iter().any(|it| it == former), "{needed:?}");
        }
        let ran = Command::new("true").env("LD_PRELOAD", &library).status();
        assert_eq!(ran.expect("it starts").code(), Some(42));
        fs::remove_dir_all(&directory).expect("removed");
    }

    /// Libraries that are loaded first define such functions themselves, and use others.
    #[test]
    fn a_library_may_define_what_the_older_one_had_in_a_static_library() {
        const OWN: &str = "\
#include <sys/stat.h>
int stat(const char *path, struct stat *to) { return fstatat(-100, path, to, 0); }
";
        let directory = std::env::temp_dir().join(format!("roci-own-{}", std::process::id()));
        let words = write_libraries(&directory).expect("libraries without code");
        let (source, library) = (directory.join("own.c"), directory.join("own.so"));
        fs::write(&source, OWN).expect("written");
        let mut link = Command::new("cc");
        link.args(["-shared", "-fPIC", "-o"])
            .args([&library, &source])
            .args(words);
        call(&mut link).expect("it links");
        fs::remove_dir_all(&directory).expect("removed");
    }

    #[test]
    fn a_symbol_has_the_newest_version_that_is_old_enough() {
        let mut symbols = Symbols::default();
        symbols.add(
            "0000000000089380 g    DF .text\t0000000000000eed (GLIBC_2.2.5) pthread_create\n\
             0000000000089380 g    DF .text\t0000000000000eed  GLIBC_2.34  pthread_create\n\
             00000000000a2d70 g    DF .text\t0000000000000028 (GLIBC_2.2.5) memcpy\n\
             000000000009be70 g   iD  .text\t0000000000000109  GLIBC_2.14  memcpy\n\
             00000000000fcc50  w   DF .text\t0000000000000021  GLIBC_2.34  close_range\n\
             00000000001f0000 g    DO .bss\t0000000000000008  GLIBC_2.2.5 environ\n\
             0000000000000000 g    DO *ABS*\t0000000000000000  GLIBC_2.2.5 GLIBC_2.2.5\n\
             0000000000000000      DF *UND*\t0000000000000000  GLIBC_2.3   __tls_get_addr\n\
             0000000000010000 g    D  .tbss\t0000000000000004  GLIBC_PRIVATE errno\n",
        );
        let script = "GLIBC_2.2.5 { environ; pthread_create; };\nGLIBC_2.14 { memcpy; };\n";
        assert_eq!(symbols.version_script(), script);
        assert!(symbols.assembly().contains("environ, 8\nenviron: .zero 8"));
    }

    #[test]
    fn libraries_that_need_a_newer_glibc_are_rejected() {
        assert_eq!(admits(OLDEST), Ok(()));
        let rejection = admits(34).expect_err("too new");
        assert!(rejection.contains("need glibc 2.34"), "{rejection}");
    }
}
