//! How the members determine their socket indices again after a member joins, leaves or dies.

use std::io;
use std::net::IpAddr;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};
use wire::Route;

use super::join_error::JoinError;
use super::mailbox::INSPECT;
use super::member::Member;
use super::number_block::NumberBlock;
use super::probe::{self, Probe};
use super::registry::{Locked, RegistryError};
use super::registry_table::{Entry, GapClosed, Seen, Table};
use super::steering::program;
use crate::poll::{self, Interest};
use crate::restrictions::{self, Restriction};
use crate::socket::Inbox;
use crate::sys;
use crate::times::{LIVENESS_CHECK_INTERVAL, SCHEDULED, TICK};

/// The minimum time between two registry checks that strays cause, and the same after a check that started a
/// round of probes. A burst of strays causes one check; a round needs time to end before strays count again.
const STRAY_CHECK_INTERVAL: Duration = TICK.saturating_mul(50);
const STRAY_CHECK_INTERVAL_AFTER_PROBES: Duration = SCHEDULED.saturating_mul(10);

/// How long a member collects the indices of others before it installs the new program.
const PUBLISH_DELAY: Duration = TICK.saturating_mul(10);

/// In a group of at most this many members, each member installs the program when it has recorded its index. In a larger one that
/// would take too long.
const SMALL_GROUP: usize = 64;

/// How often a member receives packets of others before it closes its socket: others may send without end.
const MAX_RECEIVES_AT_LEAVE: usize = 16;

/// How many indices a round probes when the group contains sockets of no member. A higher index
/// would look like a queue pair number in a probe.
fn all_indices(members: usize) -> u32 {
    (2 * members as u32 + 64).min(NumberBlock::SPACE.start - 1)
}

impl Member {
    /// Maintains the group. Call it after each wake-up, and at the latest at the returned time.
    /// Before that time it only handles strays and queued messages.
    pub fn maintain(&mut self, now: Instant) -> Instant {
        self.tell_time(now);
        if self.repair.withdrawn {
            self.empty_outbox();
            return now + LIVENESS_CHECK_INTERVAL;
        }
        self.check_registry_after_strays(now);
        let due = self.repair.next_due(now);
        // So it is at nearly every poll.
        if now < due && self.outbox.is_empty() {
            return due;
        }
        if now >= due {
            self.repair.due = Some(now + LIVENESS_CHECK_INTERVAL);
            // A failed inspection is repeated later. Packets are forwarded meanwhile.
            match self.inspect(now) {
                Ok(()) => self.repair.note_success(),
                Err(error) if is_locked(&error) => self.repair.try_again_soon(now),
                Err(_) => self.repair.postpone(now + LIVENESS_CHECK_INTERVAL),
            }
            if let Some(shortcuts) = &mut self.shortcuts {
                shortcuts.maintain();
            }
        }
        let due = self.repair.next_due(now);
        if self.outbox.is_empty() {
            return due;
        }
        self.empty_outbox();
        due.min(now + TICK)
    }

    pub(super) fn inspect(&mut self, now: Instant) -> Result<(), JoinError> {
        let table = self.registry.current_if_free()?;
        let Some(entry) = table.member(self.block) else {
            return self.enter_again();
        };
        let moved = entry.round == table.round && entry.socket_index != self.repair.socket_index;
        if table.round != self.repair.round || self.repair.socket_index.is_some() && moved {
            self.repair.expect(table.round);
        }
        if self.repair.unrecorded {
            self.record(now)?;
        }
        if self.repair.publish_at.is_some_and(|at| at <= now) {
            self.publish_if_needed()?;
        }
        if self.repair.probe_timed_out(now, table.members.len())
            && let Err(error) = self.probe_everywhere()
        {
            // Nothing was probed, so nothing is waited for.
            self.repair.probe_deadline = Some(now);
            return Err(error);
        }
        self.repair.checks = self.repair.checks.wrapping_add(1);
        let mut watched = table.order.watched(self.process, self.repair.checks);
        self.repair.someone_died |= watched.any(|it| !self.registry.is_alive(it, now));
        if self.repair.someone_died {
            self.remove_dead_members()?;
        }
        self.update_watched_processes(&table);
        Ok(self.claim_lost_services()?)
    }

