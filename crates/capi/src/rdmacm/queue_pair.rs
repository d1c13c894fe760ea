//! Queue pairs, shared receive queues and completion queues of ids.

use std::ffi::c_int;
use std::ptr;
use std::sync::Arc;

use super::id::Id;
use super::queue_pair_state;
use crate::abi;
use crate::entry::{MinusOne, Output, Pointer, entry};
use crate::errno::Errno;
use crate::object::object_at;
use crate::verbs::completion_channel::{
    Channel, ibv_create_comp_channel, ibv_destroy_comp_channel,
};
use crate::verbs::completion_queue::{ibv_create_cq, ibv_destroy_cq};
use crate::verbs::create_queue_pair::{create_qp_ex, extended, ibv_destroy_qp};
use crate::verbs::multicast::leave_all;
use crate::verbs::queue_pair::Qp;
use crate::verbs::queue_pair_attributes::{qp_attr_of, state_of};
use crate::verbs::shared_receive_queue::{create_srq_ex, ibv_destroy_srq};

entry! {
    export fn rdma_create_qp(
        id: &Id,
        domain: Pointer<abi::ibv_pd>,
        init: Output<abi::ibv_qp_init_attr>,
    ) -> MinusOne {
        let mut init = init;
        let mut wanted = init.get();
        let created = create(id, domain.0, &mut wanted);
        init.put(wanted);
        created?;
        Ok(MinusOne::DONE)
    }

    export fn rdma_create_qp_ex(
        id: &Id,
        init: Output<abi::ibv_qp_init_attr_ex>,
    ) -> MinusOne {
        let mut init = init;
        let mut wanted = init.get();
        let created = create_extended(id, &mut wanted);
        init.put(wanted);
        created?;
        Ok(MinusOne::DONE)
    }

    export fn rdma_destroy_qp(id: &Id) {
        destroy(id);
        Ok(())
    }

    export fn rdma_create_srq(
        id: &Id,
        domain: Pointer<abi::ibv_pd>,
        init: Output<abi::ibv_srq_init_attr>,
    ) -> MinusOne {
        let mut init = init;
        let given = init.get();
        let mut wanted = abi::ibv_srq_init_attr_ex {
            srq_context: given.srq_context,
            attr: given.attr,
            comp_mask: abi::IBV_SRQ_INIT_ATTR_TYPE | abi::IBV_SRQ_INIT_ATTR_PD,
            srq_type: match id.read().qp_type {
                abi::IBV_QPT_XRC_RECV => abi::IBV_SRQT_XRC,
                _ => abi::IBV_SRQT_BASIC,
            },
            pd: domain.0,
            ..Default::default()
        };
        let created = create_shared(id, &mut wanted);
        init.change(|init| init.attr = wanted.attr);
        created?;
        Ok(MinusOne::DONE)
    }

    export fn rdma_create_srq_ex(
        id: &Id,
        init: Output<abi::ibv_srq_init_attr_ex>,
    ) -> MinusOne {
        let mut init = init;
        let mut wanted = init.get();
        if wanted.comp_mask & abi::IBV_SRQ_INIT_ATTR_TYPE == 0 {
            return Err(Errno::INVALID);
        }
        let created = create_shared(id, &mut wanted);
        init.put(wanted);
        created?;
        Ok(MinusOne::DONE)
    }

    export fn rdma_destroy_srq(id: &Id) {
        destroy_shared(id);
        Ok(())
    }

    /// The attributes that take a queue pair of the program to the state that it names.
    export fn rdma_init_qp_attr(
        id: &Id,
        attributes: Output<abi::ibv_qp_attr>,
        mask: Output<c_int>,
    ) -> MinusOne {
        let (mut attributes, mut mask) = (attributes, mask);
        let needed = queue_pair_state::needed_for(id, state_of(attributes.get().qp_state)?)?;
        attributes.put(qp_attr_of(&needed, 0));
        mask.put(needed.given().bits().cast_signed());
        Ok(MinusOne::DONE)
    }
}

/// Creates the queue pair of an id, in the id's protection domain if none is given.
pub(super) fn create(
    id: &Id,
    domain: *mut abi::ibv_pd,
    init: &mut abi::ibv_qp_init_attr,
) -> Result<(), Errno> {
    let mut wanted = extended(init, domain);
    let created = create_extended(id, &mut wanted);
    init.send_cq = wanted.send_cq;
    init.recv_cq = wanted.recv_cq;
    init.srq = wanted.srq;
    init.cap = wanted.cap;
    created
}

