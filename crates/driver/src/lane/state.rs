//! The state that a lane's lock protects: the host, its connection manager's events and the sockets.

mod checking;
mod problems;
mod progress;
#[cfg(test)]
mod tests;
mod unanswered;

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use cm::Manager;
use engine::{
    AsyncEvent, BatchLimits, Completion, CompletionQueue, Config, Device, Event, Id,
    MovingQueuePairs, Notify, Now, Observation, SourcePort, Transmit, WindowLimits,
};
use host::{Host, Owner, is_management};
use net::sharing::{NumberBlock, ReceivedPacket};
use net::socket::interface::{Interface, LinkState};
use net::tap::capture::CaptureError;
use net::watcher::Watcher;
use wire::{IcrcGenerator, PayloadBytes};

use crate::capture_and_faults::{CaptureAndFaults, report_capture_error};
use crate::check::{DeviceCheck, Finding, Recorded};
use crate::clock::now;
use crate::cm_events::CmEvents;
use crate::diagnostics::{Problem, Reported};
use crate::exit_notices::ExitNotices;
use crate::fabric::{PollScope, Port, here, numbers_of};
use crate::lane::AfterCall;
use crate::lanes::{Common, FirstLane, LaneMessage, Parts, Uses};
use crate::options::{OpenError, OpenOptions};
use crate::shortcut::Decision;
use crate::statistics::Statistics;
use crate::waiting::notifier::Notifier;
use crate::waiting::packet_wakeups::{AtReadable, PacketWakeups};
#[cfg(feature = "async")]
use crate::waiting::task_packets::TaskPackets;
use crate::waiting::task_timers::TaskTimers;
#[cfg(feature = "async")]
pub(crate) use progress::MANY;
use progress::{Armed, Message, Notified, OwnPackets, Responses, Sleep};
pub(crate) use progress::{Found, Intent};
use unanswered::UnansweredRequests;

/// What a lane is among those of its device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rank {
    /// It has the connection manager.
    First,
    Other,
}

pub(crate) struct LaneState {
    host: Host,
    cm_events: CmEvents,
    task_timers: TaskTimers,
    uses: Uses,
    parts: Parts,
    exit_notices: ExitNotices,
    sockets: Port,
    capture_and_faults: Option<CaptureAndFaults>,
    message: Message,
    armed: Armed,
    sleep: Sleep,
    outbox: Vec<u8>,
    responses: Responses,
    /// The records of what has happened here, for the log of the check.
    recorded: Recorded,
    shortcut: Decision,
    own_packets: OwnPackets,
    /// When to deliver more packets to own queue pairs, because one call delivers a limited number.
    deliver_more_at: Option<Instant>,
    /// How many packets have arrived.
    arrivals: u64,
    common: Arc<Common>,
    rank: Rank,
    /// What to tell other lanes when the lock is released.
    lane_messages: Vec<LaneMessage>,
    pub(crate) packet_wakeups: PacketWakeups,
    /// The packets that an executor receives for its tasks.
    #[cfg(feature = "async")]
    task_packets: Option<TaskPackets>,
    /// Whether packets can pass through an interface of the device.
    link: LinkState,
    /// The counters when retransmissions were last traced.
    #[cfg(feature = "tracing")]
    traced: engine::Counters,
    statistics: Statistics,
    unanswered: UnansweredRequests,
    reported: Reported,
    /// Packets that the kernel did not send, and requests without an answer, to be reported.
    problems: Vec<Problem>,
    /// Checks the program, if that is wanted.
    check: Option<Arc<DeviceCheck>>,
    /// Observations for the checker.
    observed: VecDeque<Observation>,
    /// Findings that are not reported.
    findings: Vec<Finding>,
}

