//! Packets that go through memory instead of sockets.

use std::sync::atomic::Ordering;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use net::poll::{Interest, wait};
use net::sharing::{Member, ReceivedPacket};
use net::socket::Inbox;
use wire::{PayloadBytes, Qpn, Route};

use crate::one_process::taken;
use crate::traffic::{Site, packet};

fn join(site: &Site) -> Member {
    let mut member = Member::join(site.address).unwrap();
    member.allow_shortcuts();
    member.enable_shortcuts(true);
    member
}

/// The first queue pair of one member, as another sees it.
struct Target {
    route: Route,
    number: u32,
}

impl Target {
    fn new(from: &Member, to: &Member) -> Self {
        Self {
            route: Route::new(from.sender().flow_to(to.address())),
            number: to.qpn_range().start,
        }
    }

    fn packet(&self, number: u32) -> Vec<u8> {
        packet(&self.route.flow, 0, self.number + number)
    }

    fn send(&self, from: &mut Member, number: u32) {
        self.send_at(Instant::now(), from, number);
    }

    fn send_at(&self, now: Instant, from: &mut Member, number: u32) {
        let mut packet = self.packet(number);
        let size = packet.len();
        from.send(now, &self.route, size, true, &mut packet)
            .unwrap();
    }

    /// Sends through the socket even if a ring is open.
    fn send_by_socket(&self, from: &Member, number: u32) {
        let mut packet = self.packet(number);
        let size = packet.len();
        from.sender().send(&self.route, size, &mut packet).unwrap();
    }
}

/// A queue pair number at the same address that no member owns.
fn stray(target: &Target) -> Target {
    Target {
        route: target.route,
        // The lowest and the highest block are not both the target's.
        number: if target.number < 0x1000 {
            0xff_f000
        } else {
            0x800
        },
    }
}

/// Sends a packet, which comes over the socket and brings the offer along.
fn open_rings(target: &Target, from: &mut Member, to: &mut Member) {
    target.send(from, 0);
    assert_eq!(taken(to), [target.packet(0)]);
    assert_eq!(from.counters().by_shortcut, 0);
}

#[test]
fn packets_go_through_memory_once_both_ends_know() {
    let sites = [Site::new(80), Site::new(81)];
    let [mut one, mut other] = sites.each_ref().map(join);
    let target = Target::new(&one, &other);
    open_rings(&target, &mut one, &mut other);
    for number in 1..4 {
        target.send(&mut one, number);
    }
    assert_eq!(one.counters().by_shortcut, 3);
    assert_eq!(taken(&mut other), [1, 2, 3].map(|it| target.packet(it)));
}

#[test]
fn a_packet_through_memory_has_the_route_that_the_socket_gives_it() {
    let sites = [Site::new(77), Site::new(78)];
    let [mut one, mut other] = sites.each_ref().map(join);
    let mut target = Target::new(&one, &other);
    // The usual hop limit of a socket.
    target.route.hop_limit = 0;
    open_rings(&target, &mut one, &mut other);
    target.send(&mut one, 1);
    assert_eq!(one.counters().by_shortcut, 1);
    let mut limits = Vec::new();
    let take = |it: ReceivedPacket<'_>| limits.push(it.route.hop_limit);
    other
        .poll_last_active(Instant::now(), &mut Inbox::new(1), take)
        .unwrap();
    assert_eq!(limits, [Route::DEFAULT_HOP_LIMIT]);
}

#[test]
fn a_packet_over_the_mtu_is_rejected_through_memory_too() {
    let sites = [Site::new(79), Site::new(105)];
    let [mut one, mut other] = sites.each_ref().map(join);
    let target = Target::new(&one, &other);
    open_rings(&target, &mut one, &mut other);
    let mut long = target.packet(1);
    long.resize((1 << 16) + 1, 0);
    let size = long.len();
    let sent = one.send(Instant::now(), &target.route, size, true, &mut long);
    assert!(sent.is_err(), "{sent:?}");
    assert_eq!(one.counters().by_shortcut, 0);
    // The way is still open for the next.
    target.send(&mut one, 2);
    assert_eq!(taken(&mut other), [target.packet(2)]);
    assert_eq!(one.counters().by_shortcut, 1);
}

