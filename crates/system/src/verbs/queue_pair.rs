//! Queue pairs: RC, UC, UD and XRC.

use std::collections::HashMap;
use std::ffi::c_int;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError, Weak};

use abi::{
    AtomicTarget, BindWindow, DatagramTarget, RdmaTarget, WorkTarget, ibv_gid, ibv_mr, ibv_mw_bind,
    ibv_mw_bind_info, ibv_qp, ibv_qp_attr, ibv_qp_cap, ibv_qp_init_attr, ibv_qp_init_attr_ex,
    ibv_send_wr, ibv_sge,
};
use engine::{
    Address, Attribute, Attributes, Binding, Destination, Payload, QueuePairType, ReceiveRequest,
    SendRequest, State, SystemRefusal, Work,
};
use wire::{Gid, Key, Qpn, Srqn};

use super::address_handles::{AddressHandle, AddressHandles};
use super::completion_queue::CompletionQueue;
use super::convert::{FIRST_PORT, attributes_of, post_receive_with, segments_of, state_of};
use super::datagram_requests::DatagramRequests;
use super::error::{error_number, last_error_or_lack};
use super::extended::operation;
use super::extended_requests::{ExtendedRequests, lacks};
use super::protection_domain::Domain;
use super::shared_receive_queue::SharedReceiveQueue;
use super::window::{Window, bind_info};
use super::xrc_domain::{LACKS, XrcDomain};

/// What a queue pair is made of.
#[derive(Debug)]
pub struct QueuePairInit<'a> {
    /// Its type.
    pub kind: QueuePairType,
    /// Where completions of sends go.
    pub send_completions: &'a Arc<CompletionQueue>,
    /// Where completions of receives go.
    pub receive_completions: &'a Arc<CompletionQueue>,
    /// The domain of the target of an extended reliable connection.
    pub xrc_domain: Option<&'a Arc<XrcDomain>>,
    /// Where receives are taken from, if not from its own queue.
    pub shared_receives: Option<&'a Arc<SharedReceiveQueue>>,
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
    completions: [Arc<CompletionQueue>; 2],
    shared_receives: Option<Arc<SharedReceiveQueue>>,
    _xrc_domain: Option<Arc<XrcDomain>>,
    /// What a datagram queue pair also has.
    datagrams: Option<Datagrams>,
    /// What a reliable queue pair also has, if the device has it.
    extended: Option<ExtendedRequests>,
}

#[derive(Debug)]
struct Datagrams {
    handles: AddressHandles,
    requests: Arc<DatagramRequests>,
}

// SAFETY: the functions of libibverbs may be called from any thread, also at the same time.
unsafe impl Send for QueuePair {}

// SAFETY: as for `Send`.
unsafe impl Sync for QueuePair {}

impl QueuePair {
    /// Creates a queue pair.
    pub fn create(
        domain: &Arc<Domain>,
        init: &QueuePairInit<'_>,
    ) -> Result<Arc<Self>, SystemRefusal> {
        let mut wanted = wanted(init)?;
        let functions = domain.context.functions;
        let extended = match (init.kind, init.xrc_domain) {
            (QueuePairType::Rc, _) => create_extended(domain, &wanted),
            (QueuePairType::XrcTarget, Some(xrc_domain)) => {
                Some((create_xrc_target(domain, xrc_domain, &wanted)?, 0))
            }
            _ => None,
        };
        let (raw, operations) = match extended {
            Some(created) => created,
            None => {
                // SAFETY: domain and queues exist, and the new queue pair keeps them alive.
                let raw =
                    unsafe { (functions.ibv_create_qp)(domain.raw.as_ptr(), &raw mut wanted) };
                let raw = NonNull::new(raw);
                let lacks = "queue pairs of this type";
                (
                    raw.ok_or_else(|| last_error_or_lack("ibv_create_qp", lacks))?,
                    0,
                )
            }
        };
        // SAFETY: the queue pair exists, and its number does not change.
        let number = unsafe { (*raw.as_ptr()).qp_num };
        let mut created = Self {
            raw,
            number: Qpn::new(number),
            domain: Arc::clone(domain),
            port: FIRST_PORT.into(),
            completions: [
                Arc::clone(init.send_completions),
                Arc::clone(init.receive_completions),
            ],
            shared_receives: init.shared_receives.map(Arc::clone),
            _xrc_domain: init.xrc_domain.map(Arc::clone),
            datagrams: None,
            extended: ExtendedRequests::of(functions, raw, operations),
        };
        if init.kind == QueuePairType::Ud {
            created.add_datagrams(init.max_sends)?;
        } else if let Some(queue) = init.shared_receives {
            queue.use_for_connections()?;
        }
        let created = Arc::new(created);
        queue_pairs().insert(created.key(), Arc::downgrade(&created));
        Ok(created)
    }

