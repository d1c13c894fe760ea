//! Connections by the connection manager, over loopback.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::thread;
use std::time::{Duration, Instant};

use rocinante::rdma_cm::{
    CmId, EventChannel, EventKind, Failure, Parameters, PortSpace, RejectReason,
};
use rocinante::{
    Access, CompletionQueue, ConnectError, ConnectOptions, Connection, ConnectionRequest,
    Connector, Context, Listener, MemoryRegion, ProtectionDomain, Qpn, Request, ShutdownError,
    Status,
};

const TIMEOUT: Duration = Duration::from_secs(10);

/// What one end needs besides the connection.
struct Side {
    domain: ProtectionDomain,
    completions: CompletionQueue,
    memory: MemoryRegion,
}

impl Side {
    fn at(context: &Context) -> Self {
        let domain = context.allocate_protection_domain().unwrap();
        Self {
            completions: context.create_completion_queue(64).unwrap(),
            memory: domain
                .allocate_memory(
                    4096,
                    Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ,
                )
                .unwrap(),
            domain,
        }
    }

    fn queue_pair_builder(&self) -> rocinante::QueuePairBuilder {
        self.domain.queue_pair_builder(&self.completions)
    }

    fn succeeds(&self) {
        let completion = self.completions.wait_for(TIMEOUT).expect("a completion");
        assert_eq!(completion.status, Status::Success);
    }
}

fn accept(request: ConnectionRequest, reply: &[u8]) -> (Side, Connection) {
    let side = Side::at(request.context());
    let prepared = request.prepare(side.queue_pair_builder()).unwrap();
    prepared
        .post_receive(1, [side.memory.slice(0..64)])
        .unwrap();
    let connection = prepared.accept(reply).unwrap();
    (side, connection)
}

fn connect(address: SocketAddr, request: &[u8]) -> Result<(Side, Connection), ConnectError> {
    let connector = Connector::resolve_from(beside(address), address)?;
    let side = Side::at(connector.context());
    let prepared = connector.prepare(side.queue_pair_builder())?;
    let connection = prepared.connect(request)?;
    Ok((side, connection))
}

/// An id that can connect to an address, and its events.
fn resolved(address: SocketAddr) -> (EventChannel, CmId) {
    let channel = EventChannel::new().unwrap();
    let id = channel.create_id(PortSpace::Tcp);
    id.resolve_address(Some(beside(address)), address, TIMEOUT)
        .unwrap();
    assert_eq!(channel.wait().kind, EventKind::AddressResolved);
    id.resolve_route(TIMEOUT).unwrap();
    assert_eq!(channel.wait().kind, EventKind::RouteResolved);
    (channel, id)
}

/// A listener whose requests the test accepts itself.
struct Listening {
    channel: EventChannel,
    _id: CmId,
    address: SocketAddr,
}

impl Listening {
    fn at(address: &str) -> Self {
        let address = address.parse().unwrap();
        let channel = EventChannel::new().unwrap();
        let id = channel.create_id(PortSpace::Tcp);
        id.bind(address).unwrap();
        id.listen(1).unwrap();
        Self {
            channel,
            _id: id,
            address,
        }
    }

    fn request(&self) -> CmId {
        let event = self.channel.wait_for(TIMEOUT).expect("a request");
        event.request.expect("the id of the request")
    }
}

/// An address that no other program uses, in the neighbourhood of another.
fn beside(address: SocketAddr) -> SocketAddr {
    match address.ip() {
        IpAddr::V4(ip) => {
            let [a, b, c, d] = ip.octets();
            SocketAddr::from(([a, b, c, d + 100], 0))
        }
        ip => SocketAddr::new(ip, 0),
    }
}

