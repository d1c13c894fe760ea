//! Every order in which a writer and a reader use a ring.
//!
//! Loom can't see memory that the kernel maps, so the ring is in memory of a model here. Both sides run the code of `ring`
//! itself. Who wins when one side closes the ring while the other opens it is not checked here: loom does not exclude that a store comes between
//! the two halves of an exchange.

#![expect(unsafe_code, reason = "loom gives access by raw pointers")]

use std::fs::File;
use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicU8;

use loom::cell::UnsafeCell;
use loom::sync::atomic::AtomicBool;
use loom::thread;

use super::{AtomicU64, CAPACITY, DATA_OFFSET, LINE, Ordering, Reader, Writer};

/// The number of lines behind the control words.
const LINES: usize = (CAPACITY / LINE) as usize;

/// Where the control words of a ring are.
const CONTROL: [usize; 4] = [super::TAIL, super::HEAD, super::ASLEEP, super::STATE];

/// The memory of a ring: words that are atomics of loom, and bytes of which loom reports an access while another thread
/// changes them.
#[derive(Debug, Clone)]
pub(super) struct SharedMemory(Arc<Contents>);

#[derive(Debug)]
struct Contents {
    control: [AtomicU64; CONTROL.len()],
    lengths: [AtomicU64; LINES],
    bytes: [UnsafeCell<[u8; LINE as usize]>; LINES],
    /// The same lines, for messages that are built and read in place.
    in_place: [[AtomicU8; LINE as usize]; LINES],
}

// SAFETY: loom checks that threads do not access the bytes at the same time; that is what these checks are about.
unsafe impl Sync for Contents {}

impl SharedMemory {
    fn new() -> Self {
        let word = |_| AtomicU64::new(0);
        Self(Arc::new(Contents {
            control: CONTROL.map(word),
            lengths: [0; LINES].map(word),
            bytes: [0; LINES].map(|_| UnsafeCell::new([0; LINE as usize])),
            in_place: [0; LINES].map(|_| [0; LINE as usize].map(AtomicU8::new)),
        }))
    }

    pub(super) fn create(_length: usize) -> io::Result<(Self, File)> {
        Err(io::ErrorKind::Unsupported.into())
    }

    pub(super) fn open(_file: &File, _length: usize) -> io::Result<Self> {
        Err(io::ErrorKind::Unsupported.into())
    }

    pub(super) fn word(&self, offset: usize) -> &AtomicU64 {
        match CONTROL.iter().position(|at| *at == offset) {
            Some(index) => &self.0.control[index],
            None => &self.0.lengths[line_of(offset).0],
        }
    }

    pub(super) fn read(&self, offset: usize, into: &mut [u8]) {
        let (line, start) = line_of(offset);
        let end = start + into.len();
        // SAFETY: loom ends the check if another thread changes the bytes.
        self.0.bytes[line].with(|bytes| into.copy_from_slice(unsafe { &(&*bytes)[start..end] }));
    }

    /// The bytes themselves are none of loom's, so taking them counts as changing the line.
    pub(super) fn bytes(&self, offset: usize, length: usize) -> &[AtomicU8] {
        let (line, start) = line_of(offset);
        self.0.bytes[line].with_mut(|_| ());
        &self.0.in_place[line][start..start + length]
    }

    pub(super) fn write(&self, offset: usize, from: &[u8]) {
        let (line, start) = line_of(offset);
        let end = start + from.len();
        // SAFETY: loom ends the check if another thread has access to the bytes.
        self.0.bytes[line]
            .with_mut(|bytes| unsafe { (&mut *bytes)[start..end].copy_from_slice(from) });
    }
}

/// The line of an offset, and the place in it. The messages of these checks are shorter than a line.
fn line_of(offset: usize) -> (usize, usize) {
    let at = offset - DATA_OFFSET;
    (at / LINE as usize, at % LINE as usize)
}

fn pair() -> (Writer, Reader) {
    let memory = SharedMemory::new();
    (Writer::over(memory.clone(), None), Reader::over(memory))
}

fn read(reader: &mut Reader) -> Option<u8> {
    let mut message = [0; 2];
    let length = reader.read(&mut message).expect("a valid ring")?;
    assert_eq!((length, message[0]), (2, message[1]), "a complete message");
    Some(message[0])
}

