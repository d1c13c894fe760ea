//! The send side of a reliable connection, with the completions of its requests.
//!
//! Three sequence numbers describe its progress: `oldest` is the first one that is not
//! acknowledged, `next` the first one that was never sent, and `cursor` the one to send now.
//! Normally `cursor == next`. After a loss `cursor` goes back to `oldest`, for a [few packets](repair) or, after a timeout, for
//! all of them (go-back-N).
//!
//! ```text
//!   acknowledged   |  in flight, or to retransmit   |  never sent
//!  ----------------+--------------------------------+-------------> PSN
//!                oldest     <=     cursor    <=    next
//! ```

mod coalescing;
mod holes;
mod listed;
mod local;
mod prolonged_retries;
mod recovery;
mod repair;
mod response;
mod round_trip;
mod turns;
mod window;

use std::collections::VecDeque;
use std::time::Instant;

use wire::Psn;

use super::kept_packets::KeptPackets;
use super::segmentation::Piece;
use super::send_queue::{Outstanding, Progress, SendQueue};
use super::{PeerRoute, QueuePair};
use crate::completion::Status;
use crate::device_state::DeviceState;
use crate::now::Now;
use crate::paths::WindowLimits;
use crate::planted_bug::{Bug, PlantedBug};
use crate::state::{Attributes, State};
use crate::transmit::Batch;
use crate::work_request::{SendFlags, Work};
use coalescing::Coalescing;
use prolonged_retries::ProlongedRetries;
use repair::Repair;
use round_trip::RoundTrip;
use window::SendWindow;

/// The maximum number of packets between two acknowledgement requests in a long message.
const MAX_PACKETS_PER_ACK_REQUEST: u32 = 64;

/// The send side of a reliable connection: its sequence numbers, retries and timers.
#[derive(Debug)]
pub(super) struct Requester {
    oldest: Psn,
    cursor: Psn,
    next: Psn,
    /// The index of the request in the send queue that `cursor` belongs to.
    position: usize,
    /// The message sequence number of the next message, as the peer counts.
    sequence: u32,
    /// The last message that the peer has a receive for, if the peer reports credits.
    credit_limit: Option<u32>,
    /// The last PSN of each read or atomic in flight.
    awaited: VecDeque<Psn>,
    /// Responses that arrived before an earlier one.
    kept: KeptPackets,
    /// Packets sent since the last one that requested an acknowledgement.
    packets_since_ack_request: u32,
    retries_left: u8,
    rnr_retries_left: u8,
    /// Timeouts since the last progress.
    timeouts: u32,
    acknowledgement_due: Option<Instant>,
    /// When the oldest packet is sent again, according to the round trips so far.
    response_due: Option<Instant>,
    /// How often it was sent again for that reason since the last progress.
    probes: u32,
    /// Packets before this one were overdue then.
    overdue_before: Option<Psn>,
    round_trip: RoundTrip,
    repair: Option<Repair>,
    rnr_wait_until: Option<Instant>,
    coalescing: Coalescing,
    /// The PSN at which a loss was last detected and retransmitted. One loss causes one
    /// retransmission.
    retransmitted_at: Option<Psn>,
    /// The PSN that the peer seems to expect, according to a response that matches no outstanding
    /// request.
    peer_expects: Option<Psn>,
    window: SendWindow,
    /// Retries since the last progress.
    lasting_retries: Option<ProlongedRetries>,
    /// Whether draining the send queue raises an event.
    pub(super) announce_drain: bool,
}

