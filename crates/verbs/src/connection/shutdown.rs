//! Ending a connection in good order.

use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use driver::clock::{deadline, now};
use engine::State;

use super::ends::ConnectedEnd;
use super::{Connection, Ended};
use crate::rdma_cm::CmError;

/// How soon a thread or task that ends a connection looks again whether its requests are acknowledged. Nothing tells it: an unsignaled
/// request has no completion. Not measured: it is long for a look, and short for the end of a connection.
const FIRST_LOOK: Duration = Duration::from_millis(1);

/// Which part of the time that has passed it waits until the next look. The end takes this part longer at most, and an endless wait for a
/// peer without receives costs nothing after a while.
const LOOK_PART: u32 = 8;

/// Why a connection did not end in good order. It has ended nevertheless.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ShutdownError {
    /// The timeout passed, or the connection broke.
    #[error(
        "the connection ended before the peer had acknowledged {requests} of the requests: their completions say that they were flushed"
    )]
    Unacknowledged {
        /// How many requests were outstanding.
        requests: usize,
    },
    /// All requests were acknowledged, but the peer did not answer that the connection ends: before the timeout, or to any of
    /// the messages that the connection manager sends in a time of its own.
    #[error("the peer did not confirm in time that the connection ends")]
    Unconfirmed,
    /// The connection manager can't end it.
    #[error(transparent)]
    Cm(#[from] CmError),
}

impl<E: ConnectedEnd> Connection<E> {
    /// Ends the connection in good order: waits until the peer has acknowledged all requests that were posted, disconnects, and waits
    /// until the peer has confirmed it. After `timeout` it disconnects in any case.
    ///
    /// Dropping the connection without this ends it at once, and the peer may miss the last messages. The completions of all requests are still
    /// in their queue afterwards; receives are flushed. If the peer has disconnected before, there is nothing to wait for.
    ///
    /// # Errors
    /// If requests were outstanding when the connection ended, or the peer did not confirm the end; at devices of the system, which do not
    /// tell how many requests are outstanding.
    pub fn shutdown(&self, timeout: Duration) -> Result<(), ShutdownError> {
        let mut shutdown = Shutdown::begin(self, timeout);
        loop {
            match shutdown.next_wait()? {
                ControlFlow::Break(()) => return Ok(()),
                ControlFlow::Continue(until) => {
                    if let Some(event) = self.id.wait_until(until) {
                        self.note(event);
                    }
                }
            }
        }
    }

    /// As [`shutdown`](Self::shutdown), for tasks. A task that is cancelled meanwhile leaves the connection as it is.
    #[cfg(feature = "async")]
    pub async fn shutdown_async(&self, timeout: Duration) -> Result<(), ShutdownError> {
        let mut shutdown = Shutdown::begin(self, timeout);
        loop {
            match shutdown.next_wait()? {
                ControlFlow::Break(()) => return Ok(()),
                ControlFlow::Continue(until) => {
                    let context = self.end.queue_pair().context();
                    if let Some(event) = self.id.next_until(context, until).await {
                        self.note(event);
                    }
                }
            }
        }
    }
}

/// The end of a connection.
struct Shutdown<'c, E> {
    connection: &'c Connection<E>,
    begin: Instant,
    deadline: Option<Instant>,
    stage: Stage,
}

/// What it waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// The peer must acknowledge all requests.
    Acknowledgements,
    /// This side has disconnected, and the peer must confirm it.
    Confirmation,
}

impl<'c, E: ConnectedEnd> Shutdown<'c, E> {
    fn begin(connection: &'c Connection<E>, timeout: Duration) -> Self {
        Self {
            connection,
            begin: now(),
            deadline: deadline(timeout),
            stage: Stage::Acknowledgements,
        }
    }

    /// Does what can be done now. Returns until when to wait for an event of the connection, unless it has ended.
    fn next_wait(&mut self) -> Result<ControlFlow<(), Option<Instant>>, ShutdownError> {
        if let Some(ended) = self.connection.ended.get() {
            return self.finish(*ended).map(ControlFlow::Break);
        }
        let now = now();
        let is_late = self.deadline.is_some_and(|at| at <= now);
        if self.stage == Stage::Acknowledgements {
            let (state, outstanding) = self.unacknowledged()?;
            if state != State::Error && outstanding > 0 && !is_late {
                let look = next_look(self.begin, now);
                let until = self.deadline.map_or(look, |at| at.min(look));
                return Ok(ControlFlow::Continue(Some(until)));
            }
            self.connection.disconnect()?;
            self.stage = Stage::Confirmation;
        }
        if is_late {
            return self.finish(Ended::Unconfirmed).map(ControlFlow::Break);
        }
        Ok(ControlFlow::Continue(self.deadline))
    }

    /// What becomes of it after the end.
    fn finish(&self, ended: Ended) -> Result<(), ShutdownError> {
        // The peer may have acknowledged requests since the last look, and then disconnected.
        match (self.unacknowledged()?, ended) {
            ((_, 0), Ended::Agreed) => Ok(()),
            ((_, 0), Ended::Unconfirmed) => Err(ShutdownError::Unconfirmed),
            ((_, requests), _) => Err(ShutdownError::Unacknowledged { requests }),
        }
    }

    /// The state of the queue pair, and how many requests are not acknowledged.
    fn unacknowledged(&self) -> Result<(State, usize), ShutdownError> {
        let found = self.connection.end.queue_pair().unacknowledged_sends();
        Ok(found.map_err(CmError::from)?)
    }
}

/// When to look again whether requests are acknowledged.
fn next_look(begin: Instant, now: Instant) -> Instant {
    now + FIRST_LOOK.max((now - begin) / LOOK_PART)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_wait_looks_seldom_and_ends_soon_after_its_reason() {
        const HOUR: Duration = Duration::from_secs(3600);
        let begin = now();
        let looks = std::iter::successors(Some(begin), |at| Some(next_look(begin, *at)));
        let in_an_hour = looks.take_while(|at| *at < begin + HOUR);
        assert!(in_an_hour.count() < 150);
        let look = next_look(begin, begin + HOUR);
        assert_eq!(look - begin, HOUR + HOUR / LOOK_PART);
        assert_eq!(next_look(begin, begin), begin + FIRST_LOOK);
    }
}
