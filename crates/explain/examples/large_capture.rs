//! Writes a capture of many packets, reads it, and prints the time and the memory used.
//!
//! ```sh
//! cargo run --release -p rocinante-explain --example large_capture -- 1000000
//! ```

use std::fs::File;
use std::io::BufWriter;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use explain::Analysis;
use pcap_file::pcap::{PcapHeader, PcapPacket, PcapWriter};
use pcap_file::{DataLink, TsResolution};
use wire::{
    Aeth, Datagram, Flow, Fragmentation, Opcode, PacketHead, Psn, Qpn, ROCE_PORT, Syndrome, icrc,
};

/// The payload of a packet.
const DATA: usize = 1024;
/// The number of packets of a message, without its acknowledgement.
const MESSAGE: u32 = 4;
/// The number of connections at the same time.
const CONVERSATIONS: u32 = 16;
/// One of this many packets is sent twice.
const RETRANSMITTED: u32 = 100;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let packets = arguments
        .first()
        .map_or(1_000_000, |text| text.parse().expect("a number"));
    let path = match arguments.get(1) {
        Some(path) => PathBuf::from(path),
        None => std::env::temp_dir().join(format!("explain-{}.pcap", std::process::id())),
    };
    write(&path, packets);
    let length = path.metadata().map_or(0, |metadata| metadata.len());
    let (begin, busy) = (Instant::now(), processor_time());
    let analysis =
        Analysis::read(File::open(&path).expect("the file was written")).expect("a capture");
    let (took, busy) = (begin.elapsed(), processor_time().saturating_sub(busy));
    println!(
        "{} packets, {} messages, {} anomalies, {} MB: {took:.2?} ({busy:.2?} of them computing), {} at most",
        analysis.packets.len(),
        analysis.messages.len(),
        analysis.anomalies.len(),
        length / 1_000_000,
        peak_memory()
    );
    if arguments.len() < 2 {
        let _ = std::fs::remove_file(&path);
    }
}

/// The CPU time of this thread, which does not depend on other load.
fn processor_time() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let nanoseconds = text.split_whitespace().next();
    Duration::from_nanos(nanoseconds.and_then(|it| it.parse().ok()).unwrap_or(0))
}

fn peak_memory() -> String {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.map_or("unknown".to_owned(), |memory| memory.trim().to_owned())
}

fn write(path: &Path, packets: u32) {
    let header = PcapHeader {
        datalink: DataLink::RAW,
        ts_resolution: TsResolution::NanoSecond,
        ..PcapHeader::default()
    };
    let file = BufWriter::new(File::create(path).expect("a file"));
    let mut writer = PcapWriter::with_header(file, header).expect("a file");
    let mut frame = Vec::new();
    for number in 0..packets {
        frame.clear();
        packet(number, &mut frame);
        let time = Duration::from_nanos(1_000_000_000_000 + u64::from(number) * 700);
        let record = PcapPacket::new(time, frame.len() as u32, &frame);
        writer
            .write_packet(&record)
            .expect("the file can be written");
    }
}

/// The packet with this number. The connections take turns; each sends a SEND of four packets and gets
/// an ACK.
fn packet(number: u32, frame: &mut Vec<u8>) {
    // Sometimes the same packet as before.
    let number = match number % RETRANSMITTED {
        0 if number > 0 => number - CONVERSATIONS,
        _ => number,
    };
    let (conversation, step) = (number % CONVERSATIONS, number / CONVERSATIONS);
    let (message, place) = (step / (MESSAGE + 1), step % (MESSAGE + 1));
    let first = Psn::new(conversation * 100_000 + message * MESSAGE);
    let (forth, back) = (
        Qpn::new(0x100 + conversation),
        Qpn::new(0x900 + conversation),
    );
    let (head, data, is_response) = match place {
        MESSAGE => {
            let head = PacketHead::new(Opcode::RcAcknowledge, back, first + (MESSAGE - 1));
            (head.push(&Aeth::new(Syndrome::UNLIMITED, message)), 0, true)
        }
        _ => {
            let opcode = match place {
                0 => Opcode::RcSendFirst,
                last if last == MESSAGE - 1 => Opcode::RcSendLast,
                _ => Opcode::RcSendMiddle,
            };
            (PacketHead::new(opcode, forth, first + place), DATA, false)
        }
    };
    let mut payload = head.bytes().to_vec();
    payload.resize(payload.len() + data, number as u8);
    let (left, right) = ([10, 0, 0, 1].into(), [10, 0, 0, 2].into());
    let flow = Flow {
        source: if is_response { right } else { left },
        destination: if is_response { left } else { right },
        source_port: 0xc000 + conversation as u16,
        destination_port: ROCE_PORT,
    };
    let fragmentation = Fragmentation {
        identification: number as u16,
        dont_fragment: true,
    };
    payload.extend(icrc::checksum(
        &flow,
        fragmentation.identification,
        &payload,
    ));
    let datagram = Datagram {
        flow,
        traffic_class: 0,
        flow_label: 0,
        hop_limit: 64,
        fragmentation,
        payload: &payload,
    };
    datagram.emit(frame);
}
