//! `rdma` and `show_gids` under `roci run`, which answer for our devices.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use crate::run_roci::{Directory, Outcome, Roci, Running, address, own_address, roci};

/// What `rdma` of iproute2 6.1 says about the kernel's own device, asked by `lab/guest/rdma-output.sh`.
/// `cargo xtask interop` checks that it still says so.
const KERNEL: &str = include_str!("rxe-rdma.txt");

const ASK: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../lab/guest/rdma-output.sh"
);

/// How many objects programs have at the kernel's device, asked by `lab/guest/rdma-objects.sh`.
const KERNEL_OBJECTS: &str = include_str!("rxe-objects.txt");

const ASK_OBJECTS: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../lab/guest/rdma-objects.sh"
);

fn device() -> String {
    format!("rxe0={}", address(201))
}

fn beside_one_device(program: &[&str]) -> Roci {
    let words = ["run", "--"].iter().chain(program);
    roci(words).env("ROCI_DEVICES", device())
}

/// What the tool itself says, called by name.
fn rdma(words: &[&str]) -> Outcome {
    beside_one_device(&[&["rdma"], words].concat()).run()
}

#[test]
fn rdma_prints_the_same_for_our_device_as_for_the_kernels() {
    let ours = beside_one_device(&["sh", ASK, "rxe0"]).run().success();
    assert_eq!(ours, KERNEL);
}

#[test]
fn a_test_suite_finds_the_interface_of_a_device() {
    let script = "
import json, subprocess
links = json.loads(subprocess.check_output(['rdma', 'link', 'show', '-j']))
print([link['netdev'] for link in links if (link['ifname'], link['port']) == ('rxe0', 1)])";
    let found = beside_one_device(&["python3", "-c", script]).run();
    assert_eq!(found.success(), "['lo']\n");
}

#[test]
fn devices_are_numbered_in_their_order() {
    let devices = roci(["run", "--", "rdma", "-j", "dev"]).run().json();
    let names: Vec<_> = (devices.as_array().expect("a list").iter())
        .map(|it| (it["ifindex"].clone(), it["ifname"].clone()))
        .collect();
    assert_eq!(names, [(0.into(), "a".into()), (1.into(), "b".into())]);
}

#[test]
fn capabilities_are_those_of_the_library() {
    if Command::new("ibv_devinfo").arg("-l").output().is_err() {
        return println!("left out: needs ibv_devinfo");
    }
    let info = beside_one_device(&["ibv_devinfo", "-v"]).run().success();
    let flags = info.lines().find(|line| line.contains("device_cap_flags"));
    let flags = flags.and_then(|line| line.split("0x").nth(1));
    let flags = u32::from_str_radix(flags.expect("flags").trim(), 16).expect("a number");
    let said = rdma(&["-d", "-j", "dev"]).json();
    let said = said[0]["caps"].as_array().expect("names").len();
    assert_eq!(said, flags.count_ones() as usize);
}

#[test]
fn adding_a_device_that_is_there_succeeds_and_another_one_is_explained() {
    let there = rdma(&["link", "add", "rxe0", "type", "rxe", "netdev", "lo"]);
    assert_eq!(there.code, Some(0));
    assert!(
        there.stderr.contains("need not be added"),
        "{}",
        there.stderr
    );
    let complaint = rdma(&["link", "add", "rxe1", "type", "rxe", "netdev", "lo"]).complaint();
    assert!(complaint.contains("--devices rxe1=lo"), "{complaint}");
    assert_eq!(rdma(&["link", "delete", "rxe0"]).code, Some(0));
    let other = rdma(&["link", "add", "siw0", "type", "siw", "netdev", "lo"]).complaint();
    assert!(other.contains("of the type rxe"), "{other}");
}

#[test]
fn a_device_is_added_and_deleted_as_roci_link_does() {
    let directory = Directory::new("rdma-link");
    let script = |script: &str| {
        roci(["run", "--", "sh", "-ec", script])
            .env("XDG_CONFIG_HOME", directory.path())
            .without_env("ROCI_DEVICES")
            .run()
    };
    let at = own_address();
    let found = script(&format!(
        "rdma link add rxe5 type rxe netdev {at} && rdma dev show rxe5 | cut -d: -f2"
    ));
    assert!(
        found.stderr.contains("rxe5 is a device now"),
        "{}",
        found.stderr
    );
    assert_eq!(found.success(), " rxe5\n");
    let deleted = script("rdma link delete rxe5");
    assert_eq!(deleted.stderr, "");
    assert_eq!(deleted.success(), "");
    let gone = script("rdma dev show rxe5");
    assert_eq!(gone.complaint(), "Wrong device name - rxe5");
    let nowhere = script("rdma link add rxe5 type rxe netdev nosuch0").complaint();
    assert!(nowhere.contains("no interface `nosuch0`"), "{nowhere}");
}

