//! `rdma_migrate_id`.

use super::event;
use super::event_channel::{self, Channel};
use super::id::Id;
use crate::entry::{MinusOne, entry};
use crate::errno::Errno;
use crate::object::object_at;
use crate::verbs::event_target::EventKind;

entry! {
    export fn rdma_migrate_id(id: &Id, channel: Option<&Channel>) -> MinusOne {
        migrate(id, channel)?;
        Ok(MinusOne::DONE)
    }
}

/// Moves an id to another channel. Without one, it gets its own channel, and each call waits for its event.
pub(super) fn migrate(id: &Id, channel: Option<&Channel>) -> Result<(), Errno> {
    let had_own_channel = id.state().sync;
    let own_channel = channel.is_none();
    if had_own_channel && own_channel {
        return Err(Errno::INVALID);
    }
    let channel = match channel {
        Some(channel) => channel,
        None => event_channel::create()?,
    };
    id.cm_id()?.migrate(&channel.events);
    let left = id.read().channel;
    if had_own_channel {
        event::acknowledge_last(id);
        object_at::<&Channel, _>(left)?.destroy();
    }
    id.state().sync = own_channel;
    id.change(|c| c.channel = channel.c());
    // A thread that still handles an event of the old channel must not run at the same time as one with an
    // event of the new.
    id.unacknowledged
        .wait("rdma_migrate_id", EventKind::Connection);
    Ok(())
}
