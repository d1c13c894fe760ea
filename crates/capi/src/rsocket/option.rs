//! Socket options.

use std::ffi::c_int;

use driver::rdma_cm::{CallError, CmError};

use super::protocol::rounded;
use super::settings::Sizes;
use super::stream::{Phase, Stream};
use crate::errno::Errno;

pub(super) const SOL_RDMA: c_int = 0x10000;
const RDMA_SEND_QUEUE: c_int = 0;
const RDMA_RECEIVE_QUEUE: c_int = 1;
const RDMA_INLINE: c_int = 2;
const RDMA_MAPPINGS: c_int = 3;
/// How many bytes can be read: `FIONREAD`, for which rsockets have no call. Only our libraries know this option.
const UNREAD: c_int = 0x726f_6369;

const UNSUPPORTED: Errno = Errno::UNSUPPORTED;

impl Stream {
    /// Sets an option. Sizes apply to the next connection.
    pub(super) fn set_option(&self, level: c_int, name: c_int, value: c_int) -> Result<(), Errno> {
        let mut inner = self.lock();
        let is_opened = !matches!(inner.phase, Phase::New | Phase::Listening);
        let on = value != 0;
        match (level, name) {
            (libc::SOL_SOCKET, libc::SO_REUSEADDR) => {
                match inner.cm_id.set_reuse_address(on) {
                    // Programs set it at any time. A socket that is bound keeps its port as it is.
                    Ok(()) | Err(CmError::Call(CallError::WrongState(_))) => {}
                    Err(error) => return Err(error.into()),
                }
                inner.options.reuse_address = on;
            }
            (libc::SOL_SOCKET, libc::SO_RCVBUF) => {
                inner.sizes.receive_buffer = Sizes::buffer(value);
            }
            (libc::SOL_SOCKET, libc::SO_SNDBUF) => inner.sizes.send_buffer = Sizes::buffer(value),
            // The first number switches lingering on or off.
            (libc::SOL_SOCKET, libc::SO_LINGER) => inner.options.no_linger = !on,
            // The queue pair detects a lost peer as soon as there is traffic.
            (libc::SOL_SOCKET, libc::SO_KEEPALIVE) => inner.options.keep_alive = on,
            (libc::SOL_SOCKET, libc::SO_OOBINLINE) => inner.options.out_of_band_inline = on,
            (libc::IPPROTO_IP, libc::IP_TOS) => {
                inner.cm_id.set_traffic_class(value as u8)?;
                inner.options.type_of_service = value;
            }
            (libc::IPPROTO_TCP, libc::TCP_NODELAY) => inner.options.no_delay = on,
            (libc::IPPROTO_TCP, libc::TCP_KEEPIDLE) if value > 0 => inner.options.idle = value,
            (libc::IPPROTO_TCP, libc::TCP_KEEPIDLE) => return Err(Errno::INVALID),
            (
                libc::IPPROTO_TCP,
                libc::TCP_KEEPCNT | libc::TCP_KEEPINTVL | libc::TCP_MAXSEG | libc::TCP_CONGESTION,
            ) => {}
            (libc::IPPROTO_IPV6, libc::IPV6_V6ONLY) => {
                inner.cm_id.set_family_only(on)?;
                inner.options.family_only = on;
            }
            // The queues exist.
            (SOL_RDMA, _) if is_opened => return Err(Errno::INVALID),
            (SOL_RDMA, RDMA_SEND_QUEUE) => inner.sizes.send_queue = Sizes::queue(value),
            (SOL_RDMA, RDMA_RECEIVE_QUEUE) => inner.sizes.receive_queue = Sizes::queue(value),
            (SOL_RDMA, RDMA_INLINE) => {
                inner.sizes.inline = u16::try_from(value).map_err(|_| Errno::INVALID)?;
            }
            (SOL_RDMA, RDMA_MAPPINGS) => {
                inner.sizes.mappings = rounded(u16::try_from(value).map_err(|_| Errno::INVALID)?);
            }
            _ => return Err(UNSUPPORTED),
        }
        Ok(())
    }

    pub(super) fn option(&self, level: c_int, name: c_int) -> Result<c_int, Errno> {
        let mut inner = self.lock();
        let (sizes, options) = (inner.sizes, inner.options);
        Ok(match (level, name) {
            (libc::SOL_SOCKET, libc::SO_REUSEADDR) => options.reuse_address.into(),
            (libc::SOL_SOCKET, libc::SO_KEEPALIVE) => options.keep_alive.into(),
            (libc::SOL_SOCKET, libc::SO_OOBINLINE) => options.out_of_band_inline.into(),
            (libc::SOL_SOCKET, libc::SO_LINGER) => (!options.no_linger).into(),
            (libc::SOL_SOCKET, libc::SO_RCVBUF) => sizes.receive_buffer.cast_signed(),
            (libc::SOL_SOCKET, libc::SO_SNDBUF) => sizes.send_buffer.cast_signed(),
            (libc::SOL_SOCKET, libc::SO_TYPE) => libc::SOCK_STREAM,
            (libc::SOL_SOCKET, libc::SO_PROTOCOL) => libc::IPPROTO_TCP,
            (libc::SOL_SOCKET, libc::SO_ACCEPTCONN) => (inner.phase == Phase::Listening).into(),
            (libc::SOL_SOCKET, libc::SO_ERROR) => inner.take_error(),
            (libc::IPPROTO_IP, libc::IP_TOS) => options.type_of_service,
            (libc::IPPROTO_TCP, libc::TCP_NODELAY) => options.no_delay.into(),
            (libc::IPPROTO_TCP, libc::TCP_KEEPIDLE) => options.idle,
            (libc::IPPROTO_TCP, libc::TCP_KEEPCNT | libc::TCP_KEEPINTVL) => 1,
            (libc::IPPROTO_TCP, libc::TCP_MAXSEG) => {
                let connection = inner.connection.as_ref();
                connection.map_or(2048, |connection| {
                    connection.driver.device().active_mtu.bytes() as c_int
                })
            }
            (libc::IPPROTO_IPV6, libc::IPV6_V6ONLY) => options.family_only.into(),
            (SOL_RDMA, RDMA_SEND_QUEUE) => sizes.send_queue.into(),
            (SOL_RDMA, RDMA_RECEIVE_QUEUE) => sizes.receive_queue.into(),
            (SOL_RDMA, RDMA_INLINE) => sizes.inline.into(),
            (SOL_RDMA, RDMA_MAPPINGS) => sizes.mappings.into(),
            (SOL_RDMA, UNREAD) => inner.unread(),
            _ => return Err(UNSUPPORTED),
        })
    }
}

impl super::stream::Inner {
    fn unread(&mut self) -> c_int {
        self.connection.as_mut().map_or(0, |connection| {
            connection.progress();
            c_int::try_from(connection.unread()).unwrap_or(c_int::MAX)
        })
    }

    /// The error of the last attempt, or that ended the connection; reading it clears it.
    fn take_error(&mut self) -> c_int {
        let connection = self.connection.as_mut();
        let of_connection = connection.and_then(|it| it.open.unread_error.take());
        let error = self.error.take().or(of_connection);
        error.map_or(0, |errno| errno.0)
    }
}
