//! The files that describe the machine.

use std::path::{Path, PathBuf};
use std::{env, fs, io};

/// The environment variable with the directory that contains `sys`, `dev` and `proc` of the machine.
pub const ROOT_VARIABLE: &str = "ROCI_SYSTEM_ROOT";

/// The directory that contains `sys`, `dev` and `proc` of a machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tree {
    root: PathBuf,
}

impl Tree {
    /// A tree at a directory.
    pub fn at(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// The tree of this machine, or the one that [`ROOT_VARIABLE`] names.
    pub fn of_machine() -> Self {
        let named = env::var_os(ROOT_VARIABLE).filter(|path| !path.is_empty());
        Self::at(named.map_or_else(|| PathBuf::from("/"), PathBuf::from))
    }

    /// Whether it is the tree of the running system, whose devices can be opened.
    pub fn is_of_running_system(&self) -> bool {
        self.root == Path::new("/")
    }

    /// Where a file of the tree is.
    pub fn path(&self, relative: impl AsRef<Path>) -> PathBuf {
        self.root.join(relative)
    }

    /// Whether a file exists.
    pub fn has(&self, relative: impl AsRef<Path>) -> bool {
        self.path(relative).exists()
    }

    /// The content of a file without the space around it; `None` if it can't be read.
    pub fn text(&self, relative: impl AsRef<Path>) -> Option<String> {
        let text = fs::read_to_string(self.path(relative)).ok()?;
        Some(text.trim().to_owned())
    }

    /// A number in a file.
    pub fn number(&self, relative: impl AsRef<Path>) -> Option<u64> {
        self.text(relative)?.parse().ok()
    }

    /// The names in a directory, sorted; none if there is no such directory.
    pub fn names(&self, relative: impl AsRef<Path>) -> Vec<String> {
        self.try_names(relative).unwrap_or_default()
    }

    fn try_names(&self, relative: impl AsRef<Path>) -> io::Result<Vec<String>> {
        let entries = fs::read_dir(self.path(relative))?.flatten();
        let mut names: Vec<String> = entries
            .filter_map(|entry| entry.file_name().into_string().ok())
            .collect();
        names.sort_by_key(|name| natural_order(name));
        Ok(names)
    }

    /// The last part of what a link points to.
    pub fn link_target(&self, relative: impl AsRef<Path>) -> Option<String> {
        let target = fs::read_link(self.path(relative)).ok()?;
        target.file_name()?.to_str().map(str::to_owned)
    }
}

/// `mlx5_2` comes before `mlx5_10`.
fn natural_order(name: &str) -> (String, u64) {
    let letters = name.trim_end_matches(|c: char| c.is_ascii_digit());
    let number = name[letters.len()..].parse().unwrap_or(0);
    (letters.to_owned(), number)
}

#[cfg(test)]
mod tests {
    use crate::fixture::Fixture;

    #[test]
    fn only_devices_of_the_running_system_can_be_opened() {
        assert!(super::Tree::at("/").is_of_running_system());
        assert!(!Fixture::new().tree().is_of_running_system());
    }

    #[test]
    fn names_are_in_the_order_of_their_numbers() {
        let fixture = Fixture::new();
        for name in ["mlx5_10", "mlx5_2", "irdma0"] {
            fixture.file(format!("sys/{name}"), "");
        }
        let names = fixture.tree().names("sys");
        assert_eq!(names, ["irdma0", "mlx5_2", "mlx5_10"]);
        assert!(fixture.tree().names("proc").is_empty());
    }
}
