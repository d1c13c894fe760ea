//! A member: one of the contexts that share an address.

use std::cell::RefCell;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};

use wire::{IcrcChecker, IcrcGenerator, Qpn, ROCE_PORT};

use super::allocation::free_block;
use super::block::{NumberBlock, communication_number};
use super::cached_table::CachedTable;
use super::directory::{DirectoryError, RuntimeDirectory};
use super::listeners::Listeners;
use super::mailbox::Mailbox;
use super::outbox::Outbox;
use super::port_in_use::is_in_use;
use super::process::Identity;
use super::registry::{Locked, Registry, RegistryError};
use super::repair::Repair;
use super::send_receive::Copies;
use super::shortcut::Shortcuts;
use super::steering::MAX_MEMBERS;
use super::table::Table;
use crate::socket::receiver::Sharing;
use crate::socket::{Receiver, Sender, SocketError};
use crate::sys;

/// How long a process that is no member may hold the port before joining fails: longer than a member takes
/// to notice that it is not in the registry.
const PORT_RELEASE_TIMEOUT: Duration = Duration::from_millis(600);

/// How often joining checks whether that process still holds the port.
const PORT_CHECK_INTERVAL: Duration = Duration::from_millis(5);

/// Why an address can't be joined.
#[derive(Debug, thiserror::Error)]
pub enum JoinError {
    /// The runtime directory can't be used.
    #[error(transparent)]
    Directory(#[from] DirectoryError),
    /// The registry in the runtime directory can't be used.
    #[error(transparent)]
    Registry(#[from] RegistryError),
    /// A UDP socket can't be opened.
    #[error(transparent)]
    Socket(#[from] SocketError),
    /// The kernel rejects the steering program.
    #[error(
        "the kernel can't steer packets to {address} among processes: {source}{}",
        hint(source)
    )]
    Steering {
        /// The address.
        address: IpAddr,
        /// The error of the kernel.
        source: io::Error,
    },
    /// The mailbox can't be opened.
    #[error("no Unix socket can be opened in the runtime directory: {0}")]
    Mailbox(#[source] io::Error),
    /// The process has reached its limit of open files; each context needs several.
    #[error(
        "this process may open no more than {limit} files (RLIMIT_NOFILE), and a context needs \
         several: raise the limit with `ulimit -n`, or open fewer devices"
    )]
    TooManyFiles {
        /// The limit that was reached.
        limit: u64,
    },
    /// The system has reached its limit of open files.
    #[error(
        "the system can open no more files: let an administrator raise `sysctl fs.file-max`, or end \
         some processes"
    )]
    SystemOutOfFiles,
    /// The address is not the address of one interface.
    #[error(
        "{0} does not name one interface: join each address by itself, and multicast groups with \
         `Receiver::join_group`"
    )]
    NotUnicast(IpAddr),
    /// There is no room for another member.
    #[error(
        "{contexts} contexts (open devices) of {processes} processes share {address} already, and \
         there is no room for more: close some, or use another address"
    )]
    Full {
        /// The address.
        address: IpAddr,
        /// How many contexts use it.
        contexts: usize,
        /// How many processes these contexts belong to.
        processes: usize,
    },
    /// Another member owns the requested block or a part of it.
    #[error("another context owns some of the requested queue pair numbers")]
    BlockTaken,
}

impl JoinError {
    /// Replaces the error by a more specific one if a limit of open files was reached.
    fn with_limit(self) -> Self {
        let source = match &self {
            Self::Directory(DirectoryError::Unusable { source, .. })
            | Self::Registry(RegistryError::Unusable { source, .. })
            | Self::Socket(SocketError::Refused { source, .. })
            | Self::Mailbox(source) => source,
            _ => return self,
        };
        match source.raw_os_error() {
            Some(libc::EMFILE) => Self::TooManyFiles {
                limit: sys::process::open_files_limit(),
            },
            Some(libc::ENFILE) => Self::SystemOutOfFiles,
            _ => self,
        }
    }
}

