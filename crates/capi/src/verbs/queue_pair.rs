//! Queue pairs: making and ending them.

use std::ffi::c_int;
use std::sync::{Arc, Mutex};

use engine::{Kind, MAX_REQUESTS, QueuePairInit};
use wire::{Gid, Qpn};

use super::async_event::{Subject, Told};
use super::completion::Cq;
use super::context::{Context, Open, context_at};
use super::domain::Pd;
use super::extended_send::{self, Draft};
use super::shared_receive::Srq;
use super::xrc::{Hidden, Xrcd};
use crate::abi;
use crate::entry::{Place, Pointer, entry};
use crate::errno::Errno;
use crate::object::{Object, behind, from_pointer};

/// A queue pair, always with room for the new way to post.
pub(crate) type Qp = Object<abi::ibv_qp_ex, Pair>;

const _: () = assert!(Qp::BEHIND == size_of::<abi::ibv_qp_ex>());
const _: () = assert!(std::mem::offset_of!(Pair, wr_flush) == 0);

from_pointer!(abi::ibv_qp => Qp);

#[repr(C)]
pub(crate) struct Pair {
    /// Programs that were compiled with newer headers look for it here, behind the rest.
    pub(super) wr_flush: Option<abi::Flush>,
    pub(crate) open: Arc<Open>,
    pub(crate) number: Qpn,
    pub(crate) kind: Kind,
    /// Events about it that nobody has acknowledged.
    pub(crate) told: Arc<Told>,
    /// Groups that it is in.
    pub(super) groups: Mutex<Vec<Gid>>,
    /// What the new way to post has collected.
    pub(super) draft: Draft,
    /// What it was created with, as C will ask for it.
    pub(super) init: abi::ibv_qp_init_attr,
    /// Whether it ends with this handle: another one may only have been opened by its number.
    pub(super) owned: bool,
    /// What an XRC target stands on without the program knowing.
    pub(super) hidden: Option<Hidden>,
}

// SAFETY: of its parts, only the pointers in `init` are not shared by themselves, and those are
// numbers to us: they are given back to the program as they came.
unsafe impl Sync for Pair {}

entry! {
    export fn ibv_create_qp(domain: &Pd, init: Place<abi::ibv_qp_init_attr>) -> *mut abi::ibv_qp {
        let mut init = init;
        let wanted = extended(&init.get(), domain.c());
        let queue_pair = create(domain.read().context, &wanted)?;
        init.change(|init| init.cap = queue_pair.init.cap);
        Ok(queue_pair.c().cast())
    }

    op fn create_qp_ex(
        context: &Context,
        init: Place<abi::ibv_qp_init_attr_ex>,
    ) -> *mut abi::ibv_qp {
        let mut init = init;
        let queue_pair = create(context.pointer(), &init.get())?;
        init.change(|init| init.cap = queue_pair.init.cap);
        Ok(queue_pair.c().cast())
    }

    export fn ibv_destroy_qp(queue_pair: &Qp) -> c_int {
        queue_pair.check_handle()?;
        if queue_pair.owned {
            end(queue_pair)?;
        }
        queue_pair.told.wait();
        queue_pair.take_back();
        Ok(0)
    }

    export fn ibv_qp_to_qp_ex(queue_pair: &Qp) -> *mut abi::ibv_qp_ex {
        match queue_pair.read().wr_start {
            Some(_) => Ok(queue_pair.c()),
            None => Err(Errno::INVALID),
        }
    }
}

/// The long form of what the old call is told.
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
    context.check_ours()?;
    let kind = check(init)?;
    let init = &with_room_for_inline_data(init);
    let (engine_init, hidden) = engine_init(context, init, kind)?;
    let created = context
        .raw()
        .tell(|device| device.create_queue_pair(engine_init));
    let number = created.inspect_err(|_| {
        if let Some(hidden) = &hidden {
            hidden.end(context);
        }
    })?;
    let pair = Pair::new(context, number, kind, short(init));
    let pair = Pair { hidden, ..pair };
    Ok(give(context, init, pair))
}

impl Pair {
    pub(super) fn new(
        open: &Arc<Open>,
        number: Qpn,
        kind: Kind,
        init: abi::ibv_qp_init_attr,
    ) -> Self {
        Self {
            wr_flush: Some(extended_send::wr_flush),
            open: Arc::clone(open),
            number,
            kind,
            told: Arc::default(),
            groups: Mutex::default(),
            draft: Draft::default(),
            init,
            owned: true,
            hidden: None,
        }
    }
}

