//! Measures bandwidth: sends as many messages as possible and measures the time.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::progress::Progress;
use super::queue_pairs::{Done, QueuePairs};
use super::stall_timer::StallTimer;
use super::test_parameters::Amount;
use super::throughput::{MessageCounts, rate};

/// Sends `amount` messages, and receives those of the peer meanwhile.
pub(super) fn send(
    queue_pairs: &QueuePairs,
    size: usize,
    amount: Amount,
    progress: &Progress,
) -> anyhow::Result<MessageCounts> {
    let mut pump = Pump::new(queue_pairs, size, Some(amount));
    let mut stall_timer = StallTimer::new();
    while pump.has_work() {
        pump.fill()?;
        if pump.drain()? {
            stall_timer.reset();
            progress.at(pump.meter.messages);
        } else {
            stall_timer.check()?;
        }
    }
    Ok(pump.flow())
}

/// How long a receiver waits for more messages when the sender has stopped.
const LAST_MESSAGES: Duration = Duration::from_millis(20);

/// The same where messages may be lost: the sender does not wait until they have arrived, and a poll finds none while another thread takes
/// them in. That thread may have to wait for a processor.
const LAST_UNRELIABLE_MESSAGES: Duration = Duration::from_millis(100);

/// Receives until `stop` is set, and also sends `amount`, if given. Returns at once if there is nothing to do: the caller
/// sleeps then, and does not take the CPU from the other side.
pub(super) fn serve(
    queue_pairs: &QueuePairs,
    size: usize,
    amount: Option<Amount>,
    stop: &AtomicBool,
) -> anyhow::Result<MessageCounts> {
    let mut pump = Pump::new(queue_pairs, size, amount);
    if amount.is_none() && queue_pairs.are_served_by_system() {
        return Ok(pump.flow());
    }
    let last_messages = if queue_pairs.parameters.counts_arrivals() {
        LAST_UNRELIABLE_MESSAGES
    } else {
        LAST_MESSAGES
    };
    let mut quiet_since = None;
    loop {
        pump.fill()?;
        if pump.drain()? || pump.has_work() || !stop.load(Ordering::Acquire) {
            quiet_since = None;
            continue;
        }
        if quiet_since.get_or_insert_with(Instant::now).elapsed() > last_messages {
            return Ok(pump.flow());
        }
    }
}

/// Keeps the send queues full and the completion queue empty.
struct Pump<'s> {
    queue_pairs: &'s QueuePairs,
    size: usize,
    /// When posting ends.
    end: Option<Instant>,
    /// One message of this many has a completion.
    signal_every: u32,
    connections: Vec<Load>,
    meter: Meter,
    arrivals: Meter,
}

/// The remaining work of one queue pair.
#[derive(Clone, Copy)]
struct Load {
    left: u64,
    outstanding: u32,
    unsignaled: u32,
}

impl<'s> Pump<'s> {
    fn new(queue_pairs: &'s QueuePairs, size: usize, amount: Option<Amount>) -> Self {
        let (connections, depth) = (
            queue_pairs.connections() as u64,
            queue_pairs.parameters.depth,
        );
        let messages = match amount {
            None => 0,
            Some(Amount::Messages(messages)) => messages,
            Some(Amount::Seconds(_)) => u64::MAX,
        };
        let load = |connection: u64| Load {
            left: messages / connections + u64::from(connection < messages % connections),
            outstanding: 0,
            unsignaled: 0,
        };
        let duration = amount.and_then(Amount::duration);
        Self {
            queue_pairs,
            size,
            end: duration.map(|duration| Instant::now() + duration),
            signal_every: (depth / 4).clamp(1, 64),
            connections: (0..connections).map(load).collect(),
            meter: Meter::new((messages / 10).max(u64::from(depth) * connections)),
            arrivals: Meter::new(u64::MAX),
        }
    }

    fn is_late(&self) -> bool {
        self.end.is_some_and(|end| Instant::now() >= end)
    }

    fn has_work(&self) -> bool {
        self.connections
            .iter()
            .any(|load| load.left > 0 || load.outstanding > 0)
    }

    /// Fills the send queue.
    fn fill(&mut self) -> anyhow::Result<()> {
        let late = self.is_late();
        for connection in 0..self.connections.len() {
            if late {
                self.finish(connection);
            }
            while self.connections[connection].left > 0
                && self.connections[connection].outstanding < self.queue_pairs.parameters.depth
            {
                self.meter.begin();
                self.post(connection)?;
            }
        }
        Ok(())
    }

    /// Ends a measurement by time. If the last requests have no completions, posts one more that has one.
    fn finish(&mut self, connection: usize) {
        let load = &mut self.connections[connection];
        load.left = u64::from(load.unsignaled > 0);
    }

