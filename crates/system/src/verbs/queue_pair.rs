//! Queue pairs: RC and UC.

use std::ffi::c_int;
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use abi::{
    AtomicTarget, BindWindow, RdmaTarget, WorkTarget, ibv_mw_bind_info, ibv_qp, ibv_qp_attr,
    ibv_qp_cap, ibv_qp_init_attr, ibv_recv_wr, ibv_send_wr, ibv_sge,
};
use engine::{
    Attribute, Attributes, Payload, QueuePairType, ReceiveRequest, Segment, SendRequest, State,
    SystemRefusal, Work,
};
use smallvec::SmallVec;
use wire::Qpn;

use super::completion_queue::CompletionQueue;
use super::convert::{FIRST_PORT, attributes_of, state_of};
use super::error::{error_number, last_error};
use super::protection_domain::Domain;

/// What a queue pair is made of.
#[derive(Debug)]
pub struct QueuePairInit<'a> {
    /// RC or UC.
    pub kind: QueuePairType,
    /// Where completions of sends go.
    pub send_completions: &'a Arc<CompletionQueue>,
    /// Where completions of receives go.
    pub receive_completions: &'a Arc<CompletionQueue>,
    /// How many send requests may be outstanding.
    pub max_sends: u32,
    /// How many receives may be posted.
    pub max_receives: u32,
    /// How many segments a request may have.
    pub max_segments: u32,
    /// How many bytes may be inline.
    pub max_inline: u32,
}

/// A queue pair.
#[derive(Debug)]
pub struct QueuePair {
    raw: NonNull<ibv_qp>,
    number: Qpn,
    domain: Arc<Domain>,
    /// The port that it was given. Its address needs the same one.
    port: AtomicU8,
    _completions: [Arc<CompletionQueue>; 2],
}

// SAFETY: the functions of libibverbs may be called from any thread, also at the same time.
unsafe impl Send for QueuePair {}

// SAFETY: as for `Send`.
unsafe impl Sync for QueuePair {}

/// The segments of a request, as C has them.
type Segments = SmallVec<[ibv_sge; 4]>;

impl QueuePair {
    /// Creates a queue pair.
    pub fn create(domain: &Arc<Domain>, init: &QueuePairInit<'_>) -> Result<Self, SystemRefusal> {
        let kind = match init.kind {
            QueuePairType::Rc => abi::IBV_QPT_RC,
            QueuePairType::Uc => abi::IBV_QPT_UC,
            QueuePairType::Ud => return Err(SystemRefusal::NotOffered("datagram queue pairs")),
            _ => return Err(SystemRefusal::NotOffered("XRC queue pairs")),
        };
        let mut wanted = ibv_qp_init_attr {
            send_cq: init.send_completions.raw.as_ptr(),
            recv_cq: init.receive_completions.raw.as_ptr(),
            cap: ibv_qp_cap {
                max_send_wr: init.max_sends,
                max_recv_wr: init.max_receives,
                max_send_sge: init.max_segments,
                max_recv_sge: init.max_segments,
                max_inline_data: init.max_inline,
            },
            qp_type: kind,
            ..ibv_qp_init_attr::default()
        };
        let functions = domain.context.functions;
        // SAFETY: domain and queues exist, and the new queue pair keeps them alive.
        let raw = unsafe { (functions.ibv_create_qp)(domain.raw.as_ptr(), &raw mut wanted) };
        let raw = NonNull::new(raw).ok_or_else(|| last_error("ibv_create_qp"))?;
        // SAFETY: the queue pair exists, and its number does not change.
        let number = unsafe { (*raw.as_ptr()).qp_num };
        Ok(Self {
            raw,
            number: Qpn::new(number),
            domain: Arc::clone(domain),
            port: FIRST_PORT.into(),
            _completions: [
                Arc::clone(init.send_completions),
                Arc::clone(init.receive_completions),
            ],
        })
    }

    /// Its number.
    pub fn number(&self) -> Qpn {
        self.number
    }

    /// Changes the attributes that are given.
    pub fn modify(&self, attributes: &Attributes) -> Result<(), SystemRefusal> {
        if let Some(port) = attributes.port {
            self.port.store(port, Ordering::Relaxed);
        }
        let mut wanted = attributes_of(attributes, self.port.load(Ordering::Relaxed));
        let mask = attributes.given().bits().cast_signed();
        let modify = self.domain.context.functions.ibv_modify_qp;
        // SAFETY: the queue pair exists, and the structure has the size that a test compares with the header.
        match unsafe { modify(self.raw.as_ptr(), &raw mut wanted, mask) } {
            0 => Ok(()),
            number => Err(error_number("ibv_modify_qp", number)),
        }
    }

    /// Moves it to the error state, so that its requests are flushed.
    pub(crate) fn move_to_error(&self) -> Result<(), SystemRefusal> {
        self.modify(&Attributes {
            state: Some(State::Error),
            ..Attributes::default()
        })
    }

    /// Its state, as the device reports it.
    pub fn state(&self) -> Result<State, SystemRefusal> {
        let (mut found, mut init) = (ibv_qp_attr::default(), ibv_qp_init_attr::default());
        let mask = Attribute::STATE.bits().cast_signed();
        let query = self.domain.context.functions.ibv_query_qp;
        // SAFETY: the queue pair exists, and both structures have the sizes that a test compares with the header.
        let result = unsafe { query(self.raw.as_ptr(), &raw mut found, mask, &raw mut init) };
        match (result, state_of(found.qp_state)) {
            (0, Some(state)) => Ok(state),
            (0, None) => Err(SystemRefusal::Lacks("state that is known")),
            (number, _) => Err(error_number("ibv_query_qp", number)),
        }
    }

