//! `rdma_create_ep`: an id without a channel, with its queue pair, created in one call.

use super::event::{self, Event};
use super::id::Id;
use super::{create_id, get_event, queue_pair, resolve, socket_address};
use crate::abi;
use crate::entry::{Input, MinusOne, Output, Pointer, entry};
use crate::errno::Errno;
use crate::object::object_at;

/// The limit for resolving an address or a route, in milliseconds.
const RESOLVE_TIMEOUT_MS: i32 = 2000;

entry! {
    export fn rdma_create_ep(
        id: Output<*mut abi::rdma_cm_id>,
        address: Input<abi::rdma_addrinfo>,
        domain: Pointer<abi::ibv_pd>,
        init: Pointer<abi::ibv_qp_init_attr>,
    ) -> MinusOne {
        let mut id = id;
        let address = address.0;
        let space = address.ai_port_space.cast_unsigned();
        let queue_pair = address.ai_qp_type.cast_unsigned();
        let made = create_id::create(None, std::ptr::null_mut(), space, queue_pair)?;
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
        id: Output<*mut abi::rdma_cm_id>,
    ) -> MinusOne {
        let mut id = id;
        if !listener.state().sync {
            return Err(Errno::INVALID);
        }
        event::acknowledge_last(listener);
        let pointer = get_event::next(object_at(listener.read().channel)?)?;
        // After a failure the program finds the event at the listener.
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
    // The length of private data has one byte.
    if address.ai_connect_len > usize::from(u8::MAX) {
        return Err(Errno::INVALID);
    }
    resolve::resolve_address(
        id,
        address.ai_src_addr,
        address.ai_dst_addr,
        RESOLVE_TIMEOUT_MS,
    )?;
    resolve::resolve_route(id, RESOLVE_TIMEOUT_MS)?;
    // SAFETY: null, or by the header's promise a live structure, which no other thread uses during this call.
    if let Some(init) = unsafe { init.as_mut() } {
        init.qp_type = address.ai_qp_type.cast_unsigned();
        queue_pair::create(id, domain, init)?;
    }
    id.state().preamble = socket_address::bytes_at(address.ai_connect, address.ai_connect_len);
    Ok(())
}

fn destroy(id: &Id) {
    if !id.read().qp.is_null() {
        queue_pair::destroy(id);
    }
    if !id.read().srq.is_null() {
        queue_pair::destroy_shared(id);
    }
    create_id::destroy(id);
}

/// The id of a request, with a queue pair if the listener has the attributes for one.
fn take_request(
    listener: &Id,
    pointer: *mut abi::rdma_cm_event,
) -> Result<*mut abi::rdma_cm_id, Errno> {
    let happened = object_at::<&Event, _>(pointer)?.read();
    if happened.status != 0 {
        return Err(Errno(happened.status.saturating_abs()));
    }
    if happened.event != abi::RDMA_CM_EVENT_CONNECT_REQUEST {
        return Err(Errno::INVALID);
    }
    let id: &Id = object_at(happened.id)?;
    let init = listener.state().init;
    if let Some(mut init) = init {
        queue_pair::create(id, listener.read().pd, &mut init)?;
    }
    id.change(|c| c.event = pointer);
    Ok(happened.id)
}
