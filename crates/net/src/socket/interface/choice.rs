//! Which kinds of devices a list asks for.

use std::env;
use std::ffi::OsStr;

use super::DEVICES_VARIABLE;
use super::error::DeviceError;

/// What a list of devices asks for: our devices, and those of the system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    /// Our devices.
    pub software: SoftwareChoice,
    /// The RDMA devices of the system.
    pub system: SystemChoice,
}

/// Which of our devices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SoftwareChoice {
    /// The user's links, and one for each interface.
    Automatic,
    /// Those of this list.
    Listed(String),
    /// None.
    None,
}

/// Which devices of the system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SystemChoice {
    /// All of them.
    All,
    /// Those with these names, and no others; maybe none.
    Named(Vec<String>),
}

/// The words that stand for all devices of a kind, and what precedes the name of a device of the system.
const SOFTWARE: &str = "software";
const SYSTEM: &str = "system";
const SYSTEM_PREFIX: &str = "system:";

impl Choice {
    /// Parses a list; without one, all devices of both kinds are meant.
    pub fn parse(spec: Option<&str>) -> Result<Self, DeviceError> {
        let Some(spec) = spec else {
            return Ok(Self {
                software: SoftwareChoice::Automatic,
                system: SystemChoice::All,
            });
        };
        let (mut automatic, mut all) = (false, false);
        let (mut listed, mut named) = (Vec::new(), Vec::new());
        for entry in spec.split(',').map(str::trim) {
            match (entry, entry.strip_prefix(SYSTEM_PREFIX)) {
                (SOFTWARE, _) => automatic = true,
                (SYSTEM, _) => all = true,
                (_, Some(name)) => named.push(name.trim().to_owned()),
                (_, None) => listed.push(entry),
            }
        }
        let software = match (automatic, listed.as_slice()) {
            (true, []) => SoftwareChoice::Automatic,
            (false, []) => SoftwareChoice::None,
            (false, listed) => SoftwareChoice::Listed(listed.join(",")),
            (true, [first, ..]) => {
                return Err(DeviceError::SoftwareTwice {
                    entry: (*first).to_owned(),
                });
            }
        };
        let system = if all {
            SystemChoice::All
        } else {
            SystemChoice::Named(named)
        };
        Ok(Self { software, system })
    }

    /// What [`DEVICES_VARIABLE`] asks for.
    pub fn from_env() -> Result<Self, DeviceError> {
        Self::parse(spec_of_env().as_deref())
    }
}

/// The list in the environment.
pub(super) fn spec_of_env() -> Option<String> {
    spec_of(&env::var_os(DEVICES_VARIABLE)?)
}

/// The list in the value of the variable. An empty one counts as none.
fn spec_of(value: &OsStr) -> Option<String> {
    let spec = value.to_string_lossy().trim().to_owned();
    Some(spec).filter(|spec| !spec.is_empty())
}

impl SystemChoice {
    /// Whether it asks for a device with this name.
    pub fn includes(&self, name: &str) -> bool {
        match self {
            Self::All => true,
            Self::Named(names) => names.iter().any(|it| it == name),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(spec: &str) -> (SoftwareChoice, SystemChoice) {
        let choice = Choice::parse(Some(spec)).expect("a list");
        (choice.software, choice.system)
    }

    fn named(names: &[&str]) -> SystemChoice {
        SystemChoice::Named(names.iter().map(|&name| name.to_owned()).collect())
    }

    #[test]
    fn without_a_list_both_kinds_are_meant() {
        let choice = Choice::parse(None).expect("a choice");
        assert_eq!(choice.software, SoftwareChoice::Automatic);
        assert_eq!(choice.system, SystemChoice::All);
    }

    #[test]
    fn a_variable_without_a_list_counts_as_none() {
        assert_eq!(spec_of(" \n".as_ref()), None);
        assert_eq!(spec_of(" a=lo ".as_ref()), Some("a=lo".to_owned()));
    }

    #[test]
    fn a_word_stands_for_all_devices_of_its_kind() {
        assert_eq!(parse("software"), (SoftwareChoice::Automatic, named(&[])));
        assert_eq!(parse("system"), (SoftwareChoice::None, SystemChoice::All));
        assert!(SystemChoice::All.includes("mlx5_0"));
        assert_eq!(
            parse("software, system"),
            (SoftwareChoice::Automatic, SystemChoice::All)
        );
    }

    #[test]
    fn devices_of_both_kinds_can_be_listed() {
        let listed = SoftwareChoice::Listed("a=127.0.0.2,lo".to_owned());
        let (software, system) = parse("a=127.0.0.2,system:mlx5_0,lo");
        assert_eq!((software, &system), (listed, &named(&["mlx5_0"])));
        assert!(system.includes("mlx5_0"));
        assert!(!system.includes("mlx5_1"));
        let listed = SoftwareChoice::Listed("rxe0=eth0".to_owned());
        assert_eq!(parse("rxe0=eth0"), (listed, named(&[])));
    }

    #[test]
    fn the_automatic_devices_and_a_list_exclude_each_other() {
        let error = Choice::parse(Some("software,lo")).expect_err("lo is meant twice");
        let text = error.to_string();
        assert!(text.contains("`lo`"), "{text}");
    }
}
