//! Shortcuts: packets through shared memory between two processes of one machine.
//!
//! Two processes of one user that use the same runtime directory exchange packets through memory that both have
//! mapped: the same packets as over the socket, in the same order, several times as fast. A capture on the
//! interface does not show these packets, so the driver turns them off while a program captures there.
//!
//! A sender looks up the owner of the queue pair in the registry of the destination, creates a
//! [`ring`] and offers it to the owner by a message. Until the owner has opened it, and whenever
//! there is no ring, packets go over the socket. Packets keep their order:
//!
//! - Packets that were sent over the socket before are already in the reader's socket, and the reader receives
//!   them before it begins to read a new ring.
//! - A sender that returns to the socket never writes to that ring again. The reader empties the rings before it
//!   handles packets from the socket.
//!
//! Numbers get a new owner when their owner leaves or dies. The registry changes then. The sender
//! checks for that at most once per millisecond, and drops the routes to former owners.
//!
//! A reader that is about to sleep sets a flag in the ring, and the writer then wakes it through its
//! mailbox. A ring that is not used for some seconds is removed.

mod in_place;
mod outlet;
mod ring;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs::{self, File};
use std::io;
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Instant;

use wire::Qpn;

pub(super) use in_place::RingMessage;
pub(super) use outlet::Outcome;

use super::cached_registry::KnownTable;
use super::mailbox::{HEADER_LENGTH, MAX_MESSAGE, Mailbox, RingOffer};
use super::number_block::NumberBlock;
use super::process_identity::Identity;
use super::registry::{Registry, Stamp};
use super::registry_table::{Entry, Table};
use crate::sys::shared_memory::RING_LINK;
use crate::times::TICK;
use outlet::Outlet;
use ring::{Reader, State};

/// After how many maintenance rounds a route without a ring is forgotten: some seconds.
const FORGET_AFTER: u32 = 16;

/// After how many maintenance rounds the writers of all rings are looked up: a second. The ring of a dead process only takes up
/// memory.
const LIVENESS_ROUNDS: u32 = 4;

/// How many messages are read from one ring at a time.
const MESSAGES_PER_POLL: usize = 8;

/// How many processes may have a ring to this one.
const MAX_SOURCES: usize = 256;

/// How many routes are kept. Packets to further owners go over the socket.
const MAX_ROUTES: usize = 4096;

/// A queue pair number at an address.
type Destination = (IpAddr, Qpn);

/// The shared-memory routes to and from other processes.
#[derive(Debug)]
pub(super) struct Shortcuts {
    us: Identity,
    /// Whether packets are sent through rings. They are always received.
    enabled: bool,
    /// Whether a packet had a destination on this machine.
    has_local_peer: bool,
    /// Keyed by the address and the lowest number of the block that they lead to. Blocks don't
    /// overlap.
    routes: Routes,
    /// The registries of the addresses that routes lead to, and the tables they were looked up in.
    registries: HashMap<IpAddr, (Registry, Option<Stamp>)>,
    /// Addresses without a registry: those of other machines. They are checked again after a while.
    remote: HashSet<IpAddr>,
    rounds: u32,
    /// The current time as passed in, and when the registries were last checked.
    now: Option<Instant>,
    checked: Option<Instant>,
    sources: Vec<Source>,
    buffer: Box<[u8]>,
}

/// By the address and the lowest number of the owner.
type Routes = BTreeMap<(IpAddr, u32), OwnerRoute>;

/// The route of packets to one owner of queue pairs.
#[derive(Debug)]
struct OwnerRoute {
    /// The numbers of the owner.
    block: NumberBlock,
    /// The owner, if it is a process of this machine and may still be offered a ring.
    owner: Option<Entry>,
    /// `None` if packets go over the socket.
    ring: Option<Outlet>,
    /// The number of maintenance rounds.
    age: u32,
}

/// A ring that another process writes.
#[derive(Debug)]
struct Source {
    reader: Reader,
    writer: Identity,
}

/// The current table. One that can't be read has no members.
fn current(registry: &Registry) -> Arc<KnownTable> {
    let table = registry.current();
    table.unwrap_or_else(|_| KnownTable::new(Table::EMPTY))
}

