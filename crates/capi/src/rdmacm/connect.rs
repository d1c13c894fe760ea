//! `rdma_connect`, `rdma_listen`, `rdma_accept`, `rdma_reject`, `rdma_disconnect`.

use std::ffi::{c_int, c_void};

use driver::rdma_cm::{Parameters, RejectReason, ServiceType};
use engine::MAX_RESPONDER_RESOURCES;
use wire::Qpn;

use super::event;
use super::id::Id;
use super::queue_pair_state::{self, Depths};
use super::resolve::complete;
use super::socket_address::bytes_at;
use crate::abi;
use crate::entry::{Input, MinusOne, Output, Pointer, entry};
use crate::errno::Errno;
use crate::object::object_at;
use crate::verbs::queue_pair::Qp;

/// Means as many reads and atomics as the device allows, or as the peer asks for.
const AS_MANY_AS_POSSIBLE: u8 = 0xff;

entry! {
    export fn rdma_connect(id: &Id, parameters: Pointer<abi::rdma_conn_param>) -> MinusOne {
        let given = given(id, parameters.0)?;
        // A connection needs a queue pair, at the id or by its number; a request for a datagram service does not.
        if given.is_none() && id.read().qp.is_null() && id.read().ps == abi::RDMA_PS_TCP {
            return Err(Errno::INVALID);
        }
        let wanted = |asked: fn(&abi::rdma_conn_param) -> u8| {
            let asked = given.map(|given| asked(&given));
            asked.filter(|it| *it != AS_MANY_AS_POSSIBLE).unwrap_or(MAX_RESPONDER_RESOURCES)
        };
        let depths = Depths {
            responder_resources: wanted(|it| it.responder_resources),
            initiator_depth: wanted(|it| it.initiator_depth),
        };
        let private_data = private_data(id, given.as_ref())?;
        let cm_id = id.cm_id()?;
        cm_id.connect(&parameters_of(id, given.as_ref(), depths, &private_data))?;
        id.state().preamble.clear();
        complete(id)?;
        Ok(MinusOne::DONE)
    }

    export fn rdma_listen(id: &Id, backlog: c_int) -> MinusOne {
        id.cm_id()?.listen(usize::try_from(backlog).unwrap_or(0))?;
        id.refresh()?;
        Ok(MinusOne::DONE)
    }

    export fn rdma_accept(id: &Id, parameters: Pointer<abi::rdma_conn_param>) -> MinusOne {
        let given = given(id, parameters.0)?;
        if given.is_none() && id.read().qp.is_null() {
            return Err(Errno::INVALID);
        }
        let depths = agreed(id, given.as_ref());
        let private_data = private_data(id, given.as_ref())?;
        let cm_id = id.cm_id()?;
        let datagram = cm_id.service_type() == ServiceType::Datagram;
        if !datagram {
            queue_pair_state::connect_queue_pair(id, Some(depths))?;
        }
        let accepted = cm_id.accept(&parameters_of(id, given.as_ref(), depths, &private_data));
        accepted.inspect_err(|_| {
            queue_pair_state::set_error_state(id);
            // As in the kernel: the peer need not wait for an acceptance that failed.
            let _ = cm_id.reject(RejectReason::Consumer, &[]);
        })?;
        if !datagram {
            complete(id)?;
        } else if id.state().sync {
            event::acknowledge_last(id);
        }
        Ok(MinusOne::DONE)
    }

    export fn rdma_reject(id: &Id, data: Pointer<c_void>, length: u8) -> MinusOne {
        let data = bytes_at(data.0, length.into());
        id.cm_id()?.reject(RejectReason::Consumer, &data)?;
        Ok(MinusOne::DONE)
    }

    export fn rdma_reject_ece(id: &Id, data: Pointer<c_void>, length: u8) -> MinusOne {
        let data = bytes_at(data.0, length.into());
        id.cm_id()?.reject(RejectReason::VendorOptionNotSupported, &data)?;
        Ok(MinusOne::DONE)
    }

    /// Only for programs with their own queue pairs: for others the library does it when it delivers the
    /// event.
    export fn rdma_establish(id: &Id) -> MinusOne {
        if !id.read().qp.is_null() {
            return Err(Errno::INVALID);
        }
        id.cm_id()?.establish()?;
        Ok(MinusOne::DONE)
    }

    export fn rdma_notify(id: &Id, event: u32) -> MinusOne {
        if event != abi::IBV_EVENT_COMM_EST {
            return Err(Errno::INVALID);
        }
        if id.cm_id()?.notify()? {
            Ok(MinusOne::DONE)
        } else {
            Err(Errno(libc::EISCONN))
        }
    }

    export fn rdma_disconnect(id: &Id) -> MinusOne {
        if id.read().verbs.is_null() {
            return Err(Errno::INVALID);
        }
        queue_pair_state::set_error_state(id);
        id.cm_id()?.disconnect()?;
        complete(id)?;
        Ok(MinusOne::DONE)
    }

    /// Vendor options, for programs with their own queue pairs. We have none: the call behaves as if the peer
    /// had rejected them.
    export fn rdma_set_local_ece(id: &Id, options: Input<abi::ibv_ece>) -> MinusOne {
        let given = options.0;
        if id.read().qp.is_null() && given.vendor_id != 0 && given.comp_mask == 0 {
            Ok(MinusOne::DONE)
        } else {
            Err(Errno::INVALID)
        }
    }

    export fn rdma_get_remote_ece(id: &Id, options: Output<abi::ibv_ece>) -> MinusOne {
        let mut options = options;
        if !id.read().qp.is_null() {
            return Err(Errno::INVALID);
        }
        options.put(abi::ibv_ece::default());
        Ok(MinusOne::DONE)
    }
}

