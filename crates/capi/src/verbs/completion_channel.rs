//! Completion channels.

use std::ffi::{c_int, c_void};
use std::os::fd::AsRawFd;
use std::sync::Arc;

use rocinante::raw::Notifier;

use super::completion_queue::Cq;
use super::context::{Context, OpenDevice, is_nonblocking};
use crate::abi;
use crate::entry::{MinusOne, Output, entry};
use crate::errno::Errno;
use crate::object::{Object, from_pointer, object_at};

/// A completion channel.
pub(crate) type Channel = Object<abi::ibv_comp_channel, Arc<CompletionChannel>>;

from_pointer!(abi::ibv_comp_channel => Channel);

pub(crate) struct CompletionChannel {
    open: Arc<OpenDevice>,
    /// Its notifications are addresses of completion queues.
    pub(crate) notifier: Arc<Notifier>,
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
        Ok(Channel::new_pointer(c_part, Arc::new(CompletionChannel { open, notifier })))
    }

    export fn ibv_destroy_comp_channel(channel: &Channel) -> c_int {
        if channel.read().refcnt > 0 {
            return Err(Errno::BUSY);
        }
        channel.destroy();
        Ok(0)
    }

    wait fn ibv_get_cq_event(
        channel: &Channel,
        queue: Output<*mut abi::ibv_cq>,
        queue_context: Output<*mut c_void>,
    ) -> MinusOne {
        let (mut queue, mut queue_context) = (queue, queue_context);
        let Some(queue_address) = channel.wait()? else {
            return Ok(None);
        };
        let pointer = std::ptr::with_exposed_provenance_mut::<abi::ibv_cq>(queue_address as usize);
        let found: &Cq = object_at(pointer)?;
        found.unacknowledged.add();
        queue.put(pointer);
        queue_context.put(found.read().cq_context);
        Ok(Some(MinusOne::DONE))
    }

    export fn ibv_ack_cq_events(queue: &Cq, count: u32) {
        queue.change(|c| c.comp_events_completed = c.comp_events_completed.wrapping_add(count));
        queue.unacknowledged.acknowledge(u64::from(count));
        Ok(())
    }
}

impl CompletionChannel {
    /// The address of the queue of the next notification; `None` after a while without one, so that the
    /// thread can be cancelled.
    fn wait(&self) -> Result<Option<u64>, Errno> {
        self.open.check_not_inherited()?;
        let raw = self.open.raw();
        let check = || is_nonblocking(self.notifier.expose().as_raw_fd());
        if let Some(queue_address) = raw.take_notification(&self.notifier) {
            raw.promise_packet_wakeups(&self.notifier, || check() == Ok(true));
            return Ok(Some(queue_address));
        }
        let nonblocking = check()?;
        // A program that gets EAGAIN handles it, so packets may wake it without a notification. One that has
        // never got EAGAIN may treat it as an error after its descriptor was readable.
        raw.set_packet_wakeups(&self.notifier, nonblocking);
        if nonblocking {
            return Err(Errno::TRY_AGAIN);
        }
        self.open.sleep(&self.notifier)?;
        Ok(None)
    }
}
