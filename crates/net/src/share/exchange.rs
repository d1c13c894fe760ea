//! What comes to a member, and what it sends.

use std::io;
use std::time::{Duration, Instant};

use wire::Qpn;

use super::block::NumberBlock;
use super::mailbox::{HEADING, Letter as Received, MAX_LETTER, letter, print, unpack};
use super::member::Member;
use super::outbox::Letter;
use super::probe::Probe;
use super::shortcut::Shortcuts;
use super::steering::MAX_MEMBERS;
use crate::socket::{Batch, Envelope, Inbox, SendError};

/// How often the mailbox is looked into: every so many calls of [`Member::receive`]. It is nearly
/// always empty, and asking costs a system call.
const MAILBOX_TURNS: u32 = 16;

/// How many batches are taken from the mailbox at a time.
const MAILBOX_BATCH: usize = 32;

/// No socket holds more datagrams, even of the smallest.
const FULL_SOCKET: usize = 1 << 14;

/// A packet that has arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Arrived<'p> {
    /// Where it came from, as far as the sockets tell.
    pub envelope: Envelope,
    /// Its bytes, from the BTH on.
    pub packet: &'p [u8],
    /// Whether another member got it first, and decided that it is for us.
    pub forwarded: bool,
}

impl Member {
    /// Lets packets go past the kernel, through memory, to and from other processes of this user and
    /// machine that allow it too.
    pub fn allow_shortcuts(&mut self) {
        self.shortcuts = Some(Box::new(Shortcuts::new(self.process)));
    }

    /// Sends packets of `segment_size` bytes each; see [`Sender::send`](crate::socket::Sender::send).
    pub fn send(
        &mut self,
        envelope: &Envelope,
        segment_size: usize,
        bytes: &mut [u8],
    ) -> Result<(), SendError> {
        match self.sent_by_shortcut(envelope, segment_size, bytes) {
            true => Ok(()),
            false => self.sender.send(envelope, segment_size, bytes),
        }
    }

    fn sent_by_shortcut(&mut self, envelope: &Envelope, segment_size: usize, bytes: &[u8]) -> bool {
        let Some(shortcuts) = &mut self.shortcuts else {
            return false;
        };
        let number = destination(bytes).filter(|number| !NumberBlock::is_shared(*number));
        let Some(number) = number else {
            return false;
        };
        let address = envelope.flow.destination;
        let to_us = address == self.address && self.block.contains(number);
        if to_us || HEADING + bytes.len() > MAX_LETTER {
            return false;
        }
        let mut seen = *envelope;
        if seen.hop_limit == 0 {
            seen.hop_limit = Envelope::DEFAULT_HOP_LIMIT;
        }
        let heading = print(&seen, segment_size);
        let (registry, mailbox) = (&self.registry, &self.mailbox);
        let sent = shortcuts.send((address, number), &heading, bytes, registry, mailbox);
        if sent {
            self.counters.by_shortcut += bytes.len().div_ceil(segment_size) as u64;
        }
        sent
    }

