//! Long and hostile captures: the time grows linearly with the length.

use std::time::Duration;

use explain::Analysis;
use explain::terminal::{View, render};
use pcap_file::DataLink;
use pcap_file::pcap::{PcapHeader, PcapPacket, PcapWriter};
use wire::cm::{CommunicationId, ConnectReply, ConnectRequest, Message};
use wire::{
    Datagram, Deth, Flow, Fragmentation, Opcode, PacketHead, Psn, Qpn, QueueKey, ROCE_PORT, icrc,
};

/// The number of packets of a short capture, and the factor for a long one.
const FEW: u32 = 10_000;
const LONGER: u32 = 8;

/// How often a long capture is analysed at most.
const TRIES: u32 = 3;

/// A SEND in one packet.
fn send(queue_pair: u32, psn: u32) -> Vec<u8> {
    let head = PacketHead::new(Opcode::RcSendOnly, Qpn::new(queue_pair), Psn::new(psn));
    ip_packet(head.bytes())
}

/// A message of the connection manager.
fn manage(message: &Message, psn: u32) -> Vec<u8> {
    let head = PacketHead::new(Opcode::UdSendOnly, Qpn::GSI, Psn::new(psn));
    let head = head.push(&Deth::new(QueueKey::new(0x8001_0000), Qpn::GSI));
    ip_packet(&[head.bytes(), &message.emit(psn.into())].concat())
}

fn ip_packet(unsealed: &[u8]) -> Vec<u8> {
    let flow = Flow {
        source: [10, 0, 0, 1].into(),
        destination: [10, 0, 0, 2].into(),
        source_port: 50_000,
        destination_port: ROCE_PORT,
    };
    let payload = [unsealed, &icrc::checksum(&flow, 0, unsealed)].concat();
    let datagram = Datagram {
        flow,
        traffic_class: 0,
        flow_label: 0,
        hop_limit: 64,
        fragmentation: Fragmentation {
            identification: 0,
            dont_fragment: true,
        },
        payload: &payload,
    };
    let mut packet = Vec::new();
    datagram.emit(&mut packet);
    packet
}

fn capture(datalink: DataLink, frames: impl Iterator<Item = Vec<u8>>) -> Vec<u8> {
    let header = PcapHeader {
        datalink,
        ..PcapHeader::default()
    };
    let mut writer = PcapWriter::with_header(Vec::new(), header).expect("memory");
    for (index, frame) in frames.enumerate() {
        let time = Duration::from_micros(index as u64);
        let packet = PcapPacket::new(time, frame.len() as u32, &frame);
        writer.write_packet(&packet).expect("memory");
    }
    writer.into_writer()
}

/// The CPU time of this thread, because other tests run at the same time.
fn processor_time() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux has this file");
    let nanoseconds = text.split_whitespace().next().expect("a number");
    Duration::from_nanos(nanoseconds.parse().expect("a number"))
}

fn time_to_analyse(capture: &[u8]) -> Duration {
    let begin = processor_time();
    let analysis = Analysis::read(capture).expect("a capture");
    drop(render(&analysis, &View::default()));
    processor_time() - begin
}

/// Asserts that the time grows linearly with the length.
fn assert_linear_time<F: Iterator<Item = Vec<u8>>>(datalink: DataLink, frames: fn(u32) -> F) {
    let [short, long] = [FEW, FEW * LONGER].map(|many| capture(datalink, frames(many)));
    // Warm up: the first run allocates memory.
    time_to_analyse(&short);
    let limit = time_to_analyse(&short) * LONGER * 3;
    // What disturbs a processor only adds time, so one good measurement is enough.
    let within_limit = |_| time_to_analyse(&long) < limit;
    assert!((0..TRIES).any(within_limit), "longer than {limit:?}");
}

#[test]
fn every_second_packet_late_takes_linear_time() {
    assert_linear_time(DataLink::RAW, |many| {
        let (even, odd) = ((0..many).step_by(2), (1..many).step_by(2));
        even.chain(odd).map(|psn| send(7, psn))
    });
}

#[test]
fn retransmission_in_reverse_order_takes_linear_time() {
    assert_linear_time(DataLink::RAW, |many| {
        (0..many).chain((0..many).rev()).map(|psn| send(7, psn))
    });
}

#[test]
fn many_queue_pairs_take_linear_time() {
    assert_linear_time(DataLink::RAW, |many| {
        let twice = [1, 2].into_iter();
        twice.flat_map(move |psn| (0..many).map(move |number| send(number + 2, psn)))
    });
}

#[test]
fn many_interfaces_take_linear_time() {
    assert_linear_time(DataLink::LINUX_SLL2, |many| {
        (0..many).map(|number| {
            let interface = number.to_be_bytes();
            let parts: [&[u8]; 4] = [&[8, 0, 0, 0], &interface, &[0; 12], &send(7, number)];
            parts.concat()
        })
    });
}

#[test]
fn retransmitted_connection_requests_take_linear_time() {
    assert_linear_time(DataLink::RAW, |many| {
        (0..many).map(|number| {
            let request = ConnectRequest {
                local_id: CommunicationId::new(1),
                local_qpn: Qpn::new(7),
                starting_psn: Psn::new(number),
                ..ConnectRequest::default()
            };
            manage(&Message::ConnectRequest(request), number)
        })
    });
}

#[test]
fn many_handshakes_take_linear_time() {
    assert_linear_time(DataLink::RAW, |many| {
        (0..many).flat_map(|number| {
            let reply = ConnectReply {
                local_id: CommunicationId::new(number + 1),
                remote_id: CommunicationId::new(number + 1),
                local_qpn: Qpn::new(number + 2),
                ..ConnectReply::default()
            };
            let reply = manage(&Message::ConnectReply(reply), number);
            [reply, send(number + 2, 1)]
        })
    });
}