    /// Checks the registry if packets of other members were steered to this one.
    pub(super) fn check_registry_after_strays(&mut self, now: Instant) {
        if self.repair.suspect.is_none() {
            return;
        }
        let too_early = self.repair.next_stray_check.is_some_and(|at| now < at);
        if too_early {
            return;
        }
        if let Some(owner) = self.repair.suspect.take() {
            self.repair.next_stray_check = Some(now + STRAY_CHECK_INTERVAL);
            if (self.check_registry(now, owner)).is_err_and(|error| is_locked(&error)) {
                self.repair.suspect(owner);
                self.repair.next_stray_check = Some(now + TICK);
            }
        }
    }

    fn check_registry(&mut self, now: Instant, owner: NumberBlock) -> Result<(), JoinError> {
        let locked = self.registry.lock_if_free()?;
        let mut table = locked.read()?;
        let someone_died = !locked.remove_dead_members(&mut table).is_empty();
        // A member whose index was not recorded in this round still gets a probe, so its strays are
        // expected.
        let owner = table.member(owner);
        let misplaced = owner.is_some_and(|entry| entry.round == table.round);
        if misplaced && !someone_died && self.repair.installed != self.registry.stamp() {
            // The member that left has recorded which member takes its index, but could not install
            // the program for it.
            return self.steer(&table);
        }
        if someone_died || misplaced {
            self.repair.next_stray_check = Some(now + STRAY_CHECK_INTERVAL_AFTER_PROBES);
            self.start_round_for_all(&locked, table)?;
        }
        Ok(())
    }

    /// Adds this member to the registry. Unless a member has died or a socket of no member is in
    /// the group, its index is the last one, and the others need no new probes.
    pub(super) fn enter(
        &mut self,
        locked: &Locked,
        mut table: Table,
        index_known: bool,
    ) -> Result<(), JoinError> {
        let index = table.members.len() as u32;
        if index == 0 {
            table.round = new_round(table.round);
        }
        table.add(Entry {
            block: self.block,
            process: self.process,
            socket_index: index_known.then_some(index),
            round: table.round,
            withdrawn: self.repair.withdrawn,
        });
        if !index_known {
            return self.start_round(locked, table, index + 1);
        }
        locked.write(&table)?;
        self.steer(&table)?;
        self.repair.expect(table.round);
        self.repair.entered = Some((table.round, index));
        // This probe only confirms the index.
        self.send_probe(index);
        Ok(())
    }

    /// Enters again after the registry was removed, as cleaners of old files do.
    fn enter_again(&mut self) -> Result<(), JoinError> {
        let locked = self.registry.lock_if_free()?;
        let table = locked.read()?;
        if table.member(self.block).is_none() {
            self.enter(&locked, table, false)?;
        }
        drop(locked);
        Ok(self.claim_lost_services()?)
    }

    /// Begins the steering of packets to this member.
    pub(super) fn begin_service(&mut self, locked: &Locked) -> Result<(), JoinError> {
        let mut table = locked.read()?;
        self.repair.withdrawn = false;
        // If the registry was removed, this member soon enters again.
        let Some(entry) = table.member_mut(self.block) else {
            return Ok(());
        };
        entry.withdrawn = false;
        locked.write(&table)?;
        self.steer(&table)
    }

    /// Stops the steering of packets to this member. Packets that have arrived can still be
    /// received and forwarded. A member that leaves calls this first, so that no request is lost in
    /// a socket that closes.
    pub fn withdraw(&mut self) {
        if self.is_inherited() {
            return;
        }
        if let Ok(locked) = self.registry.lock() {
            self.end_service(&locked);
        }
    }

    /// Ends the steering of packets to this member.
    pub(super) fn end_service(&mut self, locked: &Locked) {
        let Ok(mut table) = locked.read() else {
            return;
        };
        self.repair.withdrawn = true;
        let Some(entry) = table.member_mut(self.block) else {
            return;
        };
        entry.withdrawn = true;
        table.listeners.retain(|it| it.block != self.block);
        if table.members.len() > 1 && locked.write(&table).is_ok() {
            // If the kernel rejects the program, packets are steered as before.
            let _ = self.steer(&table);
        }
    }

