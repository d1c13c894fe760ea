//! Memory windows, bound and invalidated while requests use them.

use engine::{Access, Binding, Remote, SendFlags, WindowKind, Work};
use wire::Key;

use super::Cluster;
use super::build::Site;
use super::draft::{Draft, Place, Verb};
use super::end::{Opening, View, Window};
use crate::Complaint;
use crate::arena::Arena;
use crate::plain::ALL_RIGHTS;

impl View {
    /// The remote address and key of the byte at `offset` of the window.
    pub(super) fn remote(&self, arena: &Arena, offset: usize) -> Remote {
        let address = match self.access.contains(Access::ZERO_BASED) {
            true => offset as u64,
            false => arena.address(self.range.start + offset),
        };
        Remote {
            address,
            key: self.key,
        }
    }
}

impl Cluster {
    pub(super) fn draw_windows(&mut self, site: &Site) -> Result<Vec<Window>, Complaint> {
        let count = if self.profile.windows {
            self.rng.between(1, 3)
        } else {
            0
        };
        let mut windows = Vec::new();
        for _ in 0..count {
            let kind = *self.rng.pick(&[WindowKind::One, WindowKind::Two]);
            let handle = self.device(site.host)?.allocate_window(site.domain, kind)?;
            windows.push(Window {
                kind,
                handle,
                opening: Opening::Closed,
            });
        }
        Ok(windows)
    }

    /// Binds a window of this end to a part of its first target.
    pub(super) fn draft_bind(&mut self, end: usize) -> Option<Draft> {
        let state = &self.ends[end];
        let closed = |window: &Window| matches!(window.opening, Opening::Closed);
        let place = state.windows.iter().position(closed)?;
        let window = state.windows[place].clone();
        let target = state.targets[0];
        let stale: Vec<Key> = state.stale.iter().map(|stale| stale.key).collect();
        let length = self.rng.between(1, self.profile.longest);
        let start = self.rng.below(self.arenas[target.arena].len() - length + 1);
        let mut access = Access::from_bits_truncate(self.rng.word() as u32) & ALL_RIGHTS;
        access.set(Access::ZERO_BASED, self.rng.percent(40));
        let chosen = (0..64)
            .map(|_| window.handle.value() & !0xff | self.rng.below(256) as u32)
            .map(Key::new)
            .find(|key| !stale.contains(key))?;
        let view = View {
            key: chosen,
            arena: target.arena,
            range: start..start + length,
            access,
        };
        let mut draft = Draft::new(Work::BindWindow {
            window: window.handle,
            key: (window.kind == WindowKind::Two).then_some(chosen),
            binding: Binding {
                region: target.key,
                address: self.arenas[target.arena].address(start),
                length: length as u64,
                access,
            },
        });
        draft.binds = Some(place);
        if !self.ends[end].doomed {
            self.ends[end].windows[place].opening = Opening::Posted(view);
        }
        Some(draft)
    }

    /// Invalidates a bound window of this end that the peer does not use now.
    pub(super) fn draft_local_invalidate(&mut self, end: usize) -> Option<Draft> {
        let (place, view) = self.find_open(end, |_| true)?;
        let peer = &self.ends[self.ends[end].peer];
        // Requests of a broken peer are flushed there, but may still arrive here.
        let busy = !peer.outstanding.is_empty() || !peer.is_alive();
        if self.ends[end].doomed || busy {
            return None;
        }
        let window = self.ends[end].windows[place].clone();
        let mut draft = Draft::new(match window.kind {
            WindowKind::Two => Work::LocalInvalidate(view.key),
            // A type-1 window is invalidated by a bind with length zero.
            WindowKind::One => Work::BindWindow {
                window: window.handle,
                key: None,
                binding: Binding {
                    region: self.ends[end].targets[0].key,
                    address: 0,
                    length: 0,
                    access: Access::empty(),
                },
            },
        });
        draft.invalidates = Some(place);
        self.close(end, place);
        Some(draft)
    }

    /// Invalidates a window of the peer with a send.
    pub(super) fn draft_send_invalidate(&mut self, end: usize) -> Option<Draft> {
        let peer = self.ends[end].peer;
        let (place, view) = self.find_open(peer, |window| window.kind == WindowKind::Two)?;
        let mut draft = self.draft_send(end, None)?;
        draft.request.work = Work::SendInvalidate(view.key);
        // Reads through the window must be complete before it is invalidated.
        draft.request.flags |= SendFlags::FENCE;
        if let Some(message) = &mut draft.message {
            message.invalidates = Some(view.key);
        }
        if !self.ends[end].doomed {
            self.close(peer, place);
        }
        Some(draft)
    }

    /// Reads or writes through a window of the peer.
    pub(super) fn draft_through_window(&mut self, end: usize) -> Option<Draft> {
        let peer = self.ends[end].peer;
        let useful = Access::REMOTE_READ | Access::REMOTE_WRITE;
        let (_, view) = self.find_open(peer, |window| match &window.opening {
            Opening::Open(view) => view.access.intersects(useful),
            _ => false,
        })?;
        let length = self.draw_length(self.ends[end].limits.mtu.bytes(), view.range.len());
        let offset = self.rng.below(view.range.len() - length + 1);
        let start = view.range.start + offset;
        let place = Place {
            arena: view.arena,
            range: start..start + length,
            remote: view.remote(&self.arenas[view.arena], offset),
        };
        let writes = view.access.contains(Access::REMOTE_WRITE)
            && (self.rng.percent(50) || !view.access.contains(Access::REMOTE_READ));
        match writes {
            true => self.draft_write_to(end, &place, None),
            false => self.draft_read_from(end, &place),
        }
    }

