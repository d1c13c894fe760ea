//! `ibv_qp_ex`: `ibv_wr_start`, the `ibv_wr_*` calls that build requests, `ibv_wr_complete`.

use std::ffi::{c_int, c_void};

use engine::{Payload, PostError, RemoteMemory, Segment, Segments, SendFlags, SendRequest, Work};
use wire::{FlushPlacement, FlushRange, Key, Srqn};

use super::post_receive::{list_of, segment_of};
use super::post_send::{InlineData, bind_window, destination, note_bound};
use super::queue_pair::Qp;
use crate::abi;
use crate::entry::{FromC, Input, Pointer, entry};
use crate::errno::Errno;

/// A queue pair, from an `ibv_qp_ex` pointer.
pub(crate) struct Extended<'a>(&'a Qp);

impl FromC for Extended<'_> {
    type Raw = *mut abi::ibv_qp_ex;

    unsafe fn from_c(raw: *mut abi::ibv_qp_ex) -> Result<Self, Errno> {
        // SAFETY: by the caller's promise a queue pair that this library created; `ibv_qp` and `ibv_qp_ex`
        // begin at the same address.
        unsafe { <&Qp>::from_c(raw.cast()) }.map(Self)
    }
}

entry! {
    op fn wr_start(queue_pair: Extended<'_>) {
        let draft = &queue_pair.0.draft;
        draft.begin();
        draft.work(|requests| {
            requests.list.clear();
            requests.binds.clear();
            requests.error = None;
        });
        Ok(())
    }

    /// All or nothing is posted.
    op fn wr_complete(queue_pair: Extended<'_>) -> c_int {
        let queue_pair = queue_pair.0;
        let posted = queue_pair.draft.work(|requests| match requests.error {
            Some(errno) => Err(errno),
            None => {
                let number = queue_pair.number;
                let list = &mut requests.list;
                let posted = queue_pair.driver.post(|device| device.post_sends(number, list));
                posted.map_err(rejection)?;
                requests.binds.drain(..).for_each(|(window, key)| note_bound(window, key));
                Ok(())
            }
        });
        queue_pair.draft.end();
        posted.map(|()| 0)
    }

    op fn wr_abort(queue_pair: Extended<'_>) {
        queue_pair.0.draft.end();
        Ok(())
    }

    op fn wr_send(queue_pair: Extended<'_>) {
        queue_pair.add(Work::Send)
    }

    op fn wr_send_imm(queue_pair: Extended<'_>, immediate: u32) {
        queue_pair.add(Work::SendImmediate(immediate.to_ne_bytes()))
    }

    op fn wr_send_inv(queue_pair: Extended<'_>, key: u32) {
        queue_pair.add(Work::SendInvalidate(Key::new(key)))
    }

    op fn wr_rdma_write(queue_pair: Extended<'_>, key: u32, address: u64) {
        queue_pair.add(Work::Write(remote(key, address)))
    }

    op fn wr_rdma_write_imm(queue_pair: Extended<'_>, key: u32, address: u64, immediate: u32) {
        queue_pair.add(Work::WriteImmediate(remote(key, address), immediate.to_ne_bytes()))
    }

    op fn wr_rdma_read(queue_pair: Extended<'_>, key: u32, address: u64) {
        queue_pair.add(Work::Read(remote(key, address)))
    }

    op fn wr_atomic_cmp_swp(
        queue_pair: Extended<'_>,
        key: u32,
        address: u64,
        compare: u64,
        swap: u64,
    ) {
        let remote = remote(key, address);
        queue_pair.add(Work::CompareSwap { remote, compare, swap })
    }

    op fn wr_atomic_fetch_add(queue_pair: Extended<'_>, key: u32, address: u64, add: u64) {
        let remote = remote(key, address);
        queue_pair.add(Work::FetchAdd { remote, add })
    }

    op fn wr_atomic_write(
        queue_pair: Extended<'_>,
        key: u32,
        address: u64,
        value: *const c_void,
    ) {
        queue_pair.add(Work::AtomicWrite(remote(key, address)))?;
        let mut operand = InlineData::operand();
        operand.append(value.cast(), 8);
        queue_pair.set_inline(operand)
    }

    /// Makes earlier writes to the range visible, or persistent.
    op fn wr_flush(
        queue_pair: Extended<'_>,
        key: u32,
        address: u64,
        length: usize,
        placement: u8,
        level: u8,
    ) {
        let range = match level {
            abi::IBV_FLUSH_RANGE => FlushRange::Range,
            abi::IBV_FLUSH_MR => FlushRange::Region,
            _ => return queue_pair.fail(Errno::INVALID),
        };
        let known = abi::IBV_FLUSH_GLOBAL | abi::IBV_FLUSH_PERSISTENT;
        let length = u32::try_from(length);
        let (Ok(length), 0) = (length, placement & !known) else {
            return queue_pair.fail(Errno::INVALID);
        };
        queue_pair.add(Work::Flush {
            remote: remote(key, address),
            length,
            placement: FlushPlacement::new(placement),
            range,
        })
    }

    op fn wr_local_inv(queue_pair: Extended<'_>, key: u32) {
        queue_pair.add(Work::LocalInvalidate(Key::new(key)))
    }

    op fn wr_bind_mw(
        queue_pair: Extended<'_>,
        window: Pointer<abi::ibv_mw>,
        key: u32,
        info: Input<abi::ibv_mw_bind_info>,
    ) {
        match bind_window(window.0, key, &info.0) {
            Ok(work) => {
                queue_pair.add(work)?;
                queue_pair.0.draft.work(|requests| {
                    if requests.error.is_none() {
                        requests.binds.push((window.0, key));
                    }
                });
                Ok(())
            }
            Err(errno) => queue_pair.fail(errno),
        }
    }

    op fn wr_send_tso(
        queue_pair: Extended<'_>,
        _header: *mut c_void,
        _header_length: u16,
        _segment: u16,
    ) {
        queue_pair.fail(Errno::UNSUPPORTED)
    }

    op fn wr_set_ud_addr(
        queue_pair: Extended<'_>,
        handle: Pointer<abi::ibv_ah>,
        number: u32,
        queue_key: u32,
    ) {
        match destination(handle.0, number, queue_key) {
            Ok(to) => queue_pair.change(|request| request.destination = Some(to)),
            Err(errno) => queue_pair.fail(errno),
        }
    }

    op fn wr_set_xrc_srqn(queue_pair: Extended<'_>, number: u32) {
        queue_pair.change(|request| request.remote_srqn = Some(Srqn::new(number)))
    }

    op fn wr_set_inline_data(queue_pair: Extended<'_>, from: *mut c_void, length: usize) {
        let mut data = queue_pair.0.inline_data();
        data.append(from.cast_const().cast(), length);
        queue_pair.set_inline(data)
    }

    op fn wr_set_inline_data_list(
        queue_pair: Extended<'_>,
        count: usize,
        list: *const abi::ibv_data_buf,
    ) {
        let mut data = queue_pair.0.inline_data();
        for index in 0..count {
            // SAFETY: the program says that there are `count` entries.
            let part = unsafe { *list.wrapping_add(index) };
            data.append(part.addr.cast_const().cast(), part.length);
            if data.is_too_long() {
                break;
            }
        }
        queue_pair.set_inline(data)
    }

    op fn wr_set_sge(queue_pair: Extended<'_>, key: u32, address: u64, length: u32) {
        let key = Key::new(key);
        let segment = Segment { address, length, key };
        queue_pair.set_segments(Segments::from_buf([segment]))
    }

    op fn wr_set_sge_list(
        queue_pair: Extended<'_>,
        count: usize,
        list: *const abi::ibv_sge,
    ) {
        let count = c_int::try_from(count).unwrap_or(c_int::MAX);
        match list_of(list, count) {
            Ok(segments) => queue_pair.set_segments(segments.map(segment_of).collect()),
            Err(errno) => queue_pair.fail(errno),
        }
    }
}

