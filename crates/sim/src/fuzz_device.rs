//! A device under attack: an entry point for fuzzing.
//!
//! The input is read as a sequence of steps: raw datagrams, packets with a valid ICRC and plausible
//! PSNs that reach deep states, work requests of the victim, and time. The invariants are asserted
//! after every step.

mod craft;
mod victim;

use std::time::Duration;

use engine::{
    Destination, QueuePairType, RemoteMemory, Segment, SendRequest, State, Work, transmit,
};
use wire::{NakCode, Packet, Route, Syndrome};

use crate::fuzz_input::Input;
use craft::Knowledge;
use victim::{QUEUE_KEY, THEIRS, Victim, VictimQueuePair, gid};

/// Bounds the steps of one input, to keep fuzzing fast.
const MAX_STEPS: usize = 400;

/// More sends than this without new input mean that a device never stops.
const MAX_SENDS: usize = 10_000;

/// Attacks a device with this input; returns the number of packets that it received.
///
/// # Panics
/// If the device writes memory that no peer may write, sends memory that no peer may read, exceeds
/// the bounds of a queue, or panics.
pub fn feed(data: &[u8]) -> u64 {
    attack(data).packets
}

fn attack(data: &[u8]) -> Attack {
    let mut attack = Attack::new(data);
    let mut input = Input::new(data);
    for _ in 0..MAX_STEPS {
        if input.is_empty() {
            break;
        }
        attack.step(&mut input);
        attack.listen();
        attack.victim.drain();
        attack.victim.check();
    }
    attack
}

struct Attack {
    victim: Victim,
    /// What the attacker knows of each queue pair.
    knowledge: Vec<Knowledge>,
    buffer: Vec<u8>,
    /// How many packets the victim received.
    packets: u64,
    /// How many packets carried memory of the victim.
    read_responses: u32,
}

impl Attack {
    fn new(data: &[u8]) -> Self {
        let victim = Victim::new(data);
        Self {
            knowledge: vec![Knowledge::FRESH; victim.queue_pairs.len()],
            victim,
            buffer: Vec::new(),
            packets: 0,
            read_responses: 0,
        }
    }

    fn step(&mut self, input: &mut Input<'_>) {
        let choice = input.byte();
        let index = usize::from(choice) % self.victim.queue_pairs.len();
        match choice {
            0..48 => self.raw(input),
            48..160 => self.crafted(index, input),
            160..192 => self.post_send(index, input),
            192..224 => {
                let length = input.byte().into();
                self.victim.post_receive(index, length);
            }
            224..240 => {
                let time = Duration::from_micros(u64::from(input.number() % 10_000_000));
                self.victim.wait(time);
            }
            240..248 => self.victim.bind_window(),
            _ => self.reopen(index),
        }
    }

    fn raw(&mut self, input: &mut Input<'_>) {
        let length = usize::from(input.byte()) * 2;
        let datagram = input.take(length);
        let route = Route::new(self.victim.flow(THEIRS));
        let now = self.victim.now;
        self.packets += 1;
        self.victim.device.handle_datagram(now, &route, datagram);
    }

    fn crafted(&mut self, index: usize, input: &mut Input<'_>) {
        if input.byte() < 230 {
            self.reopen(index);
        }
        let pair: VictimQueuePair = self.victim.queue_pairs[index];
        let datagram = self.victim.craft(&pair, &mut self.knowledge[index], input);
        // Sometimes from a host that is not the peer.
        let from = if input.byte() == 255 {
            [10, 0, 0, 99]
        } else {
            THEIRS
        };
        let route = Route::new(self.victim.flow(from));
        let now = self.victim.now;
        self.packets += 1;
        self.victim.device.handle_datagram(now, &route, &datagram);
    }

    fn post_send(&mut self, index: usize, input: &mut Input<'_>) {
        let pair = self.victim.queue_pairs[index];
        let remote = RemoteMemory {
            address: u64::from(input.number()),
            key: wire::Key::new(1),
        };
        let work = match input.byte() % 6 {
            0 => Work::Send,
            1 => Work::SendImmediate([1, 2, 3, 4]),
            2 => Work::Write(remote),
            3 => Work::Read(remote),
            4 => Work::FetchAdd {
                remote: RemoteMemory {
                    address: remote.address & !7,
                    ..remote
                },
                add: 1,
            },
            _ => Work::LocalInvalidate(self.victim.window_key()),
        };
        let region = &self.victim.inbox;
        let length = match work {
            Work::FetchAdd { .. } => 8,
            _ => u32::from(input.byte()),
        };
        let segment = Segment {
            address: region.address + 64,
            length,
            key: region.key,
        };
        let mut request = SendRequest::new(2, work).with([segment]);
        if pair.kind == QueuePairType::Ud {
            request = request.to(Destination {
                address: engine::Address::new(gid(THEIRS), 0),
                queue_pair: pair.peer,
                queue_key: QUEUE_KEY,
            });
        }
        // An unsupported request is rejected and has no other effect.
        let _ = self.victim.device.post_send(pair.number, request);
    }