/// More messages than there are lines: the writer reuses those that are read.
#[test]
fn messages_arrive_complete_and_in_order_and_none_is_overwritten() {
    loom::model(|| {
        let (mut writer, mut reader) = pair();
        for number in [1, 2] {
            assert!(writer.write(&[number], &[number]), "there is room");
        }
        let writing = thread::spawn(move || {
            let last = (3..=5)
                .take_while(|number| writer.write(&[*number], &[*number]))
                .last();
            (writer, last.unwrap_or(2))
        });
        let mut seen: Vec<u8> = (0..3).filter_map(|_| read(&mut reader)).collect();
        let (_writer, last) = writing.join().expect("no panic");
        seen.extend(std::iter::from_fn(|| read(&mut reader)));
        assert_eq!(seen, (1..=last).collect::<Vec<_>>());
    });
}

fn write_in_place(writer: &mut Writer, number: u8) -> bool {
    let Some(room) = writer.reserve(0, 2) else {
        return false;
    };
    let fill = |byte: &AtomicU8| byte.store(number, Ordering::Relaxed);
    room.iter().for_each(fill);
    writer.commit(&[], 2);
    true
}

fn read_in_place(reader: &mut Reader) -> Option<u8> {
    let mut found = None;
    let take = |message: &[AtomicU8]| {
        let bytes: Vec<u8> = message
            .iter()
            .map(|it| it.load(Ordering::Relaxed))
            .collect();
        assert_eq!((bytes.len(), bytes[0]), (2, bytes[1]), "a complete message");
        found = Some(bytes[0]);
    };
    reader.read_in_place(2, take).expect("a valid ring");
    found
}

#[test]
fn messages_in_place_arrive_complete_and_in_order_and_none_is_overwritten() {
    loom::model(|| {
        let (mut writer, mut reader) = pair();
        for number in [1, 2] {
            assert!(write_in_place(&mut writer, number), "there is room");
        }
        let writing = thread::spawn(move || {
            let last = (3..=5)
                .take_while(|number| write_in_place(&mut writer, *number))
                .last();
            (writer, last.unwrap_or(2))
        });
        let mut seen: Vec<u8> = (0..3).filter_map(|_| read_in_place(&mut reader)).collect();
        let (_writer, last) = writing.join().expect("no panic");
        seen.extend(std::iter::from_fn(|| read_in_place(&mut reader)));
        assert_eq!(seen, (1..=last).collect::<Vec<_>>());
    });
}

/// A reader sleeps if it finds nothing when it prepares. It may check once more before.
#[test]
fn a_message_is_seen_before_the_sleep_or_wakes_the_reader() {
    for checks_again in [false, true] {
        loom::model(move || {
            let (mut writer, mut reader) = pair();
            let woken = Arc::new(AtomicBool::new(false));
            let wake = Arc::clone(&woken);
            let writing = thread::spawn(move || {
                assert!(writer.write(&[1], &[1]), "there is room");
                if writer.reader_sleeps() {
                    wake.store(true, Ordering::Relaxed);
                }
                writer
            });
            let sleeps = !reader.prepare_sleep() && (!checks_again || reader.may_sleep());
            let _writer = writing.join().expect("no panic");
            if sleeps {
                assert!(woken.load(Ordering::Relaxed), "it sleeps forever");
                assert!(reader.was_woken() && !reader.was_woken());
            }
            assert_eq!(read(&mut reader), Some(1));
        });
    }
}

/// The reader counts the wake-ups that the writer sends, because each leaves a message in its mailbox.
#[test]
fn a_reader_that_stays_awake_knows_whether_it_was_woken() {
    loom::model(|| {
        let (mut writer, mut reader) = pair();
        reader.prepare_sleep();
        let writing = thread::spawn(move || {
            assert!(writer.write(&[1], &[1]), "there is room");
            let wakes = writer.reader_sleeps();
            (writer, wakes)
        });
        reader.stay_awake();
        let (_writer, wakes) = writing.join().expect("no panic");
        assert_eq!(reader.was_woken(), wakes);
        assert_eq!(read(&mut reader), Some(1));
    });
}

/// A wake-up is a system call.
#[test]
fn a_sleep_is_ended_by_one_wake_up() {
    loom::model(|| {
        let (mut writer, mut reader) = pair();
        let writing = thread::spawn(move || {
            let woken = [1, 2].map(|number| {
                assert!(writer.write(&[number], &[number]), "there is room");
                writer.reader_sleeps()
            });
            (writer, woken)
        });
        reader.prepare_sleep();
        let (_writer, woken) = writing.join().expect("no panic");
        assert!(woken != [true, true]);
    });
}
