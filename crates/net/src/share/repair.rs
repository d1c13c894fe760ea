//! How the members find their places again after somebody came, left or died.

use std::io;
use std::net::IpAddr;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use super::member::{JoinError, Member};
use super::probe::{self, Probe};
use super::registry::Locked;
use super::slice::Slice;
use super::steering::program;
use super::table::{Entry, Table};
use crate::socket::Envelope;
use crate::sys;

/// How often a member looks whether its neighbour still lives.
const PERIOD: Duration = Duration::from_millis(250);

/// How soon a probe must come, at first; longer each time that it does not.
const PATIENCE: Duration = Duration::from_millis(20);
const LONGEST_PATIENCE: Duration = Duration::from_secs(1);

/// How long to let things be after strays made us look around, and after they made us probe.
const CALM: Duration = Duration::from_millis(50);
const CALM_AFTER_PROBES: Duration = Duration::from_millis(200);

/// How soon to try again when another member's mailbox was full.
const OUTBOX_PERIOD: Duration = Duration::from_millis(1);

/// How many places a round covers when the group has sockets of no member.
const ALL_PLACES: u32 = 64;

/// What a member knows about its place.
#[derive(Debug)]
pub(super) struct Repair {
    /// The latest round of probes that we heard of.
    round: u64,
    /// The lowest place that a probe of this round found us at; none while we wait for it.
    place: Option<u32>,
    /// Whether the registry has still to be told.
    unrecorded: bool,
    patience: Duration,
    /// When we stop waiting for a probe.
    give_up: Option<Instant>,
    /// Whose packets came to us.
    suspect: Option<Slice>,
    calm_until: Option<Instant>,
    /// When to look at the neighbour again.
    due: Option<Instant>,
    /// Whether we are about to leave: others look after the group then.
    withdrawn: bool,
}

impl Repair {
    pub(super) fn new() -> Self {
        Self {
            round: 0,
            place: None,
            unrecorded: false,
            patience: PATIENCE,
            give_up: None,
            suspect: None,
            calm_until: None,
            due: None,
            withdrawn: false,
        }
    }

    /// Remembers that a packet for another member was steered to us, or could not be handed over.
    pub(super) fn suspect(&mut self, owner: Slice) {
        self.suspect = Some(owner);
    }

    /// Waits for a probe of this round.
    fn expect(&mut self, round: u64) {
        self.round = round;
        self.place = None;
        self.unrecorded = false;
        self.give_up = None;
    }

    /// Notes a probe of the current round; whether it says anything new.
    fn note(&mut self, place: u32) -> bool {
        if self.place.is_some_and(|known| known <= place) {
            return false;
        }
        self.place = Some(place);
        self.unrecorded = true;
        self.patience = PATIENCE;
        self.give_up = None;
        true
    }

    /// Whether we waited for a probe long enough. The first question starts the clock.
    fn waited_in_vain(&mut self, now: Instant) -> bool {
        if self.place.is_some() {
            return false;
        }
        let give_up = *self.give_up.get_or_insert(now + self.patience);
        if now < give_up {
            return false;
        }
        self.patience = (self.patience * 2).min(LONGEST_PATIENCE);
        self.give_up = Some(now + self.patience);
        true
    }

    /// When there is something to do, unless strays come first.
    fn next_due(&self, now: Instant) -> Instant {
        let due = self.due.unwrap_or(now);
        self.give_up.map_or(due, |give_up| give_up.min(due))
    }
}

impl Member {
    /// Looks after the group: call it whenever you wake up, and at the latest at the time that it
    /// returned. Before that time it does nothing.
    pub fn tend(&mut self, now: Instant) -> Instant {
        if self.repair.withdrawn {
            self.empty_outbox();
            return now + PERIOD;
        }
        self.look_around_if_urgent(now);
        if now >= self.repair.next_due(now) {
            self.repair.due = Some(now + PERIOD);
            // What can't be done now is tried again: packets are forwarded meanwhile.
            let _ = self.inspect(now);
            if let Some(shortcuts) = &mut self.shortcuts {
                shortcuts.tend();
            }
        }
        let due = self.repair.next_due(now);
        if self.outbox.is_empty() {
            return due;
        }
        self.empty_outbox();
        due.min(now + OUTBOX_PERIOD)
    }

    fn inspect(&mut self, now: Instant) -> Result<(), JoinError> {
        let table = self.registry.read()?;
        if table.member(self.slice).is_none() {
            return self.enter_again();
        }
        if table.round != self.repair.round {
            self.repair.expect(table.round);
        }
        if self.repair.unrecorded {
            self.record()?;
        }
        if self.repair.waited_in_vain(now) {
            self.probe_everywhere()?;
        }
        let neighbour = table.neighbour(self.slice);
        if neighbour.is_some_and(|entry| !entry.process.is_alive()) {
            self.bury_dead()?;
        }
        Ok(())
    }

    /// Looks for the reason when packets for others come to us.
    pub(super) fn look_around_if_urgent(&mut self, now: Instant) {
        let calm = self.repair.calm_until.is_some_and(|until| now < until);
        if calm {
            return;
        }
        if let Some(owner) = self.repair.suspect.take() {
            self.repair.calm_until = Some(now + CALM);
            let _ = self.look_around(now, owner);
        }
    }

    fn look_around(&mut self, now: Instant, owner: Slice) -> Result<(), JoinError> {
        let locked = self.registry.lock_briefly()?;
        let mut table = locked.read()?;
        let someone_died = locked.bury_dead(&mut table);
        // Who has not been seen in this round yet will be: then strays are no surprise.
        let owner = table.member(owner);
        let misplaced = owner.is_some_and(|entry| entry.round == table.round);
        if someone_died || misplaced {
            self.repair.calm_until = Some(now + CALM_AFTER_PROBES);
            let reach = table.members.len() as u32;
            self.start_round(&locked, table, reach)?;
        }
        Ok(())
    }

