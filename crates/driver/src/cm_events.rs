//! Delivers the connection manager's events and executes its instructions.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::sync::{Arc, Weak};
use std::time::Instant;

use cm::{EventKind, Failure, Instruction, Manager};
use host::Host;
use net::socket::interface::{Interface, InterfaceId};
use wire::{Gid, PathMtu, Qpn};

use crate::Driver;
use crate::clock;
use crate::diagnostics::{ConnectionFailure, Problem};
use crate::fabric::Port;
use crate::narrow_path::NarrowPath;
use crate::neighbours::Neighbours;
use crate::rdma_cm::event_queue::{EventQueue, QueuedEvent};
use crate::times::LONG;

/// The subscriber to the events of an id.
#[derive(Clone)]
pub(crate) struct Subscriber {
    pub(crate) queue: Arc<EventQueue>,
    /// The id's token in the queue.
    pub(crate) token: u64,
    pub(crate) driver: Weak<Driver>,
}

/// The subscribers to connection events, and the device's addresses.
pub(crate) struct CmEvents {
    mtu: PathMtu,
    subscribers: HashMap<cm::Id, Subscriber>,
    /// The interface of each address.
    interfaces: Vec<(IpAddr, InterfaceId)>,
    /// What is to be explained; `None` if explanations are disabled.
    problems: Option<Vec<Problem>>,
    /// Disconnections that wait until completions before them were polled, and the events behind them
    /// in the same queues, oldest first.
    held: VecDeque<Held>,
    neighbours: Neighbours,
    /// Connections whose disconnection was delivered. Their queue pairs are next moved to the error state.
    ended: Vec<cm::Id>,
}

/// An event that is not delivered yet.
struct Held {
    id: cm::Id,
    /// When it is delivered at the latest.
    until: Instant,
    queue: Arc<EventQueue>,
    event: QueuedEvent,
}

impl CmEvents {
    pub(crate) fn new(device: &net::socket::interface::Device, explain: bool) -> Self {
        let entries = device.gids.iter();
        Self {
            mtu: device.active_mtu,
            subscribers: HashMap::new(),
            interfaces: entries
                .map(|entry| (entry.address, entry.interface.clone()))
                .collect(),
            problems: explain.then(Vec::new),
            held: VecDeque::new(),
            neighbours: Neighbours::default(),
            ended: Vec::new(),
        }
    }

    pub(crate) fn subscribe(&mut self, id: cm::Id, subscriber: Option<Subscriber>) {
        let Some(subscriber) = subscriber else {
            // Without a subscriber its events are dropped.
            self.held.retain(|held| held.id != id);
            self.subscribers.remove(&id);
            return;
        };
        self.release_of(id);
        let (queue, token) = (Arc::clone(&subscriber.queue), subscriber.token);
        let left = self.subscribers.insert(id, subscriber);
        // An id that changes its queue takes its events along, before there are new ones.
        if let Some(left) = left.filter(|left| !Arc::ptr_eq(&left.queue, &queue)) {
            let events = left.queue.take_of(token);
            events.into_iter().for_each(|event| queue.push(event));
        }
    }

    /// Whether packets can pass through one of the device's interfaces.
    pub(crate) fn is_active(&self, present: &[Interface]) -> bool {
        let is_active = |index| (present.iter()).any(|it| it.index == index && it.up && it.carrier);
        (self.interfaces.iter()).any(|(_, interface)| is_active(interface.index))
    }

    /// Reports to the manager that an address has moved to another interface, or that no interface is left.
    pub(crate) fn update_interfaces(&mut self, manager: &mut Manager, present: &[Interface]) {
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

    /// Whether there is something to explain.
    pub(crate) fn has_problems(&self) -> bool {
        self.problems.as_ref().is_some_and(|it| !it.is_empty())
    }

    pub(crate) fn take_problems(&mut self) -> Vec<Problem> {
        let problems = self.problems.as_mut().map(std::mem::take);
        problems.unwrap_or_default()
    }

    #[cfg(test)]
    pub(crate) fn neighbours(&mut self) -> &mut Neighbours {
        &mut self.neighbours
    }

    /// Ends address resolutions that have waited for a neighbour.
    pub(crate) fn check_neighbours(&mut self, now: Instant, manager: &mut Manager) {
        self.neighbours.check(now, manager);
    }

    /// When to do that.
    pub(crate) fn neighbours_deadline(&self) -> Option<Instant> {
        self.neighbours.deadline()
    }

    /// When the next held event is delivered at the latest.
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        self.held.front().map(|held| held.until)
    }

