//! Other people's programs under `roci run`, and what is said about those that can't.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::run_roci::{Directory, Outcome, Roci, address, own_address, roci};

/// Another user than the one that runs the tests.
const OTHER_USER: u32 = 65534;

fn under<'a>(program: impl IntoIterator<Item = &'a str>) -> Roci {
    roci(["run", "--"].into_iter().chain(program))
}

fn shell(script: &str) -> Roci {
    under(["sh", "-c", script])
}

/// One line on the standard error, and the code of a failure of our own.
#[track_caller]
fn rejection(outcome: Outcome, code: i32) -> String {
    assert_eq!(outcome.code, Some(code), "{}", outcome.stderr);
    assert_eq!(outcome.stdout, "");
    assert_eq!(outcome.stderr.lines().count(), 1, "{}", outcome.stderr);
    outcome.stderr
}

#[test]
fn exit_code_and_signal_are_those_of_the_program() {
    assert_eq!(shell("exit 0").run().code, Some(0));
    assert_eq!(shell("exit 7").run().code, Some(7));
    assert_eq!(shell("kill -TERM $$").run().code, None);
}

#[test]
fn arguments_reach_the_program_as_they_are() {
    let script = "printf '%s|' \"$@\"";
    let words = [
        "sh", "-c", script, "sh", "--pcap", "a b", "", "-h", "--", "$x",
    ];
    assert_eq!(under(words).run().success(), "--pcap|a b||-h|--|$x|");
}

#[test]
fn the_program_is_the_process_that_was_started() {
    let running = shell("echo $$").start();
    let id = running.id().to_string();
    assert_eq!(running.end().success().trim(), id);
}

#[test]
fn a_run_inside_a_run_changes_nothing() {
    let variables = "echo $LD_LIBRARY_PATH $LD_PRELOAD $ROCI_TREE $PATH";
    let once = shell(variables)
        .env("LD_LIBRARY_PATH", "/theirs")
        .run()
        .success();
    assert!(once.contains(":/theirs"), "{once}");
    let command = env!("CARGO_BIN_EXE_roci");
    let twice = under([
        command, "run", "--", command, "run", "--", "sh", "-c", variables,
    ]);
    let twice = twice.env("LD_LIBRARY_PATH", "/theirs").run().success();
    assert_eq!(once, twice);
}

/// Each must print the same as without us.
#[test]
fn programs_without_rdma_behave_as_before() {
    let programs: [&[&str]; 6] = [
        &["ls", "-la", "/usr"],
        &[
            "bash",
            "-c",
            "cd /; for f in *; do [ -d $f ] && echo $f; done; cat < /etc/passwd",
        ],
        &["find", "/etc/ssl", "-name", "*.cnf"],
        &[
            "python3",
            "-c",
            "import os, json; print(sorted(os.listdir('/')), os.stat('/').st_ino)",
        ],
        &["git", "--git-dir", "/nonexistent", "status"],
        &[
            "perl",
            "-e",
            "print -d '/etc' ? 'yes' : 'no'; open(F, '</etc/hostname'); print <F>",
        ],
    ];
    for program in programs {
        let Ok(alone) = Command::new(program[0]).args(&program[1..]).output() else {
            continue;
        };
        let outcome = under(program.iter().copied()).run();
        assert_eq!(outcome.code, alone.status.code(), "{program:?}");
        assert_eq!(
            outcome.stdout,
            String::from_utf8_lossy(&alone.stdout),
            "{program:?}"
        );
        assert_eq!(
            outcome.stderr,
            String::from_utf8_lossy(&alone.stderr),
            "{program:?}"
        );
    }
}

#[test]
fn the_libraries_are_found_under_both_names_and_are_one() {
    let script = "
import ctypes
libraries = [ctypes.CDLL(name) for name in ('libibverbs.so.1', 'librdmacm.so.1')]
assert len({library._handle for library in libraries}) == 1
assert libraries[1].ibv_get_device_list and libraries[0].rdma_create_id
print('one')";
    assert_eq!(under(["python3", "-c", script]).run().success(), "one\n");
}

#[test]
fn programs_find_the_device_files() {
    let script = "
ls /sys/class/infiniband
cat /sys/class/infiniband/a/ports/1/gid_attrs/types/0 /sys/class/infiniband/b/node_type
cat /sys/class/infiniband_verbs/uverbs1/ibdev
ls /sys/class/infiniband/a/device/net
test -c /dev/infiniband/uverbs1 && test -w /dev/infiniband/rdma_cm && echo characters";
    let expected = "a\nb\nRoCE v2\n1: CA\nb\nlo\ncharacters\n";
    assert_eq!(shell(script).run().success(), expected);
    let gid = shell("cat /sys/class/infiniband/a/ports/1/gids/0")
        .run()
        .success();
    assert!(gid.starts_with("0000:0000:0000:0000:0000:ffff:7f"), "{gid}");
}

