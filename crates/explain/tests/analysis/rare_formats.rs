//! Files that few programs write, or that their last one did not finish.

use explain::Analysis;
use pcap_file::pcap::PcapHeader;
use pcap_file::pcapng::PcapNgWriter;
use pcap_file::pcapng::blocks::interface_description::{
    InterfaceDescriptionBlock, InterfaceDescriptionOption,
};
use pcap_file::pcapng::blocks::section_header::SectionHeaderBlock;
use pcap_file::{DataLink, Endianness, TsResolution};

use crate::file_formats::{pcap, text_without_file};
use crate::kernel_captures::{Frame, analysed, analysis, frames};

const NAME: &str = "gold-rnrok";

/// The frames of a capture, at these nanoseconds after the first one.
fn frames_at(nanoseconds: impl Fn(u32) -> u32) -> Vec<Frame> {
    let frames = frames(NAME);
    let start = std::time::Duration::from_secs(frames[0].time.as_secs());
    let at = (0..).map(|index| start + std::time::Duration::from_nanos(nanoseconds(index).into()));
    let times = frames.into_iter().zip(at);
    times.map(|(frame, time)| Frame { time, ..frame }).collect()
}

fn times(analysis: &Analysis) -> Vec<u64> {
    analysis.packets.iter().map(|packet| packet.time).collect()
}

#[test]
fn times_have_the_resolution_of_the_file() {
    for (ts_resolution, unit) in [
        (TsResolution::NanoSecond, 1),
        (TsResolution::MicroSecond, 1000),
    ] {
        let header = PcapHeader {
            ts_resolution,
            ..PcapHeader::default()
        };
        let file = pcap(&frames_at(|index| 1001 * index), header, |frame| {
            frame.ethernet.clone()
        });
        let times = times(&analysed(&file));
        let expected = (0..).map(|index| 1001 * index / unit * unit);
        assert!(times.len() > 3);
        assert!(
            times.iter().copied().eq(expected.take(times.len())),
            "{times:?}"
        );
    }
}

/// Raw IP has other numbers on some systems, and the highest bits say how long the checksum of a frame is.
#[test]
fn rare_numbers_of_link_types_give_the_same_text() {
    const LENGTH_OF_CHECKSUM: u32 = 0x2400_0000;
    let expected = text_without_file(&analysis(NAME));
    for link in [12, 14, 228, 101 | LENGTH_OF_CHECKSUM] {
        let header = PcapHeader {
            datalink: DataLink::from(link),
            ..PcapHeader::default()
        };
        let file = pcap(&frames(NAME), header, |frame| frame.ip().to_vec());
        assert_eq!(text_without_file(&analysed(&file)), expected, "{link:#x}");
    }
}

#[test]
fn record_with_an_impossible_length_ends_the_capture() {
    let whole = pcap(&frames(NAME), PcapHeader::default(), |it| {
        it.ethernet.clone()
    });
    let header = [0, 0, (1 << 20) + 1, 0].map(u32::to_be_bytes).concat();
    let damaged = [&whole[..], &header, &[0; 2 << 20]].concat();
    let analysis = analysed(&damaged);
    assert_eq!(analysis.packets.len(), frames(NAME).len());
    let last = format!(
        "The capture is damaged behind frame {}.",
        frames(NAME).len()
    );
    assert_eq!(analysis.capture.remarks, [last]);
}

/// A pcapng file with one interface, and these blocks.
fn with_blocks(
    endianness: Endianness,
    options: Vec<InterfaceDescriptionOption<'static>>,
    blocks: impl Iterator<Item = Vec<u8>>,
) -> Vec<u8> {
    let section = SectionHeaderBlock {
        endianness,
        ..SectionHeaderBlock::default()
    };
    let mut writer = PcapNgWriter::with_section_header(Vec::new(), section).expect("memory");
    let interface = InterfaceDescriptionBlock {
        linktype: DataLink::ETHERNET,
        snaplen: 0,
        options,
    };
    writer.write_pcapng_block(interface).expect("memory");
    let mut file = writer.into_inner();
    file.extend(blocks.flatten());
    file
}

fn word(endianness: Endianness, word: u32) -> [u8; 4] {
    match endianness {
        Endianness::Big => word.to_be_bytes(),
        Endianness::Little => word.to_le_bytes(),
    }
}

/// A block that begins with these words.
fn block(endianness: Endianness, kind: u32, words: &[u32], data: &[u8]) -> Vec<u8> {
    let padded = data.len().next_multiple_of(4);
    let length = (12 + 4 * words.len() + padded) as u32;
    let of = |value: u32| word(endianness, value);
    let mut block = [of(kind), of(length)].concat();
    words.iter().for_each(|it| block.extend(of(*it)));
    block.extend_from_slice(data);
    block.resize(length as usize - 4, 0);
    block.extend(of(length));
    block
}

#[test]
fn obsolete_packet_blocks_give_the_same_text_in_both_byte_orders() {
    const PACKET: u32 = 2;
    for endianness in [Endianness::Big, Endianness::Little] {
        let frames = frames(NAME);
        let blocks = frames.iter().map(|frame| {
            let (data, time) = (&frame.ethernet, frame.time.as_micros() as u64);
            let length = data.len() as u32;
            let words = [0, (time >> 32) as u32, time as u32, length, length];
            block(endianness, PACKET, &words, data)
        });
        let file = with_blocks(endianness, Vec::new(), blocks);
        let expected = text_without_file(&analysis(NAME));
        assert_eq!(
            text_without_file(&analysed(&file)),
            expected,
            "{endianness:?}"
        );
    }
}

#[test]
fn packets_without_times_are_in_the_order_of_the_file() {
    const SIMPLE_PACKET: u32 = 3;
    let frames = frames(NAME);
    let blocks = frames.iter().map(|frame| {
        let data = &frame.ethernet;
        block(Endianness::Big, SIMPLE_PACKET, &[data.len() as u32], data)
    });
    let found = analysed(&with_blocks(Endianness::Big, Vec::new(), blocks));
    let expected = analysis(NAME);
    assert!(times(&found).iter().all(|time| *time == 0));
    let order = |it: &Analysis| -> Vec<_> {
        let packets = it.packets.iter();
        packets.map(|it| (it.opcode, it.psn, it.role)).collect()
    };
    assert_eq!(order(&found), order(&expected));
    assert_eq!(
        found.statistics.damaged, 0,
        "no padding belongs to a packet"
    );
}

#[test]
fn clock_of_an_interface_may_have_an_offset() {
    const ENHANCED_PACKET: u32 = 6;
    let frame = &frames(NAME)[0];
    let length = frame.ethernet.len() as u32;
    let words = [0, 0, 7, length, length];
    let block = block(Endianness::Big, ENHANCED_PACKET, &words, &frame.ethernet);
    let options = vec![
        InterfaceDescriptionOption::IfTsResol(0),
        InterfaceDescriptionOption::IfTsOffset(1000),
    ];
    let file = with_blocks(Endianness::Big, options, [block].into_iter());
    assert_eq!(analysed(&file).capture.start.as_secs(), 1007);
}
