//! A connected stream: a queue pair, its buffers, and who may write what.

use std::collections::VecDeque;
use std::sync::Arc;

use engine::{
    Attributes, Completion, CompletionQueue, Id, Notify, ProtectionDomain, ReceiveRequest, Remote,
    SendRequest, Status, Work,
};
use rocinante::Context;
use rocinante::raw::Bell;
use rocinante::rdma_cm::Identifier;
use wire::{Key, Qpn};

use super::incoming::ReceiveSide;
use super::outgoing::SendSide;
use super::parts::{Parts, Region, TARGETS};
use super::protocol::{Greeting, Mapping, Message, Target};
use super::sizes::Sizes;
use crate::errno::Errno;

/// Messages about the connection itself that may be under way, beside those with data.
const CONTROLS: u32 = 4;

pub(super) struct Pipe {
    pub(super) context: Context,
    pub(super) bell: Arc<Bell>,
    pub(super) domain: Id<ProtectionDomain>,
    completions: Id<CompletionQueue>,
    number: Qpn,
    pub(super) sizes: Sizes,
    /// What the peer says of itself.
    pub(super) peer: Greeting,
    pub(super) send: SendSide,
    pub(super) receive: ReceiveSide,
    /// What the peer writes descriptions of its buffers and its map into.
    pub(super) descriptions: Region,
    /// Control messages that were ever sent, and that may ever have been by now.
    pub(super) controls: (u32, u32),
    pub(super) open: Open,
}

/// Which directions are open.
#[derive(Debug, Clone, Copy)]
pub(super) struct Open {
    pub(super) reading: bool,
    pub(super) writing: bool,
    /// Whether both sides still have the connection.
    pub(super) connected: bool,
    /// Why not, if it broke.
    pub(super) error: Option<Errno>,
}

/// Names of sends, by which their completions are known: the kind on top, the length below.
pub(super) const SENT_DATA: u64 = 0;
pub(super) const SENT_CONTROL: u64 = 1 << 32;
const SENT_MAPPING: u64 = 2 << 32;

impl Pipe {
    /// Makes everything that can be made before the peer answers.
    pub(super) fn make(identifier: &Identifier, sizes: Sizes) -> Result<Self, Errno> {
        let context = identifier.context().ok_or(Errno::INVALID)?;
        let bell = Arc::new(Bell::new()?);
        let made = context.raw().tell(|device| Parts::make(device, &sizes))?;
        context.raw().ring_for(made.completions, &bell, 0);
        let half = sizes.receive_buffer / 2;
        let pipe = Self {
            context,
            bell,
            domain: made.domain,
            completions: made.completions,
            number: made.number,
            sizes,
            peer: Greeting::nobody(),
            send: SendSide {
                region: made.send,
                at: 0,
                free: sizes.send_buffer,
                room: u32::from(sizes.send_queue) - CONTROLS,
                sent: 0,
                allowed: 0,
                target: 0,
                targets: [Target::default(); TARGETS],
            },
            receive: ReceiveSide {
                region: made.receive,
                messages: VecDeque::new(),
                at: 0,
                free: half,
                free_at: half,
                received: 0,
                tell_at: sizes.receive_queue / 2,
                place: 1,
            },
            descriptions: made.descriptions,
            controls: (0, CONTROLS),
            open: Open {
                reading: true,
                writing: true,
                connected: false,
                error: None,
            },
        };
        pipe.modify(&identifier.init_attributes()?)?;
        pipe.post_receives(usize::from(sizes.receive_queue))?;
        Ok(pipe)
    }

    pub(super) fn number(&self) -> Qpn {
        self.number
    }

    /// What the peer is to know.
    pub(super) fn greeting(&self) -> Greeting {
        Greeting {
            big_endian: cfg!(target_endian = "big"),
            credits: self.sizes.receive_queue,
            mappings: self.sizes.mappings,
            targets: self.descriptions.target(0, TARGETS as u32),
            buffer: self.receive.region.target(0, self.sizes.receive_buffer / 2),
        }
    }

    /// The peer has introduced itself: from now on there is somebody to talk to.
    pub(super) fn meet(&mut self, peer: Greeting, identifier: &Identifier) -> Result<(), Errno> {
        self.peer = peer;
        self.send.allowed = peer.credits;
        self.send.targets[0] = peer.buffer;
        self.modify(&identifier.init_attributes()?)?;
        self.modify(&identifier.receive_attributes()?)?;
        self.modify(&identifier.send_attributes()?)
    }

    /// Looks at what has happened, and does what is due.
    pub(super) fn progress(&mut self) {
        let mut done = Vec::new();
        self.context
            .raw()
            .poll(self.completions, usize::MAX, |it| done.push(it));
        let mut receives = 0;
        for completion in &done {
            if !completion.work.is_receive() {
                self.complete(completion);
            } else if completion.status == Status::Success {
                receives += 1;
                self.take(completion);
            }
        }
        if self.open.connected {
            if self.post_receives(receives).is_err() {
                self.break_off(Errno(libc::EIO));
            }
            self.grant();
        }
    }

    /// Rings at the next completion.
    pub(super) fn arm(&self) {
        let queue = self.completions;
        self.context
            .raw()
            .tell(|device| device.arm(queue, Notify::Any));
    }

