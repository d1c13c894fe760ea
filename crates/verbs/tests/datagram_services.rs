//! Datagram services and multicast groups by the connection manager.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use rocinante::rdma_cm::{
    CmId, DEFAULT_QUEUE_KEY, Event, EventChannel, EventKind, Parameters, PortSpace, Request,
    ServiceStatus, Unreachable,
};
use rocinante::{
    Access, AddressHandle, CompletionQueue, DatagramQueuePair, Gid, MemoryRegion, Status,
};

const TIMEOUT: Duration = Duration::from_secs(10);

/// A datagram queue pair with a receive of 40 bytes of network header and 64 of data.
struct Mailbox {
    queue_pair: DatagramQueuePair,
    completions: CompletionQueue,
    memory: MemoryRegion,
}

impl Mailbox {
    fn of(id: &CmId) -> Self {
        let context = rocinante::Context::from_id(id).expect("an id at a device");
        let domain = context.allocate_protection_domain().unwrap();
        let completions = context.create_completion_queue(16).unwrap();
        let builder = domain.queue_pair_builder(&completions);
        let queue_pair = builder.create_datagram(DEFAULT_QUEUE_KEY).unwrap();
        let memory = domain.allocate_memory(104, Access::LOCAL_WRITE).unwrap();
        queue_pair.post_receive(1, [memory.all()]).unwrap();
        Self {
            queue_pair,
            completions,
            memory,
        }
    }

    fn parameters<'d>(&self, private_data: &'d [u8]) -> Parameters<'d> {
        Parameters {
            private_data,
            ..Parameters::new(self.queue_pair.endpoint().queue_pair)
        }
    }

    fn send(&self, to: &AddressHandle, text: &[u8]) {
        let request = rocinante::Request::send().inline(text);
        self.queue_pair.post_send(to, request).unwrap();
        self.succeeds();
    }

    fn succeeds(&self) {
        let completion = self.completions.wait_for(TIMEOUT).expect("a completion");
        assert_eq!(completion.status, Status::Success);
    }

    fn received(&self, length: usize) -> Vec<u8> {
        self.succeeds();
        self.memory.to_vec(40..40 + length)
    }
}

fn next(channel: &EventChannel) -> Event {
    channel.wait_for(TIMEOUT).expect("an event")
}

/// An id that knows the way.
fn resolved(channel: &EventChannel, peer: SocketAddr) -> CmId {
    let id = channel.create_id(PortSpace::Udp);
    id.resolve_address(None, peer, TIMEOUT).unwrap();
    assert_eq!(next(channel).kind, EventKind::AddressResolved);
    id.resolve_route(TIMEOUT).unwrap();
    assert_eq!(next(channel).kind, EventKind::RouteResolved);
    id
}

fn listening(channel: &EventChannel, address: &str) -> (CmId, SocketAddr) {
    let id = channel.create_id(PortSpace::Udp);
    let bound = id.bind(address.parse().unwrap()).unwrap();
    id.listen(8).unwrap();
    (id, bound)
}

#[test]
fn a_datagram_service_is_found_and_reached() {
    let [servers, clients] = [(); 2].map(|()| EventChannel::new().unwrap());
    let (_listener, address) = listening(&servers, "127.55.1.1:0");
    let client = resolved(&clients, address);
    let sender = Mailbox::of(&client);
    client
        .connect(&sender.parameters(b"who is there?"))
        .unwrap();

    let event = next(&servers);
    let EventKind::ConnectRequest { request, .. } = &event.kind else {
        panic!("{event:?}");
    };
    let Request::Service { private_data } = request else {
        panic!("{request:?}");
    };
    assert_eq!(&private_data[..13], b"who is there?");
    let server = event.request.expect("a new id");
    let receiver = Mailbox::of(&server);
    server.accept(&receiver.parameters(b"me")).unwrap();

    let event = next(&clients);
    let EventKind::ServiceFound(found) = &event.kind else {
        panic!("{event:?}");
    };
    assert_eq!(&found.private_data[..2], b"me");
    let context = rocinante::Context::from_id(&client).unwrap();
    let handle = AddressHandle::from_service(&context, found).unwrap();
    sender.send(&handle, b"a datagram");
    assert_eq!(receiver.received(10), b"a datagram");
}

#[test]
fn service_without_a_listener_is_rejected() {
    let [servers, clients] = [(); 2].map(|()| EventChannel::new().unwrap());
    let (_listener, mut address) = listening(&servers, "127.55.2.1:7174");
    address.set_port(7175);
    let client = resolved(&clients, address);
    let sender = Mailbox::of(&client);
    client.connect(&sender.parameters(b"")).unwrap();
    let kind = next(&clients).kind;
    let EventKind::Unreachable(Unreachable::Rejected { status, .. }) = kind else {
        panic!("{kind:?}");
    };
    assert_eq!(status, ServiceStatus::NotSupported);
}

#[test]
fn joined_group_receives_until_it_is_left() {
    let channel = EventChannel::new().unwrap();
    // One for each run at the same time.
    let [low, high, ..] = std::process::id().to_le_bytes();
    let group = IpAddr::from([239, 55, high, low]);
    let id = channel.create_id(PortSpace::Udp);
    id.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let member = Mailbox::of(&id);
    id.join(group, false).unwrap();
    let event = next(&channel);
    let EventKind::MulticastJoin(joined) = &event.kind else {
        panic!("{event:?}");
    };
    // As librdmacm does it: the manager joins, its user attaches the queue pair.
    member.queue_pair.join(Gid::from(group)).unwrap();
    let context = rocinante::Context::from_id(&id).unwrap();
    let handle = AddressHandle::from_group(&context, joined).unwrap();
    member.send(&handle, b"to all");
    assert_eq!(member.received(6), b"to all");
    id.leave(group).unwrap();
}
