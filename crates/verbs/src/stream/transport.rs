//! The messages of a stream: which are posted, which have arrived, and what failed.
//!
//! Requests are posted, and their results handled, without a lock and in the order of the stream, by one thread at a time: the one that
//! has taken the [`Queues`] out of the [`State`]. A thread that finds them taken leaves its work to that one.

use std::collections::VecDeque;
use std::mem;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use super::failure::Failure;
use super::flow::{Arrival, Flow, HEADER, Header, Violation};
use super::message::{Buffer, Message};
use super::waiting::Waiting;
use crate::connection::Connection;
use crate::memory::{MemoryRegion, OwnedRegion};
use crate::protection_domain::ProtectionDomain;
use crate::requests::{Outstanding, Received, RequestError, Requests};

/// What both halves of a stream use.
#[derive(Debug)]
pub(super) struct Transport {
    // Dropped first: nothing uses the memory afterwards.
    connection: Connection<Requests>,
    domain: ProtectionDomain,
    /// Memory of the messages with data that are sent.
    slots: MemoryRegion,
    slot_size: usize,
    /// How much data a message carries at most.
    longest: usize,
    state: Mutex<State>,
    waiting: Arc<Waiting>,
    /// Wakes all tasks of the stream.
    waker: Waker,
}

#[derive(Debug)]
struct State {
    flow: Flow,
    /// Messages with data that nobody has read yet.
    arrived: VecDeque<Message>,
    /// Buffers whose data was read. They are posted before the peer is told.
    freed: Vec<Buffer>,
    free_slots: Vec<usize>,
    /// How many threads write into a slot.
    writers: u32,
    /// Messages with data that are to be sent.
    written: VecDeque<Content>,
    end: End,
    /// No message arrives any more.
    is_deaf: bool,
    /// Whether data was sent that was not acknowledged.
    is_lost: bool,
    failure: Option<Failure>,
    /// `None` while a thread works with them.
    queues: Option<Queues>,
    /// What that thread does next, for another one.
    next_work: Option<Work>,
}

/// The end of what this side sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    NotYet,
    /// It is sent behind all data.
    Asked,
    Sent,
    /// The peer has it and all data before, or never gets it.
    Over {
        is_complete: bool,
    },
}

/// What is posted, each in its order.
#[derive(Debug)]
struct Queues {
    receives: VecDeque<Receive>,
    sends: VecDeque<Posted>,
}

/// A buffer for a message of the peer.
#[derive(Debug)]
pub(super) struct Receive {
    pub(super) request: Outstanding<Received>,
    pub(super) region: OwnedRegion<Vec<u8>>,
}

/// A message that is sent.
#[derive(Debug)]
struct Posted {
    request: Outstanding<()>,
    content: Content,
}

/// What a message carries besides credits.
#[derive(Debug, Clone, Copy)]
enum Content {
    Data { slot: usize, length: usize },
    Nothing,
    End,
}

/// What a thread does with the queues.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Work {
    /// Posts what is due.
    Post,
    /// Posts it, and handles what is complete. If nothing is, the next completion wakes all tasks.
    PostAndCollect,
}

impl Transport {
    pub(super) fn new(
        connection: Connection<Requests>,
        domain: ProtectionDomain,
        (slots, slot_size): (MemoryRegion, usize),
        longest: usize,
        flow: Flow,
        receives: VecDeque<Receive>,
    ) -> Self {
        let waiting = Arc::<Waiting>::default();
        let state = State {
            flow,
            arrived: VecDeque::new(),
            freed: Vec::new(),
            // The one that was used last is used next, because its memory is in the cache.
            free_slots: (0..slots.len() / slot_size).collect(),
            writers: 0,
            written: VecDeque::new(),
            end: End::NotYet,
            is_deaf: false,
            is_lost: false,
            failure: None,
            queues: Some(Queues {
                receives,
                sends: VecDeque::new(),
            }),
            next_work: None,
        };
        Self {
            connection,
            domain,
            slots,
            slot_size,
            longest,
            state: Mutex::new(state),
            waker: Waker::from(Arc::clone(&waiting)),
            waiting,
        }
    }

    pub(super) fn connection(&self) -> &Connection<Requests> {
        &self.connection
    }

    pub(super) fn waiting(&self) -> &Waiting {
        &self.waiting
    }

