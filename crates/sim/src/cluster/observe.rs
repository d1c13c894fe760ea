//! Fetches events, completions and states of a host, and compares them with the model.

use engine::{AsyncEvent, Completion, CompletionQueue, Event, Id, Notify, State, Status};
use wire::Qpn;

use super::connection_end::Fault;
use super::{Cluster, Queue};
use crate::CheckError;
use crate::machine::Machine;

/// Whether a notification is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Due {
    No,
    /// Unknown: two equal messages differ in whether they solicit one.
    Perhaps,
    Yes,
}

impl Cluster {
    /// The application polls a host after a step, though not after every one.
    pub(super) fn poll_sometimes(&mut self, host: usize) -> Result<(), CheckError> {
        if self.rng.below(self.profile.poll_every) == 0 {
            self.drain(host)?;
        }
        Ok(())
    }

    pub(super) fn drain_all(&mut self) -> Result<(), CheckError> {
        (0..self.world.hosts.len()).try_for_each(|host| self.drain(host))
    }

    /// Fetches all events and completions of a host, and checks them.
    pub(super) fn drain(&mut self, host: usize) -> Result<(), CheckError> {
        self.drain_events(host)?;
        for queue in 0..self.queues.len() {
            if self.queues[queue].host == host {
                self.drain_queue(queue)?;
            }
        }
        self.check_limits(host)?;
        self.check_states(host)?;
        for end in 0..self.ends.len() {
            if self.ends[end].host == host && self.state(end) == Some(State::Error) {
                self.settle_silent(end)?;
            }
        }
        Ok(())
    }

    pub(super) fn drain_events(&mut self, host: usize) -> Result<(), CheckError> {
        while let Some(machine) = &mut self.world.hosts[host].machine
            && let Some(event) = machine.poll_event()
        {
            match event {
                Event::Completion(id) => {
                    let mut queues = self.queues.iter_mut();
                    let queue = queues.find(|queue| queue.host == host && queue.id == id);
                    let queue =
                        queue.ok_or_else(|| CheckError::new("an unknown queue notifies"))?;
                    queue.notifications += 1;
                }
                Event::CompletionAdded(_) => {
                    return Err(CheckError::new(
                        "no queue reports that it is filled in this run",
                    ));
                }
                // The connection manager of the host knows it.
                Event::FirstPacket(_) => {}
                Event::Async(event) => self.handle_event(host, event)?,
            }
        }
        Ok(())
    }

    fn drain_queue(&mut self, queue: usize) -> Result<(), CheckError> {
        let Queue {
            host, id, armed, ..
        } = self.queues[queue];
        let mut due = Due::No;
        while let Some(device) = self.world.hosts[host]
            .machine
            .as_mut()
            .map(Machine::device_mut)
            && let Some(completion) = device.poll_completion(id)
        {
            self.note(&completion);
            let solicited = self.complete(host, id, &completion)?;
            let failed = completion.status != Status::Success;
            due = due.max(match armed {
                None => Due::No,
                Some(Notify::Any) => Due::Yes,
                Some(Notify::Solicited) if failed => Due::Yes,
                Some(Notify::Solicited) => solicited,
            });
        }
        // A receive that was just posted to a queue pair in ERROR completes at once.
        self.drain_events(host)?;
        self.check_notification(queue, due)
    }

    fn note(&mut self, completion: &Completion) {
        let digest = &mut self.world.digest;
        digest.number(completion.id);
        digest.number(u64::from(completion.queue_pair.value()));
        digest.number(completion.status as u64);
        digest.number(u64::from(completion.length));
    }

    /// A notification comes exactly when the queue is armed and a matching completion arrived.
    fn check_notification(&mut self, queue: usize, due: Due) -> Result<(), CheckError> {
        let Queue {
            host,
            id,
            armed,
            notifications,
        } = self.queues[queue];
        let right = match due {
            Due::No => notifications == 0,
            Due::Perhaps => notifications <= 1,
            Due::Yes => notifications == 1,
        };
        if !right {
            return Err(CheckError::new(format!(
                "completion queue {id:?} of host {host}, armed for {armed:?}, notified \
                 {notifications} times; due: {due:?}"
            )));
        }
        let entry = &mut self.queues[queue];
        entry.notifications = 0;
        if notifications > 0 {
            entry.armed = None;
        }
        if entry.armed.is_none() && self.rng.percent(40) {
            let notify = *self.rng.pick(&[Notify::Any, Notify::Solicited]);
            self.queues[queue].armed = Some(notify);
            if let Some(device) = self.world.hosts[host]
                .machine
                .as_mut()
                .map(Machine::device_mut)
            {
                device.arm(id, notify);
            }
        }
        Ok(())
    }

    fn complete(
        &mut self,
        host: usize,
        queue: Id<CompletionQueue>,
        completion: &Completion,
    ) -> Result<Due, CheckError> {
        let end = self.find_end(host, completion.queue_pair)?;
        if self.right_queue(end, completion) != Some(queue) {
            let text = format!("{completion:?} came through {queue:?}");
            return Err(self.error_at(end, &text));
        }
        if completion.work.is_receive() {
            self.receive_completed(end, completion)
        } else {
            self.send_completed(end, completion).map(|()| Due::No)
        }
    }

    fn find_end(&self, host: usize, number: Qpn) -> Result<usize, CheckError> {
        self.ends
            .iter()
            .position(|end| end.host == host && end.number == number)
            .ok_or_else(|| CheckError::new(format!("host {host} reports the unknown {number}")))
    }

    fn handle_event(&mut self, host: usize, event: AsyncEvent) -> Result<(), CheckError> {
        match event {
            AsyncEvent::AccessError(number) => {
                self.peer_rejected(self.find_end(host, number)?, Fault::Access)
            }
            AsyncEvent::RequestError(number) => {
                self.peer_rejected(self.find_end(host, number)?, Fault::Request)
            }
            AsyncEvent::QueuePairFatal(number) => {
                self.peer_rejected(self.find_end(host, number)?, Fault::Fatal)
            }
            AsyncEvent::SendQueueDrained(number) => self.drained(self.find_end(host, number)?),
            AsyncEvent::LastReceiveReached(number) => {
                self.check_flush(self.find_end(host, number)?)
            }
            AsyncEvent::SharedReceiveLimit(queue) => self.limit_reached(host, queue),
            AsyncEvent::CommunicationEstablished(_) => Ok(()),
            AsyncEvent::PortError | AsyncEvent::PortActive | AsyncEvent::Other(_) => {
                Err(CheckError::new(format!("a port of host {host} changes")))
            }
            AsyncEvent::CompletionQueueError(queue) => Err(CheckError::new(format!(
                "completion queue {queue:?} of host {host} overran, though it has room"
            ))),
        }
    }

    /// A queue pair is in ERROR exactly when there is a reason for it.
    fn check_states(&self, host: usize) -> Result<(), CheckError> {
        if self.world.device(host).is_none() {
            return Ok(());
        }
        for (index, end) in self.ends.iter().enumerate() {
            if end.host != host {
                continue;
            }
            let queue_pair = self.world.queue_pair(host, end.number);
            let state = queue_pair.map(engine::QueuePair::state);
            let broken = state == Some(State::Error);
            if broken && end.is_alive() {
                return Err(self.error_at(index, "is in ERROR without a reason"));
            }
            if !broken && let Some(cause) = end.failure {
                let text = format!("still works after {cause:?} in state {state:?}");
                return Err(self.error_at(index, &text));
            }
        }
        Ok(())
    }
}
