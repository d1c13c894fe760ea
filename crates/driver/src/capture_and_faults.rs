//! Captures and injected faults, between the engine and the sockets.

mod journal;

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use engine::transmit::packets;
use engine::{AsyncEvent, Device, Event, Observation, Transmit};
use host::Host;
use net::Direction;
use net::socket::SendError;
use net::stderr;
use net::tap::capture::{Capture, CaptureError, Record};
use net::tap::fault::{Action, DelayLine, FaultLog, Faults, Injected, Verdict};
use wire::{Fragmentation, IcrcChecker, Packet, Qpn, Route};

use crate::clock::wall_time;
use crate::diagnostics::work_name;
use crate::fabric::{Port, here};
use crate::options::{OpenError, OpenOptions};

/// What a fault delays.
enum Delayed {
    Outgoing(Transmit, Vec<u8>),
    Incoming(Route, Vec<u8>, Injected),
    Event(Event),
    /// The end of the time in which the port is down.
    PortActive,
}

/// Records packets and applies the faults to them.
pub(crate) struct CaptureAndFaults {
    capture: Option<Arc<Capture>>,
    /// Whether posts, completions and events are recorded in the capture. Not in a simulation: devices share that
    /// capture, and their queue pair numbers are ambiguous.
    has_notes: bool,
    faults: Option<Faults>,
    delayed: DelayLine<Delayed>,
    /// Until when completion events are held back.
    events_late_until: Option<Instant>,
    /// Until when the port is down.
    port_down_until: Option<Instant>,
    /// Events that are no longer held back, and those of the port.
    events: VecDeque<Event>,
    checker: IcrcChecker,
    /// Why the capture has ended early, if nobody was told.
    capture_error: Option<CaptureError>,
}

impl CaptureAndFaults {
    /// `None` without captures and faults.
    pub(crate) fn new(options: &OpenOptions) -> Result<Option<Self>, OpenError> {
        let capture = match &options.capture {
            Some(path) => Some(Capture::shared(path, options.capture_limits)?),
            None => here(|machine| machine.capture()),
        };
        let faults = open_faults(options)?;
        if capture.is_none() && faults.is_none() {
            return Ok(None);
        }
        Ok(Some(Self {
            capture,
            has_notes: options.capture.is_some(),
            faults,
            delayed: DelayLine::new(),
            events_late_until: None,
            port_down_until: None,
            events: VecDeque::new(),
            checker: IcrcChecker::new(),
            capture_error: None,
        }))
    }

    /// Whether each packet must be sent alone, with an ICRC for that: faults affect single packets.
    pub(crate) fn needs_single_packets(&self) -> bool {
        self.faults.is_some()
    }

    /// Whether completion events may be held back. Then a packet must not wake a program before its event does.
    pub(crate) fn may_delay_events(&self) -> bool {
        let rules = self.faults.iter().flat_map(|faults| faults.spec().rules());
        let mut actions = rules.map(|rule| rule.action);
        actions.any(|action| matches!(action, Action::LateEvent(_)))
    }

    /// Whether a fault keeps the port down.
    pub(crate) fn is_port_down(&self) -> bool {
        self.port_down_until.is_some()
    }

    /// The next event of a port, or one that was held back.
    pub(crate) fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Passes an event on, or holds it back.
    pub(crate) fn pass(&mut self, event: Event) -> Option<Event> {
        match (event, self.events_late_until) {
            (Event::Completion(_), Some(due)) => {
                self.delayed.push(due, Delayed::Event(event));
                None
            }
            _ => Some(event),
        }
    }

    /// The capture file; `None` if the capture ended early.
    pub(crate) fn capture_path(&self) -> Option<PathBuf> {
        let capture = self.capture.as_ref();
        let running = capture.filter(|capture| !capture.has_ended_early());
        running.map(|capture| capture.path().to_owned())
    }

    /// The faults that no packet has had.
    pub(crate) fn unused_faults(&self) -> Vec<String> {
        let rules = self.faults.iter().flat_map(Faults::fired);
        let unused = rules.filter(|(_, times)| *times == 0);
        unused.map(|(rule, _)| rule.to_string()).collect()
    }

    pub(crate) fn next_due(&self) -> Option<Instant> {
        self.delayed.next_due()
    }

    /// Writes what was recorded. An error is kept for [`take_capture_error`](Self::take_capture_error).
    pub(crate) fn flush(&mut self) {
        if let Some(capture) = &self.capture {
            capture.flush();
            if let Some(error) = capture.take_error() {
                self.capture_error = Some(error);
            }
        }
    }

    /// Whether the capture has ended early and nobody was told.
    pub(crate) fn has_capture_error(&self) -> bool {
        self.capture_error.is_some()
    }

