//! The way of event loops: one thread, and a descriptor for everything that can happen.
//!
//! A completion channel has a descriptor that becomes readable when an armed completion queue gets
//! a completion. It can be waited for together with sockets, timers and pipes.

use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;

use examples::PATIENCE;
use rocinante::{Completion, Notify};
use rustix::event::{Timespec, epoll};

use crate::end::End;

/// How the loop knows its descriptors.
const ASKER: u64 = 0;
const ANSWERER: u64 = 1;

pub(crate) fn echo(asker: &End, answerer: &End, rounds: u32) -> anyhow::Result<()> {
    let poller = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    for (end, name) in [(asker, ASKER), (answerer, ANSWERER)] {
        let name = epoll::EventData::new_u64(name);
        epoll::add(&poller, &end.channel, name, epoll::EventFlags::IN)?;
        end.completions.notify(Notify::Any);
    }
    let mut asking = Asking {
        end: asker,
        round: 0,
        rounds,
        completed: 0,
    };
    asking.begin()?;
    while asking.round < rounds {
        for name in ready(&poller)? {
            match name {
                ASKER => asking.go_on()?,
                _ => answer(answerer)?,
            }
        }
    }
    Ok(())
}

/// Where the asking end stands. A thread would keep this in its stack; a loop has to write it down.
struct Asking<'e> {
    end: &'e End,
    round: u32,
    rounds: u32,
    /// What has completed of this round: our SEND, and the receive of what came back.
    completed: u32,
}

impl Asking<'_> {
    fn begin(&self) -> anyhow::Result<()> {
        match self.round < self.rounds {
            true => self.end.send(self.round),
            false => Ok(()),
        }
    }

    fn go_on(&mut self) -> anyhow::Result<()> {
        for completion in news(self.end) {
            self.end.take(&completion)?;
            self.completed += 1;
            if self.completed == 2 {
                self.end.compare(self.round)?;
                self.round += 1;
                self.completed = 0;
                self.begin()?;
            }
        }
        Ok(())
    }
}

fn answer(end: &End) -> anyhow::Result<()> {
    for completion in news(end) {
        if end.take(&completion)? {
            end.send_back()?;
        }
    }
    Ok(())
}

/// What has completed. First take the notification, then arm the queue for the next, then poll
/// until it is empty: in any other order a completion could come unnoticed.
fn news(end: &End) -> Vec<Completion> {
    while end.channel.poll().is_some() {}
    end.completions.notify(Notify::Any);
    std::iter::from_fn(|| end.completions.poll()).collect()
}

/// Sleeps until something has happened, and says to whom.
fn ready(poller: &OwnedFd) -> anyhow::Result<Vec<u64>> {
    let patience = Timespec {
        tv_sec: PATIENCE.as_secs() as i64,
        tv_nsec: 0,
    };
    let mut events = [MaybeUninit::uninit(); 2];
    let (events, _) = epoll::wait(poller, &mut events[..], Some(&patience))?;
    anyhow::ensure!(!events.is_empty(), "nothing happened for 30 seconds");
    Ok(events.iter().map(|event| event.data.u64()).collect())
}
