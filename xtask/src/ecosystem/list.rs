//! The programs, and how each is run: data only.

use std::process::Command;

use crate::programs::list::{Ready, Row, ends, stays};

/// Where they wait for their clients.
const UCX_PORT: u16 = 13337;
const FABRIC_PORT: u16 = 47592;
const EXCHANGE_PORT: u16 = 18515;

/// Fewer datagrams than this are no traffic: members of a device's address look for each other.
const TRAFFIC: u64 = 40;

/// What the peer has to send for a message.
const FEW: u64 = 2;

/// A run, and what the scoreboard tells about it.
pub(crate) struct Entry {
    pub(crate) row: Row,
    pub(super) origin: Origin,
    pub(super) effort: Effort,
    /// So many datagrams must come to both hosts together at least.
    pub(super) datagrams: u64,
    pub(super) remark: &'static str,
}

/// Who packaged it.
#[derive(Clone, Copy)]
pub(super) enum Origin {
    /// A package of Debian.
    Debian(&'static str),
    /// A crate and its version.
    Crate(&'static str, &'static str),
}

impl Origin {
    pub(super) fn version(&self) -> Result<String, String> {
        let package = match self {
            Self::Crate(_, version) => return Ok((*version).to_owned()),
            Self::Debian(package) => package,
        };
        let output = Command::new("dpkg-query")
            .args(["--show", "--showformat=${Version}", package])
            .output()
            .map_err(|error| format!("dpkg-query can't be started: {error}"))?;
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }
}

/// Whether it is run with every change.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Effort {
    Small,
    /// Only with `--full`.
    Large,
}

impl Entry {
    fn new(origin: Origin, row: Row) -> Self {
        Self {
            row,
            origin,
            effort: Effort::Small,
            datagrams: TRAFFIC,
            remark: "",
        }
    }

    fn large(mut self) -> Self {
        self.effort = Effort::Large;
        self
    }

    /// It only looks at the device.
    fn silent(mut self) -> Self {
        self.datagrams = 0;
        self
    }

    /// It says little.
    fn few(mut self) -> Self {
        self.datagrams = FEW;
        self
    }

    fn remark(mut self, remark: &'static str) -> Self {
        self.remark = remark;
        self
    }
}

/// Every run, in the order of the scoreboard.
pub(super) fn entries() -> Vec<Entry> {
    let groups = [ucx(), libfabric(), mpi(), fio(), others(), crates()];
    groups.into_iter().flatten().collect()
}

fn ucx() -> Vec<Entry> {
    const PACKAGE: Origin = Origin::Debian("ucx-utils");
    // `rc_v` is rc_verbs with ud_verbs to connect it.
    const RUNS: [(&str, &str, Effort); 12] = [
        ("rc_v", "tag_bw -s 65536", Effort::Small),
        ("rc_v", "tag_lat", Effort::Large),
        ("rc_v", "ucp_put_lat", Effort::Small),
        ("rc_v", "ucp_put_bw -s 65536", Effort::Large),
        ("rc_v", "ucp_get", Effort::Small),
        ("rc_v", "ucp_fadd", Effort::Small),
        ("rc_v", "ucp_cswap", Effort::Large),
        ("ud_v", "tag_bw -s 65536", Effort::Small),
        ("ud_v", "ucp_put_lat", Effort::Large),
        ("ud_v", "ucp_get", Effort::Large),
        ("ud_v", "ucp_fadd", Effort::Small),
        ("ud_v", "ucp_cswap", Effort::Large),
    ];
    let look = Row::alone("ucx_info", "-d", "Transport: rc_verbs");
    let mut entries = vec![Entry::new(PACKAGE, look).silent()];
    for (transport, test, effort) in RUNS {
        let program = format!("env UCX_TLS={transport} UCX_NET_DEVICES={{device}}:1 ucx_perftest");
        let server = ends(&program, Ready::Tcp(UCX_PORT));
        let client = format!("{program} {{address}} -n 500 -w 50 -t {test}");
        let row = Row::pair("ucx_perftest", server, &client)
            .options(&format!("{transport} {test}"))
            .says("Final:");
        entries.push(Entry {
            effort,
            ..Entry::new(PACKAGE, row)
        });
    }
    entries
}

