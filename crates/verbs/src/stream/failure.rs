//! Why a stream does not go on.

use std::io::{self, ErrorKind};

use engine::{MemoryError, Status};

use super::flow::Violation;
use crate::requests::RequestError;

#[derive(Debug, Clone, thiserror::Error)]
pub(super) enum Failure {
    #[error("the connection ended before the stream did")]
    Ended,
    #[error("the connection broke: {0}")]
    Broke(RequestError),
    #[error("the peer violates the protocol of streams: {0}")]
    Violated(#[from] Violation),
    #[error("a buffer can't be registered again: {0}")]
    Memory(#[from] MemoryError),
    #[error("this side has finished its direction of the stream")]
    Finished,
}

impl Failure {
    pub(super) fn of_request(error: RequestError) -> Self {
        match error {
            RequestError::Failed(Status::Flushed) => Self::Ended,
            RequestError::Failed(Status::LocalLength) => Self::Violated(Violation::TooLong),
            error => Self::Broke(error),
        }
    }

    /// The error of a read.
    pub(super) fn of_read(self) -> io::Error {
        self.with_kind(ErrorKind::ConnectionReset)
    }

    /// The error of a write.
    pub(super) fn of_write(self) -> io::Error {
        self.with_kind(ErrorKind::BrokenPipe)
    }

    /// What is nobody's fault but the connection's has the kind that it has with TCP.
    fn with_kind(self, of_connection: ErrorKind) -> io::Error {
        let kind = match &self {
            Self::Ended | Self::Broke(_) | Self::Finished => of_connection,
            Self::Violated(_) => ErrorKind::InvalidData,
            Self::Memory(_) => ErrorKind::OutOfMemory,
        };
        io::Error::new(kind, self)
    }
}
