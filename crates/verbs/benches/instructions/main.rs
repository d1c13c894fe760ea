//! A fixed number of requests between two queue pairs of one process, for a tool that counts instructions.
//!
//! `cargo xtask bench --instructions` runs it twice under callgrind, with different counts, and divides the difference. So what the
//! program does once does not count.

use rocinante::{
    Access, CompletionQueue, Context, MemoryRegion, OpenOptions, QueuePair, Request, Shortcut,
    Status,
};

/// The longest message.
const LARGE: usize = 64 << 10;

/// What is counted.
#[derive(Clone, Copy)]
enum Operation {
    Write,
    Read,
    Send,
    /// A poll of an empty queue.
    Poll,
}

impl Operation {
    fn named(name: &str) -> Self {
        match name {
            "write" => Self::Write,
            "read" => Self::Read,
            "send" => Self::Send,
            "poll" => Self::Poll,
            _ => panic!("{name} is not write, read, send or poll"),
        }
    }
}

/// A connection of a device with itself.
struct Loop {
    completions: CompletionQueue,
    source: MemoryRegion,
    target: MemoryRegion,
    left: QueuePair,
    right: QueuePair,
}

impl Loop {
    fn open() -> Self {
        // Otherwise the device asks the kernel from time to time whether a program captures, and time passes slowly here.
        let options = OpenOptions {
            shortcut: Shortcut::Always,
            ..OpenOptions::default()
        };
        let context = Context::open_with("127.61.0.6", &options).expect("a loopback address");
        let domain = context.allocate_protection_domain().expect("room");
        let completions = context.create_completion_queue(16).expect("room");
        let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ;
        let allocate = || domain.allocate_memory(LARGE, access).expect("room");
        let (source, target) = (allocate(), allocate());
        let make = || {
            let builder = domain.queue_pair_builder(&completions).depth(4, 4);
            builder.create_reliable().expect("room")
        };
        let (left, right) = (make(), make());
        let (here, there) = (left.endpoint(), right.endpoint());
        Self {
            completions,
            source,
            target,
            left: left.connect(there).expect("a peer"),
            right: right.connect(here).expect("a peer"),
        }
    }

    /// Posts one request, and polls its completions.
    fn run(&self, operation: Operation, length: usize) {
        let (remote, local) = (self.target.remote(0), self.source.slice(..length));
        let completions = match operation {
            Operation::Write => self.post(Request::write(remote).data(local)),
            Operation::Read => self.post(Request::read(remote).data(local)),
            Operation::Send => {
                let receive = self.right.post_receive(0, [self.target.slice(..length)]);
                receive.expect("room");
                self.post(Request::send().data(local)) + 1
            }
            Operation::Poll => return assert!(self.completions.poll().is_none()),
        };
        for _ in 0..completions {
            let done = std::iter::repeat_with(|| self.completions.poll()).find_map(|done| done);
            assert_eq!(done.map(|done| done.status), Some(Status::Success));
        }
    }

    /// Returns how many completions the sender gets.
    fn post(&self, request: Request) -> usize {
        self.left.post_send(request).expect("room");
        1
    }
}

fn main() {
    // Cargo adds flags of its own.
    let arguments = std::env::args().skip(1).filter(|it| !it.starts_with("--"));
    let arguments: Vec<String> = arguments.collect();
    let [operation, length, count] = &arguments[..] else {
        return println!("for cargo xtask bench --instructions: OPERATION LENGTH COUNT");
    };
    let number = |text: &String| text.parse::<usize>().expect("a number");
    let (length, count) = (number(length), number(count));
    let operation = Operation::named(operation);
    let ends = Loop::open();
    for _ in 0..count {
        ends.run(operation, length);
    }
}
