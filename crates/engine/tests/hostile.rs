//! A peer that knows the protocol and means harm.
//!
//! Every packet is sealed properly and most are of the right connection, in sequence, with keys and
//! addresses close to the right ones. Whatever comes, not one byte changes that the peer has no
//! right to write, nothing panics, and no queue grows without bound.

mod conversation;

use std::sync::Arc;

use conversation::*;
use engine::{
    Access, Binding, Buffer, Extent, Kind, ReceiveRequest, SendRequest, State, WindowKind, Work,
};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use wire::{
    Aeth, AtomicAckEth, AtomicEth, Deth, Extension, Feth, FlushPlacement, FlushRange, Ieth,
    Immediate, Key, Opcode, Psn, Qpn, QueueKey, Reth, Syndrome, Xrceth,
};

/// The open region lies in the middle of its buffer, between two guards.
const GUARD: usize = 4096;
const OPEN: usize = 4096;
const BASE: u64 = 0x10_0000;
const SENTINEL: u8 = 0xa5;

/// The device, and all memory that the peer could try to reach.
struct Target {
    peer: Conversation,
    arena: Arc<Buffer>,
    /// Regions that no peer may write: without remote rights, read-only, and what is sent from.
    closed: Vec<Region>,
    /// Filled by SENDs and reads, but only between its guards.
    inbox: Arc<Buffer>,
    inbox_key: Key,
    keys: Vec<Key>,
    /// The sequence number that the device probably expects.
    cursor: Psn,
}

fn guarded(peer: &mut Conversation, address: u64, access: Access) -> (Arc<Buffer>, Key) {
    let buffer = Buffer::copy_of(&[SENTINEL; GUARD + OPEN + GUARD]);
    let whole = Extent::from(Arc::clone(&buffer));
    let middle = whole.part(GUARD as u64, OPEN as u64).expect("the middle");
    let registration = peer
        .device
        .register(peer.domain, middle, address, access)
        .expect("the memory is registered");
    (buffer, registration.remote_key)
}

impl Target {
    fn new(kind: Kind) -> Self {
        let mut peer = Conversation::with(Setup {
            kind,
            ..Setup::default()
        });
        let (arena, open) = guarded(&mut peer, BASE, everything());
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
            closed: vec![hidden, read_only, stale],
            inbox,
            inbox_key,
            keys,
            cursor: PSN,
        };
        target.opens_window(open);
        target.gives_work();
        target
    }

    /// A window that lets the peer read a part of the open region, and not write it.
    fn opens_window(&mut self, region: Key) {
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
        // Datagram queue pairs bind no windows.
        if peer
            .device
            .post_send(peer.number, SendRequest::new(0, work))
            .is_ok()
        {
            self.keys.push(key);
        }
    }

    /// Receives to be filled, and requests that wait for responses.
    fn gives_work(&mut self) {
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

    fn hears(&mut self, said: Said) {
        let now = at(0);
        self.peer.says(now, said);
        for heard in self.peer.listens(now) {
            if heard.words().starts_with("nak sequence") {
                self.cursor = heard.packet().psn;
            }
        }
        self.peer.completions();
        if self.peer.state() == State::Error {
            let number = self.peer.number;
            self.peer.goes_to(State::Reset);
            self.peer.connects(number);
            self.cursor = PSN;
        }
        self.gives_work();
    }

    fn withstands(mut self, attacks: &[Attack]) {
        for attack in attacks {
            let said = attack.aimed(&mut self);
            self.hears(said);
        }
        self.is_unharmed();
    }

    fn is_unharmed(&self) {
        let arena = self.arena.to_vec();
        assert_eq!(arena[..GUARD], [SENTINEL; GUARD]);
        assert_eq!(arena[GUARD + OPEN..], [SENTINEL; GUARD]);
        for region in &self.closed {
            assert_eq!(region.bytes(), [SENTINEL; OPEN]);
        }
        let inbox = self.inbox.to_vec();
        assert_eq!(inbox[..GUARD], [SENTINEL; GUARD]);
        // Behind what any receive or read names.
        assert_eq!(inbox[GUARD + 3072..], [SENTINEL; OPEN - 3072 + GUARD]);
    }
}

/// A packet before keys and sequence numbers are known.
#[derive(Clone, Debug)]
struct Attack {
    opcode: Opcode,
    /// Relative to what the device expects.
    psn: i32,
    key: usize,
    address: u64,
    length: u32,
    payload: Vec<u8>,
    word: u64,
    ask: bool,
}

impl Attack {
    fn aimed(&self, target: &mut Target) -> Said {
        let is_response = self.opcode.is_response();
        // The device's own requests begin at the same number.
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
        let said = Said::new(self.opcode, psn, self.data());
        let said = self
            .opcode
            .extensions()
            .iter()
            .fold(said, |said, &extension| self.extended(said, extension, key));
        if self.ask {
            said.ask().solicited()
        } else {
            said
        }
    }

    fn data(&self) -> &[u8] {
        match self.opcode.carries_payload() {
            true => &self.payload,
            false => &[],
        }
    }

