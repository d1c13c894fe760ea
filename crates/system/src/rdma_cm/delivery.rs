//! The events of ids, and where those of one id go.

use std::fmt;
use std::mem;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use super::id::Id;
use super::parameters::{DatagramDestination, PeerParameters};
use crate::verbs::QueuePair;

/// What happened to an id.
#[derive(Debug)]
#[non_exhaustive]
pub enum Event {
    /// The local address and the device that lead to the peer are known.
    AddressResolved,
    /// The address can't be resolved, with the number of the error.
    AddressError(i32),
    /// The route is known.
    RouteResolved,
    /// The route can't be resolved, with the number of the error.
    RouteError(i32),
    /// At a listener: a client asks for a connection. Dropping the id rejects it.
    Request(Id, PeerParameters),
    /// At a listener: a client asks for a datagram service, with private data. Dropping the id refuses it.
    ServiceRequest(Id, Vec<u8>),
    /// The datagram service answers.
    ServiceFound {
        /// Where datagrams go.
        destination: DatagramDestination,
        /// The private data of the service.
        private_data: Vec<u8>,
    },
    /// The id has joined a multicast group.
    MulticastJoined {
        /// The group.
        group: IpAddr,
        /// Where datagrams to all its members go.
        destination: DatagramDestination,
    },
    /// The id could not join a multicast group.
    MulticastError {
        /// The group.
        group: IpAddr,
        /// The number of the error.
        error: i32,
    },
    /// The server accepts.
    Response(PeerParameters),
    /// The connection failed, with the number of the error.
    ConnectError(i32),
    /// The server does not answer, or the datagram service refused.
    Unreachable {
        /// The answer of the datagram service, as on the wire.
        service_status: Option<u8>,
        /// The private data of the datagram service.
        private_data: Vec<u8>,
    },
    /// The peer rejected the connection.
    Rejected {
        /// The reason, as on the wire.
        reason: u16,
        /// The private data of the peer.
        private_data: Vec<u8>,
    },
    /// The client has confirmed the connection.
    Established,
    /// The connection has ended. If its id confirms that at once, its queue pair is in the error state.
    Disconnected {
        /// Whether the peer did not answer.
        timed_out: bool,
    },
    /// The device is gone.
    DeviceRemoval,
    /// The local address moved to another interface.
    AddressChange,
    /// No packet of the connection can arrive any more.
    TimewaitExit,
    /// Another event, by its number in `rdma_cma.h`.
    Other(u32),
}

/// Takes the events of an id, in the thread of the dispatcher. It must not wait.
pub type Receiver = Arc<dyn Fn(Event) + Send + Sync>;

/// The receiver of the events of an id, and what the dispatcher needs of the id.
#[derive(Default)]
pub(super) struct Delivery {
    inner: Mutex<Inner>,
    /// Whether the end of a connection is confirmed to the peer at once, and fails its queue pair.
    confirms_end: AtomicBool,
    /// Whether it asked for a connection.
    is_client: AtomicBool,
    /// Whether the connection that it asked for is established without its confirmation, as with iWARP.
    is_established: AtomicBool,
}

#[derive(Default)]
struct Inner {
    receiver: Option<Receiver>,
    /// The events until there is a receiver.
    held: Vec<Event>,
    queue_pair: Weak<QueuePair>,
    binding: Binding,
    /// The multicast groups that it was asked to join. The place of a group is its name in events.
    groups: Vec<IpAddr>,
}

impl fmt::Debug for Delivery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Delivery")
            .field("binding", &self.binding())
            .finish_non_exhaustive()
    }
}

/// Where an id is, once it is bound or its address is resolved. The structure of C is read only while nobody writes it, and copied
/// to here.
#[derive(Clone, Debug, Default)]
pub(super) struct Binding {
    pub(super) device: Option<String>,
    pub(super) local: Option<SocketAddr>,
    pub(super) peer: Option<SocketAddr>,
}

