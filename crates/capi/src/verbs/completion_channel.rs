//! Completion channels.

use std::ffi::c_int;
use std::os::fd::AsRawFd;
use std::sync::{Arc, OnceLock};

use driver::{Notifier, Situation};

use super::context::{Context, OpenDevice, is_nonblocking};
use crate::abi;
use crate::blocking::Waited;
use crate::entry::entry;
use crate::errno::Errno;
use crate::object::{Object, from_pointer};

/// A completion channel.
pub(crate) type Channel = Object<abi::ibv_comp_channel, Arc<CompletionChannel>>;

from_pointer!(abi::ibv_comp_channel => Channel);

pub(crate) struct CompletionChannel {
    open: Arc<OpenDevice>,
    /// Its notifications are addresses of completion queues.
    pub(crate) notifier: Arc<Notifier>,
    /// Whether the peer of the id that it was created for has disconnected, and the program has not taken the event.
    peer_has_left: OnceLock<Arc<dyn Fn() -> bool + Send + Sync>>,
}

entry! {
    export fn ibv_create_comp_channel(context: &Context) -> *mut abi::ibv_comp_channel {
        context.check_not_inherited()?;
        let notifier = Arc::new(Notifier::new()?);
        let c_part = abi::ibv_comp_channel {
            context: context.pointer(),
            fd: notifier.expose().as_raw_fd(),
            refcnt: 0,
        };
        let open = Arc::clone(context);
        Ok(Channel::new_pointer(c_part, Arc::new(CompletionChannel {
            open,
            notifier,
            peer_has_left: OnceLock::new(),
        })))
    }

    export fn ibv_destroy_comp_channel(channel: &Channel) -> c_int {
        if channel.read().refcnt > 0 {
            return Err(Errno::BUSY);
        }
        channel.destroy();
        Ok(0)
    }
}

impl Waited for CompletionChannel {
    fn describe(&self) -> Box<dyn Fn() -> Situation + Send + Sync> {
        const PEER_LEFT: &str = "The peer of its connection has disconnected, and the program has not taken the event. The receives are \
             flushed only after that: take RDMA_CM_EVENT_DISCONNECTED (rdma_get_cm_event) and call rdma_disconnect.";
        let describe = self.open.driver.describe_channel(&self.notifier);
        let peer_has_left = self.peer_has_left.get().cloned();
        Box::new(move || {
            let Situation { facts, problem } = describe();
            let has_left = || peer_has_left.as_ref().is_some_and(|has_left| has_left());
            let problem = problem.or_else(|| has_left().then(|| PEER_LEFT.to_owned()));
            Situation { facts, problem }
        })
    }
}

impl CompletionChannel {
    /// Tells how to find out why a wait for it may not end.
    pub(crate) fn set_peer_has_left(&self, has_left: impl Fn() -> bool + Send + Sync + 'static) {
        let _ = self.peer_has_left.set(Arc::new(has_left));
    }

    /// The address of the queue of the next notification; `None` after a while without one, so that the
    /// thread can be cancelled.
    pub(super) fn wait(&self) -> Result<Option<u64>, Errno> {
        self.open.check_not_inherited()?;
        let driver = &self.open.driver;
        let check = || is_nonblocking(self.notifier.expose().as_raw_fd());
        if let Some(queue_address) = driver.take_notification(&self.notifier) {
            driver.promise_packet_wakeups(&self.notifier, || check() == Ok(true));
            return Ok(Some(queue_address));
        }
        let nonblocking = check()?;
        // A program that gets EAGAIN after its last event handles it, so packets may wake it without a notification. One
        // that has never got it, or only before its first event, may treat it as an error after its descriptor was readable.
        if nonblocking {
            if self.notifier.was_taken() {
                driver.offer_packet_wakeups(&self.notifier);
            }
            return Err(Errno::TRY_AGAIN);
        }
        driver.withdraw_packet_wakeups(&self.notifier);
        if let Some(queue_address) = self.notifier.begin_blocking() {
            return Ok(Some(queue_address));
        }
        self.open.sleep(&self.notifier)?;
        Ok(None)
    }
}
