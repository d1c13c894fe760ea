//! MPI of Debian, and programs on it.

use super::super::entry::Field::{Libraries, Mpi};
use super::super::entry::{Entry, Origin};
use super::super::prerequisites::SHMEM_PROGRAM;
use crate::programs::list::Row;

const OPEN: Origin = Origin::Debian("openmpi-bin");
const OPEN_RING: &str = "ring.openmpi";
const MPICH_RING: &str = "ring.mpich";
const RIGHT: &str = "all results are right";
const RING: &str = "hello, ring and allreduce, every number checked";

pub(super) const OPEN_MPIRUN: &str = "mpirun.openmpi --allow-run-as-root --oversubscribe";
const OVER_FABRIC: &str = "--mca pml cm --mca mtl ofi --mca mtl_ofi_provider_include verbs;ofi_rxm";
const OVER_OPENIB: &str = "--mca pml ob1 --mca btl openib,self --mca btl_openib_allow_ib 1";

const NO_OPENIB: &str =
    "Debian builds it without rdmacm, and its other way to connect is for InfiniBand alone";

/// The transports that UCX uses.
pub(super) fn ucx(transport: &str) -> String {
    format!("env UCX_TLS={transport},self UCX_NET_DEVICES={{device}}:1")
}

/// The beginning of a command that runs something with Open MPI over UCX.
pub(super) fn open_over_ucx(transport: &str) -> String {
    format!("{} {OPEN_MPIRUN} --mca pml ucx", ucx(transport))
}

fn mpich_over_ucx() -> String {
    format!("{} MPIR_CVAR_NOLOCAL=1 mpiexec.mpich", ucx("rc_v"))
}

pub(super) fn entries() -> Vec<Entry> {
    let groups = [rings(), shared_memory(), others(), linear_algebra()];
    groups.into_iter().flatten().collect()
}

fn ring(origin: Origin, line: &str, ring: &'static str, ranks: usize, by: &str) -> Entry {
    let row = Row {
        client: Some(format!("{line} -n {ranks} {{scripts}}/{ring}")),
        ..Row::alone(ring, &format!("{by}, {ranks} ranks"), RIGHT)
    };
    Entry::new(Mpi, origin, row).checks(RING)
}

fn rings() -> Vec<Entry> {
    let open = |line: &str, ranks, by| ring(OPEN, line, OPEN_RING, ranks, by);
    let mpich = |ranks| {
        let origin = Origin::Debian("mpich");
        ring(origin, &mpich_over_ucx(), MPICH_RING, ranks, "UCX rc_verbs")
    };
    let over_fabric = format!("{OPEN_MPIRUN} {OVER_FABRIC}");
    let openib = open(&format!("{OPEN_MPIRUN} {OVER_OPENIB}"), 2, "openib");
    vec![
        open(&open_over_ucx("rc_v"), 2, "UCX rc_verbs"),
        open(&open_over_ucx("rc_v"), 4, "UCX rc_verbs"),
        open(&open_over_ucx("ud_v"), 2, "UCX ud_verbs").large(),
        open(&open_over_ucx("ud_v"), 4, "UCX ud_verbs").large(),
        open(&over_fabric, 2, "libfabric rxm"),
        open(&over_fabric, 4, "libfabric rxm").large(),
        Entry {
            row: openib.row.unsupported(NO_OPENIB),
            ..openib
        }
        .large()
        .checks(NO_OPENIB),
        mpich(2),
        mpich(4),
    ]
}

/// OpenSHMEM, which comes with Open MPI.
fn shared_memory() -> Vec<Entry> {
    const CHECKS: &str = "a program of ours: put and get of 80 KB, atomics, sums, every number checked; Debian's \
                          `shmem_finalize` crashes, over TCP too, so it ends by `shmem_global_exit`";
    const OSHRUN: &str = "oshrun --allow-run-as-root --oversubscribe --mca pml ucx --mca spml ucx";
    let run = |transport, ranks, by| {
        let line = format!("{} {OSHRUN}", ucx(transport));
        let entry = ring(OPEN, &line, SHMEM_PROGRAM, ranks, by);
        entry.large().checks(CHECKS)
    };
    vec![
        run("rc_v", 2, "UCX rc_verbs"),
        run("rc_v", 4, "UCX rc_verbs"),
        run("ud_v", 2, "UCX ud_verbs"),
    ]
}

/// A test of ScaLAPACK, as Debian packages it for Open MPI. With MPICH, whose processes poll without a
/// break, it takes minutes on a machine with fewer processors than processes.
fn linear_algebra() -> Vec<Entry> {
    const DIRECTORY: &str = "/usr/lib/x86_64-linux-gnu/scalapack/openmpi-tests";
    let launch = open_over_ucx("rc_v");
    let row = Row {
        // Its input is where it runs. On few processors its threads would only be in each other's way.
        client: Some(format!(
            "env --chdir={DIRECTORY} OMP_NUM_THREADS=1 {launch} -n 4 {DIRECTORY}/xdlu"
        )),
        ..Row::alone(
            "ScaLAPACK xdlu",
            "Open MPI, 4 ranks",
            " 0 tests completed and failed residual checks",
        )
    };
    let entry = Entry::new(Mpi, Origin::Debian("scalapack-mpi-test"), row).large();
    vec![entry.checks("its 240 tests of LU factorization, each checks its residual")]
}

/// Programs that people run on MPI.
fn others() -> Vec<Entry> {
    const PIPE_CHECKS: &str = "messages up to 4 KiB go back and forth, every byte is compared";
    const PIPE: &str = "-i -u 4096 -n 5 -o {scratch}/netpipe";
    let alone = |program, options: &str, line: String, prints| Row {
        client: Some(line),
        ..Row::alone(program, options, prints)
    };
    let open = open_over_ucx("rc_v");
    let pipe = |options, line| {
        alone(
            "NetPIPE",
            options,
            line,
            "3073 bytes      5 times -->  Integrity check passed",
        )
    };
    vec![
        Entry::new(
            Mpi,
            Origin::Debian("netpipe-openmpi"),
            pipe("Open MPI", format!("{open} -n 2 NPopenmpi {PIPE}")),
        )
        .checks(PIPE_CHECKS),
        Entry::new(
            Mpi,
            Origin::Debian("netpipe-mpich2"),
            pipe("MPICH", format!("{} -n 2 NPmpich2 {PIPE}", mpich_over_ucx())),
        )
        .checks(PIPE_CHECKS),
        Entry::new(
            Mpi,
            Origin::Debian("hpcc"),
            alone(
                "HPC Challenge",
                "Open MPI",
                format!("sh {{scripts}}/hpcc.sh {{scratch}}/hpcc {open} -n 2 hpcc"),
                "Success=1",
            ),
        )
        .checks("HPL, PTRANS, RandomAccess, FFT, DGEMM and others on small matrices; each checks its result"),
        Entry::new(
            Libraries,
            Origin::Debian("r-cran-rmpi"),
            alone(
                "R, Rmpi",
                "Open MPI",
                format!("{open} -n 2 Rscript {{scripts}}/ring.R"),
                RIGHT,
            ),
        )
        .checks("ring and allreduce, every number checked"),
    ]
    .into_iter()
    .map(Entry::large)
    .collect()
}
