//! Four mistakes that everybody makes once, and what they look like.

use clap::ValueEnum;
use rocinante::Status;

use crate::Mode;

/// What is done wrong.
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
    /// The word that both ends use for it.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Fault::Access => "access",
            Fault::Rkey => "rkey",
            Fault::Addr => "addr",
            Fault::Recv => "recv",
        }
    }

    /// The operation that shows it: only a SEND needs a receive, only a WRITE an address and a key.
    pub(crate) fn mode(self) -> Mode {
        match self {
            Fault::Access | Fault::Rkey | Fault::Addr => Mode::Write,
            Fault::Recv => Mode::Send,
        }
    }

    /// How the client's request must end.
    pub(crate) fn expected(self) -> Status {
        match self {
            Fault::Access | Fault::Rkey | Fault::Addr => Status::RemoteAccess,
            Fault::Recv => Status::ReceiverNotReady,
        }
    }

    /// What happened, as the client knows it.
    pub(crate) fn seen_by_the_client(self) -> &'static str {
        match self {
            Fault::Access => {
                "At fault: the server. It refused with a NAK (syndrome 0x62, remote access error), \
                 because\nit registered its buffer without REMOTE_WRITE. A key alone is not a right."
            }
            Fault::Rkey => {
                "At fault: the client. The server refused with a NAK (syndrome 0x62, remote access \
                 error),\nbecause it knows no memory with this key. Use the rkey as it came, all 32 bits."
            }
            Fault::Addr => {
                "At fault: the client. The server refused with a NAK (syndrome 0x62, remote access \
                 error),\nbecause the text would end behind the buffer. Nothing of it was written."
            }
            Fault::Recv => {
                "At fault: the server. It answered each try with an RNR NAK (syndrome 0x20 and the \
                 time\nto wait), because it had posted no receive. After 3 more tries the client \
                 gave up."
            }
        }
    }

    /// What the server can know of it.
    pub(crate) fn seen_by_the_server(self) -> &'static str {
        match self {
            Fault::Access | Fault::Rkey | Fault::Addr => {
                "The buffer is as it was. The device refused the write, broke the queue pair and \
                 said so\nin an asynchronous event. No completion tells of it: a server that only \
                 polls sees nothing."
            }
            Fault::Recv => {
                "The buffer is as it was, and nothing else shows here: the device sent the message \
                 away\nwithout a completion or an event. Post receives before the peer can send."
            }
        }
    }
}
