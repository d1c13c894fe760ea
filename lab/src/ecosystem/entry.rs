//! A run, and its description for the scoreboard.

use std::process::Command;

use super::python::Environment;
use crate::programs::list::Row;

/// The minimum number of datagrams that counts as traffic. Probes between members of an address are fewer.
const TRAFFIC: u64 = 40;

/// The minimum for a program that sends one message.
const FEW: u64 = 2;

/// A run, and its description for the scoreboard.
pub(crate) struct Entry {
    pub(crate) row: Row,
    pub(super) field: Field,
    pub(super) origin: Origin,
    pub(super) effort: Effort,
    /// How many datagrams both hosts together must receive at least.
    pub(super) datagrams: u64,
    /// What the run does and checks, for the scoreboard. Runs of one program that do the same share a line.
    pub(super) checks: &'static str,
}

/// The field of use, by which the scoreboard is ordered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Field {
    MachineLearning,
    Storage,
    Mpi,
    Rpc,
    Libraries,
}

impl Field {
    /// In the order of the scoreboard.
    pub(super) const ALL: [Self; 5] = [
        Self::MachineLearning,
        Self::Mpi,
        Self::Storage,
        Self::Rpc,
        Self::Libraries,
    ];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::MachineLearning => "machine learning",
            Self::Mpi => "MPI and collectives",
            Self::Storage => "storage and virtual machines",
            Self::Rpc => "RPC and key-value",
            Self::Libraries => "languages and libraries",
        }
    }
}

/// Where a program comes from.
#[derive(Clone, Copy)]
pub(super) enum Origin {
    /// A package of Debian.
    Debian(&'static str),
    /// Examples of a crate.
    Crate(&'static Crate),
    /// Wheels of PyPI.
    Python(&'static Environment),
}

/// A crate whose examples are run.
pub(super) struct Crate {
    pub(super) name: &'static str,
    pub(super) version: &'static str,
    /// The examples that are built; empty means all.
    pub(super) examples: &'static [&'static str],
}

impl Origin {
    pub(super) fn version(&self) -> Result<String, String> {
        let package = match self {
            Self::Crate(it) => return Ok(it.version.to_owned()),
            Self::Python(environment) => return Ok(environment.version().to_owned()),
            Self::Debian(package) => package,
        };
        let output = Command::new("dpkg-query")
            .args(["--show", "--showformat=${Version}", package])
            .output()
            .map_err(|error| format!("dpkg-query can't be started: {error}"))?;
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }
}

/// Whether it is run with every change.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Effort {
    Small,
    /// Only with `--full`.
    Large,
}

impl Entry {
    pub(super) fn new(field: Field, origin: Origin, row: Row) -> Self {
        Self {
            row,
            field,
            origin,
            effort: Effort::Small,
            datagrams: TRAFFIC,
            checks: "",
        }
    }

    pub(super) fn large(mut self) -> Self {
        self.effort = Effort::Large;
        self
    }

    /// It only queries the device and sends nothing.
    pub(super) fn silent(mut self) -> Self {
        self.datagrams = 0;
        self
    }

    /// It sends few messages.
    pub(super) fn few(mut self) -> Self {
        self.datagrams = FEW;
        self
    }

    pub(super) fn checks(mut self, checks: &'static str) -> Self {
        self.checks = checks;
        self
    }
}
