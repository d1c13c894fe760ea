//! The handle of a queue pair.

use std::sync::{Arc, Mutex};

use driver::Driver;
use engine::{QueuePairType, SendRequest};
use wire::{Gid, Qpn};

use super::context::OpenDevice;
use super::event_target::UnacknowledgedEvents;
use crate::abi;
use crate::errno::Errno;
use crate::multi_call_lock::MultiCallLock;
use crate::object::{Object, from_pointer};

/// A queue pair, always with the fields of `ibv_qp_ex`.
pub(crate) type Qp = Object<abi::ibv_qp_ex, Pair>;

const _: () = assert!(Qp::INNER_OFFSET == size_of::<abi::ibv_qp_ex>());
const _: () = assert!(std::mem::offset_of!(Pair, wr_flush) == 0);

from_pointer!(abi::ibv_qp => Qp);

#[repr(C)]
pub(crate) struct Pair {
    /// Programs compiled with newer headers expect it here, after `ibv_qp_ex`.
    pub(super) wr_flush: Option<abi::Flush>,
    pub(crate) open: Arc<OpenDevice>,
    /// The lane of the device that it lives in.
    pub(crate) driver: Arc<Driver>,
    pub(crate) number: Qpn,
    pub(crate) kind: QueuePairType,
    /// Events about it that are not acknowledged.
    pub(crate) unacknowledged: Arc<UnacknowledgedEvents>,
    /// The multicast groups that it has joined.
    pub(super) groups: Mutex<Vec<Gid>>,
    /// The requests since `ibv_wr_start`.
    pub(super) draft: Draft,
    /// What it was created with, for `ibv_query_qp`.
    pub(super) init: abi::ibv_qp_init_attr,
}

// SAFETY: of its fields, only the pointers in `init` and `draft` are not `Sync`. Those in `init` are never dereferenced: they
// are returned to the program unchanged. Those in `draft` are used under its lock, as arguments of the program's calls.
unsafe impl Sync for Pair {}

/// The requests since `ibv_wr_start`.
pub(super) type Draft = MultiCallLock<Requests>;

#[derive(Default)]
pub(super) struct Requests {
    pub(super) list: Vec<SendRequest>,
    /// The windows that these requests bind, and their new keys.
    pub(super) binds: Vec<(*mut abi::ibv_mw, u32)>,
    /// The first error; if there is one, nothing is posted.
    pub(super) error: Option<Errno>,
}
