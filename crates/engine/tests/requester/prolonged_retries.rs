//! Retries that last: an incident tells of them while they last.

use std::ops::Range;

use engine::incident::{PeerResponses, RetryReason, SendFault};
use engine::{Config, Incident, SendRequest, Status, Work};

use crate::conversation::*;

fn recording(retry_count: u8, rnr_retry: u8) -> Conversation {
    let setup = Setup::default();
    Conversation::with(Setup {
        retry_count,
        rnr_retry,
        config: Config {
            incidents: true,
            ..setup.config.clone()
        },
        ..setup
    })
}

fn hello(id: u64) -> SendRequest {
    SendRequest::new(id, Work::Send).inline(b"hello")
}

/// Passes time in small steps, and returns the first incident with the time of the step in milliseconds.
fn first_incident(peer: &mut Conversation, times: Range<u64>) -> Option<(u64, Incident)> {
    times.into_iter().find_map(|time| {
        peer.received(at_nanos(time * 1_000_000));
        Some((time, peer.device.poll_incident()?))
    })
}

#[test]
fn a_peer_that_is_silent_for_a_second_is_an_incident_once() {
    let mut peer = recording(7, 7);
    peer.posts(hello(5));
    let (time, incident) = first_incident(&mut peer, 0..1_500).expect("an incident");
    assert!(time >= 1_000, "after {time} ms");
    let Incident::StillRetrying(retried) = incident else {
        panic!("{incident:?}")
    };
    assert_eq!(retried.id, 5);
    assert!(retried.waited.as_millis() >= 1_000);
    let RetryReason::NoResponse {
        timeouts,
        responses: PeerResponses::None,
    } = retried.reason
    else {
        panic!("{retried:?}")
    };
    assert!(timeouts >= 2, "{timeouts}");
    // The next one is the end of the retries, and names the whole time.
    let (_, incident) = first_incident(&mut peer, time..10_000).expect("the end");
    let Incident::SendFailed(failed) = incident else {
        panic!("{incident:?}")
    };
    let SendFault::NoResponse {
        retries: 7, waited, ..
    } = failed.fault
    else {
        panic!("{failed:?}")
    };
    assert!(waited > retried.waited, "{waited:?}");
    peer.completes([(5, Status::RetriesExhausted)]);
}

#[test]
fn a_loss_that_is_repaired_soon_is_no_incident() {
    let mut peer = recording(7, 7);
    peer.posts(hello(1));
    assert_eq!(first_incident(&mut peer, 0..600), None);
    peer.sends(at_nanos(600_000_000), ack(PSN));
    peer.posts(hello(2));
    // The second waits for less than a second, too.
    assert_eq!(first_incident(&mut peer, 600..1_500), None);
    assert!(peer.counters().timeouts > 2);
}

#[test]
fn an_endless_wait_for_a_receive_is_an_incident() {
    let mut peer = recording(7, 7);
    peer.posts(hello(9));
    let mut told = Vec::new();
    for time in 0..1_500 {
        let now = at_nanos(time * 1_000_000);
        if !peer.received(now).is_empty() {
            // Code 12 is 0.64 ms.
            peer.sends(now, rnr_nak(PSN, 12));
        }
        told.extend(peer.device.poll_incident());
    }
    let [Incident::StillRetrying(retried)] = &told[..] else {
        panic!("{told:?}")
    };
    let RetryReason::NotReady { naks, endless } = retried.reason else {
        panic!("{retried:?}")
    };
    assert!(naks > 100 && endless, "{naks}");
}