fn hint(source: &io::Error) -> &'static str {
    match source.raw_os_error() {
        Some(libc::ENOMEM) => {
            "; so many contexts share the address that the program which steers exceeds \
             net.core.optmem_max: let an administrator run `sysctl -w net.core.optmem_max=131072`"
        }
        _ if sys::is_forbidden(source) => {
            "; so one context at a time can have the address: give each program its own address, such \
             as one of 127.0.0.0/8, or allow setsockopt(SO_ATTACH_REUSEPORT_CBPF)"
        }
        _ => "",
    }
}

/// Which numbers a new member requests.
#[derive(Debug, Clone, Copy)]
pub(super) enum Wanted {
    /// Any free block of at most two to the power of this many numbers.
    AtMost(u32),
    /// Exactly this block.
    Exactly(NumberBlock),
}

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

/// A context's share of an address: its block of queue pair numbers, and its sockets.
///
/// It has three descriptors: two UDP sockets and a Unix socket.
///
/// Dropping it leaves the group; the other members continue without interruption.
#[derive(Debug)]
pub struct Member {
    pub(super) address: IpAddr,
    pub(super) block: NumberBlock,
    pub(super) process: Identity,
    pub(super) registry: Arc<Registry>,
    pub(super) receiver: Receiver,
    pub(super) sender: Sender,
    pub(super) mailbox: Mailbox,
    pub(super) outbox: Outbox,
    pub(super) repair: Repair,
    pub(super) counters: Counters,
    pub(super) shortcuts: Option<Box<Shortcuts>>,
    /// How many times packets were polled for.
    pub(super) turn: u32,
    pub(super) descriptor_reads: u64,
    pub(super) cached_table: RefCell<CachedTable>,
    pub(super) checker: IcrcChecker,
    pub(super) generator: IcrcGenerator,
    pub(super) copies: Copies,
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
        let registry = Arc::new(Registry::new(directory, address));
        let local = SocketAddr::new(address, ROCE_PORT);
        let (locked, table, someone_died, receiver) = meet_and_bind(&registry, local)?;
        let block = choose(&table, address, wanted)?;
        let mailbox = Mailbox::open(registry.mailbox(block)).map_err(JoinError::Mailbox)?;
        let sender = Sender::bind(address)?;
        let mut member = Self {
            address,
            block,
            process: Identity::current(),
            registry,
            receiver,
            sender,
            mailbox,
            outbox: Outbox::default(),
            repair: Repair::new(),
            counters: Counters::default(),
            shortcuts: None,
            turn: 0,
            descriptor_reads: 0,
            cached_table: RefCell::new(CachedTable::new()),
            checker: IcrcChecker::new(),
            generator: IcrcGenerator::new(),
            copies: Copies::default(),
        };
        let place_known = !someone_died && table.may_fill_all_places();
        let entered = member.enter(&locked, table, place_known);
        // A member that could not enter leaves when it is dropped, which needs the lock.
        drop(locked);
        entered.map(|()| member)
    }

    /// The shared address.
    pub fn address(&self) -> IpAddr {
        self.address
    }

    /// This member's number block.
    pub fn block(&self) -> NumberBlock {
        self.block
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
        let table = self
            .cached_table
            .borrow_mut()
            .current(&self.registry)
            .ok()?;
        table.owner(number).map(|entry| entry.block)
    }

    /// How many times the table of members was read, for measurements.
    pub fn registry_reads(&self) -> u64 {
        self.cached_table.borrow().reads()
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

    /// The services that the members of this address listen for.
    pub fn listeners(&self) -> Listeners<'_> {
        Listeners::new(self)
    }

    /// The blocks of the other members whose processes run.
    pub fn others(&self) -> Result<Vec<NumberBlock>, RegistryError> {
        let mut cached_table = self.cached_table.borrow_mut();
        let table = cached_table.current(&self.registry)?;
        let now = Instant::now();
        let others = table.members.iter();
        let others = others.filter(|it| it.block != self.block && !it.withdrawn);
        let living = others.filter(|it| cached_table.is_alive(it.process, now));
        Ok(living.map(|it| it.block).collect())
    }

    /// Whether this is the copy in a forked child. The packets belong to the parent: call
    /// [`disown_after_fork`](Self::disown_after_fork), and join again to get numbers.
    pub fn is_inherited(&self) -> bool {
        !self.process.is_current()
    }

    /// Releases the sockets that a fork copied, so that they are closed when the parent closes
    /// them. Otherwise the parent's place in the group stays taken after its death, and packets
    /// that are steered there are lost.
    ///
    /// Call it in the child directly after the fork: it allocates nothing and takes no lock. In the
    /// parent it does nothing.
    pub fn disown_after_fork(&self) {
        if !self.is_inherited() {
            return;
        }
        let [receiver, mailbox] = self.fds();
        for fd in [receiver, mailbox, self.sender.as_fd()] {
            // If `/dev/null` can't be opened, nothing else can be done.
            let _ = sys::process::replace_with_null(fd);
        }
    }
}

