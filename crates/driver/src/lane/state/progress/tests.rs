use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use engine::{Device, Now, ReceiveRequest, RemoteMemory, SendRequest, Work};
use statistics::PacketPath;
use wire::Key;

use super::*;
use crate::clock::now;
use crate::driver::connected_end::End;
use crate::{Driver, OpenOptions, Shortcut};

#[test]
fn responses_are_deferred_until_the_second_empty_poll() {
    let (here, there) = (End::open("127.58.91.1"), End::without_thread("127.58.91.2"));
    here.connect(&there);
    there.connect(&here);
    here.send_to(&there);

    let mut state = there.driver.lane().lock();
    let queue = state.device_mut().completion_queue(there.completions);
    let queue = queue.expect("it exists");
    let poll = |state: &mut LaneState| state.step(now(), Intent::Poll(&queue)).found;
    while poll(&mut state) == Found::Nothing {}
    assert!(state.has_unsent(), "the program may reply at once");
    assert_eq!(poll(&mut state), Found::Nothing);
    assert!(state.has_unsent(), "or after one empty poll");
    assert_eq!(poll(&mut state), Found::Nothing);
    assert!(!state.has_unsent(), "the second empty poll sends them");
}

#[test]
fn packets_that_are_received_from_the_rings_are_acknowledged() {
    let (here, there) = (End::open("127.58.91.3"), End::without_thread("127.58.91.4"));
    here.connect(&there);
    there.connect(&here);
    here.send_to(&there);
    let look = |mut state: std::sync::MutexGuard<'_, LaneState>| state.step(now(), Intent::Look);
    while look(there.driver.lane().lock()).arrived == 0 {}
    let timeout = now() + Duration::from_secs(20);
    let queue = here.driver.polled_queue(here.completions);
    let queue = queue.expect("it exists");
    while here.driver.poll(&queue).is_none() {
        assert!(now() < timeout, "no acknowledgement arrives");
    }
}

