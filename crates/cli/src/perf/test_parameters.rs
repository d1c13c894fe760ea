//! The parameters of a test, which both sides use: the test, the transport service and the amount.

use std::ops::RangeInclusive;
use std::time::Duration;

use anyhow::ensure;
use clap::ValueEnum;
use rocinante::PathMtu;
use serde::{Deserialize, Serialize};

/// The maximum memory for the messages of all queue pairs together in one direction, in bytes.
const MAX_MEMORY: usize = 1 << 30;
/// The maximum number of outstanding requests of all queue pairs together, in one direction.
const MAX_ENTRIES: u64 = 1 << 20;
/// The allowed durations of a measurement, in seconds.
pub(super) const LONGEST: RangeInclusive<f64> = 0.01..=86400.0;

/// What to measure. The client sends it to the server.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct TestParameters {
    pub(super) test: Test,
    pub(super) service: Service,
    pub(super) sizes: Vec<usize>,
    pub(super) amount: Amount,
    pub(super) depth: u32,
    pub(super) receive_depth: u32,
    pub(super) queue_pairs: u32,
    pub(super) mtu: Option<usize>,
    pub(super) bidirectional: bool,
    pub(super) events: bool,
    pub(super) vs_tcp: bool,
    pub(super) rounds: u32,
}

/// The test.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Test {
    /// SEND bandwidth
    SendBw,
    /// RDMA WRITE bandwidth
    WriteBw,
    /// RDMA READ bandwidth
    ReadBw,
    /// Fetch-and-add rate
    AtomicBw,
    /// SEND latency: half of a round trip
    SendLat,
    /// RDMA WRITE latency: half of a round trip
    WriteLat,
    /// RDMA READ latency: the whole operation
    ReadLat,
    /// Fetch-and-add latency: the whole operation
    AtomicLat,
}

/// The operation of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verb {
    Send,
    Write,
    Read,
    Atomic,
}

impl Test {
    /// The operation of its messages.
    pub(super) fn verb(self) -> Verb {
        match self {
            Self::SendBw | Self::SendLat => Verb::Send,
            Self::WriteBw | Self::WriteLat => Verb::Write,
            Self::ReadBw | Self::ReadLat => Verb::Read,
            Self::AtomicBw | Self::AtomicLat => Verb::Atomic,
        }
    }

    /// Whether it measures latency.
    pub(super) fn is_latency(self) -> bool {
        matches!(
            self,
            Self::SendLat | Self::WriteLat | Self::ReadLat | Self::AtomicLat
        )
    }

    /// Its name on the command line.
    pub(super) fn name(self) -> String {
        let value = self.to_possible_value().expect("no test is hidden");
        value.get_name().to_owned()
    }
}

/// The transport service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub(crate) enum Service {
    /// Reliable connection
    #[value(name = "RC")]
    Rc,
    /// Unreliable connection
    #[value(name = "UC")]
    Uc,
    /// Unreliable datagrams
    #[value(name = "UD")]
    Ud,
}

impl Service {
    /// Its name on the command line.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Rc => "RC",
            Self::Uc => "UC",
            Self::Ud => "UD",
        }
    }
}

/// How many messages, or how long.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Amount {
    Messages(u64),
    Seconds(f64),
}

impl Amount {
    /// Its duration, if given.
    pub(super) fn duration(self) -> Option<Duration> {
        match self {
            Self::Messages(_) => None,
            Self::Seconds(seconds) => Some(Duration::from_secs_f64(seconds)),
        }
    }
}

impl TestParameters {
    /// The largest message size.
    pub(super) fn largest(&self) -> usize {
        self.sizes.iter().copied().max().unwrap_or(0)
    }

    /// Whether received messages are counted instead of sent ones, because messages may be lost.
    pub(super) fn counts_arrivals(&self) -> bool {
        self.service != Service::Rc && self.test.verb() == Verb::Send && !self.test.is_latency()
    }

    /// Limits the sizes for UD, where a message is one packet: larger sizes are left out of `--all`, and rejected alone.
    pub(super) fn fit(&mut self, mtu: PathMtu) -> anyhow::Result<()> {
        if self.service == Service::Ud {
            let smallest = self.sizes[0];
            self.sizes.retain(|&size| size <= mtu.bytes());
            ensure!(
                !self.sizes.is_empty(),
                "{smallest} bytes do not fit a datagram; choose -s {mtu} or less, or -c RC"
            );
        }
        Ok(())
    }

    /// Rejects plans that exceed the limits of the server.
    pub(super) fn check(&self) -> anyhow::Result<()> {
        let counts = [self.depth, self.receive_depth, self.queue_pairs];
        let seconds = match self.amount {
            Amount::Messages(_) => 1.0,
            Amount::Seconds(seconds) => seconds,
        };
        let possible = counts.iter().all(|&count| count > 0)
            && !self.sizes.is_empty()
            && !self.sizes.contains(&0)
            && LONGEST.contains(&seconds);
        ensure!(
            possible,
            "the client asks for nothing; use the same version of roci"
        );
        let memory = self.largest().saturating_mul(self.queue_pairs as usize);
        ensure!(
            memory <= MAX_MEMORY,
            "{} queue pairs with {} bytes each are too much; ask for fewer or smaller ones",
            self.queue_pairs,
            self.largest()
        );
        let entries = u64::from(self.depth.max(self.receive_depth)) * u64::from(self.queue_pairs);
        ensure!(
            entries <= MAX_ENTRIES,
            "too many requests at once; lower -t, -r or -q"
        );
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parameters() -> TestParameters {
        TestParameters {
            test: Test::WriteBw,
            service: Service::Rc,
            sizes: vec![64],
            amount: Amount::Messages(1),
            depth: 1,
            receive_depth: 1,
            queue_pairs: 1,
            mtu: None,
            bidirectional: false,
            events: false,
            vs_tcp: false,
            rounds: 1,
        }
    }

    #[test]
    fn harmful_parameters_of_a_client_are_rejected() {
        assert!(parameters().check().is_ok());
        let spoils: [fn(&mut TestParameters); 8] = [
            |parameters| parameters.sizes.clear(),
            |parameters| parameters.sizes.push(0),
            |parameters| parameters.sizes.push(usize::MAX),
            |parameters| parameters.depth = 0,
            |parameters| parameters.depth = u32::MAX,
            |parameters| parameters.queue_pairs = u32::MAX,
            |parameters| parameters.amount = Amount::Seconds(f64::NAN),
            |parameters| parameters.amount = Amount::Seconds(-1.0),
        ];
        for spoil in spoils {
            let mut parameters = parameters();
            spoil(&mut parameters);
            assert!(parameters.check().is_err(), "{parameters:?}");
        }
    }
}