/// An `rdma` that knows one device of the kernel, `kern0`, and says how it was called.
fn tool_of_the_kernel(directory: &Path) {
    let tool = directory.join("rdma");
    let script = "#!/bin/sh\n\
        case \"$*\" in \"dev show kern0\" | *kern0/1* | \"res show kern0\") echo \"the kernel: $*\" ;; *) exit 1 ;; esac\n";
    fs::write(&tool, script).expect("a file");
    fs::set_permissions(&tool, fs::Permissions::from_mode(0o755)).expect("a program");
}

#[test]
fn a_device_of_the_kernel_is_left_to_the_kernels_tool() {
    let directory = Directory::new("rdma-kernel");
    tool_of_the_kernel(directory.path());
    let path = format!("{}:/usr/bin:/bin", directory.path().display());
    let ask = |words: &[&str]| {
        let words = [&["rdma"], words].concat();
        beside_one_device(&words).env("PATH", &path).run()
    };
    let theirs = ask(&["-j", "link", "show", "kern0/1"]).success();
    assert_eq!(theirs, "the kernel: -j link show kern0/1\n");
    let theirs = ask(&["res", "show", "kern0"]).success();
    assert_eq!(theirs, "the kernel: res show kern0\n");
    let theirs = ask(&["statistic", "show", "link", "kern0/1"]).success();
    assert_eq!(theirs, "the kernel: statistic show link kern0/1\n");
    let ours = ask(&["dev", "show", "rxe0"]).success();
    assert!(ours.starts_with("0: rxe0: "), "{ours}");
    let nobodys = ask(&["dev", "show", "nosuch"]).complaint();
    assert_eq!(nobodys, "Wrong device name - nosuch");
}

#[test]
fn kernel_only_queries_fail_with_a_sentence() {
    let kernel_only = [
        &["statistic", "qp"][..],
        &["res", "show", "mr"],
        &["res", "show", "pd"],
        &["monitor"],
    ];
    for words in kernel_only {
        let outcome = rdma(words);
        assert_eq!(outcome.stdout, "", "{words:?}");
        outcome.complaint();
    }
}

#[test]
fn unknown_words_are_named_and_the_exit_code_is_that_of_iproute2() {
    for (words, sentence) in [
        (&["nosuch"][..], "Unknown object 'nosuch'.\n"),
        (&["link", "nosuch"], "Unknown link command 'nosuch'.\n"),
        (
            &["statistic", "show", "nosuch"],
            "Unknown parameter 'nosuch'.\n",
        ),
    ] {
        let outcome = rdma(words);
        assert_eq!((outcome.code, &*outcome.stderr), (Some(0), sentence));
        assert_eq!(outcome.stdout, "");
    }
}

#[test]
fn a_listener_is_listed_with_its_process() {
    let at = own_address();
    let devices = format!("rxe0={at}");
    let words = ["ping", "-s", "-d", "-a", &at, "-p", "7391"];
    let mut server = roci(words).env("ROCI_DEVICES", &devices).start();
    assert_eq!(server.line(), "rdma_bind_addr successful");
    assert_eq!(server.line(), "rdma_listen");
    let listed = |kind| {
        let words = ["run", "--", "rdma", "-j", "res", "show", kind];
        roci(words).env("ROCI_DEVICES", &devices).run().json()
    };
    let listener = &listed("cm_id")[0];
    assert_eq!(listener["state"], "LISTEN");
    assert_eq!(listener["ps"], "TCP");
    assert_eq!(listener["src-addr"], format!("{at}:7391"));
    assert_eq!(listener["comm"], "roci");
    for kind in ["cm_id", "ctx"] {
        assert_eq!(listed(kind)[0]["pid"], server.id(), "{kind}");
    }
    // The process publishes the number of its ids within a tenth of a second.
    let counts_one = |_| listed("rxe0")[0]["cm_id"] == 1;
    assert!((0..200).any(counts_one), "{}", listed("rxe0"));
}

