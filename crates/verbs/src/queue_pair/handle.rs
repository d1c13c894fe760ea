//! The common part of all queue pair types of this crate.

use engine::{Attributes, ModifyError, PostError, ReceiveRequest, Segment, SendRequest, State};
use smallvec::SmallVec;
use wire::{Psn, Qpn};

use super::Endpoint;
use crate::completion::CompletionQueue;
use crate::domain::ProtectionDomain;
use crate::error::SetupError;
use crate::request::Request;
use crate::shared_receive::SharedReceiveQueue;

/// How many requests are taken from an iterator before they are posted together.
const LARGEST_BATCH: usize = 64;

/// A queue pair and the objects that it uses. Dropping it destroys the engine's object.
#[derive(Debug)]
pub(crate) struct Handle {
    pub(crate) number: Qpn,
    pub(crate) domain: ProtectionDomain,
    _completions: [CompletionQueue; 2],
    shared: Option<SharedReceiveQueue>,
}

impl Handle {
    pub(super) fn new(
        number: Qpn,
        domain: ProtectionDomain,
        completions: [CompletionQueue; 2],
        shared: Option<SharedReceiveQueue>,
    ) -> Self {
        Self {
            number,
            domain,
            _completions: completions,
            shared,
        }
    }

    /// Whether it uses a shared receive queue.
    pub(super) fn shares_receives(&self) -> bool {
        self.shared.is_some()
    }

    pub(crate) fn modify(&self, attributes: &Attributes) -> Result<(), ModifyError> {
        let number = self.number;
        self.domain
            .driver()
            .call_after_flush(|device| device.modify(number, attributes))?;
        #[cfg(feature = "tracing")]
        if let Some(state) = attributes.state {
            let queue_pair = number.value();
            tracing::debug!(target: "rocinante", queue_pair, ?state, "state change");
        }
        Ok(())
    }

    pub(crate) fn post_send(&self, request: Request) -> Result<(), PostError> {
        let (number, request) = (self.number, request.into_engine());
        #[cfg(feature = "tracing")]
        let _span = post_span(number, &request).entered();
        self.domain
            .driver()
            .call(|device| device.post_send(number, request))
    }

    /// Posts until one request is rejected. All posted requests are sent together.
    pub(crate) fn post_sends(
        &self,
        requests: impl IntoIterator<Item = Request>,
    ) -> Result<(), PostError> {
        let number = self.number;
        // The iterator is user code and may use the device, so it runs without the lock.
        let mut requests = requests.into_iter();
        loop {
            let batch: SmallVec<[SendRequest; 4]> = (requests.by_ref())
                .take(LARGEST_BATCH)
                .map(Request::into_engine)
                .collect();
            let last = batch.len() < LARGEST_BATCH;
            #[cfg(feature = "tracing")]
            let _span = batch
                .first()
                .map(|first| post_span(number, first).entered());
            self.domain.driver().call(|device| {
                let mut batch = batch.into_iter();
                batch.try_for_each(|request| device.post_send(number, request))
            })?;
            if last {
                return Ok(());
            }
        }
    }

    pub(crate) fn post_receive(
        &self,
        id: u64,
        segments: impl IntoIterator<Item = Segment>,
    ) -> Result<(), PostError> {
        let (number, request) = (self.number, ReceiveRequest::new(id, segments));
        self.domain
            .driver()
            .call_without_transmit(|device| device.post_receive(number, request))
    }

    pub(crate) fn state(&self) -> State {
        let number = self.number;
        self.domain
            .driver()
            .call_without_transmit(|device| device.queue_pair(number).map(engine::QueuePair::state))
            .expect("a queue pair lives as long as its handle")
    }

    pub(crate) fn endpoint(&self, gid_index: u8) -> Result<Endpoint, SetupError> {
        let gids = self.domain.context().gids();
        let gid = gids
            .get(usize::from(gid_index))
            .copied()
            .filter(|gid| !gid.is_zero())
            .ok_or(SetupError::EmptyGid(gid_index))?;
        Ok(Endpoint {
            gid,
            queue_pair: self.number,
            psn: Psn::new(self.domain.driver().random() as u32),
        })
    }
}

/// The packets that a post sends are events in its span.
#[cfg(feature = "tracing")]
fn post_span(number: Qpn, request: &SendRequest) -> tracing::Span {
    let (queue_pair, id, work) = (number.value(), request.id, request.work.kind());
    tracing::debug_span!(target: "rocinante", "post", queue_pair, id, ?work)
}

impl Drop for Handle {
    fn drop(&mut self) {
        let number = self.number;
        let _ = self
            .domain
            .driver()
            .call_after_flush(|device| device.destroy_queue_pair(number));
    }
}
