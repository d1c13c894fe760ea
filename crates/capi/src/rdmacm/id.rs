//! Ids.

use std::collections::HashMap;
use std::ffi::c_void;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, Once, PoisonError};

use rocinante::rdma_cm::{Identifier, PortSpace, QueuePairType, Token};
use wire::Gid;

use super::addrinfo::ResolvedList;
use super::device::{self, SharedDevice};
use super::event_channel::{self, Channel};
use super::multicast::Membership;
use super::{address, event};
use crate::abi;
use crate::entry::{MinusOne, Output, entry};
use crate::errno::Errno;
use crate::object::{Object, from_pointer, object_at};
use crate::verbs::event_target::UnacknowledgedEvents;
use crate::verbs::query::PORT;

/// An id.
pub(crate) type Id = Object<abi::rdma_cm_id, Inner>;

from_pointer!(abi::rdma_cm_id => Id);

pub(crate) struct Inner {
    token: Token,
    /// `None` after the program has destroyed the id.
    identifier: Mutex<Option<Arc<Identifier>>>,
    /// Events about it that are not acknowledged.
    pub(super) unacknowledged: Arc<UnacknowledgedEvents>,
    state: Mutex<State>,
}

/// State of an id that C does not see.
#[derive(Default)]
pub(super) struct State {
    /// Whether it has its own channel, and each call waits for its event.
    pub(super) sync: bool,
    shared: Option<&'static SharedDevice>,
    /// `route.path_rec` points to it.
    path: Option<Box<abi::ibv_sa_path_rec>>,
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

/// The ids by token, to find the id of an event.
static IDS: Mutex<Option<HashMap<Token, usize>>> = Mutex::new(None);

entry! {
    export fn rdma_create_id(
        channel: Option<&Channel>,
        id: Output<*mut abi::rdma_cm_id>,
        context: *mut c_void,
        space: u32,
    ) -> MinusOne {
        let mut id = id;
        let queue_pair = match space_of(space)? {
            PortSpace::Udp => abi::IBV_QPT_UD,
            _ => abi::IBV_QPT_RC,
        };
        id.put(create(channel, context, space, queue_pair)?.c());
        Ok(MinusOne::DONE)
    }

    export fn rdma_destroy_id(id: &Id) -> MinusOne {
        destroy(id);
        Ok(MinusOne::DONE)
    }

    export fn rdma_get_src_port(id: &Id) -> u16 {
        let address = address::found(&id.read().route.addr.src_storage);
        Ok(address.map_or(0, |it| it.port()).to_be())
    }

    export fn rdma_get_dst_port(id: &Id) -> u16 {
        let address = address::found(&id.read().route.addr.dst_storage);
        Ok(address.map_or(0, |it| it.port()).to_be())
    }
}

/// Creates an id for a queue pair type; without a channel it gets its own.
pub(super) fn create<'a>(
    channel: Option<&Channel>,
    context: *mut c_void,
    space: u32,
    queue_pair: u32,
) -> Result<&'a Id, Errno> {
    let port_space = space_of(space)?;
    let sync = channel.is_none();
    let channel = match channel {
        Some(channel) => channel,
        None => event_channel::create()?,
    };
    channel.check_not_inherited()?;
    let kind = match port_space {
        PortSpace::Tcp => QueuePairType::ReliableConnection,
        PortSpace::Udp => QueuePairType::Datagram,
        PortSpace::Infiniband => kind_of(queue_pair)?,
    };
    let identifier = channel.events.create_for(port_space, kind);
    let c_part = abi::rdma_cm_id {
        channel: channel.c(),
        context,
        ps: space,
        qp_type: queue_pair,
        ..Default::default()
    };
    let state = State {
        sync,
        ..State::default()
    };
    Ok(new_handle(c_part, identifier, state))
}

/// The child id of a request, with the attributes of its listener.
pub(super) fn of_request<'a>(listener: &Id, identifier: Identifier) -> &'a Id {
    let of_listener = listener.read();
    let c_part = abi::rdma_cm_id {
        channel: of_listener.channel,
        context: of_listener.context,
        ps: of_listener.ps,
        qp_type: of_listener.qp_type,
        ..Default::default()
    };
    new_handle(c_part, identifier, State::default())
}

