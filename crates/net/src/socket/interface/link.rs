//! A link: a named device that a user has added permanently.

use std::fmt;

use super::device_list::{self, Wanted};
use super::error::DeviceError;

/// A named device, as in `rxe0=eth0`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Link {
    name: String,
    wanted: Wanted,
}

impl Link {
    /// A link with a name to an interface, or to addresses joined by `+`.
    pub fn new(name: &str, target: &str) -> Result<Self, DeviceError> {
        Self::parse(&format!("{name}={target}"))
    }

    pub(super) fn parse(line: &str) -> Result<Self, DeviceError> {
        let wanted = device_list::parse_entry(None, line)?;
        let Some(name) = wanted.name.clone() else {
            return Err(DeviceError::BadEntry {
                number: None,
                entry: line.to_owned(),
                problem: "a link needs a name".to_owned(),
            });
        };
        Ok(Link { name, wanted })
    }

    /// The name of the device.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The target of the device: an interface, or addresses joined by `+`.
    pub fn target(&self) -> String {
        self.wanted.target.to_string()
    }

    pub(super) fn wanted(&self) -> &Wanted {
        &self.wanted
    }
}

impl fmt::Display for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.name, self.wanted.target)
    }
}
