//! What the connection manager tells applications, and what it asks of the world.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

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
    /// Disconnections that wait until completions before them were polled, and the events behind them
    /// in the same queues, oldest first.
    held: VecDeque<Held>,
}

/// An event that is not told yet.
struct Held {
    id: cm::Id,
    /// When it is told at the latest.
    until: Instant,
    queue: Arc<EventQueue>,
    notice: Notice,
}

impl Held {
    fn tell(self) {
        self.queue.push(self.notice);
    }
}

/// How long a disconnection waits for completions that came before it to be polled. An event-driven
/// program is awake by then; one that does not poll learns of the end this much later.
const HOLD: Duration = Duration::from_millis(1);

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
            held: VecDeque::new(),
        }
    }

    pub(super) fn subscribe(&mut self, id: cm::Id, subscriber: Option<Subscriber>) {
        match subscriber {
            Some(subscriber) => {
                // An id that changes its queue takes along what is in the old one.
                self.release_of(id);
                self.subscribers.insert(id, subscriber)
            }
            None => {
                // What nobody subscribes to is told to nobody.
                self.held.retain(|held| held.id != id);
                self.subscribers.remove(&id)
            }
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

    /// When the next event that waits is told at the latest.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.held.front().map(|held| held.until)
    }

    /// Tells the events that have waited long enough. No other is due before the first.
    pub(super) fn release_due(&mut self, now: Instant) {
        if self.held.front().is_some_and(|held| held.until <= now) {
            let held = std::mem::take(&mut self.held).into_iter();
            let (due, waiting): (VecDeque<_>, VecDeque<_>) =
                held.partition(|held| held.until <= now);
            self.held = waiting;
            due.into_iter().for_each(Held::tell);
        }
    }

    /// Tells all events: the completions before them were polled.
    pub(super) fn release_all(&mut self) {
        while self.release_first() {}
    }

    /// Tells what waits of an id, and all events before it.
    fn release_of(&mut self, id: cm::Id) {
        while self.held.iter().any(|held| held.id == id) {
            self.release_first();
        }
    }

    fn release_first(&mut self) -> bool {
        self.held.pop_front().map(Held::tell).is_some()
    }

    /// Until when an event for a queue waits. The events of a queue keep their order, so that a server
    /// gets the end of a connection before the request for the next one.
    fn waits_until(&self, queue: &Arc<EventQueue>) -> Option<Instant> {
        let mut last_first = self.held.iter().rev();
        let ahead = last_first.find(|held| Arc::ptr_eq(&held.queue, queue));
        ahead.map(|held| held.until)
    }

    /// Carries out what the manager asks for, and delivers its events. A disconnection waits if it is to
    /// be `hold`: a program that sees both descriptors readable at once would take a reply before it for a
    /// lost connection.
    pub(super) fn serve(&mut self, now: Instant, host: &mut Host, ports: &mut Ports, hold: bool) {
        while let Some(instruction) = host.poll_instruction() {
            self.perform(&instruction, host.manager(), ports);
        }
        while let Some(event) = host.poll_connection_event() {
            self.deliver(now, host.manager(), event, hold);
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
            Instruction::MoveToError { .. } => {}
        }
    }

    fn deliver(&mut self, now: Instant, manager: &mut Manager, event: cm::Event, hold: bool) {
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
        let notice = Notice {
            token: subscriber.token,
            listener: listener.map(|_| from),
            id: Some(event.id),
            context: subscriber.context,
            kind: event.kind,
        };
        let ahead = self.waits_until(&subscriber.queue);
        if let Some(until) = ahead.or((hold && ends).then(|| now + HOLD)) {
            self.held.push_back(Held {
                id: event.id,
                until,
                queue: subscriber.queue,
                notice,
            });
        } else {
            subscriber.queue.push(notice);
        }
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

#[cfg(test)]
mod tests {
    use wire::cm::PortSpace;

    use super::*;
    use crate::clock::now;
    use crate::driver::Bell;

    fn connections() -> Connections {
        Connections {
            mtu: PathMtu::Mtu4096,
            subscribers: HashMap::new(),
            interfaces: Vec::new(),
            setbacks: None,
            held: VecDeque::new(),
        }
    }

    /// An id with its event queue, and the manager that knows it.
    fn subscribed(connections: &mut Connections) -> (Manager, cm::Id, Arc<EventQueue>) {
        let mut manager = Manager::new(cm::Config::new(1, [1; 32]));
        let (id, queue) = another(connections, &mut manager);
        (manager, id, queue)
    }

    fn another(connections: &mut Connections, manager: &mut Manager) -> (cm::Id, Arc<EventQueue>) {
        let kind = cm::QueuePairType::of(PortSpace::Tcp);
        let id = manager.create(PortSpace::Tcp, kind).expect("room");
        let queue = Arc::new(EventQueue::new(Bell::without_descriptor(), false));
        let subscriber = Subscriber {
            queue: Arc::clone(&queue),
            token: 7,
            context: Weak::new(),
        };
        connections.subscribe(id, Some(subscriber));
        (id, queue)
    }

    fn disconnected(id: cm::Id) -> cm::Event {
        let kind = EventKind::Disconnected { timed_out: false };
        cm::Event { id, kind }
    }

    #[test]
    fn a_disconnection_waits_for_a_poll_or_its_time() {
        let mut connections = connections();
        let (mut manager, id, queue) = subscribed(&mut connections);
        let start = now();
        connections.deliver(start, &mut manager, disconnected(id), true);
        connections.release_due(start);
        assert!(queue.pop().is_none());
        assert_eq!(connections.next_deadline(), Some(start + HOLD));
        connections.release_due(start + HOLD);
        assert!(queue.pop().is_some());

        connections.deliver(start, &mut manager, disconnected(id), true);
        connections.release_all();
        assert!(queue.pop().is_some());
        assert_eq!(connections.next_deadline(), None);

        connections.deliver(start, &mut manager, disconnected(id), false);
        assert!(
            queue.pop().is_some(),
            "nothing before it waits to be polled"
        );
    }

    #[test]
    fn events_of_a_queue_keep_their_order() {
        let mut connections = connections();
        let (mut manager, first, queue) = subscribed(&mut connections);
        let (second, _) = another(&mut connections, &mut manager);
        let subscriber = connections.subscribers[&first].clone();
        connections.subscribe(second, Some(subscriber));
        let (other, empty) = another(&mut connections, &mut manager);
        let start = now();
        let passed = |id| cm::Event {
            id,
            kind: EventKind::TimewaitExit,
        };
        connections.deliver(start, &mut manager, disconnected(first), true);
        connections.deliver(start, &mut manager, passed(second), false);
        connections.deliver(start, &mut manager, passed(first), false);
        assert!(queue.pop().is_none(), "nothing overtakes the disconnection");
        connections.deliver(start, &mut manager, passed(other), false);
        assert!(empty.pop().is_some(), "another queue does not wait");
        connections.release_due(start + HOLD);
        let ids: Vec<_> = std::iter::from_fn(|| queue.pop())
            .map(|it| it.id.expect("an event of an id"))
            .collect();
        assert_eq!(ids, [first, second, first]);
    }

    #[test]
    fn an_id_that_changes_its_queue_takes_a_waiting_disconnection_along() {
        let mut connections = connections();
        let (mut manager, id, old) = subscribed(&mut connections);
        connections.deliver(now(), &mut manager, disconnected(id), true);
        let subscriber = Subscriber {
            queue: Arc::new(EventQueue::new(Bell::without_descriptor(), false)),
            token: 7,
            context: Weak::new(),
        };
        connections.subscribe(id, Some(subscriber));
        assert_eq!(old.take_of(7).len(), 1);
    }

    #[test]
    fn an_id_without_subscriber_has_no_event_left() {
        let mut connections = connections();
        let (mut manager, id, queue) = subscribed(&mut connections);
        connections.deliver(now(), &mut manager, disconnected(id), true);
        connections.subscribe(id, None);
        connections.release_all();
        assert!(queue.pop().is_none());
    }
}