impl LaneState {
    pub(crate) fn new(
        device: &net::socket::interface::Device,
        sockets: Port,
        options: &OpenOptions,
        first: Option<&FirstLane>,
    ) -> Result<Self, OpenError> {
        let capture_and_faults = CaptureAndFaults::new(options)?;
        if !options.segmentation {
            sockets.set_segmentation(false);
        }
        let one_by_one = !sockets.segmentation()
            || capture_and_faults
                .as_ref()
                .is_some_and(CaptureAndFaults::needs_single_packets);
        let batch = if one_by_one {
            SINGLE
        } else {
            BatchLimits::default()
        };
        let mut manager = cm::Config::new(device.guid, random_seed()?);
        manager.exit_notices = options.watcher;
        let id_range = sockets.id_range();
        if let Some(id_range) = id_range {
            manager.id_range = id_range;
        }
        let mut host = Host::new(host::Config {
            device: device_config(device, &sockets, options, batch)?,
            manager,
            shares_addresses: id_range.is_some(),
            objects: first.map(|first| Arc::clone(&first.objects)),
        })
        .expect("a new device has room for a queue pair");
        // Queue pair 1 and its objects are not the program's.
        let _ = host.device_mut().take_observations();
        for entry in &device.gids {
            host.manager().add_address(entry.address);
        }
        let common = match first {
            Some(first) => Arc::clone(&first.common),
            None => Arc::new(Common::new(Notifier::new().map_err(OpenError::of_system)?)),
        };
        let lane = first.map_or(0, |first| first.other);
        Ok(Self {
            host,
            cm_events: CmEvents::new(device, options.explain),
            task_timers: TaskTimers::default(),
            uses: Uses::default(),
            parts: Parts::default(),
            exit_notices: ExitNotices::default(),
            sockets,
            capture_and_faults,
            message: Message::Whole,
            armed: Armed::Polled { looks: 0 },
            sleep: Sleep::Prepared,
            outbox: Vec::with_capacity(1 << 16),
            responses: Responses::Sent,
            recorded: Recorded::default(),
            shortcut: Decision::new(options.shortcut),
            own_packets: OwnPackets::Received,
            deliver_more_at: None,
            arrivals: 0,
            rank: first.map_or(Rank::First, |_| Rank::Other),
            lane_messages: Vec::new(),
            packet_wakeups: PacketWakeups::default(),
            #[cfg(feature = "async")]
            task_packets: None,
            link: device.state,
            #[cfg(feature = "tracing")]
            traced: engine::Counters::default(),
            statistics: Statistics::new(device, common.number(), lane),
            common,
            unanswered: UnansweredRequests::default(),
            reported: Reported::new(options.explain),
            problems: Vec::new(),
            check: options.check.as_ref().map(DeviceCheck::new).map(Arc::new),
            observed: VecDeque::new(),
            findings: Vec::new(),
        })
    }

    /// What the lanes of the device share.
    pub(crate) fn common(&self) -> &Arc<Common> {
        &self.common
    }

    /// For threads without the lock: whether completions were taken, or receives posted, since the counters were published.
    pub(crate) fn changed_without_lock(&self) -> Arc<AtomicBool> {
        self.statistics.changed_without_lock()
    }

    /// Whether something may be left to do when the lock is released. Usually nothing is. `others_sleep`: on the sockets.
    pub(crate) fn has_effects(&self, others_sleep: bool) -> bool {
        self.check.is_some()
            || self.host.device().has_observations()
            || self.has_problems()
            || self.has_capture_error()
            || !self.lane_messages.is_empty()
            || others_sleep && self.sleep == Sleep::Disturbed
    }

    /// Removes and returns what to tell other lanes.
    pub(crate) fn take_lane_messages(&mut self) -> Vec<LaneMessage> {
        std::mem::take(&mut self.lane_messages)
    }

    pub(crate) fn device_mut(&mut self) -> &mut Device {
        self.host.device_mut()
    }

    /// Who has used the groups of queues that this lane serves.
    pub(crate) fn uses(&mut self) -> &mut Uses {
        &mut self.uses
    }

    /// Sets the parts of the numbers that belong to the groups of queues.
    pub(crate) fn set_parts(&mut self, parts: Vec<NumberBlock>) {
        self.parts = Parts::new(parts);
    }

    /// The groups that got packets since the last call and can move to another lane, busiest first, if several got packets.
    pub(crate) fn busiest_groups(&mut self) -> Vec<usize> {
        self.parts.busiest(self.host.device())
    }

    /// Takes the queue pairs of a part of the numbers out of this lane, for another one. `channels` are those of their
    /// completion queues.
    pub(crate) fn give(
        &mut self,
        part: NumberBlock,
        channels: &[Arc<Notifier>],
    ) -> MovingQueuePairs {
        self.dispatch_events();
        for channel in channels {
            self.packet_wakeups.leave(channel);
        }
        self.sockets.give(part);
        self.note_call();
        self.device_mut().give(numbers_of(part))
    }

