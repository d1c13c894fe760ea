//! The kinds of run, and how a seed chooses one.

use crate::rng::Rng;

/// A kind of run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scenario {
    /// Reliable connections over a faultless network: nothing may be retransmitted.
    Faultless,
    /// Reliable connections over a network with faults.
    Faulty,
    /// A faultless network, but receives are posted late.
    LateReceivers,
    /// Requests that must be rejected, over networks with and without faults.
    Violations,
    /// Memory windows are bound, used and invalidated.
    Windows,
    /// Queue pairs are drained, or moved to ERROR while they work.
    Disruptions,
    /// A host goes down.
    HostFailure,
    /// Unreliable connections.
    Unreliable,
    /// Extended reliable connections with shared receive queues.
    Extended,
    /// Datagrams to single queue pairs and to multicast groups.
    Datagrams,
    /// A completion queue overruns.
    Overrun,
    /// Processes that connect with connection managers.
    Connections,
}

impl Scenario {
    /// The scenario of a seed.
    #[must_use]
    pub fn of_seed(seed: u64) -> Self {
        Self::draw(&mut Rng::new(seed))
    }

    /// Draws a scenario.
    pub(crate) fn draw(rng: &mut Rng) -> Self {
        rng.weighted(&[
            (10, Scenario::Faultless),
            (30, Scenario::Faulty),
            (8, Scenario::LateReceivers),
            (15, Scenario::Violations),
            (8, Scenario::Windows),
            (8, Scenario::Disruptions),
            (5, Scenario::HostFailure),
            (8, Scenario::Unreliable),
            (8, Scenario::Extended),
            (6, Scenario::Datagrams),
            (1, Scenario::Overrun),
            (30, Scenario::Connections),
        ])
    }
}
