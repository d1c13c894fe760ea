//! Stand-ins: tools that programs and test suites call, with answers about our devices.
//!
//! `roci run` puts a directory in front of `PATH` in which these names are links to `roci`. The originals
//! ask the kernel, which does not know our devices. A command about a device that only the kernel has is left to the next tool of this
//! name in `PATH` (`original`).

mod ibdev2netdev;
mod modprobe;
mod original;
mod rdma;
mod rxe_cfg;
mod show_gids;

use std::env;
use std::path::Path;
use std::process::ExitCode;

/// The names under which `roci` acts as another tool.
pub(crate) const NAMES: [&str; 5] = [RDMA, SHOW_GIDS, IBDEV2NETDEV, RXE_CFG, MODPROBE];

const IBDEV2NETDEV: &str = "ibdev2netdev";
const MODPROBE: &str = "modprobe";
const RDMA: &str = "rdma";
const RXE_CFG: &str = "rxe_cfg";
const SHOW_GIDS: &str = "show_gids";

/// Acts as the tool under whose name `roci` was called. Returns `None` if that is its own name.
pub(crate) fn run() -> Option<anyhow::Result<ExitCode>> {
    let mut words = env::args_os();
    let called = words.next()?;
    let name = Path::new(&called).file_name()?.to_str()?;
    let arguments: Vec<String> = words
        .map(|word| word.to_string_lossy().into_owned())
        .collect();
    match name {
        RDMA => Some(rdma::run(&arguments)),
        SHOW_GIDS => Some(show_gids::run(&arguments)),
        IBDEV2NETDEV => Some(ibdev2netdev::run()),
        RXE_CFG => Some(Ok(rxe_cfg::run(&arguments))),
        MODPROBE => Some(modprobe::run(&arguments)),
        _ => None,
    }
}
