//! Checks that datagrams arrive unchanged, and only at their receivers.

use engine::{Attributes, Completion, State, Status};
use wire::{Gid, grh};

use super::{Datagrams, Outstanding, Receiver, Sent, dead, error_at};
use crate::CheckError;
use crate::machine::Machine;

impl Datagrams {
    pub(super) fn drain(&mut self, host: usize) -> Result<(), CheckError> {
        for member in 0..self.members.len() {
            if self.members[member].host != host {
                continue;
            }
            let queue = self.members[member].queue;
            while let Some(device) = self.world.hosts[host]
                .machine
                .as_mut()
                .map(Machine::device_mut)
                && let Some(completion) = device.poll_completion(queue)
            {
                self.world.digest.number(completion.id);
                if completion.work.is_receive() {
                    self.received(member, &completion)?;
                } else {
                    self.send_completed(member, &completion)?;
                }
            }
        }
        Ok(())
    }

    fn send_completed(&mut self, member: usize, completion: &Completion) -> Result<(), CheckError> {
        loop {
            let state = &mut self.members[member];
            let Some(posted) = state.outstanding.pop_front() else {
                return Err(error_at(member, "a send completed that was never posted"));
            };
            self.memories[state.memory].free(&posted.block);
            if posted.id != completion.id {
                if posted.signaled || posted.oversize {
                    return Err(error_at(member, "a send has no completion"));
                }
                continue;
            }
            return self.check(member, &posted, completion);
        }
    }

    fn check(
        &mut self,
        member: usize,
        posted: &Outstanding,
        completion: &Completion,
    ) -> Result<(), CheckError> {
        let host = self.members[member].host;
        let device = self.world.device_mut(host).ok_or_else(dead)?;
        let queue_pair = device.queue_pair(completion.queue_pair);
        let state = queue_pair.map(engine::QueuePair::state);
        match (completion.status, posted.oversize) {
            (Status::Success, false) if posted.signaled => Ok(()),
            (Status::LocalLength, true) => Ok(()),
            // It was posted after one that failed, so it was not sent.
            (Status::Flushed, _) if state == Some(State::SendQueueError) => Ok(()),
            _ => Err(error_at(
                member,
                &format!("a send ended with {completion:?}"),
            )),
        }?;
        if completion.status == Status::Flushed {
            self.forget(posted.id);
        }
        let emptied = self.members[member].outstanding.is_empty();
        if emptied && state == Some(State::SendQueueError) {
            let attributes = Attributes {
                state: Some(State::ReadyToSend),
                ..Attributes::default()
            };
            let number = self.members[member].number;
            let device = self.world.device_mut(host).ok_or_else(dead)?;
            device.modify(number, &attributes)?;
        }
        Ok(())
    }

    /// The datagram was not sent.
    fn forget(&mut self, id: u64) {
        if let Some(sent) = self.sent.iter_mut().find(|sent| sent.id == id) {
            sent.to = Receiver::None;
        }
    }

    fn received(&mut self, member: usize, completion: &Completion) -> Result<(), CheckError> {
        let state = &mut self.members[member];
        let Some((id, block)) = state.posted.pop_front() else {
            return Err(error_at(
                member,
                "a receive completed that was never posted",
            ));
        };
        if (completion.id, completion.status) != (id, Status::Success) {
            let text = format!("{completion:?} instead of receive {id}");
            return Err(error_at(member, &text));
        }
        let memory = &mut self.memories[state.memory];
        let mut found = memory.found_message(&block);
        found.truncate(completion.length as usize);
        // The rest of the block must be unchanged.
        let mut rest = found.len();
        for piece in &block.pieces {
            let filled = rest.min(piece.len());
            memory.accept(piece.start..piece.start + filled);
            rest -= filled;
        }
        memory.check(block.range.clone())?;
        memory.free(&block);
        self.identify(member, completion, &found)
    }

    /// Finds the datagram among those sent.
    fn identify(
        &mut self,
        member: usize,
        completion: &Completion,
        found: &[u8],
    ) -> Result<(), CheckError> {
        let Some((header, data)) = found.split_first_chunk::<{ grh::LENGTH }>() else {
            return Err(error_at(member, "received less than a network header"));
        };
        let faults = self.world.network.faults();
        let (ordered, once) = (faults.keeps_order(), faults.duplication == 0);
        let fits = |sent: &Sent| {
            let sender = &self.members[sent.from];
            let gid: Gid = self.world.hosts[sender.host].address.into();
            let source = completion.source;
            self.is_for(sent, member)
                && sent.data == data
                && sent.immediate == completion.immediate
                && source
                    .is_some_and(|source| (source.queue_pair, source.gid) == (sender.number, gid))
                && grh::parse(header).is_some_and(|route| route.source == gid)
        };
        let newest = |sent: &Sent| self.members[member].newest.get(&sent.from).copied();
        let index = self.sent.iter().enumerate().position(|(index, sent)| {
            let again = sent.came.contains_key(&member);
            let late = newest(sent).is_some_and(|newest| index < newest);
            fits(sent) && !(once && again) && !(ordered && once && late)
        });
        let Some(index) = index else {
            let text = format!(
                "received a datagram that was not sent to it, twice, or out of order: {completion:?}"
            );
            return Err(error_at(member, &text));
        };
        let sent = &mut self.sent[index];
        *sent.came.entry(member).or_default() += 1;
        self.members[member].newest.insert(sent.from, index);
        Ok(())
    }

    /// Whether this queue pair is a receiver of the datagram.
    fn is_for(&self, sent: &Sent, member: usize) -> bool {
        let state = &self.members[member];
        let addressed = match sent.to {
            Receiver::GroupMember(other) => other == member,
            Receiver::Group(group) => state.groups.contains(&group),
            Receiver::None => false,
        };
        addressed && state.queue_key == sent.queue_key
    }

    /// Without loss, every datagram arrives.
    pub(super) fn check_all_arrived(&self) -> Result<(), CheckError> {
        if self.late || !self.world.network.faults().are_none() {
            return Ok(());
        }
        for sent in &self.sent {
            for member in 0..self.members.len() {
                let expected = u32::from(self.is_for(sent, member));
                let came = sent.came.get(&member).copied().unwrap_or(0);
                if came != expected {
                    let text = format!("a datagram of member {} arrived {came} times", sent.from);
                    return Err(error_at(member, &text));
                }
            }
        }
        Ok(())
    }
}
