//! Ids of both kinds.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use driver::Driver;
use driver::rdma_cm::{
    self as software, CmError, EventKind, Failure, Parameters, PortSpace, RejectReason,
    ServiceType, State, Token,
};
use engine::{Attributes, State as QueuePairState, SystemRefusal};
use system::rdma_cm::{IdOption, Service};
use wire::{AckTimeout, Qpn, RnrTimer};

use super::channel::EventChannel;
use super::system_id::{Devices, SystemId, kind_of};
use crate::context::{Context, Opened};
use crate::system_device;

/// One end of a connection, or a listener, like `rdma_cm_id`. Dropping it ends the connection.
pub struct CmId(Arc<Shared>);

struct Shared {
    place: Mutex<Place>,
    /// At listeners of devices of the system: the requests whose events were not taken yet.
    requests: Mutex<VecDeque<system::rdma_cm::Id>>,
    /// Whether the end of its connection is confirmed to the peer at once.
    confirms_end: AtomicBool,
    /// Its name in events, and the way of its events to the channel, whatever its device.
    software: software::CmId,
}

/// The kind of devices that an id uses.
enum Place {
    Software,
    System {
        devices: Devices,
        id: Option<Arc<SystemId>>,
        rnr_timer: Option<RnrTimer>,
    },
}

/// The ids that are at devices of the system, by their names in events.
type SystemIds = HashMap<Token, Weak<Shared>>;

fn system_ids() -> MutexGuard<'static, SystemIds> {
    static SYSTEM_IDS: LazyLock<Mutex<SystemIds>> = LazyLock::new(Mutex::default);
    SYSTEM_IDS.lock().unwrap_or_else(PoisonError::into_inner)
}

impl CmId {
    pub(super) fn create(
        channel: &EventChannel,
        space: PortSpace,
        service_type: ServiceType,
    ) -> Self {
        // If the variable can't be parsed, the first call that needs a device says so.
        let choice = system_device::of_addresses().ok().flatten();
        let place = choice.map_or(Place::Software, |choice| {
            Place::system(Devices::Any(choice))
        });
        let id = channel.software.create_id_for(space, service_type);
        Self::new(id, channel.confirms_end, place)
    }

    pub(super) fn of_software(id: software::CmId) -> Self {
        Self::new(id, false, Place::Software)
    }

    /// The oldest request to a listener at devices of the system. One at a device that was not chosen is dropped, which rejects it.
    pub(super) fn of_system_request(channel: &EventChannel, listener: Token) -> Option<Self> {
        let listener = system_ids().get(&listener).and_then(Weak::upgrade)?;
        let request = listener.requests().pop_front()?;
        let devices = match &*listener.place() {
            Place::System { devices, .. } => devices.clone(),
            Place::Software => return None,
        };
        let of = &listener.software;
        let service = service_of(of.service_type()).ok()?;
        let id = SystemId::of_request(request, devices.clone(), service);
        id.context().ok()?;
        let new = channel
            .software
            .create_id_for(of.port_space(), of.service_type());
        let new = Self::new(new, channel.confirms_end, Place::system(devices));
        new.0.adopt(id);
        Some(new)
    }

    fn new(software: software::CmId, confirms_end: bool, place: Place) -> Self {
        Self(Arc::new(Shared {
            place: Mutex::new(place),
            requests: Mutex::default(),
            confirms_end: confirms_end.into(),
            software,
        }))
    }

    /// Its name in events.
    #[must_use]
    pub fn token(&self) -> Token {
        self.0.software.token()
    }

    /// Its port space.
    #[must_use]
    pub fn port_space(&self) -> PortSpace {
        self.0.software.port_space()
    }

    /// Its queue pair type.
    #[must_use]
    pub fn service_type(&self) -> ServiceType {
        self.0.software.service_type()
    }

    /// Its driver, once its device is known and if it is a software device. [`Context::from_id`] knows devices of both kinds.
    #[must_use]
    pub fn driver(&self) -> Option<Arc<Driver>> {
        self.0.software.driver()
    }

    /// Its device, once that is known.
    pub(crate) fn context(&self) -> Result<Context, CmError> {
        match self.bound() {
            Some(id) => id.context(),
            None => self.driver().map(Context::from).ok_or(CmError::NotBound),
        }
    }

