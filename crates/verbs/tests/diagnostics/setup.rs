//! Scenarios with wrong attributes or a wrong state of a queue pair.

use engine::{QueuePairInit, QueuePairType, SendRequest, Work};
use rocinante::{
    Access, Address, Attributes, Context, Gid, OpenOptions, PathMtu, PostError, Psn, Qpn, QueueKey,
    Request, RnrTimer, State,
};

use crate::connected_pair::{ConnectedPair, Scenario};

pub(crate) const SCENARIOS: &[Scenario] = &[
    ("missing attributes", || {
        let (context, number) = fresh("127.57.20.1");
        let incomplete = Attributes {
            access: None,
            partition_index: None,
            ..init()
        };
        refused(&context, number, &incomplete);
    }),
    ("surplus attributes", || {
        let (context, number) = fresh("127.57.20.2");
        let surplus = Attributes {
            queue_key: Some(QueueKey::new(1)),
            send_psn: Some(Psn::new(1)),
            ..init()
        };
        refused(&context, number, &surplus);
    }),
    ("illegal step", || {
        let (context, number) = fresh("127.57.20.3");
        let leap = Attributes {
            state: Some(State::ReadyToSend),
            ..Attributes::default()
        };
        refused(&context, number, &leap);
    }),
    ("empty gid", || {
        let (context, number) = initialized("127.57.21.1");
        refused(&context, number, &towards("127.57.21.2", 5));
    }),
    ("other family", || {
        let (context, number) = initialized("127.57.22.1");
        refused(&context, number, &towards("2001:db8::7", 0));
    }),
    ("no peer gid", || {
        let (context, number) = initialized("127.57.23.1");
        refused(&context, number, &towards("::", 0));
    }),
    ("early post", || {
        let (context, number) = initialized("127.57.24.1");
        let request = SendRequest::new(7, Work::Send);
        let posted = context
            .driver()
            .expect("ours")
            .call(|device| device.post_send(number, request));
        assert_eq!(posted, Err(PostError::WrongState(State::Initialized)));
    }),
    ("full queue", || {
        let pair = ConnectedPair::new("127.57.25.1", "127.57.25.2");
        let builder = pair.left.domain.queue_pair_builder(&pair.left.completions);
        let small = builder.depth(4, 4).create_reliable().expect("room");
        let alone = small.endpoint();
        let small = small.connect(alone).expect("itself");
        for id in 0..20 {
            // Without a receive they stay outstanding.
            let _ = small.post_send(Request::send().inline(b"one of many").id(id));
        }
    }),
    ("busy domain", || {
        let (context, _) = fresh("127.57.27.1");
        let freed = context.driver().expect("ours").call(|device| {
            let domain = device.allocate_domain().expect("room");
            let completions = device.create_completion_queue(16).expect("room");
            let init = QueuePairInit::new(QueuePairType::Rc, domain, completions);
            device.create_queue_pair(init).expect("room");
            device.free_domain(domain)
        });
        assert!(freed.is_err());
    }),
    ("wanted by the program", || {
        rocinante::enable_explanations();
        let context = Context::open("127.57.26.1").expect("a loopback address");
        let domain = context.allocate_protection_domain().expect("room");
        assert!(domain.allocate_memory(64, Access::REMOTE_WRITE).is_err());
    }),
];

/// A queue pair as it was created.
fn fresh(address: &str) -> (Context, Qpn) {
    let context =
        Context::open_with(address, &OpenOptions::from_env()).expect("a loopback address");
    let number = context.driver().expect("ours").call(|device| {
        let domain = device.allocate_domain().expect("room");
        let completions = device.create_completion_queue(16).expect("room");
        let init = QueuePairInit::new(QueuePairType::Rc, domain, completions);
        device.create_queue_pair(init).expect("room")
    });
    (context, number)
}

fn initialized(address: &str) -> (Context, Qpn) {
    let (context, number) = fresh(address);
    let modified = context
        .driver()
        .expect("ours")
        .call_after_flush(|device| device.modify(number, &init()));
    modified.expect("all that it needs");
    (context, number)
}

fn init() -> Attributes {
    Attributes {
        state: Some(State::Initialized),
        port: Some(1),
        partition_index: Some(0),
        access: Some(Access::REMOTE_WRITE),
        ..Attributes::default()
    }
}

fn towards(peer: &str, source_index: u8) -> Attributes {
    let peer: Gid = peer.parse().expect("a GID");
    Attributes {
        state: Some(State::ReadyToReceive),
        path: Some(Address::new(peer, source_index)),
        path_mtu: Some(PathMtu::Mtu1024),
        destination: Some(Qpn::new(17)),
        receive_psn: Some(Psn::new(0)),
        responder_resources: Some(1),
        rnr_timer: RnrTimer::new(12),
        ..Attributes::default()
    }
}

fn refused(context: &Context, number: Qpn, attributes: &Attributes) {
    let modified = context
        .driver()
        .expect("ours")
        .call_after_flush(|device| device.modify(number, attributes));
    assert!(modified.is_err());
}
