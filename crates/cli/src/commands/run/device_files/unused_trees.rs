//! Removes the trees that no process uses any more.
//!
//! A process that uses a tree has it in its environment. All processes of a user can be seen from the
//! first process namespace, and only there is anything removed.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// The inode of the initial PID namespace of every machine.
const FIRST_NAMESPACE: &str = "pid:[4026531836]";

/// How long a tree is kept after it was last requested: the program that needs it may be about to start.
const UNUSED_TREE_LIFETIME: Duration = Duration::from_secs(10 * 60);

/// With fewer trees, the processes are not searched.
const FEW: usize = 8;

/// Removes sibling directories that no process uses.
pub(super) fn remove_beside(tree: &Path, kind: &str) {
    let namespace = fs::read_link("/proc/self/ns/pid").unwrap_or_default();
    if namespace == Path::new(FIRST_NAMESPACE) {
        remove_old(tree, kind, UNUSED_TREE_LIFETIME);
    }
}

fn remove_old(tree: &Path, kind: &str, age: Duration) {
    let mut old = old_ones(tree, kind, age);
    if old.len() < FEW {
        return;
    }
    for environment in environments() {
        old.retain(|path| !contains(&environment, path.as_os_str().as_bytes()));
    }
    for path in old {
        let _ = fs::remove_dir_all(path);
    }
}

fn old_ones(tree: &Path, kind: &str, age: Duration) -> Vec<PathBuf> {
    let directory = tree.parent().unwrap_or(tree);
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let is_old = |path: &PathBuf| {
        let changed = fs::metadata(path).and_then(|found| found.modified());
        changed.is_ok_and(|at| SystemTime::now() > at + age)
    };
    let is_tree = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let rest = name.strip_prefix(kind);
        rest.is_some_and(|rest| rest.starts_with('-'))
    };
    let paths = entries.map(|entry| entry.path());
    paths
        .filter(|path| path != tree && is_tree(path) && is_old(path))
        .collect()
}

/// The environments of all processes that can be read, which are those of this user.
fn environments() -> impl Iterator<Item = Vec<u8>> {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    processes.filter_map(|process| fs::read(process.path().join("environ")).ok())
}

fn contains(environment: &[u8], path: &[u8]) -> bool {
    let mut variables = environment.split(|byte| *byte == 0);
    variables.any(|variable| variable.strip_prefix(b"ROCI_TREE=") == Some(path))
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn only_unused_trees_are_removed() {
        let base = std::env::temp_dir().join(format!("roci-unused-{}", std::process::id()));
        let tree = |number: usize| base.join(format!("tree-{number}"));
        for number in 0..10 {
            fs::create_dir_all(tree(number).join("sys")).expect("a directory");
        }
        fs::create_dir(base.join("lib-1")).expect("a directory");
        let mut user = Command::new("sleep")
            .arg("60")
            .env("ROCI_TREE", tree(1))
            .spawn()
            .expect("a process");
        // The environment of a new program becomes readable shortly after its start.
        let environment = format!("/proc/{}/environ", user.id());
        while fs::read(&environment).expect("it runs").is_empty() {
            std::thread::yield_now();
        }
        remove_old(&tree(0), "tree", UNUSED_TREE_LIFETIME);
        assert!(tree(2).exists(), "it is new");
        remove_old(&tree(0), "tree", Duration::ZERO);
        let left: Vec<_> = (0..10).filter(|it| tree(*it).exists()).collect();
        let library = base.join("lib-1").exists();
        user.kill().expect("it runs");
        user.wait().expect("it ends");
        fs::remove_dir_all(&base).expect("removed");
        assert_eq!(left, [0, 1]);
        assert!(library);
    }
}
