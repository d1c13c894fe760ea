//! Tables that outlive an id: final responses, time-wait, half-open requests, and recently released
//! communication ids.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::{IpAddr, Ipv6Addr};
use std::time::Instant;

use wire::cm::CommunicationId;
use wire::{Qpn, mad};

use crate::timing;

/// A peer's device. The address is part of the key, because anyone can claim a GUID.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct RemoteDevice {
    pub(crate) address: IpAddr,
    pub(crate) guid: u64,
}

/// A connection, named by the peer's device and the peer's communication id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct RemoteConnection {
    pub(crate) device: RemoteDevice,
    pub(crate) id: CommunicationId,
}

/// A request that a peer may retransmit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum PeerRequest {
    Connection(RemoteConnection),
    Service(IpAddr, CommunicationId),
}

/// The keys of a table in the order in which they expire.
#[derive(Debug)]
struct Expiry<K>(BTreeSet<(Instant, K)>);

impl<K> Default for Expiry<K> {
    fn default() -> Self {
        Self(BTreeSet::new())
    }
}

impl<K: Ord> Expiry<K> {
    fn deadline(&self) -> Option<Instant> {
        self.0.first().map(|(until, _)| *until)
    }

    fn is_due(&self, now: Instant) -> bool {
        self.deadline().is_some_and(|until| until <= now)
    }
}

/// The final responses of the last minutes, for peers that retransmit their request. Without this
/// table, a rejected request would be delivered to the application a second time.
#[derive(Debug, Default)]
pub(crate) struct FinalResponses {
    responses: BTreeMap<PeerRequest, (Instant, Box<[u8; mad::LENGTH]>)>,
    expiry: Expiry<PeerRequest>,
}

impl FinalResponses {
    const CAPACITY: usize = 1024;

    pub(crate) fn remember(
        &mut self,
        now: Instant,
        request: PeerRequest,
        datagram: [u8; mad::LENGTH],
    ) {
        if self.responses.len() == Self::CAPACITY {
            self.remove_first();
        }
        let until = now + timing::RESPONSE_LIFETIME;
        let before = self.responses.insert(request, (until, Box::new(datagram)));
        if let Some((until, _)) = before {
            self.expiry.0.remove(&(until, request));
        }
        self.expiry.0.insert((until, request));
    }

    pub(crate) fn to(&self, request: &PeerRequest) -> Option<&[u8; mad::LENGTH]> {
        self.responses
            .get(request)
            .map(|(_, datagram)| datagram.as_ref())
    }

    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.expiry.deadline()
    }

    pub(crate) fn expire(&mut self, now: Instant) {
        while self.expiry.is_due(now) {
            self.remove_first();
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.responses.len()
    }

    fn remove_first(&mut self) {
        if let Some((_, request)) = self.expiry.0.pop_first() {
            self.responses.remove(&request);
        }
    }
}

/// A connection in time-wait whose id is destroyed.
#[derive(Debug)]
pub(crate) struct TimeWait {
    pub(crate) remote: RemoteConnection,
    pub(crate) qpn: Qpn,
    pub(crate) until: Instant,
}

/// All connections in time-wait whose id is destroyed.
#[derive(Debug, Default)]
pub(crate) struct TimeWaitTable {
    entries: BTreeMap<CommunicationId, TimeWait>,
    by_remote: BTreeMap<RemoteConnection, CommunicationId>,
    expiry: Expiry<CommunicationId>,
}

impl TimeWaitTable {
    pub(crate) fn add(&mut self, id: CommunicationId, entry: TimeWait, max: usize) {
        if self.entries.len() >= max {
            self.remove_first();
        }
        self.by_remote.insert(entry.remote, id);
        self.expiry.0.insert((entry.until, id));
        self.entries.insert(id, entry);
    }

    pub(crate) fn contains(&self, id: CommunicationId) -> bool {
        self.entries.contains_key(&id)
    }

    pub(crate) fn of_remote(&self, remote: &RemoteConnection) -> Option<CommunicationId> {
        self.by_remote.get(remote).copied()
    }

