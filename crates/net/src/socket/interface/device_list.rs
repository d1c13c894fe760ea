//! Parses the list of devices.

use std::fmt;
use std::net::IpAddr;

use super::error::DeviceError;

/// A requested device.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Wanted {
    pub(super) name: Option<String>,
    pub(super) target: Target,
}

/// The target of a device.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Target {
    Interface(String),
    Addresses(Vec<IpAddr>),
}

/// Parses a list of entries separated by commas.
pub(super) fn parse(spec: &str) -> Result<Vec<Wanted>, DeviceError> {
    let entries = spec.split(',').enumerate();
    entries
        .map(|(index, entry)| parse_entry(Some(index + 1), entry.trim()))
        .collect()
}

/// Parses one entry. Its position in the list, if any, is only used for the error.
pub(super) fn parse_entry(number: Option<usize>, entry: &str) -> Result<Wanted, DeviceError> {
    let (name, target) = match entry.split_once('=') {
        Some((name, target)) => (Some(name.trim()), target.trim()),
        None => (None, entry),
    };
    if let Some(name) = name {
        check_name(name)?;
    }
    let bad = |problem| DeviceError::BadEntry {
        number,
        entry: entry.to_owned(),
        problem,
    };
    Ok(Wanted {
        name: name.map(str::to_owned),
        target: parse_target(target).map_err(bad)?,
    })
}

fn parse_target(text: &str) -> Result<Target, String> {
    if text.is_empty() {
        return Err("it names no interface and no address".to_owned());
    }
    if let Ok(address) = text.parse() {
        return Ok(Target::Addresses(vec![address]));
    }
    if text.contains('+') {
        let addresses = text.split('+').map(parse_address);
        return addresses.collect::<Result<_, _>>().map(Target::Addresses);
    }
    match text.find(|c: char| c.is_whitespace() || ":/=".contains(c)) {
        Some(_) => Err(format!("`{text}` is neither an interface nor an address")),
        None => Ok(Target::Interface(text.to_owned())),
    }
}

fn parse_address(text: &str) -> Result<IpAddr, String> {
    let text = text.trim();
    text.parse()
        .map_err(|_| format!("`{text}` is not an address, and only addresses can be joined"))
}

/// Checks a name: it is used in device lists, environment variables and file names.
pub(super) fn check_name(name: &str) -> Result<(), DeviceError> {
    const LONGEST: usize = 63;
    let good = |c: char| c.is_ascii_alphanumeric() || "_-.".contains(c);
    let is_path = name.chars().all(|c| c == '.');
    if name.len() <= LONGEST && !is_path && name.chars().all(good) {
        return Ok(());
    }
    let name = name.to_owned();
    Err(DeviceError::BadName { name })
}

impl Wanted {
    /// Its name. The default is `roci_` and its target, with `-` in place of separators.
    pub(super) fn name(&self) -> String {
        match &self.name {
            Some(name) => name.clone(),
            None => automatic_name(&self.target.to_string()),
        }
    }
}

pub(super) fn automatic_name(target: &str) -> String {
    let name = target.replace(
        |c: char| !c.is_ascii_alphanumeric() && !"_-.".contains(c),
        "-",
    );
    let mut name = format!("roci_{name}");
    name.truncate(63);
    name
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Target::Interface(name) => f.write_str(name),
            Target::Addresses(addresses) => {
                let addresses: Vec<_> = addresses.iter().map(ToString::to_string).collect();
                f.write_str(&addresses.join("+"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(entry: &str) -> (String, String) {
        let wanted = parse_entry(None, entry).expect("an entry");
        (wanted.name(), wanted.target.to_string())
    }

    fn rejected(spec: &str) -> String {
        parse(spec).unwrap_err().to_string()
    }

    #[test]
    fn a_device_without_a_name_is_named_after_its_target() {
        let pair = |name: &str, target: &str| (name.to_owned(), target.to_owned());
        assert_eq!(wanted("eth0"), pair("roci_eth0", "eth0"));
        assert_eq!(wanted("eth0.100"), pair("roci_eth0.100", "eth0.100"));
        assert_eq!(wanted("rxe0 = eth0"), pair("rxe0", "eth0"));
        assert_eq!(wanted("127.0.0.2"), pair("roci_127.0.0.2", "127.0.0.2"));
        assert_eq!(wanted("fd00::2"), pair("roci_fd00--2", "fd00::2"));
        let both = wanted("a=127.0.0.2+::1");
        assert_eq!(both, pair("a", "127.0.0.2+::1"));
    }

    #[test]
    fn an_error_points_at_the_invalid_entry() {
        let hint = "; write INTERFACE or ADDRESS+ADDRESS, and NAME= before it if you like";
        let expected = [
            (
                "lo,,eth0",
                "device list, entry 2, ``: it names no interface and no address",
            ),
            (
                "a=",
                "device list, entry 1, `a=`: it names no interface and no address",
            ),
            (
                "lo,a=::1+lo",
                "device list, entry 2, `a=::1+lo`: `lo` is not an address, and only addresses can be joined",
            ),
            (
                "fe80::xyz",
                "device list, entry 1, `fe80::xyz`: `fe80::xyz` is neither an interface nor an address",
            ),
        ];
        for (spec, problem) in expected {
            assert_eq!(rejected(spec), format!("{problem}{hint}"));
        }
    }

    #[test]
    fn names_that_break_tools_are_rejected() {
        for name in ["a/b", "a b", "a:1", "..", "", &"x".repeat(64)] {
            let text = rejected(&format!("{name}=lo"));
            assert!(text.contains("cannot be the name of a device"), "{text}");
        }
        assert!(check_name("mlx5_0").is_ok());
        assert!(check_name(&"x".repeat(63)).is_ok());
    }
}
