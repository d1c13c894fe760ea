//! A fresh system for one recipe.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use super::Recipe;

/// The limit for one recipe in seconds, downloads included, on a busy machine.
const SECONDS: &str = "300";

/// Namespaces that end with their processes.
const UNSHARE: [&str; 5] = ["unshare", "--mount", "--pid", "--fork", "--kill-child"];

/// Why no fresh system can be created here, although we are root.
pub(super) fn missing() -> Option<String> {
    let systems = fs::read_to_string("/proc/filesystems").unwrap_or_default();
    if !systems.contains("overlay") {
        return Some("this kernel has no overlay file system (`modprobe overlay`)".into());
    }
    let [unshare, options @ ..] = UNSHARE;
    let tried = Command::new(unshare).args(options).arg("true").output();
    match tried {
        Ok(output) if output.status.success() => None,
        _ => Some("this machine does not allow new namespaces".into()),
    }
}

/// Runs a recipe in a copy of the system, which ends with it.
pub(super) fn run(
    root: &Path,
    system: &Path,
    scratch: &Path,
    job: &Path,
    recipe: &Recipe,
) -> Result<(), String> {
    let place = scratch.join("place");
    let written = fs::create_dir_all(&place)
        .and_then(|()| fs::write(job.join("root.sh"), &recipe.as_root))
        .and_then(|()| fs::write(job.join("user.sh"), &recipe.as_user));
    written.map_err(|error| format!("no fresh system can be created: {error}"))?;
    let output = Command::new("timeout")
        .args(["--kill-after=5", SECONDS])
        .args(UNSHARE)
        .arg("sh")
        .arg(root.join("lab/src/recipes/fresh-system.sh"))
        .args([system, &place, job])
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("`unshare` can't be started: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    let (said, complained) = (&output.stdout, &output.stderr);
    Err(format!(
        "{}\n{}\nthe recipe for {} failed: {}",
        String::from_utf8_lossy(said),
        String::from_utf8_lossy(complained),
        recipe.name,
        output.status
    ))
}
