//! With epoll: one thread waits for the file descriptors of both completion channels.
//!
//! A completion channel has a descriptor that becomes readable when an armed completion queue gets
//! a completion. It can be waited for together with sockets, timers and pipes.

use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;

use examples::TIMEOUT;
use rocinante::{Completion, Notify};
use rustix::event::{Timespec, epoll};

use crate::side::Side;

/// The epoll data of the two descriptors.
const CLIENT: u64 = 0;
const SERVER: u64 = 1;

pub(crate) fn echo(client: &Side, server: &Side, rounds: u32) -> anyhow::Result<()> {
    let poller = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    for (side, name) in [(client, CLIENT), (server, SERVER)] {
        let name = epoll::EventData::new_u64(name);
        epoll::add(&poller, &side.channel, name, epoll::EventFlags::IN)?;
        side.completions.arm(Notify::Any);
    }
    let mut state = ClientState {
        side: client,
        round: 0,
        rounds,
        completed: 0,
    };
    state.begin()?;
    while state.round < rounds {
        for name in ready(&poller)? {
            match name {
                CLIENT => state.handle_completions()?,
                _ => echo_back(server)?,
            }
        }
    }
    Ok(())
}

/// The state of the client. A thread would keep it on its stack; an event loop needs a struct.
struct ClientState<'e> {
    side: &'e Side,
    round: u32,
    rounds: u32,
    /// Completions in this round: the SEND, and the receive of the echo.
    completed: u32,
}

impl ClientState<'_> {
    fn begin(&self) -> anyhow::Result<()> {
        if self.round < self.rounds {
            self.side.send(self.round)?;
        }
        Ok(())
    }

    fn handle_completions(&mut self) -> anyhow::Result<()> {
        for completion in take_completions(self.side) {
            self.side.take(&completion)?;
            self.completed += 1;
            if self.completed == 2 {
                self.side.compare(self.round)?;
                self.round += 1;
                self.completed = 0;
                self.begin()?;
            }
        }
        Ok(())
    }
}

fn echo_back(side: &Side) -> anyhow::Result<()> {
    for completion in take_completions(side) {
        if side.take(&completion)? {
            side.send_back()?;
        }
    }
    Ok(())
}

/// Returns all new completions. Takes the notification, arms the queue again, and then polls until it
/// is empty. In any other order a completion could be missed.
fn take_completions(side: &Side) -> Vec<Completion> {
    while side.channel.poll().is_some() {}
    side.completions.arm(Notify::Any);
    std::iter::from_fn(|| side.completions.poll()).collect()
}

/// Waits for readable descriptors, and returns their epoll data.
fn ready(poller: &OwnedFd) -> anyhow::Result<Vec<u64>> {
    let timeout = Timespec {
        tv_sec: TIMEOUT.as_secs() as i64,
        tv_nsec: 0,
    };
    let mut events = [MaybeUninit::uninit(); 2];
    let (events, _) = epoll::wait(poller, &mut events[..], Some(&timeout))?;
    anyhow::ensure!(!events.is_empty(), "no notification for 30 seconds");
    Ok(events.iter().map(|event| event.data.u64()).collect())
}
