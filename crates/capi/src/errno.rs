//! Error numbers, and how errors of the other crates map to them.

use std::error::Error;
use std::ffi::c_int;
use std::io;
use std::sync::atomic::{AtomicU32, Ordering};

use driver::{OpenError, system_error};
use engine::{
    AddressError, MemoryError, ModifyError, MulticastError, ObjectError, PostError, SystemRefusal,
};
use net::socket::interface::DeviceError;

const INHERITED: &str = "this process was forked after its RDMA device was opened. The device and the events of its channels stay \
     with the parent, so calls on them fail here with EIO. Fork first: call daemon() or fork() before \
     rdma_create_event_channel() and ibv_open_device().";

/// An error number of `<errno.h>`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Errno(pub(crate) c_int);

impl Errno {
    pub(crate) const BUSY: Self = Self(libc::EBUSY);
    pub(crate) const FAULT: Self = Self(libc::EFAULT);
    pub(crate) const INVALID: Self = Self(libc::EINVAL);
    pub(crate) const NO_DATA: Self = Self(libc::ENODATA);
    pub(crate) const NO_DEVICE: Self = Self(libc::ENODEV);
    pub(crate) const NO_ENTRY: Self = Self(libc::ENOENT);
    pub(crate) const NO_MEMORY: Self = Self(libc::ENOMEM);
    /// EPROTONOSUPPORT.
    pub(crate) const NO_PROTOCOL: Self = Self(libc::EPROTONOSUPPORT);
    pub(crate) const NO_SPACE: Self = Self(libc::ENOSPC);
    pub(crate) const NOT_PERMITTED: Self = Self(libc::EPERM);
    pub(crate) const TRY_AGAIN: Self = Self(libc::EAGAIN);
    /// ENOSYS.
    pub(crate) const NO_CALL: Self = Self(libc::ENOSYS);
    /// EOPNOTSUPP: a software device can't have it.
    pub(crate) const UNSUPPORTED: Self = Self(libc::EOPNOTSUPP);
    /// EIO: the device belongs to the parent of a fork. Programs print the number, if anything, so the cause is printed to stderr,
    /// once in each process.
    pub(crate) fn inherited() -> Self {
        /// The fork generation that has printed it. Only a child gets here, and its generation is not 0.
        static PRINTED: AtomicU32 = AtomicU32::new(0);
        let generation = net::fork::generation();
        if PRINTED.swap(generation, Ordering::Relaxed) != generation {
            net::stderr::print(INHERITED);
        }
        Self(libc::EIO)
    }

    /// The error of the last system call of this thread.
    pub(crate) fn last() -> Self {
        Self::from(io::Error::last_os_error())
    }

    /// Sets the C library's `errno`.
    pub(crate) fn set(self) {
        // SAFETY: the C library has a variable for each thread.
        let errno = unsafe { libc::__errno_location() };
        // SAFETY: that variable lives as long as the thread.
        unsafe { *errno = self.0 };
    }
}

impl From<io::Error> for Errno {
    fn from(error: io::Error) -> Self {
        Self(error.raw_os_error().unwrap_or(libc::EIO))
    }
}

impl From<SystemRefusal> for Errno {
    fn from(refusal: SystemRefusal) -> Self {
        refusal.os_error().map_or(Self::UNSUPPORTED, Self)
    }
}

impl From<ObjectError> for Errno {
    fn from(error: ObjectError) -> Self {
        match error {
            ObjectError::Exhausted => Self::NO_MEMORY,
            ObjectError::InUse(_) => Self::BUSY,
            ObjectError::OpenedBeforeFork => Self::inherited(),
            ObjectError::System(refusal) => refusal.into(),
            _ => Self::INVALID,
        }
    }
}

impl From<MemoryError> for Errno {
    fn from(error: MemoryError) -> Self {
        match error {
            MemoryError::Exhausted => Self::NO_MEMORY,
            MemoryError::WindowsBound(_) => Self::BUSY,
            _ => Self::INVALID,
        }
    }
}

