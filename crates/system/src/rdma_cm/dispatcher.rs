//! The event channel of the process, and the thread that takes its events.

use std::collections::HashMap;
use std::ffi::c_int;
use std::fmt;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr::{self, NonNull};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use abi::{rdma_cm_event, rdma_cm_id, rdma_event_channel};
use engine::SystemRefusal;

use super::CreateError;
use super::address::address_in;
use super::delivery::{Binding, Delivery, Event};
use super::id::Id;
use super::library::{Functions, functions};
use super::parameters::{destination, peer_parameters, service_parameters};
use super::task_timers::TaskTimers;
use crate::verbs::{device_name, last_error};

/// How long the thread waits after an error of the channel, such as missing memory, so that it does not spin.
const ERROR_DELAY: Duration = Duration::from_millis(10);

/// The status if the program at the other end of a TCP connection rejects. Drivers differ.
const IWARP_REJECTED: [c_int; 2] = [-libc::ECONNREFUSED, -libc::ECONNRESET];
/// The reason for that on the wire of RoCE.
const REJECTED_BY_PROGRAM: u16 = 28;

/// The event channel of the process. It exists until the process ends.
pub(super) struct Dispatcher {
    pub(super) functions: &'static Functions,
    channel: NonNull<rdma_event_channel>,
    /// An eventfd that ends the sleep of the thread.
    waker: OwnedFd,
    /// Where the events of all ids go, by the address of the id.
    deliveries: Mutex<HashMap<usize, Arc<Delivery>>>,
    /// Held during each call that reads or writes the structure of an id, because librdmacm also writes it when it takes an event.
    /// No such call waits.
    calls: Mutex<()>,
    pub(super) task_timers: TaskTimers,
}

// SAFETY: the functions of librdmacm may be called from any thread, also at the same time.
unsafe impl Send for Dispatcher {}

// SAFETY: as for `Send`.
unsafe impl Sync for Dispatcher {}

impl fmt::Debug for Dispatcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dispatcher").finish_non_exhaustive()
    }
}

impl Dispatcher {
    /// The dispatcher of this process, started at the first call.
    pub(super) fn running() -> Result<Arc<Self>, CreateError> {
        static RUNNING: Mutex<Option<Arc<Dispatcher>>> = Mutex::new(None);
        let mut running = RUNNING.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(dispatcher) = &*running {
            return Ok(Arc::clone(dispatcher));
        }
        let dispatcher = Arc::new(Self::new(functions()?)?);
        let of_thread = Arc::clone(&dispatcher);
        let builder = thread::Builder::new().name("roci-system-cm".to_owned());
        let spawned = builder.spawn(move || of_thread.serve());
        spawned.map_err(|error| SystemRefusal::Call {
            call: "pthread_create",
            number: error.raw_os_error().unwrap_or(0),
        })?;
        *running = Some(Arc::clone(&dispatcher));
        Ok(dispatcher)
    }

    fn new(functions: &'static Functions) -> Result<Self, SystemRefusal> {
        // SAFETY: takes no pointers.
        let waker = unsafe { libc::eventfd(0, libc::EFD_NONBLOCK | libc::EFD_CLOEXEC) };
        if waker < 0 {
            return Err(last_error("eventfd"));
        }
        // SAFETY: the descriptor is open, and nobody else has it.
        let waker = unsafe { OwnedFd::from_raw_fd(waker) };
        // SAFETY: takes nothing.
        let channel = unsafe { (functions.rdma_create_event_channel)() };
        let dispatcher = Self {
            functions,
            channel: NonNull::new(channel)
                .ok_or_else(|| last_error("rdma_create_event_channel"))?,
            waker,
            deliveries: Mutex::default(),
            calls: Mutex::default(),
            task_timers: TaskTimers::default(),
        };
        let fd = dispatcher.descriptor();
        // SAFETY: takes no pointers.
        let flags = unsafe { libc::fcntl(fd, libc::F_GETFL) };
        // SAFETY: takes no pointers.
        let set = unsafe { libc::fcntl(fd, libc::F_SETFL, flags | libc::O_NONBLOCK) };
        if flags < 0 || set < 0 {
            return Err(last_error("fcntl"));
        }
        Ok(dispatcher)
    }

    /// The channel, for a new id.
    pub(super) fn channel(&self) -> *mut rdma_event_channel {
        self.channel.as_ptr()
    }

    fn descriptor(&self) -> c_int {
        // SAFETY: the channel exists, and its descriptor does not change.
        unsafe { (*self.channel.as_ptr()).fd }
    }

