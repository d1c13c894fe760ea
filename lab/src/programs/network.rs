//! Networks for pairs of programs: one host, or two network namespaces that a veth pair connects.

use std::fs;
use std::process::Command;

/// Which of its addresses a server is reached at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Family {
    V4,
    V6,
}

/// One machine, as a program sees it.
#[derive(Clone, Debug)]
pub(crate) struct Host {
    /// The namespace to enter; none for the machine that we run on.
    namespace: Option<String>,
    pub(crate) v4: String,
    pub(crate) v6: String,
}

impl Host {
    const DEVICE: &str = "roci0";

    /// The name of its only device.
    pub(crate) fn device() -> &'static str {
        Self::DEVICE
    }

    /// The argument of `roci run --devices`: the GID of IPv4 comes first.
    pub(crate) fn devices(&self) -> String {
        format!("{}={}+{}", Self::DEVICE, self.v4, self.v6)
    }

    pub(crate) fn gid(family: Family) -> &'static str {
        match family {
            Family::V4 => "0",
            Family::V6 => "1",
        }
    }

    pub(crate) fn address(&self, family: Family) -> &str {
        match family {
            Family::V4 => &self.v4,
            Family::V6 => &self.v6,
        }
    }

    pub(crate) fn namespace(&self) -> Option<&str> {
        self.namespace.as_deref()
    }

    /// A command that runs on it, without arguments so far.
    pub(crate) fn command(&self, program: &str) -> Command {
        let Some(namespace) = &self.namespace else {
            return Command::new(program);
        };
        let mut command = Command::new("ip");
        command.args(["netns", "exec", namespace, program]);
        command
    }

    fn loopback(namespace: Option<String>) -> Self {
        Self {
            namespace,
            v4: "127.0.0.1".to_owned(),
            v6: "::1".to_owned(),
        }
    }
}

/// Two hosts, which may be one.
#[derive(Clone, Debug)]
pub(crate) struct Network {
    pub(crate) name: &'static str,
    pub(crate) server: Host,
    pub(crate) client: Host,
}

/// What a network is called in the table.
pub(crate) const LOOPBACK: &str = "loopback";
pub(crate) const VETH: &str = "veth";

/// Our namespaces are called by this, our process, and what they are.
const PREFIX: &str = "roci-programs-";

/// The networks of one worker, which are not shared. Dropping this removes them.
pub(crate) struct TestNetworks {
    namespaces: Vec<String>,
    pub(crate) networks: Vec<Network>,
}

impl TestNetworks {
    /// Namespaces of its own, which only root may make.
    pub(crate) fn with_namespaces(worker: usize) -> Result<Self, String> {
        remove_leftovers();
        let process = std::process::id();
        let name = |side: &str| format!("{PREFIX}{process}-{worker}{side}");
        let (left, right) = (name("a"), name("b"));
        let mut test_networks = Self {
            namespaces: Vec::new(),
            networks: Vec::new(),
        };
        for namespace in [&left, &right] {
            ip(&format!("netns add {namespace}"))?;
            test_networks.namespaces.push(namespace.clone());
            ip(&format!("-n {namespace} link set lo up"))?;
        }
        ip(&format!(
            "-n {left} link add veth0 type veth peer name veth0 netns {right}"
        ))?;
        let here = Host::loopback(Some(left.clone()));
        test_networks.networks.push(Network {
            name: LOOPBACK,
            server: here.clone(),
            client: here,
        });
        test_networks.networks.push(Network {
            name: VETH,
            server: plug_in(&left, 1)?,
            client: plug_in(&right, 2)?,
        });
        Ok(test_networks)
    }

    /// This machine's loopback, for all programs.
    pub(crate) fn without_namespaces() -> Self {
        let here = Host::loopback(None);
        Self {
            namespaces: Vec::new(),
            networks: vec![Network {
                name: LOOPBACK,
                server: here.clone(),
                client: here,
            }],
        }
    }
}

impl Drop for TestNetworks {
    fn drop(&mut self) {
        for namespace in &self.namespaces {
            if let Err(error) = ip(&format!("netns delete {namespace}")) {
                eprintln!("{error}");
            }
        }
    }
}

/// A run that was interrupted could not clean up.
fn remove_leftovers() {
    let entries = fs::read_dir("/run/netns").into_iter().flatten().flatten();
    for name in entries.filter_map(|entry| entry.file_name().into_string().ok()) {
        let process = name
            .strip_prefix(PREFIX)
            .and_then(|rest| rest.split('-').next());
        let is_left = process.is_some_and(|id| fs::metadata(format!("/proc/{id}")).is_err());
        if is_left && let Err(error) = ip(&format!("netns delete {name}")) {
            eprintln!("{error}");
        }
    }
}

/// Sets the addresses of one end of the veth pair.
fn plug_in(namespace: &str, number: u8) -> Result<Host, String> {
    let host = Host {
        v4: format!("10.77.0.{number}"),
        v6: format!("fd77::{number}"),
        namespace: Some(namespace.to_owned()),
    };
    let (v4, v6) = (&host.v4, &host.v6);
    ip(&format!("-n {namespace} address add {v4}/24 dev veth0"))?;
    // No other host can have the address, so duplicate address detection is not needed.
    ip(&format!(
        "-n {namespace} address add {v6}/64 dev veth0 nodad"
    ))?;
    ip(&format!("-n {namespace} link set veth0 mtu 9000 up"))?;
    Ok(host)
}

pub(crate) fn ip(arguments: &str) -> Result<(), String> {
    let output = Command::new("ip")
        .args(arguments.split_whitespace())
        .output();
    let output = output.map_err(|error| format!("`ip` can't be started: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    let complaint = String::from_utf8_lossy(&output.stderr);
    Err(format!("`ip {arguments}` failed: {}", complaint.trim()))
}
