//! Memory of the application: registered by value, lent, given back.

mod support;

use std::panic::{AssertUnwindSafe, catch_unwind};

use rocinante::{Access, MemoryError, OwnedRegion, Request, Status, WindowKind};
use support::{ALL, ConnectedPair, TIMEOUT};

#[test]
fn vector_is_received_into_and_given_back() {
    let pair = ConnectedPair::connected("127.51.41.1", "127.51.41.2");
    let (left, right) = (&pair.left, &pair.right);
    let message = (left.domain)
        .register(b"from a vector".to_vec(), Access::empty())
        .expect("room");
    let target = vec![b'.'; 20].into_boxed_slice();
    let target = (right.domain)
        .register(target, Access::LOCAL_WRITE)
        .expect("room");
    pair.from_right
        .post_receive(1, [target.slice(3..)])
        .expect("room");
    pair.from_left
        .post_send(Request::send().data(message.all()))
        .expect("room");
    left.success();
    right.success();
    let target = target.into_inner().expect("no forked child");
    assert_eq!(&*target, b"...from a vector....");
    let message = message.into_inner().expect("no forked child");
    assert_eq!(message, b"from a vector");
}

#[test]
fn key_of_memory_that_was_given_back_is_invalid() {
    let pair = ConnectedPair::connected("127.51.42.1", "127.51.42.2");
    let memory = (pair.left.domain)
        .register(vec![0; 8], Access::LOCAL_WRITE)
        .expect("room");
    let segment = memory.all();
    memory.into_inner().expect("no forked child");
    pair.from_left
        .post_send(Request::send().data(segment))
        .expect("room");
    let completion = pair.left.completions.wait_for(TIMEOUT);
    let status = completion.expect("it completes").status;
    assert_eq!(status, Status::LocalProtection);
}

/// A forgotten handle leaks its object. The device still owns the memory that the peer's key reaches.
#[test]
fn forgotten_handles_keep_the_memory_that_requests_use() {
    let pair = ConnectedPair::connected("127.51.48.1", "127.51.48.2");
    let ConnectedPair {
        left,
        right,
        from_left,
        from_right,
    } = pair;
    let target = vec![0; 8];
    let remote_write = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ;
    let target = right.domain.register(target, remote_write).expect("room");
    let inbox = vec![0; 8];
    let inbox = right
        .domain
        .register(inbox, Access::LOCAL_WRITE)
        .expect("room");
    from_right.post_receive(1, [inbox.all()]).expect("room");
    let remote = target.remote(0);
    std::mem::forget((target, inbox, from_right));
    let copy = (left.domain)
        .register(vec![0; 8], Access::LOCAL_WRITE)
        .expect("room");
    for request in [
        Request::write(remote).inline(b"written."),
        Request::send().inline(b"sent...."),
        Request::read(remote).data(copy.all()),
    ] {
        from_left.post_send(request).expect("room");
        left.success();
    }
    assert_eq!(right.success().length, 8);
    assert_eq!(copy.into_inner().expect("no forked child"), b"written.");
}

#[test]
fn refused_memory_comes_back_with_the_reason() {
    let pair = ConnectedPair::connected("127.51.43.1", "127.51.43.2");
    let domain = &pair.left.domain;
    let refused: Result<OwnedRegion<_>, _> =
        domain.register(b"mine".to_vec(), Access::REMOTE_WRITE);
    let error = refused.expect_err("remote writes need local ones");
    assert_eq!(error.memory, b"mine");
    assert_eq!(error.reason, MemoryError::NeedsLocalWrite);
}

#[test]
fn peer_can_not_write_lent_memory_and_can_afterwards() {
    let mut pair = ConnectedPair::connected("127.51.44.1", "127.51.44.2");
    pair.write_and_compare(64);
    let (here, there) = (
        pair.left.prepare(Default::default()),
        pair.right.prepare(Default::default()),
    );
    let (ours, theirs) = (here.endpoint(), there.endpoint());
    let (second, _kept) = (here.connect(theirs), there.connect(ours));
    let target = pair.right.memory.remote(0);
    let lent = pair.right.memory.lend(|bytes| {
        bytes[..4].copy_from_slice(b"mine");
        pair.from_left
            .post_send(Request::write(target).inline(b"theirs"))
            .expect("room");
        let completion = pair.left.completions.wait_for(TIMEOUT);
        assert_eq!(&bytes[..4], b"mine");
        completion.expect("it completes").status
    });
    assert_eq!(lent, Ok(Status::RemoteAccess));
    assert_eq!(pair.right.memory.to_vec(..4), b"mine");
    let second = second.expect("a peer");
    second
        .post_send(Request::write(target).inline(b"theirs"))
        .expect("room");
    pair.left.success();
    assert_eq!(pair.right.memory.to_vec(..6), b"theirs");
}

#[test]
fn memory_is_registered_again_after_a_panic_of_its_borrower() {
    let mut pair = ConnectedPair::connected("127.51.45.1", "127.51.45.2");
    let memory = &mut pair.right.memory;
    let lent = catch_unwind(AssertUnwindSafe(|| memory.lend(|_| panic!("on purpose"))));
    lent.expect_err("it panics");
    pair.write_and_compare(64);
}

#[test]
fn memory_with_a_bound_window_is_not_lent() {
    let mut pair = ConnectedPair::connected("127.51.46.1", "127.51.46.2");
    let window = pair
        .left
        .domain
        .allocate_memory_window(WindowKind::One)
        .expect("room");
    let bind = Request::bind_window(&window, &pair.left.memory, ..64, ALL);
    pair.from_left.post_send(bind).expect("room");
    pair.left.success();
    let lent = pair.left.memory.lend(|_| ());
    assert_eq!(lent, Err(MemoryError::WindowsBound(1)));
    drop(window);
    assert_eq!(pair.left.memory.lend(|bytes| bytes.len()), Ok(1 << 20));
}

/// Otherwise the device would not get the memory back, because a region with a window can't be changed.
#[test]
fn window_is_not_bound_to_lent_memory() {
    let mut pair = ConnectedPair::connected("127.51.49.1", "127.51.49.2");
    let (here, there) = (
        pair.left.prepare(Default::default()),
        pair.right.prepare(Default::default()),
    );
    let (ours, theirs) = (here.endpoint(), there.endpoint());
    let second = here.connect(theirs).expect("a peer");
    let _kept = there.connect(ours).expect("a peer");
    let window = (pair.left.domain)
        .allocate_memory_window(WindowKind::One)
        .expect("room");
    let bind = Request::bind_window(&window, &pair.left.memory, ..64, ALL);
    let bound = pair.left.memory.lend(|_| {
        pair.from_left.post_send(bind).expect("room");
        pair.left.completions.wait_for(TIMEOUT).map(|it| it.status)
    });
    assert_eq!(bound, Ok(Some(Status::WindowBind)));
    pair.left.memory.write(0, b"mine again");
    let write = Request::write(pair.right.memory.remote(0)).data(pair.left.memory.slice(..10));
    second.post_send(write).expect("room");
    pair.left.success();
    assert_eq!(pair.right.memory.to_vec(..10), b"mine again");
}
