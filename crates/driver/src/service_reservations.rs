//! The services that a device has reserved at its addresses.

use std::collections::HashMap;
use std::net::IpAddr;

use net::sharing::{Claimant, ServiceError};

use crate::fabric::Services;

/// Reservations in the registries of the device's addresses. They have their own lock, because a registry may be locked
/// by another process, and waiting for it must not stop the device.
pub(crate) struct Reservations {
    claimants: Vec<(IpAddr, Claimant)>,
    /// How many ids of this device use a service, by claimant.
    users: HashMap<(usize, u64), usize>,
}

impl Reservations {
    pub(crate) fn new(claimants: Vec<(IpAddr, Claimant)>) -> Self {
        Self {
            claimants,
            users: HashMap::new(),
        }
    }

    /// Several ids of this device may share a port; the manager decides that. Other processes see one.
    fn claim_at(&mut self, index: usize, service: u64) -> Result<(), ServiceError> {
        if !self.users.contains_key(&(index, service)) {
            self.claimants[index].1.claim(service)?;
        }
        *self.users.entry((index, service)).or_insert(0) += 1;
        Ok(())
    }

    fn release_at(&mut self, index: usize, at: Option<IpAddr>, service: u64) {
        if !self.is_at(index, at) {
            return;
        }
        let Some(users) = self.users.get_mut(&(index, service)) else {
            return;
        };
        *users -= 1;
        if *users == 0 {
            self.users.remove(&(index, service));
            // If this fails, the reservation ends with the process.
            let _ = self.claimants[index].1.release(service);
        }
    }

    /// Whether a claimant has this address; true for `None`.
    fn is_at(&self, index: usize, address: Option<IpAddr>) -> bool {
        address.is_none_or(|address| self.claimants[index].0 == address)
    }
}

impl Services for Reservations {
    fn claim(&mut self, at: Option<IpAddr>, service: u64) -> Result<(), ServiceError> {
        for index in 0..self.claimants.len() {
            if self.is_at(index, at)
                && let Err(error) = self.claim_at(index, service)
            {
                for earlier in 0..index {
                    self.release_at(earlier, at, service);
                }
                return Err(error);
            }
        }
        Ok(())
    }

    fn release(&mut self, at: Option<IpAddr>, service: u64) {
        for index in 0..self.claimants.len() {
            self.release_at(index, at, service);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fabric::Port;

    #[test]
    fn a_service_is_claimed_by_its_first_user_and_released_by_its_last() {
        let (our_ports, their_ports) = (Port::at("127.58.92.2"), Port::at("127.58.92.2"));
        let (mut ours, mut theirs) = (our_ports.services(), their_ports.services());
        let (service, at) = (7, Some(IpAddr::from([127, 58, 92, 2])));
        ours.claim(at, service).expect("nobody has it");
        ours.claim(None, service).expect("it is ours");
        ours.release(at, service);
        theirs.claim(at, service).expect_err("one user is left");
        ours.release(Some(IpAddr::from([127, 0, 0, 9])), service);
        theirs
            .claim(at, service)
            .expect_err("another address was released");
        ours.release(at, service);
        theirs.claim(at, service).expect("nobody has it");
        theirs.release(at, service);
        ours.claim(at, service).expect("nobody has it again");
        theirs.claim(at, service).expect_err("it is ours again");
    }
}
