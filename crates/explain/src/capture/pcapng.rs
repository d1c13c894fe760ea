//! pcapng: blocks, among them interfaces with their own clocks, and packets.

use std::io::Read;

use pcap_file::Endianness;
use pcap_file::pcapng::Block;
use pcap_file::pcapng::blocks::enhanced_packet::{EnhancedPacketBlock, EnhancedPacketOption};
use pcap_file::pcapng::blocks::interface_description::{
    InterfaceDescriptionBlock, InterfaceDescriptionOption,
};
use pcap_file::pcapng::blocks::section_header::{SectionHeaderBlock, SectionHeaderOption};

use super::blocks::Blocks;
use super::{Direction, Ending, Frame, Item, ReadError, beginning, ended_early, is_cut_off};

/// The used fields of an interface.
#[derive(Clone, Copy)]
struct Interface {
    link: u32,
    clock: Clock,
}

/// The unit of timestamps.
#[derive(Clone, Copy)]
struct Clock {
    /// The code of `if_tsresol`: a negative power of ten, or of two with the highest bit set.
    resolution: u8,
    offset_seconds: u64,
}

pub(super) fn read(source: impl Read, mut take: impl FnMut(Item<'_>)) -> Result<Ending, ReadError> {
    let mut reader = Blocks::new(source).map_err(beginning)?;
    take(Item::Section(application(reader.section())));
    let mut endianness = reader.section().endianness;
    let mut interfaces = Vec::new();
    let mut frames = 0;
    let mut cut_off = false;
    let mut remark = None;
    while let Some(next) = reader.next_block() {
        let block = match next {
            Ok(block) => block,
            Err(error) => {
                cut_off = is_cut_off(&error);
                remark = Some(ended_early(frames, &error));
                break;
            }
        };
        match &block {
            Block::SectionHeader(section) => {
                interfaces.clear();
                endianness = section.endianness;
                take(Item::Section(application(section)));
            }
            Block::InterfaceDescription(description) => {
                interfaces.push(Interface::new(description));
            }
            Block::SystemdJournalExport(entry) => {
                frames += 1;
                take(Item::Journal(&entry.journal_entry));
            }
            block => {
                let Some(frame) = frame(block, &interfaces, endianness) else {
                    continue;
                };
                frames += 1;
                take(Item::Frame(frame));
            }
        }
    }
    Ok(Ending {
        format: "pcapng",
        cut_off,
        remark,
    })
}

/// The program that wrote a section.
fn application<'a>(section: &'a SectionHeaderBlock<'_>) -> Option<&'a str> {
    section.options.iter().find_map(|option| match option {
        SectionHeaderOption::UserApplication(name) => Some(name.as_ref()),
        _ => None,
    })
}

fn frame<'a>(
    block: &'a Block<'a>,
    interfaces: &[Interface],
    endianness: Endianness,
) -> Option<Frame<'a>> {
    match block {
        Block::EnhancedPacket(packet) => {
            let interface = interfaces.get(packet.interface_id as usize)?;
            Some(enhanced(packet, interface))
        }
        Block::Packet(packet) => {
            let interface = interfaces.get(usize::from(packet.interface_id))?;
            // The higher half comes first in both byte orders. The library reads one number.
            let units = match endianness {
                Endianness::Big => packet.timestamp,
                Endianness::Little => packet.timestamp.rotate_left(32),
            };
            Some(Frame {
                time: Some(interface.clock.nanoseconds(units)),
                bytes: &packet.data,
                original_length: packet.original_len as usize,
                link: interface.link,
                interface: packet.interface_id.into(),
                direction: None,
                comment: None,
            })
        }
        Block::SimplePacket(packet) => {
            let interface = interfaces.first()?;
            let length = packet.data.len().min(packet.original_len as usize);
            Some(Frame {
                time: None,
                bytes: &packet.data[..length],
                original_length: packet.original_len as usize,
                link: interface.link,
                interface: 0,
                direction: None,
                comment: None,
            })
        }
        _ => None,
    }
}

fn enhanced<'a>(packet: &'a EnhancedPacketBlock<'a>, interface: &Interface) -> Frame<'a> {
    let mut frame = Frame {
        // The library reports the raw units as nanoseconds.
        time: Some(
            interface
                .clock
                .nanoseconds(packet.timestamp.as_nanos() as u64),
        ),
        bytes: &packet.data,
        original_length: packet.original_len as usize,
        link: interface.link,
        interface: packet.interface_id,
        direction: None,
        comment: None,
    };
    for option in &packet.options {
        match option {
            EnhancedPacketOption::Comment(comment) => frame.comment = Some(comment),
            EnhancedPacketOption::Flags(flags) => frame.direction = direction(*flags),
            _ => {}
        }
    }
    frame
}

/// The lowest two bits of the flags.
fn direction(flags: u32) -> Option<Direction> {
    match flags & 3 {
        1 => Some(Direction::Inbound),
        2 => Some(Direction::Outbound),
        _ => None,
    }
}

impl Interface {
    fn new(description: &InterfaceDescriptionBlock<'_>) -> Self {
        let mut clock = Clock {
            // Microseconds is the default.
            resolution: 6,
            offset_seconds: 0,
        };
        for option in &description.options {
            match option {
                InterfaceDescriptionOption::IfTsResol(code) => clock.resolution = *code,
                InterfaceDescriptionOption::IfTsOffset(offset) => clock.offset_seconds = *offset,
                _ => {}
            }
        }
        Interface {
            link: description.linktype.into(),
            clock,
        }
    }
}

impl Clock {
    const POWER_OF_TWO: u8 = 0x80;

    fn nanoseconds(self, units: u64) -> u64 {
        const SECOND: u128 = 1_000_000_000;
        let exponent = u32::from(self.resolution & !Self::POWER_OF_TWO);
        let base: u128 = if self.resolution & Self::POWER_OF_TWO == 0 {
            10
        } else {
            2
        };
        let time = match base.checked_pow(exponent) {
            Some(units_per_second) => u128::from(units) * SECOND / units_per_second,
            None => 0,
        };
        let offset = u128::from(self.offset_seconds) * SECOND;
        u64::try_from(time + offset).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_tick_in_powers_of_ten_or_two() {
        let clock = |resolution| Clock {
            resolution,
            offset_seconds: 0,
        };
        assert_eq!(clock(6).nanoseconds(1_500_000), 1_500_000_000);
        assert_eq!(clock(9).nanoseconds(7), 7);
        assert_eq!(clock(12).nanoseconds(7_000), 7);
        assert_eq!(clock(0x80 | 10).nanoseconds(1024), 1_000_000_000);
        assert_eq!(clock(0x7f).nanoseconds(u64::MAX), 0);
        let later = Clock {
            resolution: 0,
            offset_seconds: 3,
        };
        assert_eq!(later.nanoseconds(1), 4_000_000_000);
    }
}
