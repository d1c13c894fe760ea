//! Completion queues: creation and `ibv_poll_cq`.

use std::ffi::{c_int, c_void};
use std::net::IpAddr;
use std::sync::Arc;

use driver::{Driver, PolledQueue};
use engine::{CompletedWork, Completion, CompletionQueue, Id, MAX_COMPLETIONS, Notify, Status};

use super::completion_channel::Channel;
use super::context::{Context, OpenDevice};
use super::event_target::{EventKind, EventTarget, UnacknowledgedEvents};
use crate::abi;
use crate::entry::{Input, Pointer, Polled, entry};
use crate::errno::Errno;
use crate::multi_call_lock::MultiCallLock;
use crate::object::{Object, from_pointer, object_at};

/// A completion queue, always with the fields of `ibv_cq_ex`.
pub(crate) type Cq = Object<abi::ibv_cq_ex, Queue>;

from_pointer!(abi::ibv_cq => Cq);

pub(crate) struct Queue {
    pub(crate) open: Arc<OpenDevice>,
    /// The lane of the device that makes progress for it.
    pub(crate) driver: Arc<Driver>,
    pub(crate) id: Id<CompletionQueue>,
    pub(super) polled: PolledQueue,
    /// Events about it that are not acknowledged.
    pub(crate) unacknowledged: Arc<UnacknowledgedEvents>,
    /// The state of `ibv_start_poll`.
    pub(super) current: Current,
}

/// The completion that the program reads.
pub(super) type Current = MultiCallLock<Reading>;

#[derive(Default)]
pub(super) struct Reading {
    pub(super) completion: Option<Completion>,
    /// The timestamps of the completion: when it was polled.
    pub(super) device_clock: u64,
    pub(super) wall_clock: u64,
}

entry! {
    export fn ibv_create_cq(
        context: &Context,
        capacity: c_int,
        queue_context: *mut c_void,
        channel: Pointer<abi::ibv_comp_channel>,
        vector: c_int,
    ) -> *mut abi::ibv_cq {
        let capacity = u32::try_from(capacity).map_err(|_| Errno::INVALID)?;
        if vector < 0 {
            return Err(Errno::INVALID);
        }
        let c_part = abi::ibv_cq_ex {
            cq_context: queue_context,
            channel: channel.0,
            ..Default::default()
        };
        Ok(create(context, capacity, vector.cast_unsigned(), c_part)?.c().cast())
    }

    export fn ibv_resize_cq(queue: &Cq, capacity: c_int) -> c_int {
        queue.check_handle()?;
        let wanted = u32::try_from(capacity).map_err(|_| Errno::INVALID)?;
        queue
            .driver
            .call_without_transmit(|device| device.resize_completion_queue(queue.id, wanted))?;
        queue.change(|c| c.cqe = capacity);
        Ok(0)
    }

    export fn ibv_destroy_cq(queue: &Cq) -> c_int {
        queue.check_handle()?;
        queue
            .driver
            .call_without_transmit(|device| device.destroy_completion_queue(queue.id))?;
        queue.open.forget_completion_queue(queue.id);
        queue.driver.remove_notifier(queue.id);
        if let Ok(channel) = object_at::<&Channel, _>(queue.read().channel) {
            channel.notifier.forget(notification_of(queue));
            channel.change(|c| c.refcnt -= 1);
        }
        queue.unacknowledged.wait("ibv_destroy_cq", EventKind::Completion);
        queue.destroy();
        Ok(0)
    }

    op fn poll_cq(queue: &Cq, limit: c_int, into: Pointer<abi::ibv_wc>) -> Polled {
        let limit = usize::try_from(limit).map_err(|_| Errno::INVALID)?;
        let mut slot = into.0;
        let count = queue.driver.poll_many(&queue.polled, limit, |completion| {
            // SAFETY: the program says that it has memory for `limit` completions, and this is called at most
            // that often.
            unsafe { slot.write(work_completion(&completion)) };
            slot = slot.wrapping_add(1);
        });
        Ok(Polled(count as c_int))
    }

    op fn req_notify_cq(queue: &Cq, solicited_only: c_int) -> c_int {
        let notify = match solicited_only {
            0 => Notify::Any,
            _ => Notify::Solicited,
        };
        queue.check_handle()?;
        queue.open.check_not_inherited()?;
        queue.driver.arm(queue.id, notify);
        Ok(0)
    }

    op fn modify_cq(queue: &Cq, attributes: Input<abi::ibv_modify_cq_attr>) -> c_int {
        let _ = queue;
        match attributes.0.attr_mask {
            0 => Ok(0),
            // Moderation reduces interrupts, which a software device does not have.
            abi::IBV_CQ_ATTR_MODERATE => Err(Errno::UNSUPPORTED),
            _ => Err(Errno::INVALID),
        }
    }
}

