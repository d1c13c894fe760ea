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
