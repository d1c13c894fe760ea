//! A hostile peer that knows the protocol.
//!
//! Every packet has a valid ICRC. Most packets belong to the connection and are in sequence, with
//! keys and addresses close to the right ones. No packet may change a byte that the peer has no
//! right to write, cause a panic, or make a queue grow without bound.

mod conversation;

use std::sync::Arc;

use conversation::*;
use engine::{
    Access, Binding, Buffer, Extent, QueuePairType, ReceiveRequest, SendRequest, State, WindowKind,
    Work,
};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use wire::{
    Aeth, AtomicAckEth, AtomicEth, Deth, Extension, Feth, FlushPlacement, FlushRange, Ieth,
    Immediate, Key, Opcode, Psn, QueueKey, Reth, Srqn, Syndrome, Xrceth,
};

/// The region is in the middle of its buffer, between two guard areas of this length.
const GUARD: usize = 4096;
const OPEN: usize = 4096;
const BASE: u64 = 0x10_0000;
const SENTINEL: u8 = 0xa5;

/// The device, and all memory that the peer may try to access.
struct Target {
    peer: Conversation,
    arena: Arc<Buffer>,
    /// Regions that no peer may write: without remote rights, read-only, and deregistered.
    protected: Vec<Region>,
    /// Memory that SENDs and reads fill, between its guard areas.
    inbox: Arc<Buffer>,
    inbox_key: Key,
    keys: Vec<Key>,
    /// The PSN that the device probably expects.
    cursor: Psn,
}

fn guarded(peer: &mut Conversation, address: u64, access: Access) -> (Arc<Buffer>, Key) {
    let buffer = Buffer::copy_of(&[SENTINEL; GUARD + OPEN + GUARD]);
    let whole = Extent::from(Arc::clone(&buffer));
    let middle = whole
        .part(GUARD as u64, OPEN as u64)
        .expect("the middle is inside");
    let registration = peer
        .device
        .register(peer.domain, middle, address, access)
        .expect("the memory is registered");
    (buffer, registration.remote_key)
}

impl Target {
    fn new(kind: QueuePairType) -> Self {
        let mut peer = Conversation::with(Setup {
            kind,
            ..Setup::default()
        });
        let (arena, open) = guarded(&mut peer, BASE, all_access());
        let (inbox, inbox_key) = guarded(&mut peer, BASE, Access::LOCAL_WRITE);
        let data = [SENTINEL; OPEN];
        let hidden = peer.registers_for(BASE, &data, Access::LOCAL_WRITE);
        let read_only = peer.registers_for(BASE, &data, Access::REMOTE_READ);
        let stale = peer.registers(BASE, &data);
        peer.deregisters(&stale);
        let keys = vec![
            open,
            inbox_key,
            hidden.key(),
            read_only.key(),
            stale.key(),
            Key::new(open.value() ^ 1),
        ];
        let mut target = Self {
            peer,
            arena,
            protected: vec![hidden, read_only, stale],
            inbox,
            inbox_key,
            keys,
            cursor: PSN,
        };
        target.binds_window(open);
        target.posts_work();
        target
    }

    /// Binds a window that grants read access to a part of the region.
    fn binds_window(&mut self, region: Key) {
        let peer = &mut self.peer;
        let window = peer.device.allocate_window(peer.domain, WindowKind::Two);
        let window = window.expect("a window");
        let key = Key::new(window.value() ^ 1);
        let binding = Binding {
            region,
            address: BASE + 64,
            length: 64,
            access: Access::REMOTE_READ,
        };
        let work = Work::BindWindow {
            window,
            key: Some(key),
            binding,
        };
        // Datagram queue pairs cannot bind windows.
        if peer
            .device
            .post_send(peer.number, SendRequest::new(0, work))
            .is_ok()
        {
            self.keys.push(key);
        }
    }

