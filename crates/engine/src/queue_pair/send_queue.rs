//! The send queue: requests from posting to completion.

use std::collections::VecDeque;

use wire::{PathMtu, Psn};

use super::QueuePair;
use super::unpolled::{Message, Unpolled};
use crate::address::GidTable;
use crate::checksums::{Checksums, Readings};
use crate::completion::{CompletedWork, Completion, Status};
use crate::device_state::DeviceState;
use crate::observation::Observation;
use crate::queue_pair_init::QueuePairInit;
use crate::receive_queue::PostError;
use crate::state::QueuePairType;
use crate::work_request::{MAX_MESSAGE, Payload, SendFlags, SendRequest, Work};

/// A send request that has not completed.
#[derive(Debug)]
pub(super) struct Outstanding {
    pub(super) request: SendRequest,
    /// The length of the message in bytes.
    pub(super) length: u32,
    /// How many PSNs it takes; 0 for local work.
    pub(super) packets: u32,
    pub(super) progress: Progress,
    /// The checksums of the message, if the program is checked.
    pub(super) checksums: Option<Box<Checksums>>,
}

/// The progress of a send request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Progress {
    /// It has not begun.
    Posted,
    /// Packets of it are in flight.
    Begun {
        /// The PSN of its first packet.
        first: Psn,
        /// Its message sequence number, for the peer's credits.
        sequence: u32,
        /// How many response packets each request packet of a read asks for.
        piece: u32,
    },
    /// Local work is done. It completes after all earlier requests.
    Done,
    /// It failed. It completes with this status after all earlier requests.
    Failed(Status),
}

impl Outstanding {
    /// The PSN of its first packet, if it has begun.
    pub(super) fn first(&self) -> Option<Psn> {
        match self.progress {
            Progress::Begun { first, .. } => Some(first),
            _ => None,
        }
    }

    pub(super) fn work(&self) -> &Work {
        &self.request.work
    }
}

/// The requests of one send queue, oldest first.
#[derive(Debug)]
pub(super) struct SendQueue {
    requests: VecDeque<Outstanding>,
    capacity: u32,
    max_segments: u32,
    max_inline: u32,
    signal_all: bool,
    /// How many requests have ended with an error.
    pub(super) failed: usize,
    /// Requests that have ended, if the program is checked.
    unpolled: Unpolled,
}

impl SendQueue {
    pub(super) fn new(init: &QueuePairInit) -> Self {
        Self {
            requests: VecDeque::new(),
            capacity: init.max_sends,
            max_segments: init.max_send_segments,
            max_inline: init.max_inline,
            signal_all: init.signal_all,
            failed: 0,
            unpolled: Unpolled::default(),
        }
    }

    /// Reserves memory for `count` more requests.
    pub(super) fn reserve(&mut self, count: usize) -> Result<(), PostError> {
        let reserved = self.requests.try_reserve(count);
        reserved.map_err(|_| PostError::NoMemory)
    }

    /// Adds a request that was checked.
    pub(super) fn push(
        &mut self,
        request: SendRequest,
        length: u32,
        mtu: PathMtu,
        checksums: Option<Box<Checksums>>,
    ) {
        self.requests.push_back(Outstanding {
            packets: packets_of(&request.work, length, mtu),
            length,
            request,
            progress: Progress::Posted,
            checksums,
        });
    }

    /// Checks whether the queue has room for `count` more requests.
    pub(super) fn check_room(&self, count: usize) -> Result<(), PostError> {
        if self.requests.len() + count <= self.capacity as usize {
            Ok(())
        } else {
            Err(PostError::QueueFull)
        }
    }

    /// Checks whether the request is valid for this queue pair. Returns the length of its message.
    #[inline]
    pub(super) fn check(
        &self,
        request: &SendRequest,
        kind: QueuePairType,
        gids: &GidTable,
    ) -> Result<u32, PostError> {
        let length = request.payload.length();
        self.check_payload(request, length)?;
        check_service(request, kind, gids)?;
        message_length(&request.work, length)
    }

    /// As [`check`](Self::check), for a SEND, WRITE or READ of a reliable connection. Also checks whether there is room.
    #[inline]
    pub(super) fn check_common(&self, request: &SendRequest) -> Option<u32> {
        let length = request.payload.length();
        let is_valid = request.destination.is_none()
            && request.remote_srqn.is_none()
            && self.check_room(1).is_ok()
            && self.check_payload(request, length).is_ok();
        is_valid.then_some(length as u32)
    }