/// Gives C a queue pair, and lets events find it.
pub(super) fn give<'a>(context: &Context, init: &abi::ibv_qp_init_attr_ex, pair: Pair) -> &'a Qp {
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
    let front = if asks_for_posting {
        extended_send::operations(base)
    } else {
        abi::ibv_qp_ex {
            qp_base: base,
            ..Default::default()
        }
    };
    let number = pair.number;
    let queue_pair = Qp::make(front, pair);
    let subject = Subject::new(queue_pair.c(), &queue_pair.told);
    context.members().queue_pairs.insert(number, subject);
    queue_pair
}

/// Where a list of segments fits, so many bytes of data fit as well. Programs count on it: the
/// kernel's software device keeps data in the place of the list.
fn with_room_for_inline_data(init: &abi::ibv_qp_init_attr_ex) -> abi::ibv_qp_init_attr_ex {
    let mut init = *init;
    let room = init.cap.max_send_sge * size_of::<abi::ibv_sge>() as u32;
    init.cap.max_inline_data = init.cap.max_inline_data.max(room);
    init
}

fn check(init: &abi::ibv_qp_init_attr_ex) -> Result<Kind, Errno> {
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
        && init.send_ops_flags & !abi::IBV_QP_EX_SUPPORTED != 0
    {
        return Err(Errno::UNSUPPORTED);
    }
    let cap = &init.cap;
    if cap.max_send_wr > MAX_REQUESTS
        || cap.max_recv_wr > MAX_REQUESTS
        || cap.max_send_sge > engine::MAX_SEGMENTS
        || cap.max_recv_sge > engine::MAX_SEGMENTS
    {
        return Err(Errno::INVALID);
    }
    match init.qp_type {
        abi::IBV_QPT_RC => Ok(Kind::Rc),
        abi::IBV_QPT_UC => Ok(Kind::Uc),
        abi::IBV_QPT_UD => Ok(Kind::Ud),
        abi::IBV_QPT_XRC_SEND => Ok(Kind::XrcInitiator),
        abi::IBV_QPT_XRC_RECV => Ok(Kind::XrcTarget),
        _ => Err(Errno::UNSUPPORTED),
    }
}

fn engine_init(
    context: &Context,
    init: &abi::ibv_qp_init_attr_ex,
    kind: Kind,
) -> Result<(QueuePairInit, Option<Hidden>), Errno> {
    if kind == Kind::XrcTarget {
        if init.comp_mask & abi::IBV_QP_INIT_ATTR_XRCD == 0 {
            return Err(Errno::INVALID);
        }
        let domain: &Xrcd = behind(init.xrcd)?;
        let hidden = Hidden::make(context)?;
        let target = QueuePairInit {
            xrc_domain: Some(domain.id),
            ..QueuePairInit::new(kind, hidden.domain, hidden.completions)
        };
        return Ok((target, Some(hidden)));
    }
    if init.comp_mask & abi::IBV_QP_INIT_ATTR_PD == 0 {
        return Err(Errno::INVALID);
    }
    let domain: &Pd = behind(init.pd)?;
    let send: &Cq = behind(init.send_cq)?;
    let receive: &Cq = match kind {
        Kind::XrcInitiator => send,
        _ => behind(init.recv_cq)?,
    };
    let shared: Option<&Srq> = match kind {
        Kind::XrcInitiator => None,
        _ => behind(init.srq).ok(),
    };
    let made = QueuePairInit {
        receive_completions: receive.id,
        shared_receive: shared.map(|queue| queue.id),
        max_sends: init.cap.max_send_wr,
        max_receives: init.cap.max_recv_wr,
        max_send_segments: init.cap.max_send_sge,
        max_receive_segments: init.cap.max_recv_sge,
        max_inline: init.cap.max_inline_data,
        signal_all: init.sq_sig_all != 0,
        ..QueuePairInit::new(kind, domain.id, send.id)
    };
    Ok((made, None))
}

/// Ends the queue pair itself.
fn end(queue_pair: &Qp) -> Result<(), Errno> {
    let open = &queue_pair.open;
    let number = queue_pair.number;
    open.settle();
    open.raw()
        .change(|device| device.destroy_queue_pair(number))?;
    open.forget_queue_pair(number);
    super::multicast::leave_all(queue_pair);
    if let Some(hidden) = &queue_pair.hidden {
        hidden.end(open);
    }
    Ok(())
}