    /// Posts receives, and requests that wait for responses.
    fn posts_work(&mut self) {
        let number = self.peer.number;
        let device = &mut self.peer.device;
        let into = |offset, length| engine::Segment {
            address: BASE + offset,
            length,
            key: self.inbox_key,
        };
        for id in 0..4 {
            let request = ReceiveRequest::new(id, [into(0, 700), into(1024, 2048)]);
            let _ = device.post_receive(number, request);
        }
        let add = Work::FetchAdd {
            remote: remote(0x9000),
            add: 1,
        };
        let requests = [
            SendRequest::new(10, Work::Send).inline(b"hello"),
            SendRequest::new(11, Work::Read(remote(0x9000))).with([into(100, 2500)]),
            SendRequest::new(12, add).with([into(8, 8)]),
        ];
        for request in requests {
            let _ = device.post_send(number, request);
        }
    }

    fn handles(&mut self, sent: PeerPacket) {
        let now = at(0);
        self.peer.sends(now, sent);
        for received in self.peer.received(now) {
            if received.text().starts_with("nak sequence") {
                self.cursor = received.packet().psn;
            }
        }
        self.peer.completions();
        if self.peer.state() == State::Error {
            let number = self.peer.number;
            self.peer.goes_to(State::Reset);
            self.peer.connects(number);
            self.cursor = PSN;
        }
        self.posts_work();
    }

    fn withstands(mut self, attacks: &[Attack]) {
        for attack in attacks {
            let sent = attack.packet_for(&mut self);
            self.handles(sent);
        }
        self.assert_unharmed();
    }

    fn assert_unharmed(&self) {
        let arena = self.arena.to_vec();
        assert_eq!(arena[..GUARD], [SENTINEL; GUARD]);
        assert_eq!(arena[GUARD + OPEN..], [SENTINEL; GUARD]);
        for region in &self.protected {
            assert_eq!(region.bytes(), [SENTINEL; OPEN]);
        }
        let inbox = self.inbox.to_vec();
        assert_eq!(inbox[..GUARD], [SENTINEL; GUARD]);
        // The bytes after those that any receive or read names.
        assert_eq!(inbox[GUARD + 3072..], [SENTINEL; OPEN - 3072 + GUARD]);
    }
}

/// A packet whose key and PSN are chosen later.
#[derive(Clone, Debug)]
struct Attack {
    opcode: Opcode,
    /// Relative to the expected PSN.
    psn: i32,
    key: usize,
    address: u64,
    length: u32,
    payload: Vec<u8>,
    word: u64,
    ackreq: bool,
}

impl Attack {
    fn packet_for(&self, target: &mut Target) -> PeerPacket {
        let is_response = self.opcode.is_response();
        // The device's own requests start at the same PSN.
        let origin = if is_response { PSN } else { target.cursor };
        let psn = match self.psn {
            0.. => origin + self.psn.unsigned_abs(),
            _ => origin - self.psn.unsigned_abs(),
        };
        if self.psn == 0 && !is_response {
            target.cursor += 1;
        }
        let key = match target.keys.get(self.key) {
            Some(key) => *key,
            None => Key::new(self.word as u32),
        };
        let sent = PeerPacket::new(self.opcode, psn, self.data());
        let sent = self
            .opcode
            .extensions()
            .iter()
            .fold(sent, |sent, &extension| self.extended(sent, extension, key));
        if self.ackreq {
            sent.ackreq().solicited()
        } else {
            sent
        }
    }

    fn data(&self) -> &[u8] {
        if self.opcode.carries_payload() {
            &self.payload
        } else {
            &[]
        }
    }

