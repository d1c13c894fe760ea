//! Several members in one process, seen from inside.

use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

use net::sharing::{JoinError, Member, NumberBlock, ReceivedPacket, RuntimeDirectory};
use net::socket::{Inbox, SocketError};

use crate::traffic::{Peer, Site, packet};

/// Everything that a member takes within some calls, and its upkeep.
pub(crate) fn taken(member: &mut Member) -> Vec<Vec<u8>> {
    let mut packets = Vec::new();
    let mut inbox = Inbox::new(2);
    for _ in 0..16 {
        let now = Instant::now();
        let take = |it: ReceivedPacket<'_>| packets.push(it.packet.to_vec());
        member.receive(now, &mut inbox, take).unwrap();
        member.maintain(now);
    }
    packets
}

/// A directory for one test.
fn runtime_directory(name: &str) -> (PathBuf, RuntimeDirectory) {
    let path = std::env::temp_dir().join(format!("roci-{name}-{}", std::process::id()));
    let directory = RuntimeDirectory::at(&path).unwrap();
    (path, directory)
}

#[test]
fn a_member_may_move_to_another_thread() {
    fn movable<T: Send>() {}
    movable::<(Member, Inbox)>();
}

#[test]
fn packets_in_a_batch_for_another_member_are_handed_over() {
    let site = Site::new(60);
    let address = site.address;
    let peer = Peer::new(address);
    let members = [(); 2].map(|()| Member::join(address).unwrap());
    let [mut first, mut second] = members;
    for member in [&mut first, &mut second] {
        taken(member);
    }
    let to_first = first.qpn_range().start;
    let to_second = second.qpn_range().end - 1;
    // Steered by its first packet, but the second and the fourth are for another member.
    peer.send(&[to_first, to_second, to_first, to_second]);
    let flow = &peer.route.flow;
    let expected = |numbers: [u16; 2], to| numbers.map(|number| packet(flow, number, to));
    assert_eq!(taken(&mut first), expected([0, 2], to_first));
    assert_eq!(taken(&mut second), expected([1, 3], to_second));
    assert_eq!(first.counters().strays_forwarded, 2);
    assert_eq!(second.counters().forwarded_to_us, 2);
    // The sender mixed destinations in one batch, so no round of probes starts.
    assert_eq!((first.counters().rounds, second.counters().rounds), (0, 0));
}

#[test]
fn a_forwarded_packet_keeps_its_route() {
    let site = Site::new(61);
    let address = site.address;
    let members = [(); 2].map(|()| Member::join(address).unwrap());
    let [mut first, mut second] = members;
    let route = Peer::new(address).route;
    let message = packet(&route.flow, 0, 1);
    first.forward_to(second.block(), &route, &message);
    let mut seen = Vec::new();
    for _ in 0..16 {
        let take = |it: ReceivedPacket<'_>| seen.push((it.route, it.packet.to_vec(), it.forwarded));
        second
            .receive(Instant::now(), &mut Inbox::new(1), take)
            .unwrap();
    }
    assert_eq!(seen, [(route, message.clone(), true)]);
    assert_eq!(first.others().unwrap(), [second.block()]);
}

#[test]
fn a_forwarded_packet_does_not_overtake_what_was_sent_before_it() {
    const SENT_BEFORE: usize = 40;
    let site = Site::new(73);
    let members = [(); 2].map(|()| Member::join(site.address).unwrap());
    let [mut first, mut second] = members;
    for member in [&mut first, &mut second] {
        taken(member);
    }
    let peer = Peer::new(site.address);
    for _ in 0..SENT_BEFORE {
        peer.send(&[second.qpn_range().start]);
    }
    let message = packet(&peer.route.flow, 0, 1);
    first.forward_to(second.block(), &peer.route, &message);
    let mut forwarded = Vec::new();
    let mut inbox = Inbox::new(1);
    while forwarded.len() <= SENT_BEFORE {
        let take = |it: ReceivedPacket<'_>| forwarded.push(it.forwarded);
        second.receive(Instant::now(), &mut inbox, take).unwrap();
    }
    assert_eq!(forwarded.iter().position(|&it| it), Some(SENT_BEFORE));
}