    /// Delivers the held events that are due. No other is due before the first.
    pub(crate) fn release_due(&mut self, now: Instant) {
        if self.held.front().is_some_and(|held| held.until <= now) {
            let held = std::mem::take(&mut self.held).into_iter();
            let (due, waiting): (VecDeque<_>, VecDeque<_>) =
                held.partition(|held| held.until <= now);
            self.held = waiting;
            due.into_iter().for_each(|held| self.push(held));
        }
    }

    /// Delivers all held events, because the completions before them were polled.
    pub(crate) fn release_all(&mut self) {
        while self.release_first() {}
    }

    /// Delivers the held events of an id, and all events before them.
    fn release_of(&mut self, id: cm::Id) {
        while self.held.iter().any(|held| held.id == id) {
            self.release_first();
        }
    }

    fn release_first(&mut self) -> bool {
        let first = self.held.pop_front();
        first.map(|held| self.push(held)).is_some()
    }

    /// Hands an event to its program.
    fn push(&mut self, held: Held) {
        let ends = matches!(held.event.kind, EventKind::Disconnected { .. });
        if ends && held.queue.disconnects_at_once() {
            self.ended.push(held.id);
        }
        held.queue.push(held.event);
    }

    /// Whether [`serve`](Self::serve) has connections to disconnect.
    pub(crate) fn has_ended(&self) -> bool {
        !self.ended.is_empty()
    }

    /// Answers the disconnections of peers and moves the queue pairs to the error state. The program already has the event:
    /// if a request is flushed, the program can find out why.
    fn disconnect_ended(&mut self, now: Instant, manager: &mut Manager) {
        for id in self.ended.drain(..) {
            // The program may have destroyed the id.
            let _ = manager.disconnect(now, id);
        }
    }

    /// Until when an event for a queue waits. The events of a queue keep their order, so that a server
    /// gets the end of a connection before the request for the next one.
    fn waits_until(&self, queue: &Arc<EventQueue>) -> Option<Instant> {
        let mut last_first = self.held.iter().rev();
        let ahead = last_first.find(|held| Arc::ptr_eq(&held.queue, queue));
        ahead.map(|held| held.until)
    }

    /// Executes the manager's instructions and delivers its events. With `hold`, a disconnection waits:
    /// a program that sees both descriptors readable at once could handle the disconnection before the
    /// completions, and lose the last reply.
    ///
    /// Returns the queue pairs of ended connections that this device does not have: another lane may have them.
    pub(crate) fn serve(
        &mut self,
        now: Instant,
        host: &mut Host,
        sockets: &mut Port,
        hold: bool,
    ) -> Vec<Qpn> {
        let mut elsewhere = Vec::new();
        self.disconnect_ended(now, host.manager());
        while let Some(instruction) = host.poll_instruction() {
            match instruction {
                Instruction::MoveToError { qpn, .. } => elsewhere.push(qpn),
                _ => self.perform(now, &instruction, host.manager(), sockets),
            }
        }
        while let Some(event) = host.poll_connection_event() {
            host.device_mut().note_connection_event();
            // This thread may have waited for a processor since the step began. An event that is held is held from now on.
            let now = if hold { clock::now().max(now) } else { now };
            self.deliver(now, host.manager(), event, hold);
        }
        while let Some(limit) = host.manager().poll_mtu_limit() {
            if let Some(problems) = &mut self.problems {
                problems.push(Problem::SmallerMtu(limit));
            }
        }
        elsewhere
    }

