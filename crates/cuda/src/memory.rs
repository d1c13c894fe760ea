//! Registered memory of a GPU.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use engine::{AcceleratorMemory, InMessage};

use crate::channel::Channel;

/// Memory of a GPU.
pub struct Memory {
    start: u64,
    channel: Arc<Channel>,
    /// Whether a copy into it has failed. Then it fails until it is registered anew: whose bytes are missing is not known.
    failed: Arc<AtomicBool>,
}

/// Held while a word is changed. An accelerator has no compare-and-swap for its host, so words are atomic among changes by this
/// process only.
static WORDS: Mutex<()> = Mutex::new(());

impl Memory {
    pub(crate) fn new(start: u64, channel: Arc<Channel>) -> Self {
        Self {
            start,
            channel,
            failed: Arc::default(),
        }
    }

    fn has_succeeded(&self, copied: bool) -> bool {
        !self.failed.load(Ordering::Relaxed) && copied
    }
}

// SAFETY: `Channel::load` initialises the whole range or reports a failure. Its functions access nothing else than the range of the
// caller and pinned memory of its own.
unsafe impl AcceleratorMemory for Memory {
    fn address(&self) -> u64 {
        self.start
    }

    unsafe fn load(&self, to: *mut u8, offset: u64, length: usize, place: InMessage) -> bool {
        // SAFETY: the caller's promise.
        unsafe { self.channel.load(to, self.start + offset, length, place) }.is_ok()
    }

    unsafe fn store(&self, offset: u64, from: *const u8, length: usize, place: InMessage) -> bool {
        let is_last = place.following == 0;
        // SAFETY: the caller's promise.
        let stored = unsafe {
            self.channel
                .store(self.start + offset, from, length, is_last, &self.failed)
        };
        self.has_succeeded(stored.is_ok())
    }

    fn update_word(&self, offset: u64, change: &dyn Fn(u64) -> u64) -> Option<u64> {
        let _words = WORDS.lock().unwrap_or_else(PoisonError::into_inner);
        let mut bytes = [0; size_of::<u64>()];
        // SAFETY: the bytes are a variable of this function.
        let loaded =
            unsafe { self.load(bytes.as_mut_ptr(), offset, bytes.len(), InMessage::WHOLE) };
        if !loaded {
            return None;
        }
        let previous = u64::from_ne_bytes(bytes);
        let changed = change(previous);
        if changed == previous {
            return Some(previous);
        }
        let bytes = changed.to_ne_bytes();
        // SAFETY: as above.
        let stored = unsafe { self.store(offset, bytes.as_ptr(), bytes.len(), InMessage::WHOLE) };
        stored.then_some(previous)
    }

    fn settle(&self) {
        self.channel.settle();
    }
}
