//! Tells ThreadSanitizer what the device does.

use std::collections::HashMap;
use std::sync::Arc;

use ::check::{Actor, Deed, DeviceId, MemoryAccess};
use net::thread_sanitizer::{self, Fiber};

use super::call::Call;

/// How many fibers there are. ThreadSanitizer is slow with more than 255 threads and fibers, and ends the program if
/// there are some thousands.
const MAX_FIBERS: usize = 100;

/// The fibers of the devices of a process.
#[derive(Debug, Default)]
pub(super) struct Fibers {
    of_actors: HashMap<Actor, Fiber>,
    /// For the actors that have none of their own. They then seem to be one, and a race between two of them is not found.
    shared: Option<Fiber>,
}

impl Fibers {
    /// Carries out what the device or the calling thread has done.
    pub(super) fn tell(&mut self, deed: &Deed<Option<Arc<Call>>>) {
        if deed.actor == Actor::Thread {
            return act(deed);
        }
        let does_something = deed.is_asked || !deed.learns.is_empty();
        if let Some(fiber) = self.fiber(deed.actor, does_something) {
            fiber.run(deed.is_asked, || act(deed));
        }
        if deed.ends {
            self.of_actors.remove(&deed.actor);
        }
    }

    /// A device ends. While there are fibers, ThreadSanitizer takes them for threads, and waits for a second at the end of
    /// the program.
    pub(super) fn close(&mut self, device: DeviceId) {
        let calls = thread_sanitizer::calls_address();
        let ended = self.of_actors.extract_if(|actor, _| match actor {
            Actor::Requests(of, _) | Actor::Messages(of) => *of == device,
            Actor::Thread => false,
        });
        for (_, mut fiber) in ended {
            fiber.run(false, || thread_sanitizer::release(calls));
        }
        if self.of_actors.is_empty()
            && let Some(mut shared) = self.shared.take()
        {
            shared.run(false, || thread_sanitizer::release(calls));
        }
    }

    fn fiber(&mut self, actor: Actor, create: bool) -> Option<&mut Fiber> {
        let has_room = self.of_actors.len() < MAX_FIBERS;
        if self.of_actors.contains_key(&actor) || has_room {
            if create && !self.of_actors.contains_key(&actor) {
                self.of_actors.insert(actor, Fiber::new(&name(actor))?);
            }
            return self.of_actors.get_mut(&actor);
        }
        if self.shared.is_none() {
            self.shared = Fiber::new("roci: further queue pairs");
        }
        self.shared.as_mut()
    }
}

/// The name in reports, which has at most 63 bytes.
fn name(actor: Actor) -> String {
    match actor {
        Actor::Requests(_, number) => {
            format!("roci: requests of QP {:#08x}", number.value())
        }
        _ => "roci: messages that arrive".to_owned(),
    }
}

fn act(deed: &Deed<Option<Arc<Call>>>) {
    if deed.learns_of_calls {
        thread_sanitizer::acquire(thread_sanitizer::calls_address());
    }
    let learned = deed.learns.iter().map(::check::SyncPoint::address);
    let words = deed.learns_of_words.iter().map(|word| *word as usize);
    learned.chain(words).for_each(thread_sanitizer::acquire);
    let call = deed.call.iter().flatten().next();
    let calls = call.map_or(&[][..], |call| call.places());
    for access in &deed.accesses {
        match access {
            MemoryAccess::Read(range) => thread_sanitizer::read(range, calls),
            MemoryAccess::Write(range) => thread_sanitizer::write(range, calls),
            MemoryAccess::LoadWord(word) => thread_sanitizer::load_word(word, calls),
            MemoryAccess::StoreWord(word) => thread_sanitizer::store_word(word, calls),
            MemoryAccess::ChangeWord(word) => thread_sanitizer::change_word(word, calls),
        }
    }
    for sync in &deed.tells {
        thread_sanitizer::release(sync.address());
    }
    if deed.tells_calls {
        thread_sanitizer::release(thread_sanitizer::calls_address());
    }
}