impl Extended<'_> {
    fn add(&self, work: Work) -> Result<(), Errno> {
        // The program sets both fields before each call.
        let c_part = self.0.read();
        let request = SendRequest {
            flags: SendFlags::from_bits_truncate(c_part.wr_flags),
            ..SendRequest::new(c_part.wr_id, work)
        };
        let most = self.0.init.cap.max_send_wr as usize;
        self.0.draft.work(|requests| {
            if requests.list.len() > most {
                // More than the queue holds: it will be rejected, so it is not kept.
                requests.error.get_or_insert(Errno::NO_MEMORY);
                requests.list.clear();
            }
            match requests.list.try_reserve(1) {
                Ok(()) => requests.list.push(request),
                Err(_) => requests.error = Some(Errno::NO_MEMORY),
            }
        });
        Ok(())
    }

    /// Changes the request that was added last.
    fn change(&self, change: impl FnOnce(&mut SendRequest)) -> Result<(), Errno> {
        self.0
            .draft
            .work(|requests| match requests.list.last_mut() {
                Some(last) => change(last),
                None => requests.error = Some(Errno::INVALID),
            });
        Ok(())
    }

    fn set_segments(&self, segments: Segments) -> Result<(), Errno> {
        self.change(|request| request.payload = Payload::Segments(segments))
    }

    fn set_inline(&self, data: InlineData) -> Result<(), Errno> {
        self.change(|request| request.payload = data.payload())
    }

    /// Stores an error for `wr_complete`, because these calls return nothing.
    fn fail(&self, errno: Errno) -> Result<(), Errno> {
        self.0.draft.work(|requests| {
            requests.error.get_or_insert(errno);
        });
        Ok(())
    }
}

