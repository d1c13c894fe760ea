//! Deliberate bugs, to prove that the checks find them.

use std::fmt;

/// A bug of the engine or of the connection manager.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bug {
    /// In every device.
    Device(engine::Bug),
    /// In every connection manager.
    Manager(cm::Bug),
}

impl Bug {
    /// All bugs.
    pub fn all() -> impl Iterator<Item = Bug> {
        let devices = engine::Bug::ALL.into_iter().map(Bug::Device);
        devices.chain(cm::Bug::ALL.into_iter().map(Bug::Manager))
    }

    pub(crate) fn of_device(self) -> Option<engine::Bug> {
        match self {
            Bug::Device(bug) => Some(bug),
            Bug::Manager(_) => None,
        }
    }

    pub(crate) fn of_manager(self) -> Option<cm::Bug> {
        match self {
            Bug::Manager(bug) => Some(bug),
            Bug::Device(_) => None,
        }
    }
}

impl fmt::Display for Bug {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Bug::Device(bug) => write!(f, "{bug:?}"),
            Bug::Manager(bug) => write!(f, "{bug:?}"),
        }
    }
}