fn new_handle<'a>(c_part: abi::rdma_cm_id, identifier: Identifier, state: State) -> &'a Id {
    static REGISTERED: Once = Once::new();
    REGISTERED.call_once(|| {
        // SAFETY: the library is never unloaded, so the function exists until the process ends.
        unsafe { libc::atexit(disconnect_all) };
    });
    let token = identifier.token();
    let id = Id::make(
        c_part,
        Inner {
            token,
            identifier: Mutex::new(Some(Arc::new(identifier))),
            unacknowledged: Arc::default(),
            state: Mutex::new(state),
        },
    );
    let pointer_value = id.c().expose_provenance();
    ids().get_or_insert_default().insert(token, pointer_value);
    id
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

/// Destroys an id, after all its events are acknowledged.
pub(super) fn destroy(id: &Id) {
    ids().get_or_insert_default().remove(&id.token);
    let identifier = lock(&id.identifier).take();
    drop(identifier);
    event::acknowledge_last(id);
    id.unacknowledged.wait();
    if id.state().sync
        && let Ok(channel) = object_at::<&Channel, _>(id.read().channel)
    {
        channel.destroy();
    }
    id.destroy();
}

/// At exit, disconnects from all peers, as the kernel would do.
extern "C" fn disconnect_all() {
    crate::entry::guard(|| {
        let left: Vec<usize> = ids()
            .take()
            .into_iter()
            .flat_map(HashMap::into_values)
            .collect();
        for pointer_value in left {
            let pointer = std::ptr::with_exposed_provenance_mut(pointer_value);
            drop(lock(&object_at::<&Id, _>(pointer)?.identifier).take());
        }
        Ok(())
    });
}

impl Inner {
    pub(super) fn identifier(&self) -> Result<Arc<Identifier>, Errno> {
        lock(&self.identifier).clone().ok_or(Errno::INVALID)
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
        let identifier = self.identifier()?;
        if let Some(local) = identifier.local_address() {
            self.change(|c| {
                c.route.addr.src_storage = address::stored(local);
                c.route.addr.addr.sgid = gid(local);
            });
        }
        if let Some(peer) = identifier.peer_address() {
            self.change(|c| {
                c.route.addr.dst_storage = address::stored(peer);
                c.route.addr.addr.dgid = gid(peer);
            });
        }
        match identifier.context() {
            Some(context) if !is_unresolved_loopback(&identifier) => self.attach_device(&context),
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

    fn attach_device(&self, context: &rocinante::Context) -> Result<(), Errno> {
        let mut state = self.state();
        if state.shared.is_some() {
            return Ok(());
        }
        let shared = device::of(context)?;
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
        let context = self.identifier().ok()?.context()?;
        Some(abi::ibv_sa_path_rec {
            dgid: known.addr.dgid,
            sgid: known.addr.sgid,
            hop_limit: 64,
            reversible: 1,
            numb_path: 1,
            pkey: DEFAULT_PARTITION,
            mtu_selector: EXACTLY,
            mtu: context.active_mtu().code(),
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
fn is_unresolved_loopback(identifier: &Identifier) -> bool {
    let is_loopback = |address: SocketAddr| address.ip().is_loopback();
    identifier.local_address().is_some_and(is_loopback) && identifier.peer_address().is_none()
}

const RDMA_PS_IPOIB: u32 = 2;

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

fn space_of(number: u32) -> Result<PortSpace, Errno> {
    let spaces = [PortSpace::Tcp, PortSpace::Udp, PortSpace::Infiniband];
    let space = spaces.into_iter().find(|it| *it as u32 == number);
    space.ok_or(match number {
        // Needs an InfiniBand network.
        RDMA_PS_IPOIB => Errno(libc::EPROTONOSUPPORT),
        _ => Errno::INVALID,
    })
}

fn kind_of(queue_pair: u32) -> Result<QueuePairType, Errno> {
    match queue_pair {
        abi::IBV_QPT_RC => Ok(QueuePairType::ReliableConnection),
        abi::IBV_QPT_XRC_SEND | abi::IBV_QPT_XRC_RECV => Ok(QueuePairType::ExtendedConnection),
        abi::IBV_QPT_UC => Ok(QueuePairType::UnreliableConnection),
        abi::IBV_QPT_UD => Ok(QueuePairType::Datagram),
        _ => Err(Errno::INVALID),
    }
}

fn ids() -> MutexGuard<'static, Option<HashMap<Token, usize>>> {
    lock(&IDS)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