    /// Removes this member from the registry and closes its socket. If its index is known, the
    /// last member takes it and gets a probe. Otherwise a round of probes starts.
    pub(super) fn leave(&mut self) {
        let Ok(locked) = self.registry.lock() else {
            return;
        };
        let Ok(mut table) = locked.read() else {
            return;
        };
        let gap_closed = table.close_gap(self.block);
        if gap_closed.is_none() {
            table.round = new_round(table.round);
        }
        let _ = locked.write(&table);
        if matches!(gap_closed, Some(GapClosed::Moves(..))) {
            self.hand_over(&table);
        }
        let _ = sys::process::replace_with_null(self.receiver.as_fd());
        self.repair.round = table.round;
        match gap_closed {
            Some(gap_closed) => self.announce(gap_closed),
            None => (0..table.members.len() as u32).for_each(|index| self.send_probe(index)),
        }
    }

    /// Installs the program for the time after this socket is closed, and forwards the packets of the member that will have
    /// its index. Otherwise they would reach any member until that one installs the program, and a stopped process forwards
    /// nothing.
    fn hand_over(&mut self, table: &Table) {
        if self.steer(table).is_err() {
            return;
        }
        let mut inbox = Inbox::new(1);
        for _ in 0..MAX_RECEIVES_AT_LEAVE {
            match self.receive_from_socket(&mut inbox, &mut |_| ()) {
                Ok(received) if received.datagrams > 0 => {}
                _ => break,
            }
        }
    }

    /// Waits for the probe of a round that this member has started when it joined. Messages to a member whose index is not known
    /// reach another one, which forwards them, unless its process is stopped.
    pub(super) fn await_index(&mut self) {
        let deadline = Instant::now() + SCHEDULED;
        while self.repair.socket_index.is_none() && Instant::now() < deadline {
            let mut first = [0; probe::LENGTH + 1];
            match self.receiver.peek(&mut first) {
                Ok(length) => {
                    let Some(found) = Probe::parse(&first[..length]) else {
                        // A packet, which must not be lost. The probe behind it is received later.
                        return;
                    };
                    let _ = self.receiver.discard();
                    self.note_probe(found);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    let left = deadline.saturating_duration_since(Instant::now());
                    let _ = poll::wait(&[Interest::readable(self.receiver.as_fd())], Some(left));
                }
                Err(_) => return,
            }
        }
    }

    pub(super) fn note_probe(&mut self, probe: Probe) {
        if probe.round != self.repair.round {
            // The registry decides whether this round is new, old or wrong.
            let current = self.registry.round();
            if current.ok().flatten() != Some(probe.round) {
                return;
            }
            self.repair.expect(probe.round);
        }
        if !self.repair.note(probe.socket_index) {
            return;
        }
        if self.repair.entered == Some((probe.round, probe.socket_index)) {
            self.repair.unrecorded = false;
            return;
        }
        let now = Instant::now();
        match self.record(now) {
            Ok(()) => {}
            Err(error) if is_locked(&error) => self.repair.try_again_soon(now),
            Err(_) => self.repair.due = Some(now + 5 * TICK),
        }
    }

    /// Records this member's index in the registry. The last member to do so installs the program.
    /// If the last one does not come, a member that notices this installs it.
    fn record(&mut self, now: Instant) -> Result<(), JoinError> {
        let Some(socket_index) = self.repair.socket_index else {
            return Ok(());
        };
        let locked = self.registry.lock_if_free()?;
        let round = self.repair.round;
        let (seen, members) = match locked.last_seen()? {
            Some(last) if last.round == round => (last.count, last.members),
            _ => {
                let table = locked.read()?;
                let entry = table.member(self.block).filter(|_| table.round == round);
                let Some(entry) = entry else {
                    self.repair.unrecorded = false;
                    return Ok(());
                };
                if (entry.socket_index, entry.round) == (Some(socket_index), round) {
                    self.repair.unrecorded = false;
                    return self.steer(&table);
                }
                let seen = table.members.iter().filter(|it| it.round == round);
                (seen.count(), table.members.len())
            }
        };
        locked.append(&Seen {
            block: self.block,
            round,
            socket_index,
            count: seen + 1,
            members,
        })?;
        self.repair.unrecorded = false;
        if seen + 1 >= members || members <= SMALL_GROUP {
            return self.publish(&locked);
        }
        self.repair.publish_at = Some(now + PUBLISH_DELAY);
        Ok(())
    }

