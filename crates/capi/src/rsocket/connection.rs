//! A connected stream: a queue pair, its buffers, and the flow control.

use std::sync::Arc;

use driver::Driver;
use driver::rdma_cm::CmId;
use driver::{PolledQueue, WaitSet, Watch};
use engine::{
    Attributes, Completion, Id, ProtectionDomain, ReceiveRequest, RemoteMemory, SendRequest, State,
    Status, Work,
};
use wire::{Key, Qpn};

use super::protocol::{ConnectionData, Mapping, Message, PROTOCOL_ERROR, Target};
use super::settings::Sizes;
use super::verbs_objects::{Region, Resources, TARGETS};
use crate::errno::Errno;

/// How many control messages may be outstanding, besides those with data.
const CONTROLS: u32 = 4;

pub(super) struct Connection {
    pub(super) driver: Arc<Driver>,
    /// The threads that wait for a change of the connection. Completions wake them, and so does a thread that changes it otherwise.
    pub(super) waiting: Arc<WaitSet>,
    pub(super) domain: Id<ProtectionDomain>,
    completions: PolledQueue,
    number: Qpn,
    pub(super) sizes: Sizes,
    /// The peer's connection data.
    pub(super) peer: ConnectionData,
    pub(super) send: SendSide,
    pub(super) receive: ReceiveSide,
    /// The memory into which the peer writes descriptions of its buffers and mappings.
    pub(super) descriptions: Region,
    /// How many control messages were sent, and how many may be sent.
    pub(super) controls: (u32, u32),
    pub(super) open: Open,
}

/// The state of the sending side.
pub(super) struct SendSide {
    pub(super) region: Region,
    /// The offset of the next piece.
    pub(super) at: u32,
    pub(super) free: u32,
    /// Free slots of the send queue.
    pub(super) queue_slots: u32,
    /// How many messages were sent, and up to which count they may be; modulo 2^16.
    pub(super) sent: u16,
    pub(super) allowed: u16,
    /// The index of the peer's buffer that is filled now.
    pub(super) target: usize,
    /// The unused rest of each of the peer's buffers.
    pub(super) targets: [Target; TARGETS],
}

/// The state of the receiving side.
pub(super) struct ReceiveSide {
    pub(super) region: Region,
    /// How many bytes were received and are not read.
    pub(super) unread: u32,
    /// How many bytes the peer may still write. These, the unread bytes and `free` are the whole buffer together.
    pub(super) granted: u32,
    /// The offset of the next byte to read.
    pub(super) at: u32,
    /// How many bytes were read and are not granted to the peer again, and their offset.
    pub(super) free: u32,
    pub(super) free_at: u32,
    /// How many messages were received, and at which count credits are sent; modulo 2^16.
    pub(super) received: u16,
    /// How many of them had data; modulo 2^16.
    pub(super) received_data: u16,
    pub(super) credits_due_at: u16,
    /// The next slot in the peer's array of targets.
    pub(super) target_slot: u32,
}

/// Which directions are open.
#[derive(Debug, Clone, Copy)]
pub(super) struct Open {
    pub(super) reading: bool,
    pub(super) writing: bool,
    /// Whether both sides still have the connection.
    pub(super) connected: bool,
    /// The error that ended the connection, if any.
    pub(super) error: Option<Errno>,
    /// The same, until the program has read it (`SO_ERROR`).
    pub(super) unread_error: Option<Errno>,
}

/// Work request ids of sends: the type in the high half, the length in the low half.
pub(super) const SENT_DATA: u64 = 0;
pub(super) const SENT_CONTROL: u64 = 1 << 32;
const SENT_MAPPING: u64 = 2 << 32;

