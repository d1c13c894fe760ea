//! Completion channels: a descriptor that tells which queues have something.

use std::ffi::{c_int, c_void};
use std::os::fd::AsRawFd;
use std::sync::Arc;

use rocinante::raw::Bell;

use super::completion::Cq;
use super::context::{Context, Open, is_nonblocking};
use crate::abi;
use crate::entry::{MinusOne, Place, entry};
use crate::errno::Errno;
use crate::object::{Object, behind, from_pointer};

/// A completion channel.
pub(crate) type Channel = Object<abi::ibv_comp_channel, Arc<Ringing>>;

from_pointer!(abi::ibv_comp_channel => Channel);

pub(crate) struct Ringing {
    open: Arc<Open>,
    /// Rings for the address of a queue.
    pub(crate) bell: Arc<Bell>,
}

entry! {
    export fn ibv_create_comp_channel(context: &Context) -> *mut abi::ibv_comp_channel {
        context.check_ours()?;
        let bell = Arc::new(Bell::new()?);
        let front = abi::ibv_comp_channel {
            context: context.pointer(),
            fd: bell.expose().as_raw_fd(),
            refcnt: 0,
        };
        let open = Arc::clone(context);
        Ok(Channel::give(front, Arc::new(Ringing { open, bell })))
    }

    export fn ibv_destroy_comp_channel(channel: &Channel) -> c_int {
        if channel.read().refcnt > 0 {
            return Err(Errno::BUSY);
        }
        channel.take_back();
        Ok(0)
    }

    wait fn ibv_get_cq_event(
        channel: &Channel,
        queue: Place<*mut abi::ibv_cq>,
        queue_context: Place<*mut c_void>,
    ) -> MinusOne {
        let (mut queue, mut queue_context) = (queue, queue_context);
        let Some(rang) = channel.wait()? else {
            return Ok(None);
        };
        let pointer = std::ptr::with_exposed_provenance_mut::<abi::ibv_cq>(rang as usize);
        let found: &Cq = behind(pointer)?;
        found.told.add();
        queue.put(pointer);
        queue_context.put(found.read().cq_context);
        Ok(Some(MinusOne::DONE))
    }

    export fn ibv_ack_cq_events(queue: &Cq, count: u32) {
        queue.change(|c| c.comp_events_completed = c.comp_events_completed.wrapping_add(count));
        queue.told.acknowledge(u64::from(count));
        Ok(())
    }
}

impl Ringing {
    /// The queue that rang first; nothing if none did for a while.
    fn wait(&self) -> Result<Option<u64>, Errno> {
        self.open.check_ours()?;
        let raw = self.open.raw();
        let check = || is_nonblocking(self.bell.expose().as_raw_fd());
        if let Some(rang) = raw.take_notification(&self.bell) {
            raw.promise_packet_wakeups(&self.bell, || check() == Ok(true));
            return Ok(Some(rang));
        }
        let nonblocking = check()?;
        // A program that is told to try again has seen that it may be, and packets may wake it for
        // nothing. One that has never been told may take it for an error after its descriptor was readable.
        raw.set_packet_wakeups(&self.bell, nonblocking);
        if nonblocking {
            return Err(Errno::TRY_AGAIN);
        }
        self.open.sleep(&self.bell)?;
        Ok(None)
    }
}
