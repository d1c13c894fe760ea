//! `ibv_post_send`. The `ibv_wr_*` calls build the same requests (`queue_pair_ex`).

use std::ffi::c_int;

use engine::{Destination, Payload, QueuePairType, RemoteMemory, SendFlags, SendRequest, Work};
use smallvec::SmallVec;
use wire::{Key, Qpn, QueueKey, Srqn};

use super::address_handle::Ah;
use super::memory_window::{Mw, binding_of};
use super::post_receive::{PostLimit, entry_of, list_of, segments_of, set_bad};
use super::queue_pair::Qp;
use crate::abi;
use crate::entry::{Pointer, entry};
use crate::errno::Errno;
use crate::object::object_at;

entry! {
    op fn post_send(
        queue_pair: &Qp,
        list: Pointer<abi::ibv_send_wr>,
        bad: Pointer<*mut abi::ibv_send_wr>,
    ) -> c_int {
        queue_pair.driver.post(|device| {
            let mut next = list.0;
            let mut limit = PostLimit::new(queue_pair.init.cap.max_send_wr);
            while let Some(wanted) = entry_of(next) {
                let posted = limit
                    .take()
                    .and_then(|()| request_of(&wanted, queue_pair))
                    .and_then(|mut request| Ok(device.post_send(queue_pair.number, &mut request)?));
                if let Err(errno) = posted {
                    set_bad(bad.0, next);
                    return Err(errno);
                }
                if wanted.opcode == abi::IBV_WR_BIND_MW {
                    note_bound(wanted.bind_mw.mw, wanted.bind_mw.rkey);
                }
                next = wanted.next;
            }
            Ok(0)
        })
    }
}

/// Converts a request from C.
#[inline]
fn request_of(wanted: &abi::ibv_send_wr, queue_pair: &Qp) -> Result<SendRequest, Errno> {
    let kind = queue_pair.kind;
    let is_inline = wanted.send_flags & abi::IBV_SEND_INLINE != 0;
    let payload = match wanted.opcode {
        abi::IBV_WR_LOCAL_INV | abi::IBV_WR_BIND_MW => Payload::empty(),
        _ if is_inline => {
            let mut data = queue_pair.inline_data();
            for segment in list_of(wanted.sg_list, wanted.num_sge)? {
                let start = std::ptr::with_exposed_provenance(segment.addr as usize);
                data.append(start, segment.length as usize);
            }
            data.payload()
        }
        _ => Payload::Segments(segments_of(wanted.sg_list, wanted.num_sge)?),
    };
    let work = work_of(wanted)?;
    Ok(SendRequest {
        id: wanted.wr_id,
        payload,
        flags: SendFlags::from_bits_truncate(wanted.send_flags),
        destination: match kind {
            QueuePairType::Ud => Some(destination_of(wanted)?),
            _ => None,
        },
        remote_srqn: (kind == QueuePairType::XrcInitiator && !work.is_local())
            .then(|| Srqn::new(wanted.remote_srqn)),
        work,
    })
}

fn work_of(wanted: &abi::ibv_send_wr) -> Result<Work, Errno> {
    // A key to invalidate is in the same field as the immediate data, in host order.
    let key = Key::new(u32::from_ne_bytes(wanted.imm_data));
    Ok(match wanted.opcode {
        abi::IBV_WR_SEND => Work::Send,
        abi::IBV_WR_SEND_WITH_IMM => Work::SendImmediate(wanted.imm_data),
        abi::IBV_WR_SEND_WITH_INV => Work::SendInvalidate(key),
        abi::IBV_WR_RDMA_WRITE => Work::Write(remote_of(wanted)),
        abi::IBV_WR_RDMA_WRITE_WITH_IMM => Work::WriteImmediate(remote_of(wanted), wanted.imm_data),
        abi::IBV_WR_RDMA_READ => Work::Read(remote_of(wanted)),
        abi::IBV_WR_ATOMIC_WRITE => Work::AtomicWrite(remote_of(wanted)),
        abi::IBV_WR_ATOMIC_CMP_AND_SWP => {
            let (remote, compare, swap) = atomic_of(wanted);
            Work::CompareSwap {
                remote,
                compare,
                swap,
            }
        }
        abi::IBV_WR_ATOMIC_FETCH_AND_ADD => {
            let (remote, add, _) = atomic_of(wanted);
            Work::FetchAdd { remote, add }
        }
        abi::IBV_WR_LOCAL_INV => Work::LocalInvalidate(key),
        abi::IBV_WR_BIND_MW => bind_of(wanted)?,
        _ => return Err(Errno::INVALID),
    })
}

