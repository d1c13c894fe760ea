//! A host under attack: an entry point for fuzzing.
//!
//! The input is read as steps: raw datagrams, packets with a valid ICRC of every length and opcode to
//! queue pair 1, connection manager messages, and time. After every attack the host must still
//! respond: a valid request for a service without a listener must be rejected.

use std::net::{IpAddr, Ipv4Addr};
use std::time::{Duration, Instant};

use engine::{State, transmit};
use host::{Config, Host, Owner};
use wire::cm::{
    AddressHeader, CommunicationId, ConnectRequest, Message, Path, PortSpace, PrivateData,
    RejectReason, ServiceId, Timeout,
};
use wire::{
    Deth, Flow, Gid, Immediate, Opcode, Packet, PacketHead, PathMtu, Psn, Qpn, QueueKey, Route,
    icrc, mad,
};

use crate::fuzz_input::Input;

/// Bounds the steps of one input, to keep fuzzing fast.
const MAX_STEPS: usize = 200;

/// More sends than this without new input mean that a host never stops.
const MAX_SENDS: usize = 10_000;

/// The longest time until a request without a listener is rejected, including the wait for a listener.
const REJECTION_TIMEOUT: Duration = Duration::from_secs(2);

/// How many times a request is sent before the check fails. A host drops requests while too many
/// others wait, and senders retransmit them.
const ATTEMPTS: u32 = 4;

const OURS: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
const THEIRS: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2));

/// A service with a listener, and one without.
const SERVED: ServiceId = ServiceId::of_port(PortSpace::Tcp, 7174);
const UNSERVED: ServiceId = ServiceId::of_port(PortSpace::Tcp, 9);

/// Attacks a host with this input; returns the number of packets that it received.
///
/// # Panics
/// If the host stops answering, never stops sending, or panics.
pub fn feed(data: &[u8]) -> u64 {
    let mut attack = Attack::new();
    let mut input = Input::new(data);
    for _ in 0..MAX_STEPS {
        if input.is_empty() {
            break;
        }
        attack.step(&mut input);
        attack.pump();
    }
    attack.check_response();
    attack.packets
}

struct Attack {
    host: Host,
    now: Instant,
    buffer: Vec<u8>,
    /// The number of requests. Each has its own communication id and queue pair number.
    requests: u32,
    /// How many packets were received.
    packets: u64,
    /// The result of look-ups of the owner of a message.
    owner: Owner,
    /// Messages that the host has sent.
    sent: Vec<Message>,
}

impl Attack {
    fn new() -> Self {
        let mut manager = cm::Config::new(1, [7; 32]);
        manager.id_range = cm::IdRange::new(6, 3).expect("six bits");
        let mut host = Host::new(Config {
            device: engine::Config {
                gids: vec![Gid::from(OURS)],
                ..engine::Config::default()
            },
            manager,
            shares_addresses: true,
            objects: None,
        })
        .expect("a new device has room");
        let manager = host.manager();
        manager.add_address(OURS);
        let id = manager
            .create_id(PortSpace::Tcp, cm::ServiceType::ReliableConnection)
            .expect("a first id");
        manager.bind(id, (OURS, 7174).into()).expect("a free port");
        manager.listen(id, 4).expect("a bound id");
        Self {
            host,
            // All times are relative to it.
            now: Instant::now(),
            buffer: Vec::new(),
            requests: 0,
            packets: 0,
            owner: Owner::None,
            sent: Vec::new(),
        }
    }

    fn step(&mut self, input: &mut Input<'_>) {
        match input.byte() {
            0..32 => {
                let length = usize::from(input.byte()) * 4;
                let bytes = input.take(length).to_vec();
                self.receive(&bytes, false);
            }
            32..128 => self.send_sealed(input),
            128..192 => self.send_message(input),
            192..224 => self.send_request(SERVED),
            224..232 => self.send_request(UNSERVED),
            232..240 => {
                self.owner = input.pick(&[Owner::Here, Owner::Elsewhere, Owner::None]);
            }
            _ => self.wait(Duration::from_millis(u64::from(input.number() % 100_000))),
        }
    }

