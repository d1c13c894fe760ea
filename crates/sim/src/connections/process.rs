//! One process: its queue pairs, listeners and connections.

use std::collections::BTreeMap;
use std::time::Duration;

use cm::Manager;
use engine::{CompletionQueue, Device, Id, ProtectionDomain};
use host::Host;
use wire::Qpn;

use super::data_queue_pair::DataQueuePair;
use super::process_config::{ProcessConfig, Service};
use crate::CheckError;
use crate::rng::Rng;

/// A process.
pub(super) struct Process {
    pub(super) config: ProcessConfig,
    pub(super) listeners: BTreeMap<cm::Id, Service>,
    /// Queue pairs of connections, by number.
    pub(super) queue_pairs: BTreeMap<Qpn, DataQueuePair>,
    pub(super) of_id: BTreeMap<cm::Id, Qpn>,
    /// When the last connection of a number ended.
    pub(super) ended: BTreeMap<Qpn, Duration>,
    /// The queue pair of the datagram service.
    pub(super) service: Qpn,
    pub(super) domain: Id<ProtectionDomain>,
    pub(super) queue: Id<CompletionQueue>,
    /// The messages to send if the process dies.
    pub(super) exit_notices: BTreeMap<cm::Id, cm::Transmit>,
}

impl Process {
    /// Starts a process on a new host, with listeners for all services.
    pub(super) fn start(
        config: ProcessConfig,
        host: &mut Host,
        rng: &mut Rng,
    ) -> Result<Process, CheckError> {
        host.manager().add_address(config.address());
        let (device, manager) = host.parts();
        let mut process = Process {
            config,
            listeners: BTreeMap::new(),
            queue_pairs: BTreeMap::new(),
            of_id: BTreeMap::new(),
            ended: BTreeMap::new(),
            service: Qpn::default(),
            domain: device.allocate_domain()?,
            queue: device.create_completion_queue(10_000)?,
            exit_notices: BTreeMap::new(),
        };
        process.listen(manager, Service::Reliable, rng)?;
        process.listen(manager, Service::Unreliable, rng)?;
        let datagrams = process.listen(manager, Service::Datagram, rng)?;
        process.open_service(device, manager, datagrams)?;
        Ok(process)
    }

    pub(super) fn listen(
        &mut self,
        manager: &mut Manager,
        service: Service,
        rng: &mut Rng,
    ) -> Result<cm::Id, CheckError> {
        let id = manager.create_id(service.space(), service.kind())?;
        let address = (self.config.address(), self.config.port()).into();
        manager.bind(id, address)?;
        manager.listen(id, *rng.pick(&[1, 2, 8]))?;
        self.listeners.insert(id, service);
        Ok(id)
    }

    /// Creates one queue pair for all clients of the datagram service.
    fn open_service(
        &mut self,
        device: &mut Device,
        manager: &mut Manager,
        id: cm::Id,
    ) -> Result<(), CheckError> {
        let init = manager.init_attributes(id)?;
        let pair = DataQueuePair::create(device, self.domain, self.queue, Service::Datagram, None)?;
        let pair = pair.ok_or_else(|| CheckError::new("a new device has no number"))?;
        pair.initialize(device, &init)?;
        pair.open(device)?;
        pair.post_receives(device)?;
        self.service = pair.number;
        self.queue_pairs.insert(pair.number, pair);
        Ok(())
    }

    /// The queue pair of an id.
    pub(super) fn queue_pair_of(&mut self, id: cm::Id) -> Option<&mut DataQueuePair> {
        self.queue_pairs.get_mut(self.of_id.get(&id)?)
    }

    /// The id is destroyed: its queue pair stays until its number may be reused.
    pub(super) fn retire(
        &mut self,
        device: &mut Device,
        id: cm::Id,
    ) -> Result<Option<Qpn>, CheckError> {
        let Some(number) = self.of_id.remove(&id) else {
            return Ok(None);
        };
        let pair = self
            .queue_pairs
            .get_mut(&number)
            .expect("the id has a queue pair");
        pair.id = None;
        pair.move_to_error(device)?;
        Ok(Some(number))
    }

    /// Destroys queue pairs whose numbers may be reused.
    pub(super) fn reap(
        &mut self,
        device: &mut Device,
        manager: &Manager,
    ) -> Result<(), CheckError> {
        let service = self.service;
        let is_over = |pair: &DataQueuePair| {
            pair.id.is_none() && pair.number != service && !manager.is_in_time_wait(pair.number)
        };
        let over: Vec<Qpn> = self
            .queue_pairs
            .values()
            .filter(|pair| is_over(pair))
            .map(|pair| pair.number)
            .collect();
        for pair in over
            .iter()
            .filter_map(|number| self.queue_pairs.remove(number))
        {
            pair.destroy(device)?;
        }
        Ok(())
    }

    /// Destroys everything that the start created.
    pub(super) fn stop(&mut self, device: &mut Device) -> Result<(), CheckError> {
        for pair in std::mem::take(&mut self.queue_pairs).into_values() {
            if pair.number == self.service {
                pair.destroy(device)?;
            } else {
                return Err(CheckError::new(format!("{} is left", pair.number)));
            }
        }
        device.destroy_completion_queue(self.queue)?;
        device.free_domain(self.domain)?;
        // Queue pair 1 and its receives belong to the host.
        match (device.queue_pair_count(), device.memory_count()) {
            (1, 1) => Ok(()),
            left => Err(CheckError::new(format!(
                "queue pairs and regions are left: {left:?}"
            ))),
        }
    }
}