/// Inline data that does not fit is ENOSPC here, as in rdma-core's rxe provider.
fn rejection(error: PostError) -> Errno {
    match error {
        PostError::InlineTooLong { .. } => Errno::NO_SPACE,
        other => other.into(),
    }
}

fn remote(key: u32, address: u64) -> RemoteMemory {
    RemoteMemory {
        address,
        key: Key::new(key),
    }
}

impl FromC for *const abi::ibv_data_buf {
    type Raw = Self;

    unsafe fn from_c(raw: Self) -> Result<Self, Errno> {
        Ok(raw)
    }
}

impl FromC for *const abi::ibv_sge {
    type Raw = Self;

    unsafe fn from_c(raw: Self) -> Result<Self, Errno> {
        Ok(raw)
    }
}

/// The C part of a queue pair with the `ibv_wr_*` operations.
pub(super) fn operations(base: abi::ibv_qp) -> abi::ibv_qp_ex {
    abi::ibv_qp_ex {
        qp_base: base,
        wr_atomic_cmp_swp: Some(wr_atomic_cmp_swp),
        wr_atomic_fetch_add: Some(wr_atomic_fetch_add),
        wr_bind_mw: Some(wr_bind_mw),
        wr_local_inv: Some(wr_local_inv),
        wr_rdma_read: Some(wr_rdma_read),
        wr_rdma_write: Some(wr_rdma_write),
        wr_rdma_write_imm: Some(wr_rdma_write_imm),
        wr_send: Some(wr_send),
        wr_send_imm: Some(wr_send_imm),
        wr_send_inv: Some(wr_send_inv),
        wr_send_tso: Some(wr_send_tso),
        wr_set_ud_addr: Some(wr_set_ud_addr),
        wr_set_xrc_srqn: Some(wr_set_xrc_srqn),
        wr_set_inline_data: Some(wr_set_inline_data),
        wr_set_inline_data_list: Some(wr_set_inline_data_list),
        wr_set_sge: Some(wr_set_sge),
        wr_set_sge_list: Some(wr_set_sge_list),
        wr_start: Some(wr_start),
        wr_complete: Some(wr_complete),
        wr_abort: Some(wr_abort),
        wr_atomic_write: Some(wr_atomic_write),
        ..Default::default()
    }
}
