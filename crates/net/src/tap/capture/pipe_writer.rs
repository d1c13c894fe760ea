//! Writes a capture to a pipe. Its reader may be slow or stopped, and a device must not wait for it: a thread writes, and what
//! does not fit into its queue is not captured.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Write};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::Builder;

use crate::signal::unblock_faults;
use crate::sys::signal::{Mask, restore};
use crate::thread_sanitizer::Unobserved;
use crate::times::GIVE_UP_AFTER;

/// How many bytes wait for the reader at most. Captures of a few thousand large messages fit into it.
const MAX_QUEUE: usize = 16 << 20;

/// The queue of a pipe. Dropping it ends the thread when everything is written.
pub(super) struct PipeWriter(Arc<Shared>);

#[derive(Default)]
struct Shared {
    queue: Mutex<Queue>,
    changed: Condvar,
}

#[derive(Default)]
struct Queue {
    parts: VecDeque<Vec<u8>>,
    /// How many bytes are not written yet, also those that the thread is writing.
    length: usize,
    error: Option<io::Error>,
    ended: bool,
}

impl PipeWriter {
    /// Starts the thread.
    pub(super) fn start(file: File) -> io::Result<Self> {
        let shared = Arc::<Shared>::default();
        let theirs = Arc::clone(&shared);
        Builder::new()
            .name("roci-capture".to_owned())
            .spawn(move || {
                let _unobserved = Unobserved::begin();
                theirs.write_to(file);
            })?;
        Ok(Self(shared))
    }

    /// Adds whole blocks. Returns whether there was room for them. Fails once, when the reader has gone.
    pub(super) fn push(&self, blocks: &[u8]) -> io::Result<bool> {
        let mut queue = self.0.lock();
        if let Some(error) = queue.error.take() {
            return Err(error);
        }
        if queue.ended || blocks.len() > MAX_QUEUE - queue.length {
            return Ok(false);
        }
        if !blocks.is_empty() {
            queue.length += blocks.len();
            queue.parts.push_back(blocks.to_vec());
            self.0.changed.notify_all();
        }
        Ok(true)
    }

    /// Waits until everything is written, as long as the reader reads.
    pub(super) fn drain(&self) {
        let mut queue = self.0.lock();
        while queue.length > 0 && !queue.ended {
            let before = queue.length;
            // The reader may read nothing.
            let waited = self.0.changed.wait_timeout(queue, GIVE_UP_AFTER);
            let (next, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
            queue = next;
            if timeout.timed_out() && queue.length == before {
                break;
            }
        }
    }
}

impl Drop for PipeWriter {
    fn drop(&mut self) {
        self.0.lock().ended = true;
        self.0.changed.notify_all();
    }
}

impl Shared {
    /// Every part is whole between two calls, even if a thread panicked in between.
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the thread does. The signals of the program are not for it, and that of a pipe without a reader would end the
    /// program.
    fn write_to(&self, mut file: File) {
        restore(Mask::ALL);
        unblock_faults();
        loop {
            let mut queue = self.lock();
            while queue.parts.is_empty() && !queue.ended {
                let waited = self.changed.wait(queue);
                queue = waited.unwrap_or_else(PoisonError::into_inner);
            }
            let Some(part) = queue.parts.pop_front() else {
                return;
            };
            drop(queue);
            // Small steps: the end of a capture sees whether the reader reads.
            for step in part.chunks(libc::PIPE_BUF) {
                let written = file.write_all(step);
                let mut queue = self.lock();
                queue.length -= step.len();
                if let Err(error) = written {
                    queue.error = Some(error);
                    queue.ended = true;
                }
                self.changed.notify_all();
                if queue.error.is_some() {
                    return;
                }
            }
        }
    }
}