    fn extended(&self, said: Said, extension: Extension, key: Key) -> Said {
        let (address, word) = (self.address, self.word);
        match extension {
            Extension::Reth => said.push(&Reth::new(address, key, self.length)),
            Extension::AtomicEth => {
                said.push(&AtomicEth::new(address, key, word, self.length.into()))
            }
            Extension::Aeth => said.push(&Aeth::new(Syndrome::from_byte(word as u8), self.length)),
            Extension::AtomicAckEth => said.push(&AtomicAckEth::new(word)),
            Extension::Immediate => said.push(&Immediate::new(*b"evil")),
            Extension::Ieth => said.push(&Ieth::new(key)),
            Extension::Xrceth => said.push(&Xrceth::new(Qpn::new(word as u32))),
            Extension::Deth => {
                let queue_key = QueueKey::new(if self.ask { 0x1111_1111 } else { 1 });
                said.push(&Deth::new(queue_key, PEER))
            }
            Extension::Feth => {
                let range = [FlushRange::Range, FlushRange::Region][word as usize % 2];
                said.push(&Feth::new(FlushPlacement::new(word as u8), range))
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
            |(opcode, psn, key, address, length, payload, word, ask)| Attack {
                opcode,
                psn,
                key,
                address,
                // A length that agrees with what comes gets furthest.
                length: length.unwrap_or(payload.len() as u32),
                payload,
                word,
                ask,
            },
        )
}

/// Aimed at the services of one connection, so that most of it is looked at.
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

fn withstands(kind: Kind, attacks: &[Attack]) {
    Target::new(kind).withstands(attacks);
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn a_reliable_connection_withstands_hostile_packets(
        attacks in vec(attack_on(&[wire::Transport::Rc]), 1..60)
    ) {
        withstands(Kind::Rc, &attacks);
    }

    #[test]
    fn an_unreliable_connection_withstands_hostile_packets(
        attacks in vec(attack_on(&[wire::Transport::Uc]), 1..60)
    ) {
        withstands(Kind::Uc, &attacks);
    }

    #[test]
    fn a_datagram_queue_pair_withstands_hostile_packets(
        attacks in vec(attack_on(&[wire::Transport::Ud]), 1..30)
    ) {
        withstands(Kind::Ud, &attacks);
    }

    #[test]
    fn packets_of_any_service_do_no_harm(attacks in vec(any_attack(), 1..60)) {
        withstands(Kind::Rc, &attacks);
    }

    #[test]
    fn any_bytes_with_a_right_seal_do_no_harm(
        datagrams in vec(vec(any::<u8>(), 12..80), 1..50)
    ) {
        let mut target = Target::new(Kind::Rc);
        for mut bytes in datagrams {
            // A known service and the right queue pair, else nothing looks at it.
            bytes[0] &= 0x1f;
            bytes[1] &= 0xf0;
            bytes[5..8].copy_from_slice(&target.peer.number.value().to_be_bytes()[1..]);
            reseal(&mut bytes, &flow());
            target.peer.delivers(at(0), &flow(), &bytes);
            target.peer.listens(at(0));
        }
        target.is_unharmed();
    }

    #[test]
    fn damaged_packets_are_dropped(
        attack in attack_on(&[wire::Transport::Rc]),
        place in any::<prop::sample::Index>(),
        bit in 0..8_u32,
    ) {
        let mut target = Target::new(Kind::Rc);
        let said = attack.aimed(&mut target);
        let mut bytes = said.sealed(target.peer.number, &flow());
        let place = place.index(bytes.len());
        bytes[place] ^= 1 << bit;
        // Not the byte that the ICRC leaves out, nor the one damage in 2^15 that only looks like
        // another IP identification.
        prop_assume!(wire::Checker::new().check(&flow(), &bytes).is_err());
        target.peer.delivers(at(0), &flow(), &bytes);
        prop_assert_eq!(target.peer.counters().packets_received, 0);
        target.is_unharmed();
    }
}

#[test]
fn a_peer_that_asks_and_never_listens_fills_no_queue() {
    let mut target = Target::new(Kind::Rc);
    let peer = &mut target.peer;
    let reth = Reth::new(BASE, target.keys[0], 8);
    peer.says(at(0), read_request(PSN, reth));
    peer.says(at(0), send_only(PSN + 1, b"hello"));
    peer.listens(at(0));
    for _ in 0..10_000 {
        peer.says(at(0), read_request(PSN, reth));
        peer.says(at(0), send_only(PSN + 1, b"again"));
        peer.says(at(0), send_only(PSN + 3, b"gap"));
    }
    assert!(peer.listens(at(0)).len() <= 1024);
    assert!(peer.events().len() <= 1);
}

#[test]
fn a_peer_that_asks_for_as_much_as_it_can_costs_only_what_is_polled() {
    let mut peer = Conversation::with(Setup {
        responder_resources: 128,
        ..Setup::default()
    });
    let memory = peer.registers(BASE, &[SENTINEL; 1 << 20]);
    let reth = Reth::new(BASE, memory.key(), 1 << 20);
    for index in 0..128 {
        peer.says(at(0), read_request(PSN + 1024 * index, reth));
    }
    let mut buffer = Vec::new();
    for _ in 0..10 {
        assert!(peer.device.poll_transmit(at(0), &mut buffer).is_some());
        assert!(buffer.len() <= 65_536);
    }
}

/// Attacks that never hurt prove nothing: a device without its checks must be hurt by them.
#[cfg(feature = "sabotage")]
#[test]
fn the_attacks_harm_a_device_that_does_not_look_at_rights() {
    let attacks = vec(attack_on(&[wire::Transport::Rc]), 60);
    let outcome = proptest::test_runner::TestRunner::new(config()).run(&attacks, |attacks| {
        let mut target = Target::new(Kind::Rc);
        target.peer.device.sabotage(engine::Bug::RightsUnchecked);
        target.withstands(&attacks);
        Ok(())
    });
    assert!(outcome.is_err());
}