    fn extended(&self, sent: PeerPacket, extension: Extension, key: Key) -> PeerPacket {
        let (address, word) = (self.address, self.word);
        match extension {
            Extension::Reth => sent.push(&Reth::new(address, key, self.length)),
            Extension::AtomicEth => {
                sent.push(&AtomicEth::new(address, key, word, self.length.into()))
            }
            Extension::Aeth => sent.push(&Aeth::new(Syndrome::from_byte(word as u8), self.length)),
            Extension::AtomicAckEth => sent.push(&AtomicAckEth::new(word)),
            Extension::Immediate => sent.push(&Immediate::new(*b"evil")),
            Extension::Ieth => sent.push(&Ieth::new(key)),
            Extension::Xrceth => sent.push(&Xrceth::new(Srqn::new(word as u32))),
            Extension::Deth => {
                let queue_key = QueueKey::new(if self.ackreq { 0x1111_1111 } else { 1 });
                sent.push(&Deth::new(queue_key, PEER))
            }
            Extension::Feth => {
                let range = [FlushRange::Range, FlushRange::Region][word as usize % 2];
                sent.push(&Feth::new(FlushPlacement::new(word as u8), range))
            }
        }
    }
}

fn any_attack() -> impl Strategy<Value = Attack> {
    let psn = prop_oneof![6 => Just(0), 2 => -12..12_i32, 1 => -(1 << 23)..(1 << 23)];
    let end = BASE + OPEN as u64;
    let edges = vec![
        0,
        8,
        BASE - 8,
        BASE,
        BASE + 64,
        BASE + 8,
        end - 8,
        end,
        u64::MAX - 7,
    ];
    let address = prop_oneof![
        3 => (select(edges), -9..9_i64).prop_map(|(edge, step)| edge.wrapping_add_signed(step)),
        2 => BASE..BASE + OPEN as u64,
        1 => (BASE..BASE + OPEN as u64).prop_map(|address| address & !7),
        1 => any::<u64>(),
    ];
    let sizes = vec![
        0,
        1,
        4,
        8,
        1023,
        1024,
        1025,
        2048,
        4096,
        4097,
        1 << 31,
        u32::MAX,
    ];
    let length = prop_oneof![select(sizes), 0..6000_u32];
    let payload = prop_oneof![select(vec![0, 1, 8, 1023, 1024, 1025]), 0..1030_usize,]
        .prop_map(|length| vec![0x5a; length]);
    (
        select(Opcode::ALL),
        psn,
        0..8_usize,
        address,
        prop_oneof![2 => Just(None), 1 => length.prop_map(Some)],
        payload,
        any::<u64>(),
        any::<bool>(),
    )
        .prop_map(
            |(opcode, psn, key, address, length, payload, word, ackreq)| Attack {
                opcode,
                psn,
                key,
                address,
                // A length that matches the payload passes more checks.
                length: length.unwrap_or(payload.len() as u32),
                payload,
                word,
                ackreq,
            },
        )
}

/// An attack on the transport services of one connection, so that most packets are examined.
fn attack_on(transports: &'static [wire::Transport]) -> impl Strategy<Value = Attack> {
    let opcodes: Vec<Opcode> = Opcode::ALL
        .iter()
        .copied()
        .filter(|opcode| transports.contains(&opcode.transport()))
        .collect();
    (any_attack(), select(opcodes)).prop_map(|(attack, opcode)| Attack { opcode, ..attack })
}

