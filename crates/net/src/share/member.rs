//! One process among those that share an address.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Instant;

use wire::ROCE_PORT;

use super::directory::{DirectoryError, RuntimeDirectory};
use super::holder::is_held;
use super::listeners::Listeners;
use super::mailbox::{Mailbox, letter};
use super::outbox::{Letter, Outbox};
use super::probe::Probe;
use super::process::Identity;
use super::registry::{Registry, RegistryError};
use super::repair::Repair;
use super::slice::Slice;
use crate::socket::receiver::Sharing;
use crate::socket::{Batch, Envelope, Inbox, Receiver, SendError, Sender, SocketError};
use crate::sys;

/// How often the mailbox is looked into: every so many calls of [`Member::receive`]. It is nearly
/// always empty, and asking costs a system call.
const MAILBOX_TURNS: u32 = 16;

/// How many batches are taken from the mailbox at a time.
const MAILBOX_BATCH: usize = 32;

/// Why an address can't be joined.
#[derive(Debug, thiserror::Error)]
pub enum JoinError {
    /// No place to meet the other processes.
    #[error(transparent)]
    Directory(#[from] DirectoryError),
    /// The registry in it.
    #[error(transparent)]
    Registry(#[from] RegistryError),
    /// The sockets.
    #[error(transparent)]
    Socket(#[from] SocketError),
    /// Packets can't be steered.
    #[error("the kernel can't steer packets to {address} among processes: {source}")]
    Steering {
        /// The address.
        address: IpAddr,
        /// What the kernel said.
        source: io::Error,
    },
    /// Forwarded packets can't be received.
    #[error("no Unix socket can be opened in the runtime directory: {0}")]
    Mailbox(io::Error),
    /// Not an address that one machine has.
    #[error(
        "{0} does not name one interface: join each address by itself, and multicast groups with \
         `Receiver::join_group`"
    )]
    NotUnicast(IpAddr),
    /// Every slice has its owner.
    #[error(
        "{count} processes share {0} already, and there is no room for more: end some, or use \
         another address",
        count = Slice::COUNT
    )]
    Full(IpAddr),
    /// Another process has the slice that was wanted.
    #[error("another process has the part of the queue pair numbers that was wanted")]
    SliceTaken,
}

/// A packet that has arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Arrived<'p> {
    /// Where it came from, as far as the sockets tell.
    pub envelope: Envelope,
    /// Its bytes, from the BTH on.
    pub packet: &'p [u8],
    /// Whether another member got it first, and decided that it is for us.
    pub forwarded: bool,
}

/// What happened beside the ordinary.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counters {
    /// Packets for other members that were handed over.
    pub strays_forwarded: u64,
    /// Packets for other members that could not be handed over.
    pub strays_lost: u64,
    /// Packets that other members handed over to us.
    pub forwarded_to_us: u64,
    /// Rounds of probes that we started.
    pub rounds: u64,
}

/// A process's share of an address: its slice of the queue pair numbers, and the sockets for it.
///
/// Dropping it leaves the group; the others go on undisturbed.
#[derive(Debug)]
pub struct Member {
    pub(super) address: IpAddr,
    pub(super) slice: Slice,
    pub(super) process: Identity,
    pub(super) registry: Arc<Registry>,
    pub(super) receiver: Receiver,
    pub(super) sender: Sender,
    pub(super) mailbox: Mailbox,
    pub(super) outbox: Outbox,
    pub(super) repair: Repair,
    pub(super) counters: Counters,
    turn: u32,
}

impl Member {
    /// Joins those who use an address of this machine, or is the first to use it.
    pub fn join(address: IpAddr) -> Result<Self, JoinError> {
        Self::join_in(&RuntimeDirectory::of_user()?, address)
    }

    /// Joins those who use an address and meet in this folder.
    pub fn join_in(directory: &RuntimeDirectory, address: IpAddr) -> Result<Self, JoinError> {
        Self::join_as(directory, address, None)
    }

    /// Joins with a certain slice, or with any that is free.
    pub(super) fn join_as(
        directory: &RuntimeDirectory,
        address: IpAddr,
        wanted: Option<Slice>,
    ) -> Result<Self, JoinError> {
        if address.is_multicast() || address.is_unspecified() {
            return Err(JoinError::NotUnicast(address));
        }
        let registry = Arc::new(Registry::new(directory, address));
        let locked = registry.lock()?;
        let mut table = locked.read()?;
        let someone_died = locked.bury_dead(&mut table);
        let local = SocketAddr::new(address, ROCE_PORT);
        // Whoever has the port now is no member, and sharing with him would lose packets.
        if table.members.is_empty() && is_held(local) {
            let port = ROCE_PORT;
            return Err(SocketError::PortTaken { address, port }.into());
        }
        let slice = match wanted {
            Some(slice) if table.member(slice).is_some() => return Err(JoinError::SliceTaken),
            Some(slice) => slice,
            None => table.free_slice().ok_or(JoinError::Full(address))?,
        };
        let mailbox = Mailbox::open(registry.mailbox(slice)).map_err(JoinError::Mailbox)?;
        let sender = Sender::bind(address)?;
        let receiver = Receiver::bind_with(local, Sharing::Steered)?;
        let mut member = Self {
            address,
            slice,
            process: Identity::current(),
            registry,
            receiver,
            sender,
            mailbox,
            outbox: Outbox::default(),
            repair: Repair::new(),
            counters: Counters::default(),
            turn: 0,
        };
        table.last = slice;
        let places_known = table.members.is_empty() || table.is_settled() && !someone_died;
        let entered = member.enter(&locked, table, places_known);
        // Whoever could not enter leaves, which needs the lock.
        drop(locked);
        entered.map(|()| member)
    }

