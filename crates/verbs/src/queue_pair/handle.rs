//! The common part of all queue pair types of this crate.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Arc;

use driver::Driver;

use engine::{
    Attributes, MAX_RESPONDER_RESOURCES, ModifyError, PostError, ReceiveRequest, Segment,
    SendRequest, State, SystemRefusal,
};
use smallvec::SmallVec;
use system::verbs;
use wire::{Psn, Qpn};

use super::Endpoint;
use crate::completion_queue::Reservation;
use crate::context::Opened;
use crate::error::SetupError;
use crate::protection_domain::ProtectionDomain;
use crate::request::Request;
use crate::shared_receive_queue::SharedReceiveQueue;

/// How many requests are taken from an iterator before they are posted together.
const LARGEST_BATCH: usize = 64;

/// A queue pair and the objects that it uses. Dropping it destroys the engine's object.
#[derive(Debug)]
pub(crate) struct Handle {
    pub(crate) number: Qpn,
    object: Object,
    pub(crate) domain: ProtectionDomain,
    _completions: Reservations,
    shared: Option<SharedReceiveQueue>,
}

/// The room for the completions of sends, and of receives, which queue pairs may share.
pub(super) type Reservations = (Reservation, Arc<Reservation>);

/// The queue pair at its device.
#[derive(Debug, Clone)]
pub(crate) enum Object {
    Software {
        /// The lane that it lives in.
        driver: Arc<Driver>,
        number: Qpn,
    },
    System(Arc<verbs::QueuePair>),
}

impl Object {
    fn number(&self) -> Qpn {
        match self {
            Self::Software { number, .. } => *number,
            Self::System(queue_pair) => queue_pair.number(),
        }
    }

    #[inline]
    pub(crate) fn post_send(&self, mut request: Request) -> Result<(), PostError> {
        let request = request.as_engine();
        #[cfg(feature = "tracing")]
        let _span = post_span(self.number(), request).entered();
        match self {
            Self::Software { driver, number } => {
                driver.post(|device| device.post_send(*number, request))
            }
            Self::System(queue_pair) => Ok(queue_pair.post_send(request)?),
        }
    }

    pub(crate) fn post_receive(&self, request: ReceiveRequest) -> Result<(), PostError> {
        match self {
            Self::Software { driver, number } => {
                driver.call_without_transmit(|device| device.post_receive(*number, request))
            }
            Self::System(queue_pair) => Ok(queue_pair.post_receive(&request)?),
        }
    }
}

impl Handle {
    pub(super) fn new(
        object: Object,
        domain: ProtectionDomain,
        completions: Reservations,
        shared: Option<SharedReceiveQueue>,
    ) -> Self {
        Self {
            number: object.number(),
            object,
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
        match &self.object {
            Object::Software { driver, .. } => {
                driver.call_after_flush(|device| device.modify(number, attributes))?;
            }
            Object::System(queue_pair) => queue_pair.modify(attributes)?,
        }
        #[cfg(feature = "tracing")]
        if let Some(state) = attributes.state {
            let queue_pair = number.value();
            tracing::debug!(target: "rocinante", queue_pair, ?state, "state change");
        }
        Ok(())
    }

    #[inline]
    pub(crate) fn post_send(&self, request: Request) -> Result<(), PostError> {
        self.object.post_send(request)
    }

    /// Posts until one request is rejected. All posted requests are sent together.
    pub(crate) fn post_send_many(
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
            match &self.object {
                Object::Software { driver, .. } => driver.post(|device| {
                    let mut batch = batch.into_iter();
                    batch.try_for_each(|request| device.post_send(number, request))
                })?,
                Object::System(queue_pair) => {
                    let mut batch = batch.iter();
                    batch.try_for_each(|request| queue_pair.post_send(request))?;
                }
            }
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
        self.object.post_receive(ReceiveRequest::new(id, segments))
    }

    #[cfg(feature = "async")]
    pub(crate) fn object(&self) -> &Object {
        &self.object
    }

    /// The state. A device of the system that fails to report it counts as one in the error state.
    pub(crate) fn state(&self) -> State {
        let number = self.number;
        match &self.object {
            Object::Software { driver, .. } => {
                let state = driver.call_without_transmit(|device| {
                    device.queue_pair(number).map(engine::QueuePair::state)
                });
                state.expect("a queue pair lives as long as its handle")
            }
            Object::System(queue_pair) => queue_pair.state().unwrap_or(State::Error),
        }
    }

    /// The state, and how many send requests are outstanding; in the error state, how many have failed.
    pub(crate) fn unacknowledged_sends(&self) -> Result<(State, usize), SystemRefusal> {
        let Object::Software { driver, number } = &self.object else {
            return Err(SystemRefusal::NotOffered("numbers of outstanding requests"));
        };
        let found = driver.call_without_transmit(|device| {
            let queue_pair = device.queue_pair(*number)?;
            Some(match queue_pair.state() {
                State::Error => (State::Error, queue_pair.failed_sends()),
                state => (state, queue_pair.outstanding_sends()),
            })
        });
        // A forked child has none.
        Ok(found.unwrap_or((State::Error, 0)))
    }

    /// The system's queue pair, if it belongs to a device of the system.
    pub(crate) fn system(&self) -> Option<&Arc<verbs::QueuePair>> {
        match &self.object {
            Object::Software { .. } => None,
            Object::System(queue_pair) => Some(queue_pair),
        }
    }

    /// How many reads and atomics may be outstanding in each direction.
    pub(crate) fn max_reads(&self) -> u8 {
        match self.domain.context().opened() {
            Opened::Software(_) => MAX_RESPONDER_RESOURCES,
            Opened::System(system) => system.max_reads,
        }
    }

    /// The lane of a queue pair that exists at our devices only.
    pub(crate) fn driver(&self) -> &Arc<Driver> {
        match &self.object {
            Object::Software { driver, .. } => driver,
            Object::System(_) => self.domain.driver(),
        }
    }

    /// The port that it uses.
    pub(crate) fn port(&self) -> u8 {
        match self.domain.context().opened() {
            Opened::Software(_) => 1,
            Opened::System(system) => system.port,
        }
    }

    /// The index of the GID to use: the given one, or the best of the device.
    pub(crate) fn gid_index(&self, given: Option<u8>) -> u8 {
        given.unwrap_or_else(|| match self.domain.context().opened() {
            Opened::Software(_) => 0,
            Opened::System(system) => system.gid_index,
        })
    }

    pub(crate) fn endpoint(&self, gid_index: Option<u8>) -> Result<Endpoint, SetupError> {
        let index = self.gid_index(gid_index);
        let gids = self.domain.context().gids();
        let gid = gids
            .get(usize::from(index))
            .copied()
            .filter(|gid| !gid.is_zero())
            .ok_or(SetupError::EmptyGid(index))?;
        Ok(Endpoint {
            gid,
            queue_pair: self.number,
            psn: Psn::new(self.first_psn()),
        })
    }

    /// A random number for the first PSN, so that a peer of an earlier connection is not taken for this one's.
    fn first_psn(&self) -> u32 {
        match self.domain.context().driver() {
            Some(driver) => driver.random() as u32,
            None => RandomState::new().build_hasher().finish() as u32,
        }
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
        if let Object::Software { driver, number } = &self.object {
            let _ = driver.call_after_flush(|device| device.destroy_queue_pair(*number));
        }
    }
}
