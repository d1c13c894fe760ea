//! `modprobe`: the modules of Soft-RoCE are not needed here. Others are the system's.

use std::process::ExitCode;

use anyhow::Context as _;

use super::original::Original;

/// The modules that make devices, and those through which programs reach them.
const NOT_NEEDED: [&str; 6] = [
    "rdma_rxe",
    "siw",
    "ib_core",
    "ib_uverbs",
    "rdma_cm",
    "rdma_ucm",
];

pub(super) fn run(arguments: &[String]) -> anyhow::Result<ExitCode> {
    let mut modules = arguments
        .iter()
        .filter(|word| !word.starts_with('-'))
        .peekable();
    let is_needed = |name: &&String| !NOT_NEEDED.contains(&&*name.replace('-', "_"));
    if modules.peek().is_some() && !modules.any(|name| is_needed(&name)) {
        eprintln!(
            "modprobe: no module is needed: each interface has a device already, which `rdma link` lists"
        );
        return Ok(ExitCode::SUCCESS);
    }
    let original = Original::find(super::MODPROBE).context(
        "the system's modprobe is not in PATH; call it by its path, such as /sbin/modprobe",
    )?;
    let failed = original.take_over(arguments);
    let path = original.path().display();
    Err(failed).with_context(|| format!("{path} can't be run"))
}
