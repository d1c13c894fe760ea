//! The messages of Linux, from the captures.

use std::time::Duration;

use cm::Addresses;
use pcap_file::pcap::PcapReader;
use wire::cm::{
    AddressHeader, ConnectReply, ConnectRequest, DisconnectReply, DisconnectRequest, Message,
    ReadyToUse,
};
use wire::{Datagram, Packet, Qpn};

macro_rules! captures {
    ($($name:literal,)+) => {
        [$(($name, include_bytes!(concat!("../../../wire/tests/golden/", $name, ".pcap")).as_slice()),)+]
    };
}

/// Every capture in which `rdma_cm` connects.
pub(crate) const CONNECTIONS: [(&str, &[u8]); 12] = captures![
    "rping",
    "ucmatose",
    "rdma_server",
    "ib_write_bw-R",
    "gold-send",
    "gold-readbig",
    "gold-cas",
    "gold-rnr",
    "mtu4096/gold-sendbig",
    "misc/mtu-mismatch-client1024-server4096",
    "misc/mtu-mismatch-client4096-server1024",
    "uml/rping",
];

const OTHERS: [(&str, &[u8]); 4] = captures![
    "gold-reject",
    "nolistener",
    "udaddy",
    "vm-to-host-req-noanswer",
];

/// A message in a capture.
#[derive(Clone, Copy)]
pub(crate) struct CapturedMessage {
    pub(crate) after: Duration,
    pub(crate) addresses: Addresses,
    pub(crate) transaction: u64,
    pub(crate) message: Message,
}

pub(crate) fn datagrams<T>(
    capture: &[u8],
    mut examine: impl FnMut(Duration, Datagram<'_>) -> Option<T>,
) -> Vec<T> {
    let mut reader = PcapReader::new(capture).expect("a capture");
    let mut found = Vec::new();
    let mut start = None;
    while let Some(frame) = reader.next_packet() {
        let frame = frame.expect("a frame");
        let start = *start.get_or_insert(frame.timestamp);
        let datagram = Datagram::parse_ethernet(&frame.data).expect("a datagram");
        found.extend(examine(frame.timestamp - start, datagram));
    }
    found
}

pub(crate) fn messages(capture: &[u8]) -> Vec<CapturedMessage> {
    datagrams(capture, |after, datagram| {
        let packet = Packet::parse(datagram.payload).expect("a packet");
        if packet.destination != Qpn::GSI {
            return None;
        }
        let payload = packet.payload.private().expect("it is in this process");
        let bytes = payload.try_into().expect("256 bytes");
        let (header, message) = Message::parse(bytes).expect("a message");
        Some(CapturedMessage {
            after,
            addresses: Addresses {
                source: datagram.flow.source,
                destination: datagram.flow.destination,
            },
            transaction: header.transaction(),
            message,
        })
    })
}

pub(crate) fn other(name: &str) -> Vec<CapturedMessage> {
    let found = OTHERS.iter().find(|(other, _)| *other == name);
    messages(found.expect("a capture").1)
}

/// One connection in a capture: the messages of both sides.
pub(crate) struct Conversation {
    pub(crate) request: CapturedMessage,
    pub(crate) asked: ConnectRequest,
    pub(crate) reply: CapturedMessage,
    pub(crate) agreed: ConnectReply,
    pub(crate) ready: CapturedMessage,
    pub(crate) dreq: Option<(CapturedMessage, DisconnectRequest)>,
    pub(crate) drep: Option<(CapturedMessage, DisconnectReply)>,
}

macro_rules! find {
    ($all:expr, $kind:ident, $condition:expr) => {
        $all.iter().find_map(|captured| match captured.message {
            Message::$kind(message) if $condition(&message) => Some((*captured, message)),
            _ => None,
        })
    };
}

pub(crate) fn conversations(all: &[CapturedMessage]) -> Vec<Conversation> {
    let requests = all.iter().filter_map(|captured| match captured.message {
        Message::ConnectRequest(asked) => Some((*captured, asked)),
        _ => None,
    });
    let conversation = |(request, asked): (CapturedMessage, ConnectRequest)| {
        let id = asked.local_id;
        let (reply, agreed) = find!(all, ConnectReply, |m: &ConnectReply| m.remote_id == id)?;
        let (ready, _) = find!(all, ReadyToUse, |m: &ReadyToUse| m.local_id == id)?;
        let ids = [id, agreed.local_id];
        let dreq = find!(all, DisconnectRequest, |m: &DisconnectRequest| ids
            .contains(&m.local_id));
        // If the DREQs crossed, this is the response to the first.
        let first = dreq.map(|(_, dreq)| dreq.local_id);
        let drep = find!(all, DisconnectReply, |m: &DisconnectReply| Some(
            m.remote_id
        ) == first);
        Some(Conversation {
            request,
            asked,
            reply,
            agreed,
            ready,
            dreq,
            drep,
        })
    };
    requests.filter_map(conversation).collect()
}

pub(crate) fn each_conversation(examine: impl Fn(&str, &Conversation)) {
    let mut seen = 0;
    for (name, capture) in CONNECTIONS {
        let found = conversations(&messages(capture));
        assert_ne!(found.len(), 0, "{name}");
        found.iter().for_each(|found| examine(name, found));
        seen += found.len();
    }
    assert_eq!(seen, 14);
}

pub(crate) fn header_of(data: &[u8]) -> AddressHeader {
    AddressHeader::parse(data.first_chunk().expect("room")).expect("addresses")
}
