//! Converts the manager's queue pair attributes to those of the engine.

use engine::{Access, Address, Attributes, MAX_RESPONDER_RESOURCES, State};
use wire::Psn;

use crate::Driver;

pub(super) fn init(told: &cm::InitAttributes) -> Attributes {
    let datagram = told.queue_key.is_some();
    Attributes {
        state: Some(State::Initialized),
        port: Some(1),
        partition_index: Some(0),
        access: (!datagram).then(|| access(told.access)),
        queue_key: told.queue_key,
        ..Attributes::default()
    }
}

pub(super) fn receive(driver: &Driver, told: &cm::ReceiveAttributes) -> Attributes {
    Attributes {
        state: Some(State::ReadyToReceive),
        path: Some(address(driver, &told.path)),
        path_mtu: Some(told.mtu),
        destination: Some(told.remote_qpn),
        receive_psn: Some(told.receive_psn),
        responder_resources: told.reliable.map(|it| supported(it.responder_resources)),
        rnr_timer: told.reliable.map(|it| it.min_rnr_timer),
        ..Attributes::default()
    }
}

pub(super) fn send(told: &cm::SendAttributes) -> Attributes {
    Attributes {
        state: Some(State::ReadyToSend),
        send_psn: Some(told.send_psn),
        ack_timeout: told.reliable.map(|it| it.ack_timeout),
        retry_count: told.reliable.map(|it| it.retry_count),
        rnr_retry: told.reliable.map(|it| it.rnr_retry_count),
        initiator_depth: told.reliable.map(|it| supported(it.initiator_depth)),
        ..Attributes::default()
    }
}

pub(super) fn datagram_receive() -> Attributes {
    Attributes {
        state: Some(State::ReadyToReceive),
        ..Attributes::default()
    }
}

pub(super) fn datagram_send() -> Attributes {
    Attributes {
        state: Some(State::ReadyToSend),
        send_psn: Some(Psn::new(0)),
        ..Attributes::default()
    }
}

/// A peer may offer more reads and atomics than the device supports; then the device's limit applies.
fn supported(offered: u8) -> u8 {
    offered.min(MAX_RESPONDER_RESOURCES)
}

/// The path to a peer, as an address handle.
pub(super) fn address(driver: &Driver, path: &cm::PathAttributes) -> Address {
    let index = driver.gids().iter().position(|it| *it == path.local_gid);
    Address {
        destination: path.remote_gid,
        // The manager only uses addresses of the device.
        source_index: index.unwrap_or(0) as u8,
        flow_label: path.flow_label,
        hop_limit: path.hop_limit,
        traffic_class: path.traffic_class,
        service_level: path.service_level,
    }
}

fn access(told: cm::Access) -> Access {
    [
        (cm::Access::REMOTE_WRITE, Access::REMOTE_WRITE),
        (cm::Access::REMOTE_READ, Access::REMOTE_READ),
        (cm::Access::REMOTE_ATOMIC, Access::REMOTE_ATOMIC),
        (cm::Access::FLUSH_GLOBAL, Access::FLUSH_GLOBAL),
        (cm::Access::FLUSH_PERSISTENT, Access::FLUSH_PERSISTENT),
    ]
    .into_iter()
    .filter(|(theirs, _)| told.contains(*theirs))
    .map(|(_, ours)| ours)
    .collect()
}

#[cfg(test)]
mod tests {
    use super::{Access, access};

    #[test]
    fn every_right_of_the_manager_has_a_counterpart() {
        let all = access(cm::Access::all());
        assert!(all.contains(Access::REMOTE_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC));
        assert!(all.contains(Access::FLUSH_GLOBAL | Access::FLUSH_PERSISTENT));
        assert_eq!(access(cm::Access::REMOTE_WRITE), Access::REMOTE_WRITE);
    }
}
