//! What a page says about one queue pair.

use crate::layout::RECORD_WORDS;

/// The names of a queue pair's counters, in the order of the record. They are those of the engine.
pub const QUEUE_PAIR_COUNTERS: [&str; 13] = [
    "messages_sent",
    "messages_received",
    "packets_sent",
    "packets_received",
    "bytes_sent",
    "bytes_received",
    "retransmitted",
    "timeouts",
    "sequence_naks_received",
    "rnr_naks_sent",
    "rnr_naks_received",
    "duplicate_requests",
    "out_of_sequence",
];

/// Where the counters are in a record.
const COUNTERS: usize = 6;

/// Where the levels are in a record, behind the counters.
const LEVELS: usize = COUNTERS + QUEUE_PAIR_COUNTERS.len();

const _: () = assert!(LEVELS + 5 <= RECORD_WORDS);

/// How much is in a queue, and how much fits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Level {
    /// How much is in it.
    pub used: u32,
    /// How much fits.
    pub capacity: u32,
}

impl Level {
    fn word(self) -> u64 {
        u64::from(self.used) | u64::from(self.capacity) << 32
    }

    fn from_word(word: u64) -> Self {
        Self {
            used: word as u32,
            capacity: (word >> 32) as u32,
        }
    }
}

/// How the packets of a queue pair reach the peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PacketPath {
    /// There is no peer.
    None,
    /// Through sockets.
    Sockets,
    /// Through memory that two processes share.
    SharedMemory,
    /// The peer is a queue pair of the same device.
    SameDevice,
}

impl PacketPath {
    const ALL: [Self; 4] = [
        Self::None,
        Self::Sockets,
        Self::SharedMemory,
        Self::SameDevice,
    ];

    /// A word for it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Sockets => "sockets",
            Self::SharedMemory => "memory",
            Self::SameDevice => "device",
        }
    }
}

/// One queue pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueuePairRecord {
    /// Its number.
    pub number: u32,
    /// Its type, as `ibv_qp_type` numbers it.
    pub kind: u8,
    /// Its state, as `ibv_qp_state` numbers it.
    pub state: u8,
    /// The path of its packets.
    pub path: PacketPath,
    /// The path MTU, as `ibv_mtu` numbers it; 0 if it has none yet, or an older library wrote the record.
    pub path_mtu: u8,
    /// The number of its peer; 0 if it has none.
    pub peer_number: u32,
    /// The GID of its peer; zero if it has none.
    pub peer_gid: [u8; 16],
    /// The send queue: requests that are not completed.
    pub sends: Level,
    /// The receive queue, its own or the shared one: receives that are posted and not used.
    pub receives: Level,
    /// The window: packets that the peer has not acknowledged. Its capacity is 0 if the queue pair has no window.
    pub window: Level,
    /// The completion queue of its sends: completions that are not polled.
    pub send_completions: Level,
    /// The completion queue of its receives: completions that are not polled.
    pub receive_completions: Level,
    /// Timeouts since the peer last acknowledged something.
    pub present_timeouts: u32,
    /// Whether it waits because the peer has no receive posted.
    pub waits_for_receiver: bool,
    /// The counters.
    pub counters: [u64; QUEUE_PAIR_COUNTERS.len()],
}

impl QueuePairRecord {
    /// The record as words.
    #[must_use]
    pub fn words(&self) -> [u64; RECORD_WORDS] {
        let mut words = [0; RECORD_WORDS];
        words[0] = u64::from(self.number);
        let described = [self.kind, self.state, self.path as u8, self.path_mtu];
        words[1] = u64::from(u32::from_le_bytes(described));
        words[2] = u64::from(self.peer_number);
        words[3..5].copy_from_slice(&crate::layout::gid_words(self.peer_gid));
        words[5] = self.sends.word();
        words[COUNTERS..LEVELS].copy_from_slice(&self.counters);
        words[LEVELS] = self.receives.word();
        words[LEVELS + 1] = self.window.word();
        words[LEVELS + 2] = self.send_completions.word();
        words[LEVELS + 3] = self.receive_completions.word();
        words[LEVELS + 4] =
            u64::from(self.present_timeouts) | u64::from(self.waits_for_receiver) << 32;
        words
    }

    /// The record from its words.
    fn from_words(words: &[u64; RECORD_WORDS]) -> Self {
        let [kind, state, path, path_mtu, ..] = words[1].to_le_bytes();
        let mut counters = [0; QUEUE_PAIR_COUNTERS.len()];
        counters.copy_from_slice(&words[COUNTERS..LEVELS]);
        Self {
            number: words[0] as u32,
            kind,
            state,
            path: *PacketPath::ALL
                .get(usize::from(path))
                .unwrap_or(&PacketPath::None),
            path_mtu,
            peer_number: words[2] as u32,
            peer_gid: crate::layout::gid_bytes([words[3], words[4]]),
            sends: Level::from_word(words[5]),
            receives: Level::from_word(words[LEVELS]),
            window: Level::from_word(words[LEVELS + 1]),
            send_completions: Level::from_word(words[LEVELS + 2]),
            receive_completions: Level::from_word(words[LEVELS + 3]),
            present_timeouts: words[LEVELS + 4] as u32,
            waits_for_receiver: words[LEVELS + 4] >> 32 != 0,
            counters,
        }
    }

    /// The records of a whole page.
    pub fn of_page(page: &[u64]) -> impl Iterator<Item = Self> + '_ {
        let count = page.get(crate::layout::RECORDS).copied().unwrap_or(0) as usize;
        let records = page.get(crate::layout::HEADER_WORDS..).unwrap_or_default();
        let (records, _) = records.as_chunks::<RECORD_WORDS>();
        records.iter().take(count).map(Self::from_words)
    }

    /// The value of a counter by its name; 0 if there is none of that name.
    #[must_use]
    pub fn counter(&self, name: &str) -> u64 {
        let place = QUEUE_PAIR_COUNTERS.iter().position(|it| *it == name);
        place.map_or(0, |place| self.counters[place])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout;

    #[test]
    fn a_record_is_read_as_it_was_written() {
        let level = |used| Level {
            used,
            capacity: used + 100,
        };
        let record = QueuePairRecord {
            number: 0x12_3456,
            kind: 2,
            state: 3,
            path: PacketPath::SharedMemory,
            path_mtu: 5,
            peer_number: 0x65_4321,
            peer_gid: *b"0123456789abcdef",
            sends: level(7),
            receives: level(8),
            window: level(9),
            send_completions: level(10),
            receive_completions: level(11),
            present_timeouts: 12,
            waits_for_receiver: true,
            counters: std::array::from_fn(|index| index as u64 + 100),
        };
        let mut page = vec![0; layout::PAGE_WORDS];
        page[layout::RECORDS] = 1;
        page[layout::HEADER_WORDS..][..RECORD_WORDS].copy_from_slice(&record.words());
        let read: Vec<_> = QueuePairRecord::of_page(&page).collect();
        assert_eq!(read, [record]);
        assert_eq!(record.counter("bytes_sent"), 104);
        page[layout::RECORDS] = u64::MAX;
        let most = QueuePairRecord::of_page(&page).count();
        assert_eq!(most, layout::MAX_RECORDS);
    }
}
