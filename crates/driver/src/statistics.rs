//! Publishes the counters of a lane, for other processes.
//!
//! Each lane has a statistics page. The thread that holds its lock copies the counters into the statistics page, at most every
//! 10 ms. If no thread calls the device after a change, its thread does it [later](latest_publication).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use engine::{CompletionQueue, Device, Id, Now, QueuePair, QueuePairType};
use host::Host;
use net::sharing::{PageOwner, StatisticsPage};
use net::socket::interface::LinkState;
use statistics::{
    DEVICE_COUNTERS, DeviceCounters, Level, MessageCounter, ObjectCounts, PacketPath,
    QueuePairRecord,
};
use wire::{Gid, PathMtu};

use crate::clock::now;
use crate::fabric::{Port, here};
use crate::times::{LONG, RECHECK};

/// When a change must be published if the device is not used any more. It wakes the lane's thread.
pub(crate) fn latest_publication(change: Instant) -> Instant {
    change + 2 * RECHECK
}

/// What a lane publishes.
pub(crate) struct Statistics {
    /// `None` in a simulation, or if no file can be created. Then other processes see nothing of this device.
    page: Option<StatisticsPage>,
    opened_at: Instant,
    /// When the page was last written.
    published_at: Option<Instant>,
    /// The sum of what had happened then.
    published: u64,
    /// How often the device was called.
    calls: u64,
    /// Whether completions were taken, or receives posted, without the lock since the page was last written.
    changed_without_lock: Arc<AtomicBool>,
    /// How many packets the system refused to send.
    pub(crate) send_errors: u64,
    /// How often all interfaces of the device went down.
    link_downed: u64,
    link_up: bool,
}

impl Statistics {
    /// For the lane of an open device that has this number in its process.
    pub(crate) fn new(device: &net::socket::interface::Device, context: u32, lane: usize) -> Self {
        let page = device.gids.first().and_then(|first| {
            let gid: Gid = first.gid;
            let owner = PageOwner {
                name: &device.name,
                gid: gid.bytes(),
                context,
                lane: lane as u32,
            };
            here(|machine| machine.statistics_page(owner))
        });
        Self {
            page,
            opened_at: now(),
            published_at: None,
            published: 0,
            calls: 0,
            changed_without_lock: Arc::default(),
            send_errors: 0,
            link_downed: 0,
            link_up: device.state == LinkState::Active,
        }
    }

    /// The flag that tells it that completions were taken, or receives posted, without the lock.
    pub(crate) fn changed_without_lock(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.changed_without_lock)
    }

    /// Notes that objects of the device may have changed.
    pub(crate) fn note_call(&mut self) {
        self.calls += 1;
    }

    /// Notes whether one of the device's interfaces is up.
    pub(crate) fn note_link(&mut self, up: bool) {
        self.link_downed += u64::from(self.link_up && !up);
        self.link_up = up;
    }

    /// A number that changes with everything that is published.
    fn activity(&self, device: &Device) -> u64 {
        let counters = device.counters();
        let packets = counters.packets_sent + counters.packets_received;
        let changed_without_lock = u64::from(self.changed_without_lock.load(Ordering::Acquire));
        packets
            + counters.timeouts
            + self.calls
            + self.send_errors
            + self.link_downed
            + changed_without_lock
    }

    /// When the page must be written at the latest.
    pub(crate) fn deadline(&self, device: &Device) -> Option<Instant> {
        let changed = self.page.is_some() && self.activity(device) != self.published;
        self.published_at
            .filter(|_| changed)
            .map(latest_publication)
    }

    /// Whether the last writing is long enough ago, as far as the time is known. This is checked for each packet.
    #[inline]
    pub(crate) fn is_due(&self, now: &Now) -> bool {
        // Copying a hundred queue pairs takes some microseconds.
        let is_old = |at: Instant| now.known().is_some_and(|now| now >= at + 10 * LONG);
        self.page.is_some() && self.published_at.is_none_or(is_old)
    }

    /// Writes the page.
    pub(crate) fn publish(&mut self, now: Instant, host: &Host, sockets: &Port) {
        let device = host.device();
        self.calls += u64::from(self.changed_without_lock.swap(false, Ordering::AcqRel));
        let activity = self.activity(device);
        let Some(page) = &mut self.page else { return };
        self.published_at = Some(now);
        if activity == self.published {
            return;
        }
        self.published = activity;
        let own = [self.send_errors, self.link_downed];
        // Queue pair 1 is the last. Programs do not see it.
        let numbered = device.queue_pairs().filter(|it| is_visible(it));
        let records = numbered.map(|queue_pair| record(device, queue_pair, sockets));
        let count = device.queue_pair_count().saturating_sub(1);
        let time = now.saturating_duration_since(self.opened_at);
        let time = time.as_nanos() as u64;
        page.write(time, &values(host, own), &objects(host), count, records);
    }
}

