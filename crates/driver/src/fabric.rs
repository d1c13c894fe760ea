//! The seam below a device: what it runs on.
//!
//! | asked by | for | on this machine | in a simulated world |
//! |---|---|---|---|
//! | any thread ([`here`]) | [`Machine`](machine::Machine): the clock, random numbers, devices | [`machine`] | `simulation::current` |
//! | a lane, under its lock ([`Port`]) | [`Fabric`]: to send and receive packets | [`sockets`] and rings | `simulation::port` |
//! | a lane without its lock | [`Alarm`]: to be served later | a thread | `simulation::world` |
//! | the connection manager | [`Services`]: to reserve ports | registries | `simulation::port` |
//!
//! What a method does by default, it does on this machine, or nothing. Above this seam only those ask which of the two it is
//! ([`Fabric::is_real`], [`Machine::run`](machine::Machine::run)) who would ask the kernel about peers and interfaces, move queues to other lanes, read
//! the environment, or look for packets while time passes.

mod machine;
mod port;
mod send_backlog;
#[cfg(feature = "sim")]
pub mod simulation;
mod sockets;

use std::net::IpAddr;
use std::os::fd::BorrowedFd;
use std::sync::atomic::AtomicU8;
use std::sync::{Arc, Weak};
use std::time::Instant;

use engine::Transmit;
use host::{Message, Owner};
use net::poll::Waker;
use net::sharing::{ExitWatch, NumberBlock, ReceivedPacket, ServiceError};
use net::socket::{SendError, Sender, SocketError};
use statistics::PacketPath;
use wire::{Gid, Qpn, Route};

use crate::options::OpenError;

pub(crate) use machine::here;
pub(crate) use port::{PollSources, Port, numbers_of};

/// Which sockets to poll. Polling a socket is a system call.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum PollScope {
    /// All sockets.
    AllSockets,
    /// The socket that last received packets, and all sockets now and then. For threads that poll continuously.
    LastActive,
}

/// The result of a send. A packet that is not sent counts as lost.
pub(crate) type Sent = Result<(), SendError>;

