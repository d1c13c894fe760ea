//! The transition to the error state: all outstanding requests are flushed in order.

use std::sync::Arc;

use super::QueuePair;
use super::kept_packets::KeptPackets;
use crate::completion::{CompletedWork, Completion, CompletionQueue, Status};
use crate::device_state::DeviceState;
use crate::event::AsyncEvent;
use crate::observation::Observation;
use crate::state::{QueuePairType, State};

impl QueuePair {
    /// Moves the queue pair to the error state. From now on requests are flushed and packets
    /// ignored.
    pub(crate) fn fail(&mut self, device: &mut DeviceState) {
        if self.state == State::Error {
            return;
        }
        self.state = State::Error;
        device
            .observations
            .note(|| Observation::QueuePairFailed(self.number));
        self.requester.stop();
        self.flush_sends(device);
        self.fail_message(Status::Flushed, device);
        self.flush_receives(device);
        self.responder.kept = KeptPackets::default();
        self.responder.keep_responses_before_final_nak();
        if self.init.shared_receive.is_some() || self.init.kind == QueuePairType::XrcTarget {
            device.raise(AsyncEvent::LastReceiveReached(self.number));
        }
    }

    /// Completes the oldest send request with `status` and moves the queue pair to the error state.
    pub(super) fn fail_send(&mut self, status: Status, device: &mut DeviceState) {
        self.note_failed_send(status, device);
        self.complete_send(status, device);
        self.fail(device);
    }

    /// Completes the oldest send request of an unreliable service with `status`. Receiving
    /// continues.
    pub(super) fn fail_send_queue(&mut self, status: Status, device: &mut DeviceState) {
        self.note_failed_send(status, device);
        self.complete_send(status, device);
        self.state = State::SendQueueError;
        self.flush_sends(device);
    }

    pub(super) fn flush_receives(&mut self, device: &mut DeviceState) {
        while let Some(request) = self.receive.take() {
            let queue = Arc::clone(&self.attached.receive_completions);
            self.complete_receive_in_error(&queue, request.id, Status::Flushed, device);
        }
    }

    pub(super) fn complete_receive_in_error(
        &mut self,
        queue: &CompletionQueue,
        id: u64,
        status: Status,
        device: &mut DeviceState,
    ) {
        let completion = Completion {
            id,
            status,
            work: CompletedWork::Receive,
            length: 0,
            queue_pair: self.number,
            immediate: None,
            invalidated: None,
            source: None,
        };
        device.complete(queue, completion, true);
    }
}