    /// The next message of the peer, if it is there; `None` in it at the end of the stream.
    pub(super) fn next_message(&self) -> Option<Result<Option<Message>, Failure>> {
        let mut state = self.state();
        if let Some(message) = state.arrived.pop_front() {
            return Some(Ok(Some(message)));
        }
        if state.flow.has_peer_ended() {
            return Some(Ok(None));
        }
        let failure = state.is_deaf.then(|| state.failure.clone()).flatten();
        failure.map(Err)
    }

    /// All data of a message is read.
    pub(super) fn give_back(&self, message: Message) {
        let mut state = self.state();
        state.freed.push(message.into_buffer());
        state.flow.free();
        let is_due = state.flow.is_due();
        drop(state);
        if is_due {
            self.work(Work::Post);
        }
    }

    /// Sends a part of the data, if the peer has a buffer and there is a slot. Returns how much.
    pub(super) fn send(&self, data: &[u8]) -> Option<Result<usize, Failure>> {
        let data = &data[..data.len().min(self.longest)];
        let slot = match self.state().take_slot()? {
            Ok(slot) => slot,
            Err(failure) => return Some(Err(failure)),
        };
        self.slots.write(slot * self.slot_size + HEADER, data);
        let mut state = self.state();
        state.writers -= 1;
        state.written.push_back(Content::Data {
            slot,
            length: HEADER + data.len(),
        });
        drop(state);
        self.work(Work::Post);
        Some(Ok(data.len()))
    }

    /// Ends this direction of the stream. Returns whether the peer has all of it, when that is known.
    pub(super) fn finish(&self) -> Option<Result<(), Failure>> {
        let mut state = self.state();
        match state.end {
            End::NotYet => {
                state.end = End::Asked;
                drop(state);
                self.work(Work::Post);
                None
            }
            End::Asked | End::Sent => None,
            End::Over { is_complete: true } => Some(Ok(())),
            End::Over { is_complete: false } => {
                Some(Err(state.failure.clone().unwrap_or(Failure::Ended)))
            }
        }
    }

    /// Handles what is complete. If nothing is, the next completion wakes all tasks.
    pub(super) fn collect(&self) {
        self.work(Work::PostAndCollect);
    }

    fn work(&self, work: Work) {
        let mut work = work;
        loop {
            let taken = self.state().take_queues(work);
            let Some(mut queues) = taken else { return };
            self.post(&mut queues);
            let has_progress = work == Work::PostAndCollect && self.handle_complete(&mut queues);
            let mut state = self.state();
            state.queues = Some(queues);
            let next = state.next_work.take();
            drop(state);
            if has_progress {
                self.waiting.wake_all();
            }
            match next {
                Some(next) => work = next,
                None => return,
            }
        }
    }

    /// Posts what is to be sent, after the buffers that are free now.
    fn post(&self, queues: &mut Queues) {
        loop {
            let mut state = self.state();
            let Some(content) = state.next_content() else {
                return;
            };
            let (freed, credits) = (mem::take(&mut state.freed), state.flow.grant());
            drop(state);
            for buffer in freed {
                match buffer.registered(&self.domain) {
                    Ok(region) => self.post_receive(queues, region),
                    Err(error) => self.give_up(error.into()),
                }
            }
            let is_end = matches!(content, Content::End);
            let header = Header { is_end, credits }.to_bytes();
            let request = match content {
                Content::Data { slot, length } => {
                    let begin = slot * self.slot_size;
                    self.slots.write(begin, &header);
                    let message = self.slots.slice(begin..begin + length);
                    self.connection.send(message)
                }
                Content::Nothing | Content::End => self.connection.send(&header),
            };
            queues.sends.push_back(Posted { request, content });
        }
    }

    fn post_receive(&self, queues: &mut Queues, region: OwnedRegion<Vec<u8>>) {
        let request = self.connection.receive(region.all());
        queues.receives.push_back(Receive { request, region });
    }

    /// Returns whether anything was complete. What follows at once is handled by the next call.
    fn handle_complete(&self, queues: &mut Queues) -> bool {
        self.connection.take_completions();
        let mut has_progress = false;
        // Receives first: who finds a failure finds what arrived before it, too.
        while let Some(first) = queues.receives.front_mut()
            && let Some(result) = first.request.take()
        {
            self.handle_received(queues, result);
            has_progress = true;
        }
        while let Some(first) = queues.sends.front_mut()
            && let Some(result) = first.request.take()
        {
            self.handle_sent(queues, &result);
            has_progress = true;
        }
        has_progress || self.handle_next(queues)
    }