    /// A packet with a valid ICRC, of any opcode and length.
    fn send_sealed(&mut self, input: &mut Input<'_>) {
        let opcode = match input.byte() {
            0..200 => Opcode::UdSendOnly,
            200..220 => Opcode::UdSendOnlyImmediate,
            other => Opcode::ALL[usize::from(other) % Opcode::ALL.len()],
        };
        let length = match input.byte() {
            0..64 => mad::LENGTH,
            other => usize::from(other) * 17,
        };
        let mut payload = input.take(32).to_vec();
        payload.resize(length, input.byte());
        if input.byte() < 128 && length >= 4 {
            let header = [1, mad::COMMUNICATION_MANAGEMENT, 2, mad::SEND];
            payload[..4].copy_from_slice(&header);
        }
        let key = match input.byte() {
            0..230 => QueueKey::GSI,
            other => QueueKey::new(other.into()),
        };
        let psn = Psn::new(input.number() & 0xff_ffff);
        let mut head = PacketHead::new(opcode, Qpn::GSI, psn);
        if matches!(opcode, Opcode::UdSendOnly | Opcode::UdSendOnlyImmediate) {
            head = head.push(&Deth::new(key, Qpn::new(u32::from(input.byte()))));
        }
        if opcode == Opcode::UdSendOnlyImmediate {
            head = head.push(&Immediate::new([1, 2, 3, 4]));
        }
        let packet = seal(head, &payload);
        self.receive(&packet, false);
    }

    /// A message of the connection manager, damaged in some bytes.
    fn send_message(&mut self, input: &mut Input<'_>) {
        let mut datagram = match self.sent.last() {
            Some(message) if input.byte() < 128 => message.emit(input.byte().into()),
            _ => self.request(SERVED).emit(input.byte().into()),
        };
        for _ in 0..input.byte() % 4 {
            let index = usize::from(input.byte());
            datagram[index] = input.byte();
        }
        let forwarded = input.byte() > 200;
        self.receive(&message_packet(&datagram), forwarded);
    }

    fn send_request(&mut self, service: ServiceId) {
        let datagram = self.request(service).emit(self.requests.into());
        self.receive(&message_packet(&datagram), false);
    }

    fn request(&mut self, service: ServiceId) -> Message {
        self.requests += 1;
        let header = AddressHeader {
            source_port: 40_000,
            source: THEIRS,
            destination: OURS,
        };
        Message::from(ConnectRequest {
            local_id: CommunicationId::new(self.requests),
            service_id: service,
            local_guid: 2,
            local_qpn: Qpn::new(0x100 + self.requests),
            path_mtu: Some(PathMtu::Mtu1024),
            local_response_timeout: Timeout::new(20).expect("a code has five bits"),
            max_cm_retries: 3,
            primary: Path {
                local_gid: Gid::from(THEIRS),
                remote_gid: Gid::from(OURS),
                hop_limit: 64,
                ..Path::default()
            },
            private_data: PrivateData::new(&header.emit()).expect("a header fits"),
            ..ConnectRequest::default()
        })
    }

    fn receive(&mut self, packet: &[u8], forwarded: bool) {
        self.packets += 1;
        let route = Route::new(flow());
        if !self.host.hold_for_lookup(&route, packet, forwarded) {
            self.host.handle_datagram(self.now, &route, packet);
        }
    }

    fn wait(&mut self, time: Duration) {
        self.now += time;
        self.host.handle_timeout(self.now);
    }

    /// Fetches all outputs, as a driver does.
    fn pump(&mut self) {
        while let Some(message) = self.host.poll_lookup(self.now) {
            if let Some(ours) = self.host.finish_lookup(self.now, message, self.owner) {
                self.host
                    .handle_datagram(self.now, &ours.route, &ours.packet);
            }
        }
        while self.host.poll_event().is_some() {}
        while self.host.poll_instruction().is_some() {}
        while self.host.poll_connection_event().is_some() {}
        let mut buffer = std::mem::take(&mut self.buffer);
        let mut sends = 0;
        while let Some(sent) = self.host.poll_transmit(self.now, &mut buffer) {
            sends += 1;
            assert!(sends < MAX_SENDS, "the host never stops sending");
            let packets = transmit::packets(&sent, &buffer);
            self.sent.extend(packets.filter_map(message_in));
        }
        self.buffer = buffer;
    }

