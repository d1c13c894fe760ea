//! Collects the packets of a capture in tracks.

use std::collections::{BTreeSet, HashMap};
use std::io::Read;
use std::net::IpAddr;
use std::num::NonZeroU32;
use std::time::Duration;

use wire::{
    Datagram, Fragmentation, IcrcChecker, Operation, Packet as WirePacket, Qpn, ROCE_PORT,
    Syndrome, Transport,
};

use crate::capture::{self, Direction, Ending, Frame, Item, LinkError, ReadError, network};
use crate::capture_summary::CaptureSummary;
use crate::captured_twice::{CapturePoint, RecentPackets, Recurrence};
use crate::cm_exchanges::Exchanges;
use crate::connection::Endpoint;
use crate::connection_end::Side;
use crate::journal::{self, Event, EventKind};
use crate::merge;
use crate::packet::{Marks, Packet, Role};
use crate::packet_headers::Heads;
use crate::segmentation_offload::Divider;
use crate::track::{TrackKey, Tracks};
use crate::typed_index::{ConnectionId, EndpointId, PacketId};

/// Longer than any IP packet with its link header.
const LONGEST_FRAME: usize = 66_000;

/// What was read.
#[derive(Default)]
pub(crate) struct Collection {
    pub(crate) summary: CaptureSummary,
    pub(crate) endpoints: Vec<Endpoint>,
    /// Their connection field contains a track until tracks are paired.
    pub(crate) packets: Vec<Packet>,
    pub(crate) heads: Heads,
    pub(crate) tracks: Tracks,
    pub(crate) exchanges: Exchanges,
    pub(crate) malformed: Vec<Malformed>,
    /// What the programs did, sorted by time.
    pub(crate) events: Vec<Event>,
    /// Which of the processes in the summary has which queue pair.
    pub(crate) process_of: HashMap<(EndpointId, Qpn), usize>,
}

/// Bytes on the port of RoCEv2 that are no packet.
pub(crate) struct Malformed {
    pub(crate) time: u64,
    pub(crate) frame: u32,
    pub(crate) why: String,
}

/// Where and when a packet was captured.
#[derive(Clone, Copy)]
struct Moment<'a> {
    time: u64,
    frame: u32,
    vantage: CapturePoint,
    comment: Option<&'a str>,
    /// The captured bytes of the UDP payload.
    captured: usize,
}

impl Moment<'_> {
    /// The fault that our own captures name in front of the rest of the comment.
    fn fault(&self) -> Option<&str> {
        fault(self.comment?)
    }

    /// What its capture point says about a packet.
    fn marks(&self) -> Marks {
        let Some(fault) = self.fault() else {
            return passed(self.vantage.direction);
        };
        match self.vantage.direction {
            Some(Direction::Inbound) if is_drop(fault) => Marks::FAULTED | Marks::LOST,
            direction if is_drop(fault) => Marks::FAULTED | Marks::LOST | passed(direction),
            direction => Marks::FAULTED | passed(direction),
        }
    }

    /// The queue pair that sent a packet. Our own captures name it in a comment: `request of QP 0x11`,
    /// `answer of QP 0x11`, or `SEND wr_id 7 of QP 0x11`, which is the requester and therefore not the
    /// sender of a response. The direction is not needed: other tools remove it.
    fn sender(&self, packet: &WirePacket<'_>) -> Option<Qpn> {
        let (before, number) = self.comment?.rsplit_once(" of QP 0x")?;
        let names_requester = !before.ends_with("answer");
        if packet.opcode.is_response() == names_requester {
            return None;
        }
        let digits = number.find(|digit: char| !digit.is_ascii_hexdigit());
        let number = &number[..digits.unwrap_or(number.len())];
        u32::from_str_radix(number, 16).ok().map(Qpn::new)
    }
}

/// Whether a datagram is intact.
#[derive(Clone, Copy, PartialEq)]
enum Integrity {
    Intact,
    Damaged,
    Cut,
}

/// Reads whole captures. Several are merged by time. An error names the capture by its place.
pub(crate) fn collect<R: Read>(sources: Vec<R>) -> Result<Collection, (usize, ReadError)> {
    let mut collector = Collector::default();
    let endings = match <[R; 1]>::try_from(sources) {
        Ok([source]) => {
            let take = |item: Item<'_>| collector.take(item);
            vec![capture::read(source, take).map_err(|error| (0, error))?]
        }
        Err(sources) => merge::read(sources, |item| collector.take(item))?,
    };
    Ok(collector.finish(endings))
}

#[derive(Default)]
struct Collector {
    collection: Collection,
    by_address: HashMap<IpAddr, EndpointId>,
    recent: RecentPackets,
    checker: IcrcChecker,
    divider: Divider,
    strange_links: BTreeSet<u32>,
    /// Packets of which not even the headers were captured.
    headless: u64,
    last_time: u64,
    /// A buffer for truncated frames, kept to reuse its memory.
    whole_frame: Vec<u8>,
    /// The process that wrote the present section.
    process: Option<usize>,
}

