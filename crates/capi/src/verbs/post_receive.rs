//! `ibv_post_recv`, `ibv_post_srq_recv`.

use std::ffi::c_int;

use engine::{ReceiveRequest, Segment, Segments};
use wire::Key;

use super::queue_pair::Qp;
use super::shared_receive_queue::Srq;
use crate::abi;
use crate::entry::{Pointer, entry};
use crate::errno::Errno;

entry! {
    op fn post_recv(
        queue_pair: &Qp,
        list: Pointer<abi::ibv_recv_wr>,
        bad: Pointer<*mut abi::ibv_recv_wr>,
    ) -> c_int {
        queue_pair.driver.call_without_transmit(|device| {
            let limit = PostLimit::new(queue_pair.init.cap.max_recv_wr);
            for_each(list.0, bad.0, limit, |request| {
                Ok(device.post_receive(queue_pair.number, request)?)
            })
        })
    }

    op fn post_srq_recv(
        queue: &Srq,
        list: Pointer<abi::ibv_recv_wr>,
        bad: Pointer<*mut abi::ibv_recv_wr>,
    ) -> c_int {
        for_each(list.0, bad.0, PostLimit::new(u32::MAX), |request| {
            Ok(queue.open.driver.post_shared_receive(&queue.posted, request)?)
        })
    }
}

/// Posts a list of requests up to the first that is rejected, and sets `bad` to that.
fn for_each(
    list: *mut abi::ibv_recv_wr,
    bad: *mut *mut abi::ibv_recv_wr,
    mut limit: PostLimit,
    mut post: impl FnMut(ReceiveRequest) -> Result<(), Errno>,
) -> Result<c_int, Errno> {
    let mut next = list;
    while let Some(wanted) = entry_of(next) {
        let posted = limit
            .take()
            .and_then(|()| segments_of(wanted.sg_list, wanted.num_sge))
            .and_then(|segments| {
                post(ReceiveRequest {
                    id: wanted.wr_id,
                    segments,
                })
            });
        if let Err(errno) = posted {
            set_bad(bad, next);
            return Err(errno);
        }
        next = wanted.next;
    }
    Ok(0)
}

/// How many more requests one call may post. A queue pair in the error state completes each at once and is
/// never full, so a circular list would never end.
pub(super) struct PostLimit(u32);

impl PostLimit {
    pub(super) fn new(max: u32) -> Self {
        // One more, so that the engine reports a full queue first.
        Self(max.saturating_add(1))
    }

    #[inline]
    pub(super) fn take(&mut self) -> Result<(), Errno> {
        self.0 = self.0.checked_sub(1).ok_or(Errno::NO_MEMORY)?;
        Ok(())
    }
}

/// An entry of a program's list; `None` at its end. Some programs keep requests and segments in packed
/// structures, so they may be unaligned.
#[inline]
pub(super) fn entry_of<T: Copy>(entry: *const T) -> Option<T> {
    // SAFETY: the program's list ends with a null pointer, and its entries live for this call.
    (!entry.is_null()).then(|| unsafe { entry.read_unaligned() })
}

/// Stores which request was rejected, if the program asks for it.
pub(super) fn set_bad<T>(bad: *mut *mut T, which: *mut T) {
    if !bad.is_null() {
        // SAFETY: not null, so by the header's promise a variable.
        unsafe { bad.write(which) };
    }
}

/// The program's list of segments.
#[inline]
pub(super) fn segments_of(list: *const abi::ibv_sge, count: c_int) -> Result<Segments, Errno> {
    Ok(list_of(list, count)?.map(segment_of).collect())
}

/// Iterates over the program's list of segments.
#[inline]
pub(super) fn list_of(
    list: *const abi::ibv_sge,
    count: c_int,
) -> Result<impl Iterator<Item = abi::ibv_sge>, Errno> {
    let count = usize::try_from(count).map_err(|_| Errno::INVALID)?;
    if count > engine::MAX_SEGMENTS as usize || (list.is_null() && count > 0) {
        return Err(Errno::INVALID);
    }
    Ok((0..count).filter_map(move |index| entry_of(list.wrapping_add(index))))
}

#[inline]
pub(super) fn segment_of(segment: abi::ibv_sge) -> Segment {
    Segment {
        address: segment.addr,
        length: segment.length,
        key: Key::new(segment.lkey),
    }
}
