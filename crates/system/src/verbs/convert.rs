//! From the engine's vocabulary to the structures of C, and back.

use abi::{ibv_ah_attr, ibv_gid, ibv_global_route, ibv_qp_attr, ibv_wc};
use engine::{Address, Attributes, CompletedWork, Completion, State, Status};
use wire::{AckTimeout, Key, Psn, Qpn, QueueKey, RnrTimer};

/// The port of a queue pair whose attributes name none. Most devices have one port.
pub(super) const FIRST_PORT: u8 = 1;

/// A completion as the engine reports it. Of a failed request only id, status and queue pair are valid.
pub(super) fn completion_of(found: &ibv_wc) -> Completion {
    let status = status_of(found.status);
    let succeeded = status == Status::Success;
    let has = |flag: u32| succeeded && found.wc_flags & flag != 0;
    Completion {
        id: found.wr_id,
        status,
        work: work_of(found.opcode),
        length: if succeeded { found.byte_len } else { 0 },
        queue_pair: Qpn::new(found.qp_num),
        immediate: has(abi::IBV_WC_WITH_IMM).then_some(found.imm_data),
        invalidated: has(abi::IBV_WC_WITH_INV)
            .then(|| Key::new(u32::from_ne_bytes(found.imm_data))),
        source: None,
    }
}

fn status_of(number: u32) -> Status {
    const KNOWN: [Status; 14] = [
        Status::Success,
        Status::LocalLength,
        Status::LocalOperation,
        Status::LocalProtection,
        Status::Flushed,
        Status::WindowBind,
        Status::BadResponse,
        Status::LocalAccess,
        Status::RemoteInvalidRequest,
        Status::RemoteAccess,
        Status::RemoteOperation,
        Status::RetriesExhausted,
        Status::ReceiverNotReady,
        Status::General,
    ];
    let known = KNOWN.into_iter().find(|status| *status as u32 == number);
    known.unwrap_or(Status::General)
}

/// The numbers are those of `enum ibv_wc_opcode`.
fn work_of(opcode: u32) -> CompletedWork {
    match opcode {
        1 => CompletedWork::Write,
        2 => CompletedWork::Read,
        3 => CompletedWork::CompareSwap,
        4 => CompletedWork::FetchAdd,
        5 => CompletedWork::BindWindow,
        6 => CompletedWork::LocalInvalidate,
        8 => CompletedWork::Flush,
        9 => CompletedWork::AtomicWrite,
        128 => CompletedWork::Receive,
        129 => CompletedWork::ReceiveWriteImmediate,
        _ => CompletedWork::Send,
    }
}

/// The attributes as C has them. The mask has the same bits as [`Attributes::given`].
pub(super) fn attributes_of(given: &Attributes) -> ibv_qp_attr {
    let port = given.port.unwrap_or(FIRST_PORT);
    let address = |address: &Address| address_of(address, port);
    ibv_qp_attr {
        qp_state: given.state.map_or(0, |state| state as u32),
        cur_qp_state: given.current_state.map_or(0, |state| state as u32),
        path_mtu: given.path_mtu.map_or(0, |mtu| u32::from(mtu.code())),
        path_mig_state: given.migration.map_or(0, u32::from),
        qkey: given.queue_key.map_or(0, QueueKey::value),
        rq_psn: given.receive_psn.map_or(0, Psn::value),
        sq_psn: given.send_psn.map_or(0, Psn::value),
        dest_qp_num: given.destination.map_or(0, Qpn::value),
        qp_access_flags: given.access.map_or(0, |access| access.bits()),
        ah_attr: given.path.as_ref().map(address).unwrap_or_default(),
        alt_ah_attr: given
            .alternate_path
            .as_ref()
            .map(address)
            .unwrap_or_default(),
        pkey_index: given.partition_index.unwrap_or(0),
        en_sqd_async_notify: u8::from(given.drain_event.unwrap_or(false)),
        max_rd_atomic: given.initiator_depth.unwrap_or(0),
        max_dest_rd_atomic: given.responder_resources.unwrap_or(0),
        min_rnr_timer: given.rnr_timer.map_or(0, RnrTimer::code),
        port_num: port,
        timeout: given.ack_timeout.map_or(0, AckTimeout::code),
        retry_cnt: given.retry_count.unwrap_or(0),
        rnr_retry: given.rnr_retry.unwrap_or(0),
        ..ibv_qp_attr::default()
    }
}

fn address_of(address: &Address, port: u8) -> ibv_ah_attr {
    ibv_ah_attr {
        grh: ibv_global_route {
            dgid: ibv_gid {
                raw: address.destination.bytes(),
            },
            flow_label: address.flow_label,
            sgid_index: address.source_index,
            hop_limit: address.hop_limit,
            traffic_class: address.traffic_class,
        },
        sl: address.service_level,
        is_global: 1,
        port_num: port,
        ..ibv_ah_attr::default()
    }
}

/// A state by its number in `enum ibv_qp_state`.
pub(super) fn state_of(number: u32) -> Option<State> {
    const STATES: [State; 7] = [
        State::Reset,
        State::Initialized,
        State::ReadyToReceive,
        State::ReadyToSend,
        State::SendQueueDrain,
        State::SendQueueError,
        State::Error,
    ];
    STATES.into_iter().find(|state| *state as u32 == number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_completion_keeps_what_the_flags_announce() {
        let mut found = ibv_wc {
            wr_id: 7,
            opcode: 128,
            byte_len: 5,
            imm_data: [1, 2, 3, 4],
            qp_num: 17,
            wc_flags: abi::IBV_WC_WITH_IMM,
            ..ibv_wc::default()
        };
        let completion = completion_of(&found);
        assert_eq!(completion.work, CompletedWork::Receive);
        assert_eq!(completion.immediate, Some([1, 2, 3, 4]));
        assert_eq!(completion.length, 5);
        found.wc_flags = abi::IBV_WC_WITH_INV;
        let invalidated = completion_of(&found).invalidated;
        assert_eq!(
            invalidated,
            Some(Key::new(u32::from_ne_bytes([1, 2, 3, 4])))
        );
    }

    #[test]
    fn nothing_but_the_status_of_a_failed_request_is_kept() {
        let found = ibv_wc {
            status: 12,
            byte_len: 99,
            wc_flags: abi::IBV_WC_WITH_IMM,
            ..ibv_wc::default()
        };
        let completion = completion_of(&found);
        assert_eq!(completion.status, Status::RetriesExhausted);
        assert_eq!((completion.length, completion.immediate), (0, None));
        assert_eq!(status_of(17), Status::General);
    }

    #[test]
    fn states_have_the_numbers_of_the_header() {
        for number in 0..7 {
            assert_eq!(state_of(number).map(|state| state as u32), Some(number));
        }
        assert_eq!(state_of(7), None);
    }
}