/// Why nothing more can be sent now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Blocked {
    /// All requests are sent.
    Idle,
    /// A timer or a response ends the wait.
    Waiting,
    /// The window has no room for so many packets.
    Window { span: u32 },
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
            kept: KeptPackets::default(),
            packets_since_ack_request: 0,
            retries_left: 0,
            rnr_retries_left: 0,
            timeouts: 0,
            acknowledgement_due: None,
            response_due: None,
            probes: 0,
            overdue_before: None,
            round_trip: RoundTrip::default(),
            repair: None,
            rnr_wait_until: None,
            coalescing: Coalescing::Off,
            retransmitted_at: None,
            peer_expects: None,
            window: SendWindow::own(limits, 1),
            lasting_retries: None,
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

    /// A quick check that may return true although nothing can be sent.
    pub(super) fn may_transmit(&self, queue: &SendQueue) -> bool {
        self.rnr_wait_until.is_none() && self.position < queue.len()
    }

    /// Whether the next packets wait for the path.
    pub(super) fn is_in_line(&self) -> bool {
        self.window.is_in_line()
    }

    /// Whether it has its turn on its path.
    pub(super) fn has_turn(&self) -> bool {
        self.window.has_turn()
    }

    /// The PSN to send now.
    pub(super) fn cursor(&self) -> Psn {
        self.cursor
    }

    /// The first PSN that was never sent.
    pub(super) fn first_unsent(&self) -> Psn {
        self.next
    }

    /// The first PSN that is not acknowledged.
    pub(super) fn oldest(&self) -> Psn {
        self.oldest
    }

    /// The PSN that the peer seems to expect, according to a response that matches no outstanding
    /// request.
    pub(super) fn peer_expects(&self) -> Option<Psn> {
        self.peer_expects
    }

    /// Advances by one packet that will not be acknowledged.
    pub(super) fn step(&mut self) {
        self.start(self.cursor + 1);
    }

    /// How many packets were sent and are not acknowledged, those that are to be retransmitted included.
    pub(super) fn unacknowledged(&self) -> u32 {
        self.next.ahead_of(self.oldest)
    }

    /// How many packets of `mtu` bytes may be unacknowledged.
    pub(super) fn window_packets(&self, mtu: usize) -> u32 {
        self.window.packets(mtu)
    }

    /// Timeouts since the last progress.
    pub(super) fn timeouts(&self) -> u32 {
        self.timeouts
    }

    /// Whether it waits because the peer has no receive posted.
    pub(super) fn waits_for_receiver(&self) -> bool {
        self.rnr_wait_until.is_some()
    }

    /// Whether nothing is under way, and nothing delays the next request.
    pub(super) fn is_idle(&self) -> bool {
        self.oldest == self.next
            && self.cursor == self.next
            && self.position == 0
            && self.awaited.is_empty()
            && self.repair.is_none()
            && self.rnr_wait_until.is_none()
            && self.coalescing == Coalescing::Off
    }

    /// How many packets of a message are sent before one requests an acknowledgement.
    pub(super) fn packets_per_ack_request(&self, mtu: usize) -> u32 {
        (self.admitted(mtu) / 4).clamp(1, MAX_PACKETS_PER_ACK_REQUEST)
    }

    /// Advances by the packets of one message, which were sent and acknowledged at once.
    #[inline]
    fn skip(&mut self, packets: u32) {
        self.start(self.cursor + packets);
        self.sequence = (self.sequence + 1) & 0xff_ffff;
        self.packets_since_ack_request = 0;
    }

    /// Whether the packet at the cursor was never sent.
    fn sends_new(&self) -> bool {
        self.cursor.since(self.next) >= 0
    }

    /// Whether the response of the read or atomic at `psn` is awaited already.
    fn is_awaited(&self, psn: Psn) -> bool {
        let newest = self.awaited.back();
        newest.is_some_and(|last| last.since(psn) >= 0)
    }

    /// Whether anything sent is to be answered, even if all of it has arrived at the peer. After going back, nothing is.
    pub(super) fn awaits_response(&self) -> bool {
        match self.holes() {
            Some(_) => self.unacknowledged() > 0,
            None => self.cursor != self.oldest,
        }
    }

    /// How many packets are sent and not acknowledged. Those that the peer holds, or that are lost, are not counted if they are
    /// known.
    pub(super) fn in_flight(&self) -> u32 {
        match self.holes() {
            Some(holes) => holes.on_the_way(self.next),
            None => self.cursor.ahead_of(self.oldest),
        }
    }
}

impl QueuePair {
    /// Sends requests until the batch is full or a request must wait.
    pub(super) fn transmit_requests(
        &mut self,
        now: &Now,
        batch: &mut Batch<'_>,
        device: &mut DeviceState,
    ) {
        let Some(link) = self.link else { return };
        let Some(most) = self.admitted_packets(now, &link, batch, device) else {
            return;
        };
        let sent = self.send_requests(now, &link, most, batch, device);
        self.pause_after(sent, now, device);
    }

