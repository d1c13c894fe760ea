//! Ids and event channels, step by step.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;

use rocinante::rdma_cm::{
    CmError, CmId, Event, EventChannel, EventKind, PortSpace, RejectReason, Request as Asked,
    ServiceType,
};
use rocinante::{
    CompletionQueue, Context, MemoryRegion, PreparedQueuePair, QueuePair, Request, State, Status,
    SystemRefusal,
};

use crate::device::{is_siw, open, system_device};
use crate::{ALL, TIMEOUT};

pub(crate) fn next(channel: &EventChannel) -> Event {
    channel.wait_for(TIMEOUT).expect("an event")
}

#[track_caller]
pub(crate) fn expect(channel: &EventChannel, id: &CmId, kind: &EventKind) {
    let event = next(channel);
    assert_eq!((&event.kind, event.id), (kind, id.token()), "{event:?}");
}

fn is_readable(channel: &EventChannel) -> bool {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let mut ready = [PollFd::from_borrowed_fd(channel.as_fd(), PollFlags::IN)];
    let now = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    poll(&mut ready, Some(&now)).expect("a descriptor") == 1
}

pub(crate) fn address_of(context: &Context) -> IpAddr {
    let addresses = || context.device().gids.iter().map(|entry| entry.address);
    let ipv4 = addresses().find(IpAddr::is_ipv4);
    ipv4.or_else(|| addresses().next()).expect("an address")
}

fn listen(context: &Context, channel: &EventChannel) -> (CmId, SocketAddr) {
    let listener = channel.create_id(PortSpace::Tcp);
    listener.choose(context);
    let bound = listener.bind((address_of(context), 0).into());
    let bound = bound.expect("a free port");
    assert_eq!(listener.local_address(), Some(bound));
    listener.listen(4).expect("a bound id");
    (listener, bound)
}

/// An id that can connect.
fn resolved(context: &Context, channel: &EventChannel, peer: SocketAddr) -> CmId {
    let id = channel.create_id(PortSpace::Tcp);
    id.choose(context);
    id.resolve_address(None, peer, TIMEOUT).expect("a route");
    expect(channel, &id, &EventKind::AddressResolved);
    id.resolve_route(TIMEOUT).expect("an address");
    expect(channel, &id, &EventKind::RouteResolved);
    id
}

struct End {
    completions: CompletionQueue,
    memory: MemoryRegion,
}

/// A queue pair with a receive for one message.
fn prepare(id: &CmId) -> (End, PreparedQueuePair) {
    let context = Context::from_id(id).expect("it is at a device");
    let domain = context.allocate_protection_domain().expect("room");
    let completions = context.create_completion_queue(16).expect("room");
    let memory = domain.allocate_memory(64, ALL).expect("memory");
    let prepared = domain.queue_pair_builder(&completions).create_reliable();
    let prepared = prepared.expect("room");
    prepared.post_receive(1, [memory.all()]).expect("room");
    (
        End {
            completions,
            memory,
        },
        prepared,
    )
}

/// The ids of a connection, and their listener.
pub(crate) struct Ids {
    _channel: EventChannel,
    _listener: CmId,
    _ends: [CmId; 2],
}

/// Connects two queue pairs by ids.
pub(crate) fn connect(
    context: &Context,
    client: PreparedQueuePair,
    server: PreparedQueuePair,
) -> (QueuePair, QueuePair, Ids) {
    let channel = EventChannel::new().expect("a descriptor");
    let (listener, address) = listen(context, &channel);
    let client_id = resolved(context, &channel, address);
    let asked = client_id.connect(&client.parameters(b""));
    asked.expect("a route");
    let server_id = next(&channel).request.expect("a request");
    let parameters = server.parameters(b"");
    let server = server.connect_by(&server_id).expect("a client");
    server_id.accept(&parameters).expect("a request");
    let mut client = Some(client);
    let mut connected = None;
    let mut is_established = false;
    while connected.is_none() || !is_established {
        match next(&channel).kind {
            EventKind::ConnectResponse(_) => {
                let client = client.take().expect("one response");
                connected = Some(client.connect_by(&client_id).expect("a server"));
                client_id.establish().expect("a response");
            }
            EventKind::Established => is_established = true,
            other => panic!("{other:?}"),
        }
    }
    let ids = Ids {
        _channel: channel,
        _listener: listener,
        _ends: [client_id, server_id],
    };
    (connected.expect("a response"), server, ids)
}

