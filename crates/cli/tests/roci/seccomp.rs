//! Under a seccomp filter the command works, and reports each restriction once.

use crate::run_roci::{Outcome, own_address, roci};

/// Forbids a system call with one value of one argument, and becomes the command.
const FORBID: &str = "
import ctypes, os, platform, struct, sys
name, argument, value, command = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4:]
numbers = {'x86_64': {'socket': 41, 'setsockopt': 54, 'memfd_create': 319, 'recvmmsg': 299, 'getrandom': 318, 'ioctl': 16},
           'aarch64': {'socket': 198, 'setsockopt': 208, 'memfd_create': 279, 'recvmmsg': 243, 'getrandom': 278, 'ioctl': 29}}
number = numbers.get(platform.machine(), {}).get(name)
if number is None: sys.exit(77)
EPERM, LOAD, UNLESS, RETURN, ALLOW = 1, 0x20, 0x15, 0x06, 0x7fff0000
steps = [(LOAD, 0, 0), (UNLESS, 3, number), (LOAD, 0, 16 + 8 * argument), (UNLESS, 1, value),
         (RETURN, 0, 0x50000 | EPERM), (RETURN, 0, ALLOW)]
if value < 0: steps[2:4] = [(LOAD, 0, 0), (UNLESS, 1, number)]
code = ctypes.create_string_buffer(b''.join(struct.pack('HBBI', c, 0, f, k) for c, f, k in steps))
program = struct.pack('HxxxxxxP', len(steps), ctypes.addressof(code))
libc = ctypes.CDLL(None)
assert libc.prctl(38, 1, 0, 0, 0) == 0
assert libc.prctl(22, 2, ctypes.create_string_buffer(program)) == 0
os.execv(command[0], command)";

/// The command under such a filter; nothing if the test does not know this machine's numbers.
pub(crate) fn without(call: [&str; 3], devices: &str, words: &[&str]) -> Option<Outcome> {
    let python = ["run", "--", "python3", "-c", FORBID];
    let command = [env!("CARGO_BIN_EXE_roci")];
    let words = [&python[..], &call, &command, words].concat();
    let outcome = roci(words).env("ROCI_DEVICES", devices).run();
    (outcome.code != Some(77)).then_some(outcome)
}

const SO_REUSEPORT: [&str; 3] = ["setsockopt", "2", "15"];
const SO_ATTACH_REUSEPORT_CBPF: [&str; 3] = ["setsockopt", "2", "51"];
pub(crate) const MEMFD: [&str; 3] = ["memfd_create", "0", "-1"];

const RECVMMSG: [&str; 3] = ["recvmmsg", "0", "-1"];
const SOCKET_IPV6: [&str; 3] = ["socket", "0", "10"];

/// The doctor's finding, and the number of warnings on stderr. The exit code is not that of a failure.
#[track_caller]
fn finding(call: [&str; 3]) -> Option<(String, String)> {
    let outcome = without(call, &format!("a={}", own_address()), &["doctor", "--json"])?;
    let said = outcome.stderr.clone();
    let found = outcome.json();
    let rows = found.as_array().expect("a list").iter();
    let of_sandbox = rows.filter(|row| row["check"] == "sandbox" && row["verdict"] == "warn");
    let text = |row: &serde_json::Value| format!("{} {}", row["finding"], row["advice"]);
    let found: Vec<_> = of_sandbox.map(text).collect();
    assert_eq!(found.len(), 1, "{found:?}");
    Some((found[0].clone(), said))
}

#[test]
fn limits_of_a_sandbox_are_reported_once() {
    for (call, consequence, advice) in [
        (SO_REUSEPORT, "one context at a time", "(SO_REUSEPORT)"),
        (
            SO_ATTACH_REUSEPORT_CBPF,
            "one context at a time",
            "(SO_ATTACH_REUSEPORT_CBPF)",
        ),
        (MEMFD, "peers get no notice", "allow memfd_create"),
        (RECVMMSG, "a call of its own", "allow recvmmsg"),
        (SOCKET_IPV6, "only IPv4 addresses", "socket(AF_INET6)"),
    ] {
        let Some((found, said)) = finding(call) else {
            return println!("left out: other numbers of system calls");
        };
        for text in [found, said.clone()] {
            assert!(text.contains(consequence), "{text}");
            assert!(text.contains(advice), "{text}");
        }
        assert_eq!(said.lines().count(), 1, "{said}");
    }
}

/// Random numbers come from `/dev/urandom` there, and sockets become non-blocking by `fcntl`.
#[test]
fn a_sandbox_without_getrandom_or_ioctl_works_as_usual() {
    for call in [["getrandom", "0", "-1"], ["ioctl", "0", "-1"]] {
        let device = format!("a={}", own_address());
        let Some(outcome) = without(call, &device, &["doctor", "--json"]) else {
            return println!("left out: other numbers of system calls");
        };
        let rows = outcome.json();
        let mut rows = rows.as_array().expect("a list").iter();
        let is_wrong = |row: &&serde_json::Value| {
            ["sandbox", "port", "end of process", "RDMA ping"]
                .contains(&row["check"].as_str().expect("a name"))
                && row["verdict"] != "ok"
        };
        let wrong = rows.find(is_wrong);
        assert!(wrong.is_none(), "{call:?}: {wrong:?}");
    }
}
