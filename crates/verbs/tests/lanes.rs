//! Threads that share one context: their queues get engines of their own, and the objects belong to all.

mod support;

use std::net::SocketAddr;
use std::ops::Range;
use std::thread;
use std::time::Instant;

use rocinante::{
    Access, AsyncEvent, CompletionQueue, ConnectOptions, Connector, Context, Listener,
    MemoryRegion, OpenOptions, PreparedQueuePair, ProtectionDomain, QueuePair, Request, Shortcut,
    Status,
};
use support::{ALL, TIMEOUT};

fn in_thread<R: Send>(work: impl FnOnce() -> R + Send) -> R {
    thread::scope(|scope| scope.spawn(work).join().expect("no panic"))
}

fn open(address: &str) -> Context {
    let options = OpenOptions {
        lanes: 4,
        ..OpenOptions::default()
    };
    Context::open_with(address, &options).expect("a loopback address")
}

/// What one thread creates in a context that it shares.
struct Side {
    completions: CompletionQueue,
    domain: ProtectionDomain,
    memory: MemoryRegion,
}

impl Side {
    fn of(context: &Context, domain: &ProtectionDomain) -> Self {
        in_thread(|| Self {
            completions: context.create_completion_queue(1024).expect("room"),
            domain: domain.clone(),
            memory: domain.allocate_memory(1 << 16, ALL).expect("room"),
        })
    }

    fn prepare(&self) -> PreparedQueuePair {
        let builder = self.domain.queue_pair_builder(&self.completions);
        let access = Access::REMOTE_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC;
        let options = ConnectOptions {
            access,
            ..ConnectOptions::default()
        };
        builder
            .connect_options(options)
            .create_reliable()
            .expect("room")
    }

    fn next(&self) -> rocinante::Completion {
        self.completions.wait_for(TIMEOUT).expect("it completes")
    }

    /// The next completion, for a thread that polls or one that waits.
    fn succeeds_by(&self, waits: bool) -> rocinante::Completion {
        let until = Instant::now() + TIMEOUT;
        while !waits && Instant::now() < until {
            if let Some(completion) = self.completions.poll() {
                assert_eq!(completion.status, Status::Success, "{completion:?}");
                return completion;
            }
        }
        self.succeeds()
    }

    fn succeeds(&self) -> rocinante::Completion {
        let completion = self.next();
        assert_eq!(completion.status, Status::Success, "{completion:?}");
        completion
    }
}

fn connect(left: PreparedQueuePair, right: PreparedQueuePair) -> (QueuePair, QueuePair) {
    let (here, there) = (left.endpoint(), right.endpoint());
    let left = left.connect(there).expect("a peer");
    (left, right.connect(here).expect("a peer"))
}

/// Two threads use the queues of two sides in turn, until each side has an engine of its own.
fn use_in_turn(one: &Side, other: &Side) {
    let until = Instant::now() + TIMEOUT;
    while one.completions.lane() == other.completions.lane() {
        assert!(Instant::now() < until, "both stay in one lane");
        assert_eq!(one.completions.poll(), None);
        in_thread(|| assert_eq!(other.completions.poll(), None));
    }
}

/// Two sides with a connected queue pair each, and each with an engine of its own.
fn connected(context: &Context) -> (Side, Side, QueuePair, QueuePair) {
    let domain = context.allocate_protection_domain().expect("room");
    let (one, two) = (Side::of(context, &domain), Side::of(context, &domain));
    let (left, right) = connect(one.prepare(), two.prepare());
    use_in_turn(&one, &two);
    (one, two, left, right)
}

