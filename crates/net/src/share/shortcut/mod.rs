//! Past the kernel, from one process of a machine to another.
//!
//! Two processes of one user that meet in the same folder can hand each other packets through memory
//! that both have mapped: the same packets as over the socket, in the same order, several times as
//! fast. Nobody can watch them on an interface then, so it is done only for who asks for it, at both
//! ends.
//!
//! Who sends looks up in the registry of the destination who owns the queue pair, makes a [`ring`] and
//! offers it to the owner by a letter. Until that has taken it, and whenever there is none, packets go
//! over the socket. What was sent there before is in the reader's socket already, and he takes it
//! before he begins to read a new ring.
//!
//! Numbers change hands when their owner leaves or dies: then the registry changes, which is looked for
//! once in a millisecond at most, and the ways to former owners are dropped.
//!
//! A reader who is about to sleep says so in the ring, and the writer knocks at his mailbox.

mod ring;

use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File};
use std::io;
use std::net::IpAddr;
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use wire::Qpn;

use super::block::NumberBlock;
use super::mailbox::{HEADING, MAX_LETTER, Mailbox, Offer};
use super::process::Identity;
use super::registry::{Registry, Stamp};
use super::table::{Entry, Table};
use crate::limits::{self, Limit};
use ring::{Reader, State, Writer};

/// So often a writer whose ring is full lets others run before a packet is lost: about a millisecond.
const PATIENCE: usize = 1000;

/// How often a way is looked after before a refusal is forgotten, some seconds in all.
const FORGET_AFTER: u32 = 16;

/// How many letters are read at a time from one ring.
const LETTERS_AT_ONCE: usize = 8;

/// So many may write for us.
const MAX_SOURCES: usize = 256;

/// How many ways are remembered. Packets to more go over the socket.
const MAX_WAYS: usize = 4096;

/// How often it is looked whether numbers have changed hands.
const CHECK_PERIOD: Duration = Duration::from_millis(1);

/// A queue pair number at an address.
type Destination = (IpAddr, Qpn);

/// The ways to and from other processes.
#[derive(Debug)]
pub(super) struct Shortcuts {
    us: Identity,
    /// By the address and the lowest number of the block that they lead to. Blocks don't overlap.
    ways: BTreeMap<(IpAddr, u32), Way>,
    /// The registries of the addresses that ways lead to, and the tables they were looked up in.
    registries: HashMap<IpAddr, (Registry, Option<Stamp>)>,
    /// What time it was told to be, and when the registries were looked at.
    now: Option<Instant>,
    checked: Option<Instant>,
    sources: Vec<Source>,
    buffer: Box<[u8]>,
}

/// Where packets to one owner of queue pairs go.
#[derive(Debug)]
struct Way {
    /// The numbers that it is for.
    block: NumberBlock,
    /// Nothing if they go over the socket.
    ring: Option<Outlet>,
    /// How often it was looked after.
    age: u32,
}

#[derive(Debug)]
struct Outlet {
    writer: Writer,
    block: NumberBlock,
    reader: Identity,
    mailbox: PathBuf,
    /// How far the reader was when it was last looked after.
    unread: Option<u64>,
}

/// A ring that somebody writes for us.
#[derive(Debug)]
struct Source {
    reader: Reader,
    writer: Identity,
}

impl Shortcuts {
    pub(super) fn new(us: Identity) -> Self {
        Self {
            us,
            ways: BTreeMap::new(),
            registries: HashMap::new(),
            now: None,
            checked: None,
            sources: Vec::new(),
            buffer: vec![0; MAX_LETTER].into(),
        }
    }

    /// Tells what time it is. Whoever sends is not asked for it, as that would cost more than sending.
    pub(super) fn tell_time(&mut self, now: Instant) {
        self.now = Some(now);
    }

    /// Takes packets to their owner; whether they are on their way. If not, they must go over the socket.
    pub(super) fn send(
        &mut self,
        to: Destination,
        heading: &[u8; HEADING],
        packets: &[u8],
        registry: &Registry,
        mailbox: &Mailbox,
    ) -> bool {
        self.drop_outdated_ways_if_due();
        if self.way(to).is_none() {
            self.look_for_way(to, registry, mailbox);
        }
        let ring = self.way(to).and_then(|way| way.ring.as_mut());
        ring.is_some_and(|outlet| outlet.send(heading, packets, mailbox))
    }

    fn way(&mut self, (address, number): Destination) -> Option<&mut Way> {
        let below = self.ways.range_mut(..=(address, number.value()));
        let ((at, _), way) = below.last()?;
        (*at == address && way.block.contains(number)).then_some(way)
    }

