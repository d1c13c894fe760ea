//! Requests between two queue pairs of one device that are executed without packets, when they are posted.
//!
//! Usually both ends are idle and in step when a request is posted. Then nothing can happen to its packets: they are not lost, the
//! receiver has no reason to reject them, and the acknowledgement follows at once. So the data is copied, and both ends are moved
//! to the state that the packets would leave them in. If anything is different, or a check fails, nothing is changed, and the
//! request is queued for packets: they are the only ones that report errors.

use wire::{Opcode, Psn, Qpn, Syndrome};

use super::QueuePair;
use super::send_queue::in_packets;
use crate::completion::{CompletedWork, Completion, Status};
use crate::device_state::DeviceState;
use crate::memory::{Access, Memory, Place, Requirement, Span};
use crate::state::{QueuePairType, State};
use crate::transmit::wire_length;
use crate::work_request::{Payload, RemoteMemory, SendFlags, SendRequest};

/// What earlier requests have found out about a queue pair. The device forgets it when it gets the queue pair for anything that may
/// change it, so a request that follows another one need not find it out again.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct InStep {
    /// It may send to its peer, and nothing is under way: the last thing that it did was to complete a request.
    sends: bool,
    /// It expects what its peer sends next, and nothing is under way.
    receives: bool,
}

/// A request that is posted to an idle queue pair.
#[derive(Clone, Copy)]
pub(crate) struct DirectRequest<'r> {
    request: &'r SendRequest,
    kind: Kind,
    length: u32,
    packets: u32,
    mtu: usize,
    psn: Psn,
}

/// The requests that need no packets.
#[derive(Clone, Copy)]
pub(crate) enum Kind {
    Send(Option<[u8; 4]>),
    Write(RemoteMemory),
    Read(RemoteMemory),
}

/// Packets and their bytes.
#[derive(Clone, Copy)]
struct Traffic {
    packets: u64,
    bytes: u64,
}

impl Kind {
    const fn work(self) -> CompletedWork {
        match self {
            Self::Send(_) => CompletedWork::Send,
            Self::Write(_) => CompletedWork::Write,
            Self::Read(_) => CompletedWork::Read,
        }
    }

    /// The right that the queue pair of the receiver must grant.
    const fn needed_right(self) -> Access {
        match self {
            Self::Send(_) => Access::empty(),
            Self::Write(_) => Access::REMOTE_WRITE,
            Self::Read(_) => Access::REMOTE_READ,
        }
    }
}

impl DirectRequest<'_> {
    /// How many bytes it moves.
    #[inline]
    pub(crate) fn length(&self) -> usize {
        self.length as usize
    }

    /// What the sender and the receiver would send.
    #[inline(always)]
    fn traffic(&self) -> [Traffic; 2] {
        match self.kind {
            Kind::Send(None) => [self.message(&SEND), ACKNOWLEDGEMENT],
            Kind::Send(Some(_)) => [self.message(&SEND_IMMEDIATE), ACKNOWLEDGEMENT],
            Kind::Write(_) => [self.message(&WRITE), ACKNOWLEDGEMENT],
            Kind::Read(_) => [READ_REQUEST, self.message(&READ_RESPONSE)],
        }
    }

    /// The packets of the whole message. The last one is as long as the rest.
    #[inline(always)]
    fn message(&self, heads: &Heads) -> Traffic {
        let length = self.length();
        let bytes = match self.packets as usize {
            1 => wire_length(heads.only, length),
            packets => {
                let full = wire_length(0, self.mtu) * (packets - 1);
                let rest = length - self.mtu * (packets - 1);
                heads.first + heads.middle * (packets - 2) + full + wire_length(heads.last, rest)
            }
        };
        Traffic {
            packets: self.packets.into(),
            bytes: bytes as u64,
        }
    }
}

/// The lengths of the headers of a message: of its only packet, or of its first, middle and last one.
struct Heads {
    only: usize,
    first: usize,
    middle: usize,
    last: usize,
}

impl Heads {
    const fn of([only, first, middle, last]: [Opcode; 4]) -> Self {
        Self {
            only: only.header_length(),
            first: first.header_length(),
            middle: middle.header_length(),
            last: last.header_length(),
        }
    }
}

