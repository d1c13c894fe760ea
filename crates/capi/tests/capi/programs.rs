//! C programs of ours, each for one family of calls, compiled against the distribution's headers and
//! run on our library. Each prints a line for each of its cases, and ends with 0 if all of them hold.
//! `cargo xtask interop --only "C libraries"` runs the same programs on rdma-core's libraries, except for
//! those in the directory `ours`: they do what would crash there, or what only a device without hardware
//! has to answer.

use std::path::Path;
use std::process::Command;

use crate::support;

macro_rules! programs {
    ($list:ident in $directory:literal: $($name:ident)*) => {
        const $list: &[&str] = &[$(stringify!($name)),*];

        $(
            #[test]
            fn $name() {
                output($directory, stringify!($name), &[EXPLAIN]);
            }
        )*
    };
}

programs! { PROGRAMS in "programs":
    attribute_ranges connection_ids connections devices events fork post_and_poll process_exit receive_queues
    rsocket signals_and_cancellation
}

programs! { OURS in "programs/ours":
    destroyed_handles dma_buf extreme_values few_descriptors hostile_rsocket lost_address multicast_groups oversized_requests
    recent_calls repoll reply_before_disconnect rsocket_waits socket_flags thread_destructors unmapped_memory window_keys
}

/// Programs with a test of their own below.
const OTHERS: &[&str] = &[
    "invalid_arguments",
    "calls_at_exit",
    "gpu_memory",
    "memory",
    "device_limits",
    "fork_after_listen",
];

const EXPLAIN: (&str, &str) = ("ROCI_EXPLAIN", "1");

/// What is written to stderr meanwhile, with these options; nothing if there are no headers.
fn output(directory: &str, name: &str, options: &[(&str, &str)]) -> Option<String> {
    if !support::can_compile() {
        return None;
    }
    let libraries = support::library_directory(&format!("{name}-libraries"));
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/{directory}/{name}.c"));
    let program = libraries.join(name);
    support::compile(&source, &program, Some(&libraries));
    let (left, right) = addresses_of(name);
    let output = Command::new("timeout")
        .arg("240")
        .arg(&program)
        .env("LD_LIBRARY_PATH", &libraries)
        .env("ROCI_DEVICES", format!("left={left},right={right}"))
        .env("LEFT_ADDRESS", left)
        .envs(options.iter().copied())
        .output()
        .expect("timeout is everywhere");
    let printed = String::from_utf8_lossy(&output.stdout);
    let complained = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "{name}: {:?}\n{}{complained}",
        output.status,
        without_what_holds(&printed)
    );
    assert!(!complained.contains("panicked"), "{name}: {complained}");
    Some(complained.into_owned())
}

/// Each program has its own addresses: on a shared address, a process that exits may lose or delay another's packet. Other
/// tests cover that.
fn addresses_of(name: &str) -> (String, String) {
    let names = PROGRAMS.iter().chain(OURS).chain(OTHERS);
    let position = 1 + names.take_while(|it| **it != name).count();
    (
        format!("127.31.{position}.1"),
        format!("127.31.{position}.2"),
    )
}

fn without_what_holds(printed: &str) -> String {
    let broken = printed.lines().filter(|line| !line.ends_with(": holds"));
    broken.map(|line| format!("{line}\n")).collect()
}

#[test]
fn invalid_arguments() {
    let Some(said) = output("programs", "invalid_arguments", &[EXPLAIN]) else {
        return;
    };
    for words in [
        "rejected a receive (wr_id 0): the queue pair is in RESET.",
        "(RC) can't go from RESET to RTS: there is no such transition.",
        "can't be modified: 99 is not a valid value for IBV_QP_STATE.",
        "can't be modified: the mask has the unknown bits 0x40000000",
        "the address has no global route (is_global is 0); GID indexes here are 0 (127.31.",
        "the queue is full.",
        "a memory region can't be created: not all of the 64 bytes at 0x1000 can be written.",
    ] {
        assert!(said.contains(words), "{words}:\n{said}");
    }
    let mut full = said
        .lines()
        .filter(|line| line.contains("the queue is full."));
    let full = full.next().expect("found above");
    assert!(
        full.ends_with("posts until the queue is full."),
        "advice: {full}"
    );
}

