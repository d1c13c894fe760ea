//! The programs themselves, from the distribution.

use xtask::debian::{self, Package};

const PACKAGES: [Package; 13] = [
    ("libibverbs-dev", "/usr/include/infiniband/verbs.h"),
    ("librdmacm-dev", "/usr/include/rdma/rdma_cma.h"),
    ("ibverbs-utils", "/usr/bin/ibv_rc_pingpong"),
    ("rdmacm-utils", "/usr/bin/rping"),
    ("perftest", "/usr/bin/ib_send_bw"),
    ("qperf", "/usr/bin/qperf"),
    ("python3-pyverbs", "/usr/lib/python3/dist-packages/pyverbs"),
    ("iproute2", "/usr/bin/ip"),
    ("netbase", "/etc/services"),
    ("python3", "/usr/bin/python3"),
    ("curl", "/usr/bin/curl"),
    ("redis", "/usr/bin/redis-server"),
    ("nginx", "/usr/sbin/nginx"),
];

/// Why the programs can't be run here, if they can't.
pub(crate) fn missing() -> Option<String> {
    debian::missing(&PACKAGES)
}

/// Installs what is not there yet.
pub(crate) fn install() -> Result<(), String> {
    debian::install(&PACKAGES)
}