/// Creates a queue; `c_part` already has its channel and context.
pub(super) fn create<'a>(
    context: &Context,
    capacity: u32,
    vector: u32,
    c_part: abi::ibv_cq_ex,
) -> Result<&'a Cq, Errno> {
    let vectors = context.driver.max_lanes() as u32;
    if !(1..=MAX_COMPLETIONS).contains(&capacity) || vector >= vectors {
        return Err(Errno::INVALID);
    }
    // Almost all programs say 0. Then the first queue pair decides.
    let wanted = (vector > 0).then_some(vector as usize);
    let driver = context.driver.for_completion_queue(wanted);
    let id = driver.call_without_transmit(|device| device.create_completion_queue(capacity))?;
    let c_part = abi::ibv_cq_ex {
        context: context.pointer(),
        handle: context.handle(),
        cqe: capacity.cast_signed(),
        ..c_part
    };
    let queue = Cq::make(
        c_part,
        Queue {
            open: Arc::clone(context),
            polled: driver.polled_queue(id).ok_or(Errno::INVALID)?,
            driver,
            id,
            unacknowledged: Arc::default(),
            current: Current::default(),
        },
    );
    let subject = EventTarget::new(queue.c(), &queue.unacknowledged);
    context.objects().completion_queues.insert(id, subject);
    if let Ok(channel) = object_at::<&Channel, _>(c_part.channel) {
        channel.change(|c| c.refcnt += 1);
        queue
            .driver
            .set_notifier(id, &channel.notifier, notification_of(queue));
    }
    Ok(queue)
}

/// The notification that a queue sends to its channel: its address.
fn notification_of(queue: &Cq) -> u64 {
    queue.c().expose_provenance() as u64
}

/// Converts a completion to the structure of C.
#[inline]
pub(super) fn work_completion(completion: &Completion) -> abi::ibv_wc {
    abi::ibv_wc {
        wr_id: completion.id,
        status: completion.status as u32,
        opcode: opcode_of(completion.work),
        vendor_err: 0,
        byte_len: completion.length,
        imm_data: immediate_of(completion),
        qp_num: completion.queue_pair.value(),
        src_qp: source_of(completion),
        wc_flags: flags_of(completion),
        pkey_index: 0,
        slid: 0,
        sl: network_of(completion),
        dlid_path_bits: 0,
    }
}

pub(super) fn opcode_of(work: CompletedWork) -> u32 {
    match work {
        CompletedWork::Send => 0,
        CompletedWork::Write => 1,
        CompletedWork::Read => 2,
        CompletedWork::CompareSwap => 3,
        CompletedWork::FetchAdd => 4,
        CompletedWork::BindWindow => 5,
        CompletedWork::LocalInvalidate => 6,
        CompletedWork::Flush => 8,
        CompletedWork::AtomicWrite => 9,
        CompletedWork::Receive => 128,
        CompletedWork::ReceiveWriteImmediate => 129,
    }
}

/// Immediate data in network order, or the key that was invalidated.
pub(super) fn immediate_of(completion: &Completion) -> [u8; 4] {
    let invalidated = completion.invalidated.map(|key| key.value().to_ne_bytes());
    completion.immediate.or(invalidated).unwrap_or_default()
}

pub(super) fn source_of(completion: &Completion) -> u32 {
    completion
        .source
        .map_or(0, |source| source.queue_pair.value())
}

/// The packet type of a datagram, in the field of the service level, which RoCE does not use. Mellanox
/// devices do the same, and some programs rely on it.
///
/// Annex A17.4.5.1: the completion of a datagram says whether it came over IPv4 or IPv6.
pub(super) fn network_of(completion: &Completion) -> u8 {
    const UDP: u8 = 0b1000;
    const IPV6: u8 = 1;
    const IPV4: u8 = 2;
    match completion.source.and_then(|source| source.gid.ip()) {
        None => 0,
        Some(IpAddr::V4(_)) => UDP | IPV4,
        Some(IpAddr::V6(_)) => UDP | IPV6,
    }
}

pub(super) fn flags_of(completion: &Completion) -> u32 {
    if completion.status != Status::Success {
        return 0;
    }
    let flag = |present: bool, flag: u32| if present { flag } else { 0 };
    flag(completion.source.is_some(), abi::IBV_WC_GRH)
        | flag(completion.immediate.is_some(), abi::IBV_WC_WITH_IMM)
        | flag(completion.invalidated.is_some(), abi::IBV_WC_WITH_INV)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{Ipv4Addr, Ipv6Addr};

    // Annex A17.4.5.1
    #[test]
    fn network_of_a_datagram_is_that_of_its_sender() {
        let from = |address: Option<IpAddr>| Completion {
            id: 0,
            status: Status::Success,
            work: CompletedWork::Receive,
            length: 0,
            queue_pair: wire::Qpn::new(2),
            immediate: None,
            invalidated: None,
            source: address.map(|address| engine::Source {
                queue_pair: wire::Qpn::new(3),
                gid: address.into(),
            }),
        };
        assert_eq!(network_of(&from(Some(Ipv4Addr::LOCALHOST.into()))), 0b1010);
        assert_eq!(network_of(&from(Some(Ipv6Addr::LOCALHOST.into()))), 0b1001);
        assert_eq!(network_of(&from(None)), 0, "a connection");
    }
}