    #[inline]
    fn check_payload(&self, request: &SendRequest, length: u64) -> Result<(), PostError> {
        match &request.payload {
            Payload::Segments(segments) if segments.len() > self.max_segments as usize => {
                Err(PostError::TooManySegments {
                    max: self.max_segments,
                })
            }
            // The segments of these requests receive the result.
            Payload::Inline(_)
                if matches!(
                    request.work,
                    Work::Read(_) | Work::CompareSwap { .. } | Work::FetchAdd { .. }
                ) =>
            {
                Err(PostError::InlineResult)
            }
            // The eight bytes of an atomic write are part of the request, not inline data.
            Payload::Inline(_) if matches!(request.work, Work::AtomicWrite(_)) => Ok(()),
            Payload::Inline(bytes) if bytes.len() > self.max_inline as usize => {
                Err(PostError::InlineTooLong {
                    max: self.max_inline,
                })
            }
            _ if length > MAX_MESSAGE => Err(PostError::MessageTooLong),
            _ => Ok(()),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.requests.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }

    pub(super) fn front(&self) -> Option<&Outstanding> {
        self.requests.front()
    }

    pub(super) fn at(&self, position: usize) -> Option<&Outstanding> {
        self.requests.get(position)
    }

    pub(super) fn at_mut(&mut self, position: usize) -> Option<&mut Outstanding> {
        self.requests.get_mut(position)
    }

    /// The request in flight that `psn` belongs to.
    pub(super) fn find(&self, psn: Psn) -> Option<(u64, CompletedWork)> {
        let holds = |request: &&Outstanding| {
            let first = request.first();
            first.is_some_and(|first| psn.ahead_of(first) < request.packets)
        };
        let found = self.requests.iter().find(holds)?;
        Some((found.request.id, found.work().kind()))
    }

    /// Whether any request is in flight.
    pub(super) fn has_begun(&self) -> bool {
        self.front()
            .is_some_and(|front| front.progress != Progress::Posted)
    }

    /// All requests, the newest first.
    pub(super) fn newest_first(&mut self) -> impl Iterator<Item = &mut Outstanding> {
        self.requests.iter_mut().rev()
    }

    #[inline]
    pub(super) fn is_signaled(&self, request: &SendRequest) -> bool {
        self.signal_all || request.flags.contains(SendFlags::SIGNALED)
    }
}

impl QueuePair {
    /// Completes the oldest send request.
    pub(super) fn complete_send(&mut self, status: Status, device: &mut DeviceState) {
        let Some(ended) = self.send.requests.pop_front() else {
            return;
        };
        let (length, is_signaled) = (ended.length, self.send.is_signaled(&ended.request));
        let (id, work) = (ended.request.id, ended.work().kind());
        if device.observations.are_recorded() {
            let completes = status != Status::Success || is_signaled;
            self.observe_end(ended, status, completes, device);
        }
        if status == Status::Success {
            self.counters.messages_sent += 1;
            device.counters.sends_completed += u64::from(work == CompletedWork::Send);
        } else {
            self.send.failed += 1;
        }
        // An error is reported even for an unsignaled request.
        if status == Status::Success && !is_signaled {
            return;
        }
        let completion = self.send_completion(status, (id, work), length);
        device.complete(&self.attached.send_completions, completion, false);
    }

    /// The completion of a send request.
    #[inline]
    pub(super) fn send_completion(
        &self,
        status: Status,
        (id, work): (u64, CompletedWork),
        length: u32,
    ) -> Completion {
        Completion {
            id,
            status,
            work,
            length,
            queue_pair: self.number,
            immediate: None,
            invalidated: None,
            source: None,
        }
    }

    /// Records the end of a request, and whether a transmission found its message changed. If not, the message is compared
    /// again when the program polls.
    #[cold]
    fn observe_end(
        &mut self,
        ended: Outstanding,
        status: Status,
        completes: bool,
        device: &mut DeviceState,
    ) {
        let checksums = ended.checksums;
        let changed_at = checksums.as_ref().and_then(|it| it.changed_at.get());
        let message = match (checksums, ended.request.payload) {
            (Some(checksums), Payload::Segments(segments))
                if changed_at.is_none() && status == Status::Success =>
            {
                Some(Message {
                    segments,
                    checksums,
                })
            }
            _ => None,
        };
        if message.is_some() {
            device.uncompared.insert(self.number);
        }
        let capacity = self.send.capacity;
        self.send.unpolled.push(message, completes, capacity);
        device.observations.note(|| Observation::SendEnded {
            queue_pair: self.number,
            status,
            changed_at,
        });
    }

