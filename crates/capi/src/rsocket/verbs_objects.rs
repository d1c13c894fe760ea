//! The verbs objects of a stream.

use std::sync::Arc;

use driver::Driver;
use engine::{
    Access, Buffer, CompletionQueue, Device, Id, ProtectionDomain, QueuePairInit, QueuePairType,
    Registration, Segment,
};
use wire::Qpn;

use super::protocol::{Mapping, Target};
use super::settings::Sizes;
use crate::errno::Errno;

/// How many of our buffers the peer knows: it fills one while we read the other.
pub(super) const TARGETS: usize = 2;

/// Registered memory.
pub(super) struct Region {
    pub(super) buffer: Arc<Buffer>,
    pub(super) registration: Registration,
}

impl Region {
    pub(super) fn target(&self, offset: u32, length: u32) -> Target {
        Target {
            address: self.registration.address + u64::from(offset),
            key: self.registration.remote_key.value(),
            length,
        }
    }

    pub(super) fn segment(&self, offset: u32, length: u32) -> Segment {
        Segment {
            address: self.registration.address + u64::from(offset),
            length,
            key: self.registration.local_key,
        }
    }
}

/// The verbs objects of a connection.
pub(super) struct Resources {
    pub(super) driver: Arc<Driver>,
    pub(super) domain: Id<ProtectionDomain>,
    pub(super) completions: Id<CompletionQueue>,
    pub(super) number: Qpn,
    pub(super) send: Region,
    pub(super) receive: Region,
    pub(super) descriptions: Region,
}

impl Resources {
    pub(super) fn make(driver: &Arc<Driver>, sizes: &Sizes) -> Result<Self, Errno> {
        let described = TARGETS * Target::SIZE + usize::from(sizes.mappings) * Mapping::SIZE;
        let buffer = |length| Buffer::try_zeroed(length).ok_or(Errno::NO_MEMORY);
        let send = buffer(sizes.send_buffer as usize)?;
        let receive = buffer(sizes.receive_buffer as usize)?;
        let descriptions = buffer(described)?;
        let capacity = u32::from(sizes.send_queue) + u32::from(sizes.receive_queue);
        let (domain, completions) = driver.call_without_transmit(|device| {
            let domain = device.allocate_domain()?;
            Ok::<_, Errno>((domain, device.create_completion_queue(capacity)?))
        })?;
        let (driver, number) = driver.create_queue_pair(QueuePairInit {
            max_sends: sizes.send_queue.into(),
            max_receives: sizes.receive_queue.into(),
            max_inline: u32::from(sizes.inline).max(Mapping::SIZE as u32),
            signal_all: true,
            ..QueuePairInit::new(QueuePairType::Rc, domain, completions)
        })?;
        let written = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
        let region = |buffer: Arc<Buffer>, access| {
            let address = buffer.address();
            let register =
                |device: &mut Device| device.register(domain, Arc::clone(&buffer), address, access);
            let registration = driver.call_without_transmit(register)?;
            Ok::<_, Errno>(Region {
                buffer,
                registration,
            })
        };
        let (send, receive, descriptions) = (
            region(send, Access::LOCAL_WRITE)?,
            region(receive, written)?,
            region(descriptions, written)?,
        );
        Ok(Self {
            driver,
            domain,
            completions,
            number,
            send,
            receive,
            descriptions,
        })
    }
}
