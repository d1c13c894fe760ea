//! How a member joins an address, and leaves it.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};

use wire::{IcrcChecker, IcrcGenerator, ROCE_PORT};

use super::allocation::free_block;
use super::broadcast_limit::CopyLimit;
use super::join_error::JoinError;
use super::mailbox::Mailbox;
use super::member::{Counters, Member};
use super::number_block::NumberBlock;
use super::outbox::Outbox;
use super::port_in_use::is_in_use;
use super::process_identity::Identity;
use super::registry::{Locked, Registry, RegistryError};
use super::registry_table::Table;
use super::repair_state::RepairState;
use super::runtime_directory::RuntimeDirectory;
use super::steering;
use crate::socket::receiver::Sharing;
use crate::socket::{Receiver, Sender, SocketError};
use crate::times::{LIVENESS_CHECK_INTERVAL, SCHEDULED, TICK};

/// How long a process that is no member may hold the port before joining fails: longer than a member takes
/// to notice that it is not in the registry.
const PORT_RELEASE_TIMEOUT: Duration = LIVENESS_CHECK_INTERVAL
    .saturating_mul(2)
    .saturating_add(SCHEDULED.saturating_mul(5));

/// Which numbers a new member requests.
#[derive(Debug, Clone, Copy)]
pub(super) enum Wanted {
    /// Any free block of at most two to the power of this many numbers.
    AtMost(u32),
    /// Exactly this block.
    Exactly(NumberBlock),
    /// This part of the block of another member of this process.
    Part(NumberBlock),
}

impl Member {
    /// Joins the members of an address of this machine, or becomes the first one.
    pub fn join(address: IpAddr) -> Result<Self, JoinError> {
        Self::join_in(&RuntimeDirectory::of_user()?, address)
    }

    /// Joins the members of an address that use this runtime directory.
    pub fn join_in(directory: &RuntimeDirectory, address: IpAddr) -> Result<Self, JoinError> {
        Self::join_as(directory, address, Wanted::AtMost(NumberBlock::MAX_BITS))
    }

    pub(super) fn join_as(
        directory: &RuntimeDirectory,
        address: IpAddr,
        wanted: Wanted,
    ) -> Result<Self, JoinError> {
        Self::try_join(directory, address, wanted).map_err(JoinError::with_limit)
    }

    fn try_join(
        directory: &RuntimeDirectory,
        address: IpAddr,
        wanted: Wanted,
    ) -> Result<Self, JoinError> {
        if address.is_multicast() || address.is_unspecified() {
            return Err(JoinError::NotUnicast(address));
        }
        let registry = Arc::new(Registry::new(directory.path(), address));
        let local = SocketAddr::new(address, ROCE_PORT);
        let (locked, table, someone_died, receiver) = meet_and_bind(&registry, local)?;
        let block = choose(&table, address, wanted)?;
        let mailbox = Mailbox::open(registry.mailbox(block)).map_err(JoinError::Mailbox)?;
        let sender = Sender::bind(address)?;
        let mut member = Self {
            address,
            block,
            given: Vec::new(),
            process: Identity::current(),
            registry,
            receiver: Arc::new(receiver),
            services: Arc::default(),
            sender,
            mailbox,
            outbox: Outbox::default(),
            repair: RepairState::new(matches!(wanted, Wanted::Part(_))),
            counters: Counters::default(),
            shortcuts: None,
            exits: None,
            turn: 0,
            descriptor_reads: 0,
            checker: IcrcChecker::new(),
            generator: IcrcGenerator::new(),
            copies: CopyLimit::default(),
        };
        let index_known = !someone_died && table.may_fill_all_indices();
        let entered = member.enter(&locked, table, index_known);
        // A member that could not enter leaves when it is dropped, which needs the lock.
        drop(locked);
        entered?;
        if !index_known {
            member.await_index();
        }
        Ok(member)
    }
}

/// Chooses the numbers for a new member.
fn choose(table: &Table, address: IpAddr, wanted: Wanted) -> Result<NumberBlock, JoinError> {
    let full = || JoinError::Full {
        address,
        contexts: table.members.len(),
        processes: table.processes(),
    };
    if !steering::has_room(table, matches!(wanted, Wanted::Part(_))) {
        return Err(full());
    }
    match wanted {
        Wanted::Exactly(block) if table.is_taken(block) => Err(JoinError::BlockTaken),
        Wanted::Exactly(block) => Ok(block),
        Wanted::Part(block) => {
            let mut around = table.members.iter().filter(|it| it.block.overlaps(block));
            let (whole, another) = (around.next(), around.next());
            let whole = whole.filter(|it| it.process.is_current() && it.block.encloses(block));
            let is_free = whole.is_some() && another.is_none();
            is_free.then_some(block).ok_or(JoinError::BlockTaken)
        }
        Wanted::AtMost(bits) => {
            // Without randomness, the round number chooses the block.
            let random = getrandom::u64().unwrap_or(table.round);
            free_block(table, bits, random).ok_or_else(full)
        }
    }
}