    /// Why the capture has ended early, to be told after the lane's lock is released. Returned once.
    pub(crate) fn take_capture_error(&mut self) -> Option<CaptureError> {
        self.capture_error.take()
    }

    pub(crate) fn transmit(
        &mut self,
        now: Instant,
        transmit: &Transmit,
        buffer: &mut [u8],
        device: &Device,
        sockets: &mut Port,
    ) -> Result<(), SendError> {
        let verdict = self.verdict(now, Direction::Transmit, buffer);
        for (index, packet) in packets(transmit, buffer).enumerate() {
            let fragmentation = Fragmentation {
                identification: index as u16,
                dont_fragment: true,
            };
            let comment = comment(device, transmit.queue_pair, Direction::Transmit, packet);
            let comment = with_faults(&verdict.injected, comment);
            self.record(
                Direction::Transmit,
                &transmit.route,
                fragmentation,
                packet,
                comment.as_deref(),
            );
        }
        if verdict.injected.is_none() {
            return sockets.send(now, transmit, buffer);
        }
        self.signal(&verdict.injected);
        let mut bytes = verdict.bytes(buffer).to_vec();
        for _ in 0..verdict.copies {
            match verdict.hold_until {
                Some(due) => self
                    .delayed
                    .push(due, Delayed::Outgoing(*transmit, bytes.clone())),
                None => sockets.send(now, transmit, &mut bytes)?,
            }
        }
        Ok(())
    }

    pub(crate) fn receive(&mut self, now: Instant, route: &Route, packet: &[u8], host: &mut Host) {
        let verdict = self.verdict(now, Direction::Receive, packet);
        let bytes = verdict.bytes(packet);
        if verdict.copies == 0 || verdict.injected.killed {
            self.record_received(route, bytes, &verdict.injected, host);
        }
        self.signal(&verdict.injected);
        for _ in 0..verdict.copies {
            match verdict.hold_until {
                Some(due) => self.delayed.push(
                    due,
                    Delayed::Incoming(*route, bytes.to_vec(), verdict.injected),
                ),
                None => self.hand_over(now, route, bytes, &verdict.injected, host),
            }
        }
    }

    fn verdict(&mut self, now: Instant, direction: Direction, packet: &[u8]) -> Verdict {
        let Some(faults) = &mut self.faults else {
            return Verdict::PASS;
        };
        // A rule must not count, log or stop the process for a packet that the port loses anyway.
        if self.port_down_until.is_some() {
            return Verdict::DROP;
        }
        let verdict = faults.apply(now, direction, packet);
        if let Some(by) = verdict.injected.late_events {
            self.events_late_until = self.events_late_until.max(Some(now + by));
        }
        if let Some(by) = verdict.injected.port_down {
            self.port_down_until = Some(now + by);
            self.delayed.push(now + by, Delayed::PortActive);
            self.events.push_back(Event::Async(AsyncEvent::PortError));
        }
        verdict
    }

    /// Passes on what is due. Packets that are due while the port is down are lost.
    pub(crate) fn release(&mut self, now: Instant, host: &mut Host, sockets: &mut Port) {
        self.events_late_until = self.events_late_until.filter(|&until| until > now);
        while let Some(delayed) = self.delayed.poll_due(now) {
            match delayed {
                Delayed::Event(event) => self.events.push_back(event),
                Delayed::PortActive => {
                    self.port_down_until = None;
                    self.events.push_back(Event::Async(AsyncEvent::PortActive));
                }
                _ if self.is_port_down() => {}
                Delayed::Outgoing(transmit, mut bytes) => {
                    drop(sockets.send(now, &transmit, &mut bytes));
                }
                Delayed::Incoming(route, bytes, injected) => {
                    self.hand_over(now, &route, &bytes, &injected, host);
                }
            }
        }
    }

    /// Sends all packets that are held back, in the order of their times. A network would deliver them although
    /// their sender has exited.
    pub(crate) fn send_delayed(&mut self, now: Instant, sockets: &mut Port) {
        while let Some(delayed) = self.delayed.pop() {
            match delayed {
                Delayed::Outgoing(transmit, mut bytes) => {
                    drop(sockets.send(now, &transmit, &mut bytes));
                }
                // The device does not handle packets any more, and nobody waits for events.
                Delayed::Incoming(..) | Delayed::Event(_) | Delayed::PortActive => {}
            }
        }
    }

