//! Datagram queue pairs.

use rocinante::{
    AddressError, AddressHandle, CompletedWork, CompletionQueue, Context, DatagramQueuePair, Gid,
    MemoryRegion, ProtectionDomain, QueueKey, Request, Status,
};

use crate::device::{is_siw, open, system_device};
use crate::{ALL, TIMEOUT, pattern};

/// The bytes in front of each datagram.
const HEADER: usize = 40;
const KEY: QueueKey = QueueKey::new(0x1111_1111);

struct Datagrams {
    context: Context,
    _domain: ProtectionDomain,
    completions: CompletionQueue,
    queue_pair: DatagramQueuePair,
    memory: MemoryRegion,
}

impl Datagrams {
    fn at(context: &Context) -> Self {
        let domain = context.allocate_protection_domain().expect("room");
        let completions = context.create_completion_queue(16).expect("room");
        let builder = domain.queue_pair_builder(&completions);
        Self {
            context: context.clone(),
            completions,
            queue_pair: builder.create_datagram(KEY).expect("room"),
            memory: domain.allocate_memory(4096, ALL).expect("memory"),
            _domain: domain,
        }
    }

    /// The index of its GID in the table of its device.
    fn gid_index(&self) -> u8 {
        let gid = self.queue_pair.endpoint().gid;
        let index = self.context.gids().iter().position(|it| *it == gid);
        index.expect("it is in the table") as u8
    }

    fn to(&self, gid: Gid, queue_pair: rocinante::Qpn) -> AddressHandle {
        let handle = AddressHandle::new(&self.context, gid, self.gid_index(), queue_pair, KEY);
        handle.expect("an address")
    }
}

#[test]
fn a_datagram_names_its_sender_and_is_answered() {
    if is_siw() {
        return;
    }
    let context = open();
    let (client, server) = (Datagrams::at(&context), Datagrams::at(&context));
    for (end, id) in [(&client, 3), (&server, 4)] {
        let posted = end.queue_pair.post_receive(id, [end.memory.all()]);
        posted.expect("room");
    }
    let (message, there) = (pattern(3, 500), server.queue_pair.endpoint());
    let to_server = client.to(there.gid, there.queue_pair);
    let region = client
        ._domain
        .register(message.clone(), ALL)
        .expect("memory");
    let request = Request::send_with_immediate(*b"with")
        .data(region.all())
        .id(9);
    client
        .queue_pair
        .post_send(&to_server, request)
        .expect("room");
    let sent = client.completions.wait_for(TIMEOUT).expect("it completes");
    assert_eq!((sent.id, sent.status), (9, Status::Success));
    let received = server.completions.wait_for(TIMEOUT).expect("it arrives");
    assert_eq!((received.id, received.status), (4, Status::Success));
    assert_eq!(received.work, CompletedWork::Receive);
    assert_eq!(received.length as usize, HEADER + message.len());
    assert_eq!(received.immediate, Some(*b"with"));
    assert_eq!(
        server.memory.to_vec(HEADER..HEADER + message.len()),
        message
    );
    let source = received.source.expect("a sender");
    let here = client.queue_pair.endpoint();
    assert_eq!((source.gid, source.queue_pair), (here.gid, here.queue_pair));
    let back = server.to(source.gid, source.queue_pair);
    let reply = Request::send().inline(b"a reply").unsignaled();
    server.queue_pair.post_send(&back, reply).expect("room");
    let answered = client.completions.wait_for(TIMEOUT).expect("it arrives");
    assert_eq!((answered.id, answered.length as usize), (3, HEADER + 7));
}

#[test]
fn receives_of_datagrams_keep_their_ids_when_they_are_flushed() {
    if is_siw() {
        return;
    }
    let context = open();
    let ends = [(); 2].map(|()| Datagrams::at(&context));
    for id in [20, 10, 30] {
        let posted = ends[0].queue_pair.post_receive(id, [ends[0].memory.all()]);
        posted.expect("room");
    }
    let there = ends[0].queue_pair.endpoint();
    let to = ends[1].to(there.gid, there.queue_pair);
    for text in [b"1", b"2", b"3"] {
        let request = Request::send().inline(text).id(7);
        ends[1].queue_pair.post_send(&to, request).expect("room");
    }
    let ids = [(); 3].map(|()| {
        ends[0]
            .completions
            .wait_for(TIMEOUT)
            .expect("it arrives")
            .id
    });
    assert_eq!(ids, [20, 10, 30]);
    let ids = [(); 3].map(|()| {
        ends[1]
            .completions
            .wait_for(TIMEOUT)
            .expect("it is sent")
            .id
    });
    assert_eq!(ids, [7; 3]);
}

