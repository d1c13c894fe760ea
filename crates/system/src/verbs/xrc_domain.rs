//! XRC domains.

use std::ptr::NonNull;
use std::sync::Arc;

use abi::{ibv_xrcd, ibv_xrcd_init_attr};
use engine::SystemRefusal;

use super::context::Context;
use super::error::last_error_or_lack;
use super::extended::operation;

/// What a device without XRC lacks.
pub(super) const LACKS: &str = "extended reliable connections (XRC)";

/// An XRC domain of this process.
#[derive(Debug)]
pub struct XrcDomain {
    pub(super) raw: NonNull<ibv_xrcd>,
    context: Arc<Context>,
}

// SAFETY: the functions of libibverbs may be called from any thread, also at the same time.
unsafe impl Send for XrcDomain {}

// SAFETY: as for `Send`.
unsafe impl Sync for XrcDomain {}

impl XrcDomain {
    /// Opens a new domain.
    pub fn open(context: &Arc<Context>) -> Result<Arc<Self>, SystemRefusal> {
        let open = operation!(context, open_xrcd).ok_or(SystemRefusal::Lacks(LACKS))?;
        let mut wanted = ibv_xrcd_init_attr {
            comp_mask: abi::IBV_XRCD_INIT_ATTR_FD | abi::IBV_XRCD_INIT_ATTR_OFLAGS,
            fd: -1,
            oflags: libc::O_CREAT,
        };
        // SAFETY: the context is open, and the structure has the size that a test compares with the header.
        let raw = unsafe { open(context.raw.as_ptr(), &raw mut wanted) };
        let raw = NonNull::new(raw).ok_or_else(|| last_error_or_lack("ibv_open_xrcd", LACKS))?;
        Ok(Arc::new(Self {
            raw,
            context: Arc::clone(context),
        }))
    }
}

impl Drop for XrcDomain {
    fn drop(&mut self) {
        if let Some(close) = operation!(self.context, close_xrcd) {
            // SAFETY: nothing uses it any more, because all that does has an `Arc` of it; it is closed once.
            unsafe { close(self.raw.as_ptr()) };
        }
    }
}
