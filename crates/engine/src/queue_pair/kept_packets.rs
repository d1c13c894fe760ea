//! Packets that arrived before an earlier one, kept until that one arrives.
//!
//! A peer that discards them must get all of them again for each packet that is lost or late. Kept packets are not executed,
//! so all effects stay in order, and the peer can't tell the difference, except that an acknowledgement covers more than it
//! has sent again.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use wire::{HeldPackets, ICRC_LENGTH, Operation, Packet, Psn, held};

/// How many bytes a queue pair keeps at most. The largest send window fits: see `window`.
pub(super) const MAX_KEPT_BYTES: usize = 16 << 20;

/// How many bytes all queue pairs of a device keep at most, with overhead: peers with many connections can't make them keep
/// more. A peer that repairs needs little of this for a short time.
const MAX_KEPT_TOTAL: usize = 64 << 20;

/// What a kept packet needs besides its bytes.
const OVERHEAD: usize = size_of::<Kept>() + 16;

/// How far beyond the expected packet one may be that is kept. A packet of an earlier connection is farther away, unless its
/// PSNs were near by chance.
pub(super) const MAX_KEPT_AHEAD: u32 = 1 << 15;

/// A gap is reported when a packet this far beyond it arrives, or one that requests an acknowledgement. Networks with several
/// paths reorder neighbours; TCP waits for as many.
pub(super) const REORDERING: i32 = 3;

/// The kept packets of one direction, in the order of their PSNs.
#[derive(Debug, Default)]
pub(super) struct KeptPackets {
    packets: VecDeque<Kept>,
    bytes: usize,
    share: Share,
}

/// How many bytes the queue pairs of a device keep, with overhead.
#[derive(Debug, Default)]
pub(crate) struct KeptTotal(AtomicUsize);

/// The limit of the device is reached. All its queue pairs must drop what they keep, because some may keep it for ever. Their
/// peers send it again.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct DeviceFull;

/// The part of the total that belongs to one direction of a queue pair.
#[derive(Debug, Default)]
struct Share {
    bytes: usize,
    total: Option<Arc<KeptTotal>>,
}

impl Share {
    fn grow(&mut self, bytes: usize, total: &Arc<KeptTotal>) -> Result<(), DeviceFull> {
        if total.0.load(Ordering::Relaxed) + bytes > MAX_KEPT_TOTAL {
            return Err(DeviceFull);
        }
        let total = self.total.get_or_insert_with(|| Arc::clone(total));
        total.0.fetch_add(bytes, Ordering::Relaxed);
        self.bytes += bytes;
        Ok(())
    }

    fn shrink(&mut self, bytes: usize) {
        self.bytes -= bytes;
        if let Some(total) = &self.total {
            total.0.fetch_sub(bytes, Ordering::Relaxed);
        }
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.shrink(self.bytes);
    }
}

#[derive(Debug)]
pub(super) struct Kept {
    psn: Psn,
    /// How many PSNs it takes.
    span: u32,
    /// A datagram without ICRC.
    datagram: Vec<u8>,
}

impl Kept {
    /// The packet.
    pub(super) fn packet(&self) -> Packet<'_> {
        Packet::parse(&self.datagram).expect("it was built from a parsed packet")
    }

    /// Whether it gives its place to another packet with its PSN. An acknowledgement of a READ has the PSN of a response with data, and
    /// says nothing that the data does not.
    fn gives_way_to(&self, packet: &Packet<'_>) -> bool {
        self.packet().opcode.operation() == Operation::Acknowledge
            && packet.opcode.operation() != Operation::Acknowledge
    }
}

impl KeptPackets {
    pub(super) fn is_empty(&self) -> bool {
        self.packets.is_empty()
    }

    /// Keeps a packet that takes `span` PSNs, unless it is kept already or a limit is reached.
    pub(super) fn keep(
        &mut self,
        packet: &Packet<'_>,
        span: u32,
        expected: Psn,
        total: &Arc<KeptTotal>,
    ) -> Result<(), DeviceFull> {
        let length = packet.length();
        let is_near = packet.psn.ahead_of(expected) < MAX_KEPT_AHEAD;
        if !is_near || self.bytes + length > MAX_KEPT_BYTES {
            return Ok(());
        }
        let is_before = |kept: &Kept| kept.psn.since(packet.psn) < 0;
        let index = self.packets.partition_point(is_before);
        if let Some(known) = self.packets.get(index).filter(|it| it.psn == packet.psn) {
            if !known.gives_way_to(packet) {
                return Ok(());
            }
            if let Some(known) = self.packets.remove(index) {
                self.forget(&known);
            }
        }
        self.share.grow(length + OVERHEAD, total)?;
        let mut datagram = Vec::with_capacity(length);
        packet.emit(&mut datagram);
        datagram.extend_from_slice(&[0; ICRC_LENGTH]);
        let psn = packet.psn;
        self.bytes += length;
        let kept = Kept {
            psn,
            span,
            datagram,
        };
        self.packets.insert(index, kept);
        Ok(())
    }

