//! Resolves a path as the kernel would if the tree were part of the file system.
//!
//! A path is resolved one component at a time, because `..` after a link means the parent of the link's target. A
//! path that leaves the redirected paths continues in the real file system.

use std::ffi::CStr;

/// Paths with these prefixes are redirected to the tree. The second one includes all classes of RDMA
/// devices, such as `infiniband_verbs`; the fourth is the PCI bus of our devices, which no known machine has.
pub(crate) const REDIRECTED_PREFIXES: [&[u8]; 5] = [
    b"/dev/infiniband",
    b"/sys/class/infiniband",
    b"/sys/class/misc/rdma_cm",
    b"/sys/devices/pci5243:",
    b"/sys/devices/virtual/misc/rdma_cm",
];

/// The longest path that the kernel accepts, with its zero byte.
const MAX_PATH: usize = libc::PATH_MAX as usize;

/// The maximum number of links in one path, as in the kernel.
const MAX_LINKS: usize = 40;

/// A path of limited length. Nothing is allocated, because `open` may be called where that is forbidden.
struct Buffer {
    bytes: [u8; MAX_PATH],
    length: usize,
}

impl Buffer {
    const fn new() -> Self {
        Self {
            bytes: [0; MAX_PATH],
            length: 0,
        }
    }

    fn text(&self) -> &[u8] {
        &self.bytes[..self.length]
    }

    /// Appends bytes. There is always space for a zero byte at the end.
    fn push(&mut self, text: &[u8]) -> Option<()> {
        let end = self.length + text.len();
        if end >= MAX_PATH {
            return None;
        }
        self.bytes[self.length..end].copy_from_slice(text);
        self.bytes[end] = 0;
        self.length = end;
        Some(())
    }

    /// Removes the last component. The root is its own parent.
    fn pop(&mut self) {
        let last = self.text().iter().rposition(|byte| *byte == b'/');
        self.length = last.unwrap_or(0);
    }

    fn clear(&mut self) {
        self.length = 0;
    }
}

/// The buffers for resolving a path.
pub(crate) struct Walk {
    /// The resolved part, without links and dots.
    done: Buffer,
    /// The part that is not resolved yet.
    rest: Buffer,
    /// `rest` while it is replaced, and then the result.
    other: Buffer,
}

impl Walk {
    pub(crate) const fn new() -> Self {
        Self {
            done: Buffer::new(),
            rest: Buffer::new(),
            other: Buffer::new(),
        }
    }

    /// Resolves a path, into the tree or out of the redirected paths. `None` if it becomes too long or
    /// has too many links.
    ///
    /// If the last component is a relative link, it is not followed, so that a caller can inspect the link; such links
    /// stay within the tree. An absolute link refers to a real file and is always followed.
    pub(crate) fn resolve(&mut self, tree: &[u8], path: &[u8]) -> Option<&CStr> {
        self.done.clear();
        self.rest.clear();
        self.rest.push(path)?;
        let mut links = 0;
        while self.step()? {
            if !is_shown(self.done.text()) {
                if is_above_shown(self.done.text()) {
                    continue;
                }
                break;
            }
            let mut target = [0; MAX_PATH];
            let Some(target) = self.link(tree, &mut target) else {
                continue;
            };
            let is_last = self.rest.text().is_empty();
            if is_last && !target.starts_with(b"/") {
                continue;
            }
            links += 1;
            if links > MAX_LINKS {
                return None;
            }
            self.follow(target)?;
        }
        self.finish(tree)
    }

    /// Resolves the next component. Returns false if there is none.
    fn step(&mut self) -> Option<bool> {
        let rest = self.rest.text();
        let start = rest.iter().position(|byte| *byte != b'/');
        let Some(start) = start else {
            return Some(false);
        };
        let length = rest[start..].iter().position(|byte| *byte == b'/');
        let end = length.map_or(rest.len(), |length| start + length);
        match &rest[start..end] {
            b"." => {}
            b".." => self.done.pop(),
            name => {
                self.done.push(b"/")?;
                self.done.push(name)?;
            }
        }
        let left = self.rest.length - end;
        self.rest.bytes.copy_within(end..end + left + 1, 0);
        self.rest.length = left;
        Some(true)
    }

