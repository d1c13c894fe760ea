//! The programs by where they come from, and how each is run: data only.

mod crates;
mod debian;
mod fabrics;
mod mpi;
mod python;
mod tried;

pub(super) use tried::TRIED;

use super::list::Entry;

pub(super) fn all() -> Vec<Entry> {
    let groups = [
        fabrics::entries(),
        mpi::entries(),
        python::entries(),
        debian::entries(),
        crates::entries(),
    ];
    groups.into_iter().flatten().collect()
}
