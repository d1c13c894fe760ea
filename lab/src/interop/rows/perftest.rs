//! perftest: every operation, bandwidth and latency, connected by `rdma_cm` and through a socket.

use super::{Link, Row, Way};

/// The programs and their additional options.
const PROGRAMS: [(&str, &str); 8] = [
    ("ib_send_bw", "-s 65536 -n 100"),
    ("ib_send_lat", "-s 64 -n 50"),
    ("ib_write_bw", "-s 65536 -n 100"),
    ("ib_write_lat", "-s 64 -n 50"),
    ("ib_read_bw", "-s 65536 -n 100"),
    ("ib_read_lat", "-s 64 -n 50"),
    ("ib_atomic_bw", "-n 50"),
    ("ib_atomic_lat", "-n 50"),
];

/// The programs that also run with packet loss. Each loss costs a timeout.
const LOSSY: [(&str, &str); 4] = [
    ("ib_send_bw", "-s 16384 -n 20"),
    ("ib_write_bw", "-s 16384 -n 20"),
    ("ib_read_bw", "-s 16384 -n 20"),
    ("ib_atomic_bw", "-n 20"),
];

pub(super) fn rows() -> Vec<Row> {
    let mut rows = Vec::new();
    for (program, options) in PROGRAMS {
        rows.push(by_connection_manager(program, options, "-R"));
        let row = pair(program, options, "socket");
        // One of each pair is enough to test the exchange of addresses through a socket.
        let usual = program.ends_with("_bw");
        rows.push(if usual { row } else { row.long() });
    }
    rows.push(pair("ib_send_bw", "-c UD -s 1024 -n 100", "UD"));
    rows.push(pair("ib_write_bw", "-c UC -s 4096 -n 20", "UC"));
    let jumbo = by_connection_manager("ib_write_bw", "-s 65536 -n 100", "-R, jumbo");
    rows.push(jumbo.link(Link::JUMBO));
    let lossy = LOSSY.map(|(program, options)| pair(program, options, "lossy"));
    rows.extend(lossy.map(|row| row.link(Link::LOSSY).long()));
    rows
}

/// perftest's server stops listening after a first connection and listens again for a second one; a client
/// that is much faster than its server finds no listener.
fn by_connection_manager(program: &str, options: &str, name: &str) -> Row {
    pair(program, &format!("-R {options}"), name).way(Way::RunWithDelay)
}

fn pair(program: &str, options: &str, name: &str) -> Row {
    // -F: no warning about a changing clock frequency. -u 18: an acknowledgement timeout of one second, because a busy
    // host may stop an emulated machine for half a second.
    let server = format!("{program} -d {{device}} -x {{gid}} -F -u 18 {options}");
    let client = format!("{server} {{server}}");
    Row::new(format!("{program}, {name}"), server, client)
}
