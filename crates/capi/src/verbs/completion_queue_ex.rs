//! `ibv_cq_ex`: `ibv_start_poll` to `ibv_end_poll`, one completion at a time.

use std::ffi::c_int;

use engine::Completion;

use super::completion_queue::{
    Cq, Reading, create, flags_of, immediate_of, network_of, opcode_of, source_of,
};
use super::context::Context;
use crate::abi;
use crate::clock;
use crate::entry::{FromC, Input, Pointer, entry};
use crate::errno::Errno;

/// A completion queue, from an `ibv_cq_ex` pointer.
pub(crate) struct Extended<'a>(&'a Cq);

impl FromC for Extended<'_> {
    type Raw = *mut abi::ibv_cq_ex;

    unsafe fn from_c(raw: *mut abi::ibv_cq_ex) -> Result<Self, Errno> {
        // SAFETY: by the caller's promise a queue that this library created; `ibv_cq` and `ibv_cq_ex` begin
        // at the same address.
        unsafe { <&Cq>::from_c(raw.cast()) }.map(Self)
    }
}

entry! {
    op fn create_cq_ex(
        context: &Context,
        init: Input<abi::ibv_cq_init_attr_ex>,
    ) -> *mut abi::ibv_cq_ex {
        const KNOWN: u32 = abi::IBV_CQ_INIT_ATTR_MASK_FLAGS | abi::IBV_CQ_INIT_ATTR_MASK_PD;
        let init = init.0;
        if init.comp_mask & !KNOWN != 0 {
            return Err(Errno::INVALID);
        }
        let has_flags = init.comp_mask & abi::IBV_CQ_INIT_ATTR_MASK_FLAGS != 0;
        let flags = if has_flags { init.flags } else { 0 };
        if flags & !abi::IBV_CREATE_CQ_ATTR_ALL != 0 {
            return Err(Errno::INVALID);
        }
        if init.wc_flags & !abi::IBV_WC_EX_SUPPORTED != 0 {
            return Err(Errno::UNSUPPORTED);
        }
        let c_part = abi::ibv_cq_ex {
            cq_context: init.cq_context,
            channel: init.channel,
            ..readers()
        };
        let queue = create(context, init.cqe, init.comp_vector, c_part)?;
        if flags & abi::IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN != 0 {
            let found = queue.driver.call_without_transmit(|device| device.completion_queue(queue.id));
            found.ok_or(Errno::INVALID)?.replace_oldest();
        }
        Ok(queue.c())
    }

    op fn start_poll(queue: Extended<'_>, attributes: Pointer<abi::ibv_poll_cq_attr>) -> c_int {
        // SAFETY: null, or by the header's promise a live structure.
        if unsafe { attributes.0.as_ref() }.is_some_and(|attributes| attributes.comp_mask != 0) {
            return Err(Errno::INVALID);
        }
        let queue = queue.0;
        queue.current.begin();
        let mut first = None;
        queue.driver.poll_many(&queue.polled, 1, |completion| first = Some(completion));
        if first.is_none() {
            queue.current.end();
        }
        show(queue, first)
    }

    /// Takes only completions that are already in the queue; `start_poll` also receives packets.
    op fn next_poll(queue: Extended<'_>) -> c_int {
        let queue = queue.0;
        let next = queue.driver.call_without_transmit(|device| device.poll_completion(queue.id));
        show(queue, next)
    }

    op fn end_poll(queue: Extended<'_>) {
        queue.0.current.end();
        Ok(())
    }

    op fn read_opcode(queue: Extended<'_>) -> u32 {
        queue.read(|completion| opcode_of(completion.work))
    }

    op fn read_vendor_err(_queue: Extended<'_>) -> u32 {
        Ok(0)
    }

    op fn read_byte_len(queue: Extended<'_>) -> u32 {
        queue.read(|completion| completion.length)
    }

    op fn read_imm_data(queue: Extended<'_>) -> u32 {
        queue.read(|completion| u32::from_ne_bytes(immediate_of(completion)))
    }

    op fn read_qp_num(queue: Extended<'_>) -> u32 {
        queue.read(|completion| completion.queue_pair.value())
    }

    op fn read_src_qp(queue: Extended<'_>) -> u32 {
        queue.read(source_of)
    }

    op fn read_wc_flags(queue: Extended<'_>) -> u32 {
        queue.read(flags_of)
    }

    op fn read_slid(_queue: Extended<'_>) -> u32 {
        Ok(0)
    }

    op fn read_sl(queue: Extended<'_>) -> u8 {
        queue.read(network_of)
    }

    op fn read_dlid_path_bits(_queue: Extended<'_>) -> u8 {
        Ok(0)
    }

    op fn read_completion_ts(queue: Extended<'_>) -> u64 {
        Ok(queue.0.current.work(|reading| reading.device_clock))
    }

    op fn read_completion_wallclock_ns(queue: Extended<'_>) -> u64 {
        Ok(queue.0.current.work(|reading| reading.wall_clock))
    }
}

impl Extended<'_> {
    fn read<T>(&self, read: impl FnOnce(&Completion) -> T) -> Result<T, Errno> {
        let value = |reading: &mut Reading| reading.completion.as_ref().map(read);
        self.0.current.work(value).ok_or(Errno::INVALID)
    }
}

/// Makes a completion current, or returns ENOENT.
fn show(queue: &Cq, next: Option<Completion>) -> Result<c_int, Errno> {
    let Some(completion) = next else {
        // Not `Err`: an empty queue is not a failure, and `errno` must not change.
        return Ok(libc::ENOENT);
    };
    queue.change(|c| {
        c.wr_id = completion.id;
        c.status = completion.status as u32;
    });
    queue.current.work(|reading| {
        reading.completion = Some(completion);
        reading.device_clock = clock::device();
        reading.wall_clock = clock::wall();
    });
    Ok(0)
}

fn readers() -> abi::ibv_cq_ex {
    abi::ibv_cq_ex {
        start_poll: Some(start_poll),
        next_poll: Some(next_poll),
        end_poll: Some(end_poll),
        read_opcode: Some(read_opcode),
        read_vendor_err: Some(read_vendor_err),
        read_byte_len: Some(read_byte_len),
        read_imm_data: Some(read_imm_data),
        read_qp_num: Some(read_qp_num),
        read_src_qp: Some(read_src_qp),
        read_wc_flags: Some(read_wc_flags),
        read_slid: Some(read_slid),
        read_sl: Some(read_sl),
        read_dlid_path_bits: Some(read_dlid_path_bits),
        read_completion_ts: Some(read_completion_ts),
        read_completion_wallclock_ns: Some(read_completion_wallclock_ns),
        ..Default::default()
    }
}
