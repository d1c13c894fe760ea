//! Statistics pages: what open devices publish about themselves, for other processes.
//!
//! Each lane of an open device has a file in the runtime directory, which it maps and writes; see the crate `statistics` for the
//! format. The file is not kept open, because a program may close any descriptor. When a device is closed, its
//! counters are added to those of other closed devices at the same address, so that the counters of an address do not
//! decrease. The page of a process that was killed counts as it is, until [`retire_dead`] does the same for it.

use std::fs::{self, File, TryLockError};
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::sleep;
use std::time::{Duration, SystemTime};

use statistics::layout::{self, HEADER_WORDS, PAGE_WORDS};
use statistics::{DEVICE_COUNTERS, DeviceCounters, OBJECT_KINDS, ObjectCounts, QueuePairRecord};

use super::process_identity::Identity;
use super::registry::namespace;
use super::runtime_directory::{DirectoryError, RuntimeDirectory};
use crate::private_file;
use crate::sys::file_size;
use crate::sys::shared_memory::SharedMemory;
use crate::times::{DAY, FOREIGN_LIFETIME, LOCK_RETRY_INTERVAL};

/// How many bytes a word has.
const WORD: usize = size_of::<u64>();

/// How often a reader reads a page that is being changed. A writer that dies meanwhile leaves it so.
const READ_ATTEMPTS: usize = 64;

/// How often a device that is being closed tries to lock the file of closed devices: about two milliseconds.
const LOCK_ATTEMPTS: usize = 20;

/// Whose page it is.
#[derive(Debug, Clone, Copy)]
pub struct PageOwner<'n> {
    /// The name of the device.
    pub name: &'n str,
    /// Its first GID.
    pub gid: [u8; 16],
    /// Which of the open devices of this process it is.
    pub context: u32,
    /// Which of its lanes.
    pub lane: u32,
}

/// The page of one lane of an open device. Dropping it adds its counters to those of closed devices.
#[derive(Debug)]
pub struct StatisticsPage {
    memory: SharedMemory,
    /// The content. It is never read from the file, which another process may have shortened or changed.
    words: Box<[u64]>,
    path: PathBuf,
    process: Identity,
}

impl StatisticsPage {
    /// Creates a page in the user's runtime directory.
    pub fn create(owner: PageOwner<'_>) -> io::Result<Self> {
        let directory = RuntimeDirectory::of_user().map_err(io::Error::other)?;
        Self::create_in(&directory, owner)
    }

    /// As [`create`](Self::create), in this runtime directory.
    pub fn create_in(directory: &RuntimeDirectory, owner: PageOwner<'_>) -> io::Result<Self> {
        let process = Identity::current();
        let path = directory.path().join(next_name(process));
        let file = new_file(&path)?;
        let words = first_words(process, owner);
        // A page counts from its first word on, so that is written last. Writing reserves the space.
        let mapped = write_words(&file, layout::MAGIC + 1, &words[layout::MAGIC + 1..])
            .and_then(|()| write_words(&file, layout::MAGIC, &[layout::MAGIC_VALUE]))
            .and_then(|()| SharedMemory::map(&file, PAGE_WORDS * WORD));
        let memory = mapped.inspect_err(|_| {
            let _ = fs::remove_file(&path);
        })?;
        Ok(Self {
            memory,
            words,
            path,
            process,
        })
    }

    /// Writes the counters of the device, the numbers of its objects, and the records of as many of its queue pairs as have a place. `time` is in
    /// nanoseconds since the device was opened.
    pub fn write(
        &mut self,
        time: u64,
        counters: &DeviceCounters,
        objects: &ObjectCounts,
        queue_pairs: usize,
        records: impl Iterator<Item = QueuePairRecord>,
    ) {
        self.set_all(layout::COUNTERS, &counters.0);
        self.set_all(layout::OBJECTS, &objects.words());
        let mut end = HEADER_WORDS;
        let mut count = 0;
        for record in records.take(layout::MAX_RECORDS) {
            let words = record.words();
            self.set_all(end, &words);
            end += words.len();
            count += 1;
        }
        self.words[layout::QUEUE_PAIRS] = queue_pairs as u64;
        self.words[layout::RECORDS] = count;
        self.words[layout::WRITTEN_AT] = time;
        // A reader that sees an odd number, or another one before than after, reads again.
        let being_written = self.words[layout::SEQUENCE] | 1;
        let written = being_written.wrapping_add(1);
        self.words[layout::SEQUENCE] = being_written;
        let parts = [
            (layout::SEQUENCE * WORD, &[being_written][..]),
            (0, &self.words[..end]),
            (layout::SEQUENCE * WORD, &[written][..]),
        ];
        // Another process of the user has shortened the file. Then others see nothing of this device.
        let _ = self.memory.write_words(parts);
        self.words[layout::SEQUENCE] = written;
    }