#[test]
fn a_client_that_never_confirms_does_not_keep_the_next_one_waiting() {
    let listener = Listener::bind("127.54.17.1:7174").unwrap();
    let address = listener.local_address();
    // It hears the reply and stays silent: no RTU.
    let (channel, silent) = resolved(address);
    let parameters = Parameters::new(Qpn::new(0x77));
    silent.connect(&parameters).unwrap();

    let request = listener.wait_for(TIMEOUT).expect("a request");
    let side = Side::at(request.context());
    let prepared = request.prepare(side.queue_pair_builder()).unwrap();
    let refused = prepared.timeout(Duration::from_millis(100)).accept(b"");
    assert!(
        matches!(refused, Err(ConnectError::NotConfirmed { .. })),
        "{refused:?}"
    );
    let response = channel.wait().kind;
    assert!(matches!(response, EventKind::ConnectResponse(_)));
    let kind = channel.wait().kind;
    assert!(matches!(kind, EventKind::Rejected { .. }), "{kind:?}");

    let server = thread::spawn(move || accept(listener.wait(), b"welcome"));
    let (_side, _connection) = connect(address, b"next").unwrap();
    let (_their_side, _their_connection) = server.join().unwrap();
}

#[test]
fn client_connects_and_both_sides_can_post() {
    let listener = Listener::bind("127.54.1.1:7174").unwrap();
    let address = listener.local_address();
    let server = thread::spawn(move || {
        let request = listener.wait();
        assert_eq!(&request.private_data()[..5], b"hello");
        let (side, connection) = accept(request, b"welcome");
        side.succeeds();
        assert_eq!(side.memory.to_vec(0..4), b"ping");
        assert!(connection.wait_disconnected(TIMEOUT));
    });
    let (side, connection) = connect(address, b"hello").unwrap();
    assert_eq!(&connection.private_data()[..7], b"welcome");
    assert_eq!(connection.peer_address(), Some(address));
    connection
        .post_send(Request::send().inline(b"ping"))
        .unwrap();
    side.succeeds();
    connection.disconnect().unwrap();
    assert!(connection.wait_disconnected(TIMEOUT));
    server.join().unwrap();
}

#[test]
fn a_poll_of_a_listener_finds_the_request_that_is_there() {
    let listener = Listener::bind("127.54.1.2:7174").unwrap();
    assert!(listener.poll().is_none());
    let address = listener.local_address();
    let client = thread::spawn(move || connect(address, b"hello").unwrap());
    let deadline = Instant::now() + TIMEOUT;
    let request = loop {
        if let Some(request) = listener.poll() {
            break request;
        }
        assert!(Instant::now() < deadline, "no request");
        thread::yield_now();
    };
    assert_eq!(&request.private_data()[..5], b"hello");
    let (_side, _connection) = accept(request, b"welcome");
    let (_their_side, _their_connection) = client.join().unwrap();
    assert!(listener.poll().is_none());
}

#[test]
fn a_first_packet_of_an_unknown_queue_pair_establishes_nothing() {
    let listening = Listening::at("127.54.1.3:7174");
    let (_events, id) = resolved(listening.address);
    assert!(!id.notify_established(Qpn::new(0x77)).unwrap());
}

/// Only where the tests have a network of their own is there an interface at which nobody answers.
#[test]
fn an_address_that_does_not_answer_is_not_resolved() {
    let source: SocketAddr = "198.51.100.1:0".parse().unwrap();
    if UdpSocket::bind(source).is_err() {
        return;
    }
    let channel = EventChannel::new().unwrap();
    let id = channel.create_id(PortSpace::Tcp);
    let silent = "198.51.100.78:7174".parse().unwrap();
    id.resolve_address(Some(source), silent, 3 * TIMEOUT)
        .unwrap();
    let kind = channel.wait().kind;
    assert_eq!(kind, EventKind::AddressError(Failure::TimedOut));
}

#[test]
fn client_connects_over_ipv6_to_a_chosen_port() {
    let listener = Listener::bind("[::1]:0").unwrap();
    let address = listener.local_address();
    assert_ne!(address.port(), 0);
    let server = thread::spawn(move || {
        let (side, connection) = accept(listener.wait(), b"");
        side.succeeds();
        connection.disconnect().unwrap();
    });
    let (side, connection) = connect(address, b"").unwrap();
    connection
        .post_send(Request::send().inline(b"six"))
        .unwrap();
    side.succeeds();
    assert!(connection.wait_disconnected(TIMEOUT));
    server.join().unwrap();
}

