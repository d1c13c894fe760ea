//! What the driver's lock protects: the engine, the connection manager and the way to the sockets.

mod news;
mod progress;

use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use engine::{
    Arrival, AsyncEvent, BatchLimits, CompletionQueue, Config, Device, Event, Id, SourcePort,
    Transmit, WindowLimits,
};
use net::Envelope;
use net::share::{Arrived, ServiceError};
use net::socket::{Inbox, SocketError};
use wire::Gid;

use super::bell::Bell;
use super::doorstep::Doorstep;
use super::management::{Management, Stray, is_management};
use super::pace::Pace;
use super::port::{Doors, Look, Passed, Ports};
use super::tap::Tap;
use crate::clock::now;
use crate::narrator::News;
use crate::opening::{OpenError, Options};

/// A message and an acknowledgement often come together, and mean nothing.
const PAIR: usize = 2;

pub(super) struct Core {
    device: Device,
    management: Management,
    doorstep: Doorstep,
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
    /// Who is rung for when a completion queue has something, and where.
    bells: HashMap<Id<CompletionQueue>, (Arc<Bell>, u64)>,
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
        let config = Config {
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
            seed: random()?,
            ..Config::default()
        };
        let mut engine = Device::new(config);
        let management = Management::new(
            &mut engine,
            device,
            ports.slice(),
            random()?,
            options.explain,
        )
        .expect("a new device has room for a queue pair");
        Ok(Self {
            device: engine,
            management,
            doorstep: Doorstep::default(),
            pace: Pace::new(window.max),
            ports,
            tap,
            inbox: Inbox::default(),
            small_inbox: Inbox::new(1),
            dense: false,
            outbox: Vec::with_capacity(1 << 16),
            segmentation,
            unsent: false,
            bells: HashMap::new(),
            events: VecDeque::new(),
            event_bell: Arc::new(Bell::new().map_err(OpenError::System)?),
            unsendable: options.explain.then(Vec::new),
        })
    }

    pub(super) fn device(&mut self) -> &mut Device {
        &mut self.device
    }

    pub(super) fn management(&mut self) -> &mut Management {
        &mut self.management
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

    /// How many packets have arrived.
    fn receive(&mut self, now: Instant, look: Look) -> usize {
        let Self {
            device,
            management,
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
            let managed = is_management(it.packet);
            if managed && management.sets_aside(&it) {
                return;
            }
            take(now, device, tap.as_mut(), &it);
            if managed {
                management.receive(now, device);
            }
        });
        *dense = arrived > PAIR;
        let strays = management.take_strays();
        for stray in strays {
            self.find_recipient(now, stray);
        }
        self.look_again(now);
        let Self {
            device,
            management,
            ports,
            tap,
            ..
        } = self;
        if let Some(tap) = tap {
            tap.release(now, device, ports);
            management.receive(now, device);
        }
        ports.tend(now);
        arrived
    }

    /// Hands on a message that may be another process's. A request waits if nobody listens.
    fn find_recipient(&mut self, now: Instant, stray: Stray) {
        let refused = match self.ports.pass_on(&stray) {
            Passed::On => return,
            Passed::ForUs => stray,
            Passed::Nobody => match self.doorstep.admit(now, stray) {
                Ok(()) => return,
                Err(stray) => stray,
            },
        };
        self.take_stray(now, &refused);
    }

    /// Lets requests that waited look whether somebody listens by now.
    fn look_again(&mut self, now: Instant) {
        while let Some(waiting) = self.doorstep.due(now) {
            if self.management.is_ours(waiting.stray.recipient) {
                self.take_stray(now, &waiting.stray);
                continue;
            }
            match self.ports.pass_on(&waiting.stray) {
                Passed::On => {}
                Passed::ForUs => self.take_stray(now, &waiting.stray),
                Passed::Nobody => {
                    if let Err(stray) = self.doorstep.again(now, waiting) {
                        self.take_stray(now, &stray);
                    }
                }
            }
        }
    }

    fn take_stray(&mut self, now: Instant, stray: &Stray) {
        take(now, &mut self.device, self.tap.as_mut(), &stray.arrived());
        self.management.receive(now, &mut self.device);
    }

    /// Sends everything that the engine has to send, and tells what happened.
    pub(super) fn transmit(&mut self, now: Instant) {
        self.unsent = false;
        self.transmit_packets(now);
        self.tell_events();
        while self.management.has_work() {
            self.management
                .serve(now, &mut self.device, &mut self.ports);
            self.transmit_packets(now);
            self.tell_events();
        }
        if let Some(tap) = &mut self.tap {
            tap.flush();
        }
    }

    fn transmit_packets(&mut self, now: Instant) {
        while let Some(transmit) = self.device.poll_transmit(now, &mut self.outbox) {
            self.send(now, &transmit);
        }
    }

    fn send(&mut self, now: Instant, transmit: &Transmit) {
        self.pace.wait_for(&self.outbox);
        // A packet that can't be sent is a packet lost: the protocol copes, the counters tell.
        let sent = match &mut self.tap {
            Some(tap) => tap.transmit(
                now,
                transmit,
                &mut self.outbox,
                &self.device,
                &mut self.ports,
            ),
            None => self.ports.send(transmit, &mut self.outbox),
        };
        if let Err(error) = sent {
            self.note_unsent(transmit, error);
        }
        if self.segmentation && !self.ports.segmentation() {
            self.segmentation = false;
            self.device.set_batch_limits(SINGLE);
        }
    }

    /// Passes on what happened.
    pub(super) fn tell_events(&mut self) {
        while let Some(event) = self.device.poll_event() {
            match event {
                Event::Completion(queue) => {
                    if let Some((bell, whom)) = self.bells.get(&queue) {
                        bell.ring(*whom);
                    }
                }
                Event::Async(event) => self.tell_event(event),
            }
        }
    }

    fn tell_event(&mut self, event: AsyncEvent) {
        if let AsyncEvent::CommunicationEstablished(number) = event {
            self.management.manager().notify_established(number);
        }
        self.events.push_back(event);
        self.event_bell.ring(0);
    }

    pub(super) fn add_bell(&mut self, queue: Id<CompletionQueue>, bell: Arc<Bell>, whom: u64) {
        self.bells.insert(queue, (bell, whom));
    }

    pub(super) fn remove_bell(&mut self, queue: Id<CompletionQueue>) {
        self.bells.remove(&queue);
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

fn random() -> Result<u64, OpenError> {
    getrandom::u64().map_err(|error| OpenError::System(error.into()))
}

/// Hands a packet to the engine, past whoever watches or breaks packets.
fn take(now: Instant, device: &mut Device, tap: Option<&mut Tap>, arrived: &Arrived<'_>) {
    let arrival = arrival(&arrived.envelope);
    match tap {
        None => device.handle_datagram(now, &arrival, arrived.packet),
        Some(tap) => tap.receive(now, &arrival, arrived.packet, device),
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