impl Shortcuts {
    pub(super) fn new(us: Identity) -> Self {
        Self {
            us,
            enabled: false,
            has_local_peer: false,
            routes: BTreeMap::new(),
            registries: HashMap::new(),
            remote: HashSet::new(),
            rounds: 0,
            now: None,
            checked: None,
            sources: Vec::new(),
            buffer: vec![0; MAX_MESSAGE].into(),
        }
    }

    /// Sets the current time. A sender does not pass it, because reading the clock costs more than sending.
    pub(super) fn tell_time(&mut self, now: Instant) {
        self.now = Some(now);
    }

    /// Sets whether packets are sent through rings. Rings that are in use are closed; their readers read the
    /// rest.
    pub(super) fn set_enabled(&mut self, enabled: bool) {
        if self.enabled && !enabled {
            self.routes.clear();
        }
        self.enabled = enabled;
    }

    /// Whether a packet had a destination on this machine, so that it is worth while to enable this.
    pub(super) fn has_local_peer(&self) -> bool {
        self.has_local_peer
    }

    /// Writes packets to their owner's ring.
    pub(super) fn send(
        &mut self,
        to: Destination,
        header: &[u8; HEADER_LENGTH],
        packets: &[u8],
        registry: &Registry,
        mailbox: &Mailbox,
    ) -> Outcome {
        let undecided = !self.enabled && self.has_local_peer;
        if undecided || self.remote.contains(&to.0) {
            return Outcome::NoRing;
        }
        self.drop_outdated_routes_if_due();
        if self.route(to).is_none() {
            self.find_route(to, registry);
        }
        let (us, enabled, now) = (self.us, self.enabled, self.now);
        let Some(route) = self.route(to) else {
            return Outcome::NoRing;
        };
        let local = route.owner.is_some();
        if let Some(owner) = route.owner.take_if(|_| enabled) {
            route.ring = Outlet::offer(us, &owner, &registry.of_neighbour(to.0), mailbox);
        }
        let outcome = match &mut route.ring {
            Some(outlet) => outlet.send(header, packets, mailbox, now),
            None => Outcome::NoRing,
        };
        self.has_local_peer |= local;
        outcome
    }

    fn route(&mut self, (address, number): Destination) -> Option<&mut OwnerRoute> {
        let mut near = self.routes.range_mut(near(address, number)).rev();
        let found = near.find(|(_, route)| route.block.contains(number));
        found.map(|(_, route)| route)
    }

    /// Whether packets to a queue pair go through a ring.
    pub(super) fn has_ring(&self, (address, number): Destination) -> bool {
        let mut near = self.routes.range(near(address, number)).rev();
        let found = near.find(|(_, route)| route.block.contains(number));
        found.is_some_and(|(_, route)| route.ring.is_some())
    }

    fn find_route(&mut self, to: Destination, registry: &Registry) {
        let (address, number) = to;
        if self.routes.len() >= MAX_ROUTES {
            return;
        }
        let (registry, _) = self.registries.entry(address).or_insert_with(|| {
            let registry = registry.of_neighbour(address);
            // Read the stamp before the table.
            let stamp = registry.stamp();
            (registry, stamp)
        });
        let table = current(registry);
        if table.members.is_empty() {
            self.registries.remove(&address);
            if self.remote.len() < MAX_ROUTES {
                self.remote.insert(address);
            }
            return;
        }
        let owner = table.owner(number);
        let block = owner.map(|owner| owner.block);
        let Some(block) = block.or(NumberBlock::smallest_with(number)) else {
            return;
        };
        let owner = owner.copied();
        let range = block.qpn_range();
        let inside = (self.routes).range((address, range.start)..(address, range.end));
        let unowned = inside.filter(|(_, route)| route.owner.is_none() && route.ring.is_none());
        let inside: Vec<_> = unowned.map(|(key, _)| *key).collect();
        inside.iter().for_each(|key| _ = self.routes.remove(key));
        let route = OwnerRoute {
            block,
            owner,
            ring: None,
            age: 0,
        };
        self.routes.insert((address, block.first()), route);
        add_parts(&mut self.routes, address, block, &table);
    }