fn create_extended(id: &Id, init: &mut abi::ibv_qp_init_attr_ex) -> Result<(), Errno> {
    let shown = id.read();
    if !shown.qp.is_null() {
        return Err(Errno::INVALID);
    }
    choose_domain(id, init)?;
    let other = |ours: *mut abi::ibv_cq, given: *mut abi::ibv_cq| {
        !ours.is_null() && !given.is_null() && ours != given
    };
    if other(shown.recv_cq, init.recv_cq) || other(shown.send_cq, init.send_cq) {
        return Err(Errno::INVALID);
    }
    if shown.qp_type == abi::IBV_QPT_XRC_RECV
        && (init.comp_mask & abi::IBV_QP_INIT_ATTR_XRCD == 0 || init.xrcd.is_null())
    {
        init.xrcd = id.shared()?.extended()?;
        init.comp_mask |= abi::IBV_QP_INIT_ATTR_XRCD;
    }
    let size = |known: bool, wanted: u32| if known { 0 } else { wanted };
    let has_send = !init.send_cq.is_null() || !shown.send_cq.is_null();
    let has_receive = !init.recv_cq.is_null() || !shown.recv_cq.is_null();
    create_completion_queues(
        id,
        size(has_send, init.cap.max_send_wr),
        size(has_receive, init.cap.max_recv_wr),
    )?;
    let made = make(id, init);
    made.inspect_err(|_| destroy_completion_queues(id))
}

fn make(id: &Id, init: &mut abi::ibv_qp_init_attr_ex) -> Result<(), Errno> {
    let shown = id.read();
    let or = |given: *mut abi::ibv_cq, ours| if given.is_null() { ours } else { given };
    init.send_cq = or(init.send_cq, shown.send_cq);
    init.recv_cq = or(init.recv_cq, shown.recv_cq);
    if init.srq.is_null() {
        init.srq = shown.srq;
    }
    // SAFETY: a context of ours, and a structure that no other thread uses during this call.
    let queue_pair = unsafe { create_qp_ex(shown.verbs, init) };
    if queue_pair.is_null() {
        return Err(Errno::last());
    }
    let initialized = object_at(queue_pair).and_then(|it| queue_pair_state::initialize(id, it));
    initialized.inspect_err(|_| {
        // SAFETY: just created, and not shared.
        unsafe { ibv_destroy_qp(queue_pair) };
    })?;
    id.change(|c| {
        c.pd = init.pd;
        c.qp = queue_pair;
    });
    Ok(())
}

fn choose_domain(id: &Id, init: &mut abi::ibv_qp_init_attr_ex) -> Result<(), Errno> {
    let shown = id.read();
    if init.comp_mask & abi::IBV_QP_INIT_ATTR_PD == 0 || init.pd.is_null() {
        init.comp_mask |= abi::IBV_QP_INIT_ATTR_PD;
        init.pd = shown.pd;
    }
    // SAFETY: null, or by the program's promise a live domain.
    let domain = unsafe { init.pd.as_ref() }.ok_or(Errno::INVALID)?;
    if domain.context == shown.verbs {
        Ok(())
    } else {
        Err(Errno::INVALID)
    }
}

/// Destroys the queue pair of an id, and its completion queues.
pub(super) fn destroy(id: &Id) {
    // The id has joined its groups, not the program.
    if let Ok(queue_pair) = object_at::<&Qp, _>(id.read().qp) {
        leave_all(queue_pair);
    }
    // SAFETY: the id's own queue pair, or null, which is rejected.
    unsafe { ibv_destroy_qp(id.read().qp) };
    id.change(|c| c.qp = ptr::null_mut());
    destroy_completion_queues(id);
}

