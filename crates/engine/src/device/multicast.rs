//! Multicast groups: which datagram queue pairs receive the packets of a group.

use std::collections::BTreeMap;

use wire::{Gid, Qpn};

use super::Device;
use crate::limits::Limits;
use crate::state::QueuePairType;
use crate::system_refusal::SystemRefusal;

/// Why a queue pair could not join or leave a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MulticastError {
    /// The GID is not a multicast address.
    #[error("{0} is not a multicast address")]
    NotMulticast(Gid),
    /// The queue pair is not a datagram queue pair.
    #[error("only datagram queue pairs can be in a multicast group")]
    NotDatagram,
    /// The queue pair does not exist.
    #[error("no such queue pair: it was destroyed or belongs to another device")]
    UnknownQueuePair,
    /// The limit on groups or members is reached.
    #[error("the device has no room for another member of a multicast group")]
    Exhausted,
    /// The queue pair is not a member.
    #[error("the queue pair is not in the group {0}")]
    NotMember(Gid),
    /// A device of the system refused it.
    #[error(transparent)]
    System(#[from] SystemRefusal),
}

/// The members of each group.
pub(super) struct Groups {
    members: BTreeMap<[u8; 16], Vec<Qpn>>,
    limits: Limits,
}

impl Groups {
    pub(super) fn new(limits: Limits) -> Self {
        Self {
            members: BTreeMap::new(),
            limits,
        }
    }

    pub(super) fn members(&self, group: Gid) -> Vec<Qpn> {
        self.members
            .get(&group.bytes())
            .cloned()
            .unwrap_or_default()
    }

    fn join(&mut self, group: Gid, member: Qpn) -> Result<(), MulticastError> {
        let members = self.members.get(&group.bytes());
        if members.is_some_and(|members| members.contains(&member)) {
            return Ok(());
        }
        let room = match members {
            Some(members) => members.len() < self.limits.group_members as usize,
            None => self.members.len() < self.limits.multicast_groups as usize,
        };
        let memberships: usize = self.members.values().map(Vec::len).sum();
        if !room || memberships >= self.limits.group_memberships as usize {
            return Err(MulticastError::Exhausted);
        }
        self.members.entry(group.bytes()).or_default().push(member);
        Ok(())
    }

    fn leave(&mut self, group: Gid, member: Qpn) -> bool {
        let Some(members) = self.members.get_mut(&group.bytes()) else {
            return false;
        };
        let before = members.len();
        members.retain(|&other| other != member);
        let left = members.len() < before;
        if members.is_empty() {
            self.members.remove(&group.bytes());
        }
        left
    }

    pub(super) fn leave_all(&mut self, member: Qpn) {
        self.members.retain(|_, members| {
            members.retain(|&other| other != member);
            !members.is_empty()
        });
    }
}

impl Device {
    /// Adds a queue pair to a multicast group. The driver joins the IP group.
    pub fn attach_multicast(&mut self, number: Qpn, group: Gid) -> Result<(), MulticastError> {
        let queue_pair = self
            .queue_pairs
            .get(number)
            .ok_or(MulticastError::UnknownQueuePair)?;
        if queue_pair.init().kind != QueuePairType::Ud {
            return Err(MulticastError::NotDatagram);
        }
        if !group.is_multicast() {
            return Err(MulticastError::NotMulticast(group));
        }
        self.groups.join(group, number)
    }

    /// Removes a queue pair from a multicast group.
    pub fn detach_multicast(&mut self, number: Qpn, group: Gid) -> Result<(), MulticastError> {
        if self.groups.leave(group, number) {
            Ok(())
        } else {
            Err(MulticastError::NotMember(group))
        }
    }
}