    /// Installs the program if indices were recorded since it was last installed.
    fn publish_if_needed(&mut self) -> Result<(), JoinError> {
        let locked = self.registry.lock_if_free()?;
        self.repair.publish_at = None;
        match locked.last_seen()? {
            Some(_) => self.publish(&locked),
            None => Ok(()),
        }
    }

    /// Installs the program for the recorded indices.
    fn publish(&mut self, locked: &Locked) -> Result<(), JoinError> {
        self.repair.publish_at = None;
        let table = locked.read()?;
        locked.write(&table)?;
        self.steer(&table)
    }

    /// Removes dead members from the registry. If only one has died, and its index was known, the index of the one that
    /// has moved is known, too. Otherwise a round of probes starts.
    pub(super) fn remove_dead_members(&mut self) -> Result<(), JoinError> {
        let locked = self.registry.lock_if_free()?;
        let before = locked.read()?;
        self.repair.someone_died = false;
        let mut table = before.clone();
        let dead = locked.remove_dead_members(&mut table);
        let mut blocks = dead.into_iter();
        match (blocks.next(), blocks.next()) {
            // Another member has removed them already.
            (None, _) => Ok(()),
            (Some(dead), None) if before.round == self.repair.round => {
                self.close_gap(&locked, before, dead)
            }
            _ => self.start_round_for_all(&locked, table),
        }
    }

    /// Removes a member whose socket is closed, as [`leave`](Self::leave) does for this one.
    fn close_gap(
        &mut self,
        locked: &Locked,
        mut table: Table,
        dead: NumberBlock,
    ) -> Result<(), JoinError> {
        let Some(gap_closed) = table.close_gap(dead) else {
            return self.start_round_for_all(locked, table);
        };
        locked.write(&table)?;
        self.steer(&table)?;
        self.announce(gap_closed);
        Ok(())
    }

    /// Tells the member that has moved its index.
    fn announce(&mut self, gap_closed: GapClosed) {
        match gap_closed {
            GapClosed::NobodyMoves => {}
            GapClosed::Moves(block, index) => {
                self.send_probe(index);
                // If a forked child has kept the socket, the probe reaches no member.
                let _ = self.mailbox.send(&self.registry.mailbox(block), &INSPECT);
            }
            GapClosed::UnrecordedMoves(index) => self.send_probe(index),
        }
    }

    fn start_round_for_all(&mut self, locked: &Locked, table: Table) -> Result<(), JoinError> {
        let reach = table.members.len() as u32;
        self.start_round(locked, table, reach)
    }

    /// Probes more indices than there are members. This member got no probe, so its index is beyond
    /// the number of members, and the group contains a socket of no member.
    fn probe_everywhere(&mut self) -> Result<(), JoinError> {
        let locked = self.registry.lock_if_free()?;
        let table = locked.read()?;
        // While other members still record their indices, the probe for this one may still arrive.
        let goes_on = locked.last_seen()?.is_some() && self.registry.is_younger_than(SCHEDULED);
        if table.round != self.repair.round || goes_on {
            return Ok(());
        }
        let reach = all_indices(table.members.len());
        self.start_round(&locked, table, reach)
    }

    fn start_round(
        &mut self,
        locked: &Locked,
        mut table: Table,
        reach: u32,
    ) -> Result<(), JoinError> {
        table.round = new_round(table.round);
        locked.write(&table)?;
        // Until its index is recorded in this round, a member is assumed to be at its last index.
        self.steer(&table)?;
        self.repair.expect(table.round);
        self.counters.rounds += 1;
        (0..reach).for_each(|index| self.send_probe(index));
        Ok(())
    }

