//! What joins a device and a manager, the way the documentation of `cm` tells a driver.

use std::collections::BTreeSet;

use cm::{Failure, Instruction, Recipient, Route};
use engine::{AsyncEvent, Completion, Event};
use wire::cm::Message;
use wire::{PathMtu, Qpn, mad};

use super::process::Process;
use super::{Connections, Plan};
use crate::Complaint;

impl Connections {
    /// Lets a process do everything that it can do now, and whom it has given something to do.
    pub(super) fn pump(&mut self, host: usize) -> Result<(), Complaint> {
        let mut busy = BTreeSet::from([host]);
        while let Some(host) = busy.pop_first() {
            if self.processes[host].is_none() {
                continue;
            }
            while self.turn(host, &mut busy)? {}
            let (process, device) = (self.processes[host].as_mut(), &mut self.world.hosts[host]);
            if let (Some(process), Some(device)) = (process, device.device.as_mut()) {
                process.reap(device)?;
            }
            self.set_alarm(host);
        }
        Ok(())
    }

    /// Takes one thing that the device or the manager has to say; false if there is none.
    fn turn(&mut self, host: usize, busy: &mut BTreeSet<usize>) -> Result<bool, Complaint> {
        let queue = self.process(host).queue;
        // Only to ask: nothing will be sent because of this.
        let device = self.world.hosts[host].device.as_mut();
        let device = device.expect("a living process has a device");
        if let Some(completion) = device.poll_completion(queue) {
            self.complete(host, &completion, busy)?;
            return Ok(true);
        }
        if let Some(event) = device.poll_event() {
            self.hear(host, event)?;
            return Ok(true);
        }
        let manager = &mut self.process(host).manager;
        if let Some(instruction) = manager.poll_instruction() {
            self.obey(host, instruction)?;
        } else if let Some(transmit) = manager.poll_transmit() {
            Process::post_letter(self.device(host), &transmit)?;
        } else if let Some(event) = manager.poll_event() {
            self.react(host, event.id, &event.kind)?;
        } else {
            return Ok(false);
        }
        Ok(true)
    }

    fn complete(
        &mut self,
        host: usize,
        completion: &Completion,
        busy: &mut BTreeSet<usize>,
    ) -> Result<(), Complaint> {
        self.world.digest.number(completion.id);
        if completion.queue_pair != Qpn::GSI {
            return self.data_completed(host, completion);
        }
        let (process, device) = self.both(host);
        let (arrival, datagram) = process.open_letter(device, completion)?;
        self.deliver(host, arrival, &datagram, busy)
    }

    /// Whoever gets a message for an address passes it on to its owner.
    fn deliver(
        &mut self,
        host: usize,
        arrival: cm::Arrival,
        datagram: &[u8],
        busy: &mut BTreeSet<usize>,
    ) -> Result<(), Complaint> {
        let now = self.world.instant();
        let datagram: &[u8; mad::LENGTH] = datagram
            .try_into()
            .map_err(|_| Complaint::new("a letter is not as long as a management datagram"))?;
        let (header, message) = Message::parse(datagram)
            .map_err(|error| Complaint::new(format!("a manager sent no message: {error}")))?;
        let owners = self.owners(host, &message);
        if owners == [host] {
            let manager = &mut self.process(host).manager;
            manager.handle_datagram(now, arrival, datagram);
            return Ok(());
        }
        for owner in owners {
            let manager = &mut self.process(owner).manager;
            manager.handle_message(now, arrival, header.transaction(), &message);
            busy.insert(owner);
            if owner != host {
                self.census.note("message passed on");
            }
        }
        Ok(())
    }

    /// Those at the address of a process whom a message is for. Somebody has to answer for those
    /// who do not exist.
    fn owners(&self, host: usize, message: &Message) -> Vec<usize> {
        let address = self.places[host].address();
        let owns = |process: &Process| match cm::owner_of(message) {
            Recipient::Identifier(id) => process.place.slice().contains(id),
            Recipient::Listener(service) => process.manager.is_listening(service),
            Recipient::Everyone => true,
        };
        let there = self.processes.iter().flatten();
        let owners: Vec<usize> = there
            .filter(|process| process.place.address() == address && owns(process))
            .map(|process| process.place.number)
            .collect();
        if owners.is_empty() {
            return vec![host];
        }
        owners
    }

    fn hear(&mut self, host: usize, event: Event) -> Result<(), Complaint> {
        match event {
            Event::Async(AsyncEvent::CommunicationEstablished(number)) => {
                if self.process(host).manager.notify_established(number) {
                    self.census.note("data before RTU");
                }
                Ok(())
            }
            other => Err(Complaint::new(format!("{other:?} on host {host}"))),
        }
    }

    /// A driver that finds what it looks for, mostly.
    fn obey(&mut self, host: usize, instruction: Instruction) -> Result<(), Complaint> {
        let luck = self.rng.below(100);
        let mtu = *self
            .rng
            .pick(&[PathMtu::Mtu256, PathMtu::Mtu1024, PathMtu::Mtu4096]);
        let (process, device) = self.both(host);
        let address = process.place.address();
        let manager = &mut process.manager;
        match instruction {
            Instruction::ResolveAddress { .. } | Instruction::ResolveRoute { .. } if luck == 0 => {}
            Instruction::ResolveAddress { id, .. } if luck == 1 => {
                manager.address_resolved(id, Err(Failure::Os(113)));
            }
            Instruction::ResolveAddress { id, .. } => manager.address_resolved(id, Ok(address)),
            Instruction::ResolveRoute { id, .. } if luck < 4 => {
                manager.route_resolved(id, Err(Failure::Os(113)));
            }
            Instruction::ResolveRoute { id, .. } => {
                manager.route_resolved(id, Ok(Route::new(mtu)));
            }
            Instruction::BreakQueuePair { id, qpn } => match process.socket(id) {
                Some(socket) if socket.number == qpn => socket.break_off(device)?,
                // The id is gone, and its queue pair with it.
                None => {}
                Some(socket) => {
                    let text = format!("{qpn} is to break, but {id:?} has {}", socket.number);
                    return Err(Complaint::new(text));
                }
            },
            Instruction::JoinMulticast { .. } | Instruction::LeaveMulticast { .. } => {
                return Err(Complaint::new(format!("nobody asked for {instruction:?}")));
            }
        }
        Ok(())
    }

    /// Wakes the manager when it wants to be woken.
    fn set_alarm(&mut self, host: usize) {
        let (now, begin) = (self.world.now(), self.world.instant() - self.world.now());
        let life = self.lives[host];
        let process = self.process(host);
        let Some(deadline) = process.manager.poll_timeout() else {
            return;
        };
        let at = deadline.saturating_duration_since(begin).max(now);
        if process.wake.is_none_or(|earlier| at < earlier) {
            process.wake = Some(at);
            self.plan(at - now, Plan::Wake { host, life });
        }
    }
}
