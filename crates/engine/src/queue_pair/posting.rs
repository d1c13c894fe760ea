//! Posting of work requests: each is accepted as a whole or rejected with a reason.

use super::QueuePair;
use crate::address::GidTable;
use crate::completion::CompletedWork;
use crate::receive::PostError;
use crate::shared::Shared;
use crate::state::{QueuePairType, State};
use crate::work::{ReceiveRequest, SendRequest};

impl QueuePair {
    pub(crate) fn post_send(
        &mut self,
        request: SendRequest,
        gids: &GidTable,
        shared: &mut Shared,
    ) -> Result<(), PostError> {
        let checked = self.check_send(&request, gids);
        if let Err(error) = checked.and_then(|()| self.send.reserve(1)) {
            self.note_rejected_post(request.id, request.work.kind(), error, shared);
            return Err(error);
        }
        let mtu = self.link.map_or(self.settings.active_mtu, |link| link.mtu);
        self.send.push(request, mtu);
        if matches!(self.state, State::Error | State::SendQueueError) {
            self.flush_sends(shared);
        }
        Ok(())
    }

    fn check_send(&self, request: &SendRequest, gids: &GidTable) -> Result<(), PostError> {
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
        checks.try_for_each(|check| check)?;
        self.send.reserve(requests.len())
    }

    pub(crate) fn post_receive(
        &mut self,
        request: ReceiveRequest,
        shared: &mut Shared,
    ) -> Result<(), PostError> {
        let id = request.id;
        let posted = self
            .check_receives()
            .and_then(|()| self.receive.post(request));
        if let Err(error) = posted {
            self.note_rejected_post(id, CompletedWork::Receive, error, shared);
            return Err(error);
        }
        if self.state == State::Error {
            self.flush_receives(shared);
        }
        Ok(())
    }

    /// Checks whether the queue pair has its own receive queue.
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
