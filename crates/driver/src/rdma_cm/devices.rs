//! Finds the device for an address or a peer, and keeps each device open only once.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use cm::Failure;
use net::socket::interface::Device;

use super::CmError;
use crate::Driver;
use crate::devices::devices as choosable;
use crate::fabric::here;
use crate::options::OpenOptions;

/// The devices of this process's ids, and those that were offered to them. A device closes when it is not used any more.
static OPEN: Mutex<Vec<Weak<Driver>>> = Mutex::new(Vec::new());

/// Offers an open device to the ids of this process: an id at one of its addresses uses it, so that its objects fit the
/// connections of the id. If several open devices have an address, the first one counts.
pub fn offer(driver: &Arc<Driver>) {
    lock().push(Arc::downgrade(driver));
}

/// The devices that have an address to bind to, and the address to bind to there.
pub(super) fn having(address: SocketAddr) -> Result<(Vec<Arc<Driver>>, SocketAddr), CmError> {
    if address.ip().is_unspecified() {
        return Ok((all()?, address));
    }
    match at(address.ip()) {
        // Linux accepts a loopback address for any address.
        Err(CmError::NoDevice(ip)) if ip.is_loopback() => {
            let any = match ip {
                IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
                IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
            };
            Ok((all()?, SocketAddr::new(any, address.port())))
        }
        device => Ok((vec![device?], address)),
    }
}

/// The device that has an address of this machine.
pub(super) fn at(address: IpAddr) -> Result<Arc<Driver>, CmError> {
    if let Some(driver) = open_one(|device| device.gid_of(address).is_some()) {
        return Ok(driver);
    }
    let device = match crate::devices::device_at(address)? {
        Some(device) => device,
        None => unlisted(address).ok_or(CmError::NoDevice(address))?,
    };
    open(device)
}

/// The device of an address in 127.0.0.0/8, which exists without being listed. `None` if the user
/// lists the devices: programs try all addresses of a machine to find those that have a device.
fn unlisted(address: IpAddr) -> Option<Device> {
    match net::socket::interface::listed_by_env() {
        Some(_) => None,
        None => named_by(address),
    }
}

/// All devices that peers can reach, including loopback, which peers on this machine use.
pub(super) fn all() -> Result<Vec<Arc<Driver>>, CmError> {
    open_each(here(|machine| machine.reachable())?)
}

/// All devices that programs choose from.
pub(super) fn listed() -> Result<Vec<Arc<Driver>>, CmError> {
    open_each(choosable()?)
}

/// Opens each device. One that can't be opened is left out, unless that leaves none.
fn open_each(devices: Vec<Device>) -> Result<Vec<Arc<Driver>>, CmError> {
    let (mut drivers, mut refused) = (Vec::new(), None);
    for device in devices {
        match at_device(device) {
            Ok(driver) => drivers.push(driver),
            Err(error) => refused = Some(error),
        }
    }
    match refused {
        Some(error) if drivers.is_empty() => Err(error),
        _ => Ok(drivers),
    }
}

/// The device and the local address from which a peer can be reached.
pub(super) fn towards(peer: SocketAddr) -> Result<(Arc<Driver>, IpAddr), CmError> {
    let source = here(|machine| machine.source_towards(peer)).map_err(|source| {
        let peer = peer.ip();
        CmError::NoRoute { peer, source }
    })?;
    match at(source) {
        Ok(driver) => Ok((driver, source)),
        // The route may start at an address that no device has. A local address can be reached from
        // itself, and a loopback address from every other loopback address.
        Err(CmError::NoDevice(_)) => match (at(peer.ip()), other_loopback(peer.ip())) {
            (Err(CmError::NoDevice(_)), Some((device, address))) => {
                Ok((at_device(device)?, address))
            }
            (driver, _) => Ok((driver?, peer.ip())),
        },
        Err(error) => Err(error),
    }
}

/// A device with another loopback address, if the peer's address is one.
fn other_loopback(peer: IpAddr) -> Option<(Device, IpAddr)> {
    loopback_of(choosable().ok()?, peer)
}

