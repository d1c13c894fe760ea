//! Scenarios with a peer that does not respond or rejects a request.

use std::net::UdpSocket;
use std::time::{Duration, Instant};

use rocinante::rdma_cm::{CmId, EventChannel, EventKind, Parameters, PortSpace};
use rocinante::{
    AddressHandle, ConnectOptions, Connector, Context, Endpoint, Listener, Psn, Qpn, QueueKey,
    Request, Status,
};

use crate::connected_pair::{
    ConnectedPair, Scenario, connect_options, end, send_times_out, short_timeouts,
};
use crate::support::{End, TIMEOUT};

pub(crate) const SCENARIOS: &[Scenario] = &[
    ("no receive", || {
        let pair = ConnectedPair::new("127.57.2.1", "127.57.2.2");
        let request = Request::send().inline(b"anybody?");
        pair.fails(request, Status::ReceiverNotReady);
    }),
    ("no process", || {
        let end = end("127.57.3.1");
        let prepared = end.prepare(short_timeouts());
        let peer = Endpoint {
            gid: "127.57.3.9".parse().expect("a GID"),
            ..prepared.endpoint()
        };
        send_times_out(&end, prepared, peer);
    }),
    ("silent for long", || {
        let end = end("127.57.14.1");
        let prepared = end.prepare(ConnectOptions::default());
        let peer = Endpoint {
            gid: "127.57.14.9".parse().expect("a GID"),
            ..prepared.endpoint()
        };
        send_times_out(&end, prepared, peer);
    }),
    ("no receive for long", || {
        let endless = ConnectOptions {
            rnr_retry: 7,
            ..ConnectOptions::default()
        };
        let (left, right) = (end("127.57.15.1"), end("127.57.15.2"));
        let (here, there) = (left.prepare(endless), right.prepare(endless));
        let (ours, theirs) = (here.endpoint(), there.endpoint());
        let here = here.connect(theirs).expect("a peer");
        let there = there.connect(ours).expect("a peer");
        here.post_send(Request::send().inline(b"anybody?").id(7))
            .expect("room");
        let late = left.completions.wait_for(Duration::from_millis(1500));
        assert!(late.is_none(), "{late:?}");
        there
            .post_receive(3, [right.memory.slice(0..64)])
            .expect("room");
        left.success();
    }),
    ("peer closed", || {
        let pair = ConnectedPair::new("127.57.16.1", "127.57.16.2");
        let room = pair.right.memory.slice(0..64);
        pair.from_right.post_receive(3, [room]).expect("room");
        pair.from_left
            .post_send(Request::send().inline(b"hello"))
            .expect("room");
        pair.left.success();
        let ConnectedPair {
            left,
            right,
            from_left,
            from_right,
        } = pair;
        drop((from_right, right));
        from_left
            .post_send(Request::send().inline(b"hello?").id(7))
            .expect("room");
        let outcome = left.completions.wait_for(TIMEOUT).expect("it completes");
        assert_eq!(outcome.status, Status::RetriesExhausted);
    }),
    ("no answer to a request", no_answer_to_a_request),
    ("no process for a request", no_process_for_a_request),
    ("unknown number here", || {
        let end = end("127.57.4.1");
        let prepared = end.prepare(short_timeouts());
        let peer = unused_number(prepared.endpoint());
        send_times_out(&end, prepared, peer);
    }),
    ("unknown number there", || {
        let (left, right) = (end("127.57.5.1"), end("127.57.5.2"));
        let peer = unused_number(right.prepare(short_timeouts()).endpoint());
        send_times_out(&left, left.prepare(short_timeouts()), peer);
    }),
    ("PSN ahead", || {
        wrong_first_psn("127.57.6.1", "127.57.6.2", |ours| ours - 100);
    }),
    ("PSN behind", || {
        wrong_first_psn("127.57.6.3", "127.57.6.4", |ours| ours + 100);
    }),
    ("peer not ready", || {
        let end = end("127.57.7.1");
        let unready = end.prepare(short_timeouts());
        send_times_out(&end, end.prepare(short_timeouts()), unready.endpoint());
    }),
    ("connected elsewhere", || {
        let (left, right) = (end("127.57.8.1"), end("127.57.8.2"));
        let there = right.prepare(short_timeouts());
        let taken = there.endpoint();
        let friend = Endpoint {
            gid: "127.57.8.3".parse().expect("a GID"),
            ..taken
        };
        let _elsewhere = there.connect(friend).expect("an address");
        send_times_out(&left, left.prepare(short_timeouts()), taken);
    }),
    ("crossed numbers", || {
        let end = end("127.57.8.4");
        let [ours, theirs, third] = [(); 3].map(|()| end.prepare(short_timeouts()));
        let (taken, third) = (theirs.endpoint(), third.endpoint());
        let _elsewhere = theirs.connect(third).expect("an address");
        send_times_out(&end, ours, taken);
    }),
    ("wrong queue key", wrong_queue_key),
    ("long datagram", || {
        let end = end("127.57.9.3");
        let builder = end.domain.queue_pair_builder(&end.completions);
        let queue_pair = builder.create_datagram(QueueKey::new(1)).expect("room");
        let to = handle(&end, queue_pair.endpoint(), QueueKey::new(1));
        let request = Request::send().data(end.memory.slice(0..5000));
        queue_pair.post_send(&to, request).expect("room");
        let outcome = end.completions.wait_for(TIMEOUT).expect("it completes");
        assert_eq!(outcome.status, Status::LocalLength);
    }),
    ("overrun", || {
        let (left, right) = (end("127.57.9.5"), end("127.57.9.6"));
        let small = left.context.create_completion_queue(1).expect("room");
        let here = left
            .domain
            .queue_pair_builder(&small)
            .depth(4, 0)
            .may_overrun()
            .connect_options(connect_options());
        let (here, there) = (
            here.create_reliable().expect("room"),
            right.prepare(connect_options()),
        );
        let (ours, theirs) = (here.endpoint(), there.endpoint());
        let here = here.connect(theirs).expect("a peer");
        let _there = there.connect(ours).expect("a peer");
        for _ in 0..3 {
            let request = Request::write(right.memory.remote(0)).inline(b"one of three");
            here.post_send(request).expect("room");
        }
        let event = left.context.wait_event(TIMEOUT);
        assert!(event.is_some(), "no event");
    }),
    ("no listener", || {
        let _server = end("127.57.10.2");
        rejected("127.57.10.1", "127.57.10.2");
    }),
    ("server refuses", || {
        let listener = Listener::bind("127.57.11.2:7199").expect("a port");
        let server = std::thread::spawn(move || {
            let request = listener.wait();
            request.reject(b"no").expect("it waits for an answer");
        });
        rejected("127.57.11.1", "127.57.11.2");
        server.join().expect("no panic");
    }),
    ("no device", resolve_from_no_device),
    ("no device beside another", || {
        let _device = Context::open("127.57.12.2").expect("a device");
        resolve_from_no_device();
    }),
    ("healthy", || {
        let pair = ConnectedPair::new("127.57.13.1", "127.57.13.2");
        let room = pair.right.memory.slice(0..64);
        pair.from_right.post_receive(3, [room]).expect("room");
        let data = pair.left.memory.slice(0..64);
        pair.from_left
            .post_send(Request::send().data(data))
            .expect("room");
        pair.left.success();
        pair.right.success();
        let request = Request::read(pair.right.memory.remote(0)).data(data);
        pair.from_left.post_send(request).expect("room");
        pair.left.success();
    }),
    ("lowered MTU", lowered_mtu),
];

