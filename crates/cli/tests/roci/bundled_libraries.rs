//! Programs that bring a libibverbs of their own, and programs that preload something themselves.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::run_roci::{Directory, Outcome, roci};

/// A libibverbs that has no devices. The text is one of rdma-core's.
const COPY: &str = r#"
#include <stdio.h>
const char *text = "libibverbs: Warning: nothing here\n";
void *ibv_get_device_list(int *count) { static void *none[1]; *count = 0; return none; }
"#;

/// Says how many devices there are.
const PROGRAM: &str = r#"
#include <stdio.h>
#include <dlfcn.h>
void *ibv_get_device_list(int *);
int main(int count, char **words) {
    void *(*list)(int *) = ibv_get_device_list;
    if (count > 1)
        list = dlsym(dlopen(words[1], RTLD_NOW | RTLD_DEEPBIND), "ibv_get_device_list");
    list(&count);
    printf("%d\n", count);
    return 0;
}
"#;

/// A program, and the copy that it is linked with.
struct Built {
    program: PathBuf,
    copy: PathBuf,
    _directory: Directory,
}

fn compile(words: &[&str]) {
    let status = Command::new("cc").args(words).status();
    assert!(status.expect("a C compiler").success(), "{words:?}");
}

fn built(name: &str) -> Built {
    let directory = Directory::new(name);
    let place = |name: &str| directory.path().join(name);
    let write = |name: &str, text: &str| {
        fs::write(place(name), text).expect("written");
        place(name).to_str().expect("a text").to_owned()
    };
    let source = write("copy.c", COPY);
    let versions = write("versions", "IBVERBS_1.1 { ibv_get_device_list; text; };\n");
    let copy = write("libibverbs-0ddba11.so.1", "");
    let script = format!("-Wl,--version-script={versions},-soname,libibverbs-0ddba11.so.1");
    compile(&["-shared", "-fPIC", "-o", &copy, &source, &script]);
    let source = write("program.c", PROGRAM);
    let program = write("program", "");
    let path = format!("-Wl,-rpath,{}", directory.path().display());
    compile(&[
        "-o",
        &program,
        &source,
        &copy,
        &path,
        "-D_GNU_SOURCE",
        "-ldl",
    ]);
    Built {
        program: program.into(),
        copy: copy.into(),
        _directory: directory,
    }
}

fn explained(program: &Path, words: &[&str]) -> Outcome {
    let program = program.to_str().expect("a text");
    let words = [&["run", "--explain", "--", program], words].concat();
    roci(words).run()
}

#[test]
fn a_copy_under_another_name_is_replaced_by_ours() {
    let built = built("copy");
    let alone = Command::new(&built.program).output().expect("it runs");
    assert_eq!(alone.stdout, b"0\n");
    let program = built.program.to_str().expect("a text");
    assert_eq!(roci(["run", "--", program]).run().success(), "2\n");
}

#[test]
fn a_copy_that_was_used_instead_is_named() {
    let built = built("deep");
    let copy = built.copy.to_str().expect("a text");
    let outcome = explained(&built.program, &[copy]);
    assert_eq!(outcome.stdout, "0\n");
    let expected = format!("opened none of our devices: it uses {copy} instead");
    assert!(outcome.stderr.contains(&expected), "{}", outcome.stderr);
    assert_eq!(outcome.stderr.lines().count(), 1, "{}", outcome.stderr);
}

#[test]
fn a_statically_linked_copy_is_reported() {
    let directory = Directory::new("linked-in");
    let file = |name: &str| {
        directory
            .path()
            .join(name)
            .to_str()
            .expect("a text")
            .to_owned()
    };
    let (copy, source) = (file("copy.c"), file("program.c"));
    fs::write(&copy, COPY).expect("written");
    fs::write(&source, PROGRAM).expect("written");
    let program = file("program");
    compile(&["-o", &program, &source, &copy, "-D_GNU_SOURCE", "-ldl"]);
    let outcome = explained(Path::new(&program), &[]);
    assert_eq!(outcome.stdout, "0\n");
    assert!(
        outcome.stderr.contains("libibverbs is linked into it"),
        "{}",
        outcome.stderr
    );
}

#[test]
fn a_program_without_devices_is_reported_if_they_were_asked_for() {
    let directory = Directory::new("nothing");
    let file = |name: &str| {
        directory
            .path()
            .join(name)
            .to_str()
            .expect("a text")
            .to_owned()
    };
    let (source, program) = (file("program.c"), file("program"));
    fs::write(&source, "int main(void) { return 0; }\n").expect("written");
    compile(&["-o", &program, &source]);
    for options in [&["run", "--explain"][..], &["run", "--pcap", "/dev/null"]] {
        let words = [options, &["--", &program]].concat();
        let said = roci(words).run().stderr;
        assert!(said.contains("opened none of our devices"), "{said}");
    }
    assert_eq!(roci(["run", "--", &program]).run().stderr, "");
    // A child may have opened one.
    let script = format!("{program}; exit 0");
    let child = ["run", "--explain", "--", "bash", "-c", &script];
    assert_eq!(roci(child).run().stderr, "");
}

/// A library that changes nothing.
const HARMLESS: &str = "libdl.so.2";

#[test]
fn a_program_that_preloads_something_keeps_the_device_files() {
    let look = format!(
        "LD_PRELOAD={HARMLESS} ls /sys/class/infiniband; env LD_PRELOAD={HARMLESS} ls /sys/class/infiniband"
    );
    let listed = roci(["run", "--", "sh", "-c", &look]).run().success();
    assert_eq!(listed, "a\nb\na\nb\n");
    let script = format!(
        "
import os, subprocess
os.environ['LD_PRELOAD'] = '{HARMLESS}'
os.system('ls /sys/class/infiniband')
subprocess.run(['ls', '/sys/class/infiniband'], env=dict(os.environ, LD_PRELOAD='{HARMLESS}'))"
    );
    let listed = roci(["run", "--", "python3", "-c", &script])
        .run()
        .success();
    assert_eq!(listed, "a\nb\na\nb\n");
}

#[test]
fn a_program_that_takes_the_preloaded_libraries_away_loses_the_device_files() {
    let look = "unset LD_PRELOAD; ls /sys/class/infiniband/a/ports; true";
    let listed = roci(["run", "--", "sh", "-c", look]).run().success();
    assert_eq!(listed, "");
}