    fn set_all(&mut self, first: usize, values: &[u64]) {
        self.words[first..first + values.len()].copy_from_slice(values);
    }
}

impl Drop for StatisticsPage {
    fn drop(&mut self) {
        // A forked child has a copy. The device stays with the parent.
        if self.process.is_current() {
            match retire(&self.path) {
                Err(error) if is_damaged(&error) => _ = fs::remove_file(&self.path),
                // If this fails, `retire_dead` does it later.
                _ => {}
            }
        }
    }
}

/// A page without counters.
fn first_words(process: Identity, owner: PageOwner<'_>) -> Box<[u64]> {
    let mut words = vec![0; PAGE_WORDS].into_boxed_slice();
    words[layout::MAGIC] = layout::MAGIC_VALUE;
    words[layout::PROCESS] = process.pid.into();
    words[layout::PROCESS_START] = process.start;
    words[layout::NAME..][..layout::NAME_WORDS].copy_from_slice(&layout::name_words(owner.name));
    words[layout::GID..][..2].copy_from_slice(&layout::gid_words(owner.gid));
    words[layout::CONTEXT] = owner.context.into();
    words[layout::LANE] = owner.lane.into();
    words
}

/// A file that exists already is one of a process that had this process id before.
fn new_file(path: &Path) -> io::Result<File> {
    let mut options = private_file::options();
    let options = options.read(true).write(true);
    match options.clone().create_new(true).open(path) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            retire(path).or_else(|_| fs::remove_file(path))?;
            options.create_new(true).open(path)
        }
        result => result,
    }
}

fn next_name(process: Identity) -> String {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let (network, processes) = (namespace("net"), namespace("pid"));
    let pid = process.pid;
    format!(
        "{}{network:x}.{processes:x}.{pid}.{number}",
        layout::PAGE_PREFIX
    )
}

/// The parts of a page's name.
#[derive(Debug, PartialEq, Eq)]
struct PageName {
    network: u64,
    processes: u64,
}

impl PageName {
    fn parse(path: &Path) -> Option<Self> {
        let name = path.file_name()?.to_str()?;
        let mut parts = name.strip_prefix(layout::PAGE_PREFIX)?.split('.');
        let network = u64::from_str_radix(parts.next()?, 16).ok()?;
        let processes = u64::from_str_radix(parts.next()?, 16).ok()?;
        Some(Self { network, processes })
    }
}

/// A page as it was at one time.
#[derive(Debug, Clone)]
pub struct StatisticsSnapshot {
    words: Vec<u64>,
    /// Whether it is the page of a device that is open in this network namespace.
    is_here: bool,
}

impl StatisticsSnapshot {
    /// The process id; only valid in the process namespace of the process.
    pub fn pid(&self) -> u32 {
        self.words[layout::PROCESS] as u32
    }

    /// Which of the open devices of its process it is.
    pub fn context(&self) -> u32 {
        self.words[layout::CONTEXT] as u32
    }

    /// Which lane of the open device it is about.
    pub fn lane(&self) -> u32 {
        self.words[layout::LANE] as u32
    }

    /// Whether the device is open in this network namespace.
    pub fn is_here(&self) -> bool {
        self.is_here
    }

    /// The name of the device.
    pub fn device(&self) -> String {
        let words = &self.words[layout::NAME..layout::NAME + layout::NAME_WORDS];
        let name: Vec<u8> = layout::name_bytes(words).collect();
        String::from_utf8_lossy(&name).into_owned()
    }

    /// The first GID of the device.
    pub fn gid(&self) -> [u8; 16] {
        layout::gid_bytes([self.words[layout::GID], self.words[layout::GID + 1]])
    }

    /// When it was written, in nanoseconds since the device was opened.
    pub fn time(&self) -> u64 {
        self.words[layout::WRITTEN_AT]
    }