    /// Restricts it to one device, before it has an address.
    pub fn choose(&self, device: &Context) {
        match device.opened() {
            Opened::Software(driver) => {
                self.0.move_to(Place::Software);
                let Ok(()) = self.0.software.choose(Arc::clone(driver));
            }
            Opened::System(_) => self.0.move_to(Place::system(Devices::One(device.clone()))),
        }
    }

    /// Its local address, once it has one.
    #[must_use]
    pub fn local_address(&self) -> Option<SocketAddr> {
        match self.bound() {
            Some(id) => id.local_address(),
            None => self.0.software.local_address(),
        }
    }

    /// The peer's address, once there is one.
    #[must_use]
    pub fn peer_address(&self) -> Option<SocketAddr> {
        match self.bound() {
            Some(id) => id.peer_address(),
            None => self.0.software.peer_address(),
        }
    }

    /// Its state; `None` before it is at a device, and at devices of the system, which do not tell it.
    #[must_use]
    pub fn state(&self) -> Option<State> {
        self.0.software.state()
    }

    /// Adds an event of the application to its channel.
    pub fn write_event(&self, code: u32, status: i32, argument: u64) {
        self.0.software.write_event(code, status, argument);
    }

    /// Delivers its events to another channel from now on, including those that were not taken yet.
    pub fn migrate(&self, channel: &EventChannel) {
        let confirms_end = channel.confirms_end;
        self.0.confirms_end.store(confirms_end, Ordering::Relaxed);
        if let Some(id) = self.bound() {
            id.confirm_end(confirms_end);
        }
        self.0.software.migrate(&channel.software);
    }

    /// Binds it to a local address and port. An unspecified address stands for all addresses; with
    /// port 0, a free port is chosen. Returns the address and port.
    pub fn bind(&self, address: SocketAddr) -> Result<SocketAddr, CmError> {
        match self.0.system()? {
            Some(id) => id.bind(address),
            None => self.0.software.bind(address),
        }
    }

    /// Starts to listen; `backlog` requests may wait for the application.
    pub fn listen(&self, backlog: usize) -> Result<(), CmError> {
        match self.0.system()? {
            Some(id) => id.listen(backlog),
            None => self.0.software.listen(backlog),
        }
    }

    /// Starts to resolve the address of a peer, and binds the id if it is not bound. An event
    /// reports the result.
    pub fn resolve_address(
        &self,
        source: Option<SocketAddr>,
        peer: SocketAddr,
        timeout: Duration,
    ) -> Result<(), CmError> {
        match self.0.system()? {
            Some(id) => id.resolve_address(source, peer, timeout),
            None => self.0.software.resolve_address(source, peer, timeout),
        }
    }

    /// Starts to resolve the route. An event reports the result.
    pub fn resolve_route(&self, timeout: Duration) -> Result<(), CmError> {
        match self.0.system()? {
            Some(id) => id.resolve_route(timeout),
            None => self.0.software.resolve_route(timeout),
        }
    }

    /// Asks the peer for a connection, or for its datagram service.
    pub fn connect(&self, parameters: &Parameters<'_>) -> Result<(), CmError> {
        match self.0.system()? {
            Some(id) => {
                if let Some(failed) = id.connect(parameters)? {
                    self.0.software.report(failed);
                }
                Ok(())
            }
            None => self.0.software.connect(parameters),
        }
    }

    /// Tells the peer, after its response, that the queue pair is ready.
    pub fn establish(&self) -> Result<(), CmError> {
        match self.0.system()? {
            Some(id) => id.establish(),
            None => self.0.software.establish(),
        }
    }

    /// Reports that the peer accepted, but the queue pair could not be made ready.
    pub fn connect_failed(&self, failure: Failure) -> Result<(), CmError> {
        match self.0.system()? {
            Some(id) => id.reject(&[]),
            None => self.0.software.connect_failed(failure),
        }
    }

    /// Accepts a connection or a request for a datagram service.
    pub fn accept(&self, parameters: &Parameters<'_>) -> Result<(), CmError> {
        match self.0.system()? {
            Some(id) => id.accept(parameters),
            None => self.0.software.accept(parameters),
        }
    }

