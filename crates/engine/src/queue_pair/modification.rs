//! Modification of a queue pair: all attributes are checked, then it enters the new state.

use super::{PeerRoute, QueuePair};
use crate::address::GidTable;
use crate::device_state::DeviceState;
use crate::event::AsyncEvent;
use crate::observation::{Discarded, Observation, Peer};
use crate::paths::{Congestion, Ends, Paths};
use crate::state::{self, Attribute, Attributes, ModifyError, State};

impl QueuePair {
    pub(crate) fn modify(
        &mut self,
        attributes: &Attributes,
        gids: &GidTable,
        device: &mut DeviceState,
    ) -> Result<(), ModifyError> {
        let to = state::check(self.init.kind, self.state, attributes)?;
        self.check_values(attributes)?;
        let merged = self.attributes.updated_by(attributes);
        let link = if attributes.path.is_some() {
            Some(self.link_for(&merged, gids)?)
        } else {
            self.link
        };
        self.attributes = merged;
        let ends_before = self.ends();
        self.link = link;
        if let (Some(_), Some(link)) = (attributes.path, link) {
            let peer = Peer {
                own: link.route.flow.source,
                address: link.route.flow.destination,
                queue_pair: link.peer,
            };
            device
                .observations
                .note(|| Observation::Connected(self.number, peer));
        }
        let depth = attributes
            .initiator_depth
            .max(attributes.responder_resources);
        if let Some(depth) = depth {
            device
                .observations
                .note(|| Observation::ReadDepth(self.number, depth));
        }
        let sends = self.state.transmits();
        self.enter(to, attributes, device);
        if sends && self.state.transmits() && self.ends() != ends_before {
            self.join_path(&mut device.paths);
        }
        Ok(())
    }

    fn check_values(&self, attributes: &Attributes) -> Result<(), ModifyError> {
        let out_of_range = |attribute| Err(ModifyError::OutOfRange { attribute });
        if attributes.port.is_some_and(|port| port != 1) {
            return out_of_range(Attribute::PORT);
        }
        if attributes.partition_index.is_some_and(|index| index != 0) {
            return out_of_range(Attribute::PARTITION);
        }
        if attributes
            .path_mtu
            .is_some_and(|mtu| mtu > self.settings.active_mtu)
        {
            return out_of_range(Attribute::PATH_MTU);
        }
        if attributes.retry_count.is_some_and(|count| count > 7) {
            return out_of_range(Attribute::RETRY_COUNT);
        }
        if attributes.rnr_retry.is_some_and(|count| count > 7) {
            return out_of_range(Attribute::RNR_RETRY);
        }
        let max = self.settings.max_responder_resources;
        if attributes
            .responder_resources
            .is_some_and(|count| count > max)
        {
            return out_of_range(Attribute::RESPONDER_RESOURCES);
        }
        if attributes.initiator_depth.is_some_and(|count| count > max) {
            return out_of_range(Attribute::INITIATOR_DEPTH);
        }
        Ok(())
    }

    /// Enters another device. Packets leave from its sockets, which have other ports.
    pub(crate) fn enter_device(&mut self, gids: &GidTable, paths: &mut Paths) {
        (self.queued, self.scheduled) = (false, None);
        if self.link.is_some()
            && let Ok(link) = self.link_for(&self.attributes, gids)
        {
            self.link = Some(link);
        }
        if self.state.transmits() {
            self.join_path(paths);
        }
    }

    /// Between which addresses it sends.
    fn ends(&self) -> Option<Ends> {
        self.link.map(|link| Ends::of(&link.route.flow))
    }

    fn link_for(&self, attributes: &Attributes, gids: &GidTable) -> Result<PeerRoute, ModifyError> {
        let missing = |attribute| ModifyError::OutOfRange { attribute };
        let path = attributes.path.ok_or(missing(Attribute::PATH))?;
        let mtu = attributes.path_mtu.ok_or(missing(Attribute::PATH_MTU))?;
        let peer = attributes
            .destination
            .ok_or(missing(Attribute::DESTINATION))?;
        let route = gids.route(&path, self.number, peer)?;
        let address = route.flow.destination;
        let congestion = if address.is_loopback() || gids.has_address(address) {
            Congestion::Local
        } else {
            self.settings.congestion
        };
        // RFC 3168: only what lowers its rate when it is told of marks may be marked.
        let is_controlled = self.init.kind.is_reliable() && congestion != Congestion::Local;
        Ok(PeerRoute {
            route: if is_controlled {
                route.with_marks_allowed(true)
            } else {
                route
            },
            peer,
            mtu,
            congestion,
        })
    }

    fn enter(&mut self, to: State, attributes: &Attributes, device: &mut DeviceState) {
        let from = std::mem::replace(&mut self.state, to);
        match (from, to) {
            (_, State::Reset) => self.reset(device),
            (from, State::Error) => {
                self.state = from;
                self.fail(device);
            }
            (State::Initialized, State::ReadyToReceive) => {
                self.responder
                    .start(attributes.receive_psn.unwrap_or_default());
            }
            (State::ReadyToReceive, State::ReadyToSend) => {
                self.requester
                    .start(attributes.send_psn.unwrap_or_default());
                self.join_path(&mut device.paths);
            }
            (State::ReadyToSend, State::SendQueueDrain) => {
                self.requester.announce_drain = attributes.drain_event.unwrap_or(false);
                self.announce_drained(device);
            }
            _ => {}
        }
        // A change of state alone, such as a drain, gives a request no more retries.
        if attributes.retry_count.is_some() || attributes.rnr_retry.is_some() {
            self.requester.renew_retries(&self.attributes);
        }
    }

    /// Returns to the state after creation. Outstanding requests are discarded without completions.
    /// Unpolled completions are discarded too, because they would be mistaken for those of later
    /// requests.
    fn reset(&mut self, device: &mut DeviceState) {
        self.observe_discard(Observation::QueuePairReset, device);
        device.objects.memory().settle();
        self.purge_completions();
        self.leave_path(&mut device.paths);
        *self = Self {
            scheduled: self.scheduled,
            queued: self.queued,
            ..Self::new(self.number, self.init, self.attached.clone(), self.settings)
        };
    }

    /// Records what is lost when the queue pair is destroyed or reset.
    pub(crate) fn observe_discard(
        &self,
        event: fn(Discarded) -> Observation,
        device: &mut DeviceState,
    ) {
        if !device.observations.are_recorded() {
            return;
        }
        let mut queues = self.completion_queues().into_iter();
        let failure = queues.find_map(|queue| queue.failure_of(self.number));
        let discarded = Discarded {
            queue_pair: self.number,
            sends: self.send.len(),
            failure,
        };
        device.observations.note(|| event(discarded));
    }

    /// Raises the event that the caller requested, when all requests that were begun are finished.
    pub(super) fn announce_drained(&mut self, device: &mut DeviceState) {
        let drained = self.state == State::SendQueueDrain && !self.send.has_begun();
        if drained && std::mem::take(&mut self.requester.announce_drain) {
            device.raise(AsyncEvent::SendQueueDrained(self.number));
        }
    }
}
