//! Multicast groups: the driver joins them, the id keeps the list of its groups.

use std::net::IpAddr;

use wire::Gid;

use crate::error::CallError;
use crate::event::{EventKind, Failure, Group, Instruction};
use crate::id::{Id, IdEntry, Membership, State};
use crate::manager::Manager;
use crate::manager::sidr::settle_queue_key;
use crate::qp_attributes::PathAttributes;
use crate::service_type::ServiceType;

impl Manager {
    /// Joins a multicast group, like `rdma_join_multicast`. Results in an event.
    pub fn join(&mut self, id: Id, group: IpAddr, send_only: bool) -> Result<(), CallError> {
        let entry = self.entry_mut(id)?;
        if entry.kind != ServiceType::Datagram {
            return Err(CallError::NotDatagram);
        }
        let bound = matches!(entry.state, State::AddressBound | State::AddressResolved);
        let source = entry.source.map(|source| source.ip());
        let (true, Some(source)) = (bound, source.filter(|ip| !ip.is_unspecified())) else {
            return Err(CallError::WrongState(entry.state));
        };
        if source.is_ipv4() != group.is_ipv4() {
            return Err(CallError::FamilyMismatch);
        }
        if entry.memberships.iter().any(|m| m.group == group) {
            return Err(CallError::AlreadyJoined);
        }
        entry.memberships.push(Membership {
            group,
            joined: false,
        });
        self.instructions.push_back(Instruction::JoinMulticast {
            id,
            source,
            group,
            send_only,
        });
        Ok(())
    }

    /// The driver's result of joining a group. A late call is ignored.
    pub fn multicast_joined(&mut self, id: Id, group: IpAddr, result: Result<(), Failure>) {
        let Ok(entry) = self.entry_mut(id) else {
            return;
        };
        let memberships = &mut entry.memberships;
        let Some(index) = memberships
            .iter()
            .position(|m| m.group == group && !m.joined)
        else {
            return;
        };
        let result = result.and_then(|()| {
            let settled = settle_queue_key(entry, None);
            settled.map_err(|_| Failure::QueueKeyMismatch)
        });
        let kind = match result {
            Ok(queue_key) => {
                entry.memberships[index].joined = true;
                EventKind::MulticastJoin(Group {
                    group,
                    queue_key,
                    path: path_to(group, entry),
                })
            }
            Err(failure) => {
                entry.memberships.remove(index);
                EventKind::MulticastError { group, failure }
            }
        };
        self.emit(id, kind);
    }

    /// Leaves a group, like `rdma_leave_multicast`.
    pub fn leave(&mut self, id: Id, group: IpAddr) -> Result<(), CallError> {
        let memberships = &mut self.entry_mut(id)?.memberships;
        let index = memberships.iter().position(|m| m.group == group);
        memberships.remove(index.ok_or(CallError::NotJoined)?);
        self.leave_group(id, group);
        Ok(())
    }

    pub(super) fn leave_all_groups(&mut self, id: Id) {
        for membership in std::mem::take(&mut self.known(id).memberships) {
            self.leave_group(id, membership.group);
        }
    }

    /// Instructs the driver to leave, unless it has not fetched the instruction to join.
    fn leave_group(&mut self, id: Id, left: IpAddr) {
        let waiting = self.instructions.len();
        self.instructions.retain(|instruction| {
            !matches!(instruction,
                Instruction::JoinMulticast { id: of, group, .. } if *of == id && *group == left)
        });
        if self.instructions.len() == waiting {
            let group = left;
            self.instructions
                .push_back(Instruction::LeaveMulticast { id, group });
        }
    }
}

/// The path to a group. Linux uses the same hop limit for multicast and unicast.
fn path_to(group: IpAddr, entry: &IdEntry) -> PathAttributes {
    let local = entry.source.map(|source| source.ip());
    PathAttributes {
        local_gid: local.map(Gid::from).unwrap_or_default(),
        remote_gid: Gid::from(group),
        flow_label: 0,
        traffic_class: entry.options.traffic_class,
        hop_limit: 64,
        service_level: 0,
        packet_rate: 0,
    }
}
