//! All ids of a manager, and which of them changed since the driver last asked.
//!
//! Every change of an id goes through [`IdTable::get_mut`]. So an exit notice can't miss a change of
//! its id.

use std::collections::{BTreeMap, BTreeSet};

use crate::exit_notice::ExitMessage;
use crate::id::{Id, IdEntry};

/// All ids.
#[derive(Debug)]
pub(crate) struct IdTable {
    all: BTreeMap<Id, IdEntry>,
    /// None if the driver does not want exit notices.
    notices: Option<Notices>,
}

/// The exit notices that the driver has, and those that may have changed.
#[derive(Debug, Default)]
struct Notices {
    /// Ids whose notice may have changed. Each of them exists or has a notice.
    touched: BTreeSet<Id>,
    /// The last notice of each id that the driver fetched.
    fetched: BTreeMap<Id, ExitMessage>,
}

impl IdTable {
    pub(crate) fn new(exit_notices: bool) -> Self {
        IdTable {
            all: BTreeMap::new(),
            notices: exit_notices.then(Notices::default),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    pub(crate) fn get(&self, id: Id) -> Option<&IdEntry> {
        self.all.get(&id)
    }

    pub(crate) fn get_mut(&mut self, id: Id) -> Option<&mut IdEntry> {
        let entry = self.all.get_mut(&id)?;
        if let Some(notices) = &mut self.notices
            && !entry.touched
        {
            entry.touched = true;
            notices.touched.insert(id);
        }
        Some(entry)
    }

    pub(crate) fn insert(&mut self, id: Id, entry: IdEntry) {
        self.all.insert(id, entry);
    }

    pub(crate) fn remove(&mut self, id: Id) {
        self.all.remove(&id);
        if let Some(notices) = &mut self.notices {
            if notices.fetched.contains_key(&id) {
                notices.touched.insert(id);
            } else {
                notices.touched.remove(&id);
            }
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (Id, &IdEntry)> {
        self.all.iter().map(|(&id, entry)| (id, entry))
    }

    pub(crate) fn values(&self) -> impl Iterator<Item = &IdEntry> {
        self.all.values()
    }

    /// Whether an exit notice may have changed.
    pub(crate) fn has_touched(&self) -> bool {
        let touched = self.notices.as_ref().map(|notices| &notices.touched);
        touched.is_some_and(|touched| !touched.is_empty())
    }

    /// How many entries are kept for exit notices.
    pub(crate) fn notices(&self) -> usize {
        let notices = self.notices.as_ref();
        notices.map_or(0, |notices| notices.touched.len() + notices.fetched.len())
    }

    /// The next id whose exit message differs from the one that the driver fetched last.
    pub(crate) fn next_changed(&mut self) -> Option<(Id, Option<ExitMessage>)> {
        let notices = self.notices.as_mut()?;
        while let Some(id) = notices.touched.pop_first() {
            let entry = self.all.get_mut(&id);
            let message = entry.and_then(|entry| {
                entry.touched = false;
                ExitMessage::of(entry.exchange.as_deref()?)
            });
            let last = match message {
                Some(message) => notices.fetched.insert(id, message),
                None => notices.fetched.remove(&id),
            };
            if last != message {
                return Some((id, message));
            }
        }
        None
    }
}
