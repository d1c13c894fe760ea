//! Ids that wait in their calls, with everything that belongs to them made at once.

use super::event::{self, Event};
use super::id::{self, Id};
use super::{address, queue_pair, resolve};
use crate::abi;
use crate::entry::{Given, MinusOne, Place, Pointer, entry};
use crate::errno::Errno;
use crate::object::behind;

/// How long an address or a route may be looked for, in milliseconds.
const PATIENCE: i32 = 2000;

entry! {
    export fn rdma_create_ep(
        id: Place<*mut abi::rdma_cm_id>,
        address: Given<abi::rdma_addrinfo>,
        domain: Pointer<abi::ibv_pd>,
        init: Pointer<abi::ibv_qp_init_attr>,
    ) -> MinusOne {
        let mut id = id;
        let address = address.0;
        let space = address.ai_port_space.cast_unsigned();
        let queue_pair = address.ai_qp_type.cast_unsigned();
        let made = id::create(None, std::ptr::null_mut(), space, queue_pair)?;
        let prepared = match address.ai_flags & abi::RAI_PASSIVE {
            0 => prepare_to_connect(made, &address, domain.0, init.0),
            _ => prepare_to_listen(made, &address, domain.0, init.0),
        };
        prepared.inspect_err(|_| destroy(made))?;
        id.put(made.c());
        Ok(MinusOne::DONE)
    }

    export fn rdma_destroy_ep(id: &Id) {
        destroy(id);
        Ok(())
    }

    export fn rdma_get_request(
        listener: &Id,
        id: Place<*mut abi::rdma_cm_id>,
    ) -> MinusOne {
        let mut id = id;
        if !listener.state().sync {
            return Err(Errno::INVALID);
        }
        event::acknowledge_kept(listener);
        let pointer = event::next(behind(listener.read().channel)?)?;
        // A program that looks for the reason of a failure finds the event at the listener.
        let taken = take_request(listener, pointer);
        id.put(taken.inspect_err(|_| listener.change(|c| c.event = pointer))?);
        Ok(MinusOne::DONE)
    }
}

fn prepare_to_listen(
    id: &Id,
    address: &abi::rdma_addrinfo,
    domain: *mut abi::ibv_pd,
    init: *mut abi::ibv_qp_init_attr,
) -> Result<(), Errno> {
    resolve::bind(id, address.ai_src_addr)?;
    if !domain.is_null() {
        id.change(|c| c.pd = domain);
    }
    // SAFETY: null, or by the header's promise a live structure.
    let init = unsafe { init.as_ref() }.copied();
    id.state().init = init.map(|init| abi::ibv_qp_init_attr {
        qp_type: address.ai_qp_type.cast_unsigned(),
        ..init
    });
    Ok(())
}

fn prepare_to_connect(
    id: &Id,
    address: &abi::rdma_addrinfo,
    domain: *mut abi::ibv_pd,
    init: *mut abi::ibv_qp_init_attr,
) -> Result<(), Errno> {
    // Connections have a byte for the length of their private data.
    if address.ai_connect_len > usize::from(u8::MAX) {
        return Err(Errno::INVALID);
    }
    resolve::resolve_address(id, address.ai_src_addr, address.ai_dst_addr, PATIENCE)?;
    resolve::resolve_route(id, PATIENCE)?;
    // SAFETY: null, or by the header's promise a live structure, which is given up for this call.
    if let Some(init) = unsafe { init.as_mut() } {
        init.qp_type = address.ai_qp_type.cast_unsigned();
        queue_pair::create(id, domain, init)?;
    }
    id.state().preamble = address::bytes_at(address.ai_connect, address.ai_connect_len);
    Ok(())
}

fn destroy(id: &Id) {
    if !id.read().qp.is_null() {
        queue_pair::destroy(id);
    }
    if !id.read().srq.is_null() {
        queue_pair::destroy_shared(id);
    }
    id::destroy(id);
}

/// The id of a request, with its queue pair if the listener knows what kind of.
fn take_request(
    listener: &Id,
    pointer: *mut abi::rdma_cm_event,
) -> Result<*mut abi::rdma_cm_id, Errno> {
    let happened = behind::<&Event, _>(pointer)?.read();
    if happened.status != 0 {
        return Err(Errno(happened.status.saturating_abs()));
    }
    if happened.event != abi::RDMA_CM_EVENT_CONNECT_REQUEST {
        return Err(Errno::INVALID);
    }
    let id: &Id = behind(happened.id)?;
    let init = listener.state().init;
    if let Some(mut init) = init {
        queue_pair::create(id, listener.read().pd, &mut init)?;
    }
    id.change(|c| c.event = pointer);
    Ok(happened.id)
}
