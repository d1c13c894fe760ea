//! The programs by origin, and how each is run: data only.

mod crates;
mod debian;
mod fabrics;
mod manual_results;
mod mpi;
mod python;

pub(super) use manual_results::TRIED;

use super::entry::{Entry, Field};

/// Every run, in the order of the scoreboard.
pub(super) fn entries() -> Vec<Entry> {
    let groups = [
        fabrics::entries(),
        mpi::entries(),
        python::entries(),
        debian::entries(),
        crates::entries(),
    ];
    let mut entries: Vec<Entry> = groups.into_iter().flatten().collect();
    let index = |entry: &Entry| Field::ALL.iter().position(|field| *field == entry.field);
    entries.sort_by_key(index);
    entries
}