    /// Queue pair 1 works, and a request is answered.
    fn check_response(&mut self) {
        let state = self.host.device().queue_pair(Qpn::GSI);
        let state = state.map(engine::QueuePair::state);
        assert_eq!(state, Some(State::ReadyToSend), "queue pair 1 left RTS");
        self.owner = Owner::None;
        let rejected = (0..ATTEMPTS).any(|_| self.is_rejected());
        assert!(rejected, "a request is not answered");
    }

    /// Sends a request for a service without a listener; returns whether it is rejected in time.
    fn is_rejected(&mut self) -> bool {
        self.sent.clear();
        self.send_request(UNSERVED);
        let asked = CommunicationId::new(self.requests);
        let until = self.now + REJECTION_TIMEOUT;
        self.pump();
        while self.now < until {
            let due = self.host.poll_timeout().unwrap_or(until);
            self.wait(due.clamp(self.now, until) - self.now);
            self.pump();
        }
        self.sent.iter().any(|message| {
            matches!(message, Message::Reject(reject)
                if reject.remote_id == asked && reject.reason == RejectReason::InvalidServiceId)
        })
    }
}

fn flow() -> Flow {
    Flow {
        source: THEIRS,
        destination: OURS,
        source_port: 49_152,
        destination_port: wire::ROCE_PORT,
    }
}

fn message_packet(datagram: &[u8]) -> Vec<u8> {
    let head = PacketHead::new(Opcode::UdSendOnly, Qpn::GSI, Psn::new(0));
    seal(head.push(&Deth::new(QueueKey::GSI, Qpn::GSI)), datagram)
}

fn seal(head: PacketHead, payload: &[u8]) -> Vec<u8> {
    let pad = payload.len().wrapping_neg() % 4;
    let mut packet = head.pad(pad as u8).bytes().to_vec();
    packet.extend_from_slice(payload);
    packet.extend_from_slice(&[0; 3][..pad]);
    packet.extend(icrc::checksum(&flow(), 0, &packet));
    packet
}

fn message_in(packet: &[u8]) -> Option<Message> {
    let packet = Packet::parse(packet).ok()?;
    let (_, message) = Message::parse(packet.payload.private()?.try_into().ok()?).ok()?;
    Some(message)
}

#[cfg(test)]
mod tests {
    use wire::cm::{DisconnectRequest, Reject, RejectedMessage};

    use super::*;
    use crate::rng::Rng;

    #[test]
    fn request_without_a_listener_is_rejected() {
        feed(&[]);
    }

    #[test]
    fn datagrams_of_every_length_leave_queue_pair_1_in_rts() {
        let mut attack = Attack::new();
        for length in 0..600 {
            let payload = vec![1; length];
            attack.receive(&message_packet(&payload), false);
            attack.pump();
        }
        attack.check_response();
    }

    #[test]
    fn host_responds_after_random_attacks() {
        let mut rng = Rng::new(11);
        for _ in 0..500 {
            let length = rng.below(800);
            feed(&rng.bytes(length));
        }
    }

    #[test]
    fn damaged_message_causes_no_lookup() {
        let mut attack = Attack::new();
        let mut packet = message_packet(&attack.request(UNSERVED).emit(1));
        attack.receive(&packet, false);
        assert!(attack.host.poll_lookup(attack.now).is_some());
        let last = packet.len() - 1;
        packet[last] ^= 0x55;
        attack.receive(&packet, false);
        assert!(attack.host.poll_lookup(attack.now).is_none());
    }

    #[test]
    fn messages_waiting_for_a_lookup_are_bounded() {
        let mut attack = Attack::new();
        let packet = message_packet(&attack.request(UNSERVED).emit(1));
        for _ in 0..1000 {
            attack.receive(&packet, false);
        }
        assert_eq!(attack.host.dropped_messages(), 1000 - 256);
    }

    #[test]
    fn requests_waiting_for_a_listener_are_bounded() {
        let mut attack = Attack::new();
        for _ in 0..65 {
            attack.send_request(UNSERVED);
        }
        attack.pump();
        let rejects = attack.sent.iter();
        let rejects = rejects.filter(|it| matches!(it, Message::Reject(_)));
        assert_eq!(rejects.count(), 1, "64 wait, the last is rejected at once");
    }