    /// Numbers get a new owner only with a new table. A ring to the previous owner must then not be used.
    fn drop_outdated_routes_if_due(&mut self) {
        let checked_lately = match (self.now, self.checked) {
            (Some(now), Some(checked)) => now.saturating_duration_since(checked) < TICK,
            (None, _) => true,
            (_, None) => false,
        };
        if checked_lately {
            return;
        }
        self.checked = self.now;
        for (address, (registry, stamp)) in &mut self.registries {
            let now = registry.stamp();
            if now == *stamp {
                continue;
            }
            *stamp = now;
            let table = current(registry);
            self.routes
                .retain(|(at, _), route| at != address || route.is_in(&table));
            let kept = self.routes.iter().filter(|((at, _), _)| at == address);
            let kept: Vec<_> = kept.map(|(_, route)| route.block).collect();
            for block in kept {
                add_parts(&mut self.routes, *address, block, &table);
            }
        }
    }

    /// Opens an offered ring. One that cannot be used is ignored, and its writer uses the socket.
    pub(super) fn accept(&mut self, offer: &RingOffer) {
        if self.sources.len() < MAX_SOURCES
            && let Ok(reader) = open(offer)
        {
            self.sources.push(Source {
                reader,
                writer: offer.from,
            });
        }
    }

    /// Whether any process has a ring to this one.
    pub(super) fn has_sources(&self) -> bool {
        !self.sources.is_empty()
    }

    /// Whether a writer has just started. Packets that are in the socket are older then.
    pub(super) fn has_new_source(&mut self) -> bool {
        let mut sources = self.sources.iter_mut().map(|source| &mut source.reader);
        sources.any(|reader| reader.is_new() && reader.has_messages())
    }