    /// Takes over queue pairs of another lane.
    pub(crate) fn adopt(&mut self, moving: MovingQueuePairs) {
        self.note_call();
        self.device_mut().adopt(moving);
        self.transmit(now());
    }

    /// The block of queue pair numbers, if parts of it can be given to other lanes.
    pub(crate) fn block(&self) -> Option<NumberBlock> {
        self.sockets.block().filter(|_| self.sockets.is_real())
    }

    /// Notes that the program calls the device, which may change objects.
    pub(crate) fn note_call(&mut self) {
        self.statistics.note_call();
    }

    /// Begins a call of the program that posts, or changes objects.
    #[inline]
    pub(crate) fn begin_call(&mut self) {
        // Other calls wait for the packets that they sent to this device.
        self.stop_delivery_to_self();
        self.note_call();
        self.device_mut().begin_posts();
    }

    /// Transmits what a call has caused.
    pub(crate) fn end_call(&mut self, now: &Now) -> AfterCall {
        self.transmit_at(now);
        AfterCall {
            next: self.next_deadline(),
            has_sent_to_self: self.has_sent_to_self(),
        }
    }

    /// Whether nothing is left to do after a post: it is executed, and no response waits for it. What else waits has a deadline, which
    /// the lane's thread keeps.
    #[inline]
    pub(crate) fn is_quiet(&self) -> bool {
        !self.has_unsent() && self.host.device().is_quiet()
    }

    /// Publishes the counters if that is due.
    pub(crate) fn publish_statistics(&mut self, now: &Now) {
        if self.statistics.is_due(now) {
            (self.statistics).publish(now.get(), &self.host, &self.sockets);
        }
    }

    /// When the counters must be published at the latest.
    pub(crate) fn statistics_deadline(&self) -> Option<Instant> {
        self.statistics.deadline(self.host.device())
    }

    /// The oldest completion that is there.
    pub(crate) fn poll_completion(&mut self, queue: &CompletionQueue) -> Option<Completion> {
        let mut completion = None;
        self.poll_completions(queue, 1, |it| completion = Some(it));
        completion
    }

    /// Passes at most `limit` completions to `take`. Returns how many.
    pub(crate) fn poll_completions(
        &mut self,
        queue: &CompletionQueue,
        limit: usize,
        mut take: impl FnMut(Completion),
    ) -> usize {
        let take = |completion| {
            #[cfg(feature = "tracing")]
            crate::trace::completion(&completion);
            take(completion);
        };
        let device = self.host.device_mut();
        let count = if device.records_observations() {
            let completions = device.poll_completions(queue.id());
            completions.take(limit).map(take).count()
        } else {
            let completions = std::iter::from_fn(|| queue.pop());
            completions.take(limit).map(take).count()
        };
        if count > 0 {
            self.statistics.note_call();
        }
        count
    }

    pub(crate) fn manager(&mut self) -> &mut Manager {
        self.host.manager()
    }

    pub(crate) fn cm_events(&mut self) -> &mut CmEvents {
        &mut self.cm_events
    }

    /// The tasks that wait for a time.
    #[cfg(feature = "async")]
    pub(crate) fn task_timers(&mut self) -> &mut TaskTimers {
        &mut self.task_timers
    }

    pub(crate) fn update_interfaces(&mut self, present: &[Interface]) {
        let is_active = self.cm_events.is_active(present);
        self.statistics.note_link(is_active);
        if is_active != (self.link == LinkState::Active) {
            self.link = if is_active {
                LinkState::Active
            } else {
                LinkState::Down
            };
            self.queue_event(if is_active {
                AsyncEvent::PortActive
            } else {
                AsyncEvent::PortError
            });
        }
        self.cm_events
            .update_interfaces(self.host.manager(), present);
    }

    /// Lets the watcher notify peers when this process dies.
    pub(crate) fn announce_exit(&mut self, watcher: &Arc<Watcher>) {
        self.exit_notices.start(watcher, &self.sockets);
    }

    /// Its way to its peers.
    pub(crate) fn port(&mut self) -> &mut Port {
        &mut self.sockets
    }