/// A client and a server that are connected, and the events of both in one channel.
struct Connected {
    channel: EventChannel,
    client: (CmId, QueuePair, End),
    server: (CmId, QueuePair, End),
}

fn connected(context: &Context) -> Connected {
    let channel = EventChannel::new().expect("a descriptor");
    let (listener, address) = listen(context, &channel);
    let client = resolved(context, &channel, address);
    assert_eq!(client.peer_address(), Some(address));
    let (client_end, client_pair) = prepare(&client);
    client
        .connect(&client_pair.parameters(b"who I am"))
        .expect("a route");
    let event = next(&channel);
    assert_eq!(event.listener, Some(listener.token()));
    let server = event.request.expect("a request");
    assert_eq!(server.token(), event.id);
    let EventKind::ConnectRequest {
        request: Asked::Connection(asked),
        ..
    } = event.kind
    else {
        panic!("{:?}", event.kind);
    };
    assert!(asked.private_data.starts_with(b"who I am"));
    let (server_end, server_pair) = prepare(&server);
    let parameters = server_pair.parameters(b"welcome");
    let server_pair = server_pair.connect_by(&server).expect("a client");
    server.accept(&parameters).expect("a request");
    if is_siw() {
        // With iWARP the server is ready first.
        expect(&channel, &server, &EventKind::Established);
    }
    let event = next(&channel);
    let EventKind::ConnectResponse(answer) = event.kind else {
        panic!("{event:?}");
    };
    assert_eq!(event.id, client.token());
    assert!(answer.private_data.starts_with(b"welcome"));
    let client_pair = client_pair.connect_by(&client).expect("a server");
    client.establish().expect("a response");
    if !is_siw() {
        expect(&channel, &server, &EventKind::Established);
    }
    Connected {
        channel,
        client: (client, client_pair, client_end),
        server: (server, server_pair, server_end),
    }
}

#[test]
fn ids_connect_step_by_step_and_disconnect() {
    let context = open();
    let Connected {
        channel,
        client: (client, client_pair, client_end),
        server: (server, server_pair, server_end),
    } = connected(&context);
    client_pair
        .post_send(Request::send().inline(b"a message"))
        .expect("room");
    let completes = |end: &End| end.completions.wait_for(TIMEOUT).expect("a completion");
    assert_eq!(completes(&client_end).status, Status::Success);
    assert_eq!(completes(&server_end).length, 9);
    assert_eq!(server_end.memory.to_vec(..9), b"a message");

    assert!(!is_readable(&channel));
    client.disconnect().expect("a connection");
    let ended = EventKind::Disconnected { timed_out: false };
    if is_siw() {
        // iWARP asks nobody, and siw of Linux 6.1 does not tell the state.
        let both = [next(&channel), next(&channel)];
        assert!(both.iter().all(|event| event.kind == ended), "{both:?}");
    } else {
        expect(&channel, &server, &ended);
        // The client waits until the server agrees.
        assert_eq!(server_pair.state(), State::ReadyToSend);
        server.disconnect().expect("a request to disconnect");
        assert_eq!(server_pair.state(), State::Error);
        expect(&channel, &client, &ended);
        assert_eq!(client_pair.state(), State::Error);
    }
    assert_eq!(completes(&client_end).status, Status::Flushed);
}