    /// Writes ourselves into the registry. Where all places are known ours is the last, and the
    /// others need not be disturbed.
    pub(super) fn enter(
        &mut self,
        locked: &Locked,
        mut table: Table,
        places_known: bool,
    ) -> Result<(), JoinError> {
        let place = table.members.len() as u32;
        if place == 0 {
            table.round = new_round(table.round);
        }
        table.add(Entry {
            slice: self.slice,
            process: self.process,
            place: places_known.then_some(place),
            round: table.round,
        });
        if !places_known {
            return self.start_round(locked, table, place + 1);
        }
        locked.write(&table)?;
        self.steer(&table)?;
        self.repair.expect(table.round);
        // Only to be sure.
        self.send_probe(place);
        Ok(())
    }

    /// Somebody removed the registry, as cleaners of old files do.
    fn enter_again(&mut self) -> Result<(), JoinError> {
        let locked = self.registry.lock_briefly()?;
        let table = locked.read()?;
        if table.member(self.slice).is_some() {
            return Ok(());
        }
        self.enter(&locked, table, false)
    }

    /// Nothing new is steered to us from now on; what has arrived can still be taken, and handed on.
    /// Whoever leaves does this first, so that no request is lost in a socket that closes.
    pub fn withdraw(&mut self) {
        if self.is_inherited() {
            return;
        }
        let Ok(locked) = self.registry.lock() else {
            return;
        };
        let Ok(mut table) = locked.read() else {
            return;
        };
        table.remove(self.slice);
        self.repair.withdrawn = true;
        if !table.members.is_empty() && locked.write(&table).is_ok() {
            // If the kernel refuses, all is as it was without withdrawing.
            let _ = self.steer(&table);
        }
    }

    /// Takes ourselves out of the registry, closes the socket, and lets the others find their places.
    pub(super) fn leave(&mut self) {
        let Ok(locked) = self.registry.lock() else {
            return;
        };
        let Ok(mut table) = locked.read() else {
            return;
        };
        table.remove(self.slice);
        table.round = new_round(table.round);
        let _ = locked.write(&table);
        let _ = sys::process::replace_with_null(self.receiver.as_fd());
        self.repair.round = table.round;
        (0..table.members.len() as u32).for_each(|place| self.send_probe(place));
    }

    pub(super) fn note_probe(&mut self, probe: Probe) {
        if probe.round != self.repair.round {
            // News, or an old story, or a lie: the registry knows.
            let current = self.registry.read().map(|table| table.round);
            if current.ok() != Some(probe.round) {
                return;
            }
            self.repair.expect(probe.round);
        }
        if self.repair.note(probe.place) {
            // If it fails now, the next inspection does it.
            let _ = self.record();
        }
    }

    /// Tells everybody where we are, and the kernel as well.
    fn record(&mut self) -> Result<(), JoinError> {
        let locked = self.registry.lock_briefly()?;
        let mut table = locked.read()?;
        let round = self.repair.round;
        let entry = table
            .members
            .iter_mut()
            .find(|entry| entry.slice == self.slice);
        let told = (self.repair.place, round);
        let entry =
            entry.filter(|entry| table.round == round && (entry.place, entry.round) != told);
        if let Some(entry) = entry {
            (entry.place, entry.round) = told;
            locked.write(&table)?;
            self.steer(&table)?;
        }
        self.repair.unrecorded = false;
        Ok(())
    }

    /// Removes the dead from the registry, and lets the others find their places.
    fn bury_dead(&mut self) -> Result<(), JoinError> {
        let locked = self.registry.lock_briefly()?;
        let mut table = locked.read()?;
        // Somebody else may have been faster.
        if locked.bury_dead(&mut table) {
            let reach = table.members.len() as u32;
            self.start_round(&locked, table, reach)?;
        }
        Ok(())
    }

    /// Our place is beyond the number of members: somebody in the group is no member.
    fn probe_everywhere(&mut self) -> Result<(), JoinError> {
        let locked = self.registry.lock_briefly()?;
        let table = locked.read()?;
        if table.round != self.repair.round {
            return Ok(());
        }
        self.start_round(&locked, table, ALL_PLACES)
    }

    fn start_round(
        &mut self,
        locked: &Locked,
        mut table: Table,
        reach: u32,
    ) -> Result<(), JoinError> {
        table.round = new_round(table.round);
        locked.write(&table)?;
        // Until they are seen again, members are taken to be where they were.
        self.steer(&table)?;
        self.repair.expect(table.round);
        self.counters.rounds += 1;
        (0..reach).for_each(|place| self.send_probe(place));
        Ok(())
    }

    fn steer(&self, table: &Table) -> Result<(), JoinError> {
        let attached = sys::option::attach_steering(self.receiver.as_fd(), &program(table));
        attached.map_err(|source| no_steering(self.address, source))
    }

    fn send_probe(&self, place: u32) {
        let round = self.repair.round;
        let envelope = Envelope::new(self.sender.flow_to(self.address));
        // A lost probe is missed by its receiver, who then asks for another.
        let mut bytes = Probe { place, round }.bytes();
        let _ = self.sender.send(&envelope, probe::LENGTH, &mut bytes);
    }
}

fn no_steering(address: IpAddr, source: io::Error) -> JoinError {
    JoinError::Steering { address, source }
}

/// A number that differs from the last one. Without randomness it is at least new.
fn new_round(last: u64) -> u64 {
    let random = sys::process::random().unwrap_or(last.wrapping_add(1));
    if random == last { !random } else { random }
}