#[test]
fn memory() {
    let Some(said) = output("programs", "memory", &[EXPLAIN]) else {
        return;
    };
    for words in [
        "ibv_memcpy_from_dm failed: 64 bytes at offset 32 exceed the 64 bytes that were allocated.",
        "ibv_memcpy_to_dm failed: 3 bytes at offset 0 are not in units of 4 bytes.",
        "ibv_free_dm failed: a memory region still uses the memory (ibv_dereg_mr).",
        "ibv_reg_dm_mr failed: 8 bytes at offset 60 exceed the 64 bytes that were allocated.",
        "ibv_reg_dm_mr failed: the access flags lack IBV_ACCESS_ZERO_BASED.",
    ] {
        assert!(said.contains(words), "{words}:\n{said}");
    }
}

#[test]
fn device_limits() {
    let Some(said) = output("programs/ours", "device_limits", &[EXPLAIN]) else {
        return;
    };
    let words =
        "ibv_alloc_dm failed: 67108865 bytes exceed the 67108864 of the device (max_dm_size).";
    assert!(said.contains(words), "{said}");
}

/// Not with explanations: its user does not know yet that there is something to explain.
#[test]
fn a_child_of_a_listener_learns_why_it_gets_no_events() {
    let Some(said) = output("programs/ours", "fork_after_listen", &[]) else {
        return;
    };
    let cases = 2;
    let words = "roci: this process was forked after its RDMA device was opened.";
    assert_eq!(
        said.matches(words).count(),
        cases,
        "once in each child: {said}"
    );
}

/// A capture and a check read messages again, and report at exit.
#[test]
fn calls_at_exit_work_with_every_option() {
    let directory = support::directory("calls-at-exit-options");
    let file = |name: &str| directory.join(name).display().to_string();
    let (ring, capture, json) = (file("r.pcapng"), file("c.pcapng"), file("findings.json"));
    let all_options: [&[(&str, &str)]; 9] = [
        &[],
        &[("ROCI_CHECK", "1")],
        &[("ROCI_CHECK", "fail"), ("ROCI_CHECK_JSON", &json)],
        &[("ROCI_CHECK", "fail"), ("ROCI_CHECK_PROCESSES", "1")],
        &[("ROCI_PCAP", &capture), ("ROCI_PCAP_SNAPLEN", "128")],
        &[("ROCI_PCAP", &ring), ("ROCI_PCAP_RING", "1M"), EXPLAIN],
        &[("ROCI_FAULT", "delay=1ms")],
        &[("ROCI_SHORTCUT", "0"), ("ROCI_CHECK", "fail"), EXPLAIN],
        &[("ROCI_SHORTCUT", "1"), ("ROCI_LANES", "2")],
    ];
    for options in all_options {
        let Some(said) = output("programs/ours", "calls_at_exit", options) else {
            return;
        };
        let mut findings = said
            .lines()
            .filter(|line| line.starts_with("roci: check: "));
        // On a busy machine, a retry that takes long may be explained. It is no finding.
        assert!(
            findings.all(|line| line.starts_with("roci: check: no findings")),
            "{options:?}: {said}"
        );
    }
}

/// Captures, the check and sockets read messages in other ways.
#[test]
fn gpu_memory_works_with_every_option() {
    if !support::can_compile() {
        return;
    }
    let directory = support::directory("gpu-memory");
    let cuda = directory.join("libcuda.so.1");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/cuda/stand_in.c");
    support::compile_library(&source, &cuda);
    let cuda = ("CUDA_STAND_IN", &*cuda.display().to_string());
    let capture = directory.join("capture.pcapng").display().to_string();
    let all_options: [&[(&str, &str)]; 4] = [
        &[cuda, EXPLAIN],
        &[cuda, ("ROCI_CHECK", "fail")],
        &[cuda, ("ROCI_SHORTCUT", "0")],
        &[cuda, ("ROCI_PCAP", &capture)],
    ];
    for options in all_options {
        let said = output("programs/cuda", "gpu_memory", options);
        let said = said.filter(|_| options.contains(&EXPLAIN));
        for words in [
            "is an address of a GPU, and only 10000 of the 10001 bytes at",
            "the memory is registered, but can't be accessed: the program has unmapped",
        ] {
            let said = said.as_deref().unwrap_or(words);
            assert!(said.contains(words), "{words}:\n{said}");
        }
    }
}

#[test]
fn every_program_has_a_test() {
    for (directory, run) in [("programs", PROGRAMS), ("programs/ours", OURS)] {
        let directory = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("tests")
            .join(directory);
        let files = std::fs::read_dir(directory).expect("the programs are there");
        let names = files.map(|file| file.expect("it can be read").file_name());
        for name in names.filter_map(|name| name.into_string().ok()) {
            let Some(program) = name.strip_suffix(".c") else {
                continue;
            };
            assert!(
                OTHERS.contains(&program) || run.contains(&program),
                "{name} is not run"
            );
        }
    }
}
