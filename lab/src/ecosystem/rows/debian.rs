//! Other programs of Debian.

use super::super::entry::Field::{self, Libraries, MachineLearning, Storage};
use super::super::entry::{Entry, Origin};
use super::super::prerequisites::GLOO_PROGRAM;
use crate::programs::list::{Ready, Row, ends, stays};

const LIBISCSI: &str = "inquiry and capacity of a disk; `qemu-img convert` and `iscsi-test-cu` over iSER end with errors \
                        inside of libiscsi, whose causes are not known yet";

pub(super) fn entries() -> Vec<Entry> {
    fio().into_iter().chain(others()).collect()
}

fn fio() -> Vec<Entry> {
    const SERVER: &str = "fio --name=receiver --rw=read --bs=64k --size=4m --iodepth=64 \
                          --verify=crc32c --verify_fatal=1 --verify_state_save=0 --ioengine=rdma \
                          --port=7654";
    const CLIENT: &str = "fio --name=sender --rw=write --bs=64k --size=4m --iodepth=8 \
                          --verify=crc32c --do_verify=0 --verify_state_save=0 --ioengine=rdma \
                          --hostname={address} --port=7654";
    const UNSEEN: &str = "4 MiB in blocks of 64 KiB; fio compares no data here";
    let run = |verb: &str| {
        let server = ends(SERVER, Ready::Says("waiting for connection"));
        let row = Row::pair("fio", server, &format!("{CLIENT} --verb={verb}"));
        let row = row.options(verb).prints("err= 0");
        Entry::new(Storage, Origin::Debian("fio"), row)
    };
    vec![
        run("send").checks("4 MiB in blocks of 64 KiB, whose checksums the receiver verifies; fio allows no retries, so the receiver has room for all of them"),
        run("write").checks(UNSEEN),
        run("read").large().checks(UNSEEN),
    ]
}

fn others() -> Vec<Entry> {
    let dapl = "env DAT_OVERRIDE={scripts}/dat.conf dtest -P rocinante -b 65536 -B 20";
    let dapl = Row::pair(
        "dtest",
        ends(dapl, Ready::Says("waiting for client")),
        &format!("{dapl} -h {{address}}"),
    );
    let preload = "env LD_PRELOAD=/usr/lib/x86_64-linux-gnu/rsocket/librspreload.so";
    let iperf = Row::pair(
        "iperf3",
        ends(
            &format!("{preload} iperf3 -s -1 -B {{address}}"),
            Ready::Service,
        ),
        &format!("{preload} iperf3 -c {{address}} -n 16M"),
    );
    let debian = |field: Field, package, row: Row, options: &str, prints| {
        let row = row.options(options).prints(prints);
        Entry::new(field, Origin::Debian(package), row).large()
    };
    vec![
        debian(
            MachineLearning,
            "libgloo-dev",
            gloo(),
            "ibverbs transport",
            "all results are right",
        )
        .checks(
            "a program of ours: AllreduceRing of 100,000 numbers, three times, each sum checked",
        ),
        debian(Libraries, "dapl2-utils", dapl, "uDAPL", "PASSED")
            .checks("its test of sends, writes and reads"),
        debian(
            Libraries,
            "iperf3",
            iperf,
            "rsockets, by librspreload",
            "iperf Done",
        )
        .checks("16 MiB through an rsocket; it compares no data"),
        debian(
            Storage,
            "tgt",
            iser(),
            "iSER, with libiscsi",
            "Total size:4194304",
        )
        .few()
        .checks(LIBISCSI),
        debian(
            Storage,
            "qemu-system-x86",
            qemu(),
            "live migration",
            "migrated",
        )
        .checks("a virtual machine moves to the other host and runs on"),
    ]
}

fn gloo() -> Row {
    let run =
        |rank: usize| format!("{{scripts}}/{GLOO_PROGRAM} {rank} 2 {{scratch}} {{device}} {{gid}}");
    Row::pair(GLOO_PROGRAM, ends(&run(0), Ready::Says("")), &run(1))
}

fn iser() -> Row {
    Row::pair(
        "tgtd",
        stays(
            "tgtd -f --iscsi portal=127.0.0.1:3261 --iser port=3260,pool_sz_mb=64",
            Ready::Service,
        ),
        "sh {scripts}/iser.sh {address} {scratch}",
    )
}

fn qemu() -> Row {
    const DISPLAY: &str = "-display none -nodefaults -machine pc,accel=tcg -m 8";
    Row::pair(
        "qemu-system-x86_64",
        stays(
            &format!("qemu-system-x86_64 {DISPLAY} -incoming rdma:{{address}}:4444"),
            Ready::Service,
        ),
        "/usr/bin/python3 {scripts}/migrate.py rdma:{address}:4444",
    )
}
