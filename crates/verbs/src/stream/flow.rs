//! Who may send how many messages, and what a message means. Without I/O.
//!
//! A message is a header and data. Each message with data takes one of the buffers that the receiver has posted, so it costs a credit. The
//! receiver gives it back when the program has read the data: with its own data, or in a message without data as soon as half of the
//! buffers are free again.
//!
//! Such a message costs nothing, or two full streams would wait for each other. It still has a buffer: each one is for half of the
//! buffers, so no more than [`UNPAID_CREDITS`] of them are under way before the sender has more to send, and it must have read the first of them to
//! do that. The end of a stream comes once, and has a buffer of its own.

/// The size of the header of a message: its kind, and how many credits it gives, each in four bytes, the highest first.
pub(super) const HEADER: usize = 8;

/// How many messages without data may be under way because of credits.
const UNPAID_CREDITS: u32 = 2;

/// How many receives there are for messages that cost no credit: credits, and the end.
pub(super) const UNPAID: u32 = UNPAID_CREDITS + 1;

const KIND_DATA: u32 = 0;
const KIND_END: u32 = 1;

/// The beginning of each message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Header {
    /// The sender sends no data any more.
    pub(super) is_end: bool,
    /// How many more messages with data the receiver of this one may send.
    pub(super) credits: u32,
}

/// What a peer has done that it must not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum Violation {
    #[error("a message is too short for its header")]
    NoHeader,
    #[error("a message is longer than the buffers here")]
    TooLong,
    #[error("a message is of an unknown kind")]
    UnknownKind,
    #[error("a message says nothing")]
    Empty,
    #[error("it sends more messages than there are buffers here")]
    NoCredit,
    #[error("it frees more buffers than messages were sent to it")]
    TooManyCredits,
    #[error("it sends data with or after the end of its stream")]
    AfterEnd,
}

/// What has arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Arrival {
    Data,
    /// Credits or the end: its buffer is free at once.
    Control,
}

/// The credits of both directions.
#[derive(Debug)]
pub(super) struct Flow {
    /// How many messages with data the peer has buffers for.
    peer_buffers: u32,
    /// How many of them are free, as far as is known here.
    credits: u32,
    /// How many messages with data there are buffers for here.
    buffers: u32,
    /// How many of them are free, as far as the peer was told.
    peer_credits: u32,
    /// How many are free without the peer's knowledge.
    owed: u32,
    has_peer_ended: bool,
}

impl Header {
    pub(super) fn to_bytes(self) -> [u8; HEADER] {
        let kind = if self.is_end { KIND_END } else { KIND_DATA };
        let mut bytes = [0; HEADER];
        bytes[..4].copy_from_slice(&kind.to_be_bytes());
        bytes[4..].copy_from_slice(&self.credits.to_be_bytes());
        bytes
    }

    pub(super) fn parse(bytes: [u8; HEADER]) -> Result<Self, Violation> {
        let [a, b, c, d, credits @ ..] = bytes;
        let is_end = match u32::from_be_bytes([a, b, c, d]) {
            KIND_DATA => false,
            KIND_END => true,
            _ => return Err(Violation::UnknownKind),
        };
        let credits = u32::from_be_bytes(credits);
        Ok(Self { is_end, credits })
    }
}

impl Flow {
    pub(super) fn new(buffers: u16, peer_buffers: u16) -> Self {
        let (buffers, peer_buffers) = (u32::from(buffers), u32::from(peer_buffers));
        Self {
            peer_buffers,
            credits: peer_buffers,
            buffers,
            peer_credits: buffers,
            owed: 0,
            has_peer_ended: false,
        }
    }

    /// Takes the credit for a message with data. Returns whether there was one.
    #[must_use]
    pub(super) fn spend(&mut self) -> bool {
        let Some(left) = self.credits.checked_sub(1) else {
            return false;
        };
        self.credits = left;
        true
    }