    pub(super) fn can_say(&self) -> bool {
        self.controls.0 != self.controls.1
    }

    /// Whether the peer has acknowledged everything.
    pub(super) fn is_idle(&self) -> bool {
        let room = u32::from(self.sizes.send_queue) - CONTROLS;
        self.send.room == room && self.controls.1 - self.controls.0 == CONTROLS
    }

    /// Tells the peer something about the connection. There must be room.
    pub(super) fn say(&mut self, message: Message) -> Result<(), Errno> {
        self.controls.0 += 1;
        let nowhere = Remote {
            address: 0,
            key: Key::new(0),
        };
        let work = Work::WriteImmediate(nowhere, message.emit());
        self.post(SendRequest::new(SENT_CONTROL, work))
    }

    /// Tells the peer that it may write memory of the application's directly.
    pub(super) fn publish(&mut self, entry: u16, mapping: Mapping) -> Result<(), Errno> {
        let places = self.peer.targets;
        let behind = u64::from(places.length) * Target::SIZE as u64;
        let remote = Remote {
            address: places.address + behind + u64::from(entry) * Mapping::SIZE as u64,
            key: Key::new(places.key),
        };
        let work = Work::WriteImmediate(remote, Message::Map(entry).emit());
        let bytes = mapping.emit(self.peer.big_endian);
        self.send.room -= 1;
        self.send.sent = self.send.sent.wrapping_add(1);
        self.post(SendRequest::new(SENT_MAPPING, work).inline(&bytes))
    }

    /// How many entries the peer's map has.
    pub(super) fn peer_mappings(&self) -> u16 {
        self.peer.mappings
    }

    /// The queue pair is of no use any more; who waits is woken.
    pub(super) fn shut(&self) {
        let raw = self.context.raw();
        let _ = raw.change(|device| device.break_queue_pair(self.number));
        self.bell.ring(0);
    }

    pub(super) fn break_off(&mut self, errno: Errno) {
        self.open = Open {
            reading: false,
            writing: false,
            connected: false,
            error: Some(errno),
        };
    }

    /// The connection ends in order.
    pub(super) fn part(&mut self) {
        self.open.reading = false;
        self.open.writing = false;
        self.open.connected = false;
    }

    /// A message of the peer's.
    fn take(&mut self, completion: &Completion) {
        self.receive.received = self.receive.received.wrapping_add(1);
        match completion.immediate.and_then(Message::parse) {
            Some(Message::Data(length)) => {
                // A peer that says more than it wrote could make us read beyond what it wrote.
                if length > 0 && length <= self.sizes.receive_buffer {
                    self.receive.messages.push_back(length);
                }
            }
            Some(Message::Credits(allowed)) => {
                self.send.allowed = allowed;
                self.learn_targets();
            }
            Some(Message::Disconnect) => self.part(),
            Some(Message::Shutdown) => {
                if self.open.writing {
                    self.open.reading = false;
                } else {
                    self.part();
                }
            }
            Some(Message::Map(_) | Message::KeepAlive) | None => {}
        }
    }

    /// A send of ours has ended.
    fn complete(&mut self, completion: &Completion) {
        let length = completion.id as u32;
        match completion.id & !u64::from(u32::MAX) {
            SENT_CONTROL => self.controls.1 += 1,
            SENT_MAPPING => self.send.room += 1,
            _ => {
                self.send.room += 1;
                self.send.free += length;
            }
        }
        if completion.status != Status::Success && self.open.connected {
            self.break_off(Errno(libc::EIO));
        }
    }

    pub(super) fn post(&self, request: SendRequest) -> Result<(), Errno> {
        let number = self.number;
        let posted = self
            .context
            .raw()
            .call(|device| device.post_send(number, request));
        Ok(posted?)
    }

    fn post_receives(&self, count: usize) -> Result<(), Errno> {
        if count == 0 {
            return Ok(());
        }
        let number = self.number;
        Ok(self.context.raw().tell(|device| {
            (0..count).try_for_each(|_| device.post_receive(number, ReceiveRequest::new(0, [])))
        })?)
    }

    fn modify(&self, changes: &Attributes) -> Result<(), Errno> {
        let number = self.number;
        Ok(self
            .context
            .raw()
            .change(|device| device.modify(number, changes))?)
    }
}

impl Drop for Pipe {
    fn drop(&mut self) {
        let raw = self.context.raw();
        raw.forget_bell(self.completions);
        // The peer waits for the acknowledgement of what it said last.
        raw.call(|_| ());
        // What a fork copied is the parent's to end; then these are refused.
        raw.tell(|device| {
            let _ = device.destroy_queue_pair(self.number);
            for region in [&self.send.region, &self.receive.region, &self.descriptions] {
                let _ = device.deregister(region.registration.local_key);
            }
            let _ = device.destroy_completion_queue(self.completions);
            let _ = device.free_domain(self.domain);
        });
    }
}

impl Greeting {
    /// Before the peer has said anything, it lets us do nothing.
    fn nobody() -> Self {
        Self {
            big_endian: false,
            credits: 0,
            mappings: 0,
            targets: Target::default(),
            buffer: Target::default(),
        }
    }
}
