//! The demo works and leaves a capture of what it did.

use std::collections::HashSet;
use std::fs::File;
use std::path::Path;

use pcap_file::pcapng::{Block, PcapNgReader};
use wire::{Opcode, Packet};

use crate::run_roci::{Directory, roci};

/// The opcodes in a capture.
fn opcodes(path: &Path) -> HashSet<Opcode> {
    const IP_AND_UDP: usize = 28;
    let mut reader = PcapNgReader::new(File::open(path).expect("a file")).expect("a capture");
    let mut opcodes = HashSet::new();
    while let Some(block) = reader.next_block() {
        if let Block::EnhancedPacket(packet) = block.expect("a whole block") {
            let packet = Packet::parse(&packet.data[IP_AND_UDP..]).expect("a packet");
            opcodes.insert(packet.opcode);
        }
    }
    opcodes
}

#[test]
fn the_demo_checks_each_operation_and_leaves_a_capture() {
    check_demo("demo", "0");
}

#[test]
fn the_demo_and_its_capture_are_the_same_by_shortcut() {
    check_demo("demo-shortcut", "1");
}

fn check_demo(name: &str, shortcut: &str) {
    let directory = Directory::new(name);
    let demo = roci(["demo"]).within(directory.path());
    let text = demo.env("ROCI_SHORTCUT", shortcut).run().success();
    for step in ["SEND", "RDMA WRITE", "RDMA READ", "COMPARE-AND-SWAP"] {
        let good = format!("  ok {step}");
        assert!(
            text.lines().any(|line| line.starts_with(&good)),
            "{step}: {text}"
        );
    }
    assert!(text.contains("roci-demo.pcapng"), "{text}");
    let found = opcodes(&directory.path().join("roci-demo.pcapng"));
    for opcode in [
        Opcode::RcSendOnly,
        Opcode::RcWriteFirst,
        Opcode::RcWriteLast,
        Opcode::RcReadRequest,
        Opcode::RcReadResponseFirst,
        Opcode::RcCompareSwap,
        Opcode::RcAtomicAcknowledge,
        Opcode::RcAcknowledge,
    ] {
        assert!(found.contains(&opcode), "{opcode:?} is not among {found:?}");
    }
}

#[test]
fn both_processes_of_the_demo_share_a_device_that_is_named() {
    let directory = Directory::new("demo-device");
    let demo = roci(["demo", "-d", "127.0.77.1"]).within(directory.path());
    let text = demo.run().success();
    let addresses = text.matches("device on 127.0.77.1,").count();
    assert_eq!(addresses, 2, "{text}");
    assert!(text.contains("All data is correct."), "{text}");
    let unknown = roci(["demo", "-d", "mlx9_9"])
        .within(directory.path())
        .run();
    assert!(unknown.stderr.contains("mlx9_9"), "{}", unknown.stderr);
    assert_eq!(unknown.code, Some(1));
}

#[test]
fn the_demo_works_where_packets_are_lost() {
    let directory = Directory::new("demo-lossy");
    let demo = roci(["demo"]).within(directory.path());
    demo.env("ROCI_FAULT", "loss=2%,seed=7").run().success();
}

#[test]
fn an_injected_fault_is_marked_in_the_capture_and_explained() {
    let directory = Directory::new("demo-marked");
    let demo = roci(["demo"]).within(directory.path());
    let fault = "drop:opcode=RC_SEND_ONLY,nth=1";
    demo.env("ROCI_FAULT", fault).run().success();
    let explain = roci(["explain", "roci-demo.pcapng"]).within(directory.path());
    let text = explain.run().success();
    let ladder = text.lines().find(|line| line.contains('✗'));
    let ladder = ladder.expect("a packet that does not arrive");
    assert!(ladder.contains("· dropped by fault injection"), "{text}");
    assert!(text.contains("fault-injected"), "{text}");
}

#[test]
fn the_demo_names_the_operation_that_failed() {
    let directory = Directory::new("demo-cut");
    let demo = roci(["demo"]).within(directory.path());
    let complaint = demo.env("ROCI_FAULT", "loss=100%").run().complaint();
    assert!(complaint.contains("SEND failed"), "{complaint}");
    assert!(complaint.contains("`roci doctor`"), "{complaint}");
}

#[test]
fn an_unwritable_capture_is_reported_in_a_sentence() {
    let file = "/nonexistent/demo.pcapng";
    let complaint = roci(["demo", "--capture", file]).run().complaint();
    assert!(
        complaint.contains(file) && complaint.contains("choose another file"),
        "{complaint}"
    );
}

/// A directory that can't be written, as if another user had created it: no user can create files in `/proc`.
#[test]
fn a_capture_falls_back_to_the_users_own_directory() {
    let (shared, own) = (Directory::new("shared"), Directory::new("own"));
    std::fs::create_dir(shared.path().join("roci-demo.pcapng")).expect("a directory");
    let said = roci(["demo"])
        .within(Path::new("/proc"))
        .env("TMPDIR", shared.path())
        .env("XDG_RUNTIME_DIR", own.path())
        .run()
        .success();
    let capture = own.path().join("roci/roci-demo.pcapng");
    assert!(
        capture.is_file() && said.contains(capture.to_str().expect("a text")),
        "{said}"
    );
}

#[test]
fn the_demo_does_not_promise_packets_that_its_capture_lacks() {
    let directory = Directory::new("demo-cut");
    let demo = roci(["demo"]).within(directory.path());
    let outcome = demo.with_file_size_limit(40).run();
    assert!(outcome.stderr.contains("ends early"), "{outcome:?}");
    let text = outcome.success();
    let end = "All data is correct. The capture in roci-demo.pcapng ended early: it lacks packets.";
    assert_eq!(text.lines().last(), Some(end), "{text}");
}
