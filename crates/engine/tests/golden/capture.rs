//! One connection out of a capture of the kernel's device.

use std::net::IpAddr;

use pcap_file::pcap::PcapReader;
use wire::{Datagram, Flow, Key, Opcode, Packet, Psn, Qpn, Transport};

/// A capture that is compiled in, because these tests open no files.
macro_rules! capture {
    ($name:literal) => {
        $crate::capture::Capture::read(include_bytes!(concat!(
            "../../../wire/tests/golden/",
            $name,
            ".pcap"
        )))
    };
}
pub(crate) use capture;

/// A packet and its flow.
pub(crate) struct Frame {
    pub(crate) flow: Flow,
    pub(crate) bytes: Vec<u8>,
}

impl Frame {
    pub(crate) fn packet(&self) -> Packet<'_> {
        Packet::parse(&self.bytes).expect("the packet was parsed before")
    }

    /// The memory that it names: address, length, key.
    pub(crate) fn memory(&self) -> Option<(u64, u32, Key)> {
        let packet = self.packet();
        let reth = packet.reth().map(|reth| {
            let length = reth.dma_length();
            (reth.virtual_address(), length, reth.remote_key())
        });
        reth.or_else(|| {
            let atomic = packet.atomic()?;
            Some((atomic.virtual_address(), 8, atomic.remote_key()))
        })
    }
}

/// The packets of one reliable connection, in capture order.
pub(crate) struct Capture {
    pub(crate) frames: Vec<Frame>,
    client: IpAddr,
}

impl Capture {
    pub(crate) fn read(bytes: &[u8]) -> Self {
        let mut reader = PcapReader::new(bytes).expect("a capture");
        let mut frames = Vec::new();
        while let Some(frame) = reader.next_packet() {
            let frame = frame.expect("a frame").data;
            let datagram = Datagram::parse_ethernet(&frame).expect("a datagram");
            let packet = Packet::parse(datagram.payload).expect("a packet");
            if packet.opcode.transport() == Transport::Rc {
                frames.push(Frame {
                    flow: datagram.flow,
                    bytes: datagram.payload.to_vec(),
                });
            }
        }
        let client = frames.first().expect("a connection").flow.source;
        let mut capture = Self { frames, client };
        // Some programs have several connections. The first one is used.
        let ends = [capture.server(), capture.client()];
        capture
            .frames
            .retain(|frame| ends.contains(&frame.packet().destination));
        capture
    }

    pub(crate) fn is_request(&self, frame: &Frame) -> bool {
        frame.flow.source == self.client && frame.packet().opcode.is_request()
    }

    pub(crate) fn is_response(&self, frame: &Frame) -> bool {
        frame.flow.source != self.client && frame.packet().opcode.is_response()
    }

    pub(crate) fn requests(&self) -> impl Iterator<Item = &Frame> {
        self.frames.iter().filter(|frame| self.is_request(frame))
    }

    pub(crate) fn responses(&self) -> impl Iterator<Item = &Frame> {
        self.frames.iter().filter(|frame| self.is_response(frame))
    }

    pub(crate) fn first_request(&self) -> &Frame {
        self.requests().next().expect("a request")
    }

    pub(crate) fn first_psn(&self) -> Psn {
        self.first_request().packet().psn
    }

    /// The server's queue pair number.
    pub(crate) fn server(&self) -> Qpn {
        self.first_request().packet().destination
    }

    /// The client's queue pair number.
    pub(crate) fn client(&self) -> Qpn {
        let response = self.responses().next().expect("a response");
        response.packet().destination
    }

    /// The content of the server's memory, by address, as far as its responses show it.
    pub(crate) fn known_memory(&self, mtu: u64) -> Vec<(u64, Vec<u8>)> {
        let mut known = Vec::new();
        for response in self.responses() {
            let packet = response.packet();
            if packet.opcode == Opcode::RcAcknowledge {
                continue;
            }
            if let Some((address, first)) = self.request_at(packet.psn) {
                let skipped = u64::from(packet.psn.ahead_of(first)) * mtu;
                let bytes = match packet.atomic_acknowledge() {
                    Some(result) => result.original().to_ne_bytes().to_vec(),
                    None => packet.payload.to_vec(),
                };
                known.push((address + skipped, bytes));
            }
        }
        known
    }

    /// The address and the PSN of the read or atomic that a response with this PSN answers.
    fn request_at(&self, psn: Psn) -> Option<(u64, Psn)> {
        let has_response = |opcode| {
            matches!(
                opcode,
                Opcode::RcReadRequest | Opcode::RcFetchAdd | Opcode::RcCompareSwap
            )
        };
        self.requests()
            .filter(|request| has_response(request.packet().opcode))
            .filter(|request| psn.since(request.packet().psn) >= 0)
            .max_by_key(|request| request.packet().psn.since(psn))
            .and_then(|request| Some((request.memory()?.0, request.packet().psn)))
    }
}