/// A queue pair number of the same device that no queue pair has.
fn unused_number(endpoint: Endpoint) -> Endpoint {
    // Blocks of numbers are aligned and no smaller than 2048.
    Endpoint {
        queue_pair: Qpn::new(endpoint.queue_pair.value() ^ 0x7ff),
        ..endpoint
    }
}

/// The peer expects a first PSN other than the one that is sent.
fn wrong_first_psn(left: &str, right: &str, expected: fn(Psn) -> Psn) {
    let (left, right) = (end(left), end(right));
    let (here, there) = (
        left.prepare(short_timeouts()),
        right.prepare(short_timeouts()),
    );
    let ours = here.endpoint();
    let printed = Endpoint {
        psn: expected(ours.psn),
        ..ours
    };
    let peer = there.endpoint();
    let _there = there.connect(printed).expect("a peer");
    send_times_out(&left, here, peer);
}

/// The peer's machine gets the requests, but nothing there answers them.
fn no_answer_to_a_request() {
    let _silent = UdpSocket::bind("127.57.17.9:4791").expect("the port is free");
    let (channel, _id) = request("127.57.17.1:0", "127.57.17.9:7199");
    // The request is repeated after six seconds.
    let event = channel.wait_for(Duration::from_secs(8));
    assert!(event.is_none(), "nobody answers");
}