    /// The counters of the lane.
    pub fn counters(&self) -> DeviceCounters {
        let mut counters = DeviceCounters::default();
        counters.add(&self.words[layout::COUNTERS..HEADER_WORDS]);
        counters
    }

    /// Adds the numbers of the lane's objects.
    pub fn add_objects(&self, sum: &mut ObjectCounts) {
        sum.add(&self.words[layout::OBJECTS..][..OBJECT_KINDS.len()]);
    }

    /// How many queue pairs the lane has.
    pub fn queue_pair_count(&self) -> u64 {
        self.words[layout::QUEUE_PAIRS]
    }

    /// The queue pairs that have a record.
    pub fn queue_pairs(&self) -> impl Iterator<Item = QueuePairRecord> + '_ {
        QueuePairRecord::of_page(&self.words)
    }
}

/// The lanes of the devices that running processes of this user have open.
pub fn statistics() -> Result<Vec<StatisticsSnapshot>, DirectoryError> {
    Ok(statistics_in(&RuntimeDirectory::of_user()?))
}

fn statistics_in(directory: &RuntimeDirectory) -> Vec<StatisticsSnapshot> {
    let (network, processes) = (namespace("net"), namespace("pid"));
    let open = |path: PathBuf| {
        let name = PageName::parse(&path)?;
        let words = read(&path).ok()?;
        let dead = name.processes == processes && !process_of(&words).is_alive();
        (words.len() == PAGE_WORDS && !dead).then_some(StatisticsSnapshot {
            words,
            is_here: name.network == network,
        })
    };
    files(directory.path()).filter_map(open).collect()
}

/// The counters of all devices, open and closed, that have one of these GIDs as their first, in this network
/// namespace.
pub fn counters_of(gids: &[[u8; 16]]) -> Result<DeviceCounters, DirectoryError> {
    Ok(counters_in(&RuntimeDirectory::of_user()?, gids))
}

fn counters_in(directory: &RuntimeDirectory, gids: &[[u8; 16]]) -> DeviceCounters {
    let network = namespace("net");
    let closed: Vec<_> = (gids.iter())
        .map(|gid| directory.path().join(closed_name(network, *gid)))
        .collect();
    let sequences = || {
        let sequence = |path: &PathBuf| read(path).map_or(0, |words| words[layout::SEQUENCE]);
        closed.iter().map(sequence).collect::<Vec<_>>()
    };
    let mut sum = DeviceCounters::default();
    for _ in 0..READ_ATTEMPTS {
        sum = DeviceCounters::default();
        let before = sequences();
        let open = files(directory.path())
            .filter(|path| PageName::parse(path).is_some_and(|name| name.network == network));
        for words in open
            .chain(closed.iter().cloned())
            .flat_map(|path| read(&path))
        {
            let gid = layout::gid_bytes([words[layout::GID], words[layout::GID + 1]]);
            if words[layout::RETIRED] == 0 && gids.contains(&gid) {
                sum.add(&words[layout::COUNTERS..HEADER_WORDS]);
            }
        }
        // A device was closed meanwhile, and may be counted twice or not at all.
        if before == sequences() {
            break;
        }
    }
    sum
}

/// Adds the counters of processes that ended without closing their devices to those of closed devices, and removes files that
/// are not needed any more.
pub(super) fn retire_dead(directory: &Path) {
    let (network, processes) = (namespace("net"), namespace("pid"));
    let ours = format!("{}{network:x}.", layout::CLOSED_PREFIX);
    for path in files(directory) {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if let Some(page) = PageName::parse(&path) {
            let content = read(&path).map(|words| process_of(&words));
            let is_old = || is_older_than(&path, DAY);
            match content {
                Ok(owner) if page.processes == processes && owner.is_alive() => {}
                Ok(_) if page.processes == processes || is_old() => _ = retire(&path),
                Err(error) if is_damaged(&error) && is_old() => _ = fs::remove_file(&path),
                _ => {}
            }
        } else if name.starts_with(layout::CLOSED_PREFIX) {
            let lifetime = if name.starts_with(&ours) {
                DAY
            } else {
                FOREIGN_LIFETIME
            };
            if is_older_than(&path, lifetime) {
                let _ = fs::remove_file(&path);
            }
        }
    }
}

fn files(directory: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries.map(|entry| entry.path())
}

fn process_of(words: &[u64]) -> Identity {
    Identity {
        pid: words[layout::PROCESS] as u32,
        start: words[layout::PROCESS_START],
    }
}