const SEND: Heads = Heads::of([
    Opcode::RcSendOnly,
    Opcode::RcSendFirst,
    Opcode::RcSendMiddle,
    Opcode::RcSendLast,
]);
const SEND_IMMEDIATE: Heads = Heads::of([
    Opcode::RcSendOnlyImmediate,
    Opcode::RcSendFirst,
    Opcode::RcSendMiddle,
    Opcode::RcSendLastImmediate,
]);
const WRITE: Heads = Heads::of([
    Opcode::RcWriteOnly,
    Opcode::RcWriteFirst,
    Opcode::RcWriteMiddle,
    Opcode::RcWriteLast,
]);
const READ_RESPONSE: Heads = Heads::of([
    Opcode::RcReadResponseOnly,
    Opcode::RcReadResponseFirst,
    Opcode::RcReadResponseMiddle,
    Opcode::RcReadResponseLast,
]);

const ACKNOWLEDGEMENT: Traffic = Traffic::without_payload(Opcode::RcAcknowledge);
const READ_REQUEST: Traffic = Traffic::without_payload(Opcode::RcReadRequest);

impl Traffic {
    const fn without_payload(opcode: Opcode) -> Self {
        Self {
            packets: 1,
            bytes: wire_length(opcode.header_length(), 0) as u64,
        }
    }
}

impl QueuePair {
    /// The number of the peer's queue pair, if it is connected.
    pub(crate) fn peer_number(&self) -> Option<Qpn> {
        self.link.as_ref().map(|link| link.peer)
    }

    /// Forgets what requests have found out, because it may change.
    #[inline]
    pub(crate) fn leave_step(&mut self) {
        self.in_step = InStep::default();
    }

    /// Whether both ends are known to be idle and in step.
    #[inline]
    pub(crate) fn is_known_in_step_with(&self, receiver: &Self) -> bool {
        // A queue pair that was destroyed may have had the number of this one.
        self.in_step.sends
            && receiver.in_step.receives
            && receiver.peer_number() == Some(self.number)
    }

    /// Whether nothing is under way at this queue pair, and its peer expects what it sends next. The address of the peer is one of this
    /// device, because packets of this queue pair come from it.
    pub(crate) fn is_in_step_with(&self, receiver: &Self) -> bool {
        let (Some(ours), Some(theirs)) = (&self.link, &receiver.link) else {
            return false;
        };
        let kinds = [self.init.kind, receiver.init.kind];
        kinds == [QueuePairType::Rc; 2]
            && self.state == State::ReadyToSend
            && self.send.is_empty()
            && !self.responder.has_responses()
            && self.requester.is_idle()
            && theirs.peer == self.number
            && ours.mtu == theirs.mtu
            && theirs.is_from_peer(&ours.route)
            && receiver.state.receives()
            && receiver.responder.is_idle_at(self.requester.cursor())
    }