    /// The address that is shared.
    pub fn address(&self) -> IpAddr {
        self.address
    }

    /// Our part of the number space.
    pub fn slice(&self) -> Slice {
        self.slice
    }

    /// The numbers that our queue pairs may have.
    pub fn qpn_range(&self) -> Range<u32> {
        self.slice.qpn_range()
    }

    /// Where our packets leave from.
    pub fn sender(&self) -> &Sender {
        &self.sender
    }

    /// Where our packets arrive, for its buffer and counters.
    pub fn receiver(&self) -> &Receiver {
        &self.receiver
    }

    /// What happened beside the ordinary.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// What to wait for: [`receive`](Self::receive) has something to do when one is readable.
    pub fn fds(&self) -> [BorrowedFd<'_>; 2] {
        [self.receiver.as_fd(), self.mailbox.as_fd()]
    }

    /// The services that the members of this address listen for.
    pub fn listeners(&self) -> Listeners<'_> {
        Listeners::new(self)
    }

    /// Sends packets of `segment_size` bytes each; see [`Sender::send`].
    pub fn send(
        &self,
        envelope: &Envelope,
        segment_size: usize,
        bytes: &mut [u8],
    ) -> Result<(), SendError> {
        self.sender.send(envelope, segment_size, bytes)
    }

    /// Takes what has arrived, and passes on what is not ours. Never waits.
    ///
    /// `take` gets every packet for our own queue pairs, for queue pair 1, for multicast, and what
    /// is too short to tell. How many it got is returned.
    pub fn receive(
        &mut self,
        now: Instant,
        inbox: &mut Inbox,
        mut take: impl FnMut(Arrived<'_>),
    ) -> io::Result<usize> {
        let mut taken = 0;
        for batch in self.receiver.receive(inbox)? {
            taken += self.sort_out(&batch, &mut take);
        }
        if !self.outbox.is_empty() {
            self.empty_outbox();
        }
        self.turn = self.turn.wrapping_add(1);
        if self.turn.is_multiple_of(MAILBOX_TURNS) {
            taken += self.empty_mailbox(&mut take)?;
        }
        self.look_around_if_urgent(now);
        Ok(taken)
    }

    /// Hands a packet to the member that owns a slice. It takes it as if it had just arrived.
    ///
    /// What does not fit into its mailbox waits; if it has died the packet is lost, and counted.
    pub fn forward_to(&mut self, owner: Slice, envelope: &Envelope, packet: &[u8]) {
        let batch = Batch {
            envelope: *envelope,
            segment_size: packet.len(),
            bytes: packet,
        };
        self.hand_over(owner, 1, &batch);
    }

    /// The slices of the other members that live.
    pub fn others(&self) -> Result<Vec<Slice>, RegistryError> {
        let table = self.registry.read()?;
        let others = table.members.iter().filter(|it| it.slice != self.slice);
        let living = others.filter(|it| it.process.is_alive());
        Ok(living.map(|it| it.slice).collect())
    }

    /// Whether this is a copy that a fork made. The parent's packets are not ours to take: call
    /// [`disown_after_fork`](Self::disown_after_fork), and join again to get a slice.
    pub fn is_inherited(&self) -> bool {
        !self.process.is_current()
    }

    /// Lets go of the sockets that a fork copied, so that they are gone when the parent closes them.
    /// Without this the parent's place in the group stays taken after its death, and what is
    /// steered there is lost.
    ///
    /// For the child, right after the fork: it allocates nothing and takes no lock. In the parent it
    /// does nothing.
    pub fn disown_after_fork(&self) {
        if !self.is_inherited() {
            return;
        }
        let [receiver, mailbox] = self.fds();
        for fd in [receiver, mailbox, self.sender.as_fd()] {
            // If /dev/null can't be opened there is nothing better to do.
            let _ = sys::process::replace_with_null(fd);
        }
    }

    /// Takes what is ours from a batch, and passes on the rest.
    fn sort_out(&mut self, batch: &Batch<'_>, take: &mut impl FnMut(Arrived<'_>)) -> usize {
        let mut taken = 0;
        let mut rest = *batch;
        while let Some(packet) = rest.packets().next() {
            let length = match sort(packet, self.slice) {
                Kind::Ours => {
                    take(Arrived {
                        envelope: batch.envelope,
                        packet,
                        forwarded: false,
                    });
                    taken += 1;
                    packet.len()
                }
                Kind::Probe(probe) => {
                    self.note_probe(probe);
                    packet.len()
                }
                // Only the first packet of a batch was steered.
                Kind::Stray(owner) => {
                    self.pass_on(owner, &rest, rest.bytes.len() == batch.bytes.len())
                }
            };
            rest.bytes = &rest.bytes[length..];
        }
        taken
    }

    /// Hands over as many packets at the front of a batch as have the same owner: how many bytes.
    fn pass_on(&mut self, owner: Slice, batch: &Batch<'_>, steered: bool) -> usize {
        let run = batch.packets().take_while(
            |packet| matches!(sort(packet, self.slice), Kind::Stray(it) if it == owner),
        );
        let (packets, length) = run.fold((0, 0), |(count, bytes), packet| {
            (count + 1, bytes + packet.len())
        });
        let bytes = &batch.bytes[..length];
        let lost = self.hand_over(owner, packets, &Batch { bytes, ..*batch });
        if steered || lost {
            self.repair.suspect(owner);
        }
        length
    }

    /// Puts packets into their owner's mailbox, or keeps them while it is full; whether something
    /// was lost because an owner is gone.
    fn hand_over(&mut self, owner: Slice, packets: u64, batch: &Batch<'_>) -> bool {
        let kept = self.outbox.push(Letter {
            owner,
            packets,
            bytes: letter(batch),
        });
        self.counters.strays_lost += kept.lost;
        self.empty_outbox()
    }

    /// Delivers what waits for other members; whether something was lost because an owner is gone.
    pub(super) fn empty_outbox(&mut self) -> bool {
        let outcome = self.outbox.flush(|letter| {
            let path = self.registry.mailbox(letter.owner);
            self.mailbox.bring(&path, &letter.bytes)
        });
        self.counters.strays_forwarded += outcome.delivered;
        self.counters.strays_lost += outcome.lost;
        outcome.lost > 0
    }

    fn empty_mailbox(&mut self, take: &mut impl FnMut(Arrived<'_>)) -> io::Result<usize> {
        let mut taken = 0;
        for _ in 0..MAILBOX_BATCH {
            let Some(batch) = self.mailbox.next()? else {
                break;
            };
            for packet in batch.packets() {
                self.counters.forwarded_to_us += 1;
                // What is not ours was forwarded by a stale table: passing it on again could go on
                // for ever.
                if matches!(sort(packet, self.slice), Kind::Ours) {
                    take(Arrived {
                        envelope: batch.envelope,
                        packet,
                        forwarded: true,
                    });
                    taken += 1;
                }
            }
        }
        Ok(taken)
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        if self.is_inherited() {
            return;
        }
        self.leave();
    }
}