#[test]
fn rejection_carries_its_private_data() {
    let listener = Listener::bind("127.54.2.1:7174").unwrap();
    let address = listener.local_address();
    let server = thread::spawn(move || listener.wait().reject(b"not you").unwrap());
    match connect(address, b"") {
        Err(ConnectError::Rejected {
            reason,
            private_data,
            ..
        }) => {
            assert_eq!(reason, RejectReason::Consumer);
            assert_eq!(&private_data[..7], b"not you");
        }
        other => panic!("{:?}", other.map(|_| ())),
    }
    server.join().unwrap();
}

#[test]
fn missing_listener_is_reported_at_once() {
    // The address has a device, but no listener on this port.
    let _other = Listener::bind("127.54.3.1:7174").unwrap();
    let refused = connect("127.54.3.1:7175".parse().unwrap(), b"");
    assert!(matches!(refused, Err(ConnectError::NoListener(_))));
}

/// The client retransmits for some seconds, so that the server may start later.
#[test]
fn address_without_a_process_rejects_after_seconds() {
    let refused = connect("127.54.3.3:7175".parse().unwrap(), b"");
    assert!(matches!(refused, Err(ConnectError::NoListener(_))));
}

/// It starts when its client has asked again, after 1.5 s. The client gives up when it has asked four times, after 6 s.
#[test]
fn a_server_may_start_seconds_after_its_client() {
    let hears = UdpSocket::bind("127.54.3.5:4791").unwrap();
    let server = thread::spawn(move || {
        for _ in 0..2 {
            let (length, _) = hears.recv_from(&mut [0; 512]).unwrap();
            assert!(length > 200, "a request");
        }
        drop(hears);
        let listener = Listener::bind("127.54.3.5:7176").unwrap();
        accept(listener.wait(), b"late")
    });
    let (_side, connection) = connect("127.54.3.5:7176".parse().unwrap(), b"").unwrap();
    assert!(connection.private_data().starts_with(b"late"));
    drop(server.join().unwrap());
}

#[test]
fn silent_host_is_reported_after_the_timeout() {
    let source = "127.54.4.1:0".parse().unwrap();
    let connector = Connector::resolve_from(source, "127.54.4.9:7174").unwrap();
    let connector = connector.timeout(Duration::from_millis(200));
    let side = Side::at(connector.context());
    let prepared = connector.prepare(side.queue_pair_builder()).unwrap();
    let start = Instant::now();
    let refused = prepared.connect(b"");
    assert!(matches!(refused, Err(ConnectError::Unreachable(_))));
    let after = start.elapsed();
    // The default is ten seconds.
    assert!(after < Duration::from_secs(8), "after {after:?}");
}

#[test]
fn a_listener_on_an_open_device_uses_that_device() {
    let context = Context::open("127.54.18.1").unwrap();
    let side = Side::at(&context);
    let address = SocketAddr::from(([127, 54, 18, 1], 7174));
    let listener = Listener::bind_on(&context, address).unwrap();
    let client = thread::spawn(move || connect(address, b"").map(drop));
    let request = listener.wait_for(TIMEOUT).expect("a request");
    let prepared = request.prepare(side.queue_pair_builder()).unwrap();
    let _connection = prepared.accept(b"").unwrap();
    client.join().unwrap().unwrap();
}

#[test]
fn error_for_an_unresolvable_name_contains_it() {
    let refused = [
        Connector::resolve("no.such.host.invalid:7174").unwrap_err(),
        Connector::resolve(("no.such.host.invalid", 7174)).unwrap_err(),
    ];
    for refused in refused {
        assert!(refused.to_string().contains("no.such.host.invalid"));
    }
}

#[test]
fn a_name_and_a_port_are_an_address() {
    let listener = Listener::bind(("127.54.18.2", 0)).unwrap();
    let port = listener.local_address().port();
    let connector = Connector::resolve(("127.54.18.2", port)).unwrap();
    assert!(connector.context().device().name.contains("lo"));
}

#[test]
fn the_first_address_of_a_name_that_can_be_used_is() {
    // The first one belongs to no machine.
    let both = ["192.0.2.1:0", "127.54.18.3:0"].map(|it| it.parse::<SocketAddr>().unwrap());
    let listener = Listener::bind(&both[..]).unwrap();
    assert_eq!(listener.local_address().ip(), both[1].ip());
    let refused = Listener::bind(&both[..1]).unwrap_err();
    assert!(matches!(refused, ConnectError::Cm(_)), "{refused:?}");
    let nobody: [SocketAddr; 0] = [];
    let refused = Listener::bind(&nobody[..]).unwrap_err();
    assert!(matches!(refused, ConnectError::Name { .. }), "{refused:?}");
}

