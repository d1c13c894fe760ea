//! Checks the ICRC of every packet on the link, in both directions.
//!
//! The kernel drops a packet with a wrong ICRC without counting it. So a kprobe in the running kernel counts the results
//! of `rxe_icrc_check`. Every captured packet is also verified here, with its IP header.

use std::fs::File;
use std::io::BufReader;
use std::net::{IpAddr, UdpSocket};
use std::path::Path;

use pcap_file::pcap::PcapReader;
use wire::{Datagram, IcrcChecker, Opcode, ROCE_PORT};

use super::backend::Backend;
use super::machine::Machine;
use super::network::{Family, Side};

/// How often to look whether the kernel has counted a packet. An emulated machine is slow on a busy host.
const LOOKS: u32 = 100;

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
    /// FLUSH packets are counted separately, because rxe's ICRC of a FLUSH differs from the specification.
    pub(crate) flushes_from_us: Tally,
    pub(crate) flushes_from_kernel: Tally,
}

impl Traffic {
    /// Reads a capture of the link and verifies each RoCE packet in it.
    pub(crate) fn read(capture: &Path) -> Result<Self, String> {
        let unreadable = |error: String| format!("{}: {error}", capture.display());
        let file = File::open(capture).map_err(|error| unreadable(error.to_string()))?;
        let reader = PcapReader::new(BufReader::new(file));
        let mut reader = reader.map_err(|error| unreadable(error.to_string()))?;
        let mut traffic = Traffic::default();
        let mut checker = IcrcChecker::new();
        while let Some(frame) = reader.next_packet() {
            // The last frame may be incomplete.
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

/// Whether an address is ours. Link-local addresses are not used.
fn is_ours(address: IpAddr) -> bool {
    let ours = [Family::Ipv4, Family::Ipv6].map(|family| Side::Ours.address(family));
    ours.iter().any(|it| it.parse() == Ok(address))
}

/// How many packets the kernel's ICRC check has accepted and rejected.
///
/// User Mode Linux has no kprobes. There the counter of received packets, which follows the check, is used.
pub(crate) fn kernel_icrc_counts(machine: &mut Machine) -> Result<Tally, String> {
    if machine.backend == Backend::Uml {
        let text = machine.must("cat /sys/class/infiniband/rxe0/ports/1/hw_counters/rcvd_pkts")?;
        let packets = text.trim().parse();
        let packets = packets.map_err(|error| format!("rcvd_pkts is {text}: {error}"))?;
        return Ok(Tally { packets, wrong: 0 });
    }
    let text = machine.must("cat /sys/kernel/tracing/events/kprobes/icrc/hist")?;
    Ok(parse_histogram(&text))
}

/// Lines such as `{ ret:          0 } hitcount:        123`.
fn parse_histogram(histogram: &str) -> Tally {
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

/// The result is kept as text: the kernel prints a negative result as an unsigned number.
fn entry(line: &str) -> Option<(&str, u64)> {
    let (result, count) = line.strip_prefix("{ ret:")?.split_once("} hitcount:")?;
    Some((result.trim(), count.trim().parse().ok()?))
}

/// Whether the kernel rejects a packet with a wrong ICRC and the counters show it.
pub(crate) fn notices_damage(machine: &mut Machine) -> Result<bool, String> {
    let before = kernel_icrc_counts(machine)?;
    send_damaged()?;
    for _ in 0..LOOKS {
        machine.must("sleep 0.2")?;
        let after = kernel_icrc_counts(machine)?;
        match machine.backend {
            Backend::Qemu if after.wrong > before.wrong => return Ok(true),
            Backend::Qemu => {}
            Backend::Uml => return Ok(after.packets == before.packets),
        }
    }
    Ok(false)
}

fn send_damaged() -> Result<(), String> {
    let damaged = || {
        let socket = UdpSocket::bind((Side::Ours.address(Family::Ipv4), 0))?;
        // A SEND with a wrong ICRC to queue pair 1, which every device has.
        let mut packet = [0; 12 + 8 + 256 + 4];
        packet[0] = 0x64;
        packet[2..4].fill(0xff);
        packet[7] = 1;
        // The Q_Key of queue pair 1, which is checked first.
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
    fn the_kernels_histogram_is_parsed() {
        let text = "# event histogram\n#\n\n{ ret:          0 } hitcount:        120\n\
                    { ret: 18446744073709551594 } hitcount:          3\n\nTotals:\n    Hits: 123\n";
        let tally = Tally {
            packets: 123,
            wrong: 3,
        };
        assert_eq!(parse_histogram(text), tally);
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
    fn a_flush_is_counted_separately() {
        let mut traffic = Traffic::default();
        traffic.count(&mut IcrcChecker::new(), &FLUSH);
        assert_eq!(traffic.from_kernel, Tally::default());
        let (packets, wrong) = (1, 1);
        assert_eq!(traffic.flushes_from_kernel, Tally { packets, wrong });
    }
}