/// The program sleeps at the descriptor next. Before that, `poll` finds more packets than it receives at once, and none
/// of them completes anything.
fn leaves_no_packet_in_the_rings(
    addresses: [&str; 2],
    poll: impl Fn(&mut LaneState, &CompletionQueue, &Awaited<'_>),
) {
    let (here, there) = End::pair_with_rings(addresses);
    let channel = there.channel();
    there.driver.offer_packet_wakeups(&channel);
    there.driver.arm(there.completions, engine::Notify::Any);
    there.empty_sockets();
    (0..16).for_each(|_| here.write_nothing());
    let mut state = there.driver.lane().lock();
    let queue = state.device_mut().completion_queue(there.completions);
    let queue = queue.expect("it exists");
    poll(&mut state, &queue, &Awaited::Notification(&channel));
    let may_sleep = state.may_sleep();
    drop(state);
    // A packet that has just arrived makes the descriptor readable.
    assert!(may_sleep || there.has_readable_socket(Duration::from_secs(20)));
}

#[test]
fn a_poll_before_a_sleep_leaves_no_packet_in_the_rings() {
    leaves_no_packet_in_the_rings(["127.58.91.40", "127.58.91.41"], |state, queue, _| {
        let found = state.prepare_descriptor(now(), Intent::Poll(queue));
        assert_eq!(found, Found::Nothing);
    });
}

#[test]
fn a_poll_before_a_wait_at_the_descriptor_looks() {
    let (_here, there) = End::pair_with_rings(["127.58.91.46", "127.58.91.47"]);
    let channel = there.channel();
    there.driver.offer_packet_wakeups(&channel);
    there.empty_sockets();
    there.driver.lane().unanswered.clear();
    let queue = there.driver.polled_queue(there.completions);
    let queue = queue.expect("it exists");
    let looks = &there.driver.lane().looks.outside;
    assert!(there.driver.poll_without_yield(&queue).is_none());
    assert!(looks.is_worthwhile(), "no poll of an unarmed queue looks");
    there.driver.arm(there.completions, engine::Notify::Any);
    let begin = now();
    assert!(there.driver.poll_without_yield(&queue).is_none());
    assert!(now() >= begin + crate::times::LOOK);
    assert!(!looks.is_worthwhile(), "that one found nothing");
}

/// A look before the reply would delay it. The last post before the wait looks.
#[test]
fn a_program_that_empties_its_queue_looks_after_its_last_reply() {
    let (here, there) = End::pair_with_rings(["127.58.91.54", "127.58.91.55"]);
    let channel = there.channel();
    there.driver.offer_packet_wakeups(&channel);
    there.empty_sockets();
    let lane = there.driver.lane();
    let queue = there.driver.polled_queue(there.completions);
    let queue = queue.expect("it exists");
    let poll = || there.driver.poll_without_yield(&queue);
    lane.unanswered.clear();
    let timeout = now() + Duration::from_secs(20);
    for _ in 0..2 {
        here.send_to(&there);
        while poll().is_none() {
            assert!(now() < timeout, "no message arrives");
        }
    }
    there.driver.arm(there.completions, engine::Notify::Any);
    let [before, replies] = [&lane.looks.outside, &lane.looks.reply];
    assert!(poll().is_none());
    assert!(before.is_worthwhile(), "it did not look");
    there.write_nothing();
    assert!(replies.is_worthwhile(), "nor after the first reply");
    let begin = now();
    there.write_nothing();
    assert!(now() >= begin + crate::times::LOOK);
    assert!(!replies.is_worthwhile(), "that look found nothing");
    let may_sleep = lane.lock().may_sleep();
    assert!(may_sleep || there.has_readable_socket(Duration::from_secs(20)));
    assert!(replies.is_worthwhile(), "one opportunity was left out");
    there.write_nothing();
    assert!(replies.is_worthwhile(), "this is no reply");
}

/// A queue that is armed for solicited completions stays armed when a look finds others.
#[test]
fn a_program_waits_at_its_descriptor_after_some_looks_that_brought_completions() {
    let (here, there) = End::pair_with_rings(["127.58.91.48", "127.58.91.49"]);
    let lane = there.driver.lane();
    let queue = lane.lock().device_mut().completion_queue(there.completions);
    let queue = queue.expect("it exists");
    lane.lock().armed = Armed::Polled { looks: 0 };
    // A packet that is sent again arrives at any time. Its response, too, has to be sent before a look.
    let may_look = |state: &mut LaneState| {
        state.transmit(now());
        state.may_look_before_wait()
    };
    for _ in 0..MAX_LOOKS_PER_ARMING {
        assert!(lane.step(may_look));
        here.send_to(&there);
        let begin = now() + Duration::from_secs(20);
        let found = lane.look_before_wait(&queue, begin);
        found.expect("the message arrives");
    }
    assert!(!lane.step(may_look));
}

#[test]
fn a_poll_for_notifications_leaves_no_packet_in_the_rings() {
    leaves_no_packet_in_the_rings(["127.58.91.42", "127.58.91.43"], |state, _, awaited| {
        _ = state.step(now(), Intent::EndOfLook(awaited));
        state.prepare_descriptor(now(), Intent::BeforeDescriptor(awaited));
    });
}

#[test]
fn only_the_first_poll_after_arming_leaves_a_packet_to_the_descriptor() {
    let (here, there) = End::pair_without_rings(["127.58.91.44", "127.58.91.45"]);
    let channel = there.channel();
    there.driver.offer_packet_wakeups(&channel);
    there.empty_sockets();
    let queue = there.driver.polled_queue(there.completions);
    let queue = queue.expect("it exists");
    let poll = || there.driver.poll_without_yield(&queue);
    let timeout = Duration::from_secs(20);
    there.driver.arm(there.completions, engine::Notify::Any);
    here.send_to(&there);
    assert!(there.has_readable_socket(timeout), "the packet arrives");
    // A poll that spins before the wait would find it.
    there.driver.lane().looks.outside.note(false);
    assert!(poll().is_none() && there.has_readable_socket(Duration::ZERO));
    assert!(poll().is_some(), "the program goes on polling");
    here.send_to(&there);
    assert!(there.has_readable_socket(timeout), "the packet arrives");
    assert!(poll().is_some(), "the queue is not armed any more");
}

/// A full socket or ring would otherwise block its destination forever.
#[test]
fn packets_that_wait_are_sent_with_the_next_ones() {
    let end = End::without_thread("127.58.91.5");
    let mut state = end.driver.lane().lock();
    let own = "127.58.91.5".parse().expect("an address");
    state.sockets.stall(now(), (own, end.number), 16);
    let retry_at = state.next_deadline().expect("a retry");
    state.transmit(retry_at);
    assert_eq!(state.sockets.retry_at(), None);
}

/// A stopped process does not read its ring. Another one at the same address gets its packets all the same.
#[test]
fn a_full_ring_delays_no_other_process() {
    let addresses = ["127.58.91.52", "127.58.91.53"];
    let (here, stopped) = End::pair_with_rings(addresses);
    let (ours, other) = (End::of(&here.driver), End::without_thread(addresses[1]));
    ours.connect(&other);
    other.connect(&ours);
    let peer = addresses[1].parse().expect("an address");
    let timeout = Duration::from_secs(20);
    // Its deadline does not pass: the ring is full, and stays full.
    let start = now();
    let mut state = here.driver.lane().lock();
    for _ in 0..(12 << 20) / 60_000 {
        state.sockets.stall(start, (peer, stopped.number), 60_000);
        state.sockets.retry_backlog(&start.into());
    }
    assert!(state.sockets.retry_at().is_some(), "packets wait");
    for (sender, receiver) in [(&here, &stopped), (&ours, &other)] {
        let receive = ReceiveRequest::new(1, []);
        let posted = |device: &mut Device| device.post_receive(receiver.number, receive);
        (receiver.driver.call_without_transmit(posted)).expect("room");
        let send = SendRequest::new(2, Work::Send);
        (state.device_mut().post_send(sender.number, send)).expect("room");
    }
    state.transmit(start);
    let receives = |end: &End| {
        let queue = end.driver.polled_queue(end.completions);
        end.driver.poll_without_yield(&queue.expect("it exists"))
    };
    while receives(&other).is_none() {
        assert!(now() < start + timeout, "it waits behind the others");
    }
    assert!(state.sockets.retry_at().is_some(), "packets wait");
    // The process goes on.
    while receives(&stopped).is_none() {
        assert!(now() < start + timeout, "its packets stay behind");
        state.transmit(start);
    }
}

/// A stopped process does not read its ring, and more waits for it than may.
#[test]
fn requests_within_the_device_do_not_wait_for_others() {
    let addresses = ["127.58.91.54", "127.58.91.55"];
    let (here, stopped) = End::pair_with_rings(addresses);
    let (ours, other) = ends_of(&here.driver);
    let peer = addresses[1].parse().expect("an address");
    let (start, timeout) = (now(), Duration::from_secs(20));
    let mut state = here.driver.lane().lock();
    while !state.sockets.is_congested() {
        assert!(now() < start + timeout, "the ring is full");
        state.sockets.stall(start, (peer, stopped.number), 60_000);
        state.sockets.retry_backlog(&start.into());
    }
    let before = state.device_mut().counters().delivered_to_self;
    let receive = ReceiveRequest::new(1, []);
    let posted = state.device_mut().post_receive(other.number, receive);
    posted.expect("room");
    let nothing = RemoteMemory {
        address: 0,
        key: Key::new(0),
    };
    // Unlike a SEND, this is never executed without packets.
    let write = Work::WriteImmediate(nothing, [0; 4]);
    for (sender, work) in [(&here, Work::Send), (&ours, write)] {
        let send = SendRequest::new(2, work);
        let posted = state.device_mut().post_send(sender.number, send);
        posted.expect("room");
    }
    state.transmit(start);
    assert!(state.sockets.is_congested());
    let delivered = state.device_mut().counters().delivered_to_self - before;
    assert_eq!(delivered, 2, "the message and its acknowledgement");
}

/// The manager keeps it, and the call returns.
#[test]
fn a_message_of_the_manager_for_which_there_is_no_room_is_sent_later() {
    let addresses = ["127.58.91.50", "127.58.91.51"];
    let (here, there) = End::pair_with_rings(addresses);
    let [_, peer] = addresses.map(|it| it.parse().expect("an address"));
    let mut state = here.driver.lane().lock();
    let (start, timeout) = (now(), Duration::from_secs(20));
    while !state.sockets.is_congested() {
        assert!(now() < start + timeout, "the ring is full");
        state.sockets.stall(start, (peer, there.number), 60_000);
        state.sockets.retry_backlog(&start.into());
    }
    let space = wire::cm::PortSpace::Tcp;
    let kind = cm::ServiceType::of(space);
    let id = state.manager().create_id(space, kind).expect("room");
    let peer = (peer, 7183).into();
    let resolves = (state.manager()).resolve_address(start, id, None, peer, timeout);
    resolves.expect("a new id");
    state.transmit(start);
    let resolves = state.manager().resolve_route(start, id, timeout);
    resolves.expect("an address of this machine");
    state.transmit(start);
    let parameters = cm::Parameters::new(here.number);
    let connects = state.manager().connect(start, id, &parameters);
    connects.expect("the route is known");
    state.transmit(start);
    assert!(state.has_cm_output(), "there was no room");
    while state.has_cm_output() {
        assert!(now() < start + timeout, "it is sent");
        let mut reader = there.driver.lane().lock();
        _ = reader.step(now(), Intent::Serve);
        state.transmit(now());
    }
}

#[test]
fn counters_are_published_when_they_are_due() {
    let end = End::without_thread("127.58.91.6");
    let mut state = end.driver.lane().lock();
    let later = now() + Duration::from_secs(1);
    assert!(state.statistics.is_due(&later.into()));
    state.publish_statistics(&later.into());
    assert!(!state.statistics.is_due(&later.into()));
}

/// Two connected ends of one device that have sent before.
fn ends_of_one_device(address: &str, shortcut: Shortcut) -> (End, End) {
    let options = OpenOptions {
        shortcut,
        ..OpenOptions::default()
    };
    ends_of(&Driver::open(address, &options).expect("a loopback address"))
}

fn ends_of(driver: &Arc<Driver>) -> (End, End) {
    let (here, there) = (End::of(driver), End::of(driver));
    here.connect(&there);
    there.connect(&here);
    // The first packet goes through a socket. Then the device knows that it sends to itself.
    (0..2).for_each(|_| here.send_to(&there));
    (here, there)
}

#[test]
fn a_post_within_the_device_does_not_read_the_clock() {
    let (here, there) = ends_of_one_device("127.58.91.9", Shortcut::Always);
    let mut state = here.driver.lane().lock();
    let receive = ReceiveRequest::new(1, []);
    let posted = state.device_mut().post_receive(there.number, receive);
    posted.expect("room");
    let before = state.device_mut().counters().delivered_to_self;
    let send = SendRequest::new(2, Work::Send);
    let posted = state.device_mut().post_send(here.number, send);
    posted.expect("room");
    let now = Now::read_by(now);
    state.transmit_at(&now);
    assert_eq!(now.known(), None);
    let delivered = state.device_mut().counters().delivered_to_self - before;
    assert_eq!(delivered, 2, "the message and its acknowledgement");
}

/// Otherwise a capture that begins on loopback misses them.
#[test]
fn a_post_within_the_device_checks_who_uses_loopback_when_that_is_due() {
    let (here, there) = ends_of(&Driver::without_thread("127.58.91.14"));
    let lane = here.driver.lane();
    let is_due = || lane.lock().shortcut.is_due(&Now::read_by(now));
    lane.lock().serve(now() + Duration::from_secs(1));
    assert!(is_due());
    lane.note_change_without_lock();
    here.takes_wake_up();
    here.send_to(&there);
    assert!(!is_due());
    assert!(here.takes_wake_up(), "the thread ends the decision in time");
}

#[test]
fn a_post_within_the_device_is_published_and_sends_deferred_responses() {
    let (here, _there) = ends_of(&Driver::without_thread("127.58.91.15"));
    let lane = here.driver.lane();
    lane.changed_without_lock.store(false, Ordering::Release);
    here.write_nothing();
    assert!(lane.changed_without_lock.load(Ordering::Acquire));
    lane.lock().defer_responses();
    here.write_nothing();
    assert!(!lane.lock().has_unsent());
}

/// Such polls look for no packets, and leave them to the lane's thread.
#[test]
fn packets_arrive_while_each_poll_finds_a_completion_of_the_device_itself() {
    let (left, right) = ends_of_one_device("127.58.91.16", Shortcut::Always);
    let (target, peer) = (End::of(&left.driver), End::without_thread("127.58.91.17"));
    target.connect(&peer);
    peer.connect(&target);
    let polled = |end: &End| end.driver.polled_queue(end.completions).expect("it exists");
    let [own, others, sent] = [&left, &right, &peer].map(polled);
    while left.driver.poll(&own).is_some() || right.driver.poll(&others).is_some() {}
    peer.send_to(&target);
    let timeout = now() + Duration::from_secs(20);
    while peer.driver.poll_without_yield(&sent).is_none() {
        assert!(now() < timeout, "the message is not acknowledged");
        left.send_to(&right);
        assert!(left.driver.poll(&own).is_some());
        assert!(right.driver.poll(&others).is_some());
    }
}

#[test]
fn a_device_that_no_longer_sends_is_not_woken_to_check_the_loopback_interface() {
    let (here, _there) = ends_of_one_device("127.58.91.10", Shortcut::Auto);
    let mut state = here.driver.lane().lock();
    state.serve(now() + Duration::from_secs(1));
    assert_eq!(state.shortcut.deadline(), None);
}

#[test]
fn a_link_that_goes_down_is_published() {
    let end = End::without_thread("127.58.91.7");
    let mut state = end.driver.lane().lock();
    state.publish_statistics(&(now() + Duration::from_secs(1)).into());
    assert_eq!(state.statistics_deadline(), None, "all is published");
    state.update_interfaces(&[]);
    assert!(state.statistics_deadline().is_some());
}

/// The check costs a tenth of a millisecond, and a device that does nothing must cost nothing.
#[test]
fn a_device_with_nothing_to_send_does_not_check_who_uses_loopback() {
    let (here, there) = (
        End::without_thread("127.58.91.11"),
        End::without_thread("127.58.91.12"),
    );
    here.connect(&there);
    there.connect(&here);
    let mut state = here.driver.lane().lock();
    state.shortcut.note_needed();
    state.serve(now());
    assert!(
        state.shortcut.is_due(&now().into()),
        "it has nothing to send"
    );
    drop(state);
    here.send_to(&there);
    let state = here.driver.lane().lock();
    // As a call that does not know the time: it may be late, and then the check is due again.
    let is_due = state.shortcut.is_due(&Now::read_by(now));
    assert!(!is_due, "a post has checked it");
}

#[test]
fn a_poll_checks_who_uses_loopback_for_the_next_post() {
    let end = End::without_thread("127.58.91.13");
    let mut state = end.driver.lane().lock();
    let queue = state.device_mut().completion_queue(end.completions);
    let queue = queue.expect("it exists");
    state.shortcut.note_needed();
    assert_eq!(
        state.step(now(), Intent::Poll(&queue)).found,
        Found::Nothing
    );
    assert!(!state.shortcut.is_due(&Now::read_by(now)));
}

#[test]
fn a_device_without_segmentation_sends_its_packets_one_by_one() {
    let options = OpenOptions {
        segmentation: false,
        ..OpenOptions::default()
    };
    let driver = Driver::open("127.58.91.8", &options).expect("a loopback address");
    let state = driver.lane().lock();
    assert!(!state.sockets.segmentation());
}

#[test]
fn statistics_tell_that_packets_pass_through_shared_memory() {
    let options = OpenOptions {
        shortcut: Shortcut::Always,
        ..OpenOptions::default()
    };
    let open = |address| Driver::open(address, &options).expect("a loopback address");
    let (here, there) = (
        End::of(&open("127.58.91.9")),
        End::of(&open("127.58.91.10")),
    );
    here.connect(&there);
    there.connect(&here);
    let address = "127.58.91.10".parse().expect("an address");
    let path = || {
        let state = here.driver.lane().lock();
        state.sockets.packet_path(address, there.number)
    };
    assert_eq!(path(), PacketPath::Sockets, "nothing was sent");
    let timeout = now() + Duration::from_secs(20);
    while path() != PacketPath::SharedMemory {
        here.send_to(&there);
        for end in [&here, &there] {
            let queue = end.driver.polled_queue(end.completions);
            let queue = queue.expect("it exists");
            while end.driver.poll(&queue).is_none() {
                assert!(now() < timeout, "the message is lost");
            }
        }
        assert!(now() < timeout, "its packets go through sockets");
    }
}
