//! The paths to other hosts: what the queue pairs of a device share that send from one address to another.
//!
//! A path has one window, one pace and one estimate of the round trip, so that many queue pairs behave as one. A queue pair
//! becomes a [`Member`] when it may send, and a path is forgotten with its last member.
//!
//! A queue pair that may not send at once because of the window, the pace, or others that wait, stands in the [line](line). When
//! packets leave the network, or a pause ends, the first one gets a turn ([`Paths::take_turn`]): it sends what one burst
//! and a quarter of the window admit, and then others have their turns. Nobody holds a turn: it lasts for one call.

mod congestion;
mod delivery;
mod estimate;
mod line;
mod pacing;
mod path;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::time::{Duration, Instant};

use wire::{Psn, Qpn};

use crate::now::Now;
use crate::slab::{Id, Table};
use congestion::Control;
use delivery::Marks;
use line::Ticket;
use path::Path;

pub use congestion::Congestion;

pub(crate) use estimate::{INITIAL_RESPONSE_TIMEOUT, RoundTripEstimate};
pub(crate) use path::{Ends, limited};

/// The limits of a send window, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WindowLimits {
    /// The minimum to a peer on this host.
    pub min: u32,
    /// The initial size to a peer on this host.
    pub initial: u32,
    /// The maximum for round trips of up to a millisecond. Longer ones admit as many times more.
    pub max: u32,
}

impl Default for WindowLimits {
    /// Large enough for a fast loopback, small enough for common socket receive buffers.
    fn default() -> Self {
        Self {
            min: 32 << 10,
            initial: 256 << 10,
            max: 1 << 20,
        }
    }
}

/// What acknowledgements tell.
#[derive(Debug, Clone, Copy)]
pub(crate) struct News {
    /// The first packet that is not acknowledged.
    pub(crate) oldest: Psn,
    /// How many packets are newly acknowledged.
    pub(crate) packets: u32,
    /// How many packets of the queue pair were unacknowledged before.
    pub(crate) outstanding: u32,
    /// Whether the queue pair repairs losses.
    pub(crate) is_repairing: bool,
}

/// What a path allows a queue pair at one time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Allowance {
    /// How many packets may be on the network.
    pub(crate) window: u32,
    /// How many packets of others are.
    pub(crate) of_others: u32,
    /// How many packets one send may have.
    pub(crate) burst: u32,
    /// Whether others stand in line.
    pub(crate) others_wait: bool,
    /// Whether nothing was delivered since a timeout.
    pub(crate) is_silent: bool,
    pub(crate) estimate: Option<RoundTripEstimate>,
}

/// Whether a queue pair waits for its path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// It doesn't.
    Outside,
    InLine(Ticket),
    /// It has its turn, until the end of the call.
    Turn(Ticket),
}

/// The part of a queue pair in its path.
#[derive(Debug)]
pub(crate) struct Member {
    path: Id<Path>,
    place: Place,
    marks: Marks,
    /// How many packets the path counts for it.
    on_network: u32,
}

impl Member {
    pub(crate) fn is_in_line(&self) -> bool {
        matches!(self.place, Place::InLine(_))
    }

    pub(crate) fn has_turn(&self) -> bool {
        matches!(self.place, Place::Turn(_))
    }

    /// It is the first in the line, and was removed from it.
    pub(crate) fn begin_turn(&mut self) {
        if let Place::InLine(ticket) = self.place {
            self.place = Place::Turn(ticket);
        }
    }

    /// All packets are sent again.
    pub(crate) fn sent_again(&mut self) {
        self.marks.sent_again();
    }

    /// It has sent something. If it wants to send more, others have their turn first.
    pub(crate) fn use_turn(&mut self) {
        if self.has_turn() {
            self.place = Place::Outside;
        }
    }
}

/// All paths of a device.
pub(crate) struct Paths {
    paths: Table<Path>,
    by_ends: HashMap<Ends, Id<Path>>,
    /// Paths whose first queue pair in line may be able to send.
    offered: VecDeque<Id<Path>>,
    /// The timers that end pauses.
    timers: BTreeMap<(Instant, u32), Id<Path>>,
}

impl Default for Paths {
    fn default() -> Self {
        Self {
            paths: Table::with_capacity(u32::MAX),
            by_ends: HashMap::new(),
            offered: VecDeque::new(),
            timers: BTreeMap::new(),
        }
    }
}