#[test]
fn a_rejected_id_gets_the_private_data() {
    let context = open();
    let channel = EventChannel::new().expect("a descriptor");
    let (_listener, address) = listen(&context, &channel);
    let client = resolved(&context, &channel, address);
    let (_end, prepared) = prepare(&client);
    client.connect(&prepared.parameters(b"")).expect("a route");
    let request = next(&channel).request.expect("a request");
    request
        .reject(RejectReason::Consumer, b"not today")
        .expect("a request");
    let event = next(&channel);
    let EventKind::Rejected {
        reason,
        private_data,
    } = event.kind
    else {
        panic!("{event:?}");
    };
    assert_eq!((event.id, reason), (client.token(), RejectReason::Consumer));
    assert!(private_data.starts_with(b"not today"));
}

#[test]
fn events_follow_an_id_to_another_channel() {
    let context = open();
    let Connected {
        channel,
        client: (client, _client_pair, _client_end),
        server: (server, _server_pair, _server_end),
    } = connected(&context);
    let other = EventChannel::new().expect("a descriptor");
    server.write_event(7, 0, 9);
    assert!(is_readable(&channel));
    server.migrate(&other);
    assert!(!is_readable(&channel));
    let own = EventKind::Application {
        code: 7,
        status: 0,
        argument: 9,
    };
    expect(&other, &server, &own);
    client.disconnect().expect("a connection");
    let ended = EventKind::Disconnected { timed_out: false };
    expect(&other, &server, &ended);
    // A dropped id agrees, too.
    drop(server);
    expect(&channel, &client, &ended);
}

#[test]
fn a_dropped_id_has_no_events() {
    let context = open();
    let channel = EventChannel::new().expect("a descriptor");
    let (listener, address) = listen(&context, &channel);
    let client = resolved(&context, &channel, address);
    let (_end, prepared) = prepare(&client);
    client.connect(&prepared.parameters(b"")).expect("a route");
    while !is_readable(&channel) {
        channel.sleep_for(TIMEOUT);
    }
    // The request is not taken yet: it is rejected.
    drop(listener);
    let event = next(&channel);
    assert_eq!(event.id, client.token());
    assert!(
        matches!(event.kind, EventKind::Rejected { .. }),
        "{event:?}"
    );
}

#[test]
fn options_of_an_id_are_taken_before_it_is_bound() {
    let context = open();
    let channel = EventChannel::private();
    let id = channel.create_id(PortSpace::Tcp);
    id.choose(&context);
    id.set_traffic_class(8).expect("an option");
    id.set_reuse_address(true).expect("an option");
    let timeout = rocinante::AckTimeout::new(15).expect("a code");
    id.set_ack_timeout(timeout).expect("an option");
    id.bind((address_of(&context), 0).into())
        .expect("a free port");
}

#[test]
fn an_id_without_an_address_can_not_connect() {
    let context = open();
    let id = EventChannel::private().create_id(PortSpace::Tcp);
    id.choose(&context);
    assert!(Context::from_id(&id).is_none());
    id.resolve_route(TIMEOUT).expect_err("no address");
    id.disconnect().expect_err("no connection");
}

#[test]
fn ids_for_unreliable_connections_are_refused_at_devices_of_the_system() {
    if system_device().is_none() {
        return;
    }
    let context = open();
    let channel = EventChannel::private();
    let id = channel.create_id_for(PortSpace::Infiniband, ServiceType::UnreliableConnection);
    id.choose(&context);
    let refused = id.bind((address_of(&context), 0).into());
    assert!(
        matches!(refused, Err(CmError::System(SystemRefusal::NotOffered(_)))),
        "{refused:?}"
    );
}

#[test]
fn tasks_wait_for_events_until_a_deadline() {
    use crate::connections::block_on;
    use std::time::{Duration, Instant};
    let context = open();
    let channel = EventChannel::private();
    let (_listener, address) = listen(&context, &channel);
    let id = channel.create_id(PortSpace::Tcp);
    id.choose(&context);
    block_on(async {
        id.resolve_address(None, address, TIMEOUT).expect("a route");
        assert_eq!(channel.next().await.kind, EventKind::AddressResolved);
        let deadline = Instant::now() + Duration::from_millis(30);
        let none = channel.next_until(&context, Some(deadline)).await;
        assert!(none.is_none(), "{none:?}");
        assert!(Instant::now() >= deadline);
    });
}
