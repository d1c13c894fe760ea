//! What the driver's lock protects: the engine, the connection manager and the way to the sockets.

mod news;
mod progress;

use std::collections::{HashMap, HashSet, VecDeque};
use std::io;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use cm::Manager;
use engine::{
    Arrival, AsyncEvent, BatchLimits, CompletionQueue, Config, Device, Event, Id, Notify,
    SourcePort, Transmit, WindowLimits,
};
use host::{Host, Owner, is_management};
use net::Envelope;
use net::interface::Interface;
use net::share::ServiceError;
use net::socket::{Inbox, SocketError};
use net::watcher::Watcher;
use wire::Gid;

use super::alarms::Alarms;
use super::bell::Bell;
use super::connections::Connections;
use super::exit::ExitNotices;
use super::pace::Pace;
use super::packet_wakeups::{AtReadable, PacketWakeups};
use super::port::{Doors, Look, Ports};
use super::tap::Tap;
use super::wait_set::WaitSet;
use crate::clock::now;
use crate::narrator::News;
use crate::opening::{OpenError, Options};

/// A message and an acknowledgement often come together, and mean nothing.
const PAIR: usize = 2;

pub(super) struct Core {
    host: Host,
    connections: Connections,
    alarms: Alarms,
    exit_notices: ExitNotices,
    pace: Pace,
    ports: Ports,
    tap: Option<Tap>,
    inbox: Inbox,
    /// For who looks again and again: the kernel looks once more for each place that is left.
    small_inbox: Inbox,
    /// Several packets came the last time: there are probably more, and a system call takes them all.
    dense: bool,
    outbox: Vec<u8>,
    segmentation: bool,
    unsent: bool,
    /// Whether answers may wait when the next poll finds nothing.
    may_wait_once: bool,
    /// Packets went to this device itself, and no look has found them yet.
    sent_to_self: bool,
    /// How many packets have arrived.
    arrivals: u64,
    /// Who is rung for when a completion queue has something, and where.
    bells: HashMap<Id<CompletionQueue>, (Arc<Bell>, u64)>,
    /// Which threads and tasks are woken when a completion queue has something.
    waiting: HashMap<Id<CompletionQueue>, Arc<WaitSet>>,
    /// Whether a notification was given that a program awaits outside of the library.
    told_outside: bool,
    pub(super) packet_wakeups: PacketWakeups,
    /// Completion queues with a notification since they were polled last.
    unpolled: HashSet<Id<CompletionQueue>>,
    events: VecDeque<AsyncEvent>,
    event_bell: Arc<Bell>,
    /// Packets that the kernel did not send, to be explained; nothing if nobody does.
    unsendable: Option<Vec<News>>,
}

impl Core {
    pub(super) fn new(
        device: &net::interface::Device,
        ports: Ports,
        options: &Options,
    ) -> Result<Self, OpenError> {
        let tap = Tap::new(options)?;
        if !options.segmentation {
            ports.set_segmentation(false);
        }
        let segmentation = ports.segmentation();
        let one_by_one = !segmentation || tap.as_ref().is_some_and(Tap::needs_single_packets);
        let window = window_for(ports.receive_buffer());
        let device_config = Config {
            gids: ports.gids(),
            active_mtu: device.active_mtu,
            numbers: ports.numbers(),
            source_port: SourcePort::OfGid(ports.source_ports()),
            batch: match one_by_one {
                true => SINGLE,
                false => BatchLimits::default(),
            },
            window,
            incidents: options.explain,
            seed: random_seed()?,
            ..Config::default()
        };
        let mut manager = cm::Config::new(device.guid, random_seed()?);
        manager.exit_notices = options.watcher;
        let slice = ports.slice();
        if let Some(slice) = slice {
            manager.slice = slice;
        }
        let mut host = Host::new(host::Config {
            device: device_config,
            manager,
            shares_addresses: slice.is_some(),
        })
        .expect("a new device has room for a queue pair");
        for entry in &device.gids {
            host.manager().add_address(entry.address);
        }
        Ok(Self {
            host,
            connections: Connections::new(device, options.explain),
            alarms: Alarms::default(),
            exit_notices: ExitNotices::default(),
            pace: Pace::new(window.max),
            ports,
            tap,
            inbox: Inbox::default(),
            small_inbox: Inbox::new(1),
            dense: false,
            outbox: Vec::with_capacity(1 << 16),
            segmentation,
            unsent: false,
            may_wait_once: false,
            sent_to_self: false,
            arrivals: 0,
            bells: HashMap::new(),
            waiting: HashMap::new(),
            told_outside: false,
            packet_wakeups: PacketWakeups::default(),
            unpolled: HashSet::new(),
            events: VecDeque::new(),
            event_bell: Arc::new(Bell::new().map_err(OpenError::System)?),
            unsendable: options.explain.then(Vec::new),
        })
    }

