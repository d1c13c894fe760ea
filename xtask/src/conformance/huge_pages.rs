//! A few huge pages for the cases that want some.

use std::fs;

/// How many there are of 2 MiB; root may change it.
const NUMBER: &str = "/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages";

/// Enough for all cases.
const ENOUGH: usize = 16;

/// Pages that go back to the machine with this.
pub(super) struct HugePages {
    before: usize,
}

impl HugePages {
    /// Reserves what is missing; nothing happens where we may not, or where memory is scarce.
    pub(super) fn reserve() -> Option<Self> {
        let before = number().filter(|&before| before < ENOUGH)?;
        fs::write(NUMBER, ENOUGH.to_string()).ok()?;
        let pages = Self { before };
        // With fewer, cases would fail that are skipped with none.
        (number() >= Some(ENOUGH)).then_some(pages)
    }
}

impl Drop for HugePages {
    fn drop(&mut self) {
        let _ = fs::write(NUMBER, self.before.to_string());
    }
}

fn number() -> Option<usize> {
    fs::read_to_string(NUMBER).ok()?.trim().parse().ok()
}
