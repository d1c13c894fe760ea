//! Addresses and routes.

use std::ffi::c_int;
use std::time::Duration;

use libc::sockaddr;
use rocinante::rdma_cm::ConnectionError;

use super::id::Id;
use super::{address, device, event};
use crate::abi;
use crate::entry::{MinusOne, Pointer, entry};
use crate::errno::Errno;
use crate::object::behind;

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
        // What no device has, this machine doesn't have either.
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

/// Who has a channel of his own waits for the event of each call, and learns its outcome from it.
pub(super) fn complete(id: &Id) -> Result<(), Errno> {
    if !id.state().sync {
        return Ok(());
    }
    event::acknowledge_kept(id);
    let pointer = event::next(behind(id.read().channel)?)?;
    id.change(|c| c.event = pointer);
    let happened = behind::<&event::Event, _>(pointer)?.read();
    match (happened.status, happened.event) {
        (0, _) => Ok(()),
        (_, abi::RDMA_CM_EVENT_REJECTED) => Err(Errno(libc::ECONNREFUSED)),
        (status, _) => Err(Errno(status.saturating_abs())),
    }
}

/// The kernel takes the number as it is, so that a negative one means for ever.
fn timeout(milliseconds: c_int) -> Duration {
    Duration::from_millis(u64::from(milliseconds.cast_unsigned()))
}