#[test]
fn specifications_are_rejected_before_the_program_starts() {
    let rejected = |option, value| {
        rejection(
            roci(["run", option, value, "--", "echo", "started"]).run(),
            125,
        )
    };
    let faults = rejected("--fault", "loss=everything");
    assert!(faults.contains("expected a percentage"), "{faults}");
    let devices = rejected("--devices", "a=nosuch0");
    assert!(
        devices.contains("there is no interface `nosuch0`"),
        "{devices}"
    );
    let capture = rejected("--pcap", "/no/such/directory/file");
    assert!(
        capture.contains("there is no directory /no/such/directory"),
        "{capture}"
    );
}

#[test]
fn options_become_variables() {
    let options = [
        "run",
        "--fault",
        "loss=1%",
        "--devices",
        "c=127.0.0.9",
        "--pcap",
        "x.pcapng",
    ];
    let script = [
        "--",
        "sh",
        "-c",
        "echo $ROCI_FAULT $ROCI_DEVICES $ROCI_PCAP",
    ];
    let directory = Directory::new("variables");
    let printed = roci([&options[..], &script].concat())
        .within(directory.path())
        .run()
        .success();
    let capture = fs::canonicalize(directory.path())
        .expect("a directory")
        .join("x.pcapng");
    assert_eq!(
        printed,
        format!("loss=1% c=127.0.0.9 {}\n", capture.display())
    );
}

#[test]
fn a_missing_or_invalid_program_is_named() {
    let missing = rejection(under(["no-such-program"]).run(), 127);
    assert!(
        missing.contains("there is no program `no-such-program`"),
        "{missing}"
    );
    let missing = rejection(under(["./no/such/program"]).run(), 127);
    assert!(missing.contains("./no/such/program"), "{missing}");
    let directory = rejection(under(["/etc"]).run(), 126);
    assert!(directory.contains("/etc is not executable"), "{directory}");
}

/// The header of this very program with some bytes changed.
fn altered(directory: &Path, name: &str, changes: &[(usize, u8)]) -> PathBuf {
    let mut bytes = fs::read("/proc/self/exe").expect("readable");
    bytes.truncate(4096);
    for &(at, value) in changes {
        bytes[at] = value;
    }
    let path = directory.join(name);
    fs::write(&path, bytes).expect("written");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("ours");
    path
}

#[test]
fn programs_that_cannot_load_the_libraries_are_explained() {
    let directory = Directory::new("unloadable");
    // The C library gives a file that the kernel can't execute to a shell, which takes some of its bytes for a redirection
    // and creates a file.
    let run = |path: &Path| {
        let roci = under([path.to_str().expect("text")]);
        roci.within(directory.path()).run()
    };
    // The processor's number, and the number of program headers.
    let foreign = run(&altered(
        directory.path(),
        "foreign",
        &[(18, 0xff), (19, 0xff)],
    ));
    let foreign = rejection(foreign, 126);
    assert!(foreign.contains("for another processor"), "{foreign}");
    let fixed = run(&altered(directory.path(), "static", &[(56, 0), (57, 0)]));
    assert!(
        fixed.stderr.contains("is linked statically"),
        "{}",
        fixed.stderr
    );

    // A script is what its interpreter is.
    let script = directory.path().join("script");
    let line = format!("#!{}/foreign\n", directory.path().display());
    fs::write(&script, line).expect("written");
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).expect("ours");
    let complaint = rejection(run(&script), 126);
    assert!(
        complaint.contains("/foreign is for another processor"),
        "{complaint}"
    );
}

#[test]
fn a_program_with_other_rights_is_explained() {
    let directory = Directory::new("privileged");
    let path = altered(directory.path(), "privileged", &[]);
    let ours = fs::metadata(directory.path()).expect("a directory").uid();
    let path = match ours {
        0 => {
            chown(&path, Some(OTHER_USER), None).expect("root may");
            fs::set_permissions(&path, fs::Permissions::from_mode(0o4755)).expect("root may");
            path
        }
        _ => PathBuf::from("/usr/bin/passwd"),
    };
    let complaint = rejection(under([path.to_str().expect("text")]).run(), 126);
    assert!(complaint.contains("setuid"), "{complaint}");
}

