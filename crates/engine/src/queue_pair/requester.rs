//! The send side of a reliable connection, with the completions of its requests.
//!
//! Sequence numbers lie on a line: `oldest` is the first that is not acknowledged, `next` the first
//! that was never sent, and `cursor` the one to send now. Normally `cursor == next`; after a loss it
//! goes back to `oldest` and everything from there on is sent again (go-back-N).
//!
//! ```text
//!   acknowledged   |  under way, or to be repeated  |  never sent
//!  ----------------+--------------------------------+-------------> PSN
//!                oldest     <=     cursor    <=    next
//! ```

mod company;
mod recovery;
mod response;
mod window;

pub use window::WindowLimits;

use std::collections::VecDeque;
use std::time::Instant;

use wire::Psn;

use super::attributes::Attributes;
use super::segmentation::Piece;
use super::send_queue::{Outstanding, Progress, SendQueue};
use super::{Link, QueuePair, State};
use crate::completion::Status;
use crate::sabotage::{Bug, Sabotage};
use crate::shared::Shared;
use crate::transmit::Batch;
use crate::work::{SendFlags, Work};
use company::Company;
use window::Window;

/// An acknowledgement is asked for at least this often in a long message.
const MAX_UNASKED: u32 = 64;

/// The send side's place in the sequence, and its patience.
#[derive(Debug)]
pub(super) struct Requester {
    oldest: Psn,
    cursor: Psn,
    next: Psn,
    /// The request in the send queue that `cursor` lies in.
    position: usize,
    /// The number of the next message, as the peer counts them.
    sequence: u32,
    /// The last message that the peer has a receive for, if it says so.
    credit_limit: Option<u32>,
    /// The last sequence number of each read or atomic under way.
    awaited: VecDeque<Psn>,
    /// Packets sent since one asked for an acknowledgement.
    unasked: u32,
    retries_left: u8,
    rnr_retries_left: u8,
    /// Timeouts since something was acknowledged.
    timeouts: u32,
    acknowledgement_due: Option<Instant>,
    rnr_wait_until: Option<Instant>,
    company: Company,
    /// A lost response was noticed here and asked for again: once is enough.
    asked_again: Option<Psn>,
    /// What the peer seems to expect, by an answer that fits nothing outstanding.
    misfit: Option<Psn>,
    window: Window,
    /// Whether draining the send queue raises an event.
    pub(super) announce_drain: bool,
}

/// Why nothing more can be sent now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Hold {
    /// Everything is sent.
    Idle,
    /// A timer or a response will end it.
    Waiting,
    /// The request can never be sent.
    Impossible(Status),
}

impl Requester {
    pub(super) fn new(limits: WindowLimits) -> Self {
        Self {
            oldest: Psn::ZERO,
            cursor: Psn::ZERO,
            next: Psn::ZERO,
            position: 0,
            sequence: 1,
            credit_limit: None,
            awaited: VecDeque::new(),
            unasked: 0,
            retries_left: 0,
            rnr_retries_left: 0,
            timeouts: 0,
            acknowledgement_due: None,
            rnr_wait_until: None,
            company: Company::Unneeded,
            asked_again: None,
            misfit: None,
            window: Window::new(limits),
            announce_drain: false,
        }
    }

    pub(super) fn start(&mut self, first: Psn) {
        self.oldest = first;
        self.cursor = first;
        self.next = first;
    }

    pub(super) fn renew_retries(&mut self, attributes: &Attributes) {
        self.retries_left = attributes.retry_count.unwrap_or(0);
        self.rnr_retries_left = attributes.rnr_retry.unwrap_or(0);
    }

    /// Cheap and perhaps too optimistic: trying finds out.
    pub(super) fn may_transmit(&self, queue: &SendQueue) -> bool {
        self.rnr_wait_until.is_none() && self.position < queue.len()
    }

    /// The sequence number to send now.
    pub(super) fn cursor(&self) -> Psn {
        self.cursor
    }

    /// The first sequence number that is not acknowledged.
    pub(super) fn oldest(&self) -> Psn {
        self.oldest
    }

    /// The sequence number that the peer seems to expect, by an answer that fitted nothing.
    pub(super) fn misfit(&self) -> Option<Psn> {
        self.misfit
    }

    /// Moves on by one packet that nobody will acknowledge.
    pub(super) fn step(&mut self) {
        self.start(self.cursor + 1);
    }

    fn in_flight(&self) -> u32 {
        self.cursor.ahead_of(self.oldest)
    }
}

