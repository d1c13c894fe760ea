//! UCX and libfabric, on which MPI and others stand.

use super::super::entry::Field::Mpi;
use super::super::entry::{Effort, Entry, Origin};
use super::super::prerequisites::WAKE_UP_PROGRAM;
use crate::programs::list::{Ready, Row, ends};

/// Where they wait for their clients.
const UCX_PORT: u16 = 13337;
const WAKE_UP_PORT: u16 = 13338;
const FABRIC_PORT: u16 = 47592;

pub(super) fn entries() -> Vec<Entry> {
    ucx().into_iter().chain(libfabric()).collect()
}

fn ucx() -> Vec<Entry> {
    const PACKAGE: Origin = Origin::Debian("ucx-utils");
    const CHECKS: &str = "500 operations of each kind complete";
    // `rc_v` is rc_verbs with ud_verbs to connect it.
    // With `-E sleep` both ends arm their queues and sleep, as programs in the wake-up mode of UCX do.
    const RUNS: [(&str, &str, Effort); 15] = [
        ("rc_v", "tag_bw -s 65536", Effort::Small),
        ("rc_v", "tag_lat", Effort::Large),
        ("rc_v", "ucp_put_lat", Effort::Small),
        ("rc_v", "ucp_put_bw -s 65536", Effort::Large),
        ("rc_v", "ucp_get", Effort::Small),
        ("rc_v", "ucp_fadd", Effort::Small),
        ("rc_v", "ucp_cswap", Effort::Large),
        ("rc_v", "tag_lat -E sleep", Effort::Small),
        ("rc_v", "tag_bw -s 65536 -E sleep", Effort::Large),
        ("ud_v", "tag_bw -s 65536", Effort::Small),
        ("ud_v", "tag_lat -E sleep", Effort::Small),
        ("ud_v", "ucp_put_lat", Effort::Large),
        ("ud_v", "ucp_get", Effort::Large),
        ("ud_v", "ucp_fadd", Effort::Small),
        ("ud_v", "ucp_cswap", Effort::Large),
    ];
    let look = Row::alone("ucx_info", "-d", "Transport: rc_verbs");
    let look = Entry::new(Mpi, PACKAGE, look).silent();
    let mut entries = vec![look.checks("lists the device with rc_verbs")];
    for (transport, test, effort) in RUNS {
        let program = format!("env UCX_TLS={transport} UCX_NET_DEVICES={{device}}:1 ucx_perftest");
        let server = ends(&program, Ready::Tcp(UCX_PORT));
        let client = format!("{program} {{address}} -n 500 -w 50 -t {test}");
        let row = Row::pair("ucx_perftest", server, &client)
            .options(&format!("{transport} {test}"))
            .prints("Final:");
        entries.push(Entry {
            effort,
            ..Entry::new(Mpi, PACKAGE, row).checks(CHECKS)
        });
    }
    entries.extend(wake_up());
    entries
}

/// A program of ours on the library alone, whose ends sleep in `poll` between any two messages.
fn wake_up() -> [Entry; 2] {
    const PACKAGE: Origin = Origin::Debian("libucx0");
    const CHECKS: &str = "a program of ours, whose ends sleep in `poll` until UCP's worker has an event: 500 messages of 64 bytes \
                          and 70 KB, every byte of each reply checked";
    let run = |transport, effort| {
        let environment = format!("env UCX_TLS={transport} UCX_NET_DEVICES={{device}}:1");
        let program = format!("{environment} {{scripts}}/{WAKE_UP_PROGRAM}");
        let server = ends(&program, Ready::Tcp(WAKE_UP_PORT));
        let row = Row::pair(WAKE_UP_PROGRAM, server, &format!("{program} {{address}}"));
        let row = row.options(transport).prints("all replies are right");
        Entry {
            effort,
            ..Entry::new(Mpi, PACKAGE, row).checks(CHECKS)
        }
    };
    [run("rc_v", Effort::Small), run("ud_v", Effort::Large)]
}

fn libfabric() -> Vec<Entry> {
    const PACKAGE: Origin = Origin::Debian("libfabric-bin");
    const CHECKS: &str = "messages of all sizes go back and forth, their data is compared";
    let look = Row::alone("fi_info", "-p verbs", "type: FI_EP_MSG");
    let run = |options: &str| {
        let line = format!("fi_pingpong {options} -c -I 20");
        let server = ends(&line, Ready::Tcp(FABRIC_PORT));
        let row = Row::pair("fi_pingpong", server, &format!("{line} {{address}}"));
        let row = row.options(options).prints("#ack");
        Entry::new(Mpi, PACKAGE, row).checks(CHECKS)
    };
    vec![
        Entry::new(Mpi, PACKAGE, look)
            .silent()
            .checks("lists the provider verbs"),
        run("-p verbs -e msg"),
        run("-p verbs;ofi_rxm -e rdm").large().checks(RXM_RACE),
        run("-p verbs -e dgram"),
        run("-p verbs;ofi_rxd -e rdm").large(),
    ]
}

const RXM_RACE: &str = "as above; a program that polls completions, is held up, and then looks for events may hear of \
                        the end of the connection first: libfabric then calls the last message cancelled, or waits for it";