#[test]
fn a_port_is_free_for_another_device_when_its_listener_is_gone() {
    let [one, other] = [(); 2].map(|()| Context::open("127.54.5.3").unwrap());
    let address = "127.54.5.3:7174";
    let listener = Listener::bind_on(&one, address).unwrap();
    assert!(Listener::bind_on(&other, address).is_err());
    drop(listener);
    let _listener = Listener::bind_on(&other, address).unwrap();
}

#[test]
fn a_server_takes_no_more_reads_than_its_client_offers() {
    let listener = Listener::bind("127.54.18.1:7174").unwrap();
    let address = listener.local_address();
    let (channel, client) = resolved(address);
    let mut parameters = Parameters::new(Qpn::new(0x77));
    parameters.responder_resources = 2;
    parameters.initiator_depth = 3;
    client.connect(&parameters).unwrap();

    let request = listener.wait_for(TIMEOUT).expect("a request");
    let side = Side::at(request.context());
    let prepared = request.prepare(side.queue_pair_builder()).unwrap();
    let refused = prepared.timeout(Duration::from_millis(100)).accept(b"");
    assert!(refused.is_err(), "the client does not confirm");
    let EventKind::ConnectResponse(peer_parameters) = channel.wait().kind else {
        panic!("the server has accepted");
    };
    assert_eq!(
        (
            peer_parameters.responder_resources,
            peer_parameters.initiator_depth
        ),
        (2, 3)
    );
}

#[test]
fn a_client_may_offer_more_reads_than_the_device_supports() {
    let listener = Listener::bind("127.54.20.1:7174").unwrap();
    let (channel, client) = resolved(listener.local_address());
    let mut offer = Parameters::new(Qpn::new(0x77));
    offer.responder_resources = 129;
    offer.initiator_depth = 255;
    client.connect(&offer).unwrap();
    let request = listener.wait_for(TIMEOUT).expect("a request");
    let side = Side::at(request.context());
    let queue_pair = side.queue_pair_builder().connect_options(ConnectOptions {
        reads: 255,
        ..ConnectOptions::default()
    });
    let server = thread::spawn(move || request.prepare(queue_pair)?.accept(b""));
    let EventKind::ConnectResponse(accepted) = channel.wait().kind else {
        panic!("the server has not accepted");
    };
    let reads = (accepted.responder_resources, accepted.initiator_depth);
    assert_eq!(reads, (128, 128), "as many as the server's device supports");
    client.establish().unwrap();
    drop(server.join().unwrap().expect("a connection"));
}

#[test]
fn a_server_may_offer_more_reads_than_the_device_supports() {
    let listening = Listening::at("127.54.21.1:7174");
    let address = listening.address;
    let client = thread::spawn(move || connect(address, b"").map(drop));
    let request = listening.request();
    let mut offer = Parameters::new(Qpn::new(0x77));
    offer.responder_resources = 129;
    offer.initiator_depth = 255;
    request.accept(&offer).unwrap();
    client.join().unwrap().expect("a connection");
    let event = listening.channel.wait_for(TIMEOUT).expect("an event");
    assert_eq!(event.kind, EventKind::Established);
}

#[test]
fn server_gets_an_event_when_the_client_cannot_use_its_reply() {
    let listening = Listening::at("127.54.19.1:7174");
    let (channel, client) = resolved(listening.address);
    let context = Context::from_id(&client).expect("its device");
    let side = Side::at(&context);
    // The connection is reliable.
    let prepared = side.queue_pair_builder().create_unreliable().unwrap();
    client.connect(&prepared.parameters(b"")).unwrap();
    let request = listening.request();
    request.accept(&Parameters::new(Qpn::new(0x77))).unwrap();
    let response = channel.wait().kind;
    assert!(matches!(response, EventKind::ConnectResponse(_)));
    let refused = prepared.connect_by(&client);
    assert!(
        matches!(refused, Err(ConnectError::Setup(_))),
        "{refused:?}"
    );
    drop(client);
    let event = listening.channel.wait_for(TIMEOUT).expect("an event");
    let kind = event.kind;
    assert!(
        matches!(
            kind,
            EventKind::Rejected {
                reason: RejectReason::Consumer,
                ..
            }
        ),
        "{kind:?}"
    );
}