    /// Fills the batch with at most so many packets. Returns how many that takes, in both directions.
    fn send_requests(
        &mut self,
        now: &Now,
        link: &PeerRoute,
        most: u32,
        batch: &mut Batch<'_>,
        device: &mut DeviceState,
    ) -> u32 {
        let mut sent = 0;
        while sent < most {
            self.begin_requests(link, device);
            let piece = match self.next_piece(link, device.planted) {
                Ok(piece) => piece,
                Err(Blocked::Impossible(status)) => {
                    self.fail_current(status, device);
                    break;
                }
                Err(Blocked::Window { span }) => {
                    if !self.requester.fills_window(span, link) {
                        let paths = &mut device.paths;
                        self.requester.window.wait(self.number, now, paths);
                    }
                    break;
                }
                Err(Blocked::Idle | Blocked::Waiting) => {
                    self.note_limit(link, device);
                    break;
                }
            };
            let head = piece.opcode.header_length();
            if !batch.admits(&link.route, head, piece.payload) {
                break;
            }
            let (psn, is_new) = (self.requester.cursor, self.requester.sends_new());
            if sent == 0 {
                self.begin_sending();
            }
            let is_last = self.ends_turn(sent + piece.span, most, &piece, link, batch);
            let requests_ack = match self.send_piece(&piece, is_last, link, batch, device) {
                Ok(requests_ack) => requests_ack,
                Err(status) => {
                    self.fail_current(status, device);
                    break;
                }
            };
            sent += piece.span;
            if !batch.is_to_self() {
                self.arm_acknowledgement_timer(now);
                if is_new && requests_ack {
                    self.requester.round_trip.sent(psn, now.get());
                    let paths = &mut device.paths;
                    self.requester.window.sent(psn, now.get(), paths);
                }
            }
        }
        sent
    }

    /// Nothing more is sent now. If the window would admit more, the program or its peer is the limit, not the path.
    fn note_limit(&mut self, link: &PeerRoute, device: &mut DeviceState) {
        let requester = &self.requester;
        let quarter = requester.in_flight() / 4;
        if let Some(shared) = requester.window.as_shared()
            && !shared.allowance.others_wait
            && requester.window_fits(quarter + 1, link)
        {
            let on_network = requester.on_network_with(0) + shared.allowance.of_others;
            (device.paths).is_limited_by_program(&shared.member, on_network);
        }
    }