#[test]
fn a_woken_member_reads_its_mailbox_at_once() {
    let site = Site::new(106);
    let [mut one, mut other] = [(); 2].map(|()| join(&site));
    let target = Target::new(&one, &other);
    open_rings(&target, &mut one, &mut other);
    assert!(!other.may_sleep(), "no writer would wake it");
    assert!(!other.prepare_sleep() && other.may_sleep());
    one.forward_to(other.block(), &target.route, &target.packet(1));
    target.send(&mut one, 2);
    assert!(!other.may_sleep(), "a packet waits");
    assert_eq!(one.counters().by_shortcut, 1);
    let mut packets = Vec::new();
    let take = |it: ReceivedPacket<'_>| packets.push(it.packet.to_vec());
    other
        .poll_last_active(Instant::now(), &mut Inbox::new(1), take)
        .unwrap();
    assert_eq!(packets, [2, 1].map(|it| target.packet(it)));
}

#[test]
fn packets_sent_earlier_over_the_socket_arrive_first() {
    let sites = [Site::new(82), Site::new(83)];
    let [mut one, mut other] = sites.each_ref().map(join);
    let target = Target::new(&one, &other);
    open_rings(&target, &mut one, &mut other);
    // A stray at the head of the socket must not stop the poll.
    stray(&target).send_by_socket(&one, 0);
    target.send_by_socket(&one, 1);
    target.send(&mut one, 2);
    assert_eq!(one.counters().by_shortcut, 1);
    let mut packets = Vec::new();
    let take = |it: ReceivedPacket<'_>| packets.push(it.packet.to_vec());
    let polled = other.poll_last_active(Instant::now(), &mut Inbox::new(1), take);
    assert_eq!(polled.unwrap(), 2);
    assert_eq!(packets, [1, 2].map(|it| target.packet(it)));
}

#[test]
fn a_member_without_shortcuts_gets_packets_over_the_socket() {
    let sites = [Site::new(84), Site::new(85)];
    let mut one = join(&sites[0]);
    let mut other = Member::join(sites[1].address).unwrap();
    let target = Target::new(&one, &other);
    for number in 0..3 {
        target.send(&mut one, number);
        assert_eq!(taken(&mut other), [target.packet(number)]);
    }
    assert_eq!(one.counters().by_shortcut, 0);
}

#[test]
fn packets_to_the_same_process_use_the_socket() {
    let site = Site::new(86);
    let mut one = join(&site);
    let target = Target::new(&one, &one);
    for number in 0..3 {
        target.send(&mut one, number);
        assert_eq!(taken(&mut one), [target.packet(number)]);
    }
    assert_eq!(one.counters().by_shortcut, 0);
}

#[test]
fn packets_go_to_the_current_owner_of_a_number() {
    let sites = [Site::new(87), Site::new(88)];
    let [mut one, mut other] = sites.each_ref().map(join);
    // Without any member, the address would count as that of another machine for a while.
    let _stays = join(&sites[1]);
    let target = Target::new(&one, &other);
    open_rings(&target, &mut one, &mut other);
    target.send(&mut one, 1);
    drop(other);
    target.send(&mut one, 2);
    assert_eq!(one.counters().by_shortcut, 1, "only while it was there");
    let mut other = join(&sites[1]);
    let target = Target::new(&one, &other);
    // The sender reads the registry from time to time only.
    let later = Instant::now() + Duration::from_secs(1);
    target.send_at(later, &mut one, 3);
    assert_eq!(taken(&mut other), [target.packet(3)]);
    target.send_at(later, &mut one, 4);
    assert_eq!(taken(&mut other), [target.packet(4)]);
    assert_eq!(one.counters().by_shortcut, 2);
}

