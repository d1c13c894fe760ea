//! How a queue pair shares its [path](crate::paths) with others: it waits for its turn, and sends no more than its part.

use super::super::segmentation::Piece;
use super::super::{PeerRoute, QueuePair};
use super::Requester;
use super::window::SendWindow;
use crate::device_state::DeviceState;
use crate::now::Now;
use crate::paths::{Ends, Paths};
use crate::transmit::Batch;

impl Requester {
    /// Whether the window admits so many packets more, together with those of others.
    pub(super) fn window_fits(&self, span: u32, link: &PeerRoute) -> bool {
        let of_others = self.window.of_others();
        let is_empty = self.in_flight() == 0 && of_others == 0;
        let fits = of_others + self.on_network_with(span) <= self.window.packets(link.mtu());
        fits || is_empty || self.tries_one_packet()
    }

    /// Whether its own packets leave no room in the window for so many more. Then their acknowledgement, or its timer, lets it continue.
    /// It stands in no line meanwhile: others can't make room for it, and would wait behind it.
    pub(super) fn fills_window(&self, span: u32, link: &PeerRoute) -> bool {
        self.in_flight() > 0 && self.on_network_with(span) > self.window.packets(link.mtu())
    }

    /// Whether one packet is sent although the path does not admit it. C9-140 limits how long a retry may take, so its packet waits for
    /// nothing. While the peer seems to be gone, every queue pair tries one packet, so that each learns of it in time.
    fn tries_one_packet(&self) -> bool {
        let shared = self.window.as_shared();
        let is_silent = shared.is_some_and(|it| it.allowance.is_silent);
        self.in_flight() == 0 && (self.timeouts > 0 || is_silent)
    }

    /// How many packets the path counts. Those that are overdue are probably lost, and those for which no timer runs may never be
    /// answered: other queue pairs don't wait for these.
    fn counted_on_network(&self) -> u32 {
        let is_timed = self.acknowledgement_due.is_some() || self.response_due.is_some();
        if self.timeouts > 0 || !is_timed {
            return 0;
        }
        let later = self.overdue_before.map_or(u32::MAX, |overdue| {
            u32::try_from(self.next.since(overdue)).unwrap_or(0)
        });
        self.on_network_with(0).min(later)
    }
}

impl QueuePair {
    /// The peer is known, and requests may be sent from now on.
    pub(in crate::queue_pair) fn join_path(&mut self, paths: &mut Paths) {
        self.leave_path(paths);
        let Some(link) = self.link.filter(|_| self.init.kind.is_reliable()) else {
            return;
        };
        let limits = self.settings.window;
        let congestion = link.congestion;
        let member = paths.join(Ends::of(&link.route.flow), congestion, limits);
        self.requester.window = match member {
            Some(member) => SendWindow::shared(member, link.mtu(), paths),
            None => SendWindow::own(limits, link.mtu()),
        };
    }

    /// Shares nothing any more with other queue pairs.
    pub(crate) fn leave_path(&mut self, paths: &mut Paths) {
        let own = SendWindow::own(self.settings.window, self.link.map_or(1, |link| link.mtu()));
        if let SendWindow::Shared(shared) = std::mem::replace(&mut self.requester.window, own) {
            paths.leave(shared.member);
        }
    }

    /// It is the first of those that wait for its path.
    pub(crate) fn begin_turn(&mut self) {
        if let Some(shared) = self.requester.window.as_shared_mut() {
            shared.member.begin_turn();
        }
    }

    /// Tells its path what has become of its packets. One that has failed leaves the path.
    pub(crate) fn settle_path(&mut self, paths: &mut Paths) {
        if self.requester.window.as_shared().is_none() {
            return;
        }
        if !self.state.transmits() {
            return self.leave_path(paths);
        }
        let counted = self.requester.counted_on_network();
        if let Some(shared) = self.requester.window.as_shared_mut() {
            paths.settle(&mut shared.member, counted);
        }
    }

    /// If it waits, the first one in its line tries again.
    pub(crate) fn ask_for_turn(&self, paths: &mut Paths) {
        if let Some(shared) = self.requester.window.as_shared() {
            paths.ask_for_turn(&shared.member);
        }
    }

