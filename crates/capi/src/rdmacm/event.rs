//! Events: what happened to ids, and what the library does about it before a program knows.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;

use engine::Address;
use rocinante::rdma_cm::{
    self, EventKind, Failure, Group, Identifier, Offer, Request, ServiceFound, Token,
};
use wire::Qpn;

use super::channel::{self, Channel};
use super::id::{self, Id};
use super::{multicast, ready};
use crate::abi;
use crate::entry::{MinusOne, Place, entry};
use crate::errno::Errno;
use crate::interruption;
use crate::object::{Object, behind, from_pointer};
use crate::verbs::address::attributes_of;
use crate::verbs::async_event::Told;
use crate::verbs::context::is_nonblocking;

/// An event.
pub(super) type Event = Object<abi::rdma_cm_event, Brought>;

from_pointer!(abi::rdma_cm_event => Event);

/// What comes with an event.
pub(super) struct Brought {
    /// Who waits for it to be acknowledged: an id, and perhaps a membership in a group.
    waiting: Vec<Arc<Told>>,
    /// What the event points to.
    _private_data: Vec<u8>,
}

entry! {
    wait fn rdma_get_cm_event(
        channel: &Channel,
        event: Place<*mut abi::rdma_cm_event>,
    ) -> MinusOne {
        let mut event = event;
        let Some(happened) = next_soon(channel)? else {
            return Ok(None);
        };
        event.put(happened);
        Ok(Some(MinusOne::DONE))
    }

    export fn rdma_ack_cm_event(event: &Event) -> MinusOne {
        acknowledge(event);
        Ok(MinusOne::DONE)
    }

    export fn rdma_event_str(event: u32) -> *const c_char {
        let name = usize::try_from(event).ok().and_then(|it| NAMES.get(it));
        Ok(name.unwrap_or(&c"UNKNOWN EVENT").as_ptr())
    }

    /// Puts an event of the program's own into the channel of an id.
    export fn rdma_write_cm_event(id: &Id, event: u32, status: c_int, argument: u64) -> MinusOne {
        if event != abi::RDMA_CM_EVENT_USER && event != abi::RDMA_CM_EVENT_INTERNAL {
            return Err(Errno::INVALID);
        }
        id.identifier()?.write_event(event, status, argument);
        Ok(MinusOne::DONE)
    }
}

/// The names of events, by number.
const NAMES: [&CStr; 20] = [
    c"RDMA_CM_EVENT_ADDR_RESOLVED",
    c"RDMA_CM_EVENT_ADDR_ERROR",
    c"RDMA_CM_EVENT_ROUTE_RESOLVED",
    c"RDMA_CM_EVENT_ROUTE_ERROR",
    c"RDMA_CM_EVENT_CONNECT_REQUEST",
    c"RDMA_CM_EVENT_CONNECT_RESPONSE",
    c"RDMA_CM_EVENT_CONNECT_ERROR",
    c"RDMA_CM_EVENT_UNREACHABLE",
    c"RDMA_CM_EVENT_REJECTED",
    c"RDMA_CM_EVENT_ESTABLISHED",
    c"RDMA_CM_EVENT_DISCONNECTED",
    c"RDMA_CM_EVENT_DEVICE_REMOVAL",
    c"RDMA_CM_EVENT_MULTICAST_JOIN",
    c"RDMA_CM_EVENT_MULTICAST_ERROR",
    c"RDMA_CM_EVENT_ADDR_CHANGE",
    c"RDMA_CM_EVENT_TIMEWAIT_EXIT",
    c"RDMA_CM_EVENT_ADDRINFO_RESOLVED",
    c"RDMA_CM_EVENT_ADDRINFO_ERROR",
    c"RDMA_CM_EVENT_USER",
    c"RDMA_CM_EVENT_INTERNAL",
];

/// What happened; waits for it.
pub(super) fn next(channel: &Channel) -> Result<*mut abi::rdma_cm_event, Errno> {
    // As in `wait`: it stays, whatever the program does with its channel.
    let channel = Arc::clone(channel);
    loop {
        if let Some(event) = next_soon(&channel)? {
            return Ok(event);
        }
    }
}

/// What happened; nothing if nothing did for a while.
fn next_soon(channel: &channel::Told) -> Result<Option<*mut abi::rdma_cm_event>, Errno> {
    channel.check_ours()?;
    while let Some(happened) = channel.events.poll() {
        if let Some(event) = tell(happened) {
            return Ok(Some(event));
        }
    }
    if is_nonblocking(channel.events.as_fd().as_raw_fd())? {
        return Err(Errno::TRY_AGAIN);
    }
    let signal = channel.events.sleep_for(interruption::PATIENCE);
    if signal && interruption::signals_end_calls() {
        Err(Errno(libc::EINTR))
    } else {
        Ok(None)
    }
}

/// Ends an event.
pub(super) fn acknowledge(event: &Event) {
    for waiting in event.take_back().into_iter().flat_map(|it| it.waiting) {
        waiting.acknowledge(1);
    }
}