    pub(super) fn device_mut(&mut self) -> &mut Device {
        self.host.device_mut()
    }

    pub(super) fn manager(&mut self) -> &mut Manager {
        self.host.manager()
    }

    pub(super) fn connections(&mut self) -> &mut Connections {
        &mut self.connections
    }

    /// Tasks to wake at a time.
    #[cfg(feature = "async")]
    pub(super) fn alarms(&mut self) -> &mut Alarms {
        &mut self.alarms
    }

    pub(super) fn update_interfaces(&mut self, present: &[Interface]) {
        self.connections
            .update_interfaces(self.host.manager(), present);
    }

    /// From now on the watcher tells peers when this process dies.
    pub(super) fn announce_exit(&mut self, watcher: &Arc<Watcher>) {
        self.exit_notices.start(watcher, &self.ports);
    }

    pub(super) fn claim(&mut self, at: Option<IpAddr>, service: u64) -> Result<(), ServiceError> {
        self.ports.claim(at, service)
    }

    pub(super) fn release(&mut self, at: Option<IpAddr>, service: u64) {
        self.ports.release(at, service);
    }

    pub(super) fn join(&mut self, group: Gid) -> Result<(), SocketError> {
        self.ports.join(group)
    }

    pub(super) fn leave(&mut self, group: Gid) {
        self.ports.leave(group);
    }

    /// Whether there are other sockets to wait for than the last time this was asked.
    pub(super) fn doors_changed(&mut self) -> bool {
        self.ports.doors_changed()
    }

    pub(super) fn doors(&self) -> io::Result<Doors> {
        self.ports.doors()
    }

    /// Lets packets wake the program that waits at the descriptor of a channel.
    pub(super) fn offer_packet_wakeups(&mut self, bell: &Arc<Bell>, expected: AtReadable) {
        let packets = || self.ports.packets();
        self.packet_wakeups.offer(bell, expected, packets);
    }

    /// Does that for the sockets that there are now.
    pub(super) fn renew_packet_wakeups(&mut self) {
        self.packet_wakeups.renew(|| self.ports.packets());
    }

    /// How many packets have arrived. If they may have woken a program that must get a notification then, it
    /// gets one.
    fn receive(&mut self, now: Instant, look: Look) -> usize {
        let owed = self.packet_wakeups.owe_notification();
        let arrived = self.take_packets(now, look);
        // What is no packet for us may have woken it, too.
        let taken =
            || arrived > 0 || look == Look::Everywhere || !self.packet_wakeups.packets_wait();
        if owed && taken() {
            self.tell_events();
            self.packet_wakeups.note_taken();
        }
        arrived
    }

