//! Shared receive queues.

use std::ffi::c_int;
use std::sync::Arc;

use driver::PostedQueue;
use engine::{Id, MAX_REQUESTS, SharedReceiveInit};

use super::completion_queue::Cq;
use super::context::{Context, OpenDevice, context_at};
use super::event_target::{EventKind, EventTarget, UnacknowledgedEvents};
use super::protection_domain::Pd;
use super::xrc::Xrcd;
use crate::abi;
use crate::entry::{Input, Output, Pointer, entry};
use crate::errno::Errno;
use crate::object::{Object, from_pointer, object_at};

/// A shared receive queue.
pub(crate) type Srq = Object<abi::ibv_srq, Queue>;

from_pointer!(abi::ibv_srq => Srq);

pub(crate) struct Queue {
    pub(crate) open: Arc<OpenDevice>,
    pub(crate) posted: PostedQueue,
    /// Events about it that are not acknowledged.
    pub(crate) unacknowledged: Arc<UnacknowledgedEvents>,
    max_segments: u32,
    pub(super) is_xrc: bool,
}

entry! {
    export fn ibv_create_srq(
        domain: &Pd,
        init: Output<abi::ibv_srq_init_attr>,
    ) -> *mut abi::ibv_srq {
        let mut init = init;
        let given = init.get();
        let wanted = abi::ibv_srq_init_attr_ex {
            srq_context: given.srq_context,
            attr: given.attr,
            comp_mask: abi::IBV_SRQ_INIT_ATTR_PD,
            srq_type: abi::IBV_SRQT_BASIC,
            pd: domain.c(),
            ..Default::default()
        };
        let queue = create(domain.read().context, &wanted)?;
        init.change(|init| init.attr.max_sge = queue.max_segments);
        Ok(queue.c())
    }

    op fn create_srq_ex(
        context: &Context,
        init: Output<abi::ibv_srq_init_attr_ex>,
    ) -> *mut abi::ibv_srq {
        let mut init = init;
        let queue = create(context.pointer(), &init.get())?;
        init.change(|init| init.attr.max_sge = queue.max_segments);
        Ok(queue.c())
    }

    export fn ibv_modify_srq(
        queue: &Srq,
        attributes: Input<abi::ibv_srq_attr>,
        mask: c_int,
    ) -> c_int {
        if mask & !(abi::IBV_SRQ_MAX_WR | abi::IBV_SRQ_LIMIT) != 0 {
            return Err(Errno::INVALID);
        }
        queue.check_handle()?;
        let wanted = attributes.0;
        let asked = |bit: c_int, value: u32| (mask & bit != 0).then_some(value);
        let capacity = asked(abi::IBV_SRQ_MAX_WR, wanted.max_wr);
        let limit = asked(abi::IBV_SRQ_LIMIT, wanted.srq_limit);
        let id = queue.posted.id();
        queue.open.driver.call_without_transmit(|device| device.modify_shared_receive_queue(id, capacity, limit))?;
        Ok(0)
    }

    export fn ibv_query_srq(queue: &Srq, attributes: Output<abi::ibv_srq_attr>) -> c_int {
        queue.check_handle()?;
        let mut attributes = attributes;
        let found = queue.open.driver.call_without_transmit(|device| {
            let found = device.shared_receive_queue(queue.posted.id())?;
            Some((found.capacity(), found.limit()))
        });
        let (capacity, limit) = found.ok_or_else(Errno::inherited)?;
        attributes.put(abi::ibv_srq_attr {
            max_wr: capacity,
            max_sge: queue.max_segments,
            srq_limit: limit,
        });
        Ok(0)
    }

    export fn ibv_destroy_srq(queue: &Srq) -> c_int {
        queue.check_handle()?;
        let driver = &queue.open.driver;
        driver.call_without_transmit(|device| device.destroy_shared_receive_queue(queue.posted.id()))?;
        queue.open.forget_receive_queue(queue.posted.id());
        queue.unacknowledged.wait("ibv_destroy_srq", EventKind::Async);
        queue.destroy();
        Ok(0)
    }

    op fn get_srq_num(queue: &Srq, number: Output<u32>) -> c_int {
        let mut number = number;
        if !queue.is_xrc {
            return Err(Errno::UNSUPPORTED);
        }
        let driver = &queue.open.driver;
        let found = driver.call_without_transmit(|device| device.shared_receive_queue(queue.posted.id())?.number());
        number.put(found.ok_or(Errno::INVALID)?.value());
        Ok(0)
    }
}

fn create<'a>(
    context: *mut abi::ibv_context,
    init: &abi::ibv_srq_init_attr_ex,
) -> Result<&'a Srq, Errno> {
    let context = context_at(&Pointer(context))?;
    context.check_not_inherited()?;
    if init.comp_mask >= abi::IBV_SRQ_INIT_ATTR_RESERVED {
        return Err(Errno::UNSUPPORTED);
    }
    if init.comp_mask & abi::IBV_SRQ_INIT_ATTR_PD == 0 {
        return Err(Errno::INVALID);
    }
    check_size(init.attr.max_wr)?;
    let kind = match init.comp_mask & abi::IBV_SRQ_INIT_ATTR_TYPE {
        0 => abi::IBV_SRQT_BASIC,
        _ => init.srq_type,
    };
    let xrc = match kind {
        abi::IBV_SRQT_BASIC => None,
        abi::IBV_SRQT_XRC => Some(xrc_parts(context, init)?),
        // Tag matching needs a NIC.
        _ => return Err(Errno::UNSUPPORTED),
    };
    let domain: &Pd = object_at(init.pd)?;
    domain.check_handle()?;
    context.check_owns(&domain.open)?;
    let engine_init = SharedReceiveInit {
        domain: domain.id,
        capacity: init.attr.max_wr,
        max_segments: init.attr.max_sge.max(1),
        xrc,
    };
    let posted = context.driver.create_shared_receive_queue(engine_init)?;
    let id = posted.id();
    let c_part = abi::ibv_srq {
        context: context.pointer(),
        srq_context: init.srq_context,
        pd: init.pd,
        handle: context.handle(),
        ..Default::default()
    };
    let queue = Srq::make(
        c_part,
        Queue {
            open: Arc::clone(context),
            posted,
            unacknowledged: Arc::default(),
            max_segments: engine_init.max_segments,
            is_xrc: xrc.is_some(),
        },
    );
    let subject = EventTarget::new(queue.c(), &queue.unacknowledged);
    context.objects().receive_queues.insert(id, subject);
    Ok(queue)
}

/// Checks the limit that the device reports.
fn check_size(receives: u32) -> Result<(), Errno> {
    if receives <= MAX_REQUESTS {
        Ok(())
    } else {
        Err(Errno::INVALID)
    }
}

fn xrc_parts(
    context: &Context,
    init: &abi::ibv_srq_init_attr_ex,
) -> Result<(Id<engine::XrcDomain>, Id<engine::CompletionQueue>), Errno> {
    const NEEDED: u32 = abi::IBV_SRQ_INIT_ATTR_XRCD | abi::IBV_SRQ_INIT_ATTR_CQ;
    if init.comp_mask & NEEDED != NEEDED {
        return Err(Errno::INVALID);
    }
    let domain: &Xrcd = object_at(init.xrcd)?;
    let queue: &Cq = object_at(init.cq)?;
    queue.check_handle()?;
    context.check_owns(&domain.open)?;
    context.check_owns(&queue.open)?;
    Ok((domain.id, queue.id))
}