    fn hand_over(
        &mut self,
        now: Instant,
        route: &Route,
        bytes: &[u8],
        injected: &Injected,
        host: &mut Host,
    ) {
        self.record_received(route, bytes, injected, host);
        if !injected.not_ready {
            return host.handle_datagram(now, route, bytes);
        }
        let Ok(packet) = Packet::parse(bytes) else {
            return;
        };
        host.device_mut().hide_receives(packet.destination, true);
        host.handle_datagram(now, route, bytes);
        host.device_mut().hide_receives(packet.destination, false);
    }

    fn record_received(&mut self, route: &Route, bytes: &[u8], injected: &Injected, host: &Host) {
        if self.capture.is_none() {
            return;
        }
        let checked = self.checker.check(&route.flow, bytes);
        let fragmentation = checked.unwrap_or(Fragmentation::NONE);
        let number = Packet::parse(bytes).map(|packet| packet.destination);
        let comment = number
            .ok()
            .and_then(|number| comment(host.device(), number, Direction::Receive, bytes));
        let comment = with_faults(injected, comment);
        self.record(
            Direction::Receive,
            route,
            fragmentation,
            bytes,
            comment.as_deref(),
        );
    }

    /// Records what the program and its device did.
    pub(crate) fn observe(&self, observation: &Observation) {
        if let Some(capture) = self.capture.as_ref().filter(|_| self.has_notes) {
            journal::observation(capture, observation);
        }
    }

    /// Records an asynchronous event.
    pub(crate) fn note_event(&self, event: AsyncEvent) {
        if let Some(capture) = self.capture.as_ref().filter(|_| self.has_notes) {
            journal::event(capture, event);
        }
    }

    /// Stops or ends this process, if a fault says so. What happened before is in the capture.
    fn signal(&mut self, injected: &Injected) {
        if injected.killed || injected.stopped {
            self.flush();
            self.capture.iter().for_each(|capture| capture.drain());
        }
        if injected.killed {
            here(|machine| machine.kill());
        }
        if injected.stopped {
            here(|machine| machine.stop());
        }
    }

    fn record(
        &self,
        direction: Direction,
        route: &Route,
        fragmentation: Fragmentation,
        payload: &[u8],
        comment: Option<&str>,
    ) {
        let Some(capture) = &self.capture else { return };
        capture.record(&Record {
            time: wall_time(),
            direction,
            flow: &route.flow,
            fragmentation,
            traffic_class: route.traffic_class,
            hop_limit: route.hop_limit,
            payload,
            comment,
        });
    }
}

/// Tells the user that the capture has ended early. The caller has released the lane's lock, or is the last to use it.
pub(crate) fn report_capture_error(error: &CaptureError) {
    stderr::print(format_args!(
        "{error}; the program continues without the capture"
    ));
}

/// The faults of the environment or the program. With a log alone, there is an injector without faults that counts
/// packets.
fn open_faults(options: &OpenOptions) -> Result<Option<Faults>, OpenError> {
    let spec = options.faults.as_deref().map(str::parse).transpose()?;
    let Some(path) = &options.fault_log else {
        let injector = |spec| here(|machine| machine.faults(spec));
        return Ok(spec.map(injector));
    };
    let log = FaultLog::open(path).map_err(|error| OpenError::FaultLog {
        path: path.clone(),
        error,
    })?;
    Ok(Some(Faults::with_log(spec.unwrap_or_default(), Some(log))))
}

/// Puts the faults in front of the comment, because `roci explain` reads its end.
fn with_faults(injected: &Injected, comment: Option<String>) -> Option<String> {
    match comment {
        comment if injected.is_none() => comment,
        None => Some(injected.to_string()),
        Some(comment) => Some(format!("{injected}; {comment}")),
    }
}

/// The comment on a packet: the work request, and the queue pair that sent it. `roci explain` reads the number at
/// the end, because a packet of a connection does not name its sender.
fn comment(device: &Device, ours: Qpn, direction: Direction, packet: &[u8]) -> Option<String> {
    let packet = Packet::parse(packet).ok()?;
    let queue_pair = device.queue_pair(ours)?;
    let is_answer = packet.opcode.is_response();
    let to_own_request = is_answer == (direction == Direction::Receive);
    let number = ours.value();
    match (queue_pair.request_at(packet.psn), direction) {
        (Some((id, work)), _) if to_own_request => {
            let work = work_name(work);
            Some(format!("{work} wr_id {id} of QP {number:#x}"))
        }
        (_, Direction::Transmit) if is_answer => Some(format!("answer of QP {number:#x}")),
        (_, Direction::Transmit) => Some(format!("request of QP {number:#x}")),
        (_, Direction::Receive) if is_answer => None,
        (_, Direction::Receive) => {
            let peer = queue_pair.attributes().destination?.value();
            Some(format!("request of QP {peer:#x}"))
        }
    }
}
