//! Why a member can't join.

use std::io;
use std::net::IpAddr;

use super::registry::RegistryError;
use super::runtime_directory::DirectoryError;
use crate::socket::SocketError;
use crate::sys;

/// Why an address can't be joined.
#[derive(Debug, thiserror::Error)]
pub enum JoinError {
    /// The runtime directory can't be used.
    #[error(transparent)]
    Directory(#[from] DirectoryError),
    /// The registry in the runtime directory can't be used.
    #[error(transparent)]
    Registry(#[from] RegistryError),
    /// A UDP socket can't be opened.
    #[error(transparent)]
    Socket(#[from] SocketError),
    /// The kernel rejects the steering program.
    #[error(
        "the kernel can't steer packets to {address} among processes: {source}{}",
        hint(source)
    )]
    Steering {
        /// The address.
        address: IpAddr,
        /// The error of the kernel.
        source: io::Error,
    },
    /// The mailbox can't be opened.
    #[error("no Unix socket can be opened in the runtime directory: {0}")]
    Mailbox(#[source] io::Error),
    /// The process has reached its limit of open files; each context needs several.
    #[error(
        "this process may open no more than {limit} files (RLIMIT_NOFILE), and a context needs \
         several: raise the limit with `ulimit -n`, or open fewer devices"
    )]
    TooManyFiles {
        /// The limit that was reached.
        limit: u64,
    },
    /// The system has reached its limit of open files.
    #[error(
        "the system can open no more files: let an administrator raise `sysctl fs.file-max`, or end \
         some processes"
    )]
    SystemOutOfFiles,
    /// The address is not the address of one interface.
    #[error(
        "{0} does not name one interface: join each address by itself, and multicast groups with \
         `Receiver::join_group`"
    )]
    NotUnicast(IpAddr),
    /// There is no room for another member.
    #[error(
        "{contexts} contexts (open devices) of {processes} processes share {address} already, and \
         there is no room for more: close some, or use another address"
    )]
    Full {
        /// The address.
        address: IpAddr,
        /// How many contexts use it.
        contexts: usize,
        /// How many processes these contexts belong to.
        processes: usize,
    },
    /// Another member owns the requested block or a part of it.
    #[error("another context owns some of the requested queue pair numbers")]
    BlockTaken,
}

impl JoinError {
    /// The error number that describes it best, where no error of the system is at its root.
    #[must_use]
    pub fn os_error(&self) -> i32 {
        match self {
            Self::TooManyFiles { .. } => libc::EMFILE,
            Self::SystemOutOfFiles => libc::ENFILE,
            Self::Socket(SocketError::NotLocal(_)) | Self::NotUnicast(_) => libc::EADDRNOTAVAIL,
            Self::Socket(SocketError::PortTaken { .. }) | Self::Full { .. } | Self::BlockTaken => {
                libc::EADDRINUSE
            }
            Self::Directory(DirectoryError::NotPrivate { .. }) => libc::EACCES,
            Self::Registry(_) => libc::EBUSY,
            Self::Directory(DirectoryError::Unusable { .. })
            | Self::Socket(SocketError::Refused { .. })
            | Self::Steering { .. }
            | Self::Mailbox(_) => libc::EIO,
        }
    }

    /// Replaces the error by a more specific one if a limit of open files was reached.
    pub(super) fn with_limit(self) -> Self {
        let source = match &self {
            Self::Directory(DirectoryError::Unusable { source, .. })
            | Self::Registry(RegistryError::Unusable { source, .. })
            | Self::Socket(SocketError::Refused { source, .. })
            | Self::Mailbox(source) => source,
            _ => return self,
        };
        Self::of_limit(source).unwrap_or(self)
    }

    /// The error for a limit of open files, if that is the cause of an error of the system.
    #[must_use]
    pub fn of_limit(error: &io::Error) -> Option<Self> {
        match error.raw_os_error()? {
            libc::EMFILE => Some(Self::TooManyFiles {
                limit: sys::process::open_files_limit(),
            }),
            libc::ENFILE => Some(Self::SystemOutOfFiles),
            _ => None,
        }
    }
}

fn hint(source: &io::Error) -> &'static str {
    match source.raw_os_error() {
        Some(libc::ENOMEM) => {
            "; so many contexts share the address that the program which steers exceeds \
             net.core.optmem_max: let an administrator run `sysctl -w net.core.optmem_max=131072`"
        }
        _ if sys::is_forbidden(source) => {
            "; so one context at a time can have the address: give each program its own address, or \
             allow setsockopt(SO_ATTACH_REUSEPORT_CBPF)"
        }
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_of_open_files_is_named() {
        let rejected = |errno| {
            let source = io::Error::from_raw_os_error(errno);
            JoinError::Mailbox(source).with_limit()
        };
        assert!(matches!(
            rejected(libc::EMFILE),
            JoinError::TooManyFiles { limit: 1.. }
        ));
        assert!(matches!(
            rejected(libc::ENFILE),
            JoinError::SystemOutOfFiles
        ));
        assert!(matches!(rejected(libc::EACCES), JoinError::Mailbox(_)));
    }
}
