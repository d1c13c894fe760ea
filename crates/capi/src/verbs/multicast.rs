//! Multicast groups.

use std::ffi::c_int;
use std::sync::{MutexGuard, PoisonError};

use wire::Gid;

use super::queue_pair::{Pair, Qp};
use crate::abi;
use crate::entry::{Input, entry};
use crate::errno::Errno;
use crate::object::gid_of;

entry! {
    export fn ibv_attach_mcast(queue_pair: &Qp, group: Input<abi::ibv_gid>, _lid: u16) -> c_int {
        queue_pair.check_handle()?;
        let group = gid_of(&group.0);
        let driver = &queue_pair.driver;
        queue_pair.open.check_not_inherited()?;
        driver.call_without_transmit(|device| device.attach_multicast(queue_pair.number, group))?;
        let mut groups = groups_of(queue_pair);
        if groups.contains(&group) {
            return Ok(0);
        }
        if let Err(error) = driver.join(group) {
            let _ = driver.call_without_transmit(|device| device.detach_multicast(queue_pair.number, group));
            return Err(Errno::from_system(&error).unwrap_or(Errno::INVALID));
        }
        groups.push(group);
        Ok(0)
    }

    export fn ibv_detach_mcast(queue_pair: &Qp, group: Input<abi::ibv_gid>, _lid: u16) -> c_int {
        let group = gid_of(&group.0);
        let driver = &queue_pair.driver;
        driver.call_without_transmit(|device| device.detach_multicast(queue_pair.number, group))?;
        let mut groups = groups_of(queue_pair);
        groups.retain(|other| *other != group);
        driver.leave(group);
        Ok(0)
    }
}

/// Whether it is in a group.
pub(super) fn is_member(queue_pair: &Pair) -> bool {
    !groups_of(queue_pair).is_empty()
}

/// Leaves all groups, so that the queue pair can be destroyed.
pub(crate) fn leave_all(queue_pair: &Pair) {
    let left: Vec<Gid> = groups_of(queue_pair).drain(..).collect();
    for group in left {
        queue_pair.driver.leave(group);
    }
}

fn groups_of(queue_pair: &Pair) -> MutexGuard<'_, Vec<Gid>> {
    let groups = queue_pair.groups.lock();
    groups.unwrap_or_else(PoisonError::into_inner)
}