    fn take_packets(&mut self, now: Instant, look: Look) -> usize {
        let Self {
            host,
            ports,
            tap,
            inbox,
            small_inbox,
            dense,
            ..
        } = self;
        let inbox = match look {
            Look::Again if !*dense => small_inbox,
            Look::Again | Look::Everywhere => inbox,
        };
        let arrived = ports.receive(now, look, inbox, |it| {
            let arrival = arrival(&it.envelope);
            if is_management(it.packet) && host.hold_for_lookup(&arrival, it.packet, it.forwarded) {
                return;
            }
            take(now, host, tap.as_mut(), &arrival, it.packet);
        });
        *dense = arrived > PAIR;
        self.arrivals += arrived as u64;
        self.find_owners(now);
        if let Some(tap) = &mut self.tap {
            tap.release(now, &mut self.host, &mut self.ports);
        }
        self.ports.tend(now);
        arrived
    }

    /// Passes messages of other processes on to them, and handles those that are ours after all.
    fn find_owners(&mut self, now: Instant) {
        while let Some(message) = self.host.poll_lookup(now) {
            let owner = match self.host.is_ours(message.recipient) {
                true => Owner::Here,
                false => self.ports.pass_on(&message),
            };
            if let Some(ours) = self.host.finish_lookup(now, message, owner) {
                let tap = self.tap.as_mut();
                take(now, &mut self.host, tap, &ours.arrival, &ours.packet);
            }
        }
    }

    /// Sends everything that the engine has to send, and tells what happened.
    pub(super) fn transmit(&mut self, now: Instant) {
        self.unsent = false;
        self.transmit_messages(now);
        while self.host.manager().has_output() {
            let hold = !self.unpolled.is_empty();
            self.connections
                .serve(now, &mut self.host, &mut self.ports, hold);
            self.transmit_messages(now);
        }
        if let Some(tap) = &mut self.tap {
            tap.flush();
        }
    }

    /// A message leaves when there is an exit notice for what it begins: a process can die between any
    /// two of these.
    fn transmit_messages(&mut self, now: Instant) {
        self.exit_notices.update(self.host.manager(), &self.ports);
        self.transmit_packets(now);
        self.tell_events();
    }

    fn transmit_packets(&mut self, now: Instant) {
        while let Some(transmit) = self.host.poll_transmit(now, &mut self.outbox) {
            self.send(now, &transmit);
        }
    }

    fn send(&mut self, now: Instant, transmit: &Transmit) {
        self.pace.wait_for(&self.outbox);
        self.sent_to_self |= self
            .ports
            .is_own(transmit.route.flow.destination, &self.outbox);
        // A packet that can't be sent is a packet lost: the protocol copes, the counters tell.
        let sent = match &mut self.tap {
            Some(tap) => tap.transmit(
                now,
                transmit,
                &mut self.outbox,
                self.host.device(),
                &mut self.ports,
            ),
            None => self.ports.send(transmit, &mut self.outbox),
        };
        if let Err(error) = sent {
            self.note_unsent(transmit, error);
        }
        if self.segmentation && !self.ports.segmentation() {
            self.segmentation = false;
            self.host.device_mut().set_batch_limits(SINGLE);
        }
    }

    /// Passes on what happened. Threads and tasks are woken when the lock is released.
    pub(super) fn tell_events(&mut self) {
        while let Some(event) = self.host.poll_event() {
            match event {
                Event::Completion(queue) => {
                    if let Some((bell, whom)) = self.bells.get(&queue) {
                        self.told_outside |= bell.is_waited_for_outside();
                        bell.ring(*whom);
                        self.unpolled.insert(queue);
                    }
                }
                Event::CompletionAdded(queue) => {
                    if let Some(waiting) = self.waiting.get(&queue) {
                        waiting.wake_all_later();
                    }
                }
                Event::Async(event) => self.tell_event(event),
            }
        }
    }

    /// Arms a completion queue; whether a program awaits the notification outside of the library, where
    /// no packet wakes it.
    pub(super) fn arm(&mut self, queue: Id<CompletionQueue>, notify: Notify) -> bool {
        self.host.device_mut().arm(queue, notify);
        let bell = self.bells.get(&queue);
        bell.is_some_and(|(bell, _)| bell.needs_the_thread())
    }

