//! The messages of a connection. They depend on its number only, so both ends know them.

use crate::rng::Rng;

/// The longest message.
pub(super) const LONGEST: usize = 2500;

/// The most messages of one side.
pub(super) const MAX_MESSAGES: usize = 4;

/// One end of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Side {
    /// The side that requests the connection.
    Client,
    /// The side that accepts it.
    Server,
}

impl Side {
    pub(super) fn other(self) -> Side {
        match self {
            Side::Client => Side::Server,
            Side::Server => Side::Client,
        }
    }
}

/// The messages of all connections of a run.
#[derive(Debug, Clone, Copy)]
pub(super) struct Script {
    salt: u64,
}

impl Script {
    pub(super) fn new(rng: &mut Rng) -> Self {
        Script { salt: rng.word() }
    }

    /// How many messages a side sends.
    pub(super) fn count(self, number: u32, side: Side) -> usize {
        self.rng(number, side, 0).below(MAX_MESSAGES + 1)
    }

    /// One message.
    pub(super) fn message(self, number: u32, side: Side, index: usize) -> Vec<u8> {
        let mut rng = self.rng(number, side, 1 + index as u64);
        let length = rng.weighted(&[(1, 0), (6, 200), (3, LONGEST)]);
        let length = rng.below(length + 1);
        rng.bytes(length)
    }

    /// The private data of a request or a response: the connection number, and random bytes.
    pub(super) fn private_data(self, number: u32, side: Side, capacity: usize) -> Vec<u8> {
        let mut rng = self.rng(number, side, 100);
        let length = rng.below(capacity - 3);
        let mut data = number.to_be_bytes().to_vec();
        data.extend(rng.bytes(length));
        data
    }

    /// Whether `data` is this private data, padded with zeros.
    pub(super) fn is_private_data(
        self,
        number: u32,
        side: Side,
        capacity: usize,
        data: &[u8],
    ) -> bool {
        let expected = self.private_data(number, side, capacity);
        data.strip_prefix(&*expected)
            .is_some_and(|rest| rest.iter().all(|&byte| byte == 0))
    }

    fn rng(self, number: u32, side: Side, what: u64) -> Rng {
        Rng::new(self.salt ^ u64::from(number) << 16 ^ (side as u64) << 8 ^ what)
    }
}

/// The connection number at the front of private data.
pub(super) fn number_of(data: &[u8]) -> Option<u32> {
    data.first_chunk().map(|bytes| u32::from_be_bytes(*bytes))
}
