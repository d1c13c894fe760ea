//! Completion channels: the events of several completion queues.

use std::ffi::c_int;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::time::Instant;

use abi::{ibv_comp_channel, ibv_cq};
use engine::SystemRefusal;

use super::context::Context;
use super::descriptor::{set_nonblocking, wait_readable};
use super::error::last_error;

/// A channel that never blocks in the library.
#[derive(Debug)]
pub struct CompletionChannel {
    pub(super) raw: NonNull<ibv_comp_channel>,
    context: Arc<Context>,
}

// SAFETY: the functions of libibverbs may be called from any thread, also at the same time.
unsafe impl Send for CompletionChannel {}

// SAFETY: as for `Send`.
unsafe impl Sync for CompletionChannel {}

impl CompletionChannel {
    /// Creates a channel.
    pub fn create(context: &Arc<Context>) -> Result<Arc<Self>, SystemRefusal> {
        // SAFETY: the context is open.
        let raw = unsafe { (context.functions.ibv_create_comp_channel)(context.raw.as_ptr()) };
        let channel = Self {
            raw: NonNull::new(raw).ok_or_else(|| last_error("ibv_create_comp_channel"))?,
            context: Arc::clone(context),
        };
        // Of two threads that see an event, one takes it, and the other must not block.
        set_nonblocking(channel.descriptor())?;
        Ok(Arc::new(channel))
    }

    /// Takes the oldest event, if there is one. Returns the token of its queue.
    pub fn take(&self) -> Result<Option<u64>, SystemRefusal> {
        let (mut queue, mut token) = (ptr::null_mut::<ibv_cq>(), ptr::null_mut());
        let functions = self.context.functions;
        // SAFETY: the channel exists and does not block, and the function writes two pointers.
        let taken = unsafe {
            (functions.ibv_get_cq_event)(self.raw.as_ptr(), &raw mut queue, &raw mut token)
        };
        if taken != 0 {
            return match io::Error::last_os_error().kind() {
                io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => Ok(None),
                _ => Err(last_error("ibv_get_cq_event")),
            };
        }
        // SAFETY: a queue is not destroyed before its events are acknowledged, and this one is acknowledged once.
        unsafe { (functions.ibv_ack_cq_events)(queue, 1) };
        Ok(Some(token.addr() as u64))
    }

    /// Waits until there is an event, at most until the deadline. It may return early.
    pub fn sleep(&self, deadline: Option<Instant>) {
        let left = deadline.map(|at| at.saturating_duration_since(Instant::now()));
        wait_readable(self.descriptor(), left);
    }

    fn descriptor(&self) -> c_int {
        // SAFETY: the channel exists, and its descriptor does not change.
        unsafe { (*self.raw.as_ptr()).fd }
    }
}

impl AsFd for CompletionChannel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the descriptor is open as long as the channel exists.
        unsafe { BorrowedFd::borrow_raw(self.descriptor()) }
    }
}

impl Drop for CompletionChannel {
    fn drop(&mut self) {
        // SAFETY: no queue uses it any more, because each has an `Arc` of it.
        unsafe { (self.context.functions.ibv_destroy_comp_channel)(self.raw.as_ptr()) };
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::c_void;
    use std::sync::atomic::{AtomicU32, Ordering};

    use abi::ibv_context;

    use super::super::library::Functions;
    use super::*;

    /// How many events are there, and how many were acknowledged.
    static WAITING: AtomicU32 = AtomicU32::new(0);
    static ACKNOWLEDGED: AtomicU32 = AtomicU32::new(0);

    unsafe extern "C" fn get_event(
        _: *mut ibv_comp_channel,
        queue: *mut *mut ibv_cq,
        token: *mut *mut c_void,
    ) -> c_int {
        let order = Ordering::Relaxed;
        let taken = WAITING.fetch_update(order, order, |waiting| waiting.checked_sub(1));
        if taken.is_err() {
            // SAFETY: takes nothing.
            let number = unsafe { libc::__errno_location() };
            // SAFETY: it is the address of a variable of this thread.
            unsafe { *number = libc::EAGAIN };
            return -1;
        }
        // SAFETY: the caller has room for it.
        unsafe { *queue = NonNull::dangling().as_ptr() };
        // SAFETY: as before.
        unsafe { *token = ptr::without_provenance_mut(7) };
        0
    }

    unsafe extern "C" fn acknowledge(_: *mut ibv_cq, count: u32) {
        ACKNOWLEDGED.fetch_add(count, Ordering::Relaxed);
    }

    unsafe extern "C" fn destroy(_: *mut ibv_comp_channel) -> c_int {
        0
    }

    unsafe extern "C" fn close(_: *mut ibv_context) -> c_int {
        0
    }

    /// A queue is destroyed when all of its events are acknowledged: then no thread may handle one any more.
    #[test]
    fn an_event_that_is_taken_is_acknowledged_once_and_no_other_is() {
        let context = Context::of(Functions {
            ibv_get_cq_event: get_event,
            ibv_ack_cq_events: acknowledge,
            ibv_destroy_comp_channel: destroy,
            ibv_close_device: close,
            ..Functions::MISSING
        });
        let channel = CompletionChannel {
            raw: NonNull::dangling(),
            context,
        };
        assert_eq!(channel.take(), Ok(None));
        WAITING.store(2, Ordering::Relaxed);
        for acknowledged in 1..=2 {
            assert_eq!(channel.take(), Ok(Some(7)));
            assert_eq!(ACKNOWLEDGED.load(Ordering::Relaxed), acknowledged);
        }
        assert_eq!(channel.take(), Ok(None));
        assert_eq!(ACKNOWLEDGED.load(Ordering::Relaxed), 2);
    }
}