impl QueuePair {
    /// Sends requests until the batch is full or something must be waited for.
    pub(super) fn transmit_requests(
        &mut self,
        now: Instant,
        batch: &mut Batch<'_>,
        shared: &mut Shared,
    ) {
        let Some(link) = self.link else { return };
        if batch.is_empty() && (self.waits_for_company(now) || !self.window_is_open(&link)) {
            return;
        }
        loop {
            self.begin_requests(&link, shared);
            let piece = match self.next_piece(&link, shared.sabotage) {
                Ok(piece) => piece,
                Err(Hold::Impossible(status)) => {
                    self.fail_position(status, shared);
                    return;
                }
                Err(_) => return,
            };
            let head = piece.opcode.header_length();
            if !batch.admits(&link.route, head, piece.payload) {
                return;
            }
            if let Err(status) = self.send_piece(&piece, &link, batch, shared) {
                self.fail_position(status, shared);
                return;
            }
            self.arm_acknowledgement_timer(now);
        }
    }

    /// Gives the request at the cursor its sequence numbers, and does local work that has its turn.
    fn begin_requests(&mut self, link: &Link, shared: &mut Shared) {
        while let Some(request) = self.send.at(self.requester.position) {
            match request.progress {
                Progress::Done => self.requester.position += 1,
                Progress::Failed(_) => return,
                Progress::Begun { first, .. } => {
                    if self.requester.cursor.ahead_of(first) < request.packets {
                        return;
                    }
                    self.requester.position += 1;
                }
                Progress::Posted => {
                    if !self.may_begin(request, shared.sabotage) {
                        return;
                    }
                    match request.work().is_local() {
                        true => self.do_local_work(shared),
                        false => self.number_request(link),
                    }
                }
            }
        }
    }

    fn may_begin(&self, request: &Outstanding, sabotage: Sabotage) -> bool {
        // A draining queue finishes what was begun and begins nothing.
        if self.state == State::SendQueueDrain {
            return false;
        }
        let fenced = request.request.flags.contains(SendFlags::FENCE);
        !fenced || self.requester.awaited.is_empty() || sabotage.has(Bug::FenceIgnored)
    }

    fn number_request(&mut self, link: &Link) {
        let requester = &mut self.requester;
        debug_assert_eq!(requester.cursor, requester.next);
        let piece = (requester.window.packets(link.mtu()) / 2).max(1);
        let Some(request) = self.send.at_mut(requester.position) else {
            return;
        };
        request.progress = Progress::Begun {
            first: requester.cursor,
            sequence: requester.sequence,
            piece,
        };
        // The peer counts every request packet of a read as a message of its own.
        let messages = match request.work() {
            Work::Read(_) => request.packets.div_ceil(piece),
            _ => 1,
        };
        requester.sequence = (requester.sequence + messages) & 0xff_ffff;
    }

    /// What to send now.
    fn next_piece(&self, link: &Link, sabotage: Sabotage) -> Result<Piece, Hold> {
        let requester = &self.requester;
        if requester.rnr_wait_until.is_some() && !sabotage.has(Bug::RnrTimerIgnored) {
            return Err(Hold::Waiting);
        }
        let request = self.send.at(requester.position).ok_or(Hold::Idle)?;
        let Progress::Begun {
            first,
            sequence,
            piece,
        } = request.progress
        else {
            return Err(Hold::Waiting);
        };
        if request.work().has_response() {
            self.check_response_resources()?;
        }
        let index = requester.cursor.ahead_of(first);
        let transport = self.init.kind.transport();
        let piece = request.piece(transport, index, link.mtu(), piece);
        if !self.window_admits(piece.span, link) || !self.credits_admit(request, sequence) {
            return Err(Hold::Waiting);
        }
        Ok(piece)
    }

    fn check_response_resources(&self) -> Result<(), Hold> {
        let depth = usize::from(self.attributes.initiator_depth.unwrap_or(0));
        match self.requester.awaited.len() {
            _ if depth == 0 => Err(Hold::Impossible(Status::LocalOperation)),
            outstanding if outstanding >= depth => Err(Hold::Waiting),
            _ => Ok(()),
        }
    }

    /// A window that opens by a packet or two stays shut until a quarter of it is open: a send of many
    /// packets costs hardly more than a send of one. An acknowledgement is on its way then, because one
    /// is asked for in every quarter.
    fn window_is_open(&self, link: &Link) -> bool {
        let window = self.requester.window.packets(link.mtu());
        let in_flight = self.requester.in_flight();
        in_flight == 0 || in_flight + window / 4 <= window
    }

