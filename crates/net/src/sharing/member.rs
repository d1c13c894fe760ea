//! A member: one of the lanes that share an address.

use std::net::IpAddr;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use wire::{IcrcChecker, IcrcGenerator, Qpn};

use super::broadcast_limit::CopyLimit;
use super::exit_watch::WatchedProcesses;
use super::mailbox::Mailbox;
use super::number_block::{NumberBlock, communication_number};
use super::outbox::Outbox;
use super::process_identity::Identity;
use super::registry::{Registry, RegistryError};
use super::repair_state::RepairState;
use super::shortcut::Shortcuts;
use crate::socket::{Receiver, Sender};

/// Counters of events outside of the ordinary packet flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counters {
    /// Packets of other members that were forwarded.
    pub strays_forwarded: u64,
    /// Packets of other members that could not be forwarded.
    pub strays_lost: u64,
    /// Packets that other members forwarded to this one.
    pub forwarded_to_us: u64,
    /// Rounds of probes that this member started.
    pub rounds: u64,
    /// Packets that this member sent through shared memory.
    pub by_shortcut: u64,
    /// Packets that were dropped because their receiver did not read from shared memory for too long.
    pub dropped_at_full_ring: u64,
}

/// One lane at an address: its block of queue pair numbers, and its sockets.
///
/// It has three descriptors: two UDP sockets and a Unix socket.
///
/// Dropping it leaves the group; the other members continue without interruption.
#[derive(Debug)]
pub struct Member {
    pub(super) address: IpAddr,
    pub(super) block: NumberBlock,
    /// Parts of the block that other members of this process have taken over.
    pub(super) given: Vec<NumberBlock>,
    pub(super) process: Identity,
    pub(super) registry: Arc<Registry>,
    pub(super) receiver: Arc<Receiver>,
    /// The services that this member has claimed.
    pub(super) services: Arc<Mutex<Vec<u64>>>,
    pub(super) sender: Sender,
    pub(super) mailbox: Mailbox,
    pub(super) outbox: Outbox,
    pub(super) repair: RepairState,
    pub(super) counters: Counters,
    pub(super) shortcuts: Option<Box<Shortcuts>>,
    pub(super) exits: Option<WatchedProcesses>,
    /// How many times packets were polled for.
    pub(super) turn: u32,
    pub(super) descriptor_reads: u64,
    pub(super) checker: IcrcChecker,
    pub(super) generator: IcrcGenerator,
    pub(super) copies: CopyLimit,
}

/// Whether a number is in a block, and in none of its parts that were given away.
#[inline]
pub(super) fn owns(block: NumberBlock, given: &[NumberBlock], number: Qpn) -> bool {
    block.contains(number) && !given.iter().any(|part| part.contains(number))
}

impl Member {
    /// The shared address.
    pub fn address(&self) -> IpAddr {
        self.address
    }

    /// This member's number block.
    pub fn block(&self) -> NumberBlock {
        self.block
    }

    /// Notes that another member of this process owns a part of this one's block from now on. Packets for it that arrive
    /// here are forwarded.
    pub fn give(&mut self, part: NumberBlock) {
        self.given.push(part);
    }

    /// Whether a queue pair number belongs to this member.
    pub fn owns(&self, number: Qpn) -> bool {
        owns(self.block, &self.given, number)
    }

    /// The numbers that this member's queue pairs may have.
    pub fn qpn_range(&self) -> Range<u32> {
        self.block.qpn_range()
    }

    /// The block of the member that chose a communication id; `None` if no member can have chosen
    /// it.
    pub fn owner_of_communication(&self, id: u32) -> Option<NumberBlock> {
        self.owner_of(communication_number(id))
    }

    /// The block of the member that owns a queue pair number.
    pub(super) fn owner_of(&self, number: Qpn) -> Option<NumberBlock> {
        let table = self.registry.current().ok()?;
        table.owner(number).map(|entry| entry.block)
    }

    /// How many times this process has read the table of members, for measurements. Its members at an address share it.
    pub fn registry_reads(&self) -> u64 {
        self.registry.cache.reads()
    }

    /// The socket that sends packets.
    pub fn sender(&self) -> &Sender {
        &self.sender
    }

    /// The socket that receives packets, for its buffer size and counters.
    pub fn receiver(&self) -> &Receiver {
        &self.receiver
    }

    /// Counters of events outside of the ordinary packet flow.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// The descriptors to wait for: [`receive`](Self::receive) has something to do when one is
    /// readable.
    pub fn fds(&self) -> [BorrowedFd<'_>; 2] {
        [self.receiver.as_fd(), self.mailbox.as_fd()]
    }

    /// The blocks of the other members whose processes run.
    pub fn others(&self) -> Result<Vec<NumberBlock>, RegistryError> {
        let table = self.registry.current()?;
        let now = Instant::now();
        let others = table.members.iter();
        let others = others.filter(|it| it.block != self.block && !it.withdrawn);
        let living = others.filter(|it| self.registry.is_alive(it.process, now));
        Ok(living.map(|it| it.block).collect())
    }

    /// Whether this is the copy in a forked child. The packets belong to the parent: join again to get numbers. A
    /// [guard](crate::fork::Guard) keeps the sockets from the child, where they would keep the parent's index after its death.
    pub fn is_inherited(&self) -> bool {
        !self.process.is_current()
    }
}
