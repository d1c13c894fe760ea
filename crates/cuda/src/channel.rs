//! Copies between this process and the memory of one GPU.
//!
//! A channel is a stream and pinned memory. Bytes that are stored are gathered in pinned memory as long as they continue each
//! other, and go over in large copies while more are gathered; the last bytes of a message wait until all are there. Bytes that
//! follow in a message are read ahead.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use engine::InMessage;

use crate::Error;
use crate::copy::copy;
use crate::driver::{Context, Driver, Entered, Stream};

/// How many bytes are stored before the stream is waited for.
const STORED: usize = 4 << 20;

/// How many bytes go over in one copy while more of the message comes. A copy of this size takes 20 µs, of which 7 are the same for
/// any size.
const LARGE: usize = 512 << 10;

/// How many bytes are read at once: few enough that they are in the processor's cache when they are sent.
const READ: usize = 256 << 10;

/// Messages that are read at the same time, each with its own bytes ahead.
const READERS: usize = 8;

/// A context of our own on a GPU, with a stream and pinned memory. They stay for the life of the process: to free pinned memory waits
/// for all kernels of the program.
pub(crate) struct Channel {
    driver: &'static Driver,
    ordinal: u64,
    context: Context,
    stream: Stream,
    pinned: Mutex<Pinned>,
}

/// Pinned memory, and what is in it.
struct Pinned {
    /// [`STORED`] bytes, and [`READ`] bytes for each of the [`READERS`].
    start: NonNull<u8>,
    /// How many of the bytes for stores are in use until the stream is synchronised.
    used: usize,
    /// The last of them, which are not on their way yet.
    run: Option<Run>,
    ahead: [Ahead; READERS],
    /// Which of them is replaced next.
    next: usize,
}

// SAFETY: the pinned memory belongs to it alone and is never freed.
unsafe impl Send for Pinned {}

/// Stored bytes that continue each other.
struct Run {
    /// Where they go.
    to: u64,
    /// Where they are in pinned memory.
    from: usize,
    length: usize,
    /// Set if the copy fails.
    failed: Arc<AtomicBool>,
}

/// Bytes that were read ahead.
#[derive(Clone, Copy)]
struct Ahead {
    /// Where they come from.
    address: u64,
    /// Where they are in pinned memory.
    at: usize,
    length: usize,
}

impl Channel {
    /// The channel of a GPU.
    pub(crate) fn of(driver: &'static Driver, ordinal: u64) -> Result<Arc<Self>, Error> {
        static CHANNELS: Mutex<Vec<Arc<Channel>>> = Mutex::new(Vec::new());
        let mut channels = CHANNELS.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = channels.iter().find(|it| it.ordinal == ordinal) {
            return Ok(Arc::clone(known));
        }
        let channel = Arc::new(Self::new(driver, ordinal)?);
        channels.push(Arc::clone(&channel));
        Ok(channel)
    }

    fn new(driver: &'static Driver, ordinal: u64) -> Result<Self, Error> {
        let context = driver.create_context(ordinal)?;
        let entered = driver.enter(context)?;
        let stream = entered.create_stream()?;
        let start = entered.allocate_pinned(STORED + READ * READERS)?;
        drop(entered);
        Ok(Self {
            driver,
            ordinal,
            context,
            stream,
            pinned: Mutex::new(Pinned::new(start)),
        })
    }

    fn lock(&self) -> MutexGuard<'_, Pinned> {
        self.pinned.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Copies memory of the GPU out.
    ///
    /// # Safety
    /// `to` must be valid for writes of `length` bytes, which another process may access at the same time.
    pub(crate) unsafe fn load(
        &self,
        to: *mut u8,
        address: u64,
        length: usize,
        place: InMessage,
    ) -> Result<(), Error> {
        let mut pinned = self.lock();
        if place.starts {
            pinned.forget_ahead(address, (length as u64).saturating_add(place.following));
        } else if let Some(at) = pinned.take_ahead(address, length) {
            // SAFETY: `length` bytes at `at` were read, and the caller promises room for them.
            unsafe { pinned.copy_out(to, at, length) };
            return Ok(());
        }
        let entered = self.driver.enter(self.context)?;
        let mut done = 0;
        while done < length {
            let rest = length - done;
            let wanted = usize::try_from(place.following).unwrap_or(READ);
            let count = rest.saturating_add(wanted).min(READ);
            let slot = pinned.next_reader();
            let at = pinned.room_of(slot);
            let address = address + done as u64;
            self.submit(&mut pinned, &entered);
            // SAFETY: the room of a reader has `READ` bytes, and nobody accesses it before the call returns.
            unsafe { self.read(&entered, pinned.at(at), address, count) }?;
            pinned.used = 0;
            let taken = rest.min(count);
            // SAFETY: as above; the caller promises room for all bytes.
            unsafe { pinned.copy_out(to.wrapping_add(done), at, taken) };
            pinned.ahead[slot] = Ahead {
                address: address + taken as u64,
                at: at + taken,
                length: count - taken,
            };
            done += taken;
        }
        Ok(())
    }

    /// Reads memory of the GPU into pinned memory, after everything that was stored before.
    ///
    /// # Safety
    /// `count` bytes at `to` must be pinned memory that nobody else accesses.
    unsafe fn read(
        &self,
        entered: &Entered<'_>,
        to: *mut u8,
        address: u64,
        count: usize,
    ) -> Result<(), Error> {
        // SAFETY: the caller's promise; the stream is synchronised before this returns.
        let begun = unsafe { entered.copy_to_host(to, address, count, &self.stream) };
        entered.synchronize(&self.stream)?;
        begun
    }