#[test]
fn queue_pairs_are_listed_with_their_peer_and_process() {
    let at = own_address();
    let devices = format!("rxe0={at}");
    let ping = |side: &str, more: &[&str]| {
        let words = [&["ping", side, "-a", &at, "-p", "7395"], more].concat();
        roci(words).env("ROCI_DEVICES", &devices)
    };
    let mut server = ping("-s", &["-d"]).start();
    while server.line() != "rdma_listen" {}
    server.read_on();
    let client = ping("-c", &[]).start();
    let ask = |words: &[&str]| {
        let words = [&["run", "--", "rdma"], words].concat();
        roci(words).env("ROCI_DEVICES", &devices).run()
    };
    // Each process publishes its queue pairs within a tenth of a second.
    let pairs = loop {
        let pairs = ask(&["-j", "res", "show", "qp", "link", "rxe0/1"]).json();
        let ready = |it: &serde_json::Value| it["state"] == "RTS";
        let list = pairs.as_array().expect("a list");
        if list.len() == 2 && list.iter().all(ready) {
            break pairs;
        }
    };
    assert_eq!(pairs[0]["rqpn"], pairs[1]["lqpn"]);
    assert_eq!(pairs[1]["rqpn"], pairs[0]["lqpn"]);
    let processes = [&pairs[0]["pid"], &pairs[1]["pid"]];
    assert!(processes.iter().any(|it| **it == client.id()), "{pairs}");
    assert!(processes.iter().any(|it| **it == server.id()), "{pairs}");
    let text = ask(&["res", "show", "qp"]).success();
    let (number, peer) = (&pairs[0]["lqpn"], &pairs[0]["rqpn"]);
    let start = format!("link rxe0/1 lqpn {number} rqpn {peer} type RC state RTS pid ");
    assert!(text.starts_with(&start), "{text}");
    let nosuch = ask(&["res", "show", "qp", "link", "nosuch"]).complaint();
    assert_eq!(nosuch, "Wrong device name");
    client.interrupt();
    client.end();
    server.end();
}

#[test]
fn objects_of_programs_are_counted_as_by_the_kernel() {
    let programs = ["ibv_rc_pingpong", "ibv_srq_pingpong", "rping"];
    let is_there = |program: &&str| Command::new(program).arg("-h").output().is_ok();
    if !programs.iter().all(is_there) {
        return println!("left out: needs {programs:?}");
    }
    let at = own_address();
    let ours = roci(["run", "--", "sh", ASK_OBJECTS, "rxe0", &at]);
    let ours = ours.env("ROCI_DEVICES", format!("rxe0={at}")).run();
    assert_eq!(ours.success(), KERNEL_OBJECTS);
}

#[test]
fn the_summary_counts_the_objects_of_a_program_while_they_exist() {
    if !Path::new("/usr/include/infiniband/verbs.h").exists() {
        return println!("left out: needs libibverbs-dev");
    }
    let directory = Directory::new("rdma-objects");
    let program = directory.path().join("objects");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/roci/objects.c");
    let mut compiler = Command::new("cc");
    let compiled = compiler.arg(source).arg("-o").arg(&program);
    let compiled = compiled.arg("-libverbs").status();
    assert!(compiled.expect("a C compiler").success());
    let devices = format!("rxe0={},rxe1={}", own_address(), own_address());
    let start = |lanes: &str| {
        let program = program.to_str().expect("a path");
        let words = ["run", "--", program];
        let run = roci(words).env("ROCI_DEVICES", &devices);
        run.env("ROCI_LANES", lanes).with_input().start()
    };
    let summary = || {
        let words = ["run", "--", "rdma", "res", "show", "rxe0"];
        roci(words).env("ROCI_DEVICES", &devices).run().success()
    };
    // Each process publishes what has changed within a tenth of a second.
    let await_summary = |expected: &str| {
        let line = format!("0: rxe0: {expected} \n");
        let found = (0..200).map(|_| summary()).find(|it| *it == line);
        assert!(found.is_some(), "{expected} is not {}", summary());
    };
    let mut first = start("1");
    assert_eq!(first.line(), "created");
    await_summary("pd 2 cq 3 qp 5 cm_id 0 mr 1 ctx 1 srq 1");
    let mut second = start("3");
    assert_eq!(second.line(), "created");
    await_summary("pd 4 cq 6 qp 10 cm_id 0 mr 2 ctx 2 srq 2");
    let next = |running: &mut Running, said: &str, expected: &str| {
        running.write_line();
        assert_eq!(running.line(), said);
        await_summary(expected);
    };
    let said = "destroyed some";
    next(&mut second, said, "pd 3 cq 5 qp 5 cm_id 0 mr 2 ctx 2 srq 2");
    next(&mut first, said, "pd 2 cq 4 qp 0 cm_id 0 mr 2 ctx 2 srq 2");
    let said = "destroyed all";
    next(&mut second, said, "pd 1 cq 2 qp 0 cm_id 0 mr 1 ctx 2 srq 1");
    next(
        &mut second,
        "closed",
        "pd 1 cq 2 qp 0 cm_id 0 mr 1 ctx 1 srq 1",
    );
    let all = ["run", "--", "rdma", "-j", "res"];
    let all = roci(all).env("ROCI_DEVICES", &devices).run().json();
    let device = |number: usize, name: &str, objects: [u64; 7]| {
        let [pd, cq, qp, cm_id, mr, ctx, srq] = objects;
        serde_json::json!({
            "ifindex": number, "ifname": name,
            "pd": pd, "cq": cq, "qp": qp, "cm_id": cm_id, "mr": mr, "ctx": ctx, "srq": srq,
        })
    };
    let full = device(0, "rxe0", [1, 2, 0, 0, 1, 1, 1]);
    assert_eq!(all, serde_json::json!([full, device(1, "rxe1", [0; 7])]));
    drop(first);
    await_summary("pd 0 cq 0 qp 0 cm_id 0 mr 0 ctx 0 srq 0");
}

