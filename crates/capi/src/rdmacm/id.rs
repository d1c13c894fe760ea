//! The handle of an id.

use std::collections::HashMap;
use std::ffi::c_void;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use driver::Driver;
use driver::rdma_cm::{CmId, Token};
use wire::Gid;

use super::addrinfo::ResolvedList;
use super::shared_device::{self, SharedDevice};
use super::socket_address;
use crate::abi;
use crate::entry::entry;
use crate::errno::Errno;
use crate::object::{Object, from_pointer, object_at};
use crate::verbs::event_target::UnacknowledgedEvents;
use crate::verbs::query::PORT;

/// An id.
pub(crate) type Id = Object<abi::rdma_cm_id, Inner>;

from_pointer!(abi::rdma_cm_id => Id);

pub(crate) struct Inner {
    pub(super) token: Token,
    /// `None` after the program has destroyed the id.
    pub(super) cm_id: Mutex<Option<Arc<CmId>>>,
    /// Events about it that are not acknowledged.
    pub(super) unacknowledged: Arc<UnacknowledgedEvents>,
    pub(super) state: Mutex<State>,
}

/// State of an id that C does not see.
#[derive(Default)]
pub(super) struct State {
    /// Whether it has its own channel, and each call waits for its event.
    pub(super) sync: bool,
    pub(super) shared: Option<&'static SharedDevice>,
    /// `route.path_rec` points to it.
    pub(super) path: Option<Box<abi::ibv_sa_path_rec>>,
    /// Private data from `rdma_addrinfo`, which precedes that of the program.
    pub(super) preamble: Vec<u8>,
    /// The attributes of queue pairs for requests.
    pub(super) init: Option<abi::ibv_qp_init_attr>,
    pub(super) initiator_depth: u8,
    pub(super) responder_resources: u8,
    pub(super) memberships: Vec<Membership>,
    /// The result of `rdma_resolve_addrinfo`.
    pub(super) found: ResolvedList,
}

/// A group that an id has joined, or is joining.
pub(super) struct Membership {
    pub(super) group: IpAddr,
    /// The program's context, for events.
    pub(super) context: *mut c_void,
    /// Whether it only sends, so that its queue pair is not attached.
    pub(super) send_only: bool,
    /// Whether the program has got the event with the result. Each attempt to join has one.
    pub(super) result: JoinResult,
    /// The group's GID, once the queue pair is attached.
    pub(super) attached: Option<abi::ibv_gid>,
    /// Events about it that are not acknowledged.
    pub(super) unacknowledged: Arc<UnacknowledgedEvents>,
}

/// The result of an attempt to join a group.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum JoinResult {
    Awaited,
    Told,
}

/// The ids by token, to find the id of an event.
static IDS: Mutex<Option<HashMap<Token, usize>>> = Mutex::new(None);

entry! {
    export fn rdma_get_src_port(id: &Id) -> u16 {
        let address = socket_address::found(&id.read().route.addr.src_storage);
        Ok(address.map_or(0, |it| it.port()).to_be())
    }

    export fn rdma_get_dst_port(id: &Id) -> u16 {
        let address = socket_address::found(&id.read().route.addr.dst_storage);
        Ok(address.map_or(0, |it| it.port()).to_be())
    }
}

/// The id of an event, which can't be destroyed until the event is acknowledged.
pub(super) fn tell<'a>(token: Token) -> Option<&'a Id> {
    let ids = ids();
    let pointer_value = *ids.as_ref()?.get(&token)?;
    let pointer = std::ptr::with_exposed_provenance_mut(pointer_value);
    let id: &Id = object_at(pointer).ok()?;
    id.unacknowledged.add();
    Some(id)
}

impl Inner {
    pub(super) fn cm_id(&self) -> Result<Arc<CmId>, Errno> {
        lock(&self.cm_id).clone().ok_or(Errno::INVALID)
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Its device.
    pub(super) fn shared(&self) -> Result<&'static SharedDevice, Errno> {
        self.state().shared.ok_or(Errno::INVALID)
    }
}

impl Id {
    /// Copies addresses and device to the structure that C sees.
    pub(super) fn refresh(&self) -> Result<(), Errno> {
        let cm_id = self.cm_id()?;
        if let Some(local) = cm_id.local_address() {
            self.change(|c| {
                c.route.addr.src_storage = socket_address::stored(local);
                c.route.addr.addr.sgid = gid(local);
            });
        }
        if let Some(peer) = cm_id.peer_address() {
            self.change(|c| {
                c.route.addr.dst_storage = socket_address::stored(peer);
                c.route.addr.addr.dgid = gid(peer);
            });
        }
        match cm_id.driver() {
            Some(context) if !is_unresolved_loopback(&cm_id) => self.attach_device(&context),
            _ => Ok(()),
        }
    }

    /// Copies the path to the structure that C sees.
    pub(super) fn show_path(&self) {
        let mut state = self.state();
        let Some(path) = self.path() else { return };
        let mut path = Box::new(path);
        let pointer = &raw mut *path;
        self.change(|c| {
            c.route.path_rec = pointer;
            c.route.num_paths = 1;
        });
        state.path = Some(path);
    }

    fn attach_device(&self, context: &Arc<Driver>) -> Result<(), Errno> {
        let mut state = self.state();
        if state.shared.is_some() {
            return Ok(());
        }
        let shared = shared_device::of(context)?;
        state.shared = Some(shared);
        self.change(|c| {
            c.verbs = shared.context();
            c.pd = shared.domain();
            c.port_num = PORT;
            c.route.addr.addr.pkey = DEFAULT_PARTITION;
        });
        Ok(())
    }

    fn path(&self) -> Option<abi::ibv_sa_path_rec> {
        /// The selector for an exact value.
        const EXACTLY: u8 = 2;
        /// Codes of a lifetime of 0.27 s and a rate of 10 Gbit/s, as Linux sets them for RoCE.
        const LIFE_TIME: u8 = 16;
        const TEN_GIGABITS: u8 = 3;
        let known = self.read().route.addr;
        let context = self.cm_id().ok()?.driver()?;
        Some(abi::ibv_sa_path_rec {
            dgid: known.addr.dgid,
            sgid: known.addr.sgid,
            hop_limit: 64,
            reversible: 1,
            numb_path: 1,
            pkey: DEFAULT_PARTITION,
            mtu_selector: EXACTLY,
            mtu: context.device().active_mtu.code(),
            rate_selector: EXACTLY,
            rate: TEN_GIGABITS,
            packet_life_time_selector: EXACTLY,
            packet_life_time: LIFE_TIME,
            ..Default::default()
        })
    }
}

/// Whether it is bound to a loopback address and has no peer. Linux treats such an address like the
/// unspecified one, and programs that look for devices this way expect none.
fn is_unresolved_loopback(cm_id: &CmId) -> bool {
    let is_loopback = |address: SocketAddr| address.ip().is_loopback();
    cm_id.local_address().is_some_and(is_loopback) && cm_id.peer_address().is_none()
}

/// The same in both byte orders.
const DEFAULT_PARTITION: u16 = 0xffff;

fn gid(address: SocketAddr) -> abi::ibv_gid {
    let raw = if address.ip().is_unspecified() {
        [0; 16]
    } else {
        Gid::from(address.ip()).bytes()
    };
    abi::ibv_gid { raw }
}

pub(super) fn ids() -> MutexGuard<'static, Option<HashMap<Token, usize>>> {
    lock(&IDS)
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