    fn deliveries(&self) -> MutexGuard<'_, HashMap<usize, Arc<Delivery>>> {
        self.deliveries
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps others from using the structures of ids.
    pub(super) fn lock_calls(&self) -> MutexGuard<'_, ()> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Delivers the events of an id from now on.
    pub(super) fn add(&self, id: NonNull<rdma_cm_id>) -> Arc<Delivery> {
        let delivery = Arc::new(Delivery::default());
        self.deliveries()
            .insert(id.addr().get(), Arc::clone(&delivery));
        delivery
    }

    /// Forgets an id, before it is destroyed.
    pub(super) fn remove(&self, id: NonNull<rdma_cm_id>) {
        self.deliveries().remove(&id.addr().get());
    }

    fn delivery_of(&self, id: *mut rdma_cm_id) -> Option<Arc<Delivery>> {
        self.deliveries().get(&id.addr()).map(Arc::clone)
    }

    /// Makes the thread look at the timers again.
    pub(super) fn wake_thread(&self) {
        let one = 1_u64;
        // SAFETY: writes the eight bytes of a number to an open descriptor. It fails only if it was written very often already.
        unsafe { libc::write(self.waker.as_raw_fd(), (&raw const one).cast(), 8) };
    }

    fn serve(self: Arc<Self>) {
        loop {
            self.sleep();
            self.task_timers.wake_due(Instant::now());
            while self.take_event() {}
        }
    }

    /// Sleeps until there is an event, a timer is due, or the waker is written. It may return early.
    fn sleep(&self) {
        let waker = self.waker.as_raw_fd();
        let mut descriptors = [self.descriptor(), waker].map(|fd| libc::pollfd {
            fd,
            events: libc::POLLIN,
            revents: 0,
        });
        let left = self
            .task_timers
            .next()
            .map(|at| at.saturating_duration_since(Instant::now()));
        // Rounded up, so that a short time is not a busy loop.
        let milliseconds = left.map_or(-1, |left| {
            c_int::try_from(left.as_micros().div_ceil(1000)).unwrap_or(c_int::MAX)
        });
        // SAFETY: two descriptors, which are open as long as the dispatcher exists.
        unsafe { libc::poll(descriptors.as_mut_ptr(), 2, milliseconds) };
        let mut count = 0_u64;
        // SAFETY: reads at most the eight bytes of a number. The descriptor does not block.
        unsafe { libc::read(waker, (&raw mut count).cast(), 8) };
    }

    /// Takes an event and hands it to its id. Returns whether there was one.
    fn take_event(self: &Arc<Self>) -> bool {
        let calls = self.lock_calls();
        let mut event = ptr::null_mut();
        // SAFETY: the channel exists and does not block.
        let result = unsafe { (self.functions.rdma_get_cm_event)(self.channel(), &raw mut event) };
        let Some(event) = NonNull::new(event).filter(|_| result == 0) else {
            let error = io::Error::last_os_error();
            drop(calls);
            let is_empty = [io::ErrorKind::WouldBlock, io::ErrorKind::Interrupted];
            if !is_empty.contains(&error.kind()) {
                thread::sleep(ERROR_DELAY);
            }
            return false;
        };
        // SAFETY: librdmacm has filled it, and it exists until it is acknowledged.
        let found = unsafe { event.as_ptr().read() };
        let owner = match found.event {
            abi::RDMA_CM_EVENT_CONNECT_REQUEST => found.listen_id,
            _ => found.id,
        };
        let delivery = self.delivery_of(owner);
        // SAFETY: it is not acknowledged yet, and the lock is held.
        let happened = unsafe { self.read(&found, delivery.as_deref()) };
        // SAFETY: it was taken, is acknowledged once, and all that is needed of it is copied.
        unsafe { (self.functions.rdma_ack_cm_event)(event.as_ptr()) };
        drop(calls);
        // Without a delivery the id is being destroyed, and a request to it is dropped, which rejects it.
        if let Some(delivery) = delivery {
            if matches!(happened, Event::Disconnected { .. }) && delivery.confirms_end() {
                delivery.fail_queue_pair();
            }
            delivery.deliver(happened);
        }
        true
    }