#[test]
fn a_sleeping_member_is_woken_by_a_packet() {
    const ROUNDS: u32 = 500;
    let sites = [Site::new(89), Site::new(90)];
    let [mut one, mut other] = sites.each_ref().map(join);
    let target = Target::new(&one, &other);
    open_rings(&target, &mut one, &mut other);
    let (say, heard) = mpsc::channel();
    thread::scope(|scope| {
        scope.spawn(move || {
            let mut inbox = Inbox::new(1);
            let mut left = ROUNDS;
            while left > 0 {
                sleep_until_packets(&mut other);
                let take = |_: ReceivedPacket<'_>| {
                    left -= 1;
                    say.send(()).unwrap();
                };
                other
                    .poll_last_active(Instant::now(), &mut inbox, take)
                    .unwrap();
            }
        });
        for number in 0..ROUNDS {
            target.send(&mut one, number);
            // Each waits for the other, so each packet may find a sleeper.
            heard.recv().unwrap();
        }
    });
    assert_eq!(one.counters().by_shortcut, u64::from(ROUNDS));
}

/// Sleeps as the driver does. Nothing else ends the sleep for a minute.
fn sleep_until_packets(member: &mut Member) {
    if member.prepare_sleep() {
        return;
    }
    let interests = member.fds().map(Interest::readable);
    let ready = wait(&interests, Some(Duration::from_secs(60))).unwrap();
    assert!((0..interests.len()).any(|index| ready.contains(index)));
}

#[test]
fn packets_keep_their_order_when_shortcuts_are_turned_off_and_on() {
    const TURNS: u32 = 20;
    const PER_TURN: u32 = 25;
    let sites = [Site::new(91), Site::new(92)];
    let [mut one, mut other] = sites.each_ref().map(join);
    let target = Target::new(&one, &other);
    open_rings(&target, &mut one, &mut other);
    let mut received = Vec::new();
    let mut inbox = Inbox::new(4);
    for turn in 0..TURNS {
        one.enable_shortcuts(turn % 2 == 0);
        for number in turn * PER_TURN..(turn + 1) * PER_TURN {
            target.send(&mut one, number);
        }
        // The socket and the mailbox are polled from time to time in between.
        let take = |it: ReceivedPacket<'_>| received.push(it.packet.to_vec());
        other.poll_mailbox_next();
        other.receive(Instant::now(), &mut inbox, take).unwrap();
    }
    while let rest = taken(&mut other)
        && !rest.is_empty()
    {
        received.extend(rest);
    }
    let all = TURNS * PER_TURN;
    assert_eq!(received.len(), all as usize, "nothing is lost");
    let sent: Vec<_> = (0..all).map(|number| target.packet(number)).collect();
    assert!(received == sent, "the order is kept");
    let by_shortcut = one.counters().by_shortcut;
    assert!(by_shortcut > 0 && by_shortcut < u64::from(all));
}

#[test]
fn packets_without_icrc_get_it_when_they_leave_the_memory() {
    let sites = [Site::new(93), Site::new(94)];
    let [mut one, mut other] = sites.each_ref().map(join);
    let target = Target::new(&one, &other);
    let sealed = target.packet(1);
    let mut open = sealed.clone();
    let length = open.len();
    open[length - 4..].fill(0);
    let mut send_and_receive = || {
        let mut bytes = open.clone();
        let sent = one.send(Instant::now(), &target.route, length, false, &mut bytes);
        sent.unwrap();
        let mut got = Vec::new();
        let mut take = |it: ReceivedPacket<'_>| got.push((it.has_icrc, it.packet.to_vec()));
        for _ in 0..16 {
            let received = other.receive(Instant::now(), &mut Inbox::new(1), &mut take);
            received.unwrap();
        }
        got
    };
    assert_eq!(send_and_receive(), [(true, sealed)], "over the socket");
    assert_eq!(send_and_receive(), [(false, open.clone())]);
}

