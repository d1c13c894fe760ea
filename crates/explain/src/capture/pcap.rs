//! Classic pcap: one header, then frames.

use std::io::Read;

use pcap_file::TsResolution;
use pcap_file::pcap::{PcapReader, RawPcapPacket};

use super::{Ending, Frame, Item, ReadError, beginning, ended_early, is_cut_off};

/// The higher bits of the link type contain the length of the frame check sequence.
const LINK_TYPE: u32 = 0xffff;

/// Longer than any frame: a longer length is damaged.
const LONGEST_FRAME: u32 = 1 << 20;

pub(super) fn read(source: impl Read, mut take: impl FnMut(Item<'_>)) -> Result<Ending, ReadError> {
    let mut reader = PcapReader::new(source).map_err(beginning)?;
    let header = reader.header();
    let nanoseconds = match header.ts_resolution {
        TsResolution::MicroSecond => 1000,
        TsResolution::NanoSecond => 1,
    };
    let link = u32::from(header.datalink) & LINK_TYPE;
    let mut frames = 0;
    let mut cut_off = false;
    let mut remark = None;
    // Raw records skip the library's checks: tcpdump writes lengths above the snap length.
    while let Some(next) = reader.next_raw_packet() {
        match next {
            Ok(packet) if packet.incl_len <= LONGEST_FRAME => {
                frames += 1;
                take(Item::Frame(frame(&packet, nanoseconds, link)));
            }
            Ok(_) => {
                let text = format!("The capture is damaged behind frame {frames}.");
                remark = Some(text);
                break;
            }
            Err(error) => {
                cut_off = is_cut_off(&error);
                remark = Some(ended_early(frames, &error));
                break;
            }
        }
    }
    Ok(Ending {
        format: "pcap",
        cut_off,
        remark,
    })
}

fn frame<'a>(packet: &'a RawPcapPacket<'a>, nanoseconds: u64, link: u32) -> Frame<'a> {
    let second = u64::from(packet.ts_sec) * 1_000_000_000;
    Frame {
        time: Some(second + u64::from(packet.ts_frac) * nanoseconds),
        bytes: &packet.data,
        original_length: packet.orig_len as usize,
        link,
        interface: 0,
        direction: None,
        comment: None,
    }
}
