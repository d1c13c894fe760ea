//! `ibv_modify_qp`, `ibv_query_qp`: states and attributes of queue pairs.

use std::ffi::c_int;

use driver::Misuse;
use engine::{Access, Attribute, Attributes, QueuePair, State};
use wire::{AckTimeout, PathMtu, Psn, Qpn, QueueKey, RnrTimer};

use super::address_handle::{address_of, attributes_of};
use super::query::PORT;
use super::queue_pair::Qp;
use crate::abi;
use crate::entry::{Input, Output, entry};
use crate::errno::Errno;

/// The largest retry count of a packet. The kernel accepts any number, so larger ones are limited to this.
const MAX_RETRY_COUNT: u8 = 7;

/// The bits of a receiver-not-ready timer that are sent; the kernel ignores the rest.
const RNR_TIMER_MASK: u8 = 0x1f;

entry! {
    export fn ibv_modify_qp(
        queue_pair: &Qp,
        attributes: Input<abi::ibv_qp_attr>,
        mask: c_int,
    ) -> c_int {
        queue_pair.check_handle()?;
        let changes = changes_of(&attributes.0, mask.cast_unsigned())
            .map_err(|misuse| explain(queue_pair, misuse))?;
        if matches!(changes.state, Some(State::Reset | State::Error)) {
            queue_pair.driver.flush();
        }
        queue_pair
            .driver
            .call_after_flush(|device| device.modify(queue_pair.number, &changes))?;
        if let Some(state) = changes.state {
            queue_pair.change(|c| c.qp_base.state = state as u32);
        }
        Ok(0)
    }

    export fn ibv_query_qp(
        queue_pair: &Qp,
        attributes: Output<abi::ibv_qp_attr>,
        _mask: c_int,
        init: Output<abi::ibv_qp_init_attr>,
    ) -> c_int {
        queue_pair.check_handle()?;
        let (mut attributes, mut init) = (attributes, init);
        let known = queue_pair.driver.call_without_transmit(|device| {
            let found = device.queue_pair(queue_pair.number)?;
            Some((present_attributes(found), found.outstanding_sends()))
        });
        let (known, outstanding) = known.ok_or_else(Errno::inherited)?;
        let current = abi::ibv_qp_attr {
            cap: queue_pair.init.cap,
            ..qp_attr_of(&known, outstanding)
        };
        queue_pair.change(|c| c.qp_base.state = current.qp_state);
        attributes.put(current);
        init.put(queue_pair.init);
        Ok(0)
    }

    /// Whether the bytes of a message appear in memory in order. They do not: packets may be retransmitted.
    export fn ibv_query_qp_data_in_order(queue_pair: &Qp, _operation: u32, flags: u32) -> u32 {
        let _ = (queue_pair, flags);
        Ok(0)
    }

    export fn ibv_query_ece(_queue_pair: &Qp, options: Output<abi::ibv_ece>) -> c_int {
        let mut options = options;
        options.put(abi::ibv_ece::default());
        Err(Errno::UNSUPPORTED)
    }

    export fn ibv_set_ece(_queue_pair: &Qp, _options: Input<abi::ibv_ece>) -> c_int {
        Err(Errno::UNSUPPORTED)
    }
}

/// The attributes as devices answer them: the PSNs are those of the next packets.
fn present_attributes(queue_pair: &QueuePair) -> Attributes {
    let known = queue_pair.attributes();
    let (expected, unsent) = queue_pair.next_psns();
    Attributes {
        receive_psn: known.receive_psn.and(Some(expected)),
        send_psn: known.send_psn.and(Some(unsent)),
        ..known
    }
}

/// Changes attributes, and sets the state that C sees.
pub(crate) fn apply(queue_pair: &Qp, changes: &Attributes) -> Result<(), Errno> {
    let driver = &queue_pair.driver;
    driver.call_after_flush(|device| device.modify(queue_pair.number, changes))?;
    if let Some(state) = changes.state {
        queue_pair.change(|c| c.qp_base.state = state as u32);
    }
    Ok(())
}

/// Moves it to the error state, and sets the state that C sees.
pub(crate) fn set_error_state(queue_pair: &Qp) {
    let number = queue_pair.number;
    let state = queue_pair.driver.call_after_flush(|device| {
        // It fails if this process does not own the queue pair.
        let _ = device.move_to_error(number);
        device.queue_pair(number).map(QueuePair::state)
    });
    if let Some(state) = state {
        queue_pair.change(|c| c.qp_base.state = state as u32);
    }
}

/// Explains the error to the user if that is enabled; returns the number for the program.
fn explain(queue_pair: &Qp, misuse: Misuse) -> Errno {
    let driver = &queue_pair.driver;
    let errno = if misuse.asks_for_newer_attributes() {
        Errno::UNSUPPORTED
    } else {
        Errno::INVALID
    };
    driver.report_misuse(Some(queue_pair.number), misuse);
    errno
}

/// Converts attributes from C.
fn changes_of(given: &abi::ibv_qp_attr, mask: u32) -> Result<Attributes, Misuse> {
    // Sizes can't be changed, rates can't be limited and RoCE has no alternate paths, so unknown attributes are rejected.
    let unknown = mask & !Attribute::all().bits();
    let mask = Attribute::from_bits(mask).ok_or(Misuse::UnknownAttributes(unknown))?;
    let mut changes = Attributes::default();
    for attribute in mask.iter() {
        change(&mut changes, attribute, given)?;
    }
    Ok(changes)
}

