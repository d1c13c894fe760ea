//! What the connection manager tells applications, and what it asks of the world.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Weak};
use std::time::Instant;

use cm::{EventKind, Failure, Instruction, Manager};
use host::Host;
use net::interface::{Interface, InterfaceId};
use wire::{Gid, PathMtu};

use super::port::Ports;
use crate::context::Open;
use crate::narrator::Setback;
use crate::rdma_cm::queue::{EventQueue, Notice};

/// The subscriber to the events of an id.
#[derive(Clone)]
pub(crate) struct Subscriber {
    pub(crate) queue: Arc<EventQueue>,
    /// What the id is called in the queue.
    pub(crate) token: u64,
    pub(crate) context: Weak<Open>,
}

/// The subscribers to connection events, and what is known about the device's addresses.
pub(super) struct Connections {
    mtu: PathMtu,
    subscribers: HashMap<cm::Id, Subscriber>,
    /// The interface of each address.
    interfaces: Vec<(IpAddr, InterfaceId)>,
    /// Connections that failed, to be explained; none if nobody asked for explanations.
    setbacks: Option<Vec<Setback>>,
}

impl Connections {
    pub(super) fn new(device: &net::interface::Device, explain: bool) -> Self {
        let entries = device.gids.iter();
        Self {
            mtu: device.active_mtu,
            subscribers: HashMap::new(),
            interfaces: entries
                .map(|entry| (entry.address, entry.interface.clone()))
                .collect(),
            setbacks: explain.then(Vec::new),
        }
    }

    pub(super) fn subscribe(&mut self, id: cm::Id, subscriber: Option<Subscriber>) {
        match subscriber {
            Some(subscriber) => self.subscribers.insert(id, subscriber),
            None => self.subscribers.remove(&id),
        };
    }

    /// Tells the manager when an address has moved to another interface, and when no interface is
    /// left.
    pub(super) fn update_interfaces(&mut self, manager: &mut Manager, present: &[Interface]) {
        for (address, interface) in &mut self.interfaces {
            let has = |it: &&Interface| it.addresses.iter().any(|known| known.ip == *address);
            let elsewhere = present
                .iter()
                .find(|it| it.index != interface.index && has(it));
            let still = present
                .iter()
                .any(|it| it.index == interface.index && has(&it));
            if let (Some(new), false) = (elsewhere, still) {
                interface.index = new.index;
                interface.name.clone_from(&new.name);
                manager.address_changed(*address);
            }
        }
        let exists = |index| present.iter().any(|it| it.index == index);
        let known = &mut self.interfaces;
        if !known.is_empty() && !known.iter().any(|(_, interface)| exists(interface.index)) {
            known.clear();
            manager.device_removed();
        }
    }

    /// Whether a connection failed and that is to be explained.
    pub(super) fn has_setbacks(&self) -> bool {
        self.setbacks.as_ref().is_some_and(|it| !it.is_empty())
    }

    pub(super) fn take_setbacks(&mut self) -> impl Iterator<Item = Setback> {
        let setbacks = self.setbacks.as_mut().map(std::mem::take);
        setbacks.unwrap_or_default().into_iter()
    }

    /// Carries out what the manager asks for, and delivers its events.
    pub(super) fn serve(&mut self, now: Instant, host: &mut Host, ports: &mut Ports) {
        while let Some(instruction) = host.poll_instruction() {
            self.perform(&instruction, host.manager(), ports);
        }
        while let Some(event) = host.poll_connection_event() {
            self.deliver(now, host.manager(), event);
        }
    }

    fn perform(&self, instruction: &Instruction, manager: &mut Manager, ports: &mut Ports) {
        match *instruction {
            Instruction::ResolveAddress { id, source, .. } => {
                // The caller has resolved the address: that is how it found this device.
                manager.address_resolved(id, Ok(source.ip()));
            }
            Instruction::ResolveRoute { id, .. } => {
                manager.route_resolved(id, Ok(cm::Route::new(self.mtu)));
            }
            Instruction::JoinMulticast { id, group, .. } => {
                let joined = ports.join(Gid::from(group));
                let result = joined.map_err(|_| Failure::Os(NO_DEVICE));
                manager.multicast_joined(id, group, result);
            }
            Instruction::LeaveMulticast { group, .. } => ports.leave(Gid::from(group)),
            // The host does this itself.
            Instruction::BreakQueuePair { .. } => {}
        }
    }

    fn deliver(&mut self, now: Instant, manager: &mut Manager, event: cm::Event) {
        self.note_setback(manager, &event);
        let listener = match event.kind {
            EventKind::ConnectRequest { listener, .. } => Some(listener),
            _ => None,
        };
        let Some(subscriber) = self.subscribers.get(&listener.unwrap_or(event.id)) else {
            return;
        };
        let mut subscriber = subscriber.clone();
        let from = subscriber.token;
        let ends = matches!(event.kind, EventKind::Disconnected { .. });
        if ends && subscriber.queue.parts_at_once() {
            // The id exists: it has just had an event.
            let _ = manager.disconnect(now, event.id);
        }
        if listener.is_some() {
            subscriber.token = crate::rdma_cm::queue::next_token();
            self.subscribers.insert(event.id, subscriber.clone());
        }
        subscriber.queue.push(Notice {
            token: subscriber.token,
            listener: listener.map(|_| from),
            id: Some(event.id),
            context: subscriber.context,
            kind: event.kind,
        });
    }

    fn note_setback(&mut self, manager: &Manager, event: &cm::Event) {
        if let Some(setbacks) = &mut self.setbacks
            && Setback::is(&event.kind)
        {
            setbacks.push(Setback {
                kind: event.kind.clone(),
                local: manager.local_address(event.id),
                peer: manager.peer_address(event.id),
            });
        }
    }
}

/// `ENODEV`: no interface of ours takes part in the group.
const NO_DEVICE: i32 = 19;
