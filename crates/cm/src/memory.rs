//! What outlives an id: answers that may be asked for again, and identifiers that must not be used
//! again too early.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::{IpAddr, Ipv6Addr};
use std::time::Instant;

use wire::cm::CommunicationId;
use wire::{Qpn, mad};

use crate::timing;

/// A peer's device. The address belongs to it, because anyone can claim a GUID.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct RemoteDevice {
    pub(crate) address: IpAddr,
    pub(crate) guid: u64,
}

/// What a peer calls a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct RemoteName {
    pub(crate) device: RemoteDevice,
    pub(crate) id: CommunicationId,
}

/// A request that a peer may repeat.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Asked {
    Connection(RemoteName),
    Service(IpAddr, CommunicationId),
}

/// The final answers of the last minutes, for peers that did not hear them. Without it, a request
/// that was refused would come to the application a second time.
#[derive(Debug, Default)]
pub(crate) struct Answers {
    answers: BTreeMap<Asked, (Instant, Box<[u8; mad::LENGTH]>)>,
    first_to_go: BTreeSet<(Instant, Asked)>,
}

impl Answers {
    const MOST: usize = 1024;

    pub(crate) fn remember(&mut self, now: Instant, asked: Asked, datagram: [u8; mad::LENGTH]) {
        if self.answers.len() == Self::MOST {
            self.forget_first();
        }
        let until = now + timing::ANSWER_LIFE_TIME;
        let before = self.answers.insert(asked, (until, Box::new(datagram)));
        if let Some((until, _)) = before {
            self.first_to_go.remove(&(until, asked));
        }
        self.first_to_go.insert((until, asked));
    }

    pub(crate) fn to(&self, asked: &Asked) -> Option<&[u8; mad::LENGTH]> {
        self.answers
            .get(asked)
            .map(|(_, datagram)| datagram.as_ref())
    }

    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.first_to_go.first().map(|&(until, _)| until)
    }

    pub(crate) fn expire(&mut self, now: Instant) {
        while self.deadline().is_some_and(|until| until <= now) {
            self.forget_first();
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.answers.len()
    }

    fn forget_first(&mut self) {
        if let Some((_, asked)) = self.first_to_go.pop_first() {
            self.answers.remove(&asked);
        }
    }
}

/// A connection whose id is destroyed, but whose packets may still be under way.
#[derive(Debug)]
pub(crate) struct Ghost {
    pub(crate) remote: RemoteName,
    pub(crate) qpn: Qpn,
    pub(crate) until: Instant,
}

/// All of those.
#[derive(Debug, Default)]
pub(crate) struct Ghosts {
    ghosts: BTreeMap<CommunicationId, Ghost>,
    by_remote: BTreeMap<RemoteName, CommunicationId>,
    first_to_go: BTreeSet<(Instant, CommunicationId)>,
}

impl Ghosts {
    pub(crate) fn add(&mut self, id: CommunicationId, ghost: Ghost, most: usize) {
        if self.ghosts.len() >= most {
            self.drop_first();
        }
        self.by_remote.insert(ghost.remote, id);
        self.first_to_go.insert((ghost.until, id));
        self.ghosts.insert(id, ghost);
    }

    pub(crate) fn contains(&self, id: CommunicationId) -> bool {
        self.ghosts.contains_key(&id)
    }

    pub(crate) fn of_remote(&self, remote: &RemoteName) -> Option<CommunicationId> {
        self.by_remote.get(remote).copied()
    }

    pub(crate) fn uses(&self, qpn: Qpn) -> bool {
        self.ghosts.values().any(|ghost| ghost.qpn == qpn)
    }

    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.first_to_go.first().map(|&(until, _)| until)
    }

    pub(crate) fn expire(&mut self, now: Instant) {
        while self.deadline().is_some_and(|until| until <= now) {
            self.drop_first();
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.ghosts.len()
    }

    fn drop_first(&mut self) {
        let Some((_, id)) = self.first_to_go.pop_first() else {
            return;
        };
        let ghost = self.ghosts.remove(&id).expect("a ghost is in both tables");
        if self.by_remote.get(&ghost.remote) == Some(&id) {
            self.by_remote.remove(&ghost.remote);
        }
    }
}

/// Whose half-open requests are counted together: an IPv4 address, or an IPv6 network of 64 bits,
/// because one sender can have all addresses of such a network.
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

/// How many requests of peers are half-open, in all and from each source.
#[derive(Debug, Default)]
pub(crate) struct HalfOpen {
    all: usize,
    by_source: BTreeMap<Source, usize>,
}

impl HalfOpen {
    pub(crate) fn has_room(&self, source: Source, most: usize, most_of_one: usize) -> bool {
        let of_one = self.by_source.get(&source).copied().unwrap_or_default();
        self.all < most && of_one < most_of_one
    }

    pub(crate) fn add(&mut self, source: Source) {
        self.all += 1;
        *self.by_source.entry(source).or_default() += 1;
    }

    pub(crate) fn remove(&mut self, source: Source) {
        let count = self.by_source.get_mut(&source).expect("it was added");
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

/// The identifiers that were released last.
#[derive(Debug, Default)]
pub(crate) struct Recent {
    in_order: VecDeque<CommunicationId>,
    all: BTreeSet<CommunicationId>,
}

impl Recent {
    const MOST: usize = 4096;

    pub(crate) fn add(&mut self, identifier: CommunicationId) {
        if self.in_order.len() == Self::MOST
            && let Some(oldest) = self.in_order.pop_front()
        {
            self.all.remove(&oldest);
        }
        if self.all.insert(identifier) {
            self.in_order.push_back(identifier);
        }
    }

    pub(crate) fn contains(&self, identifier: CommunicationId) -> bool {
        self.all.contains(&identifier)
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
    fn only_the_last_identifiers_are_recent() {
        let mut recent = Recent::default();
        for number in 0..=Recent::MOST as u32 {
            recent.add(CommunicationId::new(number));
        }
        assert!(!recent.contains(CommunicationId::new(0)));
        assert!(recent.contains(CommunicationId::new(1)));
        assert!(recent.contains(CommunicationId::new(Recent::MOST as u32)));
        assert_eq!(recent.all.len(), Recent::MOST);
    }
}
