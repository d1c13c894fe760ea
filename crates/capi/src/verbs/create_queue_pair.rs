//! Creating and destroying queue pairs.

use std::ffi::c_int;
use std::sync::{Arc, Mutex};

use engine::{MAX_REQUESTS, QueuePairInit, QueuePairType};
use wire::Qpn;

use super::completion_queue::Cq;
use super::context::{Context, OpenDevice, context_at};
use super::event_target::{EventKind, EventTarget};
use super::protection_domain::Pd;
use super::queue_pair::{Draft, Pair, Qp};
use super::queue_pair_ex;
use super::shared_receive_queue::Srq;
use super::xrc::{self, Xrcd};
use super::xrc_target::{SharedTarget, TargetResources};
use crate::abi;
use crate::entry::{Input, Output, Pointer, entry};
use crate::errno::Errno;
use crate::object::object_at;

entry! {
    export fn ibv_create_qp(domain: &Pd, init: Output<abi::ibv_qp_init_attr>) -> *mut abi::ibv_qp {
        let mut init = init;
        let wanted = extended(&init.get(), domain.c());
        let queue_pair = create(domain.read().context, &wanted)?;
        init.change(|init| init.cap = queue_pair.init.cap);
        Ok(queue_pair.c().cast())
    }

    op fn create_qp_ex(
        context: &Context,
        init: Output<abi::ibv_qp_init_attr_ex>,
    ) -> *mut abi::ibv_qp {
        let mut init = init;
        let queue_pair = create(context.pointer(), &init.get())?;
        init.change(|init| init.cap = queue_pair.init.cap);
        Ok(queue_pair.c().cast())
    }

    export fn ibv_destroy_qp(queue_pair: &Qp) -> c_int {
        queue_pair.check_handle()?;
        // As in the kernel: a program leaves the groups first.
        if super::multicast::is_member(queue_pair) {
            return Err(Errno::BUSY);
        }
        if !xrc::release(queue_pair) {
            end(queue_pair)?;
        }
        queue_pair.unacknowledged.wait("ibv_destroy_qp", EventKind::Async);
        queue_pair.destroy();
        Ok(0)
    }

    op fn open_qp(context: &Context, attributes: Input<abi::ibv_qp_open_attr>) -> *mut abi::ibv_qp {
        let wanted = attributes.0;
        if wanted.comp_mask & !abi::IBV_QP_OPEN_ATTR_ALL != 0 {
            return Err(Errno::UNSUPPORTED);
        }
        let needed = abi::IBV_QP_OPEN_ATTR_ALL & !abi::IBV_QP_OPEN_ATTR_CONTEXT;
        if wanted.comp_mask & needed != needed || wanted.qp_type != abi::IBV_QPT_XRC_RECV {
            return Err(Errno::INVALID);
        }
        let domain: &Xrcd = object_at(wanted.xrcd)?;
        context.check_owns(&domain.open)?;
        let number = Qpn::new(wanted.qp_num);
        let is_target = context.driver.call_without_transmit(|device| {
            let found = device.queue_pair(number);
            found.is_some_and(|found| found.init().xrc_domain == Some(domain.id))
        });
        if !is_target {
            return Err(Errno::INVALID);
        }
        let init = abi::ibv_qp_init_attr_ex {
            qp_context: wanted.qp_context,
            qp_type: wanted.qp_type,
            ..Default::default()
        };
        let short = abi::ibv_qp_init_attr {
            qp_context: wanted.qp_context,
            qp_type: wanted.qp_type,
            ..Default::default()
        };
        let pair = Pair::new(context, number, QueuePairType::XrcTarget, short);
        Ok(new_handle(context, &init, pair).c().cast())
    }

    export fn ibv_qp_to_qp_ex(queue_pair: &Qp) -> *mut abi::ibv_qp_ex {
        match queue_pair.read().wr_start {
            Some(_) => Ok(queue_pair.c()),
            None => Err(Errno::INVALID),
        }
    }
}

/// Converts the attributes of `ibv_create_qp` to those of `ibv_create_qp_ex`.
pub(crate) fn extended(
    init: &abi::ibv_qp_init_attr,
    domain: *mut abi::ibv_pd,
) -> abi::ibv_qp_init_attr_ex {
    abi::ibv_qp_init_attr_ex {
        qp_context: init.qp_context,
        send_cq: init.send_cq,
        recv_cq: init.recv_cq,
        srq: init.srq,
        cap: init.cap,
        qp_type: init.qp_type,
        sq_sig_all: init.sq_sig_all,
        comp_mask: abi::IBV_QP_INIT_ATTR_PD,
        pd: domain,
        ..Default::default()
    }
}