impl Collector {
    fn take(&mut self, item: Item<'_>) {
        match item {
            Item::Section(application) => {
                let processes = &mut self.collection.summary.processes;
                self.process = application.and_then(|name| journal::process(name, processes));
            }
            Item::Journal(entry) => {
                self.collection.summary.frames += 1;
                self.collection.summary.journal += 1;
                let event = Event::parse(entry, self.process);
                self.collection.events.extend(event);
            }
            Item::Frame(frame) => self.take_frame(&frame),
        }
    }

    fn finish(self, endings: Vec<Ending>) -> Collection {
        let mut collection = self.collection;
        for ending in endings {
            collection.summary.format = ending.format;
            collection.summary.cut_off |= ending.cut_off;
            collection.summary.remarks.extend(ending.remark);
        }
        if !self.strange_links.is_empty() {
            let remark = strange_links(&self.strange_links);
            collection.summary.remarks.push(remark);
        }
        if self.headless > 0 {
            let remark = headless(self.headless);
            collection.summary.remarks.push(remark);
        }
        collection.finish();
        collection
    }

    fn take_frame(&mut self, frame: &Frame<'_>) {
        self.collection.summary.frames += 1;
        self.last_time = frame.time.unwrap_or(self.last_time);
        if frame.bytes.len() >= frame.original_length || frame.original_length > LONGEST_FRAME {
            return self.take_bytes(frame, frame.bytes, None);
        }
        let mut whole = std::mem::take(&mut self.whole_frame);
        whole.clear();
        whole.extend_from_slice(frame.bytes);
        whole.resize(frame.original_length, 0);
        self.take_bytes(frame, &whole, Some(frame.bytes.len()));
        self.whole_frame = whole;
    }

    /// `captured` is the number of captured bytes, if the frame is truncated.
    fn take_bytes(&mut self, frame: &Frame<'_>, bytes: &[u8], captured: Option<usize>) {
        let network = match network(frame.link, bytes) {
            Ok(network) => network,
            Err(error) => {
                self.collection.summary.foreign += 1;
                if let LinkError::Unknown(link) = error {
                    self.strange_links.insert(link);
                }
                return;
            }
        };
        let datagram = match Datagram::parse_ip(network.packet) {
            Ok(datagram) if is_roce(&datagram) => datagram,
            _ => {
                self.collection.summary.foreign += 1;
                return;
            }
        };
        let moment = Moment {
            time: self.last_time,
            frame: u32::try_from(self.collection.summary.frames).unwrap_or(u32::MAX),
            vantage: CapturePoint {
                interface: network.interface.unwrap_or(frame.interface),
                direction: frame.direction.or(network.direction),
            },
            comment: frame.comment,
            captured: match captured {
                Some(captured) => {
                    let before = datagram.payload.as_ptr().addr() - bytes.as_ptr().addr();
                    captured.saturating_sub(before)
                }
                None => usize::MAX,
            },
        };
        match captured {
            None => self.take_whole(&moment, &datagram),
            Some(_) => self.take_beginning(&moment, &datagram),
        }
    }

    fn take_beginning(&mut self, moment: &Moment<'_>, datagram: &Datagram<'_>) {
        match WirePacket::parse(datagram.payload) {
            Ok(packet) if packet.opcode.header_length() <= moment.captured => {
                self.take_packet(moment, datagram, &packet, Integrity::Cut);
            }
            _ => self.headless += 1,
        }
    }

    fn take_whole(&mut self, moment: &Moment<'_>, datagram: &Datagram<'_>) {
        let sealed_for = self.checker.check(&datagram.flow, datagram.payload);
        if sealed_for == Ok(datagram.fragmentation) {
            return self.take_datagram(moment, datagram, Integrity::Intact);
        }
        let Some(size) = self.divider.size(&datagram.flow, datagram.payload) else {
            return self.take_datagram(moment, datagram, Integrity::Damaged);
        };
        for (index, payload) in datagram.payload.chunks(size).enumerate() {
            let fragmentation = Fragmentation {
                identification: index as u16,
                dont_fragment: true,
            };
            let segment = Datagram {
                payload,
                fragmentation,
                ..*datagram
            };
            self.take_datagram(moment, &segment, Integrity::Intact);
        }
    }

    fn take_datagram(
        &mut self,
        moment: &Moment<'_>,
        datagram: &Datagram<'_>,
        integrity: Integrity,
    ) {
        match WirePacket::parse(datagram.payload) {
            Ok(packet) => self.take_packet(moment, datagram, &packet, integrity),
            Err(error) => self.collection.malformed.push(Malformed {
                time: moment.time,
                frame: moment.frame,
                why: error.to_string(),
            }),
        }
    }