fn loopback_of(devices: Vec<Device>, peer: IpAddr) -> Option<(Device, IpAddr)> {
    let reaches = |own: IpAddr| own.is_loopback() && own.is_ipv4() == peer.is_ipv4();
    let found = devices.into_iter().find_map(|device| {
        let entry = device.gids.iter().find(|entry| reaches(entry.address));
        entry.map(|entry| entry.address).map(|own| (device, own))
    });
    found.filter(|_| peer.is_loopback())
}

fn at_device(device: Device) -> Result<Arc<Driver>, CmError> {
    open_one(|it| it.name == device.name).map_or_else(|| open(device), Ok)
}

/// An unspecified peer is this machine, as on Linux.
pub(super) fn or_loopback(peer: SocketAddr) -> SocketAddr {
    let ip = match peer.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    match peer {
        SocketAddr::V6(v6) if v6.ip() == &ip => peer,
        _ => SocketAddr::new(ip, peer.port()),
    }
}

fn open(device: Device) -> Result<Arc<Driver>, CmError> {
    let driver = Driver::open_device(device, &OpenOptions::from_env())?;
    offer(&driver);
    Ok(driver)
}

fn open_one(wanted: impl Fn(&Device) -> bool) -> Option<Arc<Driver>> {
    let mut open = lock();
    open.retain(|it| it.strong_count() > 0);
    let mut living = open.iter().filter_map(Weak::upgrade);
    // A device that was opened before a fork belongs to the parent.
    living.find(|it| it.is_here() && wanted(it.device()) && !it.is_inherited())
}

fn named_by(address: IpAddr) -> Option<Device> {
    let named = here(|machine| machine.named(&address.to_string()));
    named.into_iter().next()
}

fn lock() -> MutexGuard<'static, Vec<Weak<Driver>>> {
    OPEN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The failure that an event reports for this error.
pub(super) fn failure(error: &CmError) -> Failure {
    let number = match error {
        CmError::NoRoute { source, .. } => source.raw_os_error(),
        CmError::Open(error) => error.os_error(),
        _ => None,
    };
    number.map_or(Failure::NoDevice, Failure::Os)
}

#[cfg(test)]
mod tests {
    use std::io;

    use net::sharing::JoinError;

    use super::*;
    use crate::options::OpenError;

    fn device(name: &str, addresses: &str) -> Device {
        let specification = format!("{name}={addresses}");
        let devices =
            net::socket::interface::devices(Some(&specification)).expect("loopback addresses");
        devices.into_iter().next().expect("one")
    }

    #[test]
    fn a_device_that_cant_be_opened_is_reported_with_its_reason() {
        const EMFILE: i32 = 24;
        let full = io::Error::from_raw_os_error(EMFILE);
        let errors = [
            OpenError::Join(JoinError::TooManyFiles { limit: 64 }),
            OpenError::System(full),
        ];
        for error in errors {
            assert_eq!(failure(&CmError::Open(error)), Failure::Os(EMFILE));
        }
        let nowhere = CmError::NoDevice([192, 0, 2, 1].into());
        assert_eq!(failure(&nowhere), Failure::NoDevice);
    }

    #[test]
    fn loopback_peer_is_reached_from_a_device_with_another_loopback_address() {
        let devices = || vec![device("first", "127.0.0.2"), device("second", "127.0.0.3")];
        let found = loopback_of(devices(), [127, 0, 0, 1].into()).expect("a device");
        assert_eq!(found.0.name, "first");
        assert_eq!(found.1, IpAddr::from([127, 0, 0, 2]));
        assert!(loopback_of(devices(), Ipv6Addr::LOCALHOST.into()).is_none());
        assert!(loopback_of(devices(), [192, 0, 2, 1].into()).is_none());
    }

    /// Objects of one id can only be used with another id of the same device.
    #[test]
    fn ids_at_one_address_share_an_open_device() {
        let address = IpAddr::from([127, 58, 96, 1]);
        let (one, other) = (at(address).expect("free"), at(address).expect("free"));
        assert!(Arc::ptr_eq(&one, &other));
        let elsewhere = at([127, 58, 96, 2].into()).expect("free");
        assert!(!Arc::ptr_eq(&one, &elsewhere));
    }
}