fn is_visible(queue_pair: &QueuePair) -> bool {
    queue_pair.init().kind != QueuePairType::Management
}

/// The counters of the engine, those of the driver and those of the connection manager, in the order of the page.
fn values(host: &Host, own: [u64; 2]) -> DeviceCounters {
    let mut values = DeviceCounters([0; DEVICE_COUNTERS.len()]);
    let engine = host.device().counters().iter().map(|(_, value)| value);
    for (place, value) in values.0.iter_mut().zip(engine.chain(own)) {
        *place = value;
    }
    let messages = host.connection_counters();
    for (counter, messages) in [
        (MessageCounter::Sent, messages.sent),
        (MessageCounter::Retransmitted, messages.retransmitted),
        (MessageCounter::Received, messages.received),
        (MessageCounter::Duplicates, messages.duplicates),
    ] {
        values.set_messages(counter, messages.iter());
    }
    values
}

/// The numbers of the program's objects, in the order of the page.
fn objects(host: &Host) -> ObjectCounts {
    let counts = host.device().object_counts();
    ObjectCounts([
        counts.domains,
        counts.completion_queues,
        counts.regions,
        counts.shared_receive_queues,
        host.connection_id_count() as i64,
    ])
}

fn record(device: &Device, queue_pair: &QueuePair, sockets: &Port) -> QueuePairRecord {
    let peer = queue_pair.peer();
    let mut counters = [0; _];
    for (place, (_, value)) in counters.iter_mut().zip(queue_pair.counters().iter()) {
        *place = value;
    }
    let (init, usage) = (queue_pair.init(), queue_pair.usage());
    QueuePairRecord {
        number: queue_pair.number().value(),
        kind: kind_number(init.kind),
        state: queue_pair.state() as u8,
        path: peer.map_or(PacketPath::None, |peer| {
            sockets.packet_path(peer.address, peer.queue_pair)
        }),
        path_mtu: (queue_pair.attributes().path_mtu).map_or(0, PathMtu::code),
        peer_number: peer.map_or(0, |peer| peer.queue_pair.value()),
        peer_gid: peer.map_or([0; 16], |peer| Gid::from(peer.address).bytes()),
        sends: Level {
            used: usage.outstanding_sends,
            capacity: init.max_sends,
        },
        receives: receives(device, queue_pair),
        window: Level {
            used: usage.unacknowledged,
            capacity: usage.window,
        },
        send_completions: completions(device, init.send_completions),
        receive_completions: completions(device, init.receive_completions),
        present_timeouts: usage.timeouts,
        waits_for_receiver: usage.waits_for_receiver,
        counters,
    }
}

fn receives(device: &Device, queue_pair: &QueuePair) -> Level {
    let init = queue_pair.init();
    let shared = init.shared_receive;
    match shared.and_then(|id| device.shared_receive_queue(id)) {
        Some(queue) => Level {
            used: queue.len() as u32,
            capacity: queue.capacity(),
        },
        None => Level {
            used: queue_pair.usage().posted_receives,
            capacity: init.max_receives,
        },
    }
}

fn completions(device: &Device, queue: Id<CompletionQueue>) -> Level {
    let queue = device.completion_queue(queue);
    queue.map_or_else(Level::default, |queue| Level {
        used: queue.len() as u32,
        capacity: queue.capacity(),
    })
}

/// The numbers of `ibv_qp_type`.
fn kind_number(kind: QueuePairType) -> u8 {
    match kind {
        QueuePairType::Management => 1,
        QueuePairType::Rc => 2,
        QueuePairType::Uc => 3,
        QueuePairType::Ud => 4,
        QueuePairType::XrcInitiator => 9,
        QueuePairType::XrcTarget => 10,
    }
}

#[cfg(test)]
mod tests {
    use engine::{Counters, QueuePairCounters};
    use statistics::QUEUE_PAIR_COUNTERS;

    use super::*;
    use crate::driver::connected_end::End;

    #[test]
    fn the_page_has_no_record_of_queue_pair_1() {
        let end = End::without_thread("127.58.91.50");
        let mut state = end.driver.lane().lock();
        let recorded = state.device_mut().queue_pairs().filter(|it| is_visible(it));
        let numbers: Vec<_> = recorded.map(QueuePair::number).collect();
        assert_eq!(numbers, [end.number]);
    }

    #[test]
    fn the_page_has_the_engines_counters_in_their_order() {
        let engine = Counters::default();
        let names = engine.iter().map(|(name, _)| name);
        let names: Vec<_> = names.chain(["send_errors", "link_downed"]).collect();
        assert_eq!(names, DEVICE_COUNTERS[..names.len()]);
        let next = DEVICE_COUNTERS[names.len()];
        assert_eq!(next, "cm_sent_req", "the messages follow");
        let queue_pair = QueuePairCounters::default();
        let names: Vec<_> = queue_pair.iter().map(|(name, _)| name).collect();
        assert_eq!(names, QUEUE_PAIR_COUNTERS);
    }
}
