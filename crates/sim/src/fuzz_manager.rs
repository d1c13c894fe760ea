//! A connection manager under attack: an entry point for fuzzing.
//!
//! The input is read as a sequence of steps: raw datagrams, messages with valid ids that reach deep
//! states, floods, calls of the application and the driver, and time. The invariants are asserted
//! after every step. At the end all tables must be empty.

mod calls;
mod messages;
mod oracle;
mod victim;

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use cm::{Addresses, TableSizes};
use wire::mad;

use crate::fuzz_input::Input;
use victim::Victim;

/// Bounds the steps of one input, to keep fuzzing fast.
const MAX_STEPS: usize = 300;

/// The address of the manager.
const OURS: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));

/// Longer than any timer, time-wait or remembered response.
const LONGER_THAN_ANY_TIMER: Duration = Duration::from_secs(30 * 24 * 60 * 60);

/// Attacks a manager with this input; returns the number of datagrams that it received.
///
/// # Panics
/// If the manager exceeds a limit, sends to an address that did not write to it, answers against the
/// specification, reports an impossible event, or panics.
pub fn feed(data: &[u8]) -> u64 {
    attack(data).datagrams
}

fn attack(data: &[u8]) -> Victim {
    let mut victim = Victim::new();
    let mut input = Input::new(data);
    for _ in 0..MAX_STEPS {
        if input.is_empty() {
            break;
        }
        victim.late_for = victim.late_for.saturating_sub(1);
        step(&mut victim, &mut input);
        victim.check_load();
    }
    victim.finish();
    victim
}

fn step(victim: &mut Victim, input: &mut Input<'_>) {
    match input.byte() {
        0..24 => raw(victim, input),
        24..128 => victim.receive_drawn_message(input),
        128..220 => victim.call(input),
        220..240 => {
            let time = Duration::from_millis(u64::from(input.number() % 200_000));
            victim.wait(time);
        }
        240..248 => victim.wait_for_timer(),
        248..252 => flood(victim, input),
        // A slow driver: outputs accumulate.
        _ => victim.late_for = usize::from(input.byte()) % 16,
    }
}

/// Raw bytes: too short, too long, or with the header of a management datagram.
fn raw(victim: &mut Victim, input: &mut Input<'_>) {
    let addresses = draw_addresses(input);
    let length = usize::from(input.byte());
    let mut datagram = input.take(length).to_vec();
    if input.byte() < 128 {
        datagram.resize(mad::LENGTH, 0);
        let header = [1, mad::COMMUNICATION_MANAGEMENT, 2, mad::SEND];
        datagram[..4].copy_from_slice(&header);
    }
    victim.receive(addresses, &datagram);
}

/// Requests from many addresses, each with its own communication id and queue pair.
fn flood(victim: &mut Victim, input: &mut Input<'_>) {
    let count = 2 * u32::from(input.byte());
    let service = victim.draw_service(input);
    for number in 0..count {
        let [_, _, high, low] = number.to_be_bytes();
        let addresses = Addresses {
            source: Ipv4Addr::new(10, 1, high, low).into(),
            destination: OURS,
        };
        let request = messages::request(addresses, service, 1000 + number, 0x100 + number);
        victim.receive(addresses, &request.emit(number.into()));
    }
}

/// One of a few peers, so that ids and addresses repeat.
fn draw_addresses(input: &mut Input<'_>) -> Addresses {
    Addresses {
        source: Ipv4Addr::new(10, 0, 0, 2 + input.byte() % 4).into(),
        destination: OURS,
    }
}

fn nothing() -> TableSizes {
    TableSizes::default()
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
        for _ in 0..2000 {
            let length = rng.below(500);
            feed(&rng.bytes(length));
        }
    }

    /// Steps that are mostly messages and calls: they reach deeper states than random bytes.
    #[test]
    fn plausible_messages_reach_all_events_and_break_no_invariant() {
        let mut rng = Rng::new(2);
        let mut events = std::collections::BTreeMap::<&str, u32>::new();
        for _ in 0..2000 {
            let mut data = Vec::new();
            for _ in 0..rng.between(50, 200) {
                let step = *rng.pick(&[30, 60, 90, 120, 130, 150, 180, 200, 215, 241]);
                data.push(step);
                let details = rng.between(6, 14);
                data.extend(rng.bytes(details));
            }
            for (what, count) in attack(&data).events {
                *events.entry(what).or_default() += count;
            }
        }
        println!("{events:?}");
        for what in [
            "request",
            "response",
            "established",
            "service found",
            "rejected",
            "unreachable",
            "disconnected",
            "timewait exit",
        ] {
            let count = events.get(what).copied().unwrap_or_default();
            assert!(count >= 10, "{what} only {count} times: {events:?}");
        }
    }

    #[test]
    fn flood_stops_at_the_backlog() {
        // Listens on the reliable service with the smallest backlog, then floods it.
        let victim = attack(&[128, 0, 0, 0, 250, 255, 0]);
        assert!(victim.events.contains_key("request"), "{:?}", victim.events);
    }
}