/// Ends the event that an id keeps for a program that waits in its calls.
pub(super) fn acknowledge_kept(id: &Id) {
    if let Ok(event) = behind::<&Event, _>(id.read().event) {
        id.change(|c| c.event = std::ptr::null_mut());
        acknowledge(event);
    }
}

/// The event as C has it; nothing if its id is gone, or if there is nothing to tell.
fn tell(happened: rdma_cm::Event) -> Option<*mut abi::rdma_cm_event> {
    match (happened.kind, happened.listener, happened.request) {
        (EventKind::ConnectRequest { request, .. }, Some(listener), Some(identifier)) => {
            tell_request(listener, identifier, request)
        }
        (kind, ..) => tell_of(happened.id, kind),
    }
}

fn tell_request(
    listener: Token,
    identifier: Identifier,
    request: Request,
) -> Option<*mut abi::rdma_cm_event> {
    let listener = id::tell(listener)?;
    let id = id::of_request(listener, identifier);
    let mut draft = Draft::new(abi::RDMA_CM_EVENT_CONNECT_REQUEST, id);
    draft.front.listen_id = listener.c();
    // It is the listener that must not go before the request is acknowledged.
    draft.waiting = vec![Arc::clone(&listener.told)];
    match request {
        Request::Connection(offer) => {
            let mut state = id.state();
            state.initiator_depth = offer.initiator_depth;
            state.responder_resources = offer.responder_resources;
            drop(state);
            draft.offer(offer);
        }
        Request::Service { private_data } => {
            draft.datagram(abi::rdma_ud_param::default(), private_data);
        }
    }
    let alone = if listener.state().sync {
        channel::migrate(id, None)
    } else {
        Ok(())
    };
    if alone.and_then(|()| id.refresh()).is_err() {
        id::destroy(id);
        listener.told.acknowledge(1);
        return None;
    }
    id.show_path();
    Some(draft.give())
}

fn tell_of(token: Token, kind: EventKind) -> Option<*mut abi::rdma_cm_event> {
    let id = id::tell(token)?;
    let draft = Draft::of(id, kind);
    if draft.is_none() {
        id.told.acknowledge(1);
    }
    draft.map(Draft::give)
}

/// An event in the making.
struct Draft {
    front: abi::rdma_cm_event,
    private_data: Vec<u8>,
    waiting: Vec<Arc<Told>>,
}

impl Draft {
    fn new(event: u32, id: &Id) -> Self {
        Self {
            front: abi::rdma_cm_event {
                id: id.c(),
                event,
                ..Default::default()
            },
            private_data: Vec::new(),
            waiting: vec![Arc::clone(&id.told)],
        }
    }

    /// Does what the library has to do about an event; nothing if the program need not know.
    fn of(id: &Id, kind: EventKind) -> Option<Self> {
        let mut draft = Self::new(number_of(&kind), id);
        draft.front.status = kind.status();
        match kind {
            EventKind::AddressResolved => {
                draft.unless_done(id.refresh(), abi::RDMA_CM_EVENT_ADDR_ERROR);
            }
            EventKind::RouteResolved => id.show_path(),
            EventKind::ConnectResponse(offer) => {
                draft.front.event = respond(id)?;
                draft.offer(offer);
            }
            EventKind::Rejected { private_data, .. } => {
                ready::break_queue_pair(id);
                draft.connection(abi::rdma_conn_param::default(), private_data);
            }
            EventKind::ServiceFound(found) => draft.service(id, found),
            EventKind::MulticastJoin(group) => draft.group(id, &group),
            EventKind::MulticastError { group, .. } => {
                let context = draft.membership(id, group);
                draft.pointing_to(abi::rdma_ud_param::default(), context);
            }
            EventKind::Application { argument, .. } => {
                draft.front.param = abi::EventParameters { arg: argument };
            }
            _ => {}
        }
        Some(draft)
    }

    /// What the library could not do is told as an error.
    fn unless_done(&mut self, done: Result<(), Errno>, error: u32) {
        if done.is_err() {
            self.front.event = error;
            self.front.status = -1;
        }
    }

    fn offer(&mut self, offer: Offer) {
        let parameters = abi::rdma_conn_param {
            responder_resources: offer.responder_resources,
            initiator_depth: offer.initiator_depth,
            flow_control: u8::from(offer.flow_control),
            retry_count: offer.retry_count,
            rnr_retry_count: offer.rnr_retry_count,
            srq: u8::from(offer.shared_receive_queue),
            qp_num: offer.remote_qpn.value(),
            ..Default::default()
        };
        self.connection(parameters, offer.private_data);
    }

    fn connection(&mut self, parameters: abi::rdma_conn_param, private_data: Vec<u8>) {
        let conn = abi::rdma_conn_param {
            private_data: start_of(&private_data),
            private_data_len: private_data.len() as u8,
            ..parameters
        };
        self.front.param = abi::EventParameters { conn };
        self.private_data = private_data;
    }

    fn datagram(&mut self, parameters: abi::rdma_ud_param, private_data: Vec<u8>) {
        let ud = abi::rdma_ud_param {
            private_data: start_of(&private_data),
            private_data_len: private_data.len() as u8,
            ..parameters
        };
        self.front.param = abi::EventParameters { ud };
        self.private_data = private_data;
    }