    /// Rejects a connection or a request for a datagram service. At devices of the system the reason is always
    /// [`RejectReason::Consumer`].
    pub fn reject(&self, reason: RejectReason, private_data: &[u8]) -> Result<(), CmError> {
        match self.0.system()? {
            Some(id) => id.reject(private_data),
            None => self.0.software.reject(reason, private_data),
        }
    }

    /// Disconnects, or agrees to a disconnection. The queue pair enters the error state.
    pub fn disconnect(&self) -> Result<(), CmError> {
        match self.0.system()? {
            Some(id) => id.disconnect(),
            None => self.0.software.disconnect(),
        }
    }

    /// Reports that a packet has arrived at its queue pair: the peer must be ready. The kernel sees such packets itself, so
    /// this is not offered at devices of the system.
    pub fn notify_established(&self, number: Qpn) -> Result<bool, CmError> {
        self.0.only_software("reports of the first packet")?;
        self.0.software.notify_established(number)
    }

    /// Joins a multicast group. An event contains its address. The program attaches its queue pair
    /// ([`DatagramQueuePair::join`](crate::DatagramQueuePair::join)).
    pub fn join(&self, group: IpAddr, send_only: bool) -> Result<(), CmError> {
        match self.0.system()? {
            Some(id) => id.join(group, send_only),
            None => self.0.software.join(group, send_only),
        }
    }

    /// Leaves a multicast group.
    pub fn leave(&self, group: IpAddr) -> Result<(), CmError> {
        match self.0.system()? {
            Some(id) => id.leave(group),
            None => self.0.software.leave(group),
        }
    }

    /// The attributes that move its queue pair to the state INIT.
    pub fn init_attributes(&self) -> Result<Attributes, CmError> {
        match self.0.system()? {
            Some(id) => id.attributes(QueuePairState::Initialized),
            None => self.0.software.init_attributes(),
        }
    }

    /// The attributes that move its queue pair to the state RTR (ready to receive).
    pub fn receive_attributes(&self) -> Result<Attributes, CmError> {
        let Some(id) = self.0.system()? else {
            return self.0.software.receive_attributes();
        };
        let found = id.attributes(QueuePairState::ReadyToReceive)?;
        let chosen = match &*self.0.place() {
            Place::System { rnr_timer, .. } => *rnr_timer,
            Place::Software => None,
        };
        Ok(Attributes {
            rnr_timer: chosen.or(found.rnr_timer),
            ..found
        })
    }

    /// The attributes that move its queue pair to the state RTS (ready to send).
    pub fn send_attributes(&self) -> Result<Attributes, CmError> {
        match self.0.system()? {
            Some(id) => id.attributes(QueuePairState::ReadyToSend),
            None => self.0.software.send_attributes(),
        }
    }

    /// Puts an event of it back into the channel, behind others.
    pub(crate) fn put_back(&self, event: EventKind) {
        self.0.software.report(event);
    }

    /// Sets the traffic class (ToS) of everything that it sends.
    pub fn set_traffic_class(&self, class: u8) -> Result<(), CmError> {
        match self.0.system()? {
            Some(id) => id.set_option(IdOption::TrafficClass(class)),
            None => self.0.software.set_traffic_class(class),
        }
    }

    /// Sets the acknowledge timeout of its queue pair.
    pub fn set_ack_timeout(&self, timeout: AckTimeout) -> Result<(), CmError> {
        match self.0.system()? {
            Some(id) => id.set_option(IdOption::AckTimeout(timeout)),
            None => self.0.software.set_ack_timeout(timeout),
        }
    }

    /// Sets how long the peer waits if no receive is posted.
    pub fn set_rnr_timer(&self, timer: RnrTimer) -> Result<(), CmError> {
        if let Place::System { rnr_timer, .. } = &mut *self.0.place() {
            *rnr_timer = Some(timer);
            return Ok(());
        }
        self.0.software.set_rnr_timer(timer)
    }

    /// Lets several ids share a port while none of them listens.
    pub fn set_reuse_address(&self, reuse: bool) -> Result<(), CmError> {
        match self.0.system()? {
            Some(id) => id.set_option(IdOption::ReuseAddress(reuse)),
            None => self.0.software.set_reuse_address(reuse),
        }
    }