fn remote_of(wanted: &abi::ibv_send_wr) -> RemoteMemory {
    // SAFETY: all members of the union are plain numbers; the opcode selects this one.
    let target = unsafe { wanted.wr.rdma };
    RemoteMemory {
        address: target.remote_addr,
        key: Key::new(target.rkey),
    }
}

fn atomic_of(wanted: &abi::ibv_send_wr) -> (RemoteMemory, u64, u64) {
    // SAFETY: as in `remote_of`.
    let target = unsafe { wanted.wr.atomic };
    let remote = RemoteMemory {
        address: target.remote_addr,
        key: Key::new(target.rkey),
    };
    (remote, target.compare_add, target.swap)
}

fn destination_of(wanted: &abi::ibv_send_wr) -> Result<Destination, Errno> {
    // SAFETY: the members of the union are numbers and a pointer; the queue pair type selects this one.
    let target = unsafe { wanted.wr.ud };
    destination(target.ah, target.remote_qpn, target.remote_qkey)
}

/// The destination of a datagram.
pub(super) fn destination(
    handle: *mut abi::ibv_ah,
    queue_pair: u32,
    queue_key: u32,
) -> Result<Destination, Errno> {
    let handle: &Ah = object_at(handle)?;
    Ok(Destination {
        address: handle.address,
        queue_pair: Qpn::new(queue_pair),
        queue_key: QueueKey::new(queue_key),
    })
}

fn bind_of(wanted: &abi::ibv_send_wr) -> Result<Work, Errno> {
    let bind = &wanted.bind_mw;
    bind_window(bind.mw, bind.rkey, &bind.bind_info)
}

/// Binds a window of type 2, with a key that the program chooses.
pub(super) fn bind_window(
    window: *mut abi::ibv_mw,
    key: u32,
    info: &abi::ibv_mw_bind_info,
) -> Result<Work, Errno> {
    let window: &Mw = object_at(window)?;
    if window.read().r#type != abi::IBV_MW_TYPE_2 {
        return Err(Errno::INVALID);
    }
    Ok(Work::BindWindow {
        window: window.key,
        key: Some(Key::new(key)),
        binding: binding_of(info)?,
    })
}

/// Reports that the bind of a window was posted.
pub(super) fn note_bound(window: *mut abi::ibv_mw, key: u32) {
    if let Ok(window) = object_at::<&Mw, _>(window) {
        window.note_bound(key);
    }
}

/// A copy of a request's inline data, made while it is posted: the program may reuse its memory at once.
pub(super) struct InlineData {
    bytes: SmallVec<[u8; 16]>,
    max: usize,
}

impl Qp {
    /// An empty buffer for the inline data of one request, with the limit of this queue pair.
    #[inline]
    pub(super) fn inline_data(&self) -> InlineData {
        InlineData {
            bytes: SmallVec::new(),
            max: self.init.cap.max_inline_data as usize,
        }
    }
}

impl InlineData {
    /// For the operand of an atomic write, which is part of the request.
    pub(super) fn operand() -> Self {
        Self {
            bytes: SmallVec::new(),
            max: size_of::<u64>(),
        }
    }

    /// Appends data if all of it fits. Otherwise it is not read, because the program may have named any
    /// length.
    #[inline]
    pub(super) fn append(&mut self, start: *const u8, length: usize) {
        if length > self.max.saturating_sub(self.bytes.len()) {
            // The engine rejects it for its length.
            self.bytes.resize(self.max + 1, 0);
        } else if length > 0 {
            // SAFETY: the program says that its data is there, for this call; keys are ignored.
            let data = unsafe { std::slice::from_raw_parts(start, length) };
            self.bytes.extend_from_slice(data);
        }
    }

    /// Whether more was appended than is allowed.
    pub(super) fn is_too_long(&self) -> bool {
        self.bytes.len() > self.max
    }

    #[inline]
    pub(super) fn payload(self) -> Payload {
        Payload::Inline(self.bytes)
    }
}
