//! `roci perf`: the Rust API at our device on one side, and at the kernel's device, through the system's libibverbs, on the
//! other.

use super::{Row, Way};

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
    rows.into()
}
