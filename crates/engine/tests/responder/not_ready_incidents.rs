//! Messages for a queue pair that can't take them: incidents at the side that is at fault.

use engine::{Config, Incident, QueuePairInit, QueuePairType, State};

use crate::conversation::*;

fn recording() -> Conversation {
    let setup = Setup::default();
    Conversation::with(Setup {
        config: Config {
            incidents: true,
            ..setup.config.clone()
        },
        ..setup
    })
}

/// The peer sends the same message every ten milliseconds.
fn retransmits(peer: &mut Conversation, from: u64, until: u64) -> Vec<Incident> {
    let mut told = Vec::new();
    for time in (from..until).step_by(10) {
        let now = at_nanos(time * 1_000_000);
        peer.sends(now, send_only(PSN, b"anybody?").ackreq());
        peer.received(now);
        told.extend(peer.device.poll_incident());
    }
    told
}

#[test]
fn a_second_without_a_receive_is_an_incident_once() {
    let mut peer = recording();
    assert_eq!(retransmits(&mut peer, 0, 1_000), []);
    let told = retransmits(&mut peer, 1_000, 3_000);
    let [
        Incident::NoReceive {
            queue_pair,
            naks,
            is_shared,
            ..
        },
    ] = told[..]
    else {
        panic!("{told:?}")
    };
    assert_eq!((queue_pair, is_shared), (peer.number, false));
    assert!(naks > 90, "{naks}");
}

#[test]
fn a_receive_in_time_is_no_incident() {
    let mut peer = recording();
    assert_eq!(retransmits(&mut peer, 0, 900), []);
    let inbox = peer.registers(0x1000, &[0; 64]);
    peer.posts_receive(1, &inbox);
    // Now it is a duplicate, which needs no receive.
    assert_eq!(retransmits(&mut peer, 900, 3_000), []);
}

#[test]
fn a_request_for_a_queue_pair_that_is_not_ready_is_an_incident() {
    let mut peer = recording();
    let init = QueuePairInit::new(QueuePairType::Rc, peer.domain, peer.completion_queue);
    let early = peer.device.create_queue_pair(init).expect("room");
    let datagram = send_only(PSN, b"early").sealed(early, &flow());
    peer.delivers(at(1), &flow(), &datagram);
    let Some(Incident::NotReady {
        queue_pair, state, ..
    }) = peer.device.poll_incident()
    else {
        panic!("an incident")
    };
    assert_eq!((queue_pair, state), (early, State::Reset));
}