    /// A type-2 window is valid only for the queue pair that bound it.
    pub(super) fn draft_foreign_window(&mut self, end: usize) -> Option<Draft> {
        let peer = self.ends[end].peer;
        let host = self.ends[peer].host;
        let others = self.ends.iter().enumerate();
        let foreign = others
            .filter(|&(place, other)| place != peer && other.host == host)
            .flat_map(|(_, other)| &other.windows)
            .find_map(|window| match (&window.opening, window.kind) {
                (Opening::Open(view), WindowKind::Two) => Some(view.clone()),
                _ => None,
            })?;
        let offered = self.ends[peer].access;
        let right = Access::REMOTE_WRITE;
        if !offered.contains(right) || !foreign.access.contains(right) {
            return None;
        }
        let place = Place {
            arena: foreign.arena,
            range: 0..1,
            remote: foreign.remote(&self.arenas[foreign.arena], 0),
        };
        self.draft_refused(end, &place, Verb::Write)
    }

    /// An access beyond a window is rejected, even inside of the region.
    pub(super) fn draft_beyond_window(&mut self, end: usize) -> Option<Draft> {
        let (_, view) = self.find_open(self.ends[end].peer, |_| true)?;
        let verb = self.draw_simple_touch(end, view.access)?;
        let length = self.rng.between(1, view.range.len());
        let beyond = *self.rng.pick(&[1, 1, 1, 2, 100]);
        let offset = view.range.len() - length + beyond;
        let place = Place {
            arena: view.arena,
            range: 0..length,
            remote: view.remote(&self.arenas[view.arena], offset),
        };
        self.draft_refused(end, &place, verb)
    }

    /// A window grants only the rights of its bind, whatever the region grants.
    pub(super) fn draft_window_without_right(&mut self, end: usize) -> Option<Draft> {
        let (_, view) = self.find_open(self.ends[end].peer, |_| true)?;
        let verb = self.draw_simple_touch(end, !view.access)?;
        let place = Place {
            arena: view.arena,
            range: 0..1,
            remote: view.remote(&self.arenas[view.arena], 0),
        };
        self.draft_refused(end, &place, verb)
    }

    /// A read or a write, if its right is among these and the peer's queue pair grants it.
    pub(super) fn draw_simple_touch(&mut self, end: usize, among: Access) -> Option<Verb> {
        let offered = self.ends[self.ends[end].peer].access & among;
        let mut choices = [
            (Verb::Write, Access::REMOTE_WRITE),
            (Verb::Read, Access::REMOTE_READ),
        ];
        if self.rng.percent(50) {
            choices.reverse();
        }
        let reliable = self.ends[end].is_reliable();
        let possible = choices
            .into_iter()
            .find(|&(verb, right)| offered.contains(right) && (reliable || verb == Verb::Write));
        possible.map(|(verb, _)| verb)
    }

    fn find_open(&mut self, end: usize, suits: impl Fn(&Window) -> bool) -> Option<(usize, View)> {
        let windows = self.ends[end].windows.iter().enumerate();
        let open: Vec<(usize, View)> = windows
            .filter(|(_, window)| suits(window))
            .filter_map(|(place, window)| match &window.opening {
                Opening::Open(view) => Some((place, view.clone())),
                _ => None,
            })
            .collect();
        match open.is_empty() {
            true => None,
            false => Some(self.rng.pick(&open).clone()),
        }
    }

    /// A window is about to be invalidated: no request uses it from now on.
    fn close(&mut self, end: usize, place: usize) {
        let window = &mut self.ends[end].windows[place];
        if let Opening::Open(view) = std::mem::replace(&mut window.opening, Opening::Closing) {
            let stale = view.remote(&self.arenas[view.arena], 0);
            self.ends[end].stale.push(stale);
        }
    }

    /// A bind or an invalidation completed.
    pub(super) fn windows_settled(
        &mut self,
        end: usize,
        binds: Option<usize>,
        invalidates: Option<usize>,
    ) {
        if let Some(place) = invalidates {
            self.ends[end].windows[place].opening = Opening::Closed;
        }
        let Some(place) = binds else { return };
        let host = self.ends[end].host;
        let window = &mut self.ends[end].windows[place];
        let Opening::Posted(mut view) = window.opening.clone() else {
            return;
        };
        if window.kind == WindowKind::One {
            let key = self
                .world
                .peek(host)
                .and_then(|device| device.window_key(window.handle));
            view.key = key.unwrap_or(view.key);
        }
        window.opening = Opening::Open(view);
    }

    /// A send of the peer invalidated this window.
    pub(super) fn invalidated_by_peer(&mut self, end: usize, key: Key) {
        let handle_of = |key: Key| key.value() >> 8;
        let windows = &mut self.ends[end].windows;
        let closed = windows.iter_mut().find(|window| {
            matches!(window.opening, Opening::Closing) && handle_of(window.handle) == handle_of(key)
        });
        if let Some(window) = closed {
            window.opening = Opening::Closed;
        }
    }
}