    pub(crate) fn uses(&self, qpn: Qpn) -> bool {
        self.entries.values().any(|entry| entry.qpn == qpn)
    }

    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.expiry.deadline()
    }

    pub(crate) fn expire(&mut self, now: Instant) {
        while self.expiry.is_due(now) {
            self.remove_first();
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    fn remove_first(&mut self) {
        let Some((_, id)) = self.expiry.0.pop_first() else {
            return;
        };
        let entry = self
            .entries
            .remove(&id)
            .expect("an entry is in both tables");
        if self.by_remote.get(&entry.remote) == Some(&id) {
            self.by_remote.remove(&entry.remote);
        }
    }
}

/// The source that half-open requests are counted for: an IPv4 address, or a /64 IPv6 network,
/// because one sender can own all addresses of such a network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Source(IpAddr);

impl Source {
    const NETWORK: u128 = (u64::MAX as u128) << 64;

    pub(crate) fn of(address: IpAddr) -> Self {
        Source(match address.to_canonical() {
            IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & Self::NETWORK).into(),
            ipv4 => ipv4,
        })
    }
}

/// How many requests of peers are half-open, in total and per source, and how many may be.
#[derive(Debug)]
pub(crate) struct HalfOpen {
    all: usize,
    by_source: BTreeMap<Source, usize>,
    max: usize,
    max_per_source: usize,
}

impl HalfOpen {
    pub(crate) fn new(max: usize, max_per_source: usize) -> Self {
        Self {
            all: 0,
            by_source: BTreeMap::new(),
            max,
            max_per_source,
        }
    }

    pub(crate) fn has_room(&self, source: Source) -> bool {
        self.all < self.max && self.from(source) < self.max_per_source
    }

    /// Whether more than half of the requests that are allowed exist.
    pub(crate) fn is_crowded(&self, source: Source) -> bool {
        self.all > self.max / 2 || self.from(source) > self.max_per_source / 2
    }

    fn from(&self, source: Source) -> usize {
        self.by_source.get(&source).copied().unwrap_or_default()
    }

    pub(crate) fn add(&mut self, source: Source) {
        self.all += 1;
        *self.by_source.entry(source).or_default() += 1;
    }

    pub(crate) fn remove(&mut self, source: Source) {
        let count = self
            .by_source
            .get_mut(&source)
            .expect("a removed source was added before");
        *count -= 1;
        if *count == 0 {
            self.by_source.remove(&source);
        }
        self.all -= 1;
    }

    pub(crate) fn len(&self) -> usize {
        self.all
    }
}

/// The communication ids that were released last.
#[derive(Debug, Default)]
pub(crate) struct RecentIds {
    in_order: VecDeque<CommunicationId>,
    all: BTreeSet<CommunicationId>,
}

impl RecentIds {
    const CAPACITY: usize = 4096;

    pub(crate) fn add(&mut self, communication_id: CommunicationId) {
        if self.in_order.len() == Self::CAPACITY
            && let Some(oldest) = self.in_order.pop_front()
        {
            self.all.remove(&oldest);
        }
        if self.all.insert(communication_id) {
            self.in_order.push_back(communication_id);
        }
    }

    pub(crate) fn contains(&self, communication_id: CommunicationId) -> bool {
        self.all.contains(&communication_id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(address: &str) -> Source {
        Source::of(address.parse().expect("an address"))
    }

    #[test]
    fn addresses_of_one_ipv6_network_are_one_source() {
        assert_eq!(source("2001:db8::1"), source("2001:db8::ffff:0:0:2"));
        assert_ne!(source("2001:db8::1"), source("2001:db8:0:1::1"));
    }

    #[test]
    fn each_ipv4_address_is_a_source() {
        assert_ne!(source("10.0.0.1"), source("10.0.0.2"));
        assert_ne!(source("::ffff:10.0.0.1"), source("::ffff:10.0.0.2"));
        assert_eq!(source("::ffff:10.0.0.1"), source("10.0.0.1"));
    }

    #[test]
    fn only_the_last_released_ids_are_recent() {
        let mut recent = RecentIds::default();
        for number in 0..=RecentIds::CAPACITY as u32 {
            recent.add(CommunicationId::new(number));
        }
        assert!(!recent.contains(CommunicationId::new(0)));
        assert!(recent.contains(CommunicationId::new(1)));
        assert!(recent.contains(CommunicationId::new(RecentIds::CAPACITY as u32)));
        assert_eq!(recent.all.len(), RecentIds::CAPACITY);
    }
}
