//! One end of a connection, for the tests of this crate.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use engine::{
    Access, Address, Attributes, CompletionQueue, Device, Id, QueuePairInit, QueuePairType,
    ReceiveRequest, RemoteMemory, SendFlags, SendRequest, State, Work,
};
use net::poll::{Interest, wait};
use wire::{Gid, Key, Psn, Qpn};

use crate::clock::now;
use crate::lane::state::Intent;
use crate::{Awaited, Driver, Notifier, OpenOptions, Shortcut};

/// An open device with a queue pair.
pub(crate) struct End {
    pub(crate) driver: Arc<Driver>,
    pub(crate) completions: Id<CompletionQueue>,
    pub(crate) number: Qpn,
}

impl End {
    pub(crate) fn open(address: &str) -> Self {
        let driver = Driver::open(address, &OpenOptions::default());
        Self::of(&driver.expect("a loopback address"))
    }

    /// Only the test serves this device.
    pub(crate) fn without_thread(address: &str) -> Self {
        Self::of(&Driver::without_thread(address))
    }

    pub(crate) fn of(driver: &Arc<Driver>) -> Self {
        let (domain, completions) = driver.call(|device| {
            let completions = device.create_completion_queue(8).expect("room");
            (device.allocate_domain().expect("room"), completions)
        });
        let init = QueuePairInit::new(QueuePairType::Rc, domain, completions);
        let (driver, number) = driver.create_queue_pair(init).expect("room");
        Self {
            driver,
            completions,
            number,
        }
    }

    fn gid(&self) -> Gid {
        self.driver.gids()[0]
    }

    pub(crate) fn connect(&self, peer: &Self) {
        self.go_to(&Self::steps(peer));
    }

    /// As [`connect`](Self::connect), but it can't send yet.
    pub(crate) fn connect_to_receive(&self, peer: &Self) {
        let [initialize, receive, _] = Self::steps(peer);
        self.go_to(&[initialize, receive]);
    }

    fn go_to(&self, steps: &[Attributes]) {
        for step in steps {
            let modified = self
                .driver
                .call_after_flush(|device| device.modify(self.number, step));
            modified.expect("a legal transition");
        }
    }

    /// The ACK timeout is off, so that nothing is retransmitted.
    fn steps(peer: &Self) -> [Attributes; 3] {
        [
            Attributes {
                state: Some(State::Initialized),
                port: Some(1),
                partition_index: Some(0),
                access: Some(Access::REMOTE_WRITE),
                ..Attributes::default()
            },
            Attributes {
                state: Some(State::ReadyToReceive),
                path: Some(Address::new(peer.gid(), 0)),
                path_mtu: Some(wire::PathMtu::Mtu1024),
                destination: Some(peer.number),
                receive_psn: Some(Psn::new(7)),
                responder_resources: Some(1),
                rnr_timer: Some(wire::RnrTimer::default()),
                ..Attributes::default()
            },
            Attributes {
                state: Some(State::ReadyToSend),
                send_psn: Some(Psn::new(7)),
                ack_timeout: Some(wire::AckTimeout::new(0).expect("a five-bit code")),
                retry_count: Some(7),
                rnr_retry: Some(7),
                initiator_depth: Some(1),
                ..Attributes::default()
            },
        ]
    }

    /// A channel at whose descriptor the program of this end waits for completions.
    pub(crate) fn channel(&self) -> Arc<Notifier> {
        let notifier = Arc::new(Notifier::new().expect("a descriptor"));
        notifier.expose();
        notifier.notify(7);
        assert_eq!(notifier.take(), Some(7), "without a sleep in the library");
        self.driver.set_notifier(self.completions, &notifier, 7);
        notifier
    }

    /// Posts a receive at the peer, and a send to it.
    pub(crate) fn send_to(&self, peer: &Self) {
        let receive = ReceiveRequest::new(1, []);
        let posted = |device: &mut Device| device.post_receive(peer.number, receive);
        peer.driver.call_without_transmit(posted).expect("room");
        let send = SendRequest::new(2, Work::Send);
        let posted = |device: &mut Device| device.post_send(self.number, send);
        self.driver.post(posted).expect("room");
    }

    /// Posts a write without data, which completes nothing at either end.
    pub(crate) fn write_nothing(&self) {
        let target = RemoteMemory {
            address: 0,
            key: Key::new(0),
        };
        let mut write = SendRequest::new(2, Work::Write(target));
        write.flags = SendFlags::empty();
        let posted = |device: &mut Device| device.post_send(self.number, write);
        self.driver.post(posted).expect("room");
    }

    /// An end with a thread and one without, connected through sockets.
    pub(crate) fn pair_without_rings([left, right]: [&str; 2]) -> (Self, Self) {
        let options = OpenOptions {
            shortcut: Shortcut::Never,
            ..OpenOptions::default()
        };
        let here = Driver::open(left, &options).expect("a loopback address");
        let (here, there) = (Self::of(&here), Self::without_thread(right));
        here.connect(&there);
        there.connect(&here);
        (here, there)
    }

    /// An end with a thread and one without, connected, with a ring in each direction.
    pub(crate) fn pair_with_rings([left, right]: [&str; 2]) -> (Self, Self) {
        let (here, there) = (Self::open(left), Self::without_thread(right));
        here.connect(&there);
        there.connect(&here);
        let timeout = now() + Duration::from_secs(20);
        let ends = [&here, &there];
        let queues = ends.map(|end| end.driver.polled_queue(end.completions).expect("it exists"));
        while !ends
            .iter()
            .all(|end| end.driver.lane().lock().has_shortcuts())
        {
            here.send_to(&there);
            there.send_to(&here);
            let mut missing = [2; 2];
            while missing != [0; 2] {
                assert!(
                    now() < timeout,
                    "a message or an acknowledgement is missing"
                );
                for ((end, queue), missing) in ends.iter().zip(&queues).zip(&mut missing) {
                    *missing -= usize::from(end.driver.poll_without_yield(queue).is_some());
                }
            }
        }
        (here, there)
    }

    /// Whether a descriptor of packets is readable, at the latest after `timeout`.
    pub(crate) fn has_readable_socket(&self, timeout: Duration) -> bool {
        let sources = self.driver.lane().poll_sources();
        let mut interests = Vec::new();
        sources.add_to(&mut interests);
        !wait(&interests, Some(timeout))
            .expect("descriptors")
            .is_empty()
    }

    /// Receives everything, also from the mailboxes.
    pub(crate) fn empty_sockets(&self) {
        let nothing = Notifier::without_descriptor();
        while self.has_readable_socket(Duration::ZERO) {
            let mut state = self.driver.lane().lock();
            let _ = state.step(
                now(),
                Intent::AtDescriptor(&Awaited::Notification(&nothing)),
            );
            state.transmit(now());
        }
    }

    /// Whether the lane's thread has been woken since the last call; only for a device without one.
    pub(crate) fn takes_wake_up(&self) -> bool {
        let waker = &self.driver.lane().waker;
        let ready = wait(&[Interest::readable(waker.as_fd())], Some(Duration::ZERO));
        let woken = !ready.expect("a descriptor").is_empty();
        if woken {
            waker.clear();
        }
        woken
    }
}
