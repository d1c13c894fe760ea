//! What is worth telling about a number of packets.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::net::IpAddr;

use net::Direction;
use wire::cm::{CommunicationId, Message};
use wire::{Aeth, Datagram, Operation, Packet, Psn, Qpn, Syndrome, Transport};

use crate::output::count;

/// An answer may be this far ahead of the request that it answers; further away it belongs to
/// another queue pair.
const REACH: i32 = 1 << 16;

/// What was seen in the packets of some processes.
#[derive(Default)]
pub(super) struct Findings {
    sent: usize,
    received: usize,
    repeated: Occurrences,
    /// Refusals by their reason.
    refused: BTreeMap<String, Occurrences>,
    rejected: Occurrences,
    silent: Occurrences,
    process: Process,
}

/// How often something happened, and the first time that it did.
#[derive(Default)]
struct Occurrences {
    count: usize,
    first: String,
}

/// What is being followed in the packets of one process.
#[derive(Default)]
struct Process {
    /// The last packet of every stream of requests.
    streams: HashMap<(IpAddr, Qpn), Psn>,
    /// Requests without an answer so far: the last one of each stream.
    requests: HashMap<(IpAddr, Qpn), (Psn, String)>,
    /// Calls without an answer so far.
    calls: HashMap<CommunicationId, String>,
}

impl Findings {
    /// Looks at one packet, which begins with IP.
    pub(super) fn see(&mut self, direction: Direction, bytes: &[u8]) {
        let Ok(datagram) = Datagram::parse_ip(bytes) else {
            return;
        };
        let Ok(packet) = Packet::parse(datagram.payload) else {
            return;
        };
        match direction {
            Direction::Transmit => {
                self.sent += 1;
                self.see_sent(datagram.flow.destination, &packet);
            }
            Direction::Receive => {
                self.received += 1;
                self.see_received(datagram.flow.source, &packet);
            }
        }
    }

    /// What has no answer now won't get one.
    pub(super) fn end_of_process(&mut self) {
        let process = std::mem::take(&mut self.process);
        let requests = process.requests.into_values().map(|(_, text)| text);
        for text in requests.chain(process.calls.into_values()) {
            self.silent.note(|| text);
        }
    }

    fn see_sent(&mut self, peer: IpAddr, packet: &Packet<'_>) {
        if let Some(message) = packet.message() {
            self.process.see_sent_message(peer, packet, &message);
            return;
        }
        if !is_reliable(packet) || !packet.opcode.is_request() {
            return;
        }
        let stream = (peer, packet.destination);
        let last = self.process.streams.insert(stream, packet.psn);
        if last.is_some_and(|last| packet.psn.since(last) <= 0) {
            self.repeated.note(|| format!("{packet} to {peer}"));
        }
        if packet.acknowledge || packet.opcode.operation() == Operation::ReadRequest {
            let text = format!("{packet} to {peer}");
            self.process.requests.insert(stream, (packet.psn, text));
        }
    }

    fn see_received(&mut self, peer: IpAddr, packet: &Packet<'_>) {
        if let Some(message) = packet.message() {
            self.see_received_message(peer, packet, &message);
            return;
        }
        if !is_reliable(packet) || !packet.opcode.is_response() {
            return;
        }
        self.process.see_answer(peer, packet.psn);
        let refusal = match packet.aeth().map(Aeth::syndrome) {
            Some(Syndrome::ReceiverNotReady(_)) => "no receive posted".to_owned(),
            Some(Syndrome::Negative(code)) => code.to_string(),
            _ => return,
        };
        let refused = self.refused.entry(refusal).or_default();
        refused.note(|| format!("{packet} from {peer}"));
    }

    fn see_received_message(&mut self, peer: IpAddr, packet: &Packet<'_>, message: &Message) {
        let answered = match message {
            Message::Reject(reject) => {
                self.rejected.note(|| format!("{packet} from {peer}"));
                reject.remote_id
            }
            Message::ConnectReply(reply) => reply.remote_id,
            Message::ReceiptAcknowledge(receipt) => receipt.remote_id,
            _ => return,
        };
        self.process.calls.remove(&answered);
    }
}

impl Process {
    fn see_sent_message(&mut self, peer: IpAddr, packet: &Packet<'_>, message: &Message) {
        if let Message::ConnectRequest(request) = message {
            let text = format!("{packet} to {peer}");
            self.calls.insert(request.local_id, text);
        }
    }

    /// An answer names our queue pair and not the peer's, so the sequence number has to tell which
    /// request it is for.
    fn see_answer(&mut self, peer: IpAddr, psn: Psn) {
        self.requests.retain(|(asked, _), (request, _)| {
            *asked != peer || !(0..REACH).contains(&psn.since(*request))
        });
    }
}

impl Occurrences {
    fn note(&mut self, describe: impl FnOnce() -> String) {
        if self.count == 0 {
            self.first = describe();
        }
        self.count += 1;
    }

