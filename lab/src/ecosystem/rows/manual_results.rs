//! What was tried by hand, or can't be run: no command repeats it.

use super::super::entry::Field::{self, Libraries, MachineLearning, Rpc, Storage};

/// A line of the scoreboard that is no run.
pub(in crate::ecosystem) struct Tried {
    pub(in crate::ecosystem) field: Field,
    pub(in crate::ecosystem) program: &'static str,
    pub(in crate::ecosystem) version: &'static str,
    pub(in crate::ecosystem) checks: &'static str,
    pub(in crate::ecosystem) result: &'static str,
}

const fn tried(
    field: Field,
    program: &'static str,
    version: &'static str,
    checks: &'static str,
    result: &'static str,
) -> Tried {
    Tried {
        field,
        program,
        version,
        checks,
        result,
    }
}

const BY_HAND: &str = "works, by hand";
const CANT: &str = "can't";

pub(in crate::ecosystem) const TRIED: [Tried; 13] = [
    tried(
        MachineLearning,
        "UCXX, UCX-Py (libucx-cu12)",
        "1.22.0",
        "NVIDIA builds the wheel without InfiniBand: it has no `libuct_ib.so`",
        CANT,
    ),
    tried(
        MachineLearning,
        "NCCL",
        "2.28.9",
        "two ranks on one GPU with different `NCCL_HOSTID` and with `NCCL_GIN_TYPE=2`: its collectives, every sum compared",
        BY_HAND,
    ),
    tried(
        Rpc,
        "Valkey",
        "8.1.1, 9.1.2 (Debian 13, sid)",
        "built from its sources with RDMA: its own test of RDMA; Debian builds it without",
        BY_HAND,
    ),
    tried(
        Libraries,
        "iperf 2",
        "2.1.8",
        "over rsockets, `LD_PRELOAD=…/librspreload.so`",
        BY_HAND,
    ),
    tried(
        Libraries,
        "socat",
        "1.7.4.4",
        "over rsockets: with rdma-core's librspreload `socat -V` ends with a segmentation fault, without Rocinante too",
        CANT,
    ),
    tried(
        Libraries,
        "Python, `http.server`",
        "3.11",
        "over rsockets: with librspreload its socket still listens for TCP, as `/proc/net/tcp` shows",
        CANT,
    ),
    tried(
        Storage,
        "srp_daemon",
        "44.0-2",
        "SRP is spoken by the kernel, to targets that a subnet manager knows",
        CANT,
    ),
    tried(
        Storage,
        "glusterfs",
        "10.3",
        "the project removed its RDMA transport in version 8",
        CANT,
    ),
    tried(
        Storage,
        "Ceph",
        "16.2",
        "`ms_type = async+rdma`: a monitor, an OSD, and `rados` as their client",
        BY_HAND,
    ),
    tried(
        Libraries,
        "ibstat, ibstatus",
        "44.0-2",
        "from the files that `roci run` shows",
        BY_HAND,
    ),
    tried(
        Libraries,
        "ibhosts, ibaddr and others of infiniband-diags",
        "44.0-2",
        "*is ib_umad module loaded?*: they talk to a subnet manager, which RoCE doesn't have",
        CANT,
    ),
    tried(
        Libraries,
        "sideway, its own tests",
        "0.4.3",
        "`test_post_send` sleeps for a moment where it should wait, which can be too short on a busy machine",
        BY_HAND,
    ),
    tried(
        Libraries,
        "async-rdma, rdma",
        "0.5.0, 0.3.0",
        "they can't be built from crates.io any more: they want a version of `simd-abstraction` that was withdrawn",
        CANT,
    ),
];