    /// Connects a queue pair again after an error.
    fn reopen(&mut self, index: usize) {
        let number = self.victim.queue_pairs[index].number;
        let state = self
            .victim
            .device
            .queue_pair(number)
            .map(engine::QueuePair::state);
        if state == Some(State::Error) || state == Some(State::SendQueueError) {
            self.victim.connect_queue_pair(index);
            self.knowledge[index] = Knowledge::FRESH;
        }
    }

    /// Fetches what the victim sends, and updates the attacker's knowledge.
    fn listen(&mut self) {
        let mut buffer = std::mem::take(&mut self.buffer);
        let mut sends = 0;
        while let Some(sent) = self
            .victim
            .device
            .poll_transmit(self.victim.now, &mut buffer)
        {
            sends += 1;
            assert!(sends < MAX_SENDS, "the device never stops sending");
            for datagram in transmit::packets(&sent, &buffer) {
                self.victim.check_sent(datagram);
                self.learn(datagram);
            }
        }
        self.buffer = buffer;
    }

    fn learn(&mut self, datagram: &[u8]) {
        let packet = Packet::parse(datagram).expect("a device sends packets");
        let data = packet.opcode.operation() == wire::Operation::ReadResponse;
        self.read_responses += u32::from(data && !packet.payload.is_empty());
        let queue_pairs = self.victim.queue_pairs.iter();
        let Some(index) = queue_pairs
            .clone()
            .position(|pair| pair.peer == packet.destination)
        else {
            return;
        };
        let knowledge = &mut self.knowledge[index];
        if packet.opcode.is_request() {
            knowledge.requested = packet.psn;
        }
        // A NAK contains the expected PSN.
        let syndrome = packet.aeth().map(wire::Aeth::syndrome);
        if matches!(
            syndrome,
            Some(Syndrome::Negative(NakCode::SequenceError) | Syndrome::ReceiverNotReady(_))
        ) {
            knowledge.expected = packet.psn;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;

    #[test]
    fn empty_input_breaks_no_invariant() {
        feed(&[]);
    }

    #[test]
    fn random_bytes_break_no_invariant() {
        let mut rng = Rng::new(1);
        for _ in 0..3000 {
            let length = rng.below(600);
            feed(&rng.bytes(length));
        }
    }

    /// Steps that are mostly crafted packets and posts: they reach deeper states than random bytes.
    #[test]
    fn plausible_packets_reach_deep_states_and_break_no_invariant() {
        let mut rng = Rng::new(2);
        let mut reached = Depth::default();
        for _ in 0..3000 {
            let mut data = Vec::new();
            for _ in 0..rng.between(1, 60) {
                let step = *rng.pick(&[48, 49, 50, 51, 52, 53, 192, 193, 160, 161, 250, 251]);
                data.push(step);
                let details = rng.between(2, 24);
                data.extend(rng.bytes(details));
            }
            reached.add(&attack(&data));
        }
        println!("{reached:?}");
        let Depth {
            written,
            received,
            through_window,
            answered,
            completed,
        } = reached;
        for times in [written, received, through_window, answered, completed] {
            assert!(times > 10, "{reached:?}");
        }
    }

    /// How many attacks reached each state.
    #[derive(Debug, Default, Clone, Copy)]
    struct Depth {
        written: u32,
        received: u32,
        through_window: u32,
        answered: u32,
        completed: u32,
    }

    impl Depth {
        fn add(&mut self, attack: &Attack) {
            let victim = &attack.victim;
            self.written += u32::from(victim.public.is_changed());
            self.received += u32::from(victim.inbox.is_changed());
            self.through_window += u32::from(victim.windowed.is_changed());
            self.answered += attack.read_responses;
            self.completed += victim.completed;
        }
    }

    /// Every opcode, alone, to every queue pair, with a receive posted.
    #[test]
    fn single_packets_of_every_opcode_break_no_invariant() {
        let mut rng = Rng::new(3);
        for opcode in 0..wire::Opcode::ALL.len() as u8 {
            for pair in 0..4 {
                for _ in 0..4 {
                    let mut data = vec![192 + pair, 255, 192 + pair, 255];
                    for _ in 0..3 {
                        // No reconnection, and any opcode.
                        data.extend([48 + pair, 255, 255, opcode, 0]);
                        data.extend(rng.bytes(300));
                    }
                    feed(&data);
                }
            }
        }
    }
}