    fn post(&mut self, connection: usize) -> anyhow::Result<()> {
        let load = &mut self.connections[connection];
        let messages = load.unsignaled + 1;
        let full = load.outstanding + 1 == self.queue_pairs.parameters.depth;
        let signaled = full || load.left == 1 || messages >= self.signal_every;
        self.queue_pairs
            .post(connection, self.size, signaled.then_some(messages))?;
        load.left -= 1;
        load.outstanding += 1;
        load.unsignaled = if signaled { 0 } else { messages };
        Ok(())
    }

    /// Polls completions. Returns whether there were any.
    fn drain(&mut self) -> anyhow::Result<bool> {
        const TURN: u32 = 32;
        let (mut received, mut has_sent) = (0, false);
        while received < TURN && !has_sent {
            match self.queue_pairs.next()? {
                None => break,
                Some(Done::Received) => {
                    self.arrivals.begin();
                    received += 1;
                }
                Some(Done::Sent {
                    connection,
                    messages,
                }) => {
                    self.connections[connection].outstanding -= messages;
                    let is_last = !self.has_work();
                    self.meter.count(messages, is_last);
                    has_sent = true;
                }
            }
        }
        // The clock is read once for all of them: in a virtual machine that may take longer than a message.
        if received > 0 {
            self.arrivals.count(received, true);
        }
        Ok(has_sent || received > 0)
    }

    fn flow(&self) -> MessageCounts {
        MessageCounts {
            messages: self.meter.messages,
            seconds: self.meter.seconds(),
            peak: self.meter.peak(),
            received: self.arrivals.messages,
            receive_seconds: self.arrivals.seconds(),
        }
    }
}

/// Measures the rate of messages.
struct Meter {
    messages: u64,
    begin: Option<Instant>,
    end: Option<Instant>,
    /// The current part: its messages so far, and its start.
    part: (u64, Option<Instant>),
    part_size: u64,
    /// Counts since the clock was last read.
    unread: u32,
    best: f64,
}

impl Meter {
    /// The maximum duration of a part.
    const MAX_PART_DURATION: Duration = Duration::from_millis(100);

    /// The clock is read at one of this many counts: in a virtual machine a reading may take as long as a message.
    const CLOCK_INTERVAL: u32 = 8;

    /// The number of messages in a part. The fastest part is the peak.
    fn new(part_size: u64) -> Self {
        Self {
            messages: 0,
            begin: None,
            end: None,
            part: (0, None),
            part_size,
            unread: 0,
            best: 0.0,
        }
    }

    fn begin(&mut self) {
        if self.begin.is_none() {
            self.begin = Some(Instant::now());
            self.part.1 = self.begin;
        }
    }

    /// Counts messages. The last ones end the measurement, as far as it is known that they are the last.
    fn count(&mut self, messages: u32, may_be_last: bool) {
        self.messages += u64::from(messages);
        self.part.0 += u64::from(messages);
        self.unread += 1;
        let is_needed = may_be_last || self.part.0 >= self.part_size;
        if is_needed || self.unread >= Self::CLOCK_INTERVAL {
            self.unread = 0;
            self.read_clock();
        }
    }

    fn read_clock(&mut self) {
        let now = Instant::now();
        self.end = Some(now);
        let Some(since) = self.part.1 else { return };
        let took = now - since;
        if self.part.0 >= self.part_size || took >= Self::MAX_PART_DURATION {
            self.best = self.best.max(rate(self.part.0, took.as_secs_f64()));
            self.part = (0, Some(now));
        }
    }

    fn seconds(&self) -> f64 {
        match (self.begin, self.end) {
            (Some(begin), Some(end)) => (end - begin).as_secs_f64(),
            _ => 0.0,
        }
    }

    /// The peak rate; at least the average, because a part may have been too short to count.
    fn peak(&self) -> f64 {
        self.best.max(rate(self.messages, self.seconds()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_is_read_at_some_counts_and_at_the_last() {
        let mut meter = Meter::new(u64::MAX);
        meter.begin();
        (1..Meter::CLOCK_INTERVAL).for_each(|_| meter.count(1, false));
        assert_eq!(meter.end, None);
        meter.count(1, false);
        assert!(meter.end.is_some());
        meter.count(1, false);
        assert_eq!(meter.unread, 1);
        meter.count(1, true);
        assert_eq!(meter.unread, 0);
        assert_eq!(meter.messages, u64::from(Meter::CLOCK_INTERVAL) + 2);
    }

    #[test]
    fn a_full_part_reads_the_clock_for_the_peak() {
        let mut meter = Meter::new(2);
        meter.begin();
        meter.count(2, false);
        assert!(meter.best > 0.0);
    }
}