fn short(init: &abi::ibv_qp_init_attr_ex) -> abi::ibv_qp_init_attr {
    abi::ibv_qp_init_attr {
        qp_context: init.qp_context,
        send_cq: init.send_cq,
        recv_cq: init.recv_cq,
        srq: init.srq,
        cap: init.cap,
        qp_type: init.qp_type,
        sq_sig_all: init.sq_sig_all,
    }
}

fn create<'a>(
    context: *mut abi::ibv_context,
    init: &abi::ibv_qp_init_attr_ex,
) -> Result<&'a Qp, Errno> {
    let context = context_at(&Pointer(context))?;
    context.check_not_inherited()?;
    let kind = check(init)?;
    let init = &with_inline_capacity(init);
    let (engine_init, target_resources) = engine_init(context, init, kind)?;
    let queue = |at| object_at::<&Cq, _>(at).ok();
    let driver = match queue(init.send_cq) {
        Some(sends) if target_resources.is_none() => {
            let receives = queue(init.recv_cq).unwrap_or(sends);
            context
                .driver
                .for_queue_pair(&sends.driver, &receives.driver)
        }
        _ => Arc::clone(&context.driver),
    };
    let created = driver.create_queue_pair(engine_init);
    let (driver, number) = created.inspect_err(|_| {
        if let Some(target_resources) = &target_resources {
            target_resources.end(context);
        }
    })?;
    if let Some(target_resources) = target_resources {
        let target = SharedTarget::new(target_resources);
        context.objects().xrc_targets.insert(number, target);
    }
    let pair = Pair::new(context, number, kind, short(init));
    Ok(new_handle(context, init, Pair { driver, ..pair }))
}

impl Pair {
    pub(super) fn new(
        open: &Arc<OpenDevice>,
        number: Qpn,
        kind: QueuePairType,
        init: abi::ibv_qp_init_attr,
    ) -> Self {
        Self {
            wr_flush: Some(queue_pair_ex::wr_flush),
            open: Arc::clone(open),
            driver: Arc::clone(&open.driver),
            number,
            kind,
            unacknowledged: Arc::default(),
            groups: Mutex::default(),
            draft: Draft::default(),
            init,
        }
    }
}

/// Creates the handle of a queue pair, and registers it for events.
fn new_handle<'a>(context: &Context, init: &abi::ibv_qp_init_attr_ex, pair: Pair) -> &'a Qp {
    let base = abi::ibv_qp {
        context: context.pointer(),
        qp_context: init.qp_context,
        pd: init.pd,
        send_cq: init.send_cq,
        recv_cq: init.recv_cq,
        srq: init.srq,
        handle: context.handle(),
        qp_num: pair.number.value(),
        qp_type: init.qp_type,
        ..Default::default()
    };
    let asks_for_posting = init.comp_mask & abi::IBV_QP_INIT_ATTR_SEND_OPS_FLAGS != 0;
    let c_part = if asks_for_posting {
        queue_pair_ex::operations(base)
    } else {
        abi::ibv_qp_ex {
            qp_base: base,
            ..Default::default()
        }
    };
    let number = pair.number;
    let queue_pair = Qp::make(c_part, pair);
    let subject = EventTarget::new(queue_pair.c(), &queue_pair.unacknowledged);
    let mut objects = context.objects();
    if let Some(target) = objects.xrc_targets.get_mut(&number) {
        target.add(subject.clone());
    }
    // The events of an XRC target go to its oldest handle.
    objects.queue_pairs.entry(number).or_insert(subject);
    queue_pair
}

/// Raises the inline limit to the size of the segment list. Programs rely on it, because the kernel's
/// software device stores inline data in the memory of the list.
fn with_inline_capacity(init: &abi::ibv_qp_init_attr_ex) -> abi::ibv_qp_init_attr_ex {
    let mut init = *init;
    let segment_bytes = init.cap.max_send_sge * size_of::<abi::ibv_sge>() as u32;
    init.cap.max_inline_data = init.cap.max_inline_data.max(segment_bytes);
    init
}

fn check(init: &abi::ibv_qp_init_attr_ex) -> Result<QueuePairType, Errno> {
    const KNOWN: u32 = abi::IBV_QP_INIT_ATTR_PD
        | abi::IBV_QP_INIT_ATTR_XRCD
        | abi::IBV_QP_INIT_ATTR_CREATE_FLAGS
        | abi::IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
    if init.comp_mask & !KNOWN != 0 {
        return Err(Errno::UNSUPPORTED);
    }
    if init.comp_mask & abi::IBV_QP_INIT_ATTR_CREATE_FLAGS != 0 && init.create_flags != 0 {
        return Err(Errno::UNSUPPORTED);
    }
    if init.comp_mask & abi::IBV_QP_INIT_ATTR_SEND_OPS_FLAGS != 0
        && init.send_ops_flags & !send_operations_of(init.qp_type) != 0
    {
        return Err(Errno::UNSUPPORTED);
    }
    let cap = &init.cap;
    let too_large =
        |requests: u32, segments: u32| requests > MAX_REQUESTS || segments > engine::MAX_SEGMENTS;
    if too_large(cap.max_send_wr, cap.max_send_sge)
        || has_own_receives(init) && too_large(cap.max_recv_wr, cap.max_recv_sge)
    {
        return Err(Errno::INVALID);
    }
    match init.qp_type {
        abi::IBV_QPT_RC => Ok(QueuePairType::Rc),
        abi::IBV_QPT_UC => Ok(QueuePairType::Uc),
        abi::IBV_QPT_UD => Ok(QueuePairType::Ud),
        abi::IBV_QPT_XRC_SEND => Ok(QueuePairType::XrcInitiator),
        abi::IBV_QPT_XRC_RECV => Ok(QueuePairType::XrcTarget),
        abi::IBV_QPT_RAW_PACKET | abi::IBV_QPT_DRIVER => Err(Errno::UNSUPPORTED),
        // No type at all.
        _ => Err(Errno::INVALID),
    }
}