fn is_older_than(path: &Path, age: Duration) -> bool {
    let changed = fs::metadata(path).and_then(|found| found.modified());
    changed.is_ok_and(|at| SystemTime::now() > at + age)
}

fn closed_name(network: u64, gid: [u8; 16]) -> String {
    let gid = u128::from_be_bytes(gid);
    format!("{}{network:x}.{gid:032x}", layout::CLOSED_PREFIX)
}

/// Adds the counters of a page to the file of closed devices, and removes the page. A reader sees by the sequence
/// number of that file that something changes.
fn retire(path: &Path) -> io::Result<()> {
    let name = PageName::parse(path).ok_or(ErrorKind::InvalidInput)?;
    let gid = {
        let words = read(path)?;
        layout::gid_bytes([words[layout::GID], words[layout::GID + 1]])
    };
    let closed_path = path.with_file_name(closed_name(name.network, gid));
    let mut options = private_file::options();
    let options = options.read(true).write(true).create(true).truncate(false);
    let closed = options.open(&closed_path)?;
    lock(&closed)?;
    // Another process may have done it meanwhile; then the page is gone.
    let page = private_file::options().write(true).open(path)?;
    let words = read(path)?;
    let mut sum = read(&closed_path).unwrap_or_else(|_| vec![0; HEADER_WORDS]);
    let last = layout::COUNTERS + DEVICE_COUNTERS.len();
    for (sum, value) in sum.iter_mut().zip(&words).take(last).skip(layout::COUNTERS) {
        *sum = sum.wrapping_add(*value);
    }
    sum[layout::MAGIC] = layout::MAGIC_VALUE;
    for place in
        (layout::NAME..layout::NAME + layout::NAME_WORDS).chain([layout::GID, layout::GID + 1])
    {
        sum[place] = words[place];
    }
    sum[layout::SEQUENCE] |= 1;
    write_words(&closed, 0, &sum)?;
    write_words(&page, layout::RETIRED, &[1])?;
    fs::remove_file(path)?;
    write_words(
        &closed,
        layout::SEQUENCE,
        &[sum[layout::SEQUENCE].wrapping_add(1)],
    )
}

fn lock(file: &File) -> io::Result<()> {
    for _ in 0..LOCK_ATTEMPTS {
        match file.try_lock() {
            Ok(()) => return Ok(()),
            Err(TryLockError::WouldBlock) => sleep(LOCK_RETRY_INTERVAL),
            Err(TryLockError::Error(error)) => return Err(error),
        }
    }
    Err(ErrorKind::WouldBlock.into())
}

fn write_words(file: &File, first: usize, words: &[u64]) -> io::Result<()> {
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
    file_size::without_signal(|| file.write_all_at(&bytes, (first * WORD) as u64))
}

/// The words of a page, as they were at one time.
fn read(path: &Path) -> io::Result<Vec<u64>> {
    let file = private_file::options().read(true).open(path)?;
    let mut bytes = vec![0; PAGE_WORDS * WORD];
    let mut words = Vec::new();
    for _ in 0..READ_ATTEMPTS {
        let before = read_word(&file, layout::SEQUENCE)?;
        let length = file.read_at(&mut bytes, 0)?;
        let (whole, _) = bytes[..length].as_chunks::<WORD>();
        words = whole.iter().map(|word| u64::from_ne_bytes(*word)).collect();
        if before.is_multiple_of(2) && read_word(&file, layout::SEQUENCE)? == before {
            break;
        }
    }
    if words.len() < HEADER_WORDS || words[layout::MAGIC] != layout::MAGIC_VALUE {
        return Err(ErrorKind::InvalidData.into());
    }
    Ok(words)
}

/// Whether a file can't be read because it is no page.
fn is_damaged(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::InvalidData | ErrorKind::UnexpectedEof
    )
}

