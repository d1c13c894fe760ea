//! The order of requests, from records that no device wrote.

use std::net::IpAddr;

use super::accesses::MAX_ACCESSES;
use super::*;

const TARGET: u64 = 1;

fn queue_pair(process: u64, peer: u64) -> QueuePairName {
    let address = IpAddr::from([10, 0, 0, process as u8]);
    name(address, Qpn::new((process << 8 | peer) as u32))
}

/// The target's view of processes that are all connected with each other.
struct Conversation {
    order: ProcessOrder,
    posted: HashMap<QueuePairName, u64>,
}

impl Conversation {
    fn new(processes: u64) -> Self {
        let mut it = Self {
            order: ProcessOrder::new(TARGET, TARGET as u32),
            posted: HashMap::new(),
        };
        for process in TARGET..=processes {
            for other in (TARGET..=processes).filter(|other| *other != process) {
                it.connects(process, other);
            }
        }
        it
    }

    fn happens(&mut self, process: u64, event: Event) -> usize {
        let record = Record {
            process,
            pid: process as u32,
            event,
        };
        let mut findings: Vec<Finding<()>> = Vec::new();
        assert!(self.order.replay(&record.encode(), &mut findings));
        findings.len()
    }

    fn connects(&mut self, process: u64, peer: u64) {
        let (queue_pair, peer) = (queue_pair(process, peer), queue_pair(peer, process));
        assert_eq!(
            self.happens(process, Event::Connected { queue_pair, peer }),
            0
        );
    }

    /// A process posts a request. Returns its number.
    fn posts(&mut self, process: u64, peer: u64, operation: u8) -> u64 {
        let queue_pair = queue_pair(process, peer);
        let count = self.posted.entry(queue_pair).or_insert(0);
        let message = *count;
        *count += 1;
        let posted = Event::Posted {
            queue_pair,
            message,
            operation,
            id: 0,
        };
        assert_eq!(self.happens(process, posted), 0);
        message
    }

    fn polls(&mut self, process: u64, peer: u64, message: u64) {
        let queue_pair = queue_pair(process, peer);
        let polled = Event::Polled {
            queue_pair,
            message,
        };
        assert_eq!(self.happens(process, polled), 0);
    }

    /// A process writes a word of the target, and polls the completion. Returns the number of findings.
    fn writes(&mut self, process: u64) -> usize {
        let message = self.posts(process, TARGET, 1);
        let found = self.executes(process, message, RemoteAccessKind::Write, 0);
        self.polls(process, TARGET, message);
        found
    }

    fn executes(
        &mut self,
        process: u64,
        message: u64,
        kind: RemoteAccessKind,
        start: u64,
    ) -> usize {
        let accessed = Event::Accessed {
            queue_pair: queue_pair(TARGET, process),
            message,
            kind,
            place: Place {
                space: 0,
                start,
                length: 8,
            },
        };
        self.happens(TARGET, accessed)
    }

    /// A message from one process to another, which polls it.
    fn tells(&mut self, process: u64, peer: u64) {
        let message = self.posts(process, peer, 0);
        let received = Event::Received {
            queue_pair: queue_pair(peer, process),
            message,
        };
        assert_eq!(self.happens(peer, received), 0);
        self.polls(process, peer, message);
    }
}

#[test]
fn a_message_after_the_completion_orders_two_writes() {
    let mut it = Conversation::new(3);
    assert_eq!(it.writes(2), 0);
    it.tells(2, 3);
    assert_eq!(it.writes(3), 0);
    assert_eq!(it.writes(2), 1, "the message went in the other direction");
}

/// A read includes no write of the same bytes: whoever knows of the read need not know of the write.
#[test]
fn a_write_is_remembered_behind_a_later_read_of_its_process() {
    let mut it = Conversation::new(3);
    let write = it.posts(2, TARGET, 1);
    it.executes(2, write, RemoteAccessKind::Write, 0);
    let read = it.posts(2, TARGET, 2);
    it.executes(2, read, RemoteAccessKind::Read, 0);
    let late = it.posts(3, TARGET, 2);
    assert_eq!(it.executes(3, late, RemoteAccessKind::Read, 0), 1);
}

