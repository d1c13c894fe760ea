//! Memory windows, bound and invalidated while requests use them.

use engine::{Access, Binding, RemoteMemory, SendFlags, WindowKind, Work};
use wire::Key;

use super::Cluster;
use super::build::HostObjects;
use super::connection_end::{Opening, View, Window};
use super::valid_requests::{Draft, RemoteRange, Verb};
use crate::CheckError;
use crate::model_memory::ModelMemory;
use crate::simple_connect::ALL_RIGHTS;

impl View {
    /// The remote address and key of the byte at `offset` of the window.
    pub(super) fn remote(&self, memory: &ModelMemory, offset: usize) -> RemoteMemory {
        let address = if self.access.contains(Access::ZERO_BASED) {
            offset as u64
        } else {
            memory.address(self.range.start + offset)
        };
        RemoteMemory {
            address,
            key: self.key,
        }
    }
}

impl Cluster {
    pub(super) fn draw_windows(
        &mut self,
        objects: &HostObjects,
    ) -> Result<Vec<Window>, CheckError> {
        let count = if self.profile.windows {
            self.rng.between(1, 3)
        } else {
            0
        };
        let mut windows = Vec::new();
        for _ in 0..count {
            let kind = *self.rng.pick(&[WindowKind::One, WindowKind::Two]);
            let handle = self
                .device(objects.host)?
                .allocate_window(objects.domain, kind)?;
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
        let index = state.windows.iter().position(closed)?;
        let window = state.windows[index].clone();
        let target = state.targets[0];
        let stale: Vec<Key> = state.stale.iter().map(|stale| stale.key).collect();
        let length = self.rng.between(1, self.profile.longest);
        let start = self
            .rng
            .below(self.memories[target.memory].len() - length + 1);
        let mut access = Access::from_bits_truncate(self.rng.word() as u32) & ALL_RIGHTS;
        let zero_based = self.rng.percent(40) && window.kind == WindowKind::Two;
        access.set(Access::ZERO_BASED, zero_based);
        let chosen = (0..64)
            .map(|_| window.handle.value() & !0xff | self.rng.below(256) as u32)
            .map(Key::new)
            .find(|key| !stale.contains(key))?;
        let view = View {
            key: chosen,
            memory: target.memory,
            range: start..start + length,
            access,
        };
        let mut draft = Draft::new(Work::BindWindow {
            window: window.handle,
            key: (window.kind == WindowKind::Two).then_some(chosen),
            binding: Binding {
                region: target.key,
                address: self.memories[target.memory].address(start),
                length: length as u64,
                access,
            },
        });
        draft.binds = Some(index);
        if !self.ends[end].doomed {
            self.ends[end].windows[index].opening = Opening::Posted(view);
        }
        Some(draft)
    }

    /// Invalidates a bound window of this end that the peer does not use now.
    pub(super) fn draft_local_invalidate(&mut self, end: usize) -> Option<Draft> {
        let (index, view) = self.find_open(end, |_| true)?;
        let peer = &self.ends[self.ends[end].peer];
        // Requests of a peer in ERROR are flushed there, but may still arrive here.
        let busy = !peer.outstanding.is_empty() || !peer.is_alive();
        if self.ends[end].doomed || busy {
            return None;
        }
        let window = self.ends[end].windows[index].clone();
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
        draft.invalidates = Some(index);
        self.close(end, index);
        Some(draft)
    }

    /// Invalidates a window of the peer with a send.
    pub(super) fn draft_send_invalidate(&mut self, end: usize) -> Option<Draft> {
        let peer = self.ends[end].peer;
        let (index, view) = self.find_open(peer, |window| window.kind == WindowKind::Two)?;
        let mut draft = self.draft_send(end, None)?;
        draft.request.work = Work::SendInvalidate(view.key);
        // Reads through the window must be complete before it is invalidated.
        draft.request.flags |= SendFlags::FENCE;
        if let Some(message) = &mut draft.message {
            message.invalidates = Some(view.key);
        }
        if !self.ends[end].doomed {
            // Later requests of this end arrive after the send, so the key is stale for them.
            let stale = self.close(peer, index);
            self.ends[peer].stale.extend(stale);
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
        let target_range = RemoteRange {
            memory: view.memory,
            range: start..start + length,
            remote: view.remote(&self.memories[view.memory], offset),
        };
        let writes = view.access.contains(Access::REMOTE_WRITE)
            && (self.rng.percent(50) || !view.access.contains(Access::REMOTE_READ));
        if writes {
            self.draft_write_to(end, &target_range, None)
        } else {
            self.draft_read_from(end, &target_range)
        }
    }

    /// A type-2 window is valid only for the queue pair that bound it.
    pub(super) fn draft_foreign_window(&mut self, end: usize) -> Option<Draft> {
        let peer = self.ends[end].peer;
        let host = self.ends[peer].host;
        let others = self.ends.iter().enumerate();
        let foreign = others
            .filter(|&(index, other)| index != peer && other.host == host)
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
        let target_range = RemoteRange {
            memory: foreign.memory,
            range: 0..1,
            remote: foreign.remote(&self.memories[foreign.memory], 0),
        };
        self.draft_rejected(end, &target_range, Verb::Write)
    }

    /// An access beyond a window is rejected, even inside of the region.
    pub(super) fn draft_beyond_window(&mut self, end: usize) -> Option<Draft> {
        let (_, view) = self.find_open(self.ends[end].peer, |_| true)?;
        let verb = self.draw_read_or_write(end, view.access)?;
        let length = self.rng.between(1, view.range.len());
        let beyond = *self.rng.pick(&[1, 1, 1, 2, 100]);
        let offset = view.range.len() - length + beyond;
        let target_range = RemoteRange {
            memory: view.memory,
            range: 0..length,
            remote: view.remote(&self.memories[view.memory], offset),
        };
        self.draft_rejected(end, &target_range, verb)
    }

    /// A window grants only the rights of its bind, whatever the region grants.
    pub(super) fn draft_window_without_right(&mut self, end: usize) -> Option<Draft> {
        let (_, view) = self.find_open(self.ends[end].peer, |_| true)?;
        let verb = self.draw_read_or_write(end, !view.access)?;
        let target_range = RemoteRange {
            memory: view.memory,
            range: 0..1,
            remote: view.remote(&self.memories[view.memory], 0),
        };
        self.draft_rejected(end, &target_range, verb)
    }

    /// A read or a write, if its right is among these and the peer's queue pair grants it.
    pub(super) fn draw_read_or_write(&mut self, end: usize, among: Access) -> Option<Verb> {
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
            .filter_map(|(index, window)| match &window.opening {
                Opening::Open(view) => Some((index, view.clone())),
                _ => None,
            })
            .collect();
        if open.is_empty() {
            None
        } else {
            Some(self.rng.pick(&open).clone())
        }
    }

    /// A window is about to be invalidated: no request uses it from now on. Returns its key, which is
    /// stale when the invalidation is complete.
    fn close(&mut self, end: usize, index: usize) -> Option<RemoteMemory> {
        let window = &mut self.ends[end].windows[index];
        let Opening::Open(view) = &window.opening else {
            return None;
        };
        let stale = view.remote(&self.memories[view.memory], 0);
        window.opening = Opening::Closing(stale);
        Some(stale)
    }

    /// A bind or an invalidation completed.
    pub(super) fn windows_settled(
        &mut self,
        end: usize,
        binds: Option<usize>,
        invalidates: Option<usize>,
    ) {
        if let Some(index) = invalidates {
            let state = &mut self.ends[end];
            let before = std::mem::replace(&mut state.windows[index].opening, Opening::Closed);
            if let Opening::Closing(stale) = before {
                state.stale.push(stale);
            }
        }
        let Some(index) = binds else { return };
        let host = self.ends[end].host;
        let window = &mut self.ends[end].windows[index];
        let Opening::Posted(mut view) = window.opening.clone() else {
            return;
        };
        if window.kind == WindowKind::One {
            let key = self
                .world
                .device(host)
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
            matches!(window.opening, Opening::Closing(_))
                && handle_of(window.handle) == handle_of(key)
        });
        if let Some(window) = closed {
            window.opening = Opening::Closed;
        }
    }
}