    /// A message of this length has arrived, its header included.
    pub(super) fn arrive(&mut self, header: Header, length: usize) -> Result<Arrival, Violation> {
        let has_data = length > HEADER;
        let ends_again = header.is_end && self.has_peer_ended;
        if ends_again || has_data && (header.is_end || self.has_peer_ended) {
            return Err(Violation::AfterEnd);
        }
        if !has_data && !header.is_end && header.credits == 0 {
            return Err(Violation::Empty);
        }
        if header.credits > self.peer_buffers - self.credits {
            return Err(Violation::TooManyCredits);
        }
        if has_data && self.peer_credits == 0 {
            return Err(Violation::NoCredit);
        }
        self.credits += header.credits;
        self.has_peer_ended |= header.is_end;
        if !has_data {
            return Ok(Arrival::Control);
        }
        self.peer_credits -= 1;
        Ok(Arrival::Data)
    }

    /// The program has read all data of a message.
    pub(super) fn free(&mut self) {
        self.owed += 1;
    }

    /// Whether enough buffers are free to tell the peer in a message of its own.
    pub(super) fn is_due(&self) -> bool {
        self.owed >= self.buffers.div_ceil(UNPAID_CREDITS)
    }

    /// The credits for the next message: the buffers that are free are posted now.
    #[must_use]
    pub(super) fn grant(&mut self) -> u32 {
        let credits = std::mem::take(&mut self.owed);
        self.peer_credits += credits;
        credits
    }

    /// Whether the peer has said that all data was read.
    pub(super) fn has_peer_read_all(&self) -> bool {
        self.credits == self.peer_buffers
    }