    /// Enables packet wake-ups for the program that waits on the descriptor of a channel.
    pub(crate) fn offer_packet_wakeups(&mut self, notifier: &Arc<Notifier>, expected: AtReadable) {
        let capture_and_faults = self.capture_and_faults.as_ref();
        let delays = capture_and_faults.is_some_and(CaptureAndFaults::may_delay_events);
        // A simulated network has no descriptors, and its clock stands still during a look before the wait.
        if delays || !self.sockets.is_real() {
            return;
        }
        let packets = || self.sockets.packets();
        self.packet_wakeups.offer(notifier, expected, packets);
    }

    /// Updates the packet wake-ups after the set of sockets has changed.
    pub(crate) fn renew_packet_wakeups(&mut self) {
        self.packet_wakeups.renew(|| self.sockets.packets());
        #[cfg(feature = "async")]
        if let Some(task_packets) = &mut self.task_packets
            && let Ok(packets) = self.sockets.packets()
        {
            task_packets.renew(packets);
        }
    }

    /// Whether packets wake an executor for its tasks.
    #[cfg(feature = "async")]
    pub(crate) fn packets_wake_tasks(&self) -> bool {
        let packets = self.task_packets.as_ref();
        packets.is_some_and(TaskPackets::is_used)
    }

    /// Lets packets wake an executor, unless they wake one. If the system has no descriptor left, the lane's thread wakes the tasks.
    #[cfg(feature = "async")]
    pub(crate) fn offer_packets_to_executor(&mut self) -> Option<&TaskPackets> {
        if self.packets_wake_tasks() || !self.sockets.is_real() {
            return None;
        }
        self.task_packets = None;
        let packets = TaskPackets::over(self.sockets.packets().ok()?).ok()?;
        Some(self.task_packets.insert(packets))
    }

    /// Whether the lane's thread leaves packets to a program that they wake.
    pub(crate) fn leaves_packets(&self) -> bool {
        #[cfg(feature = "async")]
        if self.packets_wake_tasks() {
            return true;
        }
        self.packet_wakeups.are_used()
    }

    fn take_packets(&mut self, now: Instant, scope: PollScope) -> usize {
        let Self {
            host,
            sockets,
            capture_and_faults,
            message,
            ..
        } = self;
        let arrived = sockets.receive(now, scope, &mut |it| {
            if let Some(position) = wire::position(it.packet) {
                // A message of one packet, or an acknowledgement, may arrive between the packets of a longer one.
                if position.ends() && !position.starts() {
                    *message = Message::Whole;
                } else if !position.ends() {
                    *message = Message::Part;
                }
            }
            if is_management(it.packet) && host.hold_for_lookup(&it.route, it.packet, it.forwarded)
            {
                return;
            }
            take(now, host, capture_and_faults.as_mut(), &it);
        });
        self.sleep = Sleep::Disturbed;
        self.arrivals += arrived as u64;
        self.find_owners(now);
        if let Some(capture_and_faults) = &mut self.capture_and_faults {
            capture_and_faults.release(now, &mut self.host, &mut self.sockets);
        }
        self.sockets.maintain(now);
        arrived
    }

    /// Forwards connection manager messages to the processes that own them, and handles this device's own.
    fn find_owners(&mut self, now: Instant) {
        while let Some(message) = self.host.poll_lookup(now) {
            let owner = if self.host.is_ours(message.recipient) {
                Owner::Here
            } else {
                self.sockets.forward(&message)
            };
            if let Some(ours) = self.host.finish_lookup(now, message, owner) {
                let capture_and_faults = self.capture_and_faults.as_mut();
                let packet = ReceivedPacket {
                    route: ours.route,
                    packet: &ours.packet,
                    shared: None,
                    has_icrc: true,
                    forwarded: false,
                };
                take(now, &mut self.host, capture_and_faults, &packet);
            }
        }
    }

    /// Sends all packets of the engine and dispatches its events.
    pub(crate) fn transmit(&mut self, now: Instant) {
        self.transmit_at(&now.into());
    }