impl Paths {
    /// A queue pair may send from now on. `None` if it shares nothing.
    pub(crate) fn join(
        &mut self,
        ends: Ends,
        congestion: Congestion,
        limits: WindowLimits,
    ) -> Option<Member> {
        let id = match self.by_ends.get(&ends) {
            Some(id) => *id,
            None => {
                let path = Path::new(ends, Control::new(congestion)?, limits);
                let id = self.paths.insert(path)?;
                self.by_ends.insert(ends, id);
                id
            }
        };
        self.paths.get_mut(id)?.users += 1;
        Some(Member {
            path: id,
            place: Place::Outside,
            marks: Marks::default(),
            on_network: 0,
        })
    }

    /// A queue pair sends no more on its path.
    pub(crate) fn leave(&mut self, mut member: Member) {
        self.leave_line(&mut member);
        let path = self.path_mut(&member);
        path.leave(&member);
        if path.users > 0 {
            return self.offer(member.path);
        }
        if let Some(path) = self.paths.remove(member.path) {
            self.by_ends.remove(&path.ends);
            if let Some(at) = path.timer {
                self.timers.remove(&(at, member.path.index()));
            }
        }
    }

    fn path(&self, member: &Member) -> &Path {
        self.paths.get(member.path).expect("it has members")
    }

    fn path_mut(&mut self, member: &Member) -> &mut Path {
        self.paths.get_mut(member.path).expect("it has members")
    }

    /// What the path allows a queue pair now.
    pub(crate) fn allowance(&self, member: &Member, mtu: usize) -> Allowance {
        let path = self.path(member);
        Allowance {
            window: path.window(mtu),
            of_others: path.on_network - member.on_network,
            burst: path.burst(),
            others_wait: !path.line.is_empty(),
            is_silent: path.is_silent(),
            estimate: path.estimate(),
        }
    }

    /// Whether the path is paused, so that packets are spread.
    pub(crate) fn is_paused(&self, member: &Member, now: &Now) -> bool {
        self.path(member).paused_until(now.get()).is_some()
    }

    /// A queue pair waits: at the end of the line, or, if it could not use its turn, at its beginning.
    pub(crate) fn wait(&mut self, member: &mut Member, queue_pair: Qpn, now: &Now) {
        let kept = match member.place {
            Place::InLine(_) => return,
            Place::Turn(ticket) => Some(ticket),
            Place::Outside => None,
        };
        let path = self.path_mut(member);
        member.place = Place::InLine(path.line.join(queue_pair, kept));
        self.schedule(member.path, now);
    }

    /// A queue pair waits no more.
    pub(crate) fn leave_line(&mut self, member: &mut Member) {
        let place = std::mem::replace(&mut member.place, Place::Outside);
        if let Place::InLine(ticket) = place {
            self.path_mut(member).line.leave(ticket);
            self.offer(member.path);
        }
    }

    /// So many packets of a queue pair are on the network.
    pub(crate) fn settle(&mut self, member: &mut Member, on_network: u32) {
        if member.on_network != on_network {
            let path = self.path_mut(member);
            path.on_network = path.on_network - member.on_network + on_network;
            let has_less = on_network < member.on_network;
            member.on_network = on_network;
            if has_less {
                self.offer(member.path);
            }
        }
    }

    /// The call of a turn ends. Unless the queue pair could not send because of the path, the next one has its turn.
    pub(crate) fn end_turn(&mut self, member: &mut Member, has_sent: bool) {
        member.use_turn();
        if has_sent || !member.is_in_line() {
            self.offer(member.path);
        }
    }

    /// A queue pair has changed. If it waits, the first one in its line tries again.
    pub(crate) fn ask_for_turn(&mut self, member: &Member) {
        if member.is_in_line() {
            self.offer(member.path);
        }
    }

    /// The first in line may be able to send.
    fn offer(&mut self, id: Id<Path>) {
        if let Some(path) = self.paths.get_mut(id)
            && !path.line.is_empty()
            && !path.is_offered
        {
            path.is_offered = true;
            self.offered.push_back(id);
        }
    }

    /// Whether a queue pair may have its turn.
    pub(crate) fn has_turns(&self) -> bool {
        !self.offered.is_empty()
    }

