//! Addresses, ports and listeners.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::ops::RangeInclusive;

use wire::cm::{PortSpace, ServiceId};

use crate::error::{BindError, CallError};
use crate::event::EventKind;
use crate::id::{Backlog, Id, IdEntry, State};
use crate::manager::Manager;
use crate::planted_bug::Bug;

impl Manager {
    /// Adds a local address.
    pub fn add_address(&mut self, address: IpAddr) {
        self.addresses.insert(address);
    }

    /// The address moved to another interface: reports it to all ids that are bound to it.
    pub fn address_changed(&mut self, address: IpAddr) {
        for id in self.bound_to(|ip| ip == address) {
            self.emit(id, EventKind::AddressChange);
        }
    }

    /// The device was removed. All ids that are bound to an address get an event, and can only be
    /// destroyed. Peers get no message, because nothing can be sent.
    pub fn device_removed(&mut self) {
        for id in self.bound_to(|ip| !ip.is_unspecified()) {
            self.remove_exchange(id);
            self.leave_backlog(id);
            self.known(id).state = State::DeviceRemoved;
            self.emit(id, EventKind::DeviceRemoval);
        }
    }

    /// Allows several ids to share a port, as long as none of them listens.
    pub fn set_reuse_address(&mut self, id: Id, reuse: bool) -> Result<(), CallError> {
        let entry = self.entry_mut(id)?;
        // Linux allows a bound id to set the option, but not to clear it.
        let allowed = match entry.state {
            State::Idle => true,
            State::AddressBound => reuse,
            _ => false,
        };
        if !allowed {
            return Err(CallError::WrongState(entry.state));
        }
        entry.options.reuse_address = reuse;
        Ok(())
    }

    /// Sets whether a listener on all addresses accepts its own address family only.
    pub fn set_family_only(&mut self, id: Id, only: bool) -> Result<(), CallError> {
        let entry = self.entry_mut(id)?;
        if !matches!(entry.state, State::Idle | State::AddressBound) {
            return Err(CallError::WrongState(entry.state));
        }
        entry.options.family_only = Some(only);
        Ok(())
    }

    /// Binds an id to a local address and port. Port 0 chooses a free port. Returns the bound address.
    pub fn bind(&mut self, id: Id, address: SocketAddr) -> Result<SocketAddr, BindError> {
        let entry = self.entry(id).map_err(|_| BindError::UnknownId)?;
        if entry.state != State::Idle {
            return Err(BindError::WrongState(entry.state));
        }
        let space = entry.space;
        let ip = address.ip();
        if !ip.is_unspecified() && !self.addresses.contains(&ip) {
            return Err(BindError::AddressNotAvailable(address));
        }
        let port = match address.port() {
            0 => self.free_port(space)?,
            port => self.check_port(id, address, port)?,
        };
        let bound = SocketAddr::new(ip, port);
        self.ports.entry((space as u16, port)).or_default().push(id);
        let entry = self.known(id);
        entry.source = Some(bound);
        entry.owns_port = true;
        entry.state = State::AddressBound;
        Ok(bound)
    }

