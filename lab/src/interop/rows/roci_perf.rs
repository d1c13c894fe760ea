//! `roci perf` and `roci ping`: the Rust API at our device on one side, and at the kernel's device, through the system's libibverbs, on the
//! other.

use super::{Judge, Row, Way};

const PINGS: usize = 10;

/// The tests and their options.
const TESTS: [(&str, &str); 5] = [
    ("send-bw", "-s 65536 -n 100"),
    ("write-bw", "-s 65536 -n 100"),
    ("read-bw", "-s 65536 -n 100"),
    ("send-lat", "-s 64 -n 50"),
    ("atomic-lat", "-n 50"),
];

pub(super) fn rows() -> Vec<Row> {
    let rows = TESTS.map(|(test, options)| {
        let server = format!("roci perf {test} -d {{device}} {options}");
        let client = format!("{server} {{server}}");
        Row::new(format!("roci perf {test}"), server, client).way(Way::Roci)
    });
    let mut rows = Vec::from(rows);
    rows.push(ping());
    rows
}

/// The addresses of the other side stand for the kernel's device.
fn ping() -> Row {
    let options = format!("-a {{server}} -v -C {PINGS} -S 3000");
    Row::new(
        "roci ping, on both sides",
        format!("roci ping -s {options}"),
        format!("roci ping -c -V {options}"),
    )
    .way(Way::Roci)
    .judge(Judge::Pings(PINGS))
}
