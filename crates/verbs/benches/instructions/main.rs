//! A fixed number of requests between two queue pairs of one process, of one device or of two, for a tool that counts instructions.
//!
//! `cargo xtask bench --instructions` runs it twice under callgrind, with different counts, and divides the difference. So what the
//! program does once does not count.

use rocinante::{
    Access, CompletionQueue, Context, MemoryRegion, OpenOptions, ProtectionDomain, QueuePair,
    Request, Shortcut, Status,
};

/// The longest message.
const LARGE: usize = 64 << 10;

/// How many requests between two devices are outstanding.
const OUTSTANDING: usize = 16;

/// What is counted.
#[derive(Clone, Copy)]
enum Operation {
    Write,
    Read,
    Send,
    /// A poll of an empty queue.
    Poll,
    /// As between two processes, through a ring in shared memory. The same thread polls both ends, so nobody waits.
    RingWrite,
    RingSend,
}

impl Operation {
    fn named(name: &str) -> Self {
        match name {
            "write" => Self::Write,
            "read" => Self::Read,
            "send" => Self::Send,
            "poll" => Self::Poll,
            "ring-write" => Self::RingWrite,
            "ring-send" => Self::RingSend,
            _ => panic!("{name} is not write, read, send, poll, ring-write or ring-send"),
        }
    }
}

/// A connection of a device with itself, or of two.
struct Loop {
    completions: CompletionQueue,
    /// The queue of the right end.
    others: CompletionQueue,
    source: MemoryRegion,
    target: MemoryRegion,
    left: QueuePair,
    right: QueuePair,
}

impl Loop {
    fn open(is_one_device: bool) -> Self {
        // Otherwise the device asks the kernel from time to time whether a program captures, and time passes slowly here.
        let options = OpenOptions {
            shortcut: Shortcut::Always,
            ..OpenOptions::default()
        };
        let open = |address| Context::open_with(address, &options).expect("a loopback address");
        let context = open("127.61.0.6");
        let create = |context: &Context| {
            let domain = context.allocate_protection_domain().expect("room");
            let queue = context.create_completion_queue(4 * OUTSTANDING as u32);
            (domain, queue.expect("room"))
        };
        let (domain, completions) = create(&context);
        let (other_domain, others) = if is_one_device {
            (domain.clone(), completions.clone())
        } else {
            create(&open("127.61.0.7"))
        };
        let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ;
        let allocate = |domain: &ProtectionDomain| domain.allocate_memory(LARGE, access);
        let (source, target) = (allocate(&domain), allocate(&other_domain));
        let make = |domain: &ProtectionDomain, queue| {
            let builder = domain.queue_pair_builder(queue);
            let builder = builder.depth(OUTSTANDING as u32, OUTSTANDING as u32);
            builder.create_reliable().expect("room")
        };
        let left = make(&domain, &completions);
        let right = make(&other_domain, &others);
        let (here, there) = (left.endpoint(), right.endpoint());
        Self {
            completions,
            others,
            source: source.expect("room"),
            target: target.expect("room"),
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
            Operation::RingWrite | Operation::RingSend => unreachable!("several run at once"),
        };
        for _ in 0..completions {
            let done = std::iter::repeat_with(|| self.completions.poll()).find_map(|done| done);
            assert_eq!(done.map(|done| done.status), Some(Status::Success));
        }
    }

    /// Posts requests to the other device, and polls until all are complete.
    fn run_several(&self, operation: Operation, length: usize) {
        let is_send = matches!(operation, Operation::RingSend);
        for _ in 0..OUTSTANDING {
            let local = self.source.slice(..length);
            if is_send {
                let receive = self.right.post_receive(0, [self.target.slice(..length)]);
                receive.expect("room");
                self.post(Request::send().data(local));
            } else {
                self.post(Request::write(self.target.remote(0)).data(local));
            }
        }
        let mut missing = [OUTSTANDING, if is_send { OUTSTANDING } else { 0 }];
        while missing != [0; 2] {
            for (queue, missing) in [&self.others, &self.completions]
                .into_iter()
                .zip(missing.iter_mut().rev())
            {
                *missing -= queue.poll().into_iter().count();
            }
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
    match operation {
        Operation::RingWrite | Operation::RingSend => {
            let ends = Loop::open(false);
            (0..count / OUTSTANDING).for_each(|_| ends.run_several(operation, length));
        }
        _ => {
            let ends = Loop::open(true);
            (0..count).for_each(|_| ends.run(operation, length));
        }
    }
}
