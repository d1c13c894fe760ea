//! Cases of `probe`: each opcode, size and rejection, compared with two kernels.

use super::super::network::Family;
use super::super::release::Release;
use super::{Difference, Judge, Link, Role, Row};

/// C9-222.1.1: we report a key violation to the server's application; rxe does not.
const VIOLATION: &[Difference] = &[Difference {
    we_are: Role::Server,
    kernels: "server: asynchronous event: none",
    with_us: "server: asynchronous event: local access violation work queue error",
}];

/// A SEND that is longer than its receive is an invalid request, and the receive has the wrong
/// length; rxe calls both an operational error.
const TOO_LONG: &[Difference] = &[
    Difference {
        we_are: Role::Server,
        kernels: "server: asynchronous event: none",
        with_us: "server: asynchronous event: invalid request local work queue error",
    },
    Difference {
        we_are: Role::Server,
        kernels: "server: receive: status 2 local QP operation error",
        with_us: "server: receive: status 1 local length error",
    },
    Difference {
        we_are: Role::Server,
        kernels: "client: request: status 11 remote operation error",
        with_us: "client: request: status 9 remote invalid request error",
    },
];

/// rxe reports the key without the flag `IBV_WC_WITH_INV`.
const INVALIDATED: &[Difference] = &[Difference {
    we_are: Role::Server,
    kernels: "server: invalidation is NOT reported, the key is right",
    with_us: "server: invalidation is reported, the key is right",
}];

/// The cases and their differences.
const CASES: [(&str, &[Difference]); 17] = [
    ("sizes", &[]),
    ("immediate", &[]),
    ("reads", &[]),
    ("atomics", &[]),
    ("inline", &[]),
    ("invalidate", INVALIDATED),
    ("wrong-key", VIOLATION),
    ("wrong-key-read", VIOLATION),
    ("out-of-bounds", VIOLATION),
    ("no-permission", VIOLATION),
    ("too-long", TOO_LONG),
    ("rnr-recovered", &[]),
    ("rnr-exhausted", &[]),
    ("no-listener", &[]),
    ("reject", &[]),
    ("killed", &[]),
    ("killed-client", &[]),
];

/// rxe computes the ICRC of a FLUSH over its headers twice. So it drops ours and we drop its.
const UNANSWERED_FLUSH: &[Difference] = &[
    Difference {
        we_are: Role::Client,
        kernels: "client: FLUSH: status 0 success",
        with_us: "client: FLUSH: status 12 transport retry counter exceeded",
    },
    Difference {
        we_are: Role::Server,
        kernels: "client: FLUSH: status 0 success",
        with_us: "client: FLUSH: status 12 transport retry counter exceeded",
    },
];

pub(super) fn rows() -> Vec<Row> {
    let cases = CASES.iter().map(|(case, known)| row(case, case, known));
    let mut rows: Vec<Row> = cases.collect();
    rows.push(row("sizes, IPv6", "sizes", &[]).over(Family::Ipv6));
    rows.push(row("sizes, jumbo", "sizes", &[]).link(Link::JUMBO));
    for case in ["smaller-sizes", "reads", "atomics"] {
        let row = row(&format!("{case}, lossy"), case, &[]);
        rows.push(row.link(Link::LOSSY).long());
    }
    rows.extend(extended_rows());
    rows
}

/// For kernels with ATOMIC WRITE and FLUSH. Not with loss: rxe retransmits both with the address 0.
fn extended_rows() -> [Row; 2] {
    [
        row("atomic-write", "atomic-write", &[]),
        row("flush", "flush", UNANSWERED_FLUSH),
    ]
    .map(|row| row.since(Release::Trixie))
}

fn row(name: &str, case: &str, differences: &'static [Difference]) -> Row {
    Row::new(
        format!("probe: {name}"),
        format!("probe server {{server}} {case}"),
        format!("probe client {{server}} {case}"),
    )
    .judge(Judge::LikeKernels(differences))
}
