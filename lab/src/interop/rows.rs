//! The rows of the matrix: what runs on each side, over which link, and how the result is checked.

mod perftest;
mod pingpong;
mod probe;
mod programs;
mod roci_perf;

use super::network::{Family, Side};
use super::release::Release;

/// A pair of programs. It runs with us as the client and with us as the server.
pub(crate) struct Row {
    pub(crate) name: String,
    /// How our side's program gets its device.
    pub(crate) way: Way,
    /// Command lines. `{server}` is replaced by the server's address, `{here}` by that of the side which runs
    /// it, `{device}` for its device and `{gid}` for the index of its address.
    pub(crate) server: String,
    pub(crate) client: String,
    pub(crate) family: Family,
    pub(crate) link: Link,
    pub(crate) judge: Judge,
    /// Only in a full run.
    pub(crate) long: bool,
    /// The first kernel that can do it.
    pub(crate) since: Release,
}

/// How a program of our side gets its RDMA device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Way {
    /// `roci ping` instead of rping, with the same arguments.
    Ping,
    /// `roci` on both sides: here at our device, there at the kernel's.
    Roci,
    /// The distribution's program on our libraries.
    Run,
    /// The same, but a client's connection messages are delayed, because the other side is emulated and slow.
    RunWithDelay,
}

/// The properties of the link between the two sides.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Link {
    pub(crate) mtu: u32,
    /// In both directions, 5 % of the packets are lost, 5 % are duplicated and 5 % are reordered.
    pub(crate) lossy: bool,
}

impl Link {
    /// Ordinary Ethernet: a path MTU of 1024.
    pub(crate) const USUAL: Link = Link {
        mtu: 1500,
        lossy: false,
    };

    /// Jumbo frames: a path MTU of 4096.
    pub(crate) const JUMBO: Link = Link {
        mtu: 9000,
        lossy: false,
    };

    pub(crate) const LOSSY: Link = Link {
        mtu: 1500,
        lossy: true,
    };
}

/// How the result of a row is checked.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Judge {
    /// Both programs exit with 0.
    BothSucceed,
    /// Both programs exit with 0 and print the data of this many pings.
    Pings(usize),
    /// Both programs print the same as between two kernels, except for these differences.
    LikeKernels(&'static [Difference]),
}

/// A line that differs between a run with us and a run between two kernels.
#[derive(Debug)]
pub(crate) struct Difference {
    /// Our role in the run that differs.
    pub(crate) we_are: Role,
    /// The output between two kernels.
    pub(crate) kernels: &'static str,
    /// The output with our side.
    pub(crate) with_us: &'static str,
}

/// The role of a side.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Role {
    Server,
    Client,
}

impl Role {
    /// The side with this role when ours is `ours`.
    pub(crate) fn side(self, ours: Role) -> Side {
        if self == ours {
            Side::Ours
        } else {
            Side::Kernel
        }
    }
}

impl Row {
    pub(super) fn new(
        name: impl Into<String>,
        server: impl Into<String>,
        client: impl Into<String>,
    ) -> Self {
        Self {
            name: name.into(),
            way: Way::Run,
            server: server.into(),
            client: client.into(),
            family: Family::Ipv4,
            link: Link::USUAL,
            judge: Judge::BothSucceed,
            long: false,
            since: Release::default(),
        }
    }

    pub(super) fn way(self, way: Way) -> Self {
        Self { way, ..self }
    }

    fn over(self, family: Family) -> Self {
        Self { family, ..self }
    }

    fn link(self, link: Link) -> Self {
        Self { link, ..self }
    }

    fn judge(self, judge: Judge) -> Self {
        Self { judge, ..self }
    }

    fn since(self, since: Release) -> Self {
        Self { since, ..self }
    }

    fn long(self) -> Self {
        Self { long: true, ..self }
    }
}

/// Every row, in the order in which they run. Rows with packet loss come last.
pub(crate) fn all() -> Vec<Row> {
    let mut rows = programs::rows();
    rows.extend(probe::rows());
    rows.extend(pingpong::rows());
    rows.extend(perftest::rows());
    rows.extend(roci_perf::rows());
    rows.sort_by_key(|row| row.link.lossy);
    rows
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::all;

    #[test]
    fn every_row_has_a_name_of_its_own() {
        let rows = all();
        let names: BTreeSet<_> = rows.iter().map(|row| &row.name).collect();
        assert_eq!(names.len(), rows.len());
    }

    #[test]
    fn slow_rows_run_only_with_full() {
        assert!(all().iter().all(|row| row.long || !row.link.lossy));
        assert!(all().iter().filter(|row| !row.long).count() >= 40);
    }
}