#[test]
fn a_port_has_one_owner_and_is_free_afterwards() {
    let first = Listener::bind("127.54.5.1:7174").unwrap();
    assert!(Listener::bind("127.54.5.1:7174").is_err());
    // Another address has ports of its own.
    let _listener = Listener::bind("127.54.5.2:7174").unwrap();
    drop(first);
    let _listener = Listener::bind("127.54.5.1:7174").unwrap();
}

#[test]
fn a_queue_pair_of_another_device_is_refused() {
    let _listener = Listener::bind("127.54.6.1:7174").unwrap();
    let connector = Connector::resolve("127.54.6.1:7174").unwrap();
    let elsewhere = Side::at(&Context::open("127.54.6.2").unwrap());
    let refused = connector.prepare(elsewhere.queue_pair_builder());
    assert!(matches!(refused, Err(ConnectError::OtherDevice)));
}

/// Which is another one than the device that a server opens at the address afterwards.
#[test]
fn a_server_that_listens_first_makes_its_objects_at_the_device_of_the_listener() {
    let listener = Listener::bind("127.54.6.5:0").unwrap();
    let address = listener.local_address();
    let later = Context::open("127.54.6.5").unwrap();
    let side = Side::at(&listener.context().expect("it listens at one address"));
    let client = thread::spawn(move || connect(address, b"").map(drop));
    let builder = side.queue_pair_builder();
    let prepared = listener.wait().prepare(builder).unwrap();
    let _connection = prepared.accept(b"").unwrap();
    client.join().unwrap().unwrap();
    drop(later);
    let everywhere = Listener::bind("0.0.0.0:0").unwrap();
    assert!(everywhere.context().is_none());
}

/// A server may open its device and create objects before it listens at an address of the device.
#[test]
fn a_listener_and_a_connector_use_the_context_that_is_open() {
    let server = Context::open("127.54.23.1").unwrap();
    let client = Context::open("127.54.23.2").unwrap();
    let (there, here) = (Side::at(&server), Side::at(&client));
    let listener = Listener::bind("127.54.23.1:0").unwrap();
    let address = listener.local_address();
    let connecting = thread::spawn(move || {
        let source = "127.54.23.2:0".parse().unwrap();
        let connector = Connector::resolve_from(source, address).unwrap();
        let prepared = connector.prepare(here.queue_pair_builder()).unwrap();
        let number = prepared.number();
        let connection = prepared.connect(b"").unwrap();
        assert_eq!(connection.number(), number);
        (connection, number)
    });
    let request = listener.wait_for(TIMEOUT).expect("a request");
    let prepared = request.prepare(there.queue_pair_builder()).unwrap();
    let number = prepared.number();
    let connection = prepared.accept(b"").unwrap();
    let (client, of_client) = connecting.join().unwrap();
    assert_eq!(
        (connection.number(), client.peer().queue_pair),
        (number, number)
    );
    assert_eq!(connection.peer().queue_pair, of_client);
}

#[test]
fn an_early_message_of_the_client_is_not_lost() {
    let listener = Listener::bind("127.54.7.1:7174").unwrap();
    let address = listener.local_address();
    for round in 0..20_u8 {
        let client = thread::spawn(move || {
            let (side, connection) = connect(address, b"").unwrap();
            connection
                .post_send(Request::send().inline(&[round]))
                .unwrap();
            side.succeeds();
            connection.wait_disconnected(TIMEOUT)
        });
        let (side, connection) = accept(listener.wait(), b"");
        side.succeeds();
        assert_eq!(side.memory.to_vec(0..1), [round]);
        drop(connection);
        assert!(client.join().unwrap());
    }
}