    /// Groups give a program back what it gave when it joined.
    fn pointing_to(&mut self, parameters: abi::rdma_ud_param, context: *mut c_void) {
        let ud = abi::rdma_ud_param {
            private_data: context,
            ..parameters
        };
        self.front.param = abi::EventParameters { ud };
    }

    fn service(&mut self, id: &Id, found: ServiceFound) {
        let address = way(id, |context| rdma_cm::address_of(context, &found.path));
        let parameters = abi::rdma_ud_param {
            ah_attr: address,
            qp_num: found.remote_qpn.value(),
            qkey: found.queue_key.value(),
            ..Default::default()
        };
        self.datagram(parameters, found.private_data);
    }

    fn group(&mut self, id: &Id, group: &Group) {
        let parameters = abi::rdma_ud_param {
            ah_attr: way(id, |context| rdma_cm::address_of(context, &group.path)),
            qp_num: Qpn::MULTICAST.value(),
            qkey: group.queue_key.value(),
            ..Default::default()
        };
        let context = self.membership(id, group.group);
        self.pointing_to(parameters, context);
        let attached = multicast::attach(id, group.group, &parameters.ah_attr.grh.dgid);
        self.unless_done(attached, abi::RDMA_CM_EVENT_MULTICAST_ERROR);
    }

    /// Who leaves the group waits for this event, too.
    fn membership(&mut self, id: &Id, group: std::net::IpAddr) -> *mut c_void {
        let state = id.state();
        let found = state.memberships.iter().find(|it| it.group == group);
        let Some(membership) = found else {
            return std::ptr::null_mut();
        };
        membership.told.add();
        self.waiting.push(Arc::clone(&membership.told));
        membership.context
    }

    fn give(self) -> *mut abi::rdma_cm_event {
        Event::give(
            self.front,
            Brought {
                waiting: self.waiting,
                _private_data: self.private_data,
            },
        )
    }
}

/// The peer accepts: makes the queue pair ready and says so. A program without a queue pair at the id
/// does that itself.
fn respond(id: &Id) -> Option<u32> {
    if id.read().qp.is_null() {
        return Some(abi::RDMA_CM_EVENT_CONNECT_RESPONSE);
    }
    let identifier = id.identifier().ok()?;
    let made = ready::make_ready(id, None).and_then(|()| Ok(identifier.establish()?));
    let Err(errno) = made else {
        return Some(abi::RDMA_CM_EVENT_ESTABLISHED);
    };
    ready::break_queue_pair(id);
    // The manager tells the program, in an event of its own.
    let _ = identifier.connect_failed(Failure::Os(errno.0));
    None
}

fn way(id: &Id, address: impl FnOnce(&rocinante::Context) -> Address) -> abi::ibv_ah_attr {
    let context = id.identifier().ok().and_then(|it| it.context());
    context.map_or_else(Default::default, |context| {
        attributes_of(&address(&context))
    })
}

fn start_of(bytes: &[u8]) -> *const c_void {
    if bytes.is_empty() {
        std::ptr::null()
    } else {
        bytes.as_ptr().cast()
    }
}

fn number_of(kind: &EventKind) -> u32 {
    match kind {
        EventKind::AddressResolved => abi::RDMA_CM_EVENT_ADDR_RESOLVED,
        EventKind::AddressError(_) => abi::RDMA_CM_EVENT_ADDR_ERROR,
        EventKind::RouteResolved => abi::RDMA_CM_EVENT_ROUTE_RESOLVED,
        EventKind::RouteError(_) => abi::RDMA_CM_EVENT_ROUTE_ERROR,
        EventKind::ConnectRequest { .. } => abi::RDMA_CM_EVENT_CONNECT_REQUEST,
        EventKind::ConnectResponse(_) => abi::RDMA_CM_EVENT_CONNECT_RESPONSE,
        EventKind::ConnectError(_) => abi::RDMA_CM_EVENT_CONNECT_ERROR,
        EventKind::Unreachable(_) => abi::RDMA_CM_EVENT_UNREACHABLE,
        EventKind::Rejected { .. } => abi::RDMA_CM_EVENT_REJECTED,
        EventKind::Established | EventKind::ServiceFound(_) => abi::RDMA_CM_EVENT_ESTABLISHED,
        EventKind::Disconnected { .. } => abi::RDMA_CM_EVENT_DISCONNECTED,
        EventKind::DeviceRemoval => abi::RDMA_CM_EVENT_DEVICE_REMOVAL,
        EventKind::MulticastJoin(_) => abi::RDMA_CM_EVENT_MULTICAST_JOIN,
        EventKind::MulticastError { .. } => abi::RDMA_CM_EVENT_MULTICAST_ERROR,
        EventKind::AddressChange => abi::RDMA_CM_EVENT_ADDR_CHANGE,
        EventKind::TimewaitExit => abi::RDMA_CM_EVENT_TIMEWAIT_EXIT,
        EventKind::Application { code, .. } => *code,
    }
}