fn libfabric() -> Vec<Entry> {
    const PACKAGE: Origin = Origin::Debian("libfabric-bin");
    let look = Row::alone("fi_info", "-p verbs", "type: FI_EP_MSG");
    let run = |options: &str| {
        let line = format!("fi_pingpong {options} -c -I 20");
        let server = ends(&line, Ready::Tcp(FABRIC_PORT));
        let row = Row::pair("fi_pingpong", server, &format!("{line} {{address}}"));
        Entry::new(PACKAGE, row.options(options).says("#ack"))
    };
    vec![
        Entry::new(PACKAGE, look).silent(),
        run("-p verbs -e msg"),
        run("-p verbs;ofi_rxm -e rdm").large().remark(RXM_RACE),
        run("-p verbs -e dgram"),
        run("-p verbs;ofi_rxd -e rdm").large(),
    ]
}

const RXM_RACE: &str = "who polls completions, is held up, and then looks for events may hear of the end of the \
                        connection first; libfabric then calls the last message cancelled, or waits for it";

fn mpi() -> Vec<Entry> {
    const OPEN: Origin = Origin::Debian("openmpi-bin");
    const RIGHT: &str = "all results are right";
    let ucx =
        |transport: &str| format!("env UCX_TLS={transport},self UCX_NET_DEVICES={{device}}:1");
    let mpirun = "mpirun.openmpi --allow-run-as-root --oversubscribe";
    let over_ucx = |transport: &str| format!("{} {mpirun} --mca pml ucx", ucx(transport));
    let over_fabric =
        format!("{mpirun} --mca pml cm --mca mtl ofi --mca mtl_ofi_provider_include verbs;ofi_rxm");
    let over_openib =
        format!("{mpirun} --mca pml ob1 --mca btl openib,self --mca btl_openib_allow_ib 1");
    let run = |origin, line: &str, ring: &'static str, ranks: usize, by: &str| {
        let row = Row {
            client: Some(format!("{line} -n {ranks} {{scripts}}/{ring}")),
            ..Row::alone(ring, &format!("{by}, {ranks} ranks"), RIGHT)
        };
        Entry::new(origin, row).remark("hello, ring and allreduce, every number checked")
    };
    let open = |line: &str, ranks, by| run(OPEN, line, OPEN_RING, ranks, by);
    let mpich_line = format!("{} MPIR_CVAR_NOLOCAL=1 mpiexec.mpich", ucx("rc_v"));
    let mpich = |ranks| {
        let origin = Origin::Debian("mpich");
        run(origin, &mpich_line, MPICH_RING, ranks, "UCX rc_verbs")
    };
    let openib = open(&over_openib, 2, "openib");
    vec![
        open(&over_ucx("rc_v"), 2, "UCX rc_verbs"),
        open(&over_ucx("rc_v"), 4, "UCX rc_verbs"),
        open(&over_ucx("ud_v"), 2, "UCX ud_verbs").large(),
        open(&over_ucx("ud_v"), 4, "UCX ud_verbs").large(),
        open(&over_fabric, 2, "libfabric rxm"),
        open(&over_fabric, 4, "libfabric rxm").large(),
        Entry {
            row: openib.row.hopeless(NO_OPENIB),
            ..openib
        }
        .large()
        .remark(NO_OPENIB),
        mpich(2),
        mpich(4),
    ]
}

const OPEN_RING: &str = "ring.openmpi";
const MPICH_RING: &str = "ring.mpich";

const NO_OPENIB: &str =
    "Debian builds it without rdmacm, and its other way to connect is for InfiniBand alone";

