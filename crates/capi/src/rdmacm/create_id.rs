//! Creating and destroying ids.

use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::{Arc, Mutex};

use driver::rdma_cm::{CmId, PortSpace, ServiceType};

use super::event;
use super::event_channel::{self, Channel};
use super::id::{Id, Inner, State, ids, lock};
use crate::abi;
use crate::entry::{MinusOne, Output, entry};
use crate::errno::Errno;
use crate::object::object_at;
use crate::verbs::event_target::EventKind;

entry! {
    export fn rdma_create_id(
        channel: Option<&Channel>,
        id: Output<*mut abi::rdma_cm_id>,
        context: *mut c_void,
        space: u32,
    ) -> MinusOne {
        let mut id = id;
        let queue_pair = match space_of(space)? {
            PortSpace::Udp => abi::IBV_QPT_UD,
            _ => abi::IBV_QPT_RC,
        };
        id.put(create(channel, context, space, queue_pair)?.c());
        Ok(MinusOne::DONE)
    }

    export fn rdma_destroy_id(id: &Id) -> MinusOne {
        destroy(id);
        Ok(MinusOne::DONE)
    }
}

/// Creates an id for a queue pair type; without a channel it gets its own.
pub(super) fn create<'a>(
    channel: Option<&Channel>,
    context: *mut c_void,
    space: u32,
    queue_pair: u32,
) -> Result<&'a Id, Errno> {
    let port_space = space_of(space)?;
    let sync = channel.is_none();
    let channel = match channel {
        Some(channel) => channel,
        None => event_channel::create()?,
    };
    channel.check_not_inherited()?;
    let service_type = match port_space {
        PortSpace::Tcp => ServiceType::ReliableConnection,
        PortSpace::Udp => ServiceType::Datagram,
        PortSpace::Infiniband => service_type_of(queue_pair)?,
    };
    let cm_id = channel.events.create_id_for(port_space, service_type);
    let c_part = abi::rdma_cm_id {
        channel: channel.c(),
        context,
        ps: space,
        qp_type: queue_pair,
        ..Default::default()
    };
    let state = State {
        sync,
        ..State::default()
    };
    Ok(new_handle(c_part, cm_id, state))
}

/// The child id of a request, with the attributes of its listener.
pub(super) fn of_request<'a>(listener: &Id, cm_id: CmId) -> &'a Id {
    let of_listener = listener.read();
    let c_part = abi::rdma_cm_id {
        channel: of_listener.channel,
        context: of_listener.context,
        ps: of_listener.ps,
        qp_type: of_listener.qp_type,
        ..Default::default()
    };
    new_handle(c_part, cm_id, State::default())
}

fn new_handle<'a>(c_part: abi::rdma_cm_id, cm_id: CmId, state: State) -> &'a Id {
    let token = cm_id.token();
    let id = Id::make(
        c_part,
        Inner {
            token,
            cm_id: Mutex::new(Some(Arc::new(cm_id))),
            unacknowledged: Arc::default(),
            state: Mutex::new(state),
        },
    );
    let pointer_value = id.c().expose_provenance();
    ids().get_or_insert_default().insert(token, pointer_value);
    id
}

/// Destroys an id, after all its events are acknowledged.
pub(super) fn destroy(id: &Id) {
    ids().get_or_insert_default().remove(&id.token);
    let cm_id = lock(&id.cm_id).take();
    drop(cm_id);
    event::acknowledge_last(id);
    id.unacknowledged
        .wait("rdma_destroy_id", EventKind::Connection);
    if id.state().sync
        && let Ok(channel) = object_at::<&Channel, _>(id.read().channel)
    {
        channel.destroy();
    }
    id.destroy();
}

/// At exit, disconnects from all peers, as the kernel would do.
pub(crate) fn disconnect_all() {
    crate::entry::guard(|| {
        let left: Vec<usize> = ids()
            .take()
            .into_iter()
            .flat_map(HashMap::into_values)
            .collect();
        for pointer_value in left {
            let pointer = std::ptr::with_exposed_provenance_mut(pointer_value);
            drop(lock(&object_at::<&Id, _>(pointer)?.cm_id).take());
        }
        Ok(())
    });
}

const RDMA_PS_IPOIB: u32 = 2;

fn space_of(number: u32) -> Result<PortSpace, Errno> {
    let spaces = [PortSpace::Tcp, PortSpace::Udp, PortSpace::Infiniband];
    let space = spaces.into_iter().find(|it| *it as u32 == number);
    space.ok_or(match number {
        // Needs an InfiniBand network.
        RDMA_PS_IPOIB => Errno(libc::EPROTONOSUPPORT),
        _ => Errno::INVALID,
    })
}

fn service_type_of(queue_pair: u32) -> Result<ServiceType, Errno> {
    match queue_pair {
        abi::IBV_QPT_RC => Ok(ServiceType::ReliableConnection),
        abi::IBV_QPT_XRC_SEND | abi::IBV_QPT_XRC_RECV => Ok(ServiceType::ExtendedConnection),
        abi::IBV_QPT_UC => Ok(ServiceType::UnreliableConnection),
        abi::IBV_QPT_UD => Ok(ServiceType::Datagram),
        _ => Err(Errno::INVALID),
    }
}
