//! The driver of a host: looks up the owners of messages, carries out instructions and delivers
//! events.

use std::collections::BTreeSet;

use cm::{Failure, Instruction, Recipient, ResolvedRoute};
use engine::{AsyncEvent, Completion, Event};
use host::{Host, Message, Owner};
use wire::{PathMtu, Qpn};

use super::Connections;
use crate::CheckError;
use crate::machine::Machine;

impl Connections {
    /// Handles all outputs of a process, and of the processes that it forwarded messages to.
    pub(super) fn pump(&mut self, host: usize) -> Result<(), CheckError> {
        let mut busy = BTreeSet::from([host]);
        while let Some(host) = busy.pop_first() {
            if self.processes[host].is_none() {
                continue;
            }
            while self.handle_output(host, &mut busy)? {}
            self.keep_exit_notices(host);
            let process = self.processes[host].as_mut();
            let machine = self.world.hosts[host].machine.as_mut();
            if let (Some(process), Some(host)) = (process, machine.and_then(Machine::host)) {
                let (device, manager) = host.parts();
                process.reap(device, manager)?;
            }
        }
        Ok(())
    }

    /// Handles one output of the host; false if there is none.
    fn handle_output(
        &mut self,
        host: usize,
        busy: &mut BTreeSet<usize>,
    ) -> Result<bool, CheckError> {
        let queue = self.process(host).queue;
        let now = self.world.instant();
        // Read directly: polling must not schedule a transmit event.
        let machine = self.world.hosts[host].machine.as_mut();
        let machine = machine.and_then(Machine::host);
        let it = machine.expect("a process has a host");
        if let Some(message) = it.poll_lookup(now) {
            self.find_owner(host, message, busy);
        } else if let Some(completion) = it.device_mut().poll_completion(queue) {
            self.complete(host, &completion)?;
        } else if let Some(event) = it.poll_event() {
            self.handle_event(host, event)?;
        } else if let Some(instruction) = it.poll_instruction() {
            self.carry_out_instruction(host, instruction)?;
        } else if let Some(event) = it.poll_connection_event() {
            self.react(host, event.id, &event.kind)?;
        } else {
            return Ok(false);
        }
        Ok(true)
    }

    fn complete(&mut self, host: usize, completion: &Completion) -> Result<(), CheckError> {
        self.world.digest.number(completion.id);
        if completion.queue_pair == Qpn::GSI {
            return Err(CheckError::new(
                "a completion of queue pair 1 reached the application",
            ));
        }
        self.data_completed(host, completion)
    }

    /// Forwards a message to the processes at the address that own it.
    fn find_owner(&mut self, host: usize, message: Message, busy: &mut BTreeSet<usize>) {
        let now = self.world.instant();
        let owners = self.owners(host, message.recipient);
        let forward: Vec<usize> = match message.recipient {
            Recipient::Everyone => owners.iter().copied().filter(|&it| it != host).collect(),
            _ if owners.contains(&host) => Vec::new(),
            _ => owners.clone(),
        };
        for &owner in &forward {
            self.event_counts.note("message forwarded");
            let it = self.host(owner);
            if !it.hold_for_lookup(&message.route, &message.packet, true) {
                it.handle_datagram(now, &message.route, &message.packet);
            }
            busy.insert(owner);
        }
        let owner = match (owners.contains(&host), forward.is_empty()) {
            (true, _) => Owner::Here,
            (false, false) => Owner::Elsewhere,
            (false, true) => Owner::None,
        };
        if owner == Owner::None {
            self.event_counts.note("message without an owner");
        }
        let it = self.host(host);
        if let Some(ours) = it.finish_lookup(now, message, owner) {
            it.handle_datagram(now, &ours.route, &ours.packet);
        }
    }

    /// The processes at the address of this one that must get a message.
    fn owners(&mut self, host: usize, recipient: Recipient) -> Vec<usize> {
        let address = self.configs[host].address();
        let count = self.processes.len();
        let is_there = |it: &Self, other: usize| {
            it.processes[other].is_some() && it.configs[other].address() == address
        };
        let there: Vec<usize> = (0..count).filter(|&other| is_there(self, other)).collect();
        there
            .into_iter()
            .filter(|&other| {
                recipient == Recipient::Everyone || self.host(other).is_ours(recipient)
            })
            .collect()
    }

    /// The host of a process, to change it.
    pub(super) fn host(&mut self, host: usize) -> &mut Host {
        let machine = self.world.machine(host).and_then(Machine::host);
        machine.expect("a process has a host")
    }

    fn handle_event(&mut self, host: usize, event: Event) -> Result<(), CheckError> {
        match event {
            Event::Async(AsyncEvent::CommunicationEstablished(_)) => {
                self.event_counts.note("data before RTU");
                Ok(())
            }
            // The connection manager of the host knows it.
            Event::FirstPacket(_) => Ok(()),
            other => Err(CheckError::new(format!("{other:?} on host {host}"))),
        }
    }

    /// Carries out an instruction. Resolution sometimes fails.
    fn carry_out_instruction(
        &mut self,
        host: usize,
        instruction: Instruction,
    ) -> Result<(), CheckError> {
        let chance = self.rng.below(100);
        let mtu = *self
            .rng
            .pick(&[PathMtu::Mtu256, PathMtu::Mtu1024, PathMtu::Mtu4096]);
        let address = self.configs[host].address();
        let manager = self.host(host).manager();
        match instruction {
            Instruction::ResolveAddress { .. } | Instruction::ResolveRoute { .. }
                if chance == 0 => {}
            Instruction::ResolveAddress { id, .. } if chance == 1 => {
                manager.address_resolved(id, Err(Failure::Os(113)));
            }
            Instruction::ResolveAddress { id, .. } => manager.address_resolved(id, Ok(address)),
            Instruction::ResolveRoute { id, .. } if chance < 4 => {
                manager.route_resolved(id, Err(Failure::Os(113)));
            }
            Instruction::ResolveRoute { id, .. } => {
                manager.route_resolved(id, Ok(ResolvedRoute::new(mtu)));
            }
            // The queue pair was destroyed.
            Instruction::MoveToError { .. } => {}
            Instruction::JoinMulticast { .. } | Instruction::LeaveMulticast { .. } => {
                return Err(CheckError::new(format!(
                    "unexpected instruction {instruction:?}"
                )));
            }
        }
        Ok(())
    }
}