/// As [`meet`], and binds a socket to the port.
fn meet_and_bind(
    registry: &Arc<Registry>,
    local: SocketAddr,
) -> Result<(Locked, Table, bool, Receiver), JoinError> {
    let begin = Instant::now();
    loop {
        let (locked, table, someone_died) = meet(registry, local, begin)?;
        match Receiver::bind_with(local, Sharing::Steered) {
            // The kernel's list of sockets may have omitted one.
            Err(SocketError::PortTaken { .. })
                if table.members.is_empty() && begin.elapsed() < PORT_RELEASE_TIMEOUT =>
            {
                drop(locked);
                sleep(5 * TICK);
            }
            bound => return Ok((locked, table, someone_died, bound?)),
        }
    }
}

/// Locks the registry for a process that joins. Returns the table without dead members, and whether
/// there were any.
fn meet(
    registry: &Arc<Registry>,
    local: SocketAddr,
    begin: Instant,
) -> Result<(Locked, Table, bool), JoinError> {
    loop {
        let locked = registry.lock()?;
        let mut table = match locked.read() {
            // A table of another version that no process uses.
            Err(RegistryError::OtherVersion(_)) if !is_in_use(local) => Table::EMPTY,
            read => read?,
        };
        let someone_died = !locked.remove_dead_members(&mut table).is_empty();
        if !table.members.is_empty() || !is_in_use(local) {
            return Ok((locked, table, someone_died));
        }
        // A process that is no member holds the port, and sharing with it would lose packets. On a busy
        // machine the kernel may list a socket briefly after its member has left, and a member that was
        // removed from the registry joins again. So wait before this fails.
        if begin.elapsed() > PORT_RELEASE_TIMEOUT {
            let (address, port) = (local.ip(), local.port());
            return Err(SocketError::PortTaken { address, port }.into());
        }
        drop(locked);
        sleep(5 * TICK);
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        if self.is_inherited() {
            // The rings belong to the parent. Dropping them here would close them for the parent,
            // too.
            std::mem::forget(self.shortcuts.take());
            return;
        }
        self.leave();
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;
    use std::slice;

    use wire::{Opcode, PacketHead, Psn, Qpn, Route, icrc};

    use super::*;
    use crate::fork::Guard;
    use crate::restrictions::{self, Restriction};
    use crate::sharing::begin_service;
    use crate::sharing::registry_table::Entry;
    use crate::sharing::steering::MAX_MEMBERS;
    use crate::socket::Inbox;
    use crate::sys;
    use crate::sys::process::{end, fork};
    use crate::sys::seccomp::{Forbidden, forbid};

    /// Whether no socket has the port of a member's address any more.
    fn is_free(local: SocketAddr) -> bool {
        Receiver::bind(local).is_ok()
    }

    /// Sends one packet to the lowest number of a block.
    fn send(from: &mut Member, to: &Member) {
        let route = Route::new(from.sender().flow_to(to.address()));
        let qpn = Qpn::new(to.block().first());
        let head = PacketHead::new(Opcode::UcSendOnly, qpn, Psn::ZERO);
        let mut packet = [head.bytes(), b"four"].concat();
        packet.extend(icrc::checksum(&route.flow, 0, &packet));
        let size = packet.len();
        from.send(Instant::now(), &route, size, true, &mut packet)
            .unwrap();
    }

    fn received(member: &mut Member) -> usize {
        let mut inbox = Inbox::new(1);
        let mut receive = || member.receive(Instant::now(), &mut inbox, |_| {}).unwrap();
        (0..32).map(|_| receive()).sum()
    }

    #[test]
    fn packets_for_a_dead_member_do_not_enter_its_ring() {
        let [low, high, ..] = std::process::id().to_le_bytes();
        let addresses = [2, 3].map(|last| IpAddr::from([127, 192 | high & 63, low, last]));
        let path = std::env::temp_dir().join(format!("roci-dead-{}", std::process::id()));
        let directory = RuntimeDirectory::at(&path).unwrap();
        let mut members = addresses.map(|address| Member::join_in(&directory, address).unwrap());
        for member in &mut members {
            member.allow_shortcuts();
            member.enable_shortcuts(true);
        }
        let [mut sender, mut reader] = members;
        send(&mut sender, &reader);
        assert_eq!(received(&mut reader), 1);
        send(&mut sender, &reader);
        assert_eq!(
            (received(&mut reader), sender.counters().by_shortcut),
            (1, 1)
        );

        // The reader is killed: its socket closes, but the ring stays open. Another process finds
        // it dead and gets its numbers.
        let block = reader.block();
        let locked = reader.registry.lock().unwrap();
        let mut table = locked.read().unwrap();
        table.remove(block);
        locked.write(&table).unwrap();
        drop(locked);
        sys::process::replace_with_null(reader.receiver.as_fd()).unwrap();
        // Both are the same process here, so the change must be noticed in between.
        sleep(Duration::from_millis(2));
        received(&mut sender);
        send(&mut sender, &reader);
        assert_eq!(sender.counters().by_shortcut, 1);
        let wanted = Wanted::Exactly(block);
        let mut successor = Member::join_as(&directory, addresses[1], wanted).unwrap();
        sleep(Duration::from_millis(2));
        received(&mut sender);
        send(&mut sender, &successor);
        assert_eq!(
            (received(&mut successor), sender.counters().by_shortcut),
            (1, 1)
        );
        std::mem::forget(reader);
        drop((sender, successor));
        std::fs::remove_dir_all(path).unwrap();
    }

    /// Two members join one address while a socket option is forbidden. Returns the error of the
    /// second, and how many packets the first one receives afterwards.
    fn two_join_without(option: libc::c_int, last: u8) -> (JoinError, usize) {
        let [low, high, ..] = std::process::id().to_le_bytes();
        let address = IpAddr::from([127, 192 | high & 63, low, last]);
        let name = format!("roci-forbidden-{last}-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let directory = RuntimeDirectory::at(&path).unwrap();
        let joins = move || {
            forbid(Forbidden {
                call: libc::SYS_setsockopt,
                argument: 2,
                value: option,
                errno: libc::EPERM,
            });
            let mut first = Member::join_in(&directory, address).unwrap();
            let second = Member::join_in(&directory, address).err();
            let other = Member::join_in(&directory, IpAddr::from([127, 191, low, last]));
            send(&mut other.unwrap(), &first);
            (second.expect("one is enough"), received(&mut first))
        };
        let result = std::thread::spawn(joins).join().unwrap();
        std::fs::remove_dir_all(path).unwrap();
        result
    }

    #[test]
    fn where_steering_is_forbidden_one_context_has_the_address() {
        let (second, received) = two_join_without(libc::SO_ATTACH_REUSEPORT_CBPF, 4);
        assert!(
            second.to_string().contains("one context at a time"),
            "{second}"
        );
        assert_eq!(received, 1);
        assert!(restrictions::was_reported(Restriction::Steering));
    }

    #[test]
    fn where_shared_ports_are_forbidden_one_context_has_the_address() {
        let (second, received) = two_join_without(libc::SO_REUSEPORT, 5);
        let taken = matches!(second, JoinError::Socket(SocketError::PortTaken { .. }));
        assert!(taken, "{second}");
        assert_eq!(received, 1);
        assert!(restrictions::was_reported(Restriction::SharedPorts));
    }

    #[test]
    fn a_forked_child_from_which_the_sockets_are_guarded_keeps_no_port() {
        let [low, high, ..] = std::process::id().to_le_bytes();
        let address = IpAddr::from([127, 192 | high & 63, low, 1]);
        let path = std::env::temp_dir().join(format!("roci-fork-{}", std::process::id()));
        let directory = RuntimeDirectory::at(&path).unwrap();
        for is_guarded in [false, true] {
            let member = Member::join_in(&directory, address).unwrap();
            let local = member.receiver().local();
            let guarded = member.fds().into_iter().filter(|_| is_guarded);
            let guard = Guard::new(guarded);
            let child = fork(|| ());
            drop(guard);
            assert!(!member.is_inherited() && !is_free(local));
            drop(member);
            let begin = Instant::now();
            // The child may not have run yet.
            while is_guarded && !is_free(local) {
                assert!(
                    begin.elapsed() < Duration::from_secs(8),
                    "it holds the port"
                );
            }
            assert_eq!(is_free(local), is_guarded);
            end(child);
            assert!(is_free(local));
        }
        std::fs::remove_dir_all(path).unwrap();
    }

    #[test]
    fn a_port_that_is_held_a_moment_longer_is_waited_for() {
        let [low, high, ..] = std::process::id().to_le_bytes();
        let local = SocketAddr::from(([127, 192 | high & 63, low, 8], ROCE_PORT));
        let path = std::env::temp_dir().join(format!("roci-held-{}", std::process::id()));
        let directory = RuntimeDirectory::at(&path).unwrap();
        let registry = Arc::new(Registry::new(directory.path(), local.ip()));
        let held = Receiver::bind(local).unwrap();
        let late = Instant::now() - 2 * PORT_RELEASE_TIMEOUT;
        let refused = meet(&registry, local, late).unwrap_err();
        let taken = matches!(refused, JoinError::Socket(SocketError::PortTaken { .. }));
        assert!(taken, "{refused}");
        // However long this takes, the time to wait does not end.
        let early = Instant::now() + Duration::from_secs(3600);
        std::thread::scope(|scope| {
            let joins = scope.spawn(|| meet(&registry, local, early).map(drop));
            // It probably waits then.
            sleep(20 * TICK);
            drop(held);
            joins.join().unwrap().unwrap();
        });
        std::fs::remove_dir_all(path).unwrap();
    }

    #[test]
    fn a_part_of_a_block_gets_a_member_of_its_own() {
        let [low, high, ..] = std::process::id().to_le_bytes();
        let [address, from] = [6, 7].map(|last| IpAddr::from([127, 192 | high & 63, low, last]));
        let path = std::env::temp_dir().join(format!("roci-part-{}", std::process::id()));
        let directory = RuntimeDirectory::at(&path).unwrap();
        let mut sender = Member::join_in(&directory, from).unwrap();
        let mut whole = Member::join_in(&directory, address).unwrap();
        let block = whole.block().part(3, 14).unwrap();
        let join = |block| Member::join_as(&directory, address, Wanted::Part(block));
        let mut part = join(block).unwrap();
        send(&mut sender, &part);
        assert_eq!(
            (received(&mut part), received(&mut whole)),
            (0, 1),
            "its queue pairs are not there yet"
        );
        assert!(begin_service(slice::from_mut(&mut part)).unwrap());
        for taken in [block, block.part(0, 12).unwrap(), whole.block()] {
            join(taken).unwrap_err();
        }
        send(&mut sender, &part);
        send(&mut sender, &whole);
        assert_eq!((received(&mut part), received(&mut whole)), (1, 1));
        // Packets that were in the socket of the whole before are forwarded.
        whole.give(block);
        assert!(!whole.owns(Qpn::new(block.first())) && part.owns(Qpn::new(block.first())));
        let locked = whole.registry.lock().unwrap();
        let table = locked.read().unwrap();
        let mut former = table.clone();
        former.remove(block);
        whole.steer(&former).unwrap();
        drop(locked);
        send(&mut sender, &part);
        assert_eq!(received(&mut whole), 0);
        assert_eq!(received(&mut part), 1);
        assert_eq!(whole.counters().strays_forwarded, 1);
        drop((sender, whole, part));
        std::fs::remove_dir_all(path).unwrap();
    }

    #[test]
    fn no_more_members_join_than_can_be_steered_to() {
        let address = IpAddr::from([127, 0, 0, 1]);
        let mut table = Table::EMPTY;
        let blocks = (0x800..)
            .step_by(0x800)
            .map(|first| NumberBlock::new(first, 11));
        for block in blocks.take(MAX_MEMBERS) {
            table.add(Entry {
                block: block.unwrap(),
                process: Identity::current(),
                socket_index: None,
                round: 0,
                withdrawn: false,
            });
        }
        let wanted = Wanted::AtMost(NumberBlock::MAX_BITS);
        let rejected = choose(&table, address, wanted).unwrap_err();
        let full = matches!(
            rejected,
            JoinError::Full {
                contexts: MAX_MEMBERS,
                processes: 1,
                ..
            }
        );
        assert!(full, "{rejected}");
        let exactly = Wanted::Exactly(NumberBlock::new(0xff_0000, 11).unwrap());
        choose(&table, address, exactly).unwrap_err();
        table.remove(table.members[0].block);
        choose(&table, address, exactly).unwrap();
        choose(&table, address, wanted).unwrap();
    }
}
