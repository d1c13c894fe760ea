//! Finds out why something failed, after the failure and only for incidents.

use std::time::{Duration, Instant};

use wire::{Packet, Qpn, Route};

use super::QueuePair;
use crate::completion::{CompletedWork, Status};
use crate::device_state::DeviceState;
use crate::incident::{
    FailedSend, Incident, Path, Peer, PeerResponses, ReceiveFault, RejectedModify, SegmentFault,
    SendFault,
};
use crate::memory::{ProtectionDomain, Requirement};
use crate::now::Now;
use crate::receive_queue::PostError;
use crate::slab::Id;
use crate::state::{self, Attributes, ModifyError, State};
use crate::work_request::{Payload, ReceiveRequest, Work};

/// After what time without receives an incident is recorded. A program that is a little late is not at fault.
const NO_RECEIVE_REPORT_DELAY: Duration = Duration::from_secs(1);

/// Since when every message finds no receive.
#[derive(Debug, Clone, Copy)]
pub(super) struct WithoutReceive {
    since: Instant,
    /// How many RNR NAKs were sent before.
    naks: u64,
    /// Whether an incident was recorded.
    told: bool,
}

impl QueuePair {
    #[cold]
    pub(crate) fn note_rejected_change(
        &self,
        attributes: &Attributes,
        error: ModifyError,
        device: &mut DeviceState,
    ) {
        let (missing, surplus) = state::missing_and_surplus(self.init.kind, self.state, attributes);
        device.incidents.note(|| {
            Incident::ModifyRejected(Box::new(RejectedModify {
                queue_pair: self.number,
                kind: self.init.kind,
                state: self.state,
                attributes: *attributes,
                missing,
                surplus,
                error,
            }))
        });
    }

    #[cold]
    pub(crate) fn note_rejected_post(
        &self,
        id: u64,
        work: CompletedWork,
        error: PostError,
        device: &mut DeviceState,
    ) {
        device.incidents.note(|| Incident::PostRejected {
            queue_pair: self.number,
            state: self.state,
            id,
            work,
            error,
        });
    }

    /// Notes a dropped request if it came from an address other than the peer's.
    #[cold]
    pub(super) fn note_wrong_source(
        &self,
        packet: &Packet<'_>,
        route: &Route,
        device: &mut DeviceState,
    ) {
        let from = route.flow.source;
        if let Some(peer) = self.peer()
            && peer.address != from
            && packet.opcode.is_request()
        {
            device.incidents.note(|| Incident::WrongPath {
                queue_pair: self.number,
                from,
                peer,
            });
        }
    }

    /// Notes a dropped request if the queue pair is not ready to receive yet.
    #[cold]
    pub(super) fn note_early_packet(
        &self,
        packet: &Packet<'_>,
        route: &Route,
        device: &mut DeviceState,
    ) {
        let is_early = matches!(self.state, State::Reset | State::Initialized);
        if is_early && packet.opcode.is_request() {
            device.incidents.note(|| Incident::NotReady {
                queue_pair: self.number,
                state: self.state,
                from: route.flow.source,
            });
        }
    }

    /// Notes that messages of the peer have found no receive for a while, once until one finds a receive. `naks` is how
    /// many RNR NAKs were sent before the last request.
    #[cold]
    pub(super) fn watch_receives(&mut self, now: &Now, naks: u64, device: &mut DeviceState) {
        if self.counters.rnr_naks_sent == naks {
            self.without_receive = None;
            return;
        }
        let now = now.get();
        let missing = self.without_receive.get_or_insert(WithoutReceive {
            since: now,
            naks,
            told: false,
        });
        let waited = now.saturating_duration_since(missing.since);
        if missing.told || waited < NO_RECEIVE_REPORT_DELAY {
            return;
        }
        missing.told = true;
        let naks = self.counters.rnr_naks_sent - missing.naks;
        device.incidents.note(|| Incident::NoReceive {
            queue_pair: self.number,
            peer: self.peer(),
            naks,
            waited,
            is_shared: self.init.shared_receive.is_some(),
        });
    }