#[test]
fn datagrams_for_two_queue_pairs_come_to_their_shared_receive_queue() {
    if is_siw() {
        return;
    }
    let context = open();
    let client = Datagrams::at(&context);
    let domain = context.allocate_protection_domain().expect("room");
    let completions = context.create_completion_queue(16).expect("room");
    let shared = domain.create_shared_receive_queue(8, 1).expect("room");
    let memory = domain.allocate_memory(6 * 128, ALL).expect("memory");
    let receive = |place: u64, id| {
        let start = place as usize * 128;
        let posted = shared.post_receive(id, [memory.slice(start..start + 128)]);
        posted.expect("room");
    };
    // Some before the queue has a queue pair, two of them with an id that a request of the library may also have.
    let ids = [0, 1 << 63, 70, 71, 72, 73];
    receive(0, ids[0]);
    receive(1, ids[1]);
    let servers = [(); 2].map(|()| {
        let builder = domain.queue_pair_builder(&completions);
        let builder = builder.shared_receive_queue(&shared).depth(4, 0);
        builder.create_datagram(KEY).expect("room")
    });
    for place in 2..6 {
        receive(place, ids[place as usize]);
    }
    let here = client.queue_pair.endpoint();
    for (place, id) in ids.into_iter().enumerate() {
        let server = &servers[place % 2];
        let there = server.endpoint();
        let to = client.to(there.gid, there.queue_pair);
        let request = Request::send().inline(&[place as u8; 3]).id(9);
        client.queue_pair.post_send(&to, request).expect("room");
        let sent = client.completions.wait_for(TIMEOUT).expect("it is sent");
        assert_eq!((sent.id, sent.status), (9, Status::Success));
        let received = completions.wait_for(TIMEOUT).expect("it arrives");
        assert_eq!((received.id, received.status), (id, Status::Success));
        assert_eq!(received.queue_pair, there.queue_pair);
        let source = received.source.expect("a sender");
        assert_eq!((source.gid, source.queue_pair), (here.gid, here.queue_pair));
        let data = place * 128 + HEADER;
        assert_eq!(memory.to_vec(data..data + 3), [place as u8; 3]);
    }
    // It also sends.
    let to = client.to(here.gid, here.queue_pair);
    let reply = Request::send().inline(b"a reply").id(10);
    servers[0].post_send(&to, reply).expect("room");
    let sent = completions.wait_for(TIMEOUT).expect("it is sent");
    assert_eq!((sent.id, sent.status), (10, Status::Success));
}

#[test]
fn a_shared_receive_queue_of_the_system_is_for_datagrams_or_connections() {
    if system_device().is_none() || is_siw() {
        return;
    }
    let context = open();
    let domain = context.allocate_protection_domain().expect("room");
    let completions = context.create_completion_queue(64).expect("room");
    let builder = |shared| {
        let builder = domain.queue_pair_builder(&completions).depth(1, 0);
        builder.shared_receive_queue(shared)
    };
    let shared = domain.create_shared_receive_queue(8, 1).expect("room");
    let _datagrams = builder(&shared).create_datagram(KEY).expect("room");
    builder(&shared)
        .create_reliable()
        .expect_err("receives of both kinds in one queue");
    let shared = domain.create_shared_receive_queue(8, 1).expect("room");
    let _connected = builder(&shared).create_reliable().expect("room");
    builder(&shared)
        .create_datagram(KEY)
        .expect_err("receives of both kinds in one queue");
}

#[test]
fn an_address_without_a_gid_is_refused() {
    if is_siw() {
        return;
    }
    let context = open();
    let datagrams = Datagrams::at(&context);
    let number = datagrams.queue_pair.endpoint().queue_pair;
    let refused = AddressHandle::new(&context, Gid::default(), datagrams.gid_index(), number, KEY);
    assert_eq!(refused, Err(AddressError::NoDestination));
    let gid = datagrams.queue_pair.endpoint().gid;
    let refused = AddressHandle::new(&context, gid, 254, number, KEY);
    assert_eq!(refused, Err(AddressError::EmptySourceIndex(254)));
}
