//! Finds packets that were lost between two capture points.
//!
//! A packet that was captured only at its sender was lost if the capture contains what its receiver
//! received. That is known per connection: processes that share an address are captured one by one,
//! and a packet to a process that has ended can come back to the process that is captured. A capture that keeps
//! only the newest packets may begin later than that of the other end; what was sent to it before is not lost.

use crate::connection_end::Side;
use crate::packet::{Marks, Packet};

/// The packets of one connection, by the side that sent them.
#[derive(Clone, Default)]
struct Captured {
    packets: [u64; 2],
    /// Captured at their sender.
    left: [u64; 2],
    /// Captured at their sender and at their receiver.
    both: u64,
    /// For each side, the number of the first packet that was captured there.
    begin: [Option<usize>; 2],
    /// Whether a side sent something before that, which was captured at the other one only.
    begins_late: [bool; 2],
}

impl Captured {
    fn add(&mut self, number: usize, packet: &Packet) {
        let (side, other) = (packet.from.index(), packet.from.other().index());
        let left = packet.marks.contains(Marks::LEFT_HERE);
        let came = packet.marks.contains(Marks::CAME_HERE);
        self.packets[side] += 1;
        self.left[side] += u64::from(left);
        self.both += u64::from(left && came);
        if left {
            self.begin[side].get_or_insert(number);
        }
        if came {
            self.begin[other].get_or_insert(number);
        }
        self.begins_late[side] |= came && self.begin[side].is_none();
    }

    /// Whether the receiver of a packet that only its sender captured would have captured it.
    fn is_captured_at_receiver(&self, number: usize, packet: &Packet) -> bool {
        let side = packet.from.other().index();
        !self.begins_late[side] || self.begin[side].is_some_and(|begin| number > begin)
    }

    /// Whether both ends of the connection are captured: most packets of each side leave at a
    /// capture point, and some arrive at one.
    fn at_both_ends(&self) -> bool {
        let leaves_here = |side: Side| {
            let (packets, left) = (self.packets[side.index()], self.left[side.index()]);
            packets == 0 || 2 * left > packets
        };
        self.both > 0 && Side::BOTH.into_iter().all(leaves_here)
    }
}

/// Marks the lost packets of all connections that are captured at both ends.
pub(crate) fn mark_lost(packets: &mut [Packet], connections: usize) {
    let mut captured = vec![Captured::default(); connections];
    for (number, packet) in packets.iter().enumerate() {
        captured[packet.connection.index()].add(number, packet);
    }
    let at_both_ends: Vec<bool> = captured.iter().map(Captured::at_both_ends).collect();
    for (number, packet) in packets.iter_mut().enumerate() {
        let left = packet.marks.contains(Marks::LEFT_HERE);
        let came = packet.marks.contains(Marks::CAME_HERE);
        let connection = packet.connection.index();
        if left
            && !came
            && at_both_ends[connection]
            && captured[connection].is_captured_at_receiver(number, packet)
        {
            packet.marks |= Marks::LOST;
        }
    }
}
