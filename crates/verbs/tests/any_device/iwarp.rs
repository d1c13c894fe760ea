//! What is different at an iWARP device.

use rocinante::{
    Key, ModifyError, ObjectError, PostError, QueueKey, RemoteMemory, Request, SetupError, Status,
    SystemRefusal,
};

use crate::Pair;
use crate::device::{is_siw, open};

#[test]
fn what_an_iwarp_device_lacks_is_a_typed_error() {
    if !is_siw() {
        return;
    }
    let pair = Pair::reliable();
    let there = pair.right.memory.remote(0);
    for request in [
        Request::send_with_immediate([1; 4]).empty(),
        Request::write_with_immediate(there, [1; 4]).empty(),
        Request::fetch_add(there, 1).data(pair.left.memory.slice(..8)),
    ] {
        let refused = pair.left.queue_pair.post_send(request);
        let lacks = matches!(refused, Err(PostError::System(SystemRefusal::Lacks(_))));
        assert!(lacks, "{refused:?}");
    }
    let refused = pair.left.completions.resize(300);
    let lacks = matches!(refused, Err(ObjectError::System(SystemRefusal::Lacks(_))));
    assert!(lacks, "{refused:?}");
    let builder = || pair.domain.queue_pair_builder(&pair.left.completions);
    let refused = builder().create_datagram(QueueKey::new(1)).err();
    let lacks = |error: &SetupError| {
        matches!(
            error,
            SetupError::Create(ObjectError::System(SystemRefusal::Lacks(_)))
        )
    };
    assert!(refused.as_ref().is_some_and(lacks), "{refused:?}");
    let refused = builder().create_unreliable().err();
    assert!(refused.as_ref().is_some_and(lacks), "{refused:?}");
    let prepared = builder().create_reliable().expect("room");
    let peer = prepared.endpoint();
    let refused = prepared.connect(peer).err();
    let lacks = matches!(refused, Some(ModifyError::System(SystemRefusal::Lacks(_))));
    assert!(lacks, "{refused:?}");
}

#[test]
fn a_device_of_iwarp_has_the_addresses_of_its_interface() {
    if is_siw() {
        let context = open();
        let mut addresses = context.device().gids.iter().map(|entry| entry.address);
        assert!(addresses.any(|address| address.is_ipv4()));
        assert!(context.device().interface.is_some());
    }
}

#[test]
fn a_request_completes_before_the_peer_has_checked_it_and_then_the_connection_ends() {
    if !is_siw() {
        return;
    }
    let pair = Pair::reliable();
    pair.left.receive(1, 64);
    let right = pair.right.memory.remote(0);
    let wrong = RemoteMemory {
        key: Key::new(right.key.value() ^ 0x5500),
        ..right
    };
    pair.left.post(Request::write(wrong).inline(b"never").id(3));
    assert_eq!(pair.left.success().id, 3);
    let ended = pair.left.completion();
    assert_eq!((ended.id, ended.status), (1, Status::Flushed));
    assert_eq!(pair.right.memory.to_vec(..5), [0; 5]);
}
