//! Scenes in which memory is not what a request takes it for.

use rocinante::{Access, ConnectOptions, Key, Remote, Request, Segment, Status};

use crate::stage::{Scene, Stage, connect_options, end};

const LOCAL: Access = Access::LOCAL_WRITE;

pub(crate) const SCENES: &[Scene] = &[
    ("forbidden write", || {
        let stage = Stage::set("127.57.1.1", "127.57.1.2");
        let memory = stage.theirs(LOCAL | Access::REMOTE_READ);
        let request = Request::write(memory.remote(0)).inline(b"no");
        stage.fails(request, Status::RemoteAccess);
    }),
    ("forbidden read", || {
        let stage = Stage::set("127.57.1.3", "127.57.1.4");
        let memory = stage.theirs(LOCAL | Access::REMOTE_WRITE);
        let request = Request::read(memory.remote(0)).data(stage.left.memory.slice(0..64));
        stage.fails(request, Status::RemoteAccess);
    }),
    ("forbidden atomic", || {
        let stage = Stage::set("127.57.1.5", "127.57.1.6");
        let memory = stage.theirs(LOCAL | Access::REMOTE_WRITE);
        let request = Request::fetch_add(memory.remote(0), 1).data(stage.left.memory.slice(0..8));
        stage.fails(request, Status::RemoteAccess);
    }),
    ("queue pair forbids", || {
        let theirs = ConnectOptions {
            access: Access::REMOTE_READ,
            ..connect_options()
        };
        let stage = Stage::with("127.57.1.7", "127.57.1.8", theirs);
        let request = Request::write(stage.right.memory.remote(0)).inline(b"no");
        stage.fails(request, Status::RemoteInvalidRequest);
    }),
    ("remote bounds", || {
        let stage = Stage::set("127.57.1.9", "127.57.1.10");
        let memory = stage.theirs(LOCAL | Access::REMOTE_WRITE);
        let request = Request::write(memory.remote(0)).data(stage.left.memory.slice(0..128));
        stage.fails(request, Status::RemoteAccess);
    }),
    ("unknown rkey", || {
        let stage = Stage::set("127.57.1.11", "127.57.1.12");
        let remote = Remote {
            key: INVENTED,
            ..stage.right.memory.remote(0)
        };
        stage.fails(Request::write(remote).inline(b"no"), Status::RemoteAccess);
    }),
    ("rkey of another domain", || {
        let stage = Stage::set("127.57.1.13", "127.57.1.14");
        let other = stage.right.context.protection_domain().expect("room");
        let memory = other
            .register(64, LOCAL | Access::REMOTE_WRITE)
            .expect("room");
        let request = Request::write(memory.remote(0)).inline(b"no");
        stage.fails(request, Status::RemoteAccess);
    }),
    ("lkey of another domain", || {
        let stage = Stage::set("127.57.1.15", "127.57.1.16");
        let other = stage.left.context.protection_domain().expect("room");
        let memory = other.register(64, LOCAL).expect("room");
        let request = Request::send().data(memory.all());
        stage.fails(request, Status::LocalProtection);
    }),
    ("unknown lkey", || {
        let stage = Stage::set("127.57.1.17", "127.57.1.18");
        let segment = Segment {
            key: INVENTED,
            ..stage.left.memory.slice(0..64)
        };
        stage.fails(Request::send().data(segment), Status::LocalProtection);
    }),
    ("local bounds", || {
        let stage = Stage::set("127.57.1.19", "127.57.1.20");
        let memory = stage.left.domain.register(64, LOCAL).expect("room");
        let segment = Segment {
            length: 128,
            ..memory.all()
        };
        stage.fails(Request::send().data(segment), Status::LocalProtection);
    }),
    ("small receive", || {
        let stage = Stage::set("127.57.1.21", "127.57.1.22");
        let room = stage.right.memory.slice(0..16);
        stage.from_right.post_receive(3, [room]).expect("room");
        let request = Request::send().data(stage.left.memory.slice(0..64));
        stage.fails(request, Status::RemoteInvalidRequest);
    }),
    ("unwritable receive", || {
        let stage = Stage::set("127.57.1.23", "127.57.1.24");
        let memory = stage.theirs(Access::empty());
        stage
            .from_right
            .post_receive(3, [memory.all()])
            .expect("room");
        let request = Request::send().data(stage.left.memory.slice(0..64));
        stage.fails(request, Status::RemoteOperation);
    }),
    ("registration", || {
        let end = end("127.57.1.25");
        let refused = end.domain.register(64, Access::REMOTE_WRITE);
        assert!(refused.is_err());
    }),
];

const INVENTED: Key = Key::new(0x0bad_c0de);
