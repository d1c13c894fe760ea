//! The device without handles.
//!
//! The C libraries keep their objects by number and in the application's memory, so they call the
//! engine directly, under the driver's lock. If an object of a handle of this crate is destroyed here,
//! the handle panics when it is used; nothing here is unsound.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Instant;

use engine::{AsyncEvent, Completion, CompletionQueue, Device, Id, Notify};
use net::socket::SocketError;
use wire::{Gid, Qpn};

use crate::context::Context;
pub use crate::diagnostics::Misuse;
use crate::diagnostics::Problem;
pub use crate::driver::Notifier;
use crate::driver::{Awaited, Driver};

/// An open device, object by object.
pub struct Raw<'c>(&'c Driver);

impl fmt::Debug for Raw<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Raw")
    }
}

/// Whether this process has ever opened a device.
#[must_use]
pub fn was_opened() -> bool {
    Context::was_opened()
}

impl Context {
    /// The device without handles.
    #[must_use]
    pub fn raw(&self) -> Raw<'_> {
        Raw(self.driver())
    }

    /// The device's description at the time it was opened.
    #[must_use]
    pub fn description(&self) -> &net::interface::Device {
        self.device()
    }
}

impl crate::CompletionQueue {
    /// The queue in the engine.
    #[must_use]
    pub fn engine_id(&self) -> Id<CompletionQueue> {
        self.id()
    }
}

impl Raw<'_> {
    /// Calls the engine and transmits the resulting packets on this thread.
    pub fn call<R>(&self, work: impl FnOnce(&mut Device) -> R) -> R {
        self.0.call(work)
    }

    /// Calls the engine to modify or destroy a queue pair. Deferred acknowledgements are sent first.
    pub fn change<R>(&self, work: impl FnOnce(&mut Device) -> R) -> R {
        self.0.change(work)
    }

    /// Calls the engine with an operation that has nothing to send, such as posting a receive.
    pub fn call_without_transmit<R>(&self, work: impl FnOnce(&mut Device) -> R) -> R {
        self.0.call_without_transmit(work)
    }

    /// Runs `work` while the device does not access memory.
    pub fn exclusively<R>(&self, work: impl FnOnce() -> R) -> R {
        self.0.exclusively(work)
    }

    /// Requests one notification for the next completion.
    pub fn arm(&self, queue: Id<CompletionQueue>, notify: Notify) {
        self.0.arm(queue, notify);
    }

    /// Passes at most `limit` completions to `take` and returns how many. If there is none, receives
    /// packets first.
    pub fn poll(
        &self,
        queue: Id<CompletionQueue>,
        limit: usize,
        take: impl FnMut(Completion),
    ) -> usize {
        self.0.poll_many(queue, limit, take)
    }

    /// Sets the notifier and the token for notifications of a completion queue.
    pub fn set_notifier(&self, queue: Id<CompletionQueue>, notifier: &Arc<Notifier>, token: u64) {
        self.0.set_notifier(queue, notifier, token);
    }

    /// Removes the notifier of a completion queue.
    pub fn remove_notifier(&self, queue: Id<CompletionQueue>) {
        self.0.remove_notifier(queue);
    }

    /// The oldest notification of a channel. If packets wake its program, receives packets first.
    #[must_use]
    pub fn take_notification(&self, notifier: &Arc<Notifier>) -> Option<u64> {
        self.0.take_notification(notifier)
    }

    /// Sets whether the program accepts a readable descriptor without a notification. If so, packets wake it
    /// directly.
    pub fn set_packet_wakeups(&self, notifier: &Arc<Notifier>, accepted: bool) {
        if accepted {
            self.0.offer_packet_wakeups(notifier);
        } else {
            self.0.withdraw_packet_wakeups(notifier);
        }
    }

    /// Reports that the program has taken a notification. If its channel is non-blocking, packets wake it
    /// directly from now on. A readable descriptor still means a notification, perhaps an extra one.
    pub fn promise_packet_wakeups(
        &self,
        notifier: &Arc<Notifier>,
        is_nonblocking: impl Fn() -> bool,
    ) {
        self.0.promise_packet_wakeups(notifier, is_nonblocking);
    }

    /// Sleeps until there is a notification, the deadline passes or a signal arrives, and serves the device
    /// meanwhile. Returns whether a signal arrived. Wake-ups may be spurious: the caller checks again. Fails
    /// if the program has closed the device's descriptors.
    pub fn sleep(&self, notifier: &Notifier, until: Option<Instant>) -> io::Result<bool> {
        self.0.try_sleep(&Awaited::Notification(notifier), until)
    }

    /// The notifier for asynchronous events. [`poll_event`](Self::poll_event) takes the notification.
    #[must_use]
    pub fn event_notifier(&self) -> Option<Arc<Notifier>> {
        self.0.event_notifier()
    }

    /// The next asynchronous event, if one happened.
    #[must_use]
    pub fn poll_event(&self) -> Option<AsyncEvent> {
        self.0.poll_event()
    }

    /// Removes the asynchronous events of a destroyed object.
    pub fn forget_events(&self, gone: impl Fn(&AsyncEvent) -> bool) {
        self.0.forget_events(gone);
    }

    /// Joins a multicast group, for one more queue pair.
    pub fn join(&self, group: Gid) -> Result<(), SocketError> {
        self.0.join(group)
    }

    /// Leaves a multicast group, for one queue pair.
    pub fn leave(&self, group: Gid) {
        self.0.leave(group);
    }

    /// Reports why a call fails, if explanations are enabled.
    pub fn explain(&self, queue_pair: Option<Qpn>, misuse: Misuse) {
        self.0.report(Problem::Misuse(queue_pair, misuse));
    }

    /// Whether this is the copy in a forked child. The device stays with the parent.
    #[must_use]
    pub fn is_inherited(&self) -> bool {
        self.0.is_inherited()
    }
}
