//! Observes all packets: how many times each was sent, and when.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

use wire::{Operation, Packet, Psn, Qpn, Syndrome, Transport};

use crate::CheckError;
use crate::network::PacketOutcome;

/// A queue pair of a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct HostQueuePair {
    /// The host's number.
    pub host: usize,
    /// The queue pair's number.
    pub queue_pair: Qpn,
}

/// The requests of one reliable queue pair, as observed on the network.
#[derive(Debug, Clone)]
pub struct Stream {
    mtu: usize,
    first: Option<Psn>,
    /// How many times each PSN was requested, counted from the first PSN.
    sent: Vec<u32>,
    /// How many RNR NAKs each PSN got.
    not_ready: BTreeMap<u32, u32>,
    /// Until when an RNR NAK forbids requests.
    hold_until: Duration,
    /// How many messages were sent, by message sequence number.
    messages: u32,
    /// How many PSNs are acknowledged, counted from the first.
    acknowledged: usize,
    /// The last message that the peer has granted a credit for.
    credit_limit: Option<u32>,
    /// How many PSNs arrived at the peer without a gap.
    arrived: usize,
    /// The requests that arrived after a gap, by their first PSN, with the PSN after them. The peer keeps them.
    ahead: BTreeMap<usize, usize>,
    /// Whether the peer has reported the first gap, and how many it has reported.
    in_gap: bool,
    gaps: u64,
    /// When packets between the two queue pairs were lost or corrupted.
    faults: Vec<Duration>,
    /// When the first and the last request packet was sent.
    first_sent: Option<Duration>,
    last_sent: Duration,
}

impl Stream {
    /// The largest number of transmissions of one packet.
    #[must_use]
    pub fn most_sent(&self) -> u32 {
        self.sent.iter().copied().max().unwrap_or(0)
    }

    /// The largest number of RNR NAKs for one PSN.
    #[must_use]
    pub fn most_not_ready(&self) -> u32 {
        self.not_ready.values().copied().max().unwrap_or(0)
    }

    /// How many packets between the two queue pairs were lost or corrupted since then.
    #[must_use]
    pub fn faults_since(&self, since: Duration) -> usize {
        self.faults.iter().filter(|&&at| at >= since).count()
    }

    /// When the first request packet was sent, if one was.
    #[must_use]
    pub fn first_sent(&self) -> Option<Duration> {
        self.first_sent
    }

    /// When the last request packet was sent.
    #[must_use]
    pub fn last_sent(&self) -> Duration {
        self.last_sent
    }

    /// C9-148: a message without a credit may be sent only when nothing else is in flight, to learn of
    /// new credits.
    fn has_credit(&mut self, packet: &Packet<'_>) -> bool {
        let begin = self.distance(packet.psn);
        let is_new = begin >= self.sent.len() && packet.opcode.position().starts();
        if !is_new {
            return true;
        }
        self.messages += 1;
        let takes_receive =
            packet.opcode.operation() == Operation::Send || packet.immediate().is_some();
        let beyond = self
            .credit_limit
            .is_some_and(|limit| Psn::new(self.messages).since(Psn::new(limit)) > 0);
        !takes_receive || !beyond || begin <= self.acknowledged
    }

    fn note_acknowledgement(&mut self, packet: &Packet<'_>) {
        let syndrome = packet
            .aeth()
            .map(|aeth| (aeth.syndrome(), aeth.message_sequence()));
        let end = match syndrome {
            Some((Syndrome::Acknowledge { credits }, completed)) => {
                self.credit_limit = credits.map(|count| completed + count);
                self.distance(packet.psn) + 1
            }
            Some(_) => self.distance(packet.psn),
            None => self.distance(packet.psn) + 1,
        };
        self.acknowledged = self.acknowledged.max(end);
    }

    /// The distance of a PSN from the first PSN.
    fn distance(&mut self, psn: Psn) -> usize {
        let first = *self.first.get_or_insert(psn);
        psn.ahead_of(first) as usize
    }

    /// The PSNs of a request. A read includes those of all its responses.
    fn extent(&mut self, packet: &Packet<'_>) -> Range<usize> {
        let begin = self.distance(packet.psn);
        let read = packet.opcode.operation() == Operation::ReadRequest;
        let span = packet.reth().filter(|_| read).map_or(1, |reth| {
            (reth.dma_length() as usize).div_ceil(self.mtu).max(1)
        });
        begin..begin + span
    }

    /// A request arrived at the peer. The peer reports a gap once: when a request arrives that is more than three PSNs behind
    /// it or requests an acknowledgement, or when the gap before it closes.
    fn note_arrival(&mut self, packet: &Packet<'_>) {
        let extent = self.extent(packet);
        if extent.start > self.arrived {
            self.ahead.insert(extent.start, extent.end);
            if packet.acknowledge || extent.start > self.arrived + 3 {
                self.note_gap();
            }
        } else if extent.start == self.arrived {
            self.arrived = extent.end;
            self.in_gap = false;
            let before = self.arrived;
            while let Some(kept) = self.ahead.first_entry()
                && *kept.key() <= self.arrived
            {
                let (start, end) = kept.remove_entry();
                if start == self.arrived {
                    self.arrived = end;
                }
            }
            if self.arrived != before && !self.ahead.is_empty() {
                self.note_gap();
            }
        }
    }

    fn note_gap(&mut self) {
        if !self.in_gap {
            self.in_gap = true;
            self.gaps += 1;
        }
    }