    /// A program looks at a completion queue: it learns of completions before it learns of the end of
    /// their connection.
    pub(super) fn note_polled(&mut self, queue: Id<CompletionQueue>) {
        if !self.unpolled.is_empty() && self.unpolled.remove(&queue) && self.unpolled.is_empty() {
            self.connections.release_all();
        }
    }

    fn tell_event(&mut self, event: AsyncEvent) {
        self.events.push_back(event);
        self.event_bell.ring(0);
    }

    pub(super) fn add_bell(&mut self, queue: Id<CompletionQueue>, bell: Arc<Bell>, whom: u64) {
        self.bells.insert(queue, (bell, whom));
    }

    pub(super) fn add_waiting(&mut self, queue: Id<CompletionQueue>, waiting: Arc<WaitSet>) {
        self.waiting.insert(queue, waiting);
    }

    /// Nothing is told any more about a completion queue; what was told, to be dropped later.
    pub(super) fn remove_bell(&mut self, queue: Id<CompletionQueue>) -> impl Sized + use<> {
        self.note_polled(queue);
        let told = self.bells.remove(&queue);
        if let Some((bell, _)) = &told {
            self.packet_wakeups.end_promise(bell);
        }
        (told, self.waiting.remove(&queue))
    }

    pub(super) fn capture_path(&self) -> Option<PathBuf> {
        self.tap.as_ref().and_then(Tap::capture_path)
    }

    pub(super) fn event_bell(&self) -> Arc<Bell> {
        Arc::clone(&self.event_bell)
    }

    pub(super) fn poll_event(&mut self) -> Option<AsyncEvent> {
        self.events.pop_front()
    }

    /// Takes back the events of an object that is gone.
    pub(super) fn forget_events(&mut self, gone: impl Fn(&AsyncEvent) -> bool) {
        let before = self.events.len();
        self.events.retain(|event| !gone(event));
        for _ in self.events.len()..before {
            self.event_bell.answer();
        }
    }
}

impl Drop for Core {
    /// Answers may wait to be sent, and requests for other processes may still lie in our sockets:
    /// they are handed on first.
    fn drop(&mut self) {
        self.send_waiting(now());
        self.ports.withdraw();
        self.receive(now(), Look::Everywhere);
    }
}

const SINGLE: BatchLimits = BatchLimits {
    packets: 1,
    bytes: 65_000,
};

fn random_seed() -> Result<[u8; 32], OpenError> {
    let mut seed = [0; 32];
    getrandom::fill(&mut seed).map_err(|error| OpenError::System(error.into()))?;
    Ok(seed)
}

/// Hands a packet to the host, through captures and faults.
fn take(now: Instant, host: &mut Host, tap: Option<&mut Tap>, arrival: &Arrival, packet: &[u8]) {
    match tap {
        None => host.handle_datagram(now, arrival, packet),
        Some(tap) => tap.receive(now, arrival, packet, host),
    }
}

fn arrival(envelope: &Envelope) -> Arrival {
    Arrival {
        flow: envelope.flow,
        traffic_class: envelope.traffic_class,
        hop_limit: envelope.hop_limit,
    }
}

/// A window that fits into our kind of receive buffer; it begins with one that leaves room for others.
///
/// The kernel counts up to twice a packet's size, and the peer's buffer is as large as ours for all
/// we know.
fn window_for(receive_buffer: usize) -> WindowLimits {
    let usual = WindowLimits::default();
    let share = |part: usize, usual_one: u32| {
        let bytes = u32::try_from(receive_buffer / part).unwrap_or(u32::MAX);
        bytes.clamp(usual.min, usual_one)
    };
    WindowLimits {
        min: usual.min,
        initial: share(8, usual.initial),
        max: share(2, usual.max),
    }
}
