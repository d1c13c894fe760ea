//! Which packets the ICRC check accepts and which it rejects.

use std::net::IpAddr;

use wire::{Flow, Fragmentation, IcrcChecker, IcrcError, ROCE_PORT, icrc};

const CONGESTION_BYTE: usize = 4;

fn ipv4() -> Flow {
    flow("10.200.0.2", "10.200.0.3")
}

fn ipv6() -> Flow {
    flow("fe80::5054:ff:fe00:2", "fe80::5054:ff:fe00:3")
}

fn flow(source: &str, destination: &str) -> Flow {
    Flow {
        source: source.parse().expect("an address"),
        destination: destination.parse().expect("an address"),
        source_port: 0xc123,
        destination_port: ROCE_PORT,
    }
}

/// A packet without ICRC.
fn packet(length: usize) -> Vec<u8> {
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    (0..length).map(|_| random.next() as u8).collect()
}

/// The packet with an ICRC that is computed byte by byte from the definition. It shares only the
/// CRC itself with the code under test.
fn sealed_ipv4(flow: &Flow, identification: u16, flags: u16, packet: &[u8]) -> Vec<u8> {
    let (IpAddr::V4(source), IpAddr::V4(destination)) = (flow.source, flow.destination) else {
        panic!("an IPv4 flow");
    };
    let udp_length = (8 + packet.len() + 4) as u16;
    let mut covered = vec![0xff; 8];
    covered.extend([0x45, 0xff]);
    covered.extend((20 + udp_length).to_be_bytes());
    covered.extend(identification.to_be_bytes());
    covered.extend(flags.to_be_bytes());
    covered.extend([0xff, 17, 0xff, 0xff]);
    covered.extend(source.octets());
    covered.extend(destination.octets());
    covered.extend(flow.source_port.to_be_bytes());
    covered.extend(flow.destination_port.to_be_bytes());
    covered.extend(udp_length.to_be_bytes());
    covered.extend([0xff, 0xff]);
    let base = covered.len();
    covered.extend(packet);
    covered[base + CONGESTION_BYTE] = 0xff;
    [packet, &crc32fast::hash(&covered).to_le_bytes()].concat()
}

fn sealed(flow: &Flow, packet: &[u8]) -> Vec<u8> {
    [packet, &icrc::checksum(flow, 0, packet)].concat()
}

/// A small random number generator with a fixed seed, so that failures are reproducible.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }
}

#[test]
fn every_identification_is_recovered() {
    let packet = packet(12 + 64);
    let mut checker = IcrcChecker::new();
    for identification in 0..=u16::MAX {
        for (flags, dont_fragment) in [(0x4000, true), (0, false)] {
            let datagram = sealed_ipv4(&ipv4(), identification, flags, &packet);
            let expected = Fragmentation {
                identification,
                dont_fragment,
            };
            assert_eq!(checker.check(&ipv4(), &datagram), Ok(expected));
        }
    }
}

#[test]
fn identification_is_recovered_for_every_packet_length() {
    let mut checker = IcrcChecker::new();
    // Twice, so that tables are replaced and computed again.
    for length in (12..=4200).step_by(4).chain((12..=4200).step_by(4)) {
        let datagram = sealed_ipv4(&ipv4(), 0x1234, 0x4000, &packet(length));
        let recovered = checker.check(&ipv4(), &datagram).expect("an intact packet");
        assert_eq!(recovered.identification, 0x1234, "length {length}");
    }
}

#[test]
fn fragments_and_the_reserved_flag_are_rejected() {
    let mut checker = IcrcChecker::new();
    for flags in [0x8000, 0x2000, 0x4001, 0x0001, 0x6000, 0xc000] {
        let datagram = sealed_ipv4(&ipv4(), 7, flags, &packet(32));
        let verdict = checker.check(&ipv4(), &datagram);
        assert!(matches!(verdict, Err(IcrcError::Mismatch { .. })));
    }
}

#[test]
fn at_most_one_damaged_ipv4_packet_in_16384_passes() {
    const TRIALS: usize = 200_000;
    let intact = sealed_ipv4(&ipv4(), 0x0042, 0x4000, &packet(12 + 48));
    let mut checker = IcrcChecker::new();
    let mut random = Random(1);
    let mut passed = 0;
    for _ in 0..TRIALS {
        let mut damaged = intact.clone();
        damage(&mut damaged, &mut random);
        passed += usize::from(checker.check(&ipv4(), &damaged).is_ok());
    }
    // About 6 damaged packets are expected to pass.
    assert!(passed <= TRIALS >> 14, "{passed} of {TRIALS} passed");
}

/// Changes one to eight bytes after the congestion byte, which switches may change.
fn damage(datagram: &mut [u8], random: &mut Random) {
    for _ in 0..=random.below(8) {
        let index = CONGESTION_BYTE + 1 + random.below(datagram.len() - CONGESTION_BYTE - 1);
        datagram[index] ^= 1 + random.below(255) as u8;
    }
}

#[test]
fn every_changed_bit_is_detected_over_ipv6() {
    let intact = sealed(&ipv6(), &packet(12 + 256));
    let mut checker = IcrcChecker::new();
    assert!(checker.check(&ipv6(), &intact).is_ok());
    for bit in 0..intact.len() * 8 {
        let mut damaged = intact.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        let accepted = checker.check(&ipv6(), &damaged).is_ok();
        assert_eq!(accepted, bit / 8 == CONGESTION_BYTE, "bit {bit}");
    }
}

// CA17-22
#[test]
fn addresses_and_ports_are_covered_by_the_icrc() {
    let datagram = sealed(&ipv6(), &packet(16));
    let mut checker = IcrcChecker::new();
    let other_flows = [
        flow("fe80::1", "fe80::5054:ff:fe00:3"),
        flow("fe80::5054:ff:fe00:2", "fe80::1"),
        Flow {
            source_port: 1,
            ..ipv6()
        },
        Flow {
            destination_port: 1,
            ..ipv6()
        },
    ];
    for other in other_flows {
        assert!(checker.check(&other, &datagram).is_err());
    }
}

// CA17-22
#[test]
fn congestion_bits_are_not_covered_by_the_icrc() {
    for flow in [ipv4(), ipv6()] {
        let mut datagram = sealed(&flow, &packet(32));
        datagram[CONGESTION_BYTE] ^= 0xc0;
        assert!(IcrcChecker::new().check(&flow, &datagram).is_ok());
    }
}

#[test]
fn packet_shorter_than_bth_and_icrc_is_rejected() {
    let mut checker = IcrcChecker::new();
    for length in 0..16 {
        let verdict = checker.check(&ipv4(), &vec![0; length]);
        assert_eq!(verdict, Err(IcrcError::TooShort { found: length }));
    }
}
