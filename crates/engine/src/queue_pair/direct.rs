//! Requests between two queue pairs of one device that are executed without packets.
//!
//! Usually both ends are idle and in step when a request is next. Then nothing can happen to its packets: they are not lost, the
//! receiver has no reason to reject them, and the acknowledgement follows at once. So the data is copied, and both ends are moved
//! to the state that the packets would leave them in. If anything is different, or a check fails, nothing is changed, and
//! packets are built: they are the only ones that report errors.

use wire::{Aeth, Modifier, Opcode, Operation, Position, Psn, Qpn, Route, Transport};

use super::QueuePair;
use super::send_queue::Progress;
use crate::completion::{CompletedWork, Completion, Status};
use crate::device_state::DeviceState;
use crate::memory::{Access, Memory, Output, Requirement};
use crate::now::Now;
use crate::state::{QueuePairType, State};
use crate::transmit::wire_length;
use crate::work_request::{Payload, RemoteMemory, SendFlags, Work};

/// The next request of an idle queue pair.
pub(crate) struct DirectRequest {
    kind: Kind,
    length: u32,
    packets: u32,
    psn: Psn,
    mtu: usize,
    solicited: bool,
    sender: Qpn,
    pub(crate) receiver: Qpn,
    pub(crate) route: Route,
}

