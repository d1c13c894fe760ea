//! Removes the files of processes that ended without leaving, and of namespaces that no longer
//! exist.
//!
//! Each process that uses the directory does this, at most once per minute. A registry is removed if
//! none of its members runs. In another process namespace, process ids do not tell that: there a
//! registry is removed if nothing listens at its mailboxes and it was not changed for an hour.

use std::collections::HashMap;
use std::fs;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use super::long_socket_path::with_short_path;
use super::registry::{Registry, visible_ending};
use super::statistics;
use crate::private_file;
use crate::times::{FOREIGN_LIFETIME, GIVE_UP_AFTER};

/// The minimum time between two removals in a directory.
const CLEANUP_INTERVAL: Duration = GIVE_UP_AFTER.saturating_mul(60);

/// The file whose modification time says when stale files were last removed.
const STAMP: &str = ".swept";

pub(super) fn remove_if_due(directory: &Path) {
    let stamp = directory.join(STAMP);
    let touch = || private_file::replace(&stamp, |_| Ok(()));
    if is_older_than(&stamp, CLEANUP_INTERVAL) && touch().is_ok() {
        remove_now(directory);
    }
}

fn remove_now(directory: &Path) {
    statistics::retire_dead(directory);
    let visible = visible_ending();
    for (name, mailboxes) in registries(directory) {
        let registry = Arc::new(Registry::named(directory, &name));
        if name.ends_with(&visible) {
            remove_if_deserted(&registry, &mailboxes);
        } else if is_silent(&directory.join(name), &mailboxes) {
            remove(&registry, &mailboxes);
        }
    }
}

/// The registries in a directory, by name, and the mailboxes of each.
fn registries(directory: &Path) -> HashMap<String, Vec<PathBuf>> {
    let mut found = HashMap::<String, Vec<PathBuf>>::new();
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    for path in entries.map(|entry| entry.path()) {
        let Some(name) = path.file_name().and_then(|name| name.to_str()) else {
            continue;
        };
        let Some((registry, rest)) = split(name) else {
            continue;
        };
        let mailboxes = found.entry(registry.to_owned()).or_default();
        if !rest.is_empty() && rest != "lock" {
            mailboxes.push(path);
        }
    }
    found
}

/// Splits a file name into its registry, `ADDRESS@NETWORK.PROCESSES`, and the rest.
fn split(name: &str) -> Option<(&str, &str)> {
    let at = name.find('@')?;
    let (network, processes) = name[at + 1..].split_once('.')?;
    let length = processes.find('.').unwrap_or(processes.len());
    let (registry, rest) = name.split_at(at + 1 + network.len() + 1 + length);
    Some((registry, rest.strip_prefix('.').unwrap_or(rest)))
}

fn remove_if_deserted(registry: &Arc<Registry>, mailboxes: &[PathBuf]) {
    let Ok(locked) = registry.lock_if_free() else {
        return;
    };
    let Ok(mut table) = locked.read() else {
        return;
    };
    table.remove_dead_members();
    if table.members.is_empty() {
        remove_files(mailboxes);
        locked.remove();
    }
}

fn remove(registry: &Arc<Registry>, mailboxes: &[PathBuf]) {
    if let Ok(locked) = registry.lock_if_free() {
        remove_files(mailboxes);
        locked.remove();
    }
}

fn remove_files(paths: &[PathBuf]) {
    for path in paths {
        let _ = fs::remove_file(path);
    }
}

/// Whether a registry is old and nothing listens at its mailboxes.
fn is_silent(registry: &Path, mailboxes: &[PathBuf]) -> bool {
    let listens = |path: &PathBuf| {
        let socket = UnixDatagram::unbound();
        let asked = socket.and_then(|socket| with_short_path(path, |path| socket.connect(path)));
        asked.is_ok()
    };
    is_older_than(registry, FOREIGN_LIFETIME) && !mailboxes.iter().any(listens)
}