#[test]
fn show_gids_has_the_columns_that_scripts_cut() {
    let table = beside_one_device(&["show_gids"]).run().success();
    let row = table.lines().nth(2).expect("a row");
    let columns: Vec<_> = row.split('\t').map(str::trim).collect();
    let address = address(201);
    assert_eq!(columns[..3], ["rxe0", "1", "0"]);
    assert!(
        columns[3].starts_with("0000:0000:0000:0000:0000:ffff:"),
        "{row}"
    );
    assert_eq!(columns[4..], [address.as_str(), "v2", "lo"]);
    assert!(table.ends_with("n_gids_found=1\n"), "{table}");
    let none = beside_one_device(&["show_gids", "nosuch"]).run();
    assert!(none.complaint().contains("no device `nosuch`"));
}

#[test]
fn without_a_path_the_usual_programs_are_still_found() {
    let found = beside_one_device(&["/bin/sh", "-c", "cat /dev/null && rdma link | grep -c rxe0"])
        .without_env("PATH")
        .run();
    assert_eq!(found.success(), "1\n");
}

#[test]
fn ibdev2netdev_names_the_interface_of_each_device() {
    let found = beside_one_device(&["ibdev2netdev"]).run().success();
    assert_eq!(found, "rxe0 port 1 ==> lo (Up)\n");
}

#[test]
fn what_makes_devices_elsewhere_says_that_they_exist() {
    for words in [
        &["rxe_cfg"][..],
        &["rxe_cfg", "start"],
        &["rxe_cfg", "add", "eth0"],
        &["modprobe", "rdma_rxe"],
        &["modprobe", "-a", "rdma-rxe", "ib_uverbs"],
        &["sh", "-c", "modprobe rdma_rxe"],
    ] {
        let outcome = beside_one_device(words).run();
        assert_eq!(outcome.code, Some(0), "{words:?}: {}", outcome.stderr);
        assert_eq!(outcome.stderr.lines().count(), 1, "{}", outcome.stderr);
        assert!(outcome.stderr.contains("has a device already"), "{words:?}");
    }
    let unknown = beside_one_device(&["rxe_cfg", "paint"]).run();
    assert_eq!(unknown.code, Some(1));
    assert!(unknown.stderr.contains("`paint`"), "{}", unknown.stderr);
}

#[test]
fn other_modules_are_left_to_the_systems_modprobe() {
    let directory = Directory::new("modprobe");
    let original = directory.path().join("modprobe");
    fs::write(&original, "#!/bin/sh\necho loads $*\n").expect("written");
    fs::set_permissions(&original, fs::Permissions::from_mode(0o755)).expect("it is ours");
    let path = format!("{}:/usr/bin:/bin", directory.path().display());
    let loaded = beside_one_device(&["modprobe", "dummy", "rdma_rxe"]).env("PATH", path);
    assert_eq!(loaded.run().success(), "loads dummy rdma_rxe\n");
    let nowhere = beside_one_device(&["modprobe", "dummy"]).env("PATH", "/nonexistent");
    assert!(nowhere.run().complaint().contains("not in PATH"));
}