#[test]
fn knowledge_passes_through_processes_that_do_not_access_the_memory() {
    let mut it = Conversation::new(6);
    assert_eq!(it.writes(2), 0);
    it.tells(2, 4);
    it.tells(4, 5);
    it.tells(5, 3);
    assert_eq!(it.writes(3), 0);
    assert_eq!(it.writes(6), 1);
}

#[test]
fn an_atomic_learns_from_those_before_it_and_not_from_those_after_it() {
    let mut it = Conversation::new(4);
    assert_eq!(it.writes(2), 0);
    let early = it.posts(4, TARGET, 4);
    assert_eq!(it.executes(4, early, RemoteAccessKind::Atomic, 64), 0);
    for process in [2, 3] {
        let message = it.posts(process, TARGET, 4);
        assert_eq!(
            it.executes(process, message, RemoteAccessKind::Atomic, 64),
            0
        );
        it.polls(process, TARGET, message);
    }
    it.polls(4, TARGET, early);
    assert_eq!(it.writes(3), 0);
    assert_eq!(it.writes(4), 1);
}

#[test]
fn a_process_that_starts_knows_all() {
    let mut it = Conversation::new(2);
    assert_eq!(it.writes(2), 0);
    it.connects(3, TARGET);
    it.connects(TARGET, 3);
    assert_eq!(it.writes(3), 0);
}

#[test]
fn a_message_of_a_process_that_is_not_checked_may_tell_all() {
    let mut it = Conversation::new(3);
    assert_eq!(it.writes(2), 0);
    let unknown = Event::Received {
        queue_pair: queue_pair(3, 99),
        message: 0,
    };
    assert_eq!(it.happens(3, unknown), 0);
    assert_eq!(it.writes(3), 0);
}

#[test]
fn an_atomic_at_a_process_that_is_not_checked_may_tell_all() {
    let mut it = Conversation::new(3);
    it.connects(3, 99);
    assert_eq!(it.writes(2), 0);
    let message = it.posts(3, 99, 4);
    it.polls(3, 99, message);
    assert_eq!(it.writes(3), 0);
}

#[test]
fn what_is_forgotten_is_not_reported() {
    let mut it = Conversation::new(3);
    assert_eq!(it.writes(2), 0);
    for _ in 0..5000 {
        let message = it.posts(2, TARGET, 0);
        it.polls(2, TARGET, message);
    }
    assert_eq!(it.writes(3), 0);
}

#[test]
fn lost_records_lead_to_no_finding() {
    let mut it = Conversation::new(3);
    assert_eq!(it.writes(2), 0);
    it.order.forget();
    assert_eq!(it.writes(3), 0);
    assert_eq!(it.writes(2), 0);
}

#[test]
fn memory_is_bounded() {
    let mut it = Conversation::new(2);
    for peer in 3..3000 {
        it.connects(2, peer);
        it.happens(peer, Event::LearnedAll);
    }
    assert!(it.order.processes.len() <= MAX_PROCESSES);
    assert!(it.order.queue_pairs.len() <= MAX_QUEUE_PAIRS);
    let mut it = Conversation::new(2);
    for start in 0..70_000 {
        let message = it.posts(2, TARGET, 4);
        it.executes(2, message, RemoteAccessKind::Atomic, 8 * start);
        assert!(it.order.words.len() <= MAX_WORDS);
        if start == 10_000 {
            assert_eq!(it.order.words.len(), 10_001);
            assert_eq!(it.order.accesses.len(), MAX_ACCESSES);
        }
    }
}

#[test]
fn the_newest_queue_pairs_are_remembered() {
    let mut it = Conversation::new(1);
    let numbered = |number| name(IpAddr::from([10, 0, 0, 1]), Qpn::new(number));
    let mut connects = |number| {
        let (queue_pair, peer) = (numbered(number), queue_pair(2, TARGET));
        it.happens(TARGET, Event::Connected { queue_pair, peer });
        let known = |number| it.order.queue_pairs.contains_key(&numbered(number));
        (it.order.queue_pairs.len(), known(0), known(1))
    };
    let last = MAX_QUEUE_PAIRS as u32 - 1;
    (0..last).for_each(|number| _ = connects(number));
    let all = (MAX_QUEUE_PAIRS, true, true);
    assert_eq!(connects(last), all);
    assert_eq!(connects(0), all, "it was there already");
    assert_eq!(connects(last + 1), (MAX_QUEUE_PAIRS, false, true));
}