    /// As [`transmit`](Self::transmit), and reads the time only if something depends on it. What is only done from time to
    /// time is left to the lane's thread otherwise.
    pub(crate) fn transmit_at(&mut self, now: &Now) {
        self.responses = Responses::Sent;
        if self.sockets.retry_backlog(now) && !self.sockets.is_congested() {
            self.device_mut().note_room();
        }
        self.transmit_messages(now);
        // Messages that wait for the log stay with the manager.
        while self.responses != Responses::Unpublished && self.has_cm_output() {
            let has_lanes = self.common.has_lanes();
            // Completions that other lanes have not received yet come before a disconnection, too.
            let hold = has_lanes || self.common.has_unpolled();
            let elsewhere =
                self.cm_events
                    .serve(now.get(), &mut self.host, &mut self.sockets, hold);
            if has_lanes {
                let messages = elsewhere.into_iter().map(LaneMessage::MoveToError);
                self.lane_messages.extend(messages);
                if self.cm_events.next_deadline().is_some() {
                    self.lane_messages.push(LaneMessage::Disconnecting);
                }
            }
            self.transmit_messages(now);
            // So do those for which there is no room, or no time. They are sent when packets that wait are.
            if self.sockets.is_congested() || self.deliver_more_at.is_some() {
                break;
            }
        }
        if let Some(capture_and_faults) = &mut self.capture_and_faults {
            capture_and_faults.flush();
        }
        self.publish_statistics(now);
        #[cfg(feature = "tracing")]
        crate::trace::retransmissions(&mut self.traced, self.host.device().counters());
    }

    /// Whether the connection manager has messages to send or events to deliver.
    pub(super) fn has_cm_output(&mut self) -> bool {
        self.cm_events.has_ended() || self.host.manager().has_output()
    }

    /// Registers the exit notice before the message leaves, because the process may die between the two.
    fn transmit_messages(&mut self, now: &Now) {
        self.exit_notices.update(self.host.manager(), &self.sockets);
        self.transmit_packets(now);
        self.dispatch_events();
    }

    fn transmit_packets(&mut self, now: &Now) {
        if self.host.device().may_transmit(now) {
            self.update_shortcut(now);
        }
        while !self.waits_for_publication()
            && let Some(transmit) = self.next_packets(now)
        {
            self.send(now.get(), &transmit);
        }
        let more = self.host.device().has_more_to_deliver();
        self.deliver_more_at = more.then(|| now.get());
    }

    /// Builds the next packets, where possible in the memory of their receiver. Captures and faults need them here.
    fn next_packets(&mut self, now: &Now) -> Option<Transmit> {
        let is_lent = !self.needs_own_packets();
        let mut room = self.sockets.shared_room(now, is_lent);
        (self.host).poll_transmit_shared(now, &mut self.outbox, &mut room)
    }

    fn needs_own_packets(&self) -> bool {
        #[cfg(feature = "tracing")]
        if crate::trace::wants_packets() {
            return true;
        }
        self.capture_and_faults.is_some()
    }

    /// Decides how packets to queue pairs of this machine travel. Before own ones overtake packets in the sockets,
    /// those are received. Captures and faults need every packet, with its ICRC.
    #[inline]
    pub(crate) fn update_shortcut(&mut self, now: &Now) {
        if let Some(in_memory) = self.shortcut.decide_if_due(now) {
            self.use_memory(now, in_memory);
        }
    }

    #[cold]
    fn use_memory(&mut self, now: &Now, in_memory: bool) {
        self.sockets.enable_shortcuts(in_memory);
        if self.capture_and_faults.is_some() {
            return;
        }
        if in_memory {
            self.empty_sockets(now.get());
        }
        self.host.device_mut().set_own_delivery(in_memory);
        self.host.device_mut().leave_out_icrc(in_memory);
    }

    fn send(&mut self, now: Instant, transmit: &Transmit) {
        if self.capture_and_faults.is_some() {
            // A post is before its packets in a capture.
            self.note_observations();
        }
        #[cfg(feature = "tracing")]
        crate::trace::sent(transmit, &self.outbox);
        if self
            .sockets
            .is_own(transmit.route.flow.destination, transmit.destination)
        {
            self.own_packets = OwnPackets::OnTheirWay;
            self.shortcut.note_needed();
        }
        if let Some(bytes) = transmit.shared_length {
            return self.sockets.commit(transmit, bytes);
        }
        // A packet that cannot be sent counts as lost: the protocol retransmits it.
        let sent = match &mut self.capture_and_faults {
            Some(capture_and_faults) => capture_and_faults.transmit(
                now,
                transmit,
                &mut self.outbox,
                self.host.device(),
                &mut self.sockets,
            ),
            None => self.sockets.send(now, transmit, &mut self.outbox),
        };
        if self.sockets.has_local_peer() {
            self.shortcut.note_needed();
        }
        if let Err(error) = sent {
            self.note_unsent(transmit, error);
        }
        if !self.sockets.segmentation() {
            self.host.device_mut().set_batch_limits(SINGLE);
        }
    }

