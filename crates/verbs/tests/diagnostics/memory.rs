//! Scenarios with invalid keys, ranges and access rights.

use rocinante::{Access, ConnectOptions, Key, RemoteMemory, Request, Segment, Status};

use crate::connected_pair::{ConnectedPair, Scenario, connect_options, end};

const LOCAL: Access = Access::LOCAL_WRITE;

pub(crate) const SCENARIOS: &[Scenario] = &[
    ("forbidden write", || {
        let pair = ConnectedPair::new("127.57.1.1", "127.57.1.2");
        let memory = pair.theirs(LOCAL | Access::REMOTE_READ);
        let request = Request::write(memory.remote(0)).inline(b"no");
        pair.fails(request, Status::RemoteAccess);
    }),
    ("forbidden read", || {
        let pair = ConnectedPair::new("127.57.1.3", "127.57.1.4");
        let memory = pair.theirs(LOCAL | Access::REMOTE_WRITE);
        let request = Request::read(memory.remote(0)).data(pair.left.memory.slice(0..64));
        pair.fails(request, Status::RemoteAccess);
    }),
    ("forbidden atomic", || {
        let pair = ConnectedPair::new("127.57.1.5", "127.57.1.6");
        let memory = pair.theirs(LOCAL | Access::REMOTE_WRITE);
        let request = Request::fetch_add(memory.remote(0), 1).data(pair.left.memory.slice(0..8));
        pair.fails(request, Status::RemoteAccess);
    }),
    ("unaligned atomic", || {
        let pair = ConnectedPair::new("127.57.1.61", "127.57.1.62");
        let memory = pair.theirs(LOCAL | Access::REMOTE_ATOMIC);
        let request = Request::fetch_add(memory.remote(4), 1).data(pair.left.memory.slice(0..8));
        pair.fails(request, Status::RemoteInvalidRequest);
    }),
    ("queue pair forbids", || {
        let theirs = ConnectOptions {
            access: Access::REMOTE_READ,
            ..connect_options()
        };
        let pair = ConnectedPair::with("127.57.1.7", "127.57.1.8", theirs);
        let request = Request::write(pair.right.memory.remote(0)).inline(b"no");
        pair.fails(request, Status::RemoteInvalidRequest);
    }),
    ("remote bounds", || {
        let pair = ConnectedPair::new("127.57.1.9", "127.57.1.10");
        let memory = pair.theirs(LOCAL | Access::REMOTE_WRITE);
        let request = Request::write(memory.remote(0)).data(pair.left.memory.slice(0..128));
        pair.fails(request, Status::RemoteAccess);
    }),
    ("unknown rkey", || {
        let pair = ConnectedPair::new("127.57.1.11", "127.57.1.12");
        let remote = RemoteMemory {
            key: INVENTED,
            ..pair.right.memory.remote(0)
        };
        pair.fails(Request::write(remote).inline(b"no"), Status::RemoteAccess);
    }),
    ("rkey of another domain", || {
        let pair = ConnectedPair::new("127.57.1.13", "127.57.1.14");
        let other = pair
            .right
            .context
            .allocate_protection_domain()
            .expect("room");
        let memory = other
            .allocate_memory(64, LOCAL | Access::REMOTE_WRITE)
            .expect("room");
        let request = Request::write(memory.remote(0)).inline(b"no");
        pair.fails(request, Status::RemoteAccess);
    }),
    ("lkey of another domain", || {
        let pair = ConnectedPair::new("127.57.1.15", "127.57.1.16");
        let other = pair
            .left
            .context
            .allocate_protection_domain()
            .expect("room");
        let memory = other.allocate_memory(64, LOCAL).expect("room");
        let request = Request::send().data(memory.all());
        pair.fails(request, Status::LocalProtection);
    }),
    ("unknown lkey", || {
        let pair = ConnectedPair::new("127.57.1.17", "127.57.1.18");
        let segment = Segment {
            key: INVENTED,
            ..pair.left.memory.slice(0..64)
        };
        pair.fails(Request::send().data(segment), Status::LocalProtection);
    }),
    ("local bounds", || {
        let pair = ConnectedPair::new("127.57.1.19", "127.57.1.20");
        let memory = pair.left.domain.allocate_memory(64, LOCAL).expect("room");
        let segment = Segment {
            length: 128,
            ..memory.all()
        };
        pair.fails(Request::send().data(segment), Status::LocalProtection);
    }),
    ("small receive", || {
        let pair = ConnectedPair::new("127.57.1.21", "127.57.1.22");
        let room = pair.right.memory.slice(0..16);
        pair.from_right.post_receive(3, [room]).expect("room");
        let request = Request::send().data(pair.left.memory.slice(0..64));
        pair.fails(request, Status::RemoteInvalidRequest);
    }),
    ("unwritable receive", || {
        let pair = ConnectedPair::new("127.57.1.23", "127.57.1.24");
        let memory = pair.theirs(Access::empty());
        pair.from_right
            .post_receive(3, [memory.all()])
            .expect("room");
        let request = Request::send().data(pair.left.memory.slice(0..64));
        pair.fails(request, Status::RemoteOperation);
    }),
    ("registration", || {
        let end = end("127.57.1.25");
        let refused = end.domain.allocate_memory(64, Access::REMOTE_WRITE);
        assert!(refused.is_err());
    }),
];

const INVENTED: Key = Key::new(0x0bad_c0de);