#[test]
fn packets_for_a_busy_member_wait_and_for_no_member_are_lost() {
    let site = Site::new(65);
    let address = site.address;
    let members = [(); 2].map(|()| Member::join(address).unwrap());
    let [mut first, mut second] = members;
    let route = Peer::new(address).route;
    let message = packet(&route.flow, 0, 1);
    // Far more than a mailbox holds.
    for _ in 0..100 {
        first.forward_to(second.block(), &route, &message);
    }
    assert!(first.counters().strays_forwarded < 100);
    let mut arrived = 0;
    for _ in 0..20 {
        arrived += taken(&mut second).len();
        first.maintain(Instant::now());
    }
    assert_eq!((arrived, first.counters().strays_forwarded), (100, 100));
    let unowned = [0x800, 0xff_f000].map(|first| NumberBlock::new(first, 11).unwrap());
    let members = [first.block(), second.block()];
    let unowned = unowned.into_iter().find(|it| {
        !members
            .iter()
            .any(|its| its.qpn_range().contains(&it.first()))
    });
    first.forward_to(unowned.unwrap(), &route, &message);
    assert_eq!(first.counters().strays_lost, 1);
}

#[test]
fn a_packet_is_forwarded_at_most_once() {
    let site = Site::new(70);
    let members = [(); 3].map(|()| Member::join(site.address).unwrap());
    let [mut first, mut second, mut third] = members;
    let route = Peer::new(site.address).route;
    let message = packet(&route.flow, 0, third.qpn_range().start);
    first.forward_to(second.block(), &route, &message);
    assert_eq!(taken(&mut second), [[0; 0]; 0]);
    assert_eq!(second.counters().forwarded_to_us, 1);
    assert_eq!(taken(&mut third), [[0; 0]; 0]);
}

#[test]
fn packets_that_are_corrupted_or_of_no_member_cost_little() {
    const STRAYS: u32 = 2000;
    let site = Site::new(71);
    let mut members = [(); 2].map(|()| Member::join(site.address).unwrap());
    members.iter_mut().for_each(|it| _ = taken(it));
    let peer = Peer::new(site.address);
    let owned = |number| members.iter().any(|it| it.qpn_range().contains(&number));
    let unowned = [0x800, 0x10_0000, 0xff_f000].into_iter();
    let unowned = unowned.clone().find(|number| !owned(*number)).unwrap();
    let before = members[0].registry_reads();
    let begin = Instant::now();
    for _ in 0..STRAYS / 20 {
        peer.send(&[unowned; 20]);
        members.iter_mut().for_each(|it| _ = taken(it));
    }
    println!(
        "{:?} for a packet without an owner",
        begin.elapsed() / STRAYS
    );
    let reads = members[0].registry_reads();
    assert!(reads - before <= 2, "{reads} reads");
    let lost: u64 = members.iter().map(|it| it.counters().strays_lost).sum();
    assert_eq!(lost, STRAYS.into());
    // Damaged, and for another member: it is not handed over.
    let [first, second] = &mut members;
    let mut batch: Vec<u8> = [first.qpn_range().start, second.qpn_range().start]
        .into_iter()
        .zip(0..)
        .flat_map(|(to, number)| packet(&peer.route.flow, number, to))
        .collect();
    *batch.last_mut().unwrap() ^= 1;
    let size = batch.len() / 2;
    let sender = net::socket::Sender::bind("127.0.0.1".parse().unwrap()).unwrap();
    let route = wire::Route::new(sender.flow_to(site.address));
    sender.send(&route, size, &mut batch).unwrap();
    taken(first);
    assert_eq!(taken(second), [[0; 0]; 0]);
    assert_eq!(first.counters().strays_forwarded, 0);
}

#[test]
fn a_batch_is_handed_over_piece_by_piece_to_the_owner_of_each_packet() {
    let site = Site::new(74);
    let mut members = [(); 3].map(|()| Member::join(site.address).unwrap());
    members.iter_mut().for_each(|it| _ = taken(it));
    let [first, second, third] = &mut members;
    let owners = [&first, &second, &third, &second, &second];
    let numbers = owners.map(|it| it.qpn_range().start);
    let sender = net::socket::Sender::bind("127.0.0.1".parse().unwrap()).unwrap();
    let route = wire::Route::new(sender.flow_to(site.address));
    let mut packets: Vec<_> = (0..)
        .zip(numbers)
        .map(|(number, to)| packet(&route.flow, number, to))
        .collect();
    // Damaged, behind an intact one for the same owner.
    *packets[4].last_mut().unwrap() ^= 1;
    let size = packets[0].len();
    sender.send(&route, size, &mut packets.concat()).unwrap();
    assert_eq!(taken(first), [packets[0].clone()]);
    assert_eq!(taken(second), [packets[1].clone(), packets[3].clone()]);
    assert_eq!(taken(third), [packets[2].clone()]);
    let counters = first.counters();
    assert_eq!((counters.strays_forwarded, counters.strays_lost), (3, 1));
    assert_eq!(second.counters().forwarded_to_us, 2);
}