/// What a datagram is to us.
enum Kind {
    Ours,
    Probe(Probe),
    Stray(Slice),
}

#[inline]
fn sort(packet: &[u8], own: Slice) -> Kind {
    let Some(&[_, _, _, _, _, high, middle, low]) = packet.first_chunk::<8>() else {
        return Kind::Ours;
    };
    let destination = wire::Qpn::new(u32::from_be_bytes([0, high, middle, low]));
    match Slice::of(destination) {
        Some(owner) if owner == own => Kind::Ours,
        Some(owner) => Kind::Stray(owner),
        None => Probe::parse(packet).map_or(Kind::Ours, Kind::Probe),
    }
}

#[cfg(test)]
mod tests {
    use std::thread::sleep;
    use std::time::Duration;

    use super::*;
    use crate::sys::process::{end, fork};

    /// Whether nobody has the port of a member's address any more.
    fn is_free(local: SocketAddr) -> bool {
        Receiver::bind(local).is_ok()
    }

    #[test]
    fn a_forked_child_that_disowns_the_sockets_keeps_no_port() {
        let [low, high, ..] = std::process::id().to_le_bytes();
        let address = IpAddr::from([127, 192 | high & 63, low, 1]);
        let folder = std::env::temp_dir().join(format!("roci-fork-{}", std::process::id()));
        let directory = RuntimeDirectory::at(&folder).unwrap();
        for (disowns, expected) in [(false, false), (true, true)] {
            let member = Member::join_in(&directory, address).unwrap();
            let local = member.receiver().local();
            let child = fork(|| {
                if disowns && member.is_inherited() {
                    member.disown_after_fork();
                }
            });
            // In the parent it is without effect.
            member.disown_after_fork();
            assert!(!member.is_inherited() && !is_free(local));
            sleep(Duration::from_millis(100));
            drop(member);
            assert_eq!(is_free(local), expected);
            end(child);
            assert!(is_free(local));
        }
        std::fs::remove_dir_all(folder).unwrap();
    }
}