    fn look_for_way(&mut self, to: Destination, registry: &Registry, mailbox: &Mailbox) {
        let (address, number) = to;
        if self.ways.len() >= MAX_WAYS {
            return;
        }
        let (registry, _) = self.registries.entry(address).or_insert_with(|| {
            let registry = registry.of_neighbour(address);
            // Asked for before the table is read.
            let stamp = registry.stamp();
            (registry, stamp)
        });
        let table = registry.read().unwrap_or(Table::EMPTY);
        let owner = table.owner(number);
        let block = owner.map(|owner| owner.block);
        let Some(block) = block.or(NumberBlock::smallest_with(number)) else {
            return;
        };
        let ring = owner.and_then(|owner| offer(self.us, owner, registry, mailbox));
        let range = block.qpn_range();
        let inside = (self.ways).range((address, range.start)..(address, range.end));
        let inside: Vec<_> = inside.map(|(key, _)| *key).collect();
        inside.iter().for_each(|key| _ = self.ways.remove(key));
        let way = Way {
            block,
            ring,
            age: 0,
        };
        self.ways.insert((address, block.first()), way);
    }

    /// Numbers change hands only by a new table. Then a ring whose reader is dead must not get what
    /// is for the new owner.
    fn drop_outdated_ways_if_due(&mut self) {
        let checked_lately = match (self.now, self.checked) {
            (Some(now), Some(checked)) => now.saturating_duration_since(checked) < CHECK_PERIOD,
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
            let table = registry.read().unwrap_or(Table::EMPTY);
            self.ways.retain(|(at, _), way| {
                at != address || way.ring.as_ref().is_some_and(|it| it.is_in(&table))
            });
        }
    }

    /// Takes a ring that was offered. One that can't be used is left alone: then nobody writes.
    pub(super) fn accept(&mut self, offer: &Offer) {
        if self.sources.len() < MAX_SOURCES
            && let Ok(reader) = open(offer)
        {
            self.sources.push(Source {
                reader,
                writer: offer.from,
            });
        }
    }

    /// Whether anybody writes for us.
    pub(super) fn has_sources(&self) -> bool {
        !self.sources.is_empty()
    }

    /// Whether somebody has begun to write: what came over the socket before is older.
    pub(super) fn has_news(&mut self) -> bool {
        let mut sources = self.sources.iter_mut().map(|source| &mut source.reader);
        sources.any(|reader| reader.is_new() && reader.has_letters())
    }

    /// Reads what was written for us.
    pub(super) fn receive(&mut self, mut take: impl FnMut(&[u8])) {
        let buffer = &mut self.buffer;
        self.sources.retain_mut(|source| {
            for _ in 0..LETTERS_AT_ONCE {
                match source.reader.read(buffer) {
                    Ok(Some(length)) => take(&buffer[..length]),
                    Ok(None) => break,
                    // Closes it; the writer goes over the socket again.
                    Err(ring::Nonsense) => return false,
                }
            }
            true
        });
    }

    /// Lets the writers know that we must be woken; whether there is something to read after all.
    pub(super) fn prepare_sleep(&mut self) -> bool {
        let mut found = false;
        for source in &mut self.sources {
            found |= source.reader.prepare_sleep();
        }
        found
    }

    /// Whether somebody has knocked since then; true once.
    pub(super) fn was_woken(&mut self) -> bool {
        let mut woken = false;
        for source in &mut self.sources {
            woken |= source.reader.was_woken();
        }
        woken
    }

    /// Forgets who has gone. To be called now and then.
    pub(super) fn tend(&mut self) {
        self.ways.retain(|_, way| way.is_worth_keeping());
        let ways = &self.ways;
        (self.registries).retain(|address, _| ways.keys().any(|(at, _)| at == address));
        self.sources.retain_mut(|source| {
            !source.reader.is_over() && (source.reader.has_letters() || source.writer.is_alive())
        });
    }
}