#[test]
fn copies_for_all_others_are_limited_in_each_second() {
    const MOST: usize = 2000;
    let site = Site::new(75);
    let [mut first, mut second] = [(); 2].map(|()| Member::join(site.address).unwrap());
    let route = Peer::new(site.address).route;
    let message = packet(&route.flow, 0, 1);
    let now = Instant::now();
    for _ in 0..MOST + 100 {
        first.forward_to_others(now, &route, &message);
    }
    let mut arrived = 0;
    while first.counters().strays_forwarded < MOST as u64 {
        arrived += taken(&mut second).len();
        first.maintain(Instant::now());
    }
    arrived += taken(&mut second).len();
    first.maintain(Instant::now());
    arrived += taken(&mut second).len();
    assert_eq!((arrived, first.counters().strays_lost), (MOST, 0));
}

#[test]
fn packets_beyond_the_outbox_of_a_busy_member_are_counted_as_lost() {
    let site = Site::new(76);
    let [mut first, second] = [(); 2].map(|()| Member::join(site.address).unwrap());
    let route = Peer::new(site.address).route;
    let message = vec![0; 60_000];
    for _ in 0..100 {
        first.forward_to(second.block(), &route, &message);
    }
    let lost = first.counters().strays_lost;
    // A megabyte waits, and the kernel holds a few for the other.
    assert!((1..100 - 17).contains(&lost), "{lost}");
}

/// There is only one IPv6 address on every machine, and another test run may be using it.
fn join_patiently(directory: &RuntimeDirectory, address: IpAddr) -> Member {
    let begin = Instant::now();
    loop {
        match Member::join_in(directory, address) {
            Ok(member) => return member,
            Err(error) => assert!(begin.elapsed() < Duration::from_secs(10), "{error}"),
        }
        sleep(Duration::from_millis(10));
    }
}

#[test]
fn over_ipv6_members_share_as_well() {
    let address: IpAddr = "::1".parse().unwrap();
    let (path, directory) = runtime_directory("v6");
    let mut members = [(); 3].map(|()| join_patiently(&directory, address));
    let flow = members[0].sender().flow_to(address);
    for (number, block) in members
        .each_ref()
        .map(Member::block)
        .into_iter()
        .enumerate()
    {
        let mut packet = packet(&flow, 0, block.qpn_range().start);
        let length = packet.len();
        let route = wire::Route::new(flow);
        members[0]
            .send(Instant::now(), &route, length, true, &mut packet)
            .unwrap();
        for (other, member) in members.iter_mut().enumerate() {
            assert_eq!(taken(member).len(), usize::from(other == number));
        }
    }
    assert!(members.iter().all(|it| it.counters().strays_forwarded == 0));
    drop(members);
    fs::remove_dir_all(path).unwrap();
}

/// The last member takes the index of one that leaves. Until it has noticed that, its packets must not reach another member: that
/// one may belong to a stopped process.
#[test]
fn a_member_that_leaves_hands_its_index_over() {
    let site = Site::new(103);
    let (path, directory) = runtime_directory("handover");
    let join = || Member::join_in(&directory, site.address).unwrap();
    let (leaves, mut stays, mut last) = (join(), join(), join());
    let number = last.block().qpn_range().start;
    drop(leaves);
    // Each has another source port, by which the kernel would choose.
    let peers = [(); 16].map(|()| Peer::new(site.address));
    peers.iter().for_each(|peer| peer.send(&[number]));
    assert_eq!(taken(&mut stays).len(), 0);
    assert_eq!(stays.counters().strays_forwarded, 0);
    assert_eq!(taken(&mut last).len(), peers.len());
    drop((stays, last));
    fs::remove_dir_all(path).unwrap();
}