    /// Posts a send request. Inline data is copied before it returns.
    pub fn post_send(&self, request: &SendRequest) -> Result<(), SystemRefusal> {
        let post = self.domain.context.operations().post_send;
        let post = post.ok_or(SystemRefusal::Lacks("function to send"))?;
        let (mut segments, is_inline) = segments_of(&request.payload);
        let mut wanted = ibv_send_wr {
            wr_id: request.id,
            next: ptr::null_mut(),
            sg_list: segments.as_mut_ptr(),
            num_sge: segments.len() as c_int,
            opcode: 0,
            send_flags: request.flags.bits() | if is_inline { abi::IBV_SEND_INLINE } else { 0 },
            imm_data: [0; 4],
            wr: WorkTarget {
                rdma: RdmaTarget {
                    remote_addr: 0,
                    rkey: 0,
                },
            },
            remote_srqn: 0,
            bind_mw: BindWindow {
                mw: ptr::null_mut(),
                rkey: 0,
                bind_info: ibv_mw_bind_info::default(),
            },
        };
        set_work(&mut wanted, &request.work)?;
        let mut bad = ptr::null_mut();
        // SAFETY: the queue pair exists; the request and its segments live until the call returns, and so does inline data. The
        // device checks addresses and keys of segments.
        match unsafe { post(self.raw.as_ptr(), &raw mut wanted, &raw mut bad) } {
            0 => Ok(()),
            number => Err(error_number("ibv_post_send", number)),
        }
    }

    /// Posts a receive.
    pub fn post_receive(&self, request: &ReceiveRequest) -> Result<(), SystemRefusal> {
        let post = self.domain.context.operations().post_recv;
        let post = post.ok_or(SystemRefusal::Lacks("function to receive"))?;
        let mut segments: Segments = request.segments.iter().map(segment_of).collect();
        let mut wanted = ibv_recv_wr {
            wr_id: request.id,
            next: ptr::null_mut(),
            sg_list: segments.as_mut_ptr(),
            num_sge: segments.len() as c_int,
        };
        let mut bad = ptr::null_mut();
        // SAFETY: as in `post_send`.
        match unsafe { post(self.raw.as_ptr(), &raw mut wanted, &raw mut bad) } {
            0 => Ok(()),
            number => Err(error_number("ibv_post_recv", number)),
        }
    }
}

impl Drop for QueuePair {
    fn drop(&mut self) {
        // SAFETY: it exists, and is destroyed once.
        unsafe { (self.domain.context.functions.ibv_destroy_qp)(self.raw.as_ptr()) };
    }
}

/// The data of a request, and whether it is inline.
fn segments_of(payload: &Payload) -> (Segments, bool) {
    match payload {
        Payload::Segments(segments) => (segments.iter().map(segment_of).collect(), false),
        Payload::Inline(bytes) => {
            let segment = ibv_sge {
                addr: bytes.as_ptr().expose_provenance() as u64,
                length: bytes.len() as u32,
                lkey: 0,
            };
            (SmallVec::from_slice(&[segment]), true)
        }
    }
}

fn segment_of(segment: &Segment) -> ibv_sge {
    ibv_sge {
        addr: segment.address,
        length: segment.length,
        lkey: segment.key.value(),
    }
}

/// Sets the opcode and what belongs to it.
fn set_work(wanted: &mut ibv_send_wr, work: &Work) -> Result<(), SystemRefusal> {
    let rdma = |remote: &engine::RemoteMemory| WorkTarget {
        rdma: RdmaTarget {
            remote_addr: remote.address,
            rkey: remote.key.value(),
        },
    };
    let atomic = |remote: &engine::RemoteMemory, compare_add, swap| WorkTarget {
        atomic: AtomicTarget {
            remote_addr: remote.address,
            compare_add,
            swap,
            rkey: remote.key.value(),
        },
    };
    wanted.opcode = match work {
        Work::Send => abi::IBV_WR_SEND,
        Work::SendImmediate(data) => {
            wanted.imm_data = *data;
            abi::IBV_WR_SEND_WITH_IMM
        }
        Work::SendInvalidate(key) => {
            wanted.imm_data = key.value().to_ne_bytes();
            abi::IBV_WR_SEND_WITH_INV
        }
        Work::Write(remote) => {
            wanted.wr = rdma(remote);
            abi::IBV_WR_RDMA_WRITE
        }
        Work::WriteImmediate(remote, data) => {
            wanted.wr = rdma(remote);
            wanted.imm_data = *data;
            abi::IBV_WR_RDMA_WRITE_WITH_IMM
        }
        Work::Read(remote) => {
            wanted.wr = rdma(remote);
            abi::IBV_WR_RDMA_READ
        }
        Work::CompareSwap {
            remote,
            compare,
            swap,
        } => {
            wanted.wr = atomic(remote, *compare, *swap);
            abi::IBV_WR_ATOMIC_CMP_AND_SWP
        }
        Work::FetchAdd { remote, add } => {
            wanted.wr = atomic(remote, *add, 0);
            abi::IBV_WR_ATOMIC_FETCH_AND_ADD
        }
        Work::LocalInvalidate(key) => {
            wanted.imm_data = key.value().to_ne_bytes();
            abi::IBV_WR_LOCAL_INV
        }
        Work::AtomicWrite(_) => return Err(SystemRefusal::NotOffered("atomic writes")),
        Work::Flush { .. } => return Err(SystemRefusal::NotOffered("flushes")),
        Work::BindWindow { .. } => return Err(SystemRefusal::NotOffered("memory windows")),
    };
    Ok(())
}