fn change(
    changes: &mut Attributes,
    attribute: Attribute,
    given: &abi::ibv_qp_attr,
) -> Result<(), Misuse> {
    let bad = |value: u32| Misuse::BadValue {
        attribute,
        value: value.into(),
    };
    let state = |number: u32| state_of(number).map_err(|_| bad(number));
    match attribute {
        Attribute::STATE => changes.state = Some(state(given.qp_state)?),
        Attribute::CURRENT_STATE => changes.current_state = Some(state(given.cur_qp_state)?),
        Attribute::DRAIN_EVENT => changes.drain_event = Some(given.en_sqd_async_notify != 0),
        Attribute::ACCESS => changes.access = Some(access_of(given.qp_access_flags)),
        // There is one partition, and `rdma_rxe` accepts any index for it.
        Attribute::PARTITION => changes.partition_index = Some(0),
        Attribute::PORT => changes.port = Some(given.port_num),
        Attribute::QUEUE_KEY => changes.queue_key = Some(QueueKey::new(given.qkey)),
        Attribute::PATH => changes.path = Some(address_of(&given.ah_attr)?),
        Attribute::PATH_MTU => {
            let code = u8::try_from(given.path_mtu).ok();
            let mtu = code.and_then(PathMtu::from_code);
            changes.path_mtu = Some(mtu.ok_or(bad(given.path_mtu))?);
        }
        Attribute::ACK_TIMEOUT => {
            let timeout = AckTimeout::new(given.timeout);
            changes.ack_timeout = Some(timeout.ok_or(bad(given.timeout.into()))?);
        }
        Attribute::RETRY_COUNT => changes.retry_count = Some(given.retry_cnt.min(MAX_RETRY_COUNT)),
        Attribute::RNR_RETRY => changes.rnr_retry = Some(given.rnr_retry.min(MAX_RETRY_COUNT)),
        Attribute::RECEIVE_PSN => changes.receive_psn = Some(Psn::new(given.rq_psn)),
        Attribute::INITIATOR_DEPTH => changes.initiator_depth = Some(given.max_rd_atomic),
        Attribute::RNR_TIMER => {
            changes.rnr_timer = RnrTimer::new(given.min_rnr_timer & RNR_TIMER_MASK);
        }
        Attribute::SEND_PSN => changes.send_psn = Some(Psn::new(given.sq_psn)),
        Attribute::RESPONDER_RESOURCES => {
            changes.responder_resources = Some(given.max_dest_rd_atomic);
        }
        Attribute::MIGRATION => changes.migration = Some(given.path_mig_state as u8),
        Attribute::DESTINATION => changes.destination = Some(Qpn::new(given.dest_qp_num)),
        other => return Err(Misuse::UnknownAttributes(other.bits())),
    }
    Ok(())
}

pub(crate) fn state_of(number: u32) -> Result<State, Errno> {
    const STATES: [State; 7] = [
        State::Reset,
        State::Initialized,
        State::ReadyToReceive,
        State::ReadyToSend,
        State::SendQueueDrain,
        State::SendQueueError,
        State::Error,
    ];
    let state = STATES.into_iter().find(|state| *state as u32 == number);
    state.ok_or(Errno::INVALID)
}

/// Converts access flags. Like the kernel, it ignores unknown bits.
fn access_of(flags: u32) -> Access {
    Access::from_bits_truncate(flags)
}

pub(crate) fn qp_attr_of(known: &Attributes, outstanding: usize) -> abi::ibv_qp_attr {
    let state = known.state.map_or(0, |state| state as u32);
    let draining = state == State::SendQueueDrain as u32 && outstanding > 0;
    abi::ibv_qp_attr {
        qp_state: state,
        cur_qp_state: state,
        path_mtu: known.path_mtu.map_or(0, |mtu| u32::from(mtu.code())),
        path_mig_state: known.migration.map_or(0, u32::from),
        qkey: known.queue_key.map_or(0, QueueKey::value),
        rq_psn: known.receive_psn.map_or(0, Psn::value),
        sq_psn: known.send_psn.map_or(0, Psn::value),
        dest_qp_num: known.destination.map_or(0, Qpn::value),
        qp_access_flags: known.access.map_or(0, |access| access.bits()),
        ah_attr: known.path.as_ref().map(attributes_of).unwrap_or_default(),
        pkey_index: known.partition_index.unwrap_or(0),
        en_sqd_async_notify: u8::from(known.drain_event.unwrap_or(false)),
        sq_draining: u8::from(draining),
        max_rd_atomic: known.initiator_depth.unwrap_or(0),
        max_dest_rd_atomic: known.responder_resources.unwrap_or(0),
        min_rnr_timer: known.rnr_timer.map_or(0, RnrTimer::code),
        port_num: known.port.unwrap_or(PORT),
        timeout: known.ack_timeout.map_or(0, AckTimeout::code),
        retry_cnt: known.retry_count.unwrap_or(0),
        rnr_retry: known.rnr_retry.unwrap_or(0),
        ..Default::default()
    }
}