fn fio() -> Vec<Entry> {
    const SERVER: &str = "fio --name=receiver --rw=read --bs=64k --size=4m --iodepth=64 \
                          --verify=crc32c --verify_fatal=1 --verify_state_save=0 --ioengine=rdma \
                          --port=7654";
    const CLIENT: &str = "fio --name=sender --rw=write --bs=64k --size=4m --iodepth=8 \
                          --verify=crc32c --do_verify=0 --verify_state_save=0 --ioengine=rdma \
                          --hostname={address} --port=7654";
    let run = |verb: &str| {
        let server = ends(SERVER, Ready::Says("waiting for connection"));
        let row = Row::pair("fio", server, &format!("{CLIENT} --verb={verb}"));
        Entry::new(Origin::Debian("fio"), row.options(verb).says("err= 0"))
    };
    vec![
        run("send").remark("the receiver verifies every block; fio allows no retries, so it has room for all of them"),
        run("write").remark("nobody looks at the data"),
        run("read").large().remark("nobody looks at the data"),
    ]
}

const LIBISCSI: &str = "inquiry and capacity; `qemu-img convert` and `iscsi-test-cu` over iSER end with errors \
                        inside of libiscsi, whose causes are not known yet";

fn others() -> Vec<Entry> {
    const DISPLAY: &str = "-display none -nodefaults -machine pc,accel=tcg -m 8";
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
    let iser = Row::pair(
        "tgtd",
        stays(
            "tgtd -f --iscsi portal=127.0.0.1:3261 --iser port=3260,pool_sz_mb=64",
            Ready::Service,
        ),
        "sh {scripts}/iser.sh {address} {scratch}",
    );
    let qemu = Row::pair(
        "qemu-system-x86_64",
        stays(
            &format!("qemu-system-x86_64 {DISPLAY} -incoming rdma:{{address}}:4444"),
            Ready::Service,
        ),
        "/usr/bin/python3 {scripts}/migrate.py rdma:{address}:4444",
    );
    let debian = |package, row: Row, options: &str, says| {
        Entry::new(Origin::Debian(package), row.options(options).says(says)).large()
    };
    vec![
        debian("dapl2-utils", dapl, "uDAPL", "PASSED"),
        debian("iperf3", iperf, "librspreload", "iperf Done"),
        debian("tgt", iser, "iSER, with libiscsi", "Total size:4194304")
            .few()
            .remark(LIBISCSI),
        debian("qemu-system-x86", qemu, "live migration", "migrated"),
    ]
}

/// Their own examples.
fn crates() -> Vec<Entry> {
    const SIDEWAY: Origin = Origin::Crate("sideway", "0.4.3");
    let loopback = Row {
        client: Some("{scripts}/loopback".to_owned()),
        ..Row::alone("ibverbs", "loopback", "received")
    };
    let looking = |example| Row {
        client: Some(format!("{{scripts}}/{example}")),
        ..Row::alone("sideway", example, "roci0")
    };
    let pingpong = |example| {
        let line = format!("{{scripts}}/{example} -d {{device}} -g {{gid}} -n 200");
        let server = ends(&line, Ready::Tcp(EXCHANGE_PORT));
        Row::pair("sideway", server, &format!("{line} {{address}}")).options(example)
    };
    let cmtime = Row::pair(
        "sideway",
        stays("{scripts}/cmtime -b {address}", Ready::BusyService),
        "{scripts}/cmtime -s {address} -c 20",
    );
    let pair = Row::pair(
        "rdma-sys",
        ends("{scripts}/server", Ready::Service),
        "{scripts}/client {address} 7471",
    );
    let entries = vec![
        Entry::new(Origin::Crate("ibverbs", "0.9.2"), loopback).few(),
        Entry::new(SIDEWAY, looking("ibv_devinfo")).silent(),
        Entry::new(SIDEWAY, looking("show_gids")).silent(),
        Entry::new(SIDEWAY, pingpong("rc_pingpong")),
        Entry::new(SIDEWAY, pingpong("rc_pingpong_split")),
        Entry::new(SIDEWAY, cmtime.options("cmtime")).few(),
        Entry::new(
            Origin::Crate("rdma-sys", "0.3.0"),
            pair.options("server, client").says("rdma_client: end"),
        )
        .few(),
    ];
    entries.into_iter().map(Entry::large).collect()
}