    fn take_packet(
        &mut self,
        moment: &Moment<'_>,
        datagram: &Datagram<'_>,
        packet: &WirePacket<'_>,
        integrity: Integrity,
    ) {
        self.note_process(moment, datagram, packet);
        let number = self.collection.packets.len();
        match self.recent.find(datagram, moment.vantage, number) {
            Recurrence::First => {}
            Recurrence::Elsewhere(first) => {
                let track = self.collection.packets[first].connection;
                let sender = moment.sender(packet);
                self.collection.tracks.name(track.index(), sender);
                return self.collection.seen_again(first, moment);
            }
            Recurrence::Copy(first) => {
                let track = self.collection.packets[first].connection;
                self.collection.tracks.list[track.index()].copies += 1;
                return;
            }
        }
        let bytes = &datagram.payload[..datagram.payload.len().min(moment.captured)];
        let Some(head) = self.collection.heads.keep(packet, bytes) else {
            return;
        };
        let track = self.track_of(moment, datagram, packet, number);
        let length = packet.payload.len() as u16;
        if integrity != Integrity::Damaged {
            self.collection.tracks.learn(track, packet.opcode, length);
        }
        self.collection.packets.push(Packet {
            time: moment.time,
            flight: None,
            frame: moment.frame,
            connection: ConnectionId::new(track),
            message: None,
            destination: packet.destination,
            psn: packet.psn,
            head,
            length,
            source_port: datagram.flow.source_port,
            opcode: packet.opcode,
            from: Side::Left,
            role: role(packet),
            marks: marks(moment, datagram, packet, integrity),
        });
        if let Some(comment) = moment.comment {
            let comment = (PacketId::new(number), comment.to_owned());
            self.collection.summary.comments.push(comment);
        }
    }

    /// The process that captured a packet has the queue pair that sent it, or the one that it goes to.
    fn note_process(
        &mut self,
        moment: &Moment<'_>,
        datagram: &Datagram<'_>,
        packet: &WirePacket<'_>,
    ) {
        let (Some(process), Some(direction)) = (self.process, moment.vantage.direction) else {
            return;
        };
        let (address, number) = match direction {
            Direction::Inbound => (datagram.flow.destination, Some(packet.destination)),
            Direction::Outbound => (datagram.flow.source, moment.sender(packet)),
        };
        let Some(number) = number.filter(|&number| number != Qpn::GSI) else {
            return;
        };
        let endpoint = self.endpoint(address);
        let owners = &mut self.collection.process_of;
        owners.entry((endpoint, number)).or_insert(process);
    }

    fn track_of(
        &mut self,
        moment: &Moment<'_>,
        datagram: &Datagram<'_>,
        packet: &WirePacket<'_>,
        number: usize,
    ) -> usize {
        let from = self.endpoint(datagram.flow.source);
        let to = self.endpoint(datagram.flow.destination);
        let Collection {
            tracks, exchanges, ..
        } = &mut self.collection;
        if let Some(message) = packet.message() {
            return exchanges.add(&message, from, to, number, tracks);
        }
        let key = TrackKey {
            from,
            to,
            number: packet.destination,
            source: packet
                .deth()
                .map(wire::Deth::source)
                .or(moment.sender(packet)),
        };
        tracks.of(key, packet.opcode)
    }

    fn endpoint(&mut self, address: IpAddr) -> EndpointId {
        let endpoints = &mut self.collection.endpoints;
        *self.by_address.entry(address).or_insert_with(|| {
            endpoints.push(Endpoint { address });
            EndpointId::new(endpoints.len() - 1)
        })
    }
}

impl Collection {
    fn seen_again(&mut self, first: usize, moment: &Moment<'_>) {
        self.summary.seen_twice += 1;
        let packet = &mut self.packets[first];
        packet.marks |= Marks::SEEN_TWICE | moment.marks();
        if let Some(fault) = moment.fault() {
            self.summary.add_fault(PacketId::new(first), fault);
        }
        if packet.marks.contains(Marks::LEFT_HERE | Marks::CAME_HERE) {
            let flight = moment.time.saturating_sub(packet.time);
            packet.flight = u32::try_from(flight).ok().and_then(NonZeroU32::new);
        }
    }

    /// Sorts packets by time, and makes times relative to the first packet.
    fn finish(&mut self) {
        self.sort();
        let start = self.packets.first().map_or(0, |packet| packet.time);
        for packet in &mut self.packets {
            packet.time -= start;
        }
        for malformed in &mut self.malformed {
            malformed.time = malformed.time.saturating_sub(start);
        }
        self.events.sort_by_key(|event| event.time);
        for event in &mut self.events {
            event.time -= i128::from(start);
        }
        let unexpected = self.events.iter().filter(|it| it.kind == EventKind::Async);
        self.summary.async_events = unexpected
            .map(|event| {
                let time = i64::try_from(event.time).unwrap_or(i64::MAX);
                let name = match event.queue_pair {
                    Some(number) => format!("{} of QP {:#x}", event.work, number.value()),
                    None => event.work.clone(),
                };
                (time, name)
            })
            .collect();
        self.summary.start = Duration::from_nanos(start);
        self.summary.duration = self.packets.last().map_or(0, |packet| packet.time);
    }