    fn perform(
        &mut self,
        now: Instant,
        instruction: &Instruction,
        manager: &mut Manager,
        sockets: &mut Port,
    ) {
        match *instruction {
            // The caller knows the local address: that is how it found this device.
            Instruction::ResolveAddress { id, source, .. } if !sockets.is_real() => {
                manager.address_resolved(id, Ok(source.ip()));
            }
            Instruction::ResolveAddress {
                id,
                source,
                destination,
            } => {
                let path = (source.ip(), destination);
                self.neighbours.resolve(now, manager, id, path);
            }
            Instruction::ResolveRoute {
                id,
                source,
                destination,
            } => {
                let is_real = sockets.is_real();
                let narrow = is_real.then(|| NarrowPath::find(source, destination, self.mtu));
                let narrow = narrow.flatten();
                let mtu = narrow.map_or(self.mtu, |path| path.mtu);
                if let Some(problems) = &mut self.problems {
                    problems.extend(narrow.map(Problem::NarrowPath));
                }
                manager.route_resolved(id, Ok(cm::ResolvedRoute::new(mtu)));
            }
            Instruction::JoinMulticast { id, group, .. } => {
                let joined = sockets.join(Gid::from(group));
                let result = joined.map_err(|_| Failure::NoDevice);
                manager.multicast_joined(id, group, result);
            }
            Instruction::LeaveMulticast { group, .. } => sockets.leave(Gid::from(group)),
            // The host or another lane does this.
            Instruction::MoveToError { .. } => {}
        }
    }

    fn deliver(&mut self, now: Instant, manager: &Manager, event: cm::Event, hold: bool) {
        self.note_failure(manager, &event);
        #[cfg(feature = "tracing")]
        crate::trace::connection_event(&event.kind);
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
        if listener.is_some() {
            subscriber.token = crate::rdma_cm::event_queue::next_token();
            self.subscribers.insert(event.id, subscriber.clone());
        }
        let queued = QueuedEvent {
            token: subscriber.token,
            listener: listener.map(|_| from),
            id: Some(event.id),
            driver: subscriber.driver,
            kind: event.kind,
        };
        let ahead = self.waits_until(&subscriber.queue);
        // An event-driven program is awake by then. One that does not poll gets the event this much later.
        let until = ahead.or((hold && ends).then(|| now + LONG));
        let held = Held {
            id: event.id,
            until: until.unwrap_or(now),
            queue: subscriber.queue,
            event: queued,
        };
        if until.is_some() {
            self.held.push_back(held);
        } else {
            self.push(held);
        }
    }

    fn note_failure(&mut self, manager: &Manager, event: &cm::Event) {
        if let Some(problems) = &mut self.problems
            && ConnectionFailure::is_failure(&event.kind)
        {
            problems.push(Problem::ConnectionFailure(ConnectionFailure {
                kind: event.kind.clone(),
                local: manager.local_address(event.id),
                peer: manager.peer_address(event.id),
                is_child: manager.is_child(event.id),
            }));
        }
    }
}

#[cfg(test)]
mod tests {
    use wire::cm::PortSpace;

    use super::*;
    use crate::clock::now;
    use crate::waiting::notifier::Notifier;

    fn cm_events() -> CmEvents {
        CmEvents {
            mtu: PathMtu::Mtu4096,
            subscribers: HashMap::new(),
            interfaces: Vec::new(),
            problems: None,
            held: VecDeque::new(),
            neighbours: Neighbours::default(),
            ended: Vec::new(),
        }
    }

    /// An id with its event queue, and the manager that knows it.
    fn subscribed(cm_events: &mut CmEvents) -> (Manager, cm::Id, Arc<EventQueue>) {
        let mut manager = Manager::new(cm::Config::new(1, [1; 32]));
        let (id, queue) = another(cm_events, &mut manager);
        (manager, id, queue)
    }

    fn another(cm_events: &mut CmEvents, manager: &mut Manager) -> (cm::Id, Arc<EventQueue>) {
        another_with(cm_events, manager, false)
    }

    fn another_with(
        cm_events: &mut CmEvents,
        manager: &mut Manager,
        disconnects_at_once: bool,
    ) -> (cm::Id, Arc<EventQueue>) {
        let kind = cm::ServiceType::of(PortSpace::Tcp);
        let id = manager.create_id(PortSpace::Tcp, kind).expect("room");
        let notifier = Notifier::without_descriptor();
        let queue = Arc::new(EventQueue::new(notifier, disconnects_at_once));
        let subscriber = Subscriber {
            queue: Arc::clone(&queue),
            token: 7,
            driver: Weak::new(),
        };
        cm_events.subscribe(id, Some(subscriber));
        (id, queue)
    }