#[test]
fn server_notices_a_client_that_exits() {
    let listener = Listener::bind("127.54.8.1:7174").unwrap();
    let address = listener.local_address();
    let client = thread::spawn(move || drop(connect(address, b"").unwrap()));
    let (side, connection) = accept(listener.wait(), b"");
    // A program that only polls completions notices it, too: the receive is flushed.
    let completion = side.completions.wait_for(TIMEOUT).expect("a completion");
    assert_eq!(completion.status, Status::Flushed);
    assert!(connection.wait_disconnected(TIMEOUT));
    client.join().unwrap();
}

#[test]
fn a_shutdown_waits_until_the_peer_has_everything() {
    let listener = Listener::bind("127.54.25.1:0").unwrap();
    let address = listener.local_address();
    let server = thread::spawn(move || {
        let (side, connection) = accept(listener.wait(), b"");
        let received = side.completions.wait_for(TIMEOUT).expect("a completion");
        // The client has disconnected, and so it has nothing to wait for.
        assert!(connection.wait_disconnected(TIMEOUT));
        connection.shutdown(TIMEOUT).unwrap();
        received.status
    });
    let (side, connection) = connect(address, b"").unwrap();
    let last = Request::send().inline(b"the last words").unsignaled();
    connection.post_send(last).unwrap();
    connection.shutdown(TIMEOUT).unwrap();
    connection.shutdown(TIMEOUT).unwrap();
    assert_eq!(connection.state(), rocinante::State::Error);
    assert_eq!(server.join().unwrap(), Status::Success);
    assert_eq!(side.completions.poll(), None);
}

/// It acknowledges the message between two looks of the shutdown.
#[test]
fn a_shutdown_succeeds_if_the_peer_ends_the_connection_when_it_has_everything() {
    let listener = Listener::bind("127.54.25.3:0").unwrap();
    let address = listener.local_address();
    let server = thread::spawn(move || {
        let (side, connection) = accept(listener.wait(), b"");
        side.succeeds();
        drop(connection);
    });
    let (_side, connection) = connect(address, b"").unwrap();
    let last = Request::send().inline(b"the last words").unsignaled();
    connection.post_send(last).unwrap();
    connection.shutdown(TIMEOUT).unwrap();
    server.join().unwrap();
}

#[test]
fn a_shutdown_says_how_many_requests_are_lost() {
    let listener = Listener::bind("127.54.25.2:0").unwrap();
    let address = listener.local_address();
    let server = thread::spawn(move || {
        // It has one receive for three messages.
        let (_side, connection) = accept(listener.wait(), b"");
        assert!(connection.wait_disconnected(TIMEOUT));
    });
    let (side, connection) = connect(address, b"").unwrap();
    for id in 0..3 {
        let request = Request::send().inline(b"words").id(id);
        connection.post_send(request).unwrap();
    }
    side.succeeds();
    let ended = connection.shutdown(Duration::from_millis(50));
    assert!(
        matches!(ended, Err(ShutdownError::Unacknowledged { requests: 2 })),
        "{ended:?}"
    );
    for _ in 0..2 {
        let flushed = side.completions.wait_for(TIMEOUT).expect("a completion");
        assert_eq!(flushed.status, Status::Flushed);
    }
    server.join().unwrap();
}

#[test]
fn the_longest_timeout_is_no_deadline() {
    let listener = Listener::bind("127.54.12.1:0").unwrap();
    let address = listener.local_address();
    let client = thread::spawn(move || {
        let connector = Connector::resolve_from(beside(address), address).unwrap();
        let side = Side::at(connector.context());
        let connector = connector.timeout(Duration::MAX);
        let prepared = connector.prepare(side.queue_pair_builder()).unwrap();
        prepared.connect(b"").unwrap().disconnect().unwrap();
    });
    let request = listener.wait_for(Duration::MAX).expect("a request");
    let (side, connection) = accept(request, b"");
    let flushed = side.completions.wait_for(Duration::MAX);
    assert_eq!(flushed.map(|it| it.status), Some(Status::Flushed));
    assert!(connection.wait_disconnected(Duration::MAX));
    client.join().unwrap();
}