impl Connection {
    /// Creates everything that does not depend on the peer's reply.
    pub(super) fn make(cm_id: &CmId, sizes: Sizes) -> Result<Self, Errno> {
        let driver = cm_id.driver().ok_or(Errno::INVALID)?;
        let driver = driver.for_completion_queue(None);
        let made = Resources::make(&driver, &sizes)?;
        let driver = made.driver;
        let waiting = Arc::default();
        driver.set_wait_set(made.completions, &waiting);
        let half = sizes.receive_buffer / 2;
        let connection = Self {
            completions: driver
                .polled_queue(made.completions)
                .ok_or(Errno::INVALID)?,
            driver,
            waiting,
            domain: made.domain,
            number: made.number,
            sizes,
            peer: ConnectionData::unknown(),
            send: SendSide {
                region: made.send,
                at: 0,
                free: sizes.send_buffer,
                queue_slots: u32::from(sizes.send_queue) - CONTROLS,
                sent: 0,
                allowed: 0,
                target: 0,
                targets: [Target::default(); TARGETS],
            },
            receive: ReceiveSide {
                region: made.receive,
                unread: 0,
                granted: half,
                at: 0,
                free: half,
                free_at: half,
                received: 0,
                received_data: 0,
                credits_due_at: sizes.receive_queue / 2,
                target_slot: 1,
            },
            descriptions: made.descriptions,
            controls: (0, CONTROLS),
            open: Open {
                reading: true,
                writing: true,
                connected: false,
                error: None,
                unread_error: None,
            },
        };
        connection.modify(&cm_id.init_attributes()?)?;
        connection.post_receives(usize::from(sizes.receive_queue))?;
        Ok(connection)
    }

    pub(super) fn number(&self) -> Qpn {
        self.number
    }

    /// Our connection data.
    pub(super) fn connection_data(&self) -> ConnectionData {
        ConnectionData {
            big_endian: cfg!(target_endian = "big"),
            credits: self.sizes.receive_queue,
            mappings: self.sizes.mappings,
            targets: self.descriptions.target(0, TARGETS as u32),
            buffer: self.receive.region.target(0, self.sizes.receive_buffer / 2),
        }
    }

    /// Stores the peer's connection data and makes the queue pair ready to send.
    pub(super) fn set_peer(&mut self, peer: ConnectionData, cm_id: &CmId) -> Result<(), Errno> {
        self.peer = peer;
        self.send.allowed = peer.credits;
        self.send.targets[0] = peer.buffer;
        self.modify(&cm_id.init_attributes()?)?;
        self.modify(&cm_id.receive_attributes()?)?;
        self.modify(&cm_id.send_attributes()?)
    }

    /// Handles completions. If there are none, receives packets first.
    pub(super) fn progress(&mut self) {
        let mut done = Vec::new();
        self.driver
            .poll_many(&self.completions, usize::MAX, |it| done.push(it));
        self.handle(&done);
    }

    /// Handles the completions that are there. To receive packets is left to the sleep, or the thread of the device.
    pub(super) fn handle_completions(&mut self) {
        let mut done = Vec::new();
        self.driver.take_many(&self.completions, |it| done.push(it));
        self.handle(&done);
    }

    /// Lets every change from now on wake a thread, which checks after this whether it must wait.
    pub(super) fn watch(&mut self, watch: &mut Watch) {
        watch.enter(&self.waiting);
        loop {
            self.handle_completions();
            if self.driver.watch(&self.completions, watch) {
                break;
            }
        }
    }

    fn handle(&mut self, done: &[Completion]) {
        let mut receives = 0;
        for completion in done {
            if !completion.work.is_receive() {
                self.complete(completion);
            } else if completion.status == Status::Success {
                receives += 1;
                self.take(completion);
            }
        }
        if self.open.connected {
            if self.post_receives(receives).is_err() {
                self.fail(Errno(libc::EIO));
            }
            self.grant();
        }
    }

    pub(super) fn can_send_control(&self) -> bool {
        self.controls.0 != self.controls.1
    }

    /// Whether the peer has acknowledged everything.
    pub(super) fn is_idle(&self) -> bool {
        let all_slots = u32::from(self.sizes.send_queue) - CONTROLS;
        self.send.queue_slots == all_slots && self.controls.1 - self.controls.0 == CONTROLS
    }

    /// Sends a control message. [`can_send_control`](Self::can_send_control) must be true.
    pub(super) fn send_control(&mut self, message: Message) -> Result<(), Errno> {
        self.controls.0 += 1;
        let nowhere = RemoteMemory {
            address: 0,
            key: Key::new(0),
        };
        let work = Work::WriteImmediate(nowhere, message.emit());
        self.post(SendRequest::new(SENT_CONTROL, work))
    }

    /// Tells the peer that it may write directly to memory of the application.
    pub(super) fn send_mapping(&mut self, entry: u16, mapping: Mapping) -> Result<(), Errno> {
        let remote = RemoteMemory {
            address: self.peer.mapping_address(entry),
            key: Key::new(self.peer.targets.key),
        };
        let work = Work::WriteImmediate(remote, Message::Map(entry).emit());
        let bytes = mapping.emit(self.peer.big_endian);
        self.send.queue_slots -= 1;
        self.send.sent = self.send.sent.wrapping_add(1);
        self.post(SendRequest::new(SENT_MAPPING, work).inline(&bytes))
    }

