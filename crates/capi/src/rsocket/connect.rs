//! Connection establishment of streams.

use driver::rdma_cm::{
    Event, EventChannel, EventKind, Parameters, PeerParameters, Request, Unreachable,
};

use super::connection::Connection;
use super::protocol::{ConnectionData, PROTOCOL_ERROR};
use super::stream::{Inner, Phase, RESOLVE_TIMEOUT};
use crate::errno::Errno;

impl Inner {
    /// Handles all pending connection manager events.
    pub(super) fn handle_events(&mut self, channel: &EventChannel) {
        while let Some(event) = channel.poll() {
            self.handle(event);
            // Others that wait for the event do not find it any more.
            if let Some(connection) = &self.connection {
                connection.waiting.wake_all();
            }
        }
    }

    pub(super) fn handle(&mut self, event: Event) {
        let Event { kind, request, .. } = event;
        let opened = match kind {
            EventKind::ConnectRequest {
                request: Request::Connection(offer),
                ..
            } => {
                self.requests.extend(request.map(|cm_id| (cm_id, offer)));
                Ok(())
            }
            EventKind::AddressResolved => self
                .cm_id
                .resolve_route(RESOLVE_TIMEOUT)
                .map_err(Errno::from),
            EventKind::RouteResolved => self.send_request(),
            EventKind::ConnectResponse(offer) => self.handle_response(&offer),
            EventKind::Established => {
                self.open();
                Ok(())
            }
            EventKind::Disconnected { .. } => {
                if let Some(connection) = &mut self.connection {
                    connection.end_connection();
                }
                Ok(())
            }
            EventKind::Rejected { .. } | EventKind::Unreachable(Unreachable::Rejected { .. }) => {
                Err(Errno(libc::ECONNREFUSED))
            }
            EventKind::Unreachable(Unreachable::TimedOut) => Err(Errno(libc::ETIMEDOUT)),
            EventKind::AddressError(failure)
            | EventKind::RouteError(failure)
            | EventKind::ConnectError(failure) => Err(failure.into()),
            _ => Ok(()),
        };
        if let Err(errno) = opened {
            self.phase = Phase::Failed;
            self.error = Some(errno);
            self.connection = None;
        }
    }

    fn send_request(&mut self) -> Result<(), Errno> {
        let connection = Connection::make(&self.cm_id, self.sizes)?;
        let connection_data = connection.connection_data().emit();
        self.cm_id.connect(&Parameters {
            private_data: &connection_data,
            responder_resources: 0,
            initiator_depth: 0,
            ..Parameters::new(connection.number())
        })?;
        self.connection = Some(connection);
        Ok(())
    }

    fn handle_response(&mut self, offer: &PeerParameters) -> Result<(), Errno> {
        let peer = ConnectionData::parse(&offer.private_data).ok_or(PROTOCOL_ERROR)?;
        let connection = self.connection.as_mut().ok_or(Errno::INVALID)?;
        connection.set_peer(peer, &self.cm_id)?;
        self.cm_id.establish()?;
        self.open();
        Ok(())
    }

    fn open(&mut self) {
        if let Some(connection) = &mut self.connection {
            connection.open.connected = true;
            self.phase = Phase::Connected;
        }
    }
}