#[test]
fn events_move_with_their_id_to_another_channel() {
    let [first, second] = [(); 2].map(|()| EventChannel::new().unwrap());
    let id = first.create_id(PortSpace::Tcp);
    id.bind("127.54.9.1:0".parse().unwrap()).unwrap();
    id.resolve_address(None, "127.54.9.1:7174".parse().unwrap(), TIMEOUT)
        .unwrap();
    id.migrate(&second);
    assert!(first.poll().is_none());
    let event = second.wait_for(TIMEOUT).expect("an event");
    assert_eq!(
        (event.id, event.kind),
        (id.token(), EventKind::AddressResolved)
    );
    id.resolve_route(TIMEOUT).unwrap();
    let event = second.wait_for(TIMEOUT).expect("an event");
    assert_eq!(event.kind, EventKind::RouteResolved);
}

#[test]
fn missing_route_is_an_event() {
    let channel = EventChannel::new().unwrap();
    let id = channel.create_id(PortSpace::Tcp);
    // A documentation prefix, from an address that is not ours.
    let elsewhere = "192.0.2.7:0".parse().unwrap();
    id.resolve_address(Some(elsewhere), "192.0.2.1:7174".parse().unwrap(), TIMEOUT)
        .unwrap();
    let event = channel.wait_for(TIMEOUT).expect("an event");
    assert!(matches!(event.kind, EventKind::AddressError(_)));
}

/// From an address of loopback no packet leaves this machine. Linux reports ENODEV, too, if no device fits.
#[test]
fn a_loopback_device_does_not_resolve_a_peer_outside() {
    let outside = "192.0.2.1:7174".parse().unwrap();
    let context = Context::open("127.54.24.1").unwrap();
    let channel = EventChannel::new().unwrap();
    let [chosen, bound, unbound] = [(); 3].map(|()| channel.create_id(PortSpace::Tcp));
    chosen.choose(&context);
    let own = "127.54.24.1:0".parse().unwrap();
    bound.bind(own).unwrap();
    for (id, source) in [(chosen, None), (bound, None), (unbound, Some(own))] {
        id.resolve_address(source, outside, TIMEOUT).unwrap();
        let event = channel.wait_for(TIMEOUT).expect("an event");
        assert_eq!(
            (event.id, event.kind),
            (id.token(), EventKind::AddressError(Failure::NoDevice))
        );
        // The id is still good for a peer on this machine.
        id.resolve_address(source, "127.54.24.2:7174".parse().unwrap(), TIMEOUT)
            .unwrap();
        let event = channel.wait_for(TIMEOUT).expect("an event");
        assert_eq!(event.kind, EventKind::AddressResolved);
    }
}

/// A listener claims its port in a registry that other processes use, too. While one of them holds its lock, the
/// device goes on.
#[test]
fn a_device_works_while_a_listener_waits_for_the_registry() {
    const ADDRESS: &str = "127.55.9.1";
    let context = Context::open(ADDRESS).expect("a loopback address");
    let directory = net::sharing::RuntimeDirectory::of_user().expect("a directory");
    let files = std::fs::read_dir(directory.path()).expect("it can be read");
    let is_lock = |name: &str| name.starts_with(&format!("{ADDRESS}@")) && name.ends_with(".lock");
    let locks = files.map(|file| file.expect("it can be read"));
    let locks = locks.filter(|file| file.file_name().to_str().is_some_and(is_lock));
    // Those of other namespaces may have been left behind.
    let locks: Vec<_> = locks
        .map(|file| std::fs::File::open(file.path()).expect("it is ours"))
        .collect();
    assert!(!locks.is_empty(), "the device joined this address");
    locks.iter().for_each(|lock| lock.lock().expect("a lock"));
    let address = SocketAddr::from((ADDRESS.parse::<IpAddr>().expect("an address"), 7000));
    thread::scope(|scope| {
        let listener = scope.spawn(|| Listener::bind_on(&context, address));
        // Each of these takes the device's lock.
        for _ in 0..100 {
            let queue = context.create_completion_queue(1).expect("room");
            assert_eq!(queue.poll(), None);
            thread::sleep(Duration::from_micros(100));
        }
        assert!(!listener.is_finished(), "it waits");
        locks.iter().for_each(|lock| lock.unlock().expect("ours"));
        let listener = listener.join().expect("no panic");
        drop(listener.expect("the port is free"));
    });
}