    /// Listens for requests. At most `backlog` requests wait for the application; 0 means
    /// [`Config::max_backlog`](crate::Config::max_backlog). An idle id is bound to all IPv4 addresses
    /// first.
    pub fn listen(&mut self, id: Id, backlog: usize) -> Result<(), CallError> {
        let entry = self.entry(id)?;
        if entry.state == State::Idle {
            self.bind(id, SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), 0))?;
        }
        let entry = self.entry(id)?;
        let (State::AddressBound, Some(source)) = (entry.state, entry.source) else {
            return Err(CallError::WrongState(entry.state));
        };
        if entry.options.reuse_address {
            // Ids can't share a port while one of them listens.
            let owners = self.owners(entry.space, source.port());
            check_owners(entry, source, owners, false)?;
        }
        let most = self.config.max_backlog;
        let limit = if backlog == 0 {
            most
        } else {
            backlog.min(most)
        };
        let entry = self.known(id);
        entry.state = State::Listening;
        entry.backlog = Some(Backlog { limit, waiting: 0 });
        Ok(())
    }

    /// The application has taken the event of a request, so it leaves the backlog, as on Linux. A
    /// request also leaves the backlog when its id is answered or destroyed.
    pub fn request_taken(&mut self, id: Id) -> Result<(), CallError> {
        self.entry(id)?;
        self.leave_backlog(id);
        Ok(())
    }

    /// The services of all listeners, for the registry of a shared address.
    pub fn listening(&self) -> impl Iterator<Item = (ServiceId, IpAddr)> + '_ {
        self.id_table
            .values()
            .filter(|entry| entry.state == State::Listening)
            .filter_map(|entry| {
                let source = entry.source?;
                let service = ServiceId::of_port(entry.space, source.port());
                Some((service, source.ip()))
            })
    }

    /// Whether an id listens on a service, at any address.
    pub fn is_listening(&self, service: ServiceId) -> bool {
        let Some((space, port)) = service.port() else {
            return false;
        };
        let mut owners = self.owners(space, port);
        owners.any(|entry| entry.state == State::Listening)
    }

    /// The listener of a service at one of our addresses. An id that is bound to the address takes
    /// precedence over one that is bound to all addresses.
    pub(super) fn listener(&self, service: ServiceId, address: IpAddr) -> Option<Id> {
        let (space, port) = service.port()?;
        let owners = self.ports.get(&(space as u16, port))?;
        let precedence = |id: &&Id| listening_precedence(self.id_table.get(**id)?, address);
        owners
            .iter()
            .filter(|id| precedence(id).is_some())
            .max_by_key(|id| precedence(id))
            .copied()
    }

    pub(super) fn release_port(&mut self, id: Id) {
        let entry = self.known(id);
        let (true, Some(source)) = (entry.owns_port, entry.source) else {
            return;
        };
        let port = (entry.space as u16, source.port());
        let owners = self.ports.get_mut(&port).expect("a bound id has its port");
        owners.retain(|&owner| owner != id);
        if owners.is_empty() {
            self.ports.remove(&port);
        }
    }

    pub(super) fn leave_backlog(&mut self, id: Id) {
        let Some(listener) = self.known(id).backlog_of.take() else {
            return;
        };
        if self.planted.is(Bug::BacklogLeaks) {
            return;
        }
        let listener = self.known(listener);
        if let Some(backlog) = &mut listener.backlog {
            backlog.waiting -= 1;
        }
    }

    fn bound_to(&self, matches: impl Fn(IpAddr) -> bool) -> Vec<Id> {
        let bound = self.id_table.iter().filter(|(_, entry)| {
            let source = entry.source.map(|source| source.ip());
            entry.state != State::DeviceRemoved && source.is_some_and(&matches)
        });
        bound.map(|(id, _)| id).collect()
    }

    fn owners(&self, space: PortSpace, port: u16) -> impl Iterator<Item = &IdEntry> {
        let owners = self.ports.get(&(space as u16, port));
        owners
            .into_iter()
            .flatten()
            .filter_map(|id| self.id_table.get(*id))
    }

    fn check_port(&self, id: Id, address: SocketAddr, port: u16) -> Result<u16, BindError> {
        let entry = self.id_table.get(id).ok_or(BindError::UnknownId)?;
        let owners = self.owners(entry.space, port);
        check_owners(entry, address, owners, entry.options.reuse_address)?;
        Ok(port)
    }

    /// Searches from a random port on. Never returns the same port twice in a row.
    fn free_port(&mut self, space: PortSpace) -> Result<u16, BindError> {
        let range = self.config.ephemeral_ports.clone();
        let first = *range.start() + self.random.below(length(&range)) as u16;
        let in_order = (first..=*range.end()).chain(*range.start()..first);
        let free = |port: &u16| {
            *port != self.last_port && !self.ports.contains_key(&(space as u16, *port))
        };
        let port = in_order.into_iter().find(free);
        self.last_port = port.ok_or(BindError::NoPortLeft)?;
        Ok(self.last_port)
    }
}

fn length(range: &RangeInclusive<u16>) -> u32 {
    u32::from(range.end() - range.start()) + 1
}

/// Whether an id may share a port with the ids that have it.
fn check_owners<'a>(
    entry: &IdEntry,
    address: SocketAddr,
    owners: impl Iterator<Item = &'a IdEntry>,
    reuse: bool,
) -> Result<(), BindError> {
    for owner in owners {
        let Some(taken) = owner.source else { continue };
        let is_itself = std::ptr::eq(owner, entry);
        let shared = reuse && owner.options.reuse_address && owner.state != State::Listening;
        if is_itself || shared || are_disjoint(entry, address, owner, taken) {
            continue;
        }
        if address.ip().is_unspecified() || taken.ip().is_unspecified() {
            return Err(BindError::AddressNotAvailable(address));
        }
        if address.ip() == taken.ip() {
            return Err(BindError::AddressInUse(address));
        }
    }
    Ok(())
}

/// Whether two ids have different address families and each accepts its own only.
fn are_disjoint(entry: &IdEntry, address: SocketAddr, owner: &IdEntry, taken: SocketAddr) -> bool {
    let only = entry.options.family_only.unwrap_or(address.is_ipv4());
    only && owner.family_only() && address.is_ipv4() != taken.is_ipv4()
}

/// The precedence of a listener for an address: none if it does not accept it, 2 for the exact
/// address, less for all addresses.
fn listening_precedence(entry: &IdEntry, address: IpAddr) -> Option<u8> {
    let source = entry.source?.ip();
    if entry.state != State::Listening {
        return None;
    }
    if source == address {
        return Some(2);
    }
    let same_family = source.is_ipv4() == address.is_ipv4();
    let takes = source.is_unspecified() && (same_family || !entry.family_only());
    takes.then_some(u8::from(same_family))
}