    /// How many entries the peer's map has.
    pub(super) fn peer_mappings(&self) -> u16 {
        self.peer.mappings
    }

    /// Moves the queue pair to the error state and wakes waiting threads.
    pub(super) fn stop_queue_pair(&self) {
        let driver = &self.driver;
        let _ = driver.call_after_flush(|device| device.move_to_error(self.number));
        self.waiting.wake_all();
    }

    pub(super) fn fail(&mut self, errno: Errno) {
        self.open = Open {
            reading: false,
            writing: false,
            connected: false,
            error: Some(errno),
            unread_error: Some(errno),
        };
    }

    /// Ends the connection of a peer that does what no rsocket does.
    pub(super) fn fail_by_peer(&mut self) {
        // Nothing that it says counts any more.
        self.receive.granted = 0;
        self.fail(PROTOCOL_ERROR);
        self.stop_queue_pair();
    }

    /// The connection ends without an error.
    pub(super) fn end_connection(&mut self) {
        self.open.reading = false;
        self.open.writing = false;
        self.open.connected = false;
    }

    /// Handles a message of the peer.
    fn take(&mut self, completion: &Completion) {
        self.receive.received = self.receive.received.wrapping_add(1);
        match completion.immediate.and_then(Message::parse) {
            Some(Message::Data(length)) => self.take_data(length, completion.length),
            Some(Message::Credits(allowed)) => {
                self.send.allowed = allowed;
                self.read_targets();
            }
            Some(Message::Disconnect) => self.end_connection(),
            Some(Message::Shutdown) => {
                if self.open.writing {
                    self.open.reading = false;
                } else {
                    self.end_connection();
                }
            }
            Some(Message::Map(_) | Message::KeepAlive) | None => {}
        }
    }

    /// Handles the completion of a send.
    fn complete(&mut self, completion: &Completion) {
        let length = completion.id as u32;
        match completion.id & !u64::from(u32::MAX) {
            SENT_CONTROL => self.controls.1 += 1,
            SENT_MAPPING => self.send.queue_slots += 1,
            _ => {
                self.send.queue_slots += 1;
                self.send.free += length;
            }
        }
        if completion.status != Status::Success && self.open.connected {
            self.fail(Errno(libc::EIO));
        }
    }

    pub(super) fn post(&self, request: SendRequest) -> Result<(), Errno> {
        let number = self.number;
        let posted = self.driver.post(|device| device.post_send(number, request));
        Ok(posted?)
    }

    fn post_receives(&self, count: usize) -> Result<(), Errno> {
        if count == 0 {
            return Ok(());
        }
        let number = self.number;
        Ok(self.driver.call_without_transmit(|device| {
            (0..count).try_for_each(|_| device.post_receive(number, ReceiveRequest::new(0, [])))
        })?)
    }

    fn modify(&self, changes: &Attributes) -> Result<(), Errno> {
        let number = self.number;
        Ok(self
            .driver
            .call_after_flush(|device| device.modify(number, changes))?)
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        let driver = &self.driver;
        driver.remove_notifier(self.completions.id());
        // The peer waits for the acknowledgement of its last message.
        driver.call(|_| ());
        let flush = Attributes {
            state: Some(State::Error),
            ..Attributes::default()
        };
        // In the child of a fork these calls fail: the objects belong to the parent.
        driver.call_without_transmit(|device| {
            // A message of ours may not be acknowledged yet. The program knows nothing of it, so the check must not
            // report it as the program's mistake.
            let _ = device.modify(self.number, &flush);
            let _ = device.destroy_queue_pair(self.number);
            for region in [&self.send.region, &self.receive.region, &self.descriptions] {
                let _ = device.deregister(region.registration.local_key);
            }
            let _ = device.destroy_completion_queue(self.completions.id());
            let _ = device.free_domain(self.domain);
        });
    }
}

impl ConnectionData {
    /// Before the peer's connection data is known, nothing may be sent.
    fn unknown() -> Self {
        Self {
            big_endian: false,
            credits: 0,
            mappings: 0,
            targets: Target::default(),
            buffer: Target::default(),
        }
    }
}