    /// What is kept, as a list for the peer, which must send `missing`.
    pub(super) fn list(&self, missing: Psn) -> HeldPackets {
        let mut ranges: Vec<Range<u32>> = Vec::new();
        for kept in &self.packets {
            let start = kept.psn.ahead_of(missing);
            let end = start + kept.span;
            let is_full = ranges.len() == held::MAX_RANGES;
            match ranges.last_mut() {
                _ if start == 0 || end > MAX_KEPT_AHEAD => break,
                Some(last) if last.end >= start => last.end = last.end.max(end),
                _ if is_full => break,
                _ => ranges.push(start..end),
            }
        }
        HeldPackets::new(ranges)
    }

    /// The PSN of the first packet from this one on. Forgets earlier ones.
    pub(super) fn first_from(&mut self, psn: Psn) -> Option<Psn> {
        while self.packets.front()?.psn.since(psn) < 0 {
            let kept = self.packets.pop_front()?;
            self.forget(&kept);
        }
        Some(self.packets.front()?.psn)
    }

    /// Removes and returns the packet with this PSN, and forgets earlier ones.
    pub(super) fn take(&mut self, psn: Psn) -> Option<Kept> {
        while self.packets.front()?.psn.since(psn) <= 0 {
            let kept = self.packets.pop_front()?;
            self.forget(&kept);
            if kept.psn == psn {
                return Some(kept);
            }
        }
        None
    }

    /// Counts a packet that is removed.
    fn forget(&mut self, removed: &Kept) {
        self.bytes -= removed.datagram.len();
        self.share.shrink(removed.datagram.len() + OVERHEAD);
    }
}

#[cfg(test)]
mod tests {
    use wire::{Opcode, PacketHead, Qpn};

    use super::*;

    fn keep(kept: &mut KeptPackets, psn: Psn, payload: usize) {
        keep_with(kept, psn, payload, &Arc::default()).expect("there is room");
    }

    fn keep_with(
        kept: &mut KeptPackets,
        psn: Psn,
        payload: usize,
        total: &Arc<KeptTotal>,
    ) -> Result<(), DeviceFull> {
        let head = PacketHead::new(Opcode::RcSendMiddle, Qpn::new(17), psn);
        let mut datagram = head.bytes().to_vec();
        datagram.resize(datagram.len() + payload + ICRC_LENGTH, 0);
        let packet = Packet::parse(&datagram).expect("a packet");
        kept.keep(&packet, 1, psn - 1, total)
    }

    #[test]
    fn packets_are_taken_in_order_across_the_wrap_and_earlier_ones_are_forgotten() {
        let first = Psn::new(0xff_fffe);
        let mut kept = KeptPackets::default();
        for offset in [3, 1, 4, 1, 0, 2] {
            keep(&mut kept, first + offset, 8);
        }
        assert_eq!(kept.packets.len(), 5);
        for offset in [1, 2, 4] {
            let taken = kept.take(first + offset).expect("it is kept");
            assert_eq!(taken.packet().psn, first + offset);
        }
        assert!(kept.is_empty());
        assert_eq!(kept.bytes, 0);
    }

    #[test]
    fn list_tells_what_is_kept_as_distances_from_the_missing_packet() {
        let missing = Psn::new(0xff_fffe);
        let mut kept = KeptPackets::default();
        for offset in [1, 2, 4] {
            keep(&mut kept, missing + offset, 8);
        }
        assert_eq!(kept.list(missing).to_string(), "+1-2,+4");
    }

    #[test]
    fn no_more_than_the_limit_is_kept() {
        let mut kept = KeptPackets::default();
        for offset in 0..5000 {
            keep(&mut kept, Psn::ZERO + offset, 4096);
        }
        assert!(kept.bytes <= MAX_KEPT_BYTES);
        assert!(kept.packets.len() > 4000);
    }

    #[test]
    fn what_queue_pairs_keep_together_is_counted_until_they_drop_it() {
        let total = Arc::new(KeptTotal::default());
        let [mut one, mut other] = [KeptPackets::default(), KeptPackets::default()];
        for offset in 0..10 {
            keep_with(&mut one, Psn::ZERO + offset, 4096, &total).expect("there is room");
            keep_with(&mut other, Psn::ZERO + offset, 0, &total).expect("there is room");
        }
        let count = || total.0.load(Ordering::Relaxed);
        assert_eq!(count(), one.bytes + other.bytes + 20 * OVERHEAD);
        assert_eq!(one.first_from(Psn::new(4)), Some(Psn::new(4)));
        assert!(one.take(Psn::new(6)).is_some());
        assert_eq!(count(), one.bytes + other.bytes + 13 * OVERHEAD);
        one = KeptPackets::default();
        assert_eq!(count(), other.bytes + 10 * OVERHEAD);
        total.0.store(MAX_KEPT_TOTAL, Ordering::Relaxed);
        let full = keep_with(&mut one, Psn::ZERO, 0, &total);
        assert_eq!(full, Err(DeviceFull));
        assert!(one.is_empty());
    }
}
