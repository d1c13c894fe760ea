//! FLUSH and atomic write, which `ibv_post_send` does not have.

use std::ffi::c_int;
use std::ptr::NonNull;

use abi::{Flush, ibv_qp, ibv_qp_ex};
use engine::{Payload, RemoteMemory, SendRequest, SystemRefusal, Work};

use super::error::error_number;
use super::library::Functions;
use super::protection_domain::Domain;

/// The second face of a queue pair that was created with operations beyond `ibv_post_send`.
#[derive(Debug)]
pub(super) struct ExtendedRequests {
    raw: NonNull<ibv_qp_ex>,
    /// With which operations it was created.
    operations: u64,
}

impl ExtendedRequests {
    /// That of a queue pair which was created with these operations.
    pub(super) fn of(
        functions: &Functions,
        queue_pair: NonNull<ibv_qp>,
        operations: u64,
    ) -> Option<Self> {
        if operations == 0 {
            return None;
        }
        // SAFETY: the queue pair exists.
        let raw = unsafe { (functions.ibv_qp_to_qp_ex)(queue_pair.as_ptr()) };
        NonNull::new(raw).map(|raw| Self { raw, operations })
    }

    /// Posts a FLUSH or an atomic write.
    pub(super) fn post(&self, domain: &Domain, request: &SendRequest) -> Result<(), SystemRefusal> {
        match &request.work {
            Work::AtomicWrite(remote) => {
                let bytes = eight_bytes(domain, &request.payload)?;
                self.atomic_write(request, remote, bytes)
            }
            Work::Flush {
                remote,
                length,
                placement,
                range,
            } => {
                let flush = self.flush_operation()?;
                self.build(request, |raw| {
                    let (key, address) = (remote.key.value(), remote.address);
                    let (length, placement) = (*length as usize, placement.bits());
                    // SAFETY: the queue pair exists, and `build` has started a request.
                    unsafe { flush(raw, key, address, length, placement, *range as u8) };
                })
            }
            _ => Err(SystemRefusal::Lacks("such extended request")),
        }
    }

    fn flush_operation(&self) -> Result<Flush, SystemRefusal> {
        if self.operations & abi::IBV_QP_EX_WITH_FLUSH == 0 {
            return Err(LACKS_FLUSH);
        }
        let behind = self.raw.as_ptr().wrapping_add(1).cast::<Option<Flush>>();
        // SAFETY: the queue pair exists. A library that has created it with this operation has the field, which is the next one
        // behind the structure of older libraries.
        unsafe { behind.read() }.ok_or(LACKS_FLUSH)
    }

    fn atomic_write(
        &self,
        request: &SendRequest,
        remote: &RemoteMemory,
        bytes: [u8; 8],
    ) -> Result<(), SystemRefusal> {
        // SAFETY: the queue pair exists, and the library does not change the field.
        let write = unsafe { (*self.raw.as_ptr()).wr_atomic_write };
        let is_created = self.operations & abi::IBV_QP_EX_WITH_ATOMIC_WRITE != 0;
        let write = write.filter(|_| is_created).ok_or(LACKS_ATOMIC_WRITE)?;
        self.build(request, |raw| {
            let (key, address) = (remote.key.value(), remote.address);
            // SAFETY: the queue pair exists, `build` has started a request, and the bytes are copied during the call.
            unsafe { write(raw, key, address, bytes.as_ptr().cast()) };
        })
    }

    /// Posts one request, whose kind `fill` sets.
    fn build(
        &self,
        request: &SendRequest,
        fill: impl FnOnce(*mut ibv_qp_ex),
    ) -> Result<(), SystemRefusal> {
        let raw = self.raw.as_ptr();
        // SAFETY: the queue pair exists, and the library does not change the field.
        let start = unsafe { (*raw).wr_start };
        // SAFETY: as before.
        let complete = unsafe { (*raw).wr_complete };
        let (Some(start), Some(complete)) = (start, complete) else {
            return Err(SystemRefusal::Lacks("way to build requests"));
        };
        // SAFETY: the queue pair exists. From here to `complete` the provider keeps other threads from this queue pair.
        unsafe { start(raw) };
        // SAFETY: as said, no other thread uses the field.
        unsafe { (*raw).wr_id = request.id };
        // SAFETY: as before.
        unsafe { (*raw).wr_flags = request.flags.bits() };
        fill(raw);
        // SAFETY: a request was started.
        let result: c_int = unsafe { complete(raw) };
        match result {
            0 => Ok(()),
            number => Err(error_number("ibv_wr_complete", number)),
        }
    }
}

/// What a request needs that the queue pair can't do.
pub(super) fn lacks(work: &Work) -> SystemRefusal {
    match work {
        Work::AtomicWrite(_) => LACKS_ATOMIC_WRITE,
        _ => LACKS_FLUSH,
    }
}

const LACKS_FLUSH: SystemRefusal = SystemRefusal::Lacks("FLUSH");
const LACKS_ATOMIC_WRITE: SystemRefusal = SystemRefusal::Lacks("atomic write");

/// The eight bytes of an atomic write, as they are now.
fn eight_bytes(domain: &Domain, payload: &Payload) -> Result<[u8; 8], SystemRefusal> {
    const WRONG: SystemRefusal = SystemRefusal::Call {
        call: "ibv_wr_atomic_write",
        number: libc::EINVAL,
    };
    match payload {
        Payload::Inline(bytes) => <[u8; 8]>::try_from(&bytes[..]).map_err(|_| WRONG),
        Payload::Segments(segments) => {
            let [segment] = &segments[..] else {
                return Err(WRONG);
            };
            let mut bytes = [0; 8];
            let is_whole = segment.length == 8 && domain.buffers.read(segment, &mut bytes);
            is_whole.then_some(bytes).ok_or(WRONG)
        }
    }
}