/// Chooses the numbers for a new member.
fn choose(table: &Table, address: IpAddr, wanted: Wanted) -> Result<NumberBlock, JoinError> {
    let full = || JoinError::Full {
        address,
        contexts: table.members.len(),
        processes: table.processes(),
    };
    if table.members.len() >= MAX_MEMBERS {
        return Err(full());
    }
    match wanted {
        Wanted::Exactly(block) if table.is_taken(block) => Err(JoinError::BlockTaken),
        Wanted::Exactly(block) => Ok(block),
        Wanted::AtMost(bits) => {
            // Without randomness, the round number chooses the block.
            let random = sys::process::random().unwrap_or(table.round);
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
                sleep(PORT_CHECK_INTERVAL);
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
        let someone_died = locked.remove_dead_members(&mut table);
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
        sleep(PORT_CHECK_INTERVAL);
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
    use wire::{Opcode, PacketHead, Psn, Route, icrc};

    use super::*;
    use crate::limits::{self, Limit};
    use crate::share::table::Entry;
    use crate::socket::Inbox;
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
        let folder = std::env::temp_dir().join(format!("roci-dead-{}", std::process::id()));
        let directory = RuntimeDirectory::at(&folder).unwrap();
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
        std::fs::remove_dir_all(folder).unwrap();
    }

    /// Two members join one address while a socket option is forbidden. Returns the error of the
    /// second, and how many packets the first one receives afterwards.
    fn two_join_without(option: libc::c_int, last: u8) -> (JoinError, usize) {
        let [low, high, ..] = std::process::id().to_le_bytes();
        let address = IpAddr::from([127, 192 | high & 63, low, last]);
        let name = format!("roci-forbidden-{last}-{}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        let directory = RuntimeDirectory::at(&folder).unwrap();
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
        std::fs::remove_dir_all(folder).unwrap();
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
        assert!(limits::was_reported(Limit::Steering));
    }

    #[test]
    fn where_shared_ports_are_forbidden_one_context_has_the_address() {
        let (second, received) = two_join_without(libc::SO_REUSEPORT, 5);
        let taken = matches!(second, JoinError::Socket(SocketError::PortTaken { .. }));
        assert!(taken, "{second}");
        assert_eq!(received, 1);
        assert!(limits::was_reported(Limit::SharedPorts));
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
            // In the parent it has no effect.
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
                place: None,
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

    #[test]
    fn the_limit_of_open_files_is_named() {
        let rejected = |errno| {
            let source = io::Error::from_raw_os_error(errno);
            JoinError::Mailbox(source).with_limit()
        };
        assert!(matches!(
            rejected(libc::EMFILE),
            JoinError::TooManyFiles { limit: 1.. }
        ));
        assert!(matches!(
            rejected(libc::ENFILE),
            JoinError::SystemOutOfFiles
        ));
        assert!(matches!(rejected(libc::EACCES), JoinError::Mailbox(_)));
    }
}