    /// Whether the peer sends no data any more.
    pub(super) fn has_peer_ended(&self) -> bool {
        self.has_peer_ended
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DATA: usize = HEADER + 1;

    fn credits(credits: u32) -> Header {
        let is_end = false;
        Header { is_end, credits }
    }

    fn end(credits: u32) -> Header {
        let is_end = true;
        Header { is_end, credits }
    }

    #[test]
    fn a_header_comes_back_and_another_kind_is_a_violation() {
        for header in [credits(0), credits(u32::MAX), end(0), end(7)] {
            assert_eq!(Header::parse(header.to_bytes()), Ok(header));
        }
        assert_eq!(
            Header::parse([0, 0, 0, 2, 0, 0, 0, 1]),
            Err(Violation::UnknownKind)
        );
        assert_eq!(
            Header::parse([1, 0, 0, 0, 0, 0, 0, 1]),
            Err(Violation::UnknownKind)
        );
    }

    #[test]
    fn as_many_messages_are_sent_as_the_peer_has_buffers() {
        let mut flow = Flow::new(1, 3);
        assert!([(); 3].iter().all(|()| flow.spend()));
        assert!(!flow.spend());
        assert_eq!(flow.arrive(credits(2), HEADER), Ok(Arrival::Control));
        assert!(!flow.has_peer_read_all());
        assert_eq!(flow.arrive(end(1), HEADER), Ok(Arrival::Control));
        assert!(flow.has_peer_read_all());
        assert!([(); 3].iter().all(|()| flow.spend()));
        assert!(!flow.spend());
    }

    #[test]
    fn as_many_messages_arrive_as_there_are_buffers() {
        let mut flow = Flow::new(2, 1);
        for _ in 0..2 {
            assert_eq!(flow.arrive(credits(0), DATA), Ok(Arrival::Data));
        }
        assert_eq!(flow.arrive(credits(0), DATA), Err(Violation::NoCredit));
        assert!(flow.spend());
        assert_eq!(
            flow.arrive(credits(1), HEADER),
            Ok(Arrival::Control),
            "it costs nothing"
        );
        flow.free();
        assert_eq!(
            flow.arrive(credits(0), DATA),
            Err(Violation::NoCredit),
            "the peer does not know it yet"
        );
        assert_eq!(flow.grant(), 1);
        assert_eq!(flow.grant(), 0, "it is told once");
        assert_eq!(flow.arrive(credits(0), DATA), Ok(Arrival::Data));
        assert_eq!(flow.arrive(credits(0), DATA), Err(Violation::NoCredit));
    }

    #[test]
    fn more_credits_than_messages_are_a_violation() {
        let mut flow = Flow::new(4, 4);
        assert_eq!(
            flow.arrive(credits(1), HEADER),
            Err(Violation::TooManyCredits)
        );
        assert!(flow.spend() && flow.spend());
        for too_many in [3, u32::MAX] {
            for length in [HEADER, DATA] {
                let refused = flow.arrive(credits(too_many), length);
                assert_eq!(refused, Err(Violation::TooManyCredits));
            }
        }
        assert_eq!(flow.arrive(end(2), HEADER), Ok(Arrival::Control));
    }

    #[test]
    fn a_message_without_meaning_and_data_after_the_end_are_violations() {
        let mut flow = Flow::new(4, 4);
        assert_eq!(flow.arrive(credits(0), HEADER), Err(Violation::Empty));
        assert_eq!(flow.arrive(end(0), DATA), Err(Violation::AfterEnd));
        assert!(!flow.has_peer_ended());
        assert_eq!(flow.arrive(end(0), HEADER), Ok(Arrival::Control));
        assert!(flow.has_peer_ended());
        assert_eq!(flow.arrive(end(0), HEADER), Err(Violation::AfterEnd));
        assert_eq!(flow.arrive(credits(0), DATA), Err(Violation::AfterEnd));
        assert!(flow.spend());
        assert_eq!(
            flow.arrive(credits(1), HEADER),
            Ok(Arrival::Control),
            "the other direction goes on"
        );
        assert!(flow.has_peer_ended(), "it stays at its end");
    }

    /// One direction with buffers of the receiver, which the program reads or not, and messages under way in both directions.
    #[derive(Debug)]
    struct Direction {
        sender: Flow,
        receiver: Flow,
        data: u32,
        unread: u32,
        unpaid: Vec<Header>,
    }

    impl Direction {
        fn new(buffers: u16) -> Self {
            Self {
                sender: Flow::new(1, buffers),
                receiver: Flow::new(buffers, 1),
                data: 0,
                unread: 0,
                unpaid: Vec::new(),
            }
        }

        /// One step, if it is possible: to send, to deliver data, to read, or to deliver credits.
        fn step(&mut self, choice: u32) -> bool {
            match choice {
                0 if self.sender.spend() => self.data += 1,
                1 if self.data > 0 => {
                    self.data -= 1;
                    self.unread += 1;
                    let arrived = self.receiver.arrive(credits(0), DATA);
                    assert_eq!(arrived, Ok(Arrival::Data));
                }
                2 if self.unread > 0 => {
                    self.unread -= 1;
                    self.receiver.free();
                    if self.receiver.is_due() {
                        self.unpaid.push(credits(self.receiver.grant()));
                    }
                }
                3 if !self.unpaid.is_empty() => {
                    let header = self.unpaid.remove(0);
                    assert_eq!(self.sender.arrive(header, HEADER), Ok(Arrival::Control));
                }
                _ => return false,
            }
            true
        }
    }

    /// All orders of steps, by numbers in the place of randomness.
    #[test]
    fn messages_without_data_always_have_a_buffer_and_no_credit_is_lost() {
        for buffers in [1, 2, 3, 4, 5, 8, 31, 32] {
            let mut direction = Direction::new(buffers);
            let mut number = u32::from(buffers);
            for _ in 0..20_000 {
                number = number.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                direction.step(number >> 30);
                assert!(
                    direction.unpaid.len() <= UNPAID_CREDITS as usize,
                    "{direction:?}"
                );
                let taken = direction.data + direction.unread;
                assert!(taken <= u32::from(buffers), "{direction:?}");
            }
            // Everything is read and delivered: then something can be sent again.
            while [1, 2, 3]
                .map(|choice| direction.step(choice))
                .contains(&true)
            {}
            assert!(direction.step(0), "{direction:?}");
        }
    }
}