    fn disconnected(id: cm::Id) -> cm::Event {
        let kind = EventKind::Disconnected { timed_out: false };
        cm::Event { id, kind }
    }

    #[test]
    fn a_disconnection_waits_for_a_poll_or_its_deadline() {
        let mut cm_events = cm_events();
        let (manager, id, queue) = subscribed(&mut cm_events);
        let start = now();
        cm_events.deliver(start, &manager, disconnected(id), true);
        cm_events.release_due(start);
        assert!(queue.pop().is_none());
        assert_eq!(cm_events.next_deadline(), Some(start + LONG));
        cm_events.release_due(start + LONG);
        assert!(queue.pop().is_some());

        cm_events.deliver(start, &manager, disconnected(id), true);
        cm_events.release_all();
        assert!(queue.pop().is_some());
        assert_eq!(cm_events.next_deadline(), None);

        cm_events.deliver(start, &manager, disconnected(id), false);
        assert!(
            queue.pop().is_some(),
            "no completion before it waits to be polled"
        );
    }

    /// Otherwise a program sees flushed requests, asks whether the peer has disconnected, and gets the wrong answer.
    #[test]
    fn a_queue_pair_is_flushed_after_its_disconnection_is_delivered() {
        let mut cm_events = cm_events();
        let mut manager = Manager::new(cm::Config::new(1, [1; 32]));
        let (id, queue) = another_with(&mut cm_events, &mut manager, true);
        cm_events.deliver(now(), &manager, disconnected(id), true);
        assert!(!cm_events.has_ended());
        cm_events.release_all();
        assert!(queue.pop().is_some());
        assert!(cm_events.has_ended());
        cm_events.disconnect_ended(now(), &mut manager);
        assert!(!cm_events.has_ended());
    }

    #[test]
    fn events_of_a_queue_keep_their_order() {
        let mut cm_events = cm_events();
        let (mut manager, first, queue) = subscribed(&mut cm_events);
        let (second, _) = another(&mut cm_events, &mut manager);
        let subscriber = cm_events.subscribers[&first].clone();
        cm_events.subscribe(second, Some(subscriber));
        let (other, empty) = another(&mut cm_events, &mut manager);
        let start = now();
        let passed = |id| cm::Event {
            id,
            kind: EventKind::TimewaitExit,
        };
        cm_events.deliver(start, &manager, disconnected(first), true);
        cm_events.deliver(start, &manager, passed(second), false);
        cm_events.deliver(start, &manager, passed(first), false);
        assert!(queue.pop().is_none(), "nothing overtakes the disconnection");
        cm_events.deliver(start, &manager, passed(other), false);
        assert!(empty.pop().is_some(), "another queue does not wait");
        cm_events.release_due(start + LONG);
        let ids: Vec<_> = std::iter::from_fn(|| queue.pop())
            .map(|it| it.id.expect("an event of an id"))
            .collect();
        assert_eq!(ids, [first, second, first]);
    }

    #[test]
    fn an_id_that_changes_its_queue_takes_a_waiting_disconnection_along() {
        let mut cm_events = cm_events();
        let (manager, id, old) = subscribed(&mut cm_events);
        cm_events.deliver(now(), &manager, disconnected(id), true);
        let new = Arc::new(EventQueue::new(Notifier::without_descriptor(), false));
        let subscriber = Subscriber {
            queue: Arc::clone(&new),
            token: 7,
            driver: Weak::new(),
        };
        cm_events.subscribe(id, Some(subscriber));
        assert_eq!((old.take_of(7).len(), new.take_of(7).len()), (0, 1));
    }

    #[test]
    fn removing_the_subscriber_drops_held_events() {
        let mut cm_events = cm_events();
        let (manager, id, queue) = subscribed(&mut cm_events);
        cm_events.deliver(now(), &manager, disconnected(id), true);
        cm_events.subscribe(id, None);
        cm_events.release_all();
        assert!(queue.pop().is_none());
    }
}