#[test]
fn queues_of_two_threads_use_two_engines_and_share_memory() {
    let context = open("127.59.10.1");
    let (one, two, left, right) = connected(&context);
    assert_eq!([one.completions.lane(), two.completions.lane()], [0, 1]);

    // Each side uses memory that the other has registered.
    two.memory.write(0, b"from the first thread");
    right
        .post_receive(1, [one.memory.slice(..64)])
        .expect("room");
    left.post_send(Request::send().data(two.memory.slice(..21)))
        .expect("room");
    one.succeeds();
    assert_eq!(two.succeeds().length, 21);
    let mut arrived = [0; 21];
    one.memory.read(0, &mut arrived);
    assert_eq!(&arrived, b"from the first thread");

    one.memory.write(104, &7_u64.to_ne_bytes());
    let counter = one.memory.remote(104);
    let fetched = two.memory.slice(200..208);
    right
        .post_send(Request::fetch_add(counter, 5).data(fetched))
        .expect("room");
    two.succeeds();
    let mut sum = [0; 8];
    one.memory.read(104, &mut sum);
    assert_eq!(u64::from_ne_bytes(sum), 12);
}

#[test]
fn a_program_with_one_thread_uses_one_engine() {
    let context = open("127.59.10.2");
    let domain = context.allocate_protection_domain().expect("room");
    let sides = [(); 4].map(|()| Side::of(&context, &domain));
    let _queue_pairs = sides.each_ref().map(Side::prepare);
    for _ in 0..200 {
        assert!(sides.iter().all(|side| side.completions.poll().is_none()));
    }
    assert!(sides.iter().all(|side| side.completions.lane() == 0));
}

/// Sends messages with these ids, at most 32 at a time. The completions must come in this order.
fn send_in_order(side: &Side, queue_pair: &QueuePair, ids: Range<u64>, waits: bool) {
    let mut posted = ids.start;
    for completed in ids.clone() {
        while posted < ids.end && posted < completed + 32 {
            let request = Request::send().data(side.memory.slice(..64)).id(posted);
            queue_pair.post_send(request).expect("room");
            posted += 1;
        }
        assert_eq!(side.succeeds_by(waits).id, completed);
    }
}

/// Receives them. A receive is posted again before its completion is counted.
fn receive_in_order(side: &Side, queue_pair: &QueuePair, ids: Range<u64>, waits: bool) {
    for completed in ids {
        assert_eq!(side.succeeds_by(waits).id, completed);
        let again = queue_pair.post_receive(completed + 64, [side.memory.slice(..64)]);
        again.expect("room");
    }
}

/// One thread creates all queues of two contexts, and a thread for each queue pair uses them: some poll, some wait. Queue
/// pairs move to other engines while their packets are under way. At last two connections end early, and their queues are
/// dropped while the other threads use theirs.
fn others_use_what_one_thread_creates(addresses: [&str; 2], shortcut: Shortcut) {
    const MESSAGES: u64 = 2000;
    let contexts = addresses.map(|address| {
        let options = OpenOptions {
            lanes: 4,
            shortcut,
            ..OpenOptions::default()
        };
        Context::open_with(address, &options).expect("a loopback address")
    });
    let domains = contexts
        .each_ref()
        .map(|it| it.allocate_protection_domain().expect("room"));
    let side = |at: usize| Side {
        completions: contexts[at].create_completion_queue(1024).expect("room"),
        memory: domains[at].allocate_memory(64, ALL).expect("room"),
        domain: domains[at].clone(),
    };
    let connections = [(); 4].map(|()| {
        let sides = [side(0), side(1)];
        let (sender, receiver) = connect(sides[0].prepare(), sides[1].prepare());
        for id in 0..64 {
            let posted = receiver.post_receive(id, [sides[1].memory.slice(..64)]);
            posted.expect("room");
        }
        (sides, sender, receiver)
    });
    let is_moved = || {
        let sides = connections.iter().flat_map(|(sides, ..)| sides);
        sides.into_iter().any(|side| side.completions.lane() > 0)
    };
    let (deadline, mut done) = (Instant::now() + TIMEOUT, 0);
    while !is_moved() {
        assert!(Instant::now() < deadline, "threads wait for each other");
        let ids = done..done + MESSAGES;
        thread::scope(|scope| {
            for (at, ([from, to], sender, receiver)) in connections.iter().enumerate() {
                let [sent, received] = [ids.clone(), ids.clone()];
                scope.spawn(move || send_in_order(from, sender, sent, at % 2 == 1));
                scope.spawn(move || receive_in_order(to, receiver, received, at % 2 == 1));
            }
        });
        done = ids.end;
    }
    thread::scope(|scope| {
        for (at, ([from, to], sender, receiver)) in connections.into_iter().enumerate() {
            let count = if at < 2 { MESSAGES / 10 } else { MESSAGES };
            let [sent, received] = [(); 2].map(|()| done..done + count);
            scope.spawn(move || send_in_order(&from, &sender, sent, at % 2 == 1));
            scope.spawn(move || receive_in_order(&to, &receiver, received, at % 2 == 1));
        }
    });
}

