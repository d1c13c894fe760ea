//! Memory windows.

use std::ffi::c_int;
use std::sync::Arc;

use engine::{Access, Binding, SendFlags, SendRequest, WindowKind, Work};
use wire::Key;

use super::context::OpenDevice;
use super::memory_region;
use super::protection_domain::Pd;
use super::queue_pair::Qp;
use crate::abi;
use crate::entry::{Input, entry};
use crate::errno::Errno;
use crate::object::{Object, from_pointer};

/// A memory window.
pub(crate) type Mw = Object<abi::ibv_mw, Window>;

from_pointer!(abi::ibv_mw => Mw);

pub(crate) struct Window {
    open: Arc<OpenDevice>,
    /// Its first key. The engine finds it by every key that it has had.
    pub(crate) key: Key,
}

entry! {
    op fn alloc_mw(domain: &Pd, kind: u32) -> *mut abi::ibv_mw {
        let window_kind = match kind {
            abi::IBV_MW_TYPE_1 => WindowKind::One,
            abi::IBV_MW_TYPE_2 => WindowKind::Two,
            _ => return Err(Errno::INVALID),
        };
        domain.check_handle()?;
        domain.open.check_not_inherited()?;
        let key = domain
            .open
            .driver
            .call_without_transmit(|device| device.allocate_window(domain.id, window_kind))?;
        let c_part = abi::ibv_mw {
            context: domain.read().context,
            pd: domain.c(),
            rkey: key.value(),
            handle: domain.open.handle(),
            r#type: kind,
        };
        let open = Arc::clone(&domain.open);
        Ok(Mw::new_pointer(c_part, Window { open, key }))
    }

    op fn dealloc_mw(window: &Mw) -> c_int {
        window.check_handle()?;
        window.open.driver.call_without_transmit(|device| device.free_window(window.key))?;
        window.destroy();
        Ok(0)
    }

    /// For windows of type 1: the device chooses the next key.
    op fn bind_mw(queue_pair: &Qp, window: &Mw, bind: Input<abi::ibv_mw_bind>) -> c_int {
        let bind = bind.0;
        let binding = binding_of(&bind.bind_info)?;
        // As the libraries of rxe and mlx5 do, before anything is posted.
        if binding.access.contains(Access::ZERO_BASED) {
            return Err(Errno::INVALID);
        }
        let mut request = SendRequest::new(bind.wr_id, Work::BindWindow {
            window: window.key,
            key: None,
            binding,
        });
        request.flags = SendFlags::from_bits_truncate(bind.send_flags);
        queue_pair
            .driver
            .post(|device| device.post_send(queue_pair.number, request))?;
        let next = window.read().rkey.wrapping_add(1);
        window.note_bound(next);
        Ok(0)
    }
}

impl Mw {
    /// Reports that a bind was posted: the program reads the key of its window here. As with `ibv_inc_rkey`, only the low eight
    /// bits change.
    pub(super) fn note_bound(&self, key: u32) {
        self.change(|c| c.rkey = c.rkey & !0xff | key & 0xff);
    }
}

/// Converts binding information from C.
pub(super) fn binding_of(info: &abi::ibv_mw_bind_info) -> Result<Binding, Errno> {
    let region = if !info.mr.is_null() {
        memory_region::region_at(info.mr)?.registration.local_key
    } else if info.length == 0 {
        // A window of length 0 is unbound.
        Key::new(0)
    } else {
        return Err(Errno::INVALID);
    };
    Ok(Binding {
        region,
        address: info.addr,
        length: info.length,
        access: memory_region::access_of(info.mw_access_flags)?,
    })
}
