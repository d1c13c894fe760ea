//! Shared receive queues.

use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use abi::{ibv_srq, ibv_srq_attr, ibv_srq_init_attr, ibv_srq_init_attr_ex};
use engine::{ReceiveRequest, SystemRefusal};
use wire::Srqn;

use super::completion_queue::CompletionQueue;
use super::convert::post_receive_with;
use super::datagram_requests::DatagramReceives;
use super::error::{error_number, last_error, last_error_or_lack};
use super::extended::operation;
use super::protection_domain::Domain;
use super::xrc_domain::{LACKS, XrcDomain};

/// A receive queue that several queue pairs use.
#[derive(Debug)]
pub struct SharedReceiveQueue {
    pub(super) raw: NonNull<ibv_srq>,
    pub(super) domain: Arc<Domain>,
    token: u64,
    /// The queue pairs that use it, held while a receive is posted unless these are connected ones.
    users: Mutex<Users>,
    /// Whether connected queue pairs use it, which no receive has to remember anything for.
    is_of_connections: AtomicBool,
    /// The receives that datagrams come to.
    datagrams: Arc<DatagramReceives>,
    /// What a queue for XRC also has.
    xrc: Option<ForXrc>,
}

/// Which queue pairs use a queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Users {
    #[default]
    None,
    Connections,
    Datagrams,
}

/// The number for peers, and what the queue uses.
#[derive(Debug)]
struct ForXrc {
    number: Srqn,
    _domain: Arc<XrcDomain>,
    _completions: Arc<CompletionQueue>,
}

// SAFETY: the functions of libibverbs may be called from any thread, also at the same time.
unsafe impl Send for SharedReceiveQueue {}

// SAFETY: as for `Send`.
unsafe impl Sync for SharedReceiveQueue {}

impl SharedReceiveQueue {
    /// Creates a queue for at least this many receives, each with at least this many segments.
    pub fn create(
        domain: &Arc<Domain>,
        capacity: u32,
        max_segments: u32,
    ) -> Result<Arc<Self>, SystemRefusal> {
        let token = next_token();
        let mut wanted = ibv_srq_init_attr {
            srq_context: ptr::without_provenance_mut(token as usize),
            attr: ibv_srq_attr {
                max_wr: capacity,
                max_sge: max_segments,
                srq_limit: 0,
            },
        };
        let create = domain.context.functions.ibv_create_srq;
        // SAFETY: the domain exists, and the new queue keeps it alive.
        let raw = unsafe { create(domain.raw.as_ptr(), &raw mut wanted) };
        let raw = NonNull::new(raw).ok_or_else(|| last_error("ibv_create_srq"))?;
        Ok(Arc::new(Self::new(raw, domain, token)))
    }

    /// As [`create`](Self::create), for the targets of an XRC domain. Its receives complete in `completions`.
    pub fn create_for_xrc(
        domain: &Arc<Domain>,
        xrc_domain: &Arc<XrcDomain>,
        completions: &Arc<CompletionQueue>,
        capacity: u32,
        max_segments: u32,
    ) -> Result<Arc<Self>, SystemRefusal> {
        let context = &domain.context;
        let operations = (
            operation!(context, create_srq_ex),
            operation!(context, get_srq_num),
        );
        let (Some(create), Some(number_of)) = operations else {
            return Err(SystemRefusal::Lacks(LACKS));
        };
        let token = next_token();
        let mut wanted = ibv_srq_init_attr_ex {
            srq_context: ptr::without_provenance_mut(token as usize),
            attr: ibv_srq_attr {
                max_wr: capacity,
                max_sge: max_segments,
                srq_limit: 0,
            },
            comp_mask: abi::IBV_SRQ_INIT_ATTR_TYPE
                | abi::IBV_SRQ_INIT_ATTR_PD
                | abi::IBV_SRQ_INIT_ATTR_XRCD
                | abi::IBV_SRQ_INIT_ATTR_CQ,
            srq_type: abi::IBV_SRQT_XRC,
            pd: domain.raw.as_ptr(),
            xrcd: xrc_domain.raw.as_ptr(),
            cq: completions.raw.as_ptr(),
            ..ibv_srq_init_attr_ex::default()
        };
        // SAFETY: context, domains and completion queue exist, and the new queue keeps them alive.
        let raw = unsafe { create(context.raw.as_ptr(), &raw mut wanted) };
        let raw = NonNull::new(raw);
        let raw = raw.ok_or_else(|| last_error_or_lack("ibv_create_srq_ex", LACKS))?;
        let mut queue = Self::new(raw, domain, token);
        queue.use_for_connections()?;
        let mut number = 0;
        // SAFETY: the queue exists, and the function writes one number.
        match unsafe { number_of(raw.as_ptr(), &raw mut number) } {
            0 => {}
            error => return Err(error_number("ibv_get_srq_num", error)),
        }
        queue.xrc = Some(ForXrc {
            number: Srqn::new(number),
            _domain: Arc::clone(xrc_domain),
            _completions: Arc::clone(completions),
        });
        Ok(Arc::new(queue))
    }