    /// Files with several interfaces or writers are not strictly sorted by time.
    fn sort(&mut self) {
        if self.packets.is_sorted_by_key(|packet| packet.time) {
            return;
        }
        let mut order: Vec<usize> = (0..self.packets.len()).collect();
        order.sort_by_key(|&place| self.packets[place].time);
        let mut new_place = vec![0; order.len()];
        for (new, &old) in order.iter().enumerate() {
            new_place[old] = new;
        }
        self.packets = order.iter().map(|&place| self.packets[place]).collect();
        for (packet, _) in &mut self.summary.comments {
            *packet = PacketId::new(new_place[packet.index()]);
        }
        self.summary.comments.sort_by_key(|(packet, _)| *packet);
        for exchange in &mut self.exchanges.list {
            for message in &mut exchange.messages {
                message.packet = new_place[message.packet];
            }
            exchange.messages.sort_by_key(|message| message.packet);
        }
    }
}

/// Whether a datagram is a RoCE packet, and not a probe of Rocinante: of its port sharing, or whether anybody serves the port. The
/// latter is 16 zeros; an empty datagram is a probe of other tools. RoCE devices drop them all.
fn is_roce(datagram: &Datagram<'_>) -> bool {
    const SHARING_PROBE: [u8; 4] = [0xff, 0x0f, b'r', b'c'];
    const PORT_PROBE: [u8; 16] = [0; 16];
    let payload = datagram.payload;
    let is_probe =
        payload.is_empty() || payload == PORT_PROBE || payload.starts_with(&SHARING_PROBE);
    datagram.flow.destination_port == ROCE_PORT && !is_probe
}

/// The part of a comment that names injected faults.
pub(crate) fn fault(comment: &str) -> Option<&str> {
    let first = comment.split("; ").next()?;
    first.ends_with("by fault injection").then_some(first)
}

fn is_drop(fault: &str) -> bool {
    fault.contains("dropped") || fault.contains("killed")
}

fn passed(direction: Option<Direction>) -> Marks {
    match direction {
        Some(Direction::Outbound) => Marks::LEFT_HERE,
        Some(Direction::Inbound) => Marks::CAME_HERE,
        None => Marks::empty(),
    }
}

fn marks(
    moment: &Moment<'_>,
    datagram: &Datagram<'_>,
    packet: &WirePacket<'_>,
    integrity: Integrity,
) -> Marks {
    /// RFC 3168: both bits set mean congestion experienced.
    const CONGESTION_EXPERIENCED: u8 = 3;
    let congested = datagram.traffic_class & CONGESTION_EXPERIENCED == CONGESTION_EXPERIENCED
        || packet.forward_congestion
        || packet.backward_congestion;
    let mut marks = moment.marks();
    marks.set(Marks::DAMAGED, integrity == Integrity::Damaged);
    marks.set(Marks::CUT, integrity == Integrity::Cut);
    marks.set(Marks::ASKS, packet.acknowledge);
    marks.set(Marks::CONGESTED, congested);
    marks
}

fn role(packet: &WirePacket<'_>) -> Role {
    match packet.opcode.operation() {
        Operation::CongestionNotification => Role::Congestion,
        Operation::ReadResponse | Operation::AtomicAcknowledge => Role::Response,
        Operation::Acknowledge => match packet.aeth().map(wire::Aeth::syndrome) {
            Some(Syndrome::ReceiverNotReady(_)) => Role::NotReady,
            Some(Syndrome::Negative(_) | Syndrome::Reserved(_)) => Role::Reject,
            Some(Syndrome::Acknowledge { .. }) | None => Role::Acknowledge,
        },
        _ if is_management(packet) => Role::Manage,
        _ => Role::Request,
    }
}

fn is_management(packet: &WirePacket<'_>) -> bool {
    packet.opcode.transport() == Transport::Ud && packet.message().is_some()
}

fn strange_links(links: &BTreeSet<u32>) -> String {
    let links: Vec<_> = links.iter().map(ToString::to_string).collect();
    format!(
        "Frames of link type {} are left out: capture on an Ethernet or loopback interface, or with -i any.",
        links.join(", ")
    )
}

fn headless(packets: u64) -> String {
    format!(
        "{packets} packets were captured without all of their headers: capture with a longer snap length (tcpdump -s 0)."
    )
}
