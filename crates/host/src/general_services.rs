//! Queue pair 1: the general services interface (GSI), which carries management datagrams.

use std::sync::Arc;

use engine::{
    Access, Address, Attributes, Buffer, Completion, CompletionQueue, Destination, Device, Id,
    ObjectError, QueuePairInit, QueuePairType, ReceiveRequest, Registration, Segment, SendFlags,
    SendRequest, State, Status, Work,
};
use wire::{Gid, Psn, Qpn, QueueKey, grh, mad};

/// How many messages may arrive before the first one is read.
const RECEIVES: u32 = 16;

/// How many messages are posted to the engine at a time.
pub(crate) const SENDS: u32 = 64;

/// The size of a receive buffer: the GRH area and a management datagram.
const SLOT: usize = grh::LENGTH + mad::LENGTH;

/// Queue pair 1 of a device, and its receive buffers.
pub(crate) struct GeneralServices {
    completions: Id<CompletionQueue>,
    buffer: Arc<Buffer>,
    registration: Registration,
}

/// A management datagram that queue pair 1 received.
pub(crate) struct Received {
    pub(crate) addresses: cm::Addresses,
    pub(crate) datagram: Vec<u8>,
}

impl GeneralServices {
    /// Creates queue pair 1, moves it to Ready to Send and posts its receives.
    pub(crate) fn open(device: &mut Device) -> Result<Self, ObjectError> {
        let domain = device.allocate_domain()?;
        let completions = device.create_completion_queue(RECEIVES + SENDS)?;
        let buffer = Buffer::zeroed(RECEIVES as usize * SLOT);
        let registration = device
            .register(domain, Arc::clone(&buffer), 0, Access::LOCAL_WRITE)
            .map_err(|_| ObjectError::Exhausted)?;
        device.create_queue_pair(QueuePairInit {
            max_sends: SENDS,
            max_receives: RECEIVES,
            max_inline: mad::LENGTH as u32,
            ..QueuePairInit::new(QueuePairType::Management, domain, completions)
        })?;
        bring_up(device);
        let services = Self {
            completions,
            buffer,
            registration,
        };
        for slot in 0..RECEIVES {
            services.post_receive(device, slot.into());
        }
        Ok(services)
    }

    /// The next received management datagram.
    ///
    /// A receive is posted again only after it succeeded. A queue pair in the error state would
    /// flush it at once, again and again.
    pub(crate) fn receive(&self, device: &mut Device) -> Option<Received> {
        loop {
            let completion = device.poll_completion(self.completions)?;
            if !completion.work.is_receive() || completion.status != Status::Success {
                continue;
            }
            let received = self.read(&completion);
            self.post_receive(device, completion.id);
            if received.is_some() {
                return received;
            }
        }
    }

    /// Sends a message. A message that cannot be sent counts as lost: the manager retransmits it.
    pub(crate) fn send(&self, device: &mut Device, message: &cm::Transmit) {
        let source = Gid::from(message.source);
        let Some(index) = device.gids().iter().position(|gid| *gid == source) else {
            return;
        };
        let destination = Destination {
            address: Address {
                traffic_class: message.traffic_class,
                hop_limit: message.hop_limit,
                ..Address::new(Gid::from(message.destination), index as u8)
            },
            queue_pair: Qpn::GSI,
            queue_key: QueueKey::GSI,
        };
        let request = SendRequest::new(0, Work::Send)
            .inline(&*message.datagram)
            .flags(SendFlags::empty())
            .to(destination);
        let _ = device.post_send(Qpn::GSI, request);
    }

    /// Reads a received datagram. Returns `None` if its sender has no IP address.
    fn read(&self, completion: &Completion) -> Option<Received> {
        let slot = completion.id as usize * SLOT;
        let mut header = [0; grh::LENGTH];
        let length = (completion.length as usize).checked_sub(grh::LENGTH)?;
        let mut datagram = vec![0; length];
        self.buffer.read(slot, &mut header);
        self.buffer.read(slot + grh::LENGTH, &mut datagram);
        let route = grh::parse(&header)?;
        let addresses = cm::Addresses {
            source: route.source.ip()?,
            destination: route.destination.ip()?,
        };
        Some(Received {
            addresses,
            datagram,
        })
    }

    /// Posts the receive of a slot. If the queue pair rejects it, the slot stays unused.
    fn post_receive(&self, device: &mut Device, slot: u64) {
        let segment = Segment {
            address: self.registration.address + slot * SLOT as u64,
            length: SLOT as u32,
            key: self.registration.local_key,
        };
        let _ = device.post_receive(Qpn::GSI, ReceiveRequest::new(slot, [segment]));
    }
}

/// Moves queue pair 1 to Ready to Send. It needs no attributes of a peer.
fn bring_up(device: &mut Device) {
    let steps = [
        Attributes {
            state: Some(State::Initialized),
            port: Some(1),
            partition_index: Some(0),
            queue_key: Some(QueueKey::GSI),
            ..Attributes::default()
        },
        Attributes {
            state: Some(State::ReadyToReceive),
            ..Attributes::default()
        },
        Attributes {
            state: Some(State::ReadyToSend),
            send_psn: Some(Psn::new(0)),
            ..Attributes::default()
        },
    ];
    for step in steps {
        let done = device.modify(Qpn::GSI, &step);
        done.expect("each step has the attributes that it needs");
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use engine::Config;

    use super::*;

    #[test]
    #[expect(
        clippy::disallowed_methods,
        reason = "the thread lets the test end if the receive does not"
    )]
    fn receives_of_a_queue_pair_in_error_are_not_posted_again() {
        let (done, finished) = mpsc::channel();
        std::thread::spawn(move || {
            let mut device = Device::new(Config::default());
            let services = GeneralServices::open(&mut device).expect("room");
            let error = Attributes {
                state: Some(State::Error),
                ..Attributes::default()
            };
            device.modify(Qpn::GSI, &error).expect("any state may fail");
            let received = services.receive(&mut device);
            done.send(received.is_none()).expect("the test waits");
        });
        let is_over = finished.recv_timeout(Duration::from_secs(20));
        assert_eq!(
            is_over,
            Ok(true),
            "false: a message; a timeout: it goes on forever"
        );
    }
}