#[test]
fn other_threads_use_what_one_thread_creates_through_memory() {
    others_use_what_one_thread_creates(["127.59.10.11", "127.59.10.12"], Shortcut::Auto);
}

#[test]
fn other_threads_use_what_one_thread_creates_through_sockets() {
    others_use_what_one_thread_creates(["127.59.10.13", "127.59.10.14"], Shortcut::Never);
}

#[test]
fn a_queue_pair_may_complete_into_queues_of_two_engines() {
    let context = open("127.59.10.3");
    let domain = context.allocate_protection_domain().expect("room");
    let (one, two) = (Side::of(&context, &domain), Side::of(&context, &domain));
    let _queue_pairs = (one.prepare(), two.prepare());
    use_in_turn(&one, &two);
    let mixed = domain.queue_pair_builder(&one.completions);
    let mixed = mixed.receive_completions(&two.completions);
    let (mixed, peer) = connect(mixed.create_reliable().expect("room"), two.prepare());
    for round in 0..20 {
        mixed
            .post_receive(round, [one.memory.slice(..8)])
            .expect("room");
        peer.post_send(Request::send().data(two.memory.slice(..8)).id(100 + round))
            .expect("room");
        let mut ids = [two.succeeds().id, two.succeeds().id];
        ids.sort_unstable();
        assert_eq!(ids, [round, 100 + round]);
        peer.post_receive(200, [two.memory.slice(..8)])
            .expect("room");
        mixed
            .post_send(Request::send().data(one.memory.slice(..8)).id(300))
            .expect("room");
        assert_eq!(one.succeeds().id, 300);
        assert_eq!(two.succeeds().id, 200);
    }
}

#[test]
fn queue_pairs_of_two_engines_take_each_shared_receive_once() {
    const MESSAGES: u64 = 200;
    let (context, peer) = (open("127.59.10.4"), open("127.59.10.5"));
    let domain = context.allocate_protection_domain().expect("room");
    let shared = domain
        .create_shared_receive_queue(MESSAGES as u32, 1)
        .expect("room");
    let peer_domain = peer.allocate_protection_domain().expect("room");
    let pairs: Vec<_> = (0..2)
        .map(|_| {
            let (here, there) = (Side::of(&context, &domain), Side::of(&peer, &peer_domain));
            let receiver = domain
                .queue_pair_builder(&here.completions)
                .shared_receive_queue(&shared);
            let ends = connect(receiver.create_reliable().expect("room"), there.prepare());
            (here, there, ends)
        })
        .collect();
    use_in_turn(&pairs[0].0, &pairs[1].0);
    let memory = domain.allocate_memory(1 << 16, ALL).expect("room");
    for id in 0..MESSAGES {
        shared.post_receive(id, [memory.slice(..8)]).expect("room");
    }
    let received = |(here, there, (_receiver, sender)): &(Side, Side, (QueuePair, QueuePair))| {
        let next = |_| {
            sender
                .post_send(Request::send().data(there.memory.slice(..8)))
                .expect("room");
            there.succeeds();
            here.succeeds().id
        };
        (0..MESSAGES / 2).map(next).collect::<Vec<_>>()
    };
    let mut ids: Vec<_> = thread::scope(|scope| {
        let threads: Vec<_> = (pairs.iter())
            .map(|it| scope.spawn(|| received(it)))
            .collect();
        threads
            .into_iter()
            .flat_map(|it| it.join().expect("no panic"))
            .collect()
    });
    ids.sort_unstable();
    assert_eq!(ids, (0..MESSAGES).collect::<Vec<_>>());
}