    /// Copies bytes to memory of the GPU. They are there when this returns for the last bytes of a message; an error before
    /// that may set `failed`.
    ///
    /// # Safety
    /// `from` must be valid for reads of `length` bytes, which another process may change at the same time.
    pub(crate) unsafe fn store(
        &self,
        address: u64,
        from: *const u8,
        length: usize,
        is_last: bool,
        failed: &Arc<AtomicBool>,
    ) -> Result<(), Error> {
        let mut pinned = self.lock();
        let mut done = 0;
        while done < length {
            if pinned.used == STORED {
                self.finish(&mut pinned)?;
            }
            let count = (length - done).min(STORED - pinned.used);
            if !pinned.continues(address + done as u64, failed) {
                let entered = pinned
                    .run
                    .is_some()
                    .then(|| self.driver.enter(self.context));
                if let Some(entered) = entered {
                    self.submit(&mut pinned, &entered?);
                }
                pinned.begin(address + done as u64, failed);
            }
            // SAFETY: the caller's promise; `count` bytes of pinned memory are not in use.
            unsafe { pinned.append(from.wrapping_add(done), count) };
            done += count;
        }
        if is_last {
            return self.finish(&mut pinned);
        }
        if pinned.run.as_ref().is_some_and(|run| run.length >= LARGE) {
            let entered = self.driver.enter(self.context)?;
            self.submit(&mut pinned, &entered);
        }
        Ok(())
    }

    /// Waits until all bytes that were stored are there.
    pub(crate) fn settle(&self) {
        let mut pinned = self.lock();
        if pinned.used > 0 {
            // Nobody is left to hear of an error: the memory is being deregistered.
            let _ = self.finish(&mut pinned);
        }
    }

    /// Begins the copy of the bytes that are not on their way.
    fn submit(&self, pinned: &mut Pinned, entered: &Entered<'_>) {
        let Some(run) = pinned.run.take() else { return };
        let from = pinned.at(run.from);
        // SAFETY: the bytes are pinned, and `used` keeps them until the stream is synchronised.
        let begun = unsafe { entered.copy_to_device(run.to, from, run.length, &self.stream) };
        if begun.is_err() {
            run.failed.store(true, Ordering::Relaxed);
        }
    }

    /// Waits until all bytes that were stored are there, and takes their room back.
    fn finish(&self, pinned: &mut Pinned) -> Result<(), Error> {
        let entered = self.driver.enter(self.context)?;
        self.submit(pinned, &entered);
        let done = entered.synchronize(&self.stream);
        pinned.used = 0;
        done
    }
}

impl Pinned {
    fn new(start: NonNull<u8>) -> Self {
        let nothing = Ahead {
            address: 0,
            at: 0,
            length: 0,
        };
        Self {
            start,
            used: 0,
            run: None,
            ahead: [nothing; READERS],
            next: 0,
        }
    }

    fn at(&self, offset: usize) -> *mut u8 {
        // Wrapping arithmetic: computing an address is always sound.
        self.start.as_ptr().wrapping_add(offset)
    }

    /// Takes bytes that were read ahead, and returns where they are.
    fn take_ahead(&mut self, address: u64, length: usize) -> Option<usize> {
        let mut ahead = self.ahead.iter_mut();
        let found = ahead.find(|it| it.address == address && it.length >= length && length > 0)?;
        let at = found.at;
        found.address += length as u64;
        found.at += length;
        found.length -= length;
        Some(at)
    }

    /// Forgets what an earlier message read ahead of a range.
    fn forget_ahead(&mut self, address: u64, length: u64) {
        let end = address.saturating_add(length);
        for ahead in &mut self.ahead {
            if ahead.address < end && ahead.address + ahead.length as u64 > address {
                ahead.length = 0;
            }
        }
    }

    /// The reader whose bytes are replaced.
    fn next_reader(&mut self) -> usize {
        let slot = self.next;
        self.next = (slot + 1) % READERS;
        slot
    }

    fn room_of(&self, slot: usize) -> usize {
        STORED + slot * READ
    }

    /// Whether bytes for an address continue those that are not on their way.
    fn continues(&self, address: u64, failed: &Arc<AtomicBool>) -> bool {
        self.run.as_ref().is_some_and(|run| {
            run.to + run.length as u64 == address && Arc::ptr_eq(&run.failed, failed)
        })
    }

    fn begin(&mut self, to: u64, failed: &Arc<AtomicBool>) {
        self.run = Some(Run {
            to,
            from: self.used,
            length: 0,
            failed: Arc::clone(failed),
        });
    }

    /// Appends bytes to those that are not on their way.
    ///
    /// # Safety
    /// `from` must be valid for reads of `count` bytes, and so many bytes for stores must not be in use.
    unsafe fn append(&mut self, from: *const u8, count: usize) {
        let to = self.at(self.used);
        // SAFETY: the caller's promise. Pinned memory is not the caller's, so they do not overlap.
        unsafe { copy(to, from, count) };
        self.used += count;
        if let Some(run) = &mut self.run {
            run.length += count;
        }
    }

    /// Copies pinned memory out.
    ///
    /// # Safety
    /// `count` bytes at `at` must be initialised, and `to` must be valid for writes of as many.
    unsafe fn copy_out(&self, to: *mut u8, at: usize, count: usize) {
        // SAFETY: the caller's promise.
        unsafe { copy(to, self.at(at), count) };
    }
}
