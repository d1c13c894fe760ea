//! Posting of work requests: each is accepted as a whole or rejected with a reason.

use std::net::IpAddr;

use wire::PathMtu;

use super::QueuePair;
use crate::address::GidTable;
use crate::checksums::Checksums;
use crate::completion::CompletedWork;
use crate::device_state::DeviceState;
use crate::memory::{Memory, Segments};
use crate::observation::{Observation, PostedSend, ReceiveQueueId};
use crate::receive_queue::PostError;
use crate::state::{QueuePairType, State};
use crate::work_request::{Payload, ReceiveRequest, SendFlags, SendRequest};

impl QueuePair {
    pub(crate) fn post_send(
        &mut self,
        request: SendRequest,
        gids: &GidTable,
        device: &mut DeviceState,
    ) -> Result<(), PostError> {
        let checked = self.check_send(&request, gids);
        let checked = checked.and_then(|length| self.send.reserve(1).map(|()| length));
        let length = match checked {
            Ok(length) => length,
            Err(error) => {
                self.note_rejected_post(request.id, request.work.kind(), error, device);
                return Err(error);
            }
        };
        let mtu = self.link.map_or(self.settings.active_mtu, |link| link.mtu);
        let checksums = self.observe_send(&request, mtu, device);
        self.send.push(request, length, mtu, checksums);
        if matches!(self.state, State::Error | State::SendQueueError) {
            self.flush_sends(device);
        }
        Ok(())
    }

    /// Records the request. The checksums of its message follow.
    fn observe_send(
        &self,
        request: &SendRequest,
        mtu: PathMtu,
        device: &mut DeviceState,
    ) -> Option<Box<Checksums>> {
        if !device.observations.are_recorded() {
            return None;
        }
        let segments = match &request.payload {
            Payload::Segments(segments) => segments.clone(),
            Payload::Inline(_) => Segments::new(),
        };
        let checksums = (request.work.sends_data() && !segments.is_empty()).then(|| {
            if device.unread.last() != Some(&self.number) {
                device.unread.push(self.number);
            }
            Checksums::new(mtu.bytes(), request.payload.length() as usize)
        });
        device.observations.note(|| {
            Observation::SendPosted(PostedSend {
                queue_pair: self.number,
                peer: self.peer_address(),
                id: request.id,
                work: request.work,
                segments,
                length: request.payload.length(),
                signaled: self.send.is_signaled(request),
                fenced: request.flags.contains(SendFlags::FENCE),
            })
        });
        checksums.map(Box::new)
    }

    /// The address of the peer, if the queue pair is connected.
    pub(crate) fn peer_address(&self) -> Option<IpAddr> {
        self.link.map(|link| link.route.flow.destination)
    }

    /// Adds the checksums of messages that have just been posted, except of packets that were built already.
    #[cold]
    pub(crate) fn add_checksums(&mut self, memory: &Memory) {
        for it in self.send.newest_first() {
            let (Some(checksums), Payload::Segments(segments)) =
                (&it.checksums, &it.request.payload)
            else {
                continue;
            };
            if checksums.missing().is_empty() {
                return;
            }
            if (checksums.add_missing(memory, self.init.domain, segments)).is_err() {
                it.checksums = None;
            }
        }
    }

    /// Checks whether the request can be posted. Returns the length of its message.
    #[inline]
    pub(super) fn check_send(
        &self,
        request: &SendRequest,
        gids: &GidTable,
    ) -> Result<u32, PostError> {
        if !self.state.takes_sends() {
            return Err(PostError::WrongState(self.state));
        }
        self.send.check_room(1)?;
        self.send.check(request, self.init.kind, gids)
    }

    /// Checks whether all these requests can be posted, and reserves memory for them.
    pub(crate) fn check_sends(
        &mut self,
        requests: &[SendRequest],
        gids: &GidTable,
    ) -> Result<(), PostError> {
        if !self.state.takes_sends() {
            return Err(PostError::WrongState(self.state));
        }
        self.send.check_room(requests.len())?;
        let mut checks = requests
            .iter()
            .map(|request| self.send.check(request, self.init.kind, gids));
        checks.try_for_each(|check| check.map(drop))?;
        self.send.reserve(requests.len())
    }

    #[inline]
    pub(crate) fn post_receive(
        &mut self,
        request: ReceiveRequest,
        device: &mut DeviceState,
    ) -> Result<(), PostError> {
        let checked = self.check_receives();
        let checked = checked.and_then(|()| self.receive.make_room(&request));
        if let Err(error) = checked {
            self.note_rejected_post(request.id, CompletedWork::Receive, error, device);
            return Err(error);
        }
        device.observations.note(|| Observation::ReceivePosted {
            queue: ReceiveQueueId::Own(self.number),
            id: request.id,
            segments: request.segments.clone(),
        });
        if device.observations.are_recorded() {
            let contents = device.contents_of(self.init.domain, &request.segments);
            self.receive.push_with_contents(request, contents);
        } else {
            self.receive.push(request);
        }
        if self.state == State::Error {
            self.flush_receives(device);
        }
        Ok(())
    }

    /// Checks whether the queue pair has its own receive queue.
    #[inline]
    fn check_receives(&self) -> Result<(), PostError> {
        if self.state == State::Reset {
            return Err(PostError::WrongState(self.state));
        }
        if self.init.shared_receive.is_some() {
            return Err(PostError::SharedReceive);
        }
        if matches!(
            self.init.kind,
            QueuePairType::XrcInitiator | QueuePairType::XrcTarget
        ) {
            return Err(PostError::Unsupported);
        }
        Ok(())
    }
}