    /// Looks for packets. If nothing completes, the next completion wakes all tasks.
    fn handle_next(&self, queues: &mut Queues) -> bool {
        let mut task = Context::from_waker(&self.waker);
        if let Some(first) = queues.receives.front_mut()
            && let Poll::Ready(result) = Pin::new(&mut first.request).poll(&mut task)
        {
            self.handle_received(queues, result);
            return true;
        }
        let waits_for_sends = self.state().waits_for_sends();
        if waits_for_sends
            && let Some(first) = queues.sends.front_mut()
            && let Poll::Ready(result) = Pin::new(&mut first.request).poll(&mut task)
        {
            self.handle_sent(queues, &result);
            return true;
        }
        false
    }

    /// The result of the first receive.
    fn handle_received(&self, queues: &mut Queues, result: Result<Received, RequestError>) {
        let first = queues.receives.pop_front();
        let region = first.expect("a receive is complete").region;
        let length = match result {
            Ok(received) => received.length as usize,
            Err(error) => return self.end_arrivals(queues, Failure::of_request(error)),
        };
        let header = header_of(&region, length);
        let mut state = self.state();
        let arrival = header.and_then(|header| state.flow.arrive(header, length));
        match arrival {
            Ok(Arrival::Data) => state.arrived.push_back(Message::new(region, length)),
            Ok(Arrival::Control) => {
                drop(state);
                self.post_receive(queues, region);
            }
            Err(violation) => {
                drop(state);
                self.end_arrivals(queues, violation.into());
            }
        }
    }

    /// The result of the first message that was sent.
    fn handle_sent(&self, queues: &mut Queues, result: &Result<(), RequestError>) {
        let first = queues.sends.pop_front();
        let mut state = self.state();
        match first.expect("a message is complete").content {
            Content::Data { slot, .. } => {
                state.free_slots.push(slot);
                state.is_lost |= result.is_err();
            }
            Content::Nothing => {}
            Content::End => {
                // A peer that has ended its direction, and has all data, may go without the end of the other one.
                let has_all_data = !state.is_lost || state.flow.has_peer_read_all();
                state.end = End::Over {
                    is_complete: result.is_ok() || has_all_data && state.flow.has_peer_ended(),
                };
            }
        }
        if let Err(error) = result {
            state.fail(Failure::of_request(error.clone()));
        }
    }

    /// No message arrives any more.
    fn end_arrivals(&self, queues: &mut Queues, failure: Failure) {
        queues.receives.clear();
        self.state().is_deaf = true;
        self.give_up(failure);
    }

    /// Ends the connection, which flushes what is posted.
    fn give_up(&self, failure: Failure) {
        self.state().fail(failure);
        // It may have ended.
        let _ = self.connection.disconnect();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Takes a slot and a credit for a message. `None` while one of them is missing.
    fn take_slot(&mut self) -> Option<Result<usize, Failure>> {
        if self.end != End::NotYet {
            return Some(Err(Failure::Finished));
        }
        if let Some(failure) = &self.failure {
            return Some(Err(failure.clone()));
        }
        if self.free_slots.is_empty() || !self.flow.spend() {
            return None;
        }
        self.writers += 1;
        self.free_slots.pop().map(Ok)
    }

    /// The next message to be sent.
    fn next_content(&mut self) -> Option<Content> {
        let written = self.written.pop_front();
        if written.is_some() {
            return written;
        }
        if self.end == End::Asked && self.writers == 0 {
            self.end = End::Sent;
            return Some(Content::End);
        }
        self.flow.is_due().then_some(Content::Nothing)
    }

    /// Takes the queues, or leaves the work to the thread that has them.
    fn take_queues(&mut self, work: Work) -> Option<Queues> {
        let taken = self.queues.take();
        if taken.is_none() {
            self.next_work = self.next_work.max(Some(work));
        }
        taken
    }

    /// Whether somebody waits until a message that was sent is complete.
    fn waits_for_sends(&self) -> bool {
        self.free_slots.is_empty() || self.end == End::Sent
    }

    /// Keeps the first reason: the others follow from it. That the connection ended says less than any other.
    fn fail(&mut self, failure: Failure) {
        if matches!(self.failure, None | Some(Failure::Ended)) {
            self.failure = Some(failure);
        }
    }
}

fn header_of(region: &MemoryRegion, length: usize) -> Result<Header, Violation> {
    if length < HEADER {
        return Err(Violation::NoHeader);
    }
    let mut bytes = [0; HEADER];
    region.read(0, &mut bytes);
    Header::parse(bytes)
}
