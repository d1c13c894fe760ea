//! What was on the cable, and what the kernel thinks of it.
//!
//! The kernel drops a packet with a wrong ICRC without a word. So its own check is watched: a probe
//! in the running kernel counts what `rxe_icrc_check` returns. And every captured packet is verified
//! here with the IP header that it had on the cable.

use std::fs::File;
use std::io::BufReader;
use std::net::{IpAddr, UdpSocket};
use std::path::Path;

use pcap_file::pcap::PcapReader;
use wire::{Datagram, IcrcChecker, Opcode, ROCE_PORT};

use super::backend::Backend;
use super::machine::Machine;
use super::network::{Family, Side};

/// Packets of one direction.
#[derive(Default, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Tally {
    pub(crate) packets: u64,
    pub(crate) wrong: u64,
}

/// Both directions.
#[derive(Default, Clone, Copy, Debug)]
pub(crate) struct Traffic {
    pub(crate) from_us: Tally,
    pub(crate) from_kernel: Tally,
    /// Apart, because rxe's ICRC of a FLUSH is not that of the specification.
    pub(crate) flushes_from_us: Tally,
    pub(crate) flushes_from_kernel: Tally,
}

impl Traffic {
    /// Reads a capture of the cable and verifies each packet of RoCE in it.
    pub(crate) fn read(capture: &Path) -> Result<Self, String> {
        let unreadable = |error: String| format!("{}: {error}", capture.display());
        let file = File::open(capture).map_err(|error| unreadable(error.to_string()))?;
        let reader = PcapReader::new(BufReader::new(file));
        let mut reader = reader.map_err(|error| unreadable(error.to_string()))?;
        let mut traffic = Traffic::default();
        let mut checker = IcrcChecker::new();
        while let Some(frame) = reader.next_packet() {
            // The last one may still be being written.
            let Ok(frame) = frame else { break };
            traffic.count(&mut checker, &frame.data);
        }
        Ok(traffic)
    }

    fn count(&mut self, checker: &mut IcrcChecker, frame: &[u8]) {
        let Ok(datagram) = Datagram::parse_ethernet(frame) else {
            return;
        };
        if datagram.flow.destination_port != ROCE_PORT {
            return;
        }
        let is_flush = datagram.payload.first() == Some(&(Opcode::RcFlush as u8));
        let tally = match (is_ours(datagram.flow.source), is_flush) {
            (true, false) => &mut self.from_us,
            (true, true) => &mut self.flushes_from_us,
            (false, false) => &mut self.from_kernel,
            (false, true) => &mut self.flushes_from_kernel,
        };
        let recovered = checker.check(&datagram.flow, datagram.payload);
        tally.packets += 1;
        tally.wrong += u64::from(recovered != Ok(datagram.fragmentation));
    }
}

/// Ours is the odd one: both networks have only two hosts. Link-local addresses are not used.
fn is_ours(address: IpAddr) -> bool {
    let ours = [Family::Ipv4, Family::Ipv6].map(|family| Side::Ours.address(family));
    ours.iter().any(|it| it.parse() == Ok(address))
}

/// What the kernel's check of the ICRC has returned, how often.
///
/// A kernel that is a program can't be watched like that. It counts packets behind that check.
pub(crate) fn kernels_opinion(machine: &mut Machine) -> Result<Tally, String> {
    if machine.backend == Backend::Uml {
        let text = machine.must("cat /sys/class/infiniband/rxe0/ports/1/hw_counters/rcvd_pkts")?;
        let packets = text.trim().parse();
        let packets = packets.map_err(|error| format!("rcvd_pkts is {text}: {error}"))?;
        return Ok(Tally { packets, wrong: 0 });
    }
    let text = machine.must("cat /sys/kernel/tracing/events/kprobes/icrc/hist")?;
    Ok(opinion(&text))
}

/// Lines such as `{ ret:          0 } hitcount:        123`.
fn opinion(histogram: &str) -> Tally {
    let mut tally = Tally::default();
    for line in histogram.lines() {
        let Some((result, count)) = entry(line) else {
            continue;
        };
        tally.packets += count;
        tally.wrong += if result == "0" { 0 } else { count };
    }
    tally
}