    fn count(&mut self, packet: &Packet<'_>) {
        let Range { start: begin, end } = self.extent(packet);
        // A PSN before the first one would be half the PSN space away. No stream is that long.
        if end < 1 << 20 {
            self.sent.resize(self.sent.len().max(end), 0);
            self.sent[begin..end]
                .iter_mut()
                .for_each(|count| *count += 1);
        }
    }
}

/// Observes every packet that is sent or arrives.
#[derive(Default)]
pub struct Tap {
    /// Whether to check that no request is sent before the RNR delay is over. This is possible only
    /// without loss and reordering.
    pub watches_receiver_not_ready: bool,
    /// Whether to check that senders respect the credits. This is possible only without loss and
    /// reordering, because otherwise the sender may not know the latest credits.
    pub watches_credits: bool,
    streams: Vec<Stream>,
    /// The stream of a queue pair's own requests.
    own: BTreeMap<HostQueuePair, usize>,
    /// The stream of the requests to a queue pair.
    incoming: BTreeMap<HostQueuePair, usize>,
}

impl Tap {
    /// The number of gaps in all streams.
    #[must_use]
    pub fn gaps(&self) -> u64 {
        self.streams.iter().map(|stream| stream.gaps).sum()
    }

    /// Observes the requests of `local` to `peer`; returns the index of their stream.
    pub fn follow(&mut self, local: HostQueuePair, peer: HostQueuePair, mtu: usize) -> usize {
        self.streams.push(Stream {
            mtu,
            first: None,
            sent: Vec::new(),
            not_ready: BTreeMap::new(),
            hold_until: Duration::ZERO,
            messages: 0,
            acknowledged: 0,
            credit_limit: None,
            arrived: 0,
            ahead: BTreeMap::new(),
            in_gap: false,
            gaps: 0,
            faults: Vec::new(),
            first_sent: None,
            last_sent: Duration::ZERO,
        });
        let stream = self.streams.len() - 1;
        self.own.insert(local, stream);
        self.incoming.insert(peer, stream);
        stream
    }

    /// A stream by its index.
    #[must_use]
    pub fn stream(&self, number: usize) -> &Stream {
        &self.streams[number]
    }

    /// A packet is sent to `destination`.
    pub fn sent(
        &mut self,
        now: Duration,
        destination: HostQueuePair,
        packet: &Packet<'_>,
        outcome: PacketOutcome,
    ) -> Result<(), CheckError> {
        if outcome.is_fault() {
            self.note_fault(now, destination);
        }
        if !matches!(packet.opcode.transport(), Transport::Rc | Transport::Xrc) {
            return Ok(());
        }
        if packet.opcode.is_response() {
            self.check_response(destination, packet)
        } else {
            self.check_request(now, destination, packet)
        }
    }

    fn check_request(
        &mut self,
        now: Duration,
        destination: HostQueuePair,
        packet: &Packet<'_>,
    ) -> Result<(), CheckError> {
        let Some(&stream) = self.incoming.get(&destination) else {
            return Ok(());
        };
        let stream = &mut self.streams[stream];
        if !stream.has_credit(packet) && self.watches_credits {
            return Err(CheckError::new(format!(
                "message {} was sent, though the peer has receives only up to {:?}: {packet}",
                stream.messages, stream.credit_limit
            )));
        }
        stream.count(packet);
        stream.first_sent.get_or_insert(now);
        stream.last_sent = now;
        if self.watches_receiver_not_ready && now < stream.hold_until {
            return Err(CheckError::new(format!(
                "a request was retransmitted {:?} before the delay that the receiver asked for ended: {packet}",
                stream.hold_until - now
            )));
        }
        Ok(())
    }

    /// A peer can't have completed more messages than were sent.
    fn check_response(
        &self,
        destination: HostQueuePair,
        packet: &Packet<'_>,
    ) -> Result<(), CheckError> {
        let (Some(&stream), Some(aeth)) = (self.own.get(&destination), packet.aeth()) else {
            return Ok(());
        };
        let sent = self.streams[stream].messages;
        if aeth.message_sequence() > sent {
            Err(CheckError::new(format!(
                "more messages were completed than the {sent} that were sent: {packet}"
            )))
        } else {
            Ok(())
        }
    }

    fn note_fault(&mut self, now: Duration, destination: HostQueuePair) {
        for streams in [&self.own, &self.incoming] {
            if let Some(&stream) = streams.get(&destination) {
                self.streams[stream].faults.push(now);
            }
        }
    }

    /// An intact packet arrives at `destination`.
    pub fn arrived(&mut self, now: Duration, destination: HostQueuePair, packet: &Packet<'_>) {
        if !packet.opcode.is_response() {
            if let Some(&stream) = self.incoming.get(&destination) {
                self.streams[stream].note_arrival(packet);
            }
            return;
        }
        let Some(&stream) = self.own.get(&destination) else {
            return;
        };
        let stream = &mut self.streams[stream];
        stream.note_acknowledgement(packet);
        let Some(Syndrome::ReceiverNotReady(timer)) = packet.aeth().map(wire::Aeth::syndrome)
        else {
            return;
        };
        *stream.not_ready.entry(packet.psn.value()).or_default() += 1;
        // A second RNR NAK does not extend the delay.
        if now >= stream.hold_until {
            stream.hold_until = now + timer.delay();
        }
    }
}