    /// Compares the messages that the next completion of a send request covers with their checksums.
    #[cold]
    pub(crate) fn compare_covered(&mut self, readings: &mut Readings, device: &mut DeviceState) {
        let messages = self.send.unpolled.take_covered();
        self.compare(messages, readings, device);
    }

    /// Compares all messages that have ended with their checksums.
    #[cold]
    pub(crate) fn compare_ended(&mut self, readings: &mut Readings, device: &mut DeviceState) {
        let messages = self.send.unpolled.take_messages();
        self.compare(messages, readings, device);
    }

    fn compare(
        &self,
        messages: Vec<(u64, Message)>,
        readings: &mut Readings,
        device: &mut DeviceState,
    ) {
        for (serial, message) in messages {
            let checksums = &message.checksums;
            let memory = device.objects.memory();
            let now = readings.read(
                &memory,
                self.init.domain,
                message.segments,
                checksums.piece(),
            );
            checksums.compare_all(now);
            if let Some(offset) = checksums.changed_at.get() {
                device.observations.note(|| Observation::MessageChanged {
                    queue_pair: self.number,
                    serial,
                    offset,
                });
            }
        }
    }

    pub(super) fn flush_sends(&mut self, device: &mut DeviceState) {
        while !self.send.is_empty() {
            self.complete_send(Status::Flushed, device);
        }
    }
}

/// Checks what each queue pair type supports.
#[inline]
fn check_service(
    request: &SendRequest,
    kind: QueuePairType,
    gids: &GidTable,
) -> Result<(), PostError> {
    let fits = match request.work {
        Work::Send | Work::SendImmediate(_) => kind != QueuePairType::XrcTarget,
        Work::SendInvalidate(_) => matches!(kind, QueuePairType::Rc | QueuePairType::XrcInitiator),
        Work::Write(_) | Work::WriteImmediate(..) => {
            matches!(
                kind,
                QueuePairType::Rc | QueuePairType::Uc | QueuePairType::XrcInitiator
            )
        }
        Work::LocalInvalidate(_) | Work::BindWindow { .. } => {
            matches!(
                kind,
                QueuePairType::Rc | QueuePairType::Uc | QueuePairType::XrcInitiator
            )
        }
        _ => matches!(kind, QueuePairType::Rc | QueuePairType::XrcInitiator),
    };
    if !fits {
        return Err(PostError::Unsupported);
    }
    if request.destination.is_some() != kind.is_datagram() {
        return Err(PostError::Destination);
    }
    if let Some(destination) = &request.destination {
        gids.resolve(&destination.address)?;
    }
    let names_queue = kind == QueuePairType::XrcInitiator && !request.work.is_local();
    if request.remote_srqn.is_some() != names_queue {
        return Err(PostError::Destination);
    }
    Ok(())
}

/// The length of the message of a request with this length of payload.
///
/// The result of a fetching atomic may go into a segment of more than eight bytes, of which the first eight are filled. An atomic
/// write sends exactly eight bytes. The responder checks the alignment of the remote address.
#[inline]
fn message_length(work: &Work, length: u64) -> Result<u32, PostError> {
    match work {
        Work::CompareSwap { .. } | Work::FetchAdd { .. } if length >= 8 => Ok(8),
        Work::AtomicWrite(_) if length == 8 => Ok(8),
        Work::CompareSwap { .. } | Work::FetchAdd { .. } | Work::AtomicWrite(_) => {
            Err(PostError::AtomicShape)
        }
        _ => Ok(length as u32),
    }
}

fn packets_of(work: &Work, length: u32, mtu: PathMtu) -> u32 {
    match work {
        Work::LocalInvalidate(_) | Work::BindWindow { .. } => 0,
        Work::Send | Work::SendImmediate(_) | Work::SendInvalidate(_) => in_packets(length, mtu),
        Work::Write(_) | Work::WriteImmediate(..) | Work::Read(_) => in_packets(length, mtu),
        _ => 1,
    }
}

/// How many packets a message of this length takes. An empty message takes one.
#[inline]
pub(super) fn in_packets(length: u32, mtu: PathMtu) -> u32 {
    match mtu.bytes() as u32 {
        mtu if length <= mtu => 1,
        mtu => length.div_ceil(mtu),
    }
}