/// Builds packets of 3,000 bytes in the memory of their receiver, the first eight bytes those of a packet to each number,
/// and sends them as one message.
fn build_in_place(target: &Target, from: &mut Member, numbers: &[u32]) -> Vec<Vec<u8>> {
    let packets = numbers.iter().map(|number| {
        let mut packet = vec![*number as u8; 3000];
        packet[..8].copy_from_slice(&[&[0x64, 0, 0xff, 0xff][..], &number.to_be_bytes()].concat());
        packet
    });
    let packets: Vec<Vec<u8>> = packets.collect();
    let bytes = packets.concat();
    let address = target.route.flow.destination;
    let room = from.reserve(Instant::now(), address, Qpn::new(target.number), 60_000);
    for (to, from) in room.expect("an open ring").iter().zip(&bytes) {
        to.store(*from, Ordering::Relaxed);
    }
    from.commit(&target.route, Qpn::new(target.number), 3000, bytes.len());
    packets
}

#[test]
fn packets_are_built_and_taken_in_shared_memory() {
    let sites = [Site::new(107), Site::new(108)];
    let [mut one, mut other] = sites.each_ref().map(join);
    let target = Target::new(&one, &other);
    let reserve = |member: &mut Member, to: &Target| {
        let (address, number) = (to.route.flow.destination, Qpn::new(to.number));
        let room = member.reserve(Instant::now(), address, number, 60_000);
        room.is_some()
    };
    let uses_memory = |member: &Member| {
        let address = target.route.flow.destination;
        member.sends_through_memory(address, Qpn::new(target.number))
    };
    assert!(!reserve(&mut one, &target), "there is no ring yet");
    assert!(!uses_memory(&one));
    open_rings(&target, &mut one, &mut other);
    assert!(uses_memory(&one));
    assert!(reserve(&mut one, &target) && !reserve(&mut one, &stray(&target)));
    let own = Target::new(&one, &one);
    assert!(!reserve(&mut one, &own), "it is its own number");

    let built = build_in_place(&target, &mut one, &[target.number, target.number + 1]);
    assert_eq!(one.counters().by_shortcut, 2);
    let mut packets = Vec::new();
    let take = |it: ReceivedPacket<'_>| {
        assert!(!it.has_icrc && !it.forwarded && it.route.flow == target.route.flow);
        let whole = PayloadBytes::Shared(it.shared.expect("it is long")).to_vec();
        assert!(whole.starts_with(it.packet) && it.packet.len() < whole.len());
        packets.push(whole);
    };
    let polled = other.poll_last_active(Instant::now(), &mut Inbox::new(1), take);
    assert_eq!((polled.unwrap(), packets), (2, built));

    one.enable_shortcuts(false);
    assert!(
        !reserve(&mut one, &target),
        "packets go over the socket now"
    );
}

/// Its writer may be out of date, or lie.
#[test]
fn a_packet_in_shared_memory_that_is_not_for_this_member_is_not_taken() {
    let sites = [Site::new(109), Site::new(110)];
    let [mut one, mut other] = sites.each_ref().map(join);
    let target = Target::new(&one, &other);
    open_rings(&target, &mut one, &mut other);
    let numbers = [target.number, stray(&target).number, target.number];
    let built = build_in_place(&target, &mut one, &numbers);
    let mut packets = Vec::new();
    let take = |it: ReceivedPacket<'_>| {
        packets.push(PayloadBytes::Shared(it.shared.expect("it is long")).to_vec());
    };
    let polled = other.poll_last_active(Instant::now(), &mut Inbox::new(1), take);
    assert_eq!(polled.unwrap(), 2);
    assert_eq!(packets, [built[0].clone(), built[2].clone()]);
    assert_eq!(other.counters().strays_lost, 1);
}
