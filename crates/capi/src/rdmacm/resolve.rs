//! `rdma_bind_addr`, `rdma_resolve_addr`, `rdma_resolve_route`.

use std::ffi::c_int;
use std::time::Duration;

use libc::sockaddr;
use rocinante::rdma_cm::ConnectionError;

use super::id::Id;
use super::{address, device, event};
use crate::abi;
use crate::entry::{MinusOne, Pointer, entry};
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
}

pub(super) fn bind(id: &Id, local: *const sockaddr) -> Result<(), Errno> {
    let local = address::given(local)?;
    if local.ip().is_unspecified() {
        device::open_all()?;
    }
    let bound = id.identifier()?.bind(local);
    bound.map_err(|error| match error {
        // An address without a device is not an address of this host.
        ConnectionError::NoDevice(_) => Errno(libc::EADDRNOTAVAIL),
        error => error.into(),
    })?;
    id.refresh()
}

pub(super) fn resolve_address(
    id: &Id,
    source: *const sockaddr,
    destination: *const sockaddr,
    timeout_ms: c_int,
) -> Result<(), Errno> {
    let peer = address::given(destination)?;
    let source = address::optional(source)?;
    id.identifier()?
        .resolve_address(source, peer, timeout(timeout_ms))?;
    id.change(|c| c.route.addr.dst_storage = address::stored(peer));
    complete(id)
}

pub(super) fn resolve_route(id: &Id, timeout_ms: c_int) -> Result<(), Errno> {
    id.identifier()?.resolve_route(timeout(timeout_ms))?;
    complete(id)
}

/// For an id with its own channel, waits for the event of the call and returns its result.
pub(super) fn complete(id: &Id) -> Result<(), Errno> {
    if !id.state().sync {
        return Ok(());
    }
    event::acknowledge_last(id);
    let pointer = event::next(object_at(id.read().channel)?)?;
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