fn create_shared(id: &Id, init: &mut abi::ibv_srq_init_attr_ex) -> Result<(), Errno> {
    if init.comp_mask & abi::IBV_SRQ_INIT_ATTR_PD == 0 || init.pd.is_null() {
        init.pd = id.read().pd;
        init.comp_mask |= abi::IBV_SRQ_INIT_ATTR_PD;
    }
    if init.srq_type == abi::IBV_SRQT_XRC {
        complete_xrc(id, init)?;
    }
    // SAFETY: a context of ours, and a structure that no other thread uses during this call.
    let queue = unsafe { create_srq_ex(id.read().verbs, init) };
    if queue.is_null() {
        let errno = Errno::last();
        destroy_completion_queues(id);
        return Err(errno);
    }
    id.change(|c| {
        c.srq = queue;
        if c.pd.is_null() {
            c.pd = init.pd;
        }
    });
    Ok(())
}

/// Adds the XRC domain and the completion queue that an XRC receive queue needs.
fn complete_xrc(id: &Id, init: &mut abi::ibv_srq_init_attr_ex) -> Result<(), Errno> {
    if init.comp_mask & abi::IBV_SRQ_INIT_ATTR_XRCD == 0 || init.xrcd.is_null() {
        init.xrcd = id.shared()?.extended()?;
    }
    if init.comp_mask & abi::IBV_SRQ_INIT_ATTR_CQ == 0 || init.cq.is_null() {
        create_completion_queues(id, 0, init.attr.max_wr)?;
        init.cq = id.read().recv_cq;
    }
    init.comp_mask |= abi::IBV_SRQ_INIT_ATTR_XRCD | abi::IBV_SRQ_INIT_ATTR_CQ;
    Ok(())
}

/// Destroys the shared receive queue of an id, and its completion queues.
pub(super) fn destroy_shared(id: &Id) {
    // SAFETY: the id's own queue, or null, which is rejected.
    unsafe { ibv_destroy_srq(id.read().srq) };
    id.change(|c| c.srq = ptr::null_mut());
    destroy_completion_queues(id);
}

/// Creates the missing completion queues, each with a channel; 0 means none.
fn create_completion_queues(id: &Id, send: u32, receive: u32) -> Result<(), Errno> {
    let made = (|| {
        if receive > 0 {
            let (channel, queue) = completion_queue(id, receive)?;
            id.change(|c| (c.recv_cq_channel, c.recv_cq) = (channel, queue));
        }
        if send > 0 {
            let (channel, queue) = completion_queue(id, send)?;
            id.change(|c| (c.send_cq_channel, c.send_cq) = (channel, queue));
        }
        Ok(())
    })();
    made.inspect_err(|_| destroy_completion_queues(id))
}

fn completion_queue(
    id: &Id,
    size: u32,
) -> Result<(*mut abi::ibv_comp_channel, *mut abi::ibv_cq), Errno> {
    let context = id.read().verbs;
    let size = c_int::try_from(size).map_err(|_| Errno::INVALID)?;
    // SAFETY: a context of ours, or null, which is rejected.
    let channel = unsafe { ibv_create_comp_channel(context) };
    if channel.is_null() {
        return Err(Errno::last());
    }
    let cm_id = Arc::downgrade(&id.cm_id()?);
    let peer_has_left = move || cm_id.upgrade().is_some_and(|it| it.has_unnoticed_end());
    object_at::<&Channel, _>(channel)?.set_peer_has_left(peer_has_left);
    // SAFETY: both were just created or are ours; the id outlives its queues.
    let queue = unsafe { ibv_create_cq(context, size, id.c().cast(), channel, 0) };
    if queue.is_null() {
        let errno = Errno::last();
        // SAFETY: just created, and not used.
        unsafe { ibv_destroy_comp_channel(channel) };
        return Err(errno);
    }
    Ok((channel, queue))
}

/// Destroys the completion queues that were created for an id. Those of an XRC receive queue stay.
fn destroy_completion_queues(id: &Id) {
    let shown = id.read();
    if shown.qp_type == abi::IBV_QPT_XRC_RECV && !shown.srq.is_null() {
        return;
    }
    for (queue, channel) in [
        (shown.recv_cq, shown.recv_cq_channel),
        (shown.send_cq, shown.send_cq_channel),
    ] {
        // SAFETY: the id's own, or null, which is rejected.
        unsafe { ibv_destroy_cq(queue) };
        // SAFETY: as above; its queue is gone.
        unsafe { ibv_destroy_comp_channel(channel) };
    }
    id.change(|c| {
        c.recv_cq = ptr::null_mut();
        c.send_cq = ptr::null_mut();
        c.recv_cq_channel = ptr::null_mut();
        c.send_cq_channel = ptr::null_mut();
    });
}
