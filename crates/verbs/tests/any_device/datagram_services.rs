//! Datagram services and multicast groups of ids.

use std::net::{IpAddr, SocketAddr};

use rocinante::rdma_cm::{
    CmId, DEFAULT_QUEUE_KEY, EventChannel, EventKind, Parameters, PortSpace, RejectReason,
    Request as Asked, ServiceStatus, Unreachable,
};
use rocinante::{
    AddressHandle, CompletionQueue, Context, DatagramQueuePair, Gid, MemoryRegion, Request, Status,
};

use crate::device::{is_siw, open, system_device};
use crate::ids::{address_of, expect, next};
use crate::{ALL, TIMEOUT};

/// The bytes in front of each datagram.
const HEADER: usize = 40;

/// A datagram queue pair with one receive.
struct Mailbox {
    queue_pair: DatagramQueuePair,
    completions: CompletionQueue,
    memory: MemoryRegion,
}

impl Mailbox {
    fn of(id: &CmId) -> Self {
        let context = Context::from_id(id).expect("it is at a device");
        let domain = context.allocate_protection_domain().expect("room");
        let completions = context.create_completion_queue(16).expect("room");
        let builder = domain.queue_pair_builder(&completions);
        let queue_pair = builder.create_datagram(DEFAULT_QUEUE_KEY).expect("room");
        let memory = domain.allocate_memory(HEADER + 64, ALL).expect("memory");
        queue_pair.post_receive(1, [memory.all()]).expect("room");
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
        let request = Request::send().inline(text).unsignaled();
        self.queue_pair.post_send(to, request).expect("room");
    }

    fn received(&self) -> Vec<u8> {
        let completion = self.completions.wait_for(TIMEOUT).expect("a datagram");
        assert_eq!((completion.id, completion.status), (1, Status::Success));
        self.memory.to_vec(HEADER..completion.length as usize)
    }
}

fn create(context: &Context, channel: &EventChannel) -> CmId {
    let id = channel.create_id(PortSpace::Udp);
    id.choose(context);
    id
}

/// A service at a port of its own, and a client that knows the way to it.
fn service_and_client(context: &Context, channel: &EventChannel) -> (CmId, SocketAddr, CmId) {
    let service = create(context, channel);
    let address = service.bind((address_of(context), 0).into());
    let address = address.expect("a free port");
    service.listen(4).expect("a bound id");
    let client = resolved(context, channel, address);
    (service, address, client)
}

fn resolved(context: &Context, channel: &EventChannel, peer: SocketAddr) -> CmId {
    let id = create(context, channel);
    id.resolve_address(None, peer, TIMEOUT).expect("a route");
    expect(channel, &id, &EventKind::AddressResolved);
    id.resolve_route(TIMEOUT).expect("an address");
    expect(channel, &id, &EventKind::RouteResolved);
    id
}

#[test]
fn a_datagram_service_is_found_and_reached() {
    if is_siw() {
        return;
    }
    let (context, channel) = (open(), EventChannel::new().expect("a descriptor"));
    let (service, _, client) = service_and_client(&context, &channel);
    let sender = Mailbox::of(&client);
    // Longer than the private data of a connection request may be.
    let question = [b'?'; 150];
    let asked = client.connect(&sender.parameters(&question));
    asked.expect("a route");
    let event = next(&channel);
    assert_eq!(event.listener, Some(service.token()));
    let EventKind::ConnectRequest {
        request: Asked::Service { private_data },
        ..
    } = &event.kind
    else {
        panic!("{event:?}");
    };
    assert!(private_data.starts_with(&question));
    let server = event.request.expect("a new id");
    let receiver = Mailbox::of(&server);
    let accepted = server.accept(&receiver.parameters(b"me"));
    accepted.expect("a request");
    let event = next(&channel);
    assert_eq!(event.id, client.token());
    let EventKind::ServiceFound(found) = &event.kind else {
        panic!("{event:?}");
    };
    assert!(found.private_data.starts_with(b"me"));
    assert_eq!(
        (found.remote_qpn, found.queue_key),
        (receiver.queue_pair.endpoint().queue_pair, DEFAULT_QUEUE_KEY)
    );
    let to = AddressHandle::from_service(&context, found).expect("an address");
    sender.send(&to, b"a datagram");
    assert_eq!(receiver.received(), b"a datagram");
}

#[test]
fn a_refused_or_missing_service_is_unreachable() {
    if is_siw() {
        return;
    }
    let (context, channel) = (open(), EventChannel::new().expect("a descriptor"));
    let (service, address, client) = service_and_client(&context, &channel);
    let ask = |client: &CmId| {
        let parameters = Mailbox::of(client).parameters(b"");
        client.connect(&parameters).expect("a route");
    };
    let refused_with = |client: &CmId, expected: ServiceStatus, data: &[u8]| {
        let event = next(&channel);
        assert_eq!(event.id, client.token());
        match event.kind {
            EventKind::Unreachable(Unreachable::Rejected {
                status,
                private_data,
            }) => {
                assert_eq!(status, expected);
                assert!(private_data.starts_with(data), "{private_data:?}");
            }
            other => panic!("{other:?}"),
        }
    };
    ask(&client);
    let request = next(&channel).request.expect("a request");
    let refused = request.reject(RejectReason::Consumer, b"no");
    refused.expect("a request");
    refused_with(&client, ServiceStatus::Rejected, b"no");
    drop(service);
    let client = resolved(&context, &channel, address);
    ask(&client);
    refused_with(&client, ServiceStatus::NotSupported, b"");
}

#[test]
fn a_group_that_an_id_joined_receives_until_it_is_left() {
    if is_siw() {
        return;
    }
    let (context, channel) = (open(), EventChannel::new().expect("a descriptor"));
    if system_device().is_some() && address_of(&context).is_loopback() {
        // librdmacm finds no device for an id that is bound to loopback.
        return;
    }
    // One for each run at the same time.
    let [low, high, ..] = std::process::id().to_le_bytes();
    let group = IpAddr::from([239, 56, high, low]);
    let id = create(&context, &channel);
    let bound = id.bind((address_of(&context), 0).into());
    bound.expect("a free port");
    let member = Mailbox::of(&id);
    id.join(group, false).expect("an address");
    let event = next(&channel);
    let EventKind::MulticastJoin(joined) = &event.kind else {
        panic!("{event:?}");
    };
    assert_eq!((event.id, joined.group), (id.token(), group));
    let joined_by_queue_pair = member.queue_pair.join(joined.path.remote_gid);
    joined_by_queue_pair.expect("a group");
    let to = AddressHandle::from_group(&context, joined).expect("an address");
    member.send(&to, b"to all");
    assert_eq!(member.received(), b"to all");
    member.queue_pair.leave(Gid::from(group)).expect("a member");
    id.leave(group).expect("a member");
    id.leave(group).expect_err("it is no member any more");
}

#[test]
fn an_id_without_an_address_can_not_join_a_group() {
    let (context, channel) = (open(), EventChannel::private());
    let id = create(&context, &channel);
    let group = IpAddr::from([239, 56, 0, 1]);
    id.join(group, false).expect_err("it has no device");
}