    /// Adds what a datagram queue pair needs. It can't receive yet.
    fn add_datagrams(&mut self, max_sends: u32) -> Result<(), SystemRefusal> {
        let (receives, domain) = match &self.shared_receives {
            Some(queue) => (queue.use_for_datagrams()?, &queue.domain),
            None => (Arc::default(), &self.domain),
        };
        let requests = Arc::new(DatagramRequests::with_receives(receives));
        for queue in &self.completions {
            queue.add_datagrams(self.number, &requests, domain);
        }
        self.datagrams = Some(Datagrams {
            handles: AddressHandles::new(max_sends),
            requests,
        });
        Ok(())
    }

    /// The queue pair of this process with a number, at a device; none if there is no such queue pair.
    pub(crate) fn find(device: &str, number: Qpn) -> Weak<Self> {
        let key = (device.to_owned(), number);
        queue_pairs().get(&key).cloned().unwrap_or_default()
    }

    /// Its key in [`queue_pairs`].
    fn key(&self) -> (String, Qpn) {
        (self.domain.context.name().to_owned(), self.number)
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
        match (&self.datagrams, &request.work) {
            (Some(datagrams), _) => {
                let destination = request.destination.as_ref();
                let lacks = SystemRefusal::Lacks("destination for datagrams");
                let destination = destination.ok_or(lacks)?;
                // Before the lock of the requests: the first send to an address asks the kernel for a handle.
                let handle = self.address_handle(datagrams, &destination.address)?;
                let target = datagram_target(destination, &handle);
                let post = |number| self.post(request, number, Some(target), None);
                datagrams.requests.send(request.id, Some(handle), post)
            }
            (
                None,
                Work::BindWindow {
                    window,
                    key,
                    binding,
                },
            ) => {
                let window = self.domain.window(*window)?;
                self.bind(request, &window, *key, binding)
            }
            (None, work @ (Work::AtomicWrite(_) | Work::Flush { .. })) => {
                let extended = self.extended.as_ref().ok_or_else(|| lacks(work))?;
                extended.post(&self.domain, request)
            }
            (None, _) => self.post(request, request.id, None, None),
        }
    }

    fn address_handle(
        &self,
        datagrams: &Datagrams,
        address: &Address,
    ) -> Result<Arc<AddressHandle>, SystemRefusal> {
        let port = self.port.load(Ordering::Relaxed);
        let create = || AddressHandle::create(&self.domain, address, port);
        datagrams.handles.get(address, create)
    }

    /// Binds a window: of type 2, which has a key of the program, or of type 1.
    fn bind(
        &self,
        request: &SendRequest,
        window: &Window,
        key: Option<Key>,
        binding: &Binding,
    ) -> Result<(), SystemRefusal> {
        let bound = self.domain.buffers.with_region(binding.region, |region| {
            let Some(key) = key else {
                return self.bind_type_1(request, window, binding, region);
            };
            let wanted = BindWindow {
                mw: window.raw.as_ptr(),
                rkey: key.value(),
                bind_info: bind_info(binding, region),
            };
            self.post(request, request.id, None, Some(wanted))?;
            window.set_remote_key(key);
            Ok(())
        });
        bound.unwrap_or(Err(SystemRefusal::Lacks("such memory region")))
    }

