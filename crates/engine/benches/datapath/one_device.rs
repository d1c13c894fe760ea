//! A fixed number of requests between two queue pairs of one device, for a tool that counts instructions.
//!
//! `cargo xtask bench --instructions` runs it twice under callgrind, with different counts, and divides the difference.

use std::sync::Arc;
use std::time::Instant;

use engine::{
    Completion, CompletionQueue, Now, ReceiveRequest, RemoteMemory, Segment, SendRequest, Status,
    Work,
};
use wire::PathMtu;

use crate::pair::End;

/// The longest message.
const LARGE: usize = 64 << 10;

/// Runs so many requests, one after the other.
pub(crate) fn run(operation: &str, length: &str, count: &str) {
    let number = |text: &str| text.parse().expect("a number");
    let (length, count): (u32, u32) = (number(length), number(count));
    let mut device = Loop::new();
    for _ in 0..count {
        device.run(operation, length);
    }
}

/// A connection of a device with itself.
struct Loop {
    end: End,
    completions: Arc<CompletionQueue>,
    now: Now,
    packets: Vec<u8>,
}

impl Loop {
    fn new() -> Self {
        let mut end = End::new([10, 0, 0, 1], PathMtu::Mtu4096, 2, LARGE);
        let [left, right] = end.queue_pairs[..] else {
            unreachable!("two queue pairs were created");
        };
        let gid = end.gid;
        end.connect(left, right, gid, PathMtu::Mtu4096);
        end.connect(right, left, gid, PathMtu::Mtu4096);
        end.device.set_own_delivery(true);
        let completions = end.device.completion_queue(end.completions);
        Self {
            completions: completions.expect("it was created"),
            end,
            now: Instant::now().into(),
            packets: Vec::new(),
        }
    }

    /// Posts one request, and polls its completions.
    fn run(&mut self, operation: &str, length: u32) {
        let [(_, local), (_, target)] = &self.end.regions[..] else {
            unreachable!("two regions were registered");
        };
        let remote = RemoteMemory {
            address: target.address,
            key: target.remote_key,
        };
        let segment = |address, key| Segment {
            address,
            length,
            key,
        };
        let source = segment(local.address, local.local_key);
        let (left, right) = (self.end.queue_pairs[0], self.end.queue_pairs[1]);
        let (work, completions) = match operation {
            "write" => (Work::Write(remote), 1),
            "read" => (Work::Read(remote), 1),
            "send" => {
                let filled = segment(target.address, target.local_key);
                let receive = ReceiveRequest::new(0, [filled]);
                let posted = self.end.device.post_receive(right, receive);
                posted.expect("room");
                (Work::Send, 2)
            }
            _ => panic!("{operation} is not write, read or send"),
        };
        let request = SendRequest::new(0, work).with([source]);
        let device = &mut self.end.device;
        device.post_send(left, request).expect("room");
        while device.may_transmit(&self.now) {
            let sent = device.poll_transmit_shared(&self.now, &mut self.packets, &mut ());
            assert!(sent.is_none(), "nothing leaves the device");
        }
        for _ in 0..completions {
            let done: Option<Completion> = self.completions.pop();
            assert_eq!(done.map(|done| done.status), Some(Status::Success));
        }
    }
}
