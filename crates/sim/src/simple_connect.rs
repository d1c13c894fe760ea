//! Brings queue pairs to RTS with fixed attributes, for runs that do not vary the connection setup.

use engine::{Access, Address, Attributes, Device, ModifyError, QueuePairType, State};
use wire::{AckTimeout, Gid, PathMtu, Psn, Qpn, QueueKey, RnrTimer};

/// The peer of a queue pair, and the first PSNs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Peer {
    pub(crate) gid: Gid,
    pub(crate) number: Qpn,
    /// The first PSN that we send.
    pub(crate) sends: Psn,
    /// The first PSN that we expect.
    pub(crate) expects: Psn,
    /// How long a response may take before a retry, if the queue pair is reliable.
    pub(crate) ack_timeout: Option<AckTimeout>,
}

impl Peer {
    /// Four milliseconds.
    pub(crate) const SHORT_ACK_TIMEOUT: Option<AckTimeout> = AckTimeout::new(10);
}

/// All access rights that a queue pair can grant its peer.
pub(crate) const ALL_RIGHTS: Access = Access::REMOTE_WRITE
    .union(Access::REMOTE_READ)
    .union(Access::REMOTE_ATOMIC)
    .union(Access::FLUSH_GLOBAL)
    .union(Access::FLUSH_PERSISTENT);

/// Brings an RC or UC queue pair from RESET to RTS.
pub(crate) fn connect(
    device: &mut Device,
    number: Qpn,
    kind: QueuePairType,
    mtu: PathMtu,
    peer: &Peer,
) -> Result<(), ModifyError> {
    let reliable = kind == QueuePairType::Rc;
    device.modify(number, &initialized())?;
    device.modify(number, &ready_to_receive(mtu, peer, reliable))?;
    device.modify(number, &ready_to_send(peer, reliable))
}

fn initialized() -> Attributes {
    Attributes {
        state: Some(State::Initialized),
        port: Some(1),
        partition_index: Some(0),
        access: Some(ALL_RIGHTS),
        ..Attributes::default()
    }
}

fn ready_to_receive(mtu: PathMtu, peer: &Peer, reliable: bool) -> Attributes {
    Attributes {
        state: Some(State::ReadyToReceive),
        path: Some(Address::new(peer.gid, 0)),
        path_mtu: Some(mtu),
        destination: Some(peer.number),
        receive_psn: Some(peer.expects),
        responder_resources: reliable.then_some(4),
        rnr_timer: RnrTimer::new(1).filter(|_| reliable),
        ..Attributes::default()
    }
}

fn ready_to_send(peer: &Peer, reliable: bool) -> Attributes {
    Attributes {
        state: Some(State::ReadyToSend),
        send_psn: Some(peer.sends),
        ack_timeout: peer.ack_timeout.filter(|_| reliable),
        retry_count: reliable.then_some(7),
        rnr_retry: reliable.then_some(7),
        initiator_depth: reliable.then_some(4),
        ..Attributes::default()
    }
}

/// Brings a UD queue pair from RESET to RTS.
pub(crate) fn open(device: &mut Device, number: Qpn, key: QueueKey) -> Result<(), ModifyError> {
    let to = |state| Attributes {
        state: Some(state),
        ..Attributes::default()
    };
    device.modify(
        number,
        &Attributes {
            port: Some(1),
            partition_index: Some(0),
            queue_key: Some(key),
            ..to(State::Initialized)
        },
    )?;
    device.modify(number, &to(State::ReadyToReceive))?;
    device.modify(
        number,
        &Attributes {
            send_psn: Some(Psn::ZERO),
            ..to(State::ReadyToSend)
        },
    )
}