#[test]
fn dropped_region_is_inaccessible_through_every_engine() {
    let context = open("127.59.10.6");
    let (one, two, left, _right) = connected(&context);
    let gone = two.memory.remote(0);
    left.post_send(Request::write(gone).data(one.memory.slice(..8)))
        .expect("room");
    one.succeeds();
    let Side {
        completions,
        memory,
        ..
    } = two;
    drop(memory);
    left.post_send(Request::write(gone).data(one.memory.slice(..8)))
        .expect("room");
    assert_eq!(one.next().status, Status::RemoteAccess);
    drop(completions);
}

#[test]
fn events_of_every_engine_arrive_at_the_context() {
    let context = open("127.59.10.7");
    let (one, two, left, right) = connected(&context);
    let beyond = two.memory.remote(1 << 30);
    left.post_send(Request::write(beyond).data(one.memory.slice(..8)))
        .expect("room");
    assert_eq!(one.next().status, Status::RemoteAccess);
    let event = context.wait_event(TIMEOUT).expect("an event");
    assert_eq!(event, AsyncEvent::AccessError(right.number()));
}

#[test]
fn queue_that_overruns_fails_the_queue_pairs_of_every_engine() {
    let context = open("127.59.10.8");
    let domain = context.allocate_protection_domain().expect("room");
    let (one, two) = (Side::of(&context, &domain), Side::of(&context, &domain));
    let _queue_pairs = (one.prepare(), two.prepare());
    use_in_turn(&one, &two);
    let small = in_thread(|| context.create_completion_queue(1).expect("room"));
    let pairs = [&one, &two].map(|side| {
        let builder = domain.queue_pair_builder(&side.completions);
        let receiver = builder
            .receive_completions(&small)
            .depth(2, 2)
            .may_overrun()
            .create_reliable()
            .expect("room");
        let (receiver, sender) = connect(receiver, side.prepare());
        for id in 0..2 {
            receiver
                .post_receive(id, [side.memory.slice(..8)])
                .expect("room");
        }
        (side, receiver, sender)
    });
    for (side, _receiver, sender) in &pairs {
        for _ in 0..2 {
            sender
                .post_send(Request::send().data(side.memory.slice(..8)))
                .expect("room");
        }
    }
    for (_, receiver, _) in &pairs {
        let deadline = Instant::now() + TIMEOUT;
        while receiver.state() != rocinante::State::Error {
            assert!(Instant::now() < deadline, "it must fail");
        }
    }
}

