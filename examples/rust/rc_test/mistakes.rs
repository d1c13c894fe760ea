//! Four common mistakes and their symptoms.

use clap::ValueEnum;
use rocinante::Status;

use crate::Mode;

/// The mistake to make.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Fault {
    /// The server registers its buffer without the right to write it remotely
    Access,
    /// The client writes with a key that is not the server's
    Rkey,
    /// The client writes past the end of the server's buffer
    Addr,
    /// The server posts no receive
    Recv,
}

impl Fault {
    /// Its name, the same on both sides.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Fault::Access => "access",
            Fault::Rkey => "rkey",
            Fault::Addr => "addr",
            Fault::Recv => "recv",
        }
    }

    /// The operation that it affects: only a SEND needs a receive, only a WRITE an address and a key.
    pub(crate) fn mode(self) -> Mode {
        match self {
            Fault::Access | Fault::Rkey | Fault::Addr => Mode::Write,
            Fault::Recv => Mode::Send,
        }
    }

    /// The expected status of the client's request.
    pub(crate) fn expected(self) -> Status {
        match self {
            Fault::Access | Fault::Rkey | Fault::Addr => Status::RemoteAccess,
            Fault::Recv => Status::ReceiverNotReady,
        }
    }

    /// Explains what happened, for the client.
    pub(crate) fn client_explanation(self) -> &'static str {
        match self {
            Fault::Access => {
                "At fault: the server. It rejected with a NAK (syndrome 0x62, remote access error), \
                 because\nit registered its buffer without REMOTE_WRITE. A key does not imply this right."
            }
            Fault::Rkey => {
                "At fault: the client. The server rejected with a NAK (syndrome 0x62, remote access \
                 error),\nbecause it has no memory with this key. Use all 32 bits of the rkey as received."
            }
            Fault::Addr => {
                "At fault: the client. The server rejected with a NAK (syndrome 0x62, remote access \
                 error),\nbecause the text would end outside the buffer. Nothing was written."
            }
            Fault::Recv => {
                "At fault: the server. It answered each attempt with an RNR NAK (syndrome 0x20 and the \
                 time\nto wait), because it had posted no receive. The client gave up after 3 \
                 retries."
            }
        }
    }

    /// Explains what happened, for the server.
    pub(crate) fn server_explanation(self) -> &'static str {
        match self {
            Fault::Access | Fault::Rkey | Fault::Addr => {
                "The buffer is unchanged. The device rejected the write, moved the queue pair to \
                 ERROR and\nreported an asynchronous event. There is no completion: a server that \
                 only polls sees nothing."
            }
            Fault::Recv => {
                "The buffer is unchanged. The device rejected the message without a completion or an \
                 event.\nPost receives before the peer can send."
            }
        }
    }
}