/// The result stays a word: the kernel shows a negative one as a number beyond all bounds.
fn entry(line: &str) -> Option<(&str, u64)> {
    let (result, count) = line.strip_prefix("{ ret:")?.split_once("} hitcount:")?;
    Some((result.trim(), count.trim().parse().ok()?))
}

/// Whether the kernel rejects a packet whose ICRC is wrong, and this is seen.
pub(crate) fn notices_damage(machine: &mut Machine) -> Result<bool, String> {
    let before = kernels_opinion(machine)?;
    send_damaged()?;
    machine.must("sleep 0.2")?;
    let after = kernels_opinion(machine)?;
    Ok(match machine.backend {
        Backend::Qemu => after.wrong > before.wrong,
        Backend::Uml => after.packets == before.packets,
    })
}

fn send_damaged() -> Result<(), String> {
    let damaged = || {
        let socket = UdpSocket::bind((Side::Ours.address(Family::Ipv4), 0))?;
        // A SEND that is whole but for its ICRC, to the queue pair that every device has.
        let mut packet = [0; 12 + 8 + 256 + 4];
        packet[0] = 0x64;
        packet[2..4].fill(0xff);
        packet[7] = 1;
        // With the key of that queue pair, which is looked at first.
        packet[12..14].copy_from_slice(&[0x80, 0x01]);
        socket.send_to(&packet, (Side::Kernel.address(Family::Ipv4), ROCE_PORT))
    };
    damaged()
        .map(|_| ())
        .map_err(|error| format!("a damaged packet can't be sent: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_histogram_is_understood() {
        let text = "# event histogram\n#\n\n{ ret:          0 } hitcount:        120\n\
                    { ret: 18446744073709551594 } hitcount:          3\n\nTotals:\n    Hits: 123\n";
        let tally = Tally {
            packets: 123,
            wrong: 3,
        };
        assert_eq!(opinion(text), tally);
    }

    #[test]
    fn a_damaged_packet_is_counted() {
        let capture = include_bytes!("../../../crates/wire/tests/golden/rping.pcap");
        let mut reader = PcapReader::new(capture.as_slice()).expect("a capture");
        let frame = reader.next_packet().expect("one frame").expect("whole");
        let mut frame = frame.data.into_owned();
        let mut traffic = Traffic::default();
        traffic.count(&mut IcrcChecker::new(), &frame);
        let last = frame.len() - 1;
        frame[last] ^= 1;
        traffic.count(&mut IcrcChecker::new(), &frame);
        assert_eq!(
            traffic.from_kernel,
            Tally {
                packets: 2,
                wrong: 1
            }
        );
    }

    /// A FLUSH of Linux 6.12, from a capture.
    #[rustfmt::skip]
    const FLUSH: [u8; 78] = [
        0x9e, 0xfd, 0x50, 0x72, 0x92, 0x0f, 0x52, 0x54, 0x00, 0x12, 0x34, 0x56, 0x08, 0x00,
        0x45, 0x00, 0x00, 0x40, 0x11, 0xed, 0x40, 0x00, 0x40, 0x11, 0x13, 0x18, 0x0a, 0xd3,
        0x00, 0x02, 0x0a, 0xd3, 0x00, 0x01, 0xfd, 0x8b, 0x12, 0xb7, 0x00, 0x2c, 0x00, 0x00,
        0x1c, 0x00, 0xff, 0xff, 0x00, 0xc1, 0x8f, 0x10, 0x80, 0x33, 0x22, 0x42, 0x00, 0x00,
        0x00, 0x01, 0x00, 0x00, 0x7f, 0x92, 0xc7, 0x91, 0xb0, 0x00, 0x9a, 0x40, 0x4e, 0x07,
        0x00, 0x00, 0x4e, 0x20, 0x6d, 0x8a, 0x8a, 0x82,
    ];

    #[test]
    fn a_flush_is_counted_apart() {
        let mut traffic = Traffic::default();
        traffic.count(&mut IcrcChecker::new(), &FLUSH);
        assert_eq!(traffic.from_kernel, Tally::default());
        let (packets, wrong) = (1, 1);
        assert_eq!(traffic.flushes_from_kernel, Tally { packets, wrong });
    }
}