    /// The call of its turn ends.
    pub(crate) fn end_turn(&mut self, has_sent: bool, paths: &mut Paths) {
        if let Some(shared) = self.requester.window.as_shared_mut() {
            paths.end_turn(&mut shared.member, has_sent);
        }
    }

    /// The peer has received a packet with a congestion mark.
    pub(in crate::queue_pair) fn notified_of_congestion(&mut self, paths: &mut Paths) {
        if let Some(shared) = self.requester.window.as_shared() {
            paths.notified(&shared.member);
        }
    }

    /// How many packets may be sent at most now. `None`: the queue pair must wait.
    pub(super) fn admitted_packets(
        &mut self,
        now: &Now,
        link: &PeerRoute,
        batch: &Batch<'_>,
        device: &mut DeviceState,
    ) -> Option<u32> {
        if !self.ask_path(link, &device.paths) {
            let waits =
                batch.is_empty() && (self.waits_to_coalesce(now) || !self.window_is_open(link));
            return (!waits).then_some(u32::MAX);
        }
        if !self.requester.may_transmit(&self.send) || self.requester.is_in_line() {
            return None;
        }
        if self.requester.tries_one_packet() {
            return Some(1);
        }
        // After a timeout, its response comes first: the path does not count what a peer that is gone would never answer.
        if self.requester.timeouts > 0 {
            return None;
        }
        let is_closed = batch.is_empty() && !self.window_is_open(link);
        if is_closed && self.requester.fills_window(self.window_step(link), link) {
            return None;
        }
        let shared = self.requester.window.as_shared()?;
        let (member, allowance) = (&shared.member, shared.allowance);
        let must_wait = (allowance.others_wait && !member.has_turn())
            || device.paths.is_paused(member, now)
            || is_closed;
        // A batch may end before its last packet is known. Then one more follows, which requests an acknowledgement: the timers run
        // meanwhile.
        if must_wait && self.requester.packets_since_ack_request > 0 && !member.has_turn() {
            return Some(1);
        }
        if must_wait {
            let paths = &mut device.paths;
            self.requester.window.wait(self.number, now, paths);
            return None;
        }
        if batch.is_empty() && self.waits_to_coalesce(now) {
            return None;
        }
        let part = if allowance.others_wait {
            (allowance.window / 4).max(1)
        } else {
            u32::MAX
        };
        Some(allowance.burst.min(part))
    }

    /// Learns what the path allows now. Returns whether it shares one.
    fn ask_path(&mut self, link: &PeerRoute, paths: &Paths) -> bool {
        let Some(shared) = self.requester.window.as_shared_mut() else {
            return false;
        };
        shared.allowance = paths.allowance(&shared.member, link.mtu());
        true
    }

    /// The first packet of a send uses the turn.
    pub(super) fn begin_sending(&mut self) {
        if let Some(shared) = self.requester.window.as_shared_mut() {
            shared.member.use_turn();
        }
    }

    /// Whether the next packet waits for the path, or for others. This one requests an acknowledgement then: the next turn may be far away,
    /// the timers run meanwhile, and the part of the window is not free for others before.
    pub(super) fn ends_turn(
        &self,
        sent: u32,
        most: u32,
        piece: &Piece,
        link: &PeerRoute,
        batch: &Batch<'_>,
    ) -> bool {
        let window = &self.requester.window;
        let is_paced = most < u32::MAX;
        let is_shared = window.others_wait() || window.of_others() > 0;
        (is_paced || is_shared)
            && (sent >= most
                || batch.is_filled_by(piece.opcode.header_length(), piece.payload)
                || !self.requester.window_fits(piece.span + 1, link))
    }

    /// As many packets were sent: the next ones of the path follow after a pause. Those that waited for nothing delay no others.
    pub(super) fn pause_after(&mut self, packets: u32, now: &Now, device: &mut DeviceState) {
        if packets > 0
            && self.requester.timeouts == 0
            && let Some(shared) = self.requester.window.as_shared()
            && !shared.allowance.is_silent
        {
            device.paths.pause_after(&shared.member, packets, now.get());
        }
    }
}