/// The parameters of the program.
fn given(
    id: &Id,
    parameters: *const abi::rdma_conn_param,
) -> Result<Option<abi::rdma_conn_param>, Errno> {
    // SAFETY: null, or by the header's promise a live structure.
    let given = unsafe { parameters.as_ref() }.copied();
    let is_tcp = id.read().ps == abi::RDMA_PS_TCP;
    let Some(parameters) = &given else {
        return Ok(None);
    };
    let allowed = |depth: u8| depth == AS_MANY_AS_POSSIBLE || depth <= MAX_RESPONDER_RESOURCES;
    let fits = allowed(parameters.responder_resources) && allowed(parameters.initiator_depth);
    if !is_tcp || fits {
        Ok(given)
    } else {
        Err(Errno::INVALID)
    }
}

/// The depths of the accepting side: those of its parameters, or those of the request up to the limit.
fn agreed(id: &Id, given: Option<&abi::rdma_conn_param>) -> Depths {
    let mut state = id.state();
    let attach_device = |said: Option<u8>, wanted: u8| {
        let said = said.filter(|it| *it != AS_MANY_AS_POSSIBLE);
        said.unwrap_or(wanted.min(MAX_RESPONDER_RESOURCES))
    };
    state.initiator_depth =
        attach_device(given.map(|it| it.initiator_depth), state.initiator_depth);
    state.responder_resources = attach_device(
        given.map(|it| it.responder_resources),
        state.responder_resources,
    );
    Depths {
        responder_resources: state.responder_resources,
        initiator_depth: state.initiator_depth,
    }
}

fn parameters_of<'d>(
    id: &Id,
    given: Option<&abi::rdma_conn_param>,
    depths: Depths,
    private_data: &'d [u8],
) -> Parameters<'d> {
    const RETRY_FOREVER: u8 = 7;
    let (number, shared) = match object_at::<&Qp, _>(id.read().qp) {
        Ok(queue_pair) => (queue_pair.number, !queue_pair.read().qp_base.srq.is_null()),
        Err(_) => (
            Qpn::new(given.map_or(0, |it| it.qp_num)),
            given.is_some_and(|it| it.srq != 0),
        ),
    };
    Parameters {
        shared_receive_queue: shared,
        private_data,
        responder_resources: depths.responder_resources,
        initiator_depth: depths.initiator_depth,
        flow_control: given.is_some_and(|it| it.flow_control != 0),
        retry_count: given.map_or(RETRY_FOREVER, |it| it.retry_count),
        rnr_retry_count: given.map_or(RETRY_FOREVER, |it| it.rnr_retry_count),
        ..Parameters::new(number)
    }
}

fn private_data(id: &Id, given: Option<&abi::rdma_conn_param>) -> Result<Vec<u8>, Errno> {
    let mut data = id.state().preamble.clone();
    if let Some(given) = given {
        data.extend(bytes_at(given.private_data, given.private_data_len.into()));
    }
    match u8::try_from(data.len()) {
        Ok(_) => Ok(data),
        Err(_) => Err(Errno::INVALID),
    }
}