/// Whether a file is unchanged for this long. A missing file counts as old.
fn is_older_than(path: &Path, age: Duration) -> bool {
    let changed = fs::metadata(path).and_then(|found| found.modified());
    changed.map_or(true, |at| SystemTime::now() > at + age)
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::net::IpAddr;
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::sharing::{Member, RuntimeDirectory};

    #[test]
    fn a_name_is_split_behind_its_namespaces() {
        assert_eq!(split("127.0.0.1@1a.2b"), Some(("127.0.0.1@1a.2b", "")));
        assert_eq!(
            split("127.0.0.1@1a.2b.lock"),
            Some(("127.0.0.1@1a.2b", "lock"))
        );
        assert_eq!(split("::1@1a.2b.640000-6"), Some(("::1@1a.2b", "640000-6")));
        assert_eq!(split("tree-0011"), None);
    }

    fn names(directory: &RuntimeDirectory) -> Vec<String> {
        let entries = fs::read_dir(directory.path()).unwrap().flatten();
        let names = entries.map(|entry| entry.file_name().into_string().unwrap());
        let mut names: Vec<_> = names.filter(|name| name != STAMP).collect();
        names.sort();
        names
    }

    fn scratch(name: &str) -> RuntimeDirectory {
        let name = format!("roci-stale-files-{name}-{}", std::process::id());
        RuntimeDirectory::at(std::env::temp_dir().join(name)).unwrap()
    }

    #[test]
    fn only_registries_without_members_are_removed() {
        let directory = scratch("members");
        let here: IpAddr = "127.58.7.1".parse().unwrap();
        let gone: IpAddr = "127.58.7.2".parse().unwrap();
        let member = Member::join_in(&directory, here).unwrap();
        drop(Member::join_in(&directory, gone).unwrap());
        let elsewhere = directory.path().join("127.58.7.3@1.1.lock");
        File::create(&elsewhere).unwrap();
        File::create(elsewhere.with_extension("")).unwrap();
        assert!(names(&directory).iter().any(|it| it.contains("127.58.7.2")));

        remove_if_due(directory.path());
        let left = names(&directory);
        assert!(!left.iter().any(|it| it.contains("127.58.7.2")), "{left:?}");
        assert!(left.iter().any(|it| it.contains("127.58.7.1")), "{left:?}");
        assert!(elsewhere.exists(), "it may be new");
        member.others().expect("the registry is there");
        drop(member);
        remove_if_due(directory.path());
        let left = names(&directory);
        assert!(
            left.iter().any(|it| it.contains("127.58.7.1")),
            "once a minute"
        );

        let long_ago = SystemTime::now() - 2 * FOREIGN_LIFETIME;
        let table = File::open(elsewhere.with_extension("")).unwrap();
        table.set_modified(long_ago).unwrap();
        remove_now(directory.path());
        assert_eq!(names(&directory), Vec::<String>::new());
        fs::remove_dir_all(directory.path()).unwrap();
    }

    #[test]
    fn a_link_in_place_of_the_stamp_is_replaced() {
        let directory = scratch("stamp");
        let [stamp, target] = [STAMP, "target"].map(|name| directory.path().join(name));
        fs::write(&target, "untouched").unwrap();
        let file = File::open(&target).unwrap();
        file.set_modified(SystemTime::now() - 2 * CLEANUP_INTERVAL)
            .unwrap();
        symlink(&target, &stamp).unwrap();
        remove_if_due(directory.path());
        assert_eq!(fs::read_to_string(&target).unwrap(), "untouched");
        assert!(!stamp.is_symlink() && !is_older_than(&stamp, CLEANUP_INTERVAL));
        fs::remove_dir_all(directory.path()).unwrap();
    }

    #[test]
    fn the_registry_of_dead_members_is_removed() {
        let directory = scratch("dead");
        let address: IpAddr = "127.58.7.6".parse().unwrap();
        let member = Member::join_in(&directory, address).unwrap();
        let registry = Arc::new(Registry::new(directory.path(), address));
        let locked = registry.lock().unwrap();
        let mut table = locked.read().unwrap();
        table.members[0].process.start += 1;
        locked.write(&table).unwrap();
        drop(locked);
        remove_now(directory.path());
        assert_eq!(names(&directory), Vec::<String>::new());
        drop(member);
        fs::remove_dir_all(directory.path()).unwrap();
    }

    #[test]
    fn a_registry_removed_while_a_process_waits_for_its_lock_is_created_again() {
        let directory = scratch("lock");
        let address: IpAddr = "127.58.7.4".parse().unwrap();
        let registry = Arc::new(Registry::new(directory.path(), address));
        let first = registry.lock().unwrap();
        let waiting = std::thread::spawn({
            let registry = Arc::clone(&registry);
            move || registry.lock().map(|locked| locked.is_current())
        });
        std::thread::sleep(Duration::from_millis(20));
        first.remove();
        assert!(waiting.join().unwrap().unwrap(), "an old file is locked");
        fs::remove_dir_all(directory.path()).unwrap();
    }

    #[test]
    fn an_old_registry_of_another_namespace_stays_while_a_member_listens() {
        let directory = scratch("listens");
        let table = directory.path().join("127.58.7.5@1.1");
        let mailbox = directory.path().join("127.58.7.5@1.1.640000-6");
        let listening = UnixDatagram::bind(&mailbox).unwrap();
        let file = File::create(&table).unwrap();
        file.set_modified(SystemTime::now() - 2 * FOREIGN_LIFETIME)
            .unwrap();
        remove_now(directory.path());
        assert!(table.exists() && mailbox.exists());
        drop(listening);
        remove_now(directory.path());
        assert!(!table.exists() && !mailbox.exists());
        fs::remove_dir_all(directory.path()).unwrap();
    }
}