    /// The next queue pair that has its turn, path by path.
    pub(crate) fn take_turn(&mut self, now: &Now) -> Option<Qpn> {
        while let Some(id) = self.offered.pop_front() {
            let Some(path) = self.paths.get_mut(id) else {
                continue;
            };
            path.is_offered = false;
            if path.paused_until(now.get()).is_some() {
                self.schedule(id, now);
            } else if let Some(queue_pair) = path.line.take_first() {
                return Some(queue_pair);
            }
        }
        None
    }

    /// Starts the timer that ends the pause of a path, if it is paused.
    fn schedule(&mut self, id: Id<Path>, now: &Now) {
        let Some(path) = self.paths.get_mut(id) else {
            return;
        };
        let until = path.paused_until(now.get());
        if until == path.timer || until.is_none() {
            return;
        }
        let before = std::mem::replace(&mut path.timer, until);
        if let Some(at) = before {
            self.timers.remove(&(at, id.index()));
        }
        if let Some(at) = until {
            self.timers.insert((at, id.index()), id);
        }
    }

    /// The time of the next timer.
    pub(crate) fn next_timer(&self) -> Option<Instant> {
        self.timers.keys().next().map(|(at, _)| *at)
    }

    /// Ends the pauses that are over.
    pub(crate) fn handle_timeout(&mut self, now: Instant) {
        while let Some(entry) = self.timers.first_entry()
            && entry.key().0 <= now
        {
            let id = entry.remove();
            if let Some(path) = self.paths.get_mut(id) {
                path.timer = None;
            }
            self.offer(id);
        }
    }

    /// A new packet is sent that requests an acknowledgement.
    pub(crate) fn sent(&mut self, member: &mut Member, psn: Psn, now: Instant) {
        let path = self.paths.get_mut(member.path).expect("it has members");
        path.sent(&mut member.marks, psn, now);
    }

    /// As many packets were sent: the next ones follow after a pause.
    pub(crate) fn pause_after(&mut self, member: &Member, packets: u32, now: Instant) {
        self.path_mut(member).pause_after(packets, now);
    }

    /// Less is sent than could be, because the program or its peer is the limit.
    pub(crate) fn is_limited_by_program(&mut self, member: &Member, on_network: u32) {
        self.path_mut(member).is_limited_by_program(on_network);
    }

    /// A queue pair has measured a round trip.
    pub(crate) fn note_round_trip(
        &mut self,
        member: &Member,
        sample: Duration,
    ) -> RoundTripEstimate {
        self.path_mut(member).note_round_trip(sample)
    }

    /// Packets of a queue pair are acknowledged.
    pub(crate) fn acknowledged(&mut self, member: &mut Member, now: Instant, news: &News) {
        let path = self.paths.get_mut(member.path).expect("it has members");
        path.acknowledged(member, now, news);
        self.offer(member.path);
    }

    /// Packets of a queue pair are lost.
    pub(crate) fn lost(&mut self, member: &Member, again: u32, is_new: bool) {
        self.path_mut(member).lost(again, is_new);
    }

    /// A queue pair has waited since `since` for an acknowledgement.
    pub(crate) fn timed_out(&mut self, member: &Member, since: Instant) {
        self.path_mut(member).timed_out(since);
        self.offer(member.path);
    }

    /// The peer has received a packet with a congestion mark.
    pub(crate) fn notified(&mut self, member: &Member) {
        self.path_mut(member).notified();
    }
}

#[cfg(test)]
mod tests {
    use wire::{Flow, ROCE_PORT};

    use super::congestion::start;
    use super::*;

    const MILLISECOND: Duration = Duration::from_millis(1);

    fn join(paths: &mut Paths) -> Member {
        join_from(paths, 1, 0xc001)
    }

    fn join_from(paths: &mut Paths, host: u8, source_port: u16) -> Member {
        let flow = Flow {
            source: [10, 0, 0, host].into(),
            destination: [10, 0, 0, 9].into(),
            source_port,
            destination_port: ROCE_PORT,
        };
        let member = paths.join(Ends::of(&flow), Congestion::Cubic, WindowLimits::default());
        member.expect("it is shared")
    }

    fn window(paths: &Paths, member: &Member) -> u32 {
        paths.allowance(member, 1024).window
    }