/// The peer's machine exists, but no process there uses RDMA: it says so by ICMP.
fn no_process_for_a_request() {
    let (channel, _id) = request("127.57.18.1:0", "127.57.18.9:7199");
    // After two such answers: the request is repeated after six seconds.
    let event = channel.wait_for(TIMEOUT).expect("an event");
    assert!(matches!(event.kind, EventKind::Rejected { .. }));
}

/// Asks for a connection.
fn request(from: &str, to: &str) -> (EventChannel, CmId) {
    let channel = EventChannel::new().expect("a channel");
    let id = channel.create_id(PortSpace::Tcp);
    let from = from.parse().expect("an address");
    let to = to.parse().expect("an address");
    id.resolve_address(Some(from), to, TIMEOUT)
        .expect("a device");
    channel.wait_for(TIMEOUT).expect("an event");
    id.resolve_route(TIMEOUT).expect("an address");
    channel.wait_for(TIMEOUT).expect("an event");
    id.connect(&Parameters::new(Qpn::new(17))).expect("a route");
    (channel, id)
}

fn wrong_queue_key() {
    let (left, right) = (end("127.57.9.1"), end("127.57.9.2"));
    let make = |end: &End| {
        let builder = end.domain.queue_pair_builder(&end.completions);
        builder.create_datagram(QueueKey::new(1)).expect("room")
    };
    let (here, there) = (make(&left), make(&right));
    let to = handle(&left, there.endpoint(), QueueKey::new(2));
    here.post_send(&to, Request::send().inline(b"hello"))
        .expect("room");
    left.success();
    // The device's thread receives it; there is no completion and no event.
    let deadline = Instant::now() + TIMEOUT;
    while right.context.counters().expect("ours").bad_queue_key == 0 {
        assert!(Instant::now() < deadline, "the datagram did not come");
        std::thread::yield_now();
    }
}

fn handle(from: &End, to: Endpoint, key: QueueKey) -> AddressHandle {
    let made = AddressHandle::new(&from.context, to.gid, 0, to.queue_pair, key);
    made.expect("an address")
}

/// A connection that the peer rejects.
fn rejected(from: &str, to: &str) {
    let peer = format!("{to}:7199");
    let from = format!("{from}:0").parse().expect("an address");
    let connector = Connector::resolve_from(from, peer).expect("a device");
    let context = connector.context().clone();
    let domain = context.allocate_protection_domain().expect("room");
    let completions = context.create_completion_queue(16).expect("room");
    let prepared = connector
        .prepare(domain.queue_pair_builder(&completions))
        .expect("room");
    assert!(prepared.connect(b"").is_err());
}

/// The MTU of the interface is lowered after the device was opened.
fn lowered_mtu() {
    let pair = ConnectedPair::new("127.57.30.1", "127.57.30.2");
    let lowered = std::process::Command::new("ip")
        .args(["link", "set", "lo", "mtu", "1500"])
        .status();
    assert!(lowered.expect("iproute2").success());
    let request = Request::write(pair.right.memory.remote(0));
    let request = request.data(pair.left.memory.slice(0..4000));
    pair.fails(request, Status::RetriesExhausted);
}

fn resolve_from_no_device() {
    let channel = EventChannel::new().expect("a channel");
    let id = channel.create_id(PortSpace::Tcp);
    let from = "192.0.2.77:0".parse().expect("an address");
    let to = "127.57.12.1:7199".parse().expect("an address");
    id.resolve_address(Some(from), to, TIMEOUT)
        .expect("an event");
    let event = channel.wait_for(TIMEOUT).expect("an event");
    assert!(matches!(event.kind, EventKind::AddressError(_)));
}