#[derive(Clone, Copy)]
enum Kind {
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
    fn of(work: &Work) -> Option<Self> {
        match *work {
            Work::Send => Some(Self::Send(None)),
            Work::SendImmediate(immediate) => Some(Self::Send(Some(immediate))),
            Work::Write(remote) => Some(Self::Write(remote)),
            Work::Read(remote) => Some(Self::Read(remote)),
            _ => None,
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

impl DirectRequest {
    /// How many bytes it moves.
    pub(crate) fn length(&self) -> usize {
        self.length as usize
    }

    /// What the sender would send.
    fn forward(&self) -> Traffic {
        match self.kind {
            Kind::Send(None) => self.message(Operation::Send, Modifier::None),
            Kind::Send(Some(_)) => self.message(Operation::Send, Modifier::Immediate),
            Kind::Write(_) => self.message(Operation::Write, Modifier::None),
            Kind::Read(_) => bare(Operation::ReadRequest),
        }
    }

    /// What the receiver would send.
    fn backward(&self) -> Traffic {
        match self.kind {
            Kind::Send(_) | Kind::Write(_) => bare(Operation::Acknowledge),
            Kind::Read(_) => self.message(Operation::ReadResponse, Modifier::None),
        }
    }

    /// The packets of the whole message. The last one is as long as the rest.
    fn message(&self, operation: Operation, last: Modifier) -> Traffic {
        let header = |position, modifier| header_length(operation, position, modifier);
        let (packets, length) = (self.packets as usize, self.length as usize);
        let bytes = match packets {
            1 => wire_length(header(Position::Only, last), length),
            _ => {
                let middle = (packets - 2) * header(Position::Middle, Modifier::None);
                let full = wire_length(0, self.mtu) * (packets - 1);
                let rest = length - self.mtu * (packets - 1);
                header(Position::First, Modifier::None)
                    + middle
                    + full
                    + wire_length(header(Position::Last, last), rest)
            }
        };
        Traffic {
            packets: packets as u64,
            bytes: bytes as u64,
        }
    }
}

/// A packet without payload.
fn bare(operation: Operation) -> Traffic {
    let header = header_length(operation, Position::Only, Modifier::None);
    Traffic {
        packets: 1,
        bytes: wire_length(header, 0) as u64,
    }
}

fn header_length(operation: Operation, position: Position, modifier: Modifier) -> usize {
    Opcode::find(Transport::Rc, operation, position, modifier).map_or(0, Opcode::header_length)
}

impl QueuePair {
    /// The next send request, if nothing else is under way. Its packets request one acknowledgement, with the last of them.
    pub(crate) fn direct_request(&self) -> Option<DirectRequest> {
        let (link, request) = (self.link?, self.send.front()?);
        let kind = Kind::of(request.work())?;
        let is_next = self.init.kind == QueuePairType::Rc
            && self.state == State::ReadyToSend
            && request.progress == Progress::Posted
            && !self.responder.has_responses()
            && self.requester.is_idle();
        let is_short = request.packets <= self.requester.packets_per_ack_request(link.mtu());
        let may_read = !matches!(kind, Kind::Read(_)) || self.attributes.initiator_depth > Some(0);
        (is_next && is_short && may_read).then(|| DirectRequest {
            kind,
            length: request.length,
            packets: request.packets,
            psn: self.requester.cursor(),
            mtu: link.mtu(),
            solicited: request.request.flags.contains(SendFlags::SOLICITED),
            sender: self.number,
            receiver: link.peer,
            route: link.route,
        })
    }

    /// Whether this queue pair would execute the request, as far as its memory allows it.
    pub(crate) fn expects(&self, request: &DirectRequest) -> bool {
        let is_peer = self.link.is_some_and(|link| {
            let (ours, theirs) = (&link.route.flow, &request.route.flow);
            link.peer == request.sender
                && link.mtu() == request.mtu
                && ours.destination == theirs.source
                && ours.source == theirs.destination
        });
        let admits = match request.kind {
            Kind::Send(_) => {
                let next = self.receive.front();
                self.init.shared_receive.is_none()
                    && next.is_some_and(|it| u64::from(request.length) <= it.capacity())
            }
            Kind::Write(_) => true,
            Kind::Read(_) => self.attributes.responder_resources > Some(0),
        };
        is_peer
            && admits
            && self.init.kind == QueuePairType::Rc
            && self.state.receives()
            && self.access().contains(request.kind.needed_right())
            && self.responder.is_idle_at(request.psn)
    }

    /// Copies the data of a request to its place. Fails if memory is not as it should be; then parts may be copied.
    pub(crate) fn copy_directly(
        &self,
        request: &DirectRequest,
        receiver: &Self,
        memory: &Memory,
        buffer: &mut Vec<u8>,
    ) -> Option<()> {
        let (length, payload) = (request.length(), &self.send.front()?.request.payload);
        if length == 0 {
            return Some(());
        }
        buffer.clear();
        let out = &mut Output::Private(buffer);
        let remote = |memory: RemoteMemory| (receiver.accessor(), memory.key, memory.address);
        let requirement = Requirement::of(request.kind.needed_right());
        if let Kind::Read(from) = request.kind {
            let Payload::Segments(segments) = payload else {
                return None;
            };
            let (accessor, key, address) = remote(from);
            let view = memory.remote(accessor, key, address, length as u64, requirement);
            view.and_then(|view| view.append_to(out, 0, length)).ok()?;
            let stored = memory.scatter(self.init.domain, segments, 0, buffer[..].into());
            return stored.ok();
        }
        let bytes = match payload {
            Payload::Inline(bytes) => &bytes[..],
            Payload::Segments(segments) => {
                let gathered = memory.gather(self.init.domain, segments, 0, length, out);
                gathered.ok()?;
                &buffer[..]
            }
        };
        match request.kind {
            Kind::Write(to) => {
                let (accessor, key, address) = remote(to);
                let view = memory.remote(accessor, key, address, length as u64, requirement);
                view.and_then(|view| view.store(0, bytes.into())).ok()
            }
            Kind::Send(_) | Kind::Read(_) => {
                let segments = &receiver.receive.front()?.segments;
                let domain = receiver.init.domain;
                memory.scatter(domain, segments, 0, bytes.into()).ok()
            }
        }
    }

    /// Moves the receiver to the state after the request. Returns its acknowledgement.
    pub(crate) fn note_received_directly(
        &mut self,
        request: &DirectRequest,
        device: &mut DeviceState,
    ) -> Aeth {
        self.count_directly(request.backward(), request.forward(), device);
        self.responder.expected = request.psn + request.packets;
        self.count_message();
        if let Kind::Send(immediate) = request.kind
            && let Some(receive) = self.receive.take()
        {
            let completion = Completion {
                id: receive.id,
                status: Status::Success,
                work: CompletedWork::Receive,
                length: request.length,
                queue_pair: self.number,
                immediate,
                invalidated: None,
                source: None,
            };
            device.counters.receives_completed += 1;
            device.complete(
                &self.attached.receive_completions,
                completion,
                request.solicited,
            );
        }
        self.acknowledgement()
    }

    /// Moves the sender to the state after the acknowledgement.
    pub(crate) fn note_sent_directly(
        &mut self,
        request: &DirectRequest,
        acknowledgement: &Aeth,
        now: &Now,
        device: &mut DeviceState,
    ) {
        self.count_directly(request.forward(), request.backward(), device);
        self.requester.skip(request.packets);
        self.made_progress(now, request.psn);
        self.update_credits(acknowledgement);
        self.complete_send(Status::Success, device);
    }

    fn count_directly(&mut self, sent: Traffic, received: Traffic, device: &mut DeviceState) {
        let (own, all) = (&mut self.counters, &mut device.counters);
        own.packets_sent += sent.packets;
        own.bytes_sent += sent.bytes;
        own.packets_received += received.packets;
        own.bytes_received += received.bytes;
        all.packets_sent += sent.packets;
        all.bytes_sent += sent.bytes;
        all.packets_received += received.packets;
        all.bytes_received += received.bytes;
        all.delivered_to_self += received.packets;
    }
}