impl From<PostError> for Errno {
    fn from(error: PostError) -> Self {
        match error {
            PostError::QueueFull | PostError::NoMemory => Self::NO_MEMORY,
            PostError::OpenedBeforeFork => Self::inherited(),
            _ => Self::INVALID,
        }
    }
}

impl From<ModifyError> for Errno {
    fn from(error: ModifyError) -> Self {
        match error {
            ModifyError::OpenedBeforeFork => Self::inherited(),
            ModifyError::Path(error) => error.into(),
            _ => Self::INVALID,
        }
    }
}

impl From<AddressError> for Errno {
    fn from(error: AddressError) -> Self {
        match error {
            AddressError::EmptySourceIndex(_) => Self::NO_DATA,
            AddressError::Exhausted => Self::NO_MEMORY,
            AddressError::System(refusal) => refusal.into(),
            _ => Self::INVALID,
        }
    }
}

impl From<MulticastError> for Errno {
    fn from(error: MulticastError) -> Self {
        match error {
            MulticastError::Exhausted => Self::NO_MEMORY,
            _ => Self::INVALID,
        }
    }
}

impl Errno {
    /// The number for a failed open. The number alone is not enough to find the cause, so the error is also
    /// printed to stderr.
    pub(crate) fn from_open_error(error: &OpenError) -> Self {
        net::stderr::print(error);
        let otherwise = match error {
            OpenError::System(_) => Self(libc::EIO),
            OpenError::Unknown { .. } | OpenError::Device(_) => Self::NO_DEVICE,
            // A capture or a fault that cannot be used.
            _ => Self::INVALID,
        };
        error.os_error().map_or(otherwise, Self)
    }

    /// The number for a failed list of devices.
    pub(crate) fn from_device_error(error: &DeviceError) -> Self {
        Self::from_system(error).unwrap_or(Self::NO_DEVICE)
    }

    /// The number of the system error at the root of it, if there is one: too many open files, for example.
    pub(crate) fn from_system(error: &(dyn Error + 'static)) -> Option<Self> {
        system_error(error).map(Self)
    }
}

#[cfg(test)]
mod tests {
    use net::sharing::{DirectoryError, JoinError, RegistryError};
    use net::socket::SocketError;

    use super::*;

    #[test]
    fn too_many_open_files_is_reported_as_emfile() {
        let full = || io::Error::from_raw_os_error(libc::EMFILE);
        let errors = [
            OpenError::System(full()),
            OpenError::Device(DeviceError::Unknown { error: full() }),
            OpenError::Join(JoinError::TooManyFiles { limit: 64 }),
        ];
        for error in errors {
            assert_eq!(Errno::from_open_error(&error), Errno(libc::EMFILE));
        }
    }
    #[test]
    fn an_address_that_cant_be_joined_has_its_own_number() {
        let address = std::net::IpAddr::from([192, 0, 2, 1]);
        let port = wire::ROCE_PORT;
        let path = || std::path::PathBuf::from("registry");
        let cases = [
            (JoinError::SystemOutOfFiles, libc::ENFILE),
            (SocketError::NotLocal(address).into(), libc::EADDRNOTAVAIL),
            (JoinError::NotUnicast(address), libc::EADDRNOTAVAIL),
            (
                SocketError::PortTaken { address, port }.into(),
                libc::EADDRINUSE,
            ),
            (JoinError::BlockTaken, libc::EADDRINUSE),
            (
                DirectoryError::NotPrivate {
                    path: path(),
                    user: 0,
                }
                .into(),
                libc::EACCES,
            ),
            (RegistryError::Locked(path()).into(), libc::EBUSY),
            (JoinError::Mailbox(io::Error::other("no number")), libc::EIO),
            (
                JoinError::Mailbox(io::Error::from_raw_os_error(libc::EROFS)),
                libc::EROFS,
            ),
        ];
        for (error, number) in cases {
            let error = OpenError::Join(error);
            assert_eq!(Errno::from_open_error(&error), Errno(number), "{error}");
        }
    }
}