#[test]
fn packets_are_written_where_the_user_wants_them() {
    let directory = Directory::new("packets");
    let command = env!("CARGO_BIN_EXE_roci");
    let perf = [command, "perf", "send-lat", "--local", "-n", "5"];
    let options = ["run", "--pcap", "trace-%p.pcapng", "--"];
    roci([&options[..], &perf].concat())
        .within(directory.path())
        .run()
        .success();
    let written = fs::read_dir(directory.path()).expect("a directory").count();
    assert!(written > 0, "no capture");
}

#[test]
fn a_second_program_of_a_run_does_not_overwrite_the_packets_of_the_first() {
    let directory = Directory::new("both");
    let perf = format!(
        "{} perf send-lat --local -n 50 > /dev/null",
        env!("CARGO_BIN_EXE_roci")
    );
    let length = |script: &str| {
        let words = ["run", "--pcap", "trace.pcapng", "--", "sh", "-c", script];
        roci(words).within(directory.path()).run().success();
        let found = fs::metadata(directory.path().join("trace.pcapng"));
        found.expect("a capture").len()
    };
    let once = length(&perf);
    let twice = length(&format!("{perf} && {perf}"));
    assert!(twice > once + once / 2, "{once} and {twice} bytes");
    let again = length(&perf);
    assert!(again < once + once / 2, "another run: {again} bytes");
}

#[test]
fn the_last_program_of_a_run_names_the_files_of_its_capture() {
    if Command::new("rping").arg("-h").output().is_err() {
        return;
    }
    let directory = Directory::new("parts");
    let at = own_address();
    let script = format!(
        "rping -s -a {at} -C 2 > /dev/null &
tries=0
until rping -c -a {at} -C 2 > /dev/null 2> client; do
    tries=$((tries + 1))
    test $tries -lt 100 || exit 1
    sleep 0.1
done
wait"
    );
    let words = ["run", "--pcap", "t.pcapng", "--", "sh", "-c", &script];
    let outcome = roci(words)
        .env("ROCI_DEVICES", format!("a={at}"))
        .within(directory.path())
        .run();
    let mut said = outcome.stderr.clone();
    outcome.success();
    // Either of the two can end last.
    said += &fs::read_to_string(directory.path().join("client")).expect("the client's stderr");
    let advice = said.lines().find(|line| line.contains("roci explain"));
    let command: Vec<_> = advice.expect(&said).trim().split(' ').collect();
    assert_eq!(command[..2], ["roci", "explain"], "{said}");
    assert!(command.len() >= 4, "{said}");
    let explained = roci(&command[1..]).run().success();
    assert!(explained.contains("SEND"), "{explained}");
}

#[test]
fn a_ring_limits_the_size_of_a_capture() {
    if Command::new("rping").arg("-h").output().is_err() {
        return;
    }
    let directory = Directory::new("ring");
    let at = own_address();
    let devices = format!("a={at}");
    let server = ["run", "--", "rping", "-s", "-P", "-S", "1000", "-a", &at];
    let server = roci(server).env("ROCI_DEVICES", &devices).start();
    // Each message is captured with 1,000 bytes and read once more: 4 MB in all.
    let client = format!("until rping -c -a {at} -C 1 > /dev/null 2>&1; do sleep 0.1; done");
    let client = format!("{client}; rping -c -a {at} -C 2000 -S 1000 > /dev/null");
    let ring = [
        "--pcap",
        "t.pcapng",
        "--pcap-ring",
        "1M",
        "--pcap-snaplen",
        "600",
    ];
    let words = [&["run"], &ring[..], &["--", "sh", "-c", &client]].concat();
    let outcome = roci(words)
        .env("ROCI_DEVICES", &devices)
        .within(directory.path())
        .run();
    let said = outcome.stderr.clone();
    outcome.success();
    drop(server);
    let size = |name: &str| {
        let found = fs::metadata(directory.path().join(name));
        found
            .unwrap_or_else(|error| panic!("{name}: {error}"))
            .len()
    };
    let both = size("t.pcapng") + size("t-earlier.pcapng");
    assert!((500_000..=1 << 20).contains(&both), "{both} bytes");
    assert!(said.contains("t-earlier.pcapng"), "{said}");
    for wrong in ["64", "1T"] {
        let words = [
            "run",
            "--pcap",
            "t.pcapng",
            "--pcap-ring",
            wrong,
            "--",
            "true",
        ];
        let outcome = roci(words).run();
        assert_eq!(outcome.code, Some(2), "{}", outcome.stderr);
    }
}

