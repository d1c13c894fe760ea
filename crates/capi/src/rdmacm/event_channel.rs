//! Event channels.

use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use driver::Situation;
use driver::rdma_cm::EventChannel;
use net::socket::interface;

use crate::abi;
use crate::blocking::Waited;
use crate::entry::entry;
use crate::errno::Errno;
use crate::object::{Object, from_pointer};

/// An event channel.
pub(crate) type Channel = Object<abi::rdma_event_channel, Arc<ChannelState>>;

from_pointer!(abi::rdma_event_channel => Channel);

pub(crate) struct ChannelState {
    pub(crate) events: EventChannel,
    /// The fork generation in which it was created: a child gets no events of its parent.
    generation: u32,
}

entry! {
    export fn rdma_create_event_channel() -> *mut abi::rdma_event_channel {
        Ok(create()?.c())
    }

    export fn rdma_destroy_event_channel(channel: &Channel) {
        channel.destroy();
        Ok(())
    }
}

/// Creates a channel. Fails with ENODEV while there is no device.
pub(super) fn create<'a>() -> Result<&'a Channel, Errno> {
    static DEVICE_SEEN: AtomicBool = AtomicBool::new(false);
    if !DEVICE_SEEN.load(Ordering::Relaxed) {
        let devices = interface::reachable().map_err(|error| Errno::from_device_error(&error))?;
        if devices.is_empty() {
            return Err(Errno::NO_DEVICE);
        }
        DEVICE_SEEN.store(true, Ordering::Relaxed);
    }
    let events = EventChannel::new()?;
    let descriptor = events.as_fd().as_raw_fd();
    let c_part = abi::rdma_event_channel { fd: descriptor };
    let generation = net::fork::generation();
    let state = ChannelState { events, generation };
    Ok(Channel::make(c_part, Arc::new(state)))
}

impl Waited for ChannelState {
    fn describe(&self) -> Box<dyn Fn() -> Situation + Send + Sync> {
        Box::new(|| Situation::without_problem("Its channel has no event."))
    }
}

impl ChannelState {
    /// Fails in the child of a fork: the events go to the parent.
    pub(super) fn check_not_inherited(&self) -> Result<(), Errno> {
        if self.generation == net::fork::generation() {
            Ok(())
        } else {
            Err(Errno::inherited())
        }
    }
}
