//! Device memory and extended reliable connections, which some devices have.

use rocinante::{
    Access, CompletedWork, Context, MemoryError, MemoryRegion, ObjectError, Request, Status,
    SystemRefusal, WindowKind, XrcDomain,
};

use crate::device::{is_software, open, system_device};
use crate::{ALL, Pair, TIMEOUT};

/// Device memory; `None` if the device has none.
fn device_memory(pair: &Pair, access: Access) -> Option<MemoryRegion> {
    match pair.domain.allocate_device_memory(128, access) {
        Err(MemoryError::System(refusal)) if !is_software() => {
            assert_eq!(refusal, SystemRefusal::Lacks("device memory"));
            None
        }
        allocated => Some(allocated.expect("room")),
    }
}

#[test]
fn device_memory_is_written_and_read_by_both_sides() {
    let pair = Pair::reliable();
    let Some(memory) = device_memory(&pair, ALL) else {
        return;
    };
    assert_eq!((memory.len(), memory.remote(64).address), (128, 64));
    memory.write(64, &41_u64.to_ne_bytes());
    let add = Request::fetch_add(memory.remote(64), 1).data(pair.left.memory.slice(..8));
    pair.left.post(add);
    assert_eq!(pair.left.success().work, CompletedWork::FetchAdd);
    assert_eq!(pair.left.memory.to_vec(..8), 41_u64.to_ne_bytes());
    assert_eq!(memory.to_vec(64..72), 42_u64.to_ne_bytes());
    // Neither at the beginning nor at the end of a word.
    memory.write(3, b"some bytes");
    let into = pair.left.memory.slice(100..116);
    pair.left.post(Request::read(memory.remote(0)).data(into));
    pair.left.success();
    assert_eq!(pair.left.memory.to_vec(100..116), b"\0\0\0some bytes\0\0\0");
    assert_eq!(memory.to_vec(5..9), b"me b");
    memory.write(5, b"XY");
    assert_eq!(memory.to_vec(0..16), b"\0\0\0soXY bytes\0\0\0");
}

#[test]
fn device_memory_ends_at_its_length() {
    let pair = Pair::reliable();
    let Some(memory) = device_memory(&pair, ALL) else {
        return;
    };
    pair.left
        .post(Request::write(memory.remote(124)).inline(b"beyond"));
    assert_eq!(pair.left.completion().status, Status::RemoteAccess);
}

#[test]
#[should_panic(expected = "in the device memory")]
fn device_memory_is_not_read_beyond_its_end() {
    let pair = Pair::reliable();
    match device_memory(&pair, ALL) {
        // Ours has another message.
        Some(memory) if system_device().is_some() => {
            memory.read(124, &mut [0; 5]);
        }
        _ => panic!("there is no such memory in the device memory of this device"),
    }
}

#[test]
fn a_window_is_bound_to_device_memory() {
    let pair = Pair::reliable();
    let Some(memory) = device_memory(&pair, ALL | Access::WINDOW_BIND) else {
        return;
    };
    let window = pair.domain.allocate_memory_window(WindowKind::Two);
    let window = window.expect("room");
    let access = Access::REMOTE_WRITE;
    let bind = Request::bind_window(&window, &memory, 16..32, access);
    pair.right.post(bind);
    pair.right.success();
    let remote = rocinante::RemoteMemory {
        key: window.remote_key(),
        ..memory.remote(16)
    };
    pair.left.post(Request::write(remote).inline(b"through"));
    pair.left.success();
    assert_eq!(memory.to_vec(16..23), b"through");
}

/// An XRC domain; `None` if the device has no XRC.
fn xrc_domain(context: &Context) -> Option<XrcDomain> {
    match context.open_xrc_domain() {
        Err(ObjectError::System(refusal)) if !is_software() => {
            let expected = SystemRefusal::Lacks("extended reliable connections (XRC)");
            assert_eq!(refusal, expected);
            None
        }
        opened => Some(opened.expect("room")),
    }
}

#[test]
fn one_extended_connection_serves_several_receive_queues() {
    let context = open();
    let Some(xrc) = xrc_domain(&context) else {
        return;
    };
    let domain = context.allocate_protection_domain().expect("room");
    let sent = context.create_completion_queue(16).expect("room");
    let received = context.create_completion_queue(32).expect("room");
    let memory = domain.allocate_memory(128, ALL).expect("memory");
    let queue = || domain.create_xrc_receive_queue(&xrc, &received, 16, 1);
    let (first, second) = (queue().expect("room"), queue().expect("room"));
    assert_ne!(first.number(), second.number());
    let builder = || domain.queue_pair_builder(&sent);
    let initiator = builder().create_xrc_initiator().expect("room");
    let target = builder().create_xrc_target(&xrc).expect("room");
    let (ours, theirs) = (initiator.endpoint(), target.endpoint());
    let initiator = initiator
        .connect(theirs)
        .expect("a path to the same device");
    let _target = target.connect(ours).expect("a path to the same device");
    for (id, queue, part) in [(1, &first, 0..64), (2, &second, 64..128)] {
        queue.post_receive(id, [memory.slice(part)]).expect("room");
    }
    // The XRC domain is kept by what uses it.
    drop(xrc);
    for (id, queue, text) in [(2, &second, b"second"), (1, &first, b"first!")] {
        let request = Request::send().inline(text);
        initiator.post_send(queue.number(), request).expect("room");
        let completes = |queue: &rocinante::CompletionQueue| {
            let completion = queue.wait_for(TIMEOUT).expect("it completes");
            assert_eq!(completion.status, Status::Success, "{completion:?}");
            completion
        };
        completes(&sent);
        assert_eq!(completes(&received).id, id);
    }
    assert_eq!(memory.to_vec(64..70), b"second");
    assert_eq!(memory.to_vec(0..6), b"first!");
}
