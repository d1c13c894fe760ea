//! What a lane still does when its device closes.

use std::net::UdpSocket;
use std::thread::yield_now;
use std::time::Duration;

use wire::{Qpn, ROCE_PORT};

use crate::Driver;
use crate::clock::now;
use crate::driver::connected_end::End;

const TIMEOUT: Duration = Duration::from_secs(20);

fn await_completion(end: &End) {
    let queue = end.driver.polled_queue(end.completions);
    let queue = queue.expect("it exists");
    let deadline = now() + TIMEOUT;
    while end.driver.poll_without_yield(&queue).is_none() {
        assert!(now() < deadline, "no completion");
        yield_now();
    }
}

/// A program that has got its message may close its device before it polls again.
#[test]
fn a_device_that_closes_acknowledges_what_it_has_received() {
    let (here, there) = End::pair_without_rings(["127.58.94.1", "127.58.94.2"]);
    here.send_to(&there);
    await_completion(&there);
    let waits = there.driver.lane().lock().has_unsent();
    assert!(waits, "the reply of the program could take it along");
    drop(there);
    await_completion(&here);
}

#[test]
fn a_device_that_closes_sends_the_packets_that_wait_for_room() {
    let peer = UdpSocket::bind(("127.58.94.4", ROCE_PORT)).expect("a free port");
    peer.set_read_timeout(Some(TIMEOUT)).expect("a time");
    let address = peer.local_addr().expect("it is bound").ip();
    let driver = Driver::without_thread("127.58.94.3");
    let mut state = driver.lane().lock();
    state.sockets.stall(now(), (address, Qpn::new(8)), 64);
    drop(state);
    drop(driver);
    assert_eq!(peer.recv(&mut [0; 128]).expect("a packet"), 64);
}
