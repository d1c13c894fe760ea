//! Event channels.

use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use net::interface;
use rocinante::rdma_cm::EventChannel;

use super::event;
use super::id::Id;
use crate::abi;
use crate::entry::{MinusOne, entry};
use crate::errno::Errno;
use crate::object::{Object, behind, from_pointer};

/// An event channel.
pub(crate) type Channel = Object<abi::rdma_event_channel, Arc<Told>>;

from_pointer!(abi::rdma_event_channel => Channel);

pub(crate) struct Told {
    pub(crate) events: EventChannel,
    /// How many forks there were when it was made: a child gets no events of its parent.
    generation: u32,
}

entry! {
    export fn rdma_create_event_channel() -> *mut abi::rdma_event_channel {
        Ok(create()?.c())
    }

    export fn rdma_destroy_event_channel(channel: &Channel) {
        channel.take_back();
        Ok(())
    }

    export fn rdma_migrate_id(id: &Id, channel: Option<&Channel>) -> MinusOne {
        migrate(id, channel)?;
        Ok(MinusOne::DONE)
    }
}

/// A channel, as long as there is a device that events could come from.
pub(super) fn create<'a>() -> Result<&'a Channel, Errno> {
    static DEVICE_SEEN: AtomicBool = AtomicBool::new(false);
    if !DEVICE_SEEN.load(Ordering::Relaxed) {
        let devices = interface::reachable().map_err(|error| Errno::unlisted(&error))?;
        if devices.is_empty() {
            return Err(Errno::NO_DEVICE);
        }
        DEVICE_SEEN.store(true, Ordering::Relaxed);
    }
    let events = EventChannel::new()?;
    let descriptor = events.as_fd().as_raw_fd();
    let front = abi::rdma_event_channel { fd: descriptor };
    let generation = net::fork::generation();
    let told = Told { events, generation };
    Ok(Channel::make(front, Arc::new(told)))
}

impl Told {
    /// Fails in the child of a fork: its events go to the parent.
    pub(super) fn check_ours(&self) -> Result<(), Errno> {
        if self.generation == net::fork::generation() {
            Ok(())
        } else {
            Err(Errno::NOT_OURS)
        }
    }
}

/// Moves an id to another channel; to one of its own, for who wants each call to wait for its event.
pub(super) fn migrate(id: &Id, channel: Option<&Channel>) -> Result<(), Errno> {
    let was_alone = id.state().sync;
    let alone = channel.is_none();
    if was_alone && alone {
        return Err(Errno::INVALID);
    }
    let channel = match channel {
        Some(channel) => channel,
        None => create()?,
    };
    id.identifier()?.migrate(&channel.events);
    let left = id.read().channel;
    if was_alone {
        event::acknowledge_kept(id);
        behind::<&Channel, _>(left)?.take_back();
    }
    id.state().sync = alone;
    id.change(|c| c.channel = channel.c());
    // Whoever still works on an event of the old channel shall not meet one of the new.
    id.told.wait();
    Ok(())
}
