//! Services: one owner each, and free when the owner dies.

use net::share::{Member, ServiceError};

use crate::child::Process;
use crate::traffic::Site;

const TCP_SPACE: u64 = 0x0106_0000;

#[test]
fn a_service_has_one_owner_until_it_dies() {
    let site = Site::new(40);
    let address = site.address;
    let ours = Member::join(address).unwrap();
    let mut other = Process::join(address);
    let service = TCP_SPACE + 7471;
    assert_eq!(other.ask(&format!("claim {service}")), "claimed");
    assert_eq!(ours.listeners().owner(service).unwrap(), Some(other.slice));
    let refused = ours.listeners().claim(service).unwrap_err();
    println!("{refused}");
    let pid = other.pid();
    assert!(matches!(refused, ServiceError::InUse { pid: it, .. } if it == pid));
    assert!(other.ask(&format!("claim {service}")).contains("taken"));

    assert_eq!(other.ask(&format!("release {service}")), "released");
    ours.listeners().claim(service).unwrap();
    assert!(other.ask(&format!("claim {service}")).contains("taken"));
    // Only the owner can give it back.
    other.ask(&format!("release {service}"));
    assert_eq!(ours.listeners().owner(service).unwrap(), Some(ours.slice()));

    let second = TCP_SPACE + 7472;
    other.ask(&format!("claim {second}"));
    other.kill();
    assert_eq!(ours.listeners().owner(second).unwrap(), None);
    ours.listeners().claim(second).unwrap();
}

#[test]
fn free_ports_are_found_until_there_are_none() {
    let site = Site::new(41);
    let address = site.address;
    let members = [(); 2].map(|()| Member::join(address).unwrap());
    let [first, second] = members.each_ref().map(Member::listeners);
    first.claim(TCP_SPACE + 50_001).unwrap();
    let mut found = Vec::new();
    for listeners in [&first, &second, &first] {
        found.push(listeners.claim_any(TCP_SPACE, 50_000..=50_003).unwrap());
    }
    found.sort_unstable();
    let expected = [50_000, 50_002, 50_003].map(|port| TCP_SPACE + port);
    assert_eq!(found, expected);
    let none = second.claim_any(TCP_SPACE, 50_000..=50_003).unwrap_err();
    assert!(matches!(none, ServiceError::Exhausted { .. }), "{none}");
    // Another port space has ports of its own.
    second.claim_any(0x0111_0000, 50_000..=50_003).unwrap();
    drop(members);
}

#[test]
fn whoever_leaves_frees_its_services() {
    let site = Site::new(42);
    let address = site.address;
    let members = [(); 2].map(|()| Member::join(address).unwrap());
    let [stays, leaves] = members;
    leaves.listeners().claim(99).unwrap();
    assert_eq!(stays.listeners().owner(99).unwrap(), Some(leaves.slice()));
    drop(leaves);
    assert_eq!(stays.listeners().owner(99).unwrap(), None);
}