    #[test]
    fn pending_request_reaches_a_later_listener() {
        let mut attack = Attack::new();
        attack.send_request(UNSERVED);
        attack.pump();
        attack.wait(Duration::from_millis(100));
        let manager = attack.host.manager();
        let id = manager
            .create_id(PortSpace::Tcp, cm::ServiceType::ReliableConnection)
            .expect("an id");
        manager.bind(id, (OURS, 9).into()).expect("a free port");
        manager.listen(id, 4).expect("a bound id");
        // The look-up finds that the service is ours now.
        let message = attack.host.poll_lookup(attack.now).expect("it is due");
        assert!(attack.host.is_ours(message.recipient));
        let ours = attack.host.finish_lookup(attack.now, message, Owner::Here);
        let ours = ours.expect("it must be handled here");
        attack
            .host
            .handle_datagram(attack.now, &ours.route, &ours.packet);
        let event = attack.host.poll_connection_event().expect("an event");
        assert!(matches!(event.kind, cm::EventKind::ConnectRequest { .. }));
    }

    /// Otherwise two processes would forward a message back and forth.
    #[test]
    fn forwarded_message_is_looked_up_again_only_if_it_is_a_request() {
        let mut attack = Attack::new();
        let request = message_packet(&attack.request(UNSERVED).emit(1));
        attack.receive(&request, true);
        assert!(attack.host.poll_lookup(attack.now).is_some());
        attack.receive(&disconnect_request(), true);
        assert!(attack.host.poll_lookup(attack.now).is_none());
    }

    #[test]
    fn message_for_an_unowned_communication_id_is_answered() {
        let mut attack = Attack::new();
        attack.receive(&disconnect_request(), false);
        attack.pump();
        assert!(matches!(attack.sent[..], [Message::DisconnectReply(_)]));
    }

    #[test]
    fn message_owned_by_another_process_is_not_handled() {
        let mut attack = Attack::new();
        attack.owner = Owner::Elsewhere;
        attack.receive(&disconnect_request(), false);
        attack.pump();
        assert!(attack.sent.is_empty());
    }

    /// Otherwise flushed receives would be posted and flushed without end.
    #[test]
    fn queue_pair_1_in_error_does_not_repost_flushed_receives() {
        let mut attack = Attack::new();
        let broken = attack.host.device_mut().move_to_error(Qpn::GSI);
        broken.expect("queue pair 1 exists");
        attack.receive(&message_packet(&[0; mad::LENGTH]), false);
        attack.pump();
        attack.send_request(SERVED);
    }

    #[test]
    fn rejected_connection_moves_its_queue_pair_to_error() {
        let mut attack = Attack::new();
        let device = attack.host.device_mut();
        let domain = device.allocate_domain().expect("a domain");
        let queue = device.create_completion_queue(4).expect("a queue");
        let init = engine::QueuePairInit::new(engine::QueuePairType::Rc, domain, queue);
        let number = device.create_queue_pair(init).expect("a queue pair");
        let initialized = engine::Attributes {
            state: Some(State::Initialized),
            port: Some(1),
            partition_index: Some(0),
            access: Some(engine::Access::empty()),
            ..engine::Attributes::default()
        };
        device.modify(number, &initialized).expect("Init");
        attack.send_request(SERVED);
        let event = attack.host.poll_connection_event().expect("a request");
        let parameters = cm::Parameters::new(number);
        let accepted = attack
            .host
            .manager()
            .accept(attack.now, event.id, &parameters);
        accepted.expect("a request that waits");
        attack.pump();
        let Some(Message::ConnectReply(reply)) = attack.sent.last() else {
            panic!("no reply: {:?}", attack.sent);
        };
        let reject = Reject {
            local_id: reply.remote_id,
            remote_id: reply.local_id,
            message: RejectedMessage::Reply,
            reason: RejectReason::Consumer,
            ..Reject::default()
        };
        attack.receive(&message_packet(&Message::from(reject).emit(1)), false);
        attack.pump();
        let state = attack.host.device().queue_pair(number);
        assert_eq!(state.map(engine::QueuePair::state), Some(State::Error));
    }

    /// For an id outside of this process's range.
    fn disconnect_request() -> Vec<u8> {
        let request = DisconnectRequest {
            local_id: CommunicationId::new(5),
            remote_id: CommunicationId::new(0xffff_fff0),
            ..DisconnectRequest::default()
        };
        message_packet(&Message::from(request).emit(9))
    }
}
