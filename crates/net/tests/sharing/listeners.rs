//! Services: one owner each, and free when the owner dies.

use std::net::IpAddr;
use std::time::Instant;

use net::sharing::{Member, ServiceError};
use wire::cm::{
    CommunicationId, ConnectRequest, Message, ReadyToUse, ServiceId, ServiceReply, ServiceRequest,
};

use crate::child::{Process, TIMEOUT};
use crate::one_process::taken;
use crate::traffic::{Peer, Site};

const TCP_SPACE: u64 = 0x0106_0000;

#[test]
fn a_service_has_one_owner_until_it_dies() {
    let site = Site::new(40);
    let address = site.address;
    let ours = Member::join(address).unwrap();
    let mut other = Process::join(address);
    let service = TCP_SPACE + 7471;
    assert_eq!(other.ask(&format!("claim {service}")), "claimed");
    assert_eq!(ours.listeners().owner(service).unwrap(), Some(other.block));
    let rejected = ours.claimant().claim(service).unwrap_err();
    println!("{rejected}");
    let pid = other.pid();
    assert!(matches!(rejected, ServiceError::InUse { pid: it, .. } if it == pid));
    assert!(other.ask(&format!("claim {service}")).contains("taken"));

    assert_eq!(other.ask(&format!("release {service}")), "released");
    ours.claimant().claim(service).unwrap();
    assert!(other.ask(&format!("claim {service}")).contains("taken"));
    // Only the owner can give it back.
    other.ask(&format!("release {service}"));
    assert_eq!(ours.listeners().owner(service).unwrap(), Some(ours.block()));

    let second = TCP_SPACE + 7472;
    other.ask(&format!("claim {second}"));
    other.kill();
    let killed = Instant::now();
    // A claim sees the change at once. A look-up may see the former owner for a moment.
    while ours.listeners().owner(second).unwrap().is_some() {
        assert!(killed.elapsed() < TIMEOUT);
    }
    ours.claimant().claim(second).unwrap();
}

#[test]
fn a_leaving_member_releases_its_services() {
    let site = Site::new(42);
    let address = site.address;
    let members = [(); 2].map(|()| Member::join(address).unwrap());
    let [stays, leaves] = members;
    leaves.claimant().claim(99).unwrap();
    assert_eq!(stays.listeners().owner(99).unwrap(), Some(leaves.block()));
    drop(leaves);
    assert_eq!(stays.listeners().owner(99).unwrap(), None);
}

/// Sends messages from several ports, and expects that all of them reach one member.
#[track_caller]
fn expect_only_at(members: &mut [Member; 3], place: usize, address: IpAddr, messages: &[Message]) {
    for message in messages {
        // Another port each time: chance would choose another member.
        for _ in 0..8 {
            Peer::new(address).send_message(message);
        }
    }
    let got = members.each_mut().map(|member| taken(member).len());
    let mut expected = [0; 3];
    expected[place] = 8 * messages.len();
    assert_eq!(got, expected);
}

#[test]
fn responses_reach_the_member_that_chose_their_id() {
    let site = Site::new(43);
    let address = site.address;
    let mut members = [(); 3].map(|()| Member::join(address).unwrap());
    let blocks = members.each_ref().map(Member::block);
    for (place, block) in blocks.into_iter().enumerate() {
        let id = CommunicationId::new(block.communication_ids().start + 7);
        let ready = ReadyToUse {
            remote_id: id,
            ..ReadyToUse::default()
        };
        let found = ServiceReply {
            request_id: id,
            ..ServiceReply::default()
        };
        let messages = [Message::from(ready), Message::from(found)];
        expect_only_at(&mut members, place, address, &messages);
    }
}

/// Otherwise a process that is stopped, in a debugger or by Ctrl-Z, receives some of the requests to others and never forwards them.
#[test]
fn requests_reach_the_member_that_listens_for_their_service() {
    let site = Site::new(95);
    let address = site.address;
    let mut members = [(); 3].map(|()| Member::join(address).unwrap());
    for (place, port) in [(1, 7471), (2, 7472)] {
        let service = TCP_SPACE + port;
        members[place].claimant().claim(service).unwrap();
        let service_id = ServiceId::new(service);
        let connect = ConnectRequest {
            service_id,
            ..ConnectRequest::default()
        };
        let find = ServiceRequest {
            service_id,
            ..ServiceRequest::default()
        };
        let messages = [Message::from(connect), Message::from(find)];
        expect_only_at(&mut members, place, address, &messages);
    }
}

/// A member that is stopped can't record its index. A new member must not wait for that.
#[test]
fn a_member_that_joins_after_a_death_is_reached_although_another_is_stopped() {
    // Which member gets a misdirected packet depends on random numbers; a wrong one does in most of these rounds.
    for test in 96..102 {
        let site = Site::new(test);
        let address = site.address;
        let _stopped = Member::join(address).unwrap();
        let mut dead = Process::join(address);
        let mut third = Member::join(address).unwrap();
        taken(&mut third);
        dead.kill();
        let mut joined = Member::join(address).unwrap();
        let peer = Peer::new(address);
        peer.send(&[joined.qpn_range().start]);
        assert_eq!(taken(&mut joined).len(), 1);
        assert_eq!(joined.counters().forwarded_to_us, 0);
    }
}
