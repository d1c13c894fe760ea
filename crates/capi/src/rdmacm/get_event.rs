//! `rdma_get_cm_event`: events of ids, and what the library does before it delivers them.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;

use driver::Driver;
use driver::rdma_cm::{
    self, CmId, EventKind, Failure, Group, PeerParameters, Request, ServiceFound, Token,
    Unreachable,
};
use engine::Address;
use wire::Qpn;

use super::event::{Event, EventContents};
use super::event_channel::{self, Channel};
use super::id::{self, Id, JoinResult};
use super::{create_id, errno, migrate, queue_pair_state};
use crate::abi;
use crate::entry::{MinusOne, Output, entry};
use crate::errno::Errno;
use crate::interruption;
use crate::verbs::address_handle::attributes_of;
use crate::verbs::context::is_nonblocking;
use crate::verbs::event_target::UnacknowledgedEvents;
use crate::verbs::multicast::ibv_attach_mcast;

entry! {
    wait fn rdma_get_cm_event(
        channel: &Channel,
        event: Output<*mut abi::rdma_cm_event>,
    ) -> MinusOne {
        let mut event = event;
        let Some(happened) = poll_or_sleep(channel)? else {
            return Ok(None);
        };
        event.put(happened);
        Ok(Some(MinusOne::DONE))
    }

    export fn rdma_event_str(event: u32) -> *const c_char {
        let name = usize::try_from(event).ok().and_then(|it| NAMES.get(it));
        Ok(name.unwrap_or(&c"UNKNOWN EVENT").as_ptr())
    }

    /// Adds an event of the program to the channel of an id.
    export fn rdma_write_cm_event(id: &Id, event: u32, status: c_int, argument: u64) -> MinusOne {
        if event != abi::RDMA_CM_EVENT_USER {
            return Err(Errno::INVALID);
        }
        id.cm_id()?.write_event(event, status, argument);
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

/// Waits for the next event.
pub(super) fn next(channel: &Channel) -> Result<*mut abi::rdma_cm_event, Errno> {
    // As in `wait`: the channel lives, even if the program destroys its handle.
    let channel = Arc::clone(channel);
    loop {
        if let Some(event) = poll_or_sleep(&channel)? {
            return Ok(event);
        }
    }
}

/// The next event; `None` after a while without one, so that the thread can be cancelled.
fn poll_or_sleep(
    channel: &event_channel::ChannelState,
) -> Result<Option<*mut abi::rdma_cm_event>, Errno> {
    channel.check_not_inherited()?;
    while let Some(happened) = channel.events.poll() {
        if let Some(event) = tell(happened) {
            return Ok(Some(event));
        }
    }
    if is_nonblocking(channel.events.as_fd().as_raw_fd())? {
        return Err(Errno::TRY_AGAIN);
    }
    let signal = channel
        .events
        .sleep_for(interruption::CANCELLATION_CHECK_INTERVAL);
    if signal && interruption::signals_end_calls() {
        Err(Errno(libc::EINTR))
    } else {
        Ok(None)
    }
}

/// The event for C; `None` if its id is gone, or if the program need not know of it.
fn tell(happened: rdma_cm::Event) -> Option<*mut abi::rdma_cm_event> {
    match (happened.kind, happened.listener, happened.request) {
        (EventKind::ConnectRequest { request, .. }, Some(listener), Some(cm_id)) => {
            connect_request_event(listener, cm_id, request)
        }
        (kind, ..) => id_event(happened.id, kind),
    }
}

fn connect_request_event(
    listener: Token,
    cm_id: CmId,
    request: Request,
) -> Option<*mut abi::rdma_cm_event> {
    let listener = id::tell(listener)?;
    let id = create_id::of_request(listener, cm_id);
    let mut draft = Draft::new(abi::RDMA_CM_EVENT_CONNECT_REQUEST, id);
    draft.c_part.listen_id = listener.c();
    // The listener must not be destroyed before the request is acknowledged.
    draft.waiting = vec![Arc::clone(&listener.unacknowledged)];
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
    let own_channel = if listener.state().sync {
        migrate::migrate(id, None)
    } else {
        Ok(())
    };
    if own_channel.and_then(|()| id.refresh()).is_err() {
        create_id::destroy(id);
        listener.unacknowledged.acknowledge(1);
        return None;
    }
    id.show_path();
    Some(draft.finish())
}

fn id_event(token: Token, kind: EventKind) -> Option<*mut abi::rdma_cm_event> {
    let id = id::tell(token)?;
    let draft = Draft::of(id, kind);
    if draft.is_none() {
        id.unacknowledged.acknowledge(1);
    }
    draft.map(Draft::finish)
}

/// An event under construction.
struct Draft {
    c_part: abi::rdma_cm_event,
    private_data: Vec<u8>,
    waiting: Vec<Arc<UnacknowledgedEvents>>,
}

impl Draft {
    fn new(event: u32, id: &Id) -> Self {
        Self {
            c_part: abi::rdma_cm_event {
                id: id.c(),
                event,
                ..Default::default()
            },
            private_data: Vec::new(),
            waiting: vec![Arc::clone(&id.unacknowledged)],
        }
    }

    /// Does the library's part of an event; `None` if the program need not know of it.
    fn of(id: &Id, kind: EventKind) -> Option<Self> {
        let mut draft = Self::new(number_of(&kind), id);
        draft.c_part.status = errno::status(&kind);
        match kind {
            EventKind::AddressResolved => {
                draft.fail_if(id.refresh(), abi::RDMA_CM_EVENT_ADDR_ERROR);
            }
            EventKind::RouteResolved => id.show_path(),
            EventKind::ConnectResponse(offer) => {
                draft.c_part.event = respond(id)?;
                draft.offer(offer);
            }
            EventKind::Rejected { private_data, .. } => {
                queue_pair_state::set_error_state(id);
                draft.connection(abi::rdma_conn_param::default(), private_data);
            }
            EventKind::Unreachable(Unreachable::Rejected { private_data, .. }) => {
                draft.datagram(abi::rdma_ud_param::default(), private_data);
            }
            EventKind::ServiceFound(found) => draft.service(id, found),
            EventKind::MulticastJoin(group) => draft.group(id, &group),
            EventKind::MulticastError { group, .. } => {
                let context = draft.membership(id, group);
                draft.with_context(abi::rdma_ud_param::default(), context);
            }
            EventKind::Application { argument, .. } => {
                draft.c_part.param = abi::EventParameters { arg: argument };
            }
            _ => {}
        }
        Some(draft)
    }

    /// If the library's part failed, the event becomes an error event.
    fn fail_if(&mut self, done: Result<(), Errno>, error: u32) {
        if done.is_err() {
            self.c_part.event = error;
            self.c_part.status = -1;
        }
    }

    fn offer(&mut self, offer: PeerParameters) {
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
            private_data: pointer_to(&private_data),
            private_data_len: private_data.len() as u8,
            ..parameters
        };
        self.c_part.param = abi::EventParameters { conn };
        self.private_data = private_data;
    }

    fn datagram(&mut self, parameters: abi::rdma_ud_param, private_data: Vec<u8>) {
        let ud = abi::rdma_ud_param {
            private_data: pointer_to(&private_data),
            private_data_len: private_data.len() as u8,
            ..parameters
        };
        self.c_part.param = abi::EventParameters { ud };
        self.private_data = private_data;
    }

    /// Sets the context that the program passed to `rdma_join_multicast`.
    fn with_context(&mut self, parameters: abi::rdma_ud_param, context: *mut c_void) {
        let ud = abi::rdma_ud_param {
            private_data: context,
            ..parameters
        };
        self.c_part.param = abi::EventParameters { ud };
    }

    fn service(&mut self, id: &Id, found: ServiceFound) {
        let address = address_attributes(id, |context| rdma_cm::address_of(context, &found.path));
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
            ah_attr: address_attributes(id, |context| rdma_cm::address_of(context, &group.path)),
            qp_num: Qpn::MULTICAST.value(),
            qkey: group.queue_key.value(),
            ..Default::default()
        };
        let context = self.membership(id, group.group);
        self.with_context(parameters, context);
        let attached = attach_queue_pair(id, group.group, &parameters.ah_attr.grh.dgid);
        self.fail_if(attached, abi::RDMA_CM_EVENT_MULTICAST_ERROR);
    }

    /// Returns the context of the attempt to join whose result this event is: the oldest one without, because the newest is the first
    /// in the list. Leaving the group waits until this event is acknowledged, too.
    fn membership(&mut self, id: &Id, group: std::net::IpAddr) -> *mut c_void {
        let mut state = id.state();
        let mut oldest_first = state.memberships.iter_mut().rev();
        let found = oldest_first.find(|it| it.group == group && it.result == JoinResult::Awaited);
        let Some(membership) = found else {
            return std::ptr::null_mut();
        };
        membership.result = JoinResult::Told;
        membership.unacknowledged.add();
        self.waiting.push(Arc::clone(&membership.unacknowledged));
        membership.context
    }

    fn finish(self) -> *mut abi::rdma_cm_event {
        Event::new_pointer(
            self.c_part,
            EventContents {
                waiting: self.waiting,
                _private_data: self.private_data,
            },
        )
    }
}