    fn bind_type_1(
        &self,
        request: &SendRequest,
        window: &Window,
        binding: &Binding,
        region: NonNull<ibv_mr>,
    ) -> Result<(), SystemRefusal> {
        let bind = self.domain.context.operations().bind_mw;
        let bind = bind.ok_or(SystemRefusal::Lacks("memory windows of type 1"))?;
        let mut wanted = ibv_mw_bind {
            wr_id: request.id,
            send_flags: request.flags.bits(),
            bind_info: bind_info(binding, region),
        };
        // SAFETY: queue pair, window and region exist, and the structure lives until the call returns.
        match unsafe { bind(self.raw.as_ptr(), window.raw.as_ptr(), &raw mut wanted) } {
            0 => {
                // SAFETY: the window exists, and the function has set its key.
                window.set_remote_key(Key::new(unsafe { (*window.raw.as_ptr()).rkey }));
                Ok(())
            }
            number => Err(error_number("ibv_bind_mw", number)),
        }
    }

    /// Posts a request under an id.
    fn post(
        &self,
        request: &SendRequest,
        id: u64,
        datagram: Option<WorkTarget>,
        window: Option<BindWindow>,
    ) -> Result<(), SystemRefusal> {
        let post = self.domain.context.operations().post_send;
        let post = post.ok_or(SystemRefusal::Lacks("function to send"))?;
        let mut inline;
        let (list, length, flags) = match &request.payload {
            Payload::Segments(segments) => (segments_of(segments), segments.len(), 0),
            Payload::Inline(bytes) => {
                inline = inline_segment(bytes);
                (&raw mut inline, 1, abi::IBV_SEND_INLINE)
            }
        };
        let mut wanted = ibv_send_wr {
            wr_id: id,
            next: ptr::null_mut(),
            sg_list: list,
            num_sge: length as c_int,
            opcode: 0,
            send_flags: request.flags.bits() | flags,
            imm_data: [0; 4],
            wr: datagram.unwrap_or(NOWHERE),
            remote_srqn: request.remote_srqn.map_or(0, Srqn::value),
            bind_mw: window.unwrap_or(NO_WINDOW),
        };
        set_work(&mut wanted, &request.work)?;
        let mut bad = ptr::null_mut();
        // SAFETY: the queue pair exists; the request and its segments live until the call returns, and so does inline data. An address
        // handle lives until the send has completed, and a window and its region until the call returns. The device checks addresses
        // and keys of segments.
        match unsafe { post(self.raw.as_ptr(), &raw mut wanted, &raw mut bad) } {
            0 => Ok(()),
            number => Err(self.why_not_posted(&request.work, number)),
        }
    }

    /// Why a send was refused. iWARP knows neither immediate data nor atomics, and providers call that an invalid argument.
    fn why_not_posted(&self, work: &Work, number: c_int) -> SystemRefusal {
        let lacks = match work {
            Work::SendImmediate(_) | Work::WriteImmediate(..) => "immediate data",
            Work::CompareSwap { .. } | Work::FetchAdd { .. } => "atomics",
            _ => return error_number("ibv_post_send", number),
        };
        if self.domain.context.is_iwarp() {
            SystemRefusal::Lacks(lacks)
        } else {
            error_number("ibv_post_send", number)
        }
    }

    /// Posts a receive.
    pub fn post_receive(&self, request: &ReceiveRequest) -> Result<(), SystemRefusal> {
        if self.shared_receives.is_some() {
            return Err(SystemRefusal::Lacks(
                "receives of its own: post to the shared queue",
            ));
        }
        match &self.datagrams {
            Some(datagrams) => {
                let receives = datagrams.requests.receives();
                receives.receive(request, |request| self.post_receive_as(request))
            }
            None => self.post_receive_as(request),
        }
    }

