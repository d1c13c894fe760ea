//! `rdma_bind_addr`, `rdma_resolve_addr`, `rdma_resolve_route`, `rdma_resolve_addrinfo`.

use std::ffi::{c_char, c_int};
use std::time::Duration;

use libc::sockaddr;

use super::addrinfo::LookUpError;
use super::id::Id;
use super::{addrinfo, errno, event, get_event, shared_device, socket_address};
use crate::abi;
use crate::entry::{MinusOne, Output, Pointer, entry};
use crate::errno::Errno;
use crate::object::object_at;

entry! {
    export fn rdma_bind_addr(id: &Id, local: Pointer<sockaddr>) -> MinusOne {
        bind(id, local.0)?;
        Ok(MinusOne::DONE)
    }

    export fn rdma_resolve_addr(
        id: &Id,
        source: Pointer<sockaddr>,
        destination: Pointer<sockaddr>,
        timeout_ms: c_int,
    ) -> MinusOne {
        resolve_address(id, source.0, destination.0, timeout_ms)?;
        Ok(MinusOne::DONE)
    }

    export fn rdma_resolve_route(id: &Id, timeout_ms: c_int) -> MinusOne {
        resolve_route(id, timeout_ms)?;
        Ok(MinusOne::DONE)
    }

    /// Looks up a name and reports the result as an event. The calling thread does the work.
    export fn rdma_resolve_addrinfo(
        id: &Id,
        node: Pointer<c_char>,
        service: Pointer<c_char>,
        hints: Pointer<abi::rdma_addrinfo>,
    ) -> MinusOne {
        // SAFETY: null, or by the header's promise a live structure.
        let flags = unsafe { hints.0.as_ref() }.map_or(0, |hints| hints.ai_flags);
        if flags & abi::RAI_SA != 0 {
            // Ethernet has no subnet administrator.
            return Err(Errno::UNSUPPORTED);
        }
        // The program must take the last result first.
        if id.state().found.is_some() {
            return Err(Errno::BUSY);
        }
        let (event, status) = match addrinfo::look_up(node.0, service.0, hints.0) {
            Ok(list) => {
                id.state().found.replace(list);
                (abi::RDMA_CM_EVENT_ADDRINFO_RESOLVED, 0)
            }
            Err(LookUpError::Resolver(code)) => (abi::RDMA_CM_EVENT_ADDRINFO_ERROR, code),
            Err(LookUpError::Errno(errno)) => (abi::RDMA_CM_EVENT_ADDRINFO_ERROR, -errno.0),
        };
        id.cm_id()?.write_event(event, status, 0);
        complete(id)?;
        Ok(MinusOne::DONE)
    }

    export fn rdma_query_addrinfo(id: &Id, found: Output<*mut abi::rdma_addrinfo>) -> MinusOne {
        let mut found = found;
        found.put(id.state().found.take().ok_or(Errno::NO_ENTRY)?);
        Ok(MinusOne::DONE)
    }
}

pub(super) fn bind(id: &Id, local: *const sockaddr) -> Result<(), Errno> {
    let local = socket_address::given(local)?;
    if local.ip().is_unspecified() {
        shared_device::open_all()?;
    }
    id.cm_id()?.bind(local).map_err(errno::of_bind)?;
    id.refresh()
}

pub(super) fn resolve_address(
    id: &Id,
    source: *const sockaddr,
    destination: *const sockaddr,
    timeout_ms: c_int,
) -> Result<(), Errno> {
    let peer = socket_address::given(destination)?;
    let source = socket_address::optional(source)?;
    id.cm_id()?
        .resolve_address(source, peer, timeout(timeout_ms))?;
    id.change(|c| c.route.addr.dst_storage = socket_address::stored(peer));
    complete(id)
}

pub(super) fn resolve_route(id: &Id, timeout_ms: c_int) -> Result<(), Errno> {
    id.cm_id()?.resolve_route(timeout(timeout_ms))?;
    complete(id)
}

/// For an id with its own channel, waits for the event of the call and returns its result.
pub(super) fn complete(id: &Id) -> Result<(), Errno> {
    if !id.state().sync {
        return Ok(());
    }
    event::acknowledge_last(id);
    let pointer = get_event::next(object_at(id.read().channel)?)?;
    id.change(|c| c.event = pointer);
    let happened = object_at::<&event::Event, _>(pointer)?.read();
    match (happened.status, happened.event) {
        (0, _) => Ok(()),
        (_, abi::RDMA_CM_EVENT_REJECTED) => Err(Errno(libc::ECONNREFUSED)),
        (status, _) => Err(Errno(status.saturating_abs())),
    }
}

/// The kernel takes the number as unsigned, so a negative one is very long.
fn timeout(milliseconds: c_int) -> Duration {
    Duration::from_millis(u64::from(milliseconds.cast_unsigned()))
}