    /// Reads an event.
    ///
    /// # Safety
    /// It must not be acknowledged yet, so that its id exists, and the lock of the calls must be held.
    unsafe fn read(self: &Arc<Self>, found: &rdma_cm_event, delivery: Option<&Delivery>) -> Event {
        // librdmacm reports errors of the system as negative numbers, and reasons of the peer as positive ones.
        let error = found.status.saturating_abs();
        // SAFETY: by the caller's promise, for each event that has parameters.
        let parameters = || unsafe { peer_parameters(found) };
        // SAFETY: the same.
        let service = || unsafe { service_parameters(found) };
        // SAFETY: the id exists until the event is acknowledged, and its type does not change.
        let is_datagram = NonNull::new(found.id)
            .is_some_and(|id| unsafe { (*id.as_ptr()).ps } == abi::RDMA_PS_UDP);
        match found.event {
            abi::RDMA_CM_EVENT_ADDR_RESOLVED => {
                if let (Some(delivery), Some(id)) = (delivery, NonNull::new(found.id)) {
                    // SAFETY: the id exists until the event is acknowledged, and the lock is held.
                    delivery.set_binding(unsafe { binding_of(id) });
                }
                Event::AddressResolved
            }
            abi::RDMA_CM_EVENT_ADDR_ERROR => Event::AddressError(error),
            abi::RDMA_CM_EVENT_ROUTE_RESOLVED => Event::RouteResolved,
            abi::RDMA_CM_EVENT_ROUTE_ERROR => Event::RouteError(error),
            abi::RDMA_CM_EVENT_CONNECT_REQUEST => match NonNull::new(found.id) {
                Some(id) => {
                    // SAFETY: the event made the id, for whoever takes it, and the lock is held.
                    let id = unsafe { Id::of_request(self, id) };
                    if is_datagram {
                        Event::ServiceRequest(id, service().1)
                    } else {
                        Event::Request(id, parameters())
                    }
                }
                None => Event::Other(found.event),
            },
            abi::RDMA_CM_EVENT_CONNECT_RESPONSE => Event::Response(parameters()),
            abi::RDMA_CM_EVENT_CONNECT_ERROR => Event::ConnectError(error),
            abi::RDMA_CM_EVENT_UNREACHABLE => Event::Unreachable {
                service_status: u8::try_from(found.status).ok().filter(|it| *it != 0),
                private_data: if is_datagram { service().1 } else { Vec::new() },
            },
            abi::RDMA_CM_EVENT_REJECTED => Event::Rejected {
                reason: match found.status {
                    status if IWARP_REJECTED.contains(&status) => REJECTED_BY_PROGRAM,
                    status => u16::try_from(status).unwrap_or(0),
                },
                private_data: parameters().private_data,
            },
            abi::RDMA_CM_EVENT_ESTABLISHED if is_datagram => {
                let (destination, private_data) = service();
                Event::ServiceFound {
                    destination,
                    private_data,
                }
            }
            abi::RDMA_CM_EVENT_ESTABLISHED
                if delivery.is_some_and(Delivery::is_answered_by_establishment) =>
            {
                Event::Response(parameters())
            }
            abi::RDMA_CM_EVENT_ESTABLISHED => Event::Established,
            abi::RDMA_CM_EVENT_MULTICAST_JOIN | abi::RDMA_CM_EVENT_MULTICAST_ERROR => {
                // SAFETY: such events are about datagrams, and have what the program passed to the call in this place.
                let place = unsafe { found.param.ud.private_data }.addr();
                match delivery.and_then(|delivery| delivery.group_at(place)) {
                    Some(group) if found.event == abi::RDMA_CM_EVENT_MULTICAST_JOIN => {
                        // SAFETY: the event is about datagrams.
                        let destination = unsafe { destination(found) };
                        Event::MulticastJoined { group, destination }
                    }
                    Some(group) => Event::MulticastError { group, error },
                    None => Event::Other(found.event),
                }
            }
            abi::RDMA_CM_EVENT_DISCONNECTED => {
                // The kernel confirms the end to the peer only when it is asked to. If this end began it, the call fails, and that is fine.
                if delivery.is_some_and(Delivery::confirms_end) {
                    // SAFETY: the id exists until the event is acknowledged.
                    unsafe { (self.functions.rdma_disconnect)(found.id) };
                }
                let timed_out = found.status != 0;
                Event::Disconnected { timed_out }
            }
            abi::RDMA_CM_EVENT_DEVICE_REMOVAL => Event::DeviceRemoval,
            abi::RDMA_CM_EVENT_ADDR_CHANGE => Event::AddressChange,
            abi::RDMA_CM_EVENT_TIMEWAIT_EXIT => Event::TimewaitExit,
            other => Event::Other(other),
        }
    }
}

/// Where an id is.
///
/// # Safety
/// The id must exist, and the lock of the calls must be held.
pub(super) unsafe fn binding_of(id: NonNull<rdma_cm_id>) -> Binding {
    // SAFETY: the id exists, and nobody writes it while the lock is held.
    let id = unsafe { id.as_ptr().read() };
    let (verbs, address) = (id.verbs, id.route.addr);
    Binding {
        // SAFETY: the context of an id is open as long as the id exists.
        device: NonNull::new(verbs).and_then(|verbs| unsafe { device_name(verbs) }),
        local: address_in(&address.src_storage),
        peer: address_in(&address.dst_storage),
    }
}

impl Drop for Dispatcher {
    fn drop(&mut self) {
        // SAFETY: it has no ids, because each has an `Arc` of it, and is destroyed once.
        unsafe { (self.functions.rdma_destroy_event_channel)(self.channel()) };
    }
}
