//! What went wrong, told on stderr: one short paragraph each, and nothing while all is well.
//!
//! The driver hands over what it found out as [`News`], without holding its lock. From that and the
//! catalogue of `errors` comes a [`Tale`]: what was asked, what was wrong, what to do.

mod change;
mod connection;
mod failure;
mod misuse;
mod refusal;
mod silence;
mod told;
mod words;

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use engine::{Incident, State};
use errors::{Cause, Entry, Topic};
use net::interface::{Device, GidEntry};
use net::socket::SendError;
use wire::{Qpn, ROCE_PORT};

pub(crate) use connection::{Setback, tell_unresolved};
pub use misuse::Misuse;

const VARIABLE: &str = "ROCI_EXPLAIN";

/// Whether the program itself wants to be told.
static WANTED: AtomicBool = AtomicBool::new(false);

/// Lets this process say on stderr what went wrong and what to do, for all devices that it opens
/// from now on.
///
/// One short paragraph each time something fails, nothing while all is well. `ROCI_EXPLAIN=1` in the
/// environment does the same without a word in the program, and `ROCI_EXPLAIN=0` keeps it silent.
pub fn explain() {
    WANTED.store(true, Ordering::Relaxed);
}

/// Whether the program or the environment wants to be told.
pub(crate) fn is_wanted() -> bool {
    match std::env::var(VARIABLE) {
        Ok(value) if !value.is_empty() => value != "0",
        _ => WANTED.load(Ordering::Relaxed),
    }
}

/// What the driver found out.
#[derive(Debug)]
pub(crate) enum News {
    /// The engine recorded something.
    Incident(Incident, Neighbour),
    /// The kernel did not send packets of a queue pair.
    Unsent {
        queue_pair: Qpn,
        source: IpAddr,
        error: SendError,
    },
    /// A connection failed.
    Setback(Setback),
    /// The C libraries could not make sense of a call.
    Misuse(Option<Qpn>, Misuse),
}

/// What a device knows of a peer that does not answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Neighbour {
    /// Nothing: it is elsewhere.
    Elsewhere,
    /// It should be this very device, which has no such queue pair.
    Missing,
    /// It is a queue pair of this very device, in this state.
    Here(State),
}

/// Tells what happens at one device.
pub(crate) struct Narrator {
    device: Device,
    /// Why packets of queue pairs were not sent: that is why nobody answered.
    unsent: Mutex<HashMap<Qpn, &'static Cause>>,
}

/// One thing that went wrong, in words.
struct Tale {
    /// Whom it happened to: the same thing is told once of each.
    about: String,
    /// What was asked and what was wrong.
    what: String,
    cause: &'static Cause,
    /// Which code says so, to read on.
    entry: Option<&'static Entry>,
    /// Nothing has to be done about it.
    is_ordinary: bool,
}

impl Tale {
    fn new(about: String, what: String, cause: &'static Cause) -> Self {
        Self {
            about,
            what,
            cause,
            entry: None,
            is_ordinary: false,
        }
    }

    /// Leaves it at what happened.
    fn ordinary(mut self) -> Self {
        self.is_ordinary = true;
        self
    }

    fn code(mut self, topic: Topic, code: u32) -> Self {
        self.entry = errors::entry(topic, code);
        self
    }

    fn paragraph(&self) -> String {
        let Self { what, cause, .. } = self;
        if self.is_ordinary {
            return what.clone();
        }
        let remedy = cause.remedy;
        match self.entry {
            Some(entry) => {
                let reference = entry.reference();
                format!("{what} {remedy} (More: roci explain {reference})")
            }
            None => format!("{what} {remedy}"),
        }
    }
}

impl Narrator {
    pub(crate) fn new(device: &Device) -> Self {
        Self {
            device: device.clone(),
            unsent: Mutex::default(),
        }
    }

    /// Tells all of it. May take a moment: whether anybody is at an address is found out by asking.
    pub(crate) fn tell(&self, news: Vec<News>) {
        for piece in news {
            if let Some(tale) = self.tale(piece) {
                told::tell(Some(&self.device.name), &tale);
            }
        }
    }

    fn tale(&self, news: News) -> Option<Tale> {
        Some(match news {
            News::Unsent {
                queue_pair,
                source,
                error,
            } => {
                let tale = silence::unsent(&self.device, queue_pair, source, &error)?;
                self.unsent().insert(queue_pair, tale.cause);
                tale
            }
            News::Setback(setback) => connection::setback(&self.device, &setback)?,
            News::Misuse(queue_pair, misuse) => change::misuse(&self.device, queue_pair, &misuse),
            News::Incident(incident, neighbour) => self.incident(incident, neighbour)?,
        })
    }

    fn unsent(&self) -> MutexGuard<'_, HashMap<Qpn, &'static Cause>> {
        self.unsent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn incident(&self, incident: Incident, neighbour: Neighbour) -> Option<Tale> {
        Some(match incident {
            Incident::ModifyRejected(change) => change::modify(&self.device, &change),
            Incident::PostRejected {
                queue_pair,
                state,
                id,
                work,
                error,
            } => change::post(queue_pair, state, id, work, error)?,
            Incident::RegisterRejected { access, error } => {
                change::register(&self.device, access, error)
            }
            Incident::SendFailed(failed) => {
                let unsent = self.unsent().remove(&failed.queue_pair);
                failure::send(&self.device, &failed, neighbour, unsent)?
            }
            Incident::RequestRejected(refused) => refusal::request(&refused),
            Incident::DatagramFailed {
                queue_pair,
                sender,
                fault,
            } => refusal::datagram(queue_pair, sender, fault),
            Incident::WrongQueueKey {
                queue_pair,
                sender,
                given,
                wanted,
            } => refusal::queue_key(queue_pair, sender, given, wanted),
            Incident::UnknownQueuePair { number, from } => refusal::unknown(number, from),
            Incident::WrongPath {
                queue_pair,
                from,
                peer,
            } => refusal::stranger(queue_pair, from, peer),
            Incident::CompletionsOverran {
                queue,
                capacity,
                queue_pair,
            } => refusal::overrun(queue, capacity, queue_pair),
        })
    }
}

/// The row of the GID table from which a peer can be reached: the kernel's choice, or else one of
/// the same family.
fn row_towards(device: &Device, peer: IpAddr) -> Option<&GidEntry> {
    let source = net::interface::source_towards((peer, ROCE_PORT).into());
    let chosen = source.ok().and_then(|source| device.gid_of(source));
    chosen.or_else(|| {
        let mut rows = device.gids.iter();
        rows.find(|row| row.address.is_ipv4() == peer.is_ipv4())
    })
}