/// The group is joined: attaches the queue pair.
fn attach_queue_pair(id: &Id, group: std::net::IpAddr, name: &abi::ibv_gid) -> Result<(), Errno> {
    let (queue_pair, mut name) = (id.read().qp, *name);
    let mut state = id.state();
    let found = state.memberships.iter_mut().find(|it| it.group == group);
    let Some(membership) = found.filter(|it| !it.send_only) else {
        return Ok(());
    };
    if queue_pair.is_null() {
        return Ok(());
    }
    // SAFETY: the id's own queue pair, and a GID that lives during the call.
    match unsafe { ibv_attach_mcast(queue_pair, &raw mut name, 0) } {
        0 => {
            membership.attached = Some(name);
            Ok(())
        }
        number => Err(Errno(number)),
    }
}

/// The peer accepts: moves the queue pair to ready-to-send and confirms. A program without a queue pair at
/// the id does this itself.
fn respond(id: &Id) -> Option<u32> {
    if id.read().qp.is_null() {
        return Some(abi::RDMA_CM_EVENT_CONNECT_RESPONSE);
    }
    let cm_id = id.cm_id().ok()?;
    let made = queue_pair_state::connect_queue_pair(id, None).and_then(|()| Ok(cm_id.establish()?));
    let Err(errno) = made else {
        return Some(abi::RDMA_CM_EVENT_ESTABLISHED);
    };
    queue_pair_state::set_error_state(id);
    // The connection manager reports it in a separate event.
    let _ = cm_id.connect_failed(Failure::Os(errno.0));
    None
}

fn address_attributes(id: &Id, address: impl FnOnce(&Arc<Driver>) -> Address) -> abi::ibv_ah_attr {
    let context = id.cm_id().ok().and_then(|it| it.driver());
    context.map_or_else(Default::default, |context| {
        attributes_of(&address(&context))
    })
}

fn pointer_to(bytes: &[u8]) -> *const c_void {
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
