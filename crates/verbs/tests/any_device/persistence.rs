//! FLUSH and atomic write, which some devices have.

use rocinante::{
    Access, CompletedWork, ConnectOptions, FlushPlacement, FlushRange, MemoryError, MemoryRegion,
    PostError, Request, Status, SystemRefusal,
};

use crate::device::{is_ours, is_software, system_device};
use crate::{ALL, Pair};

/// Whether the device must have both: ours, and the rxe of kernels that are new enough.
fn must_have_both() -> bool {
    match system_device() {
        Some(name) if name.starts_with("rxe") => kernel_release() >= [6, 2],
        Some(_) => is_ours(),
        None => true,
    }
}

/// Whether any memory can be flushed to persistence. Others than ours check that it is persistent memory.
fn persists_ordinary_memory() -> bool {
    is_software()
}

/// The first two numbers of the kernel's release.
fn kernel_release() -> [u32; 2] {
    let text = std::fs::read_to_string("/proc/sys/kernel/osrelease").expect("a kernel");
    let mut numbers = text.split('.').map(|number| number.parse().unwrap_or(0));
    [(); 2].map(|()| numbers.next().unwrap_or(0))
}

/// Connected queue pairs whose peers may flush, and memory of the right one for that; `None` if the device has no FLUSH.
fn flushable() -> Option<(Pair, MemoryRegion)> {
    let flush = if persists_ordinary_memory() {
        Access::FLUSH_GLOBAL | Access::FLUSH_PERSISTENT
    } else {
        Access::FLUSH_GLOBAL
    };
    let default = ConnectOptions::default();
    let pair = Pair::reliable();
    match pair.domain.allocate_memory(64, ALL | flush) {
        Ok(region) => {
            drop(region);
            drop(pair);
            let options = ConnectOptions {
                access: default.access | flush,
                ..default
            };
            let pair = Pair::new(options, true);
            let region = pair.domain.allocate_memory(64, ALL | flush);
            Some((pair, region.expect("memory")))
        }
        Err(MemoryError::System(SystemRefusal::Lacks(_))) if !must_have_both() => {
            let refused = pair.left.queue_pair.post_send(Request::flush(
                pair.right.memory.remote(0),
                8,
                FlushPlacement::GLOBAL,
                FlushRange::Range,
            ));
            let expected = PostError::System(SystemRefusal::Lacks("FLUSH"));
            assert_eq!(refused, Err(expected));
            None
        }
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn a_flush_completes_after_the_writes_before_it() {
    let Some((pair, region)) = flushable() else {
        return;
    };
    pair.left
        .post(Request::write(region.remote(0)).inline(b"kept").id(1));
    let second = if persists_ordinary_memory() {
        FlushPlacement::PERSISTENT
    } else {
        FlushPlacement::GLOBAL
    };
    for (id, placement, range) in [
        (2, FlushPlacement::GLOBAL, FlushRange::Range),
        (3, second, FlushRange::Region),
    ] {
        pair.left
            .post(Request::flush(region.remote(0), 4, placement, range).id(id));
    }
    assert_eq!(pair.left.success().id, 1);
    for id in [2, 3] {
        let flushed = pair.left.success();
        assert_eq!((flushed.id, flushed.work), (id, CompletedWork::Flush));
    }
    assert_eq!(region.to_vec(..4), b"kept");
}

#[test]
fn a_flush_of_memory_without_the_right_fails() {
    let Some((pair, _region)) = flushable() else {
        return;
    };
    let remote = pair.right.memory.remote(0);
    let flush = Request::flush(remote, 4, FlushPlacement::GLOBAL, FlushRange::Range);
    pair.left.post(flush);
    assert_eq!(pair.left.completion().status, Status::RemoteAccess);
}

#[test]
fn an_atomic_write_writes_eight_bytes() {
    let pair = Pair::reliable();
    let remote = pair.right.memory.remote(8);
    let request = Request::atomic_write(remote).inline(b"together").id(5);
    match pair.left.queue_pair.post_send(request) {
        Err(error) if !must_have_both() => {
            let expected = PostError::System(SystemRefusal::Lacks("atomic write"));
            assert_eq!(error, expected);
            return;
        }
        posted => posted.expect("room"),
    }
    let written = pair.left.success();
    assert_eq!((written.id, written.work), (5, CompletedWork::AtomicWrite));
    assert_eq!(pair.right.memory.to_vec(8..16), b"together");
    pair.left.memory.write(16, b"of bytes");
    let request = Request::atomic_write(remote).data(pair.left.memory.slice(16..24));
    pair.left.post(request);
    pair.left.success();
    assert_eq!(pair.right.memory.to_vec(8..16), b"of bytes");
}
