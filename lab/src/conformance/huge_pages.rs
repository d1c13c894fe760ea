//! Reserves huge pages for the cases that need them.

use std::fs;

/// The number of huge pages of 2 MiB. Root may change it.
const NUMBER: &str = "/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages";

/// Enough for all cases.
const ENOUGH: usize = 16;

/// Reserved huge pages, released when this is dropped.
pub(super) struct HugePages {
    before: usize,
}

impl HugePages {
    /// Reserves the missing pages, unless this user may not or memory is scarce.
    pub(super) fn reserve() -> Option<Self> {
        let before = number().filter(|&before| before < ENOUGH)?;
        fs::write(NUMBER, ENOUGH.to_string()).ok()?;
        let pages = Self { before };
        // With too few pages, cases fail; with none, they are skipped.
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