    fn post_receive_as(&self, request: &ReceiveRequest) -> Result<(), SystemRefusal> {
        let post = self.domain.context.operations().post_recv;
        let post = post.ok_or(SystemRefusal::Lacks("function to receive"))?;
        post_receive_with("ibv_post_recv", request, |wanted, bad| {
            // SAFETY: the queue pair exists, and the request lives until the call returns. The device checks addresses and keys.
            unsafe { post(self.raw.as_ptr(), wanted, bad) }
        })
    }

    /// Receives the datagrams of a multicast group.
    pub fn attach(&self, group: Gid) -> Result<(), SystemRefusal> {
        let attach = self.domain.context.functions.ibv_attach_mcast;
        let group = ibv_gid { raw: group.bytes() };
        // SAFETY: the queue pair exists, and the function reads one GID.
        match unsafe { attach(self.raw.as_ptr(), &raw const group, 0) } {
            0 => Ok(()),
            number => Err(error_number("ibv_attach_mcast", number)),
        }
    }

    /// Ends [`attach`](Self::attach).
    pub fn detach(&self, group: Gid) -> Result<(), SystemRefusal> {
        let detach = self.domain.context.functions.ibv_detach_mcast;
        let group = ibv_gid { raw: group.bytes() };
        // SAFETY: as in `attach`.
        match unsafe { detach(self.raw.as_ptr(), &raw const group, 0) } {
            0 => Ok(()),
            number => Err(error_number("ibv_detach_mcast", number)),
        }
    }
}

/// The destination of a datagram as C has it.
fn datagram_target(destination: &Destination, handle: &AddressHandle) -> WorkTarget {
    let ud = DatagramTarget {
        ah: handle.raw.as_ptr(),
        remote_qpn: destination.queue_pair.value(),
        remote_qkey: destination.queue_key.value(),
    };
    WorkTarget { ud }
}

/// The attributes of a queue pair as C has them.
fn wanted(init: &QueuePairInit<'_>) -> Result<ibv_qp_init_attr, SystemRefusal> {
    let kind = match init.kind {
        QueuePairType::Rc => abi::IBV_QPT_RC,
        QueuePairType::Uc => abi::IBV_QPT_UC,
        QueuePairType::Ud => abi::IBV_QPT_UD,
        QueuePairType::XrcInitiator => abi::IBV_QPT_XRC_SEND,
        QueuePairType::XrcTarget => abi::IBV_QPT_XRC_RECV,
        QueuePairType::Management => {
            return Err(SystemRefusal::NotOffered("management queue pairs"));
        }
    };
    // The ends of an extended connection have one queue, or none.
    let sends = init.kind != QueuePairType::XrcTarget;
    let receives = sends && init.kind != QueuePairType::XrcInitiator;
    let only_if = |has: bool, value: u32| if has { value } else { 0 };
    let queue = |has: bool, queue: &CompletionQueue| {
        if has {
            queue.raw.as_ptr()
        } else {
            ptr::null_mut()
        }
    };
    Ok(ibv_qp_init_attr {
        send_cq: queue(sends, init.send_completions),
        recv_cq: queue(receives, init.receive_completions),
        srq: init
            .shared_receives
            .map_or(ptr::null_mut(), |queue| queue.raw.as_ptr()),
        cap: ibv_qp_cap {
            max_send_wr: only_if(sends, init.max_sends),
            max_recv_wr: only_if(receives, init.max_receives),
            max_send_sge: only_if(sends, init.max_segments),
            max_recv_sge: only_if(receives, init.max_segments),
            max_inline_data: only_if(sends, init.max_inline),
        },
        qp_type: kind,
        ..ibv_qp_init_attr::default()
    })
}