    fn tell(&self, f: &mut fmt::Formatter<'_>, one: &str, many: &str) -> fmt::Result {
        if self.count == 0 {
            return Ok(());
        }
        let what = count(self.count, one, many);
        let word = if self.count == 1 {
            ""
        } else {
            "the first was "
        };
        write!(f, " {what}: {word}{}.", self.first)
    }
}

fn is_reliable(packet: &Packet<'_>) -> bool {
    matches!(packet.opcode.transport(), Transport::Rc | Transport::Xrc)
}

impl fmt::Display for Findings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.sent + self.received == 0 {
            return f.write_str(
                "the program neither sent nor received an RDMA packet: it may not have opened a \
                 device, or not have found its peer by other means.",
            );
        }
        let (sent, received) = (self.sent, self.received);
        write!(
            f,
            "{} sent, {received} received.",
            count(sent, "packet", "packets")
        )?;
        self.rejected
            .tell(f, "connection was rejected", "connections were rejected")?;
        for (reason, refused) in &self.refused {
            let one = format!("request was refused ({reason})");
            let many = format!("requests were refused ({reason})");
            refused.tell(f, &one, &many)?;
        }
        self.repeated.tell(
            f,
            "request packet was sent again",
            "request packets were sent again",
        )?;
        self.silent.tell(
            f,
            "request got no answer: the peer is gone, or packets are lost",
            "requests got no answer: the peer is gone, or packets are lost",
        )?;
        let trouble = self.rejected.count + self.repeated.count + self.silent.count;
        if trouble == 0 && self.refused.is_empty() {
            f.write_str(" Nothing went wrong on the wire.")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use wire::{Flow, Fragmentation, NakCode, Opcode, PacketHead, ROCE_PORT, icrc};

    use super::*;

    const PSN: Psn = Psn::new(0x00ff_fff0);
    const HERE: &str = "10.0.0.1";
    const THERE: &str = "10.0.0.2";

    fn datagram(from: &str, to: &str, head: &PacketHead) -> Vec<u8> {
        let flow = Flow {
            source: from.parse().expect("an address"),
            destination: to.parse().expect("an address"),
            source_port: 0xc000,
            destination_port: ROCE_PORT,
        };
        let mut payload = head.bytes().to_vec();
        payload.extend(icrc::checksum(&flow, 0, &payload));
        let datagram = Datagram {
            flow,
            traffic_class: 0,
            flow_label: 0,
            hop_limit: 64,
            fragmentation: Fragmentation::NONE,
            payload: &payload,
        };
        let mut bytes = Vec::new();
        datagram.emit(&mut bytes);
        bytes
    }

    fn send(findings: &mut Findings, psn: Psn) {
        let head = PacketHead::new(Opcode::RcSendOnly, Qpn::new(0x22), psn).acknowledge(true);
        findings.see(Direction::Transmit, &datagram(HERE, THERE, &head));
    }

    fn answer(findings: &mut Findings, psn: Psn, syndrome: Syndrome) {
        let head = PacketHead::new(Opcode::RcAcknowledge, Qpn::new(0x11), psn)
            .push(&Aeth::new(syndrome, 1));
        findings.see(Direction::Receive, &datagram(THERE, HERE, &head));
    }

    fn told(mut findings: Findings) -> String {
        findings.end_of_process();
        findings.to_string()
    }

    #[test]
    fn an_answered_request_is_no_trouble() {
        let mut findings = Findings::default();
        send(&mut findings, PSN);
        answer(&mut findings, PSN, Syndrome::UNLIMITED);
        let text = told(findings);
        assert_eq!(
            text,
            "1 packet sent, 1 received. Nothing went wrong on the wire."
        );
    }

    #[test]
    fn a_refusal_is_told_with_its_reason() {
        let mut findings = Findings::default();
        send(&mut findings, PSN);
        answer(
            &mut findings,
            PSN,
            Syndrome::Negative(NakCode::RemoteAccess),
        );
        let text = told(findings);
        assert!(
            text.contains("1 request was refused (remote access error)"),
            "{text}"
        );
        assert!(text.contains("from 10.0.0.2"), "{text}");
    }

    #[test]
    fn a_request_without_an_answer_is_told_once_however_often_it_was_sent() {
        let mut findings = Findings::default();
        for _ in 0..3 {
            send(&mut findings, PSN);
        }
        let text = told(findings);
        assert!(text.contains("2 request packets were sent again"), "{text}");
        assert!(text.contains("1 request got no answer"), "{text}");
        assert!(text.contains("to 10.0.0.2"), "{text}");
    }

    #[test]
    fn an_answer_far_away_is_for_another_queue_pair() {
        let mut findings = Findings::default();
        send(&mut findings, PSN);
        answer(&mut findings, Psn::new(0x0040_0000), Syndrome::UNLIMITED);
        assert!(told(findings).contains("1 request got no answer"));
    }

    #[test]
    fn silence_is_told_too() {
        assert!(told(Findings::default()).contains("neither sent nor received"));
    }
}
