//! A child process: it reads commands as lines and reports events as lines.

use std::collections::BTreeMap;
use std::io::BufRead;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use rocinante::{
    Access, Completion, CompletionQueue, Context, Endpoint, Key, MemoryRegion, PreparedQueuePair,
    ProtectionDomain, QueuePair, RemoteMemory, Request, Status,
};

/// Where the parent finds the address in the environment.
pub(crate) const ADDRESS: &str = "ROCI_TEST_ADDRESS";

/// The number of peers that fit: each counts in eight bytes of its own.
const PEERS: usize = 64;

struct Peer {
    queue_pair: QueuePair,
    remote: RemoteMemory,
    /// How many additions have completed.
    counted: u64,
}

struct Child {
    domain: ProtectionDomain,
    completions: CompletionQueue,
    /// First the counters that peers add to, then where the results of our own additions go.
    memory: MemoryRegion,
    prepared: BTreeMap<usize, PreparedQueuePair>,
    peers: BTreeMap<usize, Peer>,
    stopping: bool,
}

pub(crate) fn run() {
    let address = std::env::var(ADDRESS).expect("the parent says which address");
    let context = Context::open(&address).expect("an address of this machine");
    let domain = context.allocate_protection_domain().expect("room");
    let completions = context.create_completion_queue(1024).expect("room");
    let access = Access::LOCAL_WRITE | Access::REMOTE_ATOMIC;
    let memory = domain.allocate_memory(2 * PEERS * 8, access).expect("room");
    println!("ready");
    let mut child = Child {
        domain,
        completions,
        memory,
        prepared: BTreeMap::new(),
        peers: BTreeMap::new(),
        stopping: false,
    };
    let lines = read_lines();
    while child.turn(&lines) {}
}

fn read_lines() -> Receiver<String> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                return;
            }
        }
        // The parent is gone.
        std::process::exit(1);
    });
    receiver
}

impl Child {
    /// Looks at orders and completions; false when it is time to go.
    fn turn(&mut self, lines: &Receiver<String>) -> bool {
        while let Ok(line) = lines.try_recv() {
            let words: Vec<&str> = line.split_whitespace().collect();
            match words.as_slice() {
                ["prepare", peer] => self.prepare(number(peer)),
                ["connect", peer, endpoint, at, key] => {
                    self.connect(number(peer), endpoint, at, key);
                }
                ["report"] => self.report(),
                ["stop"] => self.stopping = true,
                ["counters"] => self.print_counters(),
                ["exit"] => return false,
                _ => panic!("what is `{line}`?"),
            }
        }
        if let Some(completion) = self.completions.wait_for(Duration::from_millis(2)) {
            self.note(&completion);
        }
        true
    }

    fn prepare(&mut self, peer: usize) {
        let builder = self
            .domain
            .queue_pair_builder(&self.completions)
            .depth(4, 4);
        let prepared = builder.create_reliable().expect("room");
        let remote = self.memory.remote(peer * 8);
        let (at, key) = (remote.address, remote.key.value());
        println!("endpoint {peer} {} {at} {key}", prepared.endpoint());
        self.prepared.insert(peer, prepared);
    }

    fn connect(&mut self, peer: usize, endpoint: &str, at: &str, key: &str) {
        let prepared = self.prepared.remove(&peer).expect("it was prepared");
        let endpoint: Endpoint = endpoint.parse().expect("an endpoint");
        let queue_pair = prepared.connect(endpoint).expect("a peer");
        let remote = RemoteMemory {
            address: at.parse().expect("an address"),
            key: Key::new(key.parse().expect("a key")),
        };
        let connected = Peer {
            queue_pair,
            remote,
            counted: 0,
        };
        self.peers.insert(peer, connected);
        self.add(peer);
    }

    fn add(&mut self, peer: usize) {
        let result = (PEERS + peer) * 8;
        let Some(connected) = self.peers.get(&peer) else {
            return;
        };
        let request = Request::fetch_add(connected.remote, 1)
            .data(self.memory.slice(result..result + 8))
            .id(peer as u64);
        connected
            .queue_pair
            .post_send(request)
            .expect("room for one");
    }

    fn note(&mut self, completion: &Completion) {
        let peer = completion.id as usize;
        if completion.status != Status::Success {
            println!("lost {peer} {:?}", completion.status);
            self.peers.remove(&peer);
            return;
        }
        let Some(connected) = self.peers.get_mut(&peer) else {
            return;
        };
        connected.counted += 1;
        if self.stopping {
            println!("quiet {peer} {}", connected.counted);
        } else {
            self.add(peer);
        }
    }

    fn report(&self) {
        for (peer, connected) in &self.peers {
            println!("progress {peer} {}", connected.counted);
        }
        println!("reported");
    }

    fn print_counters(&self) {
        for peer in 0..PEERS {
            let bytes = self.memory.to_vec(peer * 8..peer * 8 + 8);
            let count = u64::from_ne_bytes(bytes.try_into().expect("eight bytes"));
            println!("counter {peer} {count}");
        }
        println!("counted");
    }
}

fn number(text: &str) -> usize {
    text.parse().expect("a number")
}