impl Delivery {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Hands an event to the receiver, or holds it until there is one.
    pub(super) fn deliver(&self, event: Event) {
        let receiver = {
            let mut inner = self.lock();
            match &inner.receiver {
                Some(receiver) => Arc::clone(receiver),
                None => return inner.held.push(event),
            }
        };
        receiver(event);
    }

    /// Sets the receiver of all events that are not delivered yet.
    pub(super) fn set_receiver(&self, receiver: Receiver) {
        loop {
            let mut inner = self.lock();
            if inner.held.is_empty() {
                inner.receiver = Some(receiver);
                return;
            }
            let held = mem::take(&mut inner.held);
            drop(inner);
            // Events that arrive meanwhile are held, and come after these.
            held.into_iter().for_each(&*receiver);
        }
    }

    /// Notes that it asks for a connection.
    pub(super) fn set_client(&self) {
        self.is_client.store(true, Ordering::Relaxed);
    }

    /// Notes that a connection is established. Returns whether this is the answer to what it asked for: with iWARP there is no other.
    pub(super) fn is_answered_by_establishment(&self) -> bool {
        let is_client = self.is_client.load(Ordering::Relaxed);
        self.is_established.store(is_client, Ordering::Relaxed);
        is_client
    }

    /// Whether the connection that it asked for needs no confirmation.
    pub(super) fn is_established(&self) -> bool {
        self.is_established.load(Ordering::Relaxed)
    }

    pub(super) fn confirms_end(&self) -> bool {
        self.confirms_end.load(Ordering::Relaxed)
    }

    pub(super) fn set_confirms_end(&self, confirms: bool) {
        self.confirms_end.store(confirms, Ordering::Relaxed);
    }

    /// Sets the queue pair of the connection.
    pub(super) fn set_queue_pair(&self, queue_pair: Weak<QueuePair>) {
        self.lock().queue_pair = queue_pair;
    }

    /// Moves the queue pair of the connection to the error state, if both exist.
    pub(super) fn fail_queue_pair(&self) {
        let queue_pair = self.lock().queue_pair.upgrade();
        if let Some(queue_pair) = queue_pair {
            // A device that refuses is gone, or the queue pair has failed before.
            let _ = queue_pair.move_to_error();
        }
    }

    /// The place of a multicast group, which is added if it is new.
    pub(super) fn place_of(&self, group: IpAddr) -> usize {
        let groups = &mut self.lock().groups;
        let known = groups.iter().position(|it| *it == group);
        known.unwrap_or_else(|| {
            groups.push(group);
            groups.len() - 1
        })
    }

    /// The multicast group at a place.
    pub(super) fn group_at(&self, place: usize) -> Option<IpAddr> {
        self.lock().groups.get(place).copied()
    }

    pub(super) fn binding(&self) -> Binding {
        self.lock().binding.clone()
    }

    pub(super) fn set_binding(&self, binding: Binding) {
        self.lock().binding = binding;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    /// An iWARP client gets no other answer.
    #[test]
    fn a_connection_that_is_established_answers_only_who_asked_for_it() {
        let delivery = Delivery::default();
        assert!(!delivery.is_answered_by_establishment() && !delivery.is_established());
        delivery.set_client();
        assert!(!delivery.is_established());
        assert!(delivery.is_answered_by_establishment() && delivery.is_established());
    }

    #[test]
    fn events_are_held_in_order_until_there_is_a_receiver() {
        let delivery = Delivery::default();
        delivery.deliver(Event::AddressResolved);
        delivery.deliver(Event::RouteResolved);
        let (sender, received) = mpsc::channel();
        delivery.set_receiver(Arc::new(move |event| {
            let _ = sender.send(format!("{event:?}"));
        }));
        delivery.deliver(Event::Established);
        drop(delivery);
        let received: Vec<_> = received.into_iter().collect();
        assert_eq!(
            received,
            ["AddressResolved", "RouteResolved", "Established"]
        );
    }
}
