//! The device without handles: for who brings his own.
//!
//! The C libraries keep their objects by number and in the application's memory, so they talk to the
//! engine directly, behind the driver's lock. Whoever ends an object here that one of this crate's
//! handles stands for makes that handle panic; nothing here is unsound.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Instant;

use engine::{AsyncEvent, Completion, CompletionQueue, Device, Id, Notify};
use net::socket::SocketError;
use wire::{Gid, Qpn};

use crate::context::Context;
pub use crate::driver::Bell;
use crate::driver::{Awaited, Driver};
pub use crate::narrator::Misuse;
use crate::narrator::News;

/// An open device, object by object.
pub struct Raw<'c>(&'c Driver);

impl fmt::Debug for Raw<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Raw")
    }
}

/// Whether this process has opened a device, whether or not it is open still.
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

    /// The device as it was when it was opened.
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
    /// Does something to the engine and sends what comes of it, on this thread.
    pub fn call<R>(&self, work: impl FnOnce(&mut Device) -> R) -> R {
        self.0.call(work)
    }

    /// Does something to a queue pair that may be its end; first sends what it owes its peer.
    pub fn change<R>(&self, work: impl FnOnce(&mut Device) -> R) -> R {
        self.0.change(work)
    }

    /// Does something to the engine that gives it nothing to send, such as posting a receive.
    pub fn tell<R>(&self, work: impl FnOnce(&mut Device) -> R) -> R {
        self.0.tell(work)
    }

    /// Keeps the device from touching memory meanwhile.
    pub fn exclusively<R>(&self, work: impl FnOnce() -> R) -> R {
        self.0.exclusively(work)
    }

    /// Asks for one notification when the next completion comes.
    pub fn arm(&self, queue: Id<CompletionQueue>, notify: Notify) {
        self.0.arm(queue, notify);
    }

    /// Hands out the completions that are there now, at most `limit`; how many. When there is none,
    /// first looks at what has arrived.
    pub fn poll(
        &self,
        queue: Id<CompletionQueue>,
        limit: usize,
        take: impl FnMut(Completion),
    ) -> usize {
        self.0.poll_many(queue, limit, take)
    }

    /// Which bell rings, and for whom, when a completion queue that was armed gets its completion.
    pub fn ring_for(&self, queue: Id<CompletionQueue>, bell: &Arc<Bell>, whom: u64) {
        self.0.ring_for(queue, bell, whom);
    }

    /// Ends that.
    pub fn forget_bell(&self, queue: Id<CompletionQueue>) {
        self.0.forget_bell(queue);
    }

    /// The oldest notification of a channel. If packets wake its program, first looks at what has arrived.
    #[must_use]
    pub fn take_notification(&self, bell: &Arc<Bell>) -> Option<u64> {
        self.0.take_notification(bell)
    }

    /// The program takes it (or not) that the descriptor of a channel is readable without a notification.
    /// If so, packets wake it directly.
    pub fn set_packet_wakeups(&self, bell: &Arc<Bell>, taken: bool) {
        if taken {
            self.0.offer_packet_wakeups(bell);
        } else {
            self.0.withdraw_packet_wakeups(bell);
        }
    }

    /// The program has taken a notification. If its channel is non-blocking, packets wake it directly from now
    /// on; a readable descriptor still means a notification, be it an extra one.
    pub fn promise_packet_wakeups(&self, bell: &Arc<Bell>, is_nonblocking: impl Fn() -> bool) {
        self.0.promise_packet_wakeups(bell, is_nonblocking);
    }

    /// Sleeps until the bell rings or the time has come, and serves the device meanwhile. A signal
    /// ends it, too; whether one did. It may end for nothing: the caller looks again. An error if the
    /// program has closed descriptors of the device.
    pub fn sleep(&self, bell: &Bell, until: Option<Instant>) -> io::Result<bool> {
        self.0.try_sleep(&Awaited::Notification(bell), until)
    }

    /// The bell that rings for asynchronous events; `answer` is done by taking one.
    #[must_use]
    pub fn event_bell(&self) -> Option<Arc<Bell>> {
        self.0.event_bell()
    }

    /// The next asynchronous event, if one happened.
    #[must_use]
    pub fn poll_event(&self) -> Option<AsyncEvent> {
        self.0.poll_event()
    }

    /// Takes back the asynchronous events of an object that is gone.
    pub fn forget_events(&self, gone: impl Fn(&AsyncEvent) -> bool) {
        self.0.forget_events(gone);
    }

    /// Receives what is sent to a group, for one more queue pair.
    pub fn join(&self, group: Gid) -> Result<(), SocketError> {
        self.0.join(group)
    }

    /// Ends that, for one queue pair.
    pub fn leave(&self, group: Gid) {
        self.0.leave(group);
    }

    /// Explains to the user why a call is refused, if he wants to know.
    pub fn explain(&self, queue_pair: Option<Qpn>, misuse: Misuse) {
        self.0.remark(News::Misuse(queue_pair, misuse));
    }

    /// Whether a fork made this copy: the device stays with the parent.
    #[must_use]
    pub fn is_inherited(&self) -> bool {
        self.0.is_inherited()
    }
}