    /// The next event that no fault holds back.
    fn next_event(&mut self) -> Option<Event> {
        let Some(capture_and_faults) = &mut self.capture_and_faults else {
            return self.host.poll_event();
        };
        if let Some(event) = capture_and_faults.poll_event() {
            return Some(event);
        }
        loop {
            let event = self.host.poll_event()?;
            if let Some(event) = capture_and_faults.pass(event) {
                return Some(event);
            }
        }
    }

    /// Dispatches all events. Threads and tasks are woken when the lock is released.
    pub(crate) fn dispatch_events(&mut self) -> Notified {
        let mut notified = Notified::default();
        while let Some(event) = self.next_event() {
            match event {
                Event::Completion(queue) => {
                    if let Some((notifier, token)) = self.common.channel(queue) {
                        notified.program |= notifier.is_waited_for_outside();
                        notifier.notify(token);
                        self.common.note_notified(queue);
                    }
                }
                Event::CompletionAdded(queue) => {
                    if let Some(waiting) = self.common.wait_set(queue) {
                        notified.tasks |= waiting.wake_all_later();
                    }
                }
                // The host of the first lane has told its own connection manager.
                Event::FirstPacket(number) => {
                    if self.rank == Rank::Other {
                        self.lane_messages.push(LaneMessage::Established(number));
                    }
                }
                Event::Async(event) => self.queue_event(event),
            }
        }
        notified
    }

    /// Arms a completion queue. Returns whether a program awaits the notification outside of the library,
    /// where no packet wakes it.
    pub(crate) fn arm(&mut self, queue: Id<CompletionQueue>, notify: Notify) -> bool {
        self.host.device_mut().arm(queue, notify);
        self.armed = Armed::NotPolled;
        let channel = self.common.channel(queue);
        channel.is_some_and(|(notifier, _)| notifier.needs_the_thread())
    }

    /// Reports that a program polls a completion queue. Disconnections wait until the completions before
    /// them are polled.
    pub(crate) fn note_polled(&mut self, queue: Id<CompletionQueue>) {
        if !self.common.note_polled(queue) {
            return;
        }
        if self.rank == Rank::First {
            self.release_disconnections();
        } else {
            self.lane_messages.push(LaneMessage::Polled);
        }
    }

    /// Delivers the disconnections that waited for completions before them.
    pub(crate) fn release_disconnections(&mut self) {
        self.cm_events.release_all();
        if self.cm_events.has_ended() {
            self.transmit(now());
        }
    }

    fn queue_event(&mut self, event: AsyncEvent) {
        #[cfg(feature = "tracing")]
        crate::trace::async_event(event);
        if let Some(capture) = &self.capture_and_faults {
            capture.note_event(event);
        }
        self.common.push_event(event);
    }

    /// Removes the notifier and the wait set of a completion queue. The caller drops the result after it has
    /// released the lock.
    pub(crate) fn remove_notifier(
        &mut self,
        queue: Id<CompletionQueue>,
    ) -> (Option<Arc<Notifier>>, impl Sized + use<>) {
        self.note_polled(queue);
        self.common.remove_waiters(queue)
    }

    /// Sends deferred responses and the packets that a fault holds back, because the device closes or the
    /// process exits.
    pub(crate) fn flush_before_exit(&mut self, now: Instant) {
        self.send_waiting(now);
        if let Some(capture_and_faults) = &mut self.capture_and_faults {
            capture_and_faults.send_delayed(now, &mut self.sockets);
        }
        self.sockets.flush_backlog(now);
        (self.statistics).publish(now, &self.host, &self.sockets);
    }

