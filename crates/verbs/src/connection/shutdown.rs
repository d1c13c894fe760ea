//! Ending a connection in good order.

use std::ops::ControlFlow;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use driver::clock::{deadline, now};
use engine::State;

use super::Connection;
use super::ends::ConnectedEnd;
use crate::rdma_cm::CmError;

/// How often a thread or task that ends a connection looks whether its requests are acknowledged. Nothing tells it: an unsignaled
/// request has no completion. The end takes this much longer at most.
const LOOK_INTERVAL: Duration = Duration::from_millis(1);

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
    /// All requests were acknowledged, but the timeout passed before the peer answered that the connection ends.
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
    /// in their queue afterwards; receives are flushed. If the peer has disconnected before, there is nothing to wait for. If it never
    /// answers, and the connection manager gives up before `timeout` has passed, the connection counts as ended in good order.
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
    deadline: Option<Instant>,
    /// Whether this side has disconnected.
    is_said: bool,
}

impl<'c, E: ConnectedEnd> Shutdown<'c, E> {
    fn begin(connection: &'c Connection<E>, timeout: Duration) -> Self {
        Self {
            connection,
            deadline: deadline(timeout),
            is_said: false,
        }
    }

    /// Does what can be done now. Returns until when to wait for an event of the connection, unless it has ended.
    fn next_wait(&mut self) -> Result<ControlFlow<(), Option<Instant>>, ShutdownError> {
        let now = now();
        let is_late = self.deadline.is_some_and(|at| at <= now);
        let has_ended = self.connection.has_ended.load(Ordering::Relaxed);
        if !has_ended {
            if !self.is_said {
                let (state, outstanding) = self.unacknowledged()?;
                if state != State::Error && outstanding > 0 && !is_late {
                    let look = now + LOOK_INTERVAL;
                    let until = self.deadline.map_or(look, |at| at.min(look));
                    return Ok(ControlFlow::Continue(Some(until)));
                }
                self.connection.disconnect()?;
                self.is_said = true;
            }
            if !is_late {
                return Ok(ControlFlow::Continue(self.deadline));
            }
        }
        // The peer may have acknowledged requests since the last look, and then disconnected.
        match self.unacknowledged()? {
            (_, 0) if has_ended => Ok(ControlFlow::Break(())),
            (_, 0) => Err(ShutdownError::Unconfirmed),
            (_, requests) => Err(ShutdownError::Unacknowledged { requests }),
        }
    }

    /// The state of the queue pair, and how many requests are not acknowledged.
    fn unacknowledged(&self) -> Result<(State, usize), ShutdownError> {
        let found = self.connection.end.queue_pair().unacknowledged_sends();
        Ok(found.map_err(CmError::from)?)
    }
}