    pub(super) fn steer(&mut self, table: &Table) -> Result<(), JoinError> {
        let attached = sys::option::attach_steering(self.receiver.as_fd(), &program(table));
        self.repair.installed = self.registry.stamp();
        match attached {
            // A single member at the address gets every packet without a program.
            Err(error) if table.members.len() == 1 => {
                restrictions::report_if_forbidden(Restriction::Steering, &error);
                Ok(())
            }
            attached => attached.map_err(|source| no_steering(self.address, source)),
        }
    }

    fn send_probe(&self, socket_index: u32) {
        let round = self.repair.round;
        let route = Route::new(self.sender.flow_to(self.address));
        // If a probe is lost, its receiver times out and starts another round.
        let mut bytes = Probe {
            socket_index,
            round,
        }
        .bytes();
        let _ = self.sender.send(&route, probe::LENGTH, &mut bytes);
    }
}

/// Whether the error only says that another process changes the registry now.
pub(super) fn is_locked(error: &JoinError) -> bool {
    matches!(error, JoinError::Registry(RegistryError::Locked(_)))
}

fn no_steering(address: IpAddr, source: io::Error) -> JoinError {
    JoinError::Steering { address, source }
}

/// A random number that differs from the last one. Without randomness, the number after the last
/// one.
fn new_round(last: u64) -> u64 {
    let random = getrandom::u64().unwrap_or(last.wrapping_add(1));
    if random == last { !random } else { random }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;
    use std::path::PathBuf;
    use std::thread;

    use super::*;
    use crate::sharing::RuntimeDirectory;
    use crate::sys::seccomp::{Forbidden, forbid};

    #[test]
    fn an_index_in_a_probe_is_never_a_number_of_a_member() {
        assert_eq!(all_indices(1), 66);
        for members in [1000, 2000, 1 << 20] {
            let highest = all_indices(members) - 1;
            assert!(NumberBlock::is_shared(wire::Qpn::new(highest)), "{members}");
        }
    }

    /// Two members at an address of this test, and their runtime directory.
    fn members(last: u8) -> (PathBuf, [Member; 2]) {
        let [low, high, ..] = std::process::id().to_le_bytes();
        let address = IpAddr::from([127, 192 | high & 63, low, last]);
        let name = format!("roci-repair-{last}-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let directory = RuntimeDirectory::at(&path).unwrap();
        let members = [(); 2].map(|()| Member::join_in(&directory, address).unwrap());
        (path, members)
    }

    #[test]
    fn a_probe_of_a_round_that_the_registry_does_not_know_is_ignored() {
        let (path, mut members) = members(10);
        let repair = &members[0].repair;
        let before = (repair.round, repair.socket_index);
        let round = !repair.round;
        members[0].note_probe(Probe {
            socket_index: 7,
            round,
        });
        let repair = &members[0].repair;
        assert_eq!((repair.round, repair.socket_index), before);
        drop(members);
        std::fs::remove_dir_all(path).unwrap();
    }

    #[test]
    fn a_probe_of_a_round_that_the_registry_knows_begins_it() {
        let (path, [mut member, other]) = members(17);
        let locked = member.registry.lock().unwrap();
        let mut table = locked.read().unwrap();
        table.round = new_round(table.round);
        locked.write(&table).unwrap();
        drop(locked);
        let round = table.round;
        member.note_probe(Probe {
            socket_index: 1,
            round,
        });
        let entry = *member
            .registry
            .read()
            .unwrap()
            .member(member.block)
            .unwrap();
        assert_eq!((entry.socket_index, entry.round), (Some(1), round));
        drop((member, other));
        std::fs::remove_dir_all(path).unwrap();
    }

    /// The probes that have reached a member.
    fn probes(member: &Member) -> Vec<Probe> {
        let mut bytes = [0; probe::LENGTH + 1];
        let mut found = Vec::new();
        while let Ok(length) = member.receiver.peek(&mut bytes) {
            found.extend(Probe::parse(&bytes[..length]));
            member.receiver.discard().unwrap();
        }
        found
    }

    #[test]
    fn a_member_that_leaves_an_unknown_index_begins_a_round() {
        let (path, [leaver, other]) = members(18);
        let locked = leaver.registry.lock().unwrap();
        let mut table = locked.read().unwrap();
        table.member_mut(leaver.block).unwrap().socket_index = None;
        locked.write(&table).unwrap();
        drop(locked);
        probes(&other);
        drop(leaver);
        let round = other.registry.round().unwrap().unwrap();
        assert_ne!(round, table.round);
        assert!(probes(&other).iter().any(|it| it.round == round));
        drop(other);
        std::fs::remove_dir_all(path).unwrap();
    }

    #[test]
    fn strays_cause_a_registry_check_at_most_once_per_interval() {
        let (path, [mut member, other]) = members(11);
        let now = Instant::now();
        member.repair.suspect(other.block);
        member.check_registry_after_strays(now);
        assert_eq!(member.repair.suspect, None);
        member.repair.suspect(other.block);
        member.check_registry_after_strays(now + STRAY_CHECK_INTERVAL / 2);
        assert_eq!(member.repair.suspect, Some(other.block));
        member.check_registry_after_strays(now + STRAY_CHECK_INTERVAL_AFTER_PROBES);
        assert_eq!(member.repair.suspect, None);
        drop((member, other));
        std::fs::remove_dir_all(path).unwrap();
    }

    #[test]
    fn packets_of_a_member_that_still_gets_a_probe_begin_no_round() {
        let (path, [mut member, other]) = members(19);
        let now = Instant::now();
        let locked = member.registry.lock().unwrap();
        let mut table = locked.read().unwrap();
        table.member_mut(other.block).unwrap().round = !table.round;
        locked.write(&table).unwrap();
        drop(locked);
        member.check_registry(now, other.block).unwrap();
        assert_eq!(member.registry.round().unwrap(), Some(table.round));

        let locked = member.registry.lock().unwrap();
        table.member_mut(other.block).unwrap().round = table.round;
        locked.write(&table).unwrap();
        member.repair.installed = member.registry.stamp();
        drop(locked);
        member.check_registry(now, other.block).unwrap();
        assert_ne!(
            member.registry.round().unwrap(),
            Some(table.round),
            "its index is recorded and installed, and wrong all the same"
        );
        drop((member, other));
        std::fs::remove_dir_all(path).unwrap();
    }

    #[test]
    fn a_member_that_withdraws_releases_its_services() {
        let (path, [mut member, other]) = members(12);
        member.claimant().claim(7).unwrap();
        other.claimant().claim(7).unwrap_err();
        assert_eq!(other.others().unwrap(), [member.block]);
        member.withdraw();
        other.claimant().claim(7).unwrap();
        assert_eq!(other.others().unwrap(), []);
        let now = Instant::now();
        assert!(member.maintain(now) > now, "nothing more to do at once");
        drop((member, other));
        std::fs::remove_dir_all(path).unwrap();
    }

    /// A stopped process answers no probes.
    #[test]
    fn the_gap_of_a_single_dead_member_is_closed_without_probes() {
        let (path, [first, mut second]) = members(15);
        let directory = RuntimeDirectory::at(&path).unwrap();
        let third = Member::join_in(&directory, first.address).unwrap();
        let locked = first.registry.lock().unwrap();
        let mut table = locked.read().unwrap();
        table.member_mut(first.block).unwrap().process.start += 1;
        locked.write(&table).unwrap();
        drop(locked);
        // What the kernel does when a process ends.
        sys::process::replace_with_null(first.receiver.as_fd()).unwrap();
        second.remove_dead_members().unwrap();
        assert_eq!(second.counters.rounds, 0);
        let table = second.registry.read().unwrap();
        let index = |it: &Member| table.member(it.block).unwrap().socket_index;
        assert_eq!((index(&third), index(&second)), (Some(0), Some(1)));
        assert_eq!(table.member(first.block), None);
        // The member that has moved is told.
        let told: Vec<_> = probes(&third).iter().map(|it| it.socket_index).collect();
        assert_eq!(told, [2, 0], "first when it joined");
        drop((first, second, third));
        std::fs::remove_dir_all(path).unwrap();
    }

    #[test]
    fn an_index_that_could_not_be_recorded_is_recorded_by_the_next_inspection() {
        let (path, [mut member, other]) = members(16);
        let locked = member.registry.lock().unwrap();
        let mut table = locked.read().unwrap();
        table.round = new_round(table.round);
        locked.write(&table).unwrap();
        drop(locked);
        member.repair.expect(table.round);
        assert!(member.repair.note(0), "a probe, but the lock was held");
        member.inspect(Instant::now()).unwrap();
        let entry = *member
            .registry
            .read()
            .unwrap()
            .member(member.block)
            .unwrap();
        assert_eq!((entry.socket_index, entry.round), (Some(0), table.round));
        drop((member, other));
        std::fs::remove_dir_all(path).unwrap();
    }

    /// The lock of the lane is held meanwhile.
    #[test]
    fn maintenance_never_waits_for_a_locked_registry() {
        let (path, [mut member, other]) = members(20);
        let locked = member.registry.lock().unwrap();
        let mut table = locked.read().unwrap();
        table.round = new_round(table.round);
        locked.write(&table).unwrap();
        let round = table.round;
        let maintain = |member: &mut Member| {
            // The standard library panics if it can't sleep.
            forbid(Forbidden {
                call: libc::SYS_clock_nanosleep,
                argument: 0,
                value: libc::CLOCK_MONOTONIC,
                errno: libc::EPERM,
            });
            let now = Instant::now();
            member.repair.suspect(other.block);
            member.note_probe(Probe {
                socket_index: 0,
                round,
            });
            assert!(member.repair.unrecorded);
            for _ in 0..4 {
                let later = now + LIVENESS_CHECK_INTERVAL;
                member.repair.someone_died = true;
                member.repair.publish_at = Some(later);
                assert!(member.maintain(later) > later);
            }
            assert_eq!(member.repair.suspect, Some(other.block));
        };
        thread::scope(|scope| scope.spawn(|| maintain(&mut member)).join().unwrap());
        assert!(member.repair.unrecorded && member.repair.someone_died);
        assert!(member.repair.publish_at.is_some());
        drop(locked);
        let now = Instant::now() + 4 * LIVENESS_CHECK_INTERVAL;
        member.maintain(now);
        assert!(!member.repair.unrecorded && !member.repair.someone_died);
        let table = member.registry.read().unwrap();
        let entry = table.member(member.block).unwrap();
        assert_eq!((entry.socket_index, entry.round), (Some(0), round));
        drop((member, other));
        std::fs::remove_dir_all(path).unwrap();
    }

    #[test]
    fn what_another_process_keeps_from_the_registry_is_tried_again_soon() {
        let (path, [mut member, other]) = members(21);
        let locked = member.registry.lock().unwrap();
        let now = Instant::now();
        member.repair.someone_died = true;
        member.repair.due = None;
        assert_eq!(member.maintain(now), now + TICK);
        drop(locked);
        assert!(member.maintain(now + TICK) > now + 2 * TICK);
        assert!(!member.repair.someone_died);
        drop((member, other));
        std::fs::remove_dir_all(path).unwrap();
    }

    #[test]
    fn a_dead_member_is_not_among_the_others() {
        let (path, [member, other]) = members(14);
        let locked = member.registry.lock().unwrap();
        let mut table = locked.read().unwrap();
        table.member_mut(other.block).unwrap().process.start += 1;
        locked.write(&table).unwrap();
        drop(locked);
        assert_eq!(member.others().unwrap(), []);
        drop((member, other));
        std::fs::remove_dir_all(path).unwrap();
    }

    #[test]
    fn a_forked_child_does_not_withdraw_its_parent() {
        let (path, [mut member, other]) = members(13);
        let (mut ours, mut theirs) = UnixStream::pair().unwrap();
        let child = sys::process::fork(|| {
            member.withdraw();
            // If this fails, the parent reads nothing, and the test fails.
            let _ = theirs.write_all(&[1]);
        });
        drop(theirs);
        ours.read_exact(&mut [0]).unwrap();
        sys::process::end(child);
        assert_eq!(other.others().unwrap(), [member.block]);
        drop((member, other));
        std::fs::remove_dir_all(path).unwrap();
    }
}