    /// The request that is posted, if it is valid. Its packets would request one acknowledgement, with the last of them.
    #[inline(always)]
    pub(crate) fn direct_request<'r>(
        &self,
        request: &'r SendRequest,
        kind: Kind,
    ) -> Option<DirectRequest<'r>> {
        let link = self.link.as_ref()?;
        let length = self.send.check_common(request)?;
        let (packets, mtu) = (in_packets(length, link.mtu), link.mtu());
        let is_short = packets == 1 || packets <= self.requester.packets_per_ack_request(mtu);
        let may_read = !matches!(kind, Kind::Read(_)) || self.attributes.initiator_depth > Some(0);
        (is_short && may_read).then(|| DirectRequest {
            request,
            kind,
            length,
            packets,
            mtu,
            psn: self.requester.cursor(),
        })
    }

    /// Whether this queue pair would execute the request of its peer, as far as its memory allows it.
    #[inline(always)]
    pub(crate) fn admits(&self, request: DirectRequest<'_>) -> bool {
        let has_room = match request.kind {
            Kind::Send(_) => {
                let next = self.receive.front();
                self.init.shared_receive.is_none()
                    && next.is_some_and(|it| u64::from(request.length) <= it.capacity())
                    && self.attached.receive_completions.has_room()
            }
            Kind::Write(_) => true,
            Kind::Read(_) => self.attributes.responder_resources > Some(0),
        };
        has_room && self.access().contains(request.kind.needed_right())
    }

    /// Copies the data of a request to its place. Fails if memory is not as it should be; then parts may be copied.
    #[inline(always)]
    pub(crate) fn copy_directly(
        &self,
        request: DirectRequest<'_>,
        receiver: &Self,
        memory: &Memory,
        piece: &mut Vec<u8>,
    ) -> Option<()> {
        if request.length == 0 || self.copy_few(request, receiver, memory) {
            return Some(());
        }
        self.copy_pieces(request, receiver, memory, piece)
    }

    /// Copies a short message between two spans of memory. Returns false if it is not one, or is not accessible.
    #[inline(always)]
    fn copy_few(&self, request: DirectRequest<'_>, receiver: &Self, memory: &Memory) -> bool {
        let Payload::Segments(segments) = &request.request.payload else {
            return false;
        };
        let [segment] = segments.as_slice() else {
            return false;
        };
        let (length, domain) = (request.length, receiver.init.domain);
        let ours = |needs| Span::of(self.init.domain, *segment, needs);
        let theirs = |remote: RemoteMemory, needs| Span::of(domain, remote.segment(length), needs);
        let (from, to) = match request.kind {
            Kind::Send(_) => match receiver.receive.front().map(|it| it.segments.as_slice()) {
                Some([receive]) => {
                    let to = Span::of(domain, *receive, Requirement::LOCAL_WRITE);
                    (ours(Requirement::NOTHING), to)
                }
                _ => return false,
            },
            Kind::Write(remote) => {
                let to = theirs(remote, Requirement::REMOTE_WRITE);
                (ours(Requirement::NOTHING), to)
            }
            Kind::Read(remote) => {
                let from = theirs(remote, Requirement::REMOTE_READ);
                (from, ours(Requirement::LOCAL_WRITE))
            }
        };
        memory.copy_few(from, to, length)
    }

    #[inline(never)]
    fn copy_pieces(
        &self,
        request: DirectRequest<'_>,
        receiver: &Self,
        memory: &Memory,
        piece: &mut Vec<u8>,
    ) -> Option<()> {
        let theirs = match request.kind {
            Kind::Send(_) => {
                let segments = &receiver.receive.front()?.segments;
                Place::Segments(receiver.init.domain, segments)
            }
            Kind::Write(memory) | Kind::Read(memory) => {
                Place::Remote(receiver.accessor(), memory.key, memory.address)
            }
        };
        let ours = match &request.request.payload {
            Payload::Segments(segments) => Place::Segments(self.init.domain, segments),
            Payload::Inline(bytes) => return memory.fill(theirs, bytes).ok(),
        };
        let (from, to) = match request.kind {
            Kind::Send(_) | Kind::Write(_) => (ours, theirs),
            Kind::Read(_) => (theirs, ours),
        };
        memory.transfer(from, to, request.length.into(), piece).ok()
    }

    /// Moves the receiver to the state after the request, and the sender to the state after the acknowledgement.
    #[inline(always)]
    pub(crate) fn complete_directly(
        &mut self,
        request: DirectRequest<'_>,
        receiver: &mut Self,
        device: &mut DeviceState,
    ) {
        let [forward, backward] = request.traffic();
        device.count_delivered(
            forward.packets + backward.packets,
            forward.bytes + backward.bytes,
        );
        receiver.count_directly(backward, forward);
        self.count_directly(forward, backward);
        let posted = request.request;
        receiver.responder.expected = request.psn + request.packets;
        receiver.count_message();
        if let Kind::Send(immediate) = request.kind
            && let Some(receive) = receiver.receive.take()
        {
            device.counters.receives_completed += 1;
            let completion = Completion {
                id: receive.id,
                status: Status::Success,
                work: CompletedWork::Receive,
                length: request.length,
                queue_pair: receiver.number,
                immediate,
                invalidated: None,
                source: None,
            };
            let solicited = posted.flags.contains(SendFlags::SOLICITED);
            let queue = &receiver.attached.receive_completions;
            device.add_completion(queue, completion, solicited);
        }
        self.skip(request.packets);
        let credits = receiver.own_credits().map(Syndrome::reported_credits);
        self.set_credits(credits, receiver.responder.completed());
        self.counters.messages_sent += 1;
        let work = request.kind.work();
        device.counters.sends_completed += u64::from(work == CompletedWork::Send);
        if self.send.is_signaled(posted) {
            let completion =
                self.send_completion(Status::Success, (posted.id, work), request.length);
            device.add_completion(&self.attached.send_completions, completion, false);
        }
    }

    /// What the acknowledgement of a request leaves as it is, if nothing else happens between two requests.
    #[cold]
    pub(crate) fn enter_step_with(&mut self, receiver: &mut Self) {
        self.end_retries();
        self.in_step.sends = true;
        receiver.in_step.receives = true;
    }

    #[inline]
    fn count_directly(&mut self, sent: Traffic, received: Traffic) {
        let counters = &mut self.counters;
        counters.packets_sent += sent.packets;
        counters.bytes_sent += sent.bytes;
        counters.packets_received += received.packets;
        counters.bytes_received += received.bytes;
    }
}