/// Takes the packets that have arrived.
pub(crate) type Take<'t> = &'t mut dyn FnMut(ReceivedPacket<'_>);

/// Carries the packets of one lane.
pub(crate) trait Fabric: Send {
    /// Whether it is that of this machine: the kernel knows its peers, and time passes while a thread polls.
    fn is_real(&self) -> bool {
        true
    }

    /// Whether its machine has failed. The program's objects are not its work any more.
    fn is_cut_off(&self) -> bool {
        false
    }

    /// The queue pair numbers of the lane: the same at every address. None on a device without addresses.
    fn block(&self) -> Option<NumberBlock>;

    /// Whether the lane has a number, and has not given it to another one.
    fn owns(&self, number: Qpn) -> bool;

    /// Leaves a part of the numbers to another lane.
    fn give(&mut self, _: NumberBlock) {}

    /// Begins the steering of packets to this lane, which has taken over a part of another one's numbers. Returns false if that must
    /// be tried again, because another process changes a registry now.
    fn begin_service(&mut self) -> Result<bool, OpenError> {
        Ok(true)
    }

    /// The UDP source port of the address with this index.
    fn source_port(&self, index: usize) -> u16;

    /// The smallest receive buffer, as the kernel counts it.
    fn receive_buffer(&self) -> usize;

    /// Whether packets to this address arrive at the lane's own sockets.
    fn has_address(&self, _: IpAddr) -> bool {
        false
    }

    /// The sending socket of each address.
    fn senders(&self) -> Vec<&Sender> {
        Vec::new()
    }

    /// Whether batches are segmented into packets below, at all addresses.
    fn segmentation(&self) -> bool {
        true
    }

    fn set_segmentation(&self, _: bool) {}

    /// Sends the packets of one batch. Never blocks.
    fn send(&mut self, now: Instant, packets: &Transmit, bytes: &mut [u8]) -> Sent;

    /// Memory of another process in which packets to its queue pair can be built.
    fn reserve(&mut self, _: Instant, _: (&Route, Qpn), _: usize) -> Option<&[AtomicU8]> {
        None
    }

    /// Sends packets that were built in such memory.
    fn commit(&mut self, _: &Transmit, _: usize) {}

    /// Passes the packets that have arrived to `take`. Returns how many.
    fn receive(&mut self, now: Instant, scope: PollScope, take: Take<'_>) -> usize;

    /// Whether the last receive returned several packets. Then there are probably more, and one system call takes them all.
    fn is_dense(&self) -> bool {
        false
    }

    /// Starts to receive a multicast group.
    fn join(&mut self, group: Gid, address: IpAddr) -> Result<(), SocketError>;

    fn leave(&mut self, group: Gid);

    /// Forwards a message to the process that owns it.
    fn forward(&mut self, message: &Message) -> Owner;

    /// Sets whether packets to other processes of this machine go through shared memory.
    fn enable_shortcuts(&mut self, _: bool) {}

    /// Whether other processes send to this one through shared memory.
    fn has_shortcuts(&self) -> bool {
        false
    }

    /// Whether this device has sent to another process of this machine that could use shared memory.
    fn has_local_peer(&self) -> bool {
        false
    }

    /// How packets reach a queue pair.
    fn packet_path(&self, _: IpAddr, _: Qpn) -> PacketPath {
        PacketPath::Sockets
    }

    /// The descriptors that are readable when packets have arrived.
    fn arrival_descriptors(&self) -> Vec<BorrowedFd<'_>> {
        Vec::new()
    }

    /// How often something was read from these descriptors. A program that waits for them may have been woken by that.
    fn descriptor_reads(&self) -> u64 {
        0
    }

    /// Whether waiting for packets is impossible: the program has closed a socket, or has opened another file under
    /// its number, which may be readable for ever.
    fn has_lost_socket(&self) -> bool {
        false
    }

    /// Makes the next poll of all sockets include the mailboxes.
    fn poll_mailboxes(&mut self) {}

    /// Prepares to sleep on the descriptors. Returns whether something has arrived meanwhile.
    fn prepare_sleep(&mut self) -> bool {
        false
    }

    /// Reverts [`prepare_sleep`](Self::prepare_sleep), because a thread stays awake and looks for what arrives.
    fn stay_awake(&mut self) {}

    /// Whether a thread may sleep on the descriptors: nothing waits in shared memory, and what arrives there next wakes it.
    fn may_sleep(&mut self) -> bool {
        true
    }

    /// Keeps the ways of the packets in order. Returns when it is to be called again.
    fn maintain(&mut self, _: Instant) -> Option<Instant> {
        None
    }

    /// Readable when the process of another member has ended.
    fn exits(&self) -> Option<Arc<ExitWatch>> {
        None
    }

    /// Repairs the port shares after the process of another member has ended.
    fn handle_exits(&mut self) {}

    /// Gives the addresses back. Packets in flight may still arrive.
    fn withdraw(&mut self) {}

    /// Reserves services at the addresses of this lane.
    fn services(&self) -> Box<dyn Services>;

    /// Who serves the lane while no thread of the program does, if not a thread of the lane.
    fn alarm(&self) -> Option<Arc<dyn Alarm>> {
        None
    }
}

/// Reservations of a device, for listeners.
pub(crate) trait Services: Send {
    /// Reserves a service for this device at one address, or at all.
    fn claim(&mut self, at: Option<IpAddr>, service: u64) -> Result<(), ServiceError>;

    fn release(&mut self, at: Option<IpAddr>, service: u64);
}

/// Who serves a lane while no thread of the program does.
pub(crate) trait Alarm: Send + Sync {
    /// Serves the lane from now on. Returns false if the lane needs a thread for that.
    fn serves(&self, _: Weak<dyn Served>) -> bool {
        false
    }

    /// Serves the lane at this time, unless it does so earlier.
    fn wake_before(&self, next: Instant);
}

impl Alarm for Waker {
    fn wake_before(&self, _: Instant) {
        self.wake();
    }
}

/// A lane that something else than a thread serves.
pub(crate) trait Served: Send + Sync {
    /// Receives packets and runs timers. Returns the next deadline.
    #[cfg(feature = "sim")]
    fn serve(&self, now: Instant) -> Option<Instant>;
}