    /// Notes a datagram that does not fit the next receive.
    #[cold]
    pub(super) fn note_failed_receive(
        &self,
        sender: Peer,
        request: &ReceiveRequest,
        domain: Id<ProtectionDomain>,
        needed: u64,
        device: &mut DeviceState,
    ) {
        let (id, capacity) = (request.id, request.capacity());
        let segments = &request.segments;
        let memory = device.objects.memory();
        let fault = if needed > capacity {
            ReceiveFault::TooSmall {
                id,
                capacity,
                needed,
            }
        } else {
            ReceiveFault::Unusable {
                id,
                fault: memory.fault_in(domain, segments, Requirement::LOCAL_WRITE),
            }
        };
        device.incidents.note(|| Incident::DatagramFailed {
            queue_pair: self.number,
            sender,
            fault,
        });
    }

    /// Notes that the oldest send request is about to complete with `status`.
    #[cold]
    pub(super) fn note_failed_send(&self, status: Status, device: &mut DeviceState) {
        if !device.incidents.are_recorded() {
            return;
        }
        let Some(front) = self.send.front() else {
            return;
        };
        let failed = FailedSend {
            queue_pair: self.number,
            path: self.path(),
            id: front.request.id,
            work: *front.work(),
            length: front.length,
            status,
            fault: self.send_fault(status, device),
        };
        device.incidents.note(|| Incident::SendFailed(failed));
    }

    pub(super) fn path(&self) -> Option<Path> {
        let link = self.link.as_ref()?;
        let flow = &link.route.flow;
        Some(Path {
            source: flow.source,
            peer: peer(flow.destination, link.peer),
            mtu: link.mtu,
        })
    }

    /// The queue pair that it is connected to.
    #[must_use]
    pub fn peer(&self) -> Option<Peer> {
        self.path().map(|path| path.peer)
    }

    fn send_fault(&self, status: Status, device: &DeviceState) -> SendFault {
        match status {
            Status::LocalProtection => {
                let fault = self.segment_fault(device);
                fault.map_or(SendFault::Other, SendFault::Segment)
            }
            Status::RetriesExhausted => SendFault::NoResponse {
                retries: self.attributes.retry_count.unwrap_or(0),
                waited: self.requester.retried_for(),
                responses: self.peer_responses(),
            },
            Status::ReceiverNotReady => SendFault::NotReady {
                retries: self.attributes.rnr_retry.unwrap_or(0),
            },
            Status::LocalOperation if self.lacks_initiator_depth() => SendFault::NoReads,
            Status::LocalLength => SendFault::TooLong {
                max: self.settings.active_mtu.bytes() as u32,
            },
            _ => SendFault::Other,
        }
    }

    fn lacks_initiator_depth(&self) -> bool {
        let front = self.send.front();
        let has_response = front.is_some_and(|front| front.work().has_response());
        has_response && self.attributes.initiator_depth.unwrap_or(0) == 0
    }

    /// The first unusable segment of the oldest send request.
    fn segment_fault(&self, device: &DeviceState) -> Option<SegmentFault> {
        let front = self.send.front()?;
        let Payload::Segments(segments) = &front.request.payload else {
            return None;
        };
        let requirement = match front.work() {
            Work::Read(_) | Work::CompareSwap { .. } | Work::FetchAdd { .. } => {
                Requirement::LOCAL_WRITE
            }
            _ => Requirement::NOTHING,
        };
        let memory = device.objects.memory();
        memory.fault_in(self.init.domain, segments, requirement)
    }

    pub(super) fn peer_responses(&self) -> PeerResponses {
        let started = self.attributes.send_psn.unwrap_or_default();
        if self.requester.oldest() != started {
            return PeerResponses::ToEarlierRequests;
        }
        match self.requester.peer_expects() {
            Some(expected) => PeerResponses::WrongPsn { expected, started },
            None => PeerResponses::None,
        }
    }
}

pub(super) fn peer(address: std::net::IpAddr, queue_pair: Qpn) -> Peer {
    Peer {
        address,
        queue_pair,
    }
}