    /// The target of the resolved part, if it is a link of the tree.
    fn link<'t>(&mut self, tree: &[u8], target: &'t mut [u8; MAX_PATH]) -> Option<&'t [u8]> {
        self.other.clear();
        self.other.push(tree)?;
        self.other.push(self.done.text())?;
        // Not the function `readlink`, which this library replaces. SAFETY: a text with a zero at its end,
        // and a buffer with its length.
        let length = unsafe {
            libc::syscall(
                libc::SYS_readlinkat,
                libc::AT_FDCWD,
                self.other.bytes.as_ptr(),
                target.as_mut_ptr(),
                target.len(),
            )
        };
        target.get(..usize::try_from(length).ok()?)
    }

    /// Replaces the last resolved component by its target.
    fn follow(&mut self, target: &[u8]) -> Option<()> {
        if target.starts_with(b"/") {
            self.done.clear();
        } else {
            self.done.pop();
        }
        self.other.clear();
        self.other.push(target)?;
        self.other.push(self.rest.text())?;
        self.rest.clear();
        self.rest.push(self.other.text())
    }

    fn finish(&mut self, tree: &[u8]) -> Option<&CStr> {
        self.other.clear();
        if is_shown(self.done.text()) {
            self.other.push(tree)?;
        }
        self.other.push(self.done.text())?;
        self.other.push(self.rest.text())?;
        if self.other.text().is_empty() {
            self.other.push(b"/")?;
        }
        CStr::from_bytes_until_nul(&self.other.bytes).ok()
    }
}

fn is_shown(path: &[u8]) -> bool {
    REDIRECTED_PREFIXES
        .iter()
        .any(|prefix| path.starts_with(prefix))
}

/// Whether it is a parent directory of a redirected path. These are real and no links.
fn is_above_shown(path: &[u8]) -> bool {
    let below = |shown: &[u8]| {
        let rest = shown.strip_prefix(path);
        rest.is_some_and(|rest| rest.starts_with(b"/"))
    };
    path.is_empty() || REDIRECTED_PREFIXES.iter().any(|shown| below(shown))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::path::PathBuf;

    use super::*;

    /// A tree with one device, and what is beside it in sysfs.
    struct Tree(PathBuf);

    impl Tree {
        fn new(name: &str) -> Self {
            let name = format!("roci-walk-{name}-{}", std::process::id());
            let root = std::env::temp_dir().join(name);
            let device = root.join("sys/devices/pci5243:00/5243:00:00.0/infiniband/x");
            fs::create_dir_all(device.join("ports/1")).expect("a directory");
            fs::create_dir_all(root.join("sys/class/infiniband")).expect("a directory");
            fs::create_dir_all(root.join("dev/infiniband")).expect("a directory");
            let link = |path: &str, target: &str| {
                symlink(target, root.join(path)).expect("a link");
            };
            link(
                "sys/class/infiniband/x",
                "../../devices/pci5243:00/5243:00:00.0/infiniband/x",
            );
            link("sys/class/infiniband/loop", "loop/deeper");
            link("dev/infiniband/uverbs0", "/dev/null");
            Self(root)
        }

        /// `TREE` is replaced by the path of the tree.
        fn resolve(&self, path: &str) -> Option<String> {
            let root = self.0.to_str().expect("a text");
            let mut walk = Walk::new();
            let resolved = walk.resolve(root.as_bytes(), path.as_bytes())?;
            let resolved = resolved.to_str().expect("a text");
            Some(resolved.replace(root, "TREE"))
        }
    }

    impl Drop for Tree {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn dots_behind_a_link_begin_where_it_leads_to() {
        let tree = Tree::new("dots");
        let leads = |path: &str, to: &str| {
            assert_eq!(tree.resolve(path).as_deref(), Some(to), "{path}");
        };
        let bus = "TREE/sys/devices/pci5243:00";
        leads(
            "/sys/class/infiniband/x/../..",
            &format!("{bus}/5243:00:00.0"),
        );
        leads(
            "/sys/class/infiniband/./x//ports/../ports/1",
            &format!("{bus}/5243:00:00.0/infiniband/x/ports/1"),
        );
        leads("/sys/class/infiniband/x/../../../../..", "/sys");
        leads("/sys/class/infiniband/..", "/sys/class");
        leads("/sys/class/infiniband/../net/lo/..", "/sys/class/net/lo/..");
        leads("/dev/infiniband/../../..", "/");
    }

    #[test]
    fn a_final_relative_link_is_kept_and_an_absolute_one_followed() {
        let tree = Tree::new("links");
        let leads = |path: &str, to: &str| {
            assert_eq!(tree.resolve(path).as_deref(), Some(to), "{path}");
        };
        leads("/sys/class/infiniband/x", "TREE/sys/class/infiniband/x");
        leads("/dev/infiniband/uverbs0", "/dev/null");
        leads("/dev/infiniband/uverbs7", "TREE/dev/infiniband/uverbs7");
        let inside = "TREE/sys/devices/pci5243:00/5243:00:00.0/infiniband/x";
        leads("/sys/class/infiniband/x/", &format!("{inside}/"));
    }

    #[test]
    fn a_path_that_is_too_long_or_circular_is_left_alone() {
        let tree = Tree::new("long");
        let long = format!("/dev/infiniband/{}", "x".repeat(MAX_PATH - 20));
        assert_eq!(tree.resolve(&long), None);
        assert_eq!(tree.resolve("/sys/class/infiniband/loop/y"), None);
    }
}
