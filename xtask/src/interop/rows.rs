//! The matrix, as data: what runs on either side, under which conditions, and how it is judged.

mod perftest;
mod pingpong;
mod probe;
mod programs;

use super::network::{Family, Side};
use super::release::Release;

/// What is tried, with us as the client and as the server.
pub(crate) struct Row {
    pub(crate) name: String,
    /// How the program of our side comes to its device.
    pub(crate) way: Way,
    /// Command lines. `{server}` is replaced by the server's address, `{here}` by that of the side which runs
    /// it, `{device}` for its device and `{gid}` for the index of its address.
    pub(crate) server: String,
    pub(crate) client: String,
    pub(crate) family: Family,
    pub(crate) cable: Cable,
    pub(crate) judge: Judge,
    /// Only in a full run.
    pub(crate) long: bool,
    /// The first kernel that can do it.
    pub(crate) since: Release,
}

/// How a program of this side comes to its RDMA device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Way {
    /// `roci ping` in the place of rping: it takes the same words.
    Ping,
    /// The distribution's program on our libraries.
    Run,
    /// The same; but a client connects without haste, because the other side is emulated and slow.
    RunUnhurried,
}

/// What the network is like.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Cable {
    pub(crate) mtu: u32,
    /// Five of a hundred packets are lost, as many come twice, as many late; in both directions.
    pub(crate) lossy: bool,
}

impl Cable {
    /// Ethernet as it usually is: a path MTU of 1024.
    pub(crate) const USUAL: Cable = Cable {
        mtu: 1500,
        lossy: false,
    };

    /// Jumbo frames: a path MTU of 4096.
    pub(crate) const JUMBO: Cable = Cable {
        mtu: 9000,
        lossy: false,
    };

    pub(crate) const LOSSY: Cable = Cable {
        mtu: 1500,
        lossy: true,
    };
}

/// How it is known that a row is good.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Judge {
    /// Both programs end with 0.
    BothSucceed,
    /// So they do, and both print the data of so many pings.
    Pings(usize),
    /// The two say what two kernels say to each other, except for these.
    LikeKernels(&'static [Difference]),
}

/// A line in which a conversation with us differs from one among kernels.
#[derive(Debug)]
pub(crate) struct Difference {
    /// Which part we play when it differs.
    pub(crate) we_are: Role,
    /// The output between two kernels.
    pub(crate) kernels: &'static str,
    /// The output with our side.
    pub(crate) with_us: &'static str,
}

/// The part that a side plays.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Role {
    Server,
    Client,
}

impl Role {
    /// The side that plays this part when we play `ours`.
    pub(crate) fn side(self, ours: Role) -> Side {
        if self == ours {
            Side::Ours
        } else {
            Side::Kernel
        }
    }
}

impl Row {
    fn new(name: impl Into<String>, server: impl Into<String>, client: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            way: Way::Run,
            server: server.into(),
            client: client.into(),
            family: Family::Ipv4,
            cable: Cable::USUAL,
            judge: Judge::BothSucceed,
            long: false,
            since: Release::default(),
        }
    }

    fn way(self, way: Way) -> Self {
        Self { way, ..self }
    }

    fn over(self, family: Family) -> Self {
        Self { family, ..self }
    }

    fn cable(self, cable: Cable) -> Self {
        Self { cable, ..self }
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

/// Every row, in the order in which they run: those that tell most come first, and those that lose
/// packets last.
pub(crate) fn all() -> Vec<Row> {
    let mut rows = programs::rows();
    rows.extend(probe::rows());
    rows.extend(pingpong::rows());
    rows.extend(perftest::rows());
    rows.sort_by_key(|row| row.cable.lossy);
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
        assert!(all().iter().all(|row| row.long || !row.cable.lossy));
        assert!(all().iter().filter(|row| !row.long).count() >= 40);
    }
}