    fn new(raw: NonNull<ibv_srq>, domain: &Arc<Domain>, token: u64) -> Self {
        Self {
            raw,
            domain: Arc::clone(domain),
            token,
            users: Mutex::default(),
            is_of_connections: AtomicBool::new(false),
            datagrams: Arc::default(),
            xrc: None,
        }
    }

    /// Lets a connected queue pair use it.
    pub(super) fn use_for_connections(&self) -> Result<(), SystemRefusal> {
        let mut users = self.users();
        if *users == Users::Datagrams {
            return Err(MIXED);
        }
        *users = Users::Connections;
        self.datagrams.forget_early();
        self.is_of_connections.store(true, Ordering::Release);
        Ok(())
    }

    /// Lets a datagram queue pair use it, and returns the receives.
    pub(super) fn use_for_datagrams(&self) -> Result<Arc<DatagramReceives>, SystemRefusal> {
        let mut users = self.users();
        if *users == Users::Connections {
            return Err(MIXED);
        }
        *users = Users::Datagrams;
        Ok(Arc::clone(&self.datagrams))
    }

    fn users(&self) -> MutexGuard<'_, Users> {
        self.users.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Its number for peers, if it is for XRC.
    pub fn number(&self) -> Option<Srqn> {
        self.xrc.as_ref().map(|xrc| xrc.number)
    }

    /// Its number in asynchronous events.
    pub fn token(&self) -> u64 {
        self.token
    }

    /// Posts a receive.
    pub fn post_receive(&self, request: &ReceiveRequest) -> Result<(), SystemRefusal> {
        if self.is_of_connections.load(Ordering::Acquire) {
            return self.post(request);
        }
        // The first queue pair comes before or after this receive.
        let users = self.users();
        match *users {
            Users::Connections => self.post(request),
            Users::Datagrams => self
                .datagrams
                .receive(request, |request| self.post(request)),
            Users::None => {
                self.post(request)?;
                self.datagrams.add_early(request);
                Ok(())
            }
        }
    }

    fn post(&self, request: &ReceiveRequest) -> Result<(), SystemRefusal> {
        let post = self.domain.context.operations().post_srq_recv;
        let post = post.ok_or(SystemRefusal::Lacks("function to receive"))?;
        post_receive_with("ibv_post_srq_recv", request, |wanted, bad| {
            // SAFETY: the queue exists, and the request lives until the call returns. The device checks addresses and keys.
            unsafe { post(self.raw.as_ptr(), wanted, bad) }
        })
    }

    /// Asks for one event when fewer than `limit` receives are left; 0 asks for none.
    pub fn arm_limit(&self, limit: u32) -> Result<(), SystemRefusal> {
        let mut wanted = ibv_srq_attr {
            srq_limit: limit,
            ..ibv_srq_attr::default()
        };
        let modify = self.domain.context.functions.ibv_modify_srq;
        let mask = abi::IBV_SRQ_LIMIT;
        // SAFETY: the queue exists, and the structure has the size that a test compares with the header.
        match unsafe { modify(self.raw.as_ptr(), &raw mut wanted, mask) } {
            0 => Ok(()),
            number => Err(error_number("ibv_modify_srq", number)),
        }
    }
}

/// A receive for datagrams begins with 40 bytes that others do not have, so a queue is for one kind.
const MIXED: SystemRefusal = SystemRefusal::NotOffered(
    "shared receive queues of datagram and connected queue pairs at once",
);

/// A number that no other queue of this process has.
fn next_token() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

impl Drop for SharedReceiveQueue {
    fn drop(&mut self) {
        // SAFETY: no queue pair uses it any more, because each has an `Arc` of it; it is destroyed once.
        unsafe { (self.domain.context.functions.ibv_destroy_srq)(self.raw.as_ptr()) };
    }
}