    /// Whether packets can pass through the port.
    pub(crate) fn is_port_active(&self) -> bool {
        let capture_and_faults = self.capture_and_faults.as_ref();
        self.link == LinkState::Active
            && !capture_and_faults.is_some_and(CaptureAndFaults::is_port_down)
    }

    pub(crate) fn capture_path(&self) -> Option<PathBuf> {
        self.capture_and_faults
            .as_ref()
            .and_then(CaptureAndFaults::capture_path)
    }

    pub(crate) fn has_capture_error(&self) -> bool {
        let capture_and_faults = self.capture_and_faults.as_ref();
        capture_and_faults.is_some_and(CaptureAndFaults::has_capture_error)
    }

    /// Why the capture has ended early. Returned once.
    pub(crate) fn take_capture_error(&mut self) -> Option<CaptureError> {
        self.capture_and_faults.as_mut()?.take_capture_error()
    }

    pub(crate) fn unused_faults(&self) -> Vec<String> {
        let capture_and_faults = self.capture_and_faults.as_ref();
        capture_and_faults.map_or_else(Vec::new, CaptureAndFaults::unused_faults)
    }

    pub(crate) fn poll_event(&mut self) -> Option<AsyncEvent> {
        let event = self.common.pop_event()?;
        self.host.device_mut().note_fetched(event);
        Some(event)
    }
}

impl Drop for LaneState {
    /// Sends what waits, and forwards requests for other processes that are still in the sockets.
    fn drop(&mut self) {
        self.publish();
        self.flush_before_exit(now());
        self.sockets.withdraw();
        self.step(now(), Intent::Before);
        (self.statistics).publish(now(), &self.host, &self.sockets);
        if let Some((check, findings)) = self.take_findings() {
            check.report(findings);
        }
        let capture_error = self.take_capture_error();
        capture_error.iter().for_each(report_capture_error);
        self.publish();
        if let Some(check) = &self.check
            && !self.sockets.is_cut_off()
        {
            check.close();
        }
    }
}

/// The configuration of the engine.
fn device_config(
    device: &net::socket::interface::Device,
    sockets: &Port,
    options: &OpenOptions,
    batch: BatchLimits,
) -> Result<Config, OpenError> {
    let window = window_for(sockets.receive_buffer());
    Ok(Config {
        gids: sockets.gids().to_vec(),
        active_mtu: device.active_mtu,
        numbers: sockets.numbers(),
        source_port: SourcePort::OfGid(sockets.source_ports()),
        batch,
        window,
        unreliable_burst: Some(window.max),
        held_lists: options.peers_to_tell(),
        incidents: options.explain,
        // A capture tells posts and completions.
        observations: options.check.is_some() || options.capture.is_some(),
        seed: random_seed()?,
        ..Config::default()
    })
}

const SINGLE: BatchLimits = BatchLimits {
    packets: 1,
    bytes: 65_000,
};

fn random_seed() -> Result<[u8; 32], OpenError> {
    let mut seed = [0; 32];
    here(|machine| machine.fill_random(&mut seed)).map_err(OpenError::of_system)?;
    Ok(seed)
}

/// Passes a packet to the host, through captures and faults.
fn take(
    now: Instant,
    host: &mut Host,
    capture_and_faults: Option<&mut CaptureAndFaults>,
    received: &ReceivedPacket<'_>,
) {
    let (route, packet) = (&received.route, received.packet);
    #[cfg(feature = "tracing")]
    crate::trace::received(received);
    match capture_and_faults {
        None if received.has_icrc => host.handle_datagram(now, route, packet),
        None => match received.shared {
            Some(shared) => host.handle_shared(now, route, packet, shared),
            None => host.handle_without_icrc(now, route, packet),
        },
        Some(intercept) if received.has_icrc => intercept.receive(now, route, packet, host),
        Some(intercept) => {
            let shared = received.shared.map(PayloadBytes::Shared);
            let mut packet = shared.unwrap_or(packet.into()).to_vec();
            IcrcGenerator::new().fill(&route.flow, packet.len().max(1), &mut packet);
            intercept.receive(now, route, &packet, host);
        }
    }
}

/// A window that fits into the receive buffer of the peer, which is assumed to be as large as ours. The
/// initial window leaves room for other senders.
///
/// The kernel counts up to twice the size of a packet.
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