#[test]
fn an_error_is_explained_and_the_exit_code_unchanged() {
    let explained = |options: &[&str], program: &[&str]| {
        let words = [&["run", "--explain"], options, &["--"], program].concat();
        roci(words).run()
    };
    assert_eq!(explained(&[], &["sh", "-c", "exit 3"]).code, Some(3));
    assert_eq!(explained(&[], &["sh", "-c", "kill -TERM $$"]).code, None);

    let command = env!("CARGO_BIN_EXE_roci");
    let perf = [command, "perf", "send-lat", "--local", "-n", "20"];
    let good = explained(&[], &perf);
    assert_eq!((good.code, good.stderr.as_str()), (Some(0), ""));
    let lossy = explained(&["--fault", "drop:opcode=RC_SEND_ONLY,nth=3"], &perf);
    assert_eq!((lossy.code, lossy.stderr.as_str()), (Some(0), ""));
    let mute = explained(&["--fault", "drop:opcode=RC_SEND_ONLY"], &perf);
    assert_ne!(mute.code, Some(0), "{}", mute.stderr);
    for word in ["IBV_WC_RETRY_EXC_ERR", "roci explain wc 12"] {
        assert!(mute.stderr.contains(word), "{word}: {}", mute.stderr);
    }
}

#[test]
fn a_program_whose_failure_was_explained_is_not_said_to_have_no_device() {
    if Command::new("rping").arg("-h").output().is_err() {
        return;
    }
    // An address for documentation.
    let program = ["rping", "-c", "-a", "203.0.113.7"];
    let words = [&["run", "--explain", "--"][..], &program].concat();
    let outcome = roci(words).run();
    assert!(outcome.stderr.contains("203.0.113.7"), "{}", outcome.stderr);
    assert!(
        !outcome.stderr.contains("opened none of our devices"),
        "{}",
        outcome.stderr
    );
}

/// A signal that is sent to roci is for the program.
#[test]
fn signals_reach_a_program() {
    let script = "trap 'echo caught; exit 5' INT; echo ready; while :; do sleep 0.05; done";
    // A shell can't catch what was ignored before it began, as it is in the background of others.
    let shell = ["env", "--default-signal=INT", "sh", "-c", script];
    let mut running = roci(["run", "--explain", "--"].into_iter().chain(shell)).start();
    assert_eq!(running.line(), "ready");
    running.interrupt();
    let outcome = running.end();
    assert_eq!(
        (outcome.code, outcome.stdout.as_str()),
        (Some(5), "caught\n")
    );
}

#[test]
fn a_shell_can_set_and_unset_the_environment() {
    let script = "
before=\"$LD_PRELOAD|$LD_LIBRARY_PATH|$ROCI_TREE|$ROCI_PRELOAD|$PATH\"
eval \"$($roci env)\"
ls /sys/class/infiniband
rdma dev show | cut -d ' ' -f 2
eval \"$($roci env)\"
eval \"$($roci env --unset)\"
[ \"$before\" = \"$LD_PRELOAD|$LD_LIBRARY_PATH|$ROCI_TREE|$ROCI_PRELOAD|$PATH\" ] && echo as before";
    let output = Command::new("sh")
        .args(["-c", script])
        .env("roci", env!("CARGO_BIN_EXE_roci"))
        .env("ROCI_DEVICES", format!("a={}", address(1)))
        .env("LD_LIBRARY_PATH", "/theirs")
        .output()
        .expect("a shell");
    let complaints = String::from_utf8_lossy(&output.stderr);
    assert_eq!(
        String::from_utf8_lossy(&output.stdout),
        "a\na:\nas before\n",
        "{complaints}"
    );
}

#[test]
fn every_variable_that_is_set_can_be_unset() {
    let options = [
        "--pcap=capture.pcapng",
        "--pcap-ring=1M",
        "--pcap-snaplen=100",
        "--explain",
        "--check=fail",
        "--check-json=findings",
        "--check-suppress=known",
        "--check-profile=rxe",
        "--check-processes",
        "--shortcut=never",
        "--rsocket",
        "--fault=loss=1%",
        "--devices=mlx5_0=127.0.0.2",
    ];
    let names = |text: &str, before: &str| {
        let lines = text.lines().filter_map(|line| line.strip_prefix(before));
        let names = lines.map(|line| line.split('=').next().unwrap_or(line).to_owned());
        names.collect::<BTreeSet<_>>()
    };
    let set = roci([&["env"][..], &options].concat()).run().success();
    let unset = roci(["env", "--unset"]).run().success();
    let kept = ["PATH", "LD_LIBRARY_PATH"].map(str::to_owned);
    let restored = &names(&unset, "unset ") | &names(&unset, "export ");
    let left = &names(&set, "export ") - &restored;
    let left: Vec<_> = left.iter().filter(|name| !kept.contains(name)).collect();
    assert!(left.is_empty(), "{left:?} are not unset: {unset}");
}