/// A process of the same user can write what it likes.
#[test]
fn records_of_a_liar_do_no_harm() {
    let mut order = ProcessOrder::new(TARGET, 1);
    let mut findings: Vec<Finding<()>> = Vec::new();
    let mut state = 4711_u64;
    let mut random = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    for _ in 0..50_000 {
        let number = |value: u64| match value % 4 {
            0 => value % 3,
            1 => (1 << 56) - value % 3,
            _ => value % 2000,
        };
        let name = |value: u64| queue_pair(value % 4, value / 4 % 4);
        let (queue_pair, message) = (name(random()), number(random()));
        let place = Place {
            space: random() % 2,
            start: u64::MAX - number(random()),
            length: random() >> (random() % 64),
        };
        let kind = [
            RemoteAccessKind::Read,
            RemoteAccessKind::Write,
            RemoteAccessKind::Atomic,
        ][(random() % 3) as usize];
        let event = match random() % 7 {
            0 => Event::LearnedAll,
            1 => Event::Connected {
                queue_pair,
                peer: name(random()),
            },
            2 => Event::Posted {
                queue_pair,
                message,
                operation: random() as u8,
                id: random(),
            },
            3 => Event::Used {
                queue_pair,
                message,
                kind,
                place,
            },
            4 => Event::Polled {
                queue_pair,
                message,
            },
            5 => Event::Received {
                queue_pair,
                message,
            },
            _ => Event::Accessed {
                queue_pair,
                message,
                kind,
                place,
            },
        };
        let record = Record {
            process: random() % 4,
            pid: 0,
            event,
        };
        order.replay(&record.encode(), &mut findings);
        findings.clear();
    }
    let noise: Vec<u8> = (0..RECORD_BYTES * 100).map(|_| random() as u8).collect();
    assert!(!order.replay(&noise, &mut findings));
}

#[test]
fn a_race_names_both_requests_and_their_processes() {
    let mut it = Conversation::new(3);
    assert_eq!(it.writes(2), 0);
    let message = it.posts(3, TARGET, 1);
    let record = Record {
        process: TARGET,
        pid: TARGET as u32,
        event: Event::Accessed {
            queue_pair: queue_pair(TARGET, 3),
            message,
            kind: RemoteAccessKind::Write,
            place: Place {
                space: 0,
                start: 0,
                length: 8,
            },
        },
    };
    let mut findings: Vec<Finding<()>> = Vec::new();
    assert!(it.order.replay(&record.encode(), &mut findings));
    let [finding] = &findings[..] else {
        panic!("one race");
    };
    for process in [2, 3] {
        let number = qp(queue_pair(process, TARGET).number);
        let name = format!("RDMA WRITE (wr_id 0x0) of {number} of process {process}");
        assert!(finding.what.contains(&name), "{}", finding.what);
        assert!(finding.about.contains(&number), "{}", finding.about);
    }
}

/// The numbers of posts go on behind records that were lost.
#[test]
fn a_poll_covers_the_posts_behind_lost_ones() {
    let peer = queue_pair(TARGET, 2);
    let mut history = History::new(2, peer);
    let post = |id| Post {
        operation: 1,
        id,
        moment: Moment {
            process: 2,
            own: 0,
            known: Arc::default(),
        },
        result: None,
    };
    history.add_post(0, post(0));
    history.add_post(10, post(10));
    assert!(history.post(0).is_none());
    let polled = history.newly_polled(10).map(|it| it.id);
    assert_eq!(polled.collect::<Vec<_>>(), [10]);
    history.polled(10, 1);
    history.add_post(11, post(11));
    let polled = history.newly_polled(11).map(|it| it.id);
    assert_eq!(polled.collect::<Vec<_>>(), [11]);
}
