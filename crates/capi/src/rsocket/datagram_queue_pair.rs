//! The queue pair of a datagram socket at one address.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;

use driver::Driver;
use driver::rdma_cm::{CmId, EventChannel, PortSpace};
use driver::{Notifier, PolledQueue};
use engine::{
    Access, Buffer, CompletionQueue, Destination, Id, Notify, PostError, ProtectionDomain,
    QueuePairInit, QueuePairType, ReceiveRequest, Registration, Segment, SendRequest, Status, Work,
};
use wire::{Gid, Qpn, grh};

use super::datagram_header::MAX_MESSAGE;
use crate::errno::Errno;

/// How many receives and sends may be outstanding.
const RECEIVES: u32 = 256;
const SENDS: u32 = 256;

/// A receive buffer holds the network header and the message.
const SLOT_SIZE: usize = grh::LENGTH + MAX_MESSAGE;

pub(super) struct DatagramQueuePair {
    driver: Arc<Driver>,
    /// Keeps the device open at this address.
    _cm_id: CmId,
    notifier: Arc<Notifier>,
    domain: Id<ProtectionDomain>,
    completions: PolledQueue,
    number: Qpn,
    buffer: Arc<Buffer>,
    registration: Registration,
}

impl DatagramQueuePair {
    pub(super) fn make(address: IpAddr) -> Result<Self, Errno> {
        let channel = EventChannel::new()?;
        let cm_id = channel.create_id(PortSpace::Udp);
        cm_id.bind(SocketAddr::new(address, 0))?;
        let driver = cm_id.driver().ok_or(Errno::NO_DEVICE)?;
        let notifier = Arc::new(Notifier::new()?);
        let buffer = Buffer::try_zeroed(RECEIVES as usize * SLOT_SIZE).ok_or(Errno::NO_MEMORY)?;
        let made = make(&driver, &buffer)?;
        let (driver, domain, completions, number, registration) = made;
        driver.set_notifier(completions, &notifier, 0);
        let steps = [
            cm_id.init_attributes()?,
            cm_id.receive_attributes()?,
            cm_id.send_attributes()?,
        ];
        let queue_pair = Self {
            completions: driver.polled_queue(completions).ok_or(Errno::INVALID)?,
            driver,
            _cm_id: cm_id,
            notifier,
            domain,
            number,
            buffer,
            registration,
        };
        for step in steps {
            queue_pair
                .driver
                .call(|device| device.modify(number, &step))?;
        }
        for slot in 0..RECEIVES {
            queue_pair.post_receive(slot.into())?;
        }
        Ok(queue_pair)
    }

    pub(super) fn number(&self) -> Qpn {
        self.number
    }

    pub(super) fn descriptor(&self) -> RawFd {
        self.notifier.expose().as_raw_fd()
    }

    /// The GID index of an address of ours.
    pub(super) fn address_index(&self, address: IpAddr) -> Option<u8> {
        let gid = Gid::from(address);
        let index = self.driver.gids().iter().position(|it| *it == gid)?;
        u8::try_from(index).ok()
    }

    /// Sends a message. If the queue is full, the message is dropped.
    pub(super) fn send(&self, message: &[u8], to: Destination) -> Result<(), Errno> {
        let request = SendRequest::new(SENT, Work::Send).inline(message).to(to);
        let number = self.number;
        let driver = &self.driver;
        match driver.post(|device| device.post_send(number, request)) {
            Err(PostError::QueueFull) => Ok(()),
            posted => Ok(posted?),
        }
    }

    /// Passes each received message to `take`.
    pub(super) fn receive(&self, mut take: impl FnMut(&[u8])) {
        while self.notifier.take().is_some() {}
        let mut done = Vec::new();
        let driver = &self.driver;
        driver.poll_many(&self.completions, usize::MAX, |it| {
            done.push((it.id, it.status, it.length));
        });
        for (id, status, length) in done {
            if id == SENT {
                continue;
            }
            let length = (length as usize)
                .saturating_sub(grh::LENGTH)
                .min(MAX_MESSAGE);
            if status == Status::Success {
                let mut message = vec![0; length];
                self.buffer
                    .read(id as usize * SLOT_SIZE + grh::LENGTH, &mut message);
                take(&message);
            }
            let _ = self.post_receive(id);
        }
    }

    pub(super) fn arm(&self) {
        let queue = self.completions.id();
        self.driver
            .call_without_transmit(|device| device.arm(queue, Notify::Any));
    }

    fn post_receive(&self, slot: u64) -> Result<(), Errno> {
        let segment = Segment {
            address: self.registration.address + slot * SLOT_SIZE as u64,
            length: SLOT_SIZE as u32,
            key: self.registration.local_key,
        };
        let request = ReceiveRequest::new(slot, [segment]);
        let number = self.number;
        Ok(self
            .driver
            .call_without_transmit(|device| device.post_receive(number, request))?)
    }
}

/// The work request id of every send; that of a receive is its slot.
const SENT: u64 = u64::MAX;

type Made = (
    Arc<Driver>,
    Id<ProtectionDomain>,
    Id<CompletionQueue>,
    Qpn,
    Registration,
);

fn make(driver: &Arc<Driver>, buffer: &Arc<Buffer>) -> Result<Made, Errno> {
    let (domain, completions) = driver.call_without_transmit(|device| {
        let domain = device.allocate_domain()?;
        Ok::<_, Errno>((domain, device.create_completion_queue(RECEIVES + SENDS)?))
    })?;
    let (driver, number) = driver.create_queue_pair(QueuePairInit {
        max_sends: SENDS,
        max_receives: RECEIVES,
        max_inline: MAX_MESSAGE as u32,
        signal_all: true,
        ..QueuePairInit::new(QueuePairType::Ud, domain, completions)
    })?;
    let address = buffer.address();
    let registered = driver.call_without_transmit(|device| {
        device.register(domain, Arc::clone(buffer), address, Access::LOCAL_WRITE)
    })?;
    Ok((driver, domain, completions, number, registered))
}

impl Drop for DatagramQueuePair {
    fn drop(&mut self) {
        let driver = &self.driver;
        driver.remove_notifier(self.completions.id());
        // In the child of a fork these calls fail: the objects belong to the parent.
        driver.call_without_transmit(|device| {
            let _ = device.destroy_queue_pair(self.number);
            let _ = device.deregister(self.registration.local_key);
            let _ = device.destroy_completion_queue(self.completions.id());
            let _ = device.free_domain(self.domain);
        });
    }
}
