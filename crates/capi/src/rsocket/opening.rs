//! How streams come to their connection.

use std::time::Duration;

use rocinante::rdma_cm::{
    Event, EventChannel, EventKind, Failure, Offer, Parameters, Request, Unreachable,
};

use super::pipe::Pipe;
use super::protocol::Greeting;
use super::stream::{Inner, Phase};
use crate::errno::Errno;

/// How long addresses and routes may be looked for.
pub(super) const RESOLVING: Duration = Duration::from_secs(2);

impl Inner {
    /// Looks at what happened to the connection.
    pub(super) fn pump(&mut self, channel: &EventChannel) {
        while let Some(event) = channel.poll() {
            self.handle(event);
        }
    }

    pub(super) fn handle(&mut self, event: Event) {
        let Event { kind, request, .. } = event;
        let opened = match kind {
            EventKind::ConnectRequest {
                request: Request::Connection(offer),
                ..
            } => {
                self.requests
                    .extend(request.map(|identifier| (identifier, offer)));
                Ok(())
            }
            EventKind::AddressResolved => self
                .identifier
                .resolve_route(RESOLVING)
                .map_err(Errno::from),
            EventKind::RouteResolved => self.ask(),
            EventKind::ConnectResponse(offer) => self.answer(&offer),
            EventKind::Established => {
                self.open();
                Ok(())
            }
            EventKind::Disconnected { .. } => {
                if let Some(pipe) = &mut self.pipe {
                    pipe.part();
                }
                Ok(())
            }
            EventKind::Rejected { .. } | EventKind::Unreachable(Unreachable::Refused(_)) => {
                Err(Errno(libc::ECONNREFUSED))
            }
            EventKind::Unreachable(Unreachable::TimedOut) => Err(Errno(libc::ETIMEDOUT)),
            EventKind::AddressError(failure)
            | EventKind::RouteError(failure)
            | EventKind::ConnectError(failure) => Err(errno_of(failure)),
            _ => Ok(()),
        };
        if let Err(errno) = opened {
            self.phase = Phase::Failed;
            self.error = Some(errno);
            self.pipe = None;
        }
    }

    fn ask(&mut self) -> Result<(), Errno> {
        let pipe = Pipe::make(&self.identifier, self.sizes)?;
        let greeting = pipe.greeting().emit();
        self.identifier.connect(&Parameters {
            private_data: &greeting,
            responder_resources: 0,
            initiator_depth: 0,
            ..Parameters::new(pipe.number())
        })?;
        self.pipe = Some(pipe);
        Ok(())
    }

    fn answer(&mut self, offer: &Offer) -> Result<(), Errno> {
        let peer = Greeting::parse(&offer.private_data).ok_or(Errno(libc::EPROTO))?;
        let pipe = self.pipe.as_mut().ok_or(Errno::INVALID)?;
        pipe.meet(peer, &self.identifier)?;
        self.identifier.establish()?;
        self.open();
        Ok(())
    }

    fn open(&mut self) {
        if let Some(pipe) = &mut self.pipe {
            pipe.open.connected = true;
            self.phase = Phase::Connected;
        }
    }
}

fn errno_of(failure: Failure) -> Errno {
    match failure {
        Failure::TimedOut => Errno(libc::ETIMEDOUT),
        Failure::QueueKeyMismatch => Errno::INVALID,
        Failure::Os(number) => Errno(number.saturating_abs()),
    }
}
