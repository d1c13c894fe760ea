//! `rdma_join_multicast`, `rdma_leave_multicast`.

use std::ffi::c_void;
use std::net::IpAddr;
use std::sync::Arc;

use driver::rdma_cm::{CallError, CmError};
use libc::sockaddr;

use super::id::{Id, JoinResult, Membership};
use super::resolve::complete;
use super::socket_address;
use crate::abi;
use crate::entry::{Input, MinusOne, Pointer, entry};
use crate::errno::Errno;
use crate::verbs::event_target::EventKind;
use crate::verbs::multicast::ibv_detach_mcast;

entry! {
    export fn rdma_join_multicast(
        id: &Id,
        group: Pointer<sockaddr>,
        context: *mut c_void,
    ) -> MinusOne {
        join(id, group.0, false, context)?;
        Ok(MinusOne::DONE)
    }

    export fn rdma_join_multicast_ex(
        id: &Id,
        attributes: Input<abi::rdma_cm_join_mc_attr_ex>,
        context: *mut c_void,
    ) -> MinusOne {
        const ADDRESS: u32 = 1;
        const FLAGS: u32 = 2;
        const SEND_ONLY: u32 = 1;
        let wanted = attributes.0;
        if wanted.comp_mask > ADDRESS | FLAGS {
            return Err(Errno::UNSUPPORTED);
        }
        if wanted.comp_mask != ADDRESS | FLAGS || wanted.join_flags > SEND_ONLY {
            return Err(Errno::INVALID);
        }
        join(id, wanted.addr, wanted.join_flags == SEND_ONLY, context)?;
        Ok(MinusOne::DONE)
    }

    export fn rdma_leave_multicast(id: &Id, group: Pointer<sockaddr>) -> MinusOne {
        let group = socket_address::ip_of(group.0)?;
        let membership = take(id, group).ok_or(Errno(libc::EADDRNOTAVAIL))?;
        let queue_pair = id.read().qp;
        if let Some(mut name) = membership.attached
            && !queue_pair.is_null()
        {
            // SAFETY: the id's own queue pair, and a GID that lives during the call.
            unsafe { ibv_detach_mcast(queue_pair, &raw mut name, 0) };
        }
        match id.cm_id()?.leave(group) {
            // A group that could not be joined is left, too.
            Ok(()) | Err(CmError::Call(CallError::NotJoined)) => {}
            Err(error) => return Err(error.into()),
        }
        (membership.unacknowledged).wait("rdma_leave_multicast", EventKind::Connection);
        Ok(MinusOne::DONE)
    }
}

fn join(
    id: &Id,
    group: *const sockaddr,
    send_only: bool,
    context: *mut c_void,
) -> Result<(), Errno> {
    let group = socket_address::ip_of(group)?;
    let cm_id = id.cm_id()?;
    let new = Membership {
        group,
        context,
        send_only,
        result: JoinResult::Awaited,
        attached: None,
        unacknowledged: Arc::default(),
    };
    // Before one that failed: its events are over.
    id.state().memberships.insert(0, new);
    let joined = cm_id.join(group, send_only);
    joined.inspect_err(|_| drop(id.state().memberships.remove(0)))?;
    complete(id)
}

fn take(id: &Id, group: IpAddr) -> Option<Membership> {
    let mut state = id.state();
    let index = state.memberships.iter().position(|it| it.group == group)?;
    Some(state.memberships.remove(index))
}