fn config() -> ProptestConfig {
    ProptestConfig {
        cases: 256,
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

fn withstands(kind: QueuePairType, attacks: &[Attack]) {
    Target::new(kind).withstands(attacks);
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn reliable_connection_withstands_hostile_packets(
        attacks in vec(attack_on(&[wire::Transport::Rc]), 1..60)
    ) {
        withstands(QueuePairType::Rc, &attacks);
    }

    #[test]
    fn unreliable_connection_withstands_hostile_packets(
        attacks in vec(attack_on(&[wire::Transport::Uc]), 1..60)
    ) {
        withstands(QueuePairType::Uc, &attacks);
    }

    #[test]
    fn datagram_queue_pair_withstands_hostile_packets(
        attacks in vec(attack_on(&[wire::Transport::Ud]), 1..30)
    ) {
        withstands(QueuePairType::Ud, &attacks);
    }

    #[test]
    fn packets_of_any_transport_do_no_harm(attacks in vec(any_attack(), 1..60)) {
        withstands(QueuePairType::Rc, &attacks);
    }

    #[test]
    fn arbitrary_bytes_with_a_valid_icrc_do_no_harm(
        datagrams in vec(vec(any::<u8>(), 12..80), 1..50)
    ) {
        let mut target = Target::new(QueuePairType::Rc);
        for mut bytes in datagrams {
            // A known opcode and the right queue pair. Other packets are dropped early.
            bytes[0] &= 0x1f;
            bytes[1] &= 0xf0;
            bytes[5..8].copy_from_slice(&target.peer.number.value().to_be_bytes()[1..]);
            reseal(&mut bytes, &flow());
            target.peer.delivers(at(0), &flow(), &bytes);
            target.peer.received(at(0));
        }
        target.assert_unharmed();
    }

    // CA17-24
    #[test]
    fn damaged_packets_are_dropped(
        attack in attack_on(&[wire::Transport::Rc]),
        place in any::<prop::sample::Index>(),
        bit in 0..8_u32,
    ) {
        let mut target = Target::new(QueuePairType::Rc);
        let sent = attack.packet_for(&mut target);
        let mut bytes = sent.sealed(target.peer.number, &flow());
        let place = place.index(bytes.len());
        bytes[place] ^= 1 << bit;
        // Not the byte that the ICRC does not cover, nor the one damage in 2^15 that looks like
        // another IP identification.
        prop_assume!(wire::IcrcChecker::new().check(&flow(), &bytes).is_err());
        target.peer.delivers(at(0), &flow(), &bytes);
        prop_assert_eq!(target.peer.counters().packets_received, 0);
        target.assert_unharmed();
    }
}

#[test]
fn requests_without_polling_for_responses_do_not_fill_queues() {
    let mut target = Target::new(QueuePairType::Rc);
    let peer = &mut target.peer;
    let reth = Reth::new(BASE, target.keys[0], 8);
    peer.sends(at(0), read_request(PSN, reth));
    peer.sends(at(0), send_only(PSN + 1, b"hello"));
    peer.received(at(0));
    for _ in 0..10_000 {
        peer.sends(at(0), read_request(PSN, reth));
        peer.sends(at(0), send_only(PSN + 1, b"again"));
        peer.sends(at(0), send_only(PSN + 3, b"gap"));
    }
    assert!(peer.received(at(0)).len() <= 1024);
    assert!(peer.events().len() <= 1);
}

#[test]
fn responses_are_built_only_when_polled() {
    let mut peer = Conversation::with(Setup {
        responder_resources: 128,
        ..Setup::default()
    });
    let memory = peer.registers(BASE, &[SENTINEL; 1 << 20]);
    let reth = Reth::new(BASE, memory.key(), 1 << 20);
    for index in 0..128 {
        peer.sends(at(0), read_request(PSN + 1024 * index, reth));
    }
    let mut buffer = Vec::new();
    for _ in 0..10 {
        assert!(peer.device.poll_transmit(at(0), &mut buffer).is_some());
        assert!(buffer.len() <= 65_536);
    }
}

/// Proves that the attacks can do harm: a device without its checks must fail.
#[cfg(feature = "planted-bugs")]
#[test]
fn attacks_harm_a_device_that_does_not_check_rights() {
    let attacks = vec(attack_on(&[wire::Transport::Rc]), 60);
    let outcome = proptest::test_runner::TestRunner::new(config()).run(&attacks, |attacks| {
        let mut target = Target::new(QueuePairType::Rc);
        target.peer.device.plant(engine::Bug::RightsUnchecked);
        target.withstands(&attacks);
        Ok(())
    });
    assert!(outcome.is_err());
}