/// Creates a queue pair with all operations beyond `ibv_post_send` that the device has, which are also returned. `None` if it has none, or the
/// provider refuses: then an ordinary queue pair is tried, whose error counts.
fn create_extended(domain: &Domain, wanted: &ibv_qp_init_attr) -> Option<(NonNull<ibv_qp>, u64)> {
    let operations = domain.context.send_operations();
    let create = operation!(domain.context, create_qp_ex).filter(|_| operations != 0)?;
    let mut wanted = ibv_qp_init_attr_ex {
        comp_mask: abi::IBV_QP_INIT_ATTR_PD | abi::IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
        pd: domain.raw.as_ptr(),
        send_ops_flags: operations,
        ..extended(wanted)
    };
    // SAFETY: domain and queues exist, and the new queue pair keeps them alive.
    let raw = unsafe { create(domain.context.raw.as_ptr(), &raw mut wanted) };
    Some((NonNull::new(raw)?, operations))
}

/// Creates the target of an extended reliable connection. It has no protection domain.
fn create_xrc_target(
    domain: &Domain,
    xrc_domain: &XrcDomain,
    wanted: &ibv_qp_init_attr,
) -> Result<NonNull<ibv_qp>, SystemRefusal> {
    let create = operation!(domain.context, create_qp_ex).ok_or(SystemRefusal::Lacks(LACKS))?;
    let mut wanted = ibv_qp_init_attr_ex {
        comp_mask: abi::IBV_QP_INIT_ATTR_XRCD,
        xrcd: xrc_domain.raw.as_ptr(),
        ..extended(wanted)
    };
    // SAFETY: the XRC domain exists, and the new queue pair keeps it alive.
    let raw = unsafe { create(domain.context.raw.as_ptr(), &raw mut wanted) };
    NonNull::new(raw).ok_or_else(|| last_error_or_lack("ibv_create_qp_ex", LACKS))
}

/// The attributes that both functions have.
fn extended(wanted: &ibv_qp_init_attr) -> ibv_qp_init_attr_ex {
    ibv_qp_init_attr_ex {
        send_cq: wanted.send_cq,
        recv_cq: wanted.recv_cq,
        srq: wanted.srq,
        cap: wanted.cap,
        qp_type: wanted.qp_type,
        ..ibv_qp_init_attr_ex::default()
    }
}

/// The queue pairs of this process, by device and number. The connection manager is told numbers only.
type QueuePairs = HashMap<(String, Qpn), Weak<QueuePair>>;

fn queue_pairs() -> MutexGuard<'static, QueuePairs> {
    static QUEUE_PAIRS: LazyLock<Mutex<QueuePairs>> = LazyLock::new(Mutex::default);
    QUEUE_PAIRS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The target of a request that has none.
const NOWHERE: WorkTarget = WorkTarget {
    rdma: RdmaTarget {
        remote_addr: 0,
        rkey: 0,
    },
};

/// The window of a request that binds none.
const NO_WINDOW: BindWindow = BindWindow {
    mw: ptr::null_mut(),
    rkey: 0,
    bind_info: ibv_mw_bind_info {
        mr: ptr::null_mut(),
        addr: 0,
        length: 0,
        mw_access_flags: 0,
    },
};

impl Drop for QueuePair {
    fn drop(&mut self) {
        // First, because a new queue pair may get its number.
        queue_pairs().remove(&self.key());
        // SAFETY: it exists, and is destroyed once.
        unsafe { (self.domain.context.functions.ibv_destroy_qp)(self.raw.as_ptr()) };
        if let Some(datagrams) = &self.datagrams {
            for queue in &self.completions {
                queue.remove_datagrams(self.number, &datagrams.requests);
            }
        }
    }
}

/// Inline data of a request, as C has it.
fn inline_segment(bytes: &[u8]) -> ibv_sge {
    ibv_sge {
        addr: bytes.as_ptr().expose_provenance() as u64,
        length: bytes.len() as u32,
        lkey: 0,
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
        Work::AtomicWrite(_) | Work::Flush { .. } => return Err(lacks(work)),
        Work::BindWindow { .. } => abi::IBV_WR_BIND_MW,
    };
    Ok(())
}
