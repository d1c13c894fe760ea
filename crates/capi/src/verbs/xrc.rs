//! XRC domains, and the handles and objects of XRC targets.

use std::ffi::c_int;
use std::sync::Arc;

use engine::{Device, Id, ObjectCounts, XrcDomain};

use super::context::{Context, OpenDevice, identity};
use super::queue_pair::Qp;
use super::xrc_target::TargetResources;
use crate::abi;
use crate::entry::{Input, entry};
use crate::errno::Errno;
use crate::object::{Object, from_pointer};

/// An XRC domain.
pub(crate) type Xrcd = Object<abi::ibv_xrcd, Domain>;

from_pointer!(abi::ibv_xrcd => Xrcd);

pub(crate) struct Domain {
    pub(crate) open: Arc<OpenDevice>,
    pub(crate) id: Id<XrcDomain>,
    /// Device and inode of its file, if it can be opened again.
    file: Option<(u64, u64)>,
}

/// The program does not know them, so they are not counted as its objects.
const HIDDEN: ObjectCounts = ObjectCounts {
    domains: 1,
    completion_queues: 1,
    regions: 0,
    shared_receive_queues: 0,
};

impl TargetResources {
    pub(crate) fn make(open: &OpenDevice) -> Result<Self, Errno> {
        Ok(open.driver.call_without_transmit(|device| {
            let domain = device.allocate_domain()?;
            let completions = device.create_completion_queue(1)?;
            device.hide_objects(HIDDEN);
            Ok::<_, engine::ObjectError>(Self {
                domain,
                completions,
            })
        })?)
    }

    pub(crate) fn end(&self, open: &OpenDevice) {
        // They are not shared, so nothing uses them any more.
        open.driver.call_without_transmit(|device| {
            device.unhide_objects(HIDDEN);
            let _ = device.destroy_completion_queue(self.completions);
            let _ = device.free_domain(self.domain);
        });
    }
}

/// Takes its handle from an XRC target that has others. Returns false if the queue pair ends with this handle.
pub(super) fn release(queue_pair: &Qp) -> bool {
    let mut guard = queue_pair.open.objects();
    let objects = &mut *guard;
    let target = objects.xrc_targets.get_mut(&queue_pair.number);
    let oldest = target.and_then(|target| target.release(queue_pair.c().addr()));
    let has_others = oldest.is_some();
    if let Some(oldest) = oldest {
        objects.queue_pairs.insert(queue_pair.number, oldest);
    }
    has_others
}

entry! {
    op fn open_xrcd(context: &Context, init: Input<abi::ibv_xrcd_init_attr>) -> *mut abi::ibv_xrcd {
        const BOTH: u32 = abi::IBV_XRCD_INIT_ATTR_FD | abi::IBV_XRCD_INIT_ATTR_OFLAGS;
        let init = init.0;
        if init.comp_mask & !BOTH != 0 {
            return Err(Errno::UNSUPPORTED);
        }
        if init.comp_mask != BOTH {
            return Err(Errno::INVALID);
        }
        let file = match init.fd {
            -1 => None,
            descriptor => Some(identity(descriptor)?),
        };
        let id = open_domain(context, file, init.oflags)?;
        let open = Arc::clone(context);
        let c_part = abi::ibv_xrcd { context: context.pointer() };
        Ok(Xrcd::new_pointer(c_part, Domain { open, id, file }))
    }

    op fn close_xrcd(domain: &Xrcd) -> c_int {
        let mut objects = domain.open.objects();
        if let Some(file) = domain.file
            && let Some((_, users)) = objects.shared_xrc_domains.get_mut(&file)
            && *users > 1
        {
            *users -= 1;
        } else {
            domain.open.driver.call_without_transmit(|device| device.close_xrc_domain(domain.id))?;
            objects.shared_xrc_domains.retain(|_, (id, _)| *id != domain.id);
        }
        drop(objects);
        domain.destroy();
        Ok(0)
    }
}

/// The XRC domain of a file, or a new one.
fn open_domain(
    open: &OpenDevice,
    file: Option<(u64, u64)>,
    flags: c_int,
) -> Result<Id<XrcDomain>, Errno> {
    let mut objects = open.objects();
    let known = file.and_then(|file| objects.shared_xrc_domains.get_mut(&file));
    match known {
        Some(_) if flags & libc::O_EXCL != 0 => return Err(Errno::INVALID),
        Some((id, users)) => {
            *users += 1;
            return Ok(*id);
        }
        None if file.is_some() && flags & libc::O_CREAT == 0 => return Err(Errno::TRY_AGAIN),
        None => {}
    }
    let id = open.driver.call_without_transmit(Device::open_xrc_domain)?;
    if let Some(file) = file {
        objects.shared_xrc_domains.insert(file, (id, 1));
    }
    Ok(id)
}
