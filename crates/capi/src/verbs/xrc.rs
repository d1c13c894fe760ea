//! Extended reliable connections: domains, and targets opened by their number.

use std::ffi::c_int;
use std::sync::Arc;

use engine::{CompletionQueue, Device, Id, Kind, ProtectionDomain, XrcDomain};
use wire::Qpn;

use super::context::{Context, Open, identity};
use super::queue_pair::{Pair, give};
use crate::abi;
use crate::entry::{Given, entry};
use crate::errno::Errno;
use crate::object::{Object, behind, from_pointer};

/// An XRC domain.
pub(crate) type Xrcd = Object<abi::ibv_xrcd, Domain>;

from_pointer!(abi::ibv_xrcd => Xrcd);

pub(crate) struct Domain {
    open: Arc<Open>,
    pub(crate) id: Id<XrcDomain>,
    /// The file that it is known by, if others of this process may open it too.
    file: Option<(u64, u64)>,
}

/// A protection domain and a completion queue for a target, which C creates without either.
pub(crate) struct Hidden {
    pub(crate) domain: Id<ProtectionDomain>,
    pub(crate) completions: Id<CompletionQueue>,
}

impl Hidden {
    pub(crate) fn make(open: &Open) -> Result<Self, Errno> {
        Ok(open.raw().tell(|device| {
            let domain = device.allocate_domain()?;
            let completions = device.create_completion_queue(1)?;
            Ok::<_, engine::ObjectError>(Self {
                domain,
                completions,
            })
        })?)
    }

    pub(crate) fn end(&self, open: &Open) {
        // Nobody else knows them, so that nothing can stand on them any more.
        open.raw().tell(|device| {
            let _ = device.destroy_completion_queue(self.completions);
            let _ = device.free_domain(self.domain);
        });
    }
}

entry! {
    op fn open_xrcd(context: &Context, init: Given<abi::ibv_xrcd_init_attr>) -> *mut abi::ibv_xrcd {
        const BOTH: u32 = abi::IBV_XRCD_INIT_ATTR_FD | abi::IBV_XRCD_INIT_ATTR_OFLAGS;
        let init = init.0;
        if init.comp_mask & BOTH != BOTH {
            return Err(Errno::INVALID);
        }
        let file = match init.fd {
            -1 => None,
            descriptor => Some(identity(descriptor)?),
        };
        let id = open_domain(context, file, init.oflags)?;
        let open = Arc::clone(context);
        let front = abi::ibv_xrcd { context: context.pointer() };
        Ok(Xrcd::give(front, Domain { open, id, file }))
    }

    op fn close_xrcd(domain: &Xrcd) -> c_int {
        let mut members = domain.open.members();
        if let Some(file) = domain.file
            && let Some((_, users)) = members.shared_xrc_domains.get_mut(&file)
            && *users > 1
        {
            *users -= 1;
        } else {
            domain.open.raw().tell(|device| device.close_xrc_domain(domain.id))?;
            members.shared_xrc_domains.retain(|_, (id, _)| *id != domain.id);
        }
        drop(members);
        domain.take_back();
        Ok(0)
    }

    op fn open_qp(context: &Context, attributes: Given<abi::ibv_qp_open_attr>) -> *mut abi::ibv_qp {
        let wanted = attributes.0;
        let needed = abi::IBV_QP_OPEN_ATTR_ALL & !abi::IBV_QP_OPEN_ATTR_CONTEXT;
        if wanted.comp_mask & needed != needed || wanted.qp_type != abi::IBV_QPT_XRC_RECV {
            return Err(Errno::INVALID);
        }
        let domain: &Xrcd = behind(wanted.xrcd)?;
        let number = Qpn::new(wanted.qp_num);
        let is_target = context.raw().tell(|device| {
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
        let pair = Pair::new(context, number, Kind::XrcTarget, short);
        Ok(give(context, &init, Pair { owned: false, ..pair }).c().cast())
    }
}

/// The domain of a file, or a new one.
fn open_domain(
    open: &Open,
    file: Option<(u64, u64)>,
    flags: c_int,
) -> Result<Id<XrcDomain>, Errno> {
    let mut members = open.members();
    let known = file.and_then(|file| members.shared_xrc_domains.get_mut(&file));
    match known {
        Some(_) if flags & libc::O_EXCL != 0 => return Err(Errno::INVALID),
        Some((id, users)) => {
            *users += 1;
            return Ok(*id);
        }
        None if file.is_some() && flags & libc::O_CREAT == 0 => return Err(Errno::TRY_AGAIN),
        None => {}
    }
    let id = open.raw().tell(Device::open_xrc_domain)?;
    if let Some(file) = file {
        members.shared_xrc_domains.insert(file, (id, 1));
    }
    Ok(id)
}