    /// A packet is sent and acknowledged within a millisecond, before `now`.
    fn delivers(paths: &mut Paths, member: &mut Member, now: Instant) {
        paths.sent(
            member,
            Psn::ZERO,
            now.checked_sub(MILLISECOND).expect("a time"),
        );
        let news = News {
            oldest: Psn::ZERO + 1,
            packets: 1,
            outstanding: 1,
            is_repairing: false,
        };
        paths.acknowledged(member, now, &news);
    }

    #[test]
    fn path_is_forgotten_with_its_last_queue_pair() {
        let (mut paths, now) = (Paths::default(), Now::from(start()));
        let (mut one, other) = (join(&mut paths), join(&mut paths));
        paths.pause_after(&one, 1, now.get());
        paths.wait(&mut one, Qpn::new(1), &now);
        paths.leave(one);
        assert_eq!((paths.paths.len(), paths.by_ends.len()), (1, 1));
        paths.leave(other);
        assert_eq!((paths.paths.len(), paths.by_ends.len()), (0, 0));
        assert_eq!(paths.next_timer(), None);
        assert_eq!(paths.take_turn(&now), None);
    }

    /// The addresses may be those of different networks. Flows between the same ones share the links of both hosts, at least.
    #[test]
    fn each_pair_of_addresses_has_its_own_path_for_all_ports() {
        let mut paths = Paths::default();
        let one = join_from(&mut paths, 1, 0xc001);
        let same = join_from(&mut paths, 1, 0xc002);
        let other = join_from(&mut paths, 2, 0xc001);
        paths.lost(&one, 1, true);
        assert_eq!(window(&paths, &one), window(&paths, &same));
        assert!(window(&paths, &one) < window(&paths, &other));
        paths.leave(other);
        assert_eq!(paths.by_ends.len(), 1);
    }

    #[test]
    fn queue_pairs_have_turns_in_the_order_in_which_they_wait() {
        let (mut paths, now) = (Paths::default(), Now::from(start()));
        let mut members: Vec<_> = (0..3).map(|_| join(&mut paths)).collect();
        for (number, member) in members.iter_mut().enumerate() {
            paths.wait(member, Qpn::new(number as u32), &now);
        }
        assert_eq!(paths.take_turn(&now), None, "nothing has changed");
        paths.ask_for_turn(&members[2]);
        assert_eq!(paths.take_turn(&now), Some(Qpn::new(0)));
        // It can't send because of the path, and keeps its place.
        members[0].begin_turn();
        paths.wait(&mut members[0], Qpn::new(0), &now);
        paths.end_turn(&mut members[0], false);
        assert_eq!(paths.take_turn(&now), None);
        paths.ask_for_turn(&members[2]);
        assert_eq!(paths.take_turn(&now), Some(Qpn::new(0)));
        // It has nothing to send.
        members[0].begin_turn();
        paths.end_turn(&mut members[0], false);
        paths.leave(members.remove(1));
        assert_eq!(paths.take_turn(&now), Some(Qpn::new(2)));
    }

    #[test]
    fn losses_of_one_round_trip_reduce_the_window_once() {
        let mut paths = Paths::default();
        let [mut one, other] = [join(&mut paths), join(&mut paths)];
        paths.settle(&mut one, 20);
        let before = window(&paths, &one);
        paths.lost(&one, 1, true);
        let after = window(&paths, &one);
        assert!(after < before);
        paths.lost(&other, 1, true);
        assert_eq!(window(&paths, &one), after);
    }

    #[test]
    fn timeout_of_a_queue_pair_slows_a_path_only_if_nothing_is_delivered() {
        let (mut paths, now) = (Paths::default(), start() + MILLISECOND);
        let [mut one, other] = [join(&mut paths), join(&mut paths)];
        delivers(&mut paths, &mut one, now);
        let before = window(&paths, &one);
        paths.timed_out(&other, now.checked_sub(MILLISECOND).expect("a time"));
        assert_eq!(window(&paths, &one), before);
        paths.timed_out(&other, now + MILLISECOND);
        let after = window(&paths, &one);
        assert!(after < before);
        paths.timed_out(&other, now + 2 * MILLISECOND);
        assert_eq!(window(&paths, &one), after, "the peer is gone");
    }
}
