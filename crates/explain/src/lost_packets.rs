//! Finds packets that were lost between two capture points.
//!
//! A packet that was captured only at its sender was lost if the capture contains what its receiver
//! received. That is known per connection: processes that share an address are captured one by one,
//! and a packet to a process that has ended can come back to the process that is captured.

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
}

impl Captured {
    fn add(&mut self, packet: &Packet) {
        let side = packet.from.index();
        let left = packet.marks.contains(Marks::LEFT_HERE);
        let came = packet.marks.contains(Marks::CAME_HERE);
        self.packets[side] += 1;
        self.left[side] += u64::from(left);
        self.both += u64::from(left && came);
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
    for packet in packets.iter() {
        captured[packet.connection.index()].add(packet);
    }
    let at_both_ends: Vec<bool> = captured.iter().map(Captured::at_both_ends).collect();
    for packet in packets {
        let left = packet.marks.contains(Marks::LEFT_HERE);
        let came = packet.marks.contains(Marks::CAME_HERE);
        if left && !came && at_both_ends[packet.connection.index()] {
            packet.marks |= Marks::LOST;
        }
    }
}