/// The connection manager is part of one engine, the queue pairs of the connections of another.
#[test]
fn connection_with_a_queue_pair_of_another_engine_is_made_and_ended() {
    let address: SocketAddr = "127.59.10.9:7471".parse().expect("an address");
    let listener = Listener::bind(address).expect("a free port");
    let server = thread::spawn(move || {
        let request = listener.wait_for(TIMEOUT).expect("a request");
        let domain = request
            .context()
            .allocate_protection_domain()
            .expect("room");
        // The queues of the first queue pair stay in the first engine.
        let first = Side::of(request.context(), &domain);
        let _queue_pair = first.prepare();
        let side = Side::of(request.context(), &domain);
        let prepared = request
            .prepare(domain.queue_pair_builder(&side.completions))
            .expect("room");
        use_in_turn(&first, &side);
        prepared
            .post_receive(1, [side.memory.slice(..8)])
            .expect("room");
        prepared
            .post_receive(2, [side.memory.slice(..8)])
            .expect("room");
        let connection = prepared.accept(b"").expect("a client");
        assert_eq!(side.succeeds().id, 1);
        let flushed = side.next();
        assert_eq!((flushed.id, flushed.status), (2, Status::Flushed));
        drop((first, connection));
    });
    let connector = Connector::resolve(address).expect("a server");
    let domain = connector
        .context()
        .allocate_protection_domain()
        .expect("room");
    let side = Side::of(connector.context(), &domain);
    let prepared = connector
        .prepare(domain.queue_pair_builder(&side.completions))
        .expect("room");
    let connection = prepared.connect(b"").expect("it accepts");
    let message = Request::send().data(side.memory.slice(..8));
    connection.post_send(message).expect("room");
    side.succeeds();
    connection.disconnect().expect("it is connected");
    server.join().expect("no panic");
}

#[test]
fn connection_whose_confirmation_is_lost_is_established_by_the_first_message() {
    for (index, other_engine) in [false, true].into_iter().enumerate() {
        let address = SocketAddr::from(([127, 59, 10, 20 + index as u8], 7471));
        let listener = Listener::bind(address).expect("a free port");
        let server = thread::spawn(move || {
            let request = listener.wait_for(TIMEOUT).expect("a request");
            let domain = request.context().allocate_protection_domain();
            let domain = domain.expect("room");
            let first = Side::of(request.context(), &domain);
            let _queue_pair = first.prepare();
            let side = Side::of(request.context(), &domain);
            let builder = domain.queue_pair_builder(&side.completions);
            let prepared = request.prepare(builder).expect("room");
            if other_engine {
                use_in_turn(&first, &side);
            }
            let receive = prepared.post_receive(1, [side.memory.slice(..8)]);
            receive.expect("room");
            let connection = prepared.timeout(TIMEOUT).accept(b"").expect("a client");
            assert_eq!(side.succeeds().id, 1);
            drop(connection);
        });
        let options = OpenOptions {
            faults: Some("drop:cm=RTU".into()),
            ..OpenOptions::default()
        };
        let context = Context::open_with(&format!("127.59.10.{}", 30 + index), &options);
        let context = context.expect("a loopback address");
        let domain = context.allocate_protection_domain().expect("room");
        let side = Side::of(&context, &domain);
        let connector = Connector::resolve_on(&context, address).expect("a server");
        let builder = domain.queue_pair_builder(&side.completions);
        let prepared = connector.prepare(builder).expect("room");
        let connection = prepared.connect(b"").expect("it accepts");
        let message = Request::send().data(side.memory.slice(..8));
        connection.post_send(message).expect("room");
        side.succeeds();
        server.join().expect("no panic");
    }
}

#[test]
fn channel_reports_completions_of_every_engine() {
    let context = open("127.59.10.10");
    let domain = context.allocate_protection_domain().expect("room");
    let channel = context.create_completion_channel().expect("a descriptor");
    let sides = [0, 1].map(|_| {
        let plain = Side::of(&context, &domain);
        let completions = in_thread(|| channel.create_completion_queue(16).expect("room"));
        Side {
            completions,
            ..plain
        }
    });
    let [one, two] = &sides;
    let (left, right) = connect(one.prepare(), two.prepare());
    for (side, queue_pair) in [(one, &left), (two, &right)] {
        for queue in [one, two] {
            queue.completions.arm(rocinante::Notify::Any);
        }
        let message = Request::write(two.memory.remote(0)).data(side.memory.slice(..8));
        queue_pair.post_send(message).expect("room");
        let notified = channel.wait_for(TIMEOUT).expect("a notification");
        assert_eq!(notified, side.completions.token());
        side.succeeds();
    }
}