#[test]
fn a_removed_registry_is_written_again() {
    let site = Site::new(63);
    let address = site.address;
    let (path, directory) = runtime_directory("removed");
    let members = [(); 2].map(|()| Member::join_in(&directory, address));
    let mut members = members.map(Result::unwrap);
    members.iter_mut().for_each(|it| _ = taken(it));
    members[0].claimant().claim(7).unwrap();
    members[1].claimant().claim(8).unwrap();
    members[1].claimant().release(8).unwrap();
    for file in fs::read_dir(&path).unwrap().map(Result::unwrap) {
        // Cleaners leave sockets alone.
        if file.file_type().unwrap().is_file() {
            fs::remove_file(file.path()).unwrap();
        }
    }
    let rejected = Member::join_in(&directory, address).unwrap_err();
    let taken_port = JoinError::Socket(SocketError::PortTaken {
        address,
        port: 4791,
    });
    assert_eq!(rejected.to_string(), taken_port.to_string());
    sleep(Duration::from_millis(260));
    members.iter_mut().for_each(|it| _ = taken(it));
    let newcomer = Member::join_in(&directory, address).unwrap();
    assert!(members.iter().all(|it| it.block() != newcomer.block()));
    let owner = |service| newcomer.listeners().owner(service).unwrap();
    assert_eq!((owner(7), owner(8)), (Some(members[0].block()), None));
    newcomer.claimant().claim(7).unwrap_err();
    drop((members, newcomer));
    fs::remove_dir_all(path).unwrap();
}

/// The process must go on whatever is in its place.
#[test]
fn a_registry_that_is_no_table_any_more_is_written_again() {
    let site = Site::new(104);
    let address = site.address;
    let damages: [fn(&Path); 4] = [
        |registry| {
            fs::remove_file(registry).unwrap();
            let made = Command::new("mkfifo").arg(registry).status();
            assert!(made.unwrap().success());
        },
        |registry| fs::File::create(registry).unwrap().set_len(0).unwrap(),
        |registry| fs::write(registry, "[settings]\nof = another program\n").unwrap(),
        |registry| fs::write(registry, [0xff; 300]).unwrap(),
    ];
    for damage in damages {
        let (path, directory) = runtime_directory("damaged");
        let mut member = Member::join_in(&directory, address).unwrap();
        _ = taken(&mut member);
        member.claimant().claim(7).unwrap();
        damage(&registry_in(&path));
        sleep(Duration::from_millis(260));
        _ = taken(&mut member);
        let newcomer = Member::join_in(&directory, address).unwrap();
        let owner = newcomer.listeners().owner(7).unwrap();
        assert_eq!(owner, Some(member.block()));
        drop((member, newcomer));
        fs::remove_dir_all(path).unwrap();
    }
}

fn registry_in(directory: &Path) -> PathBuf {
    let files = fs::read_dir(directory).unwrap().map(|it| it.unwrap());
    let mut paths = files.map(|it| it.path());
    let is_registry =
        |it: &PathBuf| fs::read_to_string(it).is_ok_and(|text| text.contains("member"));
    paths.find(is_registry).unwrap()
}

#[test]
fn unused_registry_of_another_version_is_replaced() {
    let site = Site::new(72);
    let (path, directory) = runtime_directory("version");
    let member = Member::join_in(&directory, site.address).unwrap();
    let registry = registry_in(&path);
    fs::write(&registry, "roci-registry-1 of another time\n").unwrap();
    let rejected = Member::join_in(&directory, site.address).unwrap_err();
    assert!(
        rejected.to_string().contains("of another version"),
        "{rejected}"
    );
    drop(member);
    Member::join_in(&directory, site.address).unwrap();
    fs::remove_dir_all(path).unwrap();
}

#[test]
fn an_address_of_no_interface_is_rejected() {
    let rejected = Member::join("192.0.2.7".parse().unwrap()).unwrap_err();
    println!("{rejected}");
    assert!(matches!(
        rejected,
        JoinError::Socket(SocketError::NotLocal(_))
    ));
    for address in ["0.0.0.0", "239.1.2.3", "::", "ff02::1"] {
        let rejected = Member::join(address.parse().unwrap()).unwrap_err();
        assert!(matches!(rejected, JoinError::NotUnicast(_)), "{rejected}");
    }
}