    /// Assigns PSNs to the request at the cursor, and executes local work that is next.
    fn begin_requests(&mut self, link: &PeerRoute, device: &mut DeviceState) {
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
                    if !self.may_begin(request, device.planted) {
                        return;
                    }
                    if request.work().is_local() {
                        self.do_local_work(device);
                    } else {
                        self.number_request(link);
                    }
                }
            }
        }
    }

    fn may_begin(&self, request: &Outstanding, planted: PlantedBug) -> bool {
        // A draining queue finishes the requests that it has begun and begins no others.
        if self.state == State::SendQueueDrain {
            return false;
        }
        let fenced = request.request.flags.contains(SendFlags::FENCE);
        !fenced || self.requester.awaited.is_empty() || planted.is(Bug::FenceIgnored)
    }

    fn number_request(&mut self, link: &PeerRoute) {
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
        // The peer counts every request packet of a read as one message.
        let messages = match request.work() {
            Work::Read(_) => request.packets.div_ceil(piece),
            _ => 1,
        };
        requester.sequence = (requester.sequence + messages) & 0xff_ffff;
    }

    /// The next packet to send.
    fn next_piece(&self, link: &PeerRoute, planted: PlantedBug) -> Result<Piece, Blocked> {
        let requester = &self.requester;
        if requester.rnr_wait_until.is_some() && !planted.is(Bug::RnrTimerIgnored) {
            return Err(Blocked::Waiting);
        }
        let request = self.send.at(requester.position).ok_or(Blocked::Idle)?;
        let Progress::Begun {
            first,
            sequence,
            piece,
        } = request.progress
        else {
            return Err(Blocked::Waiting);
        };
        if request.work().has_response() && !requester.is_awaited(requester.cursor) {
            self.check_response_resources()?;
        }
        let index = requester.cursor.ahead_of(first);
        let transport = self.init.kind.transport();
        let piece = request.piece(transport, index, link.mtu(), piece);
        if !self.window_admits(piece.span, link) {
            return Err(Blocked::Window { span: piece.span });
        }
        if !requester.peer_keeps(piece.span, link) || !self.credits_admit(request, sequence) {
            return Err(Blocked::Waiting);
        }
        Ok(piece)
    }

    fn check_response_resources(&self) -> Result<(), Blocked> {
        let depth = usize::from(self.attributes.initiator_depth.unwrap_or(0));
        match self.requester.awaited.len() {
            _ if depth == 0 => Err(Blocked::Impossible(Status::LocalOperation)),
            outstanding if outstanding >= depth => Err(Blocked::Waiting),
            _ => Ok(()),
        }
    }

    /// Whether the window admits enough packets for a send. After a full window it waits until a
    /// quarter of the window is free, because one send of many packets costs little more than a
    /// send of one. An acknowledgement is then on its way, because every quarter requests one.
    fn window_is_open(&self, link: &PeerRoute) -> bool {
        self.window_admits(self.window_step(link), link)
    }

    /// For how many packets the window must have room.
    fn window_step(&self, link: &PeerRoute) -> u32 {
        match self.requester.holes() {
            Some(holes) if holes.lost() > 0 => 1,
            _ => self.requester.admitted(link.mtu()) / 4,
        }
    }

    fn window_admits(&self, span: u32, link: &PeerRoute) -> bool {
        self.requester.window_fits(span, link) || self.requester.fills_first_hole()
    }

    /// C9-148: without a credit only one packet may be in flight, to learn of new credits.
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
        // The message was begun with credits and has requested no acknowledgement yet. Only its
        // rest will request one.
        let no_ack_requested = self.requester.packets_since_ack_request > 0;
        admitted || no_ack_requested || self.requester.in_flight() == 0
    }

    /// Sends a packet. Returns whether it requests an acknowledgement.
    fn send_piece(
        &mut self,
        piece: &Piece,
        is_last: bool,
        link: &PeerRoute,
        batch: &mut Batch<'_>,
        device: &mut DeviceState,
    ) -> Result<bool, Status> {
        let psn = self.requester.cursor;
        let requests_ack = is_last || self.requests_acknowledgement(piece, link);
        let request = self
            .send
            .at(self.requester.position)
            .expect("the piece is of the request at the cursor");
        let head = request
            .head(piece, link.peer, psn, device.planted)
            .partition(self.partition())
            .acknowledge(requests_ack);
        let (memory, domain) = (device.objects.memory(), self.init.domain);
        batch
            .push(&link.route, head, piece.payload, |out| {
                request.fill(piece, &memory, domain, out)
            })
            .map_err(|_| Status::LocalProtection)?;
        drop(memory);
        let awaited = request.work().has_response();
        self.advance(piece, requests_ack, awaited, device);
        Ok(requests_ack)
    }

    fn requests_acknowledgement(&self, piece: &Piece, link: &PeerRoute) -> bool {
        let requester = &self.requester;
        let full = !requester.window_fits(piece.span + 1, link);
        let interval = requester.packets_per_ack_request(link.mtu());
        let limited = requester.credit_limit.is_some() && requester.in_flight() == 0;
        piece.opcode.position().ends()
            || full
            || limited
            || requester.ends_round()
            || requester.packets_since_ack_request + 1 >= interval
    }

    fn advance(
        &mut self,
        piece: &Piece,
        requested_ack: bool,
        awaited: bool,
        device: &mut DeviceState,
    ) {
        let requester = &mut self.requester;
        let start = requester.cursor;
        let after = start + piece.span;
        if !requester.sends_new() {
            device.counters.retransmitted += 1;
            self.counters.retransmitted += 1;
        }
        if awaited && !requester.is_awaited(requester.cursor) {
            requester.awaited.push_back(after - 1);
        }
        if after.since(requester.next) > 0 {
            requester.next = after;
        }
        requester.cursor = after;
        requester.packets_since_ack_request = if requested_ack {
            0
        } else {
            requester.packets_since_ack_request + 1
        };
        requester.continue_repair(start);
    }

    /// Local work sends no packet, but completes in the order of the send queue.
    fn do_local_work(&mut self, device: &mut DeviceState) {
        let position = self.requester.position;
        let Some(work) = self.send.at(position).map(|request| *request.work()) else {
            return;
        };
        let progress = match self.execute_local(&work, device) {
            Ok(()) => Progress::Done,
            Err(status) => Progress::Failed(status),
        };
        if let Some(request) = self.send.at_mut(position) {
            request.progress = progress;
        }
        self.complete_finished(device);
    }

    /// The request at the cursor cannot be sent. It completes in error after all earlier requests.
    fn fail_current(&mut self, status: Status, device: &mut DeviceState) {
        if let Some(request) = self.send.at_mut(self.requester.position) {
            request.progress = Progress::Failed(status);
        }
        self.complete_finished(device);
    }

    /// Completes requests that waited only for earlier requests.
    fn complete_finished(&mut self, device: &mut DeviceState) {
        while let Some(front) = self.send.front() {
            match front.progress {
                Progress::Done => self.complete_oldest(Status::Success, device),
                Progress::Failed(status) => self.fail_send(status, device),
                Progress::Posted | Progress::Begun { .. } => break,
            }
        }
        self.announce_drained(device);
    }

    fn complete_oldest(&mut self, status: Status, device: &mut DeviceState) {
        self.requester.position = self.requester.position.saturating_sub(1);
        self.complete_send(status, device);
    }
}