    fn window_admits(&self, span: u32, link: &Link) -> bool {
        let in_flight = self.requester.in_flight();
        in_flight == 0 || in_flight + span <= self.requester.window.packets(link.mtu())
    }

    /// C9-148: without a credit only one packet may be under way, to learn of new ones.
    fn credits_admit(&self, request: &Outstanding, sequence: u32) -> bool {
        let Some(limit) = self.requester.credit_limit else {
            return true;
        };
        let beyond = Psn::new(sequence).since(Psn::new(limit)) > 0;
        if !beyond || !request.work().takes_receive() {
            return true;
        }
        let admitted = request
            .first()
            .is_some_and(|first| self.requester.oldest.since(first) > 0);
        // Begun when there seemed to be credits, and nobody was asked yet: only its rest will ask.
        let unasked = self.requester.unasked > 0;
        admitted || unasked || self.requester.in_flight() == 0
    }

    fn send_piece(
        &mut self,
        piece: &Piece,
        link: &Link,
        batch: &mut Batch<'_>,
        shared: &mut Shared,
    ) -> Result<(), Status> {
        let psn = self.requester.cursor;
        let asks = self.asks_for_acknowledgement(piece, link);
        let request = self
            .send
            .at(self.requester.position)
            .expect("the piece is of the request at the cursor");
        let head = request
            .head(piece, link.peer, psn, shared.sabotage)
            .partition(self.partition())
            .acknowledge(asks);
        let (memory, domain) = (&shared.memory, self.init.domain);
        batch
            .push(&link.route, head, piece.payload, |out| {
                request.fill(piece, memory, domain, out)
            })
            .map_err(|_| Status::LocalProtection)?;
        let awaited = request.work().has_response();
        self.advance(piece, asks, awaited, shared);
        Ok(())
    }

    fn asks_for_acknowledgement(&self, piece: &Piece, link: &Link) -> bool {
        let requester = &self.requester;
        let window = requester.window.packets(link.mtu());
        let full = requester.in_flight() + piece.span >= window;
        let often = (window / 4).clamp(1, MAX_UNASKED);
        let limited = requester.credit_limit.is_some() && requester.in_flight() == 0;
        piece.opcode.position().ends() || full || limited || requester.unasked + 1 >= often
    }

    fn advance(&mut self, piece: &Piece, asked: bool, awaited: bool, shared: &mut Shared) {
        let requester = &mut self.requester;
        let after = requester.cursor + piece.span;
        if requester.cursor.since(requester.next) < 0 {
            shared.counters.retransmitted += 1;
        }
        if awaited {
            requester.awaited.push_back(after - 1);
        }
        if after.since(requester.next) > 0 {
            requester.next = after;
        }
        requester.cursor = after;
        requester.unasked = match asked {
            true => 0,
            false => requester.unasked + 1,
        };
    }

    /// Local work sends no packet, but has its turn in the order of completions.
    fn do_local_work(&mut self, shared: &mut Shared) {
        let position = self.requester.position;
        let Some(work) = self.send.at(position).map(|request| *request.work()) else {
            return;
        };
        let progress = match self.carry_out(&work, shared) {
            Ok(()) => Progress::Done,
            Err(status) => Progress::Failed(status),
        };
        if let Some(request) = self.send.at_mut(position) {
            request.progress = progress;
        }
        self.settle_front(shared);
    }

    /// The request at the cursor can't be sent; it ends when all before it have ended.
    fn fail_position(&mut self, status: Status, shared: &mut Shared) {
        if let Some(request) = self.send.at_mut(self.requester.position) {
            request.progress = Progress::Failed(status);
        }
        self.settle_front(shared);
    }

    /// Completes what waited only for the requests before it.
    fn settle_front(&mut self, shared: &mut Shared) {
        while let Some(front) = self.send.front() {
            match front.progress {
                Progress::Done => self.finish_front(Status::Success, shared),
                Progress::Failed(status) => self.fail_send(status, shared),
                Progress::Posted | Progress::Begun { .. } => break,
            }
        }
        self.announce_drained(shared);
    }

    fn finish_front(&mut self, status: Status, shared: &mut Shared) {
        self.requester.position = self.requester.position.saturating_sub(1);
        self.complete_send(status, shared);
    }
}