fn read_word(file: &File, word: usize) -> io::Result<u64> {
    let mut bytes = [0; WORD];
    file.read_exact_at(&mut bytes, (word * WORD) as u64)?;
    Ok(u64::from_ne_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use statistics::{DeviceCounter, Level, PacketPath};

    use super::*;

    const GID: [u8; 16] = *b"0123456789abcdef";

    fn scratch(name: &str) -> RuntimeDirectory {
        let name = format!("roci-statistics-{name}-{}", std::process::id());
        RuntimeDirectory::at(std::env::temp_dir().join(name)).unwrap()
    }

    fn page_of(directory: &RuntimeDirectory, name: &str, gid: [u8; 16]) -> StatisticsPage {
        let owner = PageOwner {
            name,
            gid,
            context: 4,
            lane: 2,
        };
        StatisticsPage::create_in(directory, owner).unwrap()
    }

    fn sent(packets: u64) -> DeviceCounters {
        let mut counters = DeviceCounters::default();
        counters.0[DeviceCounter::PacketsSent as usize] = packets;
        counters
    }

    fn write(page: &mut StatisticsPage, packets: u64) {
        let objects = ObjectCounts::default();
        page.write(7, &sent(packets), &objects, 0, std::iter::empty());
    }

    fn total(directory: &RuntimeDirectory) -> u64 {
        counters_in(directory, &[GID]).get(DeviceCounter::PacketsSent)
    }

    #[test]
    fn counters_of_open_and_closed_devices_are_added() {
        let directory = scratch("closed");
        let mut first = page_of(&directory, "one", GID);
        let mut second = page_of(&directory, "two", GID);
        let mut other = page_of(&directory, "other", [1; 16]);
        write(&mut first, 10);
        write(&mut second, 20);
        write(&mut other, 400);
        assert_eq!(total(&directory), 30);
        write(&mut second, 21);
        drop(second);
        assert_eq!(total(&directory), 31, "counters never decrease");
        drop(first);
        assert_eq!(total(&directory), 31);
        drop(page_of(&directory, "one", GID));
        assert_eq!(total(&directory), 31);
        drop(other);
        let left: Vec<_> = files(directory.path()).collect();
        assert_eq!(left.len(), 2, "one file for each address: {left:?}");
        fs::remove_dir_all(directory.path()).unwrap();
    }

    #[test]
    fn the_page_of_a_dead_process_counts_and_is_retired() {
        let directory = scratch("dead");
        let mut page = page_of(&directory, "one", GID);
        write(&mut page, 5);
        retire_dead(directory.path());
        assert!(page.path.exists(), "its process runs");
        page.words[layout::PROCESS_START] = page.process.start + 1;
        write(&mut page, 5);
        assert_eq!(total(&directory), 5);
        assert!(statistics_in(&directory).is_empty(), "it is not open");
        retire_dead(directory.path());
        assert!(!page.path.exists());
        assert_eq!(total(&directory), 5);
        drop(page);
        assert_eq!(total(&directory), 5, "not twice");
        fs::remove_dir_all(directory.path()).unwrap();
    }

    #[test]
    fn counters_of_closed_devices_are_removed_after_a_while() {
        let directory = scratch("old");
        drop(page_of(&directory, "one", GID));
        let here = directory.path().join(closed_name(namespace("net"), GID));
        let elsewhere = directory.path().join(closed_name(1, GID));
        fs::copy(&here, &elsewhere).unwrap();
        let age = |path: &Path, age: Duration| {
            let file = File::open(path).unwrap();
            file.set_modified(SystemTime::now() - age).unwrap();
        };
        age(&here, 2 * FOREIGN_LIFETIME);
        age(&elsewhere, 2 * FOREIGN_LIFETIME);
        retire_dead(directory.path());
        assert!(here.exists() && !elsewhere.exists());
        age(&here, 2 * DAY);
        retire_dead(directory.path());
        assert!(!here.exists());
        fs::remove_dir_all(directory.path()).unwrap();
    }

    #[test]
    fn a_reader_gets_the_records_of_queue_pairs() {
        let directory = scratch("records");
        let mut page = page_of(&directory, "one", GID);
        let record = |number| QueuePairRecord {
            number,
            kind: 2,
            state: 3,
            path: PacketPath::Sockets,
            path_mtu: 3,
            peer_number: 9,
            peer_gid: GID,
            sends: Level::default(),
            receives: Level::default(),
            window: Level::default(),
            send_completions: Level::default(),
            receive_completions: Level::default(),
            present_timeouts: 0,
            waits_for_receiver: false,
            counters: [3; _],
        };
        let objects = ObjectCounts([2, 3, -1, 4, 5]);
        page.write(1, &sent(1), &objects, 1000, (0..1000).map(record));
        let read = statistics_in(&directory);
        let [snapshot] = &read[..] else {
            panic!("{read:?}")
        };
        assert_eq!(
            (snapshot.pid(), snapshot.is_here()),
            (std::process::id(), true)
        );
        assert_eq!((&*snapshot.device(), snapshot.gid()), ("one", GID));
        assert_eq!((snapshot.context(), snapshot.lane()), (4, 2));
        let mut sum = ObjectCounts([0, 0, 7, 0, 0]);
        snapshot.add_objects(&mut sum);
        assert_eq!(sum, ObjectCounts([2, 3, 6, 4, 5]));
        assert_eq!(snapshot.queue_pair_count(), 1000);
        assert_eq!(snapshot.queue_pairs().count(), layout::MAX_RECORDS);
        assert_eq!(snapshot.queue_pairs().nth(70), Some(record(70)));
        drop(page);
        fs::remove_dir_all(directory.path()).unwrap();
    }

    #[test]
    fn a_page_that_another_process_shortens_does_not_end_this_one() {
        let directory = scratch("shortened");
        let mut page = page_of(&directory, "one", GID);
        write(&mut page, 5);
        let other = File::options().write(true).open(&page.path).unwrap();
        other.set_len(0).unwrap();
        write(&mut page, 6);
        assert!(statistics_in(&directory).is_empty());
        other.set_len((PAGE_WORDS * WORD) as u64).unwrap();
        write(&mut page, 7);
        assert_eq!(total(&directory), 7, "it is whole again");
        other.set_len(100).unwrap();
        let path = page.path.clone();
        drop(page);
        assert!(!path.exists());
        fs::remove_dir_all(directory.path()).unwrap();
    }

    #[test]
    fn a_damaged_page_is_removed_after_a_while() {
        let directory = scratch("damaged");
        let page = page_of(&directory, "one", GID);
        let file = File::options().write(true).open(&page.path).unwrap();
        file.set_len(100).unwrap();
        retire_dead(directory.path());
        assert!(page.path.exists(), "its process may be creating it");
        let age = 2 * DAY;
        file.set_modified(SystemTime::now() - age).unwrap();
        retire_dead(directory.path());
        assert!(!page.path.exists());
        fs::remove_dir_all(directory.path()).unwrap();
    }

    #[test]
    fn a_page_of_another_version_is_ignored() {
        let directory = scratch("version");
        let mut page = page_of(&directory, "one", GID);
        write(&mut page, 5);
        page.words[layout::MAGIC] = layout::MAGIC_VALUE - 1;
        write(&mut page, 5);
        assert!(statistics_in(&directory).is_empty());
        assert_eq!(total(&directory), 0);
        drop(page);
        fs::remove_dir_all(directory.path()).unwrap();
    }

    /// What a reader relies on: a number that is odd while the page is written, and even and new afterwards.
    #[test]
    fn each_write_has_the_next_even_number() {
        let directory = scratch("sequence");
        let mut page = page_of(&directory, "one", GID);
        for expected in [2, 4, 6] {
            write(&mut page, 5);
            let file = File::open(&page.path).unwrap();
            assert_eq!(read_word(&file, layout::SEQUENCE).unwrap(), expected);
        }
        // A writer that was interrupted has left an odd number.
        page.words[layout::SEQUENCE] = 7;
        write(&mut page, 5);
        assert_eq!(page.words[layout::SEQUENCE], 8);
        drop(page);
        fs::remove_dir_all(directory.path()).unwrap();
    }

    #[test]
    fn a_reader_never_sees_a_half_written_page() {
        let directory = scratch("torn");
        let page = page_of(&directory, "one", GID);
        let path = page.path.clone();
        let done = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            let (done, mut page) = (&done, page);
            scope.spawn(move || {
                for value in 1.. {
                    if done.load(Ordering::Relaxed) {
                        break;
                    }
                    let counters = DeviceCounters([value; _]);
                    page.write(
                        0,
                        &counters,
                        &ObjectCounts::default(),
                        0,
                        std::iter::empty(),
                    );
                    // A device writes every few milliseconds.
                    sleep(Duration::from_micros(1));
                }
            });
            for _ in 0..2000 {
                let words = read(&path).unwrap();
                let counters = &words[layout::COUNTERS..][..DEVICE_COUNTERS.len()];
                assert!(counters.iter().all(|it| *it == counters[0]), "{counters:?}");
            }
            done.store(true, Ordering::Relaxed);
        });
        fs::remove_dir_all(directory.path()).unwrap();
    }
}