impl Way {
    /// A refusal is forgotten after a while: the owner may have changed his mind, or be another.
    fn is_worth_keeping(&mut self) -> bool {
        self.age += 1;
        let Some(outlet) = &mut self.ring else {
            return self.age < FORGET_AFTER;
        };
        match outlet.writer.state() {
            State::Open => !outlet.is_stuck() || outlet.reader.is_alive(),
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

impl Outlet {
    /// Whether the reader still owns the numbers.
    fn is_in(&self, table: &Table) -> bool {
        let owner = table.member(self.block).filter(|it| !it.withdrawn);
        owner.is_some_and(|owner| owner.process == self.reader)
    }

    fn send(&mut self, heading: &[u8], packets: &[u8], mailbox: &Mailbox) -> bool {
        if self.writer.state() != State::Open {
            return false;
        }
        if !self.writer.write(heading, packets) && !self.reader.is_current() {
            self.write_when_there_is_room(heading, packets);
        }
        if self.writer.reader_sleeps() {
            // Who can't be reached will be found dead, or wakes up by himself.
            let _ = mailbox.bring(&self.mailbox, &[]);
        }
        // What does not fit is lost, as on any network: over the socket it would overtake the rest.
        true
    }

    /// Waits a little. Not for a reader in this process: he may be waiting for us.
    fn write_when_there_is_room(&mut self, heading: &[u8], packets: &[u8]) {
        for _ in 0..PATIENCE {
            std::thread::yield_now();
            if self.writer.state() != State::Open || self.writer.write(heading, packets) {
                return;
            }
        }
    }

    /// Whether the reader has not moved since the last time, although he could.
    fn is_stuck(&mut self) -> bool {
        let unread = self.writer.unread();
        let before = std::mem::replace(&mut self.unread, unread);
        unread.is_some() && unread == before
    }
}

/// Offers a ring to the owner of queue pairs, if it is a process of ours.
fn offer(us: Identity, owner: &Entry, registry: &Registry, mailbox: &Mailbox) -> Option<Outlet> {
    let (block, reader) = (owner.block, owner.process);
    if !reader.is_alive() {
        return None;
    }
    let writer = Writer::create()
        .inspect_err(|error| limits::tell_if_forbidden(Limit::MemoryFiles, error))
        .ok()?;
    let offer = Offer {
        from: us,
        descriptor: writer.file().as_raw_fd(),
    };
    let outlet = Outlet {
        writer,
        block,
        reader,
        mailbox: registry.mailbox(block),
        unread: None,
    };
    mailbox.bring(&outlet.mailbox, &offer.print()).ok()?;
    Some(outlet)
}

/// Opens the memory behind a descriptor of another process of ours.
fn open(offer: &Offer) -> io::Result<Reader> {
    let pid = offer.from.pid;
    if !offer.from.is_alive() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let path = format!("/proc/{pid}/fd/{}", offer.descriptor);
    // Anything else that lies there is not for us, and opening it may have consequences.
    if !fs::read_link(&path)?.starts_with("/memfd:roci-shortcut (deleted)") {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let file = File::options().read(true).write(true).open(path)?;
    Reader::open(&file)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::share::RuntimeDirectory;
    use crate::sys::shared_memory::SharedMemory;

    fn offer_of(file: &File) -> Offer {
        Offer {
            from: Identity::current(),
            descriptor: file.as_raw_fd(),
        }
    }

    fn shortcuts() -> Shortcuts {
        Shortcuts::new(Identity::current())
    }

    /// A process that does not run.
    fn nobody() -> Identity {
        Identity {
            start: u64::MAX,
            ..Identity::current()
        }
    }

    fn entry() -> Entry {
        Entry {
            block: NumberBlock::new(0x1000, 12).unwrap(),
            process: Identity::current(),
            place: None,
            round: 0,
            withdrawn: false,
        }
    }

    fn outlet(writer: Writer, reader: Identity) -> Outlet {
        Outlet {
            writer,
            block: entry().block,
            reader,
            mailbox: PathBuf::new(),
            unread: None,
        }
    }

    #[test]
    fn no_more_rings_are_read_than_the_limit() {
        let writer = Writer::create().unwrap();
        let mut shortcuts = shortcuts();
        for _ in 0..=MAX_SOURCES {
            shortcuts.accept(&offer_of(writer.file()));
        }
        assert_eq!(shortcuts.sources.len(), MAX_SOURCES);
    }

    #[test]
    fn only_the_memory_of_a_living_process_is_opened() {
        let writer = Writer::create().unwrap();
        let offer = offer_of(writer.file());
        open(&offer).unwrap();
        let from = nobody();
        open(&Offer { from, ..offer }).unwrap_err();
        let other = SharedMemory::create_named(c"another", ring::LENGTH).unwrap();
        let refused = open(&offer_of(&other)).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::InvalidInput);
    }

    #[test]
    fn no_more_ways_are_remembered_than_the_limit() {
        let path = std::env::temp_dir().join(format!("roci-ways-{}", std::process::id()));
        let directory = RuntimeDirectory::at(&path).unwrap();
        let address = IpAddr::from([127, 0, 0, 1]);
        let registry = Registry::new(&directory, address);
        let mailbox = Mailbox::open(path.join("mailbox")).unwrap();
        let mut shortcuts = shortcuts();
        for number in (0x800..).step_by(0x800).take(MAX_WAYS + 1) {
            let to = (address, Qpn::new(number));
            let sent = shortcuts.send(to, &[0; HEADING], b"packet", &registry, &mailbox);
            assert!(!sent, "nobody has the number");
        }
        assert_eq!(shortcuts.ways.len(), MAX_WAYS);
        // What nobody has is asked for again after a while.
        for _ in 0..FORGET_AFTER {
            shortcuts.tend();
        }
        assert!(shortcuts.ways.is_empty() && shortcuts.registries.is_empty());
        fs::remove_dir_all(path).unwrap();
    }

    #[test]
    fn a_way_is_for_the_process_that_has_the_numbers() {
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
        let process = nobody();
        assert!(!outlet.is_in(&table(Entry { process, ..entry() })));
    }

    #[test]
    fn a_way_whose_reader_has_gone_is_forgotten() {
        let way = |reader| {
            let mut writer = Writer::create().unwrap();
            let open = Reader::open(writer.file()).unwrap();
            assert!(writer.write(b"unread", &[]));
            let way = Way {
                block: entry().block,
                ring: Some(outlet(writer, reader)),
                age: 0,
            };
            (way, open)
        };
        let (mut living, reader) = way(Identity::current());
        assert!(living.is_worth_keeping() && living.is_worth_keeping());
        drop(reader);
        assert!(!living.is_worth_keeping(), "it is closed");
        let (mut dead, _reader) = way(nobody());
        assert!(dead.is_worth_keeping(), "it may have moved");
        assert!(!dead.is_worth_keeping(), "it has not");
    }

    #[test]
    fn a_ring_is_read_to_its_end_and_then_closed() {
        let mut shortcuts = shortcuts();
        let mut writer = Writer::create().unwrap();
        shortcuts.accept(&offer_of(writer.file()));
        assert!(writer.write(b"last", &[]));
        drop(writer);
        shortcuts.tend();
        let mut read = Vec::new();
        shortcuts.receive(|letter| read.push(letter.to_vec()));
        assert_eq!(read, [b"last"]);
        shortcuts.tend();
        assert!(!shortcuts.has_sources(), "its writer has closed it");
    }

    #[test]
    fn a_ring_of_a_process_that_died_is_closed() {
        let mut shortcuts = shortcuts();
        let writer = Writer::create().unwrap();
        shortcuts.accept(&offer_of(writer.file()));
        shortcuts.tend();
        assert!(shortcuts.has_sources());
        shortcuts.sources[0].writer = nobody();
        shortcuts.tend();
        assert!(!shortcuts.has_sources());
        assert_eq!(writer.state(), State::Closed);
    }

    #[test]
    fn a_ring_with_nonsense_in_it_is_closed() {
        let mut shortcuts = shortcuts();
        let mut writer = Writer::create().unwrap();
        shortcuts.accept(&offer_of(writer.file()));
        assert!(
            writer.write(&vec![7; MAX_LETTER + 1], &[]),
            "longer than any letter"
        );
        shortcuts.receive(|_| panic!("no letter"));
        assert!(!shortcuts.has_sources());
        assert_eq!(writer.state(), State::Closed);
    }

    #[test]
    fn the_way_to_an_owner_replaces_those_to_parts_of_its_numbers() {
        let path = std::env::temp_dir().join(format!("roci-parts-{}", std::process::id()));
        let directory = RuntimeDirectory::at(&path).unwrap();
        let address = IpAddr::from([127, 0, 0, 1]);
        let registry = std::sync::Arc::new(Registry::new(&directory, address));
        let mailbox = Mailbox::open(registry.mailbox(entry().block)).unwrap();
        let mut shortcuts = shortcuts();
        let mut send = |number| {
            let to = (address, Qpn::new(number));
            shortcuts.send(to, &[0; HEADING], b"packet", &registry, &mailbox);
            shortcuts.ways.len()
        };
        assert_eq!(send(0x1800), 1, "nobody has it");
        let mut table = Table::EMPTY;
        table.add(entry());
        registry.lock().unwrap().write(&table).unwrap();
        assert_eq!(send(0x1000), 1);
        drop(mailbox);
        fs::remove_dir_all(path).unwrap();
    }
}