    /// Reads messages of all rings, a limited number of each.
    pub(super) fn receive(&mut self, mut take: impl FnMut(RingMessage<'_>)) {
        let buffer = &mut self.buffer;
        (self.sources).retain_mut(|source| source.read(buffer, MESSAGES_PER_POLL, &mut take));
    }

    /// Reads all messages that are older than packets which have just arrived at the socket. A new ring has
    /// only later ones.
    pub(super) fn receive_older(&mut self, mut take: impl FnMut(RingMessage<'_>)) {
        let buffer = &mut self.buffer;
        self.sources.retain_mut(|source| {
            source.reader.is_new() || source.read(buffer, ring::MAX_MESSAGES, &mut take)
        });
    }

    /// Tells the writers to wake this process. Returns whether there is already something to read.
    pub(super) fn prepare_sleep(&mut self) -> bool {
        let mut found = false;
        for source in &mut self.sources {
            found |= source.reader.prepare_sleep();
        }
        found
    }

    /// This process stays awake after all, so the next messages need not wake it.
    pub(super) fn stay_awake(&mut self) {
        let readers = self.sources.iter_mut().map(|source| &mut source.reader);
        readers.for_each(Reader::stay_awake);
    }

    /// Whether this process may sleep: the next message of every ring wakes it, and none waits.
    pub(super) fn may_sleep(&mut self) -> bool {
        self.sources
            .iter_mut()
            .all(|source| source.reader.may_sleep())
    }

    /// How many writers have woken this process since it prepared to sleep, or are about to. Each is counted once.
    pub(super) fn take_wakers(&mut self) -> usize {
        let readers = self.sources.iter_mut().map(|source| &mut source.reader);
        readers.map(|reader| usize::from(reader.was_woken())).sum()
    }

    /// Removes rings of processes that have ended. Called periodically.
    pub(super) fn maintain(&mut self) {
        self.rounds = self.rounds.wrapping_add(1);
        if self.rounds.is_multiple_of(FORGET_AFTER) {
            self.remote.clear();
        }
        let before = self.routes.len();
        self.routes.retain(|_, route| route.is_worth_keeping());
        if self.routes.len() < before {
            // One that led to a part of a block is found again while the route to the block is kept. Otherwise the part's packets
            // would take that one.
            self.registries.values_mut().for_each(|it| it.1 = None);
        }
        let routes = &self.routes;
        (self.registries).retain(|address, _| routes.keys().any(|(at, _)| at == address));
        self.sources.retain_mut(|source| !source.reader.is_over());
        if self.rounds.is_multiple_of(LIVENESS_ROUNDS) {
            (self.sources)
                .retain_mut(|source| source.reader.has_messages() || source.writer.is_alive());
        }
    }
}

impl Source {
    /// Reads at most `limit` messages. Returns whether the ring is valid. Dropping an invalid one closes it, and
    /// its writer uses the socket again.
    fn read(
        &mut self,
        buffer: &mut [u8],
        limit: usize,
        take: &mut impl FnMut(RingMessage<'_>),
    ) -> bool {
        for _ in 0..limit {
            match in_place::read(&mut self.reader, buffer, take) {
                Ok(true) => {}
                Ok(false) => break,
                Err(ring::InvalidRing) => return false,
            }
        }
        true
    }
}

/// Adds routes to the members that have taken over parts of a block. The route to the block would be used otherwise.
fn add_parts(routes: &mut Routes, address: IpAddr, block: NumberBlock, table: &Table) {
    for part in table.parts_of(block) {
        let route = routes.entry((address, part.block.first()));
        route.or_insert_with(|| OwnerRoute {
            block: part.block,
            owner: Some(*part),
            ring: None,
            age: 0,
        });
    }
}

/// The keys of the routes that may lead to a number.
fn near(address: IpAddr, number: Qpn) -> RangeInclusive<(IpAddr, u32)> {
    let number = number.value();
    let lowest = number.saturating_sub((1 << NumberBlock::MAX_BITS) - 1);
    (address, lowest)..=(address, number)
}

impl OwnerRoute {
    /// Whether it still leads to the owner of its numbers.
    fn is_in(&self, table: &Table) -> bool {
        self.ring.as_ref().is_some_and(|it| it.is_in(table))
    }

    /// A route without a ring is forgotten after a while, because the owner may enable shortcuts later.
    fn is_worth_keeping(&mut self) -> bool {
        self.age += 1;
        let Some(outlet) = &mut self.ring else {
            return self.age < FORGET_AFTER;
        };
        match outlet.writer.state() {
            State::Open => !outlet.is_unused() && (!outlet.is_stuck() || outlet.reader.is_alive()),
            State::Closed => false,
            State::Offered => {
                if self.age == FORGET_AFTER / 2 {
                    self.ring = None;
                }
                true
            }
        }
    }
}

/// Opens the memory of a descriptor of another process of the same user.
fn open(offer: &RingOffer) -> io::Result<Reader> {
    let pid = offer.from.pid;
    if !offer.from.is_alive() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let path = format!("/proc/{pid}/fd/{}", offer.descriptor);
    // Open nothing but a memory file: opening anything else may have side effects.
    if !fs::read_link(&path)?.starts_with(RING_LINK) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let file = File::options().read(true).write(true).open(path)?;
    Reader::open(&file)
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;
    use std::path::PathBuf;

    use super::ring::Writer;
    use super::*;
    use crate::sharing::RuntimeDirectory;
    use crate::sys::shared_memory::SharedMemory;

    const ADDRESS: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

    fn offer_of(file: &File) -> RingOffer {
        RingOffer {
            from: Identity::current(),
            descriptor: file.as_raw_fd(),
        }
    }

    fn shortcuts() -> Shortcuts {
        let mut shortcuts = Shortcuts::new(Identity::current());
        shortcuts.set_enabled(true);
        shortcuts
    }

    /// The registry of an address in a new directory, and a mailbox there.
    fn site(name: &str, address: IpAddr) -> (PathBuf, Arc<Registry>, Mailbox) {
        let path = std::env::temp_dir().join(format!("roci-{name}-{}", std::process::id()));
        let directory = RuntimeDirectory::at(&path).unwrap();
        let registry = Arc::new(Registry::new(directory.path(), address));
        let mailbox = Mailbox::open(registry.mailbox(entry().block)).unwrap();
        (path, registry, mailbox)
    }

    /// A table with one member, this process.
    fn table() -> Table {
        let mut table = Table::EMPTY;
        table.add(entry());
        table
    }

    /// A process that does not exist.
    fn dead_process() -> Identity {
        Identity {
            start: u64::MAX,
            ..Identity::current()
        }
    }

    fn entry() -> Entry {
        Entry {
            block: NumberBlock::new(0x1000, 12).unwrap(),
            process: Identity::current(),
            socket_index: None,
            round: 0,
            withdrawn: false,
        }
    }

    fn outlet(writer: Writer, reader: Identity) -> Outlet {
        Outlet::new(writer, entry().block, reader, PathBuf::new())
    }

    #[test]
    fn no_more_rings_are_read_than_the_limit() {
        let writer = Writer::create().unwrap();
        let mut shortcuts = shortcuts();
        for _ in 0..=MAX_SOURCES {
            shortcuts.accept(&offer_of(writer.file().unwrap()));
        }
        assert_eq!(shortcuts.sources.len(), MAX_SOURCES);
    }

    #[test]
    fn only_the_memory_of_a_living_process_is_opened() {
        let writer = Writer::create().unwrap();
        let offer = offer_of(writer.file().unwrap());
        open(&offer).unwrap();
        let from = dead_process();
        open(&RingOffer { from, ..offer }).unwrap_err();
        let other = SharedMemory::create_named(c"another", ring::LENGTH).unwrap();
        let rejected = open(&offer_of(&other)).unwrap_err();
        assert_eq!(rejected.kind(), io::ErrorKind::InvalidInput);
    }

    #[test]
    fn no_more_routes_are_remembered_than_the_limit() {
        let (path, registry, mailbox) = site("routes", ADDRESS);
        registry.lock().unwrap().write(&table()).unwrap();
        let mut shortcuts = shortcuts();
        for number in (0x2000..).step_by(0x800).take(MAX_ROUTES + 1) {
            let to = (ADDRESS, Qpn::new(number));
            let sent = shortcuts.send(to, &[0; HEADER_LENGTH], b"packet", &registry, &mailbox);
            assert_eq!(sent, Outcome::NoRing, "no member owns the number");
        }
        assert_eq!(shortcuts.routes.len(), MAX_ROUTES);
        // Routes without an owner are looked up again after a while.
        for _ in 0..FORGET_AFTER {
            shortcuts.maintain();
        }
        assert!(shortcuts.routes.is_empty() && shortcuts.registries.is_empty());
        drop(mailbox);
        fs::remove_dir_all(path).unwrap();
    }

    #[test]
    fn a_route_is_for_the_process_that_has_the_numbers() {
        let outlet = outlet(Writer::create().unwrap(), Identity::current());
        let table = |entry| {
            let mut table = Table::EMPTY;
            table.add(entry);
            table
        };
        assert!(outlet.is_in(&table(entry())));
        assert!(!outlet.is_in(&Table::EMPTY));
        let withdrawn = true;
        assert!(!outlet.is_in(&table(Entry {
            withdrawn,
            ..entry()
        })));
        let process = dead_process();
        assert!(!outlet.is_in(&table(Entry { process, ..entry() })));
    }

    #[test]
    fn a_route_whose_reader_has_gone_is_forgotten() {
        let route = |reader| {
            let mut writer = Writer::create().unwrap();
            let open = Reader::open(writer.file().unwrap()).unwrap();
            assert!(writer.write(b"unread", &[]));
            let route = OwnerRoute {
                block: entry().block,
                owner: None,
                ring: Some(outlet(writer, reader)),
                age: 0,
            };
            (route, open)
        };
        let (mut living, reader) = route(Identity::current());
        assert!(living.is_worth_keeping() && living.is_worth_keeping());
        drop(reader);
        assert!(!living.is_worth_keeping(), "it is closed");
        let (mut dead, _reader) = route(dead_process());
        assert!(dead.is_worth_keeping(), "it may have moved");
        assert!(!dead.is_worth_keeping(), "it has not");
    }

    #[test]
    fn a_ring_that_is_offered_is_given_up_after_a_while() {
        let mut route = OwnerRoute {
            block: entry().block,
            owner: None,
            ring: Some(outlet(Writer::create().unwrap(), Identity::current())),
            age: 0,
        };
        for _ in 1..FORGET_AFTER / 2 {
            assert!(route.is_worth_keeping() && route.ring.is_some());
        }
        assert!(route.is_worth_keeping(), "no other ring is offered yet");
        assert!(route.ring.is_none());
        for _ in FORGET_AFTER / 2 + 1..FORGET_AFTER {
            assert!(route.is_worth_keeping());
        }
        assert!(!route.is_worth_keeping());
    }

    #[test]
    fn a_ring_is_read_to_its_end_and_then_closed() {
        let mut shortcuts = shortcuts();
        let mut writer = Writer::create().unwrap();
        shortcuts.accept(&offer_of(writer.file().unwrap()));
        assert!(writer.write(b"last", &[]));
        drop(writer);
        shortcuts.maintain();
        let mut read = Vec::new();
        shortcuts.receive(|message| read.push(message.to_vec()));
        assert_eq!(read, [b"last"]);
        shortcuts.maintain();
        assert!(!shortcuts.has_sources(), "its writer has closed it");
    }

    #[test]
    fn a_ring_of_a_process_that_died_is_closed() {
        let mut shortcuts = shortcuts();
        let mut writer = Writer::create().unwrap();
        shortcuts.accept(&offer_of(writer.file().unwrap()));
        shortcuts.maintain();
        assert!(shortcuts.has_sources());
        shortcuts.sources[0].writer = dead_process();
        for _ in 0..LIVENESS_ROUNDS {
            shortcuts.maintain();
        }
        assert!(!shortcuts.has_sources());
        assert_eq!(writer.state(), State::Closed);
    }

    #[test]
    fn an_invalid_ring_is_closed() {
        let mut shortcuts = shortcuts();
        let mut writer = Writer::create().unwrap();
        shortcuts.accept(&offer_of(writer.file().unwrap()));
        assert!(
            writer.write(&vec![7; MAX_MESSAGE + 1], &[]),
            "longer than any message"
        );
        shortcuts.receive(|_| panic!("no message"));
        assert!(!shortcuts.has_sources());
        assert_eq!(writer.state(), State::Closed);
    }

    #[test]
    fn the_route_to_an_owner_replaces_those_to_parts_of_its_numbers() {
        let (path, registry, mailbox) = site("parts", ADDRESS);
        let other = Entry {
            block: NumberBlock::new(0x4000, 12).unwrap(),
            ..entry()
        };
        let mut members = Table::EMPTY;
        members.add(other);
        registry.lock().unwrap().write(&members).unwrap();
        let mut shortcuts = shortcuts();
        let mut send = |number| {
            let to = (ADDRESS, Qpn::new(number));
            shortcuts.send(to, &[0; HEADER_LENGTH], b"packet", &registry, &mailbox);
            shortcuts.routes.len()
        };
        assert_eq!(send(0x1800), 1, "no member owns it");
        members.add(entry());
        registry.lock().unwrap().write(&members).unwrap();
        assert_eq!(send(0x1000), 1);
        drop(mailbox);
        fs::remove_dir_all(path).unwrap();
    }

    #[test]
    fn packets_take_the_route_to_a_part_after_the_owner_gave_it_away() {
        let (path, registry, mailbox) = site("given", ADDRESS);
        let whole = Entry {
            block: NumberBlock::new(0x4000, 14).unwrap(),
            ..entry()
        };
        let mut members = Table::EMPTY;
        members.add(whole);
        registry.lock().unwrap().write(&members).unwrap();
        let mut shortcuts = shortcuts();
        let part = Entry {
            block: whole.block.part(1, 11).unwrap(),
            ..entry()
        };
        let number = Qpn::new(part.block.first());
        let block_for = |shortcuts: &mut Shortcuts, now| {
            shortcuts.tell_time(now);
            let to = (ADDRESS, number);
            shortcuts.send(to, &[0; HEADER_LENGTH], b"packet", &registry, &mailbox);
            let route = shortcuts.route(to).unwrap();
            // As if the owner had opened a ring.
            route.ring = Some(outlet(Writer::create().unwrap(), Identity::current()));
            let block = route.block;
            route.ring.as_mut().unwrap().block = block;
            block
        };
        let now = Instant::now();
        assert_eq!(block_for(&mut shortcuts, now), whole.block);
        members.add(part);
        registry.lock().unwrap().write(&members).unwrap();
        assert_eq!(block_for(&mut shortcuts, now + 2 * TICK), part.block);
        // Its route is forgotten, and that to the whole is not.
        let route = shortcuts.route((ADDRESS, number)).unwrap();
        (route.ring, route.age) = (None, FORGET_AFTER);
        shortcuts.maintain();
        assert_eq!(shortcuts.routes.len(), 1);
        let later = now + 4 * TICK;
        assert_eq!(block_for(&mut shortcuts, later), part.block);
        drop(mailbox);
        fs::remove_dir_all(path).unwrap();
    }

    /// A ring from one process to another, both this one, that is open.
    fn open_ring() -> (Outlet, Reader) {
        let writer = Writer::create().unwrap();
        let reader = Reader::open(writer.file().unwrap()).unwrap();
        (outlet(writer, Identity::current()), reader)
    }

    #[test]
    fn a_ring_that_is_not_used_is_removed() {
        let (outlet, mut reader) = open_ring();
        let mut route = OwnerRoute {
            block: outlet.block,
            owner: None,
            ring: Some(outlet),
            age: 0,
        };
        let rounds_until_removed = |route: &mut OwnerRoute| {
            let rounds = (1..100).find(|_| !route.is_worth_keeping());
            rounds.expect("it is removed")
        };
        let write = |route: &mut OwnerRoute| {
            let outlet = route.ring.as_mut().unwrap();
            assert!(outlet.writer.write(b"packet", &[]));
        };
        for _ in 0..outlet::REMOVE_UNUSED_AFTER {
            assert!(route.is_worth_keeping());
            write(&mut route);
            reader.read(&mut [0; 64]).unwrap().unwrap();
        }
        // The first round notices the last packet.
        assert_eq!(
            rounds_until_removed(&mut route),
            outlet::REMOVE_UNUSED_AFTER + 1
        );
    }

    #[test]
    fn packets_that_are_older_than_those_in_the_socket_are_read_first() {
        let mut shortcuts = shortcuts();
        let mut writer = Writer::create().unwrap();
        shortcuts.accept(&offer_of(writer.file().unwrap()));
        assert!(writer.write(b"0", &[]));
        shortcuts.receive_older(|_| panic!("those of a new ring are later"));
        shortcuts.receive(|message| assert_eq!(message.to_vec(), b"0"));
        let messages = 2 * MESSAGES_PER_POLL;
        for _ in 0..messages {
            assert!(writer.write(b"1", &[]));
        }
        drop(writer);
        let mut read = 0;
        shortcuts.receive_older(|_| read += 1);
        assert_eq!(read, messages);
    }

    /// Otherwise the packets in the socket are received after those in the ring.
    #[test]
    fn one_new_writer_among_others_is_noticed() {
        let mut shortcuts = shortcuts();
        let mut writers = [(); 2].map(|()| Writer::create().unwrap());
        for writer in &writers {
            shortcuts.accept(&offer_of(writer.file().unwrap()));
        }
        assert!(!shortcuts.has_new_source(), "nothing is written");
        for writer in &mut writers {
            assert!(writer.write(b"first", &[]));
            assert!(shortcuts.has_new_source());
            shortcuts.receive(|message| assert_eq!(message.to_vec(), b"first"));
            assert!(!shortcuts.has_new_source());
        }
    }

    #[test]
    fn nothing_is_offered_before_it_is_enabled_but_a_local_peer_is_noticed() {
        let (path, registry, mailbox) = site("enabled", ADDRESS);
        registry.lock().unwrap().write(&table()).unwrap();
        let mut shortcuts = Shortcuts::new(Identity::current());
        let remote = IpAddr::from([10, 0, 0, 1]);
        let send = |shortcuts: &mut Shortcuts, address, number| {
            let to = (address, Qpn::new(number));
            let sent = shortcuts.send(to, &[0; HEADER_LENGTH], b"packet", &registry, &mailbox);
            assert_eq!(sent, Outcome::NoRing, "none is open yet");
            shortcuts.routes.values().any(|route| route.ring.is_some())
        };
        assert!(!send(&mut shortcuts, remote, 0x1000));
        assert!(!shortcuts.has_local_peer() && shortcuts.routes.is_empty());
        assert!(!send(&mut shortcuts, ADDRESS, 0x1000));
        assert!(shortcuts.has_local_peer());
        shortcuts.set_enabled(true);
        assert!(send(&mut shortcuts, ADDRESS, 0x1000));
        shortcuts.set_enabled(false);
        assert!(shortcuts.routes.is_empty(), "the ring is closed");
        fs::remove_dir_all(path).unwrap();
    }
}