    /// Sets whether a listener on all addresses accepts only its own address family.
    pub fn set_family_only(&self, only: bool) -> Result<(), CmError> {
        match self.0.system()? {
            Some(id) => id.set_option(IdOption::FamilyOnly(only)),
            None => self.0.software.set_family_only(only),
        }
    }

    /// The id of the system's connection manager, if there is one already.
    fn bound(&self) -> Option<Arc<SystemId>> {
        match &*self.0.place() {
            Place::System { id, .. } => id.clone(),
            Place::Software => None,
        }
    }

    /// Whether it is for devices of the system.
    pub(crate) fn is_of_system(&self) -> bool {
        matches!(&*self.0.place(), Place::System { .. })
    }
}

impl Place {
    fn system(devices: Devices) -> Self {
        Self::System {
            devices,
            id: None,
            rnr_timer: None,
        }
    }
}

impl Shared {
    fn place(&self) -> MutexGuard<'_, Place> {
        self.place.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Leaves the devices that it was for. The id at those of the system is destroyed, with its requests.
    fn move_to(&self, new: Place) {
        let old = std::mem::replace(&mut *self.place(), new);
        if let Place::System { .. } = old {
            system_ids().remove(&self.software.token());
            let requests = std::mem::take(&mut *self.requests());
            // Dropped here, and not under a lock: both wait until the library has told the peers.
            drop((requests, old));
        }
    }

    fn requests(&self) -> MutexGuard<'_, VecDeque<system::rdma_cm::Id>> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn only_software(&self, what: &'static str) -> Result<(), SystemRefusal> {
        match &*self.place() {
            Place::Software => Ok(()),
            Place::System { .. } => Err(SystemRefusal::NotOffered(what)),
        }
    }

    /// The id of the system's connection manager, created at the first call; `None` if it is for our devices.
    fn system(self: &Arc<Self>) -> Result<Option<Arc<SystemId>>, CmError> {
        let devices = match &*self.place() {
            Place::Software => return Ok(None),
            Place::System { id: Some(id), .. } => return Ok(Some(Arc::clone(id))),
            Place::System { devices, .. } => devices.clone(),
        };
        let service = service_of(self.software.service_type())?;
        // Not under the lock: the library is loaded now.
        Ok(self.adopt(SystemId::create(devices, service)?))
    }

    /// Uses an id of the system's connection manager from now on, unless it has one.
    fn adopt(self: &Arc<Self>, new: SystemId) -> Option<Arc<SystemId>> {
        let new = {
            let mut place = self.place();
            let Place::System { id, .. } = &mut *place else {
                return None;
            };
            if let Some(id) = id {
                return Some(Arc::clone(id));
            }
            new.confirm_end(self.confirms_end.load(Ordering::Relaxed));
            Arc::clone(id.insert(Arc::new(new)))
        };
        system_ids().insert(self.software.token(), Arc::downgrade(self));
        let owner = Arc::downgrade(self);
        new.deliver_to(Arc::new(move |event| {
            if let Some(owner) = owner.upgrade() {
                owner.report(event);
            }
        }));
        Some(new)
    }

    /// Adds an event of the system's connection manager to the channel.
    fn report(&self, event: system::rdma_cm::Event) {
        let local = match &*self.place() {
            Place::System { id: Some(id), .. } => id.local_address(),
            _ => None,
        };
        let (kind, request) = kind_of(event, local);
        self.requests().extend(request);
        if let Some(kind) = kind {
            self.software.report(kind);
        }
    }
}

/// What ids of the system's connection manager can be for.
fn service_of(wanted: ServiceType) -> Result<Service, SystemRefusal> {
    match wanted {
        ServiceType::ReliableConnection => Ok(Service::Connections),
        ServiceType::Datagram => Ok(Service::Datagrams),
        _ => {
            let what = "ids for other than reliable connections and datagrams";
            Err(SystemRefusal::NotOffered(what))
        }
    }
}

impl Drop for CmId {
    fn drop(&mut self) {
        if self.is_of_system() {
            // The thread that reports an event may have the rest of it for a moment longer: nobody gets that event.
            let nobody = software::EventChannel::private();
            self.0.software.migrate(&nobody);
            self.0.move_to(Place::Software);
        }
    }
}

impl fmt::Debug for CmId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0.software, f)
    }
}
