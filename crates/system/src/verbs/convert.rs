//! From the engine's vocabulary to the structures of C, and back.

use std::ffi::c_int;
use std::mem::offset_of;
use std::ptr;

use abi::{ibv_ah_attr, ibv_gid, ibv_global_route, ibv_qp_attr, ibv_recv_wr, ibv_sge, ibv_wc};
use engine::{
    Access, Address, Attribute, Attributes, CompletedWork, Completion, ReceiveRequest, Segment,
    State, Status, SystemRefusal,
};
use wire::{AckTimeout, Gid, Key, PathMtu, Psn, Qpn, QueueKey, RnrTimer};

use super::error::error_number;

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

// Segments have the layout of C.
const _: () = {
    assert!(size_of::<Segment>() == size_of::<ibv_sge>());
    assert!(align_of::<Segment>() == align_of::<ibv_sge>());
    assert!(offset_of!(Segment, address) == offset_of!(ibv_sge, addr));
    assert!(offset_of!(Segment, length) == offset_of!(ibv_sge, length));
    assert!(offset_of!(Segment, key) == offset_of!(ibv_sge, lkey));
};

/// The segments of a request, as C has them. They live as long as the request, and may be read only.
pub(super) fn segments_of(segments: &[Segment]) -> *mut ibv_sge {
    segments.as_ptr().cast_mut().cast()
}

/// Posts a receive by a function of the provider. The request lives until the function returns.
pub(super) fn post_receive_with(
    call: &'static str,
    request: &ReceiveRequest,
    post: impl FnOnce(*mut ibv_recv_wr, *mut *mut ibv_recv_wr) -> c_int,
) -> Result<(), SystemRefusal> {
    let mut wanted = ibv_recv_wr {
        wr_id: request.id,
        next: ptr::null_mut(),
        sg_list: segments_of(&request.segments),
        num_sge: request.segments.len() as c_int,
    };
    let mut bad = ptr::null_mut();
    match post(&raw mut wanted, &raw mut bad) {
        0 => Ok(()),
        number => Err(error_number(call, number)),
    }
}

/// The attributes as C has them. The mask has the same bits as [`Attributes::given`].
pub(super) fn attributes_of(given: &Attributes, port: u8) -> ibv_qp_attr {
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

/// An address handle as C has it.
pub(super) fn address_of(address: &Address, port: u8) -> ibv_ah_attr {
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

/// The attributes that a mask names.
pub(crate) fn attributes_from(found: &ibv_qp_attr, mask: u32) -> Attributes {
    let named = Attribute::from_bits_truncate(mask);
    let has = |attribute| named.contains(attribute);
    let mtu = |code: u32| PathMtu::from_code(u8::try_from(code).ok()?);
    Attributes {
        state: state_of(found.qp_state).filter(|_| has(Attribute::STATE)),
        access: has(Attribute::ACCESS).then(|| Access::from_bits_truncate(found.qp_access_flags)),
        partition_index: has(Attribute::PARTITION).then_some(found.pkey_index),
        port: has(Attribute::PORT).then_some(found.port_num),
        path: has(Attribute::PATH).then(|| address_from(&found.ah_attr)),
        path_mtu: mtu(found.path_mtu).filter(|_| has(Attribute::PATH_MTU)),
        ack_timeout: AckTimeout::new(found.timeout).filter(|_| has(Attribute::ACK_TIMEOUT)),
        retry_count: has(Attribute::RETRY_COUNT).then_some(found.retry_cnt),
        rnr_retry: has(Attribute::RNR_RETRY).then_some(found.rnr_retry),
        queue_key: has(Attribute::QUEUE_KEY).then(|| QueueKey::new(found.qkey)),
        receive_psn: has(Attribute::RECEIVE_PSN).then(|| Psn::new(found.rq_psn)),
        initiator_depth: has(Attribute::INITIATOR_DEPTH).then_some(found.max_rd_atomic),
        rnr_timer: RnrTimer::new(found.min_rnr_timer).filter(|_| has(Attribute::RNR_TIMER)),
        send_psn: has(Attribute::SEND_PSN).then(|| Psn::new(found.sq_psn)),
        responder_resources: has(Attribute::RESPONDER_RESOURCES)
            .then_some(found.max_dest_rd_atomic),
        destination: has(Attribute::DESTINATION).then(|| Qpn::new(found.dest_qp_num)),
        ..Attributes::default()
    }
}

/// An address as the engine has it.
pub(crate) fn address_from(found: &ibv_ah_attr) -> Address {
    Address {
        flow_label: found.grh.flow_label,
        hop_limit: found.grh.hop_limit,
        traffic_class: found.grh.traffic_class,
        service_level: found.sl,
        ..Address::new(Gid::from_bytes(found.grh.dgid.raw), found.grh.sgid_index)
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
    fn attributes_survive_the_way_to_c_and_back() {
        let given = Attributes {
            state: Some(State::ReadyToReceive),
            port: Some(2),
            path: Some(Address {
                flow_label: 77,
                hop_limit: 3,
                traffic_class: 12,
                service_level: 4,
                ..Address::new(Gid::from_bytes([9; 16]), 5)
            }),
            path_mtu: Some(PathMtu::Mtu2048),
            destination: Some(Qpn::new(18)),
            receive_psn: Some(Psn::new(19)),
            responder_resources: Some(6),
            rnr_timer: RnrTimer::new(12),
            send_psn: Some(Psn::new(20)),
            ack_timeout: AckTimeout::new(15),
            retry_count: Some(7),
            rnr_retry: Some(1),
            initiator_depth: Some(8),
            partition_index: Some(3),
            queue_key: Some(QueueKey::new(21)),
            access: Some(Access::REMOTE_READ),
            ..Attributes::default()
        };
        let c = attributes_of(&given, 2);
        assert_eq!((c.port_num, c.ah_attr.port_num), (2, 2));
        assert_eq!(attributes_from(&c, given.given().bits()), given);
        let named = Attribute::SEND_PSN.union(Attribute::STATE);
        assert_eq!(attributes_from(&c, named.bits()).given(), named);
    }

    #[test]
    fn states_have_the_numbers_of_the_header() {
        for number in 0..7 {
            assert_eq!(state_of(number).map(|state| state as u32), Some(number));
        }
        assert_eq!(state_of(7), None);
    }
}