/// The `ibv_wr_*` operations of a queue pair type, by the table in the manual of `ibv_wr_post`. It lists SEND with invalidate for UC,
/// which no packet of UC can carry: creation accepts it, and posting does not.
fn send_operations_of(kind: u32) -> u64 {
    match kind {
        abi::IBV_QPT_RC | abi::IBV_QPT_XRC_SEND => abi::IBV_QP_EX_RELIABLE,
        abi::IBV_QPT_UC => abi::IBV_QP_EX_UNRELIABLE,
        abi::IBV_QPT_UD => abi::IBV_QP_EX_DATAGRAM,
        _ => 0,
    }
}

/// Whether it has a receive queue of its own. If not, the program may leave any length in its attributes.
fn has_own_receives(init: &abi::ibv_qp_init_attr_ex) -> bool {
    init.srq.is_null() && init.qp_type != abi::IBV_QPT_XRC_SEND
}

fn engine_init(
    context: &Context,
    init: &abi::ibv_qp_init_attr_ex,
    kind: QueuePairType,
) -> Result<(QueuePairInit, Option<TargetResources>), Errno> {
    if kind == QueuePairType::XrcTarget {
        if init.comp_mask & abi::IBV_QP_INIT_ATTR_XRCD == 0 {
            return Err(Errno::INVALID);
        }
        let domain: &Xrcd = object_at(init.xrcd)?;
        context.check_owns(&domain.open)?;
        let target_resources = TargetResources::make(context)?;
        let target = QueuePairInit {
            xrc_domain: Some(domain.id),
            ..QueuePairInit::new(kind, target_resources.domain, target_resources.completions)
        };
        return Ok((target, Some(target_resources)));
    }
    if init.comp_mask & abi::IBV_QP_INIT_ATTR_PD == 0 {
        return Err(Errno::INVALID);
    }
    let domain: &Pd = object_at(init.pd)?;
    let send: &Cq = object_at(init.send_cq)?;
    let receive: &Cq = match kind {
        QueuePairType::XrcInitiator => send,
        _ => object_at(init.recv_cq)?,
    };
    let shared: Option<&Srq> = match kind {
        QueuePairType::XrcInitiator => None,
        _ => object_at(init.srq)?,
    };
    domain.check_handle()?;
    send.check_handle()?;
    receive.check_handle()?;
    shared.map_or(Ok(()), Srq::check_handle)?;
    for open in [&domain.open, &send.open, &receive.open] {
        context.check_owns(open)?;
    }
    shared.map_or(Ok(()), |queue| context.check_owns(&queue.open))?;
    // The receives of an XRC queue go to the queue pairs of its XRC domain.
    if shared.is_some_and(|queue| queue.is_xrc) {
        return Err(Errno::INVALID);
    }
    let of_own_queue = |length| if has_own_receives(init) { length } else { 0 };
    let made = QueuePairInit {
        receive_completions: receive.id,
        shared_receive: shared.map(|queue| queue.posted.id()),
        max_sends: init.cap.max_send_wr,
        max_receives: of_own_queue(init.cap.max_recv_wr),
        max_send_segments: init.cap.max_send_sge,
        max_receive_segments: of_own_queue(init.cap.max_recv_sge),
        max_inline: init.cap.max_inline_data,
        signal_all: init.sq_sig_all != 0,
        ..QueuePairInit::new(kind, domain.id, send.id)
    };
    Ok((made, None))
}

/// Destroys the queue pair itself.
fn end(queue_pair: &Qp) -> Result<(), Errno> {
    let open = &queue_pair.open;
    let number = queue_pair.number;
    queue_pair.driver.flush();
    (queue_pair.driver).call_after_flush(|device| device.destroy_queue_pair(number))?;
    open.forget_queue_pair(number);
    let target = open.objects().xrc_targets.remove(&number);
    if let Some(target) = target {
        target.resources.end(open);
    }
    Ok(())
}