    /// Takes what has arrived, and passes on what is not ours. Never waits.
    ///
    /// `take` gets every packet for our own queue pairs, for queue pair 1, for multicast, and what
    /// is too short to tell. How many it got is returned.
    pub fn receive(
        &mut self,
        now: Instant,
        inbox: &mut Inbox,
        mut take: impl FnMut(Arrived<'_>),
    ) -> io::Result<usize> {
        self.tell_time(now);
        let mut taken = self.receive_from_socket(inbox, &mut take)?.packets;
        taken += self.receive_by_shortcut(inbox, &mut take)?;
        if !self.outbox.is_empty() {
            self.empty_outbox();
        }
        self.turn = self.turn.wrapping_add(1);
        if self.turn.is_multiple_of(MAILBOX_TURNS) {
            taken += self.empty_mailbox(inbox, &mut take)?;
        }
        self.look_around_if_urgent(now);
        Ok(taken)
    }

    /// The next [`receive`](Self::receive) looks into the mailbox, too. Otherwise it does so now and then.
    pub fn look_into_mailbox(&mut self) {
        self.turn = MAILBOX_TURNS - 1;
    }

    /// As [`receive`](Self::receive), for who looks again and again, and now and then with that: where
    /// packets come through memory, looking there costs no system call.
    pub fn glance(
        &mut self,
        now: Instant,
        inbox: &mut Inbox,
        mut take: impl FnMut(Arrived<'_>),
    ) -> io::Result<usize> {
        match self.has_shortcuts() {
            true => {
                self.tell_time(now);
                self.receive_by_shortcut(inbox, &mut take)
            }
            false => self.receive(now, inbox, take),
        }
    }

    pub(super) fn tell_time(&mut self, now: Instant) {
        if let Some(shortcuts) = &mut self.shortcuts {
            shortcuts.tell_time(now);
        }
    }

    /// Whether anybody sends to us past the kernel.
    pub fn has_shortcuts(&self) -> bool {
        let shortcuts = self.shortcuts.as_ref();
        shortcuts.is_some_and(|shortcuts| shortcuts.has_sources())
    }

    /// Before sleeping on [`fds`](Self::fds): whether there is something to receive after all.
    pub fn prepare_sleep(&mut self) -> bool {
        let shortcuts = self.shortcuts.as_mut();
        shortcuts.is_some_and(|shortcuts| shortcuts.prepare_sleep())
    }

    fn receive_from_socket(
        &mut self,
        inbox: &mut Inbox,
        take: &mut impl FnMut(Arrived<'_>),
    ) -> io::Result<Haul> {
        let mut haul = Haul::default();
        for batch in self.receiver.receive(inbox)? {
            haul.datagrams += 1;
            haul.packets += self.sort_out(&batch, take);
        }
        Ok(haul)
    }

    /// Takes everything that is in the socket now; how many packets were for us.
    fn empty_socket(
        &mut self,
        inbox: &mut Inbox,
        take: &mut impl FnMut(Arrived<'_>),
    ) -> io::Result<usize> {
        let mut taken = 0;
        // Who floods us does not keep us here for ever.
        for _ in 0..FULL_SOCKET {
            let haul = self.receive_from_socket(inbox, take)?;
            taken += haul.packets;
            if haul.datagrams == 0 {
                break;
            }
        }
        Ok(taken)
    }

    fn receive_by_shortcut(
        &mut self,
        inbox: &mut Inbox,
        take: &mut impl FnMut(Arrived<'_>),
    ) -> io::Result<usize> {
        let Some(mut shortcuts) = self.shortcuts.take() else {
            return Ok(0);
        };
        let mut taken = 0;
        if shortcuts.has_news() {
            // A socket that fails has nothing older.
            taken += self.empty_socket(inbox, take).unwrap_or(0);
        }
        shortcuts.receive(|letter| {
            if let Some(batch) = unpack(letter) {
                taken += self.sort_out(&batch, take);
            }
        });
        let woken = shortcuts.was_woken();
        self.shortcuts = Some(shortcuts);
        if woken {
            taken += self.empty_mailbox(inbox, take)?;
        }
        Ok(taken)
    }

    /// Hands a packet to the member that owns a block. It takes it as if it had just arrived.
    ///
    /// What does not fit into its mailbox waits; if it has died the packet is lost, and counted.
    pub fn forward_to(&mut self, owner: NumberBlock, envelope: &Envelope, packet: &[u8]) {
        let batch = Batch {
            envelope: *envelope,
            segment_size: packet.len(),
            bytes: packet,
        };
        self.hand_over(owner, 1, &batch);
    }

    /// Hands a packet to all other members, as far as the copies of the last second allow: one packet
    /// from anywhere must not cost as many as there are members, again and again.
    pub fn forward_to_others(&mut self, now: Instant, envelope: &Envelope, packet: &[u8]) {
        let others = self.others().unwrap_or_default();
        let copies = self.copies.take(now, others.len());
        for owner in others.into_iter().take(copies) {
            self.forward_to(owner, envelope, packet);
        }
    }

    /// Takes what is ours from a batch, and passes on the rest.
    fn sort_out(&mut self, batch: &Batch<'_>, take: &mut impl FnMut(Arrived<'_>)) -> usize {
        let mut taken = 0;
        let mut rest = *batch;
        while let Some(packet) = rest.packets().next() {
            let length = match sort(packet, self.block) {
                Kind::Ours => {
                    take(Arrived {
                        envelope: batch.envelope,
                        packet,
                        forwarded: false,
                    });
                    taken += 1;
                    packet.len()
                }
                Kind::Probe(probe) => {
                    self.note_probe(probe);
                    packet.len()
                }
                // Only the first packet of a batch was steered.
                Kind::Stray(number) => match self.owner_of_intact(number, &rest) {
                    Some(owner) => {
                        self.pass_on(owner, &rest, rest.bytes.len() == batch.bytes.len())
                    }
                    None => {
                        self.counters.strays_lost += 1;
                        packet.len()
                    }
                },
            };
            rest.bytes = &rest.bytes[length..];
        }
        taken
    }

    /// Who owns the first packet of a batch. What is not intact costs nobody anything more.
    fn owner_of_intact(&mut self, number: Qpn, batch: &Batch<'_>) -> Option<NumberBlock> {
        let packet = batch.packets().next()?;
        let intact = self.checker.check(&batch.envelope.flow, packet).is_ok();
        intact.then(|| self.owner_of(number)).flatten()
    }

    /// Hands over as many packets at the front of a batch as have the same owner: how many bytes.
    fn pass_on(&mut self, owner: NumberBlock, batch: &Batch<'_>, steered: bool) -> usize {
        let (block, checker) = (self.block, &mut self.checker);
        let run = batch.packets().take_while(|packet| {
            matches!(sort(packet, block), Kind::Stray(it) if owner.contains(it))
                && checker.check(&batch.envelope.flow, packet).is_ok()
        });
        let (packets, length) = run.fold((0, 0), |(count, bytes), packet| {
            (count + 1, bytes + packet.len())
        });
        let bytes = &batch.bytes[..length];
        let lost = self.hand_over(owner, packets, &Batch { bytes, ..*batch });
        if steered || lost {
            self.repair.suspect(owner);
        }
        length
    }

    /// Puts packets into their owner's mailbox, or keeps them while it is full; whether something
    /// was lost because an owner is gone.
    fn hand_over(&mut self, owner: NumberBlock, packets: u64, batch: &Batch<'_>) -> bool {
        let kept = self.outbox.push(Letter {
            owner,
            packets,
            bytes: letter(batch),
        });
        self.counters.strays_lost += kept.lost;
        self.empty_outbox()
    }

    /// Delivers what waits for other members; whether something was lost because an owner is gone.
    pub(super) fn empty_outbox(&mut self) -> bool {
        let outcome = self.outbox.flush(|letter| {
            let path = self.registry.mailbox(letter.owner);
            self.mailbox.bring(&path, &letter.bytes)
        });
        self.counters.strays_forwarded += outcome.delivered;
        self.counters.strays_lost += outcome.lost;
        outcome.lost > 0
    }

    fn empty_mailbox(
        &mut self,
        inbox: &mut Inbox,
        take: &mut impl FnMut(Arrived<'_>),
    ) -> io::Result<usize> {
        let mut taken = 0;
        for _ in 0..MAILBOX_BATCH {
            match self.mailbox.next()? {
                Some(Received::Packets(batch)) => {
                    let (envelope, segment_size) = (batch.envelope, batch.segment_size);
                    let bytes = batch.bytes.to_vec();
                    // A packet that its sender sent before this one is in the socket already.
                    taken += self.empty_socket(inbox, take).unwrap_or(0);
                    let batch = Batch {
                        envelope,
                        segment_size,
                        bytes: &bytes,
                    };
                    taken += self.take_forwarded(&batch, take);
                }
                Some(Received::Offer(offer)) => {
                    if let Some(shortcuts) = &mut self.shortcuts {
                        shortcuts.accept(&offer);
                    }
                }
                Some(Received::Knock) => {}
                Some(Received::Inspect) => {
                    // What can't be done now is done at the next inspection.
                    let _ = self.inspect(Instant::now());
                }
                None => break,
            }
        }
        Ok(taken)
    }

    /// What is not ours was forwarded by a stale table: passing it on again could go on for ever.
    fn take_forwarded(&mut self, batch: &Batch<'_>, take: &mut impl FnMut(Arrived<'_>)) -> usize {
        let mut taken = 0;
        for packet in batch.packets() {
            self.counters.forwarded_to_us += 1;
            if matches!(sort(packet, self.block), Kind::Ours) {
                take(Arrived {
                    envelope: batch.envelope,
                    packet,
                    forwarded: true,
                });
                taken += 1;
            }
        }
        taken
    }
}

/// How many copies of packets may still be made.
#[derive(Debug, Default)]
pub(super) struct Copies {
    made: usize,
    since: Option<Instant>,
}

impl Copies {
    /// In each second: one packet for as many members as there may be.
    const MOST: usize = MAX_MEMBERS;
    const PERIOD: Duration = Duration::from_secs(1);

    /// How many of so many may be made.
    fn take(&mut self, now: Instant, wanted: usize) -> usize {
        let over = |since: Instant| now.saturating_duration_since(since) >= Self::PERIOD;
        if self.since.is_none_or(over) {
            self.since = Some(now);
            self.made = 0;
        }
        let granted = wanted.min(Self::MOST - self.made);
        self.made += granted;
        granted
    }
}

/// What a look at the socket brought.
#[derive(Default)]
struct Haul {
    datagrams: usize,
    /// How many of the packets in them were for us.
    packets: usize,
}

/// What a datagram is to us.
enum Kind {
    Ours,
    Probe(Probe),
    /// For another member, or for nobody.
    Stray(Qpn),
}

#[inline]
fn sort(packet: &[u8], own: NumberBlock) -> Kind {
    let Some(destination) = destination(packet) else {
        return Kind::Ours;
    };
    if own.contains(destination) {
        return Kind::Ours;
    }
    if NumberBlock::is_shared(destination) {
        return Probe::parse(packet).map_or(Kind::Ours, Kind::Probe);
    }
    Kind::Stray(destination)
}

/// The queue pair that a packet is for; nothing if it is too short to tell.
#[inline]
fn destination(packet: &[u8]) -> Option<Qpn> {
    let &[_, _, _, _, _, high, middle, low] = packet.first_chunk::<8>()?;
    Some(Qpn::new(u32::from_be_bytes([0, high, middle, low])))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_are_counted_for_a_second() {
        let mut copies = Copies::default();
        let begin = Instant::now();
        let later = |milliseconds| begin + Duration::from_millis(milliseconds);
        assert_eq!(copies.take(later(0), 1500), 1500);
        assert_eq!(copies.take(later(1), 1500), Copies::MOST - 1500);
        assert_eq!(copies.take(later(999), 1), 0);
        assert_eq!(copies.take(later(1000), 7), 7);
    }
}
